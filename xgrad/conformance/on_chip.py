"""Checks conformance for a chip that is not here: its compiler compiles the checks' programs, and the chip runs none.

All checks of an operator in one dtype are one program first; if that does not simply compile, each is one.  Where a
check has no single program (transfers, a training step, results whose shape depends on values), the check runs on an
`xgrad.Backend` (on the CPU), and each program that ran there is compiled.
"""

import re
from typing import Any

from ..base.table import seconds, size
from ..chips import Answer
from ..chips.reading import Reading
from .execution import Place, Task, one_program, refusal
from .records import COMPILES, ENDS, GATHERS, REFUSED, RIGHT, SLOW, WRONG, Cell, Check, merged

_LOGGED = re.compile(r"^F\d+ [\d:.]+ +\d+ ")
LONG = 10.0  # seconds to compile: others take 0.2
# Beside arguments and results in the chip's tiles: a program may move so many times their bytes, and so many more.
TIMES, MORE = 4, 1 << 17


def compiled(place: Place, tasks: list[tuple[str, Task, list[Any]]]) -> list[Check]:
    """Return a check for each task: a name, a function over tensors, its arrays."""
    try:
        program = one_program([task for _, task, _ in tasks])
        state, why = judged(place.target.ask(program, [arrays for *_, arrays in tasks]))
        if state == COMPILES or len(tasks) == 1:
            return [Check(name, state, None, why) for name, *_ in tasks]
    except Exception as error:
        if len(tasks) == 1:
            return [refusal(tasks[0][0], error)]
    return [check for task in tasks for check in compiled(place, [task])]


def judged(answer: Answer) -> tuple[str, str]:
    """Return the state of a program, and why."""
    if answer.state in (SLOW, ENDS):
        return answer.state, _first(answer.said)
    if answer.state != "compiles":
        return REFUSED, _first(answer.said)
    if answer.seconds > LONG:
        return SLOW, f"{seconds(answer.seconds)} to compile"
    gathers = [a.what for a in Reading(answer.hlo).accesses if a.what.endswith("slices of 1")]
    ideal = answer.memory.get("argument", 0) + answer.memory.get("output", 0)
    moved = answer.bytes_accessed  # None: the compiler does not count
    told = f"{'' if moved is None else f'{size(moved)} for '}{size(ideal)} of arguments and results"
    if gathers or (moved or 0.0) > TIMES * ideal + MORE:
        return GATHERS, "; ".join([*dict.fromkeys(gathers), told])
    return COMPILES, f"{told}, {seconds(answer.seconds)} to compile"


def _first(said: str) -> str:
    """Return the first line of a compiler's words, without time and process."""
    return _LOGGED.sub("", (said.strip().splitlines() or [""])[0])[:300]


def launched(cell: Cell | None, report: Any) -> Cell | None:
    """Return a cell with the programs that ran on a place with a target; None if no program ran at all.

    Its checks that compared values, the CPU's, are left out.
    """
    here = [c for c in (cell.checks if cell else ()) if c.state not in (RIGHT, WRONG)]
    if not (here or report.launches):
        return None
    told = [(p.name, *judged(p.answer)) for p in report.on_target().programs]
    return Cell(merged([*here, *(Check(name, state, None, why) for name, state, why in told)]))
