"""Random bits of a backend: JAX's generators, or a function; of all that draws, in all modes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import xgrad

MODES = ["eager", "lazy"]


def drawn(device):
    xgrad.manual_seed(3)
    x = xgrad.rand(40, 3, device=device)
    y = xgrad.nn.functional.dropout(xgrad.ones(50, device=device), 0.5)
    z = xgrad.randint(0, 9, (7,), device=device)
    p = xgrad.poisson(xgrad.full((5,), 3.0, device=device))
    return [t.cpu().numpy() for t in (x, y, z, xgrad.randn(6, device=device), xgrad.randperm(9, device=device), p)]


@pytest.mark.parametrize("execution", MODES)
def test_rbg_is_that_of_jax(execution):
    chip = xgrad.Backend("npu", random="rbg", execution=execution)
    xgrad.manual_seed(3)
    found = xgrad.rand(40, 3, device=chip)
    _, key = jax.random.split(jax.random.key(3, impl="rbg"))
    np.testing.assert_array_equal(found.tolist(), jax.random.uniform(key, (40, 3), jnp.float32))
    again = drawn(chip)
    for a, b, other in zip(again, drawn(chip), drawn("cpu"), strict=True):
        np.testing.assert_array_equal(a, b)
        assert not (a == other).all()


@pytest.mark.parametrize("execution", MODES)
def test_threefry_is_the_cpus(execution):
    for a, b in zip(drawn(xgrad.Backend("npu", random="threefry", execution=execution)), drawn("cpu"), strict=True):
        np.testing.assert_array_equal(a, b)


def counter(key, shape, bits):
    """Return numbers that rise."""
    return jnp.arange(int(np.prod(shape)), dtype=f"uint{bits}").reshape(shape) << (bits - 8)


@pytest.mark.parametrize("execution", MODES)
def test_a_function_of_the_backend(execution):
    chip = xgrad.Backend("npu", random=counter, execution=execution)
    assert xgrad.rand(4, device=chip).tolist() == [0, 1 / 256, 2 / 256, 3 / 256]
    step = xgrad.compile(lambda x: xgrad.nn.functional.dropout(x, 0.5))
    assert step(xgrad.ones(256, device=chip)).tolist() == [2.0] * 128 + [0.0] * 128
    rows = xgrad.vmap(lambda x: x * xgrad.rand(2, device=chip), randomness="different")(xgrad.ones(3, device=chip))
    assert rows.tolist() == [[0, 1 / 256]] * 3


@pytest.mark.parametrize("execution", MODES)
def test_a_write_in_place_draws_from_it_too(execution):
    x = xgrad.zeros(2, 2, device=xgrad.Backend("npu", random=counter, execution=execution))
    x[1].uniform_()
    assert x.tolist() == [[0, 0], [0, 1 / 256]]
    assert x.uniform_().tolist() == [[0, 1 / 256], [2 / 256, 3 / 256]]


def test_a_function_that_gives_something_else_is_named():
    chip = xgrad.Backend("npu", random=lambda key, shape, bits: jnp.zeros(shape, jnp.float32))
    with pytest.raises(TypeError, match=r"random of the backend 'npu' gives float32\[3\], but has to give uint32\[3\]"):
        xgrad.rand(3, device=chip)
    with pytest.raises(ValueError, match="random is 'threefry', 'rbg', or a function"):
        chip.replace(random="philox")


def test_conform_compares_with_the_cpu_only_where_the_generator_is_the_cpus():
    for random, checks in (("threefry", ["the CPU's", "again"]), ("rbg", ["again"])):
        chip = xgrad.Backend("npu", random=random)
        (row,) = xgrad.conformance.run(chip, operators="randint", dtypes=["int32"]).rows[-1:]
        assert [(c.name, c.state) for c in row.cells["int32"].checks] == [(name, "right") for name in checks]
