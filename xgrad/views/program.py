"""Program: compiles functions that read a view from its base array, write it, map its gradient to the base, update it.

The base array is the root; a view is a chain of steps (chain.py).  Invariants: a program depends on the steps without
their starts, such as i of `x[i]`, which are operands; and a program that writes returns only the root: with another
result XLA would copy the whole of a donated buffer.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..base.dtypes import converted
from ..base.limits import checked
from ..base.platforms import default_platform
from ..execution.donation import Writing
from ..execution.programs.programs import PartRead, jit_checked, jit_placed
from ..execution.programs.programs import Program as Jitted
from .geometry import Shape
from .platforms import forms
from .view_ops import Diagonal, Permute, Reshape, Slice, ViewStep

_SCALARS = 1 << 16  # start values that are cached on the device
_FEW = 256  # of them, by `jax.device_put`, take as long as to compile `_compiled`

_LARGEST = 2**31 - 1

_scalars: dict[int, Any] = {}
_compiled = jax.jit(lambda value: value + np.int32(0))  # 8 µs, where `jax.device_put` takes 45


def start_of(value: int) -> np.int32:
    """Return `value` as NumPy's int32.  Raises `RuntimeError` for a value out of its range."""
    if value > _LARGEST:
        raise RuntimeError(f"a view that starts at {value} is out of the range of 32-bit starts")
    return np.int32(value)


def _on_device(start: np.int32) -> Any:
    return (jax.device_put if len(_scalars) < _FEW else _compiled)(start)


def scalar_of(value: int) -> Any:
    """Return `value` as an int32 scalar on the default device; in a trace too, where it is a constant of that trace."""
    scalar = _scalars.get(value)
    if scalar is None:
        start = start_of(value)
        if len(_scalars) >= _SCALARS:
            _scalars.clear()
        with jax.ensure_compile_time_eval():
            scalar = _scalars[value] = _on_device(start)
    return scalar


def _fit(new: Any, shape: Shape, dtype: np.dtype) -> Any:
    new = jnp.asarray(new)
    if new.dtype != dtype:
        if new.dtype.kind == "c" and dtype.kind != "c":
            new = jnp.real(new)  # as PyTorch, which warns; astype does too
        new = converted(new, dtype)
    return new if new.shape == shape else jnp.broadcast_to(new, shape)


class Program:
    """The compiled programs of all chains that differ in their starts only."""

    __slots__ = (
        "adjoint", "counts", "dtype", "placed", "root_dtype", "root_shape", "seen", "shape", "steps", "trailing",
        "updates", "view", "write", "write_donated",
    )  # fmt: skip

    def __init__(self, root_shape: Shape, root_dtype: np.dtype, steps: tuple[ViewStep, ...], counts: Shape) -> None:
        self.root_shape: Shape = root_shape
        self.root_dtype: np.dtype[Any] = root_dtype
        self.steps: tuple[ViewStep, ...] = steps
        self.counts: Shape = counts
        self.seen: Any = []  # shape and dtype before each step
        shape, dtype = root_shape, root_dtype
        for step in steps:
            self.seen.append((shape, dtype))
            shape, dtype = step.result(shape, dtype)
        self.shape: Shape = shape
        self.dtype: np.dtype[Any] = dtype
        self.view: Jitted = _reader(self)
        # A program that writes runs where the root is, also if it replaces all of it and does not read it.
        self.write: Jitted = jit_checked(self.trace_write, self, keep_unused=True)
        self.view.role, self.write.role = "read", "write"
        self.write.parts = self, None
        self.write_donated: Writing = Writing(self.trace_write, self)
        self.adjoint: Jitted = jit_checked(self.trace_adjoint, self)
        self.view.label, self.write.label, self.adjoint.label = "view", "write_back", "adjoint"
        if dtype == root_dtype and all(isinstance(step, (Slice, Permute, Reshape, Diagonal)) for step in steps):
            self.adjoint.role, self.adjoint.into = "adjoint", self.trace_add
        self.trailing: slice | None = slice(-sum(counts), None) if any(counts) else None
        self.view.starts = self.write.starts = self.adjoint.starts = self.trailing
        self.updates: dict[tuple[Any, ...], Any] = {}
        self.placed: dict[tuple[Any, ...], Any] = {}

    def _split(self, starts: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        split, first = [], 0
        for count in self.counts:
            split.append(starts[first : first + count])
            first += count
        return split

    def trace_replay(self, array: Any, *starts: Any) -> Any:
        for step, own in zip(self.steps, self._split(starts)):
            array = step.replay(array, own)
        return array

    def trace_write(self, array: Any, new: Any, *starts: Any) -> Any:
        split = self._split(starts)
        befores = [array]  # the input of each step; XLA drops unused ones
        for step, own in zip(self.steps[:-1], split):
            befores.append(step.replay(befores[-1], own))
        new = _fit(new, self.shape, self.dtype)
        for step, own, before in zip(reversed(self.steps), reversed(split), reversed(befores)):
            new = step.write_back(before, new, own)
        return new

    def trace_adjoint(self, grad: Any, *starts: Any) -> Any:
        for step, own, (shape, dtype) in zip(reversed(self.steps), reversed(self._split(starts)), reversed(self.seen)):
            grad = step.transpose(grad, shape, dtype, own)
        return grad

    def trace_add(self, hold: Callable[..., Any], array: Any, grad: Any, *starts: Any) -> Any:
        """Return `array + trace_adjoint(grad)` for a view whose elements do not overlap: the rest is not read."""
        return self.trace_write(array, hold(self.trace_replay(array, *starts)) + grad, *starts)

    def write_placed(self, donate: bool, where: Any) -> Callable[..., Any]:
        """Return the program that writes, with the sharding `where` for its result: XLA may choose another."""
        program = self.placed.get((donate, where))
        if program is None:
            if donate:
                program = Writing(self.trace_write, (), where)
            else:
                program = jit_placed(self.trace_write, where)
                program.role, program.label, program.starts = "write", "write", self.trailing
            self.placed[donate, where] = program
        return program

    def update(self, function: Callable[..., Any], key: Any, donate: bool, where: Any = None) -> Any:
        program = self.updates.get((key, donate, where))
        if program is None:

            def view_update(root: Any, starts: tuple[Any, ...], *operands: Any) -> Any:
                return self.trace_write(root, function(self.trace_replay(root, *starts), *operands), *starts)

            def update_within(hold: Callable[..., Any], root: Any, starts: tuple[Any, ...], *operands: Any) -> Any:
                part = hold(self.trace_replay(root, *starts))
                return self.trace_write(root, function(part, *operands), *starts)

            if donate:
                program = Writing(view_update, (self, key), where)
            else:
                facts = self, key
                program = (
                    jit_checked(view_update, facts, keep_unused=True, own=getattr(key, "own", False))
                    if where is None
                    else jit_placed(view_update, where)
                )
                program.role, program.into, program.label = "write", update_within, "update"
                if (operator := getattr(key, "operator", None)) is not None:  # of a kernel
                    program.operator, program.parts = operator.name, (self, key)
                program.starts = slice(1, 2) if self.trailing else None
            self.updates[key, donate, where] = program
        return program


def _reader(program: Program) -> Jitted:
    platform = default_platform()
    if not (options := forms(platform).options):
        return jit_checked(program.trace_replay, program, converts=True)
    return PartRead(checked(program.trace_replay, program, converts=True), platform, options)


@functools.lru_cache(maxsize=4096)
def program_of(root_shape: Shape, root_dtype: np.dtype, steps: tuple[ViewStep, ...], counts: Shape) -> Program:
    return Program(root_shape, root_dtype, steps, counts)
