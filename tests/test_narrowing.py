"""No number changes in silence because JAX's 64-bit mode is off: it is refused, or taken as PyTorch takes it."""

import functools
import json
import os
import subprocess
import sys

import numpy as np
import pytest
import torch

import xgrad

from .oracle import behind_name

WITH_ARRAY = {
    "add": lambda T, x, a: x + a,
    "add from the right": lambda T, x, a: a + x,
    "where": lambda T, x, a: T.where(x > 0, x, a),
    "greater": lambda T, x, a: x > a,
    "equal": lambda T, x, a: x == a,
    "copy_": lambda T, x, a: x.copy_(a),
    "add_": lambda T, x, a: x.add_(a),
    "+=": lambda T, x, a: x.__iadd__(a),
    "assignment": lambda T, x, a: x.__setitem__(slice(None), a),
    "assignment to a mask": lambda T, x, a: x.__setitem__(x > 0, a),
    "assignment to places": lambda T, x, a: x.__setitem__([1, 0], a),
    "tensor": lambda T, x, a: T.tensor(a),
    "as_tensor": lambda T, x, a: T.as_tensor(a),
}
WITH_NUMBER = {
    "mul": lambda T, x, k: x * k,
    "from the right": lambda T, x, k: k - x,
    "greater": lambda T, x, k: x > k,
    "smaller": lambda T, x, k: k < x,
    "equal": lambda T, x, k: x == k,
    "alpha": lambda T, x, k: T.add(x, x, alpha=k),
    "where": lambda T, x, k: T.where(x > 1, x, k),
    "clamp": lambda T, x, k: x.clamp(0, k),
    "pow": lambda T, x, k: x**k,
    "pad": lambda T, x, k: T.nn.functional.pad(x, (1, 0), value=k),
    "full_like": lambda T, x, k: T.full_like(x, k),
    "add_": lambda T, x, k: x.add_(k),
    "assignment": lambda T, x, k: x.__setitem__(0, k),
    "assignment to a mask": lambda T, x, k: x.__setitem__(x > 0, k),
    "fill_": lambda T, x, k: x.fill_(k),
    "fill_ of a view": lambda T, x, k: x[1:].fill_(k),
    "masked_fill_": lambda T, x, k: x.masked_fill_(x > 0, k),
    "index_fill_": lambda T, x, k: x.index_fill_(0, T.tensor([0]), k),
}

FACTORIES = {
    "zeros": lambda T, x, k: T.zeros(2, dtype=T.float64),
    "tensor": lambda T, x, k: T.tensor([k]),
}


# What is asked of a process without x64: a table, the dtype of the tensor, and the operand as source text.
REFUSED_ARRAYS = {
    "np.full(2, 2.0)": "DtypeDisabledError: float64",
    "np.full(2, 2j)": "DtypeDisabledError: complex128",
    "np.array([1, 2**40])": "OverflowError: Overflow: an integer of a NumPy array of int64 does not fit into int32",
    "np.array([1, 2**63], np.uint64)": "OverflowError: Overflow: an integer of a NumPy array of uint64 does not fit",
}
ARRAYS = ["np.array([1, 2])", "np.array([1, 2], np.float32)", "np.array([True, False])"]
SCALARS = ["np.int64(2**40)", "np.float64(3e9)", "np.array([2**40])[0]"]
NUMBERS = ["3_000_000_000", "-3_000_000_000", "2**40 + 1", "2**70"]
ASKED = [
    *(("WITH_ARRAY", dtype, operand) for dtype in ("float32", "int32") for operand in REFUSED_ARRAYS),
    *(("WITH_ARRAY", "float32", operand) for operand in ARRAYS),
    *(("WITH_NUMBER", "int32", operand) for operand in SCALARS),
    *(("WITH_NUMBER", dtype, operand) for dtype in ("float32", "int32") for operand in NUMBERS),
    ("FACTORIES", "float32", "2**40"),
]


def outcomes(T, operations, dtype, operand):
    """What each operation on two ones gives or raises, and what it leaves them as: as lists."""
    found = {}
    for name, operation in operations.items():
        x = T.ones(2, dtype=getattr(T, dtype))
        try:
            result = operation(T, x, operand)
            result = None if result is None else (result.tolist(), str(result.dtype).removeprefix("torch."))
        except Exception as error:
            result = f"{type(error).__name__}: {behind_name(error)}"
        found[name] = [result, x.tolist(), x._version]
    return json.loads(json.dumps(found))


def answers():
    """`outcomes` of xgrad for all that is asked."""
    return [outcomes(xgrad, globals()[table], dtype, eval(operand)) for table, dtype, operand in ASKED]


@functools.cache
def all_without_x64():
    """The answers of a process of its own, for the switch is one of the process."""
    code = "import json, tests.test_narrowing as t; print(json.dumps(t.answers()))"
    environment = {**os.environ, "JAX_ENABLE_X64": "0"}
    run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return dict(zip(ASKED, json.loads(run.stdout), strict=True))


def without_x64(*asked):
    return all_without_x64()[asked]


@pytest.mark.parametrize(("operand", "error"), REFUSED_ARRAYS.items(), ids=REFUSED_ARRAYS)
@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_numpy_array_that_jax_would_narrow_is_refused_without_x64(operand, error, dtype):
    for name, (found, left, version) in without_x64("WITH_ARRAY", dtype, operand).items():
        assert found.startswith(error), name
        assert "jax_enable_x64" in found, name
        assert (left, version) == ([1, 1], 0), name


@pytest.mark.parametrize("operand", ARRAYS)
def test_numpy_array_that_fits_is_taken_without_x64(operand):
    """As torch takes the array's tensor; int64 becomes int32."""
    array = eval(operand)
    narrow = torch.from_numpy(array).to(torch.int32) if array.dtype == np.int64 else torch.from_numpy(array)
    found = without_x64("WITH_ARRAY", "float32", operand)
    assert found.pop("tensor") == found["as_tensor"]
    # PyTorch assigns no array to places, nor a tensor of another dtype; here an array is data.
    assert found.pop("assignment to places") == [None, array[::-1].tolist(), 1]
    assert found.pop("assignment to a mask") == [None, array.tolist(), 1]
    assert found == outcomes(torch, {name: WITH_ARRAY[name] for name in found}, "float32", narrow)


def test_numpy_array_is_taken_as_it_is_with_x64():
    for operand in (np.array([1, 2**40]), np.full(2, 2.5)):
        got = outcomes(xgrad, {"tensor": WITH_ARRAY["tensor"], "add": WITH_ARRAY["add"]}, "float32", operand)
        assert got["tensor"][0] == [operand.tolist(), operand.dtype.name]
        assert got["add"][0][1] == str((torch.ones(2) + torch.from_numpy(operand)).dtype).removeprefix("torch.")


@pytest.mark.parametrize("scalar", SCALARS)
def test_numpy_number_that_does_not_fit_is_not_assigned(scalar):
    found, left, version = without_x64("WITH_NUMBER", "int32", scalar)["assignment"]
    assert found.startswith("NumberOverflowError: Overflow: value ")
    assert (left, version) == ([1, 1], 0)


@pytest.mark.parametrize("number", NUMBERS[:3])
def test_integer_beyond_32_bits_beside_floats_is_torchs(number):
    wanted = outcomes(torch, WITH_NUMBER, "float32", eval(number))
    assert without_x64("WITH_NUMBER", "float32", number) == wanted
    assert outcomes(xgrad, WITH_NUMBER, "float32", eval(number)) == wanted


def test_integer_beyond_64_bits_beside_floats_is_a_float():
    """PyTorch refuses it; JAX has no number between."""
    for found in (without_x64("WITH_NUMBER", "float32", "2**70"), outcomes(xgrad, WITH_NUMBER, "float32", 2**70)):
        assert found["mul"][0] == [[2.0**70] * 2, "float32"]
        assert found["greater"][0] == [[False] * 2, "bool"]
        assert found["assignment"][1:] == [[2.0**70, 1], 1]
        assert found["fill_"][1:] == [[2.0**70] * 2, 1]


@pytest.mark.parametrize("number", [n for n in NUMBERS if n[0] != "-"])
def test_integer_beyond_32_bits_beside_integers_is_refused_without_x64(number):
    for name, (found, left, version) in without_x64("WITH_NUMBER", "int32", number).items():
        assert "OverflowError: Overflow" in found, name
        assert str(eval(number)) in found, name
        assert "jax_enable_x64" in found, name
        assert (left, version) == ([1, 1], 0), name


def test_integer_beyond_64_bits_beside_integers_is_refused():
    for name, (found, left, version) in outcomes(xgrad, WITH_NUMBER, "int64", 2**70).items():
        assert "OverflowError: Overflow" in found, name
        assert (left, version) == ([1, 1], 0), name


def test_factory_of_a_dtype_that_jax_would_narrow_is_refused_without_x64():
    found = without_x64("FACTORIES", "float32", "2**40")
    assert found["zeros"][0].startswith("DtypeDisabledError")
    assert found["tensor"][0].startswith("NumberOverflowError")
    assert all("jax_enable_x64" in text for text, *_ in found.values())
