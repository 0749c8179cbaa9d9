"""on_backends: runs a function on several backends and compares results and times, for `xgrad.compare(backends=[...])`.

The first backend that can run the function is the one that the others are compared with.  Invariants: each runs on
fresh copies of the same inputs, with the same random numbers and cotangents; no report is open while a run is timed.
"""

import dataclasses
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from itertools import zip_longest
from typing import Any, NamedTuple

import jax
import numpy as np

from ..base.declared import DeclaredPlace
from ..base.devices import device, sharding_of
from ..dispatch.operator import Operator
from ..dispatch.operator_modes import OperatorMode, public_name
from ..errors import BackendError, OutOfMemoryError
from ..execution.lazily import sync
from ..execution.pending import quietly
from ..execution.source import lines, outside
from ..tensor import Tensor
from . import timing
from .backend_table import BackendComparison, BackendRun, FirstDifference
from .circumstances import circumstances
from .difference import difference, differences
from .subject import Subject
from .timing import interleaved


class _Place(NamedTuple):
    """A backend of a comparison: its label, and where its tensors are."""

    label: str
    sharding: Any

    @property
    def block(self) -> Any:
        """The block in which new tensors are made there."""
        return device(self.sharding)

    @property
    def note(self) -> str:
        return f"on the backend {self.label}"

    def put(self, tensor: Tensor) -> Tensor:
        return tensor.to(self.sharding)

    def report(self) -> Any:
        """Return the block that counts what a declared backend does."""
        declared = isinstance(self.sharding, DeclaredPlace)
        return self.sharding.runtime.backend.report() if declared else nullcontext()


def on_backends(subject: Subject, backends: Any, repeats: int) -> BackendComparison:
    """Run forward and backward on each backend, and time it `repeats` times."""
    places = _places(backends)
    runs: dict[str, BackendRun] = {}
    for place in places:
        runs[place.label] = _run(subject, place)
    if repeats:
        timed = {place.label: _timed(subject, place) for place in places if runs[place.label].refused is None}
        for label, times in interleaved(timed, repeats).items():
            runs[label].times = times
    able = [place for place in places if runs[place.label].refused is None]
    found, parts = {}, {}
    for place in able[1:]:
        first = runs[able[0].label]
        differing = found[place.label] = differences(subject.differentiated, first, runs[place.label])
        if not all(d.equal for d in differing):
            rounding = all(d.within_rounding for d in differing)
            parts[place.label] = _first_difference(_values(subject, able[0]), _values(subject, place), rounding)
    return BackendComparison(subject.name, runs, found, parts, circumstances(subject.arrays()))


def _places(backends: Any) -> list[_Place]:
    """Return the backends with labels; backends of one name are distinguished by what they declare."""
    if isinstance(backends, str) or not isinstance(backends, Sequence) or len(backends) < 2:
        raise ValueError(f"compare(): backends is a list of two backends or more, but got {backends!r}")
    places: list[_Place] = []
    firsts: dict[str, Any] = {}
    for backend in backends:
        sharding: Any = sharding_of(backend)
        declared = sharding.runtime.backend if isinstance(sharding, DeclaredPlace) else None
        label = str(device(sharding)) if declared is None else declared.name + _changes(firsts, declared)
        count = sum(place.label == label or place.label.startswith(f"{label} (") for place in places)
        places.append(_Place(f"{label} ({count + 1})" if count else label, sharding))
    return places


def _changes(firsts: dict[str, Any], declared: Any) -> str:
    """Return the properties in which a backend differs from the first of its name, as text."""
    first, text = firsts.setdefault(declared.name, declared), ""
    for field in dataclasses.fields(declared):
        value = getattr(declared, field.name)
        if field.name == "memory" and declared.target is not None and value == declared.target.memory:
            continue
        value = getattr(value, "name", value)  # of a target
        before = getattr(first, field.name)
        if field.compare and value != getattr(before, "name", before):
            several = isinstance(value, (tuple, Mapping))
            text += f", {field.name}={' '.join(value) if several else value}"
    return text


def _host(tensor: Tensor) -> np.ndarray:
    return np.asarray(quietly(tensor.detach().to("cpu")._read()))


def _run(subject: Subject, place: _Place) -> BackendRun:
    """Run once, with a report; the run of a backend that lacks something has no values."""
    with place.report() as report:
        try:
            outputs, grads, _ = subject.run(place.block, place.note, _host, subject.arrays(), put=place.put)
        except (BackendError, OutOfMemoryError) as error:
            return BackendRun(place.label, report=report, refused=str(error))
    return BackendRun(place.label, tuple(outputs), tuple(grads), report)


def _timed(subject: Subject, place: _Place) -> Callable[[], float]:
    """Return a function that runs forward and backward and returns the seconds it took."""

    def once() -> float:
        arrays = subject.arrays()
        jax.block_until_ready(arrays)
        start = timing.clock()
        outputs, grads, _ = subject.run(place.block, place.note, lambda tensor: tensor, arrays, put=place.put)
        sync()
        jax.block_until_ready([quietly(t._read()) for t in (*outputs, *grads) if t is not None])
        return timing.clock() - start

    return once


# -- where values first differ ----------------------------------------------------------------------------------------


class _Values(OperatorMode):
    """Lists the results of each operator, in order: its name, the user's line, the values."""

    def __init__(self) -> None:
        self.found: list[tuple[str, str, list[np.ndarray]]] = []

    def run(self, op: Operator, args: tuple[Any, ...], statics: tuple[Any, ...]) -> Any:
        return self._listed(public_name(op), super().run(op, args, statics))

    def write(self, op: Operator, args: tuple[Any, ...], statics: tuple[Any, ...]) -> Any:
        return self._listed(f"{public_name(op)}_", super().write(op, args, statics))

    def see(self, name: str, tensor: Any, make: Callable[..., Any]) -> Any:
        return self._listed(name, super().see(name, tensor, make))

    def _listed(self, name: str, out: Any) -> Any:
        tensors = [t for t in (out if isinstance(out, (tuple, list)) else [out]) if t.__class__ is Tensor]
        self.found.append((name, lines(outside(sys._getframe(2))), [_host(t) for t in tensors]))
        return out


def _values(subject: Subject, place: _Place) -> list[tuple[str, str, list[np.ndarray]]]:
    """Run once more, and list the values of all operators of the forward pass."""
    values = _Values()
    function, subject.fn = subject.fn, lambda *given: _within(values, function, given)
    try:
        subject.run(place.block, place.note, _host, subject.arrays(), put=place.put)
    finally:
        subject.fn = function
    return values.found


def _within(mode: OperatorMode, function: Callable[..., Any], given: tuple[Any, ...]) -> Any:
    with mode:
        return function(*given)


def _first_difference(first: list[Any], other: list[Any], rounding: bool) -> FirstDifference:
    """Return the first operator whose values differ: by more than rounding, unless that is all that differs.

    If none differs, the result's operator is "backward".
    """
    equal, end = True, ("none", "the end", ())
    for number, ((name, line, a), (theirs, _, b)) in enumerate(zip_longest(first, other, fillvalue=end)):
        if name != theirs:
            return FirstDifference(number, f"{name}, and {theirs}", line, None, None)
        for x, y in zip(a, b):
            found = difference(name, x, y)
            equal &= found.equal
            if not (found.equal if rounding else found.within_rounding):
                return FirstDifference(number, name, line, x, y, rounding)
    return FirstDifference(len(first), "backward", "", None, None, not equal)
