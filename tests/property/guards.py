"""Random changes of everything that a compiled function reads, between its calls: none may leave a stale program.

A *case* is a function that reads some of `ingredients.py`, from modules of the user's and from installed ones.  After
each change it is called eagerly and compiled, on the same objects, and both must give the same.  `run` counts; what
failed comes as the shortest source that fails.
"""

import itertools
import random
import sys
import sysconfig
import time
import types
import warnings
from collections import Counter

import numpy as np

import xgrad
from xgrad.errors import TracedValueError

from .ingredients import ALWAYS, HEADER, INGREDIENTS

STEPS = 24  # changes of one function
PLACES = ("user", "installed")
REFUSALS = (NotImplementedError, TracedValueError)
_numbers = itertools.count()


class Case:
    """A function, and the changes that were made between its calls: [(place of an ingredient, which change)]."""

    def __init__(self, parts, home, inline, changes=()):
        self.parts = parts  # (kind, "user" or "installed")
        self.home = home  # where the function is
        self.inline = inline  # whether it reads what is in its own module itself, and not by a function there
        self.changes = list(changes)

    def sources(self):
        """{place: the source of the module there}."""
        found = dict.fromkeys(PLACES, HEADER)
        terms = []
        for n, (kind, place) in enumerate(self.parts):
            setup, expression, _ = INGREDIENTS[kind]
            found[place] += f"{setup}\ndef read_N(x): return {expression}\n".replace("_N", f"_{n}")
            here = place == self.home
            term = f"({expression})" if here and self.inline else "read_N(x)" if here else "other.read_N(x)"
            terms.append(f"{n + 1} * {term}".replace("_N", f"_{n}"))
        found[self.home] += f"def function(x): return x + {' + '.join(terms)}\n"
        return found

    def change(self, step):
        """(place, source) of a change."""
        n, which = step
        kind, place = self.parts[n]
        return place, INGREDIENTS[kind][2][which].replace("_N", f"_{n}")

    def source(self):
        """All of it, to be read."""
        lines = [f"# {place}:\n{text.removeprefix(HEADER).strip()}" for place, text in self.sources().items()]
        lines += [f"{source}  # in {place}" for place, source in map(self.change, self.changes)]
        return "\n".join(lines)


class World:
    """The modules of a case, which are as it says as long as nothing is changed."""

    def __init__(self, case):
        self.case, number = case, next(_numbers)
        self.modules = {}
        folders = {"user": "/guards", "installed": sysconfig.get_path("purelib")}
        for place in PLACES:
            name = f"guards_{place}_{number}"
            module = self.modules[place] = types.ModuleType(name)
            module.__file__ = f"{folders[place]}/{name}.py"
            sys.modules[name] = module
        for place in PLACES:
            module = self.modules[place]
            module.other = self.modules[PLACES[place == "user"]]
            exec(compile(case.sources()[place], module.__file__, "exec"), vars(module))
        self.eager = vars(self.modules[case.home])["function"]
        self.compiled = xgrad.compile(self.eager)
        self.x = xgrad.tensor([1.0, 2.0], dtype=xgrad.float64)

    def change(self, step):
        """Make a change; whether there was something to be changed."""
        place, source = self.case.change(step)
        try:
            exec(source, vars(self.modules[place]))
        except Exception:  # an item of what is no list any more, say
            return False
        return True

    def call(self):
        """None if both do the same, "refused" if the compiled function says that it cannot, else what differs."""
        expected, found = outcome(self.eager, self.x), outcome(self.compiled, self.x)
        if isinstance(found, REFUSALS) and not isinstance(expected, REFUSALS):
            return "refused"
        if isinstance(expected, Exception) or isinstance(found, Exception):
            same = type(expected) is type(found)
            return None if same else f"eagerly {expected!r}, compiled {found!r}"
        if expected.dtype != found.dtype or expected.requires_grad != found.requires_grad:
            return f"eagerly {expected!r}, compiled {found!r}"
        a, b = (np.asarray(tensor.detach().numpy()) for tensor in (expected, found))
        same = a.shape == b.shape and np.allclose(a, b, rtol=1e-6, atol=0, equal_nan=True)
        return None if same else f"eagerly {a}, compiled {b}"

    def close(self):
        for module in self.modules.values():
            del sys.modules[module.__name__]
        names = {"xgrad": xgrad}
        for source in ALWAYS:
            exec(source, names)


def outcome(function, x):
    """What a function gives: a tensor, or what it raises."""
    try:
        return function(x)
    except Exception as error:
        return error


def fails(case):
    """What differs after the last of a case's changes, or None."""
    world = World(case)
    try:
        found = world.call()
        for step in case.changes:
            world.change(step)
            found = world.call()
    finally:
        world.close()
    return None if found == "refused" else found


def shrink(case):
    """The case with the fewest ingredients and changes that still fails."""
    last = case.changes[-1][0]
    for parts in ([last],), (range(len(case.parts)),):
        keep = list(*parts)
        for changes in (case.changes[-1:], case.changes[-2:], case.changes):
            mine = [(keep.index(n), which) for n, which in changes if n in keep]
            for home, inline in ((case.home, case.inline),):
                small = Case([case.parts[n] for n in keep], home, inline, mine)
                if mine and fails(small):
                    return small
    return case


def drawn(chosen, kinds):
    """A random case without changes."""
    parts = [(kind, chosen.choice(PLACES)) for kind in chosen.sample(kinds, chosen.randint(1, 3))]
    return Case(parts, chosen.choice(PLACES), chosen.random() < 0.5)


def run(seconds: float, seed: int, steps: int = STEPS, kinds: tuple = tuple(INGREDIENTS)) -> dict:
    """Try for so long; counts of changes, refusals and stale results, and the failures."""
    chosen, end = random.Random(seed), time.monotonic() + seconds
    counts = Counter({"functions": 0, "changes": 0, "traces": 0, "refused": 0, "stale": 0})
    tried, stale, failures, waiting = Counter(), Counter(), {}, []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a function is traced often
        while time.monotonic() < end:
            if not waiting:  # each kind comes up as often as the others
                waiting = chosen.sample(kinds, len(kinds))
            case = drawn(chosen, kinds)
            case.parts[0] = waiting.pop(), case.parts[0][1]
            world = World(case)
            counts["functions"] += 1
            try:
                found = world.call()
                if found and found != "refused":
                    failures.setdefault(case.parts[0][0], f"{case.source()}\n# {found}")
                for _ in range(steps):
                    n = chosen.randrange(len(case.parts))
                    kind = case.parts[n][0]
                    step = n, chosen.randrange(len(INGREDIENTS[kind][2]))
                    if not world.change(step):
                        continue
                    case.changes.append(step)
                    counts["changes"] += 1
                    tried[kind] += 1
                    found = world.call()
                    counts["refused"] += found == "refused"
                    if found is not None and found != "refused":
                        stale[kind] += 1
                        counts["stale"] += 1
                        if kind not in failures:
                            small = shrink(case)
                            failures[kind] = f"{small.source()}\n# {fails(small) or found}"
                        break
                    if time.monotonic() > end:
                        break
                counts["traces"] += world.compiled.metrics().traces
            finally:
                world.close()
    counts["stale of tried"] = [f"{kind}: {stale[kind]} of {tried[kind]}" for kind in kinds if tried[kind]]
    counts["failures"] = [f"{kind}:\n{text}" for kind, text in failures.items()]
    return dict(counts)
