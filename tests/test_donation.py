"""A write donates its buffer where the storage provably owns it alone, and copies where anybody else can see it.

Each test of the second kind tries to break one condition: were the buffer donated, somebody's array would be deleted.
"""

import gc
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import xgrad
from xgrad.execution import donation, references

from .oracle import leaf

N = 1 << 15

pytestmark = pytest.mark.skipif(not references.COUNTED, reason="on a free-threaded Python nothing is donated")


def pointer(tensor):
    """The address of the root's buffer."""
    array = tensor._array if tensor._array is not None else tensor._storage.array
    return array.unsafe_buffer_pointer()


def owned():
    return xgrad.zeros(4, N, dtype=xgrad.float64)


WRITES = {
    "a row": lambda b: b[1].add_(1),
    "a column": lambda b: b[:, 5].fill_(3.0),
    "a transposed block": lambda b: b.t()[:7, 1:3].mul_(2),
    "assignment": lambda b: b.__setitem__((slice(None), 3), 2.0),
    "a copy": lambda b: b[2].copy_(xgrad.ones(N, dtype=xgrad.float64)),
    "all of it": lambda b: b.mul_(2),
    "zero": lambda b: b[0].zero_(),
}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_owned_buffer_is_written_in_place(write, path):
    base = owned()
    base[0]
    before = pointer(base)
    for _ in range(3):
        write(base)
    assert pointer(base) == before


def test_write_through_a_view_that_was_read_reuses_the_buffer():
    base = owned()
    view = base[1]
    before = pointer(base)
    for i in range(3):
        view.add_(1)
        assert view.sum().item() == N * (i + 1)
        assert base.sum().item() == N * (i + 1)
    assert pointer(base) == before


def test_recorded_writes_reuse_the_buffer_too(path):
    base = owned()
    w = leaf(xgrad, N)
    before = pointer(base)
    for i in range(4):
        base[i].copy_(w)
    assert pointer(base) == before
    base.sum().backward()
    np.testing.assert_array_equal(w.grad.numpy(), 4.0)


# -- somebody else's array ---------------------------------------------------------------------------------------------


FOREIGN = {
    "a user's array": lambda a: xgrad.as_tensor(a),
    "device_put of it": lambda a: xgrad.as_tensor(jax.device_put(a, jax.devices()[0])),
    "tensor of it": lambda a: xgrad.as_tensor(a).detach(),
    "to the same device": lambda a: xgrad.as_tensor(a).to("cpu"),
    "alias of it": lambda a: xgrad.as_tensor(a).data,
}


@pytest.mark.parametrize("make", FOREIGN.values(), ids=FOREIGN)
@pytest.mark.parametrize("whole", [True, False])
def test_foreign_array_is_copied_by_its_first_write_and_owned_from_then_on(make, whole):
    array = jnp.ones((4, N))
    x = make(array)
    (x if whole else x[1]).mul_(2)
    np.testing.assert_array_equal(np.asarray(array), 1.0)
    assert pointer(x) != array.unsafe_buffer_pointer()
    second = pointer(x)
    (x if whole else x[1]).mul_(2)
    assert pointer(x) == second


def test_foreign_array_that_the_user_dropped_is_still_not_ours():
    """Another Array object may share its buffer, with a reference count of one."""
    array = jnp.ones((4, N))
    twin = jax.device_put(array, jax.devices()[0])
    x = xgrad.as_tensor(array)
    del array
    gc.collect()
    x[1].mul_(2)
    x.mul_(2)
    np.testing.assert_array_equal(np.asarray(twin), 1.0)


def test_numpy_array_is_not_written():
    a = np.ones((4, N))
    x = xgrad.from_numpy(a)
    x[0].mul_(2)
    x.mul_(2)
    np.testing.assert_array_equal(a, 1.0)


# -- handed out --------------------------------------------------------------------------------------------------------


EXPORTS = {
    "numpy": lambda x: x.numpy(),
    "asarray": lambda x: np.asarray(x),
    "dlpack": lambda x: np.from_dlpack(x),
    "jax": lambda x: jnp.asarray(x),
    "jax through dlpack": lambda x: jax.dlpack.from_dlpack(x),
    "numpy of a detached alias": lambda x: x.detach().numpy(),
    "shards": lambda x: x.__jax_array__().addressable_shards[0].data,
    "deepcopy": lambda x: __import__("copy").deepcopy(x).numpy(),
}


@pytest.mark.parametrize("export", EXPORTS.values(), ids=EXPORTS)
@pytest.mark.parametrize("whole", [True, False])
def test_exported_value_is_not_written(export, whole):
    x = owned()
    x.add_(1)
    out = export(x)
    (x if whole else x[1]).mul_(5)
    (x if whole else x[1]).mul_(5)
    np.testing.assert_array_equal(np.asarray(out), 1.0)
    assert x[1, 0].item() == 25


@pytest.mark.parametrize("export", list(EXPORTS.values())[:5], ids=list(EXPORTS)[:5])
def test_exported_view_of_all_is_not_written(export):
    """A view that shows the whole root may be the root's own buffer."""
    base = owned()
    out = export(base.view(4, N))
    flat = export(base.view(-1))
    base.add_(1)
    base[0].add_(1)
    np.testing.assert_array_equal(np.asarray(out), 0.0)
    np.testing.assert_array_equal(np.asarray(flat), 0.0)


def test_array_that_somebody_read_is_not_deleted():
    x = owned()
    held = x._read()
    x[0].add_(1)
    x.add_(1)
    np.testing.assert_array_equal(np.asarray(held), 0.0)


# -- held inside -------------------------------------------------------------------------------------------------------


def test_saved_result_is_not_written():
    x = leaf(xgrad, 4, N)
    y = x.exp()
    z = y.sum()
    expected = y.numpy(force=True).copy()
    y.data.mul_(0)
    y.data[0].add_(7)
    z.backward()
    np.testing.assert_array_equal(x.grad.numpy(), expected)


def test_saved_input_that_mutation_is_allowed_on_is_not_written():
    x = leaf(xgrad, 4, N)
    with xgrad.autograd.graph.allow_mutation_on_saved_tensors():
        y = x * 1
        z = (y * y).sum()
        y.zero_()
        y[0].add_(1)
        z.backward()
    np.testing.assert_allclose(x.grad.numpy(), 2 * x.numpy(force=True))


def test_original_that_an_inplace_product_saved_is_not_written():
    x, w = leaf(xgrad, 4, N), leaf(xgrad, 4, N, seed=1)
    y = x * 1
    y.mul_(w)
    y.mul_(w)
    y.add_(1)
    y.sum().backward()
    np.testing.assert_allclose(w.grad.numpy(), 2 * (x * w).numpy(force=True), rtol=1e-12)


def test_cached_value_of_an_alias_is_not_written():
    base = owned()
    view, sibling = base[1], base.view(-1)
    held = view._read(), sibling._read()
    base.add_(1)
    view.add_(1)
    assert [float(np.asarray(h).sum()) for h in held] == [0.0, 0.0]
    assert view.sum().item() == 2 * N
    assert sibling.sum().item() == 5 * N


def test_gradient_that_somebody_holds_is_not_written():
    x = leaf(xgrad, 4, N)
    (x * 2).sum().backward()
    held, alias = x.grad.numpy(), x.grad.detach()
    (x * 3).sum().backward()
    np.testing.assert_array_equal(held, 2.0)
    np.testing.assert_array_equal(alias.numpy(), 5.0)


def test_root_gradient_of_the_user_is_not_written(path):
    x = leaf(xgrad, 4, N)
    y = x * 1
    y[0].mul_(3)
    y[1].zero_()
    array = jnp.ones((4, N))
    for root in (xgrad.as_tensor(array), xgrad.ones(4, N, dtype=xgrad.float64)):
        y.backward(root, retain_graph=True)
        np.testing.assert_array_equal(root.numpy(), 1.0)
    np.testing.assert_array_equal(np.asarray(array), 1.0)


def test_gradients_seen_by_hooks_are_not_written(path):
    x, seen = leaf(xgrad, 4, N), []
    y = x * 1
    y[0].mul_(3)
    y.register_hook(seen.append)
    x.register_hook(seen.append)
    y.grad_fn.register_prehook(lambda grads: seen.extend(grads))
    z = y * 2
    z.register_hook(seen.append)
    z.sum().backward()
    values = [g.numpy()[2, 0] for g in seen]
    assert sorted(values) == [1.0, 2.0, 2.0, 2.0]


def test_array_in_another_thread_is_not_deleted():
    """A reader holds the array while a writer goes on: no read meets a deleted buffer."""
    base = owned()
    view, failures, stop = base[1], [], threading.Event()

    def read():
        while not stop.is_set():
            try:
                held = base._read()
                np.asarray(held).sum()
                base[1].sum().item()
            except Exception as error:
                failures.append(error)
                return

    thread = threading.Thread(target=read)
    thread.start()
    for _ in range(300):
        view.add_(1)
    stop.set()
    thread.join()
    assert not failures
    assert view.sum().item() == 300 * N


# -- shards ------------------------------------------------------------------------------------------------------------


def two_devices():
    devices = jax.devices("cpu")
    if len(devices) < 2:
        pytest.skip("needs two devices")
    return jax.sharding.NamedSharding(jax.sharding.Mesh(devices[:2], ("i",)), jax.sharding.PartitionSpec("i"))


def test_sharded_foreign_array_is_not_written():
    array = jax.device_put(jnp.ones((4, N)), two_devices())
    x = xgrad.as_tensor(array)
    x[0].mul_(2)
    x.mul_(2)
    np.testing.assert_array_equal(np.asarray(array), 1.0)
    assert x[0, 0].item() == 4


def test_shard_that_somebody_holds_is_not_written():
    x = xgrad.as_tensor(jax.device_put(jnp.zeros((4, N)), two_devices())) + 1
    shards = [s.data for s in x.__jax_array__().addressable_shards]
    x.mul_(3)
    x[3].mul_(3)
    for shard in shards:
        np.testing.assert_array_equal(np.asarray(shard), 1.0)


def test_copies_are_where_their_arrays_are_and_committed_only_if_these_are():
    mesh = Mesh(np.array(jax.devices()[:2]), ("x",))
    places = None, jax.devices()[-1], NamedSharding(mesh, PartitionSpec("x"))
    arrays = [jax.device_put(jnp.ones(4), place) for place in places]
    for array, copy in zip(arrays, donation.copied(arrays), strict=True):
        assert (copy.sharding, copy.committed) == (array.sharding, array.committed)
        assert copy.addressable_data(0).unsafe_buffer_pointer() != array.addressable_data(0).unsafe_buffer_pointer()


def test_tracers_are_not_donated():
    @jax.jit
    def step(a):
        x = xgrad.as_tensor(a) * 1
        x[0].add_(1)
        x.mul_(2)
        return x._read()

    a = jnp.ones((4, 8))
    np.testing.assert_array_equal(step(a)[0], 4.0)
    np.testing.assert_array_equal(np.asarray(a), 1.0)
