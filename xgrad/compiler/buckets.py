"""Buckets: pads a compiled function's arguments of varying sizes to one of a few sizes, which share programs.

    x (37, 8) ──pad──► (64, 8) ──the program of 64──► (64, 3) ──cut──► (37, 3)

The function must mask the padding: it can ask for the true size (`valid`).  The first padded call of each size is
compared with the program of the exact shape, on the same values, before it changes anything; a result that depends on
the padding is an error.
"""

import inspect
from collections.abc import Callable, Sequence
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import numpy as np

from ..dispatch import tables
from ..tensor import Tensor
from ..tensor_methods import pytrees
from .compiled_program import Entry

VALID = "valid"  # the parameter that gets the size before padding

_DEPENDS = (
    "xgrad.compile: with dynamic=, {what} of {name} depends on the padding: at size {size}, padded to {bucket}, it is "
    "off by {error:.2g}. Mask what is padded: take a parameter `valid`, a tensor with the true size, as in "
    "(loss * (xgrad.arange(x.shape[0]) < valid)).sum() / valid. (Random numbers of another shape differ too; "
    "check=False takes your word for it.)"
)
_WAITS = (
    "xgrad.compile: {name} cannot be traced now: a function that another thread traces waits, maybe for "
    "this very call. Do not wait for threads within compiled functions."
)


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
    ) -> None:
        self._compiled = compiled
        self._signature = inspect.signature(function)
        unknown = [name for name in dynamic if name not in self._signature.parameters]
        if unknown:
            raise TypeError(f"xgrad.compile: dynamic= names no parameter of the function: {', '.join(unknown)}")
        self._dynamic, self._sizes, self._check = dynamic, sorted(sizes or ()), check
        self._takes_valid = VALID in self._signature.parameters
        self._cuts: WeakKeyDictionary[Entry, list] = WeakKeyDictionary()  # by entry, one for each padded size

    def call(self, args: tuple[Any, ...], kwargs: dict[Any, Any]) -> Any:
        """Pad the arguments, run the program, cut the results."""
        bound = self._signature.bind_partial(*args, **kwargs)
        size = self._size(bound.arguments)
        bucket = self._bucket(size)
        if self._takes_valid and VALID not in bound.arguments:
            bound.arguments[VALID] = tables.FUNCTIONS[""]["tensor"](size)
        if bucket == size:
            return self._compiled.run(bound.args, bound.kwargs)
        exact = bound.args, bound.kwargs
        for name, dim in self._dynamic.items():
            bound.arguments[name] = pytrees.mapped(
                lambda leaf, dim=dim: _padded(leaf, dim, bucket - size), bound.arguments[name]
            )
        cuts = self._cut(bound, exact, size, bucket)
        leaves, tree = pytrees.flatten(self._compiled.run(bound.args, bound.kwargs))
        return tree.unflatten([_cut_to(leaf, dims, size) for leaf, dims in zip(leaves, cuts, strict=True)])

    def _size(self, arguments: dict[str, Any]) -> int:
        """Return the one size of all dimensions that vary.  Raises `ValueError` if they differ."""
        sizes = {}
        for name, dim in self._dynamic.items():
            for leaf in pytrees.leaves(arguments.get(name)):
                if isinstance(leaf, Tensor):
                    sizes[name] = leaf.shape[dim]
        if len(set(sizes.values())) != 1:
            raise ValueError(f"xgrad.compile: the dimensions that dynamic= names must have one size, but got {sizes}")
        return next(iter(sizes.values()))

    def _bucket(self, size: int) -> int:
        for bucket in self._sizes:
            if bucket >= size:
                return bucket
        if self._sizes:
            raise ValueError(f"xgrad.compile: a size of {size} is over the largest of buckets={self._sizes}")
        return 1 << max(size - 1, 0).bit_length()

    def _cut(self, bound: Any, exact: tuple, size: int, bucket: int) -> list:
        """Return the dimensions to cut of each result; compare the results in the first padded call of a kind."""
        padded = _found(self._compiled, bound.args, bound.kwargs)
        cuts = self._cuts.get(padded[0])
        if cuts is None:
            true = _found(self._compiled.alone(), *exact)
            cuts = []
            for a, b in zip(padded[0].shapes(), true[0].shapes(), strict=True):
                pairs = () if a is None or b is None else enumerate(zip(a, b, strict=True))
                cuts.append([dim for dim, (m, n) in pairs if m != n])
            if self._check:
                self._compare(padded, true, size, bucket)
            self._cuts[padded[0]] = cuts
        return cuts

    def _compare(self, padded: tuple, true: tuple, size: int, bucket: int) -> None:
        """Raise `ValueError` if the programs of the padded size and of the true size give different results."""
        for i, (a, b) in enumerate(zip(padded[0].tried(*padded[2:]), true[0].tried(*true[2:]), strict=True)):
            a, b = np.asarray(a), np.asarray(b)
            a = a[tuple(slice(n) for n in b.shape)]
            if b.dtype.kind not in "fciub":
                a, b = a.astype(np.float32), b.astype(np.float32)
            if not np.allclose(a, b, rtol=1e-3, atol=1e-5, equal_nan=True):
                error = float(np.max(np.abs(a.astype(np.complex128) - b.astype(np.complex128))))
                name = self._compiled.name()
                raise ValueError(_DEPENDS.format(what=f"result {i}", name=name, size=size, bucket=bucket, error=error))


def _found(compiled: Compiled, args: tuple, kwargs: dict) -> tuple:
    """Return the entry and the operands for a call.  Raises `RuntimeError` if it cannot be traced now."""
    found = compiled.find(args, kwargs)
    if found is None:
        raise RuntimeError(_WAITS.format(name=compiled.name()))
    return found


def _padded(leaf: Any, dim: int, more: int) -> Any:
    if not isinstance(leaf, Tensor):
        return leaf
    shape = list(leaf.shape)
    shape[dim] = more
    zeros = tables.FUNCTIONS[""]["zeros"](shape, dtype=leaf.dtype, device=leaf.device)
    return tables.FUNCTIONS[""]["cat"]([leaf, zeros], dim)


def _cut_to(leaf: Any, dims: list[int], size: int) -> Any:
    for dim in dims:
        leaf = leaf.narrow(dim, 0, size)
    return leaf
