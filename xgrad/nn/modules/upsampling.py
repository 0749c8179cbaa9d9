"""Upsample and its older 2d forms: modules that resize images (PyTorch: torch/nn/modules/upsampling.py)."""

from typing import Any

from ...tensor import Tensor
from .. import functional as F
from ..common_types import _ratio_2_t, _ratio_any_t, _size_2_t, _size_any_t
from .declared_module import Face, face


@face()
class Upsample(Face):
    """Images of another size, given as `size` or as `scale_factor`: `nn.functional.interpolate`.

    >>> import xgrad
    >>> xgrad.nn.Upsample(scale_factor=2)(xgrad.tensor([[[1.0, 2.0]]]))
    tensor([[[1., 1., 2., 2.]]])
    """

    size: _size_any_t | None = None
    scale_factor: _ratio_any_t | None = None
    mode: str = "nearest"
    align_corners: bool | None = None
    recompute_scale_factor: bool | None = None

    def _keep(self, values: dict[str, Any]) -> None:
        factor = values["scale_factor"]
        if factor is not None:
            values["scale_factor"] = tuple(map(float, factor)) if isinstance(factor, tuple) else float(factor)
        super()._keep(values)
        self.name: Any = type(self).__name__

    def forward(self, input: Tensor) -> Tensor:
        """Return `nn.functional.interpolate` of the input."""
        return F.interpolate(
            input, self.size, self.scale_factor, self.mode, self.align_corners,
            recompute_scale_factor=self.recompute_scale_factor,
        )  # fmt: skip

    def extra_repr(self) -> str:
        """Return the size or factor, and the mode, as text."""
        shown = f"size={self.size!r}" if self.scale_factor is None else f"scale_factor={self.scale_factor!r}"
        return f"{shown}, mode={self.mode!r}"


class UpsamplingNearest2d(Upsample):
    """Images, of shape (N, C, H, W), of another size, by the nearest pixel."""

    def __init__(self, size: _size_2_t | None = None, scale_factor: _ratio_2_t | None = None) -> None:
        super().__init__(size, scale_factor, mode="nearest")


class UpsamplingBilinear2d(Upsample):
    """Images, of shape (N, C, H, W), of another size, bilinearly; the corners stay where they are."""

    def __init__(self, size: _size_2_t | None = None, scale_factor: _ratio_2_t | None = None) -> None:
        super().__init__(size, scale_factor, mode="bilinear", align_corners=True)
