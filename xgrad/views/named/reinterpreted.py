"""as_strided, conj, real, imag, view(dtype), ...: return the `ViewChain`, the list of steps, of a new view.

Each function takes the chain from a storage to a tensor (../chain.py), checks its arguments as PyTorch does, and
returns the chain to the new view.  The chain of `as_strided` begins at the storage.
"""

from math import prod
from typing import Any

import numpy as np

from ..chain import ViewChain
from ..geometry import TensorGeometry, check_bounds
from ..value_ops import PARTS, WHOLE, BitCast, Conj, Imag, Neg, Real, ViewAsComplex, ViewAsReal
from ..view_ops import AsStrided, Reshape
from .arguments import int_of, sizes_of


def as_strided(chain: ViewChain, size: Any, stride: Any, storage_offset: int | None = None) -> ViewChain:
    sizes, strides = sizes_of((size,)), sizes_of((stride,))
    offset = chain.geometry.offset if storage_offset is None else int_of(storage_offset)
    if len(sizes) != len(strides):
        raise RuntimeError("mismatch in length of strides and shape")
    if any(n < 0 for n in sizes):
        raise RuntimeError(f"as_strided: sizes must not be negative, got {list(sizes)}")
    if any(s < 0 for s in strides):
        raise RuntimeError(
            f"as_strided: Negative strides are not supported at the moment, got strides: {list(strides)}"
        )
    if offset < 0:
        raise RuntimeError(f"Tensor: invalid storage offset {offset}")
    values = [step for step in chain.steps if isinstance(step, (Conj, Neg))]
    storage = _storage_as(chain)
    check_bounds(TensorGeometry(sizes, strides, offset), prod(storage.shape), storage.dtype.itemsize)
    strided = storage.then(AsStrided(sizes, strides, offset))
    for step in values:
        strided = strided.then(step)
    return strided


def _storage_as(chain: ViewChain) -> ViewChain:
    """Return the whole root of `chain`, in elements of the chain's dtype."""
    root = ViewChain.root(chain.root_shape, chain.root_dtype)
    if root.dtype == chain.dtype:
        return root
    numel = prod(root.shape)
    if PARTS.get(root.dtype) == chain.dtype:
        return root.then(ViewAsReal())
    if WHOLE.get(root.dtype) == chain.dtype and numel % 2 == 0:
        return root.then(Reshape((numel // 2, 2))).then(ViewAsComplex())
    if numel * root.dtype.itemsize % chain.dtype.itemsize:
        raise RuntimeError(
            f"as_strided: a storage of {numel} elements of {root.dtype.name} is not a whole number of "
            f"{chain.dtype.name} elements"
        )
    return root.then(Reshape((numel,))).then(BitCast(chain.dtype))


def alias(chain: ViewChain) -> ViewChain:
    return chain


def conj(chain: ViewChain) -> ViewChain:
    return chain.then(Conj()) if chain.dtype.kind == "c" else chain


def neg_view(chain: ViewChain) -> ViewChain:
    return chain.then(Neg())


def real(chain: ViewChain) -> ViewChain:
    return chain.then(Real()) if chain.dtype.kind == "c" else chain


def imag(chain: ViewChain) -> ViewChain:
    if chain.dtype.kind != "c":
        raise RuntimeError("imag is not implemented for tensors with non-complex dtypes.")
    return chain.then(Imag())


def view_as_real(chain: ViewChain) -> ViewChain:
    if chain.dtype.kind != "c":
        raise RuntimeError("view_as_real is only supported for complex tensors")
    if any(isinstance(step, Conj) for step in chain.steps):
        raise RuntimeError(
            "view_as_real doesn't work on unresolved conjugated tensors. To resolve the conjugate tensor so you can "
            "view it as real, use self.resolve_conj(); however, be warned that the resulting tensor will NOT alias the "
            "original."
        )
    return chain.then(ViewAsReal())


def view_as_complex(chain: ViewChain) -> ViewChain:
    if chain.dtype not in WHOLE:
        raise RuntimeError(
            "view_as_complex is only supported for float and double tensors, but got a tensor of dtype "
            f"{chain.dtype.name}"
        )
    if not chain.shape:
        raise RuntimeError("Input tensor must have one or more dimensions")
    if chain.shape[-1] != 2:
        raise RuntimeError("Tensor must have a last dimension of size 2")
    seen = chain.geometry
    if seen.strides[-1] != 1:
        raise RuntimeError("Tensor must have a last dimension with stride 1")
    if any(s % 2 for n, s in zip(seen.sizes[:-1], seen.strides) if n > 1):
        raise RuntimeError("Tensor must have a stride divisible by 2 for all but last dimension")
    if seen.offset % 2:
        raise RuntimeError("Tensor must have a storage_offset divisible by 2")
    return chain.then(ViewAsComplex())


def view_dtype(chain: ViewChain, dtype: Any) -> ViewChain:
    try:
        new = np.dtype(dtype)
    except TypeError:
        raise TypeError(f"view(): expected sizes or a dtype, but got {dtype!r}") from None
    old, seen = chain.dtype, chain.geometry
    if new == old:
        return chain
    if any(isinstance(step, (Conj, Neg)) for step in chain.steps):
        raise RuntimeError(
            "view(dtype) is not supported for conjugate or negative views: they have no bytes of their own. clone() "
            "the tensor first."
        )
    if new.itemsize != old.itemsize:
        what = f"to view {old.name} as {new.name} (different element sizes)"
        if not chain.shape:
            raise RuntimeError(f"self.dim() cannot be 0 {what}")
        if seen.sizes[-1] > 1 and seen.strides[-1] != 1:
            raise RuntimeError(f"self.stride(-1) must be 1 {what}, but got {seen.strides[-1]}")
        ratio = new.itemsize // old.itemsize
        if ratio > 1:
            if seen.sizes[-1] % ratio:
                raise RuntimeError(f"self.size(-1) must be divisible by {ratio} {what}, but got {seen.sizes[-1]}")
            if seen.offset % ratio:
                raise RuntimeError(f"self.storage_offset() must be divisible by {ratio} {what}, but got {seen.offset}")
            for d, (n, s) in enumerate(zip(seen.sizes[:-1], seen.strides)):
                if n > 1 and s % ratio:
                    raise RuntimeError(f"self.stride({d}) must be divisible by {ratio} {what}, but got {s}")
    return chain.then(BitCast(new))
