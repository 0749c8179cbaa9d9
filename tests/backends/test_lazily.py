"""A lazy backend notes operators, without a block, and runs them as one program when a value is read."""

import gc
import math

import numpy as np
import pytest

import xgrad
from xgrad.errors import BackendError, OutOfMemoryError


@pytest.fixture
def chip():
    return xgrad.Backend("chip", execution="lazy")


def waits(x):
    return x._read().value is None


def test_nothing_runs_before_a_value_is_read(chip):
    x = xgrad.tensor([1.0, 2.0, 3.0], device=chip, requires_grad=True)
    xgrad.lazy.reset()
    y = (x * 2).tanh()
    y.sum().backward()
    made = xgrad.zeros(3, device=chip)
    made[1:].add_(x.detach()[1:])
    assert waits(y)
    assert waits(x.grad)
    assert waits(made)
    assert (y.device, x.grad.device, made.device) == (chip.device,) * 3
    np.testing.assert_allclose(x.grad.numpy(), 2 * (1 - np.tanh([2.0, 4.0, 6.0]) ** 2), rtol=1e-4, atol=1e-6)
    assert made.tolist() == [0, 2, 3]
    metrics = xgrad.lazy.metrics()
    assert metrics.launches == 1
    assert metrics.operations > 6


def test_sync_runs_what_is_pending(chip):
    x = xgrad.ones(3, device=chip) * 2
    assert waits(x)
    xgrad.sync()
    assert not waits(x)


def test_a_lazy_backend_beside_an_eager_one_and_a_lazy_block(chip):
    x = xgrad.ones(3, device=chip) * 2
    eager = x.to(xgrad.Backend("eager")) * 3
    assert eager.tolist() == [6, 6, 6]
    with xgrad.lazy():
        y, z = x + 1, xgrad.ones(3) + 1
        assert waits(y)
        z = z.to(chip) + y
    assert z.tolist() == [5, 5, 5]


def test_what_it_lacks_ends_the_program(chip):
    chip = chip.replace(without=["sort"])
    x = xgrad.tensor([2.0, 1.0], device=chip) * 2
    values = x.sort().values
    assert not waits(x)
    assert (values * 2).tolist() == [4, 8]
    refusing = chip.replace(fallback="error")
    with pytest.raises(BackendError, match="'sort'"):
        (xgrad.ones(2, device=refusing) * 2).sort()


def test_memory_counts_what_a_program_leaves_and_refuses_before_it_runs(chip):
    chip = chip.replace(memory=3 * 1024)
    memory = chip._runtime.memory
    x = xgrad.ones(256, device=chip)
    y = ((x * 2).exp() + 1).tanh()
    assert memory.used == 0
    xgrad.sync()
    assert memory.used == 2 * 1024  # x and y
    z = [x + 1, x + 2]
    with pytest.raises(OutOfMemoryError, match=r"chip:0 out of memory. Tried to allocate 2048 bytes"):
        z[0].tolist()
    del y
    gc.collect()
    assert (z[0].tolist()[0], z[1].tolist()[0], memory.used) == (2, 3, 3 * 1024)


def test_a_write_donates_unless_it_is_declared_to_copy():
    for donation in (True, False):
        chip = xgrad.Backend("chip", execution="lazy", donation=donation, memory=3 * 4096)
        x = xgrad.zeros(2048, device=chip)
        xgrad.sync()
        x.add_(1)
        if donation:
            assert x.tolist()[0] == 1
        else:
            with pytest.raises(OutOfMemoryError):
                x.tolist()


def test_what_is_pending_is_shown_as_that_of_a_lazy_block():
    chip = xgrad.Backend("chip", execution="lazy")
    x = xgrad.ones(2, 2, device=chip)
    y = (x @ x.t()).exp()
    assert [line.split(" = ")[1].split("(")[0] for line in xgrad.lazy.pending().splitlines()][-2:] == ["matmul", "exp"]
    assert "matmul" in [box.title for box in xgrad.viz.program().scene.boxes]
    assert y.tolist()[0][0] == pytest.approx(math.exp(2))
    xgrad.sync()
    assert xgrad.lazy.pending() == ""
    assert xgrad.viz.program().scene.boxes  # the program that ran last
