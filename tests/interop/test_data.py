"""Loaders of torch and grain, and iterators of NumPy: their batches as tensors, where they belong, and not copied."""

import gc
from collections import namedtuple

import grain
import grain.python
import jax
import numpy as np
import pytest
import torch
from jax.sharding import NamedSharding, PartitionSpec

import xgrad
from xgrad.interop.data import batches

from .test_memory import aligned
from .test_torch import address, narrow, refused

Point = namedtuple("Point", "x label")


class Points(torch.utils.data.Dataset):
    def __len__(self):
        return 10

    def __getitem__(self, i):
        return {"x": torch.full((64,), float(i)), "pair": Point(np.float32(i), i), "name": f"p{i}"}


def test_torch_loader():
    collated = []

    def collate(samples):
        collated.append(torch.utils.data.default_collate(samples))
        return collated[-1]

    loader = torch.utils.data.DataLoader(Points(), batch_size=4, collate_fn=collate)
    wrapped = batches(loader)
    assert len(wrapped) == len(loader) == 3
    for _ in range(2):  # epochs
        collated.clear()
        seen = list(wrapped)
        assert len(seen) == 3
        for ours, theirs in zip(seen, collated, strict=True):
            assert list(ours) == list(theirs)
            assert address(ours["x"]) == theirs["x"].data_ptr()  # not copied
            assert address(ours["pair"].label) == theirs["pair"].label.data_ptr()
            assert type(ours["pair"]) is Point
            assert ours["pair"].label.dtype == xgrad.int64
            assert ours["x"].tolist() == theirs["x"].tolist()
            assert ours["name"] == theirs["name"]


def test_a_dataset_is_never_written_to():
    data = torch.ones(8, 16)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(data), batch_size=None)
    for (row,) in batches(loader):
        assert address(row) % 64 == 0
        row.mul_(5)
        row.add_(1)
    assert data.equal(torch.ones(8, 16))


def test_grain_loaders():
    records = [{"x": np.full(64, i, np.float32), "label": i} for i in range(12)]
    dataset = grain.MapDataset.source(records).batch(4)
    loader = grain.python.DataLoader(
        data_source=records,
        sampler=grain.python.IndexSampler(12, shuffle=False, num_epochs=1, shard_options=grain.python.NoSharding()),
        operations=[grain.python.Batch(4)],
        worker_count=0,
    )
    for source in (dataset, dataset.to_iter_dataset(), loader):
        seen = list(batches(source, "cpu"))
        assert [b["label"].tolist() for b in seen] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
        assert all(isinstance(b["x"], xgrad.Tensor) and b["x"].shape == (4, 64) for b in seen)


def test_a_loader_that_can_be_resumed_resumes_after_the_last_batch_that_was_seen():
    dataset = grain.MapDataset.source(np.arange(12.0)).batch(2).to_iter_dataset()
    iterator = iter(batches(dataset, prefetch=3))
    before = [next(iterator).tolist() for _ in range(2)]
    state = iterator.get_state()
    rest = [b.tolist() for b in iterator]
    assert before + rest == [[i, i + 1] for i in range(0, 12, 2)]
    resumed = iter(batches(dataset, prefetch=1))
    next(resumed)
    resumed.set_state(state)
    assert [b.tolist() for b in resumed] == rest
    with pytest.raises(TypeError, match="list_iterator has no get_state"):
        iter(batches([])).get_state()


KINDS = {
    "aligned": (aligned, True),
    "read-only": (lambda: np.broadcast_to(aligned(64), (64,)), True),
    "no dimension": (lambda: np.array(3.0, np.float32), None),
    "empty": (lambda: np.zeros((0, 3), np.float32), None),
    "unaligned": (lambda: aligned()[1:], False),
    "strided": (lambda: aligned()[::2], False),
    "transposed": (lambda: aligned(64).reshape(8, 8).T, False),
    "expanded": (lambda: np.broadcast_to(aligned(8), (4, 8)), False),
}


@pytest.mark.parametrize(("make", "shares"), KINDS.values(), ids=KINDS)
def test_arrays_are_copied_only_where_they_must_be(make, shares):
    array = make()
    for source in (array, torch.from_numpy(array) if array.flags.writeable else array):
        (got,) = batches([source])
        assert got.tolist() == array.tolist()
        assert got.dtype == array.dtype
        if shares is not None:
            assert (address(got) == array.ctypes.data) is shares
        (own,) = batches([source], copy=True)
        if array.size:
            assert address(own) != array.ctypes.data
            assert own.tolist() == array.tolist()


def test_a_loader_that_uses_its_memory_again():
    def loader():
        memory = aligned(64)
        for i in range(5):
            memory.fill(i)
            yield memory

    assert [float(b[0]) for b in batches(loader(), copy=True)] == [0, 1, 2, 3, 4]


def test_each_device_gets_its_part_of_a_batch_and_nothing_more():
    rows = aligned(1 << 16).reshape(16, -1)
    with xgrad.mesh({"data": 2}):
        wrapped = batches([{"x": rows, "y": torch.arange(16)}] * 3, PartitionSpec("data"), prefetch=0)
        gc.collect()
        before = sum(a.nbytes for a in jax.live_arrays())
        iterator = iter(wrapped)
        batch = next(iterator)
        made = sum(a.nbytes for a in jax.live_arrays()) - before
        assert made == rows.nbytes + 16 * 8
    assert isinstance(batch["x"].sharding, NamedSharding)
    assert [s.data.shape for s in batch["x"]._read().addressable_shards] == [(8, 4096)] * 2
    assert batch["y"].tolist() == list(range(16))
    with xgrad.mesh({"data": 2}):
        uneven = batches([{"x": rows[:15]}], PartitionSpec("data"))
    with pytest.raises(xgrad.errors.PlacementError, match="'x': dimension 0 of size 15 is not divisible"):
        list(uneven)


def test_other_devices_and_what_is_a_tensor_already():
    loader = [(xgrad.ones(2), jax.numpy.ones(2), np.ones(2), torch.ones(2), 3, "text", None, np.array(["a"]))]
    (batch,) = batches(loader, "cpu:1")
    assert all(x.device == xgrad.device("cpu:1") for x in batch[:4])
    assert batch[4:7] == (3, "text", None)
    assert batch[7].tolist() == ["a"]
    (same,) = batches(loader)
    assert same[0] is loader[0][0]


def test_how_far_the_loader_is_ahead():
    read = []

    def loader():
        for i in range(6):
            read.append(i)
            yield np.full(2, i)

    for prefetch in (0, 2):
        read.clear()
        iterator = iter(batches(loader(), prefetch=prefetch))
        assert read == []
        assert next(iterator).tolist() == [0, 0]
        assert len(read) == 1 + prefetch
        next(iterator)
        assert len(read) == 2 + prefetch
        assert len(list(iterator)) == 4
        assert next(iterator, None) is None
    for wrong in (-1, 1.5, True):
        with pytest.raises(ValueError, match="prefetch"):
            batches([], prefetch=wrong)


def test_an_error_comes_after_the_batches_before_it():
    def loader():
        yield np.ones(1)
        yield np.ones(2)
        raise KeyError("the third")

    iterator = iter(batches(loader(), prefetch=5))
    assert [next(iterator).shape, next(iterator).shape] == [(1,), (2,)]
    with pytest.raises(KeyError, match="the third"):
        next(iterator)
    assert next(iterator, "over") == "over"


def test_errors_name_the_array():
    with narrow():
        for wide in (np.ones(2), torch.ones(2, dtype=torch.float64)):
            assert next(iter(batches([{"x": [wide]}])))["x"][0].dtype == np.float32
            with refused(), pytest.raises(xgrad.errors.DtypeDisabledError, match=r"'x\.0': float64"):
                list(batches([{"x": [wide]}]))
        (labels,) = batches([torch.tensor([1, 2])])
        assert labels.dtype == np.int32
        with pytest.raises(OverflowError, match="'y': "):
            list(batches([{"y": np.array([1 << 40])}]))
    with pytest.raises(RuntimeError, match=r"'x': .*requires grad"):
        list(batches([{"x": torch.ones(2, requires_grad=True)}]))
    with pytest.raises(TypeError, match=r"'x': .*to_dense"):
        list(batches([{"x": torch.eye(2).to_sparse()}]))


def test_a_step_is_trained_on_batches():
    weight = xgrad.zeros(64, requires_grad=True)
    loader = torch.utils.data.DataLoader(Points(), batch_size=5)
    for batch in batches(loader):
        ((batch["x"] @ weight - batch["pair"].label) ** 2).sum().backward()
    x = torch.stack([Points()[i]["x"] for i in range(10)])
    expected = -2 * (x * torch.arange(10.0)[:, None]).sum(0)
    np.testing.assert_allclose(weight.grad.numpy(), expected.numpy())
