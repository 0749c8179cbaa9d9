"""xavier_uniform_, zeros_, ...: initialize parameters in place, without recording it (PyTorch: torch/nn/init.py).

The distributions are PyTorch's; the numbers come from xgrad's generator.  An initializer returns the tensor
that it was given.
"""

import functools
import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from ..autograd.grad_mode import no_grad
from ..dispatch.tables import FUNCTIONS
from ..random import Generator
from ..tensor import Tensor

_GAINS = {
    **dict.fromkeys(("sigmoid", "linear", *(f"conv{kind}{n}d" for kind in ("", "_transpose") for n in (1, 2, 3))), 1),
    "tanh": 5 / 3, "relu": math.sqrt(2), "selu": 3 / 4,
}  # fmt: skip


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """Return the recommended gain for a nonlinearity: the factor of the standard deviation of the weights before it.

    `param`: the negative slope of "leaky_relu".  Raises `ValueError` for a name that is not known.

    >>> import xgrad
    >>> xgrad.nn.init.calculate_gain("leaky_relu", 1.0)
    1.0
    """
    if nonlinearity == "leaky_relu":
        if isinstance(param, bool) or not isinstance(param, int | float | None):
            raise ValueError(f"negative_slope {param} not a valid number")
        return math.sqrt(2 / (1 + (0.01 if param is None else param) ** 2))
    if nonlinearity not in _GAINS:
        raise ValueError(f"Unsupported nonlinearity {nonlinearity}: expected leaky_relu or one of {', '.join(_GAINS)}")
    return _GAINS[nonlinearity]


@no_grad()
def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Draw from the uniform distribution over [a, b).

    >>> import xgrad
    >>> w = xgrad.nn.init.uniform_(xgrad.empty(3, 5), -0.1, 0.1)
    >>> bool((w.abs() <= 0.1).all())
    True
    """
    return tensor.uniform_(a, b, generator=generator)


@no_grad()
def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Draw from the normal distribution."""
    return tensor.normal_(mean, std, generator=generator)


@no_grad()
def trunc_normal_(
    tensor: Tensor, mean: float = 0.0, std: float = 1.0, a: float = -2.0, b: float = 2.0,
    generator: Generator | None = None,
) -> Tensor:  # fmt: skip
    """Draw from the normal distribution, restricted to [a, b]: the inverse distribution function of uniform numbers.

    Warns if [a, b] is more than two standard deviations from the mean.  (PyTorch draws again what lies outside.)

    >>> import xgrad
    >>> w = xgrad.nn.init.trunc_normal_(xgrad.empty(3, 5), std=0.02, a=-0.04, b=0.04)
    >>> bool((w.abs() <= 0.04).all())
    True
    """
    if mean < a - 2 * std or mean > b + 2 * std:
        warnings.warn(
            "mean is more than 2 std from [a, b] in nn.init.trunc_normal_. The distribution of values may be "
            "incorrect: few of such numbers differ.",
            stacklevel=3,  # no_grad's wrapper is between
        )
    # Probabilities of the lower tail are small, where floats are fine; of the upper one near 1, where they are coarse.
    upper = mean < (a + b) / 2
    low, high = ((mean - b) / std, (mean - a) / std) if upper else ((a - mean) / std, (b - mean) / std)
    dtype = tensor.dtype if tensor.dtype.itemsize >= 4 else "float32"
    drawn = FUNCTIONS[""]["empty_like"](tensor, dtype=dtype).uniform_(_cdf(low), _cdf(high), generator=generator)
    normal = FUNCTIONS["special"]["ndtri"](drawn)
    return tensor.copy_((mean + (-std if upper else std) * normal).clamp_(a, b)).clamp_(a, b)


def _cdf(x: float) -> float:
    """Return the probability of a normal number below x."""
    return math.erfc(-x / math.sqrt(2)) / 2


@no_grad()
def constant_(tensor: Tensor, val: float) -> Tensor:
    """Fill with a number."""
    return tensor.fill_(val)


@no_grad()
def ones_(tensor: Tensor) -> Tensor:
    """Fill with ones."""
    return tensor.fill_(1.0)


@no_grad()
def zeros_(tensor: Tensor) -> Tensor:
    """Fill with zeros."""
    return tensor.zero_()


@no_grad()
def eye_(tensor: Tensor) -> Tensor:
    """Set a matrix to the identity.  Raises `ValueError` unless it has two dimensions.

    >>> import xgrad
    >>> xgrad.nn.init.eye_(xgrad.empty(2, 3))
    tensor([[1., 0., 0.],
            [0., 1., 0.]])
    """
    _two_dimensional(tensor)
    return tensor.copy_(FUNCTIONS[""]["eye"](*tensor.shape, dtype=tensor.dtype, device=tensor.device))


def _two_dimensional(tensor: Tensor) -> None:
    if tensor.dim() != 2:
        raise ValueError(f"Only tensors with 2 dimensions are supported, got {tensor.dim()}")


@no_grad()
def dirac_(tensor: Tensor, groups: int = 1) -> Tensor:
    """Set the weight of a convolution so that it returns its input, as far as there are channels for it.

    Raises `ValueError` unless the tensor has 3, 4 or 5 dimensions, the first a multiple of `groups`.

    >>> import xgrad
    >>> xgrad.nn.init.dirac_(xgrad.empty(2, 2, 3))[1]
    tensor([[0., 0., 0.],
            [0., 1., 0.]])
    """
    if tensor.dim() not in (3, 4, 5):
        raise ValueError(f"Only tensors with 3, 4, or 5 dimensions are supported, got {tensor.dim()}")
    sizes = tensor.shape
    if sizes[0] % groups:
        raise ValueError(f"dim 0 must be divisible by groups, got {sizes[0]} and {groups}")
    values = np.zeros(sizes, np.float32)
    each = sizes[0] // groups
    for group in range(groups):
        for d in range(min(each, sizes[1])):
            values[(group * each + d, d, *(size // 2 for size in sizes[2:]))] = 1
    return tensor.copy_(FUNCTIONS[""]["from_numpy"](values))


def _calculate_fan_in_and_fan_out(tensor: Tensor) -> tuple[int, int]:
    """Return how many numbers of the input reach one of the output, and the reverse."""
    if tensor.dim() < 2:
        raise ValueError(
            f"Fan in and fan out can not be computed for tensor with fewer than 2 dimensions, got {tensor.dim()}"
        )
    field = math.prod(tensor.shape[2:])
    return tensor.shape[1] * field, tensor.shape[0] * field


def _calculate_correct_fan(tensor: Tensor, mode: str) -> int:
    mode = mode.lower()
    if mode not in ("fan_in", "fan_out"):
        raise ValueError(f"Mode {mode} not supported, please use one of ['fan_in', 'fan_out']")
    return _calculate_fan_in_and_fan_out(tensor)[mode == "fan_out"]


def xavier_uniform_(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Draw uniformly with the standard deviation gain·√(2 / (fan_in + fan_out)) (Glorot and Bengio 2010).

    >>> import xgrad
    >>> w = xgrad.nn.init.xavier_uniform_(xgrad.empty(3, 3))
    >>> bool((w.abs() <= 1).all())
    True
    """
    bound = math.sqrt(3) * gain * math.sqrt(2 / sum(_calculate_fan_in_and_fan_out(tensor)))
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Draw normal numbers with the standard deviation gain·√(2 / (fan_in + fan_out)) (Glorot and Bengio 2010)."""
    return normal_(tensor, 0.0, gain * math.sqrt(2 / sum(_calculate_fan_in_and_fan_out(tensor))), generator)


def _kaiming_std(tensor: Tensor, a: float, mode: str, nonlinearity: str) -> float | None:
    if 0 in tensor.shape:
        warnings.warn("Initializing zero-element tensors is a no-op", stacklevel=3)
        return None
    return calculate_gain(nonlinearity, a) / math.sqrt(_calculate_correct_fan(tensor, mode))


def kaiming_uniform_(
    tensor: Tensor, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu",
    generator: Generator | None = None,
) -> Tensor:  # fmt: skip
    """Draw uniformly with the standard deviation gain/√fan (He et al. 2015).

    `a`: the negative slope of a leaky ReLU that follows.  `mode`: "fan_in" preserves the variance of forward,
    "fan_out" the variance of backward.

    >>> import xgrad
    >>> w = xgrad.nn.init.kaiming_uniform_(xgrad.empty(3, 6), nonlinearity="relu")
    >>> bool((w.abs() <= 1).all())
    True
    """
    std = _kaiming_std(tensor, a, mode, nonlinearity)
    return tensor if std is None else uniform_(tensor, -math.sqrt(3) * std, math.sqrt(3) * std, generator)


def kaiming_normal_(
    tensor: Tensor, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu",
    generator: Generator | None = None,
) -> Tensor:  # fmt: skip
    """Draw normal numbers with the standard deviation gain/√fan (He et al. 2015): see `kaiming_uniform_`."""
    std = _kaiming_std(tensor, a, mode, nonlinearity)
    return tensor if std is None else normal_(tensor, 0.0, std, generator)


@no_grad()
def orthogonal_(tensor: Tensor, gain: float = 1, generator: Generator | None = None) -> Tensor:
    """Set to a random matrix with orthonormal rows or columns, whichever are fewer, times `gain` (Saxe et al. 2013).

    All dimensions after the first count as one.  Raises `ValueError` for a tensor with fewer than two.

    >>> import xgrad
    >>> w = xgrad.nn.init.orthogonal_(xgrad.empty(2, 3))
    >>> bool(xgrad.allclose(w @ w.T, xgrad.eye(2), atol=1e-5))
    True
    """
    if tensor.dim() < 2:
        raise ValueError(f"Only tensors with 2 or more dimensions are supported, got {tensor.dim()}")
    if tensor.numel() == 0:
        return tensor
    rows, columns = tensor.shape[0], tensor.numel() // tensor.shape[0]
    drawn = tensor.new_empty((max(rows, columns), min(rows, columns))).normal_(0, 1, generator=generator)
    q, r = FUNCTIONS["linalg"]["qr"](drawn)
    q = q * r.diagonal().sign()  # so that q is uniformly distributed (Mezzadri 2007)
    return tensor.copy_((q.t() if rows < columns else q).reshape(tensor.shape)).mul_(gain)


@no_grad()
def sparse_(tensor: Tensor, sparsity: float, std: float = 0.01, generator: Generator | None = None) -> Tensor:
    """Draw normal numbers and set a part `sparsity` of each column, at random, to zero (Martens 2010).

    Raises `ValueError` unless the tensor has two dimensions.

    >>> import xgrad
    >>> (xgrad.nn.init.sparse_(xgrad.empty(4, 3), 0.5) == 0).sum(0).tolist()
    [2, 2, 2]
    """
    _two_dimensional(tensor)
    tensor.normal_(0, std, generator=generator)
    order = FUNCTIONS[""]["rand"](*tensor.shape, generator=generator, device=tensor.device).argsort(0)
    return tensor.masked_fill_(order < math.ceil(sparsity * tensor.shape[0]), 0)


def _old_name(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return a function of the name without the underscore, which warns."""
    old = function.__name__[:-1]

    @functools.wraps(function)
    def renamed(*args: Any, **kwargs: Any) -> Tensor:
        warnings.warn(f"`nn.init.{old}` is now deprecated in favor of `nn.init.{old}_`.", FutureWarning, stacklevel=2)
        return function(*args, **kwargs)

    renamed.__name__ = renamed.__qualname__ = old
    return renamed


uniform: Any = _old_name(uniform_)
normal: Any = _old_name(normal_)
constant: Any = _old_name(constant_)
eye: Any = _old_name(eye_)
dirac: Any = _old_name(dirac_)
orthogonal: Any = _old_name(orthogonal_)
sparse: Any = _old_name(sparse_)
xavier_uniform: Any = _old_name(xavier_uniform_)
xavier_normal: Any = _old_name(xavier_normal_)
kaiming_uniform: Any = _old_name(kaiming_uniform_)
kaiming_normal: Any = _old_name(kaiming_normal_)

_OLD = "constant dirac eye kaiming_normal kaiming_uniform normal orthogonal sparse uniform xavier_normal xavier_uniform"
__all__ = ["calculate_gain", "ones_", "trunc_normal_", "zeros_"]
__all__ += [name for old in _OLD.split() for name in (old, f"{old}_")]


def __dir__() -> list[str]:
    """Return the names that users may use, which `__all__` has too."""
    return sorted(__all__)
