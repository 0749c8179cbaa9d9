"""`xgrad.lazy(fuse=False)`: eager mode's programs and values, of which the forward's compile in parallel."""

import os
import subprocess
import sys
import threading

import jax
import numpy as np
import pytest

import xgrad
import xgrad.nn.functional as F
from xgrad import nn
from xgrad.execution import separate
from xgrad.execution.programs.ahead import compiled
from xgrad.execution.queue import Queue
from xgrad.execution.runner import runner

pytestmark = [
    pytest.mark.eager("launches"),
    pytest.mark.filterwarnings("ignore:.*is compiled for"),
]
DTYPES = [xgrad.float32, xgrad.float64, xgrad.bfloat16, xgrad.float16]


@pytest.fixture(autouse=True)
def _no_backend_is_declared(monkeypatch):
    """As in a new process: an earlier test may have declared one."""
    monkeypatch.setattr(runner, "backends", False)


class Net(nn.Module):
    """Convolution, batch norm, writes in place, views, attention, an embedding."""

    def __init__(self, width):
        super().__init__()
        self.width = width
        self.conv, self.norm = nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.words = nn.Embedding(9, width)
        self.out = nn.Linear(width, 9)

    def forward(self, image, words):
        seen = F.relu(self.norm(self.conv(image)), inplace=True).flatten(2).transpose(1, 2)  # (2, 16, 4)
        q = self.words(words).view(2, 5, 4, -1).transpose(1, 2)
        mask = xgrad.ones(5, 5).tril() == 0
        mixed = (q @ q.transpose(-2, -1)).masked_fill(mask, -1e4).softmax(-1) @ q
        mixed = mixed.transpose(1, 2).reshape(2, 5, self.width)
        mixed[:, 0] *= 2
        mixed[..., :4].add_(seen[:, :5])
        return self.out(mixed)


def trained(dtype, blocks, steps=2, width=16):
    """The losses, parameters and buffers after `steps`; step i is in `blocks(i)`."""
    xgrad.manual_seed(3)
    net = Net(width).to(dtype)
    optimizer = xgrad.optim.AdamW(net.parameters(), lr=1e-2)
    image, words, target = xgrad.randn(2, 2, 4, 4, dtype=dtype), xgrad.arange(10).view(2, 5) % 9, xgrad.arange(10) % 9
    losses, counts = [], []
    for i in range(steps):
        before = compiled.count
        with blocks(i):
            optimizer.zero_grad()
            loss = F.cross_entropy(net(image, words).view(10, 9).float(), target)
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        counts.append(compiled.count - before)
    return [x.detach().double().numpy() for x in (*losses, *net.parameters(), *net.buffers())], counts


def separately(i):
    return xgrad.lazy(fuse=False)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_values_are_eager_modes_to_the_last_bit(dtype):
    eager, _ = trained(dtype, lambda i: xgrad.enable_grad())
    lazy, _ = trained(dtype, separately)
    for a, b in zip(eager, lazy, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_first_step_leaves_the_next_eager_one_nothing_to_compile():
    _, counts = trained(xgrad.float32, lambda i: xgrad.enable_grad() if i else xgrad.lazy(fuse=False), 4, width=20)
    assert counts[0] > 20
    assert counts[1:] == [0, 0, 0]
    _, counts = trained(xgrad.float32, separately, width=20)
    assert counts == [0, 0]


def test_results_of_a_block_are_operands_as_others_in_later_eager_writes():
    with xgrad.lazy(fuse=False):
        added = xgrad.ones(3, 47) + 1
    x = xgrad.ones(3, 47) * 2
    x.add_(added)
    before, place = compiled.count, x._read().unsafe_buffer_pointer()
    x.add_(added)
    x.add_(added * 2)
    assert compiled.count == before
    assert x._read().unsafe_buffer_pointer() == place
    assert x[0, 0].item() == 10


def test_an_evaluation_in_the_middle_compiles_eager_modes_programs():
    parameters = [xgrad.ones(5, size, requires_grad=True) for size in (51, 53)]

    def clip():
        for p in parameters:
            p.grad = xgrad.ones(p.shape)
        return xgrad.nn.utils.clip_grad_norm_(parameters, 0.5).item()

    with xgrad.lazy(fuse=False):
        first = clip()
    before = compiled.count
    assert clip() == first
    assert compiled.count == before


def test_programs_compile_in_other_threads_and_before_the_first_runs():
    seen, ran = [], []

    def note(event, duration, **_):
        if event.endswith("backend_compile_duration"):
            seen.append(threading.current_thread().name)

    jax.monitoring.register_event_duration_secs_listener(note)
    x = xgrad.ones(3, 41)

    def counted(a):
        return jax.pure_callback(
            lambda v: ran.append(len(seen)) or np.asarray(v), jax.ShapeDtypeStruct(a.shape, a.dtype), a
        )

    op = xgrad.interop.jax.from_jax(counted)
    with xgrad.lazy(fuse=False):
        y = op(x).sinh().cosh().tanh().t() * 2
        seen.clear()
    assert y.shape == (41, 3)
    assert len(seen) >= 5
    assert {name.rpartition("_")[0] for name in seen} == {"xgrad compile"}
    assert ran[0] == len(seen)


def test_a_write_leaves_what_was_read_before_and_reaches_all_views():
    with xgrad.lazy(fuse=False):
        x = xgrad.zeros(4, 6)
        before, row = x + 1, x[1]
        alias = x.detach()
        row.fill_(5)
        x[:, 2:4].mul_(2).sub_(1)
        after = x.clone()
        x.t()[0] = 7
    same = xgrad.zeros(4, 6)
    same[1] = 5
    same[:, 2:4] = same[:, 2:4] * 2 - 1
    assert xgrad.equal(before, xgrad.ones(4, 6))
    assert xgrad.equal(after, same)
    same[:, 0] = 7
    assert xgrad.equal(x, same)
    assert xgrad.equal(alias, same)
    assert xgrad.equal(row, same[1])


def test_an_operator_that_fails_is_named_and_the_rest_has_its_value():
    def failing(a):
        def callback(v):
            raise ValueError("no such value")

        return jax.pure_callback(callback, jax.ShapeDtypeStruct(a.shape, a.dtype), a)

    op = xgrad.interop.jax.from_jax(failing)
    w = xgrad.ones(3)
    with xgrad.lazy(fuse=False):
        before = w + 1
        after = op(before) * 2
        w.add_(after)
        beside = before * 3
        with pytest.raises(Exception, match="no such value") as error:
            xgrad.sync()
        assert "test_separate.py:" in "".join(error.value.__notes__)
        assert (before.tolist(), beside.tolist(), w.tolist()) == ([2, 2, 2], [6, 6, 6], [1, 1, 1])
        with pytest.raises(xgrad.errors.LostValueError, match="has no value"):
            after.tolist()


@pytest.mark.parametrize("place", ["compile_ahead", "_launch", "_finish"])
def test_an_interrupt_loses_nothing(monkeypatch, place):
    owner = separate if place == "compile_ahead" else separate.Separate
    works, calls = getattr(owner, place), []

    def interrupted(*args):
        calls.append(1)
        if len(calls) < 3:
            raise KeyboardInterrupt
        return works(*args)

    w = xgrad.ones(5, 43)
    with xgrad.lazy(fuse=False):
        w.mul_(3)
        y = w + 1
        w.mul_(2)
        monkeypatch.setattr(owner, place, interrupted)
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                xgrad.sync()
    assert len(calls) >= 3
    assert (y.sum().item(), w.sum().item()) == (4 * 215, 6 * 215)


def test_an_array_is_freed_after_its_last_use(monkeypatch):
    most = []
    run_entry = separate.Separate.run_entry

    def counted(self, program, operands):
        out = run_entry(self, program, operands)
        most.append(sum(a.shape == (7, 1009) for a in jax.live_arrays()))
        return out

    monkeypatch.setattr(separate.Separate, "run_entry", counted)
    with xgrad.lazy(fuse=False):
        x = xgrad.ones(7, 1009)
        for _ in range(12):
            x = x + 1
        del _
    assert len(most) == 13
    assert max(most) <= 4
    assert x[0, 0].item() == 13


def test_an_outer_block_decides_and_a_decorator_keeps_its_kind():
    with xgrad.lazy() as outer, xgrad.lazy(fuse=False):
        assert outer is not None
        assert xgrad.config.state.queue.__class__ is Queue

    @xgrad.lazy(fuse=False)
    def function(x):
        return xgrad.config.state.queue.__class__, x + 1

    kind, y = function(xgrad.ones(2))
    assert kind is separate.Separate
    assert y.tolist() == [2, 2]
    with pytest.raises(TypeError):
        xgrad.lazy(False)


def test_transforms_compiled_functions_and_hooks_within_the_block():
    x = xgrad.tensor([1.0, 2.0, 3.0], requires_grad=True)
    seen = []
    step = xgrad.compile(lambda a: (a * a).sum())
    with xgrad.lazy(fuse=False):
        y = x * 2
        y.register_hook(lambda grad: seen.append(grad.tolist()))
        z = y * y
        total = step(z)
        batched = xgrad.func.vmap(lambda a: a * 3)(y)
        slope = xgrad.func.grad(lambda a: (a**3).sum())(y.detach())
        z.sum().backward(retain_graph=True)
        first = x.grad.clone()
        (again,) = xgrad.autograd.grad(z.sum(), x, create_graph=True)
        again.sum().backward()
    assert seen[0] == [4, 8, 12]
    assert (total.item(), batched.tolist(), slope.tolist()) == (16 + 256 + 1296, [6, 12, 18], [12, 48, 108])
    assert (first.tolist(), x.grad.tolist()) == ([8, 16, 24], [16, 24, 32])


def test_an_optimizers_step_within_a_trace_of_jax_is_traced():
    @jax.jit
    def function(a):
        w = nn.Parameter(xgrad.tensor([1.0, 2.0]))
        w.grad = xgrad.ones(2)
        xgrad.optim.SGD([w], lr=1.0).step()
        return (w + xgrad.tensor(a))._read()

    with xgrad.lazy(fuse=False):
        assert function(np.zeros(2, np.float32)).tolist() == [0, 1]


def test_the_environment_makes_all_threads_so():
    source = """
import xgrad
from xgrad.execution.separate import Separate
x = xgrad.ones(3, requires_grad=True)
y = (x * 2).sum()
assert type(xgrad.config.state.queue) is Separate
y.backward()
assert x.grad.tolist() == [2, 2, 2]
"""
    done = subprocess.run(
        [sys.executable, "-c", source], env=os.environ | {"XGRAD_LAZY": "separate"}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
