"""Tag: the properties of an operator that `xgrad.library` takes as `tags=`, such as `inplace` (PyTorch: torch.Tag)."""

import enum
from typing import Any


class Tag(enum.Enum):
    """A property of an operator, for `tags=`.

    `inplace` (the operator writes its first argument and returns it) and `out` (it writes keyword-only tensors and
    returns them) are followed, the others are accepted.

    >>> import xgrad
    >>> def double_(x: xgrad.Tensor) -> xgrad.Tensor:
    ...     return x.mul_(2)
    >>> xgrad.library.infer_schema(double_, mutates_args=("x",), tags=xgrad.Tag.inplace)
    '(Tensor(a0!) x) -> Tensor(a0!)'

    Source: PyTorch's `torch.Tag`.
    """

    core = 0
    cudagraph_unsafe = 1
    data_dependent_output = 2
    dynamic_output_shape = 3
    flexible_layout = 4
    generated = 5
    inplace = 6
    inplace_view = 7
    maybe_aliasing_or_mutating = 8
    needs_contiguous_strides = 9
    needs_exact_strides = 10
    needs_fixed_stride_order = 11
    nondeterministic_bitwise = 12
    nondeterministic_seeded = 13
    out = 14
    out_variant = 15
    pointwise = 16
    pt2_compliant_tag = 17
    reduction = 18
    view_copy = 19


def tags_of(tags: Any) -> tuple[Any, ...]:
    """Return tags as a tuple: one tag, several, or None."""
    if tags is None:
        return ()
    return (tags,) if isinstance(tags, Tag) else tuple(tags)
