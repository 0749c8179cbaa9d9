"""ZeroPad2d, ReflectionPad1d, ...: modules that call nn.functional.pad (PyTorch: torch/nn/modules/padding.py)."""

from typing import Any, ClassVar

from ...tensor import Tensor
from .. import functional as F
from ..common_types import _size_2_t, _size_4_t, _size_6_t
from .declared_module import Face, face
from .utils import _ntuple


class _PadNd(Face):
    """Base class: `padding` is before and after each dimension, the last one first, or one number for all."""

    _mode: ClassVar[str] = "constant"
    _shown = "{self.padding}"
    padding: Any

    def _keep(self, values: dict[str, Any]) -> None:
        super()._keep({**values, "padding": _ntuple(2 * self._dimensions)(values["padding"])})

    def forward(self, input: Tensor) -> Tensor:
        """Return the padded input."""
        return F.pad(input, self.padding, self._mode)


class _CircularPadNd(_PadNd):
    _mode = "circular"

    def _check_input_dim(self, input: Tensor) -> None:
        n = self._dimensions
        if input.dim() not in (n + 1, n + 2):
            raise ValueError(f"expected {n + 1}D or {n + 2}D input (got {input.dim()}D input)")

    def forward(self, input: Tensor) -> Tensor:
        """Return the padded input."""
        self._check_input_dim(input)
        return super().forward(input)


@face(dims=1)
class CircularPad1d(_CircularPadNd):
    """Padding of the last dimension by its other end, for an input of shape (N, C, L) or (C, L)."""

    padding: _size_2_t


@face(dims=2)
class CircularPad2d(_CircularPadNd):
    """Padding of images by their other end, of shape (N, C, H, W) or (C, H, W)."""

    padding: _size_4_t


@face(dims=3)
class CircularPad3d(_CircularPadNd):
    """Padding of the last three dimensions by their other end."""

    padding: _size_6_t


class _ConstantPadNd(_PadNd):
    value: float
    _shown = "padding={self.padding}, value={self.value}"

    def forward(self, input: Tensor) -> Tensor:
        """Return the padded input."""
        return F.pad(input, self.padding, "constant", self.value)


@face(dims=1)
class ConstantPad1d(_ConstantPadNd):
    """Padding of the last dimension by `value`."""

    padding: _size_2_t
    value: float


@face(dims=2)
class ConstantPad2d(_ConstantPadNd):
    """Padding of the last two dimensions by `value`.

    >>> import xgrad
    >>> xgrad.nn.ConstantPad2d((1, 0, 0, 1), 7.0)(xgrad.zeros(1, 1, 2))
    tensor([[[7., 0., 0.],
             [7., 7., 7.]]])
    """

    padding: _size_4_t
    value: float


@face(dims=3)
class ConstantPad3d(_ConstantPadNd):
    """Padding of the last three dimensions by `value`."""

    padding: _size_6_t
    value: float


class _ReflectionPadNd(_PadNd):
    _mode = "reflect"


@face(dims=1)
class ReflectionPad1d(_ReflectionPadNd):
    """Padding of the last dimension by what a mirror at its ends shows."""

    padding: _size_2_t


@face(dims=2)
class ReflectionPad2d(_ReflectionPadNd):
    """Padding of the last two dimensions by what a mirror at their ends shows."""

    padding: _size_4_t


@face(dims=3)
class ReflectionPad3d(_ReflectionPadNd):
    """Padding of the last three dimensions by what a mirror at their ends shows."""

    padding: _size_6_t


class _ReplicationPadNd(_PadNd):
    _mode = "replicate"


@face(dims=1)
class ReplicationPad1d(_ReplicationPadNd):
    """Padding of the last dimension by its first and last element."""

    padding: _size_2_t


@face(dims=2)
class ReplicationPad2d(_ReplicationPadNd):
    """Padding of the last two dimensions by their first and last elements."""

    padding: _size_4_t


@face(dims=3)
class ReplicationPad3d(_ReplicationPadNd):
    """Padding of the last three dimensions by their first and last elements."""

    padding: _size_6_t


class ZeroPad1d(ConstantPad1d):
    """Padding of the last dimension by zeros."""

    def __init__(self, padding: _size_2_t) -> None:
        super().__init__(padding, 0.0)

    _shown = "{self.padding}"


class ZeroPad2d(ConstantPad2d):
    """Padding of the last two dimensions by zeros."""

    def __init__(self, padding: _size_4_t) -> None:
        super().__init__(padding, 0.0)

    _shown = "{self.padding}"


class ZeroPad3d(ConstantPad3d):
    """Padding of the last three dimensions by zeros."""

    def __init__(self, padding: _size_6_t) -> None:
        super().__init__(padding, 0.0)

    _shown = "{self.padding}"
