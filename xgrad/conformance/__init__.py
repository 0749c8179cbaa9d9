"""Tests a device (`python -m xgrad conform`): compares operators, views and more on it with the CPU in float64.

selection.py      which rows, dtypes and samples
cases.py          an operator with one sample in one dtype; sample_arrays.py: the numbers
phase.py          removes the arbitrary phase or sign of eigenvectors and singular vectors
reference.py      the function and its derivative by JAX, on the CPU, in float64; measure.py: the difference
execution.py      one program for all checks of a cell, or each check by itself
on_chip.py        what the compiler of a chip that is not here says, in place of values
laws.py           the laws that a backend's own view functions (`ViewRule`) must obey
operators.py, views.py, memory.py, transfers.py, random_numbers.py, modes.py: the checks
records.py        check, cell, row; results.py: all rows; state_file.py: the JSON of a run
report.py         as people read it: table.py, page.py
"""

from .records import Cell, Check, Row
from .report import Report
from .running import run

__all__ = ["Cell", "Check", "Report", "Row", "run"]


def __dir__() -> list[str]:
    return sorted(__all__)
