"""Hyperparameters: makes an optimizer's numbers, such as `lr`, operands of the compiled program.

So a schedule of learning rates traces the function once.

xgrad's optimizers report the numbers of each group (`__xgrad_numbers__`), and how to make one array of them.  While the
function is traced a `StandIn` is in each number's place, and the optimizer's step takes the array as a tensor from
outside; in each later call the guard makes the array of the numbers that are there then.

    group["lr"] ──► HyperparameterGuard.check ──► [lr, 1 - beta1, ...] ──► operand of the program

Invariant: a number is an operand only if nothing but the optimizer's step has read it.  A stand-in reports each read,
and the references to it are counted: code that reads, keeps or returns one is traced again with numbers as constants.
"""

from collections.abc import Callable
from operator import is_
from typing import Any, NamedTuple

import jax
import jax.experimental.multihost_utils  # here: `jax.device_put` would import it within a trace, as if user's code did
import numpy as np

from ...execution.references import referred
from ...tensor import Tensor, from_array
from .guard import Guard


class ReportedNumbers(NamedTuple):
    """The numbers of a group, as an optimizer reports them."""

    group: dict[str, Any]
    names: tuple[str, ...]  # entries that are numbers, or tuples of numbers
    fixed: frozenset[str]  # the entries whose sign the program depends on
    array: Callable[[dict[str, Any]], np.ndarray[Any, Any]]  # of a group


class EscapedError(BaseException):
    """The function uses a number itself: trace it again, with numbers as constants."""


class Hyperparameters:
    """The numbers of one group of an optimizer, in a trace and in later calls."""

    def __init__(self, reported: ReportedNumbers) -> None:
        self.reported = reported
        self.signs = signs(reported, reported.group)
        self.escaped = False  # True if anything but the optimizer's step has read one
        self.used: Tensor | None = None  # what the step got
        self._last: tuple[Any, Any] = (), None  # (the group's entries, a tensor of their array)
        self._real: dict[str, Any] = {}
        self._hidden: dict[str, Any] = {}  # what is in the group while the function is traced
        self._stand_ins: list[StandIn] = []

    def tensor(self, group: dict[str, Any]) -> Tensor:
        """Return a tensor of a group's numbers: the same one as long as these are the same objects."""
        values = [*map(group.__getitem__, self.reported.names)]
        last, tensor = self._last
        if len(last) != len(values) or not all(map(is_, values, last)):
            with jax.ensure_compile_time_eval():  # a buffer for each group: tensors with one array share a storage
                tensor = from_array(jax.device_put(self.reported.array(group), may_alias=False))
            self._last = values, tensor
        return tensor

    # ------------------------------------------------------------ in the trace

    def install_stand_ins(self) -> None:
        """Put stand-ins in the places of the numbers."""
        group = self.reported.group
        self._real = {name: group[name] for name in self.reported.names}
        for name, value in self._real.items():
            parts = value if isinstance(value, tuple) else (value,)
            made = [part if part is None else StandIn(part) for part in parts]
            self._stand_ins += [part for part in made if part is not None]
            group[name] = self._hidden[name] = tuple(made) if isinstance(value, tuple) else made[0]

    def restore_numbers(self) -> None:
        """Put the numbers back where the stand-ins still are, and look for others that have these.  May be repeated."""
        group, hidden = self.reported.group, self._hidden
        for name, value in self._real.items():
            if name in hidden and group.get(name) is hidden[name]:
                group[name] = value
        hidden.clear()
        parts, self._stand_ins = self._stand_ins, []
        if referred(parts) or any(map(_was_read, parts)):
            self.escaped = True

    def numbers_for_step(self, group: dict[str, Any]) -> tuple[dict[str, Any], Tensor] | None:
        """Return the group with its numbers, and the tensor of them; None if the function has put others there."""
        if any(group.get(name) is not value for name, value in self._hidden.items()):
            return None
        plain = {**group, **self._real}
        self.used = self.tensor(plain)
        return plain, self.used


class HyperparameterGuard(Guard):
    """The guard of a group's numbers: they may change, but not what the program's form depends on."""

    __slots__ = ()
    value: Hyperparameters

    def check(self, value: Any, found: list[Any]) -> str | None:
        mine = self.value
        now = signs(mine.reported, value)
        if now != mine.signs:
            return _DIFFERENT.format(_shown(mine.signs), _shown(now))
        found.append(mine.tensor(value))
        return None


_DIFFERENT = (
    " has hyperparameters of another kind: a number became a tensor, or zero another number, or the reverse (by sign, "
    "{} before, {} now)"
)


def signs(reported: ReportedNumbers, group: dict[str, Any]) -> tuple[Any, ...] | None:
    """Return, of each number, its sign, or True if any sign fits; None if an entry is not a number."""
    found: list[Any] = []
    for name in reported.names:
        value = group.get(name)
        free = name not in reported.fixed
        parts: Any = value if value.__class__ is tuple else (value,)
        for part in parts:
            kind = part.__class__
            if kind is not float and kind is not int:
                if part is None and value.__class__ is tuple:
                    found.append(None)
                    continue
                if kind.__module__ != "numpy" or not isinstance(part, float):
                    return None
            found.append(free or (part > 0) - (part < 0))
    return tuple(found)


def _shown(found: Any) -> str:
    return "others" if found is None else str([*found])


class StandIn:
    """A number's stand-in, which acts as the number, and knows that it was asked."""

    __slots__ = ("_number", "_read")

    def __init__(self, number: Any) -> None:
        self._number, self._read = number, False

    def __getattribute__(self, name: str) -> Any:  # `__class__` too: isinstance() asks it
        return getattr(_number_of(self), name)


_number: Any = StandIn.__dict__["_number"].__get__
_read: Any = StandIn.__dict__["_read"]


def _number_of(stand_in: StandIn) -> Any:
    _read.__set__(stand_in, True)
    return _number(stand_in)


def _was_read(stand_in: StandIn) -> bool:
    return _read.__get__(stand_in)


def _acting(name: str) -> Callable[..., Any]:
    def method(self: StandIn, *args: Any) -> Any:
        return getattr(_number_of(self), name)(*args)

    method.__name__ = name
    return method


for _name in dir(float):
    if _name[:2] == "__" and _name not in (
        "__class__", "__new__", "__init__", "__getattribute__", "__setattr__", "__delattr__", "__init_subclass__",
        "__subclasshook__", "__doc__", "__getformat__", "__setformat__", "__dir__", "__class_getitem__",
    ):  # fmt: skip
        setattr(StandIn, _name, _acting(_name))
