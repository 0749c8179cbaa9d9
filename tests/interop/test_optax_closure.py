"""Transformations that take more than gradients: the value of the loss, and functions of the parameters."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import optax.contrib
import pytest

import xgrad
from xgrad.interop.optax import Optimizer

START = np.array([1.5, -0.5])


def rosenbrock(x, shift=0.0):
    return (1 - x[0] + shift) ** 2 + 5 * (x[1] - x[0] ** 2) ** 2


def by_optax(tx, steps, loss=lambda x, i: rosenbrock(x)):
    """The parameters after each step of optax's own."""

    @jax.jit
    def step(x, state, i):
        def of(params):
            return loss(params[0], i)

        value, grad = jax.value_and_grad(of)(x)
        updates, state = tx.update(grad, state, x, value=value, grad=grad, value_fn=of)
        return optax.apply_updates(x, updates), state

    x = [jnp.asarray(START)]
    state = tx.init(x)
    for i in range(steps):
        x, state = step(x, state, float(i))
        yield np.array(x[0])


def shifted(x, i):
    return rosenbrock(x, i / 4)


def closure_of(optimizer, x, loss=rosenbrock):
    def closure():
        optimizer.zero_grad()
        value = loss(x)
        value.backward()
        return value

    return closure


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    "tx",
    [
        lambda: optax.polyak_sgd(),
        lambda: optax.contrib.momo(0.1),
        lambda: optax.chain(optax.sgd(0.01), optax.contrib.reduce_on_plateau(patience=0, accumulation_size=1)),
        lambda: optax.chain(optax.sgd(1.0), optax.scale_by_backtracking_linesearch(8)),
    ],
    ids=["polyak_sgd", "momo", "reduce_on_plateau", "backtracking"],
)
def test_a_closure_gives_all_that_a_transformation_takes(tx):
    x = xgrad.tensor(START, requires_grad=True)
    optimizer = Optimizer([x], tx())
    for expected in by_optax(tx(), 3):
        grad_before = optimizer.step(closure_of(optimizer, x))
        assert isinstance(grad_before, xgrad.Tensor)
        np.testing.assert_allclose(x.detach(), expected, rtol=1e-7)


def test_a_value_may_be_given_by_name():
    x = xgrad.tensor(START, requires_grad=True)
    optimizer = Optimizer([x], optax.polyak_sgd())
    for i, expected in enumerate(by_optax(optax.polyak_sgd(), 3)):
        optimizer.zero_grad()
        loss = rosenbrock(x)
        loss.backward()
        optimizer.step(value=loss if i else loss.item())
        np.testing.assert_allclose(x.detach(), expected, rtol=1e-9)


@pytest.mark.exhaustive
def test_a_line_search_sees_the_loss_of_each_step_and_not_of_the_first():
    """One closure whose loss changes from step to step; its program is compiled once."""
    x = xgrad.tensor(START, requires_grad=True)
    tx = optax.chain(optax.sgd(1.0), optax.scale_by_backtracking_linesearch(8))
    optimizer = Optimizer([x], tx)
    shift = xgrad.zeros((), dtype=xgrad.float64)
    closure = closure_of(optimizer, x, lambda x: rosenbrock(x, shift))
    for i, expected in enumerate(by_optax(tx, 4, shifted)):
        shift.fill_(i / 4)
        optimizer.step(closure)
        np.testing.assert_allclose(x.detach(), expected, rtol=1e-7)
    (((update, _),),) = optimizer._updates.values()
    (program,) = update.programs.values()
    assert len(program._lifted) == 1


def test_a_value_function_may_be_given_by_name():
    x = xgrad.tensor(START, requires_grad=True)
    tx = optax.chain(optax.sgd(1.0), optax.scale_by_backtracking_linesearch(8))
    optimizer = Optimizer([x], tx)
    for expected in by_optax(tx, 2):
        optimizer.zero_grad()
        loss = rosenbrock(x)
        loss.backward()
        optimizer.step(value=loss, value_fn=lambda params: rosenbrock(params[0]))
        np.testing.assert_allclose(x.detach(), expected, rtol=1e-7)


@pytest.mark.exhaustive
def test_functions_of_other_names():
    x = xgrad.tensor(START, requires_grad=True)
    tx = optax.contrib.sam(optax.sgd(0.01), optax.sgd(0.05), opaque_mode=True)
    array = [jnp.asarray(START)]
    state = tx.init(array)
    optimizer = Optimizer([x], tx)
    gradient = jax.grad(lambda params: rosenbrock(params[0]))
    for _ in range(2):
        optimizer.zero_grad()
        rosenbrock(x).backward()
        optimizer.step(grad_fn=lambda params, _: gradient(params))
        updates, state = tx.update(gradient(array), state, array, grad_fn=lambda params, _: gradient(params))
        array = optax.apply_updates(array, updates)
        np.testing.assert_allclose(x.detach(), array[0], rtol=1e-9)


@pytest.mark.exhaustive
def test_a_search_with_the_closure_leaves_no_trace_of_it():
    x = xgrad.tensor(START, requires_grad=True)
    optimizer = Optimizer([x], optax.lbfgs(memory_size=2))
    closure = closure_of(optimizer, x)
    losses = [optimizer.step(closure).item()]
    np.testing.assert_allclose(x.grad, jax.grad(rosenbrock)(jnp.asarray(START)))
    losses += [optimizer.step(closure).item() for _ in range(8)]
    assert losses[0] == rosenbrock(START)
    assert losses[-1] < 0.1


def test_a_closure_runs_with_gradients_on():
    x = xgrad.tensor(START, requires_grad=True)
    optimizer = Optimizer([x], optax.sgd(0.1))
    with xgrad.no_grad():
        assert optimizer.step(closure_of(optimizer, x)).item() == rosenbrock(START)
    np.testing.assert_allclose(x.detach(), START - 0.1 * np.asarray(jax.grad(rosenbrock)(jnp.asarray(START))))


def test_what_a_transformation_misses_is_its_own_error_and_changes_nothing():
    x = xgrad.tensor(START, requires_grad=True)
    optimizer = Optimizer([x], optax.polyak_sgd())
    rosenbrock(x).backward()
    with pytest.raises(TypeError, match="value"):
        optimizer.step()
    assert x.tolist() == START.tolist()
