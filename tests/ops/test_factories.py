"""Tensors from data and from sizes: dtypes as torch's, nothing narrowed, placed where asked, ours to donate."""

import array
import enum
import subprocess
import sys
from collections import UserList, deque

import jax
import numpy as np
import pytest
import torch
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import xgrad

from ..oracle import as_torch, same, same_error

DATA = [
    range(3), [range(2), [5, 6]],
    3, 2.5, True, 1j, [], [1, 2], [[1, 2.5], [True, 0]], [1j, 2], [[], []], (1, [2][0]),
    deque([1.0, 2.0]), [deque([1, 2.5]), (3, 4)], UserList([1, 2]), array.array("f", [1, 2]), bytearray(b"ab"), deque(),
    np.float64(1.5), [np.float32(1.5), 2], [np.int32(1)], [np.bool_(True)],
    np.arange(3, dtype=np.int16), np.ones((2, 2), np.float32), np.array(2 + 1j), np.zeros((0, 3)),
]  # fmt: skip


@pytest.mark.parametrize("data", DATA, ids=repr)
def test_tensor_infers_the_dtype(data):
    as_torch(lambda T: T.tensor(data))


@pytest.mark.filterwarnings("ignore:To copy construct from a tensor")
def test_tensor_of_tensors_is_a_new_leaf_outside_of_the_graph():
    def program(T):
        x = T.tensor([1.0, 2.0], requires_grad=True)
        return T.tensor([[x[0].detach(), 3], [x[1].detach(), 4]]), T.as_tensor(x) is x, T.asarray([1, 2])

    as_torch(program)
    x = xgrad.tensor([1.0], requires_grad=True)
    assert not xgrad.tensor(x * 2).requires_grad


class Metres(float):
    pass


class Count(int):
    pass


class Phasor(complex):
    pass


class Plain(enum.Enum):
    MEMBER = 1


class Label(enum.IntEnum):
    CAT = 1
    DOG = 2


def test_numbers_of_subclasses_are_numbers():
    def program(T):
        numbers = Metres(1.5), Count(3), Phasor(1j), Label.DOG
        return (
            *(T.tensor(n) for n in numbers),
            *(T.as_tensor([n, True]) for n in numbers),
            T.tensor([[Count(3), 4], (Label.CAT, Label.DOG)]),
            T.tensor([Label.DOG, Metres(2.5)]),
            T.tensor([Metres(2.5), 3], dtype=T.int64),
            T.tensor([Count(3), Label.CAT], dtype=T.float64),
            T.tensor([Metres(2.5), np.float64(1)]),
            T.Tensor([Metres(1), Count(2)]),
            T.zeros(1).new_tensor([Label.DOG]),
        )

    as_torch(program)


def test_arrays_of_others_are_copied_and_never_donated():
    mine = np.zeros(3)
    array = jax.numpy.zeros(3)
    tensors = [xgrad.tensor(mine), xgrad.from_numpy(mine), xgrad.as_tensor(mine), xgrad.as_tensor(array)]
    mine += 1
    for t in tensors:
        t.add_(5)
        assert t.tolist() == [5, 5, 5]
    assert array.tolist() == [0, 0, 0]
    assert mine.tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    ("program", "match"),
    [
        (lambda T: T.tensor([[1, 2], [3]]), "expected sequence"),
        (lambda T: T.tensor(["abc"]), "too many dimensions 'str'"),
        (lambda T: T.tensor([None]), "Could not infer dtype of NoneType"),
        (lambda T: T.tensor([Plain.MEMBER]), "Could not infer dtype of Plain"),
        (lambda T: T.tensor({0: 1}), "Could not infer dtype of dict"),
        (lambda T: T.tensor({0}), "Could not infer dtype of set"),
        (lambda T: T.tensor(map(int, [1])), "Could not infer dtype of map"),
        (lambda T: T.from_numpy([1]), "expected np.ndarray"),
        (lambda T: T.zeros(-1), "negative dimension"),
        (lambda T: T.zeros(2.0), "int"),
        (lambda T: T.arange(3, 1), "inconsistent with step sign"),
        (lambda T: T.arange(1, 3, 0), "step must be nonzero"),
        (lambda T: T.arange(0, float("inf")), "unsupported range: 0 -> inf"),
        (lambda T: T.arange(float("nan")), "unsupported range: 0 -> nan"),
        (lambda T: T.arange(1j), "value cannot be converted to type double without overflow"),
        (lambda T: T.arange(2, dtype=T.bool), "not implemented for 'Bool'"),
        (lambda T: T.linspace(0, 1, -1), "must be non-negative"),
        (lambda T: T.eye(-1), "greater or equal to 0"),
        (lambda T: T.zeros(2, dtype=T.int64, requires_grad=True), "can require gradients"),
    ],
)
def test_wrong_arguments(program, match):
    same_error(program, match)


@pytest.mark.parametrize("make", [lambda: xgrad.full((2,), 300, dtype=xgrad.uint8), lambda: xgrad.tensor(2**70)])
def test_integer_that_does_not_fit_is_an_overflow(make):
    with pytest.raises(OverflowError, match="Overflow"):
        make()


FACTORIES = {
    "sizes": lambda T: (
        T.zeros(2, 3),
        T.ones((2, 3)),
        T.zeros(size=(2,)),
        T.zeros(()),
        T.ones(0, 2),
        T.ones(T.Size([2])),
    ),
    "dtype": lambda T: (T.zeros(2, dtype=T.int32), T.ones(2, dtype=T.bool), T.ones(2, dtype=T.complex128)),
    "full": lambda T: (T.full((2,), 3), T.full((2,), 3.5), T.full((2,), True), T.full((2,), 1j), T.full((), 2)),
    "full_dtype": lambda T: (T.full((2,), 2.5, dtype=T.int64), T.full_like(T.ones(2), 7), T.ones(2).new_full((1,), 2)),
    "like": lambda T: (T.zeros_like(T.ones(2, 3, dtype=T.int16)), T.ones_like(T.zeros(2), dtype=T.float64)),
    "new": lambda T: (
        T.ones(2, dtype=T.float64).new_zeros(3, 1),
        T.ones(2).new_tensor([1, 2]),
        T.ones(1).new_ones((2,)),
    ),
    "arange": lambda T: (
        T.arange(5),
        T.arange(1, 2.5, 0.5),
        T.arange(5, 0, -2),
        T.arange(0),
        T.arange(3, dtype=T.float32),
    ),
    "arange_dtype": lambda T: (T.arange(0, 5, 1.5, dtype=T.int64), T.arange(0, 5, 1.5, dtype=T.int32)),
    "linspace": lambda T: (
        T.linspace(0, 1, 5),
        T.linspace(3, -3, 4, dtype=T.int64),
        T.linspace(0, 1, 1),
        T.linspace(0, 1, 0),
    ),
    "logspace": lambda T: (T.logspace(0, 2, 3), T.logspace(0, 3, 4, base=2, dtype=T.float64)),
    "eye": lambda T: (T.eye(2), T.eye(2, 3, dtype=T.int64)),
    "triangles": lambda T: (T.tril_indices(3, 4, 1), T.triu_indices(3, 3, -1)),
    "out": lambda T: (T.zeros(2, out=T.ones(2)), T.arange(3, out=T.empty(3, dtype=T.int64))),
}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", FACTORIES)
def test_factory(name):
    as_torch(FACTORIES[name], rtol=1e-6)


def test_strides_of_layout_factories():
    as_torch(lambda T: T.empty_strided((2, 3), (1, 2)).stride())
    as_torch(lambda T: T.empty_permuted((2, 3, 4), (0, 2, 1)).stride())
    x = xgrad.empty_strided((2, 3), (1, 2), dtype=xgrad.float64, requires_grad=True)
    assert (x.is_leaf, x.requires_grad, x.dtype, x._is_view()) == (True, True, xgrad.float64, False)


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    "make",
    [
        lambda **o: xgrad.zeros(4, **o),
        lambda **o: xgrad.randn(4, **o),
        lambda **o: xgrad.tensor([1.0, 2, 3, 4], **o),
        lambda **o: xgrad.arange(4, **o),
    ],
)
def test_device_and_sharding(make):
    second = jax.devices()[1]
    assert make(device=second).device == xgrad.device(second)
    assert make(device="cpu:1")._read().devices() == {second}
    sharding = NamedSharding(Mesh(np.array(jax.devices()[:2]), ("i",)), PartitionSpec("i"))
    x = make(device=sharding)
    assert x.sharding.is_equivalent_to(sharding, 1)
    assert xgrad.ones_like(x).sharding.is_equivalent_to(sharding, 1)
    assert x.new_zeros(3)._read().devices() == set(jax.devices()[:2])


@pytest.mark.eager("addresses")
def test_results_are_donated_by_the_first_write():
    x = xgrad.zeros(64)
    before = x._read().unsafe_buffer_pointer()
    x.add_(1)
    assert x._read().unsafe_buffer_pointer() == before


def test_in_a_trace_data_stays_concrete():
    @jax.jit
    def program(a):
        x = xgrad.as_tensor(a)
        return x[[True, False, True]][xgrad.tensor(1)]._read() + xgrad.zeros_like(x)._read().sum()

    assert program(jax.numpy.arange(3.0)) == 2


NARROW = """
import jax, numpy as np, xgrad
def error(f):
    try:
        return f()
    except Exception as e:
        return type(e).__name__ + ": " + str(e)
assert xgrad.tensor([1, 2]).dtype == xgrad.int32 and xgrad.arange(3).dtype == xgrad.int32
assert xgrad.tensor(np.arange(3)).dtype == xgrad.int32
for f in (lambda: xgrad.tensor(2**31), lambda: xgrad.tensor([2**31]), lambda: xgrad.tensor(np.array([2**31])),
          lambda: xgrad.full((2,), 2**31), lambda: xgrad.arange(2**31, 2**31 + 2)):
    assert "OverflowError" in error(f), error(f)
xgrad.manual_seed(2**40 + 7)
print(xgrad.rand(3, dtype=xgrad.float32).tolist())
"""


def test_without_x64_integers_are_checked_and_seeds_mean_the_same():
    import os

    done = subprocess.run(
        [sys.executable, "-c", NARROW], env={**os.environ, "JAX_ENABLE_X64": "0"}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    xgrad.manual_seed(2**40 + 7)
    assert done.stdout.strip() == str(xgrad.rand(3, dtype=xgrad.float32).tolist())


def test_as_tensor_converts_and_records():
    x = xgrad.ones(2, requires_grad=True)
    y = xgrad.as_tensor(x, dtype=xgrad.float64)
    y.sum().backward()
    same(x.grad, torch.ones(2))


@pytest.mark.parametrize(
    ("args", "options"),
    [((1, 4), {}), ((0, 1, 0.3), {}), ((4, 1, -1.5), {}), ((2, 2), {}), ((0, 4.5, 1.5), {"dtype": "int64"})],
)
def test_range_includes_its_end_and_warns(args, options):
    found = []
    for library in (torch, xgrad):
        with pytest.warns(UserWarning, match="range is deprecated"):
            found.append(library.range(*args, **{k: getattr(library, v) for k, v in options.items()}).numpy())
    assert found[0].dtype == found[1].dtype
    np.testing.assert_allclose(found[1], found[0], rtol=1e-6)


@pytest.mark.filterwarnings("ignore:.*range is deprecated")
@pytest.mark.parametrize("args", [(0, 4, 0), (0, 4, -1), (0, float("inf")), (3,)])
def test_ranges_without_an_end_are_refused(args):
    same_error(
        lambda lib: lib.range(*args), "step must be nonzero|inconsistent with step sign|unsupported range|missing"
    )


def test_detach_inplace_as_a_function():
    x = xgrad.ones(2, requires_grad=True) * 2
    assert xgrad.detach_(x) is x
    assert x.grad_fn is None
    assert not x.requires_grad
    with pytest.raises(RuntimeError, match="Can't detach views in-place"):
        xgrad.detach_((xgrad.ones(2, requires_grad=True) * 2)[0])


@pytest.mark.parametrize("make", [
    lambda **how: xgrad.zeros(2, **how), lambda **how: xgrad.zeros_like(xgrad.ones(2), **how),
    lambda **how: xgrad.ones(1).new_full((2,), 1.0, **how), lambda **how: xgrad.randn(2, **how),
])  # fmt: skip
def test_a_layout_that_a_factory_does_not_make_is_refused(make):
    assert make(layout=xgrad.strided).shape == make(layout=None).shape == (2,)
    with pytest.raises(NotImplementedError, match="layout=sparse_coo is not implemented: make the tensor without it"):
        make(layout=xgrad.sparse_coo)
