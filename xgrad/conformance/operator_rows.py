"""OperatorRow: checks one operator on a device, dtype by dtype, and makes its row of `xgrad conform`'s report."""

from functools import partial
from typing import Any

import jax
import numpy as np

from ..base import dtypes
from ..base.limits import x64_for_now
from ..dispatch.operator import Operator
from ..dispatch.tables import OPERATORS, VARIANTS
from ..errors import DtypeDisabledError
from ..tensor import from_array
from .cases import Case, fits, hermitian, like, read, samples_of
from .execution import Place, alone, refusal, together
from .measure import compare
from .on_chip import compiled
from .operators import (
    FORWARD,
    GRADIENT,
    IN_PLACE,
    OUT,
    Found,
    checks_of,
    forward,
    gradient,
    in_place,
    out,
    with_gradient,
)
from .records import FAILED, Cell, Check, merged
from .reference import Reference

_NAMES: dict[Any, str] = {forward: FORWARD, gradient: GRADIENT, in_place: IN_PLACE, out: OUT}


def operators() -> dict[str, Operator]:
    """Return the operators of the table by the names of their rows; variants have the name of their function too."""
    found = dict(OPERATORS)
    for op in VARIANTS:
        found[f"{op.name} ({op.function.__name__.strip('_')})"] = op
    return found


class OperatorRow:
    """One operator on one device.  `all_samples`: the dtypes that are checked on all samples, others on the first."""

    def __init__(self, op: Operator, place: Place, all_samples: frozenset[np.dtype]) -> None:
        self.op: Operator = op
        self.place: Place = place
        self.all_samples: frozenset[np.dtype] = all_samples
        self.reference: Any = Reference(op)

    def cell(self, dtype: np.dtype) -> Cell | None:
        """Return what the checks in a dtype find; None if the operator does not take it."""
        numbers = [i for i, sample in enumerate(samples_of(self.op)) if fits(self.op, sample, dtype)]
        cases, results, failures = [], [], []
        for number in numbers:
            case = Case(self.op, number, dtype, self.place.jax_device)
            try:
                results.append(self._shapes(case))
            except DtypeDisabledError:  # a result of 64 bits
                with x64_for_now():
                    return self.cell(dtype)
            except Exception as error:
                if not case.exact:  # a declaration says which of these it takes; of integers the operator itself
                    failures.append(refusal(FORWARD, error))
                    break
                continue
            if case.records:
                case.cotangents = [like(a, 50 + i) for i, a in enumerate(with_gradient(case, results[-1]))]
            cases.append(case)
            if dtype not in self.all_samples:
                break
        if not cases:
            return Cell(merged(failures)) if failures else None
        if self.place.target is not None:
            return self._compiled(cases, results, failures)
        try:
            expected = self.reference.values(cases)
        except Exception as error:
            return Cell((Check("reference", FAILED, None, f"{type(error).__name__}: {error}"[:300]),))
        checks = failures
        tasks = [
            (case, check, values)
            for case, shapes, values in zip(cases, results, expected, strict=True)
            for check in checks_of(case, shapes, case is cases[0])
        ]
        factors = {id(case): self.place.factor(dtype, *_bound(case, check)) for case, check, _ in tasks[::-1]}
        for case, found, values in self._run(tasks, checks):
            factor = factors[id(case)]
            checks += [_compared(case, name, arrays, values, factor) for name, arrays in found.items()]
        return Cell(merged(checks))

    def _compiled(self, cases: list[Case], results: list[Any], failures: list[Check]) -> Cell:
        """Return the cell of the chip that is not here."""
        tasks = [
            (_NAMES[check], *_bound(case, check))
            for case, shapes in zip(cases, results, strict=True)
            for check in dict.fromkeys([forward, *checks_of(case, shapes, case is cases[0])])
        ]
        if self.op.jit:
            return Cell(merged([*failures, *compiled(self.place, tasks)]))
        for name, task, arrays in tasks:  # its programs are in the place's report
            try:
                alone(self.place, task, arrays)
            except Exception as error:
                failures.append(refusal(name, error))
        return Cell(merged(failures))

    def _shapes(self, case: Case) -> list[Any]:
        """Return the results' shapes and dtypes, as JAX traces the call."""
        if not self.op.jit:
            return alone(Place("cpu"), partial(forward, case), case.arrays)[FORWARD]
        return jax.eval_shape(
            lambda *arrays: read(forward(case, [from_array(a) for a in arrays])[FORWARD]), *case.arrays
        )

    def _run(self, tasks: list, failures: list[Check]) -> list[tuple[Case, dict[str, list[np.ndarray]], Found]]:
        """Return (case, what the check found, the reference), and add those that raised to `failures`."""
        bound = [_bound(case, check) for case, check, _ in tasks]
        if self.op.jit and not self.place.declared:
            try:
                found = together(self.place, bound)
                return [(case, f, values) for (case, _, values), f in zip(tasks, found, strict=True)]
            except Exception:
                pass  # each by itself says what it was
        done = []
        for (case, check, values), (task, arrays) in zip(tasks, bound, strict=True):
            name = FORWARD
            try:
                if check is gradient:  # without the derivative first, which the device may lack
                    done.append((case, alone(self.place, partial(forward, case), case.arrays), values))
                name = _NAMES[check]
                done.append((case, alone(self.place, task, arrays), values))
            except Exception as error:
                failures.append(refusal(name, error))
        return done


def _bound(case: Case, check: Any) -> tuple[Any, list[np.ndarray]]:
    """Return a check as a function of tensors, and its arrays."""
    return partial(check, case), [*case.arrays, *(case.cotangents if check is gradient else ())]


def _compared(case: Case, name: str, ours: list[np.ndarray], expected: Found, factor: float) -> Check:
    if name == IN_PLACE:
        theirs = [expected[FORWARD][0].astype(case.arguments[0].dtype)]
    else:
        theirs = expected[FORWARD if name == OUT else name]
    if name == GRADIENT:
        ours = hermitian(ours, case)
    return compare(name, ours, theirs, case.dtype, factor)


def needs_x64(dtype: np.dtype) -> bool:
    """Return True for a dtype that JAX has only while its 64-bit mode is on."""
    return dtype in dtypes.WIDE
