"""Reads the pickle in a file of `xgrad.save`; with weights_only=True, only if its classes are allowed by the user.

While `add_safe_globals` has allowed nothing, weights_only=True loads no pickle, not even one of plain data.  After
that, `OrderedDict`, `Size`, `device`, `set`, `frozenset` and `complex` are allowed, too.
(PyTorch: torch/_weights_only_unpickler.py.)
"""

import io
import pickle
import pickletools
from collections import OrderedDict
from collections.abc import Iterator
from itertools import takewhile
from typing import Any

from ..base.devices import device
from ..base.size import Size
from ..config import block

_safe: list[Any] = []


def add_safe_globals(safe_globals: list[Any]) -> None:
    """Let `load` make objects of these classes, and call these functions, where it takes weights only."""
    _safe.extend(safe_globals)


def get_safe_globals() -> list[Any]:
    """Return the list of these classes and functions."""
    return [*_safe]


def clear_safe_globals() -> None:
    """Forget these classes and functions."""
    _safe.clear()


@block
def safe_globals(safe_globals: list[Any]) -> Iterator[None]:
    """Within the block `load` makes objects of these classes, too.

    >>> import io, xgrad
    >>> file = io.BytesIO()
    >>> xgrad.save(slice(1, 2), file)
    >>> with xgrad.serialization.safe_globals([slice]):
    ...     xgrad.load(io.BytesIO(file.getvalue()))
    slice(1, 2, None)
    """
    before = [*_safe]
    add_safe_globals(safe_globals)
    try:
        yield
    finally:
        _safe[:] = before


_REFUSED = (
    "Weights only load failed: {} has a {}, which is not plain data, and making one runs code. If you trust the file, "
    "load(f, weights_only=False) reads it, or allow the class: xgrad.serialization.add_safe_globals([{}])"
)
_HARMLESS = (OrderedDict, Size, device, set, frozenset, complex)


class _Unpickler(pickle.Unpickler):
    """Reads the pickle of a file whose tensors are made; `weights_only`: only with classes of `_safe`, `_HARMLESS`."""

    def __init__(self, data: bytes, file: str, weights_only: bool, made: list[Any]) -> None:
        super().__init__(io.BytesIO(data))
        self._file, self._weights_only = file, weights_only
        self.persistent_load = made.__getitem__

    def find_class(self, module: str, name: str) -> Any:
        if not self._weights_only:
            return super().find_class(module, name)
        for known in (*_safe, *_HARMLESS):
            known, where = known if isinstance(known, tuple) else (known, f"{known.__module__}.{known.__qualname__}")
            if where == f"{module}.{name}":
                return known
        raise pickle.UnpicklingError(_REFUSED.format(self._file, f"{module}.{name}", name.rpartition(".")[2]))


def _before_first_class(data: bytes) -> Iterator[tuple[Any, Any, Any]]:
    """Return the operations before the first that looks a class up; the last two texts are its module and name."""
    return takewhile(lambda found: found[0].name != "STACK_GLOBAL", pickletools.genops(data))


def unpickled(file: str, weights_only: bool, data: bytes, made: list[Any]) -> Any:
    """Return the value of a pickle in a file, whose tensors are made; raise if it asks for code that is not allowed."""
    if weights_only and not _safe:  # not loaded: a damaged pickle of a few bytes can ask for gigabytes
        words = [str(arg) for op, arg, _ in _before_first_class(data) if "UNICODE" in op.name][-2:]
        raise pickle.UnpicklingError(_REFUSED.format(file, ".".join(words), words[-1] if words else "..."))
    return _Unpickler(data, file, weights_only, made).load()
