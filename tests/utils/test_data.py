"""Datasets, samplers, collation and the loader, held against torch's."""

import collections
import itertools

import numpy as np
import pytest
import torch
import torch.utils.data

import xgrad
import xgrad.utils.data

LIBRARIES = (torch, xgrad)
Point = collections.namedtuple("Point", "x y")


def plain(value):
    """A value with lists and dtypes in the place of tensors, the same of both libraries."""
    if isinstance(value, (torch.Tensor, xgrad.Tensor)):
        return "tensor", str(value.dtype).split(".")[-1].split("'")[0], list(value.shape), value.tolist()
    if isinstance(value, dict):
        return type(value).__name__, {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value).__name__, [plain(item) for item in value]
    return value


BATCHES = {
    "tensors": lambda T: [T.ones(2), T.zeros(2)],
    "views": lambda T: [T.arange(6.0).reshape(3, 2)[i] for i in (2, 0)],
    "arrays": lambda T: [np.ones(2, np.float32), np.zeros(2, np.float32)],
    "arrays of float64": lambda T: [np.ones(2), np.zeros(2)],
    "arrays without dimensions": lambda T: [np.array(1.0), np.array(2.0)],
    "scalars": lambda T: [np.float32(1), np.float32(2)],
    "bools of numpy": lambda T: [np.bool_(True), np.bool_(False)],
    "integers": lambda T: [1, 2, 3],
    "bools": lambda T: [True, False],
    "floats": lambda T: [1.0, 2.5],
    "strings": lambda T: ["a", "b"],
    "bytes": lambda T: (b"a", b"b"),
    "tuples": lambda T: [(1, T.ones(2)), (2, T.zeros(2))],
    "lists": lambda T: [[1, "a"], [2, "b"]],
    "dicts": lambda T: [{"x": 1, "y": {"z": 2.0}}, {"x": 3, "y": {"z": 4.0}}],
    "ordered": lambda T: [collections.OrderedDict(x=1), collections.OrderedDict(x=3)],
    "counters": lambda T: [collections.defaultdict(int, x=1), collections.defaultdict(int, x=3)],
    "named tuples": lambda T: [Point(1, T.ones(1)), Point(2, T.zeros(1))],
    "nested": lambda T: [[Point((1, 2.0), {"a": np.ones(1)})], [Point((3, 4.0), {"a": np.zeros(1)})]],
}


@pytest.mark.parametrize("name", BATCHES)
def test_collation_and_conversion(name):
    collated, converted = (
        [plain(function(BATCHES[name](T))) for function in (T.utils.data.default_collate, T.utils.data.default_convert)]
        for T in LIBRARIES
    )
    theirs = [plain(torch.utils.data.default_collate(BATCHES[name](torch))), collated[0]]
    assert theirs[0] == theirs[1]
    assert collated == converted  # torch's pair, xgrad's pair


ERRORS = {
    "other types": lambda T: [object()],
    "None": lambda T: [None, None],
    "text arrays": lambda T: [np.array(["a"])],
    "lengths": lambda T: [[1, 2], [1]],
    "shapes": lambda T: [T.ones(2), T.ones(3)],
    "array shapes": lambda T: [np.ones(2), np.ones(3)],
    "sparse": lambda T: [T.eye(2).to_sparse()],
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_of_collation(name):
    errors = []
    for T in LIBRARIES:
        with pytest.raises(Exception) as error:  # noqa: PT011 - compared below
            T.utils.data.default_collate(ERRORS[name](T))
        errors.append((type(error.value), str(error.value).removeprefix("stack(): ").split()[:5]))
    assert errors[0] == errors[1]


def test_a_function_for_a_type_of_ones_own():
    table = xgrad.utils.data._utils.collate.default_collate_fn_map
    table[Money] = lambda batch, *, collate_fn_map: ("money", len(batch))
    try:
        assert xgrad.utils.data.default_collate([(Money(), 1), (Money(), 2)])[0] == ("money", 2)
    finally:
        del table[Money]


class Money:
    pass


VIEWS = {
    "rows": lambda x: [x[i] for i in (3, 0, 3)],
    "columns": lambda x: [x[:, i] for i in (1, 2)],
    "of a slice": lambda x: [x[1:, 1:][i] for i in (0, 2)],
    "windows": lambda x: [x[i : i + 2] for i in (0, 2, 1)],
    "elements": lambda x: [x[i, j] for i, j in ((0, 1), (3, 2))],
    "transposed": lambda x: [x[i : i + 2].t() for i in (0, 2)],
    "steps": lambda x: [x[i::2] for i in (0, 1)],
    "wholes": lambda x: [x[:], x[:]],
    "unlike": lambda x: [x[0], x[:, 0][:3]],
    "overlapping": lambda x: [x.as_strided((2, 2), (1, 1), i) for i in (0, 3)],
    "expanded": lambda x: [x[i].expand(2, 3) for i in (0, 3)],
    "written": lambda x: [x[i].mul_(2) for i in (0, 1)],
    "negated": lambda x: [(x * 1j)[i].conj() for i in (0, 1)],
}


@pytest.mark.parametrize("name", VIEWS)
def test_views_of_one_tensor(name):
    batches = [
        T.utils.data.default_collate(VIEWS[name](T.arange(12.0).reshape(4, 3))).resolve_conj() for T in LIBRARIES
    ]
    assert batches[0].tolist() == batches[1].tolist()


def test_views_of_what_requires_grad_are_stacked_with_history():
    x = xgrad.arange(6.0).reshape(3, 2).requires_grad_()
    batch = xgrad.utils.data.default_collate([x[2], x[0], x[2]])
    (batch * xgrad.tensor([[1.0], [2.0], [3.0]])).sum().backward()
    assert x.grad.tolist() == [[2, 2], [0, 0], [4, 4]]


def test_a_batch_is_no_alias_of_the_dataset():
    x = xgrad.arange(6.0).reshape(3, 2)
    for dataset in (xgrad.utils.data.TensorDataset(x), [x[i] for i in range(3)]):
        for size in (1, 2):
            for batch in xgrad.utils.data.DataLoader(dataset, batch_size=size):
                (batch[0] if isinstance(batch, list) else batch).zero_()
    assert x.tolist() == [[0, 1], [2, 3], [4, 5]]


def test_a_dataset_that_is_written_gives_new_values():
    x = xgrad.arange(3.0)
    loader = xgrad.utils.data.DataLoader(xgrad.utils.data.TensorDataset(x), batch_size=3)
    next(iter(loader))
    x.add_(1)
    assert next(iter(loader))[0].tolist() == [1, 2, 3]


class Counting:
    """A stream; each worker reads its share."""

    def __new__(cls, T, n):
        class Stream(T.utils.data.IterableDataset):
            def __iter__(self):
                info = T.utils.data.get_worker_info()
                step, first = (info.num_workers, info.id) if info else (1, 0)
                return iter(range(first, n, step))

            def __len__(self):
                return n

        return Stream()


def tensor_dataset(T):
    return T.utils.data.TensorDataset(T.arange(10.0).reshape(5, 2), T.arange(5))


LOADERS = {
    "batches": lambda T: T.utils.data.DataLoader(tensor_dataset(T), batch_size=2),
    "dropped": lambda T: T.utils.data.DataLoader(tensor_dataset(T), batch_size=2, drop_last=True),
    "single": lambda T: T.utils.data.DataLoader(tensor_dataset(T)),
    "without batches": lambda T: T.utils.data.DataLoader(tensor_dataset(T), batch_size=None),
    "sampler": lambda T: T.utils.data.DataLoader(tensor_dataset(T), 2, sampler=[4, -1, 0]),
    "batch_sampler": lambda T: T.utils.data.DataLoader(tensor_dataset(T), batch_sampler=[[4, 0], [1], [2, 3]]),
    "slices": lambda T: T.utils.data.DataLoader(tensor_dataset(T), batch_size=None, sampler=[slice(0, 2), slice(2, 5)]),
    "collate_fn": lambda T: T.utils.data.DataLoader(tensor_dataset(T), 2, collate_fn=lambda items: items[0]),
    "subset": lambda T: T.utils.data.DataLoader(T.utils.data.Subset(tensor_dataset(T), [4, 2, 0]), 2),
    "subset of a subset": lambda T: T.utils.data.DataLoader(
        T.utils.data.Subset(T.utils.data.Subset(tensor_dataset(T), [4, 2, 0]), [1, 2]), 2
    ),
    "concat": lambda T: T.utils.data.DataLoader(T.utils.data.ConcatDataset([tensor_dataset(T)] * 2), 4),
    "sum": lambda T: T.utils.data.DataLoader(tensor_dataset(T) + tensor_dataset(T), 4),
    "stack": lambda T: T.utils.data.DataLoader(T.utils.data.StackDataset(range(5), tensor_dataset(T)), 2),
    "names": lambda T: T.utils.data.DataLoader(
        T.utils.data.StackDataset(a=range(5), b=T.utils.data.Subset(tensor_dataset(T), range(5))), 2
    ),
    "arrays": lambda T: T.utils.data.DataLoader([(np.full(2, i, np.float32), i, {"n": str(i)}) for i in range(5)], 2),
    "stream": lambda T: T.utils.data.DataLoader(Counting(T, 5), batch_size=2),
    "stream, dropped": lambda T: T.utils.data.DataLoader(Counting(T, 5), batch_size=2, drop_last=True),
    "stream without batches": lambda T: T.utils.data.DataLoader(Counting(T, 5), batch_size=None),
    "streams": lambda T: T.utils.data.DataLoader(Counting(T, 2) + Counting(T, 3), batch_size=2),
}


@pytest.mark.parametrize("name", LOADERS)
def test_batches_of_a_loader(name):
    theirs, ours = (LOADERS[name](T) for T in LIBRARIES)
    for _ in range(2):
        assert [plain(batch) for batch in theirs] == [plain(batch) for batch in ours]
    assert len(theirs) == len(ours)


WRONG = {
    "two orders": lambda D, T: D.DataLoader(range(3), shuffle=True, sampler=[1]),
    "batch_sampler": lambda D, T: D.DataLoader(range(3), batch_size=2, batch_sampler=[[1]]),
    "drop_last": lambda D, T: D.DataLoader(range(3), batch_size=None, drop_last=True),
    "batch_size": lambda D, T: D.DataLoader(range(3), batch_size=0),
    "stream, shuffled": lambda D, T: D.DataLoader(Counting(T, 3), shuffle=True),
    "stream, sampler": lambda D, T: D.DataLoader(Counting(T, 3), sampler=[1]),
    "stream, batch_sampler": lambda D, T: D.DataLoader(Counting(T, 3), batch_sampler=[[1]]),
    "workers": lambda D, T: D.DataLoader(range(3), num_workers=-1),
    "timeout": lambda D, T: D.DataLoader(range(3), timeout=-1),
    "prefetch": lambda D, T: D.DataLoader(range(3), prefetch_factor=2),
    "persistent": lambda D, T: D.DataLoader(range(3), persistent_workers=True),
    "set": lambda D, T: setattr(D.DataLoader(range(3)), "batch_size", 2),
    "no samples": lambda D, T: D.DataLoader([], shuffle=True),
    "index": lambda D, T: list(D.DataLoader(tensor_dataset(T), sampler=[7])),
    "tensors": lambda D, T: D.TensorDataset(T.ones(2), T.ones(3)),
    "stack": lambda D, T: D.StackDataset([1], [1, 2]),
    "stack, both": lambda D, T: D.StackDataset([1], a=[1]),
    "stack, none": lambda D, T: D.StackDataset(),
    "concat": lambda D, T: D.ConcatDataset([]),
    "concat of streams": lambda D, T: D.ConcatDataset([Counting(T, 3)]),
    "concat, index": lambda D, T: D.ConcatDataset([[1]])[-2],
    "chain": lambda D, T: list(D.ChainDataset([[1]])),
    "split": lambda D, T: D.random_split(range(3), [1, 1]),
    "fractions": lambda D, T: D.random_split(range(3), [1.5, -0.5]),
    "replacement": lambda D, T: D.RandomSampler(range(3), replacement=1),
    "num_samples": lambda D, T: D.RandomSampler(range(3), num_samples=0),
    "weights": lambda D, T: D.WeightedRandomSampler([[1.0]], 1),
    "weights, count": lambda D, T: D.WeightedRandomSampler([1.0], True),
    "negative weights": lambda D, T: list(D.WeightedRandomSampler([1.0, -1.0], 1)),
    "zero weights": lambda D, T: list(D.WeightedRandomSampler([0.0, 0.0], 1)),
    "too few weights": lambda D, T: list(D.WeightedRandomSampler([1.0], 2, replacement=False)),
    "batches": lambda D, T: D.BatchSampler([1], True, False),
    "batches, dropped": lambda D, T: D.BatchSampler([1], 1, 1),
    "rank": lambda D, T: D.DistributedSampler(range(3), 2, 2),
    "no __getitem__": lambda D, T: D.Dataset()[0],
    "no length": lambda D, T: len(D.DataLoader(D.IterableDataset())),
}


@pytest.mark.parametrize("name", WRONG)
def test_errors(name):
    errors = []
    for T in LIBRARIES:
        with pytest.raises(Exception) as error:  # noqa: PT011 - compared below
            WRONG[name](T.utils.data, T)
        errors.append((type(error.value), str(error.value).split()[:3]))
    assert errors[0] == errors[1]


@pytest.mark.parametrize("lengths", [[3, 7], [0.5, 0.5], [0.3, 0.3, 0.4], [0.26, 0.26, 0.48]])
def test_lengths_of_splits(lengths):
    theirs, ours = (T.utils.data.random_split(range(10), lengths) for T in LIBRARIES)
    assert [len(part) for part in theirs] == [len(part) for part in ours]
    assert sorted(x for part in ours for x in part) == list(range(10))


def test_an_empty_split_warns():
    with pytest.warns(UserWarning, match="Length of split at index 1 is 0"):
        xgrad.utils.data.random_split(range(1), [0.5, 0.5])


def test_orders_are_those_of_the_seed():
    data, g = xgrad.utils.data, xgrad.Generator()
    for make in (
        lambda: data.RandomSampler(range(20), generator=g),
        lambda: data.RandomSampler(range(20), True, 30, generator=g),
        lambda: data.SubsetRandomSampler(range(20), generator=g),
        lambda: data.WeightedRandomSampler([1.0] * 20, 20, False, generator=g),
        lambda: data.random_split(range(20), [20], generator=g)[0],
        lambda: (x.item() for x in data.DataLoader(range(20), shuffle=True, generator=g)),
    ):
        g.manual_seed(3)
        first, second = list(make()), list(make())
        g.manual_seed(3)
        assert list(make()) == first != second
    xgrad.manual_seed(1)
    first = list(data.RandomSampler(range(20)))
    xgrad.manual_seed(1)
    assert list(data.RandomSampler(range(20))) == first


def test_frequencies():
    data, g = xgrad.utils.data, xgrad.Generator().manual_seed(0)
    counts = np.bincount(list(data.WeightedRandomSampler([1.0, 0.0, 3.0], 4000, generator=g)))
    assert counts[1] == 0
    assert abs(counts[2] / 4000 - 0.75) < 0.03
    firsts = [next(iter(data.WeightedRandomSampler(xgrad.tensor([1.0, 3.0]), 2, False, g))) for _ in range(1000)]
    assert abs(np.mean(firsts) - 0.75) < 0.05
    assert sorted(data.RandomSampler(range(3), num_samples=6, generator=g)) == [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize("n", [2, 5, 8])
@pytest.mark.parametrize("drop_last", [False, True])
def test_distributed_samplers_share_the_samples(n, drop_last):
    for rank in range(3):
        theirs, ours = (
            T.utils.data.DistributedSampler(range(n), 3, rank, shuffle=False, drop_last=drop_last) for T in LIBRARIES
        )
        assert list(theirs) == list(ours)
        assert len(theirs) == len(ours)
    samplers = [xgrad.utils.data.DistributedSampler(range(n), 3, rank, drop_last=drop_last) for rank in range(3)]
    for epoch in range(2):
        for sampler in samplers:
            sampler.set_epoch(epoch)
        shared = [i for sampler in samplers for i in sampler]
        assert set(shared) <= set(range(n))
        assert len(set(shared)) == (n // 3 * 3 if drop_last else n)


def test_a_subset_without_getitems_says_so():
    class Doubled(xgrad.utils.data.Subset):
        def __getitem__(self, i):
            return 2 * super().__getitem__(i)

    with pytest.raises(NotImplementedError, match="__getitems__"):
        list(xgrad.utils.data.DataLoader(Doubled(range(3), [0, 1]), 2))


def test_an_overridden_getitem_is_called():
    class Doubled(xgrad.utils.data.TensorDataset):
        def __getitem__(self, i):
            return tuple(2 * x for x in super().__getitem__(i))

    (batch,) = xgrad.utils.data.DataLoader(Doubled(xgrad.arange(3)), 3)
    assert batch[0].tolist() == [0, 2, 4]


def test_lazily_and_compiled():
    data = xgrad.utils.data.TensorDataset(xgrad.arange(8.0).reshape(4, 2), xgrad.arange(4))
    w = xgrad.ones(2, requires_grad=True)

    def step(x, y):
        loss = ((x @ w - y) ** 2).sum()
        return loss, *xgrad.autograd.grad(loss, w)

    expected = [[t.tolist() for t in step(x, y)] for x, y in xgrad.utils.data.DataLoader(data, 2)]
    with xgrad.lazy():
        pending = [step(x, y) for x, y in xgrad.utils.data.DataLoader(data, 2, num_workers=1)]
    assert [[t.tolist() for t in result] for result in pending] == expected
    compiled = xgrad.compile(step)
    assert [[t.tolist() for t in compiled(x, y)] for x, y in xgrad.utils.data.DataLoader(data, 2)] == expected


def test_a_random_sampler_draws_as_it_goes():
    # A trainer may ask for more than fits into memory (minGPT's: 1e10).
    sampler = xgrad.utils.data.RandomSampler(range(7), replacement=True, num_samples=10**13)
    first = list(itertools.islice(sampler, 3000))
    assert set(first) == set(range(7))
    few = xgrad.utils.data.RandomSampler(range(7), replacement=True, num_samples=2500)
    assert len(list(few)) == 2500
