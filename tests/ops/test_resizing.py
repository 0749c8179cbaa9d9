"""resize_, resize_as_, conj_physical_, hash_tensor."""

import numpy as np
import pytest

import xgrad

from ..oracle import as_torch, same_error
from .derivatives import agree, numbers

C = numbers(3) + 1j * numbers(3, seed=1)


def test_a_smaller_shape_shows_the_first_elements_and_keeps_the_others():
    def program(T):
        x = T.arange(6)
        before, same = x._version, x.resize_(2, 2) is x
        small = x.clone()
        return same, x._version - before, small, x.resize_((6,)), x.resize_as_(T.ones(2, 3))

    as_torch(program)


def test_a_larger_shape_keeps_what_was_there():
    as_torch(lambda T: [T.arange(6).resize_(8)[:6], T.arange(6).resize_(2).resize_(8)[:6], T.ones(0).resize_(2).shape])


def test_aliases_still_share_the_storage():
    def program(T):
        x = T.arange(6)
        alias, part = x.detach(), x[1:]
        x.resize_(2, 2).add_(10)
        part.resize_(2).mul_(2)
        return x, alias, part

    as_torch(program)


def test_a_resized_leaf_gets_the_gradient_of_its_new_shape(path):
    def program(T):
        x = T.arange(6.0)
        view = x[1:]
        x.resize_(2, 2).requires_grad_()
        y = x * 2
        y.t()[0].mul_(3)
        return T.autograd.grad(y.sum(), x), view

    as_torch(program)


def test_a_shared_storage_does_not_grow():
    x = xgrad.arange(6)
    alias = x.detach()
    with pytest.raises(RuntimeError, match="Trying to resize storage that is not resizable: it is shared"):
        x.resize_(8)
    assert x.add_(1).tolist() == alias.tolist() == [1, 2, 3, 4, 5, 6]


@pytest.mark.one_in(2)
@pytest.mark.parametrize("seen", [lambda x: x.real, lambda x: x.conj(), lambda x: x.view(xgrad.int32)])
def test_a_view_in_another_dtype_is_not_resized(seen):
    x = xgrad.tensor([1 + 2j, 3 - 4j])
    view = seen(x)
    with pytest.raises(RuntimeError, match="resize_ of a view that shows its storage of complex64 in another way"):
        view.resize_(1)
    assert (view == seen(x)).all()


REFUSED = {
    "grad": (lambda T: T.ones(2, requires_grad=True).resize_(1), "cannot resize variables that require grad"),
    "nothing": (lambda T: T.ones(2).resize_(), "missing 1 required positional arguments?: [\"']size"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    same_error(*REFUSED[name])


def test_conj_physical_in_place():
    agree(lambda lib, x: [(x * 2).conj_physical_(), lib.conj_physical(x)], C)
    as_torch(lambda T: [T.tensor(C).conj_physical_(), T.ones(2).conj_physical_(), T.ones(2).conj_physical()])


@pytest.mark.one_in(2)
@pytest.mark.parametrize("dtype", ["float64", "float16", "int8", "uint8", "bool"])
def test_hash_tensor(dtype):
    x = (np.arange(12).reshape(3, 4) - 5).astype(dtype)

    def program(T):
        found = [T.tensor(x).hash_tensor(), T.hash_tensor(T.tensor(x), 0), T.hash_tensor(T.tensor(x), 1, keepdim=True)]
        return [f.numpy() for f in found]

    as_torch(program)
