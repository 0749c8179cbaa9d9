"""Lets `copy`, `deepcopy` and `pickle` take tensors (PyTorch: `Tensor.__deepcopy__`, `__reduce_ex__`, torch/_utils.py).

Invariants: tensors that share a storage in one call of deepcopy or pickle share one afterwards, as the same views of
it, but deepcopy gives each Parameter a storage of its own; class, requires_grad and the user's attributes are copied,
hooks and history are not.  A deep copy shares the immutable array until one of the two is written.  A pickle has
bytes, a shape and the name of a dtype, and no JAX objects.
"""

import copy
import pickle
import warnings
from typing import Any

import numpy as np

from ..base import dtypes
from ..base.declared import AbsentDevice, registered
from ..base.devices import device, device_of, placement_of, require_here
from ..config import state
from ..engine.hooks import hooks_of
from ..execution.pending import declared_of
from ..execution.runner import transferred
from ..tensor import SAME, Tensor, from_foreign, mark
from ..views.chain import ViewChain
from ..views.storage import Storage, Tracer, VersionCounter, value_needed

_OWN = frozenset(vars(Tensor))  # Tensor's own entries of an instance's dictionary; all others are the user's


def attributes_of(self: Tensor) -> dict[str, Any]:
    return {name: value for name, value in self.__dict__.items() if name not in _OWN}


def placed(cls: type[Any], storage: Storage, chain: ViewChain | None, requires_grad: bool, parameter: bool) -> Any:
    """Make a leaf that is the view `chain` of a storage; without a chain, the whole of it."""
    new = object.__new__(cls)
    new._storage, new._version_counter = storage, VersionCounter()
    new._chain = ViewChain.root(storage.array.shape, storage.array.dtype) if chain is None else chain
    if requires_grad:
        new._requires_grad = True
    return _finished(new, parameter)


def _finished(new: Any, parameter: bool) -> Any:
    if parameter:
        new._is_param = True
    if state.inference:
        mark(new)
    return new


def shallow_copy(self: Tensor) -> Any:
    """`copy.copy`: another leaf over the same storage, with the attributes, and a version counter of its own."""
    storage = self._share()
    new = placed(type(self), storage, self._chain, self.requires_grad, self._is_param)
    new.__dict__.update(attributes_of(self))
    return new


def deep_copy(self: Tensor, memo: dict[int, Any]) -> Any:
    """`copy.deepcopy`: a leaf with a storage of its own, its gradient and attributes copied; hooks are not.

    A Parameter's gradient is not copied, and its copy shares its storage with no other copy, as in PyTorch.  Raises
    `RuntimeError` for a non-leaf.
    """
    if id(self) in memo:
        return memo[id(self)]
    if not self.is_leaf:
        raise RuntimeError(
            "Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol at the moment; "
            "detach().clone() the tensor first."
        )
    storage = None if self._is_param else self._storage  # PyTorch clones a Parameter
    if storage is None:
        new = object.__new__(type(self))
        new._array, new._owned = self._read(), False
        new._requires_grad = self._requires_grad
        _finished(new, self._is_param)
    else:
        twin = memo.get(id(storage))
        if twin is None:
            twin = memo[id(storage)] = Storage(storage.array, False)
            memo.setdefault(id(memo), []).append(storage)  # a reference keeps the storage alive while its id is a key
        new = placed(type(self), twin, self._chain, self._requires_grad, self._is_param)
    memo[id(self)] = new
    if self._grad is not None and not self._is_param:
        new._grad = copy.deepcopy(self._grad, memo)
    if self._grad_dtype is not SAME:
        new._grad_dtype = self._grad_dtype
    for name, value in attributes_of(self).items():
        new.__dict__[name] = copy.deepcopy(value, memo)
    return new


# -- pickle ------------------------------------------------------------------------------------------------------------


def reduce(self: Tensor, protocol: Any) -> tuple[Any, ...]:
    """The data that pickle stores: storage, view chain, class, requires_grad, attributes.  A non-leaf loads as a leaf.

    Warns of hooks, which are not stored.  Raises `PicklingError` for a tensor that is being traced.
    """
    for hook in _hooks(self):
        if not getattr(hook, "__xgrad_unserializable__", False):
            warnings.warn(
                f"backward hook {hook!r} on tensor will not be serialized.  If this is expected, set the function's "
                "attribute __xgrad_unserializable__ to suppress this warning.",
                stacklevel=2,
            )
    place: Any = self._storage
    chain = None if place is None else self._chain
    if place is None:
        place = _Array(self._read())
    arguments = (type(self), place, chain, self.requires_grad, self._is_param)
    attributes = attributes_of(self)
    return (_rebuild_tensor, arguments, attributes) if attributes else (_rebuild_tensor, arguments)


def _hooks(self: Tensor) -> list:
    """The tensor hooks, in the order in which they run."""
    hooks = self._hooks if self._grad_fn is None else hooks_of(self)
    return [] if hooks is None else list(hooks.values())


class _Array:
    """Pickles an array as bytes, shape and the name of its dtype, and unpickles as a NumPy array."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        array = self.array
        if isinstance(array, Tracer):
            raise value_needed(
                array,
                "a tensor that is being traced (inside jax.jit, say) has no value to pickle",
                pickle.PicklingError,
            )
        require_here(array, "pickling a tensor")
        host = np.ascontiguousarray(np.asarray(array)).reshape(-1).view(np.uint8)
        data = pickle.PickleBuffer(host.data) if protocol >= 5 else host.tobytes()
        rebuilt = data, tuple(array.shape), array.dtype.name
        declared = declared_of(array)
        if declared is not None:
            return _rebuild_declared, (*rebuilt, declared.name)
        where = device_of(array)
        return _rebuild_array, (*rebuilt, where) if where.chosen and not where._several else rebuilt


def _reduce_storage(self: Storage, protocol: Any) -> tuple:
    return _rebuild_storage, (_Array(self.array),)


def _rebuild_array(data: Any, shape: tuple, dtype: str, where: device | None = None) -> Any:
    array = np.frombuffer(data, np.uint8).view(getattr(dtypes, dtype)).reshape(shape)
    here = where is not None and where.placement.__class__ is not AbsentDevice  # else on the default device
    return transferred(np.array(array), placement_of(where)) if here else array


def _rebuild_declared(data: Any, shape: tuple, dtype: str, name: str) -> Any:
    place = registered(name)
    if place is None:
        raise RuntimeError(
            f"the pickle has a tensor of the declared backend '{name}', which is not registered here: declare it, and "
            f"call register(), before the pickle is loaded"
        )
    return transferred(_rebuild_array(data, shape, dtype), place)


def _rebuild_storage(array: np.ndarray) -> Storage:
    return Storage(_own(array), False)


def _own(array: np.ndarray) -> Any:
    """Copy a loaded array to the default device; without a copy device_put might share its memory."""
    return from_foreign(np.array(array))._array if array.__class__ is np.ndarray else array


def _rebuild_tensor(cls: type, place: Any, chain: ViewChain | None, requires_grad: bool, parameter: bool) -> Any:
    if isinstance(place, Storage):
        return placed(cls, place, chain, requires_grad, parameter)
    new = object.__new__(cls)
    new._array, new._owned = _own(place), False
    if requires_grad:
        new._requires_grad = True
    return _finished(new, parameter)


def set_state(self: Tensor, state: Any) -> None:
    """Set the attributes of a leaf that was just loaded."""
    if not self.is_leaf:
        raise RuntimeError("__setstate__ can be only called on leaf Tensors")
    if not isinstance(state, dict):
        raise ValueError(f"expected the dictionary of attributes that was pickled, but got {type(state).__name__}")
    self.__dict__.update((name, value) for name, value in state.items() if name not in _OWN)


def attach(tensor: Any) -> None:
    """Give `Tensor` and `Storage` these methods."""
    tensor.__copy__, tensor.__deepcopy__ = shallow_copy, deep_copy
    tensor.__reduce_ex__, tensor.__setstate__ = reduce, set_state
    Storage.__reduce_ex__ = _reduce_storage
