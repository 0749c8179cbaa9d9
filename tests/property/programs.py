"""Random programs of views and in-place writes, as data: generated, run on torch and on xgrad, compared, shrunk.

A program is a list of `Step`s, each one line of Python that both libraries understand:

    t0 = data((2, 3), 0).requires_grad_()
    t1 = t0.clone()
    t2 = t1.select(0, 1)
    t2.mul_(t0.select(0, 0))

Torch runs the steps while they are drawn, so that the generator knows shapes, strides and what may overlap; what
happened is noted in a `Trace`.  xgrad runs the same lines afterwards, once in each path, and is compared with it.

Where the two libraries differ on purpose, the generator knows, and says it here:

* A write to a view that overlaps itself is refused by xgrad, always.  PyTorch refuses it for expanded views, and for
  others writes in an undefined order and gives wrong gradients: torch does not run such a step, and counts as refusing.
* An operand that overlaps the written view partly (`x.add_(x.t())`): PyTorch refuses, or reads what it just wrote;
  xgrad computes with the value from before the write.  Not generated.
* `as_strided` of a view may reach outside of the view.  PyTorch's gradient then drops what lies outside, xgrad's goes
  to the base.  Generated only within the view, of a tensor that autograd knows as a base or as a view; and for the same
  reason no gradient is then asked for that would arrive at a view on the way.
* Results of operators are laid out row-major in xgrad, while PyTorch keeps the permutation of its operands' strides.
  Of a result that is no row-major block, only views are taken that no layout forbids (no `view`, no `as_strided`).
* A result that backward needs (`tanh`), overwritten through an alias with another version counter (`.data`):
  PyTorch does not notice, and differentiates with the new value.  xgrad keeps the value that was saved.  From there on
  the gradients of the program are compared between the two paths only.
* A leaf that was reshaped in place, unrecorded, after it had been used: what arrives at it has the old shape, and
  PyTorch may store it so.  Not generated.
* A view of a tensor that began to require grad later is refused by PyTorch as "a leaf" in an in-place operation, unless
  somebody has read its `grad_fn` since.  xgrad always makes its `grad_fn` anew: torch is made to read it first.
"""

import contextlib
import itertools
import re
from dataclasses import dataclass, field, replace

import numpy as np
import torch

import xgrad

from ..oracle import array, data, family, maybe_no_grad, same, tracking

HEADER = """\
import numpy as np
import {module} as T

def data(shape, seed):
    return T.from_numpy(np.random.default_rng([seed, *shape]).uniform(-1, 1, shape))
"""

SHAPES = ((2, 3), (2, 2, 2), (4,))
ALONE = ("mul_(0.5)", "add_(0.25)", "zero_()", "tanh_()", "fill_(0.75)")
NAME = re.compile(r"\bt\d+\b")


@dataclass(frozen=True)
class Step:
    """One line, and whether grad mode is on; `refused`: a write that xgrad refuses, and that torch does not run."""

    line: str
    grad: bool = True
    refused: bool = False

    @property
    def defines(self):
        left, equals, _ = self.line.partition(" = ")
        return tuple(NAME.findall(left)) if equals and "[" not in left else ()

    @property
    def uses(self):
        return tuple(dict.fromkeys(NAME.findall(self.line.partition(" = ")[2] if self.defines else self.line)))

    def source(self):
        line = self.line + ("  # refused: it overlaps itself" if self.refused else "")
        return line if self.grad else f"with T.no_grad():\n    {line}"


@dataclass(frozen=True)
class Program:
    """The steps, then `backward` of a loss made of `root` with respect to `inputs`."""

    steps: tuple
    root: str
    inputs: tuple

    def source(self, module="torch"):
        lines = [HEADER.format(module=module), *(step.source() for step in self.steps), *self.ending()]
        return "\n".join(lines) + "\n"

    def ending(self):
        names = ", ".join(self.inputs)
        return (
            f"loss = ({self.root} * {self.root} * {self.root}).sum()",
            f"first = T.autograd.grad(loss, [{names}], create_graph=True, allow_unused=True)",
            "penalty = sum((g * g).sum() for g in first if g is not None)",
            f"second = T.autograd.grad(penalty, [{names}], retain_graph=True, allow_unused=True)",
            "loss.backward()",
        )

    def without(self, steps):
        """The program without some steps and whatever depends on them, or None if nothing is left of its end."""
        gone, kept = set(), []
        for i, step in enumerate(self.steps):
            if i in steps or gone.intersection(step.uses):
                gone.update(step.defines)
            else:
                kept.append(step)
        inputs = tuple(name for name in self.inputs if name not in gone)
        return None if self.root in gone or not inputs else Program(tuple(kept), self.root, inputs)


@dataclass
class Trace:
    """What a run did: the error of each step, None where it succeeded, and what was seen at the end."""

    errors: list = field(default_factory=list)
    seen: dict = field(default_factory=dict)
    gradients_count: bool = True  # whether torch's gradients are an oracle


# -- running -----------------------------------------------------------------------------------------------------------


class Run:
    """The state of a program that runs on one library."""

    def __init__(self, T):
        self.T = T
        self.env = {"T": T, "data": lambda shape, seed: data(T, shape, seed)}
        self.trace = Trace()

    def step(self, step):
        error = None
        if not all(name in self.env for name in step.uses):
            error = NameError("an operand was not made")
        elif step.refused and self.T is torch:
            error = RuntimeError("xgrad refuses to write to a view that overlaps itself")
        else:
            try:
                with maybe_no_grad(self.T, step.grad):
                    exec(_compiled(step.line), self.env)
            except Exception as caught:
                error = caught
        self.trace.errors.append(error)
        return error

    def tensors(self):
        return {name: x for name, x in self.env.items() if NAME.fullmatch(name)}

    def finish(self, program):
        """What can be seen of the tensors and of the gradients, at the end."""
        tensors, seen = self.tensors(), self.trace.seen
        seen["value"] = {name: array(x).copy() for name, x in tensors.items()}
        seen["version"] = {name: x._version for name, x in tensors.items()}
        seen["requires_grad"] = {name: x.requires_grad for name, x in tensors.items()}
        seen["retains"] = {name: x._base is not None for name, x in tensors.items()}
        seen["gradient"] = self._attempt(lambda: self._gradients(program))
        seen["grad"] = {name: x.grad for name, x in tensors.items() if x._base is None and x.grad_fn is None}
        seen["leaf"] = {name: self._attempt(lambda x=x: x.is_leaf) for name, x in tensors.items()}
        return self.trace

    @staticmethod
    def _attempt(look):
        try:
            return look()
        except Exception as error:
            return error

    def _gradients(self, program):
        if not all(name in self.env for name in (program.root, *program.inputs)):
            return None
        T, found = self.T, []
        root, inputs = self.env[program.root], [self.env[name] for name in program.inputs]
        loss = (root * root * root).sum()
        first = T.autograd.grad(loss, inputs, create_graph=True, allow_unused=True)
        found.append([None if g is None else array(g) for g in first])
        useful = [g for g in first if g is not None and g.requires_grad]
        second = [None] * len(inputs)
        if useful:
            penalty = (useful[0] * useful[0]).sum()
            for g in useful[1:]:
                penalty = penalty + (g * g).sum()
            second = T.autograd.grad(penalty, inputs, retain_graph=True, allow_unused=True)
        # Of a gradient that is constantly zero, one library knows that it is a constant and the other need not.
        found.append([np.zeros(tuple(x.shape)) if g is None else array(g) for x, g in zip(inputs, second)])
        loss.backward()
        return found


_lines = {}


def _compiled(line):
    code = _lines.get(line)
    if code is None:
        if len(_lines) > 20_000:
            _lines.clear()
        code = _lines[line] = compile(line, line, "exec")
    return code


def run(program, T):
    """Run a program on one library."""
    running = Run(T)
    for step in program.steps:
        running.step(step)
    return running.finish(program)


def compare(program, theirs=None):
    """Assert that xgrad does in both paths what torch did.  `theirs`: torch's trace, if the program has run there."""
    if theirs is None:
        running = TorchRun()
        for step in program.steps:
            running.step(step)
        theirs = running.finish(program)
    first = None
    for path in ("replay", "geometry"):
        with tracking(path):
            ours = run(program, xgrad)
        for step, mine, other in zip(program.steps, ours.errors, theirs.errors):
            _same_outcome(f"{path}: {step.line}", mine, other)
        for kind, expected in theirs.seen.items():
            if kind in ("gradient", "grad") and not theirs.gradients_count:
                if first is not None:
                    same_or_error(f"replay and geometry: {kind}", ours.seen[kind], first.seen[kind])
                continue
            same_or_error(f"{path}: {kind}", ours.seen[kind], expected)
        first = ours


def same_or_error(where, ours, theirs):
    if isinstance(theirs, dict):
        assert list(ours) == list(theirs), where
        for key in theirs:
            same_or_error(f"{where} of {key}", ours[key], theirs[key])
    elif isinstance(theirs, Exception) or isinstance(ours, Exception):
        _same_outcome(where, ours, theirs)
    else:
        same(ours, theirs, where, 1e-7, 1e-10)


def _same_outcome(where, ours, theirs):
    if isinstance(theirs, Exception):
        assert isinstance(ours, family(theirs)), f"{where}: xgrad gave {ours!r}, torch raised {theirs!r}"
    else:
        assert not isinstance(ours, Exception), f"{where}: xgrad raised {ours!r}, torch did not"


# -- what torch's memory looks like ------------------------------------------------------------------------------------


def places(x):
    """The storage offsets of the elements of a torch tensor."""
    offsets = np.array([x.storage_offset()])
    for n, stride in zip(x.shape, x.stride()):
        offsets = (offsets[:, None] + np.arange(n) * stride).ravel()
    return offsets.tolist()


def storage(x):
    return x.untyped_storage()._cdata


def overlaps_itself(x):
    where = places(x)
    return len(set(where)) < len(where)


def overlaps_partly(x, y):
    """Whether two tensors share some memory and are not the same view."""
    if storage(x) != storage(y):
        return False
    alike = x.shape == y.shape and x.stride() == y.stride() and x.storage_offset() == y.storage_offset()
    return not alike and not set(places(x)).isdisjoint(places(y))


class TorchRun(Run):
    """A run on torch that notes layouts and version counters."""

    def __init__(self):
        super().__init__(torch)
        self.scattered = set()  # storages that are no row-major block
        self.counter = {}  # name -> the number of its version counter
        self.results = set()  # (storage, version counter) of results that backward needs
        self.numbers = itertools.count()

    def step(self, step):
        before = None
        if step.refused and len(step.uses) and all(n in self.env for n in step.uses):
            # A program that was shrunk may no longer overlap.
            target = step.line.partition(" = ")[0] if step.line.partition(".")[0] != step.uses[0] else step.uses[0]
            step = step if overlaps_itself(eval(target, self.env)) else replace(step, refused=False)
        writes = not step.defines
        if writes and step.uses and step.uses[0] in self.env:
            before = self.env[step.uses[0]]
            with contextlib.suppress(RuntimeError):
                before.grad_fn
        error = super().step(step)
        if error is None:
            self._note(step, before)
        return error

    def _note(self, step, written):
        source = step.uses[0] if step.uses else None
        for name in step.defines:
            x = self.env[name]
            shares = source is not None and storage(x) == storage(self.env[source])
            if shares and ".data" not in step.line:
                self.counter[name] = self.counter[source]
            else:
                self.counter[name] = next(self.numbers)
            if not shares and not x.is_contiguous():
                self.scattered.add(storage(x))
            if "tanh" in step.line and x.requires_grad:
                self.results.add((storage(x), self.counter[name]))
        if written is not None and not re.search(r"\.(t|transpose|squeeze|unsqueeze|requires_grad)_\(", step.line):
            where, number = storage(written), self.counter[source]
            if any(s == where and n != number for s, n in self.results):
                self.trace.gradients_count = False
            if "tanh_" in step.line and written.requires_grad:
                self.results.add((where, number))


# -- drawing -----------------------------------------------------------------------------------------------------------


class Draw:
    """Choices of a `random.Random`.  (A Hypothesis test gives its own `below`.)"""

    def __init__(self, random):
        self.below = random.randrange

    def one(self, options):
        return options[self.below(len(options))]

    def chance(self, percent):
        return self.below(100) >= 100 - percent


@dataclass(frozen=True)
class Flavour:
    """How often, in percent, a program does what."""

    views: int = 50
    writes: int = 35
    moves: int = 5  # in-place view operations
    no_grad: int = 10
    alias: int = 8  # detach() and .data
    split: int = 10
    two_bases: int = 40


FLAVOURS = {
    "writes through views": Flavour(),
    "unrecorded writes and aliases": Flavour(no_grad=35, alias=25),
    "in-place view operations": Flavour(moves=25, writes=30, split=3),
    "several bases": Flavour(two_bases=100, writes=45, views=35),
}


class Generator:
    """Draws the steps of one program, running each on torch at once."""

    def __init__(self, draw, flavour):
        self.draw, self.flavour = draw, flavour
        self.running = TorchRun()
        self.env = self.running.env
        self.steps = []
        self.names = itertools.count()
        self.aliases = []

    # helpers

    def add(self, line, grad=True, refused=False):
        step = Step(line, grad, refused)
        self.steps.append(step)
        return self.running.step(step)

    def name(self):
        return f"t{next(self.names)}"

    def live(self):
        return list(self.running.tensors())

    def some(self):
        """A tensor; later ones are likelier, so that chains grow."""
        live = self.live()
        return live[-1 - min(self.draw.below(len(live)), self.draw.below(len(live)))]

    def is_leaf(self, name):
        try:
            return self.env[name].grad_fn is None
        except RuntimeError:  # a stale view, whose grad_fn cannot be made anew
            return False

    def mode(self):
        return not self.draw.chance(self.flavour.no_grad)

    # a program

    def program(self, length):
        self.base()
        if self.draw.chance(self.flavour.two_bases):
            self.base()
        kinds = [self.view] * self.flavour.views + [self.write] * self.flavour.writes
        kinds += (
            [self.move] * self.flavour.moves + [self.alias] * self.flavour.alias + [self.split] * self.flavour.split
        )
        kinds += [self.result] * 8 + [self.look] * 4
        for _ in range(length):
            self.draw.one(kinds)()
        live = self.live()
        graded = [n for n in live if self.env[n].requires_grad] or live
        root = self.draw.one(list(reversed(graded)))
        leaves = [n for n in graded if self.is_leaf(n)]
        wanted = graded
        if any(".as_strided(" in step.line for step in self.steps):
            wanted = [n for n in graded if self.env[n]._base is None] or leaves or graded
        inputs = tuple(dict.fromkeys(self.draw.one(wanted) for _ in range(1 + self.draw.below(3))))
        inputs = tuple(dict.fromkeys(inputs + tuple(leaves[:1])))
        program = Program(tuple(self.steps), root, inputs)
        return program, self.running.finish(program)

    def base(self):
        """A leaf, a clone of a leaf, or a tensor outside of the graph; its memory may be transposed, or a view."""
        shape, seed = self.draw.one(SHAPES), self.draw.below(3)
        if len(shape) > 1 and self.draw.chance(20):
            seen = f"data({tuple(reversed(shape))}, {seed}).permute({tuple(reversed(range(len(shape))))}).detach()"
        elif self.draw.chance(20):  # a leaf that is a view, of something that can be reached or not
            whole = f"data({(shape[0] + 1, *shape[1:])}, {seed})"
            if self.draw.chance(50):
                self.add(f"{self.name()} = {whole}")
                whole = self.live()[-1]
            seen = f"{whole}.narrow(0, {self.draw.below(2)}, {shape[0]})"
        else:
            seen = f"data({shape}, {seed})"
        kind = self.draw.below(6)
        leaf = self.name()
        self.add(f"{leaf} = {seen}" + (".requires_grad_()" if kind < 5 else ""))
        if kind < 4:
            self.add(f"{self.name()} = {leaf}.clone()")

    def view(self):
        name = self.some()
        expression = self.view_of(name)
        if expression:
            self.add(f"{self.name()} = {expression}", self.mode())

    def alias(self):
        name = self.some()
        self.aliases.append(self.name())
        self.add(f"{self.aliases[-1]} = {name}.{self.draw.one(('detach()', 'data'))}", self.mode())

    def split(self):
        name = self.some()
        x = self.env[name]
        if not x.ndim:
            return
        dim = self.draw.below(x.ndim)
        n = x.shape[dim]
        options = [f"{name}.split({size}, {dim})" for size in (1, 2) if 1 <= -(-n // size) <= 3]
        options += [f"{name}.chunk(2, {dim})"] if n > 1 else []
        options += [f"{name}.unbind({dim})"] if n <= 3 else []
        if not options:
            return
        call = self.draw.one(options)
        count = len(eval(call, {name: x.detach()}))
        self.add(f"{', '.join(self.name() for _ in range(count))}{',' if count == 1 else ''} = {call}", self.mode())

    def look(self):
        """Read something, so that what is cached may grow old."""
        name = self.some()
        self.add(f"{name}.{self.draw.one(('sum()', 'is_leaf', 'grad_fn', 'requires_grad'))}", self.mode())

    def result(self):
        a, b = self.some(), self.some()
        line = self.draw.one((f"{a}.clone()", f"{a}.tanh()", f"{a} * {b}", f"{a} + {b}", f"{a}.sum()"))
        if b in line[len(a) :] and not _fits(self.env[b].shape, self.env[a].shape):
            line = f"{a} * {a}"
        self.add(f"{self.name()} = {line}", self.mode())

    def move(self):
        """An in-place view operation."""
        name = self.some()
        x = self.env[name]
        options = [f"unsqueeze_({self.draw.below(x.ndim + 1)})"] if x.ndim < 3 else []
        if x.ndim:
            options += [f"transpose_({self.draw.below(x.ndim)}, {self.draw.below(x.ndim)})"] * 2
            options += [f"squeeze_({self.draw.below(x.ndim)})"]
        if 0 < x.ndim <= 2:
            options += ["t_()"] * 3
        leaf = x.requires_grad and self.is_leaf(name)
        self.add(f"{name}.{self.draw.one(options)}", self.mode() or leaf)

    def write(self):
        name = self.some()
        x = self.env[name]
        refused = overlaps_itself(x)
        kind = self.draw.below(10)
        if kind < 2:
            line = f"{name}.{self.draw.one(ALONE)}"
        elif kind < 3 and x.ndim:
            line, refused = self.assignment(name, x)
        else:
            operand = self.operand(x)
            line = f"{name}.{self.draw.one(('mul_', 'mul_', 'add_', 'copy_', 'sub_'))}({operand})"
        if line:
            self.add(line, self.mode(), refused)

    def assignment(self, name, x):
        n = x.shape[0]
        if not x.numel():
            return None, False
        index = self.draw.one((f"{self.draw.below(n)}" if n else ":", "::2", "...", "1:", "..., 0"))
        part = eval(f"x[{index}]", {"x": x.detach()})
        value = self.draw.one(("0.5", self.operand(part)))
        return (f"{name}[{index}] = {value}", overlaps_itself(part)) if part.numel() else (None, False)

    def operand(self, x):
        """Something that broadcasts to the shape of `x` and does not overlap it partly."""
        fitting = [n for n in self.live() if _fits(self.env[n].shape, x.shape) and not overlaps_partly(self.env[n], x)]
        if not fitting or self.draw.chance(15):
            return f"data({tuple(x.shape)}, 9)"
        return self.draw.one(list(reversed(fitting)))

    def view_of(self, name):
        """An expression for a view of a tensor, None if none was found."""
        x, draw = self.env[name], self.draw
        if x.ndim > 4:
            return None
        known = storage(x) not in self.running.scattered
        options = ["alias", "unsqueeze", "expand"]
        if x.ndim:
            options += ["select"] * 4 + ["narrow"] * 3 + ["slice"] * 3 + ["transpose"] * 3
            options += ["squeeze", "unfold", "permute"]
        if x.ndim >= 2:
            options += ["diagonal"] * 2 + ["t"] * (2 if x.ndim == 2 else 0)
        if known:
            options += ["view"] * 3 + ["reshape"] * 2
        if known and self.strides_are_known(name):
            options += ["as_strided"] * 2
        kind = draw.one(options)
        if kind == "alias":
            return f"{name}.view_as({name})" if known else f"{name}[...]"
        if kind == "t":
            return f"{name}.t()"
        if kind == "unsqueeze":
            return f"{name}.unsqueeze({draw.below(x.ndim + 1)})" if x.ndim < 4 else None
        if kind == "expand":
            return f"{name}.expand({(2, *x.shape)})" if x.ndim < 3 and draw.chance(50) else None
        if kind in ("view", "reshape"):
            shape = draw.one([(-1,), (x.numel(),), (2, -1), (-1, 2), (1, -1)])
            return f"{name}.{kind}({shape})"
        if kind == "as_strided":
            return self.strided(name, x)
        if kind == "diagonal":
            i = draw.below(x.ndim)
            j = (i + 1 + draw.below(x.ndim - 1)) % x.ndim
            return f"{name}.diagonal({draw.one((0, 0, 1, -1))}, {i}, {j})"
        dim = draw.below(x.ndim)
        n = x.shape[dim]
        if kind == "select":
            return f"{name}.select({dim}, {draw.below(n)})" if n else None
        if kind == "narrow":
            start = draw.below(n) if n else 0
            return f"{name}.narrow({dim}, {start}, {1 + draw.below(n - start)})" if n else None
        if kind == "slice":
            index = draw.one(("::2", "1:", ":-1", "1::2", ":2", ":"))
            return f"{name}[{':, ' * dim}{index}]"
        if kind == "transpose":
            return f"{name}.transpose({dim}, {draw.below(x.ndim)})"
        if kind == "permute":
            return f"{name}.permute({tuple(np.roll(range(x.ndim), dim).tolist())})"
        if kind == "squeeze":
            return f"{name}.squeeze({dim})"
        assert kind == "unfold"
        return f"{name}.unfold({dim}, 2, {draw.one((2, 2, 2, 1))})" if n >= 2 else None

    def strides_are_known(self, name):
        """Whether `as_strided` of this tensor means the same in both: a whole storage, no alias, or a view of one."""
        root = self.env[name] if self.env[name]._base is None else self.env[name]._base
        if any(root is self.env[alias] for alias in self.aliases if alias in self.env):
            return False
        return len(places(root)) * root.element_size() == root.untyped_storage().nbytes()

    def strided(self, name, x):
        """An `as_strided` that stays within the elements of the tensor."""
        inside = set(places(x))
        options = []
        for size, stride in (
            ((2,), (1,)),
            ((2,), (2,)),
            ((2, 2), (2, 1)),
            ((2, 2), (1, 2)),
            ((2,), (3,)),
            ((2, 2), (1, 1)),
        ):
            for offset in sorted(inside):
                reached = {offset + sum(i * s for i, s in zip(index, stride)) for index in np.ndindex(*size)}
                if reached <= inside:
                    options.append(f"{name}.as_strided({size}, {stride}, {offset})")
        return self.draw.one(options) if options else None


def _fits(shape, to):
    """Whether a shape broadcasts to another."""
    return len(shape) <= len(to) and all(a in (1, b) for a, b in zip(reversed(shape), reversed(to)))


def generate(draw, flavour, length):
    """A program of about `length` steps, and what torch did with it."""
    return Generator(draw, flavour).program(length)


# -- shrinking ---------------------------------------------------------------------------------------------------------


def fails(program):
    """The message with which a program fails, None if it does not."""
    try:
        compare(program)
    except AssertionError as error:
        return str(error)
    return None


def shrink(program):
    """The program with as few steps and inputs as still fail."""
    smaller = True
    while smaller:
        smaller = False
        for i in reversed(range(len(program.steps))):
            candidate = program.without({i})
            if candidate is not None and fails(candidate):
                program, smaller = candidate, True
                break
        for name in program.inputs:
            fewer = tuple(n for n in program.inputs if n != name)
            candidate = replace(program, inputs=fewer)
            if fewer and fails(candidate):
                program, smaller = candidate, True
                break
    return program
