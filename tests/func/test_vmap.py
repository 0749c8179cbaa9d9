"""func.vmap: operators, views, writes and random numbers over a batch, and what cannot be mapped."""

import gc
import weakref

import numpy as np
import pytest
import torch

import xgrad
from xgrad.func import grad, vmap

from ..oracle import array, as_torch, data, leaf, same_error, values

OPERATORS = {
    "number": lambda T, x: x.sum() * x + 2,
    "two batches": lambda T, x: x * x[0],
    "a matrix product": lambda T, x: x.outer(x) @ x,
    "cat with what is not mapped": lambda T, x: T.cat([x, x * 2, T.ones(1, dtype=x.dtype)]),
    "where": lambda T, x: T.where(x > 0.5, x, 0.0),
    "softmax": lambda T, x: T.nn.functional.softmax(x, -1).log(),
    "linear": lambda T, x: T.nn.functional.linear(x, T.ones(2, 3, dtype=x.dtype), x[:2]),
    "several results": lambda T, x: x.sort(),
    "a scan": lambda T, x: x.cumsum(0).cumprod(0),
    "statistics": lambda T, x: x.std() + x.norm() + x.logsumexp(0),
    "corners": lambda T, x: x.abs() + x.clamp(0, 1) + (x - x).abs() + x.relu(),
    "advanced indexing": lambda T, x: x[T.tensor([2, 0])],
    "a mask": lambda T, x: x.masked_fill(x > 0, 7.0),
    "arg": lambda T, x: x.argmax(),
    "einsum": lambda T, x: T.einsum("i,j->ij", x, x),
}

VIEWS = {
    "select": lambda T, x: x.outer(x)[1],
    "slice": lambda T, x: x.outer(x)[1:, ::2],
    "transpose": lambda T, x: x.outer(x).t(),
    "expand": lambda T, x: x.expand(2, 3),
    "expand in the middle": lambda T, x: x[:, None].expand(3, 2),
    "diagonal": lambda T, x: x.outer(x).diagonal(1),
    "unfold": lambda T, x: x.unfold(0, 2, 1),
    "as_strided": lambda T, x: x.as_strided((2, 2), (1, 1)),
    "reshape that copies": lambda T, x: x.unfold(0, 2, 1).reshape(-1),
    "split": lambda T, x: x.split(2),
    "unbind": lambda T, x: x.unbind(),
    "real of complex": lambda T, x: T.complex(x, x * 2).imag,
    "bits": lambda T, x: x.view(T.int64),
    "in-place view": lambda T, x: x.outer(x * 2).t_(),
}


@pytest.mark.one_in(8)
@pytest.mark.parametrize("function", [*OPERATORS.values(), *VIEWS.values()], ids=[*OPERATORS, *VIEWS])
def test_a_function_is_mapped_entry_by_entry(function):
    """Against PyTorch's vmap, and against one call for each entry."""

    def program(T):
        return T.vmap(lambda x: function(T, x))(data(T, (2, 3)))

    as_torch(program)
    rows = [function(xgrad, row) for row in data(xgrad, (2, 3))]
    many = program(xgrad)
    if isinstance(many, tuple):
        pairs = [(m, xgrad.stack(list(column))) for m, column in zip(many, zip(*rows, strict=True), strict=True)]
    else:
        pairs = [(many, xgrad.stack(rows))]
    for mapped, stacked in pairs:
        np.testing.assert_allclose(array(mapped), array(stacked), rtol=1e-12)


def write_row(T, x):
    y = x.outer(x)
    y[0].mul_(x)
    y.t()[1:].add_(x[0])
    y[:, 2] = x * 3
    return y


def write_at_a_mapped_index(T, x):
    out = x.new_zeros(3)
    out[x.argmax()] = x[0]
    return T.zeros_like(out).add_(out)


@pytest.mark.parametrize("function", [write_row, write_at_a_mapped_index])
def test_writes_through_views_are_mapped(function):
    as_torch(lambda T: T.vmap(lambda x: function(T, x))(data(T, (2, 3))))


def test_a_write_reaches_the_argument():
    def program(T):
        x = data(T, (3, 2))
        T.vmap(lambda column: column[1:].mul_(2), in_dims=1)(x)
        return x

    as_torch(program)


def test_dimensions_of_arguments_and_results():
    def program(T):
        x, y = data(T, (2, 3)), data(T, (3, 2), 1)
        swap = T.vmap(lambda a, b: (a * b, a.sum()), in_dims=(0, 1), out_dims=(1, 0))
        nested = T.vmap(T.vmap(lambda a, b: a * b, in_dims=(None, 0)), in_dims=(0, None))
        tree = T.vmap(lambda d: {"sum": d["a"].sum() + d["b"][0]}, in_dims=({"a": 0, "b": (None,)},))
        same_for_all = T.vmap(lambda a: (a, x), out_dims=(0, None))
        return swap(x, y), nested(x[0], x[1]), tree({"a": x, "b": (x[0, 0],)}), same_for_all(x), T.vmap(lambda a: x)(x)

    as_torch(program)


def test_chunks_give_what_the_whole_gives():
    x = data(xgrad, (2, 3))
    one = vmap(lambda a: (a * 2, a.sum()), chunk_size=1, out_dims=(1, 0))(x)
    whole = vmap(lambda a: (a * 2, a.sum()), out_dims=(1, 0))(x)
    for part, all_at_once in zip(one, whole, strict=True):
        np.testing.assert_array_equal(array(part), array(all_at_once))


@pytest.mark.parametrize(
    ("function", "match"),
    [
        (lambda T, x: T.zeros(3).copy_(x), "inplace arithmetic"),
        (lambda T, x: T.zeros(3)[1:].add_(x[1:]), "inplace arithmetic"),
        (lambda T, x: x.sum().item(), r"calling .item\(\) on a Tensor"),
        (lambda T, x: x if x.sum() > 0 else x * 2, "data-dependent control flow"),
        (lambda T, x: x.nonzero(), "dynamic shape"),
        (lambda T, x: T.rand(2), "randomness error mode"),
        (lambda T, x: 3.0, "must only return Tensors"),
        (lambda T, x: (x * 2).requires_grad_(), "requires_grad_"),
    ],
    ids=["write", "write to a view", "item", "branch", "nonzero", "random", "number", "requires_grad_"],
)
def test_what_cannot_be_mapped_is_refused(function, match):
    same_error(lambda T: T.vmap(lambda x: function(T, x))(data(T, (2, 3))), match)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"in_dims": 2}, "Got in_dim=2 for some input"),
        ({"in_dims": (0, 0)}, "in_dims is not compatible with the structure of `inputs`"),
        ({"in_dims": None}, "expected `in_dims` to be int or a"),
        ({"in_dims": (None,)}, "at least one Tensor to vmap over"),
        ({"out_dims": (0, 0)}, "out_dims is not compatible with the structure of `outputs`"),
        ({"out_dims": "a"}, "must be an int, None or a python collection"),
        ({"out_dims": None}, "can not return a BatchedTensor when out_dim is None"),
        ({"randomness": "none"}, "Only allowed values for randomness"),
        ({"chunk_size": 0}, "chunk_size should be None or greater than 0"),
    ],
)
def test_wrong_arguments(options, match):
    same_error(lambda T: T.vmap(lambda x: x, **options)(data(T, (2, 3))), match)


def test_sizes_that_differ():
    same_error(lambda T: T.vmap(lambda x, y: x)(data(T, (2, 3)), data(T, (3, 2))), "same size in the mapped dimension")
    same_error(lambda T: T.vmap(lambda: 1)(), "got no inputs")
    same_error(lambda T: T.vmap(lambda x: x)(3), "We cannot vmap over non-Tensor arguments")


@pytest.mark.exhaustive
def test_randomness():
    x = xgrad.zeros(4, 2)
    xgrad.manual_seed(0)
    different = vmap(lambda a: xgrad.rand(2) + a, randomness="different")(x)
    same = vmap(lambda a: xgrad.rand(2) + a, randomness="same")(x)
    dropped = vmap(lambda a: xgrad.nn.functional.dropout(a + 1, 0.5), randomness="different")(xgrad.zeros(4, 50))
    assert len({tuple(row) for row in different.tolist()}) == 4
    assert len({tuple(row) for row in same.tolist()}) == 1
    assert len({tuple(row) for row in dropped.tolist()}) == 4
    filled = vmap(lambda a: a.clone().normal_(), randomness="different")(x)
    assert len(set(filled.reshape(-1).tolist())) == 8
    nested = vmap(vmap(lambda a: xgrad.randn(()), randomness="different"), randomness="same")(x)
    assert len({tuple(row) for row in nested.tolist()}) == 1
    assert len(set(nested[0].tolist())) == 2
    xgrad.manual_seed(0)
    again = vmap(lambda a: xgrad.rand(2) + a, randomness="different")(x)
    np.testing.assert_array_equal(array(again), array(different))


@pytest.mark.exhaustive
def test_gradients_go_through():
    """To what is mapped and to what is not, by the operators' own formulas, and twice."""

    def program(T):
        x, w = leaf(T, 2, 3), leaf(T, 3, seed=1)

        def function(row):
            y = row.exp() * w
            y[1:].mul_(row[0])
            return (y * y).sum() + (row - row).abs().sum() + w.amax()

        out = T.vmap(function)(x)
        first = T.autograd.grad(out.sum(), (x, w), create_graph=True)
        return out, first, T.autograd.grad(sum((g * g).sum() for g in first), (x, w))

    as_torch(program)


def test_saved_values_and_hooks_belong_to_the_level_below():
    x = leaf(xgrad, 2, 3)
    packed = []
    with xgrad.autograd.graph.saved_tensors_hooks(lambda t: packed.append(tuple(t.shape)) or t, lambda t: t):
        y = vmap(lambda row: row.exp() * row)(x)
    assert set(packed) == {(2, 3)}
    y.sum().backward()
    np.testing.assert_allclose(array(x.grad), np.exp(values((2, 3))) * (1 + values((2, 3))))


def test_a_tensor_that_outlives_its_vmap_is_refused():
    kept = []
    vmap(lambda x: kept.append(x) or x)(data(xgrad, (2, 3)))
    with pytest.raises(RuntimeError, match="used after vmap has returned"):
        kept[0] * 2


def test_after_an_error_nothing_is_mapped():
    def fails(x):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        vmap(fails)(data(xgrad, (2, 3)))
    assert not xgrad.config.state.vmap_levels
    y = leaf(xgrad, 3)
    (y * y).sum().backward()
    np.testing.assert_allclose(array(y.grad), 2 * values((3,)))


def test_nothing_is_kept():
    gc.disable()
    try:
        x = leaf(xgrad, 2, 3)
        y = vmap(lambda row: (row * row).exp())(x)
        node = weakref.ref(y.grad_fn)
        y.sum().backward()
        del y
        assert node() is None
        watched = []
        g = vmap(grad(lambda row: watched.append(weakref.ref(row)) or (row * row).sum()))(x)
        assert watched[0]() is None
        del g
    finally:
        gc.enable()


def test_anomaly_mode_finds_an_entry():
    x = xgrad.tensor([[1.0], [0.0]], requires_grad=True)
    with pytest.warns(UserWarning, match="Anomaly Detection|Error detected in"):  # noqa: SIM117
        with pytest.raises(RuntimeError, match="returned nan values"), xgrad.autograd.detect_anomaly():
            vmap(grad(lambda row: (row * 0 / row).sum()))(x)


def test_repr_says_what_it_is():
    shown = []
    vmap(lambda x: shown.append(repr(x)) or x)(xgrad.zeros(2, 3))
    assert shown[0].startswith("BatchedTensor(lvl=1, bdim=0, value=")
    assert "tensor([[0., 0., 0.]" in shown[0]
    assert torch.vmap(lambda x: shown.append(repr(x)) or x)(torch.zeros(2, 3)) is not None
    assert shown[1].startswith("BatchedTensor(lvl=1, bdim=0, value=")


def test_a_batch_of_root_gradients():
    def program(T):
        x = leaf(T, 2, 3)
        y = x * x
        y[0].mul_(x[1])
        batch = data(T, (4, 2, 3), 1)
        first = T.autograd.grad(y, x, batch, is_grads_batched=True, create_graph=True)
        return first, T.autograd.grad(first[0].sum(), x)

    as_torch(program)
