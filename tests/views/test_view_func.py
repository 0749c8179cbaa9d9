"""`Tensor._view_func(new_base)`: a view, of another base; against torch."""

import pytest

import xgrad
from tests.oracle import PATHS, as_torch, data, same_error, tracking

VIEWS = {
    "select": lambda b: b[1],
    "slice": lambda b: b[:, 1:],
    "column": lambda b: b[:, 1],
    "view of a view": lambda b: b[1][1:],
    "transpose": lambda b: b.t()[1:],
    "part of a split": lambda b: b.split(1)[1],
    "reshape": lambda b: b.view(3, 2)[2],
    "diagonal": lambda b: b.diagonal(),
}


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("view", VIEWS)
def test_it_shows_the_same_part_of_the_new_base_and_passes_gradients_on(view, path):
    def program(T):
        base = data(T, (2, 3), requires_grad=True).clone()
        seen = VIEWS[view](base)
        other = data(T, (2, 3), seed=1, requires_grad=True)
        new = other.clone()
        again = seen._view_func(new)
        plain = seen._view_func(data(T, (2, 3), seed=2))
        (again * again).sum().backward()
        return again, again._base is new, other.grad, plain, plain.requires_grad, base.grad_fn is not None

    with tracking(path):
        as_torch(program)


def test_a_write_through_it_shows_in_the_new_base():
    def program(T):
        seen = data(T, (2, 3))[1]
        new = data(T, (2, 3), seed=1)
        seen._view_func(new).mul_(2)
        return new

    as_torch(program)


def test_none_where_there_is_no_view_or_another_layout():
    def program(T):
        base = T.arange(6.0).reshape(2, 3)
        v = base[0]
        bases = [T.zeros(3), T.zeros(4, 3), T.zeros(3, 2).t(), T.zeros(4, 3)[2:]]
        return (
            [v._view_func(b) is None for b in bases],
            base._view_func(base) is None,
            v.detach()._view_func(base) is None,
        )

    as_torch(program)


def test_none_for_a_base_of_other_strides_and_of_another_place():
    def program(T):
        row = T.zeros(2, 3)[0]
        bases = [T.zeros(3, 2).t(), T.zeros(4, 3)[2:], T.zeros(4, 3)[::2], T.zeros(2, 3)]
        return [row._view_func(b) is None for b in bases]

    as_torch(program)


def test_the_unsafe_one_refuses_a_base_of_another_shape_for_a_view_of_other_values():
    seen = xgrad.zeros(2, dtype=xgrad.complex64).conj()
    assert seen._view_func_unsafe(xgrad.ones(2, dtype=xgrad.complex64)).is_conj()
    with pytest.raises(RuntimeError, match="bases of one shape only"):
        seen._view_func_unsafe(xgrad.ones(3, dtype=xgrad.complex64))


def test_a_base_of_another_dtype():
    as_torch(lambda T: T.zeros(2, 3)[1]._view_func(T.arange(6).reshape(2, 3)))


def test_wrong_arguments():
    same_error(lambda T: T.zeros(2, 3)[1]._view_func(3), r"argument 'new_base' \(position 1\) must be Tensor, not int")
    same_error(lambda T: T.zeros(2, 3)[1]._view_func(), "missing 1 required positional argument")


def test_the_unsafe_one_takes_any_base_and_visitors():
    def program(T):
        with T.autograd._force_original_view_tracking(True):
            base = T.arange(6.0)
            seen = [base[1:3], base.view(2, 3), base.view(2, 3).t()[1], base.as_strided((2, 2), (1, 2))]
            return [
                base._view_func_unsafe(base),
                base[1:3].detach().as_strided((2,), (1,), 1)._view_func_unsafe(T.arange(8.0)),
                [v._view_func_unsafe(base * 2) for v in seen],
                [v._view_func_unsafe(base * 2, lambda size: size, lambda tensor: tensor) for v in seen],
                [v._view_func(base * 2, symint_visitor_fn=lambda n: n, tensor_visitor_fn=None) for v in seen],
            ]

    as_torch(program)
    assert xgrad.arange(6.0)[1:3]._view_func_unsafe(xgrad.arange(8.0)).tolist() == [1, 2]
    with pytest.raises(RuntimeError, match="out of bounds"):
        xgrad.arange(6.0)[1:3]._view_func_unsafe(xgrad.ones(2))


def test_the_base_of_another_view():
    def program(T):
        found = []
        with T.autograd._force_original_view_tracking(True):
            base = data(T, (2, 3)).clone()
            for seen in (
                base.t(),
                base.unsqueeze(0),
                base.view(6),
                base.t().unsqueeze(1).flatten(1),
                base.view(3, 2).t(),
            ):
                new = seen + 1
                back = seen._rev_view_func_unsafe(new)
                found += [back, back._base is new]
            z = T.tensor([1 + 2j, 3j])
            return [*found, z.conj()._rev_view_func_unsafe(z * 2), base._rev_view_func_unsafe(base)]

    as_torch(program)
    for part in (xgrad.arange(6.0)[1:3], xgrad.ones(2, dtype=xgrad.complex64).real):
        with pytest.raises(RuntimeError, match=r"No _rev_view_func\(\) found"):
            part._rev_view_func_unsafe(part)


def test_the_negative_view():
    def program(T):
        x = data(T, (3,), requires_grad=True)
        base = x.clone()
        seen = T._neg_view(base)
        seen[1:].mul_(3)
        (base * base).sum().backward()
        ints = T.arange(3)._neg_view()
        told = seen.is_neg(), seen._base is base, ints + 1, ints.is_neg(), T._conj(T.tensor([1j])).is_conj()
        return base, seen, x.grad, told

    as_torch(program)
