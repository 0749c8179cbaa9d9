"""Wishart: a distribution of positive definite matrices (PyTorch: torch/distributions/wishart.py)."""

import math
import warnings
from collections.abc import Sequence
from typing import Any

from ..base.dtype_info import finfo
from ..base.size import Size
from ..dispatch.tables import FUNCTIONS
from ..tensor import Tensor
from . import constraints
from .exp_family import ExponentialFamily
from .gamma import Chi2
from .multivariate_normal import OfCovariance
from .utils import T, like, value_is_traced, without_grad

__all__ = ["Wishart"]


class Wishart(OfCovariance, ExponentialFamily):
    """The distribution of Σ xᵢ·xᵢᵀ for df normal vectors x with mean 0, for any real df above their length less 1.

    The covariance of the vectors is one of: covariance, precision, lower Cholesky factor of the covariance.
    Raises `AssertionError` unless exactly one is given, `ValueError` for a `df` that is too small, and warns of one for
    which draws can be singular.  Drawn by Bartlett's decomposition (P. L. Odell, A. H. Feiveson, 1966).

    >>> import xgrad
    >>> p = xgrad.distributions.Wishart(xgrad.tensor(3.0), scale_tril=xgrad.eye(2))
    >>> p.mean
    tensor([[3., 0.],
            [0., 3.]])
    >>> p.log_prob(2 * xgrad.eye(2))
    tensor(-4.5310)
    """

    support: Any = constraints.positive_definite
    has_rsample = True
    _mean_carrier_measure = 0

    def __init__(
        self,
        df: Any,
        covariance_matrix: Tensor | None = None,
        precision_matrix: Tensor | None = None,
        scale_tril: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        name, matrix = self._only_given(covariance_matrix, precision_matrix, scale_tril, AssertionError)
        if matrix.dim() < 2:
            raise ValueError("scale_tril must be at least two-dimensional, with optional leading batch dimensions")
        if not isinstance(df, Tensor):
            df = T["tensor"](df, dtype=matrix.dtype, device=matrix.device)
        batch = Size(T["broadcast_shapes"](matrix.shape[:-2], df.shape))
        self.df: Any = df.expand(batch)
        self._check_degrees(df, matrix.shape[-1])
        vars(self)[name] = matrix.expand((*batch, *matrix.shape[-2:]))
        super().__init__(batch, matrix.shape[-2:], validate_args=validate_args)
        self._find_factor()

    @without_grad
    def _check_degrees(self, df: Tensor, n: int) -> None:
        if value_is_traced(df) or df.numel() == 0:
            return
        least = df.min().item()
        if least <= n - 1:
            raise ValueError(f"Value of df={df} expected to be greater than ndim - 1 = {n - 1}.")
        if least < n:
            warnings.warn(
                "Low df values detected. Singular samples are highly likely to occur for ndim - 1 < df < ndim.",
                stacklevel=4,
            )

    @property
    def arg_constraints(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The constraints on parameters; the constraint on df depends on the size of the matrices."""
        return {
            "covariance_matrix": constraints.positive_definite, "precision_matrix": constraints.positive_definite,
            "scale_tril": constraints.lower_cholesky, "df": constraints.greater_than(self._event_shape[-1] - 1),
        }  # fmt: skip

    def _scaled(self, factor: Tensor) -> Tensor:
        return factor.unsqueeze(-1).unsqueeze(-1) * self.covariance_matrix

    @property
    def mean(self) -> Tensor:
        return self._scaled(self.df)

    @property
    def mode(self) -> Tensor:
        """The most probable matrix; nan for a `df` that is at most the number of rows plus 1."""
        factor = self.df - self._event_shape[-1] - 1
        return self._scaled(T["where"](factor > 0, factor, math.nan))

    @property
    def variance(self) -> Tensor:
        """The variance of each entry."""
        v = self.covariance_matrix
        diagonal = v.diagonal(dim1=-2, dim2=-1)
        products = v.pow(2) + diagonal.unsqueeze(-1) * diagonal.unsqueeze(-2)
        return self.df.unsqueeze(-1).unsqueeze(-1) * products

    def _drawn(self, sample_shape: Sequence[int]) -> Tensor:
        n, df = self._event_shape[-1], self.df
        degrees = df.unsqueeze(-1) - T["arange"](n, dtype=df.dtype, device=df.device)
        diagonal = Chi2(degrees, validate_args=False).rsample(sample_shape).sqrt().clamp(min=finfo(df.dtype).eps)
        below = like(self._unbroadcasted_scale_tril, self._extended_shape(sample_shape), "randn").tril(-1)
        factor = self._unbroadcasted_scale_tril @ (below + T["diag_embed"](diagonal))
        return factor @ factor.mT

    def rsample(self, sample_shape: Sequence[int] = (), max_try_correction: int | None = None) -> Tensor:
        """Return draws that are differentiable with respect to the parameters.

        max_try_correction: how often at most all are drawn again, to replace the singular draws; 10 by default.  In
        `xgrad.compile` and `vmap`, where values are not known, it is 0 by default, and so many draws are always made.
        """
        drawn = self._drawn(sample_shape)
        traced = value_is_traced(drawn)
        tries = (0 if traced else 10) if max_try_correction is None else max_try_correction
        for i in range(tries):
            singular = ~self._definite(drawn)
            if not traced:
                if not bool(singular.any()):
                    break
                if i == 0:
                    warnings.warn("Singular sample detected.", stacklevel=2)
            drawn = T["where"](singular.unsqueeze(-1).unsqueeze(-1), self._drawn(sample_shape), drawn)
        return drawn

    @without_grad
    def _definite(self, drawn: Tensor) -> Tensor:
        return self.support.check(drawn)

    def log_prob(self, value: Tensor) -> Tensor:
        self._checked(value)
        df, n = self.df, self._event_shape[-1]
        shape = T["broadcast_shapes"](value.shape, self._unbroadcasted_scale_tril.shape)
        solved = T["cholesky_solve"](value.expand(shape), self._unbroadcasted_scale_tril.expand(shape))
        norm = df * (n * math.log(2) / 2 + self._half_log_det()) + T["mvlgamma"](df / 2, n)
        log_det = FUNCTIONS["linalg"]["slogdet"](value)[1]
        return (df - n - 1) / 2 * log_det - solved.diagonal(dim1=-2, dim2=-1).sum(-1) / 2 - norm

    def entropy(self) -> Tensor:
        df, n = self.df, self._event_shape[-1]
        steps = T["arange"](n, dtype=df.dtype, device=df.device) / 2
        slope = T["digamma"](df.unsqueeze(-1) / 2 - steps).sum(-1)  # of mvlgamma
        norm = (n + 1) * (n * math.log(2) / 2 + self._half_log_det()) + T["mvlgamma"](df / 2, n)
        return norm - (df - n - 1) / 2 * slope + df * n / 2

    @property
    def _natural_params(self) -> tuple[Tensor, Tensor]:
        return -self.precision_matrix / 2, (self.df - self._event_shape[-1] - 1) / 2

    def _log_normalizer(self, x: Tensor, y: Tensor) -> Tensor:
        n = self._event_shape[-1]
        half = y + (n + 1) / 2
        return half * (n * math.log(2) - FUNCTIONS["linalg"]["slogdet"](-2 * x)[1]) + T["mvlgamma"](half, n)
