"""Tensor's methods of storage and device (untyped_storage, data_ptr, set_, is_cuda, ...), with made-up addresses.

The addresses tell which tensors share memory.  Invariants: a base and its views have equal storages, tensors that share
no storage unequal ones; ranges of numbers that belong to different living storages never overlap; within a storage
elements have the places that PyTorch's row-major layout gives them.  So programs that compare `data_ptr()`s, or add
sizes up by storage, get the same answers as in PyTorch.  The numbers are not XLA's addresses: one can't be read from,
and a storage can't be written to.

PyTorch: torch/storage.py.
"""

import threading
import warnings
import weakref
from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from ..base import dtype_object, dtypes
from ..base.devices import device, of_trace
from ..config import state
from ..dispatch.declare import composite
from ..engine.error_node import NotImplemented, give_history
from ..tensor import Tensor, blank
from ..views.chain import ViewChain
from ..views.geometry import contiguous_strides
from ..views.meta import check_inplace
from ..views.storage import Storage, Tracer, VersionCounter
from . import conversion

_ALIGNED = 64  # as the addresses of XLA's own buffers are, on the CPU
_lock = threading.RLock()  # a signal handler or a finalizer may ask in the middle of it
_next = 1 << 32  # large, so that it is not mistaken for a size or an index
_places: weakref.WeakKeyDictionary[Storage, tuple[int, int]] = weakref.WeakKeyDictionary()  # (first number, bytes)
# id of an array → itself, its storage that was asked last, and that one's place.
_seen: dict[int, tuple[weakref.ref[Any], weakref.ref[Storage], tuple[int, int]]] = {}


def _bytes_of(array: Any) -> int:
    return prod(array.shape) * array.dtype.itemsize


def _place_of(storage: Storage) -> int:
    """The number of a storage's first byte, 0 if it has none; a new one after the storage has grown, as in PyTorch.

    A storage whose array another one had, which is gone, takes over its number: the leaf's `.grad` is in the memory of
    the gradient that a hook saw.
    """
    global _next
    array = storage.array
    size, key = _bytes_of(array), id(array)
    if not size:
        return 0
    with _lock:
        place, room = _places.get(storage, (0, 0))
        known, owner, left = _seen.get(key) or _UNSEEN
        if room < size and known() is array and owner() is None:
            place, room = left
        if room < size:
            place, room = _next, -(-size // _ALIGNED) * _ALIGNED
            _next += room + _ALIGNED
        _places[storage] = place, room
        if known() is not array or owner() is None:
            _seen[key] = weakref.ref(array, lambda gone: _forget(key, gone)), weakref.ref(storage), (place, room)
    return place


_UNSEEN: Any = (lambda: None, lambda: None, (0, 0))


def _forget(key: int, gone: Any) -> None:
    if (_seen.get(key) or _UNSEEN)[0] is gone:  # no lock: a collection may run within it
        _seen.pop(key, None)


def _storage_of(input: Tensor, what: str) -> Storage:
    if input.layout != "strided" or input._level is not None:
        sparse = "a sparse tensor: ask its values()"
        kind = sparse if input.layout != "strided" else "an entry of a batch: ask outside of vmap"
        raise RuntimeError(f"{what}: cannot access data pointer of a Tensor that doesn't have storage: this is {kind}")
    return input._share()


def _refused(what: str, instead: str) -> Callable[..., Any]:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(
            f"xgrad.{type(self).__name__}.{what} is not supported: XLA's arrays have no memory that Python could "
            f"change. {instead}"
        )

    method.__doc__ = f"Not supported. {instead}"
    return method


_FileBytes: Any = type("_FileBytes", (np.memmap,), {"untyped": np.ndarray.view})


class UntypedStorage:
    """The memory that tensors share, by `Tensor.untyped_storage()`: a base and its views have equal ones.

    `data_ptr()` is a number that distinguishes storages, and is not an address.  Methods that would change the memory
    (`resize_`, `copy_`, `fill_`, item assignment) raise `NotImplementedError`: write to a tensor instead.

    Source: PyTorch's `torch.UntypedStorage`.

    >>> import xgrad
    >>> x = xgrad.zeros(2, 3)
    >>> x.untyped_storage()
    [xgrad.UntypedStorage(device=cpu) of size 24]
    >>> x[1].untyped_storage() == x.untyped_storage(), x.clone().untyped_storage() == x.untyped_storage()
    (True, False)
    """

    is_sparse = False
    filename: str | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError(
            "xgrad.UntypedStorage can't be made by itself: XLA makes arrays, not memory. Make a tensor, such as "
            "xgrad.zeros(n, dtype=xgrad.uint8), and ask its untyped_storage()."
        )

    _storage: Storage

    @staticmethod
    def from_file(filename: Any, shared: bool = False, nbytes: int = 0) -> np.ndarray:
        """Return the first bytes of a file as a read-only uint8 array (nbytes,), for safetensors."""
        if shared:
            raise NotImplementedError("from_file(shared=True): XLA's arrays cannot be a file's memory")
        return _FileBytes(filename, np.uint8, "r", shape=(nbytes,) if nbytes else None)

    def data_ptr(self) -> int:
        """A number that no other storage in use has; 0 if it has no bytes."""
        return _place_of(self._storage)

    _cdata = property(data_ptr)

    def nbytes(self) -> int:
        """The number of bytes."""
        return _bytes_of(self._storage.array)

    def size(self) -> int:
        """The number of bytes."""
        return self.nbytes()

    def __len__(self) -> int:
        return self.size()

    def element_size(self) -> int:
        """1: the elements are bytes."""
        return 1

    @property
    def device(self) -> device:
        array = self._storage.array
        return of_trace() if isinstance(array, Tracer) else device(array.sharding)

    @property
    def is_cuda(self) -> bool:
        return self.device.type == "cuda"

    def get_device(self) -> int:
        """The number of the device; -1 for the CPU."""
        return _number_of(self.device)

    def is_shared(self) -> bool:
        """False: no other process has this memory."""
        return False

    def is_pinned(self, device: Any = None) -> bool:
        """False: XLA itself pins memory that it transfers."""
        return False

    def resizable(self) -> bool:
        """False: use a tensor's `resize_`."""
        return False

    def untyped(self) -> "UntypedStorage":
        """The storage itself, as bytes."""
        return _wrapped(UntypedStorage, self._storage)

    def type(self) -> str:
        """The name of the storage's class."""
        return f"xgrad.{type(self).__name__}"

    def tolist(self) -> list[Any]:
        """The bytes, as a list of integers."""
        return self._values().tolist()

    def _values(self) -> np.ndarray:
        whole = blank(Tensor)
        whole._storage, whole._chain = self._storage, ViewChain.of(self._storage.array)
        return np.ascontiguousarray(conversion.numpy(whole)).reshape(-1).view(np.uint8)

    def __getitem__(self, index: int) -> Any:
        return self._values()[index].tolist()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UntypedStorage) and other._storage is self._storage

    def __hash__(self) -> int:
        return hash(self._storage)

    def __repr__(self) -> str:
        return f"[xgrad.{type(self).__name__}(device={self.device}) of size {self.size()}]"

    def __reduce__(self) -> Any:
        raise TypeError(f"cannot pickle '{type(self).__name__}' object: pickle or xgrad.save() the tensors")

    resize_: Any = _refused(
        "resize_", "Use tensor.resize_(sizes); to give memory up (resize_(0)), drop the tensors or assign "
        "x.data = xgrad.empty(0)."
    )  # fmt: skip
    copy_: Any = _refused("copy_", "Use tensor.copy_(other).")
    fill_: Any = _refused("fill_", "Use tensor.fill_(value).")
    __setitem__: Any = _refused("__setitem__", "Write to the tensor: x[index] = value.")


class TypedStorage(UntypedStorage):
    """A storage that counts elements of `dtype`, by `Tensor.storage()`: so do `size()` and `len()`.

    Source: PyTorch's `torch.TypedStorage`.
    """

    dtype: dtype_object.dtype

    def size(self) -> int:
        """The number of elements."""
        return self.nbytes() // self.dtype.itemsize

    def element_size(self) -> int:
        """The bytes of one element."""
        return self.dtype.itemsize

    def _values(self) -> np.ndarray:
        return super()._values().view(self.dtype.dtype)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TypedStorage) and other._storage is self._storage and other.dtype == self.dtype

    __hash__: Callable[..., Any] = UntypedStorage.__hash__

    def __repr__(self) -> str:
        return f"[xgrad.TypedStorage(dtype=xgrad.{self.dtype.name}, device={self.device}) of size {self.size()}]"


def _wrapped(kind: type, storage: Storage) -> Any:
    made = object.__new__(kind)
    made._storage = storage
    return made


@composite(function=False)
def untyped_storage(input: Tensor) -> UntypedStorage:
    """The storage, which a base shares with its views: to compare, to count bytes, to name; not to write to.

    Raises `RuntimeError` for a sparse tensor and for an entry of a batch (inside of vmap).

    >>> import xgrad
    >>> x = xgrad.zeros(4, dtype=xgrad.int16)
    >>> x[1:3].untyped_storage().nbytes()
    8
    """
    return _wrapped(UntypedStorage, _storage_of(input, "untyped_storage()"))


@composite(function=False)
def storage(input: Tensor) -> TypedStorage:
    """The storage in elements of the tensor's dtype.  Warns that PyTorch replaces it by `untyped_storage()`."""
    warnings.warn(
        "TypedStorage is deprecated, and will be removed from PyTorch: use tensor.untyped_storage() instead of "
        "tensor.storage().",
        stacklevel=2,
    )
    made = _wrapped(TypedStorage, _storage_of(input, "storage()"))
    made.dtype = input.dtype
    return made


@composite(function=False)
def data_ptr(input: Tensor) -> int:
    """A number for the place of the first element: no address, but equal, greater and apart as PyTorch's addresses are.

    The pointer of a view is its base's pointer plus `storage_offset()` times the size of an element; a tensor without
    elements has 0.  Raises `RuntimeError` for a sparse tensor and for an entry of a batch (inside of vmap).

    >>> import xgrad
    >>> x = xgrad.zeros(2, 3)
    >>> x[1].data_ptr() - x.data_ptr(), x.t().data_ptr() == x.data_ptr(), x.clone().data_ptr() == x.data_ptr()
    (12, True, False)
    """
    found = _storage_of(input, "data_ptr()")
    return _place_of(found) + input.storage_offset() * input.dtype.itemsize if input.shape.numel() else 0


@composite(function=False)
def is_set_to(input: Tensor, tensor: Tensor) -> bool:
    """True if two tensors show the same elements of the same storage, in the same shape and with the same strides."""
    if not isinstance(tensor, Tensor):
        raise TypeError(f"is_set_to(): argument 'tensor' (position 1) must be Tensor, not {type(tensor).__name__}")
    mine, other = _storage_of(input, "is_set_to()"), _storage_of(tensor, "is_set_to()")
    return mine is other and input.dtype == tensor.dtype and input._geometry() == tensor._geometry()


@composite("set_", function=False)
def set_(input: Tensor, source: Any = None, storage_offset: int = 0, size: Any = None, stride: Any = None) -> Tensor:
    """Make the tensor show `source`, a tensor or a storage, which both share from then on; without one, nothing.

    `storage_offset`, `size` and `stride` (by default row-major) place it in the storage, in elements of its dtype.  The
    version rises.  Raises `RuntimeError` for a source of another dtype, for a place beyond the storage, which is an
    array and does not grow, and for a leaf that requires grad; `set_` has no derivative.
    """
    tensors = (input, source) if isinstance(source, Tensor) else (input,)
    if (
        not isinstance(source, (Tensor, UntypedStorage, type(None)))
        or (size is None and (storage_offset or stride))
        or (source is None and size is not None)
    ):
        raise TypeError(
            "set_(): an invalid combination of arguments: it takes a Tensor or a storage, and for a part of it "
            f"storage_offset and size, but got {type(source).__name__}, {storage_offset}, {size}, {stride}"
        )
    storages = [_storage_of(tensor, "set_()") for tensor in tensors]
    if tensors[-1].dtype != input.dtype:
        raise RuntimeError(
            f"Could not set tensor of type {tensors[-1].dtype.name} to a tensor of type {input.dtype.name}"
        )
    if any(tensor._moves() for tensor in tensors):
        raise NotImplementedError("Trying to use forward AD with set_ that does not support it: unpack_dual() first")
    recorded = state.grad_enabled and any(tensor.requires_grad for tensor in tensors)
    if recorded and input.requires_grad:
        check_inplace(input)
    if source is None:
        shown = input.new_empty(0)
    elif size is None and isinstance(source, Tensor):
        shown = source.detach()
    else:
        storage = storages[1] if isinstance(source, Tensor) else source._storage
        shown = _part(storage, input.dtype, storage_offset, size, stride)
    if input._inference:
        input._bump(0)  # refuses, outside of inference mode
    input.data = shown
    input._bump()
    if recorded:
        give_history(NotImplemented("derivative for set_ is not implemented"), (input,))
    return input


def _part(storage: Storage, dtype: Any, offset: int, size: Any, stride: Any) -> Tensor:
    """Return the tensor at a place of a storage, or all of it, outside of the graph."""
    whole = blank(Tensor)
    whole._storage, whole._chain, whole._version_counter = storage, ViewChain.of(storage.array), VersionCounter()
    flat = whole.view(-1)
    if whole.dtype != dtype:
        flat = flat.view(dtype).detach()
    if size is not None:
        flat = flat.as_strided(tuple(size), tuple(stride or contiguous_strides(tuple(size))), offset)
    return flat.detach()


@composite(method=False)
def is_storage(obj: Any) -> bool:
    """True if an object is a storage.

    >>> import xgrad
    >>> xgrad.is_storage(xgrad.ones(1).untyped_storage()), xgrad.is_storage(xgrad.ones(1))
    (True, False)
    """
    return isinstance(obj, UntypedStorage)


# -- where a tensor is ------------------------------------------------------------------------------------------------


def _number_of(where: device) -> int:
    return -1 if where.type == "cpu" or where.index is None else where.index


@composite
def get_device(input: Tensor) -> int:
    """The number of the tensor's device among the devices of its kind, -1 for the CPU; of a sharded tensor's first
    device.

    >>> import xgrad
    >>> xgrad.ones(1, device="cpu").get_device()
    -1
    """
    return _number_of(input.device)


def is_cpu(self: Tensor) -> bool:
    """True if the tensor is in the host's memory, where the CPU computes."""
    return self.device.type == "cpu"


def is_meta(self: Tensor) -> bool:
    """True if the tensor has a shape, and no values."""
    return self.device.type == "meta"


def is_cuda(self: Tensor) -> bool:
    """True if the tensor is on a GPU."""
    return self.device.type == "cuda"


def is_xla(self: Tensor) -> bool:
    """True if the tensor is on a device that PyTorch would use through XLA, such as a TPU."""
    return self.device.type not in ("cpu", "cuda", "meta")


def is_shared(self: Tensor) -> bool:
    """False: no other process has this memory."""
    return False


def is_pinned(self: Tensor, device: Any = None) -> bool:
    """False: XLA itself pins memory that it transfers."""
    return False


def pin_memory(self: Tensor, device: Any = None) -> Tensor:
    """The tensor itself: XLA itself pins memory that it transfers."""
    return self


def type_name(obj: Any) -> str:
    """The name of an object's type; for a tensor, the name that `Tensor.type()` returns.

    >>> import xgrad
    >>> xgrad.typename(xgrad.ones(1)), xgrad.typename(3)
    ('xgrad.FloatTensor', 'int')
    """
    if isinstance(obj, Tensor):
        return f"xgrad.{dtypes.torch_name(obj._dtype)}Tensor"
    kind = obj if isinstance(obj, type) else type(obj)
    place = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
    return place + kind.__qualname__


composite("typename", method=False)(type_name)


def attach(tensor: Any) -> None:
    """Give `Tensor` the methods and properties of this file that no decorator declares."""
    tensor.is_meta = property(is_meta)
    tensor.is_cpu, tensor.is_cuda, tensor.is_xla = property(is_cpu), property(is_cuda), property(is_xla)
    tensor.is_shared, tensor.is_pinned, tensor.pin_memory = is_shared, is_pinned, pin_memory
