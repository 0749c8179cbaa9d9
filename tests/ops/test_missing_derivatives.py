"""Operators without a derivative: refused in backward as by torch, and what they write over has a tangent of zeros."""

import pytest
import torch

import xgrad

from ..oracle import array, as_torch, data, leaf, outcome, same, same_error

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script`:DeprecationWarning")

MISSING = {
    "unique": lambda T, x: x.unique(),
    "unique with its inverse": lambda T, x: T.unique(x, return_inverse=True)[0],
    "unique of rows": lambda T, x: x.unique(dim=0),
    "unique_consecutive": lambda T, x: x.unique_consecutive(),
    "histogram": lambda T, x: T.histogram(x, 3).hist,
    "edges of a histogram": lambda T, x: T.histogram(x, 3).bin_edges,
    "weights of a histogram": lambda T, x: T.histogram(x.detach(), 3, weight=x).hist,
    "floor_divide": lambda T, x: x.floor_divide(2.0),
    "//": lambda T, x: x // 2.0,
    "reflected //": lambda T, x: 2.0 // x,
    "divisor of //": lambda T, x: x.detach() // x,
    "floor_divide_": lambda T, x: x.clone().floor_divide_(2.0),
}


@pytest.mark.one_in(12)
@pytest.mark.parametrize("name", MISSING)
def test_a_derivative_that_nobody_has_is_refused_in_backward(name):
    results = {T: MISSING[name](T, leaf(T, 2, 3)) for T in (torch, xgrad)}
    ours, theirs = results[xgrad], results[torch]
    assert ours.requires_grad
    assert ours.grad_fn.name() == theirs.grad_fn.name()
    said = str(outcome(lambda T: results[T].sum().backward(retain_graph=True), torch)).rstrip(".").replace("_ ", " ")
    assert said.endswith("is not implemented")
    with pytest.raises(NotImplementedError, match=said):
        ours.sum().backward(retain_graph=True)
    with pytest.raises(NotImplementedError, match=said):
        ours.sum().backward(create_graph=True)


def test_it_is_refused_in_a_compiled_backward_too():
    with pytest.raises(NotImplementedError, match="derivative for aten::floor_divide is not implemented"):
        ((leaf(xgrad, 2, 3) * 2) // 2.0).sum().backward(compiled=True)


def test_what_is_not_differentiated_through_it_has_its_gradient():
    def program(T):
        x, y = leaf(T, 2, 3), leaf(T, 2, 3, seed=1)
        ((x // 2.0).detach() * y).sum().backward()
        with T.no_grad():
            low = x // 2.0
        return low, low.requires_grad, x.grad, y.grad

    as_torch(program)


@pytest.mark.parametrize("name", ["floor_divide", "floor_divide_", "unique"])
def test_forward_mode_refuses_it_and_changes_nothing(name):
    def program(T):
        with T.autograd.forward_ad.dual_level():
            x = T.autograd.forward_ad.make_dual(data(T, (2, 3)), data(T, (2, 3), 1))
            try:
                getattr(x, name)(*[2.0][: name != "unique"])
            finally:
                assert array(x).tolist() == array(data(T, (2, 3))).tolist()

    with pytest.raises(NotImplementedError, match="forward AD"):
        program(torch)
    with pytest.raises(NotImplementedError, match=r"Trying to use forward AD with .* that does not support it"):
        program(xgrad)


UNARY = ("logical_not_", "zero_", "sign_", "floor_")
BINARY = (
    "eq_", "ne_", "lt_", "le_", "gt_", "ge_", "logical_and_", "logical_or_", "logical_xor_",
)  # fmt: skip
KEPT = ("logical_not_", "logical_and_", "logical_or_", "logical_xor_")  # torch leaves their tangents as they were


def _written(T, name, which):
    """Value and tangent after an in-place operation on a dual tensor, a view of one, or with a dual operand."""
    fw = T.autograd.forward_ad
    with fw.dual_level():
        base, other = data(T, (2, 3)), data(T, (2, 3), 1)
        x = base
        if which == "other":
            other = fw.make_dual(other, data(T, (2, 3), 3))
        else:
            base = x = fw.make_dual(base, data(T, (2, 3), 2))
            if which == "view":
                x, other = base[1], other[1]
        getattr(x, name)(*[other][: name in BINARY])
        value, tangent = fw.unpack_dual(x)
        whole = fw.unpack_dual(base).tangent
        return value.clone(), None if tangent is None else tangent.clone(), None if whole is None else whole.clone()


@pytest.mark.one_in(12)
@pytest.mark.parametrize("name", UNARY + BINARY)
def test_what_an_operator_without_derivative_writes_over_has_no_tangent(name):
    for which in ("self", "view", "other"):
        if which == "other" and name not in BINARY:
            continue
        value, tangent, whole = _written(xgrad, name, which)
        theirs = _written(torch, name, which)
        same(value, theirs[0])
        if which == "other":
            assert tangent is None or not array(tangent).any()
            continue
        assert not array(tangent).any()
        if name not in KEPT:
            same((tangent, whole), theirs[1:])


def _saved_indices(T, index):
    x = leaf(T, 4, 3, 2)
    node = x[index(T, x)].grad_fn
    return node.name(), list(node._saved_indices)


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    "index",
    [
        lambda T, x: T.tensor([0, 1]),
        lambda T, x: (slice(None), T.tensor([0, 1])),
        lambda T, x: (..., T.tensor([0, 1])),
        lambda T, x: (T.tensor([0, 1]), slice(None), T.tensor([1, 0])),
        lambda T, x: (T.tensor([0, 1]), ..., T.tensor([1, 0])),
        lambda T, x: (None, T.tensor([0, 1])),
        lambda T, x: (T.tensor([0, 1]), None, slice(1, None)),
        lambda T, x: (1, T.tensor([0, 1])),
        lambda T, x: (slice(1, None), [0, 1], [1, 0]),
        lambda T, x: (slice(None), T.tensor([True, False, True])),
        lambda T, x: (slice(None), x.detach()[0] > 0),
        lambda T, x: x.detach() > 0,
        lambda T, x: (None, ..., None, T.tensor([0, 1])),
    ],
)
def test_saved_indices_have_a_none_for_each_dimension_before_the_last_that_is_taken_whole(index):
    as_torch(lambda T: _saved_indices(T, index))


def test_half_precision_complex_numbers_are_refused_in_words():
    with pytest.raises(NotImplementedError, match=r"complex32. Use complex64: xgrad.complex64, or cfloat\(\)"):
        xgrad.ones(2).chalf()
    with pytest.raises(NotImplementedError, match=r"xgrad\.chalf is not supported.*complex64"):
        xgrad.chalf
    assert not hasattr(xgrad, "chalf")


def test_a_comparison_written_over_a_leaf_is_refused():
    same_error(lambda T: leaf(T, 2, 3).eq_(1.0), "a leaf Variable that requires grad")
