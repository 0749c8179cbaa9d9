"""Lazy blocks: the same numbers as eager, one program for each sequence of operators, and nothing lost."""

import contextlib
import os
import subprocess
import sys
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import xgrad
from xgrad.dispatch.tables import OPERATORS
from xgrad.execution import queue as queues
from xgrad.execution import scalars
from xgrad.execution.fused import Fused
from xgrad.execution.runner import runner

from ..oracle import data, leaf, same

# With XGRAD_LAZY=1 the block of a test ends nothing: the thread is lazy behind it too.
blocks_end = pytest.mark.skipif(runner.always_lazy, reason="every thread is lazy: no block ends")


@pytest.fixture(autouse=True)
def _fresh():
    xgrad.lazy.reset()


def both(program):
    """Run a program of the namespace on torch, and on xgrad in a lazy block; compare."""
    theirs = program(torch)
    with xgrad.lazy():
        ours = program(xgrad)
    same(ours, theirs)


def training(T, steps=3):
    x, y, w, b = data(T, (4, 3)), data(T, (4, 2), 1), leaf(T, 3, 2, seed=2), leaf(T, 2, seed=3)
    losses = []
    for _ in range(steps):
        loss = ((x @ w + b).tanh() - y).pow(2).mean()
        loss.backward()
        with T.no_grad():
            for p in (w, b):
                p -= 0.1 * p.grad
                p.grad = None
        losses.append(loss.detach())
    return losses, w, b


def test_training_agrees_with_torch():
    both(training)


def test_a_loop_is_one_program():
    x, w, b = data(xgrad, (7, 3)), leaf(xgrad, 3, 5), leaf(xgrad, 5)  # shapes of its own: b's gradient is summed
    large = xgrad.zeros(32, 33)  # its memory is reused from the first write on
    xgrad.sync()
    xgrad.lazy.reset()
    with xgrad.lazy():
        for _ in range(5):
            (x @ w + b).square().sum().backward()
            with xgrad.no_grad():
                for p in (w, b):
                    p -= 0.01 * p.grad
                    p.grad = None
            large.mul_(0.9).add_(1)
            xgrad.sync()
    metrics = xgrad.lazy.metrics()
    assert (metrics.launches, len(metrics.programs)) == (5, 1)
    assert metrics.operations_per_launch > 4


def test_the_first_recorded_product_is_noted_once():
    a = leaf(xgrad, 4, 3)
    data(xgrad, (4, 3)) * data(xgrad, (4, 3))  # there is a kernel
    xgrad.sync()
    OPERATORS["mul"].kernels[()].plans.clear()
    with xgrad.lazy():
        b = a * a
        assert xgrad.lazy.pending().count("mul(") == 1
    assert b.shape == (4, 3)


def test_views_and_writes_agree_with_torch():
    def program(T):
        base = leaf(T, 4, 3)
        x = base.clone()
        row, column = x[1], x.t()[0]
        row.mul_(2)
        column.add_(row.sum())
        x[2:, 1:] = row[:2] * 3
        y = x.diagonal() * x[0]
        y.sum().backward()
        return x, row, column, base.grad, x._version, type(x.grad_fn).__name__

    both(program)


def test_second_derivatives_agree_with_torch():
    def program(T):
        x = leaf(T, 3)
        (g,) = T.autograd.grad((x**3).tanh().sum(), x, create_graph=True)
        return g, T.autograd.grad(g.pow(2).sum(), x)

    both(program)


def test_hooks_run_in_order_on_pending_tensors():
    def program(T):
        seen = []
        x = leaf(T, 3)
        y = x * 2
        y.register_hook(lambda g: seen.append("y") or g * 3)
        x.register_hook(lambda g: seen.append("x"))
        x.register_post_accumulate_grad_hook(lambda p: seen.append(tuple(p.grad.shape)))
        y.grad_fn.register_hook(lambda *_: seen.append("node"))
        y.sum().backward()
        return seen, x.grad

    both(program)


def test_a_branch_reads_its_value_and_goes_on():
    def program(T):
        x = leaf(T, 3)
        y = x * 2
        z = y.exp() if y.sum() > 0 else y.sin()
        z.sum().backward()
        return z, x.grad, z.max().item()

    both(program)
    assert [reason for reason, _ in xgrad.lazy.metrics().evaluations] == ["bool()", "item()"]


def test_a_print_is_counted_as_one_and_keeps_no_memory():
    x = xgrad.ones(40, 40)
    with xgrad.lazy():
        x.mul_(2)
        print(x, x[0])
        assert x._share().array.owned
    assert next(iter(xgrad.lazy.metrics().evaluations)).reason == "print"


def test_random_numbers_are_those_of_eager():
    def drawn():
        xgrad.manual_seed(3)
        x = xgrad.nn.functional.dropout(xgrad.ones(4, 4), 0.5)
        return x.tolist(), xgrad.randn(3).tolist(), xgrad.randperm(5).tolist(), xgrad.zeros(3).uniform_().tolist()

    expected = drawn()
    with xgrad.lazy():
        assert drawn() == expected
    assert xgrad.rand(1).item() != 0


def test_the_weights_keep_their_memory():
    w = xgrad.ones(64, 64)
    with xgrad.lazy():
        for _ in range(3):
            w.mul_(2)
            xgrad.sync()
        before = w._array.value.unsafe_buffer_pointer()
        w.mul_(2)
        xgrad.sync()
        assert w._array.value.unsafe_buffer_pointer() == before
    assert w.sum().item() == 64 * 64 * 16


def test_an_array_that_other_code_has_is_not_donated():
    w = xgrad.ones(64, 64)
    with xgrad.lazy():
        w.mul_(2)
        seen = np.asarray(w.numpy())
        w.mul_(2)
        xgrad.sync()
    np.testing.assert_array_equal(seen, np.full((64, 64), 2.0))
    alias = w.detach().clone()
    with xgrad.lazy():
        old = w.clone()
        w.add_(1)
        w.add_(1)
    assert (old.sum() - alias.sum()).item() == 0
    assert (w - old).sum().item() == 2 * 64 * 64


@blocks_end
def test_dead_values_are_not_computed():
    calls = []

    def counted(x):
        return jax.pure_callback(lambda a: calls.append(1) or np.asarray(a), jax.ShapeDtypeStruct(x.shape, x.dtype), x)

    op = xgrad.interop.jax.from_jax(counted)
    with xgrad.lazy():
        alive, dead = op(xgrad.ones(2)), op(xgrad.zeros(2))
        del dead
    assert calls == [1]
    assert alive.tolist() == [1, 1]


@pytest.mark.filterwarnings("ignore:Anomaly Detection has been enabled")
def test_results_that_only_a_tuple_holds_have_their_values():
    y = leaf(xgrad, 3)
    with xgrad.lazy(), xgrad.autograd.detect_anomaly():
        (y * y).sum().backward()  # reads one gradient of the product, and then the other
    same(y.grad, 2 * y.detach())


def test_a_wrong_shape_is_an_error_at_the_call():
    x, y = xgrad.ones(3), xgrad.ones(4)
    with pytest.raises(RuntimeError) as eager:
        x * y
    with xgrad.lazy():
        z = x * 2
        with pytest.raises(RuntimeError) as lazy:
            x * y
        assert str(lazy.value) == str(eager.value)
    assert z.tolist() == [2, 2, 2]


def failing(x):
    def callback(a):
        raise ValueError("no such value")

    return jax.pure_callback(callback, jax.ShapeDtypeStruct(x.shape, x.dtype), x)


def test_an_operator_that_fails_is_named_with_its_line_and_the_rest_has_its_value():
    op = xgrad.interop.jax.from_jax(failing)
    with xgrad.lazy():
        x = xgrad.ones(3)
        before = x + 1
        bad = op(before)
        after = bad * 2
        beside = before * 3
        with pytest.raises(Exception, match="no such value") as error:
            xgrad.sync()
        assert "test_lazy.py:" in "".join(error.value.__notes__)
        assert before.tolist() == [2, 2, 2]
        assert beside.tolist() == [6, 6, 6]
        with pytest.raises(xgrad.errors.LostValueError, match="has no value"):
            after.tolist()
        assert (before * 2).tolist() == [4, 4, 4]


def test_an_interrupt_in_the_evaluation_loses_nothing(monkeypatch):
    w = xgrad.ones(64, 64)
    run = Fused.run

    def interrupted(self, values, out, spare):
        monkeypatch.setattr(Fused, "run", run)
        raise KeyboardInterrupt

    with xgrad.lazy():
        w.mul_(3)
        y = w + 1
        monkeypatch.setattr(Fused, "run", interrupted)
        with pytest.raises(KeyboardInterrupt):
            y.sum().item()
        assert y.sum().item() == 4 * 64 * 64
        w.mul_(2)
    assert w[0, 0].item() == 6


def test_an_interrupt_behind_the_program_loses_nothing(monkeypatch):
    finish = queues.Queue._finish
    failures = iter([True, True])

    def interrupted(self):
        if next(failures, False):
            raise KeyboardInterrupt
        finish(self)

    w = xgrad.ones(64, 64)
    with xgrad.lazy():
        w.mul_(3)
        y = w + 1
        monkeypatch.setattr(queues.Queue, "_finish", interrupted)
        with contextlib.suppress(KeyboardInterrupt):
            xgrad.sync()
        with contextlib.suppress(KeyboardInterrupt):
            y * 2
        assert (y * 2).sum().item() == 8 * 64 * 64
    assert w[0, 0].item() == 3


def test_an_exception_leaves_what_was_noted_pending():
    x = xgrad.ones(3)
    with contextlib.suppress(ZeroDivisionError), xgrad.lazy():
        y = x * 2
        1 / 0
    assert xgrad.lazy.metrics().launches == 0
    assert (y + x).tolist() == [3, 3, 3]


def test_another_thread_may_read_a_pending_value():
    found = []
    with xgrad.lazy():
        y = xgrad.ones(3) * 2
        reader = threading.Thread(target=lambda: found.append((y + 1).tolist()))
        reader.start()
        reader.join()
        assert (y * 2).tolist() == [4, 4, 4]
    assert found == [[3, 3, 3]]


def test_threads_note_and_read_at_once():
    shared, errors = [xgrad.ones(8)], []

    def worker(k):
        try:
            with xgrad.lazy():
                for _ in range(60):
                    shared[0] = shared[0] * 1.0
                    assert (shared[0] + k).sum().item() == 8 + 8 * k
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=worker, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


def test_threads_that_note_each_others_pending_arrays_do_not_wait_for_each_other():
    x = [xgrad.ones(4), xgrad.ones(4)]
    errors = []

    def worker(mine):
        try:
            with xgrad.lazy():
                for _ in range(40):
                    x[mine] = (x[1 - mine] * 1.0 + x[mine] * 0.0) * 1.0
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=worker, args=(k,), daemon=True) for k in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert errors == []
    assert x[0].tolist() == [1, 1, 1, 1]


def test_numbers_beyond_32_bits_are_floats_or_an_error_at_the_call():
    def program():
        floats = (xgrad.ones(2, dtype=xgrad.float32) * 2**40).tolist()
        try:
            return floats, (xgrad.ones(2, dtype=xgrad.int32) * 2**70).tolist()
        except Exception as error:
            return floats, type(error).__name__

    expected = program()
    with xgrad.lazy():
        assert program() == expected


def test_many_operations_are_evaluated_before_the_end(monkeypatch):
    monkeypatch.setattr(queues.Queue, "most", 10)
    with xgrad.lazy():
        x = xgrad.zeros(2)
        for _ in range(25):
            x = x + 1
    assert x.tolist() == [25, 25]
    assert xgrad.lazy.metrics().launches == 3


@blocks_end
def test_blocks_are_nested_and_decorate():
    @xgrad.lazy()
    def twice(x):
        return x * 2

    with xgrad.lazy():
        y = twice(xgrad.ones(2))
        with xgrad.lazy():
            y = y + 1
        assert "mul" in xgrad.lazy.pending()
        assert "test_lazy.py:" in xgrad.lazy.pending()
    assert "test_lazy.py:" not in xgrad.lazy.pending()
    assert twice(y).tolist() == [6, 6]


def test_lifetimes_an_evaluated_queue_holds_nothing():
    with xgrad.lazy():
        y = xgrad.ones(3) * 2
        queue = xgrad.config.state.queue
        xgrad.sync()
        assert (queue.entries, queue.inputs, queue.known, queue.done) == ([], [], {}, None)
        before = len(jax.live_arrays())
        del y
        assert len(jax.live_arrays()) < before


@pytest.mark.parametrize("way", ["compile", "compiled_backward", "checkpoint", "vmap", "grad", "jvp", "hessian"])
def test_together_with(way):
    x = xgrad.tensor([[0.1, 0.2], [0.3, 0.4]], dtype=xgrad.float64, requires_grad=True)

    def f(x):
        return (x * x).sin().sum()

    def result():
        x.grad = None
        y = x * 1.0
        if way == "compile":
            out = xgrad.compile(f)(y)
            out.backward()
            return out, x.grad
        if way == "compiled_backward":
            with xgrad.autograd.compiled_backward():
                f(y).backward()
            return x.grad
        if way == "checkpoint":
            xgrad.utils.checkpoint.checkpoint(f, y, use_reentrant=False).backward()
            return x.grad
        if way == "vmap":
            return xgrad.func.vmap(lambda row: (row * 2).sum())(y)
        if way == "grad":
            return xgrad.func.grad(f)(y)
        if way == "jvp":
            return xgrad.func.jvp(f, (y,), (y,))
        return xgrad.func.hessian(f)(y)

    expected = [t.tolist() for t in jax.tree.leaves(result(), is_leaf=lambda t: isinstance(t, xgrad.Tensor))]
    with xgrad.lazy():
        found = result()
    found = [t.tolist() for t in jax.tree.leaves(found, is_leaf=lambda t: isinstance(t, xgrad.Tensor))]
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, 1e-12)


def test_jax_takes_pending_arrays():
    with xgrad.lazy():
        y = xgrad.ones(3) * 2
        assert jnp.asarray(y._read()).sum() == 6
        y = y * 2
        assert jax.jit(lambda a: a + 1)(y._read()).tolist() == [5, 5, 5]


def test_classes_that_are_pending_are_not_checked_and_do_not_cut_the_program():
    logits, labels = xgrad.ones(2, 3), xgrad.tensor([0, 1, 2])
    with xgrad.lazy():
        loss = xgrad.nn.functional.cross_entropy(logits, labels[xgrad.tensor([0, 2])])
        loss = loss + xgrad.nn.functional.cross_entropy(logits, xgrad.tensor([0, 1]) * 1)
    assert loss.item() == pytest.approx(2 * np.log(3))
    assert xgrad.lazy.metrics().launches == 1


def test_steps_with_optax_are_one_program():
    optax = pytest.importorskip("optax")

    def trained():
        w = leaf(xgrad, 32, 8)
        optimizer = xgrad.interop.optax.Optimizer([w], optax.adam(0.1))
        for _ in range(4):
            optimizer.zero_grad()
            (data(xgrad, (4, 32), 1) @ w).tanh().sum().backward()
            optimizer.step()
        return w

    expected = trained()
    xgrad.lazy.reset()
    with xgrad.lazy():
        w = trained()
    same(w, expected.detach().numpy())
    assert xgrad.lazy.metrics().launches == 1


def test_what_a_block_left_is_used_outside_and_in_another_block():
    with xgrad.lazy():
        w = leaf(xgrad, 3)
        y = w * 2
    (y.sum() + w.sum()).backward()
    assert w.grad.tolist() == [3, 3, 3]
    with xgrad.no_grad():
        w.add_(1)
    with xgrad.lazy():
        z = (w - 1) * 2
    same(z, y.detach().numpy(), rtol=1e-12, atol=1e-12)


@blocks_end
def test_new_shapes_and_reads_in_a_loop_get_advice():
    x = xgrad.ones(8, 3)
    with xgrad.lazy():
        for n in (3, 4, 5, 6):
            x[:n].exp().sum().item()
    metrics = xgrad.lazy.metrics()
    text = str(metrics)
    assert "item() at test_lazy.py:" in text
    assert any("new shapes at test_lazy.py:" in line for line in metrics.advice)
    assert any("cut the program 4 times" in line for line in metrics.advice)
    assert "stablehlo" in xgrad.lazy.as_text()
    assert "HloModule" in xgrad.lazy.as_text("hlo")
    with pytest.raises(ValueError, match="dialect"):
        xgrad.lazy.as_text("llvm")


def test_the_environment_makes_all_threads_lazy():
    script = (
        "import threading, xgrad\n"
        "y = xgrad.ones(2) * 3\n"
        "assert 'mul' in xgrad.lazy.pending()\n"
        "def work():\n"
        "    z = xgrad.ones(2) * 3\n"
        "    print('mul' in xgrad.lazy.pending(), z.tolist())\n"
        "t = threading.Thread(target=work); t.start(); t.join()\n"
        "print(y.tolist())\n"
    )
    environment = {**os.environ, "XGRAD_LAZY": "1"}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:2] == ["True [3.0, 3.0]", "[3.0, 3.0]"]


def test_numbers_that_come_again_are_the_same_values():
    xgrad.lazy.reset()
    x = xgrad.ones(3)
    seen = []
    for value in (0.25, 0.25, 0.25, 0.0, -0.0, 0.25, True, 1, 1.0, float("inf"), 1, -0.0, float("nan"), 3, 3, 3.0):
        with xgrad.lazy():
            y = x * value
            sign = xgrad.copysign(x, value)
            xgrad.sync()
        seen.append((y.dtype, *y.tolist(), *sign.tolist()))
    compiled, expected = xgrad.lazy.metrics().programs, []
    for value in (0.25, 0.25, 0.25, 0.0, -0.0, 0.25, True, 1, 1.0, float("inf"), 1, -0.0, float("nan"), 3, 3, 3.0):
        y = x * value
        expected.append((y.dtype, *y.tolist(), *xgrad.copysign(x, value).tolist()))
    assert repr(seen) == repr(expected)
    assert len(compiled) <= 4  # one for each type of a number, and one that makes `x`
    assert len(scalars._arrays) <= scalars.MOST


@pytest.mark.parametrize("call", [divmod, lambda a, b: 5 << a, lambda a, b: 5 >> a, lambda a, b: divmod(7, a)])
def test_an_array_that_waits_has_the_operators_of_one_that_is_there(call):
    with xgrad.lazy():
        a, b = (xgrad.arange(1, 4) * n for n in (1, 2))
        found = call(b._held(), a._held())
    np.testing.assert_array_equal(found, call(jnp.arange(1, 4) * 2, jnp.arange(1, 4)))


def test_a_number_that_waits_is_rounded():
    with xgrad.lazy():
        waiting = (xgrad.tensor(1.26) * 1)._held()
        assert round(waiting, 1) == round(jnp.asarray(waiting.value if waiting.value is not None else 1.26), 1)
