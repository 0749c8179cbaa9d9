"""as_strided of a tensor that shows a part of a storage: detached slices, and views that overlap themselves."""

import functools

import pytest
import torch

import xgrad
from xgrad.views.chain import ViewChain
from xgrad.views.part import within

from ..oracle import PATHS, as_torch, behind_name, leaf, outcome, same, tracking

PARTS = {
    "slice": lambda a: a[2:8],
    "steps": lambda a: a[1::2],
    "columns": lambda a: a.view(2, 5)[:, 1:4],
    "transposed": lambda a: a.view(2, 5)[:, 1:4].t(),
    "element": lambda a: a[7],
    "row": lambda a: a.view(2, 5)[1],
    "everything": lambda a: a.view(5, 2),
}
GEOMETRIES = [
    ((2,), (1,), None), ((3,), (2,), 3), ((), (), 6), ((2, 2), (5, 1), 1), ((2, 2), (1, 5), 1), ((0,), (1,), 20),
    ((4,), (1,), 0), ((3,), (1,), 8), ((1,), (9,), 7), ((2, 2), (2, 1), 5),
]  # fmt: skip


def strided(x, geometry, T):
    return x.as_strided(*geometry)


@pytest.mark.exhaustive
@pytest.mark.one_in(4)
@pytest.mark.parametrize("part", PARTS)
def test_as_strided_of_a_detached_part_addresses_the_storage(part):
    """Read and written, within the part and beyond it."""

    def program(T):
        found = []
        for geometry in GEOMETRIES:
            a = T.arange(10.0)
            detached = PARTS[part](a).detach()
            view = outcome(functools.partial(strided, detached, geometry), T)
            if isinstance(view, Exception):
                found.append(type(view).__name__)
                continue
            found.append((view.clone(), view.storage_offset()))
            view.mul_(10)
            found.append((a, detached))
        return found

    as_torch(program)


@pytest.mark.exhaustive
@pytest.mark.one_in(6)
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("part", PARTS)
def test_gradients_of_as_strided_of_a_detached_part_stop_at_the_part(part, path):
    def program(T):
        found = []
        for geometry in GEOMETRIES:
            x = PARTS[part](T.arange(10.0)).detach().requires_grad_()
            view = outcome(functools.partial(strided, x, geometry), T)
            if isinstance(view, Exception) or not view.numel():
                continue
            (grad,) = T.autograd.grad((view * view).sum(), x, create_graph=True)
            found.append((grad, T.autograd.grad((grad * grad).sum(), x, allow_unused=True)[0]))
        return found

    with tracking(path):
        as_torch(program)


@pytest.mark.parametrize("path", PATHS)
def test_a_recorded_write_within_a_detached_part_is_the_parts(path):
    def program(T):
        w, a = leaf(T, 2), leaf(T, 10).detach()
        part = a[2:8].detach()
        part.as_strided((2,), (2,), 3).mul_(w)
        (part * part).sum().backward()
        return w.grad, part, a

    with tracking(path):
        as_torch(program)


def test_what_no_strides_reach_from_the_part_has_no_chain():
    root = ViewChain.root((10,), xgrad.float32)
    steps = root.view("as_strided", (3,), (2,), 1)
    assert within(steps, root.view("as_strided", (2,), (4,), 1)).geometry.strides == (2,)
    assert within(steps, root.view("as_strided", (2,), (1,), 1)) is None
    assert within(steps, root.view("as_strided", (2,), (4,), 5)) is None
    assert within(root.view("as_strided", (3, 3), (1, 1), 0), root.view("as_strided", (2,), (1,), 0)) is None


def test_as_strided_in_place_of_a_part():
    def program(T):
        a = T.arange(10.0)
        found = []
        for part in (a[2:8].detach(), a[2:8], a.view(2, 5)[:, 1:4]):
            part.as_strided_((2,), (1,), 6)
            part.mul_(10)
            found += [part, part.storage_offset(), a.clone()]
        return found

    as_torch(program)


def test_as_strided_in_place_beyond_a_part_says_so():
    with pytest.raises(RuntimeError, match="reaches beyond that part"):
        xgrad.arange(10.0)[2:8].as_strided_((2,), (1,), 0)


SELF_OVERLAPPING = [((3, 3), (1, 1), 0), ((2, 3), (0, 1), 2), ((4,), (0,), 5)]


@pytest.mark.exhaustive
@pytest.mark.one_in(6)
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("own", SELF_OVERLAPPING)
def test_as_strided_of_a_view_that_overlaps_itself_divides_its_gradient(own, path):
    """Each of the places that show one element gets an equal part, where the base requires no gradient."""

    def program(T):
        found = []
        for geometry in [
            ((2, 2), (1, 1), 1),
            ((4,), (1,), 0),
            ((2,), (2,), 2),
            ((3, 3), (1, 1), 0),
            ((3, 2), (1, 0), 3),
        ]:
            x = leaf(T, 10).detach().as_strided(*own).requires_grad_()
            view = x.as_strided(*geometry)
            (grad,) = T.autograd.grad(
                (view * view * leaf(T, 10).detach()[: view.shape[-1]]).sum(), x, create_graph=True
            )
            found.append((view, grad, T.autograd.grad((grad * grad).sum(), x)[0]))
        return found

    with tracking(path):
        as_torch(program)
        x = xgrad.arange(10.0).as_strided(*own).requires_grad_()
        x.as_strided((2, 2), (1, 1), 1).sum().backward()
        y = xgrad.arange(10.0).as_strided(*own).requires_grad_()
        y.as_strided((2, 2), (1, 1), 1).sum().backward(compiled=True)
        same(y.grad, x.grad)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("shape", [(0,), (0, 2), (2, 0), (3, 0, 2), (2, 2)])
@pytest.mark.parametrize("name", ["complex64", "float32", "int16", "bool"])
def test_the_bits_of_empty_tensors_as_another_dtype(shape, name):
    def program(T):
        x = T.zeros(shape, dtype=getattr(T, name))
        found = []
        for other in ("float32", "int32", "complex64", "uint8", "int16"):
            seen = outcome(lambda T, other=other: x.view(getattr(T, other)), T)
            found.append(type(seen).__name__ if isinstance(seen, Exception) else (seen, tuple(seen.stride())))
        return found

    as_torch(program)


@pytest.mark.parametrize("kind", ["leaf", "result", "inference"])
def test_resize_in_inference_mode_of_a_tensor_that_requires_grad(kind):
    def program(T):
        x = T.ones(3, requires_grad=True)
        x = x * 2 if kind == "result" else x
        with T.inference_mode():
            if kind == "inference":
                x = T.ones(3).requires_grad_()
            x.resize_(2)
            found = [x.detach().clone(), x.requires_grad, x.is_inference()]
            x.resize_as_(T.ones(1, 2))
            found += [tuple(x.shape)]
        refused = None if kind == "inference" else behind_name(outcome(lambda T: x.resize_(1), T))
        return found, refused and refused[:42]

    same(program(xgrad), program(torch))
