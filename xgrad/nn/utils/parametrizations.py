"""orthogonal, weight_norm, spectral_norm: parametrize a module's weight (PyTorch: torch/nn/utils/parametrizations.py).

`parametrize.remove_parametrizations` removes them.
"""

from enum import Enum, auto
from typing import Any

from ...autograd.grad_mode import no_grad
from ...base.dtype_info import finfo
from ...dispatch.ruled_views import aliased
from ...dispatch.tables import FUNCTIONS
from ...tensor import Tensor
from ..module import Module
from . import parametrize
from .spectral_norm import as_matrix, output_dim
from .weight_norm import normalized

_x: dict[str, Any] = FUNCTIONS[""]
_linalg: dict[str, Any] = FUNCTIONS["linalg"]
_normalize = FUNCTIONS["nn.functional"]["normalize"]


def _weight_of(module: Any, name: str) -> Tensor:
    weight = getattr(module, name, None)
    if not isinstance(weight, Tensor):
        raise ValueError(f"Module '{module}' has no parameter or buffer with name '{name}'")
    return weight


# -- orthogonal --------------------------------------------------------------------------------------------------------


def _is_orthogonal(q: Tensor) -> bool:
    n, k = q.shape[-2:]
    return bool(
        _x["allclose"](q.mH @ q, _x["eye"](k, dtype=q.dtype, device=q.device), atol=10.0 * n * finfo(q.dtype).eps)
    )


def _make_orthogonal(a: Tensor) -> Tensor:
    """Return the factor q of a tall matrix a = q r, such that the diagonal of r is not negative."""
    reflectors, tau = _x["geqrf"](a)
    q = _linalg["householder_product"](reflectors, tau)
    return q * reflectors.diagonal(dim1=-2, dim2=-1).sgn().unsqueeze(-2)


class _OrthMaps(Enum):
    matrix_exp = auto()
    cayley = auto()
    householder = auto()


class _Orthogonal(Module):
    """A matrix with orthonormal columns (or rows, if it is wide) as a function of any matrix of its shape."""

    base: Any

    def __init__(self, weight: Tensor, orthogonal_map: _OrthMaps, *, use_trivialization: bool = True) -> None:
        super().__init__()
        if weight.is_complex() and orthogonal_map is _OrthMaps.householder:
            raise ValueError("The householder parametrization does not support complex tensors.")
        self.shape = weight.shape
        self.orthogonal_map = orthogonal_map
        if use_trivialization:
            self.register_buffer("base", None)

    def forward(self, x: Tensor) -> Tensor:
        """Return the orthogonal matrix."""
        n, k = x.shape[-2:]
        transposed = n < k
        if transposed:
            x, n, k = x.mT, k, n
        q = self._householder(x) if self.orthogonal_map is _OrthMaps.householder else self._of_skew(x, n, k)
        if hasattr(self, "base"):
            q = self.base @ q
        return q.mT if transposed else q

    def _of_skew(self, x: Tensor, n: int, k: int) -> Tensor:
        """Map the lower triangle, as a skew-hermitian matrix, to an orthogonal one."""
        x = x.tril()
        if n != k:
            x = _x["cat"]([x, x.new_zeros((*x.shape[:-2], n, n - k))], -1)
        a = x - x.mH
        if self.orthogonal_map is _OrthMaps.matrix_exp:
            q = _x["matrix_exp"](a)
        else:
            one = _x["eye"](n, dtype=a.dtype, device=a.device)
            q = _linalg["solve"](one - 0.5 * a, one + 0.5 * a)
        return q[..., :k]

    def _householder(self, x: Tensor) -> Tensor:
        """Map the part below the diagonal, as reflectors, to their product; the diagonal has the signs."""
        a = x.tril(-1)
        tau = 2.0 / (1.0 + (a * a).sum(-2))
        signs = x.detach().diagonal(dim1=-2, dim2=-1).trunc().unsqueeze(-2)
        return _linalg["householder_product"](a, tau) * signs

    @no_grad()
    def right_inverse(self, q: Tensor) -> Tensor:
        """Return a matrix that `forward` maps to an orthogonal one: `q` if it is one, else its factor Q."""
        if q.shape != self.shape:
            raise ValueError(
                f"Expected a matrix or batch of matrices of shape {self.shape}. Got a tensor of shape {q.shape}."
            )
        given, (n, k) = q, q.shape[-2:]
        transposed = n < k
        if transposed:
            q, n, k = q.mT, k, n
        if not hasattr(self, "base"):
            if self.orthogonal_map is not _OrthMaps.householder:
                raise NotImplementedError(
                    "It is not possible to assign to the matrix exponential or the Cayley parametrizations when "
                    "use_trivialization=False."
                )
            a, tau = _x["geqrf"](q)
            diagonal = aliased(a.diagonal, 0, -2, -1)
            signs = diagonal.sign()
            diagonal.copy_(_x["where"](tau == 0, -signs, signs))
            return a.mT if transposed else a
        if n == k:
            q = q.clone() if _is_orthogonal(q) else _make_orthogonal(q)
        else:
            more = _x["randn"](*q.shape[:-2], n, n - k, dtype=q.dtype)
            q = _make_orthogonal(_x["cat"]([q, more.to(q.device)], -1))
        self.base = q
        negative = _x["zeros_like"](given)  # with this diagonal, zeros are the identity for each of the maps
        aliased(negative.diagonal, 0, -2, -1).fill_(-1.0)
        return negative


def orthogonal(
    module: Any, name: str = "weight", orthogonal_map: str | None = None, *, use_trivialization: bool = True
) -> Any:
    """Make a weight orthogonal (unitary, if it is complex): its columns, or its rows if it is wide; return the module.

    `orthogonal_map` computes it from a matrix without constraints: "matrix_exp" and "cayley" of a skew-symmetric one,
    or "householder" reflectors; by default the first for square and complex weights, the last for others.  With
    `use_trivialization` the result is multiplied by a buffer, `base`, that is set when the weight is assigned; then it
    starts as the weight itself if that is orthogonal, and as its factor Q otherwise.

    Raises `ValueError` for a weight with fewer than two dimensions and for an unknown map.

    >>> import xgrad
    >>> module = xgrad.nn.utils.parametrizations.orthogonal(xgrad.nn.Linear(3, 3))
    >>> xgrad.allclose(module.weight @ module.weight.T, xgrad.eye(3), atol=1e-5)
    True
    """
    weight = _weight_of(module, name)
    if weight.ndim < 2:
        raise ValueError(f"Expected a matrix or batch of matrices. Got a tensor of {weight.ndim} dimensions.")
    if orthogonal_map is None:
        square = weight.shape[-2] == weight.shape[-1]
        orthogonal_map = "matrix_exp" if square or weight.is_complex() else "householder"
    if orthogonal_map not in _OrthMaps.__members__:
        raise ValueError(
            f'orthogonal_map has to be one of "matrix_exp", "cayley", "householder". Got: {orthogonal_map}'
        )
    made = _Orthogonal(weight, _OrthMaps[orthogonal_map], use_trivialization=use_trivialization)
    return parametrize.register_parametrization(module, name, made, unsafe=True)


# -- norms -------------------------------------------------------------------------------------------------------------


class _WeightNorm(Module):
    """A weight from its magnitude and its direction."""

    def __init__(self, dim: int | None = 0) -> None:
        super().__init__()
        self.dim = -1 if dim is None else dim

    def forward(self, weight_g: Tensor, weight_v: Tensor) -> Tensor:
        """Return the weight."""
        return normalized(weight_v, weight_g, self.dim)

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Return its norms, and the weight itself as the direction."""
        return _x["norm_except_dim"](weight, 2, self.dim), weight


class _LoadOldNames:
    """Renames weight_g and weight_v, the names of `nn.utils.weight_norm`, in a state that is loaded."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, state_dict: dict[str, Any], prefix: str, *others: Any) -> None:
        old = [f"{prefix}{self.name}_{end}" for end in "gv"]
        if all(key in state_dict for key in old):
            for i, key in enumerate(old):
                state_dict[f"{prefix}parametrizations.{self.name}.original{i}"] = state_dict.pop(key)


def weight_norm(module: Any, name: str = "weight", dim: int | None = 0) -> Any:
    """Make a weight the product of a magnitude (`original0`) and a direction (`original1`); return the module.

    The norm is over all dimensions but `dim`, or over all for None.  States of `nn.utils.weight_norm` can be loaded.

    >>> from xgrad import nn
    >>> module = nn.utils.parametrizations.weight_norm(nn.Linear(2, 3))
    >>> [(name, tuple(p.shape)) for name, p in module.named_parameters()][1:]
    [('parametrizations.weight.original0', (3, 1)), ('parametrizations.weight.original1', (3, 2))]
    """
    parametrize.register_parametrization(module, name, _WeightNorm(dim), unsafe=True)
    module._register_load_state_dict_pre_hook(_LoadOldNames(name))
    return module


class _SpectralNorm(Module):
    """A weight divided by its spectral norm; a vector by its length."""

    _u: Any
    _v: Any

    def __init__(self, weight: Tensor, n_power_iterations: int = 1, dim: int = 0, eps: float = 1e-12) -> None:
        super().__init__()
        n = weight.ndim
        if not -n <= dim < n:
            raise IndexError(f"Dimension out of range (expected to be in range of [-{n}, {n - 1}] but got {dim})")
        if n_power_iterations <= 0:
            raise ValueError(
                f"Expected n_power_iterations to be positive, but got n_power_iterations={n_power_iterations}"
            )
        self.dim, self.eps = dim % n, eps
        if n > 1:
            self.n_power_iterations = n_power_iterations
            matrix = as_matrix(weight.detach(), self.dim)
            for name, size in zip(("_u", "_v"), matrix.shape, strict=True):
                self.register_buffer(name, _normalize(matrix.new_empty(size).normal_(0, 1), dim=0, eps=eps))
            self._power_method(matrix, 15)

    @no_grad()
    def _power_method(self, matrix: Tensor, n_power_iterations: int) -> None:
        for _ in range(n_power_iterations):
            self._u.copy_(_normalize(matrix.mv(self._v), dim=0, eps=self.eps))
            self._v.copy_(_normalize(matrix.mH.mv(self._u), dim=0, eps=self.eps))

    def forward(self, weight: Tensor) -> Tensor:
        """Return the divided weight; in training after steps of the power method."""
        if weight.ndim == 1:
            return _normalize(weight, dim=0, eps=self.eps)
        matrix = as_matrix(weight, self.dim)
        if self.training:
            self._power_method(matrix, self.n_power_iterations)
        u, v = self._u.clone(), self._v.clone()  # a second forward changes the buffers before this one's backward
        return weight / _x["vdot"](u, matrix.mv(v))

    def right_inverse(self, value: Tensor) -> Tensor:
        """Return the weight: it is stored as it is assigned."""
        return value


def spectral_norm(
    module: Any, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None
) -> Any:
    """Divide a weight by its spectral norm, the largest singular value; return the module.

    Two buffers approximate the first singular vectors; each use of the weight in training improves them by
    `n_power_iterations` steps of the power method.  `dim` is the weight's dimension of outputs, as a matrix's rows.

    >>> from xgrad import nn
    >>> nn.utils.parametrizations.spectral_norm(nn.Linear(2, 3))
    ParametrizedLinear(
      in_features=2, out_features=3, bias=True
      (parametrizations): ModuleDict(
        (weight): ParametrizationList(
          (0): _SpectralNorm()
        )
      )
    )
    """
    made = _SpectralNorm(_weight_of(module, name), n_power_iterations, output_dim(module, dim), eps)
    return parametrize.register_parametrization(module, name, made)
