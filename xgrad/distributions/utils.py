"""Helpers of the distributions: broadcast parameters, draw numbers, convert logits (torch/distributions/utils.py)."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from ..base.dtype_info import finfo
from ..base.jax_compat import Tracer
from ..base.size import Size
from ..config import Recorded, Unrecorded, settings, state
from ..dispatch.call import call
from ..dispatch.operator import Operator
from ..dispatch.tables import FUNCTIONS
from ..random import next_key
from ..tensor import Tensor, from_foreign

euler_constant: float = 0.57721566490153286060
T: dict[str, Any] = FUNCTIONS[""]


class lazy_property:
    """A property that is computed once, with gradients, and then is an attribute."""

    def __init__(self, wrapped: Callable[[Any], Any]) -> None:
        self.wrapped = wrapped
        functools.update_wrapper(self, wrapped)  # pyright: ignore[reportArgumentType]

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return self
        with Recorded():
            value = self.wrapped(instance)
        setattr(instance, self.wrapped.__name__, value)
        return value


def without_grad(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function, whose operations are not recorded."""

    @functools.wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        with Unrecorded():
            return function(*args, **options)

    return call


def broadcast_all(*values: Any) -> list[Tensor]:
    """Return tensors of one shape; numbers become tensors of the first tensor's dtype, or of the default one.

    Raises `ValueError` for values that are neither.
    """
    if not all(isinstance(value, (Tensor, int, float, complex)) for value in values):
        raise ValueError("Input arguments must all be instances of Number, torch.Tensor or objects that are like it.")
    like = next((value for value in values if isinstance(value, Tensor)), None)
    options = {"dtype": settings.default_dtype} if like is None else {"dtype": like.dtype, "device": like.device}
    made = [value if isinstance(value, Tensor) else T["tensor"](value, **options) for value in values]
    return list(T["broadcast_tensors"](*made))


def is_scalar(*values: Any) -> bool:
    """Return True if all values are numbers."""
    return not any(isinstance(value, Tensor) for value in values)


def clamp_probs(probs: Tensor) -> Tensor:
    """Return probabilities that are neither 0 nor 1."""
    eps = finfo(probs.dtype).eps
    return probs.clamp(min=eps, max=1 - eps)


def probs_to_logits(probs: Tensor, is_binary: bool = False) -> Tensor:
    """Return logarithms of probabilities, or log-odds if they are of two values each."""
    clamped = clamp_probs(probs)
    return T["log"](clamped) - T["log1p"](-clamped) if is_binary else T["log"](clamped)


def logits_to_probs(logits: Tensor, is_binary: bool = False) -> Tensor:
    """Return the reverse of `probs_to_logits`."""
    return T["sigmoid"](logits) if is_binary else FUNCTIONS["nn.functional"]["softmax"](logits, dim=-1)


def sum_rightmost(value: Tensor, dims: int) -> Tensor:
    """Return the sum over the last dimensions."""
    return value if dims == 0 else value.sum(tuple(range(-dims, 0)))


def like(parameter: Tensor, shape: Any, draw: str) -> Tensor:
    """Return random numbers with a parameter's dtype and device; draw: "rand" or "randn"."""
    return T[draw](Size(shape), dtype=parameter.dtype, device=parameter.device)


def _standard_normal(shape: Any, dtype: Any, device: Any) -> Tensor:
    """Return normal numbers; packages as gpytorch draw with PyTorch's function of this name."""
    return T["randn"](Size(shape), dtype=dtype, device=device)


def open_uniform(parameter: Tensor, shape: Any) -> Tensor:
    """Return uniform numbers of the open interval (0, 1)."""
    info = finfo(parameter.dtype)
    return like(parameter, shape, "rand").clamp(min=info.tiny, max=1 - info.eps)


def _log_gamma_numbers(key: Any, concentration: Any, *, dtype: Any) -> Any:
    return jax.random.loggamma(key, concentration, dtype=dtype)


_LOG_GAMMA = Operator("log_gamma_numbers", _log_gamma_numbers, node="LogGammaNumbersBackward0")


def log_standard_gamma(concentration: Tensor) -> Tensor:
    """Return logarithms of gamma variates, differentiable with respect to the concentration.

    The gradient is implicit (Figurnov et al., https://arxiv.org/abs/1805.08498), by `jax.random.loggamma`.
    """
    single = concentration.float() if concentration.dtype.itemsize < 4 else concentration
    return call(_LOG_GAMMA, (from_foreign(next_key()), single), (single.dtype,)).to(concentration.dtype)


def one_hot(indices: Tensor, count: int, dtype: Any) -> Tensor:
    """Return vectors with a one at each index."""
    return (indices.unsqueeze(-1) == T["arange"](count, device=indices.device)).to(dtype)


def softplus(x: Tensor) -> Tensor:
    """Return log(1 + exp(x)); F.softplus leaves x as it is beyond 20, which float64 shows."""
    return -FUNCTIONS["nn.functional"]["logsigmoid"](-x)


def clipped_sigmoid(x: Tensor) -> Tensor:
    """Return the sigmoid inside of the open interval (0, 1), so that its inverse is finite."""
    info = finfo(x.dtype)
    return T["sigmoid"](x).clamp(min=info.tiny, max=1.0 - info.eps)


def _index(places: Any, like: Tensor) -> Tensor:
    return T["tensor"](places.ravel().tolist(), dtype=np.dtype("int32"), device=like.device)


def tril_matrix_to_vec(mat: Tensor, diag: int = 0) -> Tensor:
    """Return the entries of matrices on and below a diagonal as vectors, row by row.

    mat: of the shape (*, n, n).  Raises `ValueError` for a diagonal outside of the matrix.

    >>> import xgrad
    >>> xgrad.distributions.utils.tril_matrix_to_vec(xgrad.tensor([[1, 0], [2, 3]]))
    tensor([1, 2, 3])
    """
    n = mat.shape[-1]
    if not -n <= diag < n:
        raise ValueError(f"diag ({diag}) provided is outside [{-n}, {n - 1}].")
    rows, columns = np.tril_indices(n, diag)
    return mat.flatten(-2).index_select(-1, _index(rows * n + columns, mat))


def vec_to_tril_matrix(vec: Tensor, diag: int = 0) -> Tensor:
    """Return matrices with the entries of vectors on and below a diagonal, row by row, and zeros above.

    vec: of the shape (*, k).  Raises `ValueError` if no square matrix has k entries there.

    >>> import xgrad
    >>> xgrad.distributions.utils.vec_to_tril_matrix(xgrad.tensor([1, 2, 3]))
    tensor([[1, 0],
            [2, 3]])
    """
    count, n = vec.shape[-1], max(1, -diag)  # the least matrix that has the diagonal
    while (size := np.tri(n, k=diag).sum()) < count:
        n += 1
    if size != count:
        raise ValueError(
            f"The size of last dimension is {count} which cannot be expressed as the lower triangular part of a square "
            "D x D matrix."
        )
    if count == 0:
        return vec.new_zeros((*vec.shape[:-1], n, n))
    places = np.zeros((n, n), int)
    places[np.tril_indices(n, diag)] = np.arange(count)
    return vec.index_select(-1, _index(places, vec)).reshape((*vec.shape[:-1], n, n)).tril(diag)


def value_is_traced(value: Tensor) -> bool:
    """Return True if a value is not known now: in `xgrad.compile`, in `vmap`, under a trace of JAX's."""
    return state.trace is not None or value._level is not None or isinstance(value._read(), Tracer)


__all__ = [
    "broadcast_all", "clamp_probs", "lazy_property", "logits_to_probs", "probs_to_logits", "tril_matrix_to_vec",
    "vec_to_tril_matrix",
]  # fmt: skip
