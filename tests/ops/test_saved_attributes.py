"""What nodes are called and what they show of what they know, under PyTorch's names."""

import numpy as np
import pytest
import torch

import xgrad

from ..oracle import array, leaf, same

ALL = object()  # every attribute that torch shows


def index(T):
    return T.tensor([0, 1])


SHOWN = {
    "add": (lambda T, m: m + m, ALL),
    "add, scaled": (lambda T, m: T.add(m, m, alpha=2), ALL),
    "amax": (lambda T, m: m.amax(0), ALL),
    "as_strided": (lambda T, m: m.as_strided((2,), (2,), 1), ALL),
    "chunk": (lambda T, m: m.chunk(2)[1], ALL),
    "diagonal": (lambda T, m: m.diagonal(1), ALL),
    "div by a number": (lambda T, m: m / 2, ALL),
    "expand": (lambda T, m: m.expand(2, 3, 3), ALL),
    "flatten": (lambda T, m: m.flatten(), ALL),
    "index": (lambda T, m: m[index(T)], ("self_sym_sizes", "indices")),
    "index_select": (lambda T, m: m.index_select(1, index(T)), ALL),
    "logsumexp": (lambda T, m: m.logsumexp((0, 1)), ALL),
    "max along a dimension": (lambda T, m: m.max(1)[0], ALL),
    "mean": (lambda T, m: m.mean(), ALL),
    "mean over a dimension": (lambda T, m: m.mean(0, keepdim=True), ALL),
    "mm": (lambda T, m: m.mm(m), ALL),
    "movedim": (lambda T, m: m.movedim(0, 1), ALL),
    "mse_loss": (lambda T, m: T.nn.functional.mse_loss(m, m.detach()), ("reduction", "self", "target")),
    "mul by a number": (lambda T, m: m * 2, ("other",)),
    "narrow": (lambda T, m: m.narrow(0, 1, 2), ALL),
    "nll_loss": (lambda T, m: T.nn.functional.nll_loss(m[:2], index(T)), ("reduction", "target")),
    "norm": (lambda T, m: m.norm(3, 0), ("self", "ord", "dim", "keepdim")),
    "permute": (lambda T, m: m.permute(1, 0), ALL),
    "select": (lambda T, m: m[1], ALL),
    "select after a slice": (lambda T, m: m[1:][1], ALL),
    "slice": (lambda T, m: m[::2], ALL),
    "slice of both": (lambda T, m: m[:, 1:3], ALL),
    "sort": (lambda T, m: m.sort(0)[0], ALL),
    "sort, stable": (lambda T, m: m.sort(dim=0, stable=True)[0], ("dim", "indices", "self_sym_sizes")),
    "split": (lambda T, m: m.split(2, 1)[0], ALL),
    "split by sizes": (lambda T, m: m.split([1, 2])[0], ALL),
    "squeeze": (lambda T, m: m[:1].squeeze(0), ALL),
    "sum": (lambda T, m: m.sum(), ALL),
    "sum over a dimension": (lambda T, m: m.sum(0), ALL),
    "topk": (lambda T, m: m.topk(2, 0)[0], ALL),
    "transpose": (lambda T, m: m.transpose(0, 1), ALL),
    "unbind": (lambda T, m: m.unbind(1)[1], ALL),
    "unfold": (lambda T, m: m.unfold(0, 2, 1), ALL),
    "unsqueeze": (lambda T, m: m.unsqueeze(0), ALL),
    "var": (lambda T, m: m.var(0, correction=1), ("dim", "keepdim", "self")),
    "view": (lambda T, m: m.view(9), ALL),
}


def plain(value):
    """The value without the difference between what the libraries save it in."""
    if isinstance(value, (torch.Tensor, xgrad.Tensor)):
        return np.asarray(array(value))
    return tuple(plain(v) for v in value) if isinstance(value, (tuple, list)) else value


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", SHOWN)
def test_saved_attributes(name):
    program, wanted = SHOWN[name]
    theirs, ours = program(torch, leaf(torch, 3, 3)).grad_fn, program(xgrad, leaf(xgrad, 3, 3)).grad_fn
    assert ours.name() == theirs.name()
    if wanted is ALL:
        wanted = [a.removeprefix("_saved_") for a in dir(theirs) if a.startswith("_saved_")]
    for attribute in wanted:
        assert f"_saved_{attribute}" in dir(ours)
        same(plain(getattr(ours, f"_saved_{attribute}")), plain(getattr(theirs, f"_saved_{attribute}")), attribute)


def test_negative_dims_are_shown_as_they_were_given():
    """PyTorch shows them as unsigned numbers of 64 bits."""
    node = leaf(xgrad, 2, 3).transpose(0, -1).grad_fn
    assert (node._saved_dim0, node._saved_dim1) == (0, -1)


def test_saved_attributes_of_a_view_that_was_made_anew(path):
    base = leaf(xgrad, 2, 3) * 1
    view = base[1]
    base.mul_(2)
    if path == "geometry":
        assert view.grad_fn._saved_size == (3,)
        assert view.grad_fn._saved_stride == (1,)
        assert view.grad_fn._saved_storage_offset == 3
    else:
        assert not hasattr(view.grad_fn, "_saved_size")


def test_arguments_that_no_formula_needs_are_no_attributes():
    node = leaf(xgrad, 3).exp().grad_fn
    assert not hasattr(node, "_saved_self")
    assert {"_saved_result", "_raw_saved_result"} <= set(dir(node))


NAMED = {
    "log1p": lambda T, m: m.log1p(),
    "deg2rad": lambda T, m: m.deg2rad(),
    "relu6": lambda T, m: T.nn.functional.relu6(m),
    "selu": lambda T, m: T.nn.functional.selu(m),
    "softmin": lambda T, m: T.nn.functional.softmin(m, 0),
    "logsigmoid": lambda T, m: T.nn.functional.logsigmoid(m),
    "prelu": lambda T, m: T.nn.functional.prelu(m, m[0, :1]),
    "conv2d": lambda T, m: T.nn.functional.conv2d(m.view(1, 1, 3, 3), m.view(1, 1, 3, 3)),
    "avg_pool2d": lambda T, m: T.nn.functional.avg_pool2d(m.view(1, 1, 3, 3), 2),
    "max_pool2d": lambda T, m: T.nn.functional.max_pool2d(m.view(1, 1, 3, 3), 2),
    "pad": lambda T, m: T.nn.functional.pad(m.view(1, 3, 3), (1, 1), mode="reflect"),
    "unfold": lambda T, m: T.nn.functional.unfold(m.view(1, 1, 3, 3), 2),
    "interpolate": lambda T, m: T.nn.functional.interpolate(m.view(1, 1, 3, 3), scale_factor=2),
    "prod": lambda T, m: m.prod(0),
    "inv": lambda T, m: T.linalg.inv(m),
    "solve": lambda T, m: T.linalg.solve(m, m),
    "nanmedian": lambda T, m: m.nanmedian(0)[0],
    "i0e": lambda T, m: T.special.i0e(m),
    "max_unpool2d": lambda T, m: T.nn.functional.max_unpool2d(m.view(1, 1, 3, 3), T.arange(9).view(1, 1, 3, 3), 1),
}


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", NAMED)
def test_node_names(name):
    theirs, ours = (NAMED[name](T, leaf(T, 3, 3)).grad_fn.name() for T in (torch, xgrad))
    assert ours == theirs


def test_names_in_dir_can_be_read():
    m = leaf(xgrad, 2, 2)
    made = (m * 2, m / 2, m + 1, m**2, m.sum(), m.sum(0), m @ m, m[index(xgrad)], m.prod(),
            xgrad.nn.functional.mse_loss(m, m.detach()))  # fmt: skip
    for node in (each.grad_fn for each in made):
        assert [name for name in dir(node) if "_saved" in name and not hasattr(node, name)] == []


def test_a_sum_over_all_has_no_dim_and_empty_tensors_have_strides():
    for T in (torch, xgrad):
        assert not hasattr(leaf(T, 2, 2).sum().grad_fn, "_saved_dim")
        assert not hasattr(leaf(T, 2, 2).mean().grad_fn, "_saved_keepdim")
        empty = T.ones(2, 0, requires_grad=True).mm(T.ones(0, 3, requires_grad=True))
        assert empty.grad_fn._saved_self_sym_strides == (1, 1)
