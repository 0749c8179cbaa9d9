"""Case: makes arguments for an operator from one of its sample inputs, in one dtype, for `python -m xgrad conform`.

Most samples (dispatch/samples.py) draw floating-point numbers.  For an integer dtype or bool, integers or bools are
drawn instead; the trace of the operator shows if it takes them.
"""

from functools import cached_property
from math import ceil, floor
from typing import Any

import jax
import numpy as np

from ..base import dtypes
from ..base.dtype_object import dtype as dtype_type
from ..dispatch.operator import Operator
from ..dispatch.samples import COMPLEX, SINGLE, Draw, Sample
from ..tensor import Tensor
from .sample_arrays import FLOATING, arguments

_INTEGRAL = ("real", "rising")  # drawn as integers in a column of integers
_HALF = {np.dtype("float16"), dtypes.bfloat16}


def samples_of(op: Operator) -> list[Sample]:
    return [s for s in op.samples if isinstance(s, Sample)]


def kinds(sample: Sample) -> set[str]:
    return {a.kind for a in sample.arrays if isinstance(a, Draw)}


def fits(op: Operator, sample: Sample, dtype: np.dtype) -> bool:
    """Return True if the sample says something about the operator in this dtype."""
    drawn = kinds(sample)
    numbers = drawn & {*FLOATING, "whole", "truth", "exchanges"}
    if not numbers:
        return dtype == _made(sample)
    if dtype.kind == "c":
        return "complex" in drawn or (COMPLEX[0] in op.samples and bool(drawn & {*FLOATING}))
    if "complex" in drawn:
        return False
    if dtype in dtypes.FLOATS:
        return bool(drawn & {*FLOATING}) and not (dtype in _HALF and SINGLE[0] in op.samples)
    if drawn & {*FLOATING}:
        return bool(drawn & {*_INTEGRAL}) and not drawn & {"definite", "regular"} and _whole(sample, dtype) is not None
    if dtype.kind == "b":
        return "truth" in drawn or "exchanges" not in drawn
    return bool(drawn & {"whole", "exchanges"})


def _made(sample: Sample) -> np.dtype:
    """Return the dtype in whose column an operator stands that makes numbers of none: float32 unless it says so."""
    asked = sample.statics.get("dtype")
    kind = "f" if asked is None else np.dtype(asked).kind
    return np.dtype({"i": "int32", "u": "int32", "b": "bool", "c": "complex64"}.get(kind, "float32"))


def _whole(sample: Sample, dtype: np.dtype) -> Sample | None:
    """Return the sample with integers or bools in place of floating-point numbers; None if its range has none."""
    arrays: list[Any] = list(sample.arrays)
    for i, a in enumerate(arrays):
        if isinstance(a, Draw) and a.kind in _INTEGRAL:
            low, high = ceil(a.low), floor(a.high)
            if i:
                low = max(low, 1)  # no division by zero, no negative exponent
            if low > high:
                return None
            arrays[i] = Draw("truth" if dtype.kind == "b" else "whole", a.shape, low, high + 1, False)
        elif isinstance(a, float) and not a.is_integer():
            arrays[i] = ceil(abs(a))
    return Sample(tuple(arrays), sample.statics)


class Case:
    """An operator with one sample in one dtype.  `device`: the `jax.Device` that stands for the default one."""

    def __init__(self, op: Operator, number: int, dtype: Any, device: Any = None) -> None:
        self.op: Operator = op
        self.number: int = number
        self.dtype: Any = np.dtype(dtype)
        self.sample = sample = samples_of(op)[number]
        self.exact: Any = self.dtype not in dtypes.INEXACT
        self.random: Any = "key" in kinds(sample)
        drawn = {i for i, a in enumerate(sample.arrays) if isinstance(a, Draw) and a.kind in FLOATING}
        wholes = {i for i, a in enumerate(sample.arrays) if isinstance(a, Draw) and a.kind == "whole"}
        if self.exact and drawn:
            sample = _whole(sample, self.dtype) or sample
        asked = np.dtype("float64") if self.exact else self.dtype
        if asked.kind == "c" and COMPLEX[0] not in op.samples:  # the sample says which arrays are complex
            asked = np.dtype(f"f{asked.itemsize // 2}")
        found, moving, statics = arguments(op, sample, asked, device=device)
        self.moving: Any = [] if self.exact else moving
        if self.exact and not drawn:
            drawn = wholes  # the integers are the operator's numbers, not indices
        self.arguments: Any = [
            self._narrow(a, i in drawn or isinstance(sample.arrays[i], list)) if isinstance(a, np.ndarray) else a
            for i, a in enumerate(found)
        ]
        self.statics: Any = tuple([self.static(s) for s in statics])
        self.wide_statics = statics
        given = [*sample.arrays, *[None] * len(found)]
        self.definite: Any = [getattr(given[i], "kind", "") == "definite" for i in self.moving]

    def _narrow(self, array: np.ndarray, numbers: bool) -> np.ndarray:
        """Return an array in the dtype that it has in this column."""
        if self.exact and numbers and array.dtype.kind in "iuf":
            return (np.abs(array) if self.dtype.kind == "u" else array).astype(self.dtype)
        if array.dtype == np.float64 and not self.exact and self.dtype.kind != "c":
            return array.astype(self.dtype)
        return array.astype(self.static(array.dtype)) if array.dtype in dtypes.WIDE else array

    def static(self, value: Any) -> Any:
        """Return a static argument as it is in this column: float64 there is the column's dtype."""
        value = value.dtype if isinstance(value, dtype_type) else value
        if not isinstance(value, np.dtype) or value not in dtypes.WIDE or self.dtype in dtypes.WIDE:
            return value
        if value == np.float64 and not self.exact and self.dtype.kind != "c":
            return self.dtype
        if value == np.int64 and self.exact and self.dtype.kind in "iu":
            return self.dtype
        return np.dtype(dtypes.WIDE[value])

    @property
    def places(self) -> list[int]:
        """The places of the arguments that are arrays."""
        return [i for i, a in enumerate(self.arguments) if isinstance(a, np.ndarray)]

    @property
    def arrays(self) -> list[np.ndarray]:
        return [self.arguments[i] for i in self.places]

    def filled(self, arrays: Any) -> list[Any]:
        """Return all arguments, with these in the places of the arrays."""
        full = list(self.arguments)
        for i, value in zip(self.places, arrays, strict=True):
            full[i] = value
        return full

    @property
    def records(self) -> bool:
        """True if there are gradients to compare."""
        return self.op.differentiable and not self.op.missing and bool(self.moving)

    @cached_property
    def cotangents(self) -> list[np.ndarray]:
        """Numbers like each result that has a gradient; set by reference.py, which knows the results."""
        return []


def hermitian(arrays: list[np.ndarray], case: Case) -> list[np.ndarray]:
    """Return gradients where the gradient of a Hermitian argument is its Hermitian part: the other part means
    nothing."""
    found = list(arrays)
    for i, definite in enumerate(case.definite):
        if definite:
            found[i] = (found[i] + np.conj(np.swapaxes(found[i], -1, -2))) / 2
    return found


def flat(out: Any) -> list[Any]:
    return list(out) if isinstance(out, (tuple, list)) else [out]


def read(tensors: list[Tensor]) -> list[Any]:
    return [t._read() for t in tensors]


def like(aval: Any, seed: int) -> np.ndarray:
    """Return numbers of the shape and dtype of an array, away from 0."""
    draw = np.random.RandomState(seed)
    found = draw.uniform(0.5, 1.5, aval.shape) * draw.choice([-1, 1], aval.shape)
    if np.dtype(aval.dtype).kind == "c":
        found = found + 1j * draw.uniform(-1, 1, aval.shape)
    return np.asarray(found, aval.dtype)


def cpu() -> Any:
    """Return JAX's CPU, which computes the reference.

    Raises `RuntimeError` if JAX_PLATFORMS leaves it out.
    """
    try:
        return jax.local_devices(backend="cpu")[0]
    except RuntimeError as error:
        raise RuntimeError(
            "conform compares with JAX's CPU, which JAX does not see here: set JAX_PLATFORMS to the device's platform "
            "and the CPU's, as in JAX_PLATFORMS=chip,cpu"
        ) from error
