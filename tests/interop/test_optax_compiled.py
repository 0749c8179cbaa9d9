"""Optimizer inside of `xgrad.compile`, and on sharded parameters."""

import jax
import numpy as np
import optax
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import xgrad
from xgrad.interop.optax import Optimizer

from .test_optax import inject, loss_of, parameters


def step_of(params, optimizer):
    def step():
        optimizer.zero_grad()
        loss = loss_of(*params)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@pytest.mark.exhaustive
@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    "tx",
    [
        lambda: inject(optax.adamw),
        lambda: optax.chain(optax.clip_by_global_norm(0.5), optax.sgd(optax.linear_schedule(0.1, 0, 5), momentum=0.9)),
        lambda: optax.MultiSteps(optax.adam(0.1), 2),
    ],
    ids=["adamw", "chain", "MultiSteps"],
)  # fmt: skip
def test_a_whole_step_is_one_program_that_is_traced_once(tx):
    ours, eager = parameters(), parameters()
    optimizers = Optimizer(ours, tx()), Optimizer(eager, tx())
    compiled, plain = xgrad.compile(step_of(ours, optimizers[0])), step_of(eager, optimizers[1])
    for _ in range(4):
        np.testing.assert_allclose(compiled().item(), plain().item(), rtol=1e-10)
    assert compiled.metrics().traces == 1
    for a, b in zip(ours, eager):
        np.testing.assert_allclose(a.detach(), b.detach(), rtol=1e-10)
    a, b = (jax.tree.leaves(optimizer.state) for optimizer in optimizers)
    for mine, other in zip(a, b, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-9, atol=1e-12)


def test_compiled_and_eager_steps_take_turns():
    params, eager = parameters(), parameters()
    optimizer, other = Optimizer(params, optax.adam(0.1)), Optimizer(eager, optax.adam(0.1))
    step, plain = step_of(params, optimizer), step_of(eager, other)
    compiled = xgrad.compile(step)
    for run in (compiled, step, compiled, compiled, step):
        np.testing.assert_allclose(run().item(), plain().item(), rtol=1e-10)
    assert compiled.metrics().traces == 1
    optimizer.load_state_dict(other.state_dict())
    for run in (step, compiled):
        np.testing.assert_allclose(run().item(), plain().item(), rtol=1e-10)
    assert compiled.metrics().traces == 1


def test_hyperparameters_change_without_another_trace():
    params, _ = parameters(), None
    optimizer = Optimizer(params, inject())
    compiled = xgrad.compile(step_of(params, optimizer))
    compiled()
    before = [p.detach().numpy().copy() for p in params]
    optimizer.param_groups[0]["learning_rate"] = 0.0
    compiled()
    for p, b in zip(params, before):
        np.testing.assert_array_equal(p.detach(), b)
    assert compiled.metrics().traces == 1


@pytest.mark.unverified("an eager step does not count the writes of its state")
def test_hyperparameters_are_read_and_set_inside():
    params = parameters()
    optimizer = Optimizer(params, inject())
    inner = step_of(params, optimizer)
    group = optimizer.param_groups[0]

    @xgrad.compile
    def step():
        loss = inner()
        for g in optimizer.param_groups:
            g["learning_rate"] = g["learning_rate"] * 0.5
        return loss, group["learning_rate"]

    assert [step()[1].item() for _ in range(3)] == [0.05, 0.025, 0.0125]
    assert group["learning_rate"] == 0.0125
    assert step.metrics().traces == 1


def test_what_a_step_relies_on_is_traced_again():
    a, b = parameters()
    optimizer = Optimizer([a], optax.sgd(1.0))
    compiled = xgrad.compile(optimizer.step)
    for p in (a, b):
        p.grad = xgrad.ones(*p.shape, dtype=xgrad.float64)
    compiled()
    optimizer.add_param_group({"params": [b]})
    start = b.detach().numpy().copy()
    compiled()
    np.testing.assert_array_equal(b.detach(), start - 1)
    optimizer.register_step_post_hook(lambda *args: a.detach().zero_())
    compiled()
    assert a.tolist() == [[0.0] * 3] * 2
    b.grad = None
    compiled()
    np.testing.assert_array_equal(b.detach(), start - 2)
    assert compiled.metrics().traces == 4


def test_the_state_begins_with_the_first_compiled_step():
    p = xgrad.zeros(2, dtype=xgrad.float64, requires_grad=True)
    optimizer = Optimizer([p], optax.contrib.schedule_free(optax.sgd(0.5), 0.5))
    p.data = xgrad.ones(2, dtype=xgrad.float64)
    p.grad = xgrad.zeros(2, dtype=xgrad.float64)
    compiled = xgrad.compile(optimizer.step)
    compiled()
    compiled()
    assert optimizer.state[0].z[0].tolist() == [1, 1]


def test_a_trace_that_fails_leaves_the_optimizer_as_it_was():
    params = parameters()
    optimizer = Optimizer(params, optax.adam(0.1))
    inner = step_of(params, optimizer)

    @xgrad.compile
    def step():
        inner()
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        step()
    before = [p.detach().numpy().copy() for p in params]
    inner()
    assert optimizer.state[0][0].count.item() == 1
    assert not any(np.array_equal(p.detach(), b) for p, b in zip(params, before))


def test_a_closure_in_a_compiled_step():
    params = parameters()
    optimizer = Optimizer(params, optax.polyak_sgd())
    other = parameters()
    eager = Optimizer(other, optax.polyak_sgd())

    def closure(params, optimizer):
        optimizer.zero_grad()
        loss = loss_of(*params) + 4
        loss.backward()
        return loss

    compiled = xgrad.compile(lambda: optimizer.step(lambda: closure(params, optimizer)).detach())
    for _ in range(3):
        np.testing.assert_allclose(compiled().item(), eager.step(lambda: closure(other, eager)).item(), rtol=1e-10)


# ---------------------------------------------------------------- sharded parameters


def sharded(spec):
    mesh = Mesh(np.array(jax.devices()[:2]), ("x",))
    return NamedSharding(mesh, PartitionSpec(*spec))


@pytest.mark.exhaustive
@pytest.mark.parametrize("compiled", [False, True])
def test_sharded_parameters_and_their_state_keep_their_sharding(compiled):
    values = [np.arange(8.0).reshape(4, 2) / 7, np.array([0.5, -1.5])]
    placed = [sharded(["x"]), sharded([None])]
    params = [xgrad.tensor(v).to(s).requires_grad_() for v, s in zip(values, placed)]
    known = [xgrad.tensor(v, requires_grad=True) for v in values]
    tx = inject(optax.adam)
    optimizer, other = Optimizer(params, tx), Optimizer(known, tx)
    step, plain = step_of(params, optimizer), step_of(known, other)
    run = xgrad.compile(step) if compiled else step
    for i in range(3):
        np.testing.assert_allclose(run().item(), plain().item(), rtol=1e-10)
        optimizer.param_groups[0]["learning_rate"] = other.param_groups[0]["learning_rate"] = 0.1 / (i + 1)
        for p, s in zip(params, placed):
            assert p.sharding.is_equivalent_to(s, p.ndim)
        for name in ("mu", "nu"):
            for leaf, s in zip(optax.tree.get(optimizer.state, name), placed):
                assert leaf.sharding.is_equivalent_to(s, leaf.ndim)
    saved = optimizer.state_dict()
    again = Optimizer(params, tx)
    again.load_state_dict(saved)
    assert optax.tree.get(again.state, "mu")[0].sharding.is_equivalent_to(placed[0], 2)


def test_groups_may_lie_on_different_devices():
    first, second = jax.devices()[:2]
    a = xgrad.ones(3, device=first, requires_grad=True)
    b = xgrad.ones(3, device=second, requires_grad=True)
    with pytest.raises(ValueError, match="a group for each device"):
        Optimizer([a, b], optax.adam(0.1))
    optimizer = Optimizer([{"params": [a]}, {"params": [b]}], optax.adam(0.5))
    for _ in range(2):
        for p in (a, b):
            p.grad = xgrad.ones(3).to(p.device)
        optimizer.step()
    np.testing.assert_allclose([a.detach(), b.detach()], 0.0, atol=1e-6)
    assert (a.sharding.device_set, b.sharding.device_set) == ({first}, {second})
