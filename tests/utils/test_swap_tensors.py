"""utils.swap_tensors exchanges two tensors where they are."""

import pytest
import torch

import xgrad


def both(T):
    a, b = T.nn.Linear(2, 2).weight, T.nn.Parameter(T.arange(3.0))
    first, second = id(a), id(b)
    b.grad = T.ones(3)
    a.note = "a"
    T.utils.swap_tensors(a, b)
    assert (id(a), id(b)) == (first, second)
    (a * a).sum().backward()
    return a.tolist(), a.grad.tolist(), tuple(b.shape), b.note, b.grad, hasattr(a, "note")


def test_as_pytorchs():
    assert both(xgrad) == both(torch)


def test_a_module_has_the_others_value_and_the_optimizer_goes_on():
    linear = xgrad.nn.Linear(2, 1, bias=False)
    optimizer = xgrad.optim.SGD(linear.parameters(), lr=1.0)
    xgrad.utils.swap_tensors(linear.weight, xgrad.nn.Parameter(xgrad.ones(1, 2)))
    linear(xgrad.ones(1, 2)).sum().backward()
    optimizer.step()
    assert linear.weight.tolist() == [[0.0, 0.0]]


def test_a_leaf_of_a_graph_stays():
    a = xgrad.ones(3, requires_grad=True)
    y = a.sin().sum()
    with pytest.raises(RuntimeError, match="cannot swap"):
        xgrad.utils.swap_tensors(a, xgrad.zeros(3))
    y.backward()
    assert a.tolist() == [1.0, 1.0, 1.0]


def test_views_keep_their_base():
    a = xgrad.ones(4)
    view = a[1:]
    for pair in ((a, xgrad.zeros(2)), (xgrad.zeros(2), view)):
        with pytest.raises(RuntimeError, match="a view"):
            xgrad.utils.swap_tensors(*pair)
    view.zero_()
    assert a.tolist() == [1.0, 0.0, 0.0, 0.0]
