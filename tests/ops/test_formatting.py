"""`repr` of a tensor: PyTorch's text, of which only what is shown leaves the device."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import xgrad
from xgrad.execution import references
from xgrad.tensor_methods import printing

from ..oracle import leaf


def as_printed(program):
    """Both libraries print the result of the program alike, but for the name of the module."""
    assert repr(program(xgrad)) == repr(program(torch)).replace("torch.", "xgrad.")


def numbers(T, shape, dtype="float64", scale=1.0, seed=0):
    values = np.random.default_rng(seed).standard_normal(shape) * scale
    if dtype.startswith("complex"):
        values = values + 1j * np.random.default_rng(seed + 1).standard_normal(shape)
    if dtype.startswith("uint"):
        values = np.abs(values)
    return T.from_numpy(np.asarray(values)).to(getattr(T, dtype))


SHAPES = [(), (1,), (7,), (40,), (1000,), (1001,), (100_000,), (3, 4), (1, 1001), (1001, 1), (6, 500), (300, 7),
          (500, 600), (2, 3, 4), (7, 8, 9), (20, 30, 40), (2, 6, 200), (3, 1, 5, 6), (7, 7, 7, 7)]  # fmt: skip
DTYPES = ["float32", "float64", "float16", "bfloat16", "int64", "int32", "int8", "uint8", "bool", "complex64",
          "complex128"]  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("scale", [1.0, 50.0, 1e-6])
def test_numbers_of_every_shape(shape, scale):
    as_printed(lambda T: numbers(T, shape, scale=scale))


@pytest.mark.one_in(2)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(5,), (2000,), (20, 9, 30)], ids=str)
def test_numbers_of_every_dtype(dtype, shape):
    as_printed(lambda T: numbers(T, shape, dtype, scale=3.0))


@pytest.mark.parametrize("dtype", ["float8_e5m2", "float8_e4m3fn"])
def test_small_floats(dtype):
    values = [0.5, -1.0, 2.0, 0.0]
    got = repr(xgrad.tensor(values).to(getattr(xgrad, dtype)))
    assert got == repr(torch.tensor(values).to(getattr(torch, dtype))).replace("torch.", "xgrad.")


@pytest.mark.parametrize(
    "values",
    [
        [0.0, -0.0], [1.0, 2.0, 1e7], [1.0, 1e9], [1e-5, 1.0], [1.0, 1001.0], [0.5, 600.0], [1e30, 1e-30],
        [np.nan, 1.0], [np.inf, -np.inf, 0.25], [np.nan, np.inf], [-np.inf, 1e10], [1e-300, 1e300], [5e-5],
    ],
    ids=str,
)  # fmt: skip
def test_floats_that_decide_the_notation(values):
    as_printed(lambda T: T.tensor(values, dtype=T.float64))
    as_printed(lambda T: T.tensor(values[0], dtype=T.float64))
    as_printed(lambda T: T.tensor(values, dtype=T.complex128) * 1j)


@pytest.mark.parametrize("shape", [(2000,), (60, 50), (20, 20, 20)], ids=str)
@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e12, 1e-12, 0.0])
@pytest.mark.parametrize("place", [1, 10, -1])
def test_only_what_is_shown_decides_the_notation(shape, value, place):
    """An element in the middle changes nothing; one at the edges does."""

    def program(T):
        x = T.ones(shape, dtype=T.float64)
        x[(place,) * len(shape)] = value
        return x

    as_printed(program)
    changed = repr(program(xgrad)) != repr(xgrad.ones(shape, dtype=xgrad.float64))
    assert changed == (abs(place) == 1)


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    "program",
    [
        lambda T: T.zeros(0),
        lambda T: T.zeros(0, dtype=T.int64),
        lambda T: T.zeros(2, 0, 3, dtype=T.float64),
        lambda T: T.zeros(0, 5000),
        lambda T: leaf(T, 2, 3),
        lambda T: leaf(T, 2, 3) * 2,
        lambda T: leaf(T, 50, 60).t(),
        lambda T: leaf(T, 1300)[3:1200] ** 2,
        lambda T: numbers(T, (9, 9), scale=1e-7).requires_grad_(),
    ],
)
def test_suffixes_and_the_lines_that_they_need(program):
    as_printed(program)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
def test_tangent_is_printed():
    def program(T):
        with T.autograd.forward_ad.dual_level():
            dual = T.autograd.forward_ad.make_dual(T.ones(2), T.full((2,), 3.0))
            return repr(dual)

    assert program(xgrad) == program(torch)


def test_view_whose_history_is_lost_can_be_printed():
    """Torch: https://github.com/pytorch/pytorch/issues/99968."""

    def program(T):
        base = leaf(T, 2, 3)
        with T.no_grad():
            view = base.view(-1)
            base.zero_()
        return view

    as_printed(program)


def test_elements_that_are_not_shown_stay_on_the_device(monkeypatch):
    fetched = []

    class Numpy:
        """NumPy, with a record of what it converts."""

        def __getattr__(self, name):
            return getattr(np, name)

        def asarray(self, array):
            fetched.append(array.size)
            return np.asarray(array)

    monkeypatch.setattr(printing, "np", Numpy())
    for shape in [(1_000_000,), (1000, 1000), (100, 100, 100)]:
        repr(xgrad.zeros(shape))
    assert fetched == [6, 36, 216]
    repr(xgrad.zeros(10, 100))
    assert fetched[3:] == [1000]


@pytest.mark.eager("addresses")
@pytest.mark.one_in(2)
@pytest.mark.skipif(not references.COUNTED, reason="on a free-threaded Python nothing is donated")
@pytest.mark.parametrize("shape", [(5,), (900,), (3000,), (70, 80)], ids=str)
def test_printed_buffer_is_still_donated(shape):
    x = xgrad.zeros(shape)
    x.add_(1)
    before = x._array.unsafe_buffer_pointer()
    first = repr(x)
    x.add_(1)
    assert x._array.unsafe_buffer_pointer() == before
    assert repr(x) != first
    row = x[:2]
    repr(row)
    row.add_(1)
    assert row._held().unsafe_buffer_pointer() == before


def test_printing_while_something_is_traced():
    big, seen = xgrad.arange(2000), []

    @jax.jit
    def traced(array):
        seen.extend([repr(big), repr(xgrad.as_tensor(array))])
        return array

    traced(jnp.ones((2, 3)))
    assert seen == [repr(big), "tensor(<traced float64[2, 3]>, dtype=xgrad.float64)"]


def test_device_is_named_where_it_is_not_the_default():
    if len(jax.devices("cpu")) < 2:
        pytest.skip("needs two devices")
    x = xgrad.ones(3).to("cpu:1")
    assert re.search(r"device='cpu:1'", repr(x))
