"""Variable: the class that wrapped tensors before PyTorch 0.4, for old code (PyTorch: torch/autograd/variable.py).

`Variable(x)` returns a tensor, a leaf with the values of `x`; for `isinstance` every tensor is a `Variable`.
"""

import warnings
from typing import Any

from ..overrides import disable_overrides
from ..tensor import Tensor
from .torch_c_names import ExecutionEngine


class VariableMeta(type):
    """The metaclass of `Variable`: every tensor is an instance."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, Tensor)


class Variable(metaclass=VariableMeta):
    """`Variable(data, requires_grad=False)`: a leaf that shares the values of `data`; without data, an empty tensor.

    It is `data.detach()`, a plain Tensor, marked as requiring grad if asked for.  `volatile` is warned about and has no
    effect.  Raises `TypeError` for data that are not a tensor (`xgrad.tensor` takes lists), `RuntimeError` for a dtype
    without gradients, `ValueError` for `volatile` with `requires_grad`.

    Source: PyTorch's `torch.autograd.Variable`.

    >>> import xgrad
    >>> from xgrad.autograd import Variable
    >>> Variable(xgrad.ones(2), requires_grad=True)
    tensor([1., 1.], requires_grad=True)
    >>> isinstance(xgrad.ones(2), Variable)
    True
    """

    _execution_engine = ExecutionEngine()

    def __new__(cls, data: Any = None, requires_grad: bool = False, volatile: bool = False, name: Any = None) -> Any:
        if volatile:
            set_volatile(None, volatile)
        if volatile and requires_grad:
            raise ValueError("Variable can't be volatile and require_grad at the same time!")
        if data is None:
            data = Tensor()
        elif not isinstance(data, Tensor):
            raise TypeError(
                f"Variable data has to be a tensor, but got {type(data).__name__}: xgrad.tensor(data) makes one"
            )
        with disable_overrides():
            made = data.detach()
        return made.requires_grad_() if requires_grad else made


def volatile(self: Tensor) -> bool:
    """False, with a warning: PyTorch has removed it."""
    warnings.warn("volatile was removed (Variable.volatile is always False)", stacklevel=2)
    return False


def set_volatile(self: Any, value: Any) -> None:
    """Warn: PyTorch has removed it."""
    warnings.warn("volatile was removed and now has no effect. Use `with xgrad.no_grad():` instead.", stacklevel=3)
