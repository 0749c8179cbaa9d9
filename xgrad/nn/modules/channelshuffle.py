"""ChannelShuffle: puts the channels of images in another order (PyTorch: torch/nn/modules/channelshuffle.py)."""

from .declared_module import Face, face


@face("channel_shuffle")
class ChannelShuffle(Face):
    """The channels, the second dimension, in another order: the first of each group, the second of each, ...

    >>> import xgrad
    >>> xgrad.nn.ChannelShuffle(2)(xgrad.arange(4).reshape(1, 4, 1, 1)).flatten()
    tensor([0, 2, 1, 3])
    """

    groups: int
