"""saved_of: reads the values that a node saved for backward, for pictures, without unpacking or evaluating anything."""

from math import prod
from typing import Any, NamedTuple

from ..base.table import size
from ..dispatch.operator_node import OperatorNode
from ..dispatch.saved_attributes import kept_names
from ..engine.copy_slices import CopySlices
from ..engine.python_function import BackwardCFunction
from ..engine.saved_variable import RELEASED, SavedVariable
from ..tensor import Tensor


class Saved(NamedTuple):
    """One saved value: the formula's name of it, shape, dtype, bytes, an identity that equal arrays share, a remark.

    A view counts the bytes of its root array, which it keeps alive; `part_of` says so.
    """

    name: str
    shape: tuple[int, ...]
    dtype: Any
    nbytes: int
    identity: Any
    remark: str = ""
    part_of: str = ""

    def __str__(self) -> str:
        what = "" if self.dtype is None else f"{shape_of(self.shape, self.dtype)} {self.part_of}{size(self.nbytes)}"
        return " ".join(part for part in ("saves", self.name, what, self.remark) if part)


def saved_of(node: Any) -> list[Saved]:
    """Return what a node saved; of a CopySlices, what the node inside saved."""
    if isinstance(node, CopySlices):
        return [] if node.fn is None else saved_of(node.fn)
    if isinstance(node, OperatorNode):
        if node.saved is RELEASED:
            return [Saved("", (), None, 0, None, "nothing more: released")]
        pairs = zip(kept_names(node), node.saved, strict=False)
    elif isinstance(node, BackwardCFunction):
        if node._saved is None:
            return [Saved("", (), None, 0, None, "nothing more: released")]
        pairs = ((f"tensor {i}", entry) for i, entry in enumerate(node._saved))
    else:
        residuals = getattr(node, "_residuals", None) or ()  # of a compiled function
        pairs = ((f"residual {i}", entry) for i, entry in enumerate(residuals))
    return [saved for name, entry in pairs if (saved := _one(name, entry)) is not None]


def _one(name: str, entry: Any) -> Saved | None:
    if isinstance(entry, SavedVariable):
        return _variable(name, entry)
    if isinstance(entry, Tensor):
        return of_tensor(name, entry)
    if hasattr(entry, "shape") and hasattr(entry, "dtype"):
        return _of_array(name, entry)
    return None  # a number


def _variable(name: str, entry: SavedVariable) -> Saved | None:
    if entry.released:
        return Saved(name, (), None, 0, None, "released")
    if entry._unpack is not None:
        hook = getattr(entry._unpack, "__name__", type(entry._unpack).__name__)
        packed = entry._packed
        if isinstance(packed, Tensor):
            return of_tensor(name, packed)._replace(remark=f"packed, {hook}")
        return Saved(name, (), None, 0, None, f"{list(entry._shape)} packed as {type(packed).__name__}, {hook}")
    if entry._tensor is not None:
        return of_tensor(name, entry._tensor)
    value = entry._array if entry._twin is None else entry._twin
    if value is None:
        return None
    return of_tensor(name, value) if isinstance(value, Tensor) else _of_array(name, value)


def of_tensor(name: str, tensor: Tensor) -> Saved:
    """Return a tensor as a saved value.  A view shares the bytes of its base."""
    storage = tensor._storage
    if storage is not None:
        root, chain = storage._array, tensor._chain
        part_of = "" if chain.is_root else "view of "
        nbytes = 0 if root is None else nbytes_of(root)
        return Saved(name, tuple(tensor.shape), tensor.dtype, nbytes, ("array", id(root)), part_of=part_of)
    identity = ("array", id(tensor._array)) if tensor._array is not None else ("tensor", id(tensor))
    return Saved(name, tuple(tensor.shape), tensor.dtype, nbytes_of(tensor), identity)


def _of_array(name: str, array: Any) -> Saved:
    shape = tuple(array.shape)
    return Saved(name, shape, array.dtype, nbytes_of(array), ("array", id(array)))


def nbytes_of(array: Any) -> int:
    """Return the bytes of a tensor's or an array's elements."""
    try:
        return prod(array.shape) * array.dtype.itemsize
    except TypeError:  # a dimension of a trace is not a number
        return 0


def shape_of(shape: Any, dtype: Any) -> str:
    """Return a shape as a text, with the dtype where that is not float32."""
    name = getattr(dtype, "name", str(dtype))
    return f"{list(shape)}" if name == "float32" else f"{list(shape)} {name}"
