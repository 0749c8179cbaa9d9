"""Files of `torch.save` (a zip of a pickle and storages), read without running any code of the file's.

Invariants: the unpickler knows the names below and no others, each of which makes plain data of plain data; the objects
for these names are made for one file, and can't be changed; every byte count is checked against the file.  Legacy
files (before PyTorch 1.6), TorchScript archives and pickled classes are refused.
(PyTorch: torch/serialization.py, torch/_weights_only_unpickler.py, torch/_utils.py.)
"""

import io
import pickle
import zipfile
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


class _Kept(NamedTuple):
    """A storage that the pickle refers to."""

    key: str
    dtype: np.dtype | None
    location: str


class _Number(NamedTuple):
    """A reference to a tensor, by its number."""

    number: int


class _Reader(pickle.Unpickler):
    def __init__(self, archive: "_Archive") -> None:
        super().__init__(io.BytesIO(archive.read("data.pkl")))
        self._archive = archive
        self._known: dict[tuple[str, str], Any] = {
            ("collections", "Counter"): _Allowed(Counter),  # a schedule's milestones
            ("collections", "OrderedDict"): _Allowed(OrderedDict),
            ("torch", "Size"): _Allowed(lambda sizes: Size(sizes)),
            ("torch", "device"): _Allowed(_device),
            ("torch._utils", "_rebuild_tensor_v2"): _Allowed(archive.dense),
            ("torch._utils", "_rebuild_tensor_v3"): _Allowed(archive.dense_of_dtype),
            ("torch._utils", "_rebuild_parameter"): _Allowed(archive.parameter),
            ("torch._utils", "_rebuild_sparse_tensor"): _Allowed(archive.sparse),
            ("torch.serialization", "_get_layout"): _Allowed(str),
            ("_codecs", "encode"): _Allowed(_encoded),
        }
        for module in ("__builtin__", "builtins"):
            for kind in (set, frozenset, complex, bytearray):
                self._known[module, kind.__name__] = _Allowed(kind)
        for name, dtype in _STORAGES.items():
            self._known["torch", name] = self._known["torch.storage", name] = (name, dtype)
        for name in dtypes.__all__:
            if isinstance(found := getattr(dtypes, name), np.dtype):
                self._known["torch", name] = of(found)

    def find_class(self, module: str, name: str) -> Any:
        try:
            return self._known[module, name]
        except KeyError:
            raise pickle.UnpicklingError(
                f"Weights only load failed: {self._archive.file} holds a {module}.{name}, and only tensors and plain "
                "data are read. In PyTorch, save the state_dict() of the module or optimizer, "
                "or the tensors and numbers of the object."
            ) from None

    def persistent_load(self, pid: Any) -> _Kept:
        kind, (_, dtype), key, location, _ = pid
        if kind != "storage" or not isinstance(key, str) or not isinstance(location, str):
            raise pickle.UnpicklingError(f"expected a storage, but got {pid!r:.200}")
        return _Kept(key, dtype, location)


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


class _Archive:
    """The zip, and the tensors that its pickle refers to."""

    def __init__(self, data: memoryview, file: str) -> None:
        self.file = file
        self._zip = zipfile.ZipFile(io.BytesIO(data))
        self._size = len(data)
        names = [name for name in self._zip.namelist() if name.endswith("/data.pkl") or name == "data.pkl"]
        if len(names) != 1:
            raise FileError(f"{file} is a zip, but none of torch.save: it has {len(names)} files called data.pkl")
        self._folder = names[0].removesuffix("data.pkl")
        if any(name.startswith(self._folder + "code/") for name in self._zip.namelist()):
            raise pickle.UnpicklingError(
                f"{file} is a TorchScript archive, which holds a program: save its state_dict()"
            )
        if self._has("byteorder") and self.read("byteorder") != b"little":
            raise FileError(f"{file} was written on a machine of another byte order: save it again on this one")
        self.tensors: list[Any] = []
        self.storages: list[SavedArray] = []
        self._places: dict[tuple[str, np.dtype], int] = {}

    def _has(self, name: str) -> bool:
        return self._folder + name in self._zip.NameToInfo

    def read(self, name: str) -> bytes:
        """Return one file of the zip; its checksum is checked."""
        info = self._zip.getinfo(self._folder + name)
        if info.compress_type != zipfile.ZIP_STORED or info.file_size > self._size:
            raise FileError(f"{self.file}: '{name}' is compressed, or larger than the file, as torch.save leaves none")
        return self._zip.read(info)

    def _storage(self, kept: _Kept, dtype: np.dtype) -> int:
        place = self._places.get((kept.key, dtype))
        if place is None:
            data = self.read(f"data/{kept.key}")
            if len(data) % dtype.itemsize:
                raise FileError(f"{self.file}: storage {kept.key} of {len(data)} bytes can't be of dtype {dtype.name}")
            if dtype == dtypes.bool and np.frombuffer(data, np.uint8).max(initial=0) > 1:
                raise FileError(f"{self.file}: storage {kept.key} has a byte that is neither False nor True")
            place = self._places[kept.key, dtype] = len(self.storages)
            where = None if kept.location == "cpu" else kept.location
            self.storages.append(SavedArray(kept.key, np.frombuffer(data, np.uint8).view(dtype), where))
        return place

    def _add(self, tensor: Any) -> _Number:
        self.tensors.append(tensor)
        return _Number(len(self.tensors) - 1)

    def dense(
        self,
        storage: _Kept,
        offset: int,
        sizes: Any,
        strides: Any,
        requires_grad: bool,
        hooks: Any,
        metadata: Any = None,
    ) -> _Number:
        dtype = storage.dtype
        if dtype is None:
            raise pickle.UnpicklingError("an untyped storage for a tensor without a dtype")
        return self.dense_of_dtype(storage, offset, sizes, strides, requires_grad, hooks, dtype, metadata)

    def dense_of_dtype(
        self, storage: _Kept, offset: int, sizes: Any, strides: Any, requires_grad: bool, hooks: Any, dtype: Any,
        metadata: Any = None,
    ) -> _Number:  # fmt: skip
        bits = metadata or {}
        place = self._storage(storage, np.dtype(dtype))
        return self._add(
            Dense(
                place,
                tuple(sizes),
                tuple(strides),
                offset,
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


def read_torch_file(data: memoryview, file: str) -> tuple[Callable, list, list[SavedArray]]:
    """Return the function that builds the value of tensors, the tensors, and their storages."""
    try:
        archive = _Archive(data, file)
        value = _Reader(archive).load()
        _built(value, None, {})
    except (FileError, pickle.UnpicklingError) as error:
        if file in str(error):
            raise
        raise type(error)(f"{file}: {error}") from None
    except Exception as error:  # a damaged pickle fails in any way that its opcodes can
        raise FileError(
            f"{file} is damaged, or cut off: it begins as a file of torch.save, but reading it fails with "
            f"{type(error).__name__}: {error}"
        ) from None
    return lambda made: _built(value, made, {}), archive.tensors, archive.storages


def _built(node: Any, made: list | None, known: dict[int, Any]) -> Any:
    """Return the value with tensors in the place of their numbers; `known`: the results so far, by container."""
    if isinstance(node, _Number):
        return node if made is None else made[node.number]
    if isinstance(node, (_Allowed, _Kept)) or (isinstance(node, tuple) and node in _STORAGES.items()):
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
        return tuple(_built(item, made, known) for item in node)
    found: Any = type(node)()
    known[id(node)] = found
    if isinstance(node, list):
        found.extend(_built(item, made, known) for item in node)
        return found
    for key, value in node.items():  # one by one: a Counter's update() would count the pairs
        found[_built(key, None, known)] = _built(value, made, known)
    if isinstance(node, OrderedDict) and vars(node):
        vars(found).update(_built(vars(node), made, known))
    return found
