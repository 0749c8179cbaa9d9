"""Finds the operators and dtypes that an `xgrad.Backend(without=[...])` lacks, by the names and patterns of that list.

A pattern is an operator's name, as `docs/operators.md` has it, with * for any characters; `linalg.inv` and `linalg_inv`
are the same.  "complex" is all operators on complex numbers, "sorting" all that are made of XLA's sort; a dtype's name
is all operators with an operand or a result of that dtype.
"""

import difflib
import sys
from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from ..base import dtypes
from ..dispatch.help_texts import operators_of
from ..dispatch.tables import FUNCTIONS, OPERATORS, VARIANTS
from ..views.chain import view_names

NAMESPACES = ("linalg", "special", "fft")
GROUPS = {
    "sorting": (
        "sort", "argsort", "topk", "kthvalue", "median", "nanmedian", "mode", "quantile", "nanquantile", "_randperm",
        "_multinomial", "_unique",
    ),
}  # fmt: skip
DTYPES = frozenset(
    np.dtype(value)
    for name, value in vars(dtypes).items()
    if not name.startswith("_") and isinstance(value, dtypes.dtype)
)


# What a backend does with numbers of a dtype that it stores only: it casts, fills, and moves them.
CASTS = frozenset(("_to_dtype", "_fit", "_put", "_constant"))
MOVES = frozenset((
    "cat", "clone", "constant_pad_nd", "copy", "fill", "gather", "index", "index_copy", "index_fill", "index_select",
    "masked_fill", "masked_scatter", "stack", "take", "where", "zero",
))  # fmt: skip


def moves(program: Any, operands: Any, results: Any) -> bool:
    """Return True for a program that casts, fills or moves numbers, and computes nothing with them."""
    if program.operator in CASTS or program.role in ("read", "adjoint"):
        return True
    if program.operator == "":
        if program.name == "sum_to_size":  # of a gradient: it casts too
            return all(result.size == operands[0].size for result in results)
        return program.role == "write"
    return program.operator in MOVES and not program.name.endswith("Backward0")  # which may sum


def spellings(name: str) -> set[str]:
    """Return the names by which a pattern may mean an operator.

    `max.dim` is `max` too, `linalg_inv_ex` is `linalg.inv`.
    """
    plain = name.partition(".")[0]
    found = {name, plain, plain.removesuffix("_ex")}
    for namespace in NAMESPACES:
        if name.startswith(f"{namespace}_"):
            found |= {f"{namespace}.{other.removeprefix(f'{namespace}_')}" for other in found}
    return found


def operators() -> dict[str, set[str]]:
    """Return all operators with their spellings; those whose names begin with an underscore are xgrad's own."""
    names = {*OPERATORS, *(op.name for op in VARIANTS)}
    return {name: spellings(name) for name in names if not name.startswith("_")}


def lacking(backend: str, patterns: Iterable[str], field: str = "without") -> frozenset[str]:
    """Return the operators that the patterns of a field name.  Raises `ValueError` for one that names none."""
    known, found = operators(), set()
    for pattern in patterns:
        pattern = pattern.removeprefix("aten::")
        if pattern in GROUPS:
            found |= {name for name in {*OPERATORS, *(op.name for op in VARIANTS)} if _of_group(name, pattern)}
            continue
        if _dtype_of(pattern) is not None:
            continue
        matched = {name for name, spelled in known.items() if any(fnmatchcase(s, pattern) for s in spelled)}
        if not matched and pattern != "complex":
            raise ValueError(f"Backend '{backend}': {field}={pattern!r} matches no operator. {instead(pattern, known)}")
        found |= matched
    return frozenset(found)


def _of_group(name: str, group: str) -> bool:
    return name.partition(".")[0] in GROUPS[group]


def _dtype_of(name: str) -> Any:
    value = getattr(dtypes, name, None)
    return np.dtype(value) if isinstance(value, dtypes.dtype) else None


def dtypes_left(given: frozenset[Any] | None, patterns: Iterable[str]) -> frozenset[Any] | None:
    """Return the dtypes of a declaration without those that patterns name; None for all."""
    excluded = {dtype for pattern in patterns if (dtype := _dtype_of(pattern)) is not None}
    return (DTYPES if given is None else given) - excluded if excluded else given


def named(backend: str, name: Any) -> str:
    """Return the operator that a lowering is for.  Raises `ValueError` if there is none of that name."""
    known = operators()
    if name in known:
        return name
    for operator, spelled in known.items():
        if name in spelled and "." not in operator:
            return operator
    raise ValueError(f"Backend '{backend}': lowerings has {name!r}, which is not an operator. {instead(name, known)}")


def instead(name: Any, known: dict[str, set[str]]) -> str:
    plain = str(name)
    views = sorted(view for view in view_names() if fnmatchcase(view, plain))
    if views and plain not in known:
        them = f"'{plain}' is a view operation" if views == [plain] else f"View operations are {', '.join(views)}"
        return f"{them}: declare views={{'{views[0]}': 'refuse'}}, or an xgrad.ViewRule for it"
    forms = sorted(operator for operator, spelled in known.items() if plain in spelled)
    if forms:
        return f"'{plain}' is several operators: {', '.join(forms)}"
    if plain.endswith("_") and plain[:-1] in known:
        return f"'{plain}' is the in-place form of the operator '{plain[:-1]}': name that"
    last = plain.rpartition(".")[2]
    function = next((functions[last] for functions in FUNCTIONS.values() if last in functions), None)
    forward = getattr(getattr(sys.modules.get("xgrad.nn"), last, None), "forward", None)
    if function is not None or forward is not None:
        layers = [FUNCTIONS["nn.functional"].get(name) for name in forward.__code__.co_names] if forward else []
        run = sorted({name for f in (function, *layers) for name in operators_of(f)} & known.keys())
        kind, them = "function" if function else "module", f", such as {', '.join(run)}" if run else ""
        return f"'{plain}' is a {kind} that is made of other operators: name those, which a report lists{them}"
    near = difflib.get_close_matches(plain, {s for spelled in known.values() for s in spelled}, 3)
    return f"Near it: {', '.join(near)}" if near else "docs/operators.md has them all"


def dtypes_named(backend: str, given: Any, field: str = "dtypes") -> frozenset[Any]:
    """Return the dtypes of a field.  Raises `TypeError` for an item that is not a dtype."""
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise TypeError(f"Backend '{backend}': {field} is a list of names such as ['float32', 'int32'], not {given!r}")
    found = set()
    for spec in given:
        try:
            found.add(np.dtype(getattr(dtypes, spec) if isinstance(spec, str) and hasattr(dtypes, spec) else spec))
        except TypeError:
            raise TypeError(f"Backend '{backend}': {field} has {spec!r}, which is not a dtype") from None
    return frozenset(found)
