"""expand, meshgrid, atleast_1d, ...: repeat or add dimensions, as views; broadcast_shapes computes the common shape."""

from collections.abc import Sequence
from typing import Any

from ...dispatch.declare import composite
from ...dispatch.promotion import broadcast_shapes
from ...dispatch.view import view
from ...tensor import Size, Tensor
from ...views.named.arguments import sizes_of, variadic
from .views import reshape, unsqueeze


@composite(function=False)
def expand(input: Tensor, *size: Any, implicit: bool = False, **named: Any) -> Tensor:
    """The view with dimensions of size 1 repeated to `size` (-1 keeps one); it must not be written."""
    return view(input, ("expand", *variadic("expand", "size", size, named)), "ExpandBackward0")


@composite(function=False)
def expand_as(input: Tensor, other: Tensor) -> Tensor:
    """`input.expand(other.size())`."""
    return view(input, ("expand", *other.shape), "ExpandBackward0")


@composite
def broadcast_to(input: Tensor, *size: Any, **named: Any) -> Tensor:
    """`input.expand(size)`."""
    return view(input, ("expand", *variadic("broadcast_to", "size", size, named)), "ExpandBackward0")


@composite(method=False)
def broadcast_tensors(*tensors: Any) -> tuple[Tensor, ...]:
    """The tensors, expanded to their common shape."""
    given = tensors[0] if len(tensors) == 1 and isinstance(tensors[0], Sequence) else tensors
    shape = broadcast_shapes(*(tuple(x.shape) for x in given))
    return tuple(expand(x, shape) for x in given)


@composite("broadcast_shapes", method=False)
def broadcast_shapes_(*shapes: Any) -> Size:
    """The common shape of tensors of these shapes.

    Raises `ValueError` for a negative size and `RuntimeError` for shapes that do not fit together.
    """
    given = [sizes_of((s,)) for s in shapes]
    if any(n < 0 for shape in given for n in shape):
        raise ValueError("Attempting to broadcast a dimension with negative length!")
    common: tuple[int, ...] = ()
    for i, shape in enumerate(given):
        for place, n in zip(range(-1, -len(shape) - 1, -1), reversed(shape)):
            if -place <= len(common) and common[place] not in (1, n) and n != 1:
                raise RuntimeError(
                    f"Attempting to broadcast a dimension of length {n} at {place}! Mismatching argument at index {i} "
                    f"had {shape}; but expected shape should be broadcastable to {list(common)}"
                )
        common = broadcast_shapes(common, shape)
    return Size(common)


@composite(method=False)
def meshgrid(*tensors: Any, indexing: str = "ij") -> tuple[Tensor, ...]:
    """Coordinate grids of 1-dim tensors, as expanded views; `indexing` is "ij" or "xy"."""
    given = list(tensors[0] if len(tensors) == 1 and isinstance(tensors[0], Sequence) else tensors)
    if indexing not in ("ij", "xy"):
        raise RuntimeError(f'meshgrid: indexing must be one of "xy" or "ij", but received: {indexing}')
    if not given:
        raise RuntimeError("meshgrid expects a non-empty TensorList")
    for i, x in enumerate(given):
        if not isinstance(x, Tensor):
            raise TypeError(f"expected Tensor as element {i} in argument 0, but got {type(x).__name__}")
        if x.dtype != given[0].dtype:
            raise RuntimeError("meshgrid expects all tensors to have the same dtype")
        if x.ndim > 1:
            raise RuntimeError(f"meshgrid: Expected 0D or 1D tensor in the tensor list but got: {list(x.shape)}")
    swap = indexing == "xy" and len(given) >= 2
    if swap:
        given[0], given[1] = given[1], given[0]
    shape = tuple(x.numel() for x in given)
    grids = []
    for i, x in enumerate(given):
        lying = tuple(n if j == i else 1 for j, n in enumerate(shape))
        grids.append(expand(view(x, ("view", *lying), "ViewBackward0"), shape))
    if swap:
        grids[0], grids[1] = grids[1], grids[0]
    return tuple(grids)


def _at_least(name: str, shape_of: Any) -> None:
    @composite(name, method=False)
    def at_least(*tensors: Any) -> Any:
        given = tensors[0] if len(tensors) == 1 and isinstance(tensors[0], (tuple, list)) else tensors
        out = tuple(shape_of(x) for x in given)
        return out[0] if len(tensors) == 1 and isinstance(tensors[0], Tensor) else out

    at_least.__doc__ = f"The tensors as views with at least {name[-2]} dimension(s)."


_at_least("atleast_1d", lambda x: x if x.ndim >= 1 else reshape(x, (1,)))
_at_least("atleast_2d", lambda x: x if x.ndim >= 2 else unsqueeze(x, 0) if x.ndim else reshape(x, (1, 1)))
_at_least(
    "atleast_3d",
    lambda x: (
        x if x.ndim >= 3 else unsqueeze(x if x.ndim == 2 else unsqueeze(x, 0), -1) if x.ndim else reshape(x, (1, 1, 1))
    ),
)
