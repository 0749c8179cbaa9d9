"""ParameterList, ParameterDict: modules that contain parameters (PyTorch: torch/nn/modules/container.py).

A tensor that is put in becomes a Parameter; other values stay as they are, and are not state.
"""

import operator
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ..tensor import Tensor
from .module import Module
from .parameter import Parameter


def _as_parameter(value: Any) -> Any:
    return Parameter(value) if isinstance(value, Tensor) and not isinstance(value, Parameter) else value


class _Parameters(Module):
    """The common base of both: `_order` has the keys, and each key is the name of an attribute."""

    _order: dict[str, None]

    def __init__(self) -> None:
        super().__init__()
        self._order = {}

    def __len__(self) -> int:
        return len(self._order)

    def _put(self, key: str, value: Any) -> None:
        self._order[key] = None
        setattr(self, key, _as_parameter(value))

    def extra_repr(self) -> str:
        """Return a line for each entry."""
        lines = []
        for key in self._order:
            value = getattr(self, key)
            if isinstance(value, Tensor):
                size = "x".join(map(str, value.shape))
                kind = "Parameter" if isinstance(value, Parameter) else "Tensor"
                lines.append(f"  ({key}): {kind} containing: [xgrad.{value.dtype.name} of size {size}]")
            else:
                lines.append(f"  ({key}): Object of type: {type(value).__name__}")
        return "\n".join(lines)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(f"{type(self).__name__} should not be called.")


class ParameterList(_Parameters):
    """A list of parameters.

    >>> import xgrad
    >>> weights = xgrad.nn.ParameterList([xgrad.ones(2), xgrad.ones(3)])
    >>> len(list(weights.parameters()))
    2
    """

    def __init__(self, values: Iterable[Any] | None = None) -> None:
        super().__init__()
        if values is not None:
            self.extend(values)

    def _key(self, index: Any) -> str:
        index, n = operator.index(index), len(self)
        if not -n <= index < n:
            raise IndexError(f"index {index} is out of range")
        return str(index % n)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return ParameterList(list(self)[index])
        return getattr(self, self._key(index))

    def __setitem__(self, index: Any, value: Any) -> None:
        self._put(self._key(index), value)

    def __iter__(self) -> Iterator[Any]:
        return iter([getattr(self, key) for key in self._order])

    def append(self, value: Any) -> "ParameterList":
        """Add a value at the end; returns this list."""
        self._put(str(len(self)), value)
        return self

    def extend(self, values: Iterable[Any]) -> "ParameterList":
        """Add values at the end; returns this list.  Raises `TypeError` for a tensor or a non-iterable."""
        if not isinstance(values, Iterable) or isinstance(values, Tensor):
            raise TypeError(f"ParameterList.extend should be called with an iterable, but got {type(values).__name__}")
        for value in list(values):
            self.append(value)
        return self

    def __iadd__(self, other: Iterable[Any]) -> "ParameterList":
        return self.extend(other)


class ParameterDict(_Parameters):
    """A dictionary of parameters.

    >>> import xgrad
    >>> weights = xgrad.nn.ParameterDict({"a": xgrad.ones(2)})
    >>> weights["a"]
    Parameter containing:
    tensor([1., 1.], requires_grad=True)
    """

    def __init__(self, parameters: Any = None) -> None:
        super().__init__()
        if parameters is not None:
            self.update(parameters)

    def __getitem__(self, key: str) -> Any:
        if key not in self._order:
            raise KeyError(key)
        return getattr(self, key)

    def __setitem__(self, key: str, value: Any) -> None:
        if not isinstance(key, str):
            raise TypeError(
                "Index given to ParameterDict cannot be used as a key as it is not a string (type is "
                f"'{type(key).__name__}')."
            )
        if key not in self._order and hasattr(self, key):
            raise KeyError(f"attribute '{key}' already exists")
        self._put(key, value)

    def __delitem__(self, key: str) -> None:
        del self._order[key]
        delattr(self, key)

    def __iter__(self) -> Iterator[str]:
        return iter(self._order)

    def __reversed__(self) -> Iterator[str]:
        return reversed(self._order)

    def __contains__(self, key: str) -> bool:
        return key in self._order

    def keys(self) -> Any:
        """Return the names."""
        return self._order.keys()

    def values(self) -> Iterator[Any]:
        """Return the values."""
        return (self[key] for key in self._order)

    def items(self) -> Iterator[tuple[str, Any]]:
        """Return the pairs (name, value)."""
        return ((key, self[key]) for key in self._order)

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value with that name, or `default`."""
        return getattr(self, key) if key in self._order else default

    def setdefault(self, key: str, default: Any = None) -> Any:
        """Return the value with that name; add `default` if there was none."""
        if key not in self:
            self[key] = default
        return self[key]

    def pop(self, key: str) -> Any:
        """Remove the value with that name and return it."""
        value = self[key]
        del self[key]
        return value

    def popitem(self) -> tuple[str, Any]:
        """Remove the last (name, value) and return it."""
        key = next(reversed(self._order))
        return key, self.pop(key)

    def clear(self) -> None:
        """Remove all values."""
        for key in list(self._order):
            del self[key]

    def copy(self) -> "ParameterDict":
        """Return another dictionary of the same values."""
        return ParameterDict(self.items())

    def fromkeys(self, keys: Iterable[str], default: Any = None) -> "ParameterDict":
        """Return another dictionary with these names, all of them for `default`."""
        return ParameterDict((key, default) for key in keys)

    def update(self, parameters: Any) -> None:
        """Add the values of another dictionary or of pairs (name, value)."""
        if not isinstance(parameters, Iterable):
            raise TypeError(
                "ParametersDict.update should be called with an iterable of key/value pairs, but got "
                f"{type(parameters).__name__}"
            )
        pairs: Any = parameters
        if isinstance(pairs, Mapping) and not isinstance(pairs, OrderedDict):
            pairs = sorted(pairs.items())  # as in PyTorch
        elif hasattr(pairs, "items"):
            pairs = pairs.items()
        for key, value in pairs:
            self[key] = value

    def __or__(self, other: "ParameterDict") -> "ParameterDict":
        new = self.copy()
        new.update(other)
        return new

    def __ror__(self, other: Any) -> "ParameterDict":
        new = ParameterDict(other)
        new.update(self)
        return new

    def __ior__(self, other: "ParameterDict") -> "ParameterDict":
        self.update(other)
        return self
