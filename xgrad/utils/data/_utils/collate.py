"""default_collate, default_convert: make one batch of a list of samples (PyTorch: torch/utils/data/_utils/collate.py).

Numbers and arrays are stacked by NumPy, so a batch is one transfer.  Tensors are stacked by one program; rows of one
tensor, as `data[i]` gives them, are read by one gather.
"""

import copy
from collections.abc import Callable, Mapping, MutableMapping, MutableSequence, Sequence
from typing import Any

import numpy as np

from ....base import dtypes
from ....dispatch.tables import FUNCTIONS
from ....ops.create.from_data import as_tensor
from ....tensor import Tensor
from .rows import gathered

__all__ = ["collate", "default_collate", "default_collate_fn_map", "default_convert"]

CollateMap = dict[Any, Callable[..., Any]]

_UNKNOWN = "default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; found {}"
_CUSTOM = "please provide a custom collate_fn to handle them appropriately."


def default_convert(data: Any) -> Any:
    """Return a sample with tensors in the place of NumPy's arrays and numbers; containers keep their types.

    A `DataLoader` without batches (`batch_size=None`) applies it.

    >>> import numpy as np
    >>> from xgrad.utils.data import default_convert
    >>> default_convert({"x": np.array([0, 1], np.int32), "name": "a", "n": 3})
    {'x': tensor([0, 1], dtype=xgrad.int32), 'name': 'a', 'n': 3}
    """
    if isinstance(data, (np.ndarray, np.generic)):
        return data if data.dtype.kind in "SUO" else as_tensor(data)
    if isinstance(data, Mapping):
        return _mapping(data, lambda key: default_convert(data[key]))
    if isinstance(data, tuple):
        return _tuple(data, [default_convert(item) for item in data])
    if isinstance(data, Sequence) and not isinstance(data, (str, bytes)):
        return _sequence(data, [default_convert(item) for item in data])
    return data


def _mapping(like: Mapping[Any, Any], value: Callable[[Any], Any]) -> Any:
    """Return a mapping of the same type with new values; a plain dictionary if the type takes none."""
    new = {key: value(key) for key in like}
    try:
        if isinstance(like, MutableMapping):
            clone = copy.copy(like)
            clone.update(new)
            return clone
        return type(like)(new)  # pyright: ignore[reportCallIssue]
    except TypeError:
        return new


def _tuple(like: tuple[Any, ...], new: list[Any]) -> Any:
    return type(like)(*new) if hasattr(like, "_fields") else new  # of a plain tuple PyTorch makes a list


def _sequence(like: Sequence[Any], new: list[Any]) -> Any:
    try:
        if isinstance(like, MutableSequence):
            clone = copy.copy(like)
            for i, item in enumerate(new):
                clone[i] = item
            return clone
        return type(like)(new)  # pyright: ignore[reportCallIssue]
    except TypeError:
        return new


def collate(batch: Sequence[Any], *, collate_fn_map: CollateMap | None = None) -> Any:
    """Return the samples as one: mappings and sequences item by item, others by the function for their type.

    collate_fn_map: `{type or tuple of types: function(batch, *, collate_fn_map)}`; a type of its own comes before the
    types that it is an instance of, and those in the order of the map.  Raises `TypeError` for other samples,
    `RuntimeError` for sequences of different lengths.
    """
    first = batch[0]
    functions = collate_fn_map or {}
    function = functions.get(type(first))
    if function is None:
        function = next((found for kind, found in functions.items() if isinstance(first, kind)), None)
    if function is not None:
        return function(batch, collate_fn_map=collate_fn_map)
    if isinstance(first, Mapping):
        return _mapping(first, lambda key: collate([item[key] for item in batch], collate_fn_map=collate_fn_map))
    if isinstance(first, Sequence):
        named = isinstance(first, tuple) and hasattr(first, "_fields")
        if not named and any(len(item) != len(first) for item in batch):
            raise RuntimeError("each element in list of batch should be of equal size")
        columns = [collate(column, collate_fn_map=collate_fn_map) for column in zip(*batch)]
        return _tuple(first, columns) if isinstance(first, tuple) else _sequence(first, columns)
    raise TypeError(_UNKNOWN.format(type(first)))


def _tensors(batch: Sequence[Tensor], *, collate_fn_map: CollateMap | None = None) -> Tensor:
    layout = batch[0].layout
    if layout != "strided":
        raise RuntimeError(
            f"Batches of sparse tensors are not currently supported by the default collate_fn (got {layout}); {_CUSTOM}"
        )
    rows = gathered(batch)
    return FUNCTIONS[""]["stack"](list(batch)) if rows is None else rows


def _arrays(batch: Sequence[np.ndarray], *, collate_fn_map: CollateMap | None = None) -> Any:
    if batch[0].dtype.kind in "SUO":
        raise TypeError(_UNKNOWN.format(batch[0].dtype))
    if any(item.shape != batch[0].shape for item in batch):
        shapes = sorted({item.shape for item in batch})
        raise RuntimeError(f"stack expects each tensor to be equal size, but got arrays of the shapes {shapes}")
    return as_tensor(np.stack(batch))


def _scalars(batch: Sequence[Any], *, collate_fn_map: CollateMap | None = None) -> Tensor:
    return as_tensor(np.asarray(batch))


def _floats(batch: Sequence[float], *, collate_fn_map: CollateMap | None = None) -> Tensor:
    # PyTorch's are float64, which JAX has while x64 is on; nobody asked for it by name.
    return as_tensor(np.asarray(batch, dtypes.as_dtype(float)))


def _integers(batch: Sequence[int], *, collate_fn_map: CollateMap | None = None) -> Tensor:
    return FUNCTIONS[""]["tensor"](list(batch))


def _texts(batch: Sequence[Any], *, collate_fn_map: CollateMap | None = None) -> Any:
    return batch


default_collate_fn_map: CollateMap = {
    Tensor: _tensors,
    np.ndarray: _arrays,
    (np.bool_, np.number, np.object_): _scalars,
    float: _floats,
    int: _integers,
    str: _texts,
    bytes: _texts,
}


def default_collate(batch: Sequence[Any]) -> Any:
    """Return a batch: each tensor, array or number of the samples gets a new first dimension, of the batch's size.

    Dictionaries, named tuples and lists stay what they are, tuples become lists; strings stay strings.  Python's floats
    become float64 while x64 is on, else the default dtype.  `default_collate_fn_map` can be given other types.

    Raises `TypeError` for samples of other types, `RuntimeError` for samples of different shapes or lengths.

    Source: PyTorch's `default_collate`.

    >>> from xgrad.utils.data import default_collate
    >>> default_collate([{"x": [0, 1], "name": "a"}, {"x": [2, 3], "name": "b"}])
    {'x': [tensor([0, 2]), tensor([1, 3])], 'name': ['a', 'b']}
    """
    return collate(batch, collate_fn_map=default_collate_fn_map)
