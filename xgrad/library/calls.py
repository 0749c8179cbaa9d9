"""Call: takes the tensors out of a custom operator's arguments, so that `autograd.Function` gets them one by one.

(x, [y, z], 2.0)  ──►  x, y, z  +  Call((0, [1, 2], 2.0))  ──►  Function.apply(x, y, z, call)
"""

from collections.abc import Iterator
from typing import Any

from ..tensor import Tensor


class _Place(int):
    """The number of a tensor among the Function's arguments or results."""


def _taken(value: Any, tensors: list[Any]) -> Any:
    """Append the tensors in `value` to a list; return it with places for them."""
    if isinstance(value, Tensor):
        tensors.append(value)
        return _Place(len(tensors) - 1)
    if isinstance(value, (list, tuple)):
        return type(value)([_taken(v, tensors) for v in value])
    return value


def _filled(value: Any, found: Any) -> Any:
    """Return `value` with `found` at the places; None at a place beyond its end."""
    if isinstance(value, _Place):
        return found[value]
    if isinstance(value, (list, tuple)):
        return type(value)([_filled(v, found) for v in value])
    return value


def only(value: Any, found: Any, other: Any = None) -> Any:
    """Return `value` with `found` at the places, and `other` for all that is not a tensor."""
    if isinstance(value, _Place):
        return found[value]
    if isinstance(value, (list, tuple)) and _has_place(value):
        return type(value)([only(v, found, other) for v in value])
    return other


def _has_place(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return any(map(_has_place, value))
    return isinstance(value, _Place)


class Call:
    """One call of an operator, without its tensors."""

    def __init__(self, operator: Any, values: list[Any], named: dict[str, Any]) -> None:
        self.operator = operator  # an OpOverload
        self.tensors: list[Tensor] | None = []
        self.values = [_taken(v, self.tensors) for v in values]
        self.named = {name: _taken(v, self.tensors) for name, v in named.items()}
        self.result: Any = None  # with places

    def arguments(self, tensors: Any) -> tuple[list[Any], dict[str, Any]]:
        """Return the operator's arguments, with these tensors."""
        return [_filled(v, tensors) for v in self.values], {n: _filled(v, tensors) for n, v in self.named.items()}

    def split(self, result: Any) -> list[Any]:
        """Record the form of the operator's result, and return its tensors."""
        found: list[Any] = []
        self.result = _taken(result, found)
        return found

    def filled(self, tensors: list[Any]) -> Any:
        """Return the operator's result, with these tensors."""
        return _filled(self.result, tensors)

    def gradients(self, result: Any, n: int) -> tuple[Any, ...]:
        """Return the gradient of each tensor from what a formula returned for each positional argument.

        Raises `RuntimeError` for another number of gradients, or another structure.
        """
        given = [*result] if isinstance(result, tuple) else [result]
        if all(extra is None for extra in given[len(self.values) :]):
            given = given[: len(self.values)]
        if not any(map(_has_place, self.values[len(given) :])):
            given += [None] * (len(self.values) - len(given))  # nothing that has a gradient
        if len(given) != len(self.values):
            raise RuntimeError(
                f"{self.operator}: the backward that was registered returned an incorrect number of gradients "
                f"(expected {len(self.values)}, got {len(given)})"
            )
        found: list[Any] = [None] * n
        for i, (place, gradient) in enumerate(zip(self.values, given, strict=True)):
            self._place(place, gradient, found, i)
        return tuple(found)

    def _place(self, place: Any, gradient: Any, found: list[Any], i: int) -> None:
        if gradient is None:
            return
        if isinstance(place, _Place):
            found[place] = gradient
        elif isinstance(place, (list, tuple)) and isinstance(gradient, (list, tuple)):
            if len(place) != len(gradient):
                raise RuntimeError(
                    "Expected the return from backward to be of the same structure as the inputs. Got: a list of "
                    f"{len(gradient)} for argument {i} of {self.operator}, which is a list of {len(place)}"
                )
            for p, g in zip(place, gradient, strict=True):
                self._place(p, g, found, i)
        else:
            raise RuntimeError(
                f"{self.operator}: backward returned a gradient different than None at position {i + 1}, but the "
                "corresponding forward input was not a Variable"
                if not _has_place(place)
                else "Expected the return from backward to be of the same structure as the inputs. Got: a "
                f"{type(gradient).__name__} for argument {i} of {self.operator}, which is a list"
            )


def shares(one: Tensor, other: Tensor) -> bool:
    """Return True if two tensors share storage."""
    return one is other or (one._storage is not None and one._storage is other._storage)


def tensors_in(value: Any) -> Iterator[Tensor]:
    """Yield the tensors in nested lists, tuples and dictionaries."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for v in value:
            yield from tensors_in(v)
    elif isinstance(value, dict):
        for v in value.values():
            yield from tensors_in(v)
