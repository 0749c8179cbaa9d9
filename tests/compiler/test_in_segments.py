"""A deep compiled program runs in parts, each compiled once: same values, same memory, and nothing is lost."""

import copy
import gc

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import xgrad
import xgrad.nn.functional as F
from xgrad.compiler import in_segments
from xgrad.errors import LostValueError
from xgrad.execution import segments

from ..deep import deep, fail


@pytest.fixture
def smaller(monkeypatch):
    """Cut programs that are as small as tests are."""
    monkeypatch.setattr(segments, "MIN_SAVED_ENTRIES", 8)
    monkeypatch.setattr(in_segments, "MIN_SAVED_ENTRIES", 8)
    monkeypatch.setattr(in_segments, "OPERATIONS", 1)
    monkeypatch.setattr(in_segments, "SAVED", 1)


def stepping(model, optimizer):
    """Return a step of training, whose loss it returns."""

    def step(x):
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), x)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def compiled(model, make=xgrad.optim.AdamW, **options):
    return xgrad.compile(stepping(model, make(model.parameters(), lr=0.01, **options)))


def parts(function):
    (entry,) = function._entries
    return None if entry._segments is None else entry._segments._segments.parts


def batch(dtype=xgrad.float32, width=8):
    return xgrad.linspace(-1, 1, 4 * width).reshape(4, width).to(dtype)


OPTIMIZERS = [(xgrad.optim.AdamW, {}), (xgrad.optim.SGD, {"momentum": 0.9})]


@pytest.mark.parametrize(("make", "options"), OPTIMIZERS, ids=["AdamW", "SGD"])
@pytest.mark.parametrize("dtype", [xgrad.float32, xgrad.float64, xgrad.bfloat16, xgrad.float16])
def test_a_step_gives_what_it_gives_eagerly(smaller, make, options, dtype):
    model, same, x = deep(12).to(dtype), deep(12).to(dtype), batch(dtype)
    eager, function = stepping(same, make(same.parameters(), lr=0.01, **options)), compiled(model, make, **options)
    tolerance = {xgrad.float64: 1e-9, xgrad.float32: 2e-4}.get(dtype, 0.05)
    for _ in range(3):
        assert function(x).item() == pytest.approx(eager(x).item(), rel=tolerance)
    assert len(parts(function)) > 20
    for a, b in zip(model.parameters(), same.parameters(), strict=True):
        assert a._version == b._version
        for one, other in ((a.detach(), b.detach()), (a.grad, b.grad)):
            np.testing.assert_allclose(one.double().numpy(), other.double().numpy(), rtol=0.1, atol=20 * tolerance)


def test_a_deeper_model_compiles_no_more_programs(smaller):
    counts = []
    for count in (24, 36):
        function = compiled(deep(count))
        function(batch())
        counts.append(len({id(part.program) for part in parts(function)}))
    assert counts[0] == counts[1] < 12


def test_the_next_step_compiles_nothing(smaller):
    function = compiled(deep(12))
    function(batch())
    before = xgrad.compile_cache.metrics().programs
    function(batch() * 2)
    assert xgrad.compile_cache.metrics().programs - before <= 1  # the product


def test_new_values_take_the_old_ones_memory(smaller):
    model, x = deep(12, width=64), batch(width=64)
    function = compiled(model)

    def pointers():
        return [p._read().unsafe_buffer_pointer() for p in model.parameters() if p.ndim == 2]

    function(x)
    before = pointers()
    function(x)
    assert {*pointers()} == {*before}
    assert function._entries[0]._need < 1 << 16  # the last parts take no memory besides


def test_a_deep_program_is_cut_and_a_short_one_is_not():
    @xgrad.compile
    def long(x, count):
        for _ in range(count):
            x = x * 0.999 + 0.001
        return x

    x = xgrad.linspace(0, 2, 8)
    for count in (200, 6000):
        y = long(x, count)
        np.testing.assert_allclose(y.numpy(), 1 - (1 - x.numpy()) * 0.999**count, rtol=1e-3)
    short, cut = sorted(entry._segments is not None for entry in long._entries)
    assert (short, cut) == (False, True)
    assert "fusion" in long.as_text(x, 200)


def test_a_model_whose_backward_is_outside(smaller):
    model, same, x = deep(12), deep(12), batch()
    function = xgrad.compile(model)
    for net in (function, same):
        F.mse_loss(net(x), x).backward()
    for a, b in zip(model.parameters(), same.parameters(), strict=True):
        np.testing.assert_allclose(a.grad.numpy(), b.grad.numpy(), rtol=1e-3, atol=1e-5)


def test_a_backward_outside_in_a_trace(smaller):
    model, x = deep(12), batch().requires_grad_()
    y = xgrad.compile(model)(x)

    def backward(grad):
        return xgrad.autograd.grad(y, x, xgrad.as_tensor(grad), retain_graph=True)[0]._read()

    grad = jnp.sin(jnp.arange(32.0)).reshape(4, 8)
    expected = backward(grad)
    np.testing.assert_allclose(jax.jit(backward)(grad), expected, rtol=1e-3, atol=1e-5)
    both = jax.vmap(backward)(jnp.stack([grad, 2 * grad]))
    np.testing.assert_allclose(both, [expected, 2 * expected], rtol=1e-3, atol=1e-5)


def test_the_whole_program_can_be_looked_at(smaller):
    function, x = compiled(deep(12)), batch()
    function(x)
    assert "HloModule" in function.as_text(x)
    assert function.memory_analysis(x).argument_size_in_bytes > 0
    assert parts(function)


def test_what_repeats_may_differ_in_a_constant_or_in_the_wiring(smaller):
    def mixed(x, y):
        for i in range(40):
            x = x * (1.0 if i % 2 else 0.5) + y[i % 3]
            y = (y * y if i % 4 == 1 else y * x.sum()) / 50
        return x, y, x

    x, y = xgrad.linspace(-1, 1, 4), xgrad.linspace(0, 1, 3)
    for a, b in zip(xgrad.compile(mixed)(x, y), mixed(x, y), strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-5, atol=1e-7)


def test_random_numbers_go_on(smaller):
    def noisy(x):
        for _ in range(30):
            x = F.dropout(x, 0.5) + xgrad.rand(4)
        return x

    function, x, found = xgrad.compile(noisy), xgrad.ones(4), []
    for run in (function, noisy):
        xgrad.manual_seed(3)
        found.append([run(x).tolist() for _ in range(2)])
    np.testing.assert_allclose(*found, rtol=1e-6)


def test_gradients_that_are_added_up_keep_their_memory(smaller):
    """The program stays whole: a part in the middle cannot donate."""
    model, x = deep(12), batch()

    @xgrad.compile
    def accumulate(x):
        F.mse_loss(model(x), x).backward()

    for _ in range(3):
        accumulate(x)
    assert accumulate._entries[0]._segments is None


def test_operands_on_a_device_that_somebody_has_chosen(smaller):
    model, same = deep(12), deep(12)
    function, eager = compiled(model), stepping(same, xgrad.optim.AdamW(same.parameters(), lr=0.01))
    put = xgrad.as_tensor(jax.device_put(jnp.asarray(batch().numpy()), jax.devices()[0]))
    for x in (batch(), put, batch(), put):
        assert function(x).item() == pytest.approx(eager(x).item(), rel=1e-3)


def call_failing(monkeypatch, number, error, function, x):
    """Call a function whose run of parts fails: before the last parts, or in one of these."""
    with monkeypatch.context() as patch:
        fail(patch, number, error)
        function(x)


@pytest.mark.parametrize("ran", [0, 2])
@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError("a failure")], ids=["interrupt", "error"])
def test_a_failure_before_the_last_parts_changes_nothing(smaller, monkeypatch, ran, error):
    model, x = deep(12), batch()
    function = compiled(model)
    for _ in range(ran):
        function(x)
    twin = copy.deepcopy(model)
    with pytest.raises(type(error)):
        call_failing(monkeypatch, None, error, function, x)
    for a, b in zip(model.parameters(), twin.parameters(), strict=True):
        assert a.tolist() == b.tolist()
    assert np.isfinite([function(x).item() for _ in range(2)]).all()


def test_a_failure_in_the_first_run_of_the_last_parts_loses_nothing(smaller, monkeypatch):
    model, x = deep(24), batch()
    function, twin = compiled(model), copy.deepcopy(model)
    with pytest.raises(RuntimeError, match="a failure"):
        call_failing(monkeypatch, 1, RuntimeError("a failure"), function, x)
    for a, b in zip(model.parameters(), twin.parameters(), strict=True):
        assert a.tolist() == b.tolist()
    assert np.isfinite(function(x).item())


def test_a_failure_in_the_last_parts_names_what_is_lost(smaller, monkeypatch):
    function, x = compiled(deep(24)), batch()
    for _ in range(2):
        function(x)
    with pytest.raises(LostValueError, match="are lost"):
        call_failing(monkeypatch, 1, RuntimeError("a failure"), function, x)


def test_the_parts_free_what_no_other_part_uses(smaller):
    model, x = deep(12), batch()
    function = compiled(model)
    function(x)
    gc.collect()
    count = len(jax.live_arrays())
    for _ in range(3):
        function(x)
    gc.collect()
    assert len(jax.live_arrays()) <= count
