"""Checks the functions given to `cond` and `while_loop`: they must return new tensors, and write no operand.

Errors name PyTorch's rules in PyTorch's words, and have another type: in PyTorch torch.compile raises them.
"""

from collections.abc import Callable
from typing import Any

from ..batching.trees import Structure, flatten
from ..tensor import Tensor


def shares(one: Tensor, other: Tensor) -> bool:
    """Return True if two tensors share storage."""
    return one is other or (one._storage is not None and one._storage is other._storage)


def run(where: str, function: Callable[..., Any], given: Any, operands: list[Tensor]) -> Any:
    """Call a function with `given`, and check that it writes none of the operands and returns none of them.

    Raises `RuntimeError`.
    """
    before = [t._version for t in operands if not t._inference]
    result = function(*given)
    if before != [t._version for t in operands if not t._inference]:
        raise mutated(where, function)
    seen = list(operands)
    for leaf in flatten(result)[0]:
        if isinstance(leaf, Tensor):
            if any(shares(leaf, other) for other in seen):
                raise RuntimeError(
                    f"{where}: Encountered aliasing: {_name(function)} returns an input, a view of one, or a tensor "
                    "twice, and higher order ops do not support aliasing. Return a clone() of it."
                )
            seen.append(leaf)
    return result


def mutated(where: str, function: Callable[..., Any]) -> RuntimeError:
    """Return the error of a function that writes to a tensor which it did not make."""
    return RuntimeError(
        f"{where}: Encountered input mutation: {_name(function)} writes to an input or a tensor from outside in place, "
        "and higher order ops do not support input mutation. Work on a clone() of it."
    )


def leaves_of(where: str, function: Callable[..., Any], result: Any) -> tuple[list[Any], Structure]:
    """Return the leaves of a result and its structure.  Raises `RuntimeError` for a leaf that is neither a tensor nor
    an integer."""
    leaves, structure = flatten(result)
    for leaf in leaves:
        if not isinstance(leaf, (Tensor, int)):
            raise RuntimeError(
                f"{where}: unsupported branch return type: {_name(function)} returned a {type(leaf).__name__}; return "
                "tensors, or integers, in tuples, lists and dictionaries"
            )
    return leaves, structure


def same(where: str, pairs: list[tuple[Any, Any]], what: str) -> None:
    """Raise `RuntimeError` unless the leaves of each pair have the same shape and dtype, or are equal integers."""
    for one, other in pairs:
        if isinstance(one, Tensor) is not isinstance(other, Tensor):
            raise RuntimeError(f"{where}: {what} the same kind but got {_shown(one)} and {_shown(other)}")
        if not isinstance(one, Tensor):
            if one != other:
                raise RuntimeError(
                    f"{where}: {what} equal integers but got {one} and {other}; return tensors of them, which a "
                    "program can choose from"
                )
            continue
        for name, a, b in (
            ("shape", tuple(one.shape), tuple(other.shape)), ("dtype", one.dtype, other.dtype),
        ):  # fmt: skip
            if a != b:
                raise RuntimeError(f"{where}: {what} same {name} but got {a} and {b}.")


def _shown(value: Any) -> str:
    return f"a tensor of shape {list(value.shape)}" if isinstance(value, Tensor) else repr(value)


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", type(function).__name__)
