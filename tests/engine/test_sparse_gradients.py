"""Sparse gradients on their way: accumulation case by case, sums at one node, hooks, captures, what nodes make of them.

The numbers are those of the comment in PyTorch's accumulate_grad.h.
"""

import numpy as np
import pytest
import torch

import xgrad
import xgrad.nn.functional

from ..oracle import array, as_torch, data, same_error

INDICES = [[0, 1, 1], [2, 0, 2]]
REPEATED = [[0, 1, 0], [2, 0, 2]]

torch.sparse.check_sparse_tensor_invariants.disable()  # as it is, and without a word about it


def sparse(T, indices=INDICES, requires_grad=False, size=(2, 3), dtype=None):
    values = T.tensor([3.0, 4.0, 5.0], dtype=dtype or T.float64)
    return T.sparse_coo_tensor(T.tensor(indices), values, size, requires_grad=requires_grad)


def leaf(T, *shape):
    return data(T, shape or (2, 3)).requires_grad_()


def dense(x):
    return x.to_dense() if x.is_sparse else x


def functional(T):
    return torch.nn.functional if T is torch else xgrad.nn.functional


def lookup(T, weight, indices, **options):
    return functional(T).embedding(T.tensor(indices), weight, sparse=True, **options)


def give(T, x, gradient):
    """A tensor whose backward sends `gradient` to x, whatever arrives."""

    class Gives(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, grad):
            return gradient

    return Gives.apply(x)


def backward(T, x, gradient, create_graph):
    """Let `gradient` arrive at the leaf x, in grad mode or not."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a cycle by create_graph
        x.backward(gradient, create_graph=create_graph)


# -- AccumulateGrad ---------------------------------------------------------------------------------------------------


def test_case_1_1_first_dense_gradient_is_stolen():
    def program(T):
        x = leaf(T)
        (x * 2).sum().backward()
        return x.grad

    as_torch(program)


def test_case_1_2_first_sparse_gradient_is_shared_and_not_copied():
    x = leaf(xgrad)
    made = []

    class Made(xgrad.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, grad):
            gradient = sparse(xgrad)
            made.append(gradient._entries._read().unsafe_buffer_pointer())
            return gradient

    Made.apply(x).sum().backward()
    assert x.grad.is_sparse
    assert x.grad._entries._read().unsafe_buffer_pointer() == made[0]


@pytest.mark.parametrize("create_graph", [False, True])
def test_case_1_3_first_sparse_gradient_that_somebody_holds_is_another_tensor(create_graph):
    def program(T):
        x, gradient = leaf(T), sparse(T)
        backward(T, x, gradient, create_graph)
        with T.no_grad():
            x.grad.mul_(10)
            gradient._values().mul_(7)
        return [x.grad is gradient, x.grad._values(), gradient._values(), x.grad.is_sparse]

    as_torch(program)


def test_case_1_5_first_dense_gradient_in_grad_mode_is_copied():
    def program(T):
        x, gradient = leaf(T), data(T, (2, 3), 5)
        backward(T, x, gradient, True)
        return [x.grad is gradient, x.grad, x.grad.requires_grad]

    as_torch(program)


@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("new", ["sparse", "dense"])
@pytest.mark.parametrize("old", ["sparse", "dense"])
def test_cases_2_and_3_a_gradient_is_there(old, new, create_graph):
    """2.1 and 3.1: sparse + dense is another, dense tensor; 2.3: the same tensor, changed in place; 3.2: another."""

    def program(T):
        make = {"sparse": lambda: sparse(T, REPEATED), "dense": lambda: data(T, (2, 3), 5)}
        x = leaf(T)
        backward(T, x, make[old](), create_graph)
        first, seen, version = x.grad, dense(x.grad).detach().clone(), x.grad._version
        backward(T, x, make[new](), create_graph)
        kept = first is x.grad
        return [kept, x.grad.is_sparse, x.grad._version - version * kept, dense(x.grad), seen, dense(first)]

    as_torch(program)


@pytest.mark.parametrize("first", ["sparse", "dense"])
def test_gradient_in_place_is_seen_by_those_who_hold_it(first):
    def program(T):
        x = leaf(T)
        x.grad = sparse(T) if first == "sparse" else data(T, (2, 3), 5)
        held = x.grad
        for _ in range(3):
            x.backward(sparse(T, REPEATED))
        return [held is x.grad, dense(held), held._version]

    as_torch(program)


def test_coalesced_gradients_stay_as_small_as_they_are():
    def program(T):
        s, seen = sparse(T, requires_grad=True), []
        for _ in range(3):
            s.to_dense().sum().backward()
            seen += [s.grad._nnz(), s.grad._values()]
        return seen

    as_torch(program)


def test_dense_gradient_of_a_sparse_leaf():
    def program(T):
        s, d = sparse(T, requires_grad=True), leaf(T)
        (d + s).sum().backward()
        first = s.grad
        (d + s).sum().backward()
        same, seen = first is s.grad, s.grad.clone()
        s.to_dense().sum().backward()  # a sparse one into it
        return [same, first is s.grad, s.grad.is_sparse, seen, s.grad]

    as_torch(program)


def test_sparse_then_dense_gradient_of_a_sparse_leaf():
    def program(T):
        s, d = sparse(T, requires_grad=True), leaf(T)
        s.to_dense().sum().backward()
        (d + s).sum().backward()
        return [s.grad.is_sparse, s.grad]

    as_torch(program)


@pytest.mark.eager("addresses")
def test_write_of_a_sparse_gradient_costs_no_copy_of_the_weights():
    w = xgrad.zeros(1000, 8) + 1
    w.requires_grad_()
    lookup(xgrad, w, [3, 3, 7]).sum().backward()
    before = w._read().unsafe_buffer_pointer()
    with xgrad.no_grad():
        w.add_(w.grad, alpha=-0.5)
    assert w._read().unsafe_buffer_pointer() == before
    np.testing.assert_array_equal(array(w.detach())[[0, 3, 7], 0], [1, 0, 0.5])


# -- the buffer of a node ---------------------------------------------------------------------------------------------


@pytest.mark.one_in(6)
@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("order", [0, 1])
@pytest.mark.parametrize("inner", ["leaf", "mul", "view", "function", "clone", "two results"])
def test_sparse_and_dense_gradient_meet_at_a_node(inner, order, create_graph):
    """PyTorch refuses sparse + dense here, in this order and grad mode."""
    T = xgrad
    make = {
        "leaf": lambda x: x,
        "mul": lambda x: x * 2,
        "view": lambda x: x[:],
        "function": lambda x: _Twice(T).apply(x),
        "clone": lambda x: x.clone(),
        "two results": lambda x: T.var_mean(x.reshape(5, 2, 1), 2, correction=0)[1],
    }[inner]

    def run(sparse):
        x = leaf(T, 5, 2)
        node = make(x)
        first = functional(T).embedding(T.tensor([1, 3, 1]), node, sparse=sparse).sum()
        second = (node * data(T, (5, 2), 4)).sum()
        (g,) = T.autograd.grad((first + second, second + first)[order], x, create_graph=create_graph)
        assert not g.is_sparse
        return array(g)

    np.testing.assert_allclose(run(True), run(False), 1e-12)


def _Twice(T):
    class Twice(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return grad * 2

    return Twice


@pytest.mark.exhaustive
@pytest.mark.parametrize("create_graph", [False, True])
def test_two_sparse_gradients_meet_and_stay_sparse(create_graph):
    def program(T):
        x = leaf(T, 5, 2)
        w = x * 2
        out = lookup(T, w, [1, 3, 1]).sum() + (lookup(T, w, [0, 3]) ** 2).sum()
        (g,) = T.autograd.grad(out, x, create_graph=create_graph)
        return [g.is_sparse, g.to_dense()]

    as_torch(program)


# -- what nodes make of a sparse gradient -----------------------------------------------------------------------------

STAY = {
    "number": lambda w: w * 3,
    "matrix": lambda w: w * w.detach(),
    "square": lambda w: w * w,
    "exp": lambda w: w.exp(),
    "sin": lambda w: w.sin(),
    "neg": lambda w: -w,
    "sum": lambda w: w + w.detach(),
    "bias": lambda w: w + w[0].detach(),
    "clone": lambda w: w.clone(),
    "in place": lambda w: w.clone().mul_(2).add_(1),
}


@pytest.mark.one_in(6)
@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("before", STAY.values(), ids=STAY)
def test_pointwise_nodes_keep_it_sparse(before, create_graph):
    def program(T):
        w = leaf(T, 5, 2)
        out = lookup(T, before(w), [1, 3, 1]) ** 2
        (g,) = T.autograd.grad(out.sum(), w, create_graph=create_graph)
        result = [g.is_sparse, g.to_dense()]
        if create_graph:
            result.append(T.autograd.grad((g.to_dense() ** 3).sum(), w)[0].to_dense())
        return result

    as_torch(program, rtol=1e-6)


@pytest.mark.exhaustive
@pytest.mark.parametrize("before", [lambda w: w.float().double(), lambda w: (w * 2).tanh() / 3], ids=["cast", "chain"])
def test_nodes_for_which_torch_has_no_sparse_backward(before):
    def run(sparse):
        w = leaf(xgrad, 5, 2)
        out = functional(xgrad).embedding(xgrad.tensor([1, 3, 1]), before(w), sparse=sparse) ** 2
        (g,) = xgrad.autograd.grad(out.sum(), w)
        assert g.is_sparse == sparse
        return array(dense(g))

    np.testing.assert_allclose(run(True), run(False), 1e-12)


DENSE = {
    "view": lambda T, w: w.view(2, 5).view(5, 2),
    "t": lambda T, w: w.t().contiguous().t(),
    "slice": lambda T, w: T.cat([w, w])[2:7],
    "product": lambda T, w: w @ data(T, (2, 2)),
    "softmax": lambda T, w: T.softmax(w, 1),
    "bias": lambda T, w: data(T, (5, 2)) * w[1],
    "unbind": lambda T, w: w.unbind(1)[0].reshape(5, 1).expand(5, 2),
    "in place through a view": lambda T, w: (lambda y: (y[1].mul_(2), y)[1])(w.clone()),
    "several results": lambda T, w: T.var_mean(w.reshape(5, 2, 1), 2, correction=0)[1],
}


@pytest.mark.one_in(4)
@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("before", DENSE.values(), ids=DENSE)
def test_other_nodes_get_the_dense_gradient(before, create_graph):
    """PyTorch refuses most of these; the gradient is that of the dense embedding."""

    def run(sparse):
        w = leaf(xgrad, 5, 2)
        out = functional(xgrad).embedding(xgrad.tensor([1, 3, 1]), before(xgrad, w), sparse=sparse) ** 2
        return dense(xgrad.autograd.grad(out.sum(), w, create_graph=create_graph)[0])

    np.testing.assert_allclose(array(run(True)), array(run(False)), 1e-12)


def test_gradient_is_cast_and_summed_to_fit():
    x = leaf(xgrad)
    give(xgrad, x, sparse(xgrad, dtype=xgrad.float32)).sum().backward()
    assert x.grad.dtype == xgrad.float64
    assert x.grad.is_sparse
    row = leaf(xgrad, 3)  # smaller than the gradient
    give(xgrad, row, sparse(xgrad)).sum().backward()
    assert row.grad.tolist() == [4, 0, 8]
    real = leaf(xgrad)
    give(xgrad, real, sparse(xgrad, dtype=xgrad.complex128) * 1j).sum().backward()
    assert real.grad.to_dense().tolist() == [[0, 0, 0], [0, 0, 0]]


def test_gradient_of_another_shape_is_refused():
    same_error(
        lambda T: give(T, leaf(T), sparse(T, size=(2, 4))).sum().backward(),
        r"returned an invalid gradient at index 0 - got \[2, 4\] but expected shape compatible with \[2, 3\]",
    )


# -- hooks, captures --------------------------------------------------------------------------------------------------


def test_hooks_see_and_replace_sparse_gradients():
    def program(T):
        log = []

        def note(name, factor=None):
            def hook(*args):
                log.append(
                    [name, *(dense(g) for a in args for g in (a if isinstance(a, tuple) else (a,)) if g is not None)]
                )
                log.append([g.is_sparse for a in args for g in (a if isinstance(a, tuple) else (a,)) if g is not None])
                return args[0] * factor if factor else None

            return hook

        w = leaf(T, 5, 2)
        v = w * 2
        v.retain_grad()
        v.register_hook(note("v", 3))
        w.register_hook(note("w", 5))
        v.grad_fn.register_prehook(note("pre"))
        v.grad_fn.register_hook(note("post"))
        w.register_post_accumulate_grad_hook(lambda t: log.append([t.grad.is_sparse, t.grad.to_dense()]))
        lookup(T, v, [1, 3, 1]).sum().backward()
        return [log, v.grad.is_sparse, v.grad.to_dense(), w.grad.is_sparse, w.grad.to_dense()]

    as_torch(program)


def test_hook_may_not_make_it_dense():
    def program(T):
        w = leaf(T, 5, 2)
        w.register_hook(lambda g: g.to_dense())
        lookup(T, w, [1]).sum().backward()

    same_error(program, "has changed the type of value")


def test_hook_gets_the_dense_gradient_of_a_sparse_leaf():
    def program(T):
        s = sparse(T, requires_grad=True)
        s.register_hook(lambda g: g * 2)
        (leaf(T) + s).sum().backward()
        return s.grad

    as_torch(program)


def test_grad_and_backward_with_inputs_give_sparse_gradients():
    def program(T):
        w = leaf(T, 5, 2)
        v = w * 2
        out = lookup(T, v, [1, 3, 1]).sum()
        captured = T.autograd.grad(out, (v, w), retain_graph=True)
        out.backward(inputs=(v, w))
        return [[g.is_sparse, g.to_dense()] for g in (*captured, v.grad, w.grad)] + [
            T.autograd.grad(w * 2, w, captured[0])[0].to_dense()
        ]

    as_torch(program)


def test_gradients_that_are_equal_are_not_one_tensor():
    w = leaf(xgrad, 5, 2)
    v = w.clone()
    given = xgrad.autograd.grad(lookup(xgrad, v, [1, 3]).sum(), (v, w))
    given[0].mul_(2)
    given[0]._values().mul_(5)
    assert given[1]._values().tolist() == [[1, 1], [1, 1]]


@pytest.mark.filterwarnings("ignore:Anomaly", "ignore:Error detected")
def test_anomaly_mode_looks_into_sparse_gradients():
    w = leaf(xgrad, 5, 2)
    with xgrad.autograd.detect_anomaly():
        lookup(xgrad, w * 2, [1, 3]).sum().backward()
        out = (lookup(xgrad, w * float("inf"), [1]) * 0).sum()
        with pytest.raises(RuntimeError, match="nan values in its 0th"):
            out.backward()
    assert w.grad.is_sparse


def test_function_sees_a_sparse_gradient():
    def program(T):
        kinds = []

        class Looks(T.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x * 1

            @staticmethod
            def backward(ctx, grad):
                kinds.append(grad.is_sparse)
                return grad * 2

        results = []
        for create_graph in (False, True):
            w = leaf(T, 5, 2)
            (g,) = T.autograd.grad(lookup(T, Looks.apply(w * 2), [1, 3, 1]).sum(), w, create_graph=create_graph)
            results += [g.is_sparse, g.to_dense()]
        return [kinds, *results]

    as_torch(program)


# -- embedding --------------------------------------------------------------------------------------------------------


def gradient_parts(g):
    return [g.is_sparse, g._indices(), g._values(), tuple(g.shape), g.is_coalesced()]


@pytest.mark.one_in(2)
@pytest.mark.parametrize("options", [{}, {"padding_idx": 1}, {"padding_idx": -2}, {"max_norm": 0.5}], ids=str)
@pytest.mark.parametrize("indices", [[1, 3, 1], [[1, 3], [0, 4]], []], ids=str)
def test_embedding_gradient_has_an_entry_for_each_index(indices, options):
    def program(T):
        w = leaf(T, 5, 2)
        ids = T.tensor(indices, dtype=T.int64)
        out = functional(T).embedding(ids, w, sparse=True, **options)
        out.backward(data(T, tuple(out.shape), 3))
        return [out, out.grad_fn.name(), *gradient_parts(w.grad)]

    as_torch(program)


def test_embedding_of_one_number():
    def program(T):
        w = leaf(T, 5, 2)
        lookup(T, w, 2).sum().backward()
        return gradient_parts(w.grad)

    as_torch(program)


BAGS = {
    "sum": {"mode": "sum"},
    "mean": {"mode": "mean"},
    "padding": {"mode": "mean", "padding_idx": 3},
    "weighted": {"mode": "sum", "per_sample_weights": True},
    "weighted padding": {"mode": "sum", "per_sample_weights": True, "padding_idx": 3},
    "last": {"mode": "sum", "include_last_offset": True},
}


@pytest.mark.one_in(6)
@pytest.mark.parametrize("options", BAGS.values(), ids=BAGS)
def test_embedding_bag_gradient_is_sparse(options):
    def program(T):
        w, each = leaf(T, 5, 2), data(T, (4,), 8).requires_grad_()
        given = dict(options)
        if "per_sample_weights" in given:
            given["per_sample_weights"] = each
        offsets = T.tensor([0, 2, 2, 4] if "include_last_offset" in given else [0, 2, 2])
        out = functional(T).embedding_bag(T.tensor([1, 3, 1, 4]), w, offsets, sparse=True, **given)
        out.backward(data(T, tuple(out.shape), 3))
        return [out, out.grad_fn.name(), each.grad, *gradient_parts(w.grad)]

    as_torch(program)


def test_double_backward_through_embedding():
    def program(T):
        w = leaf(T, 5, 2)
        (g,) = T.autograd.grad((lookup(T, w, [1, 3, 1]) ** 3).sum(), w, create_graph=True)
        (h,) = T.autograd.grad((g.to_dense() ** 2).sum(), w)
        return [g.is_sparse, g.to_dense(), h.to_dense()]

    as_torch(program)


@pytest.mark.parametrize(
    "call",
    [
        lambda T, w: functional(T).embedding(T.tensor([1]), w, sparse=True, scale_grad_by_freq=True).sum().backward(),
        lambda T, w: T.embedding(w, T.tensor([1]), -1, True, True).sum().backward(),
    ],
)
def test_frequencies_are_refused(call):
    same_error(lambda T: call(T, leaf(T, 5, 2)), "scale_grad_by_freq not supported with sparse gradients")


def test_maximum_of_bags_is_refused():
    same_error(
        lambda T: functional(T).embedding_bag(T.tensor([[1]]), leaf(T, 5, 2), mode="max", sparse=True),
        "max mode does not support sparse weights",
    )


@pytest.mark.exhaustive
def test_inside_of_vmap_the_gradient_is_dense():
    def program(T, sparse):
        w, ids = leaf(T, 3, 5, 2), T.tensor([1, 3, 1])
        F = functional(T)
        out = T.func.vmap(lambda w: F.embedding(ids, w, sparse=sparse) ** 2)(w)
        bags = T.func.vmap(lambda w: F.embedding_bag(ids[None], w, mode="sum", sparse=sparse) ** 2)(w)
        out.sum().backward()
        bags.sum().backward()
        return w.grad

    np.testing.assert_array_equal(array(program(xgrad, True)), array(program(xgrad, False)))


def test_batched_gradients_are_refused_rather_than_wrong():
    w = leaf(xgrad, 5, 2)
    with pytest.raises(NotImplementedError, match="is_grads_batched"):
        xgrad.autograd.grad(lookup(xgrad, w, [1, 3]), w, xgrad.ones(3, 2, 2, dtype=w.dtype), is_grads_batched=True)


def test_under_jit():
    import jax

    def step(array, ids):
        w = xgrad.as_tensor(array).requires_grad_()
        functional(xgrad).embedding(xgrad.as_tensor(ids), w, sparse=True, padding_idx=3).sum().backward()
        with xgrad.no_grad():
            w.add_(w.grad, alpha=-0.5)
        return w._read()

    start = np.ones((5, 2))
    ids = np.array([1, 3, 1])
    np.testing.assert_array_equal(np.asarray(jax.jit(step)(start, ids)), np.asarray(step(start, ids)))


def test_gradient_of_a_leaf_on_another_device_goes_there():
    import jax

    first, second = jax.devices("cpu")[:2]
    w = leaf(xgrad, 5, 2).detach().to(second).requires_grad_()
    lookup(xgrad, w.to(first), [1, 3]).sum().backward()
    assert w.grad.device == w.device
    w.backward(xgrad.sparse_coo_tensor([[1]], [[1.0, 2.0]], (5, 2), dtype=xgrad.float64, device=first))
    assert w.grad.device == w.device
    assert w.grad.to_dense()[1].tolist() == [2, 3]


@pytest.mark.parametrize("name", ["mm", "spmm", "dsmm"])
def test_old_names_of_the_product(name):
    def program(T):
        a = T.tensor([[0.0, 2.0], [1.0, 0.0]]).to_sparse()
        x = T.ones(2, 3, requires_grad=True)
        y = getattr(T, name)(a, x)
        (y * y).sum().backward()
        return y.tolist(), x.grad.tolist()

    assert program(xgrad) == program(torch)
