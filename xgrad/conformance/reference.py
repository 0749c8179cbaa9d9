"""Reference: an operator's values and derivatives by JAX on the CPU, in float64 or complex128, for conformance.

The numbers are those that the device gets, which are exact in the wider dtype.  Integers and bools are computed as they
are.  An operator that draws random numbers is computed in the dtype of the device, because each dtype has others.
"""

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..base import dtypes
from ..base.limits import x64_for_now
from ..dispatch.operator import Operator
from ..dispatch.samples import CONVENTION
from ..tensor import from_array
from .cases import Case, cpu, hermitian, read
from .measure import wide
from .operators import FORWARD, GRADIENT, fixed, gradient, with_gradient

Values = dict[str, list[np.ndarray]]
# Each program runs a few times, and compiles in a third of the time.
_FAST = {
    "xla_backend_optimization_level": 0, "xla_cpu_use_fusion_emitters": False,
    "xla_cpu_parallel_codegen_split_count": 1,
}  # fmt: skip


class _Program(NamedTuple):
    """A program of some cases, and the operands of its first run, by the numbers of their samples."""

    operands: dict[int, list[np.ndarray]]
    run: Callable[[list], list]


class Reference:
    """The values of an operator's cases.  Columns whose wider arguments are alike share a program."""

    def __init__(self, op: Operator) -> None:
        self.op = op
        self._programs: list[_Program] = []

    def values(self, cases: list[Case]) -> list[Values]:
        """Return for each case its results and gradients."""
        found: dict[int, Values] = {}
        for as_it_is in (False, True):
            alike = [c for c in cases if (c.exact or c.random) == as_it_is]
            if alike:
                found |= self._values(alike, as_it_is)
        return [found[case.number] for case in cases]

    def _values(self, cases: list[Case], as_it_is: bool) -> dict[int, Values]:
        operands = {c.number: [a if as_it_is else wide(a) for a in (*c.arrays, *c.cotangents)] for c in cases}
        x64 = x64_for_now() if not as_it_is or cases[0].dtype in dtypes.WIDE else nullcontext()
        with x64, jax.default_device(cpu()):
            program = next((p for p in self._programs if _takes(p, operands)), None)
            if program is None:
                program = _Program(operands, self._compiled(cases, list(operands.values()), as_it_is))
                self._programs.append(program)
            given = program.operands | operands
            found = dict(zip(given, jax.device_get(program.run(list(given.values()))), strict=True))
        for case in cases:
            if GRADIENT in found[case.number]:
                found[case.number][GRADIENT] = hermitian(found[case.number][GRADIENT], case)
        return {case.number: found[case.number] for case in cases}

    def _compiled(self, cases: list[Case], operands: list, as_it_is: bool) -> Callable[[list], list]:
        def all_cases(operands: list) -> list:
            pairs = zip(cases, operands, strict=True)
            return [_case(c, o, c.statics if as_it_is else c.wide_statics) for c, o in pairs]

        if not self.op.jit:  # the shape of a result depends on values
            return lambda operands: all_cases(jax.tree.map(jnp.asarray, operands))
        lowered = jax.jit(all_cases).lower(operands)
        try:
            return lowered.compile(compiler_options=_FAST)
        except (jax.errors.JaxRuntimeError, ValueError):  # this XLA lacks one of the options
            return lowered.compile()


def _takes(program: _Program, operands: dict[int, list[np.ndarray]]) -> bool:
    """Return True if the program has these cases, of these shapes and dtypes."""
    return all(
        number in program.operands and _kinds(arrays) == _kinds(program.operands[number])
        for number, arrays in operands.items()
    )


def _kinds(arrays: list[np.ndarray]) -> list[tuple]:
    return [(a.shape, a.dtype) for a in arrays]


def _case(case: Case, operands: list, statics: tuple) -> dict[str, list]:
    op, count = case.op, len(case.places)
    pure = partial(op.function, **dict(zip(op.static_names, statics, strict=True)))
    moving = [case.places.index(i) for i in case.moving]

    def function(*arrays: Any) -> list:
        given = list(operands[:count])
        for i, a in zip(moving, arrays, strict=True):
            given[i] = a
        full = [jnp.asarray(a) if isinstance(a, (int, float, complex)) else a for a in case.filled(given)]
        return fixed(case, pure(*full))

    arrays = [operands[i] for i in moving]
    weights = operands[count:]
    if not (case.records and weights):
        return {FORWARD: function(*arrays)}
    if CONVENTION[0] in op.samples:  # PyTorch's gradient is not the function's derivative
        found = gradient(case, [from_array(a) for a in operands])
        return {name: read(tensors) for name, tensors in found.items()}

    def split(*a: Any) -> tuple[tuple, tuple]:
        found = function(*a)
        return tuple(with_gradient(case, found)), tuple(found)

    _, pull, results = jax.vjp(split, *arrays, has_aux=True)
    return {FORWARD: list(results), GRADIENT: [jnp.conj(g) for g in pull(tuple([jnp.conj(g) for g in weights]))]}
