"""Tensor: the class that holds a value (an array, or a view of a storage) and autograd's metadata, without operators.

Invariants:

* Either `_array` is the value and no other tensor shares it, or `_storage` and `_chain` (the steps of the view)
  define it.  `_read()` is the one way to the array.
* `_requires_grad` is true for a marked leaf and for every tensor with a `grad_fn`.  A view may require grad
  beyond that, because its base does now: read `requires_grad`.
* Rare attributes (hooks, tangents, a view's metadata) are absent from the instance: the class has None.

Operators, engine and autograd attach their methods in `xgrad/attach.py` (PyTorch: torch/csrc/autograd/variable.h).

More than 450 lines: the slots of one class and all that reads or sets them, which is where their invariants hold.
"""

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self, overload

import jax
import numpy as np

from .base import dtypes
from .base.devices import device, device_of, left_to_xla, supports_as_strided
from .base.dtype_object import OBJECTS, dtype
from .base.jax_compat import trace_state
from .base.limits import out_of_memory
from .base.platforms import STRIDED
from .base.size import Size, unchecked
from .config import forward_levels, state
from .errors import InferenceTensorError, InplaceViewError
from .execution.pending import Pending, declared_of
from .views.chain import ViewChain
from .views.meta import CreationMeta, PrimalMeta, ViewMeta, creation_meta_now, propagate_creation_meta
from .views.named.arguments import own_dim
from .views.storage import (
    UNTRACKED,
    Detached,
    Storage,
    Tracer,
    VersionCounter,
    no_value,
    placed_like,
    write_root,
    writing,
)

if TYPE_CHECKING:
    # The stub of what xgrad/attach.py adds; no module has that name.
    from .base.methods import TensorMethods  # pyright: ignore[reportMissingModuleSource]
else:
    TensorMethods = object


# blank(Tensor): a tensor without a value, for callers who set one.  Tensor itself, called, makes a tensor of data.
blank: Any = object.__new__

SAME: Any = ("the tensor's own",)  # the default of `grad_dtype`
# The dimensions in the order of their elements, the fastest first.
_CHANNELS_LAST: dict[str | None, tuple[int, ...]] = {"channels_last": (1, 3, 2, 0), "channels_last_3d": (1, 4, 3, 2, 0)}
_NOT_A_LEAF = "you can only change requires_grad flags of leaf variables."
_INSTEAD_OF_FALSE = (
    " If you want to use a computed variable in a subgraph that doesn't require differentiation use var_no_grad = "
    "var.detach()."
)


class Tangents(dict[Any, Any]):
    """The tangents of a tensor, {forward level: Tensor}.  Copied, never changed, except at the end of a dual level."""

    __slots__ = ("__weakref__",)
    __hash__: Any = object.__hash__  # an item of a WeakSet
    __eq__: Any = object.__eq__


class Tensor(TensorMethods):
    """A multi-dimensional array with PyTorch's eager autograd, on a JAX array.

    Make one with `xgrad.tensor`, `xgrad.zeros`, ...  `Tensor` itself, called, is PyTorch's old constructor, with the
    default dtype: `Tensor(2, 3)` takes sizes, `Tensor([1, 2])` data, `Tensor(x)` is an alias of a tensor, `Tensor()`
    empty.  Raises `TypeError` for other arguments.

    >>> import xgrad
    >>> x = xgrad.tensor([1.0, 2.0], requires_grad=True)
    >>> (x * x).sum().backward()
    >>> x.grad
    tensor([2., 4.])
    >>> xgrad.Tensor([1, 2]), xgrad.Tensor(2, 3).shape
    (tensor([1., 2.]), xgrad.Size([2, 3]))
    """

    # value
    _array: Any = None
    _owned: bool = True
    _storage: Storage | None = None
    _chain: ViewChain = None  # pyright: ignore[reportAssignmentType] - set together with _storage
    _cache: Any = None
    _cache_generation: int = -1
    _traced: Any = None  # for a view of a tracer, in place of the cache: root, chain, trace and value
    _version_counter: VersionCounter | None = None
    # autograd
    _requires_grad: bool = False
    _grad_fn: Any = None  # the Node of what made it
    _output_nr: int = 0
    _grad: "Tensor | None" = None
    _grad_dtype: Any = SAME  # for a leaf: the dtype of its gradient, None for any (engine/grad_dtype.py)
    _view: ViewMeta | None = None
    _moved: ViewChain | None = None  # for a base: the effect of t_() and its like, as a chain over its first value
    _accumulator: Any = None  # weak reference to the AccumulateGrad
    _leads_to: Any = None  # for a snapshot of a leaf: the leaf's AccumulateGrad
    _hooks: Any = None  # tensor hooks of a leaf; the hooks of a non-leaf are with its node
    _earlier_hooks: Any = None  # after t_() and its like: (the present node, the hooks at the one before)
    _post_accumulate_hooks: Any = None
    _retains_grad: bool = False
    _tangents: Any = None  # Tangents
    _inference: bool = False
    _lent: Any = None  # in a kernel of the user's that writes it: the arrays that numpy() gave (library/operator.py)
    _is_param: bool = False  # True for a Parameter (nn/parameter.py), which is a Tensor like any other
    # for a BatchedTensor (batching/batched_tensor.py): the vmap that it belongs to, the tensor with all entries, and
    # functions that make the batched tensor again, move and reinterpret it with that tensor
    _level: Any = None
    _value: Any = None
    _holding: Any = None
    _move: Any = None
    _bits: Any = None

    # PyTorch's names for the kind of array behind the value; a sparse tensor's class has its own
    is_sparse: bool = False  # True if its layout is sparse_coo
    _sparse: bool = False  # True if its layout is not strided
    is_sparse_csr = is_mkldnn = is_quantized = is_nested = False
    is_mps = is_xpu = is_ipu = is_vulkan = is_maia = is_mtia = False
    layout: str = "strided"
    # of a class whose tensors are not plain ones: what runs operators on them (dispatch/interpreter.py)
    _interpreter: Any = None
    _call: Any = None  # `call` of dispatch/call.py: runs an operator, recorded
    _shallow: Any = None

    __array_priority__ = 1000  # ndarray * Tensor asks Tensor.__rmul__
    __hash__: Callable[..., Any] = object.__hash__

    def __new__(cls, *data: Any, **options: Any) -> Self:
        return cls._construct(data, options)

    def __dir__(self) -> list[str]:
        """Return the names that users may use: the engine's helpers, which begin with an underscore, are left out."""
        return [name for name in object.__dir__(self) if not name.startswith("_") or name.endswith("__")]

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if cls.__module__.startswith("xgrad.") and cls.__module__ != "xgrad.overrides":
            # xgrad's own subclasses take no part in overrides: the operators know them.
            setattr(cls, "__xgrad_function__", None)  # noqa: B010 - an assignment would declare the attribute here
        else:
            cls._prepare_subclass()

    # -- the value ------------------------------------------------------------------------------------------------

    def _with_batch(self, new: "Tensor") -> "Tensor":
        """Give a new tensor a batch wherever this one has a batch; outside of vmap it stays as it is."""
        return new

    def _read(self) -> Any:
        """Return the value as a JAX array, replaying the view chain if the cached one is old."""
        array = self._array
        if array is not None:
            return array
        storage, chain = self._storage, self._chain
        if storage is None:  # another thread adds to this gradient at the moment
            with writing:
                if self._storage is not None:
                    return self._read()
                array = self._array
                if array is None:
                    raise no_value()
                return array
        generation = storage.generation  # before the root: a write in another thread raises it after
        root = storage.array
        if chain.is_root:
            return root
        if self._cache_generation == generation:
            return self._cache
        if isinstance(root, Tracer):
            return self._read_traced(root)
        if self._cache is not None and (where := declared_of(root)) is not None:
            where.runtime.stale = True  # a report distinguishes it from the first reading
        try:
            array = chain.replay(root)
        except Exception as error:
            raise out_of_memory(error) or error from None
        # A tracer made of a concrete root belongs to a trace that ends before this tensor does.
        if not isinstance(array, Tracer):
            self._cache, self._cache_generation = array, generation
        return array

    def _read_traced(self, root: Any) -> Any:
        """Return the value of a view of a tracer: a value read in an inner trace is of no use after that trace."""
        known, chain, now = self._traced, self._chain, trace_state()
        if known is None or known[0] is not root or known[1] is not chain or known[2] != now:
            known = self._traced = root, chain, now, chain.replay(root)
        return known[3]

    def _held(self) -> Any:
        """Return the array behind the value: for a view, its root."""
        array, storage = self._array, self._storage  # in this order: `_share` sets the storage first
        if storage is not None:
            return storage.array
        return self._read() if array is None else array

    def _export(self, reason: str = "a function of JAX's") -> Any:
        """Return the array for other code to keep: it is not donated any more.

        `reason`: the reason of an evaluation, if the array is pending.
        """
        array = self._read()
        if array.__class__ is Pending:
            array = array.read(reason)
        counter = self._version_counter
        if self._storage is None:
            self._owned = False
        elif self._chain.is_root:
            self._storage._owned = False
            counter = self._storage.counter
        else:
            return array
        if counter is not None:
            counter.exported = True
        return array

    def _share(self) -> Storage:
        """Return the storage, which the first alias makes."""
        storage = self._storage
        if storage is None:
            with writing:  # another thread may ask at the same time, and reads without a lock
                storage = self._storage
                if storage is None:
                    array = self._array
                    if array is None:
                        raise no_value()
                    counter = self._version_counter
                    if counter is None:
                        counter = self._version_counter = VersionCounter()
                    self._chain = ViewChain.of(array)
                    storage = self._storage = Storage(array, self._owned, counter)
                    self._array = None
                    return storage
        if self._version_counter is None:
            self._bump(0)
        return storage

    def _write(self, new: Any) -> None:
        """Replace the value by an array of the same shape and dtype, made by one of our kernels, for all aliases."""
        storage, chain = self._storage, self._chain
        if storage is None or chain.is_root:
            new = placed_like(new, self._read())
            self._rewrite(lambda donate, where=None: lambda root: new)
        else:
            self._rewrite(chain.writer, new, *chain.starts)

    def _rewrite(self, program_of: Any, *operands: Any) -> None:
        """Run `program_of(donate)(root, *operands)`: its result is the new value or root.  The version rises.

        All of it happens, or nothing does, wherever an interrupt arrives: see views/storage.py.
        """
        counter = self._version_counter
        if counter is None:
            self._bump(0)
            counter = self._version_counter
        tracked = counter if counter.__class__ is VersionCounter else None
        owner = self if self._view is None else self._view.base
        with writing:
            storage = self._storage
            # Through the dictionary: while another thread traces a function, setting an attribute is a call.
            attributes = self.__dict__
            out: list[Any] = []
            if storage is None:
                box = [attributes["_array"]]
                attributes["_array"] = None
            else:
                box = [storage._array]
                storage._array = None
            try:
                write_root(out, box, storage or self, program_of, operands, owner)
            except BaseException:
                if storage is None and box[0] is None and len(box) > 1:
                    attributes["_chain"] = ViewChain.of(box[1])  # the shape of the lost value
                raise
            finally:  # no call in this block
                if not out:
                    if storage is None:
                        attributes["_array"] = box[0]
                    else:
                        storage._array = box[0]
                else:
                    if storage is None:
                        attributes["_array"], attributes["_owned"] = out[0], True
                    else:
                        storage._array, storage._owned = out[0], True
                        storage.generation += 1
                    if tracked is not None:
                        tracked.value += 1
                    del out[:]  # a traceback may refer to it
        if tracked is None:
            self._bump()

    def _bump(self, by: int = 1) -> None:
        with writing:
            counter = self._version_counter
            if counter is None:
                counter = self._version_counter = VersionCounter()
            try:
                counter.value += by
            except InferenceTensorError:
                counter.count(by)  # pyright: ignore[reportAttributeAccessIssue]

    def _alias(self) -> "Tensor":
        """Return a tensor with the same storage, chain and version counter, and no autograd metadata."""
        alias = blank(Tensor)
        alias._storage = self._share()
        alias._chain = chain = self._chain
        alias._version_counter = self._version_counter
        if chain.is_root:
            pass  # the root is all there is
        elif self._cache is not None:
            alias._cache, alias._cache_generation = self._cache, self._cache_generation
        elif self._traced is not None:
            alias._traced = self._traced
        if self._inference:
            alias._inference, alias._version_counter = True, Detached()
        return alias

    def _blank_view(self, chain: ViewChain, relative: ViewChain, name: str) -> "Tensor":
        """Return the tensor that `make_view` fills in; subclasses override it."""
        return blank(Tensor)

    @property
    def shape(self) -> Size:
        array = self._array
        return unchecked(array.shape if array is not None else self._like().shape)

    @property
    def dtype(self) -> dtype:
        array = self._array
        return OBJECTS[array.dtype if array is not None else self._like().dtype]

    @property
    def __numpy_dtype__(self) -> np.dtype:
        return self._dtype  # np.result_type(x), which jnp.zeros_like(x) calls, takes NumPy's only

    @property
    def _dtype(self) -> np.dtype:
        array = self._array
        return array.dtype if array is not None else self._like().dtype

    def _like(self) -> Any:
        """Return an object with the value's shape and dtype: the chain, or the array that another thread adds to."""
        chain = self._chain
        return self._read() if chain is None else chain

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def device(self) -> device:
        return device_of(self._held())

    def _placed(self) -> Any:
        """Return the sharding of the value, None for a tracer: it decides if two tensors are on the same device."""
        array = self._held()
        return None if isinstance(array, Tracer) else array.sharding

    @property
    def sharding(self) -> jax.sharding.Sharding:
        """The `jax.sharding.Sharding` of the value."""
        return self._read().sharding

    @property
    def storage_id(self) -> int:
        """The number of the storage; tensors that share it have the same (PyTorch: `untyped_storage().data_ptr()`)."""
        return self._share().id

    @property
    def _version(self) -> int:
        counter = self._version_counter
        try:
            return 0 if counter is None else counter.value
        except InferenceTensorError:
            return counter.told()  # pyright: ignore[reportAttributeAccessIssue, reportOptionalMemberAccess]

    @overload
    def stride(self, dim: None = None) -> tuple[int, ...]: ...
    @overload
    def stride(self, dim: int) -> int: ...
    def stride(self, dim: int | None = None) -> Any:
        """Return strides as if each root were laid out row-major, derived from the view chain."""
        strides = self._geometry().strides
        return tuple(strides) if dim is None else strides[own_dim(dim, self.ndim)]

    def storage_offset(self) -> int:
        """Return the offset of the first element in the storage, derived from the view chain."""
        return self._geometry().offset

    def is_contiguous(self, memory_format: str | None = None) -> bool:
        """Return True if the elements are in row-major order without gaps, by the view chain.

        memory_format: `xgrad.channels_last` and `channels_last_3d` ask for the order of channels that are last, in
        which xgrad lays out nothing: a permutation may show it.
        """
        dims = _CHANNELS_LAST.get(memory_format)
        if dims is None:
            return self._geometry().is_contiguous()
        return len(dims) == self.ndim and self._geometry().is_in_order(dims)

    def _geometry(self) -> Any:
        chain = self._chain
        if chain is None:
            chain = ViewChain.root(self._array.shape, self._array.dtype)
        return chain.geometry

    # -- autograd metadata ----------------------------------------------------------------------------------------

    @property
    def requires_grad(self) -> bool:
        meta = self._view
        return self._requires_grad or (meta is not None and meta.base._requires_grad)

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        if value is not True and value is not False:
            raise RuntimeError(f"requires_grad must be a bool, but got {type(value).__name__}")
        if not self.is_leaf:
            raise RuntimeError(_NOT_A_LEAF + _INSTEAD_OF_FALSE * (not value))
        if value and self._dtype not in dtypes.INEXACT:
            raise RuntimeError(
                f"only Tensors of floating point and complex dtype can require gradients, not {self.dtype.name}"
            )
        self.requires_grad_(value)

    @requires_grad.deleter
    def requires_grad(self) -> None:
        raise RuntimeError("requires_grad must be a bool, and cannot be deleted")

    def requires_grad_(self, requires_grad: bool = True) -> "Tensor":
        """Mark a leaf as requiring grad, in place, and return it.

        Raises `RuntimeError` for a non-leaf that is to stop requiring grad and for a dtype without gradients.
        """
        if requires_grad is not True and requires_grad is not False:
            raise TypeError(f"requires_grad must be a bool, but got {type(requires_grad).__name__}")
        if requires_grad and self._dtype.kind not in dtypes.INEXACT_KINDS:
            raise RuntimeError(
                "only Tensors of floating point dtype can require gradients, and Tensors of complex dtype, not of "
                f"{self.dtype.name}"
            )
        if requires_grad and self._inference and not state.inference:
            raise RuntimeError("Setting requires_grad=True on inference tensor outside InferenceMode is not allowed.")
        leaf = self._grad_fn is None if self._view is None else self.is_leaf
        if leaf:
            self._requires_grad = requires_grad
        elif not requires_grad:
            raise RuntimeError(_NOT_A_LEAF + _INSTEAD_OF_FALSE)
        return self

    @property
    def is_leaf(self) -> bool:
        return self.grad_fn is None

    @property
    def output_nr(self) -> int:
        return self._output_nr

    @property
    def grad(self) -> "Tensor | None":
        """The accumulated gradient of a leaf (or of a tensor with `retain_grad`), or None."""
        grad = self._grad
        if grad is None and self._requires_grad and not self._retains_grad and self._grad_fn is not None:
            warnings.warn(
                "The .grad attribute of a Tensor that is not a leaf Tensor is being accessed. Its .grad attribute "
                "won't be populated during autograd.backward(). Use .retain_grad() on the non-leaf Tensor if you want "
                "its gradient, or access the leaf Tensor instead.",
                stacklevel=2,
            )
        return grad

    @grad.setter
    def grad(self, value: "Tensor | None") -> None:
        if value is not None:
            if not isinstance(value, Tensor):
                raise TypeError(
                    f"assigned grad expected to be a Tensor or None but got grad of type {type(value).__name__}"
                )
            if value is self:
                raise RuntimeError("can't assign Variable as its own grad")
            self._check_grad(value)
        self._grad = value

    def _dtype_of_grad(self) -> np.dtype | None:
        """Return the dtype of a leaf's gradient, by `grad_dtype`."""
        return self._dtype if self._grad_dtype is SAME else self._grad_dtype

    def _check_grad(self, value: "Tensor") -> None:
        if self._sparse and not value._sparse:
            raise RuntimeError("attempting to assign a gradient to a tensor that has data of a different type: dense")
        here, there = self._placed(), value._placed()
        if here is not there and here and there and here.device_set != there.device_set:
            raise RuntimeError(
                f"attempting to assign a gradient located on device {value.device} to a tensor located on device "
                f"{self.device}. Please ensure that the gradient and the tensor are on the same device"
            )
        if there and len(there.device_set) > 1 and here != there and not value._sparse:
            value._share()  # accumulation then writes to it, and its sharding stays
        dtype = self._dtype_of_grad()
        if dtype is not None and value._dtype != dtype:
            raise RuntimeError(
                f"attempting to assign a gradient with dtype '{value.dtype.name}' to a tensor with grad_dtype "
                f"'{dtype.name}'. The gradient must have the tensor's grad_dtype, which can be set (None: any dtype)."
            )
        if value.shape != self.shape:
            raise RuntimeError(
                f"attempting to assign a gradient of size '{list(value.shape)}' to a tensor of size "
                f"'{list(self.shape)}'. Please ensure that the gradient and the tensor are the same size"
            )

    @grad.deleter
    def grad(self) -> None:
        self._grad = None

    def _tangent_at(self, level: int) -> "Tensor | None":
        """Return the tangent at a forward level, None if there is none; a view takes over its base's later tangent."""
        tangents = self._tangents
        if tangents is not None:
            tangent = tangents.get(level)
            if tangent is not None:
                return tangent
        meta = self._view
        if meta is None or level < 0 or meta.__class__ is PrimalMeta or meta.base._tangent_at(level) is None:
            return None
        return self._tangent_of_view(level)

    def _set_tangent(self, level: int, tangent: "Tensor") -> None:
        tangents = self._tangents = Tangents(self._tangents or ())
        tangents[level] = tangent
        if level == state.dual_level:
            state.dual_tangents.add(tangents)

    def _moves(self) -> bool:
        """Return True if there is a tangent at one of the levels at which operations propagate tangents now."""
        return any(self._tangent_at(level) is not None for level in forward_levels())

    def _is_view(self) -> bool:
        return self._view is not None

    @property
    def _base(self) -> "Tensor | None":
        """The root that this is a differentiable view of, or None."""
        return None if self._view is None else self._view.base

    @property
    def retains_grad(self) -> bool:
        return self._retains_grad

    def is_inference(self) -> bool:
        """Return True if the tensor was made in inference mode."""
        return self._inference

    def detach(self) -> "Tensor":
        """Return an alias of the value without history or tangent; it shares storage and version counter."""
        return self._alias()

    def detach_(self) -> "Tensor":
        """Take this tensor out of the graph, in place.  Raises `RuntimeError` for a view."""
        if self._view is not None:
            raise InplaceViewError(
                "Can't detach views in-place. Use detach() instead: a view cannot leave the graph that its base is in."
            )
        if self._grad_fn is not None and (hooks := self._hooks_of_node()) is not None:
            self._hooks = hooks  # hooks are the tensor's, in PyTorch too
        self._grad_fn, self._output_nr, self._requires_grad, self._tangents = None, 0, False, None
        return self

    @property
    def data(self) -> "Tensor":
        """An alias of the value with a version counter of its own: writes to it are invisible to autograd's checks."""
        alias = self._alias()
        if not alias._inference:
            alias._version_counter = VersionCounter()
        return alias

    @data.setter
    def data(self, value: "Tensor") -> None:
        if not isinstance(value, Tensor):
            raise TypeError(f"Variable data has to be a tensor, but got {type(value).__name__}")
        if value.layout != self.layout:
            raise RuntimeError(
                "Attempted to call `variable.set_data(tensor)`, but `variable` and `tensor` have incompatible tensor "
                f"type: the layout {self.layout} and {value.layout}. Call to_dense() or to_sparse() on the one."
            )
        if self._requires_grad and value._dtype not in dtypes.INEXACT:
            raise RuntimeError(
                "data set to a tensor that requires gradients must be floating point or complex dtype, not "
                f"{value.dtype.name}"
            )
        value._share()
        lost = self._array is None and (self._storage is None or self._storage._array is None)
        if lost or value.shape != self.shape or value._dtype != self._dtype or value.device != self.device:
            self._accumulator = None  # its gradients were to be of the old kind
        self._array = None
        self._storage, self._chain = value._storage, value._chain
        self._cache, self._cache_generation = None, -1
        self._moved = None
        if self._inference is not value._inference:
            self._inference = value._inference

    @data.deleter
    def data(self) -> None:
        raise RuntimeError("Deleting tensor data is not allowed. Delete tensor instead!")


def mark(tensor: Tensor) -> None:
    """Make a tensor that was just made an inference tensor."""
    tensor._inference, tensor._version_counter = True, UNTRACKED


def from_array(array: Any) -> Tensor:
    """Return a tensor of an array that one of our own kernels made."""
    t = blank(Tensor)
    t._array = array
    if state.inference:
        mark(t)
    return t


def from_foreign(array: Any, requires_grad: bool = False) -> Tensor:
    """Return a tensor of a foreign array, of JAX or NumPy, which is never donated.

    A NumPy array of 64 bits is narrowed while JAX has none (`dtypes.narrowed`); `OverflowError` if integers don't fit.
    """
    if isinstance(array, np.ndarray):
        array = jax.numpy.asarray(dtypes.narrowed(array))
    elif getattr(array, "weak_type", False):
        array = jax.numpy.asarray(array, dtype=array.dtype)
    array = left_to_xla(array)
    t = blank(Tensor)
    t._array, t._owned = array, False
    if state.inference:
        mark(t)
    if requires_grad:
        t.requires_grad_()
    return t


def make_view(self: Tensor, chain: ViewChain, relative: ViewChain, name: str, creation: CreationMeta) -> Tensor:
    """Return a differentiable view of `self`: `chain` places it in the storage, `relative` in `self`.  No grad_fn yet.

    A view of an inference tensor is an inference tensor, and has no base for autograd.
    """
    out = blank(Tensor) if self.__class__ is Tensor else self._blank_view(chain, relative, name)
    counter = self._version_counter
    assert counter is not None  # `_share` made it
    out._storage, out._chain, out._version_counter = self._storage, chain, counter
    if self._inference:
        out._inference = True
        return out
    parent = self._view
    if parent is None:
        base = self
        moved = self._moved
        seen = relative if moved is None else moved.concat(relative)
    else:
        base = parent.base
        seen = chain if self._chain is parent.chain else parent.chain.concat(relative)
    if not state.grad_enabled:
        creation = creation_meta_now(creation)
    tracking = state.tracking or ("geometry" if STRIDED and supports_as_strided(self._held()) else "replay")
    kind = ViewMeta if parent is None else parent.__class__
    out._view = kind(base, seen, counter.value, propagate_creation_meta(parent, creation), name, tracking)
    return out
