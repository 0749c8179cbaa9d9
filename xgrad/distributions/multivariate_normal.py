"""MultivariateNormal: the normal distribution of vectors (PyTorch: torch/distributions/multivariate_normal.py)."""

import math
from collections.abc import Sequence
from typing import Any, ClassVar

from ..base.size import Size
from ..dispatch.tables import FUNCTIONS
from ..tensor import Tensor
from . import constraints
from .distribution import Distribution
from .utils import T, lazy_property, like

__all__ = ["MultivariateNormal"]


def solve_lower(matrix: Tensor, value: Tensor) -> Tensor:
    """Return matrix⁻¹·value for a lower triangular matrix and vectors, over batches of both."""
    return FUNCTIONS["linalg"]["solve_triangular"](matrix, value.unsqueeze(-1), upper=False).squeeze(-1)


def factor_of_inverse(matrix: Tensor) -> Tensor:
    """Return the lower Cholesky factor of a matrix's inverse, from the factor of its rows and columns in reverse."""
    lower = FUNCTIONS["linalg"]["cholesky"](matrix.flip((-2, -1))).flip((-2, -1)).mT
    eye = T["eye"](lower.shape[-1], dtype=lower.dtype, device=lower.device)
    return FUNCTIONS["linalg"]["solve_triangular"](lower, eye, upper=False)


class OfCovariance(Distribution):
    """The base class of distributions that take a covariance of vectors, its inverse, or its lower Cholesky factor.

    The others are computed when they are asked for.
    """

    _unbroadcasted_scale_tril: Any

    @staticmethod
    def _only_given(
        covariance_matrix: Tensor | None, precision_matrix: Tensor | None, scale_tril: Tensor | None,
        error: type[Exception],
    ) -> tuple[str, Tensor]:  # fmt: skip
        """Return the matrix that is given, and its name.  Raises `error` unless it is one of the three."""
        matrices = {
            "covariance_matrix": covariance_matrix, "scale_tril": scale_tril, "precision_matrix": precision_matrix,
        }  # fmt: skip
        given = [(name, matrix) for name, matrix in matrices.items() if matrix is not None]
        if len(given) != 1:
            raise error("Exactly one of covariance_matrix or precision_matrix or scale_tril may be specified.")
        return given[0]

    def _find_factor(self) -> None:
        own = vars(self)
        if "scale_tril" in own:
            self._unbroadcasted_scale_tril = own["scale_tril"]
        elif "covariance_matrix" in own:
            self._unbroadcasted_scale_tril = FUNCTIONS["linalg"]["cholesky"](own["covariance_matrix"])
        else:
            self._unbroadcasted_scale_tril = factor_of_inverse(own["precision_matrix"])

    def _expand_rest(self, new: Any, shape: Any) -> None:
        factor = self._unbroadcasted_scale_tril
        new._unbroadcasted_scale_tril = factor.expand((*shape, *factor.shape[-2:]))

    @lazy_property
    def scale_tril(self) -> Tensor:
        """The lower Cholesky factor of the vectors' covariance."""
        return self._unbroadcasted_scale_tril

    @lazy_property
    def covariance_matrix(self) -> Tensor:
        """The covariance of the vectors."""
        return self._unbroadcasted_scale_tril @ self._unbroadcasted_scale_tril.mT

    @lazy_property
    def precision_matrix(self) -> Tensor:
        """The inverse of the vectors' covariance."""
        return T["cholesky_inverse"](self._unbroadcasted_scale_tril)

    def _half_log_det(self) -> Tensor:
        return self._unbroadcasted_scale_tril.diagonal(dim1=-2, dim2=-1).log().sum(-1)


class MultivariateNormal(OfCovariance):
    """The normal distribution of vectors, of one of: covariance, precision, lower Cholesky factor of the covariance.

    Raises `ValueError` unless exactly one is given, and for a `loc` without dimensions.

    >>> import xgrad
    >>> p = xgrad.distributions.MultivariateNormal(xgrad.zeros(2), xgrad.tensor([[2.0, 0.0], [0.0, 0.5]]))
    >>> p.variance
    tensor([2.0000, 0.5000])
    """

    arg_constraints: ClassVar[Any] = {
        "loc": constraints.real_vector, "covariance_matrix": constraints.positive_definite,
        "precision_matrix": constraints.positive_definite, "scale_tril": constraints.lower_cholesky,
    }  # fmt: skip
    support: Any = constraints.real_vector
    has_rsample = True

    def __init__(
        self,
        loc: Tensor,
        covariance_matrix: Tensor | None = None,
        precision_matrix: Tensor | None = None,
        scale_tril: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        if loc.dim() < 1:
            raise ValueError("loc must be at least one-dimensional.")
        name, matrix = self._only_given(covariance_matrix, precision_matrix, scale_tril, ValueError)
        if matrix.dim() < 2:
            raise ValueError(f"{name} must be at least two-dimensional, with optional leading batch dimensions")
        batch = Size(T["broadcast_shapes"](matrix.shape[:-2], loc.shape[:-1]))
        vars(self)[name] = matrix.expand((*batch, *matrix.shape[-2:]))
        self.loc: Any = loc.expand((*batch, *loc.shape[-1:]))
        super().__init__(batch, self.loc.shape[-1:], validate_args=validate_args)
        self._find_factor()

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        return self._unbroadcasted_scale_tril.pow(2).sum(-1)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        drawn = like(self.loc, self._extended_shape(sample_shape), "randn")
        return self.loc + (self._unbroadcasted_scale_tril @ drawn.unsqueeze(-1)).squeeze(-1)

    def log_prob(self, value: Tensor) -> Tensor:
        difference = self._checked(value) - self.loc
        factor = self._unbroadcasted_scale_tril.expand((*difference.shape[:-1], *self._event_shape * 2))
        distance = solve_lower(factor, difference).pow(2).sum(-1)
        return -0.5 * (self._event_shape[0] * math.log(2 * math.pi) + distance) - self._half_log_det()

    def entropy(self) -> Tensor:
        return 0.5 * self._event_shape[0] * (1.0 + math.log(2 * math.pi)) + self._half_log_det()
