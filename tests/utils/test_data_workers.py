"""The loader's workers: threads that read ahead."""

import gc
import subprocess
import sys
import threading
import time
import weakref

import numpy as np
import pytest

import xgrad
from xgrad.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, get_worker_info


class Numbers(Dataset):
    """Number i; later ones come sooner, so that order is not by chance."""

    def __init__(self, n, delay=0.0):
        self.n, self.delay = n, delay

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        time.sleep(self.delay * (self.n - i))
        return np.float32(i)


class Stream(IterableDataset):
    def __init__(self, n):
        self.first, self.n = 0, n

    def __iter__(self):
        return iter(range(self.first, self.n))


def threads():
    return [t for t in threading.enumerate() if t.name.startswith("DataLoader")]


def all_gone():
    for _ in range(200):
        if not threads():
            return True
        time.sleep(0.01)
    return False


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("options", [{}, {"prefetch_factor": 1}, {"persistent_workers": True}, {"batch_size": None}])
def test_batches_come_in_order(workers, options):
    loader = DataLoader(Numbers(7, 1e-3), **{"batch_size": 2, "num_workers": workers, **options})
    expected = [x.tolist() for x in DataLoader(Numbers(7), batch_size=loader.batch_size)]
    for _ in range(2):
        assert [x.tolist() for x in loader] == expected


def test_out_of_order_every_batch_comes_once():
    loader = DataLoader(Numbers(7, 2e-3), num_workers=3, in_order=False)
    assert sorted(x.item() for x in loader) == list(range(7))


def test_a_worker_knows_itself_and_shares_out_a_stream():
    seen = []

    def init(number):
        info = get_worker_info()
        assert (info.id, info.num_workers) == (number, 2)
        assert info.seed == info.rng.torch_generator.initial_seed()
        size = info.dataset.n // 2
        info.dataset.first = number * size
        info.dataset.n = info.dataset.first + size
        seen.append(number)

    stream = Stream(8)
    loader = DataLoader(stream, batch_size=2, num_workers=2, worker_init_fn=init)
    assert [x.tolist() for x in loader] == [[0, 1], [4, 5], [2, 3], [6, 7]]
    assert sorted(seen) == [0, 1]
    assert (stream.first, stream.n) == (0, 8)
    assert get_worker_info() is None


def test_streams_of_different_lengths():
    class Uneven(IterableDataset):
        def __iter__(self):
            return iter(range(10 * get_worker_info().id, 10 * get_worker_info().id + 1 + 3 * get_worker_info().id))

    # Worker 0 has one sample, worker 1 has four.
    assert [x.tolist() for x in DataLoader(Uneven(), 1, num_workers=2)] == [[0], [10], [11], [12], [13]]


def test_a_stream_that_is_read_by_every_worker_warns():
    class Sized(Stream):
        def __len__(self):
            return self.n

    loader = DataLoader(Sized(2), num_workers=2)
    assert len(loader) == 2
    with pytest.warns(UserWarning, match="was reported to be 2"):
        assert len(list(loader)) == 4


def test_random_numbers_of_workers_are_those_of_the_seed():
    class Noise(Numbers):
        def __getitem__(self, i):
            return xgrad.rand(()), get_worker_info().rng.numpy_generator.random(), get_worker_info().seed

    def epoch(seed):
        loader = DataLoader(Noise(6), num_workers=2, generator=xgrad.Generator().manual_seed(seed))
        return [[x.item() for x in batch] for batch in loader]

    first = epoch(0)
    assert first == epoch(0) != epoch(1)
    assert len({x for x, _, _ in first}) == 6
    assert len({seed for _, _, seed in first}) == 2


def test_an_error_keeps_its_type_and_names_the_worker():
    class Broken(Numbers):
        def __getitem__(self, i):
            if i == 2:
                raise KeyError("sample 2")
            return i

    batches = iter(DataLoader(Broken(4), num_workers=2))
    assert [next(batches).item(), next(batches).item()] == [0, 1]
    with pytest.raises(KeyError, match="sample 2") as error:
        next(batches)
    assert "Caught KeyError in DataLoader worker 0." in error.value.__notes__
    assert next(batches).item() == 3
    del batches, error

    def init(number):
        raise ValueError("no worker")

    with pytest.raises(ValueError, match="no worker"):
        list(DataLoader(Numbers(2), num_workers=1, worker_init_fn=init))

    class NoStream(IterableDataset):
        def __iter__(self):
            raise OSError("no file")

    with pytest.raises(OSError, match="no file"):
        list(DataLoader(NoStream(), num_workers=1))


def test_a_late_batch_is_an_error_and_one_of_the_dataset_stays_its_own():
    with pytest.raises(RuntimeError, match=r"DataLoader timed out after 0\.05 seconds"):
        list(DataLoader(Numbers(1, 0.4), num_workers=1, timeout=0.05))

    class Late(Numbers):
        def __getitem__(self, i):
            raise TimeoutError("of the network")

    with pytest.raises(TimeoutError, match="of the network"):
        list(DataLoader(Late(1), num_workers=1, timeout=5))
    with pytest.raises(AssertionError, match="timeout"):
        list(DataLoader(Numbers(1), timeout=1))


@pytest.mark.parametrize("persistent", [False, True])
def test_threads_end_with_their_iterator(persistent):
    gc.collect()
    assert all_gone()
    loader = DataLoader(Numbers(50), num_workers=2, persistent_workers=persistent)
    for _ in loader:
        break
    if persistent:
        assert [x.item() for x in loader] == list(range(50))  # from the start
        assert len(threads()) == 2
    dataset = weakref.ref(loader.dataset)
    del loader
    gc.collect()
    assert all_gone()
    assert dataset() is None


def test_a_program_ends_quietly_in_the_middle_of_an_epoch():
    """Python takes modules apart before it deletes what a script's names refer to."""
    script = (
        "from xgrad.utils.data import DataLoader\n"
        "batches = iter(DataLoader(range(100), batch_size=2, num_workers=2))\n"
        "next(batches)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stderr) == (0, "")


def test_persistent_workers_are_started_once():
    started = []
    loader = DataLoader(Stream(3), num_workers=1, persistent_workers=True, worker_init_fn=started.append)
    for _ in range(3):
        assert [x.item() for x in loader] == [0, 1, 2]
    assert started == [0]


def test_tensors_that_workers_make():
    x = xgrad.arange(12.0).reshape(6, 2)
    for dataset in (TensorDataset(x), [(row,) for row in x]):
        loader = DataLoader(dataset, 2, num_workers=2)
        with xgrad.lazy():
            found = [batch * 2 for (batch,) in loader]
        assert xgrad.cat(found).tolist() == (x * 2).tolist()


def test_results_are_made_where_the_loaders_thread_puts_tensors():
    with xgrad.device("cpu:1"):
        place = xgrad.tensor(0.0).device
        for samples in (Numbers(1), [1], [1.0], [np.ones(2, np.float32)], [xgrad.ones(2)]):
            for workers in (0, 1):
                (batch,) = DataLoader(samples, num_workers=workers)
                assert batch.device == place


def test_a_set_is_copied_or_shared():
    class NoCopy(Numbers):
        def __copy__(self):
            raise TypeError("not me")

    assert [x.item() for x in DataLoader(NoCopy(2), num_workers=1)] == [0, 1]


class Damaged(Dataset):
    def __len__(self):
        return 12

    def __getitem__(self, i):
        if i in (2, 3, 4):
            raise ValueError(f"sample {i}")
        return np.float32(i)


@pytest.mark.parametrize("options", [{"num_workers": 1}, {"num_workers": 2, "prefetch_factor": 1}])
def test_an_epoch_goes_on_after_errors(options):
    batches, found = iter(DataLoader(Damaged(), **options)), []
    for _ in range(20):
        try:
            found.append(int(next(batches)[0]))
        except ValueError:
            continue
        except StopIteration:
            break
    assert found == [0, 1, 5, 6, 7, 8, 9, 10, 11]
