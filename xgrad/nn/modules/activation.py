"""ReLU, GELU, PReLU, Softmax, ...: the activation modules (PyTorch: torch/nn/modules/activation.py)."""

import warnings
from typing import Any

from ...dispatch.tables import FUNCTIONS
from ...tensor import Tensor
from .. import functional as F
from ..init import constant_
from ..module import Module
from ..parameter import Parameter
from .declared_module import Face, face
from .multihead_attention import MultiheadAttention as MultiheadAttention


class _Plain(Face):
    """An activation whose text says only that it works in place, if it does."""

    def extra_repr(self) -> str:
        return "inplace=True" if getattr(self, "inplace", False) else ""


@face("relu")
class ReLU(_Plain):
    """max(0, x), elementwise.

    >>> import xgrad
    >>> xgrad.nn.ReLU()(xgrad.tensor([-1.0, 2.0]))
    tensor([0., 2.])
    """

    inplace: bool = False


@face("rrelu", passed="lower upper training inplace")
class RReLU(Face):
    """x, or a·x if x is negative: with a random `a` of [lower, upper) in training, with their mean in evaluation."""

    lower: float = 1 / 8
    upper: float = 1 / 3
    inplace: bool = False


@face("hardtanh", passed="min_val max_val inplace", shown="min_val={self.min_val}, max_val={self.max_val}")
class Hardtanh(Face):
    """x, but at least `min_val` and at most `max_val`.

    Raises `AssertionError` unless `min_val` is smaller.  `min_value` and `max_value` are old names of the two.
    """

    min_val: float = -1.0
    max_val: float = 1.0
    inplace: bool = False
    min_value: float | None = None
    max_value: float | None = None

    def _keep(self, values: dict[str, Any]) -> None:
        for old, name in (("min_value", "min_val"), ("max_value", "max_val")):
            given = values.pop(old)
            if given is not None:
                warnings.warn(
                    f"keyword argument `{old}` is deprecated and rename to `{name}`", FutureWarning, stacklevel=4
                )
                values[name] = given
        super()._keep(values)
        if not self.max_val > self.min_val:
            raise AssertionError(f"max_val must be larger than min_val, got {self.max_val} and {self.min_val}")

    def extra_repr(self) -> str:
        """Return the bounds as text."""
        return super().extra_repr() + ", inplace=True" * bool(self.inplace)


class ReLU6(Hardtanh):
    """min(max(0, x), 6), elementwise."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__(0.0, 6.0, inplace)

    def extra_repr(self) -> str:
        """Return "inplace=True" if it is so."""
        return "inplace=True" if self.inplace else ""


@face("sigmoid")
class Sigmoid(_Plain):
    """1 / (1 + exp(-x)), elementwise."""


@face("hardsigmoid")
class Hardsigmoid(_Plain):
    """relu6(x + 3) / 6, elementwise."""

    inplace: bool = False

    extra_repr = Module.extra_repr


@face("tanh")
class Tanh(_Plain):
    """tanh(x), elementwise."""


@face("silu")
class SiLU(_Plain):
    """x·sigmoid(x), elementwise; also called swish."""

    inplace: bool = False


@face("mish")
class Mish(_Plain):
    """x·tanh(softplus(x)), elementwise."""

    inplace: bool = False


@face("hardswish")
class Hardswish(_Plain):
    """x·relu6(x + 3) / 6, elementwise."""

    inplace: bool = False

    extra_repr = Module.extra_repr


@face("elu")
class ELU(Face):
    """x, or alpha·(exp(x) - 1) if x is negative.

    >>> import xgrad
    >>> xgrad.nn.ELU(alpha=2.0)
    ELU(alpha=2.0)
    """

    alpha: float = 1.0
    inplace: bool = False


@face("celu")
class CELU(Face):
    """x, or alpha·(exp(x / alpha) - 1) if x is negative."""

    alpha: float = 1.0
    inplace: bool = False


@face("selu")
class SELU(_Plain):
    """The ELU with the scale and alpha that preserve mean 0 and variance 1."""

    inplace: bool = False


@face("glu")
class GLU(Face):
    """a·sigmoid(b), for the halves a and b of the input along `dim`."""

    dim: int = -1


@face("gelu", shown="approximate={self.approximate!r}")
class GELU(Face):
    """x·Φ(x), elementwise, with the normal distribution function Φ or its approximation by "tanh"."""

    approximate: str = "none"


@face("hardshrink", shown="{self.lambd}")
class Hardshrink(Face):
    """x, or 0 if its magnitude is at most `lambd`."""

    lambd: float = 0.5


@face("leaky_relu")
class LeakyReLU(Face):
    """x, or negative_slope·x if x is negative."""

    negative_slope: float = 0.01
    inplace: bool = False


@face("logsigmoid")
class LogSigmoid(_Plain):
    """log(sigmoid(x)), elementwise."""


@face("softplus")
class Softplus(Face):
    """log(1 + exp(beta·x)) / beta, elementwise, and x itself where beta·x exceeds `threshold`."""

    beta: float = 1.0
    threshold: float = 20.0


@face("softshrink", shown="{self.lambd}")
class Softshrink(Face):
    """x brought nearer to 0 by `lambd`, and 0 if it is nearer."""

    lambd: float = 0.5


@face("softsign")
class Softsign(_Plain):
    """x / (1 + |x|), elementwise."""


@face("tanhshrink")
class Tanhshrink(_Plain):
    """x - tanh(x), elementwise."""


@face("threshold")
class Threshold(Face):
    """x, or `value` if x is at most `threshold`."""

    threshold: float
    value: float
    inplace: bool = False


@face("softmin")
class Softmin(Face):
    """softmax(-x) along `dim`."""

    dim: int | None = None


@face("softmax")
class Softmax(Face):
    """exp(x) divided by its sum along `dim`.

    >>> import xgrad
    >>> xgrad.nn.Softmax(dim=1)(xgrad.zeros(1, 2))
    tensor([[0.5000, 0.5000]])
    """

    dim: int | None = None


@face("log_softmax")
class LogSoftmax(Face):
    """log(softmax(x)) along `dim`."""

    dim: int | None = None


class Softmax2d(Module):
    """Softmax over the channels of images, of shape (N, C, H, W) or (C, H, W).  Raises `ValueError` for others."""

    def forward(self, input: Tensor) -> Tensor:
        """Return the softmax along the third dimension from the end."""
        if input.dim() not in (3, 4):
            raise ValueError(f"Softmax2d: expected input to be 3D or 4D, got {input.dim()}D instead")
        return F.softmax(input, -3)


class PReLU(Module):
    """x, or weight·x if x is negative, with a learned weight: one, or one per channel (the second dimension).

    >>> import xgrad
    >>> xgrad.nn.PReLU()(xgrad.tensor([-4.0, 2.0])).tolist()
    [-1.0, 2.0]
    """

    init: float

    num_parameters: int

    def __init__(self, num_parameters: int = 1, init: float = 0.25, device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        self.num_parameters, self.init = num_parameters, init
        self.weight: Any = Parameter(FUNCTIONS[""]["empty"](num_parameters, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set the weight to the `init` of the constructor."""
        constant_(self.weight, self.init)

    def forward(self, input: Tensor) -> Tensor:
        """Return `nn.functional.prelu` of the input."""
        return F.prelu(input, self.weight)

    def extra_repr(self) -> str:
        """Return the number of weights as text."""
        return f"num_parameters={self.num_parameters}"
