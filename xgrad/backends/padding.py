"""Padding: runs programs of an `xgrad.Backend` at few sizes, to which operands are padded, as `shapes=` declares.

    x (100, 8) ──zeros──► (128, 8) ──the program of 128, which masks them──► (128, 3) ──cut──► (100, 3)

Programs that differ in their sizes alone share one, which XLA compiles once; `masking.py` makes it.  The host pads and
cuts.  A program whose values would depend on the padding runs as it is, and the backend's reports say why.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..base.dtypes import WIDE, x64_enabled
from ..base.jax_compat import jaxprs
from ..errors import CompiledMismatchError
from ..execution.programs.mask_rules import UnpaddedError
from ..execution.programs.masking import key_of, masked
from ..execution.programs.programs import Program
from .counting import here, kinds
from .rewriting import difference


class _Trace(NamedTuple):
    """A program with operands of one choice of shapes, and what JAX traced of it."""

    program: Any
    leaves: list[Any]
    tree: Any
    exact: Any
    results: Any  # their shapes and dtypes


def sizes_named(backend: str, shapes: Any) -> Any:
    """Return `shapes` as a tuple of rising sizes, a function, or None.  Raises `ValueError` for any other value."""
    if shapes is None or callable(shapes):
        return shapes
    sizes: Any = shapes if isinstance(shapes, Sequence) and not isinstance(shapes, str) else ()
    if sizes and all(_is_size(size) and size > 0 for size in sizes):
        return (*sorted({*map(int, sizes)}),)
    raise ValueError(
        f"Backend '{backend}': shapes is a list of sizes to which dimensions are padded, or a function from a size to "
        f"a size, but got {shapes!r}"
    )


def _is_size(size: Any) -> bool:
    return isinstance(size, (int, np.integer)) and not isinstance(size, bool)


def _struct(x: Any) -> Any:
    """Return the shape and dtype of each array of an operand; numbers as they are."""
    if x.__class__ is tuple:
        return tuple(map(_struct, x))
    weak = getattr(x, "weak_type", False)
    return jax.ShapeDtypeStruct(x.shape, x.dtype, weak_type=weak) if hasattr(x, "shape") else x


class Fitted:
    """A program at padded sizes, for operands of one choice of shapes."""

    def __init__(self, program: Program, true: Any, shapes: list[Any], results: list[Any], device: Any) -> None:
        self.program, self.device = program, device
        self._true, self._shapes, self._results = true, shapes, results
        self.more = 0  # bytes of padding in the operands

    def values(self, values: Sequence[Any]) -> list[Any]:
        """Return the operands of the padded program: the true sizes, and the arrays with zeros behind them."""
        found = [self._true]
        for x, shape in zip(jax.tree.leaves([*values]), self._shapes, strict=True):
            if shape is not None:
                whole = np.zeros(shape, x.dtype)
                whole[tuple([slice(n) for n in x.shape])] = x
                x = self._made(whole)
            found.append(x)
        return found

    def cut(self, out: Any) -> Any:
        """Return the results without what is padded."""
        leaves, tree = jax.tree.flatten(out)
        for i, shape in enumerate(self._results):
            if leaves[i].shape != shape:
                leaves[i] = self._made(np.ascontiguousarray(np.asarray(leaves[i])[tuple([slice(n) for n in shape])]))
        return tree.unflatten(leaves)

    def _made(self, host: np.ndarray) -> Any:
        array = jnp.asarray(host)
        return array if self.device is None else jax.device_put(array, self.device)


def _padded_shape(x: Any, sizes: dict[int, int]) -> tuple[int, ...] | None:
    """Return the padded shape of an operand; None if it stays."""
    shape: tuple[int, ...] = getattr(x, "shape", ())  # a number has none
    padded = tuple([sizes.get(n, n) for n in shape])
    return None if padded == shape else padded


class Padding:
    """The padded programs of one backend."""

    def __init__(self, runtime: Any, shapes: Any) -> None:
        self._runtime, self._shapes = runtime, shapes
        self._fitted: dict[Any, tuple[Fitted | None, list[str]]] = {}  # by program and operands' kinds; what stays, why
        self._programs: dict[Any, Program] = {}  # by what they compute

    def run(self, program: Any, values: list[Any], operands: Any) -> Any:
        """Run a program, padded where it can be, and return its results."""
        fitted = self._fitted_for(program, values)
        if fitted is None:
            return self._runtime.run_now(program, values, operands)
        out = fitted.cut(self._runtime.run_now(fitted.program, fitted.values(values), operands))
        if self._runtime.backend.verify_passes and (worst := difference(program.run(*values), out)) is not None:
            raise CompiledMismatchError(
                f"padded to the sizes that the backend '{self._runtime.backend.name}' declares in shapes=, "
                f"'{program.name}' gives other values, at {here()}: {worst}. Nothing was changed. "
                "Leave that size out: backend.replace(shapes=None)"
            )
        return out

    def _fitted_for(self, program: Any, values: list[Any]) -> Fitted | None:
        """Return the padded program for a program and its operands, and count it; None if it runs as it is."""
        config: Any = jax.config
        if not program.lazy or config.jax_debug_nans or config.jax_debug_infs:  # these look at the padding too
            return None
        if not x64_enabled() and any(getattr(x, "dtype", None) in WIDE for x in jax.tree.leaves(values)):
            return None  # the program refuses them, or converts
        key = program, x64_enabled(), kinds(values), config.jax_default_matmul_precision
        found = self._fitted.get(key)
        if found is None:
            found = self._fitted[key] = self._fit(program, values)
        fitted, left = found
        for events in self._runtime.reports:
            for why in left:
                events.unpadded[program.name, why] += 1
            if fitted is not None:
                events.padded.add(fitted.more)
        return fitted

    def _size(self, n: int) -> int:
        """Return the size to which a size is padded."""
        if n < 2:
            return n  # what has one element may be broadcast
        if not callable(self._shapes):
            at = bisect_left(self._shapes, n)
            return self._shapes[at] if at < len(self._shapes) else n
        size: Any = self._shapes(n)
        if not _is_size(size) or size < n:
            raise ValueError(
                f"Backend '{self._runtime.backend.name}': shapes returned {size!r} for a size of {n}, but has to "
                f"return an int of at least {n}"
            )
        return int(size)

    def _fit(self, program: Any, values: Sequence[Any]) -> tuple[Fitted | None, list[str]]:
        """Return the program with as many sizes padded as it can have, and the sizes that stay, with the reasons."""
        leaves, tree = jax.tree.flatten([*map(_struct, values)])
        sizes = {n: m for x in leaves for n in getattr(x, "shape", ()) if (m := self._size(n)) != n}
        if not sizes:
            return None, []
        if program.role:
            return None, ["a view"]
        if any(jnp.issubdtype(getattr(x, "dtype", bool), jax.dtypes.extended) for x in leaves):
            return None, ["keys of random numbers"]
        exact, results = jax.make_jaxpr(program.function, return_shape=True)(*tree.unflatten(leaves))
        if any(aval.weak_type for aval in exact.out_avals):
            return None, ["a result of a weak type"]
        trace = _Trace(program, leaves, tree, exact, results)
        found = self._padded(trace, sizes)
        if isinstance(found, Fitted):
            return found, []
        alone = {n: self._padded(trace, {n: m}) for n, m in sizes.items()} if len(sizes) > 1 else {}
        fit = {n: sizes[n] for n, each in alone.items() if isinstance(each, Fitted)}
        left = [f"size {n}, {why}" for n, why in (alone or dict.fromkeys(sizes, found)).items() if n not in fit]
        found = self._padded(trace, fit) if fit else None
        if isinstance(found, str):  # each size alone, but not together
            return None, [f"sizes {', '.join(map(str, fit))}, {found}", *left]
        return found, left

    def _padded(self, trace: "_Trace", sizes: dict[int, int]) -> Fitted | str:
        """Return the program with these sizes padded; a str says why it cannot be."""
        shapes = [_padded_shape(x, sizes) for x in trace.leaves]
        more = [
            x if shape is None else jax.ShapeDtypeStruct(shape, x.dtype, weak_type=x.weak_type)
            for x, shape in zip(trace.leaves, shapes)
        ]
        true = np.asarray([*sizes], np.int32)
        try:
            padded = jax.make_jaxpr(trace.program.function)(*trace.tree.unflatten(more))
            numbered = {pair: i for i, pair in enumerate(sizes.items())}
            closed = jax.make_jaxpr(masked(trace.exact, padded, numbered))(true, *more)
        except UnpaddedError as error:
            return str(error)
        except Exception as error:  # an operator checks its operands' sizes
            return f"{type(error).__name__} when padded: {str(error).partition(chr(10))[0]}"
        results, form = jax.tree.flatten(trace.results)
        own = self._shared(trace.program, closed, form)
        hlo, launching = self._runtime.hlo, self._runtime.launching
        passes = None if launching is None else launching.passes
        if hlo is not None and (lack := hlo.lack(own, (x64_enabled(), *kinds([true, *more])), passes)):
            return f"the masks take {lack}, which the backend lacks"
        found = Fitted(own, jnp.asarray(true), shapes, [x.shape for x in results], self._runtime.device)
        found.more = sum(
            (prod(shape) - prod(x.shape)) * x.dtype.itemsize for x, shape in zip(trace.leaves, shapes) if shape
        )
        return found

    def _shared(self, program: Any, closed: Any, form: Any) -> Program:
        """Return the program of a closed jaxpr: the same one for the same text and constants."""
        key = program.name, program.operator, key_of(closed), form
        found = self._programs.get(key)
        if found is None:
            function: Callable[..., Any] = jaxprs().jaxpr_as_fun(closed)

            def padded(*operands: Any) -> Any:
                return form.unflatten(function(*operands))

            padded.__name__ = program.function.__name__
            found = Program(padded, keep_unused=True)
            found.label, found.operator = program.label, program.operator
            found = self._programs.setdefault(key, found)
        return found
