"""Wrong calls raise at the call, with the type and the words that PyTorch's users know, and change nothing."""

import numpy as np
import pytest
import torch

import xgrad

from .oracle import array, data, leaf, same_error

# what was called, as a function of (T, leaf, non-leaf, tensor outside of the graph), and what the text must say
WRONG = {
    "shapes of a sum": (lambda T, x, y, c: x + data(T, (4,)), r"\[2, 3\].*\[4\]|3.*4"),
    "shapes of an in-place sum": (lambda T, x, y, c: y.add_(data(T, (4, 3))), r"\[4, 3\]|4"),
    "in-place result of another shape": (
        lambda T, x, y, c: c[0].add_(data(T, (2, 3))),
        r"output with shape \[3\].*\[2, 3\]",
    ),
    "copy of another shape": (lambda T, x, y, c: y.copy_(data(T, (4,))), "4"),
    "matrices": (lambda T, x, y, c: x @ data(T, (4, 2)), "4"),
    "in-place dtype": (lambda T, x, y, c: T.ones(3, dtype=T.int64).mul_(1.5), "can't be cast"),
    "gradient of an integer": (lambda T, x, y, c: T.ones(3, dtype=T.int64).requires_grad_(), "floating point"),
    "dtype of an index": (lambda T, x, y, c: x[data(T, (2,))], "long|integer|index"),
    "dimension of a sum": (lambda T, x, y, c: x.sum(2), r"\[-2, 1\].*2"),
    "dimension of select": (lambda T, x, y, c: y.select(3, 0), r"\[-2, 1\].*3"),
    "dimensions of transpose": (lambda T, x, y, c: y.transpose(0, 2), r"\[-2, 1\].*2"),
    "dimensions of permute": (lambda T, x, y, c: y.permute(0, 0), "permute|duplicate|repeated"),
    "dimension of unsqueeze": (lambda T, x, y, c: y.unsqueeze(4), r"\[-3, 2\].*4"),
    "index of select": (lambda T, x, y, c: y.select(0, 2), "2"),
    "index": (lambda T, x, y, c: y[5], "5"),
    "index of an assignment": (lambda T, x, y, c: y.__setitem__((0, 7), 1.0), "7"),
    "too many indices": (lambda T, x, y, c: y[0, 0, 0], "too many indices"),
    "negative step": (lambda T, x, y, c: y[::-1], "step"),
    "narrow": (lambda T, x, y, c: y.narrow(1, 2, 2), "2"),
    "assigned shape": (lambda T, x, y, c: y.__setitem__(0, data(T, (2,))), "2"),
    "index tensor": (lambda T, x, y, c: y[T.tensor([0, 5])], "5"),
    "view": (lambda T, x, y, c: y.t().view(-1), "reshape"),
    "size of a view": (lambda T, x, y, c: y.view(4, 2), r"4, 2.*6|6"),
    "expand": (lambda T, x, y, c: y.expand(4, 3), "4"),
    "as_strided outside": (lambda T, x, y, c: y.as_strided((3, 3), (3, 1)), "9|outside|out of bounds"),
    "t": (lambda T, x, y, c: data(T, (2, 2, 2)).t(), "3"),
    "split": (lambda T, x, y, c: y.split([1, 3]), "2"),
    "cat": (lambda T, x, y, c: T.cat([x, data(T, (2, 2, 2))]), "2"),
    "stack": (lambda T, x, y, c: T.stack([x, data(T, (3,))]), "equal size|3"),
    "item": (lambda T, x, y, c: y.item(), "6"),
    "truth": (lambda T, x, y, c: bool(y), "ambiguous"),
    "numpy of a graph": (lambda T, x, y, c: y.numpy(), "requires grad"),
    "len of a scalar": (lambda T, x, y, c: len(y.sum()), "0-d"),
    "non-scalar backward": (lambda T, x, y, c: y.backward(), "scalar"),
    "nothing requires grad": (lambda T, x, y, c: c.sum().backward(), "does not require grad"),
    "gradient of a wrong shape": (lambda T, x, y, c: y.backward(data(T, (3, 2))), r"\[3, 2\]"),
    "leaf in place": (lambda T, x, y, c: x.mul_(2), "a leaf Variable that requires grad"),
    "assignment to a leaf": (lambda T, x, y, c: x.__setitem__(0, 1.0), "a view of a leaf|a leaf Variable"),
    "t_ of a leaf": (lambda T, x, y, c: x.t_(), "a leaf Variable"),
    "view of a leaf in place": (lambda T, x, y, c: x[0].zero_(), "a view of a leaf Variable"),
    "expanded in place": (lambda T, x, y, c: y.expand(2, 2, 3).add_(1), "single memory location|overlap"),
    "copy into expanded": (lambda T, x, y, c: c[0].expand(2, 3).copy_(y), "single memory location|overlap"),
    "one of several in place": (lambda T, x, y, c: y.unbind()[0].mul_(2), "multiple views"),
    "detach_ of a view": (lambda T, x, y, c: y[0].detach_(), "detach"),
    "no longer requiring grad": (lambda T, x, y, c: y.requires_grad_(False), "leaf"),
    "out= with a gradient": (lambda T, x, y, c: T.add(x, y, out=c), "out="),
    "deepcopy of a non-leaf": (lambda T, x, y, c: __import__("copy").deepcopy(y), "created explicitly"),
    "retain_grad of a constant": (lambda T, x, y, c: c.retain_grad(), "requires_grad=False"),
    "grad of a constant": (lambda T, x, y, c: T.autograd.grad(y.sum(), c), "does not require grad"),
    "unused": (lambda T, x, y, c: T.autograd.grad((c * leaf(T, 2, 3)).sum(), x), "not have been used"),
    "device": (lambda T, x, y, c: c.to("no such device"), "device"),
    "negative size": (lambda T, x, y, c: T.zeros(-1), "negative dimension"),
    "reshape to nothing": (lambda T, x, y, c: y.reshape(-1, -1), "one dimension|-1"),
}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", WRONG)
def test_wrong_call(name, path):
    call, text = WRONG[name]
    tensors = {}

    def program(T):
        x = leaf(T, 2, 3)
        y = x * 1
        tensors[T] = x, y, data(T, (2, 3), 7)
        call(T, *tensors[T])

    same_error(program, text)
    for ours, theirs in zip(tensors[xgrad], tensors[torch]):
        np.testing.assert_array_equal(array(ours), array(theirs))
        assert ours.shape == tuple(theirs.shape)
        assert (ours._version, ours.requires_grad, ours.is_leaf) == (
            theirs._version,
            theirs.requires_grad,
            theirs.is_leaf,
        )
    x, y, _ = tensors[xgrad]
    (y * y).sum().backward()  # and they work on
    np.testing.assert_allclose(array(x.grad), 2 * array(x))


def test_absent_device_is_named_with_those_that_exist():
    for name in ("cuda:99", "cpu:99", "xla:99"):
        with pytest.raises(RuntimeError, match=rf"'{name}' is not available: JAX sees .*cpu:0"):
            xgrad.zeros(2, device=name)


def test_error_types_can_be_told_apart():
    errors = xgrad.errors
    x = leaf(xgrad, 2, 3)
    y = x * 1
    z = (y * y).sum()
    z.backward()
    for error, call in (
        (errors.LeafInplaceError, lambda: x.mul_(2)),
        (errors.OverlapError, lambda: y.expand(2, 2, 3).mul_(2)),
        (errors.InplaceViewError, lambda: y.unbind()[0].mul_(2)),
        (errors.FreedGraphError, z.backward),
    ):
        with pytest.raises(error):
            call()
        assert issubclass(error, RuntimeError)


def test_failed_write_leaves_siblings_and_base_alone(path):
    def program(T):
        base = leaf(T, 2, 3) * 1
        view, sibling = base[0], base[:, 1]
        errors = []
        for write in (
            lambda: view.add_(data(T, (4,))),
            lambda: view.copy_(data(T, (2, 2))),
            lambda: view.__setitem__(9, 1.0),
        ):
            with pytest.raises((RuntimeError, IndexError)) as caught:
                write()
            errors.append(caught.type is not None)
        return base, view, sibling, base._version, view.grad_fn is not None, base.grad_fn.name()

    from .oracle import as_torch

    as_torch(program)


def test_failed_copy_keeps_the_buffer():
    """A write that fails after the root was taken out to be donated puts it back."""
    base = xgrad.zeros(4, 1000, dtype=xgrad.float64)
    view = base[0]
    view.add_(1)
    with pytest.raises(RuntimeError):
        view.add_(xgrad.ones(3, dtype=xgrad.float64))
    with pytest.raises(RuntimeError):
        base.add_(xgrad.ones(3, dtype=xgrad.float64))
    assert base.sum().item() == 1000
