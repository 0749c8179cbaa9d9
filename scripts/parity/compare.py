"""When an entry agrees: each check on a few inputs, compared number by number.

Shapes, dtypes, integers and truth values agree exactly, floating-point numbers within a tolerance.  What is random
agrees in shape and dtype.  A derivative of None agrees with zeros.  An error of torch's leaves the input out, but where
something is written in place: there xgrad has to refuse, too.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch

from .cases import PROCEDURES, SCENARIOS, Case, drawn, forward, name_of, varied, view
from .libraries import TORCH, XGRAD, MissingError, database, dtype_name

CHECKS = ("forward", "grad", "gradgrad", "jvp", "inplace", "method", "view")
DTYPES = {"float64": CHECKS, "float32": CHECKS[:2], "bfloat16": CHECKS[:2], "complex128": CHECKS[:2]}
SAMPLES = {"float64": 4, "float32": 1, "bfloat16": 1, "complex128": 1}  # inputs of an entry
INSTEAD = (torch.complex128, torch.float32, torch.int64, torch.bool)  # of float64, for an entry that does not take it

TOLERANCES = {"float64": (1e-7, 1e-9), "complex128": (1e-7, 1e-9), "float32": (1e-4, 1e-5), "complex64": (1e-4, 1e-5)}
COARSE = (2e-2, 2e-2)  # of other floating-point dtypes
LOOSER = ("linalg.", "special.")  # entries with tolerances ten times as large

UNSPECIFIED = {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"}
UNSPECIFIED |= {"resize_", "resize_as_"}


class Array(NamedTuple):
    """The values of a tensor; bfloat16 has those of float32."""

    dtype: str
    values: np.ndarray


def observe(library: Any, found: list) -> list:
    """Read the tensors; other values stay as they are, a dtype as its name."""

    def one(value: Any) -> Any:
        if isinstance(value, library.Tensor):
            return Array(dtype_name(value.dtype), library.numbers(value))
        return dtype_name(value) if isinstance(value, (torch.dtype, np.dtype)) else value

    return [one(value) for value in found]


def difference(expected: list, found: list, factor: float = 1.0, values: bool = True) -> str:
    """Return what differs between two observations, or nothing; without `values`, of shapes and dtypes."""
    if len(expected) != len(found):
        return f"{len(found)} results, torch {len(expected)}"
    for i, (e, f) in enumerate(zip(expected, found)):
        if isinstance(e, Array) and isinstance(f, Array):
            said = _of_arrays(e, f, factor, values)
        elif isinstance(e, Array) or isinstance(f, Array):
            said = _of_zeros(e, f)
        else:
            said = "" if not values or _same(e, f, factor) else f"{f!r}, torch {e!r}"
        if said:
            return f"{i}: {said}"
    return ""


def _of_arrays(expected: Array, found: Array, factor: float, values: bool) -> str:
    e, f = expected.values, found.values
    if expected.dtype != found.dtype or e.shape != f.shape:
        return f"{found.dtype}{list(f.shape)}, torch {expected.dtype}{list(e.shape)}"
    if not values or not e.size:
        return ""
    bad = e != f
    if e.dtype.kind in "fc":
        relative, absolute = TOLERANCES.get(expected.dtype, COARSE)
        largest = np.abs(e[np.isfinite(e)]).max(initial=1.0)
        with np.errstate(invalid="ignore", over="ignore"):
            close = np.abs(f - e) <= factor * (relative * np.abs(e) + absolute * largest)
        bad &= ~(close | (np.isnan(e) & np.isnan(f)))
    if not bad.any():
        return ""
    at = tuple(int(i) for i in np.argwhere(bad)[0])
    return f"{int(bad.sum())} of {bad.size} elements differ; at {at} {f[at]}, torch {e[at]}"


def _of_zeros(expected: Any, found: Any) -> str:
    """Compare an array with None, which is a derivative of zeros."""
    array, other = (expected, found) if isinstance(expected, Array) else (found, expected)
    if other is not None:
        return f"a tensor in one, {other!r} in the other"
    return "a derivative in one that is not zero, none in the other" if np.any(array.values != 0) else ""


def _same(expected: Any, found: Any, factor: float) -> bool:
    numbers = (float, complex)
    if isinstance(expected, numbers) and isinstance(found, numbers):
        return not difference([Array("float64", np.array(expected))], [Array("float64", np.array(found))], factor)
    return expected == found


# -- a check on an input ---------------------------------------------------------------------------------------------


def procedures(check: str, case: Case) -> Iterator[tuple[str, Callable, bool]]:
    """Yield the procedures of a check on an input, each with True if values are compared."""
    if check == "view":
        for scenario in SCENARIOS:
            yield f"view ({scenario})", partial(view, scenario=scenario), True
        return
    free = case.name in UNSPECIFIED or case.random
    if not (free and check in ("grad", "gradgrad", "jvp")):
        yield check, PROCEDURES[check], not free


def agree(check: str, case: Case) -> list[tuple[str, str]]:
    """Return (mark, what differs) of each procedure: "+" agrees, "x" does not, "o" is missing."""
    factor = 10.0 if case.name.startswith(LOOSER) else 1.0
    found = []
    for label, procedure, values in procedures(check, case):
        refusal: Exception | None = None
        expected: list = []
        try:
            expected = observe(TORCH, procedure(TORCH, case))
        except Exception as error:
            if check not in ("inplace", "view") or type(error) is not RuntimeError:
                continue
            refusal = error
        try:
            said = difference(expected, observe(XGRAD, procedure(XGRAD, case)), factor, values)
            mark, said = ("x", f"no error; torch: {refusal}") if refusal is not None else ("x" if said else "+", said)
        except MissingError as error:
            mark, said = "o", f"there is no {error}"
        except Exception as error:
            refused = refusal is not None and isinstance(error, RuntimeError) and not _broken(error)
            mark, said = ("+", "") if refused else ("x", f"{type(error).__name__}: {error}")
        found.append((mark, said and f"sample {case.index}: {label}: {' '.join(said.split())}"[:160]))
    return found


def _broken(error: Exception) -> bool:
    """Return True for an error that is no refusal of the operation."""
    return isinstance(error, (NotImplementedError, RecursionError)) or type(error).__module__.startswith("jax")


def is_random(case: Case) -> bool:
    """Return True if torch's results change with the seed."""
    found: list = []
    with suppress(Exception):  # torch refuses the input
        for seed in range(24):
            torch.manual_seed(seed)
            found.append(observe(TORCH, forward(TORCH, case)))
            if difference(found[0], found[-1]):
                return True
    return False


def is_view(case: Case) -> bool:
    """Return True if torch's result is a view of the input."""
    with suppress(Exception):
        view(TORCH, case, "base")
        return True
    return False


def in_dtype(info: Any, dtype: str) -> bool:
    """Return True if an entry is compared in a dtype: pointwise functions, reductions and FFTs are in all."""
    return dtype == "float64" or (type(info) is not database.OpInfo and getattr(torch, dtype) in info.dtypes)


# -- an entry --------------------------------------------------------------------------------------------------------


def has(info: Any, check: str) -> bool:
    """Return True unless the database says that torch lacks the derivative."""
    if check not in ("grad", "gradgrad", "jvp"):
        return True
    further = {"gradgrad": info.supports_gradgrad, "jvp": info.supports_forward_ad}.get(check, True)
    return bool(info.supports_autograd and further)


def compare(info: Any, dtype: str) -> list:
    """Return the marks of an entry in a dtype, one for each of CHECKS, and {check: what differs} if something does."""
    choices = [d for d in (getattr(torch, dtype), *(INSTEAD if dtype == "float64" else ())) if d in info.dtypes]
    every: list = []
    with suppress(Exception):  # inputs that torch cannot make on this machine
        every = drawn(info, choices[0]) if choices else []
    cases = varied(every, SAMPLES[dtype])
    for case in cases:
        case.random = is_random(case)
    marks, reasons = "", {}
    for check in CHECKS:
        found: list = []
        if check in DTYPES[dtype] and has(info, check):
            views = [case for case in every if is_view(case)] if check == "view" else []
            chosen = varied(views, SAMPLES[dtype]) if check == "view" else cases
            found = [result for case in chosen for result in agree(check, case)]
        worst = max((mark for mark, _ in found), key="+ox".index, default=".")
        marks += worst
        if worst in "xo":
            reasons[check] = next(said for mark, said in found if mark == worst)
    return [marks, reasons] if reasons else [marks]


def compare_named(task: tuple[str, str]) -> tuple[str, str, list]:
    """Compare the entry of a (name, dtype), and return both with the marks: a task for another process."""
    name, dtype = task
    return name, dtype, next(compare(info, dtype) for info in database.op_db if name_of(info) == name)
