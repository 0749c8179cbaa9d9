"""LKJCholesky: draws Cholesky factors of correlation matrices (PyTorch: torch/distributions/lkj_cholesky.py)."""

import math
from collections.abc import Sequence
from typing import Any, ClassVar

from ..base.dtype_info import finfo
from ..tensor import Tensor
from . import constraints
from .distribution import Distribution
from .gamma import Beta
from .utils import T, broadcast_all, like, without_grad

__all__ = ["LKJCholesky"]


class LKJCholesky(Distribution):
    """Lower Cholesky factors L of correlation matrices M = L·Lᵀ of dim by dim, with a density of det(M)^(η - 1).

    A concentration η of 1 makes all correlation matrices equally likely.  Raises `ValueError` for a `dim` below 2.
    Source: D. Lewandowski, D. Kurowicka, H. Joe (2009), drawn by their onion method.

    >>> import xgrad
    >>> p = xgrad.distributions.LKJCholesky(3, 0.5)
    >>> p.sample((4,)).shape, p.log_prob(xgrad.eye(3))
    (xgrad.Size([4, 3, 3]), tensor(-2.5310))
    """

    concentration: Any
    arg_constraints: ClassVar[Any] = {"concentration": constraints.positive}
    support: Any = constraints.corr_cholesky

    def __init__(self, dim: int, concentration: Any = 1.0, validate_args: bool | None = None) -> None:
        if dim < 2:
            raise ValueError(f"Expected dim to be an integer greater than or equal to 2. Found dim={dim}.")
        self.dim: int = dim
        (self.concentration,) = broadcast_all(concentration)
        super().__init__(self.concentration.size(), (dim, dim), validate_args=validate_args)

    def _expand_rest(self, new: Any, shape: Any) -> None:
        new.dim = self.dim

    @without_grad
    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape, n = self._extended_shape(sample_shape), self.concentration.unsqueeze(-1)
        before = T["arange"](self.dim, dtype=n.dtype, device=n.device).sub(1).clamp(min=0)
        lengths = Beta(before + 0.5, n + 0.5 * (self.dim - 2) - 0.5 * before, validate_args=False).sample(sample_shape)
        drawn = like(n, shape, "randn").tril(-1)
        norm = drawn.pow(2).sum(-1, True).sqrt()
        rows = T["where"](norm > 0, drawn / norm, 0.0) * lengths.unsqueeze(-1).sqrt()
        diagonal = (1 - rows.pow(2).sum(-1)).clamp(min=finfo(rows.dtype).tiny).sqrt()
        return rows + T["diag_embed"](diagonal)

    def log_prob(self, value: Tensor) -> Tensor:
        self._checked(value)
        n, rest = self.concentration, self.dim - 1
        places = T["arange"](2, self.dim + 1, dtype=n.dtype, device=n.device)
        powers = 2 * (n - 1).unsqueeze(-1) + self.dim - places
        found = (powers * value.diagonal(dim1=-1, dim2=-2)[..., 1:].log()).sum(-1)
        alpha = n + 0.5 * rest
        norm = 0.5 * rest * math.log(math.pi) + T["mvlgamma"](alpha - 0.5, rest) - rest * T["lgamma"](alpha)
        return found - norm
