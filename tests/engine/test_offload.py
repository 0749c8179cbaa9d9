"""save_on_cpu: what is saved goes to host memory and comes back, with its sharding; the CPU's own stays where it is."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import xgrad
from xgrad.autograd import offload
from xgrad.base.platforms import tracing_for

from ..oracle import as_torch, leaf, same

PIN = (False, True)


def block(x, w):
    return ((x * w).tanh() * x).exp()


@pytest.fixture
def no_host(monkeypatch):
    """The CPU's devices count as accelerators, which they resemble in having pinned and unpinned host memory."""
    monkeypatch.setattr(offload, "_is_host", lambda device: False)


@pytest.fixture
def packed(monkeypatch):
    """What `to_host` gave."""
    seen = []
    to_host = offload.to_host

    def noting(array, pin):
        seen.append((array, *to_host(array, pin)))
        return seen[-1][1:]

    monkeypatch.setattr(offload, "to_host", noting)
    return seen


@pytest.mark.one_in(2)
@pytest.mark.parametrize("pin", PIN)
@pytest.mark.parametrize("accelerator", [False, True])
def test_gradients_and_second_gradients(pin, accelerator, request):
    if accelerator:
        request.getfixturevalue("no_host")

    def program(T):
        x, w = leaf(T, 3), leaf(T, 3, seed=1)
        with T.autograd.graph.save_on_cpu(pin_memory=pin and T is xgrad):
            y = block(x, w)
            first = T.autograd.grad(y.sum(), (x, w), create_graph=True)
        return first, T.autograd.grad(first[0].sum() + first[1].sum(), (x, w))

    as_torch(program)


def test_on_the_cpu_nothing_is_copied(packed):
    x = leaf(xgrad, 3)
    with xgrad.autograd.graph.save_on_cpu(pin_memory=True):
        x.exp().sum().backward()
    assert len(packed) == 1
    for array, _, kept in packed:
        assert kept is array


def test_what_is_kept_is_not_changed_by_a_write():
    x = leaf(xgrad, 3)
    with xgrad.autograd.graph.save_on_cpu():
        y = x * 1
        z = (y * y).sum()
        y.zero_()
    z.backward()
    same(x.grad, 2 * x.detach())


@pytest.mark.parametrize(("pin", "kind"), [(True, "pinned_host"), (False, "unpinned_host")])
def test_host_memory_kinds(no_host, packed, pin, kind):
    x = leaf(xgrad, 3)
    with xgrad.autograd.graph.save_on_cpu(pin_memory=pin):
        x.exp().sum().backward()
    for array, home, moved in packed:
        assert moved.sharding.memory_kind == kind
        assert home == array.sharding
    assert x.grad.sharding == x.sharding


@pytest.mark.parametrize("kinds", [["device"], ["device", "pinned_host"]])
def test_devices_without_such_memory_use_the_cpu_device(no_host, packed, monkeypatch, kinds):
    monkeypatch.setattr(offload, "_kinds", lambda device: kinds)
    home = jax.devices()[1]
    x = xgrad.as_tensor(jax.device_put(np.arange(3.0), home)).requires_grad_()
    with xgrad.autograd.graph.save_on_cpu():
        x.exp().sum().backward()
    assert [moved.devices() for _, _, moved in packed] == [{jax.devices("cpu")[0]}]
    assert x.grad.sharding.device_set == {home}
    same(x.grad, x.detach().exp())


@pytest.mark.eager("arrays")
def test_without_a_cpu_device_numpy_keeps_it(no_host, packed, monkeypatch):
    monkeypatch.setattr(offload, "_kinds", lambda device: ["device"])

    def no_cpu(backend):
        raise RuntimeError("Unknown backend cpu")

    x = leaf(xgrad, 3)
    with xgrad.autograd.graph.save_on_cpu():
        y = x.exp().sum()
        monkeypatch.setattr(jax, "local_devices", no_cpu)
        z = x.sin().sum()
        monkeypatch.undo()
        (y + z).backward()
    assert isinstance(packed[-1][2], np.ndarray)
    same(x.grad, x.detach().exp() + x.detach().cos())


@pytest.mark.parametrize("pin", PIN)
def test_shardings_are_kept(no_host, packed, pin):
    mesh = Mesh(np.array(jax.devices()[:2]), ("i",))
    sharding = NamedSharding(mesh, PartitionSpec("i"))
    x = xgrad.as_tensor(jax.device_put(np.arange(8.0).reshape(4, 2), sharding)).requires_grad_()
    with xgrad.autograd.graph.save_on_cpu(pin_memory=pin):
        y = x.sin().exp()
    y.sum().backward()
    for array, home, moved in packed:
        assert moved.sharding.is_equivalent_to(array.sharding.with_memory_kind(moved.sharding.memory_kind), 2)
        assert home == array.sharding
    assert x.grad.sharding.is_equivalent_to(sharding, 2)
    same(x.grad, x.detach().cos() * x.detach().sin().exp())


def gradient(array):
    x = xgrad.as_tensor(array).requires_grad_()
    with xgrad.autograd.graph.save_on_cpu():
        y = (x.sin().exp() * x).sum()
    return xgrad.autograd.grad(y, x)[0]._read()


def test_under_a_trace():
    x = jnp.arange(3.0)
    expected = np.asarray(gradient(x))
    same(np.asarray(jax.jit(gradient)(x)), expected)
    program = jax.jit(lambda x: gradient(x) * 1)
    with tracing_for("tpu"):
        text = program.trace(x).lower(lowering_platforms=("tpu",)).as_text()
        same(np.asarray(program(x)), expected)
    assert "pinned_host" in text  # XLA is told to move
