"""One program gives what its operators give one by one, at the ends of the ranges too: XLA keeps to IEEE arithmetic.

`python -m tests.property.run --kind algebra` draws any number of expressions.
"""

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import xgrad
from tests.lanes import budget

from .algebra import FLAGS

CASES = {
    "a sum and a difference of one number round": (lambda x: (x + 12582912.0) - 12582912.0, [1.4]),
    "products with numbers stay apart": (lambda x: x * 1e30 * 1e30, [0.0]),
    "products with small numbers stay apart": (lambda x: x * 1e-30 * 1e-30, [1e30]),
    "a quotient is divided": (lambda a, b: (a / b) / b, [1e-30, 1e-25]),
    "a quotient divides": (lambda a, b, c: a / (b / c), [1e30, 1e30, 1e30]),
    "a division by one number is no product": (lambda x: x / 3e38, [3e38]),
    "exp overflows before log": (lambda x: x.exp().log(), [100.0]),
    "products of exp": (lambda a, b: a.exp() * b.exp(), [100.0, -80.0]),
    "powers of powers": (lambda x: x.pow(2.0).pow(0.5), [1e30]),
    "0.0 is added to -0.0": (lambda x: 1 / (x + 0.0), [-0.0]),
}


@pytest.mark.parametrize("name", CASES)
def test_one_program_gives_what_torch_gives_step_by_step(name):
    function, numbers = CASES[name]
    wanted = function(*[torch.tensor([n], dtype=torch.float32) for n in numbers])
    given = [xgrad.tensor([n], dtype=xgrad.float32) for n in numbers]
    with xgrad.lazy():
        lazy = function(*given)
    for got in (function(*given), lazy, xgrad.compile(function)(*given)):
        torch.testing.assert_close(torch.tensor(got.numpy()), wanted, rtol=1e-6, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_the_gradient_of_a_quotient_squares_nothing(dtype):
    small, large = (1e-30, 1e-25) if dtype != "float16" else (1e-4, 1e-4)
    wide = torch.tensor([large], dtype=torch.float64, requires_grad=True)
    (torch.tensor([small], dtype=torch.float64) / wide).backward()
    b = xgrad.tensor([large], dtype=getattr(xgrad, dtype), requires_grad=True)
    (xgrad.tensor([small], dtype=getattr(xgrad, dtype)) / b).backward()
    assert b.grad.item() == pytest.approx(wide.grad.item(), rel=2e-2)


def test_programs_run_as_parts_of_a_trace_and_at_once_in_turns():
    double = jax.jit(lambda a: (xgrad.tensor(a).mul(2.0)[1:] / 3.0).sum()._read())
    x = xgrad.arange(3.0)
    for _ in range(2):
        assert x.mul(2.0)[1:].div(3.0).sum().item() == pytest.approx(2.0)
        assert double(jnp.arange(3.0) * 1.0) == pytest.approx(2.0)
        assert jax.vmap(lambda a: xgrad.tensor(a).mul(2.0)._read())(jnp.ones((2, 3))).sum() == 12.0


def test_negative_padding_is_a_slice():
    pads = [((-1, 2, 0), (1, -1, 0)), ((1, 1, 1), (-2, 0, 0)), ((-1, -1, 0), (-1, 0, 1))]
    pad = xgrad.from_jax(lambda x: [jax.lax.pad(x, x.dtype.type(9), pads[i]) for i in range(3)])
    x = xgrad.arange(20, dtype=xgrad.float32).reshape(4, 5).requires_grad_()
    for function in (pad, xgrad.compile(pad)):
        for out, config in zip(function(x), pads, strict=True):
            assert out.tolist() == jax.lax.pad(x.detach().numpy(), np.float32(9), config).tolist()
    total = sum(out.sum() for out in pad(x))
    total.backward()
    assert x.grad.sum().item() == 12 + 12 + 8


def test_writes_of_known_values_are_parts_of_a_trace():
    @jax.jit
    def function(a):
        x, w = xgrad.tensor([1.0, 2.0]), xgrad.nn.Parameter(xgrad.tensor([1.0, 2.0]))
        optimizer = xgrad.optim.SGD([w], lr=1.0)
        w.grad = xgrad.ones(2)
        x.add_(1)
        x.mul_(2)
        optimizer.step()
        return (x + w + xgrad.tensor(a))._read()

    assert function(jnp.zeros(2)).tolist() == [4.0, 7.0]


@budget(4, 40)
def test_random_expressions_of_extreme_values_are_the_same_in_all_ways(budget):
    environment = os.environ | {"XLA_FLAGS": FLAGS, "JAX_ENABLE_X64": "1", "XGRAD_LAZY": "0"}
    environment.pop("JAX_DISABLE_MOST_OPTIMIZATIONS", None)
    command = [sys.executable, "-m", "tests.property.algebra", *map(str, range(1000, 1000 + budget))]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
