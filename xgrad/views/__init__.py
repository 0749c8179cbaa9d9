"""Views on devices without strides: chains of view operations, replayed on a base and written back through."""

from . import named as named
from .tracking import tracking as tracking
