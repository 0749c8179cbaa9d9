"""Errors of kernels: JAX's own about shapes and devices become PyTorch's, others stay as they are."""

import jax.numpy as jnp
import pytest

import xgrad
from xgrad.dispatch.kernel_errors import explain
from xgrad.dispatch.tables import OPERATORS

ADD = OPERATORS["add"]


@pytest.mark.parametrize(
    "call",
    [lambda: jnp.ones(2) + jnp.ones(3), lambda: jnp.ones((2, 3)) @ jnp.ones((2, 3)),
     lambda: jnp.concatenate([jnp.ones((2, 2)), jnp.ones((3, 3))]), lambda: jnp.ones(2).reshape(3)],
)  # fmt: skip
def test_jaxs_errors_about_shapes_are_runtime_errors(call):
    with pytest.raises(TypeError) as caught:
        call()
    assert type(explain(caught.value, ADD, [])) is RuntimeError


@pytest.mark.parametrize(
    "error",
    [TypeError("the argument shape must be a tuple"), TypeError("a shape is (height, width)"),
     ValueError("this needs 4 devices in the mesh"), TypeError("Shapes must be 1D sequences, got ('x',)")],
)  # fmt: skip
def test_other_errors_stay(error):
    assert explain(error, ADD, [xgrad.ones(2)._read()]) is error
