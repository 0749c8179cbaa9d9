"""Numbers of subclasses are numbers: members of enumerations, floats with a unit."""

import enum

import pytest
import torch

import xgrad


class Half(float):
    pass


class Level(enum.IntEnum):
    TWO = 2


PROGRAMS = {
    "product": lambda t, x: x * Half(0.5) + Level.TWO,
    "reflected": lambda t, x: Half(0.5) - x,
    "alpha": lambda t, x: t.add(x, x, alpha=Level.TWO),
    "clamp": lambda t, x: x.clamp(Half(0.5), Level.TWO),
    "in place": lambda t, x: x.clone().mul_(Level.TWO).fill_(Level.TWO),
    "a setting": lambda t, x: t.nn.functional.elu(-x.float(), alpha=Half(0.5)),
    "a size": lambda t, x: t.full((Level.TWO,), Half(0.5)),
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int64"])
def test_a_number_of_a_subclass_is_a_number(name, dtype):
    ours, theirs = (PROGRAMS[name](t, t.arange(4, dtype=getattr(t, dtype))) for t in (xgrad, torch))
    assert ours.tolist() == theirs.tolist()
    assert str(ours.dtype).split(".")[-1] == str(theirs.dtype).split(".")[-1]
