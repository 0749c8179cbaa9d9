"""Tensor's methods that convert it (numpy, item, tolist), describe it (size, dim, nbytes), or register its hooks.

Once a buffer is handed out (NumPy, DLPack, `__jax_array__`) xgrad no longer owns it: the next in-place write copies.
If a tensor is spread over several processes none of them has all values: reading them is an error that says what to do.
"""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from ..base import dtypes
from ..base.devices import require_here
from ..config import state
from ..engine.hooks import Hooks, RemovableHandle, adopted, hooks_of, register, retain_grad
from ..errors import InplaceViewError
from ..tensor import Tensor, from_foreign
from ..views.named.arguments import own_dim
from ..views.storage import Tracer, value_needed
from .printing import format_tensor
from .pytrees import NO_ARRAY


def jax_array(self: Tensor) -> Any:
    """The value as a `jax.Array`; called by `jnp` functions, and by a `jax.Array` on the left of an operator.

    Raises `RuntimeError` for a tensor that requires grad, whose graph would end here without a word.
    """
    if state.grad_enabled and self.requires_grad:
        raise RuntimeError(NO_ARRAY)
    return self._export()


def _concrete(self: Tensor, what: str) -> Any:
    array = self._export(what)
    root = None if self._storage is None else self._storage.array
    if isinstance(array, Tracer) and isinstance(root, jax.Array) and not isinstance(root, Tracer):
        with jax.ensure_compile_time_eval():  # a view of a constant: the trace has only its replay
            array = self._chain.replay(root)
    if isinstance(array, Tracer):
        raise value_needed(
            array,
            f"{what} needs the value of a tensor that is being traced (inside jax.jit, jax.vmap or jax.grad). "
            "Return the tensor and read it outside, or use xgrad.where instead of a Python branch.",
        )
    require_here(array, what)
    return array


def _values(self: Tensor, what: str) -> np.ndarray:
    array = _concrete(self, what)
    try:
        return np.asarray(array)
    except RuntimeError as error:
        raise _explained(error) from None


def _explained(error: RuntimeError) -> RuntimeError:
    """Explain an error that came with the values: a program of several processes needs jax.distributed."""
    if jax.process_count() == 1 or jax.distributed.is_initialized():
        return error
    return RuntimeError(
        "JAX's distributed client is closed (jax.distributed.shutdown()), so the processes cannot compute together any "
        "more: read values before, or start all processes anew and go on from a checkpoint. JAX says: " + str(error)
    )


def numpy(self: Tensor, *, force: bool = False) -> np.ndarray:
    """The value as a NumPy array (read-only, without a copy where JAX allows it).

    In a custom operator (`xgrad.library`) what is written to the array of a tensor that it writes is written to that.

    Raises `RuntimeError` for a tensor that requires grad; `force=True` detaches it first.
    """
    if not force and state.grad_enabled and self.requires_grad:
        raise RuntimeError("Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead.")
    if self._lent is None:
        return _values(self, "numpy()")
    if not self._lent:
        array = np.array(_values(self, "numpy()"))
        self._lent.append((array, array.tobytes(), self._version))
    return self._lent[0][0]


def to_array_protocol(self: Tensor, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
    array = numpy(self)
    if dtype is not None and array.dtype != dtype:
        if copy is False:
            raise ValueError(f"Unable to avoid copy while creating an array of {np.dtype(dtype)} from {array.dtype}")
        return array.astype(dtype)
    return array.copy() if copy else array


def wrap_array(self: Tensor, array: np.ndarray, context: Any = None, return_scalar: bool = False) -> Tensor:
    """Wrap the result of a NumPy function that had a tensor among its arguments: it becomes a tensor."""
    return from_foreign(np.array(array.astype(np.uint8) if array.dtype == bool else array))


def item(self: Tensor) -> Any:
    """The value of a tensor with one element as a Python number.  Raises `RuntimeError` for any other size."""
    if numel(self) != 1:
        raise RuntimeError(f"a Tensor with {numel(self)} elements cannot be converted to Scalar")
    return _number(self, "item()")


def _number(self: Tensor, what: str) -> Any:
    """Return the one element as a Python number; `what` asks for it, in errors and in lazy metrics."""
    array = _concrete(self, what)
    try:
        return array.item()
    except RuntimeError as error:
        raise _explained(error) from None


def tolist(self: Tensor) -> Any:
    """The value as nested lists of Python numbers."""
    return _values(self, "tolist()").tolist()


def truth(self: Tensor) -> bool:
    n = numel(self)
    if n != 1:
        known = "no values" if n == 0 else "more than one value"
        raise RuntimeError(f"Boolean value of Tensor with {known} is ambiguous")
    return bool(_number(self, "bool()"))


def _only_one(self: Tensor, what: str) -> Any:
    if numel(self) != 1:
        raise ValueError(f"only one element tensors can be converted to Python scalars, this one has {numel(self)}")
    return _number(self, what)


def integer(self: Tensor) -> int:
    return int(_only_one(self, "int()"))


def index(self: Tensor) -> int:
    if self._dtype in dtypes.INEXACT or numel(self) != 1:
        raise TypeError("only integer tensors of a single element can be converted to an index")
    return int(_number(self, "int()"))


def floating(self: Tensor) -> float:
    value = _only_one(self, "float()")
    if isinstance(value, complex):
        raise RuntimeError("value cannot be converted to type double without overflow: it is complex")
    return float(value)


def to_complex(self: Tensor) -> complex:
    return complex(_only_one(self, "complex()"))


def numel(self: Tensor) -> int:
    """The number of elements."""
    return self.shape.numel()


def size(self: Tensor, dim: int | None = None) -> Any:
    """The shape, or the size of one dimension."""
    if dim is None:
        return self.shape
    return self.shape[own_dim(dim, self.ndim)]


def length(self: Tensor) -> int:
    if not self.ndim:
        raise TypeError("len() of a 0-d tensor")
    return self.shape[0]


def iterate(self: Tensor) -> Any:
    if not self.ndim:
        raise TypeError("iteration over a 0-d tensor")
    return iter(self.unbind(0))


def backwards(self: Tensor) -> Tensor:
    """`reversed(tensor)`: the entries of the first dimension in reverse, as one tensor."""
    return self.flip(0) if self.ndim else self


def no_deletion(self: Tensor, index: Any) -> None:
    raise TypeError("Tensor does not support deleting items")


def contains(self: Tensor, value: Any) -> bool:
    """True if an element equals `value`, a number or a tensor, which broadcasts."""
    if not isinstance(value, (Tensor, bool, int, float, complex, np.generic)):
        raise RuntimeError(f"Tensor.__contains__ only supports Tensor or scalar, but you passed in a {type(value)}.")
    equal: Any = value == self
    return bool(equal.any())


def formatted(self: Tensor, spec: str) -> str:
    """Format a 0-dim tensor as its number; for another tensor a format specification is an error."""
    return object.__format__(self, spec) if self.ndim else format(_number(self, "print"), spec)


def block_until_ready(self: Tensor) -> Tensor:
    """Wait until the value has been computed; returns the tensor."""
    jax.block_until_ready(self._read())
    return self


def dlpack(self: Tensor, **options: Any) -> Any:
    if self.requires_grad:
        raise BufferError("Can't export tensors that require gradient, use tensor.detach()")
    return _concrete(self, "__dlpack__()").__dlpack__(**options)


def dlpack_device(self: Tensor) -> tuple[int, int]:
    return _concrete(self, "__dlpack_device__()").__dlpack_device__()


def register_hook(self: Tensor, hook: Callable[..., Any]) -> RemovableHandle:
    """Call `hook(grad)` each time this tensor's gradient is computed; it may return another one.

    Raises `RuntimeError` for a tensor that does not require grad.
    """
    if not self.requires_grad:
        raise RuntimeError("cannot register a hook on a tensor that doesn't require gradient")
    node = self.grad_fn
    if node is None:
        if self._hooks is None:
            self._hooks = Hooks()
        return register(self._hooks, hook)
    known = hooks_of(self)
    return register(node.hooks().tensor.setdefault(self._output_nr, Hooks()) if known is None else known, hook)


def register_post_accumulate_grad_hook(self: Tensor, hook: Callable[..., Any]) -> RemovableHandle:
    """Call `hook(tensor)` each time a gradient has been accumulated into this leaf's `.grad`."""
    if not self.requires_grad:
        raise RuntimeError("cannot register a hook on a tensor that doesn't require gradient")
    if not self.is_leaf:
        raise RuntimeError("post accumulate grad hooks cannot be registered on non-leaf tensors")
    if self._post_accumulate_hooks is None:
        self._post_accumulate_hooks = Hooks()
    return register(self._post_accumulate_hooks, hook)


def backward_hooks(self: Tensor) -> dict[Any, Any] | None:
    """The hooks of `register_hook` on this tensor's present history, {handle's id: hook}, or None."""
    return self._hooks if self.grad_fn is None else hooks_of(self)


def set_backward_hooks(self: Tensor, hooks: dict[Any, Any] | None) -> None:
    """Replace a tensor's hooks by a copy of {number: hook}, or by none: they run for a non-leaf too, unlike PyTorch's.

    Raises `TypeError` for anything but a dictionary of functions or None.
    """
    given, node = adopted(hooks), self.grad_fn
    if node is None:
        self._hooks = given
        return
    known = hooks_of(self)
    if known is None:
        known = node.hooks().tensor.setdefault(self._output_nr, Hooks())
    known.clear()
    known.update(given or {})


def no_deletion_of(name: str) -> Callable[..., Any]:
    def delete(self: Tensor) -> None:
        raise RuntimeError(f"Deletion of {name} not allowed! remove() the handles of the hooks instead.")

    return delete


def post_accumulate_hooks(self: Tensor) -> dict[Any, Any] | None:
    """The hooks of `register_post_accumulate_grad_hook`, {handle's id: hook}, or None."""
    return self._post_accumulate_hooks


def set_post_accumulate_hooks(self: Tensor, hooks: dict[Any, Any] | None) -> None:
    """Replace these hooks by a copy of {number: hook}, or by none.

    Raises `TypeError` for anything but a dictionary of functions or None.
    """
    self._post_accumulate_hooks = adopted(hooks)


def keep_grad(self: Tensor) -> None:
    """Let this non-leaf keep its gradient in `.grad` when backward computes it."""
    if not self.requires_grad:
        raise RuntimeError("can't retain_grad on Tensor that has requires_grad=False")
    try:
        node = self.grad_fn
    except InplaceViewError:
        if self._grad_fn is None:  # a leaf, so there is nothing to retain
            return
        raise
    if node is None or self._retains_grad:
        return
    self._retains_grad = True
    retain_grad(node, self._output_nr, self)


def dim(self: Tensor) -> int:
    """The number of dimensions."""
    return self.ndim


def nbytes(self: Tensor) -> int:
    """The size of all elements in bytes."""
    return numel(self) * element_size(self)


def is_signed(self: Tensor) -> bool:
    """True if the dtype has negative numbers."""
    return self._dtype.kind in "ifcV"


def names(self: Tensor) -> tuple[Any, ...]:
    """The names of the dimensions: None for each."""
    return (None,) * self.ndim


def is_floating_point(self: Tensor) -> bool:
    """True if the dtype is a floating-point one."""
    return self._dtype in dtypes.FLOATS


def is_complex(self: Tensor) -> bool:
    """True if the dtype is a complex one."""
    return self._dtype in dtypes.COMPLEX


def element_size(self: Tensor) -> int:
    """The size of one element in bytes."""
    return self._dtype.itemsize


def attach(tensor: type[Any]) -> None:
    """Give `Tensor` these methods."""
    methods: dict[str, Any] = {
        "__jax_array__": jax_array, "numpy": numpy, "__array__": to_array_protocol, "item": item, "tolist": tolist,
        "__bool__": truth, "__int__": integer, "__index__": index, "__float__": floating, "__complex__": to_complex,
        "numel": numel, "nelement": numel, "size": size, "__len__": length, "__iter__": iterate,
        "__contains__": contains, "__reversed__": backwards, "__delitem__": no_deletion, "__array_wrap__": wrap_array,
        "__format__": formatted, "block_until_ready": block_until_ready,
        "__dlpack__": dlpack, "__dlpack_device__": dlpack_device,
        "register_hook": register_hook, "register_post_accumulate_grad_hook": register_post_accumulate_grad_hook,
        "_backward_hooks": property(backward_hooks, set_backward_hooks, no_deletion_of("_backward_hooks")),
        "_post_accumulate_grad_hooks": property(
            post_accumulate_hooks, set_post_accumulate_hooks, no_deletion_of("_post_accumulate_grad_hooks")
        ),
        "retain_grad": keep_grad, "is_floating_point": is_floating_point, "is_complex": is_complex,
        "element_size": element_size, "__repr__": format_tensor, "dim": dim,
        "ndimension": dim, "itemsize": property(element_size),
        "nbytes": property(nbytes), "is_signed": is_signed,
        "names": property(names),
    }  # fmt: skip
    for name, method in methods.items():
        setattr(tensor, name, method)
