"""The precision of products, as programs for a TPU ask for it: "highest" is float32 wherever a program is traced."""

import re

import jax
import jax.numpy as jnp
import pytest

import xgrad
import xgrad.nn.functional as F
from xgrad.base.platforms import tracing_for

ATTENTION = F.scaled_dot_product_attention
PRODUCTS = {
    "matmul": (xgrad.matmul, (4, 4), (4, 4)),
    "linear": (F.linear, (2, 4), (3, 4), (3,)),
    "einsum": (lambda a, b: xgrad.einsum("ij,kj->ik", a, b), (2, 4), (3, 4)),
    "conv2d": (F.conv2d, (1, 2, 5, 5), (3, 2, 3, 3)),
    "conv_transpose2d": (F.conv_transpose2d, (1, 2, 5, 5), (2, 3, 3, 3)),
    "attention": (lambda a: ATTENTION(a, a, a), (1, 2, 5, 4)),
    "bilinear": (F.bilinear, (2, 3), (2, 4), (5, 3, 4)),
}


def asked_for(function, *shapes, dtype="float32", platform="tpu"):
    """Return (the operands' dtype, precision) of each product in a function's program for a platform."""
    given = [jax.ShapeDtypeStruct(shape, jnp.dtype(dtype)) for shape in shapes]

    def task(*arrays):
        found = function(*map(xgrad.tensor, arrays))
        return [x._read() for x in (found if isinstance(found, (tuple, list)) else [found])]

    with tracing_for(platform):
        text = jax.jit(task).trace(*given).lower(lowering_platforms=(platform,)).as_text()
    lines = [line for line in text.splitlines() if "dot_general" in line or "stablehlo.convolution" in line]
    of_operands = [re.search(r": \(tensor<[\dx]*(\w+)>", line)[1] for line in lines]
    return {*zip(of_operands, [re.search(r"HIGHEST|HIGH|DEFAULT", line)[0] for line in lines], strict=True)}


def with_gradients(function):
    def run(*tensors):
        leaves = [x.requires_grad_() for x in tensors]
        return xgrad.autograd.grad(function(*leaves).square().sum(), leaves)

    return run


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_of_float32_are_made_in_float32(name):
    function, *shapes = PRODUCTS[name]
    assert asked_for(with_gradients(function), *shapes) == {("f32", "HIGHEST")}
    assert {how for _, how in asked_for(function, *shapes, platform="cpu")} == {"DEFAULT"}


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_of_halves_are_asked_for_no_more_than_they_need(name):
    """XLA's TPU compiler fails with attention in bfloat16 whose products are HIGHEST."""
    function, *shapes = PRODUCTS[name]
    found = asked_for(with_gradients(function), *shapes, dtype="bfloat16")
    assert found <= {("bf16", "DEFAULT"), ("f32", "HIGHEST")}


@pytest.mark.parametrize(("word", "found"), [("highest", "HIGHEST"), ("high", "HIGH"), ("medium", "DEFAULT")])
def test_words_of_the_switch_are_what_programs_ask_for(word, found):
    try:
        xgrad.set_float32_matmul_precision(word)
        assert asked_for(xgrad.matmul, (4, 4), (4, 4)) == {("f32", found)}
    finally:
        xgrad.set_float32_matmul_precision("highest")


def test_a_setting_of_jax_stands():
    with jax.default_matmul_precision("default"):
        assert asked_for(xgrad.matmul, (4, 4), (4, 4)) == {("f32", "DEFAULT")}
    assert asked_for(xgrad.matmul, (4, 4), (4, 4)) == {("f32", "HIGHEST")}


def test_backward_in_a_compiled_function_and_in_programs_of_its_own():
    step = xgrad.compile(with_gradients(xgrad.matmul))
    assert asked_for(step, (4, 4), (4, 4)) == {("f32", "HIGHEST")}
    with xgrad.autograd.compiled_backward():
        assert asked_for(with_gradients(xgrad.matmul), (4, 4), (4, 4)) == {("f32", "HIGHEST")}


def test_products_of_batches_and_tangents():
    assert asked_for(xgrad.vmap(xgrad.mv), (3, 4, 4), (3, 4)) == {("f32", "HIGHEST")}
    assert asked_for(lambda a: xgrad.func.jvp(lambda a: a @ a, (a,), (a,))[1], (4, 4)) == {("f32", "HIGHEST")}


def test_functions_of_jax_users_have_jaxs_precision():
    function = xgrad.from_jax(lambda a, b: jnp.matmul(a, b))
    assert asked_for(with_gradients(function), (4, 4), (4, 4)) == {("f32", "DEFAULT")}
    with jax.default_matmul_precision("highest"):
        assert asked_for(function, (4, 4), (4, 4)) == {("f32", "HIGHEST")}
