"""SoftmaxTransform, ...: map vectors or matrices to probabilities, Cholesky factors, positive definite matrices."""

import math
from typing import Any

from ..base.dtype_info import finfo
from ..dispatch.tables import FUNCTIONS
from ..tensor import Tensor
from . import constraints
from .transform import Transform
from .utils import T, clipped_sigmoid, softplus, tril_matrix_to_vec, vec_to_tril_matrix

__all__ = [
    "CorrCholeskyTransform", "LowerCholeskyTransform", "PositiveDefiniteTransform", "SoftmaxTransform",
    "StickBreakingTransform",
]  # fmt: skip


def _expect_dims(shape: Any, dims: int) -> None:
    if len(shape) < dims:
        raise ValueError("Too few dimensions on input")


def _padded(x: Tensor, left: int, right: int) -> Tensor:
    """Return vectors with ones before or behind."""
    return FUNCTIONS["nn.functional"]["pad"](x, (left, right), value=1.0)


class _Alike(Transform):
    """A transform without parameters: all of a class are equal."""

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self)


class SoftmaxTransform(_Alike):
    """y = softmax(x), whose inverse is log(y): not a bijection, because vectors that differ by a constant have one
    result."""

    domain, codomain = constraints.real_vector, constraints.simplex

    def _call(self, x: Tensor) -> Tensor:
        return FUNCTIONS["nn.functional"]["softmax"](x, dim=-1)

    def _inverse(self, y: Tensor) -> Tensor:
        return y.log()

    def forward_shape(self, shape: Any) -> Any:
        _expect_dims(shape, 1)
        return shape

    inverse_shape = forward_shape


class StickBreakingTransform(_Alike):
    """A bijection of n numbers to n + 1 probabilities: each breaks a part, its sigmoid, off the rest of a stick.

    The numbers are shifted so that zeros become equal probabilities.

    >>> import xgrad
    >>> xgrad.distributions.StickBreakingTransform()(xgrad.zeros(3))
    tensor([0.2500, 0.2500, 0.2500, 0.2500])
    """

    domain, codomain = constraints.real_vector, constraints.simplex
    bijective = True

    def _shift(self, x: Tensor) -> Tensor:
        return T["arange"](x.shape[-1], 0, -1, dtype=x.dtype, device=x.device).log()

    def _call(self, x: Tensor) -> Tensor:
        part = clipped_sigmoid(x - self._shift(x))
        return _padded(part, 0, 1) * _padded((1 - part).cumprod(-1), 1, 0)

    def _inverse(self, y: Tensor) -> Tensor:
        head = y[..., :-1]
        rest = (1 - head.cumsum(-1)).clamp(min=finfo(y.dtype).tiny)
        return head.log() - rest.log() + self._shift(head)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return (y[..., :-1].log() - softplus(x - self._shift(x))).sum(-1)

    def forward_shape(self, shape: Any) -> Any:
        _expect_dims(shape, 1)
        return shape[:-1] + (shape[-1] + 1,)

    def inverse_shape(self, shape: Any) -> Any:
        _expect_dims(shape, 1)
        return shape[:-1] + (shape[-1] - 1,)


class LowerCholeskyTransform(_Alike):
    """The lower triangle of a matrix, with the exponential of its diagonal.

    >>> import xgrad
    >>> xgrad.distributions.LowerCholeskyTransform()(xgrad.tensor([[0.0, 9.0], [2.0, 1.0]]))
    tensor([[1.0000, 0.0000],
            [2.0000, 2.7183]])
    """

    domain, codomain = constraints.independent(constraints.real, 2), constraints.lower_cholesky

    def _call(self, x: Tensor) -> Tensor:
        return x.tril(-1) + T["diag_embed"](x.diagonal(dim1=-2, dim2=-1).exp())

    def _inverse(self, y: Tensor) -> Tensor:
        return y.tril(-1) + T["diag_embed"](y.diagonal(dim1=-2, dim2=-1).log())


class PositiveDefiniteTransform(_Alike):
    """L·Lᵀ, for the L of `LowerCholeskyTransform`.

    >>> import xgrad
    >>> t = xgrad.distributions.PositiveDefiniteTransform()
    >>> t(t.inv(xgrad.tensor([[2.0, 0.5], [0.5, 1.0]])))
    tensor([[2.0000, 0.5000],
            [0.5000, 1.0000]])
    """

    domain, codomain = constraints.independent(constraints.real, 2), constraints.positive_definite

    def _call(self, x: Tensor) -> Tensor:
        factor = LowerCholeskyTransform()(x)
        return factor @ factor.mT

    def _inverse(self, y: Tensor) -> Tensor:
        return LowerCholeskyTransform().inv(FUNCTIONS["linalg"]["cholesky"](y))


class CorrCholeskyTransform(Transform):
    """A bijection of n·(n - 1)/2 numbers to the lower Cholesky factors of n by n correlation matrices.

    The numbers fill the triangle below the diagonal; tanh of each is the share of what is left of its row's length 1.
    The Jacobian is taken from the numbers to the entries below the diagonal.
    Source: the Stan reference manual, Cholesky factors of correlation matrices.

    >>> import xgrad
    >>> xgrad.distributions.CorrCholeskyTransform()(xgrad.tensor([0.5]))
    tensor([[1.0000, 0.0000],
            [0.4621, 0.8868]])
    """

    domain, codomain = constraints.real_vector, constraints.corr_cholesky
    bijective = True

    def _call(self, x: Tensor) -> Tensor:
        eps = finfo(x.dtype).eps
        share = vec_to_tril_matrix(x.tanh().clamp(min=-1 + eps, max=1 - eps), diag=-1)
        left = (1 - share.pow(2)).sqrt().cumprod(-1)
        eye = T["eye"](share.shape[-1], dtype=share.dtype, device=share.device)
        return (share + eye) * _padded(left[..., :-1], 1, 0)

    def _inverse(self, y: Tensor) -> Tensor:
        left = _padded(1 - y.pow(2).cumsum(-1)[..., :-1], 1, 0)
        share = tril_matrix_to_vec(y, diag=-1) / tril_matrix_to_vec(left, diag=-1).sqrt()
        return (T["log1p"](share) - T["log1p"](-share)) / 2

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor, intermediates: Any = None) -> Tensor:
        left = tril_matrix_to_vec(1 - y.pow(2).cumsum(-1), diag=-2)  # after the first entries of each row
        slopes = -2 * (x + softplus(-2 * x) - math.log(2.0))  # of tanh
        return 0.5 * left.log().sum(-1) + slopes.sum(-1)

    def forward_shape(self, shape: Any) -> Any:
        _expect_dims(shape, 1)
        n = round((0.25 + 2 * shape[-1]) ** 0.5 + 0.5)
        if n * (n - 1) // 2 != shape[-1]:
            raise ValueError("Input is not a flattened lower-diagonal number")
        return shape[:-1] + (n, n)

    def inverse_shape(self, shape: Any) -> Any:
        _expect_dims(shape, 2)
        if shape[-2] != shape[-1]:
            raise ValueError("Input is not square")
        return shape[:-2] + (shape[-1] * (shape[-1] - 1) // 2,)
