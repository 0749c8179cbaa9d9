"""LowRankMultivariateNormal: a normal distribution with covariance W Wᵀ + diag(d).

(PyTorch: torch/distributions/lowrank_multivariate_normal.py.)
"""

import math
from collections.abc import Sequence
from typing import Any, ClassVar

from ..base.size import Size
from ..dispatch.tables import FUNCTIONS
from ..tensor import Tensor
from . import constraints
from .distribution import Distribution
from .multivariate_normal import solve_lower
from .utils import T, lazy_property, like

__all__ = ["LowRankMultivariateNormal"]


class LowRankMultivariateNormal(Distribution):
    """The normal distribution of vectors of n, with the covariance W·Wᵀ + diag(D), for W of n by m and D of n.

    Densities and draws take O(n·m²): by Woodbury's identity with the m by m matrix C = 1 + Wᵀ·D⁻¹·W.  Raises
    `ValueError` for shapes that do not fit.

    >>> import xgrad
    >>> W = xgrad.tensor([[1.0], [0.0], [2.0]])
    >>> p = xgrad.distributions.LowRankMultivariateNormal(xgrad.zeros(3), W, xgrad.ones(3))
    >>> p.variance, p.log_prob(xgrad.zeros(3))
    (tensor([2., 1., 5.]), tensor(-3.6527))
    """

    loc: Any
    cov_factor: Any
    cov_diag: Any
    arg_constraints: ClassVar[Any] = {
        "loc": constraints.real_vector, "cov_factor": constraints.independent(constraints.real, 2),
        "cov_diag": constraints.independent(constraints.positive, 1),
    }  # fmt: skip
    support: Any = constraints.real_vector
    has_rsample = True

    def __init__(self, loc: Tensor, cov_factor: Tensor, cov_diag: Tensor, validate_args: bool | None = None) -> None:
        if loc.dim() < 1:
            raise ValueError("loc must be at least one-dimensional.")
        event = loc.shape[-1:]
        if cov_factor.dim() < 2:
            raise ValueError("cov_factor must be at least two-dimensional, with optional leading batch dimensions")
        if cov_factor.shape[-2:-1] != event:
            raise ValueError(f"cov_factor must be a batch of matrices with shape {event[0]} x m")
        if cov_diag.shape[-1:] != event:
            raise ValueError(f"cov_diag must be a batch of vectors with shape {event}")
        try:
            batch = Size(T["broadcast_shapes"](loc.shape[:-1], cov_factor.shape[:-2], cov_diag.shape[:-1]))
        except RuntimeError as error:
            shapes = loc.shape, cov_factor.shape, cov_diag.shape
            raise ValueError(
                f"Incompatible batch shapes: loc {shapes[0]}, cov_factor {shapes[1]}, cov_diag {shapes[2]}"
            ) from error
        self.loc, self.cov_diag = (x.expand((*batch, *event)) for x in (loc, cov_diag))
        self.cov_factor = cov_factor.expand((*batch, *cov_factor.shape[-2:]))
        super().__init__(batch, event, validate_args=validate_args)
        inner = self._scaled() @ self.cov_factor
        eye = T["eye"](inner.shape[-1], dtype=inner.dtype, device=inner.device)
        self._capacitance_tril = FUNCTIONS["linalg"]["cholesky"](inner + eye)

    def _scaled(self) -> Tensor:
        """Wᵀ·D⁻¹."""
        return self.cov_factor.mT / self.cov_diag.unsqueeze(-2)

    def _solved(self) -> Tensor:
        """A = L⁻¹·Wᵀ·D⁻¹, for L·Lᵀ = C: the inverse of the covariance is D⁻¹ - Aᵀ·A."""
        return FUNCTIONS["linalg"]["solve_triangular"](self._capacitance_tril, self._scaled(), upper=False)

    def _expand_rest(self, new: Any, shape: Any) -> None:
        factor = self._capacitance_tril
        new._capacitance_tril = factor.expand((*shape, *factor.shape[-2:]))

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @lazy_property
    def variance(self) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        return self.cov_factor.pow(2).sum(-1) + self.cov_diag

    @lazy_property
    def covariance_matrix(self) -> Tensor:
        """The covariance, of n by n."""
        return self.cov_factor @ self.cov_factor.mT + T["diag_embed"](self.cov_diag)

    @lazy_property
    def scale_tril(self) -> Tensor:
        """The lower Cholesky factor of the covariance, of n by n."""
        return FUNCTIONS["linalg"]["cholesky"](self.covariance_matrix)

    @lazy_property
    def precision_matrix(self) -> Tensor:
        """The inverse of the covariance, of n by n."""
        solved = self._solved()
        return T["diag_embed"](self.cov_diag.reciprocal()) - solved.mT @ solved

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        inner = like(self.loc, (*shape[:-1], self.cov_factor.shape[-1]), "randn")
        own = like(self.loc, shape, "randn")
        return self.loc + (self.cov_factor @ inner.unsqueeze(-1)).squeeze(-1) + self.cov_diag.sqrt() * own

    def _log_det(self) -> Tensor:
        diagonal = self._capacitance_tril.diagonal(dim1=-2, dim2=-1)
        return 2 * diagonal.log().sum(-1) + self.cov_diag.log().sum(-1)

    def _distance(self, difference: Tensor) -> Tensor:
        """Return differenceᵀ·covariance⁻¹·difference."""
        inner = (self._scaled() @ difference.unsqueeze(-1)).squeeze(-1)
        factor = self._capacitance_tril.expand((*inner.shape[:-1], *self._capacitance_tril.shape[-2:]))
        return (difference.pow(2) / self.cov_diag).sum(-1) - solve_lower(factor, inner).pow(2).sum(-1)

    def log_prob(self, value: Tensor) -> Tensor:
        constant = self._event_shape[0] * math.log(2 * math.pi)
        return -0.5 * (constant + self._log_det() + self._distance(self._checked(value) - self.loc))

    def entropy(self) -> Tensor:
        return 0.5 * (self._event_shape[0] * (1.0 + math.log(2 * math.pi)) + self._log_det())
