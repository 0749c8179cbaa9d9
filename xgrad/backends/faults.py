"""Faults: makes launches and transfers of an `xgrad.Backend` fail at random, to test code that has to survive it.

Each launch of a program and each transfer has a number.  A draw from the seed, the kind of the fault and that number
says if it fails, so the same program has the same faults, whatever else draws random numbers meanwhile.

    launch n ──► lost device? ──► memory? ──► launch?  raised before the program has its operands' memory,
                                                │      or after it: what it was to write is lost then
                                                ▼
                                             the program ──► bit flip? ──► results

Transfers and launches are counted apart.  An operator that the CPU computes in place of the backend is two transfers.
"""

import itertools
import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import jax
import numpy as np

from ..errors import OutOfMemoryError
from .events import Fault


@dataclass(frozen=True)
class Faults:
    """How often an `xgrad.Backend` fails: `xgrad.Backend("chip", faults=xgrad.backends.Faults(launch=1e-3))`.

    Each is a probability, or a list of the numbers of the launches (transfers) that fail; the first is 1.

    `launch`: a program fails: JAX's error of a device, `jax.errors.JaxRuntimeError`.
    `memory`: memory does not suffice for a program's results: `xgrad.errors.OutOfMemoryError`.
    `link`: a transfer from or to the host fails, with JAX's error.
    `bitflip`: one bit of a program's results is another one, and nothing is raised; the report says where.
    `lost_device`: a launch finds the device gone.  Every program and transfer fails from then on, with JAX's error:
    what was on it is gone.  Another declaration is another device, also `backend.replace()`.
    `taken`: the probability that a failing launch had taken the memory of what it writes in place, whose value is lost:
    `xgrad.errors.LostValueError`.
    `seed`: of the draws.

    An error says that it was injected, and its number.  All values but those that it names are as they were.  With
    several threads the order of the launches, and so which of them fails, is not determined.

    Raises `TypeError` and `ValueError` for what is neither a probability nor a list of numbers.

    >>> import xgrad
    >>> chip = xgrad.Backend("chip", faults=xgrad.backends.Faults(launch=[2]))
    >>> x = xgrad.ones(2, device=chip)
    >>> try:
    ...     x + 1
    ... except RuntimeError as error:
    ...     print(str(error).partition("chip: ")[2].partition(",")[0])
    launch 2 failed
    >>> x + 1
    tensor([2., 2.], device='chip:0')
    """

    seed: int = 0
    launch: float | Collection[int] = 0.0
    memory: float | Collection[int] = 0.0
    link: float | Collection[int] = 0.0
    bitflip: float | Collection[int] = 0.0
    lost_device: float | Collection[int] = 0.0
    taken: float = 0.5

    def __post_init__(self) -> None:
        if isinstance(self.seed, bool) or not isinstance(self.seed, int):
            raise TypeError(f"Faults: seed must be an int, but got {self.seed!r}")
        for name in [f.name for f in fields(self) if f.name != "seed"]:
            value = getattr(self, name)
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                if not 0 <= value <= 1:
                    raise ValueError(f"Faults: {name} is a probability, from 0 to 1, but got {value!r}; a list, "
                                     f"[{value!r}], has the numbers of those that fail")  # fmt: skip
                continue
            if name == "taken" or isinstance(value, str) or not isinstance(value, Collection):
                also = "" if name == "taken" else ", or a list of numbers"
                raise TypeError(f"Faults: {name} must be a probability{also}, but got {value!r}")
            for n in value:
                if isinstance(n, bool) or not isinstance(n, int) or n < 1:
                    raise ValueError(f"Faults: {name} has numbers of events, the first is 1, but got {n!r}")
            object.__setattr__(self, name, tuple(sorted({*value})))

    def draw(self, kind: str, number: int) -> random.Random | None:
        """Return a generator for the details of a fault, if there is one of this kind at this number; else None."""
        when: Any = getattr(self, kind)
        if not when:
            return None
        chosen = random.Random(f"{self.seed} {kind} {number}")
        return chosen if (number in when if isinstance(when, tuple) else chosen.random() < when) else None


class Launched(NamedTuple):
    """A launch that was let through: its number, and the error that it raises once it has taken memory, if it does."""

    number: int
    failure: Exception | None


class Injector:
    """Makes the faults of one backend."""

    def __init__(self, runtime: Any, faults: Faults) -> None:
        self.runtime, self.faults = runtime, faults
        self.lost: str = ""  # when the device was lost, in words
        self._launches, self._transfers = itertools.count(1), itertools.count(1)

    def launch(self, what: str, writes: bool = False) -> Launched:
        """Count a launch of the program `what`; raise if it fails.

        `writes`: the program takes the memory of an operand; the result may have the error to raise after that.
        """
        self._alive()
        number, line = next(self._launches), self.runtime.line()
        where = f"launch {number} failed, of '{what}' at {line}"
        if self.faults.draw("lost_device", number):
            self.lost = f"it was lost at launch {number}, of '{what}' at {line}"
            self._note("lost_device", number, what)
            self._alive()
        if self.faults.draw("memory", number):
            self._note("memory", number, what)
            raise OutOfMemoryError(
                f"{self._name} out of memory: {where}. Nothing was changed. {self._injected('memory')}"
            )
        if chosen := self.faults.draw("launch", number):
            error = _error("INTERNAL", f"{self._name}: {where}. {self._injected('launch')}")
            taken = writes and chosen.random() < self.faults.taken
            self._note("launch", number, what, "after it had taken memory" if taken else "")
            if not taken:
                raise error
            return Launched(number, error)
        return Launched(number, None)

    def transfer(self, count: int = 1) -> None:
        """Count transfers over the host's link; raise if one of them fails."""
        self._alive()
        for _ in range(count):
            number = next(self._transfers)
            if self.faults.draw("link", number):
                self._note("link", number, "a transfer")
                where = f"transfer {number} failed, at {self.runtime.line()}. Nothing was changed"
                raise _error("UNAVAILABLE", f"{self._name}: {where}. {self._injected('link')}")

    def flipped(self, number: int, out: Any, what: str) -> Any:
        """Return a program's results, an array or a tuple or list of such, with one bit of them flipped if it is so."""
        chosen = self.faults.draw("bitflip", number)
        arrays = [x for x in jax.tree.leaves(out) if isinstance(x, jax.Array) and x.size and _has_bits(x)]
        if chosen is None or not arrays:
            return out
        hit = arrays[chosen.randrange(len(arrays))]
        values = np.array(hit)
        place, size = chosen.randrange(values.size), values.itemsize
        bit = chosen.randrange(1 if values.dtype == np.bool_ else 8 * size)
        before = values.flat[place]
        values.reshape(-1).view(np.uint8)[place * size + bit // 8] ^= 1 << bit % 8
        index = [int(i) for i in np.unravel_index(place, values.shape)]
        self._note("bitflip", number, what, f"bit {bit} at {index}: {before!s} became {values.flat[place]!s}")
        new = jax.device_put(values, hit.sharding) if hit.committed else jax.numpy.asarray(values)
        return jax.tree.map(lambda x: new if x is hit else x, out)

    @property
    def _name(self) -> str:
        return self.runtime.backend.name

    def _injected(self, kind: str) -> str:
        value = getattr(self.faults, kind)
        shown = [*value] if isinstance(value, tuple) else value
        return f"The backend's faults injected it ({kind}={shown}, seed={self.faults.seed})."

    def _alive(self) -> None:
        if self.lost:
            raise _error(
                "UNAVAILABLE", f"the device {self._name} is gone: {self.lost}, with all tensors on it. "
                f"{self._injected('lost_device')} Declare another one, backend.replace(), and load a checkpoint."
            )  # fmt: skip

    def _note(self, kind: str, number: int, what: str, detail: str = "") -> None:
        for events in self.runtime.reports:
            events.faults.append(Fault(kind, number, what, self.runtime.line(), detail))


def _error(code: str, text: str) -> Exception:
    return jax.errors.JaxRuntimeError(f"{code}: {text}")


def _has_bits(array: Any) -> bool:
    """Return True for an array of whole bytes: keys of random numbers and integers of 4 bits have none of their own."""
    return not jax.numpy.issubdtype(array.dtype, jax.dtypes.extended) and not array.dtype.name.endswith(
        ("int4", "int2")
    )


class Taking:
    """In the place of a program that writes (execution/donation.py): takes its first operand's memory, and fails."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.needs: dict[Any, int] = {}  # no memory besides

    def jitted(self, array: Any, *_: Any) -> Any:
        """Delete the array, and raise."""
        array.delete()
        raise self.error

    def renew(self) -> None:
        """Do nothing: it is not compiled."""


def taken(error: Exception, arrays: Sequence[Any]) -> None:
    """Delete arrays, and raise the error, as a program does that fails after it has taken their memory."""
    for array in arrays:
        array.delete()
    raise error
