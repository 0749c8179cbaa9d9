"""resize_, resize_as_: give a tensor another shape in place, over the same storage, which grows if it is too small.

PyTorch's storage is memory, and a tensor shows a part of it; here it is an array, and the part a view.  An array cannot
grow: a tensor that is its storage's only one gets a larger array.  For a shared storage growing is an error, because
the other tensors would not share the new array.  New elements are 0.  (PyTorch: aten/src/ATen/native/Resize.cpp.)
"""

from math import prod
from typing import Any

from ...base import limits
from ...config import state
from ...dispatch.declare import composite
from ...execution.references import is_alone
from ...tensor import Tensor
from ...views.chain import ViewChain
from ...views.geometry import contiguous_strides
from ...views.named.arguments import variadic
from ...views.storage import Storage, VersionCounter


def _refuse(self: Tensor) -> None:
    if self._level is not None:
        raise NotImplementedError("resize_ inside of vmap: the entries of a batch have one shape")
    if self.requires_grad and not state.inference:
        raise RuntimeError("cannot resize variables that require grad")
    if self._moves():
        raise RuntimeError("cannot resize variables that has a forward grad")


def _grown(self: Tensor, count: int) -> Storage:
    """Make a flat storage of `count` elements for a tensor that is the only one over its storage."""
    box = [self._share()]
    attributes = self.__dict__
    attributes["_storage"] = None  # so that `box` has the only reference
    try:
        alone = self._view is None and is_alone(box)
    finally:
        attributes["_storage"] = box[0]
    if not alone:
        raise RuntimeError(
            f"Trying to resize storage that is not resizable: it is shared with other tensors, and has "
            f"{box[0].array.size} elements where {count} are asked for. Make a clone() first."
        )
    flat = box[0].array.reshape(-1)
    try:
        grown = limits.zeros((count,), self.dtype).at[: flat.size].set(flat)
    except Exception as error:
        raise limits.out_of_memory(error) or error from None
    return Storage(grown, True, self._version_counter)


@composite("resize_", function=False)
def resize_(input: Tensor, *sizes: Any, memory_format: Any = None, **named: Any) -> Tensor:
    """Give the tensor another shape, in place: the first elements of its storage, which grows if it has to.

    New elements are 0.  Raises `RuntimeError` for a tensor that requires grad, for one that shares its storage with
    others where that had to grow, and for a view that shows its storage in another dtype or conjugated.

    >>> import xgrad
    >>> xgrad.tensor([1, 2, 3]).resize_(2, 2)
    tensor([[1, 2],
            [3, 0]])
    """
    shape = variadic("resize_", "size", sizes, named)
    if any(n < 0 for n in shape):
        raise RuntimeError(f"Trying to create tensor with negative dimension {min(shape)}: {list(shape)}")
    _refuse(input)
    if shape == tuple(input.shape):
        return input
    limits.check_size(shape, input.dtype)
    storage, offset = input._share(), input.storage_offset()
    if storage.array.dtype != input.dtype or input.is_conj() or input.is_neg():
        raise RuntimeError(
            f"resize_ of a view that shows its storage of {storage.array.dtype.name} in another way (view(dtype), "
            "real, imag, conj): make a clone() first"
        )
    count = offset + prod(shape)
    if count > storage.array.size:
        del storage
        storage = _grown(input, count)
    root = ViewChain.root(storage.array.shape, storage.array.dtype)
    seen = root.view("as_strided", shape, contiguous_strides(shape), offset)
    assert seen is not None
    # For autograd, if the tensor or its base will ever require grad: a chain over the base's first value, which must be
    # the whole storage.
    meta, counter = input._view, input._version_counter
    changed: dict[str, Any] = {"_storage": storage, "_chain": seen, "_cache": None, "_cache_generation": -1}
    if meta is None:
        if input._chain.is_root or input._chain is input._moved or storage is not input._storage:
            changed["_moved"] = seen
    elif not ((chain := meta.base._chain).is_root or chain is meta.base._moved):
        raise RuntimeError("resize_ of a view whose base never showed its whole storage: make a clone() first")
    if counter.__class__ is VersionCounter:
        assert counter is not None
        if meta is not None:
            meta.chain = seen
        counter.value += 1
        input.__dict__.update(changed)  # one call in C: no interrupt can come between the assignments
    else:
        input._bump()
        if meta is not None:
            meta.chain = seen
        input.__dict__.update(changed)
    return input


@composite("resize_as_")
def resize_as_(input: Tensor, the_template: Tensor, *, memory_format: Any = None) -> Tensor:
    """`input.resize_(the_template.shape)`."""
    return resize_(input, tuple(the_template.shape))
