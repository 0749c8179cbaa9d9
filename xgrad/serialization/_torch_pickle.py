"""Reader: reads the pickle in a file of `torch.save`, for `xgrad.load`, without running any code of the file's.

Invariants: the reader knows the names below and no others, and each of them makes plain data of plain data; a file can
change what it made itself, and nothing else; time and memory are in proportion to its size.  Values of storages are
asked for when the pickle has been read, because in legacy files they stand behind it.
(PyTorch: torch/serialization.py, torch/_weights_only_unpickler.py, torch/_utils.py.)
"""

import pickle
import reprlib
from collections import Counter, OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ..base import dtypes
from ..base.devices import device, placement_of
from ..base.dtype_object import dtype as dtype_object
from ..base.dtype_object import of
from ..base.size import Size
from ._restore import Dense, SavedArray, Sparse, hidden
from ._safetensors_file import FileError

_STORAGES = {
    "FloatStorage": dtypes.float32, "DoubleStorage": dtypes.float64, "HalfStorage": dtypes.float16,
    "BFloat16Storage": dtypes.bfloat16, "LongStorage": dtypes.int64, "IntStorage": dtypes.int32,
    "ShortStorage": dtypes.int16, "CharStorage": dtypes.int8, "ByteStorage": dtypes.uint8, "BoolStorage": dtypes.bool,
    "ComplexFloatStorage": dtypes.complex64, "ComplexDoubleStorage": dtypes.complex128, "UntypedStorage": None,
}  # fmt: skip


class _Known(NamedTuple):
    """A name of the file's: a function that it may call, or the dtype of a kind of storage."""

    call: Callable | None
    dtype: np.dtype | None = None


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


class Reader:
    """Reads one pickled value of a file opcode by opcode, and collects its tensors.

    Of `pickle` only the syntax is used: its own reader makes a list as long as the largest number in its memo, hashes
    whatever a file makes a key, and lets a file change objects.  Here time and memory are in proportion to the file.
    """

    def __init__(self, stream: Any, tensors: "Tensors", size: int) -> None:
        self._stream, self._file, self._kept, self._left = stream, tensors.file, tensors.kept, 4 * size + 4096
        self._stack: list[Any] = []
        self._marks: list[int] = []
        self._memo: dict[int, Any] = {}
        calls = {
            ("collections", "Counter"): _counter,  # a schedule's milestones
            ("collections", "OrderedDict"): _ordered,
            ("torch", "Size"): Size,
            ("torch", "device"): _device,
            ("torch._utils", "_rebuild_tensor"): tensors.dense,
            ("torch._utils", "_rebuild_tensor_v2"): tensors.dense,
            ("torch._utils", "_rebuild_tensor_v3"): tensors.dense_of_dtype,
            ("torch._utils", "_rebuild_parameter"): tensors.parameter,
            ("torch._utils", "_rebuild_sparse_tensor"): tensors.sparse,
            ("torch.serialization", "_get_layout"): _text,
            ("_codecs", "encode"): _encoded,
        }
        for module in ("__builtin__", "builtins"):
            calls[module, "complex"], calls[module, "bytearray"] = complex, _bytearray
            for kind in (set, frozenset):
                calls[module, kind.__name__] = partial(_hashed, kind)
        self._known: dict[tuple[str, str], Any] = {name: _Known(call) for name, call in calls.items()}
        for name, dtype in _STORAGES.items():
            for module in ("torch", "torch.storage", "torch.cuda"):
                self._known[module, name] = _Known(None, dtype)
        for name in dtypes.__all__:
            if isinstance(found := getattr(dtypes, name), np.dtype):
                self._known["torch", name] = of(found)

    def load(self) -> Any:
        """Return the value, with numbers in the place of tensors."""
        import pickletools  # 5 ms: only when such a file is read

        for opcode, argument, _ in pickletools.genops(self._stream):
            name = opcode.name
            if name in _ARGUMENTS:
                self._stack.append(argument)
            elif name == "STOP":
                return self._stack.pop()
            elif name in _OPCODES:
                _OPCODES[name](self, argument)
            else:
                raise pickle.UnpicklingError(f"Weights only load failed: Unsupported operand {name}")
        raise EOFError  # not reached: there is a STOP, or genops raises an error

    def _push(self, value: Any) -> None:
        self._stack.append(value)

    def _pop(self, count: int) -> list[Any]:
        """Take the last values from the stack."""
        if len(self._stack) < count:
            raise pickle.UnpicklingError("the stack is empty")
        values = self._stack[len(self._stack) - count :]
        del self._stack[len(self._stack) - count :]
        return values

    def _marked(self) -> list[Any]:
        return self._pop(max(len(self._stack) - self._marks.pop(), 0))

    def _spend(self, *values: Any) -> None:
        """Raise an error where a file repeats its values so often that memory has no proportion to it."""
        self._left -= sum(len(value) for value in values if hasattr(value, "__len__"))
        if self._left < 0:
            raise FileError("its pickle makes far more of its values than it has")

    def _mark(self, _: Any) -> None:
        self._marks.append(len(self._stack))

    def _drop(self, _: Any) -> None:
        """Take the last value or mark."""
        if self._marks and self._marks[-1] == len(self._stack):
            self._marks.pop()
        else:
            self._pop(1)

    def _put(self, number: Any) -> None:
        self._memo[len(self._memo) if number is None else number] = self._stack[-1]

    def _fill(self, kind: type, values: list[Any]) -> None:
        """Add values to the last value of the stack, which is of this kind: keys and values to a dictionary."""
        target = self._stack[-1]
        if not isinstance(target, kind):
            raise _misplaced("an item", target)
        if kind is list:
            target += values
        elif kind is set:
            target.update(map(_key, values))
        else:
            for key, value in zip(values[::2], values[1::2], strict=True):
                target[_key(key)] = value

    def _find(self, module: str, name: str) -> None:
        if (module, name) not in self._known:
            raise pickle.UnpicklingError(
                f"Weights only load failed: {self._file} holds a {module}.{name}, and only tensors and plain "
                "data are read. In PyTorch, save the state_dict() of the module or optimizer, "
                "or the tensors and numbers of the object."
            )
        self._push(self._known[module, name])

    def _reduce(self, _: Any) -> None:
        known, args = self._pop(2)
        if not isinstance(known, _Known) or known.call is None or type(args) is not tuple:
            raise _misplaced("a call", known)
        self._spend(*args)
        self._push(known.call(*args))

    def _build(self, _: Any) -> None:
        """Give the dictionary of a module's state its attributes; nothing else has any."""
        (state,) = self._pop(1)
        target = self._stack[-1]
        if type(target) is dtype_object:  # it has no state, and gets none
            return
        if type(target) is not OrderedDict or type(state) is not dict:
            raise _misplaced("a state", target)
        self._spend(state)
        if name := hidden(OrderedDict, state):
            raise pickle.UnpicklingError(f"a file may not hide OrderedDict.{name} by a value")
        vars(target).update(state)

    def _persistent(self, _: Any) -> None:
        (pid,) = self._pop(1)
        kind, (_, dtype), key, location, numel, *view = pid
        texts = kind == "storage" and isinstance(key, str) and isinstance(location, str)
        if not texts or type(numel) is not int or numel < 0:
            raise pickle.UnpicklingError(f"expected a storage, but got {reprlib.repr(pid)}")
        whole = self._kept.setdefault(key, Kept(key, dtype, location, numel))
        if (whole.dtype, whole.numel) != (dtype, numel) and view:
            raise pickle.UnpicklingError(f"storage {key:.50} has two kinds or lengths")
        if not view or view == [None]:
            return self._push(Kept(key, dtype, location, numel))
        ((_, offset, size),) = view
        if type(offset) is not int or type(size) is not int or not 0 <= offset <= offset + size <= numel:
            raise pickle.UnpicklingError(f"expected a part of a storage, but got {reprlib.repr(pid)}")
        self._push(Kept(key, dtype, location, numel, offset))


_ARGUMENTS = frozenset({
    "INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT", "BINBYTES", "SHORT_BINBYTES",
    "BINBYTES8", "BYTEARRAY8", "UNICODE", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8",
})  # fmt: skip
_OPCODES: dict[str, Callable[[Reader, Any], Any]] = {
    "PROTO": lambda self, _: None, "FRAME": lambda self, _: None, "MARK": Reader._mark,
    "NONE": lambda self, _: self._push(None), "NEWTRUE": lambda self, _: self._push(True),
    "NEWFALSE": lambda self, _: self._push(False), "EMPTY_TUPLE": lambda self, _: self._push(()),
    "EMPTY_LIST": lambda self, _: self._push([]), "EMPTY_DICT": lambda self, _: self._push({}),
    "EMPTY_SET": lambda self, _: self._push(set()),
    "TUPLE": lambda self, _: self._push(tuple(self._marked())), "LIST": lambda self, _: self._push(self._marked()),
    "FROZENSET": lambda self, _: self._push(_hashed(frozenset, self._marked())),
    "TUPLE1": lambda self, _: self._push(tuple(self._pop(1))),
    "TUPLE2": lambda self, _: self._push(tuple(self._pop(2))),
    "TUPLE3": lambda self, _: self._push(tuple(self._pop(3))),
    "APPEND": lambda self, _: self._fill(list, self._pop(1)),
    "APPENDS": lambda self, _: self._fill(list, self._marked()),
    "ADDITEMS": lambda self, _: self._fill(set, self._marked()),
    "SETITEM": lambda self, _: self._fill(dict, self._pop(2)),
    "SETITEMS": lambda self, _: self._fill(dict, self._marked()), "MEMOIZE": Reader._put,
    "POP": Reader._drop, "POP_MARK": lambda self, _: self._marked(),
    "DUP": lambda self, _: self._push(self._stack[-1]),
    "GLOBAL": lambda self, names: self._find(*names.split(" ", 1)),
    "STACK_GLOBAL": lambda self, _: self._find(*map(_text, self._pop(2))),
    "REDUCE": Reader._reduce, "BUILD": Reader._build, "BINPERSID": Reader._persistent,
}  # fmt: skip
_OPCODES |= {f"{size}GET": lambda self, number: self._push(self._memo[number]) for size in ("", "BIN", "LONG_BIN")}
_OPCODES |= {f"{size}PUT": Reader._put for size in ("", "BIN", "LONG_BIN")}
_OPCODES |= {  # of Python 2's text
    f"{size}STRING": lambda self, text: self._push(text.encode("latin1").decode()) for size in ("", "BIN", "SHORT_BIN")
}


def _misplaced(what: str, target: Any) -> pickle.UnpicklingError:
    return pickle.UnpicklingError(f"a file may not change what reads it: {what} for a {type(target).__name__}")


_KEYS = (str, bytes, int, float, complex, frozenset, type(None), dtype_object, device)


def _key(key: Any) -> Any:
    """Return a key of a dictionary, or an item of a set: a value that has a hash, and has it soon."""
    todo = [key]
    for count, item in enumerate(todo):  # which grows
        if isinstance(item, tuple) and not isinstance(item, (_Number, _Known, Kept)) and count < 1000:
            todo += item
        elif not isinstance(item, _KEYS):
            raise FileError(f"a {type(item).__name__} as a key or in a set")
    return key


def _text(value: Any) -> str:
    if type(value) is not str:
        raise _misplaced("a text", value)
    return value


def _numbers(values: Any) -> tuple[int, ...]:
    if not isinstance(values, (list, tuple)) or not all(type(n) is int and abs(n) < 1 << 62 for n in values):
        raise FileError(f"sizes, strides or an offset are {reprlib.repr(values)}")
    return tuple(values)


def _hashed(kind: type, items: Any = ()) -> Any:
    return kind(map(_key, items))


def _ordered(pairs: Any = ()) -> OrderedDict:
    return OrderedDict((_key(key), value) for key, value in pairs)


def _counter(counts: dict[Any, int]) -> Counter:
    return Counter({_key(key): count for key, count in counts.items()})


def _bytearray(value: Any = b"", encoding: str = "latin1") -> bytearray:
    return bytearray(_encoded(value, encoding) if isinstance(value, str) else memoryview(value))


def _device(kind: str, index: int | None = None) -> Any:
    """Return a device; JAX's default one where this machine has none like it."""
    if type(index) not in (int, type(None)):
        raise _misplaced("an index", index)
    try:
        found = device(_text(kind) if index is None else f"{_text(kind)}:{index}")
        placement_of(found)
    except RuntimeError:
        return device("xla")
    return found


def _encoded(text: str, encoding: str) -> bytes:
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"bytes are written as latin1, not {reprlib.repr(encoding)}")
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
        self, storage: Kept, offset: int, sizes: Any, strides: Any, requires_grad: bool = False, hooks: Any = None,
        metadata: Any = None,
    ) -> _Number:  # fmt: skip
        if storage.dtype is None:
            raise pickle.UnpicklingError("an untyped storage for a tensor without a dtype")
        return self.dense_of_dtype(storage, offset, sizes, strides, requires_grad, hooks, storage.dtype, metadata)

    def dense_of_dtype(
        self, storage: Kept, offset: int, sizes: Any, strides: Any, requires_grad: bool, hooks: Any, dtype: Any,
        metadata: Any = None,
    ) -> _Number:  # fmt: skip
        if not isinstance(dtype, (np.dtype, dtype_object)):
            raise _misplaced("a dtype", dtype)
        conj, neg = ((metadata or {}).get(bit) is True for bit in ("conj", "neg"))
        place, (first,) = self._storage(storage, np.dtype(dtype)), _numbers((offset,))
        geometry = _numbers(sizes), _numbers(strides), storage.offset + first
        return self._add(Dense(place, *geometry, requires_grad is True, False, conj, neg))

    def parameter(self, data: _Number, requires_grad: bool, hooks: Any) -> _Number:
        return self._add(self.tensors[data.number]._replace(requires_grad=requires_grad is True, parameter=True))

    def sparse(self, layout: str, parts: tuple) -> _Number:
        if layout != "torch.sparse_coo":
            raise pickle.UnpicklingError(
                f"a tensor of layout {reprlib.repr(layout)}: save its to_dense() or to_sparse_coo()"
            )
        indices, values, sizes, *coalesced = parts
        return self._add(Sparse(indices.number, values.number, _numbers(sizes), coalesced == [True]))


def built(node: Any, made: list | None, known: dict[int, Any]) -> Any:
    """Return the value with tensors in the place of their numbers; `known`: the results so far, by container."""
    if isinstance(node, _Number):
        return node if made is None else made[node.number]
    if isinstance(node, (_Known, Kept)):
        raise FileError("something that is not a value stands where one is expected")
    if not isinstance(node, (dict, list, tuple)) or isinstance(node, Size):
        return node
    if id(node) in known:
        return known[id(node)]
    if isinstance(node, tuple):
        found: Any = tuple(built(item, made, known) for item in node)
        return known.setdefault(id(node), found)  # it may contain a list that contains it
    found = type(node)()
    known[id(node)] = found
    if isinstance(node, list):
        found.extend(built(item, made, known) for item in node)
        return found
    for key, value in node.items():  # one by one: a Counter's update() would count the pairs
        found[key] = built(value, made, known)
    if isinstance(node, OrderedDict) and vars(node):
        vars(found).update(built(vars(node), made, known))
    return found
