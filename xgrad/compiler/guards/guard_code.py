"""quick_find: writes a fast guard for each program of xgrad.compile, as Python code that compares objects with `is`.

A call passes if it has the very same objects in all places that the trace read (identity_guards.py), and tensors that
look as the traced ones did.  The code tests flat places in one expression, and calls a slower guard for a deeper one.
If a call does not pass, `Match.find` (match.py) tests it by all guards: another object may be equal.

    def find(leaves):
        found = [*leaves]
        try:
            if not (c7.cell_contents is c8 and c9["scale"] is c10 and "len" not in c9): return None
            ...
        except (ValueError, LookupError, AttributeError): return None
        arrays = []
        for t, e in zip(found, c11):
            if t.__class__ is not c12: return None
            ...
        return [...], [...]

Measured for a step of an MLP with eight tensors: see `benchmarks`, "small MLP step".
"""

import textwrap
from collections.abc import Callable
from operator import itemgetter
from typing import Any

from .guard import AnyTensor, Guard
from .identity_guards import Source, Unchanged
from .tensor_guard import USUAL, Expected

# The usual attributes that are more than a value.
MORE = frozenset({"_grad_fn", "_grad", "_is_param", "_accumulator"})

# The test of the tensors that were alike: the array of each, if it looks as the traced one did.  A loop, because text
# for each tensor of a large model takes long to compile.
_TENSORS = """\
    for t, e in zip({tensors}, {expected}):
        if t.__class__ is not {kind}: return None
        d = t.__dict__
        s = d.get("_storage")
        if s is None:
            a = d.get("_array")
            if a is None{unshared}: return None
        else:
            a, c = s._array, d["_chain"]
            if a is None or not {chain}: return None
        if (
            not (a.aval is e.aval and a.sharding is e.sharding) and not e.alike(a)
            or d.get("_requires_grad", False) is not {requires_grad}
        ): return None
        add(a)
"""

# The test of a tensor's other attributes.
_REST = """\
        if (
            (d.get("_grad_fn") is None) is not {leaf}
            or d.get("_is_param", False) is not {parameter}{grad}
            or not usual(d)
            or (r := d.get("_accumulator")) is not None and (n := r()) is not None and n._hooks
        ): return None
"""

# The same test for a leaf that is not a Parameter, with a shortcut: if its attributes have the names of a leaf that
# fitted and had nothing but a value, then it has nothing but a value either.
_BARE = """\
        k = tuple(d)
        if k != e.bare:
{rest}            if bare(k): e.bare = k
"""

# A tensor with rare attributes is compared by `Expected` itself.
_RARE = """\
    for t, e in zip({tensors}, {expected}):
        if (a := e.array(t)) is None: return None
        add(a)
"""


def quick_find(
    function: Guard,
    arguments: list[tuple[int, Guard]],
    doubles: list[tuple[int, int]],
    count: int,
    arrays: list[tuple[int, Any]],
    array_kind: Callable[..., Any],
    expected: list[Expected] | None,
) -> Callable[[list[Any]], Any]:
    """Make the function that takes the leaves of a call's arguments, and returns (tensors, arrays) or None.

    Without `expected` the function returns the tensors, and its caller compares them.
    """
    source = Source()
    unchanged = Unchanged(function, source)
    name, line = source.name, source.lines.append
    source.objects.update(usual=USUAL.issuperset, bare=(USUAL - MORE).issuperset, tuple=tuple)
    compared = {e.source[1] for e in expected or ()}  # below, with their classes
    line("def find(leaves):")
    line("    try:")
    if all(guard.__class__ is AnyTensor for _, guard in arguments) and not arrays:
        line("        found = [*leaves]")
        if any(place not in compared for place in range(len(arguments))):
            line("        for t in found:\n            if not isinstance(t, Tensor): return None")
    else:
        line("        found = []")
        for place, guard in arguments:
            line(f"        if {name(guard)}.check(leaves[{place}], found) is not None: return None")
    source.require(unchanged.conditions, "        ")
    for expression, guard in unchanged.tensors:
        if guard is None:
            line(f"        t = {expression}")
            line("        if not isinstance(t, Tensor): return None")
            line("        found.append(t)")
        else:
            line(f"        if {name(guard)}.check({expression}, found) is not None: return None")
    # An empty cell, a shorter list, a missing attribute.
    line("    except (ValueError, LookupError, AttributeError): return None")
    source.require([f"found[{i}] is found[{j}]" for i, j in doubles], "    ")
    if count > 1:  # the function may compare them with `is`
        line(f"    if len({{*map(id, found)}}) != {count}: return None")
    source.require([f"{name(array_kind)}(leaves[{i}]) == {name(kind)}" for i, kind in arrays], "    ")
    if expected is None:
        line("    return found")
        return source.function("find")
    alike: dict[Any, list[int]] = {}
    for i, e in enumerate(expected):
        facts = e.kind, e.chain is None, e.requires_grad, e.leaf, e.parameter, e.grad
        alike.setdefault(facts if e.rare is None else None, []).append(i)
    line("    arrays = []\n    add = arrays.append")
    for mine in alike.values():
        line(_of_tensors(source, [expected[i] for i in mine]))
    if len(expected) > 1:  # tensors that share a storage have the same array
        line(f"    if len({{*map(id, arrays)}}) != {len(expected)}: return None")
    order = [i for mine in alike.values() for i in mine]
    places = sorted(range(len(order)), key=order.__getitem__)
    tensors = _items(source, "found", [e.source[1] for e in expected])
    line(f"    return [*{tensors}], [*{_items(source, 'arrays', places)}]")
    return source.function("find")


def _items(source: Source, name: str, places: list[int]) -> str:
    """Return the expression for a tuple of a list's items."""
    return (
        f"{source.name(itemgetter(*places))}({name})"
        if len(places) > 1
        else f"({''.join(f'{name}[{i}],' for i in places)})"
    )


def _of_tensors(source: Source, alike: list[Expected]) -> str:
    """Return the lines for tensors that look alike."""
    expected = alike[0]
    whole = expected.chain is None
    rest = _REST
    if expected.leaf and not expected.parameter and expected.grad is not False:
        rest = _BARE.replace("{rest}", textwrap.indent(_REST, "    "))
    return (_RARE if expected.rare is not None else _TENSORS + rest).format(
        tensors=_items(source, "found", [e.source[1] for e in alike]),
        expected=source.name(tuple(alike)),
        kind=source.name(expected.kind),
        unshared="" if whole else " or True",
        chain="c.is_root" if whole else "c is e.chain",
        requires_grad=expected.requires_grad,
        leaf=expected.leaf,
        parameter=expected.parameter,
        grad="" if expected.grad is None else f'\n            or (d.get("_grad") is None) is not {expected.grad}',
    )
