"""Sums of halves in a TPU's programs: their accumulators are float32 (where libtpu is installed: conftest.py)."""

import re

import jax
import jax.numpy as jnp
import pytest

import xgrad
import xgrad.nn.functional as F

SUMS = {
    "sum": (lambda x: x.sum(0), [(4096, 128)]),
    "norm": (lambda x: x.norm(dim=0), [(4096, 128)]),
    "std": (lambda x: x.std(0), [(4096, 128)]),
    "cumsum": (lambda x: x.cumsum(0), [(1024, 128)]),
    "softmax": (lambda x: F.softmax(x, -1), [(64, 4096)]),
    "cross_entropy": (lambda x: F.cross_entropy(x, xgrad.zeros(64, dtype=xgrad.int32)), [(64, 4096)]),
    "layer_norm": (lambda x, w, b: F.layer_norm(x, (512,), w, b), [(64, 512), (512,), (512,)]),
    "a bias": (lambda x, b: x * x + b, [(64, 64, 128), (128,)]),
    "linear": (lambda x, w, b: F.linear(x, w, b), [(4096, 128), (128, 128), (128,)]),
    "convolution": (lambda x, w: F.conv2d(x, w), [(8, 16, 32, 32), (16, 16, 3, 3)]),
    "attention": (lambda q, k, v: F.scaled_dot_product_attention(q, k, v), [(2, 4, 256, 64)] * 3),
    "embedding": (lambda w: F.embedding(xgrad.zeros(4096, dtype=xgrad.int32), w), [(16, 128)]),
}
_COMPUTATION = re.compile(r"^%?([\w.\-]+) \([^\n]*\{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
_SUM = re.compile(
    r"= (\w+)\[[^\]]*\]\S* (?:reduce|reduce-window|convolution|dot|scatter|select-and-scatter)\([^\n]*?"
    r"(?:to_apply=%?([\w.\-]+)|$)",
    re.MULTILINE,
)


def accumulators(hlo):
    """The dtypes in which a program adds up: its products, and the reductions and scatters that apply a sum."""
    sums = {name for name, body in _COMPUTATION.findall(hlo) if re.search(r"= \w+\[\]\S* add\(", body)}
    return {dtype for dtype, applied in _SUM.findall(hlo) if not applied or applied in sums}


@pytest.mark.parametrize("name", SUMS)
def test_sums_of_bfloat16_have_float32_accumulators(name):
    function, shapes = SUMS[name]

    def step(*arrays):
        tensors = [xgrad.tensor(array, requires_grad=True) for array in arrays]
        value = function(*tensors)
        return [value._read(), *[g._read() for g in xgrad.autograd.grad((value * value).sum(), tensors)]]

    structs = [jax.ShapeDtypeStruct(shape, jnp.bfloat16) for shape in shapes]
    answer = xgrad.target("tpu:v5e").ask(step, *structs)
    assert answer.state == "compiles", answer.said
    assert accumulators(answer.hlo) == {"f32"}


def test_the_test_sees_an_accumulator_of_bfloat16():
    def halves(x):
        return jax.lax.reduce(x, jnp.bfloat16(0), jax.lax.add, (0,))

    answer = xgrad.target("tpu:v5e").ask(halves, jax.ShapeDtypeStruct((4096, 128), jnp.bfloat16))
    assert "bf16" in accumulators(answer.hlo)
