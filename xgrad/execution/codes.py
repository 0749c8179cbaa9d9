"""Looks up, prints, lists and renumbers operand codes: integers that name the operands in `xgrad.lazy`'s queue.

-1, -2, ... are the queue's inputs, and 256 * entry + number is a result of a queued operation (queue.py).
"""

from collections.abc import Sequence
from typing import Any


def operand_of(code: Any, values: Sequence[Any], found: dict[int, Any]) -> Any:
    """Return the operand of a code, from the queue's inputs `values` or from results `found` so far."""
    if code.__class__ is tuple:
        return tuple([operand_of(c, values, found) for c in code])
    if code is None:
        return None
    return values[-code - 1] if code < 0 else found[code]


def shown(code: Any) -> str:
    """Return a code as text: `input1`, `%2` for an entry, `%2.1` for the second of its results."""
    if code.__class__ is tuple:
        return f"({', '.join(shown(c) for c in code)})"
    if code is None:
        return "None"
    if code < 0:
        return f"input{-code}"
    return f"%{code >> 8}" + (f".{code & 255}" if code & 255 else "")


def flat(codes: Any) -> list[int]:
    """Return the numbers in codes, without tuples and None."""
    out: list[int] = []
    for code in codes:
        if code.__class__ is tuple:
            out += flat(code)
        elif code is not None:
            out.append(code)
    return out


def renamed(code: Any, names: dict[int, int]) -> Any:
    """Return a code with other numbers in place of its own."""
    if code.__class__ is tuple:
        return tuple([renamed(part, names) for part in code])
    return None if code is None else names[code]
