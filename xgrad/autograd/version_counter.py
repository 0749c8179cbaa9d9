"""Functions that increase, set or preserve tensors' version counters (PyTorch: torch/autograd/grad_mode.py)."""

from collections.abc import Iterable
from typing import Any

from ..tensor import Tensor
from .grad_mode import _Mode


def increment_version(tensor: Tensor | Iterable[Tensor]) -> None:
    """Raise the version of a tensor, or of each of several, after a change in place by other means.

    Tensors made in inference mode have no version, and are ignored.  Raises `RuntimeError` for an argument that is not
    a tensor.

    >>> import xgrad
    >>> x = xgrad.ones(2)
    >>> xgrad.autograd.graph.increment_version(x)
    >>> x._version
    1
    """
    if not isinstance(tensor, (Tensor, Iterable)):
        raise RuntimeError(f"increment_version expect a Iterable[Tensor] as input, but got {type(tensor).__name__}")
    for t in (tensor,) if isinstance(tensor, Tensor) else tensor:
        if not isinstance(t, Tensor):
            raise RuntimeError(
                f"increment_version expects each element of the iterable to be a tensor, but got {type(t).__name__}"
            )
        if not t._inference:
            t._bump()


def _unsafe_set_version_counter(tensors: Iterable[Tensor], versions: Iterable[int]) -> None:
    """Set the version of each tensor, and so of all that share its counter."""
    tensors, versions = tuple(tensors), tuple(versions)
    if len(tensors) != len(versions):
        raise RuntimeError(f"tensors_len={len(tensors)}, versions_len={len(versions)}")
    for t, version in zip(tensors, versions, strict=True):
        if version < 0:
            raise RuntimeError(f"Cannot set a version_counter to a value below 0: {version}")
        t._bump(version - t._version)


class _unsafe_preserve_version_counter(_Mode):
    """Within the block, in-place operations on these tensors leave no trace in their versions.

    Unsafe: a write that matters to a saved tensor is not noticed.  (The saved value itself is never corrupted here.)
    A decorator too.  Raises `AssertionError` unless the argument is a tensor or a tuple.

    >>> import xgrad
    >>> x = xgrad.ones(2)
    >>> with xgrad.autograd._unsafe_preserve_version_counter(x):
    ...     _ = x.add_(1)
    >>> x._version
    0
    """

    def __init__(self, tensors: Tensor | tuple[Tensor, ...]) -> None:
        self.tensors = (tensors,) if isinstance(tensors, Tensor) else tensors
        if not isinstance(self.tensors, tuple):
            raise AssertionError(f"Expected tensors to be a tuple, but got {type(tensors).__name__}")
        self.versions = tuple(t._version for t in self.tensors)

    def clone(self) -> "_unsafe_preserve_version_counter":
        """Return another one like it, for each call of a function that it decorates."""
        return _unsafe_preserve_version_counter(self.tensors)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: Any) -> None:
        _unsafe_set_version_counter(self.tensors, self.versions)
