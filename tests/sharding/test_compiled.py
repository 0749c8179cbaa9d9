"""xgrad.compile over a mesh: what stays where it was, in_shardings and out_shardings, and why a call is traced anew."""

import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import xgrad
from xgrad.errors import PlacementError

from ..oracle import values

pytestmark = pytest.mark.skipif(len(jax.devices()) < 8, reason="needs eight devices")


def mesh():
    return xgrad.mesh({"a": 4, "b": 2})


def sharding(*axes):
    return NamedSharding(mesh().mesh, P(*axes))


def placed(shape, seed=0, *axes, **options):
    return xgrad.tensor(values(shape, seed), device=sharding(*axes), **options)


class Model:
    """Two layers and their momentum; the step is a closure's."""

    def __init__(self, *places):
        self.weights = [
            xgrad.tensor(values(shape), device=place, requires_grad=True)
            for shape, place in zip(((4, 8), (8, 4)), places)
        ]
        self.momentum = [xgrad.zeros_like(w) for w in self.weights]

    def step(self, x):
        for w in self.weights:
            w.grad = None
        loss = ((x @ self.weights[0]).tanh() @ self.weights[1]).square().mean()
        loss.backward()
        with xgrad.no_grad():
            for w, m in zip(self.weights, self.momentum):
                m.mul_(0.9).add_(w.grad)
                w.sub_(m, alpha=0.5)
        return loss.detach()


def losses(step, *args):
    return [step(*args).item() for _ in range(3)]


@pytest.mark.exhaustive
def test_step_keeps_the_shardings_and_gives_the_losses_of_one_device():
    expected = losses(Model(None, None).step, xgrad.tensor(values((16, 4), 2)))
    model = Model(sharding(None, "b"), sharding("b"))
    step = xgrad.compile(model.step)
    np.testing.assert_allclose(losses(step, placed((16, 4), 2, "a")), expected, rtol=1e-12)
    assert step.metrics().traces == 1
    for w, m, want in zip(model.weights, model.momentum, (sharding(None, "b"), sharding("b"))):
        assert w.sharding == m.sharding == w.grad.sharding == want


def pointers(x):
    return [shard.data.unsafe_buffer_pointer() for shard in x._read().addressable_shards]


def test_each_shard_is_written_where_it_is():
    x = placed((8, 4), 0, "a", "b") * 1

    @xgrad.compile
    def write(x):
        x[0].mul_(2)
        x.t()[1].add_(1)

    before = pointers(x)
    write(x)
    write(x)
    assert pointers(x) == before
    expected = values((8, 4))
    for _ in range(2):
        expected[0] *= 2
        expected[:, 1] += 1
    np.testing.assert_allclose(x.numpy(), expected)


@pytest.mark.one_in(2)
def test_what_is_not_read_is_written_where_it_was(path):
    for place in (sharding("a", "b"), jax.devices()[1]):
        x = xgrad.tensor(values((8, 4)), device=place)
        where = x.sharding
        xgrad.compile(lambda x: x.zero_())(x)
        assert x.sharding == where
        xgrad.compile(lambda x: x.view(-1)[3:9].fill_(1))(x)
        assert x.sharding == where


@pytest.mark.exhaustive
@pytest.mark.unverified("eagerly it is slow, and warns")
def test_parameters_that_nobody_placed_are_copied_to_each_device():
    expected = losses(Model(None, None).step, xgrad.tensor(values((16, 4), 2)))
    model = Model(None, None)
    step = xgrad.compile(model.step)
    np.testing.assert_allclose(losses(step, placed((16, 4), 2, "a")), expected, rtol=1e-12)
    assert all(w.sharding == w.grad.sharding == sharding() for w in model.weights)
    assert step.metrics().traces == 2
    assert "has another sharding: it was SingleDeviceSharding" in step.metrics().reasons[0]


def test_another_sharding_is_traced_anew_and_said():
    @xgrad.compile
    def double(x):
        return x * 2

    double(placed((8, 4), 0, "a"))
    double(placed((8, 4), 0, "b"))
    double(placed((8, 4), 0, "a"))
    assert double.metrics().traces == 2
    assert "another sharding" in double.metrics().reasons[0]
    bare = xgrad.compile(lambda x: xgrad.as_tensor(x) * 2)
    for place in (sharding("a"), sharding("b"), sharding("a")):
        np.testing.assert_array_equal(bare(jax.device_put(np.ones((8, 4)), place)).numpy(), 2.0)
    assert bare.metrics().traces == 2


@pytest.mark.exhaustive
def test_random_state_is_bound_to_no_device():
    step = xgrad.compile(lambda x: x + xgrad.rand(*x.shape))
    for place in (sharding("a"), "cpu:1"):
        x = xgrad.zeros(8, 4, device=place)
        xgrad.manual_seed(3)
        expected = [xgrad.rand(8, 4).numpy() for _ in range(2)]
        xgrad.manual_seed(3)
        for numbers in expected:
            np.testing.assert_allclose(step(x).numpy(), numbers)
        assert xgrad.rand(3).device == xgrad.device("cpu:0")
        assert not xgrad.default_generator.get_state()._read().committed


def test_in_and_out_shardings():
    step = xgrad.compile(
        lambda x, rest: (x * 2, {"sum": x + rest["y"], "view": (x * 1).t()}),
        in_shardings=(P("a"), {"y": sharding("a", "b")}),
        out_shardings=(None, {"sum": P("b"), "view": P(None, "b")}),
    )
    x, y = (xgrad.tensor(values((8, 4), seed)) for seed in (0, 1))
    with mesh():
        for rest in ({"y": y}, {"y": y.to(sharding("a", "b"))}):
            double, out = step(x, rest)
            assert double.sharding == sharding("a")
            assert out["sum"].sharding == sharding("b")
            assert out["view"].sharding.is_equivalent_to(sharding(None, "b"), 2)
    assert step.metrics().traces == 1
    assert x.device == xgrad.device("cpu:0")  # what the caller holds stays where it is
    np.testing.assert_allclose(out["sum"].numpy(), values((8, 4)) + values((8, 4), 1))
    np.testing.assert_allclose(out["view"].numpy(), values((8, 4)).T)


def test_mesh_of_the_declaration_holds_in_calls():
    with mesh():
        double = xgrad.compile(lambda x: x * 2, in_shardings=P("a"), out_shardings=P("b"))
    assert double(xgrad.ones(8, 4)).sharding == sharding("b")


def test_numpy_arguments_are_put_where_they_belong():
    double = xgrad.compile(lambda x: xgrad.as_tensor(x) * 2, in_shardings=sharding("a"))
    assert double(np.ones((8, 4))).sharding == sharding("a")


def test_gradients_outside_are_sharded_as_their_variables():
    w = placed((4, 8), 0, None, "b", requires_grad=True)
    v = placed((8, 4), 1, "b", requires_grad=True)
    loss = xgrad.compile(lambda x: ((x @ w).tanh() @ v).square().sum(), out_shardings=sharding())
    loss(placed((16, 4), 2, "a")).backward()  # a gradient that had to be moved would be warned about
    assert w.grad.sharding == sharding(None, "b")
    assert v.grad.sharding == sharding("b")
    eager = [xgrad.tensor(t.detach().numpy(), requires_grad=True) for t in (w, v)]
    ((xgrad.tensor(values((16, 4), 2)) @ eager[0]).tanh() @ eager[1]).square().sum().backward()
    for ours, theirs in zip((w, v), eager):
        np.testing.assert_allclose(ours.grad.numpy(), theirs.grad.numpy(), rtol=1e-12)


def test_argument_with_a_history_gets_its_gradient_through_in_shardings():
    x = xgrad.tensor(values((8, 4)), requires_grad=True)
    square = xgrad.compile(lambda y: (y * y).sum(), in_shardings=sharding("a"))
    square(x * 1).backward()
    np.testing.assert_allclose(x.grad.numpy(), 2 * values((8, 4)))


def test_factories_inside_follow_the_program():
    @xgrad.compile
    def make(x):
        return x + xgrad.zeros(4, device=x.device), xgrad.ones(8, 4, device=P("a")), x.to(P(None, "b"))

    with mesh():
        for x in (placed((8, 4), 0, "a"), placed((8, 4), 0, "b")):
            added, made, moved = make(x)
            assert added.device == made.device == x.device
            assert made.sharding == sharding("a")
            assert moved.sharding == sharding(None, "b")
    assert make.metrics().traces == 2
    x = xgrad.ones(4, device="cpu:1")
    assert xgrad.compile(lambda x: x + xgrad.zeros(4, device=x.device))(x).device == x.device


def test_another_mesh_is_another_mode():
    make = xgrad.compile(lambda: xgrad.ones(8, device=P("a")))
    with mesh():
        assert make().sharding == sharding("a")
    with xgrad.mesh({"a": 2}):
        assert len(make()._read().devices()) == 2
    assert "the mesh" in make.metrics().reasons[0]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"in_shardings": P("c")}, "the axis 'c', which the mesh .* lacks"),
        ({"in_shardings": (P("a"), P("a"))}, "in_shardings does not fit: .* for args"),
        ({"in_shardings": ({"x": P("a")},)}, r"in_shardings does not fit: .* for args\[0\]"),
        ({"in_shardings": P(None, "a")}, r"in_shardings for args\[0\]: dimension 1 of size 6 .*'a' of size 4"),
        ({"in_shardings": P("a", "b", None)}, "speaks of 3 dimensions"),
        ({"out_shardings": (P("a"),)}, "out_shardings does not fit: .* for result"),
        ({"out_shardings": (None, P(None, "a"))}, r"out_shardings for result\[1\]: dimension 1 of size 6"),
        ({"in_shardings": "cpu:1"}, r"args\[0\] was put at .* asks for .*Move it outside"),
    ],
)
def test_shardings_that_do_not_fit_are_told_by_name(options, words):
    x = placed((8, 6), 0, "a")
    if "size 6" in words or "3 dim" in words:
        x = xgrad.tensor(values((8, 6)))
    before = x.numpy().copy()
    step = xgrad.compile(lambda x: (x.mul_(2), x + 1), **options)
    with mesh(), pytest.raises(PlacementError, match=words):
        step(x)
    np.testing.assert_array_equal(x.numpy(), before)


def test_argument_that_is_written_must_be_placed_before():
    x = xgrad.tensor(values((8, 4)))
    write = xgrad.compile(lambda x: x.mul_(2), in_shardings=sharding("a"))
    with pytest.raises(PlacementError, match="Move it there before"):
        write(x)
    np.testing.assert_array_equal(x.numpy(), values((8, 4)))
    x = x.to(sharding("a"))
    write(x)
    np.testing.assert_allclose(x.numpy(), 2 * values((8, 4)))
    assert x.sharding == sharding("a")


def test_what_goes_along_with_sharded_tensors_is_traced_once_more_and_no_more():
    """JAX tells two results on the same devices apart by an abstract mesh, which depends on how each was made."""
    one = xgrad.mesh({"a": 1}).mesh
    x = xgrad.tensor(values((8, 4)), device=NamedSharding(one, P("a")))
    count, w = xgrad.tensor(0), xgrad.ones(4, requires_grad=True)

    @xgrad.compile
    def step(x):
        count.add_(1)
        (grad,) = xgrad.autograd.grad((x * w * count).sum(), w)
        with xgrad.no_grad():
            w.sub_(grad * 0.1)

    for _ in range(4):
        step(x)
    assert (count.item(), step.metrics().traces) == (4, 2)
    assert "another sharding" in step.metrics().reasons[0]


def test_a_program_that_was_looked_at_first_runs_as_any_other():
    """What is the same in each call is put on the mesh when the program is compiled, whoever asks for that."""
    x, table = placed((8, 4), 0, "a"), np.asarray(values((8, 4), 1))

    def function(x):
        return (x * xgrad.as_tensor(table)).sum(1)

    step = xgrad.compile(function)
    assert step.memory_analysis(x).argument_size_in_bytes > 0
    (table_there,) = step._entries[0]._constants
    assert len(table_there.sharding.device_set) == 8
    for _ in range(2):
        np.testing.assert_allclose(step(x).numpy(), (x.numpy() * table).sum(1))
