"""Arrays of NumPy's subclasses are constants of a program: their class, attributes, order and rows are compared."""

import numpy as np
import pytest

import xgrad


class Scaled(np.ndarray):
    scale = 1.0


class Twice(np.ndarray):
    def sum(self):
        return 2 * np.ndarray.sum(self)


class Asking(np.ndarray):
    def __getattribute__(self, name):
        return np.ndarray.__getattribute__(self, name)


def scaled(scale, kind=Scaled):
    found = np.arange(3.0).view(kind)
    found.scale = scale
    return found


def masked(*mask):
    return np.ma.masked_array([1.0, 2.0, 3.0], mask=mask)


def table(first):
    return np.array([(first, 2)], [("a", "f8"), ("b", "i4")])


MATRIX = np.array([[1.0, 2.0], [3.0, 4.0]])
CHANGES = {
    "a mask": (masked(0, 0, 1), masked(1, 0, 0), lambda a: a.sum()),
    "a mask that goes": (masked(0, 0, 1), np.array([1.0, 2.0, 3.0]), lambda a: a.sum()),
    "the class": (MATRIX, MATRIX.view(Twice), lambda a: a.sum()),
    "an attribute": (scaled(2.0), scaled(3.0), lambda a: a.scale),
    "an attribute that goes": (scaled(2.0), np.arange(3.0).view(Scaled), lambda a: a.scale),
    "an attribute that is an array": (scaled(np.ones(2)), scaled(np.arange(2)), lambda a: a.scale.sum()),
    "an attribute beside a __getattribute__": (scaled(2.0, Asking), scaled(3.0, Asking), lambda a: a.scale),
    "the order": (MATRIX, np.asfortranarray(MATRIX), lambda a: a.flags.c_contiguous + 1.0),
    "the numbers of a record array": (table(1.0).view(np.recarray), table(3.0).view(np.recarray), lambda a: a.a[0]),
    "the numbers beside a __getattribute__": (
        np.ones(2).view(Asking), np.arange(2.0).view(Asking), lambda a: float(a.sum()),
    ),
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_another_array_is_noticed(change):
    before, after, read = CHANGES[change]
    held = [before]
    step = xgrad.compile(lambda x: x * float(read(held[0])))
    x = xgrad.ones(2)
    assert step(x).tolist() == [float(read(before))] * 2
    held[0] = after
    assert step(x).tolist() == [float(read(after))] * 2


def test_a_change_in_place_is_noticed():
    rows = table(1.0)
    held = {"row": rows[0], "records": rows.view(np.recarray), "scaled": scaled(1.0)}
    step = xgrad.compile(
        lambda x: x * float(held["row"]["a"]) + float(held["records"].b[0]) + float(held["scaled"].scale)
    )
    x = xgrad.ones(1)
    assert step(x).item() == 4
    held["row"]["a"] = 5.0
    assert step(x).item() == 8
    held["records"].b[0] = 7
    assert step(x).item() == 13
    held["scaled"].scale = 2.0
    assert step(x).item() == 14
