"""Parameter and Buffer: tensors that a Module registers when they are assigned (PyTorch: torch/nn/parameter.py).

A Parameter *is* a plain Tensor with a mark: `type(p) is Tensor`, and `isinstance(p, Parameter)` asks for the mark, as
PyTorch does for subclasses of Tensor.  So a tree of parameters has the structure of the tree of their gradients, which
`jax.tree.map(update, params, grads)` asks for: JAX compares the classes of nodes.  Results are plain tensors without
the mark.  A subclass of Parameter has instances of its own class.  (PyTorch: torch/nn/buffer.py.)
"""

from collections.abc import Iterable
from typing import Any

from ..config import state
from ..dispatch.tables import FUNCTIONS
from ..ops.create.from_data import tensor
from ..tensor import Tensor, blank


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
    Raises `TypeError` if `data` is not a Tensor, `RuntimeError` for a dtype without gradients.

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


# -- not yet a value ---------------------------------------------------------------------------------------------------


def _no_value(self: Any) -> Any:
    raise ValueError(
        "Attempted to use an uninitialized parameter in an operation. Parameters of lazy modules have no shape and no "
        "value before the first forward: call the module with a batch, or `materialize(shape)`."
    )


class UninitializedTensorMixin:
    """A tensor without a shape: it has dtype, device and requires_grad, and `materialize` makes it one in place."""

    cls_to_become: Any = Tensor
    # What defines a Tensor's value: whoever reads it gets the error.
    _array = _storage = property(_no_value)
    _shapeless: Tensor  # an empty tensor of its dtype, on its device
    _requires_grad: bool
    _its_mark: str

    @classmethod
    def _of(cls, shapeless: Tensor, requires_grad: bool) -> Any:
        new: Any = blank(cls)
        new._shapeless, new._requires_grad = shapeless, requires_grad
        setattr(new, cls._its_mark, True)
        return new

    def materialize(self, shape: Any, device: Any = None, dtype: Any = None) -> None:
        """Make this very object a tensor of that shape, with undefined values."""
        made = FUNCTIONS[""]["empty"](shape, device=device or self.device, dtype=dtype or self.dtype)
        del self._shapeless
        own: Any = self
        own.__class__ = Tensor if self.cls_to_become is Parameter else self.cls_to_become
        own.data = made

    @property
    def shape(self) -> Any:
        raise RuntimeError(
            "Can't access the shape of an uninitialized parameter or buffer. This error usually happens in "
            "`load_state_dict` when trying to load an uninitialized parameter into an initialized one. Call `forward` "
            "to initialize the parameters before accessing their attributes."
        )

    @property
    def data(self) -> Any:
        """An empty tensor of this dtype and device; setting it sets these two, for `Module.to`."""
        return self._shapeless

    @data.setter
    def data(self, value: Tensor) -> None:
        self._shapeless = value

    @property
    def dtype(self) -> Any:
        return self._shapeless.dtype

    @property
    def _dtype(self) -> Any:
        return self._shapeless._dtype

    @property
    def device(self) -> Any:
        return self._shapeless.device

    @property
    def requires_grad(self) -> bool:
        return self._requires_grad

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self._requires_grad = value

    def requires_grad_(self, requires_grad: bool = True) -> Any:
        """Set `requires_grad`."""
        self._requires_grad = requires_grad
        return self

    def to(self, *args: Any, **kwargs: Any) -> Any:
        """Return one of another dtype or on another device."""
        return type(self)._of(self._shapeless.to(*args, **kwargs), self._requires_grad)

    def detach(self) -> Any:
        """Return itself: it has no value to share.  So a state_dict has it."""
        return self

    def share_memory_(self) -> Any:
        """Raise `RuntimeError`."""
        raise RuntimeError(
            "Can't share memory on an uninitialized parameter or buffer. Call `forward` to initialize the parameters "
            "before calling `module.share_memory()`."
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        if id(self) not in memo:
            memo[id(self)] = type(self)._of(self._shapeless.clone(), self.requires_grad)
        return memo[id(self)]

    def __reduce_ex__(self, protocol: Any) -> Any:
        return type(self), (self.requires_grad, None, self.dtype)


def is_lazy(param: Any) -> bool:
    """Return True for an uninitialized parameter or buffer."""
    return isinstance(param, UninitializedTensorMixin)


class UninitializedParameter(UninitializedTensorMixin, Parameter):  # pyright: ignore[reportIncompatibleMethodOverride]
    """A Parameter of a lazy module, which gets its shape from the first batch.

    `to`, `requires_grad_`, `state_dict` and copies work before; operators raise `ValueError`.

    >>> import xgrad
    >>> p = xgrad.nn.parameter.UninitializedParameter()
    >>> p.materialize((2, 3))
    >>> p.shape, isinstance(p, xgrad.nn.Parameter)
    (xgrad.Size([2, 3]), True)
    """

    cls_to_become, _its_mark = Parameter, "_is_param"

    def __new__(cls, requires_grad: bool = True, device: Any = None, dtype: Any = None) -> Any:
        return cls._of(FUNCTIONS[""]["empty"](0, device=device, dtype=dtype), requires_grad)


class UninitializedBuffer(UninitializedTensorMixin, Tensor):  # pyright: ignore[reportIncompatibleMethodOverride]
    """A buffer that gets its shape later."""

    _its_mark = "_is_buffer"
    persistent: bool = True

    def __new__(
        cls, requires_grad: bool = False, device: Any = None, dtype: Any = None, persistent: bool = True
    ) -> Any:
        new = cls._of(FUNCTIONS[""]["empty"](0, device=device, dtype=dtype), requires_grad)
        new.persistent = persistent
        return new


def zero_grads(parameters: Iterable[Tensor], set_to_none: bool) -> None:
    """Set gradients to None, or, with `set_to_none=False`, to zero in place."""
    for p in parameters:
        if set_to_none and state.trace is not None:
            p.grad = None  # unread: with and without a gradient the program is the same
        elif p._grad is not None and set_to_none:
            p.grad = None
        elif p._grad is not None:
            grad: Any = p.grad
            if grad.grad_fn is not None:
                grad.detach_()
            else:
                grad.requires_grad_(False)
            grad.zero_()
