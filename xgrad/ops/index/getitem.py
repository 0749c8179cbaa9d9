"""getitem, setitem: implement `x[index]` and `x[index] = value` for tensors, by PyTorch's rules.

Integers, slices, None and Ellipsis make a view, by one look-up if it was made before (views/chain.py).  Tensors, lists
and masks make an `index` of that view; its result is in place of the indexed dimensions if these are adjacent, else in
front.  An integer is a view even beside a tensor, so it never counts as an advanced index (in NumPy it does).
"""

import warnings
from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import numpy as np

from ...base import dtypes
from ...dispatch.call import call
from ...dispatch.ruled_views import aliased
from ...dispatch.tables import METHODS
from ...dispatch.view import view
from ...tensor import Tensor
from ..create.from_data import tensor
from ..create.scalars import assigned_number
from .index_checks import Tracer
from .index_put import expand_masks, index_, write_at

_AS_ARRAY = 32  # a sequence of this length or more is never read as a tuple
_WHOLE = ("slice", None, None, None)
_SELECT, _SLICE, _UNSQUEEZE, _ALIAS = "SelectBackward0", "SliceBackward0", "UnsqueezeBackward0", "AliasBackward0"


def _bound(value: Any) -> int | None:
    """A slice's bound as an int or None; it may be a 0-dim tensor."""
    if value is None or value.__class__ is int:
        return value
    try:
        return value.__index__()
    except AttributeError:
        raise TypeError("slice indices must be integers or None or have an __index__ method") from None


def _basic(index: tuple) -> tuple | None:
    """(key, node's name) for an index of integers, slices, None and Ellipsis; None for any other index."""
    key: list = []
    name = _ALIAS
    for i in index:
        kind = i.__class__
        if kind is int:
            key.append(i)
            name = _SELECT
        elif kind is slice:
            start, stop, step = i.start, i.stop, i.step
            if stop is None and (start is None or start == 0) and (step is None or step == 1):
                key.append(_WHOLE)
                continue
            key.append(("slice", _bound(start), _bound(stop), _bound(step)))
            name = _SLICE
        elif i is None:
            key.append(None)
            name = _UNSQUEEZE
        elif i is Ellipsis:
            key.append(i)
        else:
            return None
    return ("getitem", tuple(key)), name


def getitem(self: Tensor, index: Any) -> Tensor:
    """`self[index]`: a view for integers, slices, None and Ellipsis; a copy for tensors, lists and masks.

    Raises `IndexError` for an index out of range, too many indices, or a mask of another shape; `ValueError` for a
    slice with a negative step.

    >>> import xgrad
    >>> x = xgrad.arange(6).reshape(2, 3)
    >>> x[1, xgrad.tensor([2, 0])]
    tensor([5, 3])
    """
    kind = index.__class__
    if kind is int:
        return view(self, ("getitem", (index,)), _SELECT)
    if kind is slice:
        key = ("slice", _bound(index.start), _bound(index.stop), _bound(index.step))
        return view(self, ("getitem", (key,)), _SLICE)
    if kind is tuple:
        basic = _basic(index)
        if basic is not None:
            return view(self, *basic)
    part, indices = _resolve(self, index)
    if not indices:
        return part
    places, tensors = expand_masks(part, indices)
    result = call(index_.operator, (part, *tensors), (places,))
    if result._grad_fn is not None and any(i is not None and i._dtype in (dtypes.bool, dtypes.uint8) for i in indices):
        result._grad_fn.indices = tuple(indices)
    return result


def _resolve(self: Tensor, index: Any, making: Any = None) -> tuple[Tensor, list]:
    """Split an index: the view by integers, slices, None and Ellipsis; an index tensor or None for each dimension.

    `making`: the function that makes a view to be written.
    """
    make = view if making is None else partial(making, view)
    entries = [_entry(i) for i in _as_tuple(index)]
    used = sum(_consumed(i) for i in entries)
    if used > self.ndim:
        raise IndexError(f"too many indices for tensor of dimension {self.ndim}")
    key: list = []
    indices: list = []
    dim = 0  # of self
    for number, i in enumerate(entries):
        n = _consumed(i)
        if i.__class__ is bool:  # a new dimension of size 1 that is taken or not
            key.append(None)
            indices.append(tensor([0] if i else [], dtype=int))
        elif isinstance(i, Tensor):
            if i._dtype in (dtypes.bool, dtypes.uint8) and tuple(i.shape) != tuple(self.shape[dim : dim + n]):
                raise IndexError(
                    f"The shape of the mask {list(i.shape)} at index {number} does not match the shape of the indexed "
                    f"tensor {list(self.shape)} at index {dim}"
                )
            key += [_WHOLE] * n
            indices.append(i)
        else:
            key.append(i)
            if i is None or i.__class__ is slice:
                indices.append(None)
            elif i is Ellipsis:
                indices += [None] * (self.ndim - used)
                n = self.ndim - used
        dim += n
    while indices and indices[-1] is None:
        indices.pop()
    if all(i is Ellipsis or i is _WHOLE for i in key):
        return self if indices else make(self, ("getitem", tuple(key)), _ALIAS), indices
    basic = _basic(tuple(slice(None) if i is _WHOLE else i for i in key))
    assert basic is not None
    return make(self, *basic), indices


def _as_tuple(index: Any) -> tuple:
    """The entries of an index; a sequence may be read as a tuple of entries."""
    if isinstance(index, tuple):
        return index
    if not _stands_for_a_tuple(index):
        return (index,)
    warnings.warn(
        "Using a non-tuple sequence for multidimensional indexing is deprecated: use x[tuple(seq)] instead of x[seq]. "
        "PyTorch announces that it will be read as a tensor index, x[tensor(seq)].",
        stacklevel=4,
    )
    return tuple(index)


def _is_sequence(x: Any) -> bool:
    """True if x can be indexed by position (Python's PySequence_Check); NumPy's scalars can only be by ()."""
    return hasattr(x, "__getitem__") and not isinstance(x, (dict, np.generic))


def _stands_for_a_tuple(index: Any) -> bool:
    """PyTorch's treatSequenceAsTuple, which is NumPy's old rule: a short sequence that contains more than numbers."""
    if isinstance(index, (Tensor, np.ndarray, jax.Array)) or not _is_sequence(index) or len(index) >= _AS_ARRAY:
        return False
    return any(i is None or i is Ellipsis or isinstance(i, slice) or _is_sequence(i) for i in index)


def _entry(i: Any) -> Any:
    """Convert one entry to int, slice, None, Ellipsis, bool or an index tensor with dimensions."""
    if i is None or i is Ellipsis or i.__class__ in (bool, int, slice):
        return i
    if isinstance(i, Sequence):
        i = _listed(i)
    elif isinstance(i, (np.ndarray, jax.Array)):
        i = tensor(i if i.dtype.kind == "b" or i.dtype == np.uint8 or i.dtype.kind not in "iu" else i.astype(int))
    if isinstance(i, Tensor):
        if i._dtype in dtypes.INEXACT:
            raise IndexError("tensors used as indices must be long, int, byte or bool tensors")
        if i.ndim or i._level is not None or isinstance(i._read(), Tracer):
            return i
        return bool(i) if i._dtype in (dtypes.bool, dtypes.uint8) else int(i)
    try:
        return i.__index__()
    except (AttributeError, TypeError):
        raise IndexError(
            "only integers, slices (`:`), ellipsis (`...`), None and long or byte Variables are valid indices (got "
            f"{type(i).__name__})"
        ) from None


def _listed(values: Sequence) -> Tensor:
    """Make the index tensor of a sequence of numbers, truncated to integers unless they are bools."""
    strange = next((v for v in (values, *values) if isinstance(v, (str, bytes))), None)
    if strange is not None:
        raise TypeError(f"new(): invalid data type '{type(strange).__name__}'")
    found = tensor(list(values))
    return found.to(int) if found.dtype in dtypes.INEXACT else found


def _consumed(i: Any) -> int:
    """The number of dimensions that an entry indexes."""
    if isinstance(i, Tensor):
        return i.ndim if i._dtype in (dtypes.bool, dtypes.uint8) else 1
    return 0 if i is None or i is Ellipsis or i.__class__ is bool else 1


def setitem(self: Tensor, index: Any, value: Any) -> None:
    """`self[index] = value`, recorded: `copy_` into a view, `index_put_` for tensors, `masked_fill_` for a mask."""
    if index is False:  # PyTorch checks no shape, and does not bump the version
        _assigned(value, self, self.ndim)
        return
    kind = index.__class__
    basic = _basic(index if kind is tuple else (index,))
    if basic is not None:
        part = aliased(view, self, *basic)
        part.copy_(_assigned(value, self, part.ndim))
        return
    part, indices = _resolve(self, index, aliased)
    if not indices:
        part.copy_(_assigned(value, self, part.ndim))
        return
    if isinstance(value, (int, float, complex)):
        value = _assigned(value, self, 0)
    scalar = value.ndim == 0 if isinstance(value, Tensor) else isinstance(value, (int, float, complex))
    masks = [i for i in indices if i is not None]
    if scalar and len(masks) == 1 and masks[0].dtype == dtypes.bool:
        before, mask = indices.index(masks[0]), masks[0]
        after = part.ndim - before - mask.ndim
        part.masked_fill_(mask.reshape((*mask.shape, *(1,) * after)), value)
        return
    places, tensors = expand_masks(part, indices)
    limit = part.ndim - len(places) + max((i.ndim for i in tensors), default=0)
    write_at(part, places, tensors, _assigned(value, self, limit), False, True)


def _assigned(value: Any, self: Tensor, ndim: int) -> Any:
    """The assigned value, as a number or a tensor of at most `ndim` dimensions: leading ones of size 1 are dropped.

    An array of NumPy's that does not fit raises an error, as for any operator, before it is cast to the dtype of
    `self`.
    """
    if isinstance(value, np.generic):
        value = value.item()
    elif isinstance(value, (np.ndarray, jax.Array)):
        value = tensor(value).to(self.dtype)
    if isinstance(value, Tensor):
        extra = value.ndim - ndim
        if extra > 0 and all(n == 1 for n in value.shape[:extra]):
            return value.reshape(tuple(value.shape[extra:]))
        return value
    if isinstance(value, (bool, int, float, complex)):
        return assigned_number(value, self._dtype)
    raise TypeError(f"can't assign a {type(value).__name__} to a tensor: make it a tensor first")


METHODS["__getitem__"], METHODS["__setitem__"] = getitem, setitem
