"""xgrad.save, xgrad.load: write and read files of tensors and other values; by default `load` runs no code of a file.

A file of `save` is a safetensors file: storages are its tensors, and its metadata has under "xgrad" a JSON text that
describes how the value is made of them (`_tree.py`), so that every reader of safetensors can open it.  `load` reads
those, other safetensors files, and files of `torch.save` (`_torch_file.py`, `_legacy_file.py`).

Invariants: a file is checked as a whole before the first tensor is made of it; a file that is written takes its name
when it is complete, and until then the old one stays (a device, a pipe and a file with several names are written
into).  (PyTorch: torch/serialization.py.)
"""

import mmap as _mmap
import os
import pickle
import secrets
import stat
from contextlib import suppress
from functools import partial
from typing import Any

from ..base.missing import close_namespace as _close_namespace
from ._legacy_file import is_legacy, read_legacy_file
from ._places import Places
from ._restore import restored
from ._safetensors_file import FileError, contents, replaceable
from ._torch_file import read_torch_file
from ._tree import decoded, encoded, header_of
from ._unpickling import add_safe_globals, clear_safe_globals, get_safe_globals, safe_globals, unpickled

__all__ = [
    "FileError", "add_safe_globals", "clear_safe_globals", "get_safe_globals", "load", "safe_globals", "save",
]  # fmt: skip


def save(obj: Any, f: Any) -> None:
    """Write a value to a file: tensors, and dicts, lists, tuples, sets and numbers of them, such as `state_dict`s.

    f: a path, whose file is replaced when the new one is complete, or an object with `write` in binary mode.

    The file has the tensors' dtype, `requires_grad`, their mark as Parameters, and attributes of plain data; tensors
    that share a storage share it afterwards.  (A view through `conj`, `real` or another dtype is saved by its values,
    without the share.)  Hooks and history are not saved; nor is sharding: pass a place to `load`.

    Any other value, such as a whole module or a NumPy array, is pickled, with the tensors beside the pickle as always;
    `load(f, weights_only=False)` reads it.  A `state_dict()` needs no trust, nor the classes' code as it is today.
    What cannot be pickled raises, before anything is written.

    Source: PyTorch's `torch.save`; the format is safetensors.

    >>> import os, tempfile, xgrad
    >>> path = os.path.join(tempfile.mkdtemp(), "checkpoint")
    >>> w = xgrad.arange(3.0)
    >>> xgrad.save({"w": w, "tail": w[1:], "step": 5}, path)
    >>> again = xgrad.load(path)
    >>> again
    {'w': tensor([0., 1., 2.]), 'tail': tensor([1., 2.]), 'step': 5}
    >>> _ = again["tail"].zero_()
    >>> again["w"]
    tensor([0., 0., 0.])
    """
    tree, storages = encoded(obj)
    pieces = [header_of(tree, storages), *(entry.data for entry in storages)]
    if hasattr(f, "write"):
        for piece in pieces:
            f.write(piece)
        return
    if not isinstance(f, (str, os.PathLike)):
        raise TypeError(
            f"save(): expected 'f' to be a path or a file-like object with a 'write' attribute, but got "
            f"{type(f).__name__}"
        )
    _replace(os.path.realpath(os.fspath(f)), pieces)


def _replace(path: str, pieces: list) -> None:
    """Write a file beside the one that it replaces, and give it its name; or into what can't be replaced."""
    mode = replaceable(path)
    if mode is None:
        with open(path, "wb") as file:
            for piece in pieces:
                file.write(piece)
        return
    folder, name = os.path.split(path)
    partial = os.path.join(folder, f".{name[:200]}.{secrets.token_hex(8)}.partial")
    try:
        # The system takes the process's umask from a new file's mode; it can't be read without being set.
        with open(partial, "xb", opener=lambda name, flags: os.open(name, flags, mode or 0o666)) as file:
            for piece in pieces:
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
        if mode:
            os.chmod(partial, mode)
        os.replace(partial, path)
    except BaseException:
        if os.path.exists(partial):
            os.remove(partial)
        raise


def load(f: Any, map_location: Any = None, *, weights_only: bool = True, mmap: bool | None = None) -> Any:
    """Return the value in a file: of `xgrad.save`, `torch.save` (state dicts, tensors, plain data), or safetensors.

    f: a path, or an object with `read` in binary mode, which is read to its end.  map_location: the tensors' places: a
    device, a `Sharding`, a dictionary from the devices they were saved on to others, or a function of a storage and the
    name of its device that returns one (or the storage itself: the CPU, or None: as saved).  By default each goes to
    the device that it was put on when it was saved, and those that were on none in particular to the default device.
    mmap: True reads the file while its values are loaded; it needs a path.  weights_only: False also unpickles
    other objects than tensors and plain data, which runs their author's code: for files of your own only; True makes
    objects of the classes in `serialization.add_safe_globals` and `safe_globals`.

    Raises `FileError`, a `ValueError`, for a file that is cut off, damaged, or none of these, and
    `pickle.UnpicklingError` for one with more than tensors and plain data, both with the name of the file;
    `OverflowError` for 64-bit integers that don't fit into 32 bits while JAX's 64-bit mode is off; those that do, and
    float64, become numbers of 32 bits then (`xgrad.config.narrow`).

    Source: PyTorch's `torch.load`.

    >>> import io, xgrad
    >>> file = io.BytesIO()
    >>> xgrad.save([xgrad.ones(2, dtype=xgrad.bfloat16), "text"], file)
    >>> _ = file.seek(0)
    >>> xgrad.load(file, map_location="cpu")
    [tensor([1., 1.], dtype=xgrad.bfloat16), 'text']
    """
    data, name = _bytes_of(f, mmap)
    places = Places(map_location)
    if data[:4] == b"PK\x03\x04":
        return restored(*read_torch_file(data, name), places, name)
    if bytes(data[8:9]) == b"{":
        entries, metadata = contents(data, name)
        unpickle = partial(unpickled, name, weights_only)
        return restored(*decoded(entries, metadata, name, unpickle), places, name)
    pickled = bytes(data[:1]) == b"\x80"
    if is_legacy(data):
        return restored(*read_legacy_file(data, name), places, name)
    if pickled and not weights_only:
        if map_location is not None:
            raise ValueError("map_location is not for pickles: move the tensors afterwards, with to()")
        return pickle.loads(data)
    if pickled:
        raise pickle.UnpicklingError(
            f"Weights only load failed: {name} is a pickle, and unpickling runs code of its author's. If the file is "
            "your own, load(f, weights_only=False) reads it; xgrad.save writes files that need no trust."
        )
    size = len(data)
    raise FileError(
        f"{name} is not a file that xgrad.load knows (xgrad.save, torch.save, safetensors): it has {size} bytes, "
        f"beginning with {bytes(data[:8])!r}: it is empty, cut off, or of another kind"
    )


def _bytes_of(f: Any, mmap: bool | None) -> tuple[memoryview, str]:
    """Return the bytes of a file, and its name for errors."""
    if hasattr(f, "read"):
        if mmap:
            raise ValueError("f must be a file path in order to use the mmap argument")
        with suppress(AttributeError, OSError):  # an object that is not an open file
            if stat.S_ISCHR(os.fstat(f.fileno()).st_mode):
                raise FileError(f"{f.name} is a device, which may have no end")
        data = f.read()
        if not isinstance(data, bytes):
            raise TypeError(f"load(): the file must be opened in binary mode: read() gave {type(data).__name__}")
        return memoryview(data), str(getattr(f, "name", "the file"))
    if not isinstance(f, (str, os.PathLike)):
        raise TypeError(
            f"load(): expected 'f' to be a path or a file-like object with a 'read' attribute, but got "
            f"{type(f).__name__}"
        )
    name = os.fspath(f)
    with open(name, "rb") as file:
        if mmap and os.fstat(file.fileno()).st_size:  # an empty file can't be mapped
            return memoryview(_mmap.mmap(file.fileno(), 0, access=_mmap.ACCESS_READ)), str(name)
        return _bytes_of(file, None)


_close_namespace(__name__)
