"""restored: makes the tensors of a file from its storages and descriptions of tensors, the last step of `xgrad.load`.

Invariants: the tensors share no memory with the file; every description is checked against its storage before the
first array is put on a device.
"""

from math import prod
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Sharding

from ..base import dtypes
from ..base.declared import DeclaredPlace
from ..base.devices import is_default, settled
from ..errors import DtypeDisabledError, PlacementError
from ..execution.donation import sent
from ..execution.runner import transferred
from ..ops.sparse.conversion import sparse_coo_tensor
from ..tensor import Tensor, from_foreign
from ..tensor_methods.copy_and_pickle import placed
from ..views.chain import ViewChain
from ..views.geometry import TensorGeometry
from ..views.storage import Storage
from ._safetensors_file import FileError


class SavedArray(NamedTuple):
    """A storage of a file: its values in the file's memory, and the device that it was on."""

    name: str
    values: np.ndarray
    location: str | None


class Dense(NamedTuple):
    """A tensor as a part of a storage."""

    storage: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    requires_grad: bool = False
    parameter: bool = False
    conj: bool = False
    neg: bool = False


class Sparse(NamedTuple):
    """A sparse_coo tensor, made of two other tensors."""

    indices: int
    values: int
    sizes: tuple[int, ...]
    coalesced: bool
    requires_grad: bool = False


def restored(build: Any, tensors: list, storages: list[SavedArray], places: Any, file: str) -> Any:
    """Return the value that `build` makes of the list of tensors."""
    users: list[list[Dense]] = [[] for _ in storages]
    for i, tensor in enumerate(tensors):
        _check(tensor, tensors, i, storages, file)
        if isinstance(tensor, Dense):
            users[tensor.storage].append(tensor)
    kept = [_storage(_shaped(s, u), places, file) for s, u in zip(storages, users)]
    made: list[Tensor] = []
    for tensor in tensors:
        if isinstance(tensor, Sparse):
            made.append(_sparse(tensor, made, file))
        else:
            made.append(_dense(tensor, kept[tensor.storage], len(users[tensor.storage]) == 1))
    return build(made)


def _shaped(saved: SavedArray, users: list[Dense]) -> SavedArray:
    """Return the storage in the shape of its tensors, if each is all of it: no view is replayed then."""
    shapes = {tensor.sizes for tensor in users}
    whole = [TensorGeometry(t.sizes, t.strides, t.offset) == TensorGeometry.contiguous(t.sizes) for t in users]
    if len(shapes) != 1 or not all(whole) or prod(sizes := shapes.pop()) != saved.values.size:
        return saved
    return saved._replace(values=saved.values.reshape(sizes))


def hidden(kind: type, attributes: Any) -> str | None:
    """Return the first name of a file's attributes that would hide one of the class's own."""
    return next((name for name in attributes if not isinstance(name, str) or hasattr(kind, name)), None)


def _check(tensor: Any, tensors: list, before: int, storages: list[SavedArray], file: str) -> None:
    """Raise `FileError` for a tensor that does not lie in its storage, or has parts that don't come `before` it."""
    if isinstance(tensor, Sparse):
        parts = (tensor.indices, tensor.values)
        if not all(type(n) is int and 0 <= n < before and isinstance(tensors[n], Dense) for n in parts):
            raise FileError(f"{file}: a sparse tensor has parts {parts!r:.200}, which are not there")
        if not all(type(n) is int and 0 <= n < 1 << 62 for n in tensor.sizes):
            raise FileError(f"{file}: a sparse tensor has sizes {tensor.sizes!r:.200}")
        return
    if type(tensor.storage) is not int or not 0 <= tensor.storage < len(storages):
        raise FileError(f"{file}: a tensor lies in storage {tensor.storage}, and there are {len(storages)}")
    name, values, _ = storages[tensor.storage]
    numbers = (*tensor.sizes, *tensor.strides, tensor.offset)
    fits = len(tensor.sizes) == len(tensor.strides) <= 32 and all(type(n) is int and 0 <= n < 1 << 62 for n in numbers)
    fits = fits and prod(tensor.sizes) * values.itemsize < 1 << 62
    if not fits or TensorGeometry(tensor.sizes, tensor.strides, tensor.offset).span()[1] >= values.size:
        raise FileError(
            f"{file}: a tensor of sizes {tensor.sizes!r:.200}, strides {tensor.strides!r:.200} and offset "
            f"{tensor.offset!r:.50} does not lie in its storage '{name}' of {values.size} elements"
        )
    if tensor.requires_grad and values.dtype not in dtypes.INEXACT:
        raise FileError(f"{file}: a tensor of dtype {values.dtype.name} is said to require grad")


def _storage(saved: SavedArray, places: Any, file: str) -> Storage:
    """Return the values on a device, or a part of them on each of several, in memory that is not the file's."""
    name, values, location = saved
    where = places.of(location, values.nbytes)
    try:
        narrowed = dtypes.narrowed(values)
        where = settled(where, values.shape)
    except (DtypeDisabledError, OverflowError, PlacementError) as error:
        raise type(error)(f"{file}: '{name}': {error}") from None
    if where.__class__ is DeclaredPlace:
        return Storage(transferred(np.array(narrowed), where), False)
    if isinstance(where, Sharding):
        array = jax.make_array_from_callback(values.shape, where, lambda index: np.array(narrowed[index]))
        return Storage(array, False)
    # Memory of XLA's own: a training's first step is then the program of the second, which donates it.
    return Storage(sent(narrowed, None if where is None or is_default(where) else where), True)


def _dense(tensor: Dense, storage: Storage, alone: bool) -> Tensor:
    array = storage.array
    chain = ViewChain.root(array.shape, array.dtype)
    own = TensorGeometry(tensor.sizes, tensor.strides, tensor.offset)
    if own != chain.geometry:
        chain = chain.view("as_strided", tensor.sizes, tensor.strides, tensor.offset)
    for name, asked in (("conj", tensor.conj), ("neg_view", tensor.neg)):
        if asked:
            chain = chain.view(name)
    if not alone or not chain.is_root:
        return placed(Tensor, storage, chain, tensor.requires_grad, tensor.parameter)
    whole = from_foreign(array, tensor.requires_grad)
    whole._is_param, whole._owned = tensor.parameter, storage._owned
    return whole


def _sparse(tensor: Sparse, made: list[Tensor], file: str) -> Tensor:
    try:
        found = sparse_coo_tensor(
            made[tensor.indices], made[tensor.values], tensor.sizes, check_invariants=True,
            is_coalesced=tensor.coalesced, requires_grad=tensor.requires_grad,
        )  # fmt: skip
    except RuntimeError as error:
        raise FileError(f"{file}: a sparse tensor: {error}") from None
    return found
