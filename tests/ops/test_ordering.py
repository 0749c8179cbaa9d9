"""The one sort behind sort, topk, median, kthvalue and mode: every dtype, ties, NaN, zeros of both signs."""

import os
import subprocess
import sys

import jax
import numpy as np
import pytest

import xgrad
from xgrad.ops.reduce import sort_kernel

from ..oracle import as_torch

DTYPES = ["float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool"]
SPECIAL = [0.0, -0.0, np.nan, -np.nan, np.inf, -np.inf, 1.5, -1.5, 0.0, np.nan, 1e-40, -1e-40]


def numbers(dtype):
    if "float" in dtype:
        return np.array([SPECIAL, SPECIAL[::-1]])
    low, high = (0, 2) if dtype == "bool" else (0, 255) if dtype == "uint8" else (-128, 127)
    return np.array([[high, low, 0, 1, low, high, 1, 0, 0, 1, low, high]] * 2)


@pytest.mark.one_in(5)
@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_sort_is_stable_in_every_dtype(dtype, descending):
    def program(T):
        x = T.tensor(numbers(dtype).tolist(), dtype=getattr(T, dtype))
        values, indices = T.sort(x, dim=1, descending=descending, stable=True)
        rows = T.sort(x, dim=0, descending=descending, stable=True)
        return [y.double() for y in (values, indices, *rows)]

    as_torch(program)


def test_extreme_integers():
    def program(T):
        for dtype in ("int64", "int32"):
            info = np.iinfo(dtype)
            x = T.tensor([0, info.max, info.min, -1, info.max], dtype=getattr(T, dtype))
            yield T.sort(x, stable=True)[1]
            yield T.sort(x, descending=True, stable=True)[1]

    as_torch(lambda T: list(program(T)))


@pytest.mark.one_in(2)
@pytest.mark.parametrize("shape", [(0,), (2, 0), (1,), (3, 1)])
def test_little_to_sort(shape):
    as_torch(lambda T: [list(T.sort(T.ones(shape), dim=d)) for d in range(len(shape))])


def test_selections_by_rank():
    def program(T):
        x = T.tensor([[3.0, -1.0, 3.0, 2.0, -1.0], [0.0, -0.0, 1.0, 1.0, 1.0]])
        return [x.median(1)[0], x.kthvalue(2, 1)[0], x.mode(1)[0], x.topk(2)[0], x.msort()]

    as_torch(program)


@pytest.mark.exhaustive
@pytest.mark.one_in(2)
@pytest.mark.parametrize("descending", [False, True])
def test_other_platforms_give_the_same(descending):
    """What runs where the pair is sorted equals what runs on the CPU."""
    for dtype in ("float32", "bfloat16", "int8", "bool"):
        x = numbers(dtype)[:, 2:10]  # without subnormal numbers, which XLA's comparator takes for zero
        x = xgrad.tensor(x.tolist(), dtype=getattr(xgrad, dtype)).__jax_array__()
        packed, pair = (
            jax.jit(f, static_argnums=(1, 2))(x, 1, descending) for f in (sort_kernel._packed, sort_kernel._as_pair)
        )
        np.testing.assert_array_equal(packed[1], pair[1])


@pytest.mark.exhaustive
def test_without_64_bit_mode():
    code = """
import numpy as np, xgrad
x = np.random.default_rng(0).integers(-4, 4, (3, 50)).astype(np.float32)
values, indices = xgrad.tensor(x).sort(descending=True)
assert values.dtype == xgrad.float32 and indices.dtype == xgrad.int32
assert (indices.numpy() == np.argsort(-x, 1, kind="stable")).all()
y = xgrad.tensor(x, requires_grad=True)
(y.sort()[0] * xgrad.arange(50.0)).sum().backward()
assert sorted(y.grad[0].tolist()) == list(range(50))
"""
    env = {**os.environ, "JAX_ENABLE_X64": "0"}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
