"""Checks each program as JAX traces it: raises for arrays of 2**63 bytes or more, and 64-bit arguments without x64.

x64 is JAX's mode for 64-bit types.  Products of float32 are traced so that accelerators too compute them in float32.

Invariant: every program passes through `checked` when JAX traces it, which is once for its shapes, dtypes and settings.
So a call of a program that was traced before pays nothing for it, and a check that fails does so before anything runs.

XLA counts the bytes of each array of a program in int64, from the left, and ends the process where that overflows;
empty arrays, and those that it would never make, included.  (PyTorch: c10/core/TensorImpl.h, SafePyObject of sizes.)
"""

import functools
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from math import isfinite, prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..config import block
from ..errors import DtypeDisabledError, OutOfMemoryError
from .dtypes import WIDE, x64_enabled
from .jax_compat import user_context
from .platforms import traced_for
from .refused import REFUSED, programs_in, refuse_operations

LIMIT = 1 << 63
MOST_VIEWS = 1 << 24
# If the product of all sizes and static numbers is more, arrays in between may be too large: the program is checked.
_SUSPICIOUS = 1 << 40
_full: Any = user_context(False)  # True within `full_products`, where that changed JAX's setting


def check_numel(shape: Iterable[int]) -> None:
    """Raise `RuntimeError` for a shape of 2**63 elements or more, which a view may not have either."""
    if prod(shape) >= LIMIT:
        raise RuntimeError(
            f"numel: integer multiplication overflow: a tensor of sizes {list(shape)} would have 2**63 elements or more"
        )


def check_size(shape: tuple[int, ...], dtype: Any) -> None:
    """Raise `RuntimeError` for an array of 2**63 bytes or more, multiplied from the left, even if it is empty."""
    size = np.dtype(dtype).itemsize if isinstance(dtype, (type, np.dtype)) else dtype.itemsize
    for n in shape:
        size *= n
        if size >= LIMIT:
            raise RuntimeError(
                f"Storage size calculation overflowed with sizes={list(shape)}: 2**63 bytes of {dtype} are more than "
                "any memory has"
            )
    if prod([max(n, 1) for n in shape[1:]]) >= LIMIT:
        raise RuntimeError(f"Stride calculation overflowed with sizes={list(shape)}")


def zeros(shape: tuple[int, ...], dtype: Any, where: Any = None) -> Any:
    """Return `jnp.zeros` after checks of size and dtype, for calls outside of any program of ours."""
    check_size(shape, dtype)
    require_kept(dtype)
    return jnp.zeros(shape, dtype, device=where)


def check_bytes(size: int, what: str) -> None:
    """Raise `OutOfMemoryError` if the host has no memory for the `size` bytes of `what`."""
    try:
        np.empty(size, np.int8)  # no page of it is touched
    except (MemoryError, ValueError):
        raise OutOfMemoryError(f"can't allocate memory: {what} would take {size} bytes on the host") from None


def check_views(count: int, name: str) -> None:
    """Raise `OutOfMemoryError` for more tensors than one call may make: each takes some 500 bytes of Python's."""
    if count > MOST_VIEWS:
        raise OutOfMemoryError(
            f"can't allocate memory: {name}() would make {count} tensors; at most {MOST_VIEWS} are made by one call. "
            "Work on larger pieces, or on the whole tensor."
        )


def out_of_memory(error: BaseException) -> OutOfMemoryError | None:
    """Return the error that replaces XLA's error for want of memory; None for any other error."""
    text = str(error).partition("\n")[0]
    # A program that fails after its call may say INTERNAL, and then the reason: jax 0.7.
    ran_out = text.startswith("RESOURCE_EXHAUSTED") or ": Out of memory " in text
    if not (isinstance(error, jax.errors.JaxRuntimeError) and ran_out):
        return None
    return OutOfMemoryError(
        f"can't allocate memory: {text.partition(': ')[2]} Nothing was changed. Delete tensors that are not needed any "
        "more, take smaller batches or a narrower dtype, or spread the tensor over several devices (xgrad.mesh)."
    )


def x64_for_now(on: bool = True) -> Any:
    """Return a block in which JAX has 64-bit types, or has none; within a trace, in its part of the program."""
    if hasattr(jax, "enable_x64"):
        return jax.enable_x64(on)
    # Only jax 0.7 has this name, and the jax that the type checker sees is newer.
    return jax.experimental.enable_x64(on)  # pyright: ignore[reportAttributeAccessIssue]


@block
def full_products() -> Iterator[None]:
    """Return a block in which products of float32 are made in float32, on an accelerator too.

    While JAX's setting is unset it would take one bfloat16 pass on a TPU, TensorFloat32 on a GPU.  A setting that the
    user made, as `set_float32_matmul_precision` does, stands.
    """
    asked = jax.config.jax_default_matmul_precision  # pyright: ignore[reportAttributeAccessIssue]
    if traced_for() != "cpu" and (asked is None or (_full.value and asked == "default")):
        with _full(True), jax.default_matmul_precision("highest"):
            yield
    else:
        yield


@block
def unseen() -> Iterator[None]:
    """Return a block in which the trace of a compiled function sees no frames: they are xgrad's and JAX's alone.

    To see them takes as long as they do.
    """
    see = seen()
    if see is None:
        yield
        return
    try:
        sys.setprofile(None)
        yield
    finally:
        sys.setprofile(see)


def seen() -> Any:
    """Return the profiler by which a trace of a compiled function sees this thread's frames; None if none does."""
    see = sys.getprofile()
    return see if hasattr(see, "may_pause") else None


def jaxs_products() -> Any:
    """Return a block in which products are as JAX's users know them: for JAX functions within our programs."""
    # The word says what an unset setting means, and their derivatives keep it.
    return jax.default_matmul_precision("default") if _full.value else nullcontext()


def refuse_narrowing(values: Any) -> None:
    """Raise `DtypeDisabledError` if one of these arrays or dtypes has 64 bits while JAX's x64 mode is off."""
    for value in values:
        dtype = getattr(value, "dtype", value)
        dtype = getattr(dtype, "dtype", dtype)  # of a tensor, xgrad's
        if isinstance(dtype, np.dtype) and dtype in WIDE:
            raise DtypeDisabledError(
                f"a tensor of {dtype.name} is used, but JAX's 64-bit mode is off now and would silently narrow it to "
                f"{WIDE[dtype]}. Enable it again, jax.config.update('jax_enable_x64', True), or convert the tensor: "
                f"x.to(xgrad.{WIDE[dtype]})."
            )


def require_kept(*values: Any) -> None:
    """Raise `DtypeDisabledError` for 64-bit values outside of any program of ours, while JAX's x64 mode is off."""
    if not x64_enabled():
        refuse_narrowing(values)


def checked(
    function: Callable[..., Any], facts: Any = (), *, converts: bool = False, own: bool = False
) -> Callable[..., Any]:
    """Return `function` for tracing: it refuses too large arrays, and 64-bit arguments while JAX's x64 mode is off.

    `facts`: values that the function was made of besides its arguments; their dtypes and sizes count too.  `converts`:
    its results have the dtypes that they are asked for, so it may read 64-bit arrays at any time.  `own`: it runs code
    of xgrad and JAX alone, which `unseen` is for.
    """

    @functools.wraps(function, updated=())
    def traced(*args: Any) -> Any:
        with unseen() if own else nullcontext():
            return _traced(*args)

    def _traced(*args: Any) -> Any:
        leaves, static = jax.tree.leaves(args), list(_leaves(facts))
        if not x64_enabled():
            if not converts:
                refuse_narrowing((*leaves, *static))
            elif any(getattr(leaf, "dtype", None) in WIDE for leaf in leaves):
                with x64_for_now():
                    return function(*args)
        with full_products():
            run = function
            if _weight(leaves, static) > _SUSPICIOUS:
                run = jax.jit(function, inline=True)  # traced once, for the check and for this program
                check_program(run.trace(*args).jaxpr.jaxpr)
            if x64_enabled() and (platform := traced_for()) in REFUSED:
                refuse_operations(platform, name.lstrip("_"), jax.make_jaxpr(function)(*args).jaxpr)
            out = run(*args)
        for array in jax.tree.leaves(out):
            check_size(array.shape, array.dtype)
        return out

    traced.__name__ = name = getattr(function, "func", function).__name__  # a partial has none: its function's is shown
    return traced


def _leaves(facts: Any) -> Iterator[Any]:
    """Yield numbers, dtypes and the like in a nest of tuples; for objects those that identify them."""
    if isinstance(facts, (tuple, list)):
        for part in facts:
            yield from _leaves(part)
    elif isinstance(facts, dict):
        yield from _leaves(tuple(facts.values()))
    elif hasattr(facts, "statics"):
        yield from _leaves(facts.statics)
    elif hasattr(facts, "shape") and hasattr(facts, "dtype"):
        yield from (*facts.shape, facts.dtype)
    else:
        yield facts


def _weight(leaves: list, static: list) -> int:
    """Guess the size of the largest array in between: the product of all sizes and numbers, to a limit."""
    weight = 1
    for leaf in leaves:
        weight = min(weight * max(prod(getattr(leaf, "shape", ())), 1), LIMIT)
    for number in static:
        if isinstance(number, int) or (isinstance(number, float) and isfinite(number)):
            weight = min(weight * max(abs(int(number)), 1), LIMIT)
    return weight


def check_program(jaxpr: Any) -> None:
    """Raise `RuntimeError` if a program, as JAX traced it, makes an array that XLA cannot count."""
    for equation in jaxpr.eqns:
        for variable in equation.outvars:
            aval = variable.aval
            if hasattr(aval, "shape") and hasattr(aval.dtype, "itemsize"):
                check_size(aval.shape, aval.dtype)
        for inner in programs_in(equation):
            check_program(inner)
