"""User code as type checkers see it: `pyright` checks this file, pytest runs it, so that the stubs and xgrad agree.

`assert_type` says what pyright takes the type of an expression for.  A line that must not pass has an ignore comment,
and pyright complains about an ignore comment that is not needed.
"""

# pyright: strict, reportUnnecessaryTypeIgnoreComment=error, reportPrivateUsage=false
from typing import assert_type

import numpy as np
import pytest

import xgrad
import xgrad.nn.functional as F
from xgrad import Tensor
from xgrad.types import Number


def test_arithmetic_takes_tensors_numbers_and_arrays():
    x = xgrad.ones(2, 3)
    assert_type(x, Tensor)
    assert_type(x + 1, Tensor)
    assert_type(2.0 * x, Tensor)
    assert_type(x / np.ones(3, np.float32), Tensor)
    assert_type(x == x, Tensor)
    assert_type(-x @ x.T, Tensor)
    assert_type(xgrad.add(x, 1, alpha=2), Tensor)
    assert_type(x.mul_(2).clamp(min=0), Tensor)
    assert_type(x[0, 1:, None], Tensor)
    x[0] = 1.5


def test_sizes_are_arguments_or_one_sequence():
    x = xgrad.zeros((2, 3), dtype=xgrad.float32, requires_grad=True)
    assert_type(xgrad.zeros(2, 3, device="cpu"), Tensor)
    assert_type(x.reshape(3, -1).view([6]), Tensor)
    assert_type(x.permute(1, 0).expand(4, 3, 2), Tensor)
    assert_type(x.size(), xgrad.Size)
    assert_type(x.size(0), int)
    assert_type(x.stride(), tuple[int, ...])
    rows, columns = x.shape
    assert_type(rows * columns, int)


def test_results_depend_on_the_arguments():
    x = xgrad.tensor([[3.0, 1.0]])
    assert_type(x.max(), Tensor)
    assert_type(x.max(dim=1), xgrad.return_types.max)
    assert_type(x.max(dim=1).indices, Tensor)
    assert_type(xgrad.median(x, 1).values, Tensor)
    values, indices = xgrad.topk(x, 1)
    assert_type((values, indices), tuple[Tensor, Tensor])
    assert_type(xgrad.nonzero(x), Tensor)
    assert_type(xgrad.nonzero(x, as_tuple=True), tuple[Tensor, ...])
    assert_type(xgrad.where(x > 2), tuple[Tensor, ...])
    assert_type(xgrad.where(x > 2, x, 0), Tensor)
    assert_type(xgrad.unique(x), Tensor)
    assert_type(xgrad.unique(x, return_counts=True), tuple[Tensor, Tensor])
    assert_type(x.type(), str)
    assert_type(xgrad.linalg.svd(x).Vh, Tensor)
    assert_type(xgrad.atleast_1d(x), Tensor)


def test_reductions_and_dtypes():
    x = xgrad.ones(2, 3)
    assert_type(x.sum((0, 1), keepdim=True, dtype=xgrad.float32), Tensor)
    assert_type(x.mean(-1), Tensor)
    assert_type(x.to(xgrad.bfloat16).to("cpu"), Tensor)
    assert_type(x.to(dtype=float), Tensor)
    assert_type(xgrad.arange(0, 6, 2), Tensor)
    assert_type(x.shape[1:], xgrad.Size)
    assert_type(x.sum().item() > 3, bool)
    assert_type(xgrad.allclose(x, x), bool)


@pytest.mark.exhaustive
def test_layers():
    x = xgrad.randn(2, 1, 8, 8, generator=xgrad.Generator())
    weight = xgrad.randn(2, 1, 3, 3, requires_grad=True)
    y = F.relu(F.conv2d(x, weight, padding=1))
    assert_type(F.max_pool2d(y, 2), Tensor)
    assert_type(F.max_pool2d(y, 2, return_indices=True), tuple[Tensor, Tensor])
    loss = F.cross_entropy(y.flatten(1), xgrad.zeros(2, dtype=xgrad.int32))
    loss.backward()
    assert_type(weight.grad, Tensor | None)


def test_hooks_and_own_annotations():
    def scaled(x: Tensor, by: Number) -> Tensor:
        return x * by

    x = xgrad.ones(2, requires_grad=True)
    handle = x.register_hook(lambda grad: grad * 2)
    scaled(x, 3).sum().backward()
    handle.remove()
    assert x.grad is not None
    assert x.grad.tolist() == [6.0, 6.0]


def test_wrong_arguments_are_errors_of_types_too():
    x = xgrad.ones(2, 3)
    with pytest.raises(TypeError):
        xgrad.sin("x")  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError):
        x.sum(dim="rows")  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError):
        x.sum(axes=0)  # pyright: ignore[reportCallIssue]
    with pytest.raises(TypeError):
        xgrad.zeros("2")  # pyright: ignore[reportArgumentType, reportCallIssue]
    with pytest.raises(TypeError):
        x.reshape(2.5)  # pyright: ignore[reportArgumentType, reportCallIssue]
    with pytest.raises(TypeError):
        F.conv2d(x, x, stride="1")  # pyright: ignore[reportArgumentType]
    with pytest.raises(AttributeError):
        x.sums()  # pyright: ignore[reportUnknownMemberType, reportAttributeAccessIssue]
    with pytest.raises(TypeError):
        xgrad.cat(1)  # pyright: ignore[reportArgumentType]
    with pytest.raises(AttributeError):
        x.max(dim=1).places  # pyright: ignore[reportUnknownMemberType, reportAttributeAccessIssue]
    with pytest.raises(TypeError):
        xgrad.softmax(x)  # pyright: ignore[reportCallIssue]


def test_misspelt_names_are_errors_of_types_too():
    with pytest.raises(AttributeError):
        xgrad.softmx  # pyright: ignore[reportUnknownMemberType, reportAttributeAccessIssue]
    with pytest.raises(AttributeError):
        xgrad.nn.Liner(2, 3)  # pyright: ignore[reportUnknownMemberType, reportAttributeAccessIssue]
    with pytest.raises(AttributeError):
        xgrad.autograd.grads  # pyright: ignore[reportUnknownMemberType, reportAttributeAccessIssue]
    assert xgrad.errors.BackendError
    assert xgrad.views.tracking
