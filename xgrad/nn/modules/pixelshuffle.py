"""PixelShuffle, PixelUnshuffle: modules that move channels into pixels, or back (torch/nn/modules/pixelshuffle.py)."""

from .declared_module import Face, face


@face("pixel_shuffle")
class PixelShuffle(Face):
    """Channels as pixels: an input of shape (..., C·r², H, W) has the result (..., C, H·r, W·r).

    >>> import xgrad
    >>> xgrad.nn.PixelShuffle(2)(xgrad.ones(1, 8, 3, 3)).shape
    xgrad.Size([1, 2, 6, 6])
    """

    upscale_factor: int


@face("pixel_unshuffle")
class PixelUnshuffle(Face):
    """Pixels as channels: an input of shape (..., C, H·r, W·r) has the result (..., C·r², H, W)."""

    downscale_factor: int
