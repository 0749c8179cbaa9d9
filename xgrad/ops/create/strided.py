"""empty_strided, new_empty_strided, empty_permuted: make tensors with given strides.

XLA's arrays have no strides, so each result is a view of a contiguous storage.
"""

from math import prod
from typing import Any

from ...dispatch.declare import composite
from ...tensor import Tensor
from ...views.named.arguments import sizes_of
from .factories import checked_sizes, empty, like
from .from_data import finish


@composite(method=False)
def empty_strided(size: Any, stride: Any, *, pin_memory: bool = False, **options: Any) -> Tensor:
    """A tensor with the given strides, as a view of a fresh storage that is just large enough."""
    size, stride = checked_sizes(size), sizes_of((stride,))
    span = 1 + sum((n - 1) * s for n, s in zip(size, stride)) if prod(size) else 0
    storage = empty(span, **{k: v for k, v in options.items() if k != "requires_grad"})
    return finish(storage.as_strided(size, stride).detach(), options.get("requires_grad", False))


@composite(function=False)
def new_empty_strided(
    input: Tensor, size: Any, stride: Any, *, pin_memory: bool = False, **options: Any
) -> Tensor:  # fmt: skip
    """A tensor with the given strides, of this tensor's dtype and device."""
    return empty_strided(size, stride, **{"dtype": input.dtype, "device": like(input, False), **options})


@composite(method=False)
def empty_permuted(size: Any, physical_layout: Any, *, pin_memory: bool = False, **options: Any) -> Tensor:
    """A tensor whose dimensions lie in memory in the order `physical_layout`."""
    size, order = checked_sizes(size), sizes_of((physical_layout,))
    if sorted(order) != list(range(len(size))):
        raise RuntimeError(
            f"empty_permuted: physical_layout {list(order)} must name each of {len(size)} dimensions once"
        )
    strides, step = [0] * len(size), 1
    for d in reversed(order):
        strides[d], step = step, step * max(size[d], 1)
    return empty_strided(size, strides, **options)
