"""Stands in for the module `torch._C._functions`: node classes for `isinstance`, DelayedError, UndefinedGrad.

`isinstance(node, MulBackward0)` compares the node's name.  DelayedError and UndefinedGrad make aliases of tensors,
whose backward raises an error or gives no gradient.  (PyTorch: torch/csrc/autograd/functions/init.cpp.)
"""

import re
from typing import Any

from ..engine.accumulate_grad import AccumulateGrad as AccumulateGrad
from ..engine.copy_slices import CopySlices as CopySlices
from ..engine.error_node import Error as Error
from ..engine.error_node import NotImplemented as NotImplemented
from ..engine.error_node import UndefinedGradBackward as UndefinedGradBackward
from ..engine.error_node import give_history
from ..engine.node import Node
from ..tensor import Tensor


class _NodeClass(type):
    """A metaclass whose isinstance() compares names: several of our classes of nodes have one name of PyTorch's."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, Node) and type(instance).__name__ == cls.__name__


def __getattr__(name: str) -> Any:
    if not re.fullmatch(r"\w+Backward\d+(_copy)?|\w+Backwards", name):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    made = globals()[name] = _NodeClass(name, (), {"__module__": __name__})
    return made


class DelayedError:
    """`DelayedError(message, n)(*tensors)`: aliases of the tensors, whose backward raises `RuntimeError(message)`.

    `n` has no effect.

    >>> import xgrad
    >>> from xgrad.autograd.torch_c_functions import DelayedError
    >>> y = DelayedError("too late", 1)(xgrad.ones(2, requires_grad=True))
    >>> y.sum().backward()
    Traceback (most recent call last):
    xgrad.errors.NotDifferentiableError: too late
    """

    def __init__(self, msg: str, num_inputs: int) -> None:
        self.msg = msg

    def _node(self) -> Node:
        return Error(self.msg)

    def __call__(self, *tensors: Tensor) -> Any:
        outputs = tuple(t.detach() for t in tensors)
        if any(t.requires_grad for t in tensors):
            give_history(self._node(), outputs, tensors)
        return outputs[0] if len(outputs) == 1 else outputs


class UndefinedGrad(DelayedError):  # noqa: N818 - PyTorch's name
    """`UndefinedGrad()(*tensors)`: aliases of tensors, to which backward gives no gradient."""

    def __init__(self) -> None: ...

    def _node(self) -> Node:
        return UndefinedGradBackward()


def __dir__() -> list[str]:
    return ["AccumulateGrad", "CopySlices", "DelayedError", "Error", "UndefinedGrad", "UndefinedGradBackward"]
