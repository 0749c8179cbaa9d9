"""Buckets: lets a compiled function's calls of many sizes (`dynamic=`) share a few programs, to whose sizes it pads.

    x (37, 8) ─────► trace at 37 ─┐
                                  ├─► masked program of 64, one for all sizes from 33 to 63
    zeros (64, 8) ─► trace at 64 ─┘

The function is traced once for each size, and the program of that trace stands for all that the call does: results,
writes, gradients.  In its place runs a program that is traced at the padded size and masks the padding (`masking.py`):
its operands are padded, its results cut.  XLA compiles it once for all sizes that it serves.  Where values would depend
on the padding, the program of the true size runs, with a warning that says why.
"""

import inspect
import sys
import threading
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Protocol
from weakref import WeakSet

import jax
import jax.numpy as jnp
import numpy as np

from ..dispatch import tables
from ..execution.programs.chains import with_chains
from ..execution.programs.mask_rules import ANOTHER, UnpaddedError, padded_dims
from ..execution.programs.masking import key_of, masked
from ..execution.source import line_of, outside
from ..tensor import Tensor
from ..tensor_methods import pytrees
from .compiled_program import Entry

VALID = "valid"  # the parameter that gets the size before padding


class Compiled(Protocol):
    """The methods of a `CompiledFunction` that `Buckets` calls."""

    def alone(self) -> "Compiled": ...
    def find(
        self, args: tuple[Any, ...], kwargs: dict[Any, Any]
    ) -> tuple[Entry, list[Any], list[Any], list[Any]] | None: ...
    def name(self) -> str: ...
    def run(self, args: tuple[Any, ...], kwargs: dict[Any, Any]) -> Any: ...


class Buckets:
    """A compiled function whose arguments vary in size."""

    def __init__(
        self,
        compiled: Compiled,
        function: Callable[..., Any],
        dynamic: dict[str, int],
        sizes: Sequence[int] | None,
        check: bool,
        options: dict[Any, Any] | None,
    ) -> None:
        self._compiled, self._check, self._options = compiled, check, options
        module = hasattr(type(function), "_compiled_as")
        self._signature = inspect.signature(function.forward if module else function)  # pyright: ignore
        unknown = [name for name in dynamic if name not in self._signature.parameters]
        if unknown:
            names = ", ".join(map(str, unknown))
            raise TypeError(f"xgrad.compile: dynamic= names no parameter of the function: {names}")
        self._dynamic, self._sizes = dynamic, sorted(sizes or ())
        self._takes_valid = VALID in self._signature.parameters
        self._lock = threading.RLock()
        self.reset()

    def reset(self) -> None:
        """Forget all programs."""
        self.functions: dict[int, Any] = {}  # by size: a compiled function of that size alone
        self._wide_functions: dict[int, Compiled] = {}  # by padded size: they are traced, and never run
        self._programs: dict[Any, Any] = {}  # by what they compute
        self._seen: WeakSet[Entry] = WeakSet()
        self._told = False

    def call(self, args: tuple[Any, ...], kwargs: dict[Any, Any]) -> Any:
        """Run the function at the size of its arguments."""
        bound = self._signature.bind_partial(*args, **kwargs)
        size = self._size(bound.arguments)
        if size is None:
            return self._compiled.run(args, kwargs)
        bucket = self._bucket(size)
        if self._takes_valid and VALID not in bound.arguments:
            bound.arguments[VALID] = tables.FUNCTIONS[""]["tensor"](size)
        args, kwargs = bound.args, bound.kwargs
        function = self.functions.get(size)
        if function is None:
            function = self.functions.setdefault(size, self._compiled.alone())
        if size == bucket or not size:
            return function.run(args, kwargs)
        found = function.find(args, kwargs)
        if found is not None and found[0] not in self._seen:
            with self._lock:  # no thread runs an entry before it is shared
                if found[0] not in self._seen:
                    self._share(found[0], bound, size, bucket)
        return function.run(args, kwargs)

    def _size(self, arguments: dict[str, Any]) -> int | None:
        """Return the one size of all dimensions that vary, None if no tensor has one; `ValueError` if they differ."""
        found: dict[str, Any] = {}
        for name, dim in self._dynamic.items():
            for leaf in pytrees.leaves(arguments.get(name)):
                if not isinstance(leaf, Tensor):
                    continue
                if not -leaf.ndim <= dim < leaf.ndim:
                    raise ValueError(
                        f"xgrad.compile: dynamic= names dimension {dim} of {name}, which has a tensor of shape "
                        f"{tuple(leaf.shape)}"
                    )
                found[name if name not in found else f"{name}, again"] = leaf.shape[dim]
        if len({*found.values()}) > 1:
            raise ValueError(f"xgrad.compile: the dimensions that dynamic= names must have one size, but got {found}")
        return next(iter(found.values()), None)

    def _bucket(self, size: int) -> int:
        for bucket in self._sizes:
            if bucket >= size:
                return bucket
        if self._sizes:
            raise ValueError(f"xgrad.compile: a size of {size} is over the largest of buckets={self._sizes}")
        return 1 << max(size - 1, 0).bit_length()

    def _share(self, entry: Entry, bound: inspect.BoundArguments, size: int, bucket: int) -> None:
        """Let an entry of one size run the program of its bucket; warn if it cannot."""
        try:
            ours, theirs = entry.program, self._wide(bound, size, bucket).program
            if entry.on_mesh or ours.inputs != theirs.inputs or ours.with_one != theirs.with_one:
                raise UnpaddedError(ANOTHER)
            entry.run_instead(self._masked(ours.closed, theirs.closed, (size, bucket)))
            if ours.backward is not None and theirs.backward is not None:
                self._share_backward(ours.backward, theirs.backward, (size, bucket))
        except UnpaddedError as error:
            self._tell(str(error), size, bucket)
        self._seen.add(entry)  # last: what an interrupt ends is done again

    def _wide(self, bound: inspect.BoundArguments, size: int, bucket: int) -> Entry:
        """Return the entry for arguments of the padded size."""
        arguments, known = dict(bound.arguments), {}
        for name, dim in self._dynamic.items():

            def padded(leaf: Any, dim: int = dim) -> Any:
                if not isinstance(leaf, Tensor):
                    return leaf
                key = id(leaf), dim
                if key not in known:
                    known[key] = _zeros(leaf, dim, bucket - size)
                return known[key]

            arguments[name] = pytrees.mapped(padded, arguments[name])
        wide = self._signature.bind_partial()
        wide.arguments.update(arguments)
        function = self._wide_functions.get(bucket)
        if function is None:
            function = self._wide_functions.setdefault(bucket, self._compiled.alone())
        try:
            found = function.find(wide.args, wide.kwargs)
        except Exception as error:  # the function checks its sizes
            raise UnpaddedError(f"{type(error).__name__} when padded: {str(error).partition(chr(10))[0]}") from error
        if found is None:
            raise UnpaddedError("it is not traced within another trace")
        return found[0]

    def _masked(self, exact: Any, padded: Any, sizes: tuple[int, int]) -> Callable[..., list[Any]]:
        """Return a function that pads operands, runs the masked program, and cuts its results."""
        avals = [*zip(exact.in_avals, padded.in_avals, strict=True)]
        if len(exact.out_avals) != len(padded.out_avals):
            raise UnpaddedError(ANOTHER)
        for a, b in avals:
            if a.ndim != b.ndim or any((a.shape[i], b.shape[i]) != sizes for i in padded_dims(a, b)):
                raise UnpaddedError("an operand has another size")
        true, wide = np.asarray(sizes[:1], np.int32), [jax.ShapeDtypeStruct(b.shape, b.dtype) for _, b in avals]
        closed = jax.make_jaxpr(masked(exact, padded, {sizes: 0}))(true, *wide)
        key = key_of(closed)
        program = self._programs.get(key)
        if program is None:
            jitted = jax.jit(with_chains(closed), compiler_options=self._options, keep_unused=True)
            program = self._programs.setdefault(key, jitted)
        padding = {
            i: [(0, m - n) for n, m in zip(a.shape, b.shape)] for i, (a, b) in enumerate(avals) if a.shape != b.shape
        }
        results = zip(exact.out_avals, padded.out_avals)
        slices = {i: tuple([slice(n) for n in a.shape]) for i, (a, b) in enumerate(results) if a.shape != b.shape}
        pad = jax.jit(lambda *arrays: [*map(jnp.pad, arrays, padding.values())])
        cut = jax.jit(lambda *arrays: [x[part] for x, part in zip(arrays, slices.values())])

        def run(*operands: Any) -> list[Any]:
            given = [*operands]
            for i, x in zip(padding, pad(*[given[i] for i in padding]) if padding else ()):
                given[i] = x
            out = [*program(true, *given)]
            for i, x in zip(slices, cut(*[out[i] for i in slices]) if slices else ()):
                out[i] = x
            return out

        return run

    def _share_backward(self, ours: Any, theirs: Any, sizes: tuple[int, int]) -> None:
        """Let the backward of an entry run the program of its bucket, where all gradients arrive."""
        if (ours.inputs, ours.residuals, len(ours.avals)) != (theirs.inputs, theirs.residuals, len(theirs.avals)):
            raise UnpaddedError("its backward is another program at the padded size")
        run = self._masked(ours.closed, theirs.closed, sizes)

        def backward(residuals: list[Any], grads: list[Any], one: Any, arrays: list[Any]) -> list[Any]:
            taken = [grad for grad, aval in zip(grads, ours.avals, strict=True) if aval is not None]
            return run(*residuals, *taken, one, *arrays)

        ours.programs[(True,) * len(ours.avals)] = backward

    def _tell(self, why: str, size: int, bucket: int) -> None:
        """Warn once."""
        if self._told or not self._check:
            return
        self._told = True
        warnings.warn_explicit(
            f"xgrad.compile: with dynamic=, {self._compiled.name()} is compiled for each size: at size {size}, padded "
            f"to {bucket}, its values would depend on the padding: {why}. Values are right; each size takes the time "
            "to compile. (check=False omits this warning.)",
            UserWarning,
            *line_of(outside(sys._getframe())),
        )


def _zeros(leaf: Tensor, dim: int, more: int) -> Tensor:
    """Return a tensor like another one, of zeros, with more rows."""
    shape = list(leaf.shape)
    shape[dim] += more
    zeros = tables.FUNCTIONS[""]["zeros"](shape, dtype=leaf.dtype, device=leaf.device)
    if not leaf.requires_grad:
        return zeros
    zeros.requires_grad_()
    return zeros if leaf.is_leaf else zeros.clone()
