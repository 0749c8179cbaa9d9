"""A backend of several devices: its tensors are sharded, and remain its tensors, with all that it declares."""

import gc
import pickle

import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import xgrad
from xgrad.errors import BackendError, OutOfMemoryError, PlacementError

from ..oracle import values

pytestmark = pytest.mark.skipif(len(jax.devices()) < 8, reason="needs eight devices")

ON = [f"cpu:{i}" for i in range(8)]
KB = 1024
MODES = {"eager": {}, "lazy": {"execution": "lazy"}, "strided": {"strides": True}, "copies": {"donation": False}}


def pod(**declared):
    return xgrad.Backend("pod", **{"on": ON, **declared})


def grid(backend):
    return xgrad.mesh({"data": 4, "model": 2}, devices=backend)


def used(backend):
    return backend._runtime.memory.on


def test_a_mesh_of_the_backend_shards_its_tensors():
    chips = pod()
    with grid(chips) as mesh:
        x = xgrad.ones(8, 4, device=P("data"))
        like = xgrad.zeros_like(x), xgrad.randn_like(x), x.new_ones(8, 4, device=P("model"))
        data = xgrad.tensor(values((8, 4)), device=P("data", "model"))
    assert (x.device.type, str(x.device), x.device.index) == ("pod", "pod:0-7", 0)
    assert repr(x.device) == f"device(type='pod', sharding={P('data')}, mesh={{'data': 4, 'model': 2}})"
    assert repr(x[0]) == "tensor([1., 1., 1., 1.], device='pod:0-7')"
    assert (x.sharding.spec, x.sharding.mesh) == (P("data"), mesh)
    assert [t.sharding.spec for t in (*like, data)] == [P("data"), P("data"), P("model"), P("data", "model")]
    assert {t.device.type for t in (*like, data)} == {"pod"}
    np.testing.assert_array_equal(data.numpy(), values((8, 4)))


def test_a_sharding_of_jax_keeps_a_tensor_on_its_backend_and_a_device_takes_it_away():
    chips = pod()
    jax_mesh = jax.make_mesh((8,), ("i",))
    sharding = NamedSharding(jax_mesh, P("i"))
    x = xgrad.ones(8, 4, device=chips)
    y = x.to(sharding)
    assert (str(x.device), str(y.device), y.sharding.spec) == ("pod:0", "pod:0-7", P("i"))
    assert [y.to(place) is y for place in (sharding, y.device, y.sharding)] == [True] * 3
    back = y.to(chips)
    assert (str(back.device), str(y.cpu().device)) == ("pod:0", "cpu")
    assert y.cpu().to(sharding).device.type == "cpu"
    assert xgrad.ones(8, 2, device=y.sharding).sharding is y.sharding
    assert y.new_ones(3, device=y.device).sharding.spec == P()  # it does not divide: whole on each
    few = NamedSharding(jax_mesh, P(None, "i"))
    with pytest.raises(PlacementError, match="dimension 1 of size 4 is not divisible by mesh axis 'i' of size 8"):
        x.to(few)
    one = xgrad.Backend("one")  # stands on one device: a sharding is elsewhere
    assert xgrad.ones(8, 4, device=one).to(sharding).device.type == "cpu"
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        y + xgrad.ones(8, 4, device=sharding)


@pytest.mark.filterwarnings("ignore:a gradient arrived with sharding")
@pytest.mark.parametrize("mode", MODES)
def test_a_training_step_is_that_of_one_device(mode):
    """Gradients are sharded like their variables, writes leave the sharding, views and hooks work."""

    def train(place, column):
        xgrad.manual_seed(0)
        model = xgrad.nn.Sequential(xgrad.nn.Linear(4, 8), xgrad.nn.GELU(), xgrad.nn.Linear(8, 2)).double()
        for p in model.parameters() if column is not None else ():
            p.data = p.data.to(column if p.ndim == 2 else P())
        x = xgrad.tensor(values((8, 4)), device=place)
        seen = []
        model[0].weight.register_hook(lambda g: seen.append(g.shape) or g * 2)
        optimizer = xgrad.optim.AdamW(model.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            y = model(x)
            z = y.clone()
            z[0].mul_(3)
            z.T[1].add_(y[:, 0])
            loss = (z * z).sum()
            loss.backward()
            optimizer.step()
        with xgrad.no_grad():
            model[0].weight[0].zero_()
        assert len(seen) == 3
        return model, loss

    plain, loss = train("cpu", None)
    chips = pod(**MODES[mode])
    with grid(chips):
        model, other = train(P("data"), P("model"))
    np.testing.assert_allclose(other.item(), loss.item(), rtol=1e-5)
    for a, b in zip(model.parameters(), plain.parameters()):
        assert (a.device.type, a.grad.device.type) == ("pod", "pod")
        assert a.sharding.spec == a.grad.sharding.spec == (P("model") if a.ndim == 2 else P())
        np.testing.assert_allclose(a.tolist(), b.tolist(), rtol=2e-4, atol=1e-5)
        np.testing.assert_allclose(a.grad.tolist(), b.grad.tolist(), rtol=2e-4, atol=1e-5)


@pytest.mark.parametrize("execution", ["eager", "lazy"])
def test_what_the_backend_lacks_is_computed_on_the_host_or_refused(execution):
    chips = pod(without=["sort"], execution=execution)
    given = values((8, 4))
    with grid(chips):
        x = xgrad.tensor(given, device=P("data"), requires_grad=True)
    with chips.report() as report:
        y = x.sort(0)
        (y.values * 2).sum().backward()
    assert {f["operator"] for f in report.as_dict()["fallbacks"]} == {"sort", "SortBackward0"}
    assert (y.values.sharding.spec, str(y.values.device), x.grad.sharding.spec) == (P("data"), "pod:0-7", P("data"))
    np.testing.assert_array_equal(y.values.tolist(), np.sort(given, 0))
    with grid(strict := pod(without=["sort"], fallback="error", execution=execution)):
        z = xgrad.tensor(given, device=P("data"))
    with pytest.raises(BackendError, match="'sort' is not implemented for the backend 'pod'"):
        z.sort()
    assert strict is not chips


def test_memory_is_that_of_each_device():
    chips = pod(memory=4 * KB + 64)
    with grid(chips):
        x = xgrad.zeros(8, KB, device=P("data", "model"), dtype=xgrad.float32)
        x.add_(1)  # in its own memory
        assert (used(chips), x.sum().item(), x.sharding.spec) == ([4 * KB] * 8, 8 * KB, P("data", "model"))
        with pytest.raises(OutOfMemoryError, match=r"pod:0 out of memory\. Tried .* 4096 bytes .* 4096 of 4160"):
            x + 1
        assert used(chips) == [4 * KB] * 8
        del x
        gc.collect()  # the error's frames
        assert used(chips) == [0] * 8
        with pytest.raises(OutOfMemoryError):
            xgrad.zeros(8, KB, device=chips, dtype=xgrad.float32)  # on the first device alone
        half = xgrad.zeros(4, KB, device=P("data"), dtype=xgrad.float32)  # twice: `model` has copies
        assert used(chips) == [4 * KB] * 8
        del half
        with chips.report() as report:
            xgrad.zeros(8, KB, device=P("data", "model"), dtype=xgrad.float32)
        assert report.as_dict()["peak memory"] == 4 * KB


def test_a_copying_backend_needs_room_for_the_write_and_loses_nothing_without():
    chips = pod(memory=6 * KB, donation=False)
    with grid(chips):
        x = xgrad.ones(8, KB, device=P("data", "model"), dtype=xgrad.float32)
    with pytest.raises(OutOfMemoryError):
        x.add_(1)
    assert (x.sum().item(), x._version) == (8 * KB, 0)


@pytest.mark.parametrize("execution", ["eager", "lazy"])
def test_a_compiled_function_and_its_shardings(execution):
    chips = pod(execution=execution)

    def step(x, w):
        return (x @ w).relu(), w * 2

    with grid(chips):
        compiled = xgrad.compile(step, in_shardings=(P("data"), P()), out_shardings=(P("data", "model"), None))
        x = xgrad.tensor(values((8, 4)), device=chips)
        w = xgrad.tensor(values((4, 8), 1), device=chips, requires_grad=True)
        y, _ = compiled(x, w)
        assert (y.sharding.spec, y.device.type) == (P("data", "model"), "pod")
        y.sum().backward()
    want = np.maximum(values((8, 4)) @ values((4, 8), 1), 0)
    np.testing.assert_allclose(y.tolist(), want, rtol=1e-5)
    np.testing.assert_allclose(w.grad.tolist(), values((8, 4)).T @ (want > 0), rtol=1e-5)


def test_transfers_between_sharded_tensors_and_backends_have_gradients():
    chips = pod()
    sharding = NamedSharding(jax.make_mesh((8,), ("i",)), P("i"))
    x = xgrad.tensor(values((8, 4)), device=sharding, requires_grad=True)
    with xgrad.mesh({"i": 8}, devices=chips):
        (x.to(P("i")) * 2).sum().backward(create_graph=True)
    assert (x.grad.device.type, x.grad.sharding.spec) == ("cpu", P("i"))
    on = x.detach().to(chips).requires_grad_()
    (on.to(sharding) * 3).sum().backward()
    assert (str(on.grad.device), on.grad.sum().item()) == ("pod:0", 96)


def test_a_backend_whose_first_device_is_not_the_default_one():
    chips = pod(on=["cpu:4", "cpu:5"])
    with xgrad.mesh({"i": 2}, devices=chips):
        x = xgrad.tensor(values((4, 2)), device=P("i"), requires_grad=True)
    w = xgrad.ones(4, 2, device=chips)
    y = (x * w + 1).sum()
    y.backward()
    assert (str(x.device), str(w.device), {d.id for d in x.detach().__jax_array__().devices()}) == (
        "pod:0-1",
        "pod:0",
        {4, 5},
    )
    assert x.grad.tolist() == [[1, 1]] * 4
    with xgrad.no_grad():
        x.mul_(w)
        w.add_(x)
    assert (str(w.device), x.sharding.spec) == ("pod:0", P("i"))


def test_a_pickle_and_a_copy_find_the_backend_again():
    import copy

    chips = pod().register()
    try:
        with grid(chips):
            x = xgrad.tensor(values((8, 4)), device=P("data"))
        copied, loaded = copy.deepcopy(x), pickle.loads(pickle.dumps(x))
        assert (str(copied.device), str(loaded.device)) == ("pod:0-7", "pod:0")
        np.testing.assert_array_equal(loaded.tolist(), x.tolist())
        with pytest.raises(RuntimeError, match="a tensor of the backend 'pod' is on pod:0, or sharded"):
            xgrad.ones(2, device="pod:3")
    finally:
        chips.unregister()


def test_a_program_on_several_devices_is_one_launch_and_its_estimate_is_of_one_device():
    chips = pod(cost=xgrad.Cost(launch=0, compile=0, bandwidth=1e9, flops=1e9, host_link=1e9))
    given = values((64, 64))

    def memory(place):
        with chips.report() as report, xgrad.mesh({"i": 8}, devices=chips):
            x = xgrad.tensor(given, device=place)
            x + x
        assert report.launches == 1
        return report.estimate().compute + report.estimate().memory

    assert memory(P("i")) * 7 < memory(chips) < memory(P("i")) * 9


@pytest.mark.parametrize(
    ("on", "error", "text"),
    [
        ([], TypeError, "or a list of such"),
        (["cpu:0", "cpu:0"], ValueError, "different ones of one platform"),
        ([3], TypeError, "expected a device"),
    ],
)
def test_what_a_backend_cannot_stand_on(on, error, text):
    with pytest.raises(error, match=text):
        pod(on=on)


def test_a_mesh_of_other_devices_is_refused():
    with pytest.raises(PlacementError, match="a mesh of the backend 'pod' is over"):
        xgrad.mesh(jax.make_mesh((8,), ("i",)), devices=pod(on=["cpu:0", "cpu:1"]))


@pytest.mark.parametrize(
    ("runtime_starts", "step", "starts"), [(False, 2, (0, 2, 3)), (False, 3, (0, 1)), (True, 7, (0,))]
)
def test_a_write_with_a_step_takes_uneven_parts_of_the_shards(runtime_starts, step, starts):
    # XLA's partitioner makes wrong shapes of interior padding at a constant place.
    chips, data = pod(on=ON[:4], runtime_starts=runtime_starts), values((8, 3))
    with xgrad.mesh({"data": 4}, devices=chips):
        for start in starts:
            x = xgrad.tensor(data, device=P("data"), requires_grad=True)
            y = x * 1
            y[start::step].mul_(3)
            (y * y).sum().backward()
            want = data.copy()
            want[start::step] *= 3
            np.testing.assert_allclose(y.detach().numpy(), want)
            want[start::step] *= 3
            np.testing.assert_allclose(x.grad.numpy(), 2 * want, rtol=1e-6)
