"""What hands a value out to Python: `in`, f-strings, as torch."""

import numpy as np
import pytest

import xgrad

from ..oracle import as_torch, leaf, same_error


@pytest.mark.one_in(3)
@pytest.mark.parametrize("value", [1, 3, 2.0, 1j, True, float("nan"), np.float32(2), np.int64(1)])
def test_contains_a_number(value):
    as_torch(lambda T: (value in T.tensor([1.0, 2.0]), value in T.tensor(1.0), value in T.zeros(0)))


def test_contains_a_tensor():
    as_torch(lambda T: (T.tensor(2.0) in T.tensor([1.0, 2.0]), T.tensor([2.0, 1.0]) in T.tensor([1.0, 2.0])))
    same_error(lambda T: T.ones(3) in T.ones(2), r"tensor a \(3\) must match the size of tensor b \(2\)")


@pytest.mark.parametrize("value", ["a", None, [1], (1,), {}, b"a", np.array([1.0]), object])
def test_contains_nothing_but_numbers_and_tensors(value):
    same_error(lambda T: value in T.tensor([1.0, 2.0]), "only supports Tensor or scalar, but you passed in a <class")


@pytest.mark.parametrize("spec", ["", ".3f", "+.2e", ">12", "%"])
def test_format_of_one_number(spec):
    def program(T):
        x = leaf(T)
        return [format(n, spec) for n in (x, x * 2, T.tensor(3), T.tensor(True), data(T, "bfloat16"), x.reshape(1)[0])]

    data = lambda T, dtype: T.tensor(1.1, dtype=getattr(T, dtype))  # noqa: E731
    as_torch(program)
    as_torch(lambda T: f"{T.tensor(3):05d} {T.tensor(1 + 2j):.1f} {T.tensor(2.5)}")


def test_format_of_several_numbers_takes_no_specification():
    for shape in ((2,), (1,)):
        same_error(
            lambda T, shape=shape: f"{T.ones(shape):.3f}", r"unsupported format string passed to Tensor.__format__"
        )
    same_error(lambda T: f"{T.tensor(1.5):d}", "Unknown format code 'd' for object of type 'float'")
    x = xgrad.ones(2)
    assert f"{x}" == repr(x)
