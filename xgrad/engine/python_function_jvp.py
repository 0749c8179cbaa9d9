"""Forward-mode AD of `autograd.Function`: calls its `jvp` with tangents, and checks the tangents that it returns.

Invariant: the tangent of an output that is a view of an input is a view of that input's tangent, and the tangent of an
input that forward changed in place is changed in place (PyTorch: _process_forward_mode_AD, custom_function.cpp).
"""

from math import prod
from typing import Any

from ..base.dtypes import INEXACT
from ..config import state, to_outer_forward_level
from ..tensor import Tensor
from ..views.chain import ViewChain


def set_tangents(
    node: Any,
    function: Any,
    args: tuple[Any, ...],
    outputs: list[Any],
    wired: list[Any],
    dirty: tuple[Any, ...],
    without: tuple[Any, ...],
) -> None:
    """Set the outputs' tangents to those that the Function's `jvp` makes of the inputs', at each level.

    `outputs` are forward's results, `wired` those that `apply` will return for them; `dirty` and `without` are the
    tensors that were marked as changed in place and as not differentiable.
    """
    level = state.forward_level
    inputs = [a for a in args if isinstance(a, Tensor)]
    given = [a._tangent_at(level) for a in inputs]
    versions = [None if t is None else t._version for t in given]
    levels = state.forward_level, state.outer_forward_levels
    try:
        outer = to_outer_forward_level()
        if outer >= 0:
            set_tangents(node, function, args, outputs, wired, dirty, without)
        if all(t is None for t in given):
            return
        found = iter(given)
        results = function.jvp(node, *(_filled(node, a, next(found)) if isinstance(a, Tensor) else None for a in args))
    finally:
        state.forward_level, state.outer_forward_levels = levels
    results = results if isinstance(results, tuple) else (results,)
    if len(results) != len(outputs):
        raise RuntimeError(
            "Function's jvp returned an invalid number of forward gradients (expected "
            f"{len(outputs)} but got {len(results)}): one for each output of {function.__name__}"
        )
    for i, (raw, output, tangent) in enumerate(zip(outputs, wired, results, strict=True)):
        if tangent is not None and not isinstance(tangent, Tensor):
            raise RuntimeError(f"expected Variable or None (got {type(tangent).__name__}) for grad output {i}.")
        if tangent is None or not isinstance(raw, Tensor):
            continue
        if not differentiable(raw, without):
            raise RuntimeError(
                f"Function's jvp returned a gradient at position {i}, but the corresponding forward output is not a "
                "differentiable Tensor. You should return None at that position instead."
            )
        if tangent.dtype not in INEXACT:
            raise RuntimeError(
                "Expected both tensor and its forward grad to be floating point or complex, but the jvp of "
                f"{function.__name__} returned {tangent.dtype.name} at position {i}"
            )
        check_shape(output, tangent)
        levels = state.forward_level, state.outer_forward_levels
        try:
            to_outer_forward_level()
            if any(raw is d for d in dirty):
                place = next((k for k, x in enumerate(inputs) if x is raw), None)
                _set_in_place(
                    output, tangent, level, *((None, 0) if place is None else (given[place], versions[place]))
                )
            else:
                _set_tangent(output, tangent, level, inputs, given)
        finally:
            state.forward_level, state.outer_forward_levels = levels


def differentiable(output: Tensor, without: tuple[Any, ...]) -> bool:
    """Return whether an output has a gradient and a tangent."""
    return output.dtype in INEXACT and not any(output is n for n in without)


def _filled(node: Any, input: Tensor, tangent: Tensor | None) -> Tensor | None:
    """An input's tangent for jvp: zeros if it has none, unless the Function asked for None."""
    if tangent is not None or not node.materialize_grads or input.dtype not in INEXACT:
        return tangent
    return input._zeros_like()


def check_shape(tensor: Tensor, tangent: Tensor) -> None:
    """Raise `RuntimeError` for a tangent of another shape than its tensor's."""
    if tangent.shape != tensor.shape:
        raise RuntimeError(
            "Trying to set a forward gradient that has a different size than that of the original Tensor, this is not "
            f"supported. Tensor is of size {list(tensor.shape)} while the given forward gradient is of size "
            f"{list(tangent.shape)}."
        )


def layout(tensor: Tensor) -> tuple:
    """Return a tensor's layout: equal for tensors whose elements are at the same places (PyTorch: has_same_meta)."""
    chain = tensor._chain
    if chain is None:
        chain = ViewChain.root(tensor.shape, tensor._dtype)
    try:
        seen = chain.geometry
    except RuntimeError:  # it has no strides
        return (chain,)
    size = prod(chain.root_shape) * chain.root_dtype.itemsize // chain.dtype.itemsize
    strides = tuple(stride if n > 1 else 1 for n, stride in zip(seen.sizes, seen.strides, strict=True))
    return size, seen.offset, seen.sizes, strides, tensor.is_conj(), tensor.is_neg()


def _set_in_place(output: Tensor, tangent: Tensor, level: int, had: Tensor | None, version: int | None) -> None:
    """Check that the tangent of an input that forward changed in place is the input's own, changed in place."""
    if had is None:
        output._set_tangent_through_base(tangent, level)
        return
    if tangent._version == version:
        raise RuntimeError(
            "An inplace custom Function is not modifying the forward mode gradients inplace. If the forward is "
            "modifying an input inplace, then the jvp function must modify the corresponding gradient inplace."
        )
    if tangent is not had:
        raise RuntimeError(
            "An inplace custom Function is not returning the forward mode gradients as-is. If the forward is modifying "
            "an input inplace, then the jvp function must modify the gradient inplace and return it as-is."
        )


def _set_tangent(output: Tensor, tangent: Tensor, level: int, inputs: list, given: list) -> None:
    """Set an output's tangent.  The tangent of a view of an input must be the same view of the input's tangent."""
    base = output._base
    of = (
        None
        if base is None
        else next((k for k, x in enumerate(inputs) if (x._base if x._is_view() else x) is base), None)
    )
    if of is None:
        # Views of the output are to be views of the tangent as well.
        alike = tangent._level is not None or layout(tangent) == layout(output)
        output._set_tangent(level, tangent if alike else tangent.clone())
        return
    had = given[of]
    if had is None:  # as after a write through the view: the input gets a tangent as well
        output._set_tangent_through_base(tangent, level)
        return
    if not tangent._is_view():
        raise RuntimeError(
            "A custom Function's forward is returning a view (or an input as-is) but the jvp is not returning a view."
        )
    if tangent._base is not (had._base if had._is_view() else had):
        raise RuntimeError(
            "A custom Function is returning a view but the jvp is not returning a view of "
            + ("the same base as the given grad input." if had._is_view() else "the given grad input.")
        )
    output._set_tangent(level, tangent)
