"""Reads and checks safetensors files: 8 bytes with the length of the header, the header (JSON), the data.

Invariant: the result of `contents` has been checked against the bytes of the file: each tensor is where the header
says, they follow each other without gaps or overlaps, and nothing is left over.  Beside the data only numbers and texts
(names, metadata) are taken from the file, and none is run as code.  Writers ask `replaceable` if they may replace it.

The safetensors library reads headers too; here errors name file and key, names that come twice are refused, and the
dtypes of float8 are read (its NumPy side knows none).  Format: https://github.com/huggingface/safetensors#format
"""

import json
import math
import mmap
import os
import stat
from collections import Counter
from typing import Any, NamedTuple

import numpy as np

from ..base import dtypes

_LONGEST_HEADER = 100_000_000  # the library's own bound
_MOST_DIMENSIONS = 32  # NumPy's, up to its version 1; XLA's are no more useful

DTYPES: dict[str, np.dtype] = {
    "F64": dtypes.float64, "F32": dtypes.float32, "F16": dtypes.float16, "BF16": dtypes.bfloat16,
    "F8_E4M3": dtypes.float8_e4m3fn, "F8_E5M2": dtypes.float8_e5m2, "F8_E4M3FNUZ": dtypes.float8_e4m3fnuz,
    "F8_E5M2FNUZ": dtypes.float8_e5m2fnuz, "C64": dtypes.complex64, "BOOL": dtypes.bool, "I64": dtypes.int64,
    "I32": dtypes.int32, "I16": dtypes.int16, "I8": dtypes.int8, "U64": dtypes.uint64, "U32": dtypes.uint32,
    "U16": dtypes.uint16, "U8": dtypes.uint8,
}  # fmt: skip


class FileError(ValueError):
    """A safetensors file that is cut off, damaged, or not one at all."""


class FileTensor(NamedTuple):
    """A tensor of a file, which has not been read yet."""

    file: str
    name: str
    dtype: np.dtype
    shape: tuple[int, ...]
    data: memoryview

    def array(self) -> np.ndarray:
        """Return the values, in the memory of the file."""
        array = np.frombuffer(self.data, np.uint8).view(self.dtype).reshape(self.shape)
        if self.dtype == dtypes.bool and array.size and array.view(np.uint8).max() > 1:
            raise FileError(f"{self.file}: '{self.name}' has a byte that is neither False nor True")
        return array


def opened(path: Any) -> memoryview:
    """Return the bytes of a file as a memory map: each is read when it is used; the last reference closes the file."""
    with open(os.fspath(path), "rb") as file:
        if os.fstat(file.fileno()).st_size == 0:  # an empty file can't be mapped
            return memoryview(b"")
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def replaceable(path: str) -> int | None:
    """Return the permissions of a file that another may replace, 0 if there is none; None for what is written into.

    A device or a pipe stays what it is, and a file with several names has the new value under each.
    """
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return 0
    return stat.S_IMODE(found.st_mode) if stat.S_ISREG(found.st_mode) and found.st_nlink == 1 else None


def contents(data: memoryview, file: str) -> tuple[dict[str, FileTensor], dict[str, str]]:
    """Return the tensors of a file, and its metadata.  Raises `FileError`, which names the file and the key."""
    if len(data) < 8:
        raise FileError(
            f"{file} is not a safetensors file: it has {len(data)} bytes, less than the 8 of a header length"
        )
    length = int.from_bytes(data[:8], "little")
    if length > min(len(data) - 8, _LONGEST_HEADER):
        raise FileError(
            f"{file}: its header is said to be {length} bytes long, but {len(data) - 8} bytes follow (and "
            f"{_LONGEST_HEADER} are allowed): the file is cut off, or no safetensors file"
        )
    header = _parsed(bytes(data[8 : 8 + length]), file)
    metadata = header.pop("__metadata__", None) or {}
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise FileError(f"{file}: __metadata__ of the header must be a dictionary of strings")
    body = data[8 + length :]
    entries, places = {}, []
    for name, entry in header.items():
        dtype, shape, begin, end = _checked(name, entry, file)
        places.append((begin, end, name))
        entries[name] = FileTensor(file, name, dtype, shape, body[begin:end])
    _check_places(sorted(places), len(body), file)
    return entries, metadata


def _parsed(header: bytes, file: str) -> dict[str, Any]:
    def unique(pairs: list[tuple[str, Any]]) -> dict:
        found = dict(pairs)
        if len(found) < len(pairs):
            twice, _ = Counter(name for name, _ in pairs).most_common(1)[0]
            raise FileError(f"{file}: '{twice}' comes twice in the header")
        for name in found:
            name.encode()  # half a surrogate pair is not text
        return found

    try:
        found = json.loads(header.decode(), object_pairs_hook=unique)
    except UnicodeError as error:
        raise FileError(f"{file}: the header is not UTF-8: {error}") from None
    except FileError:
        raise
    except (ValueError, RecursionError) as error:  # a number of more digits than Python reads is a ValueError too
        raise FileError(f"{file}: the header is not JSON: {error}") from None
    if not isinstance(found, dict) or not header.startswith(b"{"):
        raise FileError(f"{file}: the header must be a JSON object, but it is of type {type(found).__name__}")
    return found


def _checked(name: str, entry: Any, file: str) -> tuple[np.dtype, tuple[int, ...], int, int]:
    """Return dtype, shape, and the first and last byte, checked against each other."""
    if not isinstance(entry, dict) or not {"dtype", "shape", "data_offsets"} <= set(entry):
        raise FileError(f"{file}: '{name}' lacks dtype, shape or data_offsets in the header: {entry!r:.200}")
    shape, offsets = entry["shape"], entry["data_offsets"]
    if not _naturals(shape) or not _naturals(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise FileError(
            f"{file}: '{name}' has shape {shape!r:.200} and data_offsets {offsets!r:.200}: expected integers that are "
            "not negative, and two ascending ones"
        )
    dtype = DTYPES.get(entry["dtype"]) if isinstance(entry["dtype"], str) else None
    if dtype is None:
        raise FileError(
            f"{file}: '{name}' has dtype {entry['dtype']!r:.50}, which XLA has no arrays of; known are "
            + ", ".join(DTYPES)
        )
    size = math.prod(shape) * dtype.itemsize
    if size != offsets[1] - offsets[0]:
        raise FileError(
            f"{file}: '{name}' of dtype {dtype.name} and shape {tuple(shape)} needs {size} bytes, but its "
            f"data_offsets {offsets} span {offsets[1] - offsets[0]}"
        )
    if len(shape) > _MOST_DIMENSIONS or math.prod(max(n, 1) for n in shape) * dtype.itemsize >= 1 << 63:
        raise FileError(f"{file}: '{name}' has a shape that no array has: {shape!r:.200}")
    return dtype, tuple(shape), offsets[0], offsets[1]


def _naturals(value: Any) -> bool:
    return isinstance(value, list) and all(type(n) is int and n >= 0 for n in value)


def _check_places(places: list[tuple[int, int, str]], size: int, file: str) -> None:
    """Raise `FileError` unless the tensors follow each other without gaps and fill the data."""
    last = 0
    for begin, end, name in places:
        if begin != last:
            what = "overlaps the tensor before it" if begin < last else f"leaves {begin - last} bytes before it unused"
            raise FileError(f"{file}: '{name}' {what}: its data begin at {begin} instead of {last}")
        last = end
    if last > size:
        late = next(name for _, end, name in places if end > size)
        raise FileError(f"{file}: '{late}' ends behind the last byte: {last} bytes are needed and {size} are there")
    if last < size:
        raise FileError(f"{file}: {size - last} bytes follow the last tensor")
