"""While JAX's 64-bit mode is off: floats become float32 with one warning, integers int32 if they fit, everywhere."""

import contextlib
import functools
import json
import math
import os
import re
import subprocess
import sys
import warnings

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
    "tensor": lambda T, x, k: T.tensor([k]),
    "tensor of a dtype": lambda T, x, k: T.tensor([k], dtype=T.long),
    "tensor of a list of arrays": lambda T, x, k: T.tensor([np.array([k])], dtype=T.long),
    "tensor of an array": lambda T, x, k: T.tensor(np.array([k]), dtype=T.long),
    "full": lambda T, x, k: T.full((2,), k, dtype=T.long),
    "arange": lambda T, x, k: T.arange(k, k + 2, dtype=T.long),
    "randint": lambda T, x, k: T.randint(0, k, (2,)),
    "from_dlpack": lambda T, x, k: T.from_dlpack(np.array([k])),
    "LongTensor": lambda T, x, k: T.LongTensor([k]),
}

# Sums and products that PyTorch accumulates in int64.
SUMS = {
    "sum": lambda T: T.arange(100000).sum(),
    "sum along a dimension": lambda T: T.arange(100000).reshape(2, -1).sum(1),
    "sum that fits": lambda T: T.arange(60000).sum(-1, keepdim=True),
    "sum that passes the range and comes back": lambda T: T.tensor([2**31 - 1, 2**31 - 1, 1 - 2**31, 1 - 2**31]).sum(),
    "lowest sum": lambda T: T.tensor([-(2**30), -(2**30)]).sum(),
    "sum below": lambda T: T.tensor([-(2**30), -(2**30), -1]).sum(),
    "sum of bools": lambda T: T.ones(70000, dtype=T.bool).sum(),
    "sum of bytes": lambda T: T.full((70000,), 255, dtype=T.uint8).sum(),
    "sum of int16": lambda T: T.full((70000,), 32767, dtype=T.int16).sum(),
    "sum of uint32": lambda T: T.tensor([2**32 - 1, 1], dtype=T.uint32).sum(),
    "sum of no dimensions": lambda T: T.tensor(2**31 - 1).sum(),
    "sum of nothing": lambda T: T.zeros(0, dtype=T.int64).sum(),
    "out": lambda T: T.sum(T.arange(100000), 0, out=T.empty((), dtype=T.int64)),
    "vmap": lambda T: T.func.vmap(lambda x: x.sum())(T.arange(200000).reshape(2, -1)),
    "nansum": lambda T: T.arange(100000).nansum(),
    "trace": lambda T: T.diag(T.tensor([2**30, 2**30])).trace(),
    "cumsum": lambda T: T.arange(100000).cumsum(0)[-1],
    "cumsum that fits": lambda T: T.arange(60000).cumsum(0)[-1],
    "cumsum_ that fits": lambda T: T.arange(6, dtype=T.int8).cumsum_(0),
    "prod": lambda T: T.full((40,), 2).prod(),
    "prod that fits": lambda T: T.full((30,), 2).prod(0),
    "lowest prod": lambda T: T.tensor([2**30, -2]).prod(),
    "prod above": lambda T: T.tensor([2**30, 2]).prod(),
    "prod of a zero": lambda T: T.tensor([[2**30, 2**30, 0], [3, 5, 7]]).prod(1),
    "square": lambda T: T.tensor([46341, 46341]).prod(),
    "cumprod": lambda T: T.full((40,), 2).cumprod(0)[-1],
    "cumprod that fits": lambda T: T.tensor([[3, 0, 2], [5, -7, 1]]).cumprod(-1),
    "cumsum_": lambda T: T.arange(100000).cumsum_(0)[-1],
    "cumsum_ of a view": lambda T: T.arange(200000)[::2].cumsum_(0)[-1],
    "cumprod_": lambda T: T.full((40,), 2).cumprod_(0)[-1],
    "sum_to_size": lambda T: T.arange(100000).sum_to_size(1),
    "sum_to_size that fits": lambda T: T.arange(60000).sum_to_size(1),
    "@": lambda T: T.arange(100000) @ T.ones(100000, dtype=T.int64),
    "@ that fits": lambda T: T.arange(12).reshape(3, 4) @ T.full((4, 2), -3),
    "@ of large numbers that fits": lambda T: T.tensor([[65536, 65536]]) @ T.tensor([[32767], [-32767]]),
    "@ of the lowest": lambda T: T.tensor([[65536, 1]]) @ T.tensor([[-32768], [0]]),
    "@ below": lambda T: T.tensor([[65536, 1]]) @ T.tensor([[-32768], [-1]]),
    "dot": lambda T: T.tensor([2**20, 2**20]).dot(T.tensor([2**11, 2**11])),
    "mm": lambda T: T.full((2, 2), 2**16).mm(T.full((2, 2), 2**16)),
    "bmm": lambda T: T.full((1, 2, 2), 2**16).bmm(T.full((1, 2, 2), 2**16)),
    "mv": lambda T: T.full((2, 2), 2**16).mv(T.full((2,), 2**16)),
    "addmm": lambda T: T.addmm(T.full((2, 2), 2**30), T.full((2, 2), 2**14), T.full((2, 2), 2**15)),
    "addmm with factors": lambda T: T.addmm(T.full((2, 2), 3), T.full((2, 2), 2), T.full((2, 2), 5), beta=2, alpha=-1),
    "einsum of one": lambda T: T.einsum("i->", T.arange(100000)),
    "einsum": lambda T: T.einsum("ij,jk->ik", T.full((2, 2), 2**16), T.full((2, 2), 2**16)),
    "einsum that fits": lambda T: T.einsum("ij,jk->i", T.arange(6).reshape(2, 3), T.arange(6).reshape(3, 2)),
    "tensordot": lambda T: T.tensordot(T.full((2, 2), 2**16), T.full((2, 2), 2**16)),
    "linear": lambda T: T.nn.functional.linear(T.full((2, 2), 2**16), T.full((2, 2), 2**16)),
    "index_add": lambda T: T.zeros(1, dtype=T.int64).index_add(0, T.zeros(4, dtype=T.int64), T.full((4,), 2**30)),
    "index_add_": lambda T: T.zeros(1, dtype=T.int64).index_add_(0, T.zeros(4, dtype=T.int64), T.full((4,), 2**30)),
    "scatter_add_": lambda T: T.zeros(1, dtype=T.int64).scatter_add_(0, T.zeros(4, dtype=T.int64), T.full((4,), 2**30)),
    "scatter_add_ that fits": lambda T: T.zeros(2).long().scatter_add_(0, T.tensor([0, 1, 1]), T.full((3,), 2**29)),
    "scatter_reduce": lambda T: T.ones(1).long().scatter_reduce(0, T.zeros(40).long(), T.full((40,), 2), "prod"),
    "mean of scatter_reduce": lambda T: (
        T.zeros(1).long().scatter_reduce(0, T.zeros(4).long(), T.full((4,), 2**30), "mean", include_self=False)
    ),
    "scatter_reduce that fits": lambda T: T.ones(1).long().scatter_reduce(0, T.zeros(9).long(), T.full((9,), 2), "sum"),
    "index_put_": lambda T: T.zeros(1).long().index_put_((T.zeros(4).long(),), T.full((4,), 2**30), accumulate=True),
    "put_": lambda T: T.zeros(1).long().put_(T.zeros(4).long(), T.full((4,), 2**30), accumulate=True),
    "float": lambda T: T.tensor(1e300, dtype=T.float64),
    "floats": lambda T: T.tensor([[1.5, -1e300]], dtype=T.float64),
    "float of an array": lambda T: T.from_numpy(np.array([1e300])),
    "complex": lambda T: T.tensor(1e300j, dtype=T.complex128),
    "infinity": lambda T: T.tensor([math.inf, 1], dtype=T.float64),
    "a number of the default dtype": lambda T: T.tensor(1e300),
}

# Each asks for 64 bits; the dtype that it gets without x64.
WIDE = {
    "float32": {
        "tensor of an array": lambda T, x: T.tensor(np.full(2, 1.5)),
        "from_numpy": lambda T, x: T.from_numpy(np.full(2, 1.5)),
        "as_tensor": lambda T, x: T.as_tensor(np.full(2, 1.5)),
        "from_dlpack": lambda T, x: T.from_dlpack(np.full(2, 1.5)),
        "numpy's number": lambda T, x: T.tensor(np.float64(1.5)),
        "a list of arrays": lambda T, x: T.tensor([np.full(2, 1.5)]),
        "dtype=": lambda T, x: T.tensor([1.5], dtype=T.double),
        "zeros": lambda T, x: T.zeros(2, dtype=T.float64),
        "zeros_like": lambda T, x: T.zeros_like(x, dtype=T.float64),
        "new_ones": lambda T, x: x.new_ones(2, dtype=T.float64),
        "arange": lambda T, x: T.arange(2, dtype=T.float64),
        "rand": lambda T, x: T.rand(2, dtype=T.float64) * 0,
        "DoubleTensor": lambda T, x: T.DoubleTensor([1.5]),
        "double": lambda T, x: x.double(),
        "to": lambda T, x: x.to(T.float64),
        "to a place too": lambda T, x: x.to("cpu", T.float64),
        "type": lambda T, x: x.type(T.float64),
        "sum": lambda T, x: x.sum(dtype=T.float64),
        "softmax": lambda T, x: T.nn.functional.softmax(x, 0, dtype=T.float64),
        "float_power": lambda T, x: T.float_power(x, 2),
        "Module.double": lambda T, x: T.nn.Linear(1, 1).double().weight * 0,
        "an operand": lambda T, x: x + np.full(2, 1.5),
    },
    "complex64": {
        "zeros": lambda T, x: T.zeros(2, dtype=T.complex128),
        "tensor of an array": lambda T, x: T.tensor(np.full(2, 2j)),
        "to": lambda T, x: x.to(T.complex128),
    },
    "int32": {
        "tensor of an array": lambda T, x: T.tensor(np.arange(2)),
        "from_numpy": lambda T, x: T.from_numpy(np.arange(2)),
        "from_dlpack": lambda T, x: T.from_dlpack(np.arange(2)),
        "dtype=": lambda T, x: T.tensor([1, 2], dtype=T.long),
        "zeros": lambda T, x: T.zeros(2, dtype=T.int64),
        "randperm": lambda T, x: T.randperm(1, dtype=T.int64),
        "LongTensor": lambda T, x: T.LongTensor([1, 2]),
        "long": lambda T, x: x.long(),
        "to": lambda T, x: x.to(T.int64),
        "type": lambda T, x: x.type(T.int64),
        "sum": lambda T, x: x.sum(dtype=T.long),
        "cumsum": lambda T, x: x.cumsum(0, dtype=T.long),
        "argmax": lambda T, x: x.argmax(),
        "one_hot": lambda T, x: T.nn.functional.one_hot(x.long(), 3),
        "index": lambda T, x: T.arange(3)[x.long()],
    },
}


def asked_for_64_bits():
    """What each of `WIDE` gives, and the number of warnings before it and after it; then with narrow = "error"."""
    found = {}
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for narrow in ("warn", "error"):
            xgrad.config.narrow = narrow
            for dtype, asks in WIDE.items():
                for name, ask in asks.items():
                    before = len(said)
                    try:
                        result = ask(xgrad, xgrad.ones(2))
                        result = result.tolist(), result.dtype.name
                    except Exception as error:
                        result = f"{type(error).__name__}: {error}"
                    found[f"{narrow} {dtype} {name}"] = result, len(said) - before
    return found, [[str(warning.message), warning.filename] for warning in said]


# What is asked of a process without x64: a table, the dtype of the tensor, and the operand as source text.
REFUSED_ARRAYS = {
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
            result = None if result is None else (result.tolist(), str(result.dtype).rpartition(".")[2])
        except Exception as error:
            result = f"{type(error).__name__}: {behind_name(error)}"
        found[name] = [result, x.tolist(), x._version]
    return json.loads(json.dumps(found))


def as_json(value):
    return json.dumps(value, default=lambda z: [z.real, z.imag])


def sums():
    """What each of SUMS gives, eagerly and lazily, or the error's type and text."""
    found = {}
    xgrad.config.narrow = "warn"
    for name, compute in SUMS.items():
        for lazy in (False, True):
            try:
                with xgrad.lazy() if lazy else contextlib.nullcontext():
                    found[f"{name}, lazy {lazy}"] = compute(xgrad).tolist()
            except Exception as error:
                found[f"{name}, lazy {lazy}"] = f"{type(error).__name__}: {error}"
    return found


def answers():
    """`outcomes` of xgrad for all that is asked, `asked_for_64_bits` and `sums`."""
    tables = [outcomes(xgrad, globals()[table], dtype, eval(operand)) for table, dtype, operand in ASKED]
    asked = asked_for_64_bits()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return tables, *asked, sums()


@functools.cache
def process_without_x64():
    """The answers of a process of its own, for the switch is one of the process."""
    code = "import json, tests.test_narrowing as t; print(t.as_json(t.answers()))"
    environment = {**os.environ, "JAX_ENABLE_X64": "0"}
    run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def without_x64(*asked):
    return process_without_x64()[0][ASKED.index(asked)]


def test_without_x64_what_asks_for_64_bits_gets_32():
    for name, ((values, dtype), _) in ((n, f) for n, f in process_without_x64()[1].items() if n.startswith("warn ")):
        _, wanted, ask = name.split(" ", 2)
        assert dtype == wanted, name
        with_x64 = WIDE[wanted][ask](xgrad, xgrad.ones(2))
        assert values == json.loads(as_json(with_x64.tolist())), name


def test_first_narrowed_float_of_a_process_warns_where_the_user_asked():
    _, found, said, _ = process_without_x64()
    assert next(name for name, (_, count) in found.items() if count) == next(iter(found))
    ((text, file),) = said
    assert re.match(r"float64 was asked for, but JAX's 64-bit mode is off: it becomes float32", text)
    assert "jax_enable_x64" in text
    assert "JAX_ENABLE_X64=1" in text
    assert file == __file__


def test_narrow_error_refuses_floats_and_no_integers():
    for name, (found, _) in process_without_x64()[1].items():
        if name.startswith("error int32"):
            assert found == process_without_x64()[1][name.replace("error", "warn")][0], name
        elif name.startswith("error"):
            assert re.match(r"DtypeDisabledError: .*(float64|complex128) was asked for.*jax_enable_x64", found), name
    with pytest.raises(ValueError, match="'warn' or 'error', but got 'off'"):
        xgrad.config.narrow = "off"
    assert xgrad.config.narrow == "warn"


@pytest.mark.parametrize("name", SUMS)
def test_sum_beyond_32_bits_is_an_error_without_x64(name):
    wanted = SUMS[name](torch)
    numbers = wanted.resolve_conj().reshape(-1)
    parts = torch.view_as_real(numbers) if numbers.is_complex() else numbers
    inexact = parts.is_floating_point()
    parts, limit = (parts, torch.finfo(torch.float32)) if inexact else (parts.long(), torch.iinfo(torch.int32))
    fits = bool(((parts >= limit.min) & (parts <= limit.max) | parts.isinf()).all())
    for lazy in (False, True):
        found = process_without_x64()[3][f"{name}, lazy {lazy}"]
        if fits and "mean" not in name:  # its sum does not
            assert found == wanted.tolist()
        else:
            assert re.match(
                "(Number)?OverflowError: .*does not fit into [a-z0-9]*, and JAX's 64-bit mode is off", found
            )


def test_with_x64_nothing_is_narrowed():
    for dtype, asks in WIDE.items():
        for name, ask in asks.items():
            wanted = {"float32": xgrad.float64, "complex64": xgrad.complex128, "int32": xgrad.int64}[dtype]
            assert ask(xgrad, xgrad.ones(2)).dtype == wanted, name


@pytest.mark.parametrize(("operand", "error"), REFUSED_ARRAYS.items(), ids=REFUSED_ARRAYS)
@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_numpy_array_with_an_integer_that_does_not_fit_is_refused_without_x64(operand, error, dtype):
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
        assert got["add"][0][1] == str((torch.ones(2) + torch.from_numpy(operand)).dtype).rpartition(".")[2]


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


def test_factory_of_an_integer_that_does_not_fit_is_refused_without_x64():
    for name, (text, *_) in without_x64("FACTORIES", "float32", "2**40").items():
        assert "OverflowError: " in text, name
        assert "does not fit into int32" in text or "to type int32" in text or name == "randint", name
        assert "jax_enable_x64" in text, name
