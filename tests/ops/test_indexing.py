"""gather, scatter, index_*, take, put, masks: as torch's, derivatives included; out of range is an IndexError."""

import jax
import numpy as np
import pytest
import torch

import xgrad
from xgrad.autograd import forward_ad

from ..oracle import leaf, same_error
from ..traced import as_torch
from .derivatives import derivatives, numbers, tangents

A, B = numbers(3, 4), numbers(2, 4, seed=1)
V = numbers(3, seed=2)


def i(T, *rows):
    return T.tensor(list(rows))


REDUCED = [("sum", False), ("prod", True), ("prod", False), ("mean", True), ("amax", True), ("amin", False)]


def reduce(kind, include):
    return lambda T, x, y, v: x.scatter_reduce(0, i(T, [0, 1, 2, 0], [0, 1, 0, 2]), y, kind, include_self=include)


PROGRAMS = {
    "gather": lambda T, x, y, v: [
        x.gather(1, i(T, [0, 0], [3, 1])),
        T.gather(v, 0, T.tensor([2, 2])),
        v[0].gather(0, T.tensor(0)),
    ],
    "scatter": lambda T, x, y, v: [
        x.scatter(0, i(T, [0, 1, 2, 0], [1, 0, 1, 2]), y),
        T.scatter(x, 1, i(T, [0], [3]), 2.5),
        x.scatter(1, i(T, [0, 2]), y[:1, :2]),
    ],
    "scatter_add": lambda T, x, y, v: [
        x.scatter_add(0, i(T, [0, 0, 2, 0], [0, 1, 2, 1]), y),
        v.scatter_add(0, T.tensor([1, 1]), v[:2]),
    ],
    "index_select": lambda T, x, y, v: [x.index_select(0, T.tensor([2, 0, 2])), v[0].index_select(0, T.tensor([0]))],
    "index_add": lambda T, x, y, v: [
        x.index_add(0, T.tensor([1, 1]), y),
        T.index_add(x, 0, T.tensor([2, 0]), y, alpha=-2),
    ],
    "index_copy": lambda T, x, y, v: x.index_copy(0, T.tensor([2, 0]), y),
    "index_fill": lambda T, x, y, v: [x.index_fill(1, T.tensor([-1, 0]), 3.0), x.index_fill(0, T.tensor([1, 1]), v[0])],
    "index_reduce": lambda T, x, y, v: [x.index_reduce(0, T.tensor([1, 1]), y, k) for k in ("prod", "amax")],
    "take": lambda T, x, y, v: [
        x.take(i(T, [0, -1], [5, 5])),
        x.put(T.tensor([0, 7, -1]), v),
        x.put(T.tensor([2, 2, 1]), v, True),
    ],
    "take_along_dim": lambda T, x, y, v: [
        T.take_along_dim(x, i(T, [0], [-1], [2]), 1),
        x.take_along_dim(T.tensor([3, 3])),
    ],
    "masked_fill": lambda T, x, y, v: [
        x.masked_fill(x > 0, -1.0),
        x.masked_fill(T.tensor([True, False, True, False]), v[1]),
    ],
    "masked_scatter": lambda T, x, y, v: x.masked_scatter(T.tensor([[True], [False], [True]]), T.cat([y, y])),
    "masked_select": lambda T, x, y, v: [x.masked_select(x > 0), T.masked_select(v, T.tensor([[True], [False]]))],
    "index_put": lambda T, x, y, v: [
        x.index_put((T.tensor([0, 2]), T.tensor([1, -1])), v[:2]),
        x.index_put((T.tensor([0, 0]),), v[0], accumulate=True),
        T.index_put(x, (x > 0,), v[0] * 2),
    ],
    "index_put_none": lambda T, x, y, v: [y.clone().index_put_((T.tensor([True, False]), T.tensor([1, 2])), v[:2])],
    **{f"{k}_{s}": reduce(k, s) for k, s in REDUCED},
}


# torch has no forward mode of these.
REVERSE_ONLY = ("index_reduce", "prod_True", "prod_False")


@pytest.mark.exhaustive
@pytest.mark.one_in(12)
@pytest.mark.filterwarnings("ignore:index_reduce")
@pytest.mark.parametrize("name", PROGRAMS)
def test_values_and_derivatives(name):
    program, arrays = PROGRAMS[name], (A, B, V)
    for got, wanted in zip(derivatives(xgrad, program, arrays, 2), derivatives(torch, program, arrays, 2), strict=True):
        assert got.dtype == wanted.dtype
        np.testing.assert_allclose(got, wanted, rtol=1e-10, atol=1e-12)
    if name in REVERSE_ONLY:
        return
    for got, wanted in zip(tangents(xgrad, program, arrays), tangents(torch, program, arrays), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-10, atol=1e-12)


@pytest.mark.exhaustive
@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", REVERSE_ONLY)
def test_forward_mode_is_the_transpose_of_reverse_mode(name):
    x, y = (xgrad.tensor(a, requires_grad=True) for a in (A, B))
    t, u = xgrad.tensor(numbers(3, 4, seed=5)), xgrad.tensor(numbers(2, 4, seed=6))
    with forward_ad.dual_level():
        out = PROGRAMS[name](xgrad, forward_ad.make_dual(x, t), forward_ad.make_dual(y, u), xgrad.tensor(V))
        out = out[0] if isinstance(out, list) else out
        tangent = forward_ad.unpack_dual(out).tangent
    gx, gy = xgrad.autograd.grad(out.sum(), (x, y))
    np.testing.assert_allclose(tangent.sum().item(), ((gx * t).sum() + (gy * u).sum()).item(), rtol=1e-10)


def test_scatter_takes_a_number_that_is_a_tensor():
    index = [[0], [2]]
    for x, value, options in (
        (np.zeros((2, 3), "float32"), 5, {}), (np.zeros((2, 3), "bool"), True, {}),
        (np.ones((2, 3), "float16"), 3.0, {"reduce": "multiply"}),
    ):  # fmt: skip
        ours = xgrad.tensor(x).scatter_(1, xgrad.tensor(index), value=xgrad.tensor(value), **options)
        theirs = torch.tensor(x).scatter_(1, torch.tensor(index), value=torch.tensor(value), **options)
        assert ours.dtype == x.dtype
        assert ours.tolist() == theirs.tolist()
        plain = xgrad.tensor(x).scatter(1, xgrad.tensor(index), value, **options)
        assert plain.tolist() == theirs.tolist()
    x = xgrad.zeros(2, 3, requires_grad=True)
    x.scatter(1, xgrad.tensor(index), value=xgrad.tensor(2.0)).sum().backward()
    assert x.grad.tolist() == [[0.0, 1.0, 1.0], [1.0, 1.0, 0.0]]
    for wrong in (xgrad.ones(2, 1), xgrad.tensor(1.0, requires_grad=True)):
        with pytest.raises(TypeError, match="without dimensions"):
            x.scatter(1, xgrad.tensor(index), value=wrong)


def test_scatter_with_add():
    x, src = xgrad.ones(3, requires_grad=True), xgrad.tensor([2.0, 3.0], requires_grad=True)
    out = x.scatter(0, xgrad.tensor([1, 1]), src, reduce="add")
    assert out.tolist() == [1, 6, 1]
    out[1].backward()
    assert (x.grad.tolist(), src.grad.tolist()) == ([0, 1, 0], [1, 1])
    assert x.scatter(0, xgrad.tensor([1]), 3.0, reduce="multiply").tolist() == [1, 3, 1]


@pytest.mark.one_in(2)
@pytest.mark.parametrize("kind", ["prod", "amax", "amin"])
def test_ties_and_zeros_of_scatter_reduce(kind):
    def program(T):
        x, y = T.tensor([2.0, 0.0, 1.0], requires_grad=True), T.tensor([2.0, 2.0, 0.0, 0.0, 3.0], requires_grad=True)
        out = x.scatter_reduce(0, T.tensor([0, 0, 1, 2, 2]), y, kind)
        return out, T.autograd.grad((out * T.tensor([1.0, 2.0, 3.0])).sum(), (x, y))

    as_torch(program)


INPLACE = {
    "scatter_": lambda T, x: x.scatter_(0, T.tensor([[0, 1, 1]]), 5.0),
    "scatter_add_": lambda T, x: x.scatter_add_(0, T.tensor([[0, 0, 1]]), x.detach()[:1] * 2),
    "index_add_": lambda T, x: x.index_add_(0, T.tensor([1, 1]), T.ones(2, 3, dtype=T.float64)),
    "index_copy_": lambda T, x: x.index_copy_(0, T.tensor([1]), T.ones(1, 3, dtype=T.float64)),
    "index_fill_": lambda T, x: x.index_fill_(1, T.tensor([0, 2]), 7),
    "put_": lambda T, x: x.put_(T.tensor([0, 4]), T.ones(2, dtype=T.float64)),
    "masked_fill_": lambda T, x: x.masked_fill_(T.tensor([True, False, True]), 9.0),
    "masked_scatter_": lambda T, x: x.masked_scatter_(T.tensor([True, False, True]), T.ones(6, dtype=T.float64)),
    "index_put_": lambda T, x: x.index_put_((T.tensor([0, 0]),), T.ones(3, dtype=T.float64), accumulate=True),
    "tril_": lambda T, x: x.tril_(),
}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", INPLACE)
def test_inplace_on_a_view_writes_the_base_and_backpropagates(name, path):
    def program(T):
        x = leaf(T, 3, 2)
        base = x * 1
        view = base.t()[:, :3]
        out = INPLACE[name](T, view)
        assert out is view
        base.sum().backward()
        return base, x.grad

    as_torch(program)


@pytest.mark.parametrize(
    ("program", "match"),
    [
        (lambda T: T.ones(3, 4).gather(0, T.tensor([[7]])), "index 7 is out of bounds for dimension 0 with size 3"),
        (lambda T: T.ones(3, 4).gather(0, T.tensor([[-1]])), "index -1 is out of bounds"),
        (
            lambda T: T.ones(3, 4).scatter(1, T.tensor([[4]]), 1.0),
            "index 4 is out of bounds for dimension 1 with size 4",
        ),
        (lambda T: T.ones(3, 4).scatter_(1, T.tensor([[4]]), 1.0), "index 4 is out of bounds"),
        (lambda T: T.ones(3).index_select(0, T.tensor([3])), "index 3 is out of bounds"),
        (lambda T: T.ones(3).index_add(0, T.tensor([-1]), T.ones(1)), "index -1 is out of bounds"),
        (lambda T: T.ones(3).index_fill(0, T.tensor([-4]), 1.0), "index -4 is out of bounds"),
        (lambda T: T.ones(3).take(T.tensor([3])), "index 3 is out of bounds"),
        (lambda T: T.ones(3).index_put_((T.tensor([3]),), T.ones(1)), "index 3 is out of bounds"),
    ],
)
def test_out_of_range_is_an_index_error(program, match):
    assert isinstance(torch_error(program), (IndexError, RuntimeError))
    with pytest.raises(IndexError, match=match):
        program(xgrad)


def torch_error(program):
    with pytest.raises(Exception) as caught:  # noqa: PT011 - IndexError here, RuntimeError there
        program(torch)
    return caught.value


@pytest.mark.parametrize(
    ("program", "match"),
    [
        (lambda T: T.ones(3, 4).gather(0, T.tensor([0])), "same number of dimensions"),
        (lambda T: T.ones(3, 4).gather(0, T.zeros(1, 9, dtype=T.int64)), "no larger than self"),
        (lambda T: T.ones(3).scatter(0, T.tensor([0]), T.tensor([1])), "self.dtype to be equal to src.dtype"),
        (lambda T: T.ones(3).scatter_add(0, T.tensor([0, 1]), T.ones(1)), "no larger in any dimension|to be no larger"),
        (lambda T: T.ones(3).scatter_reduce(0, T.tensor([0]), T.ones(1), "most"), "reduce argument must be"),
        (lambda T: T.ones(3, 4).index_select(0, T.tensor([[0]])), "Index is supposed to be a vector"),
        (lambda T: T.ones(3).masked_fill(T.ones(3), 1.0), "only supports boolean masks"),
        (lambda T: T.ones(3).masked_fill(T.ones(3) > 0, T.ones(2)), "0-dimensional value tensor"),
        (lambda T: T.ones(3).masked_scatter(T.tensor([True] * 3), T.ones(2)), "elements of source < number of ones"),
        (lambda T: T.ones(3).index_put((T.tensor([0]),), T.tensor([1])), "source and destination dtypes match"),
        (lambda T: T.ones(3).index_put((T.tensor([0]),), T.ones(2)), "cannot be broadcast to indexing result"),
    ],
)
def test_wrong_arguments(program, match):
    same_error(program, match)


def test_nothing_is_changed_before_an_error():
    x = xgrad.zeros(3)
    with pytest.raises(IndexError):
        x.index_fill_(0, xgrad.tensor([0, 5]), 1.0)
    assert (x.tolist(), x._version) == ([0, 0, 0], 0)


def test_what_is_not_zero():
    x = [[0.0, 2.0], [np.nan, 0.0]]
    as_torch(lambda T: (T.tensor(x).nonzero(), T.nonzero(T.tensor(x), as_tuple=True), T.argwhere(T.tensor(x))))
    as_torch(lambda T: (T.tensor(3).nonzero(), T.tensor(0).nonzero(), T.zeros(0, 2).nonzero()))
    as_torch(lambda T: (T.tensor(x).nonzero_static(size=1), T.tensor(x).nonzero_static(size=3, fill_value=7)))
    as_torch(lambda T: T.unravel_index(T.tensor([0, 5, 11]), (3, 4)))


def test_in_a_trace_indices_are_not_read_and_masks_say_what_to_do():
    @jax.jit
    def taken(a, i):
        return xgrad.as_tensor(a).index_select(0, xgrad.as_tensor(i))._read()

    assert np.isnan(taken(np.arange(3.0), np.array([9]))[0])
    with pytest.raises(RuntimeError, match=r"depends on values.*masked_fill"):
        jax.jit(lambda a: xgrad.as_tensor(a).nonzero()._read())(np.arange(3.0))


def test_only_the_index_is_saved():
    x = xgrad.ones(3, 4, requires_grad=True)
    index = xgrad.tensor([[0, 1]])
    for out in (x.gather(1, index), x.index_select(0, index[0]), x.take(index), x[index[0]]):
        assert all(s.dtype == xgrad.int64 for s in out.grad_fn.saved)
    assert x[index[0]].grad_fn.name() == "IndexBackward0"


@pytest.mark.exhaustive
@pytest.mark.one_in(4)
@pytest.mark.parametrize("kind", ["sum", "mean", "prod"])
def test_complex_numbers_are_combined_and_differentiated(kind):
    """PyTorch has the values alone, and refuses to differentiate them."""
    x, y = A[:, :2] + 1j * A[:, 2:], B[:, :2] + 1j * B[:, 2:]
    index = [[0, 1], [0, 2]]
    leaves = [xgrad.tensor(a, requires_grad=True) for a in (x, y)]
    found = leaves[0].scatter_reduce(0, xgrad.tensor(index), leaves[1], kind)
    expected = torch.tensor(x).scatter_reduce(0, torch.tensor(index), torch.tensor(y), kind)
    np.testing.assert_allclose(found.detach().numpy(), expected.numpy())
    assert xgrad.autograd.gradcheck(lambda a, b: a.scatter_reduce(0, xgrad.tensor(index), b, kind), leaves)


def test_complex_numbers_have_no_order():
    x = xgrad.tensor([1j, 2.0])
    for function in (x.scatter_reduce, x.index_reduce):
        with pytest.raises(NotImplementedError, match="not implemented for 'Complex"):
            function(0, xgrad.tensor([0, 1]), x, "amax")
