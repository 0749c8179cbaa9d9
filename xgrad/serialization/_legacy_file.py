"""Reads files of `torch.save` before PyTorch 1.6 (also `_use_new_zipfile_serialization=False`): pickles, then storages.

    magic number | version | the machine | the value | keys of storages | for each key: its length and its elements

All five pickles are read as the pickle of a zip is (`_torch_pickle.py`).  Invariant: a storage has the length that the
value's pickle says, and lies in the file.  Still older files, which are tar archives, are not read.
(PyTorch: torch/serialization.py, `_legacy_load`.)
"""

import reprlib
from typing import Any

from ._safetensors_file import FileError
from ._torch_file import in_words
from ._torch_pickle import Kept, Read, Reader, Tensors

_MAGIC = 0x1950A86A20F9469CFC6C
_SIGN = b"\x8a\x0a" + _MAGIC.to_bytes(10, "little")  # as a pickle of any binary protocol has it
_VERSION = 1001
_BEGINNING = 32


def is_legacy(data: memoryview) -> bool:
    """Return whether the bytes of a file begin with the pickle of the magic number."""
    return bytes(data[:1]) == b"\x80" and _SIGN in bytes(data[:_BEGINNING])


def read_legacy_file(data: memoryview, file: str) -> Read:
    """Return what a legacy file of torch.save holds."""
    return in_words(lambda: _read(data, file), file)


def _read(data: memoryview, file: str) -> Read:
    stream, tensors = _Stream(data), Tensors(file)

    def read() -> Any:
        return Reader(stream, tensors, len(data)).load()

    if read() != _MAGIC or read() != _VERSION:
        raise FileError(f"{file} is none of torch.save's legacy files of version {_VERSION}, though it begins as one")
    read()  # the machine that wrote it: the storages are little-endian in any case
    value = read()
    keys = read()
    if not isinstance(keys, list):
        raise FileError(f"{file}: the list of its storages is a {type(keys).__name__}")
    storages: dict[Any, memoryview] = {}
    for key in keys:
        kept = tensors.kept.get(key) if isinstance(key, str) else None
        if kept is None or key in storages:
            raise FileError(f"{file}: it has a storage {reprlib.repr(key)} that nothing refers to, or has it twice")
        storages[key] = _storage(stream, kept, file)
    if absent := sorted(tensors.kept.keys() - storages.keys()):
        raise FileError(f"{file}: storage {absent[0]} is not there")
    return tensors.complete(value, storages.__getitem__)


def _storage(stream: "_Stream", kept: Kept, file: str) -> memoryview:
    count = int.from_bytes(stream.take(8), "little", signed=True)
    if count != kept.numel:
        raise FileError(f"{file}: storage {kept.key} has {count} elements, and {kept.numel} are expected: cut off?")
    return stream.take(count * (1 if kept.dtype is None else kept.dtype.itemsize))


class _Stream:
    """Bytes that are read from the first to the last, without a copy of what is not a pickle."""

    def __init__(self, data: memoryview) -> None:
        self._data, self._at = data, 0

    def take(self, count: int) -> memoryview:
        """Return the next bytes.  Raises `EOFError` if there are fewer."""
        end = self._at + count
        if end > len(self._data):
            raise EOFError(f"{count} bytes are expected, and {len(self._data) - self._at} are there")
        part, self._at = self._data[self._at : end], end
        return part

    def read(self, count: int) -> bytes:
        part = bytes(self._data[self._at : self._at + count])
        self._at += len(part)
        return part

    def readline(self) -> bytes:
        end = start = self._at
        while end < len(self._data):
            chunk = bytes(self._data[end : end + 256])
            if (found := chunk.find(b"\n")) >= 0:
                end += found + 1
                break
            end += len(chunk)
        self._at = end
        return bytes(self._data[start:end])
