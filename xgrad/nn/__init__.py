"""What training code needs of torch.nn: the functional layers.  Modules are Flax's, Equinox's or your own."""

from . import functional as functional
