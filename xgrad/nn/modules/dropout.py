"""Dropout, Dropout1d to 3d, AlphaDropout, FeatureAlphaDropout: drop elements, or whole channels, in training.

(PyTorch: torch/nn/modules/dropout.py.)
"""

from typing import Any

from .declared_module import Face, face

_WORKS_IN_PLACE = "p training inplace"


@face(shown="p={self.p}, inplace={self.inplace}")
class _DropoutNd(Face):
    """Base class: a probability `p`.  Raises `ValueError` unless it is between 0 and 1."""

    p: float = 0.5
    inplace: bool = False

    def _keep(self, values: dict[str, Any]) -> None:
        if not 0 <= values["p"] <= 1:
            raise ValueError(f"dropout probability has to be between 0 and 1, but got {values['p']}")
        super()._keep(values)


@face("dropout", passed=_WORKS_IN_PLACE)
class Dropout(_DropoutNd):
    """Sets each element to 0 with probability `p` and divides the others by 1 - p, in training.

    >>> import xgrad
    >>> xgrad.nn.Dropout(0.2).eval()(xgrad.ones(2))
    tensor([1., 1.])
    """


@face("dropout1d", passed=_WORKS_IN_PLACE)
class Dropout1d(_DropoutNd):
    """Dropout of whole channels, of an input of shape (N, C, L) or (C, L)."""


@face("dropout2d", passed=_WORKS_IN_PLACE)
class Dropout2d(_DropoutNd):
    """Dropout of whole channels, of an input of shape (N, C, H, W) or (N, C, L)."""


@face("dropout3d", passed=_WORKS_IN_PLACE)
class Dropout3d(_DropoutNd):
    """Dropout of whole channels, of an input of shape (N, C, D, H, W) or (C, D, H, W)."""


@face("alpha_dropout", passed="p training")
class AlphaDropout(_DropoutNd):
    """Dropout that preserves mean 0 and variance 1, for networks of SELU."""


@face("feature_alpha_dropout", passed="p training")
class FeatureAlphaDropout(_DropoutNd):
    """AlphaDropout of whole channels."""
