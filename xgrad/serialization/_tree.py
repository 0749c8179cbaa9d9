"""Turns a value into the JSON in a file of `xgrad.save`, and back; tensors' arrays are stored beside the JSON.

The file is a safetensors file whose metadata have, under "xgrad", a JSON object:

    {"version": 1,
     "value": the value, in which a tensor is ["tensor", its number],
     "tensors": [{"storage": 0, "sizes": [2], "strides": [1], "offset": 1, "requires_grad": true, "parameter": true},
                 {"indices": 0, "values": 1, "sizes": [3, 3], "coalesced": true}, ...],
     "storages": [{"name": "w", "device": "cuda:0"}, ...],
     "attributes": [[the number of a tensor, {"name": value, ...}], ...]}

In a value None, bools, strings, integers and finite floats stand for themselves; all else is a list that begins with
its kind: ["list", ...], ["tuple", ...], ["set", ...], ["frozenset", ...], ["dict", [key, value], ...], ["ordered", its
attributes, [key, value], ...], ["counter", [key, value], ...], ["size", ...], ["float", "nan"], ["complex", real,
imag], ["bytes", base64], ["bytearray", base64], ["dtype", name], ["device", name], ["device", name, false] if nobody
chose it, ["tensor", number].  The value as a whole may be ["pickle", base64], if a part of it is not plain data; the
persistent ids of this pickle are numbers of tensors.  "dtype" of a storage is there where safetensors has none
(complex128, as pairs of F64).

Invariant: reading makes nothing but what is named here, and refuses anything else by the name of the file.  A pickle is
run on demand alone, or with the classes that the user named.
"""

import base64
import io
import json
import math
import pickle
from collections import Counter, OrderedDict
from typing import Any, NamedTuple

import numpy as np

from ..base import dtypes
from ..base.devices import device, require_here
from ..base.dtype_object import dtype, of
from ..base.size import Size
from ..tensor import Tensor
from ..tensor_methods.copy_and_pickle import attributes_of, set_state
from ..views.geometry import contiguous_strides
from ..views.storage import Storage, Tracer, value_needed
from ._places import name_of
from ._restore import Dense, SavedArray, Sparse, hidden
from ._safetensors_file import DTYPES, FileError, FileTensor

_KIND_OF = {dtype: kind for kind, dtype in DTYPES.items()}


class NotPlainDataError(TypeError):
    """A part of a value is neither a tensor nor plain data."""


class Stored(NamedTuple):
    """A storage to be written."""

    name: str
    kind: str  # safetensors' name of its dtype
    shape: tuple[int, ...]
    data: memoryview


# -- writing ----------------------------------------------------------------------------------------------------------


def encoded(obj: Any) -> tuple[dict, list[Stored]]:
    """Return the JSON object of a value, and its storages.  Raises pickle's errors for what can't be pickled."""
    writer = _Writer()
    try:
        try:
            value, attributes = writer.value(obj, ()), writer.attributes()
        except NotPlainDataError:
            writer = _Writer()
            value, attributes = writer.pickled(obj), writer.attributes()
    except RecursionError:
        raise ValueError("save(): the value is nested too deeply, or contains itself") from None
    tensors, notes, storages = writer.stored()
    return {"version": 1, "value": value, "tensors": tensors, "storages": notes, "attributes": attributes}, storages


def header_of(tree: dict, storages: list[Stored]) -> bytes:
    """Return the length of the header and the header; the storages follow."""
    header: dict[str, Any] = {"__metadata__": {"format": "xgrad", "xgrad": json.dumps(tree, separators=(",", ":"))}}
    begin = 0
    for name, kind, shape, data in storages:
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [begin, begin + len(data)]}
        begin += len(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


class _Writer:
    """The tensors that a value contains, each once."""

    def __init__(self) -> None:
        self._tensors: list[tuple[Tensor, tuple]] = []
        self._numbers: dict[int, int] = {}
        self._around: set[int] = set()

    def value(self, obj: Any, path: tuple) -> Any:
        """Return a value as JSON."""
        kind = type(obj)
        if obj is None or kind in (bool, str, int):
            return obj
        if kind is float:
            return obj if math.isfinite(obj) else ["float", repr(obj)]
        if kind is complex:
            return ["complex", repr(obj.real), repr(obj.imag)]
        if kind in (bytes, bytearray):
            return [kind.__name__, base64.b64encode(obj).decode()]
        if kind is Size:
            return ["size", *obj]
        if isinstance(obj, (np.dtype, dtype)) and obj.name in dtypes.__all__:
            return ["dtype", obj.name]
        if isinstance(obj, device):
            return ["device", str(obj), *([] if obj.chosen else [False])]
        if isinstance(obj, Tensor):
            return ["tensor", self._number(obj, path)]
        if id(obj) in self._around:
            raise ValueError(f"save(): {_called(path)} contains itself")
        self._around.add(id(obj))
        try:
            return self._container(obj, kind, path)
        finally:
            self._around.discard(id(obj))

    def pickled(self, obj: Any) -> list:
        """Return any value: a pickle, beside which the tensors are kept as all others."""
        file = io.BytesIO()
        _Pickler(file, self).dump(obj)
        return ["pickle", base64.b64encode(file.getvalue()).decode()]

    def _container(self, obj: Any, kind: type, path: tuple) -> list:
        if kind in (list, tuple):
            return [kind.__name__, *(self.value(item, (*path, i)) for i, item in enumerate(obj))]
        if kind in (set, frozenset):
            return [kind.__name__, *(self._key(item, path) for item in obj)]
        if kind not in (dict, OrderedDict, Counter):
            what = f"{kind.__module__}.{kind.__qualname__}"
            raise NotPlainDataError(f"save(): {_called(path)} is a {what}, and an attribute of a tensor has plain data")
        pairs = [[self._key(key, path), self.value(value, (*path, key))] for key, value in obj.items()]
        if kind is not OrderedDict:
            return [kind.__name__.lower(), *pairs]
        _check_names(obj, vars(obj), path)
        own = [[name, self.value(value, (*path, name))] for name, value in vars(obj).items()]
        return ["ordered", ["dict", *own], *pairs]

    def _key(self, key: Any, path: tuple) -> Any:
        if isinstance(key, Tensor) or (isinstance(key, tuple) and any(isinstance(k, Tensor) for k in key)):
            raise TypeError(f"save(): {_called(path)} has a tensor as a key or in a set. Make it a value")
        return self.value(key, (*path, key))

    def _number(self, tensor: Tensor, path: tuple) -> int:
        number = self._numbers.get(id(tensor))
        if number is None:
            number = self._numbers[id(tensor)] = len(self._tensors)
            self._check(tensor, path)
            if tensor.layout == "sparse_coo":
                self._parts(tensor, path)
                number = self._numbers[id(tensor)] = len(self._tensors)
            self._tensors.append((tensor, path))
        return number

    def _check(self, tensor: Tensor, path: tuple) -> None:
        if tensor._level is not None:
            raise TypeError(f"save(): {_called(path)} is an entry of a batch: save it outside of vmap")
        if tensor.layout not in ("strided", "sparse_coo"):
            raise TypeError(f"save(): {_called(path)} has the layout {tensor.layout}: save its to_dense()")
        if type(tensor) is not Tensor and tensor.layout == "strided":
            raise TypeError(
                f"save(): {_called(path)} is of a subclass of Tensor, {type(tensor).__qualname__}, which the file does "
                "not know: save x.as_subclass(xgrad.Tensor)"
            )

    def _parts(self, tensor: Tensor, path: tuple) -> None:
        """Add the indices and values of a sparse tensor, before it."""
        for part, name in ((tensor._indices(), "indices"), (tensor._values(), "values")):
            self._numbers[id(part)] = len(self._tensors)
            self._tensors.append((part, (*path, name)))

    def attributes(self) -> list:
        """Return the users' attributes of tensors."""
        found = []
        for number, (tensor, path) in enumerate(self._tensors):  # the list grows if an attribute is a tensor
            if tensor.layout == "strided" and (own := attributes_of(tensor)):
                _check_names(tensor, own, path)
                pairs = ([name, self.value(value, (*path, name))] for name, value in own.items())
                found.append([number, ["dict", *pairs]])
        return found

    def stored(self) -> tuple[list, list, list[Stored]]:
        """Return the descriptions of the tensors, the descriptions of the storages, and the storages."""
        shared: dict[int, int] = {}
        for tensor, _ in self._tensors:
            if tensor.layout == "strided" and tensor._storage is not None:
                shared[id(tensor._storage)] = shared.get(id(tensor._storage), 0) + 1
        known: dict[int, int] = {}
        tensors, notes, storages, names = [], [], [], {"__metadata__"}
        for number, (tensor, path) in enumerate(self._tensors):
            if tensor.layout == "sparse_coo":
                tensors.append({
                    "indices": number - 2, "values": number - 1, "sizes": list(tensor.shape),
                    "coalesced": tensor.is_coalesced(), **_marks(tensor),
                })  # fmt: skip
                continue
            storage = _kept(tensor, shared)
            key = id(tensor) if storage is None else id(storage)
            if key not in known:
                known[key] = len(storages)
                name = _free(".".join(map(str, path)) or "tensor", names)
                array = tensor.detach()._read() if storage is None else storage.array
                note, entry = _entry(name, array, path)
                notes.append(note)
                storages.append(entry)
            geometry = None if storage is None else tensor._geometry()
            sizes, strides, offset = (
                (geometry.sizes, geometry.strides, geometry.offset) if geometry is not None
                else (tuple(tensor.shape), contiguous_strides(tuple(tensor.shape)), 0)
            )  # fmt: skip
            tensors.append({
                "storage": known[key], "sizes": list(sizes), "strides": list(strides), "offset": offset,
                **_marks(tensor),
            })  # fmt: skip
        return tensors, notes, storages


def _kept(tensor: Tensor, shared: dict[int, int]) -> Storage | None:
    """Return the storage that is written for a tensor; None if only the tensor's own values are written."""
    storage, chain = tensor._storage, tensor._chain
    if storage is None or chain.is_root:
        return storage
    if not chain.expressible:
        return None
    return storage if shared[id(storage)] > 1 or tensor.numel() == math.prod(storage.array.shape) else None


def _marks(tensor: Tensor) -> dict[str, bool]:
    marks = {"requires_grad": tensor.requires_grad, "parameter": tensor._is_param}
    return {name: True for name, marked in marks.items() if marked}


def _free(name: str, names: set[str]) -> str:
    """Return a name that no other storage of the file has."""
    found, n = name, 1
    while found in names:
        n += 1
        found = f"{name}#{n}"
    names.add(found)
    return found


def _entry(name: str, array: Any, path: tuple) -> tuple[dict, Stored]:
    if isinstance(array, Tracer):
        raise value_needed(
            array, f"save(): {_called(path)} is being traced (inside jax.jit, jax.vmap or jax.grad) and has no value"
        )
    require_here(array, f"saving {_called(path)}")
    host = np.asarray(array, order="C")
    note = {"name": name}
    if (location := name_of(array)) is not None:
        note["device"] = location
    shape, kind = tuple(array.shape), _KIND_OF.get(host.dtype)
    if kind is None and host.dtype == dtypes.complex128:
        note["dtype"], kind, shape = "complex128", "F64", (*shape, 2)
    if kind is None:
        raise TypeError(f"save(): {_called(path)} is of dtype {host.dtype.name}, which a file can't hold")
    return note, Stored(name, kind, shape, host.reshape(-1).view(np.uint8).data)


def _check_names(obj: Any, attributes: dict, path: tuple) -> None:
    if name := hidden(type(obj), attributes):
        raise TypeError(
            f"save(): {_called(path)} has an attribute {name!r}, which hides the {type(obj).__name__}'s own: a file "
            "can't have one. Give it another name"
        )


def _called(path: tuple) -> str:
    return "the value" if not path else "'" + ".".join(map(str, path)) + "'"


# -- reading ----------------------------------------------------------------------------------------------------------


def decoded(
    entries: dict[str, FileTensor], metadata: dict[str, str], file: str, unpickle: Any
) -> tuple[Any, list, list[SavedArray]]:
    """Return the function that builds the value of tensors, the tensors, and their storages.

    `unpickle(data, tensors)` reads a pickle.

    The value of a file without the "xgrad" metadata is a dictionary of its tensors.
    """
    if "xgrad" not in metadata:
        names = list(entries)
        storages = [SavedArray(name, entries[name].array(), None) for name in names]
        whole = [Dense(i, entries[n].shape, contiguous_strides(entries[n].shape), 0) for i, n in enumerate(names)]
        return lambda made: dict(zip(names, made)), whole, storages
    try:
        tree = json.loads(metadata["xgrad"])
        if not isinstance(tree, dict) or tree.get("version") != 1:
            raise FileError(
                f"{file} was written by a later version of xgrad.save, or is damaged: its version is "
                f"{tree.get('version') if isinstance(tree, dict) else tree!r:.50}, and 1 can be read"
            )
        storages = [_saved(note, entries, file) for note in tree["storages"]]
        tensors = [_described(note) for note in tree["tensors"]]
        value, attributes = tree["value"], tree["attributes"]
        if isinstance(value, list) and value[:1] == ["pickle"]:
            data = base64.b64decode(value[1], validate=True)
            return lambda made: _built(None, attributes, made) or unpickle(data, made), tensors, storages
        # Once without tensors: errors in the value are found before tensors are made.
        _built(value, attributes, [None] * len(tensors))
    except FileError:
        raise
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError, RuntimeError) as error:
        raise FileError(
            f"{file}: what its metadata say of the value is damaged: {type(error).__name__}: {error}"
        ) from None
    return lambda made: _built(value, attributes, made), tensors, storages


def _saved(note: dict, entries: dict[str, FileTensor], file: str) -> SavedArray:
    name, location = note["name"], note.get("device")
    if name not in entries or not isinstance(location, (str, type(None))):
        raise FileError(f"{file}: its metadata speak of a storage {name!r:.200}, which is not there")
    values = entries[name].array()
    if "dtype" in note:
        if note["dtype"] != "complex128" or values.dtype != dtypes.float64 or values.shape[-1:] != (2,):
            raise FileError(f"{file}: '{name}' is said to be of dtype {note['dtype']!r:.50}, which it can't be")
        values = values.view(np.complex128)[..., 0]
    return SavedArray(name, values, location)


def _described(note: dict) -> Any:
    grad = note.get("requires_grad", False) is True
    if "indices" in note:
        return Sparse(note["indices"], note["values"], tuple(note["sizes"]), note["coalesced"] is True, grad)
    sizes, strides = tuple(note["sizes"]), tuple(note["strides"])
    return Dense(note["storage"], sizes, strides, note["offset"], grad, note.get("parameter", False) is True)


def _built(value: Any, attributes: list, made: list) -> Any:
    for number, pairs in attributes:
        own = _value(pairs, made)
        name = hidden(Tensor, own) if isinstance(own, dict) else repr(own)
        if name is not None:
            raise ValueError(f"attributes that a tensor can't have: {name!s:.200}")
        if made[number] is not None:
            set_state(made[number], own)
    return _value(value, made)


def _value(node: Any, made: list) -> Any:
    if not isinstance(node, list):
        if isinstance(node, dict):
            raise ValueError("an object where a value is expected")
        return node
    kind, *items = node
    if kind == "tensor":
        (number,) = items
        if type(number) is not int or number < 0:
            raise ValueError(f"tensor {number!r}")
        return made[number]
    if kind in _MAPPINGS:
        own = _value(items.pop(0), made) if kind == "ordered" else {}
        found = _MAPPINGS[kind]()
        for key, value in items:  # a Counter's `update` counts
            found[_value(key, made)] = _value(value, made)
        if name := hidden(OrderedDict, own):
            raise ValueError(f"an attribute that hides OrderedDict.{name}")
        if own:
            vars(found).update(own)
        return found
    if kind in _SEQUENCES:
        return _SEQUENCES[kind](_value(item, made) for item in items)
    return _SCALARS[kind](*items)


def _dtype(name: str) -> dtype:
    if name not in dtypes.__all__:
        raise ValueError(f"dtype {name!r}")
    return of(np.dtype(getattr(dtypes, name)))


def _device(name: str, chosen: bool = True) -> device:
    """Return a device.  If it was not `chosen` by the user, an array that is made there is not committed to it."""
    found = device(name)
    return found if chosen else device._made(found.placement, False, chosen=False)


_MAPPINGS: dict[str, Any] = {"dict": dict, "ordered": OrderedDict, "counter": Counter}
_SEQUENCES: dict[str, Any] = {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset, "size": Size}
_SCALARS: dict[str, Any] = {
    "float": float, "complex": lambda real, imag: complex(float(real), float(imag)), "dtype": _dtype, "device": _device,
    "bytes": lambda text: base64.b64decode(text, validate=True),
    "bytearray": lambda text: bytearray(base64.b64decode(text, validate=True)),
}  # fmt: skip


class _Pickler(pickle.Pickler):
    """Writes the number of a tensor in its place."""

    def __init__(self, file: io.BytesIO, writer: Any) -> None:
        super().__init__(file, 4)
        self._writer = writer

    def persistent_id(self, obj: Any) -> Any:
        return self._writer._number(obj, ("pickle",)) if type(obj) is Tensor else None
