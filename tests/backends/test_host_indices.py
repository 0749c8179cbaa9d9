"""Operators that make indices on the host run on a declared backend, with the CPU's values and gradients."""

import numpy as np
import pytest

import xgrad
import xgrad.nn.functional as F
from xgrad import nn
from xgrad.nn.utils.rnn import pack_padded_sequence, pack_sequence, pad_packed_sequence, unpack_sequence


def packed(kind, lengths, **options):
    def run(device):
        layer, x = kind(3, 4).to(device), xgrad.randn(5, 2, 3).to(device).requires_grad_()
        out, last = layer(pack_padded_sequence(x, lengths, **options))
        y, sizes = pad_packed_sequence(out, batch_first=True)
        last = last[0] if isinstance(last, tuple) else last
        (y.sum() + last.cos().sum()).backward()
        return y, sizes, last, x.grad, layer.weight_hh_l0.grad

    return run


def unpacked(device):
    sequence = pack_sequence([xgrad.randn(3, 2).to(device), xgrad.randn(2, 2).to(device)])
    return sequence.data, *unpack_sequence(sequence)


def bag(**options):
    def run(device):
        layer = nn.EmbeddingBag(10, 3, **options).to(device)
        y = layer(xgrad.tensor([[1, 2], [3, 3]]).to(device))
        y.sin().sum().backward()
        grad = layer.weight.grad
        return y, grad.to_dense() if grad.is_sparse else grad

    return run


def alignment(device):
    logits = xgrad.randn(10, 2, 5).to(device).requires_grad_()
    labels = xgrad.tensor([[1, 2, 3, 4], [4, 1, 1, 2]]).to(device)
    loss = F.ctc_loss(logits.log_softmax(-1), labels, (10, 9), (4, 3))
    loss.backward()
    return loss, logits.grad


def orthogonal(**options):
    def run(device):
        layer = nn.utils.parametrizations.orthogonal(nn.Linear(3, 3).to(device), **options)
        return (layer(xgrad.randn(4, 3).to(device)),)

    return run


CASES = {
    "lstm": packed(nn.LSTM, [5, 3]),
    "gru, unsorted": packed(nn.GRU, [3, 5], enforce_sorted=False),
    "sequences": unpacked,
    "bags": bag(),
    "bags, largest": bag(mode="max", padding_idx=1),
    "bags, by frequency": bag(mode="sum", scale_grad_by_freq=True, padding_idx=1),
    "bags, sparse": bag(mode="sum", sparse=True, padding_idx=1),
    "ctc": alignment,
    "combinations": lambda device: (xgrad.combinations(xgrad.rand(4).to(device)),),
    "orthogonal": orthogonal(),
    "cayley": orthogonal(orthogonal_map="cayley"),
}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", CASES)
def test_it_runs_with_the_cpus_values(name):
    found = []
    for device in ("cpu", xgrad.Backend("chip")):
        xgrad.manual_seed(0)
        found.append([x.detach().cpu().numpy() for x in CASES[name](device)])
    for theirs, ours in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
