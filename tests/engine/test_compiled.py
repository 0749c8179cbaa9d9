"""Compiled backward does what the eager engine does: values, order of hooks, errors; and compiles each segment once."""

import os
import re
import subprocess
import sys
import threading

import jax
import numpy as np
import pytest

import xgrad
from xgrad.autograd import compiled_backward
from xgrad.engine.programs import segment
from xgrad.tensor import from_array

from ..oracle import leaf

F = xgrad.nn.functional


@pytest.fixture(autouse=True)
def _fresh():
    compiled_backward.clear()
    compiled_backward.reset()
    yield
    compiled_backward.clear()


def both(function, *inputs, least=64, **options):
    """The gradients of `function`'s scalar, by the eager engine and compiled, which must agree."""
    eager = xgrad.autograd.grad(function(*inputs), inputs, allow_unused=True, **options)
    with compiled_backward(least):
        compiled = xgrad.autograd.grad(function(*inputs), inputs, allow_unused=True, **options)
    for mine, theirs in zip(compiled, eager, strict=True):
        assert (mine is None) == (theirs is None)
        if theirs is not None:
            assert mine.dtype == theirs.dtype
            np.testing.assert_allclose(mine.numpy(), theirs.numpy(), rtol=1e-9)
    return compiled


def written_through_views(x, w):
    y = x.clone()
    y[0].mul_(w)
    y.t()[1].add_(x[:, 0])
    y.view(-1)[::2].tanh_()
    return (y * y).sum()


PROGRAMS = {
    "views and in-place writes": written_through_views,
    "broadcast": lambda x, w: ((x + w) * w + w[0]).sum(),
    "split": lambda x, w: sum(p * p for p in x.split([1, 1, 1])).sum() + x.unbind(1)[0].sum(),
    "vmap": lambda x, w: xgrad.func.vmap(lambda a: (a * a.sum() * w).sum())(x).square().sum(),
    "one of several results": lambda x, w: x.sort(0)[0][0].sum() + x.max(1)[0].sum() * w.sum(),
    "casts": lambda x, w: (x.to(xgrad.float32).exp() * w.to(xgrad.float32)).double().sum(),
    "complex": lambda x, w: xgrad.view_as_real(xgrad.complex(x, x * w) * 1j).square().sum(),
    "any number of tensors": lambda x, w: (xgrad.cat([x, w.unsqueeze(0), x]) ** 3).sum(),
    "unused": lambda x, w: x.sum(),
    "numbers": lambda x, w: F.layer_norm(x * 2 + 1, (3,), w, w, 1e-3).square().sum(),
    "as_strided": lambda x, w: (x * 1).as_strided((2, 2), (1, 1), 1).square().sum(),
    "shared": lambda x, w: (x * w * x * w + x.tanh() * x).sum(),
    "in place, on a base": lambda x, w: (x * 1).mul_(x).add_(w).exp_().sum(),
}


@pytest.mark.exhaustive
@pytest.mark.one_in(12)
@pytest.mark.parametrize("least", [2, 64])
@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients_are_those_of_the_eager_engine(name, least, path):
    both(PROGRAMS[name], leaf(xgrad, 3, 3), leaf(xgrad, 3, seed=1), least=least)


def test_backward_accumulates_into_the_same_tensor():
    x, w = leaf(xgrad, 3, 3), leaf(xgrad, 3, seed=1)
    written_through_views(x, w).backward()
    grad, once = x.grad, x.grad.numpy().copy()
    written_through_views(x, w).backward(compiled=True)
    assert x.grad is grad
    np.testing.assert_allclose(grad.numpy(), 2 * once)
    assert compiled_backward.metrics()["backwards"] == 1


def test_arguments_of_backward_and_grad():
    x, w = leaf(xgrad, 3), leaf(xgrad, 3, seed=1)
    y = x * w
    z = y.tanh()
    z.sum().backward(retain_graph=True, inputs=[x], compiled=True)
    assert w.grad is None
    of_y, of_w = xgrad.autograd.grad([z, y], [y, w], [xgrad.ones(3), xgrad.ones(3)], compiled=True)
    np.testing.assert_allclose(of_y.numpy(), 2 - np.tanh(y.detach().numpy()) ** 2)
    np.testing.assert_allclose(of_w.numpy(), (of_y * x.detach()).numpy())
    with pytest.raises(xgrad.errors.FreedGraphError, match="backward through the graph a second time"):
        z.sum().backward(compiled=True)


# -- hooks, packed tensors, Functions ----------------------------------------------------------------------------------


class Noting(xgrad.autograd.Function):
    @staticmethod
    def forward(ctx, x, log):
        ctx.save_for_backward(x)
        ctx.log = log
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        ctx.log.append(("Function", grad.tolist(), ctx.saved_tensors[0].tolist()))
        return grad * 2, None


def with_hooks(log):
    """Hooks of every kind, which note when they run and what they see; the gradients at the end."""

    def note(name):
        return lambda *seen: log.append((name, [s.tolist() for s in seen if isinstance(s, xgrad.Tensor)]))

    def pack(x):
        log.append(("pack", x.tolist()))
        return x

    def unpack(x):
        log.append(("unpack", x.tolist(), None if w.grad is None else w.grad.tolist()))
        return x

    x, w = leaf(xgrad, 3), leaf(xgrad, 3, seed=1)
    x.register_hook(note("x"))
    w.register_post_accumulate_grad_hook(lambda leaf: log.append(("accumulated", leaf.grad.tolist())))
    a = (x * w).exp()
    a.register_hook(lambda g: g * 2)
    a.retain_grad()
    with xgrad.autograd.graph.saved_tensors_hooks(pack, unpack):
        b = a * w.tanh()
    c = Noting.apply(b, log) + b.sin()
    c.grad_fn.register_prehook(note("pre"))
    c.grad_fn.register_hook(note("post"))
    d = c.cos()

    def reentrant(grad):
        u = x.detach().requires_grad_()
        with xgrad.enable_grad():
            (u * u).sum().backward()
        log.append(("reentrant", u.grad.tolist()))

    d.register_hook(reentrant)
    d.sum().backward()
    return [x.grad.tolist(), w.grad.tolist(), a.grad.tolist()]


@pytest.mark.parametrize("least", [1, 64])
def test_hooks_run_in_the_order_of_the_eager_engine(least):
    eager, log = [], []
    expected = with_hooks(eager)
    with compiled_backward(least):
        found = with_hooks(log)
    np.testing.assert_allclose(found, expected)
    assert [entry[0] for entry in log] == [entry[0] for entry in eager]
    for mine, theirs in zip(log, eager, strict=True):
        for a, b in zip(mine[1:], theirs[1:], strict=True):
            assert (a is None) == (b is None)
            np.testing.assert_allclose(np.array(a or 0), np.array(b or 0))
    borders = compiled_backward.metrics()["borders"]
    assert borders["hook"] >= 4
    assert borders["packed saved tensor"] == 2
    assert borders["NotingBackward"] == 1


def test_sparse_and_dense_gradients_meet_at_a_leaf():
    weight, index = leaf(xgrad, 4, 2), xgrad.tensor([0, 2, 2])

    def loss(weight):
        return (F.embedding(index, weight, sparse=True) ** 2).sum() + (weight * weight).sum()

    loss(weight).backward()
    expected, weight.grad = weight.grad, None
    loss(weight).backward(compiled=True)
    np.testing.assert_allclose(weight.grad.numpy(), expected.numpy())


def test_a_sparse_gradient_to_start_with():
    x = leaf(xgrad, 4)
    start = xgrad.sparse_coo_tensor(xgrad.tensor([[1, 3]]), xgrad.tensor([2.0, 5.0], dtype=xgrad.float64), (4,))
    (x * 3).backward(start, compiled=True)
    np.testing.assert_array_equal(x.grad.to_dense().numpy(), [0, 6, 0, 15])


# -- errors ------------------------------------------------------------------------------------------------------------


def test_a_version_error_comes_after_what_ran_before_it():
    x, w = leaf(xgrad, 3), leaf(xgrad, 3, seed=1)
    y = x * 1
    z = (y * y) + w
    y.add_(1)
    with pytest.raises(xgrad.errors.VersionError, match="modified by an inplace operation"):
        z.sum().backward(compiled=True)
    np.testing.assert_array_equal(w.grad.numpy(), np.ones(3))  # as in the eager engine
    assert x.grad is None


def test_a_program_that_fails_leaves_its_nodes_to_the_eager_engine(monkeypatch):
    x, w = leaf(xgrad, 3), leaf(xgrad, 3, seed=1)

    def loss():
        return ((x * w).tanh() * w).sum()

    loss().backward()
    expected, x.grad, w.grad = [x.grad.numpy(), w.grad.numpy()], None, None
    with monkeypatch.context() as broken:
        broken.setattr(segment.Program, "traced", lambda *args: lambda *args: 1 / 0)
        loss().backward(compiled=True)
    for _ in range(2):
        np.testing.assert_allclose(x.grad.numpy(), expected[0])
        np.testing.assert_allclose(w.grad.numpy(), expected[1])
        x.grad = w.grad = None
        loss().backward(compiled=True)  # that segment goes on so
    assert compiled_backward.metrics()["fallbacks"] == 1
    with monkeypatch.context() as broken:
        broken.setattr(segment, "fit", lambda *args: 1 / 0)
        compiled_backward.clear()
        with pytest.raises(ZeroDivisionError):
            loss().backward(compiled=True)
    compiled_backward.clear()
    loss().backward(compiled=True)
    assert compiled_backward.metrics()["fallbacks"] == 2


# -- donation ----------------------------------------------------------------------------------------------------------

N = 1 << 14


def big(seed=0):
    return xgrad.from_numpy(np.random.default_rng(seed).uniform(0.5, 1, N)) * 1


def donations(monkeypatch):
    """The programs that were made from now on, as the number of arguments that each was given to use up."""
    made, traced = [], segment.Program.traced

    def noting(self, metas, donated, args):
        made.append(len(donated))
        return traced(self, metas, donated, args)

    monkeypatch.setattr(segment.Program, "traced", noting)
    return made


@pytest.mark.eager("launches")
def test_what_nobody_else_holds_is_used_up(monkeypatch):
    x, made = big().requires_grad_(), donations(monkeypatch)
    x.sin().cos().sum().backward(compiled=True)
    value = x.detach().numpy()
    np.testing.assert_allclose(x.grad.numpy(), -np.sin(np.sin(value)) * np.cos(value))
    assert made == [1]  # the sine, whose memory the gradient takes; the leaf is kept


def another(array):
    """An array over the buffer of one that it does not refer to."""
    return jax.device_put(array, array.sharding)


def without_grad(y):
    with xgrad.no_grad():
        return y.__jax_array__()


KEPT = {
    "the tensor": lambda y: y,
    "an alias": lambda y: y.detach(),
    "a view": lambda y: y[1:],
    "data": lambda y: y.data,
    "the array": lambda y: y.detach().__jax_array__(),
    "a second array over its buffer": lambda y: another(without_grad(y)),
    "a second one, by an alias": lambda y: another(y.detach().__jax_array__()),
    "a second one, by data": lambda y: another(y.data.__jax_array__()),
    "an array of NumPy": lambda y: y.detach().numpy(),
    "dlpack": lambda y: np.from_dlpack(y.detach()),
    "what the node saved": lambda y: y.grad_fn._saved_result,
    "a second one of what the node saved": lambda y: another(without_grad(y.grad_fn._saved_result)),
}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", KEPT)
def test_what_somebody_else_holds_is_not(name):
    x = big().requires_grad_()
    y = x.exp()
    kept, z = KEPT[name](y), y.sum()
    del y
    z.backward(compiled=True)
    found = kept.detach().numpy() if isinstance(kept, xgrad.Tensor) else np.asarray(kept)
    np.testing.assert_allclose(found, np.exp(x.detach().numpy())[-found.size :])
    np.testing.assert_allclose(x.grad.numpy(), np.exp(x.detach().numpy()))


def test_what_the_user_gave_is_not_used_up():
    given = jax.numpy.ones(N)
    second = jax.device_put(given, given.sharding)
    x = xgrad.asarray(given).requires_grad_()
    w = big().requires_grad_()
    y = x * w
    pointer = second.unsafe_buffer_pointer()
    y.backward(xgrad.asarray(given), compiled=True)
    del given, x
    np.testing.assert_array_equal(np.asarray(second), np.ones(N))
    assert second.unsafe_buffer_pointer() == pointer
    np.testing.assert_array_equal(w.grad.numpy(), np.ones(N))


def test_two_threads_run_backward_over_what_they_share():
    x, failures = big().requires_grad_(), []
    middle = x.exp()

    def run():
        try:
            for _ in range(10):
                (middle * x).sum().backward(retain_graph=True, compiled=True)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    value = x.detach().numpy()
    np.testing.assert_allclose(x.grad.numpy(), 20 * (np.exp(value) * value + np.exp(value)))


def test_the_eager_engine_runs_where_more_than_values_counts():
    x = leaf(xgrad, 3)
    with compiled_backward():
        (g,) = xgrad.autograd.grad((x**3).sum(), x, create_graph=True)
        with pytest.warns(UserWarning, match="Anomaly"), xgrad.autograd.detect_anomaly():
            (x**2).sum().backward()
        xgrad.func.grad(lambda x: (x**2).sum())(x)
        assert compiled_backward.metrics()["backwards"] == 0
        xgrad.autograd.grad(g.sum(), x)
    assert compiled_backward.metrics()["backwards"] == 1
    with pytest.raises(ValueError, match="positive number of nodes"):
        compiled_backward(0)


# -- programs ----------------------------------------------------------------------------------------------------------


def chain(x, w, n):
    for _ in range(n):
        x = ((x * w) + w).tanh() - w
    return x.sum()


def test_a_deep_stack_of_equal_layers_is_one_program():
    x, w = leaf(xgrad, 3), leaf(xgrad, 3, seed=1)
    with compiled_backward(10):
        chain(x, w, 30).backward()
        few = len(compiled_backward.programs())
        chain(x, w, 300).backward()
        assert len(compiled_backward.programs()) == few <= 4
        hits = compiled_backward.metrics()["hits"]
        chain(x, w, 300).backward()
    metrics = compiled_backward.metrics()
    assert metrics["hits"] - hits == metrics["segments"] - hits - few  # nothing else was missed
    assert metrics["misses"][0] == "the first segment"
    assert "not SumBackward0" in metrics["misses"][1]


def test_a_hook_changes_the_segments_around_it_and_no_others():
    x, w = leaf(xgrad, 3), leaf(xgrad, 3, seed=1)
    with compiled_backward(12):
        chain(x, w, 60).backward()
        known = set(compiled_backward.programs())
        y, seen = x, []
        for i in range(60):
            y = ((y * w) + w).tanh() - w
            if i == 30:
                y.register_hook(seen.append)
        y.sum().backward()
    assert len(seen) == 1
    assert len(set(compiled_backward.programs()) - known) == 2  # before the hook, and after it


def test_a_hook_that_was_removed_is_no_border():
    x = leaf(xgrad, 3)
    y = x * 2
    for handle in (y.register_hook(lambda grad: None), y.grad_fn.register_prehook(lambda grads: None)):
        handle.remove()
    compiled_backward.reset()
    y.sum().backward(compiled=True)
    assert compiled_backward.metrics()["borders"] == {}


@pytest.mark.exhaustive
def test_other_shapes_are_traced_once_each():
    w = leaf(xgrad, 3, seed=1)
    with compiled_backward():
        for _ in range(2):
            for n in (2, 3, 4, 5, 6):
                chain(leaf(xgrad, n, 3), w, 2).backward()
    metrics = compiled_backward.metrics()
    assert len(metrics["misses"]) == metrics["programs"] == 1
    assert metrics["retraces"] == 4
    assert metrics["hits"] == 5


def test_misses_say_why():
    x, w = leaf(xgrad, 3), leaf(xgrad, 3, seed=1)
    with compiled_backward():
        (x * w).sum().backward()
        (x * w).sum().backward(inputs=[x])
        (x * w * w).sum().backward()
        ((x * w) + (x * w).detach() * x).sum().backward()
    misses = compiled_backward.metrics()["misses"]
    assert misses[0] == "the first segment"
    assert "node 1 (MulBackward0) has other static arguments, or other gradients are wanted of it" in misses[1]
    assert "it has 3 nodes, not 2" in misses[2]
    assert "node 1 is AddBackward0, not MulBackward0" in misses[3]


def test_programs_can_be_read_and_dumped(tmp_path, caplog):
    x, w = leaf(xgrad, 3), leaf(xgrad, 3, seed=1)
    with compiled_backward(dump=tmp_path), caplog.at_level("INFO", logger="xgrad.compile"):
        (x * w).tanh().sum().backward()
    (program,) = compiled_backward.programs()
    assert program.names == ("SumBackward0", "TanhBackward0", "MulBackward0")
    assert "stablehlo.multiply" in program.as_text()
    (hlo,) = tmp_path.glob("*.hlo")
    assert hlo.read_text() == program.as_text(optimized=True)
    assert hlo.with_suffix(".txt").read_text().split() == list(program.names)
    assert "segment 0" in caplog.text.replace(f"segment {program.number}", "segment 0")
    assert "the first segment" in caplog.text


def test_writes_through_views_copy_no_buffer(path):
    """What a CopySlices reads of the gradient is read before it writes into it, in place."""
    x, w = leaf(xgrad, 4096), leaf(xgrad, 16)
    y = x * 1
    for i in range(8):
        y[16 * i : 16 * (i + 1)].mul_(w)
    y.sum().backward(compiled=True)
    (program,) = compiled_backward.programs()
    assert not re.findall(r"f64\[4096\]\S* copy\(", program.as_text(optimized=True))


# -- a second backward over the same graph -----------------------------------------------------------------------------


class Kept:
    """A graph that is kept, and the gradients that both engines give of it again and again."""

    def __init__(self):
        self.x, self.w = leaf(xgrad, 3), leaf(xgrad, 3, seed=1)
        self.middle = (self.x * self.w).exp()
        self.y = chain(self.middle, self.w, 5)

    def gradients(self, *inputs, compiled=True):
        inputs = inputs or (self.x, self.w)
        with compiled_backward(4, enabled=compiled):
            return [g.numpy() for g in xgrad.autograd.grad(self.y, inputs, retain_graph=True)]

    def check(self, *inputs):
        for mine, theirs in zip(self.gradients(*inputs), self.gradients(*inputs, compiled=False), strict=True):
            np.testing.assert_allclose(mine, theirs)


def followed(monkeypatch):
    """How often the engine's loop ran for what was asked since: never, where a schedule was followed."""
    from xgrad.engine import engine

    loops, run = [], engine.run_as_programs
    monkeypatch.setattr(engine, "run_as_programs", lambda *args: (loops.append(1), run(*args)))
    return loops


def test_a_second_backward_over_a_graph_follows_the_first(monkeypatch):
    kept, loops = Kept(), followed(monkeypatch)
    for _ in range(3):
        kept.check()
    assert len(loops) == 1
    kept.check(kept.middle)
    kept.check(kept.middle)
    assert len(loops) == 2  # another question
    metrics = compiled_backward.metrics()
    assert metrics["backwards"] == 5
    with compiled_backward(4):
        for _ in range(2):
            kept.x.grad = kept.w.grad = None
            kept.y.backward(retain_graph=True)
            np.testing.assert_allclose(kept.x.grad.numpy(), kept.gradients(kept.x, compiled=False)[0])
        grad = kept.x.grad
        kept.y.backward(retain_graph=True)
        assert kept.x.grad is grad
        np.testing.assert_allclose(grad.numpy(), 2 * kept.gradients(kept.x, compiled=False)[0])
    assert len(loops) == 3


@pytest.mark.one_in(2)
@pytest.mark.parametrize("where", ["node", "tensor", "leaf", "post-accumulate"])
def test_a_hook_that_was_added_since_is_called(where):
    kept, seen = Kept(), []
    if where == "post-accumulate":
        kept.y.backward(retain_graph=True, compiled=True)
        kept.x.register_post_accumulate_grad_hook(seen.append)
        kept.y.backward(retain_graph=True, compiled=True)
    else:
        kept.check()
        if where == "node":
            kept.middle.grad_fn.register_hook(lambda *grads: seen.append(grads))
        else:
            (kept.middle if where == "tensor" else kept.x).register_hook(lambda g: seen.append(g) or g * 2)
        kept.check()
        assert len(seen) == 2
        seen.pop()
    assert len(seen) == 1


def test_what_changed_since_is_refused_or_unpacked():
    kept, log = Kept(), []
    kept.check()
    kept.middle.grad_fn._raw_saved_result.register_hooks(lambda x: x * 1, lambda x: log.append(1) or x)
    kept.check()
    assert len(log) == 2
    with xgrad.no_grad():
        kept.w.mul_(2)
    with pytest.raises(xgrad.errors.VersionError, match="modified by an inplace operation"):
        kept.gradients()
    released = Kept()
    released.check()
    released.y.backward()
    with pytest.raises(xgrad.errors.FreedGraphError, match="second time"):
        released.gradients()


def test_another_dtype_to_start_with_is_another_question():
    y = leaf(xgrad, 3) * 2
    for dtype in (xgrad.float64, xgrad.float32, xgrad.float64):
        (of_y,) = xgrad.autograd.grad(y, y, xgrad.ones(3, dtype=dtype), retain_graph=True, compiled=True)
        assert of_y.dtype == xgrad.float64


def test_the_root_and_a_leaf_as_root():
    x = leaf(xgrad, 3)
    y = (x * x).sum()
    for _ in range(3):
        of_y, of_x = xgrad.autograd.grad(y, [y, x], retain_graph=True, compiled=True)
        assert of_y.item() == 1
        np.testing.assert_allclose(of_x.numpy(), 2 * x.detach().numpy())
        x.backward(xgrad.ones(3), retain_graph=True, compiled=True)
    np.testing.assert_array_equal(x.grad.numpy(), [3, 3, 3])


def test_the_environment_asks_for_a_log():
    code = "import xgrad; x = xgrad.ones(2, requires_grad=True); (x * x).sum().backward(compiled=True)"
    environment = {**os.environ, "XGRAD_LOG": "compile"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert "segment 0, 2 nodes: the first segment" in done.stderr


def test_a_run_frees_what_it_used():
    """After backward nothing of the graph is alive: not in a cache, not in a cycle."""
    import gc
    import weakref

    x = leaf(xgrad, 1 << 10)
    gc.collect()
    gc.disable()
    try:
        y = x.exp()
        node, saved = weakref.ref(y.grad_fn), weakref.ref(y)
        z = y.sum()
        for _ in range(2):
            xgrad.autograd.grad(z, [z, x], retain_graph=True, compiled=True)
        z.backward(compiled=True)
        del y, z
        assert node() is None
        assert saved() is None
    finally:
        gc.enable()


def test_the_block_belongs_to_its_thread():
    x, counts = leaf(xgrad, 3), []

    def other():
        (x * x).sum().backward()
        counts.append(compiled_backward.metrics()["backwards"])

    with compiled_backward(), compiled_backward(enabled=False):
        (x * x).sum().backward()
    assert compiled_backward.metrics()["backwards"] == 0
    with compiled_backward():
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert counts == [0]


def test_a_traced_backward_is_part_of_that_trace():
    def gradient(a):
        x = from_array(a).requires_grad_()
        (x * x).sum().backward(compiled=True)
        return x.grad.__jax_array__()

    np.testing.assert_allclose(jax.jit(gradient)(np.arange(3.0)), 2 * np.arange(3.0))
