"""run: makes a device's conformance report (`python -m xgrad conform`) by rows; an error in a row is a cell of it."""

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ..base.limits import x64_for_now
from ..chips import target
from ..config import narrowing_refused
from .cases import cpu
from .execution import Place, refusal
from .measure import ACCEPTED
from .on_chip import launched
from .operator_rows import needs_x64
from .records import FAILED, Cell, Check, Row
from .report import Report
from .selection import Job, chosen, dtypes_of, jobs
from .state_file import StateFile

LIMIT = 60.0  # seconds for a chip's compiler, for each program
Progress = Callable[[int, int, str], None]


def run(
    device: Any = None,
    operators: str | Sequence[str] = (),
    dtypes: Sequence[Any] | None = None,
    *,
    exhaustive: bool = False,
    compile_for: Any = None,
    tolerances: Mapping[str, float] | None = None,
    file: Any = None,
    resume: bool = False,
    progress: Progress | None = None,
) -> Report:
    """Compare a device with the CPU in float64: operators, views, memory, transfers, random numbers, execution.

    `device`: anything that `device=` takes, by default JAX's default device.  `operators`: patterns of names or groups
    ("mul*", "views"), in a list or parted by commas; by default all.  `dtypes`: the columns, by default float32,
    bfloat16, int32, bool and complex64.  Each operator is checked in float32 on all its samples, in the others on the
    first that fits; `exhaustive`: on all samples, and by default in all dtypes.

    `compile_for`: a chip that is not here, `"tpu:v5e"` or an `xgrad.target`: its own compiler compiles all of it, and
    nothing runs there, so no values are compared.  A cell says "compiles", "gathers" (element by element, or far more
    bytes than arguments and results have), "slow", "refused" or "ends the compiler".

    `tolerances`: {pattern of names: error that is right too, as a part of the largest element}, such as {"gelu": 0.01}
    for a chip whose gelu is right within 1 %.  The report lists them.

    `file`: JSON, written after each row; with `resume`, rows that it has are not made again.  `progress` is called with
    (rows made, rows in all, the next row's name).

    Raises `ValueError` for a pattern that matches nothing, a tolerance that is not positive, an unknown dtype, a device
    beside `compile_for`, and a file of another run; `RuntimeError` if JAX does not see the CPU, `TargetError` if the
    chip's compiler is not here.

    >>> import xgrad
    >>> report = xgrad.conformance.run("cpu", operators="tanh", dtypes=["float32"])
    >>> report.ok, [c.name for c in report.rows[0].cells["float32"].checks]
    (True, ['forward', 'gradient', 'in place', 'out='])
    """
    cpu()
    if device is not None and compile_for is not None:
        raise ValueError("conformance.run(): compile_for is a chip that is not here: give no device")
    aim = None if compile_for is None else target(compile_for, limit=LIMIT)
    if aim is not None:
        aim.require()
    place = Place(device, aim)
    patterns = [p.strip() for p in operators.split(",")] if isinstance(operators, str) else list(operators)
    rows, columns = chosen(patterns), dtypes_of(dtypes, exhaustive)
    accepted = _accepted(tolerances or {})
    facts = _facts(place, patterns, columns, exhaustive) | ({"accepted": dict(tolerances)} if tolerances else {})
    state = StateFile(None if file is None else Path(file), facts)
    if resume:
        state.resume()
    made = {(row.group, row.name) for row in state.rows}
    rest = jobs([row for row in rows if row not in made], place, exhaustive)
    for job in rest:
        if progress is not None:
            progress(len(state.rows), len(rows), job.name)
        try:
            state.add(_row(job, columns, state, place, accepted.get((job.group, job.name), 0.0)))
        except BaseException:
            state.write()  # interrupted: the row is made again
            raise
    if progress is not None:
        progress(len(rows), len(rows), "")
    state.write(complete=True)
    return state.report(complete=True)


def _accepted(tolerances: Mapping[str, float]) -> dict[tuple[str, str], float]:
    """Return the tolerance of each row, the largest of the patterns that match it."""
    found: dict[tuple[str, str], float] = {}
    for pattern, part in tolerances.items():
        if isinstance(part, bool) or not isinstance(part, (int, float)) or not 0 < part < float("inf"):
            raise ValueError(f"tolerances[{pattern!r}] is a part of the largest element, such as 0.01, not {part!r}")
        found |= {row: max(part, found.get(row, 0.0)) for row in chosen([pattern])}
    return found


def _row(job: Job, columns: Sequence[np.dtype], state: StateFile, device: Place, accepted: float) -> Row:
    start, cells = time.perf_counter(), {}
    for dtype in columns:
        place = (job.group, job.name, dtype.name)
        if place in state.ended:
            why = "the process ended while this was computed; what XLA said of it is in that run's output"
            cells[dtype.name] = Cell((Check("process", FAILED, None, why),))
            continue
        state.write(running=place)
        with ExitStack() as settings:
            settings.callback(ACCEPTED.reset, ACCEPTED.set(accepted))
            # An accelerator may multiply float32 in fewer bits unless it is asked not to.
            highest = device.target is None  # else programs are as users have them
            settings.enter_context(jax.default_matmul_precision("highest") if highest else nullcontext())
            settings.enter_context(x64_for_now() if needs_x64(dtype) else nullcontext())
            settings.enter_context(narrowing_refused())  # an operator that asks for 64 bits is checked in them
            with device.report() as report:
                try:
                    cell = job.cell(dtype)
                except Exception as error:
                    cell = Cell((refusal(job.name, error),))
            if device.target is not None:
                cell = launched(cell, report)
        if cell is not None:
            cells[dtype.name] = replace(cell, host=report is not None and report.fallen > 0)
    return Row(job.group, job.name, cells, time.perf_counter() - start)


def _facts(place: Place, patterns: list[str], columns: Sequence[np.dtype], exhaustive: bool) -> dict[str, Any]:
    names = [d.name for d in columns]
    rest = [n for n in names if n != "float32"]
    every = "all samples of each operator"
    parts = [every if exhaustive or not rest else f"{every} in float32" if "float32" in names else ""]
    if rest and not exhaustive:
        parts.append(f"the first that fits in {', '.join(rest)}")
    return {
        "device": place.name, "kind": place.kind, "xgrad": sys.modules["xgrad"].__version__, "jax": jax.__version__,
        "operators": patterns, "dtypes": names, "exhaustive": exhaustive, "samples": ", ".join(filter(None, parts)),
        **({} if place.target is None else {"compiled for": place.target.name}),
        **place.products,
    }  # fmt: skip
