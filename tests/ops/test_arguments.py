"""Sizes and dimensions in every spelling that torch takes, and in none that it refuses."""

import numpy as np
import pytest
import torch

import xgrad

from ..oracle import as_torch, data, leaf, same_error

SPELLINGS = {
    "expand": lambda x: [x.expand(4, 2, 3), x.expand((4, 2, 3)), x.expand(size=(4, 2, 3)), x[:, :1].expand(2, True)],
    "view": lambda x: [x.view(3, 2), x.view([3, 2]), x.view(size=(3, 2)), x[0, 0].view(())],
    "reshape": lambda x: [x.reshape(3, 2), x.reshape(shape=(-1,))],
    "permute": lambda x: [x.permute(1, 0), x.permute((1, 0)), x.permute(dims=[1, 0])],
    "repeat": lambda x: [x.repeat(2, 1), x.repeat((1, 2)), x.repeat(repeats=(2, 1, 1))],
    "tile": lambda x: [x.tile(2), x.tile((1, 2)), x.tile(dims=(2,))],
    "flip": lambda x: [x.flip(0), x.flip(0, 1), x.flip(dims=(1,)), x.flip((0, True))],
    "sum_to_size": lambda x: [x.sum_to_size(1, 3), x.sum_to_size(size=(3,))],
    "broadcast_to": lambda x: [x.broadcast_to(2, 2, 3), x.broadcast_to(size=(2, 2, 3))],
    "squeeze": lambda x: [f(x[None, :, None]) for f in (
        lambda y: y.squeeze(), lambda y: y.squeeze(0), lambda y: y.squeeze(dim=2), lambda y: y.squeeze(0, 2),
        lambda y: y.squeeze((0, 2)), lambda y: y.squeeze(()),
    )],
    "squeeze_": lambda x: [f((x * 1)[None, :, None] * 1) for f in (
        lambda y: y.squeeze_(), lambda y: y.squeeze_(0), lambda y: y.squeeze_(dim=2), lambda y: y.squeeze_(0, 2),
        lambda y: y.squeeze_((0, 2)), lambda y: y.squeeze_(dim=(0,)),
    )],
    "swapaxes": lambda x: [x.swapaxes(axis0=0, axis1=1), (x * 1).swapaxes_(axis0=0, axis1=1)],
    "split": lambda x: [*x.split(split_size=1), *x.split([1, 1], dim=0)],
    "tensor_split": lambda x: [*x.tensor_split(sections=2), *x.tensor_split(indices=(1,)), *x.hsplit(sections=3)],
    "new": lambda x: [x.new_zeros(2), x.new_ones((2,)), x.new_zeros(size=(2,)), x.new_full(size=(2,), fill_value=3)],
    "copy_": lambda x: [x.detach().clone().copy_(other=x.detach())],
}  # fmt: skip


@pytest.mark.parametrize("name", SPELLINGS)
def test_spellings(name, path):
    def program(T):
        outs = SPELLINGS[name](leaf(T, 2, 3))
        named = name not in ("sum_to_size",)  # which is a sum and a view in torch
        return [(out, out.grad_fn.name() if named and out.requires_grad else None) for out in outs]

    as_torch(program)


def test_spellings_of_factories():
    def program(T):
        sizes = (T.Size([2, 3]), [2, 3], (np.int64(2), T.tensor(3)))
        made = [T.zeros(2, 3), T.ones(size=(2, 3)), T.full(size=(2, 3), fill_value=1.0), *map(T.zeros, sizes)]
        shapes = [f(size=(2, 3)).shape for f in (T.empty, T.rand, T.randn)]
        return made, [tuple(s) for s in shapes], T.zeros(()), T.arange(end=3), T.zeros(2, True), T.block_diag()

    as_torch(program)


def test_view_of_bits_by_keyword():
    as_torch(lambda T: data(T, (2,)).view(dtype=T.int64))


REFUSED = {
    "no shape": (lambda T, x: x.reshape(), "missing 1 required positional argument"),
    "no dims": (lambda T, x: x.permute(), "missing 1 required positional argument"),
    "no repeats": (lambda T, x: x.repeat(), "missing 1 required positional argument"),
    "no size": (lambda T, x: T.zeros(), "missing 1 required positional argument"),
    "no size of another": (lambda T, x: x.new_zeros(), "missing 1 required positional argument"),
    "no end": (lambda T, x: T.arange(), "missing 1 required positional argument"),
    "size twice": (lambda T, x: x.expand(2, size=(2, 3)), "multiple values for argument 'size'"),
    "wrong keyword": (lambda T, x: x.view(shape=(6,)), "shape"),
    "one int by keyword": (lambda T, x: x.flip(dims=0), "must be tuple of ints, not int"),
    "size by keyword": (lambda T, x: T.zeros(size=2), "must be tuple of ints, not int"),
    "bool": (lambda T, x: x.transpose(True, 0), "must be ints?, .*bool"),
    "bool index": (lambda T, x: x.select(0, True), "must be ints?, .*bool"),
    "bool size": (lambda T, x: T.zeros(True, 3), "must be ints?, .*bool"),
    "bool dim": (lambda T, x: x.sum(True), "must be ints?, .*bool"),
    "bool length": (lambda T, x: x.narrow(0, 0, True), "must be ints?, .*bool"),
    "bool in place": (lambda T, x: x.unsqueeze_(True), "must be ints?, .*bool"),
    "bool of size()": (lambda T, x: x.size(True), "must be ints?, .*bool"),
    "bool of stride()": (lambda T, x: x.stride(True), "must be ints?, .*bool"),
    "bool of eye": (lambda T, x: T.eye(True), "must be ints?, .*bool"),
    "float": (lambda T, x: x.transpose(1.0, 0), "must be ints?, .*float"),
    "float length": (lambda T, x: x.narrow(0, 0, 1.0), "must be ints?, .*float"),
    "float tensor": (lambda T, x: T.zeros(T.tensor(2.0)), "must be ints?, .*Tensor"),
    "bool tensor": (lambda T, x: x.transpose(T.tensor(True), 0), "must be ints?, .*Tensor"),
    "vector": (lambda T, x: x.transpose(T.tensor([1]), 0), "must be ints?, .*Tensor"),
    "start": (lambda T, x: x.narrow(0, T.tensor([1]), 1), "start must be an 0-dim integral Tensor"),
    "None": (lambda T, x: x.squeeze(None), "NoneType"),
    "stride of no dimension": (lambda T, x: x.stride(2), r"range of \[-2, 1\], but got 2"),
    "stride of a number": (lambda T, x: T.tensor(1.0).stride(0), "specified as 0 but tensor has no dimensions"),
    "size of a number": (lambda T, x: T.tensor(1.0).size(-1), "specified as -1 but tensor has no dimensions"),
    "tensor_split of a number": (lambda T, x: T.tensor(1.0).tensor_split(2), "at least a 1-dimensional tensor"),
    "cuts of a number": (lambda T, x: T.tensor(1.0).tensor_split([1], 1), "at least a 1-dimensional tensor"),
    "chunk of a number": (lambda T, x: T.tensor(1.0).chunk(2), "chunk expects at least a 1-dimensional tensor"),
    "split of a number": (lambda T, x: T.tensor(1.0).split(1), "split expects at least a 1-dimensional tensor"),
    "sizes of a number": (lambda T, x: T.tensor(1.0).split([1], 3), "split expects at least a 1-dimensional tensor"),
    "unbind of a number": (lambda T, x: T.tensor(1.0).unbind(), "specified as 0 but tensor has no dimensions"),
    "hsplit of a number": (lambda T, x: T.tensor(1.0).hsplit(1), "at least 1 dimension"),
    "split by 0": (lambda T, x: x.split(0), "split_size can only be 0 if dimension size is 0"),
    "split by -1": (lambda T, x: x.split([-1, 3]), "only non-negative entries"),
    "sections as floats": (lambda T, x: x.tensor_split(T.tensor(2.0)), "to have dtype of long, but got Float"),
    "sections as a matrix": (lambda T, x: x.tensor_split(T.tensor([[1]])), "got a tensor with 2 dims"),
    "no grids": (lambda T, x: T.meshgrid(indexing="ij"), "non-empty TensorList"),
    "grids of numbers": (lambda T, x: T.meshgrid(T.ones(2), 2, indexing="ij"), "expected Tensor as element 1"),
    "mixed grids": (
        lambda T, x: T.meshgrid(T.ones(2), T.arange(2), indexing="ij"),
        "all tensors to have the same dtype",
    ),
    "negative shape": (lambda T, x: T.broadcast_shapes((-1,), (3,)), "dimension with negative length"),
    "shapes": (
        lambda T, x: T.broadcast_shapes((2, 1), (1, 3), (2, 2)),
        r"length 2 at -1! .* index 2 had \(2, 2\); but expected shape should be broadcastable to \[2, 3\]",
    ),
    "parts of a conjugate": (
        lambda T, x: T.view_as_real(T.ones(2, dtype=T.complex64).conj()[:1]),
        "view_as_real doesn't work on unresolved conjugated tensors",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    program, match = REFUSED[name]
    for T in (xgrad, torch):  # what is refused is not taken for an equal key of a view that was made before
        data(T, (2, 3)).transpose(1, 0), data(T, (2, 3)).narrow(0, 0, 1)
    same_error(lambda T: program(T, data(T, (2, 3))), match)


def test_broadcast_shapes():
    as_torch(lambda T: [tuple(T.broadcast_shapes(*s)) for s in ([(2, 1), (1, 3)], [3, (1,)], [(0,), (1,)], [], [()])])


@pytest.mark.parametrize("name", ["sum", "amax", "softmax", "cumsum", "unsqueeze", "squeeze", "unbind"])
def test_what_only_equals_a_dimension_is_refused_after_the_dimension_was_used(name):
    x = xgrad.ones(3, 4)
    method = getattr(x, name)
    method(1)
    for wrong in (True, 1.0):
        with pytest.raises(TypeError, match="must be ints"):
            method(wrong)
