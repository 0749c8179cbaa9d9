"""xgrad.dtype: objects around NumPy's dtypes, with torch.dtype's attributes."""

import copy
import pickle
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import xgrad
from xgrad.base import dtypes

NAMES = [name for name in dtypes.__all__ if isinstance(getattr(xgrad, name, None), xgrad.dtype)]


def outcome(call):
    try:
        return repr(call()).rpartition(".")[2]
    except RuntimeError as error:
        return type(error)


@pytest.mark.parametrize("name", NAMES)
def test_attributes_are_torchs(name):
    mine, theirs = getattr(xgrad, name), getattr(torch, name)
    for attribute in ("is_floating_point", "is_complex", "is_signed", "itemsize"):
        assert getattr(mine, attribute) == getattr(theirs, attribute), attribute
    assert isinstance(mine, xgrad.dtype)
    assert repr(mine) == str(mine) == repr(theirs).replace("torch", "xgrad")
    assert outcome(mine.to_real) == outcome(theirs.to_real)
    if theirs is not torch.float16:  # JAX has no complex32
        assert outcome(mine.to_complex) == outcome(theirs.to_complex)


@pytest.mark.parametrize("name", NAMES)
def test_equal_to_numpys_both_ways(name):
    mine = getattr(xgrad, name)
    numpys = np.dtype(mine)
    assert isinstance(numpys, np.dtype)
    assert numpys.name == mine.name
    assert mine == numpys
    assert numpys == mine
    assert hash(mine) == hash(numpys)
    assert mine != xgrad.dtype("datetime64")
    assert {mine: 1}[numpys] == {numpys: 1}[mine] == 1
    assert mine == numpys.type
    assert mine == mine.name
    assert jnp.dtype(mine) == numpys


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda d: pickle.loads(pickle.dumps(d)), xgrad.dtype])
def test_there_is_one_object(again):
    for name in NAMES:
        assert again(getattr(xgrad, name)) is getattr(xgrad, name)
    assert xgrad.dtype(np.dtype("float32")) is xgrad.ones(2).dtype is xgrad.float32 is xgrad.float


def test_numpy_and_jax_take_it():
    for numpy in (np, jnp):
        assert numpy.zeros(2, xgrad.float16).dtype == numpy.ones(2).astype(xgrad.float16).dtype == "float16"
    assert jax.ShapeDtypeStruct((2,), xgrad.int8).dtype == np.int8
    assert jnp.finfo(xgrad.bfloat16).bits == 16
    assert np.iinfo(xgrad.int8).max == 127
    assert jnp.promote_types(xgrad.float16, xgrad.bfloat16) == np.float32


def test_public_functions_give_objects():
    x = xgrad.ones(2, requires_grad=True)
    sparse = xgrad.eye(2).to_sparse()
    found = [x.dtype, x.grad_dtype, sparse.dtype, xgrad.get_default_dtype(), xgrad.result_type(x, 1)]
    found += [xgrad.promote_types(xgrad.int8, np.dtype("float32")), xgrad.promote_types("float32", xgrad.float32)]
    found += [xgrad.nn.UninitializedParameter().dtype, xgrad.nn.Parameter(xgrad.ones(1)).dtype]
    assert all(d is xgrad.float32 for d in found)
    assert xgrad.get_autocast_dtype("cpu") is xgrad.bfloat16
    assert xgrad.autocast("cpu").fast_dtype is xgrad.bfloat16


def test_numpys_are_taken_where_objects_are():
    x = xgrad.ones(2)
    for d in (np.float16, np.dtype("float16"), xgrad.float16):
        assert x.to(d).dtype is xgrad.zeros(2, dtype=d).dtype is xgrad.float16
    assert x.to(np.dtype("float32")) is x
    assert x.to(x.dtype) is x


def test_files_keep_objects(tmp_path):
    kept = {"new": xgrad.float16, "old": np.dtype("float16")}
    xgrad.save(kept, tmp_path / "kept.safetensors")
    found = xgrad.load(tmp_path / "kept.safetensors")
    assert found["new"] is found["old"] is xgrad.float16
    torch.save({"kind": torch.bfloat16, "x": torch.ones(2)}, tmp_path / "kept.pt")
    assert xgrad.load(tmp_path / "kept.pt")["kind"] is xgrad.bfloat16
    assert pickle.loads(pickle.dumps(np.dtype("float32"))) == xgrad.float32


def test_a_compiled_function_traces_again_for_another_dtype():
    @xgrad.compile
    def convert(x, dtype):
        return x.to(dtype) + 1

    for dtype in (xgrad.float16, xgrad.int32, xgrad.float16):
        assert convert(xgrad.ones(2), dtype).dtype is dtype


def test_a_64_bit_tensor_is_refused_where_jax_would_narrow_it():
    from xgrad.base.limits import refuse_narrowing, x64_for_now

    with x64_for_now():
        x = xgrad.ones(2, dtype=xgrad.float64)
    for value in (x, x.dtype, x._dtype):
        with pytest.raises(xgrad.errors.DtypeDisabledError, match="a tensor of float64 is used"):
            refuse_narrowing([value])


@pytest.mark.filterwarnings("ignore:in the future the `.dtype` attribute:DeprecationWarning")  # NumPy before 2.4
def test_numpy_and_jax_take_a_tensor_for_its_dtype():
    tensors: Any = (xgrad.ones(3, dtype=xgrad.float16), xgrad.eye(2).to(xgrad.float16).to_sparse())
    for x in tensors:
        assert np.result_type(x, np.float32) == np.float32
        assert np.dtype(x) == np.float16
    assert jnp.zeros_like(tensors[0]).dtype == jnp.float16
