"""`Tensor._view_func(new_base)`: a view, of another base; against torch."""

import pytest

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


def test_a_base_of_another_dtype():
    as_torch(lambda T: T.zeros(2, 3)[1]._view_func(T.arange(6).reshape(2, 3)))


def test_wrong_arguments():
    same_error(lambda T: T.zeros(2, 3)[1]._view_func(3), r"argument 'new_base' \(position 1\) must be Tensor, not int")
    same_error(lambda T: T.zeros(2, 3)[1]._view_func(), "missing 1 required positional argument")
