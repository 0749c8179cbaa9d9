"""Parameter and Buffer: tensors that a Module lists by themselves (PyTorch: torch/nn/parameter.py, torch/nn/buffer.py).

A Parameter *is* a plain Tensor with a mark: `type(p) is Tensor`, and `isinstance(p, Parameter)` asks for the mark, as
PyTorch does for subclasses of Tensor.  So every operator takes it on its fast path (a class of its own costs 3 µs a
call), and results are plain tensors without the mark.  A subclass of Parameter has instances of its own class.
"""

from typing import Any

from ..ops.create.from_data import tensor
from ..tensor import Tensor


class _Marked(type):
    """Metaclass of the classes whose instances are recognized by a mark."""

    def __instancecheck__(cls, instance: Any) -> bool:
        mark = vars(cls).get("_mark")
        if mark is not None and isinstance(instance, Tensor) and getattr(instance, mark, False):
            return True
        return super().__instancecheck__(instance)


def _leaf(cls: type, own: type, data: Tensor | None) -> Any:
    """Return a leaf that shares the storage of `data`, of its class, or of `cls` if that is a subclass of `own`."""
    if data is None:
        data = tensor([])
    if not isinstance(data, Tensor):
        raise TypeError(f"{own.__name__}: data must be a Tensor, but got {type(data).__name__}")
    return data.detach() if cls is own else Tensor._make_subclass(cls, data)


class Parameter(Tensor, metaclass=_Marked):
    """A tensor that is a parameter of a Module: assigned as an attribute, it is listed in `parameters()`.

    Shares the storage of `data` (default: an empty tensor), and requires grad unless `requires_grad=False`.
    Raises `TypeError` if `data` is no Tensor, `RuntimeError` for a dtype without gradients.

    >>> import xgrad
    >>> p = xgrad.nn.Parameter(xgrad.ones(2))
    >>> p
    Parameter containing:
    tensor([1., 1.], requires_grad=True)
    >>> isinstance(p, xgrad.nn.Parameter), isinstance(p * 2, xgrad.nn.Parameter)
    (True, False)
    """

    _mark = "_is_param"

    def __new__(cls, data: Tensor | None = None, requires_grad: bool = True) -> Any:
        new = _leaf(cls, Parameter, data)
        new.requires_grad = requires_grad
        new._is_param = True
        return new


class Buffer(Tensor, metaclass=_Marked):
    """A tensor that is a buffer of a Module: assigned as an attribute, it is listed in `buffers()`.

    Shares the storage of `data`.  `persistent`: `state_dict()` contains it.

    >>> import xgrad
    >>> module = xgrad.nn.Module()
    >>> module.mean = xgrad.nn.Buffer(xgrad.zeros(2))
    >>> dict(module.named_buffers())
    {'mean': tensor([0., 0.])}
    """

    _mark = "_is_buffer"

    def __new__(cls, data: Tensor | None = None, *, persistent: bool = True) -> Any:
        new = _leaf(cls, Buffer, data)
        new._is_buffer, new.persistent = True, persistent
        return new
