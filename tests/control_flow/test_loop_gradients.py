"""Gradients of while_loop: a Python loop under torch, recorded eagerly, and in programs; and loops of batches."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import xgrad
from xgrad.control_flow import repeated

from .test_cond import both

STARTS = ([0.1, 0.2, 0.3], [1.0, 2.0, 3.0], [30.0, 0.0, 0.0])  # many steps, few, none


def loop_of(t):
    if t is xgrad:
        return xgrad.while_loop

    def loop(goes, body, carried):  # torch's own compiles
        while goes(*carried):
            carried = body(*carried)
        return carried

    return loop


def tensors(t, *values):
    return [t.tensor(value, requires_grad=True) for value in values]


@pytest.mark.parametrize("slots", [2, 3, 32])
def test_gradients_of_operands_and_of_tensors_from_outside(slots, monkeypatch):
    monkeypatch.setattr(repeated, "SLOTS", slots)

    def scenario(t, make):
        (w,) = tensors(t, [1.1, 1.2, 1.3])
        layer = t.nn.Linear(3, 3)
        with t.no_grad():
            layer.weight.copy_(t.arange(9.0).reshape(3, 3) / 20)
            layer.bias.fill_(0.1)

        def f(x):
            y = w * 1.1

            def body(i, x, log):
                return i + 1, x + layer(x).tanh() * y / 3, {"sum": log["sum"] + x.sum() * i}

            carried = (t.tensor(0), x, {"sum": x.sum()})
            i, x, log = loop_of(t)(lambda i, x, log: x.sum() < 20 * w[0].detach(), body, carried)
            return i, x.sin().sum() + log["sum"]

        run, found = make(f), []
        for start in STARTS:
            (x,) = tensors(t, start)
            w.grad = layer.weight.grad = layer.bias.grad = None
            i, out = run(x)
            out.backward()
            found += [i, out, x.grad, w.grad, layer.weight.grad, layer.bias.grad]
        return found

    both(scenario)


def test_second_derivatives():
    def scenario(t, make):
        (w,) = tensors(t, [1.1, 1.2, 1.3])

        def f(x):
            out = loop_of(t)(lambda x: x.sum() < 20, lambda x: (x * w + x.sin() ** 2,), (x,))[0].sum()
            (g,) = t.autograd.grad(out, x, create_graph=True)
            (g**2).sum().backward()
            return out.detach()

        run, found = make(f), []
        for start in STARTS[:2]:
            (x,) = tensors(t, start)
            w.grad = None
            found += [run(x), x.grad, w.grad]
        return found

    both(scenario)


def test_loops_in_loops_and_branches():
    def scenario(t, make):
        (w,) = tensors(t, 1.1)

        def inner(x):
            return loop_of(t)(lambda x: x.sum() < 5, lambda x: (x * w + 0.1,), (x,))[0]

        def outer(i, x):
            small = i % 2 == 0
            other = (t.cond if t is xgrad else lambda p, a, b, given: (a if p else b)(*given))(
                small, lambda x: x * w, lambda x: x.cos(), (x,)
            )
            return i + 1, other + inner(x) / 3

        def f(x):
            return loop_of(t)(lambda i, x: i < 3, outer, (t.tensor(0), x))[1]

        (x,) = tensors(t, [0.5, 1.0, 1.5])
        make(f)(x).sum().backward()
        return [x.grad, w.grad]

    both(scenario)


def test_detached_values_and_numbers_of_other_kinds_have_no_gradient():
    def scenario(t, make):
        def f(x, z):
            def body(i, x, z, on):
                return i + 1, x * z.abs() + x.detach(), z * 1j, on | (i == 1)

            _, x, z, _ = loop_of(t)(lambda i, x, z, on: ~on, body, (t.tensor(0), x, z, t.tensor(False)))
            return x.sum() + (z * z.conj()).real.sum()

        x, z = t.tensor([1.0, 2.0], requires_grad=True), t.tensor([1 + 1j, 2 - 1j], requires_grad=True)
        make(f)(x, z).backward()
        return [x.grad, z.grad]

    both(scenario)


def test_without_gradients_a_loop_has_no_history():
    w = xgrad.ones(3, requires_grad=True)
    run = xgrad.compile(lambda x: xgrad.while_loop(lambda x: x.sum() < 9, lambda x: (x * 2 * w,), (x,))[0])
    with xgrad.no_grad():
        assert run(xgrad.ones(3)).grad_fn is None
    run(xgrad.ones(3)).sum().backward()
    assert w.grad.tolist() == [8.0, 8.0, 8.0]


def test_a_training_step_with_a_loop():
    def train(make):
        w = xgrad.tensor([1.5, 1.2], requires_grad=True)
        optimizer = xgrad.optim.SGD([w], lr=0.01)

        def step(x):
            optimizer.zero_grad()
            loss = (xgrad.while_loop(lambda x: x.sum() < 9, lambda x: (x * w,), (x * w,))[0].sum() - 9) ** 2
            loss.backward()
            optimizer.step()
            return loss.detach()

        run = make(step)
        return [run(xgrad.tensor(start)).item() for start in ([1.0, 2.0], [0.5, 0.1], [8.0, 2.0])], w.tolist()

    found, expected = train(xgrad.compile), train(lambda f: f)
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-5)
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-5)


def test_the_tapes_gradient_under_jax():
    def f(x):
        return xgrad.while_loop(lambda x: x.sum() < 9, lambda x: (x * 2 + x.detach(),), (x,))[0].sum()

    start = np.array([1.0, 0.5], np.float32)
    assert jax.jit(jax.grad(xgrad.to_jax(f, grad="tape")))(start).tolist() == [4.0, 4.0]


# -- batches


@pytest.mark.parametrize("nested", [False, True])
def test_entries_of_a_batch_end_each_at_its_step_in_a_program_too(nested):
    def scenario(t, make):
        (w,) = tensors(t, 1.2)

        def entry(x, a):
            y = a * w
            return loop_of(t)(lambda i, x: x.sum() < 9 + y, lambda i, x: (i + 1, x * y + a), (t.tensor(0), x))

        def f(x, a):
            if t is torch:
                pairs = [entry(*given) for given in zip(x.flatten(0, -2), a.flatten())]
                found = [t.stack(parts) for parts in zip(*pairs)]
                return [part.unflatten(0, a.shape) for part in found]
            return (xgrad.vmap(xgrad.vmap(entry)) if nested else xgrad.vmap(entry))(x, a)

        values = np.arange(8.0, dtype=np.float32).reshape(4, 2), np.array([1.0, 2.0, 1.5, 3.0], np.float32)
        x, a = values if not nested else (values[0].reshape(2, 2, 2), values[1].reshape(2, 2))
        x, a = t.tensor(x, requires_grad=True), t.tensor(a, requires_grad=True)
        i, y = make(f)(x, a)
        (y**2).sum().backward()
        return [i, y, x.grad, a.grad, w.grad]

    both(scenario)


def test_a_batch_without_gradients_and_a_condition_that_all_entries_share():
    def f(x):
        return xgrad.vmap(lambda x: xgrad.while_loop(lambda i, x: i < n, lambda i, x: (i + 1, x * 2), (n - 3, x)))(x)

    n = xgrad.tensor(5)
    for run in (f, xgrad.compile(f)):
        i, y = run(xgrad.ones(2, 3))
        assert i.tolist() == [5, 5]
        assert y.tolist() == [[8.0] * 3] * 2


def test_what_a_loop_of_a_program_refuses():
    def f(x):
        return xgrad.while_loop(lambda x: x.sum() < 9, lambda x: (x * 2,), (x,))[0].sum()

    with pytest.raises(NotImplementedError, match="no gradient inside of vmap"):
        xgrad.compile(lambda x: xgrad.vmap(xgrad.func.grad(f))(x))(xgrad.ones(2, 3))
    with pytest.raises(NotImplementedError, match="no forward mode"):
        xgrad.compile(lambda x: xgrad.func.jvp(f, (x,), (x,)))(xgrad.ones(3))
    per_entry = xgrad.compile(xgrad.func.grad(lambda x: xgrad.vmap(f)(x).sum()))(xgrad.ones(2, 3))
    assert per_entry.tolist() == [[4.0] * 3] * 2


# -- the sweep


def turns(number):
    """Count how often the gradient of so many steps runs a step."""
    ran = []

    def step(i, x):
        jax.debug.callback(lambda: ran.append(1))
        return i + 1, x * 1.001

    run = repeated.repeated_while(lambda i, x: i < number, step, 2)
    found = jax.jit(jax.grad(lambda x: run(jnp.int32(0), x)[1]))(1.0)
    jax.effects_barrier()
    np.testing.assert_allclose(found, 1.001**number, rtol=1e-3)
    return len(ran)


@pytest.mark.parametrize(("number", "again"), [(33, 1), (561, 2)])
def test_steps_run_again_as_often_as_griewanks_rule_says(number, again):
    """Beside that each step runs in forward, and is differentiated."""
    assert turns(number) <= (2 + again) * number


def test_third_derivatives_are_jaxs_of_the_unrolled_steps():
    def step(i, x, w):
        return i + 1, jnp.sin(x * w) + x

    def unrolled(x, w):
        for _ in range(4):
            _, x = step(0, x, w)
        return x

    run = repeated.repeated_while(lambda i, x, w: i < 4, step, 2)
    given = jnp.float32(0.4), jnp.float32(0.7)

    def third(f):
        for place in (0, 1, 0):
            f = jax.grad(f, place)
        return jax.jit(f)(*given)

    np.testing.assert_allclose(third(lambda x, w: run(jnp.int32(0), x, w)[1]), third(unrolled), rtol=1e-4)
