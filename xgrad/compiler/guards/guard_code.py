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
        arrays = c11(found, c12)
        return None if arrays is None else (found, arrays)

Measured for a step of an MLP with eight tensors: see `benchmarks`, "small MLP step".
"""

from collections.abc import Callable
from typing import Any

from .guard import AnyTensor, Guard
from .identity_guards import Source, Unchanged
from .tensor_guard import Expected, arrays_of


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
    places = [e.source[1] for e in expected]
    in_order = not doubles and places == [*range(count)]
    line(f"    tensors = {'found' if in_order else f'[*map(found.__getitem__, {name(places)})]'}")
    line(f"    arrays = {name(arrays_of)}(tensors, {name(expected)})")
    if len(expected) > 1:  # tensors that share a storage have the same array
        line(f"    if arrays is None or len({{*map(id, arrays)}}) != {len(expected)}: return None")
    line("    return None if arrays is None else (tensors, arrays)")
    return source.function("find")
