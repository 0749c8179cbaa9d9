"""`with xgrad.mesh(...)`: a PartitionSpec wherever a device is taken, what a device of several is, and clear errors."""

import threading
import warnings

import jax
import numpy as np
import pytest
from jax.sharding import AxisType, Mesh, NamedSharding, SingleDeviceSharding
from jax.sharding import PartitionSpec as P

import xgrad
from xgrad.errors import PlacementError

from ..oracle import values

pytestmark = pytest.mark.skipif(len(jax.devices()) < 8, reason="needs eight devices")


def grid():
    return xgrad.mesh({"data": 4, "model": 2})


def spec(x):
    return x.sharding.spec


@pytest.mark.exhaustive
@pytest.mark.one_in(14)
@pytest.mark.parametrize(
    "make",
    [
        lambda place: xgrad.zeros(8, 4, device=place),
        lambda place: xgrad.ones((8, 4), device=place),
        lambda place: xgrad.empty(8, 4, device=place),
        lambda place: xgrad.full((8, 4), 2.0, device=place),
        lambda place: xgrad.eye(8, 4, device=place),
        lambda place: xgrad.arange(8, device=place),
        lambda place: xgrad.linspace(0, 1, 8, device=place),
        lambda place: xgrad.rand(8, 4, device=place),
        lambda place: xgrad.randn(8, 4, device=place),
        lambda place: xgrad.randint(0, 9, (8, 4), device=place),
        lambda place: xgrad.randperm(8, device=place),
        lambda place: xgrad.zeros_like(xgrad.ones(8, 4), device=place),
        lambda place: xgrad.randn_like(xgrad.ones(8, 4), device=place),
        lambda place: xgrad.ones(3).new_zeros(8, 4, device=place),
        lambda place: xgrad.ones(3).new_tensor(values((8, 4)), device=place),
        lambda place: xgrad.tensor(values((8, 4)), device=place),
        lambda place: xgrad.tensor(values((8, 4)).tolist(), device=place),
        lambda place: xgrad.as_tensor(values((8, 4)), device=place),
        lambda place: xgrad.ones(8, 4).to(place),
        lambda place: xgrad.ones(8, 4).to(place, xgrad.float16),
        lambda place: xgrad.ones(8, 4).to(device=place),
        lambda place: xgrad.ones(8, 4).to(xgrad.device(place)),
        lambda place: xgrad.nn.Linear(4, 8).to(place).weight,
        lambda place: xgrad.hann_window(8, device=place),
        lambda place: xgrad.fft.fftfreq(8, device=place),
    ],
)
def test_partition_spec_is_a_device(make):
    with grid() as mesh:
        if mesh.size == 8:
            inside = make(P("data"))
    assert inside.sharding.is_equivalent_to(NamedSharding(mesh, P("data")), inside.ndim)
    np.testing.assert_array_equal(make(NamedSharding(mesh, P("data"))).shape, inside.shape)


def test_meshes_are_made_in_several_ways():
    made = [xgrad.mesh((4, 2), ("data", "model")), xgrad.mesh(jax.make_mesh((4, 2), ("data", "model"))), grid()]
    assert len({outer.mesh for outer in made}) == 1
    assert repr(made[0]) == "xgrad.mesh({'data': 4, 'model': 2})"
    few = xgrad.mesh(2, "i", devices=["cpu:5", "cpu:6"]).mesh
    assert [d.id for d in few.devices] == [5, 6]


def test_innermost_mesh_counts_and_threads_have_their_own():
    other = xgrad.mesh({"rows": 8})
    seen = []
    with grid(), other:
        assert spec(xgrad.ones(8, device=P("rows"))) == P("rows")
        with grid():
            assert spec(xgrad.ones(8, device=P("data"))) == P("data")
            with other:
                assert spec(xgrad.ones(8, device=P("rows"))) == P("rows")

        def elsewhere():
            try:
                xgrad.ones(8, device=P("rows"))
            except RuntimeError as error:
                seen.append(str(error))

        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
    assert "with xgrad.mesh" in seen[0]
    with pytest.raises(PlacementError, match=r"with xgrad\.mesh"):
        xgrad.ones(8, device=P("rows"))


def inside(call):
    def run():
        with grid():
            call()

    return run


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: xgrad.ones(8).to(P("data")), r"with xgrad\.mesh\(\.\.\.\)"),
        (inside(lambda: xgrad.ones(8, device=P("dta"))), "'dta', which the mesh .*'data': 4, 'model': 2.* lacks"),
        (inside(lambda: xgrad.ones(8, 8, device=P("data", "data"))), "mesh axis 'data' twice"),
        (inside(lambda: xgrad.ones(6, device=P("data"))), "dimension 0 of size 6 .* 'data' of size 4"),
        (inside(lambda: xgrad.randn(8, 3).to(P(None, "model"))), "dimension 1 of size 3 .* 'model' of size 2"),
        (inside(lambda: xgrad.ones(12, device=P(("data", "model")))), "size 12 .*'data' .*'model' .*8 parts"),
        (inside(lambda: xgrad.ones(8).to(P("data", "model"))), r"speaks of 2 dimensions, .* has 1: its shape is \[8\]"),
        (inside(lambda: xgrad.ones(8, device=P("data", None))), "speaks of 2 dimensions"),
        (inside(lambda: xgrad.nn.Linear(3, 6).to(P("data"))), "dimension 0 of size 6"),
        (inside(lambda: xgrad.ones(8).to(P(P.UNCONSTRAINED))), "unconstrained"),
        (lambda: xgrad.mesh({"a": 4, "b": 4}), "needs 16 devices, but there are 8"),
        (lambda: xgrad.mesh((2, 2), ("a", "a")), "axis 'a' is named twice"),
        (lambda: xgrad.mesh((2, 2), ("a",)), "2 dimensions, .* as many axis names"),
        (lambda: xgrad.mesh({"a": 0}), "at least one device"),
    ],
)
def test_bad_placements_are_told_by_name(call, words):
    with pytest.raises(PlacementError, match=words):
        call()


def test_module_that_does_not_fit_is_left_as_it_was():
    layer = xgrad.nn.Sequential(xgrad.nn.Linear(4, 8), xgrad.nn.Linear(8, 3))
    before = [p.sharding for p in layer.parameters()]
    with grid(), pytest.raises(PlacementError, match=r"dimension 0 of size 3 .*'data'"):
        layer.to(P("data"))
    assert [p.sharding for p in layer.parameters()] == before


def test_device_of_a_sharded_tensor_is_all_of_its_devices():
    with grid():
        x, y = xgrad.ones(8, 4, device=P("data", "model")), xgrad.ones(8, 4, device=P(None, "model"))
        z = xgrad.ones(8, 4)
    assert x.device == y.device
    assert hash(x.device) == hash(y.device)
    assert x.device != z.device
    assert (x.device.type, x.device.index, str(x.device)) == ("cpu", 0, "cpu:0-7")
    assert repr(x.device) == "device(type='cpu', sharding=P('data', 'model'), mesh={'data': 4, 'model': 2})".replace(
        "P('data', 'model')", str(P("data", "model"))
    )
    assert "device='cpu:0-7'" in repr(x)
    assert y.to(x.device) is y
    assert spec(z.to(x.device)) == spec(z.to(x)) == spec(xgrad.zeros(8, 4, device=x.device)) == P("data", "model")
    assert spec(xgrad.zeros(3, device=x.device)) == spec(xgrad.ones(3).to(x)) == P()
    assert xgrad.ones(3, device=x.device).device == x.device


def test_moves_that_change_nothing_give_the_tensor_itself():
    with grid() as mesh:
        x = xgrad.ones(8, 4, device=P("data"))
        assert x.to(P("data", None)) is x
        assert x.to(NamedSharding(mesh, P("data"))) is x
        assert x.to(P(None, "model")) is not x


def test_moved_tensor_sends_its_gradient_back():
    with grid() as mesh:
        x = xgrad.tensor(values((8, 4)), device=P("data"), requires_grad=True)
        y = x.to(P(None, "model"))
        assert y.grad_fn.name() == "ToCopyBackward0"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that it had to be moved
            (y * y).sum().backward()
        assert x.grad.sharding.is_equivalent_to(NamedSharding(mesh, P("data")), 2)
        np.testing.assert_allclose(x.grad.numpy(), 2 * values((8, 4)))
        whole = xgrad.tensor(values((8, 4)), device=P("data", "model"), requires_grad=True)
        base = whole * 1
        first = base[0].to("cpu:3")  # of a view, whose root has another rank
        assert first._read().devices() == {jax.devices()[3]}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            (first * first).sum().backward()
        np.testing.assert_allclose(whole.grad.numpy()[0], 2 * values((8, 4))[0])
        assert whole.grad.sharding.is_equivalent_to(NamedSharding(mesh, P("data", "model")), 2)


@pytest.mark.exhaustive
def test_random_numbers_do_not_depend_on_the_sharding():
    for make in (
        lambda **where: xgrad.randn(8, 4, **where),
        lambda **where: xgrad.rand(8, 4, **where),
        lambda **where: xgrad.randint(0, 1000, (8, 4), **where),
        lambda **where: xgrad.randperm(8, **where),
        lambda **where: xgrad.zeros(8, 4, **where).normal_(),
        lambda **where: xgrad.nn.functional.dropout(xgrad.ones(8, 4, **where)),
    ):
        xgrad.manual_seed(0)
        expected = make().numpy()
        with grid():
            for place in (P("data"), P(("data", "model"))):
                xgrad.manual_seed(0)
                np.testing.assert_array_equal(make(device=place).numpy(), expected)


@pytest.mark.exhaustive
def test_like_and_new_follow_the_sharding():
    with grid():
        x = xgrad.ones(8, 4, device=P("data", "model"))
    for make in (xgrad.zeros_like, xgrad.ones_like, xgrad.empty_like, xgrad.rand_like, xgrad.randn_like):
        assert spec(make(x)) == P("data", "model")
    assert spec(xgrad.full_like(x, 3)) == P("data", "model")
    assert spec(x.new_zeros(3)) == spec(x.new_full((2,), 1.0)) == spec(x.new_tensor([1.0])) == P()
    assert spec(x.clone()) == spec(x * 2) == spec(2 / x) == spec(x.to(xgrad.float32)) == P("data", "model")


def test_constant_goes_along_and_a_placed_tensor_does_not():
    with grid():
        x = xgrad.ones(8, 4, device=P("data"))
    assert (x + xgrad.ones(8, 4)).device == x.device
    assert xgrad.where(x > 0, x, xgrad.zeros(4)).device == x.device
    assert xgrad.cat([x, xgrad.ones(8, 4)]).device == x.device
    for call in (lambda y: x + y, lambda y: x.mul_(y), lambda y: xgrad.cat([x, y]), lambda y: y[0].add_(x[0])):
        with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
            call(xgrad.ones(8, 4, device="cpu:1"))


def test_mesh_with_explicit_axes_is_left_to_xla():
    explicit = jax.make_mesh((4, 2), ("data", "model"), axis_types=(AxisType.Explicit,) * 2)
    x = xgrad.ones(8, 4, dtype=xgrad.float64, device=NamedSharding(explicit, P("data", "model")))
    y = xgrad.as_tensor(jax.device_put(values((8, 4)), NamedSharding(explicit, P("data", "model"))))
    assert set(x.sharding.mesh.axis_types) == set(y.sharding.mesh.axis_types) == {AxisType.Auto}
    assert (x @ y.t()).shape == (8, 8)  # an error over Explicit axes
    with xgrad.mesh(explicit):
        assert xgrad.ones(8, device=P("data")).sharding.mesh == x.sharding.mesh


def test_memory_kinds():
    mesh = Mesh(np.array(jax.devices()), ("i",))
    x = xgrad.tensor(values((8, 4)), device=NamedSharding(mesh, P("i")))
    pinned = x.to(NamedSharding(mesh, P("i"), memory_kind="pinned_host"))
    assert pinned.sharding.memory_kind == "pinned_host"
    back = pinned.to(x.sharding)
    assert back.sharding == x.sharding
    np.testing.assert_array_equal(back.numpy(), values((8, 4)))
    one = xgrad.ones(3).to(SingleDeviceSharding(jax.devices()[0], memory_kind="pinned_host"))
    assert one.sharding.memory_kind == "pinned_host"
    assert one.to("cpu:0").sharding.memory_kind != "pinned_host"
