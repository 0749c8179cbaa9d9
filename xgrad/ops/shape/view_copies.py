"""select_copy, ... return copies of views; select_scatter, ... return copies of a tensor with one view overwritten.

Both are declared from tables of views: a copy is the view, cloned; a scatter is a write into the view of a clone.
"""

from collections.abc import Callable
from typing import Any

from ...config import state
from ...dispatch.declare import composite
from ...dispatch.out import write_out
from ...dispatch.ruled_views import aliased
from ...dispatch.tables import FUNCTIONS, METHODS
from ...tensor import Tensor
from . import broadcasting as broadcasting
from . import complex_views as complex_views
from . import splitting as splitting
from . import views as views
from .views import slice_


def _copied(value: Any) -> Any:
    return tuple(v.clone() for v in value) if isinstance(value, tuple) else value.clone()


def _written_out(name: str, views: Any, out: Any) -> Any:
    """Write a copy to `out`, and return `out`; None for several copies, as in PyTorch."""
    if isinstance(views, Tensor):
        return _into(name, views, out)
    if not isinstance(out, (tuple, list)) or not all(isinstance(o, Tensor) for o in out):
        raise TypeError(f"{name}(): argument 'out' must be tuple of Tensors, not {type(out).__name__}")
    if len(out) != len(views):
        raise RuntimeError(f"{name}() expected an out= argument of size {len(views)}, got size {len(out)}")
    for view, target in zip(views, out):
        _check_out(name, view, target)
    for view, target in zip(views, out):
        write_out(name, view, target)
    return None


def _into(name: str, view: Tensor, out: Any) -> Tensor:
    _check_out(name, view, out)
    return write_out(name, view, out)


def _check_out(name: str, view: Tensor, out: Any) -> None:
    if not isinstance(out, Tensor):
        raise TypeError(f"{name}(): argument 'out' must be Tensor, not {type(out).__name__}")
    if out.dtype != view.dtype:
        raise RuntimeError(
            f"{name}(): Expected out tensor to have dtype {view.dtype.name}, but got {out.dtype.name} instead"
        )
    if state.grad_enabled and (view.requires_grad or out.requires_grad):
        raise RuntimeError(
            f"{name}(): functions with out=... arguments don't support automatic differentiation, but one of the "
            "arguments requires grad."
        )


def _copy_of(name: str, view: Callable, method: bool = False) -> None:
    def copy(input: Tensor, *args: Any, out: Any = None, **kwargs: Any) -> Any:
        seen = view(input, *args, **kwargs)
        return _copied(seen) if out is None else _written_out(name, seen, out)

    def unsafe(input: Tensor, *args: Any, **kwargs: Any) -> Any:
        return _copied(view(input, *args, **kwargs))

    made = unsafe if name.startswith("unsafe_") else copy
    made.__name__ = made.__qualname__ = name
    made.__doc__ = f"As `{name.replace('_copy', '').replace('unsafe_', '')}`, but a copy and no view."
    composite(name, method=method)(made)


def _view_of(name: str) -> Callable:
    return FUNCTIONS[""].get(name) or METHODS[name]


for _name in (
    "alias", "as_strided", "detach", "diagonal", "expand", "narrow", "permute", "select", "split", "split_with_sizes",
    "squeeze", "t", "transpose", "unbind", "unfold", "unsqueeze", "view", "view_as_complex", "view_as_real",
):  # fmt: skip
    _copy_of(_name + "_copy", Tensor.detach if _name == "detach" else _view_of(_name), method=_name == "narrow")

for _name in ("chunk", "split", "split_with_sizes"):
    _copy_of("unsafe_" + _name, _view_of(_name), method=True)


@composite(method=False)
def slice_copy(
    input: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1, *,
    out: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """A copy of `input[start:end:step]` in one dimension."""
    seen = slice_(input, dim, start, end, step)
    return _copied(seen) if out is None else _into("slice_copy", seen, out)


def _written(input: Tensor, src: Tensor, view: Callable) -> Tensor:
    out = input.clone()
    part = aliased(view, out)
    if part.shape != src.shape:
        raise RuntimeError(
            f"expected src to have a size equal to the slice of self. src size = {list(src.shape)}, slice size = "
            f"{list(part.shape)}"
        )
    part.copy_(src)
    return out


@composite
def select_scatter(input: Tensor, src: Tensor, dim: int, index: int) -> Tensor:
    """A copy of `input` with `src` written at one index of one dimension."""
    return _written(input, src, lambda x: x.select(dim, index))


@composite
def slice_scatter(
    input: Tensor, src: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1, *,
    out: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """A copy of `input` with `src` written into the slice `start:end:step` of one dimension."""
    made = _written(input, src, lambda x: slice_(x, dim, start, end, step))
    return made if out is None else _into("slice_scatter", made, out)


@composite
def diagonal_scatter(input: Tensor, src: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """A copy of `input` with `src` written onto a diagonal."""
    return _written(input, src, lambda x: x.diagonal(offset, dim1, dim2))


@composite
def as_strided_scatter(input: Tensor, src: Tensor, size: Any, stride: Any, storage_offset: int | None = None) -> Tensor:
    """A copy of `input` with `src` written through a geometry of sizes and strides."""
    return _written(input, src, lambda x: x.as_strided(size, stride, storage_offset))
