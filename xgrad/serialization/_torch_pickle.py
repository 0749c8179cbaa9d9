"""The pickle in a file of `torch.save`, read without running any code of the file's.

Invariants: the unpickler knows the names below and no others, each of which makes plain data of plain data; the objects
for these names are made for one file, and can't be changed.  Values of storages are asked for when the pickle has been
read, for in legacy files they stand behind it.
(PyTorch: torch/serialization.py, torch/_weights_only_unpickler.py, torch/_utils.py.)
"""

import pickle
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from .. import dtypes
from ..devices import device
from ..dtype_object import of
from ..interop._safetensors_file import FileError
from ..size import Size
from ._restore import Dense, SavedArray, Sparse

_STORAGES = {
    "FloatStorage": dtypes.float32, "DoubleStorage": dtypes.float64, "HalfStorage": dtypes.float16,
    "BFloat16Storage": dtypes.bfloat16, "LongStorage": dtypes.int64, "IntStorage": dtypes.int32,
    "ShortStorage": dtypes.int16, "CharStorage": dtypes.int8, "ByteStorage": dtypes.uint8, "BoolStorage": dtypes.bool,
    "ComplexFloatStorage": dtypes.complex64, "ComplexDoubleStorage": dtypes.complex128, "UntypedStorage": None,
}  # fmt: skip


class _Allowed:
    """A name of the file's that may be called; it can't be changed, and is of no use beyond this file."""

    __slots__ = ("_call",)

    def __init__(self, call: Callable) -> None:
        object.__setattr__(self, "_call", call)

    def __call__(self, *args: Any) -> Any:
        return self._call(*args)

    def __setattr__(self, name: str, value: Any) -> None:
        raise pickle.UnpicklingError("a file may not change what reads it")

    def __reduce__(self) -> Any:
        raise TypeError("belongs to one file")


class Kept(NamedTuple):
    """A storage that the pickle refers to."""

    key: str
    dtype: np.dtype | None
    location: str
    numel: int
    offset: int = 0  # of a legacy file: it is a part of another one


class Read(NamedTuple):
    """The contents of a file: the function that builds the value of tensors, the tensors, and their storages."""

    build: Callable[[list], Any]
    tensors: list[Any]
    storages: list[SavedArray]


class _Number(NamedTuple):
    """A reference to a tensor, by its number."""

    number: int


class Reader(pickle.Unpickler):
    """Unpickles one value of a file, and collects its tensors."""

    def __init__(self, stream: Any, tensors: "Tensors") -> None:
        super().__init__(stream, encoding="utf-8")  # of Python 2's text
        self._file, self._kept = tensors.file, tensors.kept
        self._known: dict[tuple[str, str], Any] = {
            ("collections", "Counter"): _Allowed(Counter),  # a schedule's milestones
            ("collections", "OrderedDict"): _Allowed(OrderedDict),
            ("torch", "Size"): _Allowed(lambda sizes: Size(sizes)),
            ("torch", "device"): _Allowed(_device),
            ("torch._utils", "_rebuild_tensor"): _Allowed(tensors.dense),
            ("torch._utils", "_rebuild_tensor_v2"): _Allowed(tensors.dense),
            ("torch._utils", "_rebuild_tensor_v3"): _Allowed(tensors.dense_of_dtype),
            ("torch._utils", "_rebuild_parameter"): _Allowed(tensors.parameter),
            ("torch._utils", "_rebuild_sparse_tensor"): _Allowed(tensors.sparse),
            ("torch.serialization", "_get_layout"): _Allowed(str),
            ("_codecs", "encode"): _Allowed(_encoded),
        }
        for module in ("__builtin__", "builtins"):
            for kind in (set, frozenset, complex, bytearray):
                self._known[module, kind.__name__] = _Allowed(kind)
        for name, dtype in _STORAGES.items():
            for module in ("torch", "torch.storage", "torch.cuda"):
                self._known[module, name] = (name, dtype)
        for name in dtypes.__all__:
            if isinstance(found := getattr(dtypes, name), np.dtype):
                self._known["torch", name] = of(found)

    def find_class(self, module: str, name: str) -> Any:
        try:
            return self._known[module, name]
        except KeyError:
            raise pickle.UnpicklingError(
                f"Weights only load failed: {self._file} holds a {module}.{name}, and only tensors and plain "
                "data are read. In PyTorch, save the state_dict() of the module or optimizer, "
                "or the tensors and numbers of the object."
            ) from None

    def persistent_load(self, pid: Any) -> Kept:
        kind, (_, dtype), key, location, numel, *view = pid
        texts = kind == "storage" and isinstance(key, str) and isinstance(location, str)
        if not texts or type(numel) is not int or numel < 0:
            raise pickle.UnpicklingError(f"expected a storage, but got {pid!r:.200}")
        whole = self._kept.setdefault(key, Kept(key, dtype, location, numel))
        if (whole.dtype, whole.numel) != (dtype, numel) and view:
            raise pickle.UnpicklingError(f"storage {key:.50} has two kinds or lengths")
        if not view or view == [None]:
            return Kept(key, dtype, location, numel)
        ((_, offset, size),) = view
        if type(offset) is not int or type(size) is not int or not 0 <= offset <= offset + size <= numel:
            raise pickle.UnpicklingError(f"expected a part of a storage, but got {pid!r:.200}")
        return Kept(key, dtype, location, numel, offset)


def _device(kind: str, index: int | None = None) -> Any:
    """Return a device; JAX's default one where this machine has none like it."""
    try:
        return device(kind if index is None else f"{kind}:{index}")
    except RuntimeError:
        return device("xla")


def _encoded(text: str, encoding: str) -> bytes:
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"bytes are written as latin1, not {encoding!r:.50}")
    return text.encode("latin1")


class Tensors:
    """The tensors that a file's pickle refers to, and the storages that it needs for them."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.tensors: list[Any] = []
        self.kept: dict[str, Kept] = {}  # the storages by their keys, as they were named first
        self._places: dict[tuple[str, np.dtype], tuple[int, str]] = {}

    def complete(self, value: Any, data_of: Callable[[str], Any]) -> Read:
        """Return what the file holds; `data_of(key)`: the bytes of a storage."""
        built(value, None, {})
        return Read(lambda made: built(value, made, {}), self.tensors, self._storages(data_of))

    def _storages(self, data_of: Callable[[str], Any]) -> list[SavedArray]:
        found = []
        for (key, dtype), (_, location) in self._places.items():
            data = data_of(key)
            if len(data) % dtype.itemsize:
                raise FileError(f"{self.file}: storage {key} of {len(data)} bytes can't be of dtype {dtype.name}")
            if dtype == dtypes.bool and np.frombuffer(data, np.uint8).max(initial=0) > 1:
                raise FileError(f"{self.file}: storage {key} has a byte that is neither False nor True")
            where = None if location == "cpu" else location
            found.append(SavedArray(key, np.frombuffer(data, np.uint8).view(dtype), where))
        return found

    def _storage(self, kept: Kept, dtype: np.dtype) -> int:
        place, _ = self._places.setdefault((kept.key, dtype), (len(self._places), kept.location))
        return place

    def _add(self, tensor: Any) -> _Number:
        self.tensors.append(tensor)
        return _Number(len(self.tensors) - 1)

    def dense(
        self,
        storage: Kept,
        offset: int,
        sizes: Any,
        strides: Any,
        requires_grad: bool = False,
        hooks: Any = None,
        metadata: Any = None,
    ) -> _Number:
        dtype = storage.dtype
        if dtype is None:
            raise pickle.UnpicklingError("an untyped storage for a tensor without a dtype")
        return self.dense_of_dtype(storage, offset, sizes, strides, requires_grad, hooks, dtype, metadata)

    def dense_of_dtype(
        self, storage: Kept, offset: int, sizes: Any, strides: Any, requires_grad: bool, hooks: Any, dtype: Any,
        metadata: Any = None,
    ) -> _Number:  # fmt: skip
        bits = metadata or {}
        place = self._storage(storage, np.dtype(dtype))
        return self._add(
            Dense(
                place,
                tuple(sizes),
                tuple(strides),
                storage.offset + offset if type(offset) is int else offset,
                requires_grad is True,
                False,
                bits.get("conj") is True,
                bits.get("neg") is True,
            )
        )

    def parameter(self, data: _Number, requires_grad: bool, hooks: Any) -> _Number:
        return self._add(self.tensors[data.number]._replace(requires_grad=requires_grad is True, parameter=True))

    def sparse(self, layout: str, parts: tuple) -> _Number:
        if layout != "torch.sparse_coo":
            raise pickle.UnpicklingError(f"a tensor of layout {layout!r:.50}: save its to_dense() or to_sparse_coo()")
        indices, values, sizes, *coalesced = parts
        return self._add(Sparse(indices.number, values.number, tuple(sizes), coalesced == [True]))


def built(node: Any, made: list | None, known: dict[int, Any]) -> Any:
    """Return the value with tensors in the place of their numbers; `known`: the results so far, by container."""
    if isinstance(node, _Number):
        return node if made is None else made[node.number]
    if isinstance(node, (_Allowed, Kept)) or (isinstance(node, tuple) and node in _STORAGES.items()):
        raise FileError("something that is no value stands where one is expected")
    if not isinstance(node, (dict, list, tuple, set, frozenset)) or isinstance(node, Size):
        return node
    if id(node) in known:
        return known[id(node)]
    if isinstance(node, (set, frozenset)):
        if any(isinstance(item, _Number) for item in node):
            raise FileError("a set of tensors")
        return node
    if isinstance(node, tuple):
        return tuple(built(item, made, known) for item in node)
    found: Any = type(node)()
    known[id(node)] = found
    if isinstance(node, list):
        found.extend(built(item, made, known) for item in node)
        return found
    for key, value in node.items():  # one by one: a Counter's update() would count the pairs
        found[built(key, None, known)] = built(value, made, known)
    if isinstance(node, OrderedDict) and vars(node):
        vars(found).update(built(vars(node), made, known))
    return found
