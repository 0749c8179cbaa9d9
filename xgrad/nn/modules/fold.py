"""Fold and Unfold: modules that add sliding blocks into images, and cut images into blocks.

PyTorch: torch/nn/modules/fold.py.
"""

from ..common_types import _size_any_t
from .declared_module import Face, face


@face("fold")
class Fold(Face):
    """Adds sliding blocks, the columns of an input of shape (N, C·block, L), into images of `output_size`."""

    output_size: _size_any_t
    kernel_size: _size_any_t
    dilation: _size_any_t = 1
    padding: _size_any_t = 0
    stride: _size_any_t = 1


@face("unfold")
class Unfold(Face):
    """The blocks of images, of shape (N, C, H, W), as columns: (N, C·block, L).

    >>> import xgrad
    >>> xgrad.nn.Unfold(2)(xgrad.ones(1, 3, 4, 4)).shape
    xgrad.Size([1, 12, 9])
    """

    kernel_size: _size_any_t
    dilation: _size_any_t = 1
    padding: _size_any_t = 0
    stride: _size_any_t = 1
