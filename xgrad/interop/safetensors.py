"""Writes and reads `state_dict`s as safetensors files, which hold no code: save_file, load_file, load_into.

Invariants: a file is checked as a whole before a value of it is used, and a model is changed only if all of it can be
(`load_into`); a file that is written takes its name when it is complete, unless the path is a device, a pipe or one of
several hard links.  The functions are named as in `safetensors.torch`; `load_into` takes the place of its `load_model`.
(https://github.com/huggingface/safetensors.)
"""

import os
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from jax.sharding import Sharding

from ..base import dtypes
from ..base.devices import placement_of, settled
from ..errors import DtypeDisabledError, PlacementError
from ..execution.runner import transferred
from ..nn import Module
from ..nn.state_dict import IncompatibleKeys, refuse, size_mismatch
from ..serialization._safetensors_file import DTYPES, FileError, FileTensor, contents, opened, replaceable
from ..tensor import Tensor, from_foreign
from ..views.storage import Tracer, value_needed
from ._loading import check_writable, home_of, write_all

try:
    from safetensors import TensorSpec, serialize, serialize_file
except ImportError as _error:
    raise ImportError('xgrad.interop.safetensors needs safetensors: pip install "xgrad[safetensors]"') from _error

__all__ = ["FileError", "load", "load_file", "load_into", "metadata", "save", "save_file", "save_model"]


# -- saving -----------------------------------------------------------------------------------------------------------


def save_file(tensors: Mapping[str, Tensor], path: Any, metadata: Mapping[str, str] | None = None) -> None:
    """Write {name: Tensor} to a file, which takes its name when it is complete.

    A view is written as its own elements.  Raises `RuntimeError` for tensors that share elements, which the file would
    separate (`save_model` writes one of them), and for one with parts on other hosts; `TypeError` for a value that is
    not a dense tensor, and for a dtype that the format does not know (complex128).

    >>> import os, tempfile, xgrad
    >>> from xgrad.interop import safetensors
    >>> model = xgrad.nn.Linear(2, 3)
    >>> path = os.path.join(tempfile.mkdtemp(), "model.safetensors")
    >>> safetensors.save_file(model.state_dict(), path)
    >>> list(safetensors.load_file(path))
    ['bias', 'weight']
    """
    arrays, specs = _serializable(tensors)
    path = os.path.realpath(os.fspath(path))
    partial = f"{path}.{os.getpid()}.partial"
    mode = replaceable(path)
    try:
        if mode is None:
            with open(path, "wb") as file:
                file.write(serialize(specs, metadata=_texts(metadata)))
            return
        serialize_file(specs, partial, metadata=_texts(metadata))
        if mode:
            os.chmod(partial, mode)
        os.replace(partial, path)
    finally:
        del arrays
        if os.path.exists(partial):
            os.remove(partial)


def save(tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> bytes:
    """Return the bytes of the file that `save_file` would write.

    >>> import xgrad
    >>> from xgrad.interop import safetensors
    >>> safetensors.load(safetensors.save({"x": xgrad.ones(2)}))
    {'x': tensor([1., 1.])}
    """
    arrays, specs = _serializable(tensors)
    data = bytes(serialize(specs, metadata=_texts(metadata)))
    del arrays  # alive until here: the specifications are addresses
    return data


def save_model(module: Module, path: Any, metadata: Mapping[str, str] | None = None) -> None:
    """Write the state of a module; of tensors that share their elements (tied weights) only one.

    The metadata map the other names to it.  Raises `RuntimeError` if none of them covers the storage.
    """
    tensors, texts = dict(module.state_dict()), dict(metadata or {})
    for kept, dropped in _duplicates(tensors).items():
        for name in dropped:
            texts.setdefault(name, kept)
            del tensors[name]
    save_file(tensors, path, texts)


def _texts(metadata: Mapping[str, str] | None) -> dict[str, str] | None:
    if metadata is not None and not all(isinstance(v, str) for pair in metadata.items() for v in pair):
        raise TypeError(f"metadata must be a dictionary of strings, but got {dict(metadata)!r:.200}")
    return None if metadata is None else dict(metadata)


def _serializable(tensors: Mapping[str, Tensor]) -> tuple[list[np.ndarray], dict[str, TensorSpec]]:
    """Return arrays of the host, and their specifications for the library."""
    if not isinstance(tensors, Mapping):
        raise TypeError(f"expected a dictionary of tensors, such as a state_dict, but got {type(tensors).__name__}")
    for name, tensor in tensors.items():
        _check_saved(name, tensor)
    if shared := [sorted(names) for names in _shared(tensors) if len(names) > 1]:
        raise RuntimeError(
            "Some tensors share memory, this will lead to duplicate memory on disk and potential differences when "
            f"loading them again: {shared}. save_model writes one of each, or clone() them."
        )
    arrays, specs = [], {}
    for name, tensor in tensors.items():
        array = np.asarray(tensor.detach()._read(), order="C")
        arrays.append(array)
        specs[name] = TensorSpec(
            dtype=array.dtype.name, shape=array.shape, data_ptr=array.ctypes.data, data_len=array.nbytes
        )
    return arrays, specs


def _check_saved(name: Any, tensor: Any) -> None:
    if not isinstance(name, str) or name == "__metadata__":
        raise TypeError(f"{name!r} can't be the name of a tensor in a safetensors file")
    if not isinstance(tensor, Tensor):
        raise TypeError(f"'{name}': expected xgrad.Tensor but got {type(tensor).__module__}.{type(tensor).__name__}")
    if tensor._sparse:
        raise TypeError(f"'{name}' is sparse, which the format does not know: save its to_dense()")
    if tensor.dtype not in DTYPES.values():
        raise TypeError(f"'{name}' is of dtype {tensor.dtype.name}, which the format does not know")
    array = tensor._read()
    if isinstance(array, Tracer):
        raise value_needed(array, f"'{name}' is being traced (inside jax.jit, jax.vmap or jax.grad) and has no value")
    if not array.is_fully_addressable:
        raise RuntimeError(
            f"'{name}' is spread over several hosts ({array.sharding}): save with xgrad.interop.orbax, or gather it "
            "first, with jax.experimental.multihost_utils.process_allgather"
        )


# -- shared tensors ---------------------------------------------------------------------------------------------------


def _shared(tensors: Mapping[str, Tensor]) -> list[list[str]]:
    """Return the names in groups: the tensors of a group have elements in common."""
    storages = defaultdict(list)
    for name, tensor in tensors.items():
        if tensor.numel():
            storages[id(tensor if tensor._storage is None else tensor._storage)].append(name)
    groups = []
    for names in storages.values():
        end = -1
        for first, last, name in sorted((*_span(tensors[name]), name) for name in names):
            if first > end:
                groups.append([])
            groups[-1].append(name)
            end = max(end, last)
    return groups


def _span(tensor: Tensor) -> tuple[int, int]:
    """Return the first and the last byte of the storage that the tensor covers."""
    geometry = tensor._geometry()
    if geometry is None:
        return 0, tensor._held().nbytes - 1
    first, last = geometry.span()
    size = tensor.dtype.itemsize
    return first * size, (last + 1) * size - 1


def _duplicates(tensors: Mapping[str, Tensor], preferred: Any = ()) -> dict[str, list[str]]:
    """Return {name that represents a group: the others}; it covers the storage, and is in `preferred` if possible."""
    found = {}
    for names in _shared(tensors):
        if len(names) == 1:
            continue
        whole = [name for name in names if tensors[name].nbytes == tensors[name]._held().nbytes]
        if not whole:
            raise RuntimeError(
                f"none of the tensors {sorted(names)}, which share memory, covers its whole storage, so none can stand "
                "for the others in a file: clone() them"
            )
        kept = min(whole, key=lambda name: (name not in preferred, name))
        found[kept] = sorted(name for name in names if name != kept)
    return found


# -- loading ----------------------------------------------------------------------------------------------------------


def load_file(path: Any, device: Any = None) -> dict[str, Tensor]:
    """Return the tensors of a file, as {name: Tensor}.

    device: a device, a `Sharding`, or a dictionary of these by name (others go to the default device).  Of a sharded
    tensor each device reads its own part.

    Raises `FileError`, a `ValueError`, which names file and key, for a file that is cut off or damaged;
    `OverflowError` for 64-bit integers that don't fit into 32 bits while JAX's 64-bit mode is off; those that do, and
    float64, become numbers of 32 bits then (`xgrad.config.narrow`).
    """
    return _tensors(contents(opened(path), os.fspath(path))[0], device)


def load(data: bytes, device: Any = None) -> dict[str, Tensor]:
    """Return the tensors in the bytes of a file, as `load_file` does."""
    return _tensors(contents(memoryview(data), "the safetensors data")[0], device)


def metadata(path: Any) -> dict[str, str]:
    """Return the metadata of a file."""
    return contents(opened(path), os.fspath(path))[1]


def load_into(
    target: Module | Mapping[str, Tensor], path: Any, strict: bool = True, *, cast: bool = False
) -> IncompatibleKeys:
    """Write the tensors of a file into a module, or into the tensors of a `state_dict`, in place and where they are.

    Of names for the same elements (tied weights) the file needs one.  Returns the names that were missing or
    unexpected, which are errors if `strict`.  With `cast` values of another dtype are cast.

    Raises `RuntimeError`, which lists every key, for names, shapes and dtypes that differ, and the errors of
    `load_file`; then nothing has been changed.

    >>> import os, tempfile, xgrad
    >>> from xgrad.interop import safetensors
    >>> one, other = xgrad.nn.Linear(2, 3), xgrad.nn.Linear(2, 3)
    >>> path = os.path.join(tempfile.mkdtemp(), "model.safetensors")
    >>> safetensors.save_model(one, path)
    >>> safetensors.load_into(other, path)
    <All keys matched successfully>
    """
    own = _own(target)
    entries = contents(opened(path), os.fspath(path))[0]
    stand_ins = {name: kept for kept, names in _duplicates(own, entries).items() for name in names}
    missing = [name for name in own if name not in entries and stand_ins.get(name) not in entries]
    unexpected = [name for name in entries if name not in own or name in stand_ins]
    problems, loaded = [], []
    for name, tensor in own.items():
        entry = entries.get(name)
        if entry is None or name in stand_ins:
            continue
        if entry.shape != tensor.shape:
            problems.append(size_mismatch(name, entry.shape, tensor.shape))
        elif not cast and _canonical(entry) != tensor.dtype:
            problems.append(
                f"dtype mismatch for {name}: the file has {entry.dtype.name}, the current model {tensor.dtype.name}. "
                "cast=True casts it."
            )
        else:
            check_writable(name, tensor)
            loaded.append((tensor, entry))
    kind = f"{type(target).__name__} from {os.fspath(path)}"
    refuse(kind, missing if strict else [], unexpected if strict else [], problems)
    write_all([(tensor, _array(entry, home_of(tensor))) for tensor, entry in loaded])
    return IncompatibleKeys(missing, unexpected)


def _own(target: Any) -> dict[str, Tensor]:
    found = target.state_dict(keep_vars=True) if isinstance(target, Module) else target
    if not isinstance(found, Mapping):
        raise TypeError(f"expected a Module or a dictionary of tensors, but got {type(target).__name__}")
    for name, tensor in found.items():
        if not isinstance(tensor, Tensor) or tensor._sparse:
            raise TypeError(f"'{name}': expected a dense xgrad.Tensor but got {type(tensor).__name__}")
    return dict(found)


def _canonical(entry: FileTensor) -> np.dtype:
    """Return the dtype that the tensor will have here."""
    narrows = entry.dtype in dtypes.WIDE and not dtypes.x64_enabled()
    return np.dtype(dtypes.WIDE[entry.dtype]) if narrows else entry.dtype


def _tensors(entries: dict[str, FileTensor], device: Any) -> dict[str, Tensor]:
    if isinstance(device, Mapping):
        if unknown := [name for name in device if name not in entries]:
            raise KeyError(f"places were given for tensors that are not in the file: {', '.join(map(repr, unknown))}")
        places = {name: placement_of(where) for name, where in device.items() if where is not None}
    else:
        places = {} if device is None else dict.fromkeys(entries, placement_of(device))
    arrays = {name: _array(entry, places.get(name)) for name, entry in entries.items()}
    return {name: from_foreign(array) for name, array in arrays.items()}


def _array(entry: FileTensor, where: Any) -> jax.Array:
    """Return the values of a tensor on a device, or on several with a part for each; never in the file's memory."""
    try:
        values = entry.array()
        where = settled(where, entry.shape)
        if isinstance(where, Sharding):
            return jax.make_array_from_callback(entry.shape, where, lambda index: _own_memory(values[index]))
        return transferred(_own_memory(values), where)
    except FileError:
        raise
    except (DtypeDisabledError, OverflowError, PlacementError) as error:
        raise type(error)(f"{entry.file}: '{entry.name}': {error}") from None


def _own_memory(values: np.ndarray) -> np.ndarray:
    """Return a copy, in 32 bits where JAX has no 64."""
    array = dtypes.narrowed(values)
    return np.array(array) if array is values else array
