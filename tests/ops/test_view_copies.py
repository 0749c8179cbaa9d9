"""`*_copy` with `out=`, against torch."""

import pytest

import xgrad
from tests.oracle import as_torch, same_error

COPIES = {
    "alias_copy": (),
    "as_strided_copy": ((2, 2), (1, 1)),
    "detach_copy": (),
    "diagonal_copy": (),
    "expand_copy": ((2, 2, 3),),
    "narrow_copy": (1, 0, 2),
    "permute_copy": ((1, 0),),
    "select_copy": (0, 1),
    "slice_copy": (1, 0, 2),
    "squeeze_copy": (0,),
    "t_copy": (),
    "transpose_copy": (0, 1),
    "unfold_copy": (0, 2, 1),
    "unsqueeze_copy": (0,),
    "view_copy": ((3, 2),),
}


@pytest.mark.one_in(6)
@pytest.mark.parametrize("name", COPIES)
def test_out_is_filled_and_returned(name):
    def program(T):
        x = T.arange(6.0).reshape(2, 3)
        out = T.empty(0)
        found = getattr(T, name)(x, *COPIES[name], out=out)
        found.add_(1)
        return found is out, out, x

    as_torch(program)


def test_several_outs_are_filled_and_nothing_is_returned():
    def program(T):
        x = T.arange(6.0).reshape(2, 3)
        rows = [T.empty(3), T.empty(3)]
        parts = (T.empty(1, 3), T.empty(1, 3))
        return T.unbind_copy(x, out=rows), rows, T.split_with_sizes_copy(x, [1, 1], out=parts), parts

    as_torch(program)


def test_other_dtypes_of_views_have_outs_of_theirs():
    def program(T):
        z = T.zeros(2, dtype=T.complex64) + (1 + 2j)
        return T.view_as_real_copy(z, out=T.empty(0)), T.slice_scatter(z, z[:1] * 2, 0, 0, 1, out=T.empty_like(z))

    as_torch(program)


@pytest.mark.parametrize(
    ("program", "match"),
    [
        (
            lambda T: T.select_copy(T.ones(2, 3), 0, 1, out=T.empty(3, dtype=T.int32)),
            "float32, but got int32|dtype float",
        ),
        (
            lambda T: T.select_copy(T.ones(2, 3), 0, 1, out=T.empty(3, requires_grad=True)),
            "don't support automatic diff",
        ),
        (lambda T: T.unbind_copy(T.ones(2, 3), out=[T.empty(3)]), "argument of size 2, got size 1"),
        (lambda T: T.unbind_copy(T.ones(2, 3), out=T.empty(3)), "must be tuple of Tensors, not Tensor"),
        (lambda T: T.t_copy(T.ones(2, 3), out=3), "must be Tensor, not int"),
        (lambda T: T.unsafe_split(T.ones(2, 3), 1, out=[T.empty(0)]), "unexpected keyword argument 'out'"),
    ],
)
def test_an_out_that_does_not_fit_is_refused(program, match):
    same_error(program, match)


def test_a_refused_out_changes_nothing():
    rows = [xgrad.zeros(3), xgrad.zeros(3, dtype=xgrad.int32)]
    with pytest.raises(RuntimeError, match="dtype"):
        xgrad.unbind_copy(xgrad.ones(2, 3), out=rows)
    assert rows[0].tolist() == [0, 0, 0]


# -- the old order of embedding_bag -----------------------------------------------------------------------------------


@pytest.mark.exhaustive
def test_embedding_bag_in_the_old_order_warns_and_is_the_same():
    def program(T):
        weight = T.arange(8.0).reshape(4, 2).requires_grad_()
        rows, offsets = T.tensor([0, 1, 3]), T.tensor([0, 2])
        with pytest.warns(UserWarning, match="Argument order of nn.functional.embedding_bag was changed"):
            old = T.nn.functional.embedding_bag(weight, rows, offsets)
        with pytest.warns(UserWarning, match="Argument order"):
            matrix = T.nn.functional.embedding_bag(weight, rows.reshape(1, 3), mode="sum")
        new = T.nn.functional.embedding_bag(rows, weight, offsets)
        (old * old).sum().backward()
        return old, new, matrix, weight.grad

    as_torch(program)
    same_error(lambda T: T.nn.functional.embedding_bag(T.ones(2, 2), T.ones(2, 2)), "following scalar types: Long, Int")
