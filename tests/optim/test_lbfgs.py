"""LBFGS and SparseAdam, which are no rules over whole parameters, are PyTorch's."""

import numpy as np
import pytest
import torch

import xgrad


def valley(lib, options, dtype="float64", steps=4):
    w = lib.tensor([-1.5, 2.0, 0.3, 0.7], dtype=getattr(lib, dtype), requires_grad=True)
    b = lib.tensor([[0.3], [0.2]], dtype=getattr(lib, dtype), requires_grad=True)
    optimizer = lib.optim.LBFGS([w, b], **options)

    def closure():
        optimizer.zero_grad()
        loss = (100 * (w[1:] - w[:-1] ** 2) ** 2 + (1 - w[:-1]) ** 2).sum() * 0.01 + ((b - 1) ** 4).sum()
        loss.backward()
        return loss

    losses = [optimizer.step(closure).item() for _ in range(steps)]
    return losses, optimizer.state[w]["func_evals"], optimizer.state[w]["n_iter"]


@pytest.mark.parametrize(
    "options",
    [
        {"line_search_fn": "strong_wolfe"}, {}, {"lr": 0.5, "max_iter": 5},
        {"line_search_fn": "strong_wolfe", "history_size": 3, "max_iter": 7},
        {"line_search_fn": "strong_wolfe", "max_eval": 4}, {"tolerance_grad": 0.1}, {"tolerance_change": 0.01},
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.one_in(3)
def test_losses_and_evaluations_of_lbfgs(options):
    ours, theirs = valley(xgrad, options), valley(torch, options)
    np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-6)
    assert ours[1:] == theirs[1:]


def test_lbfgs_goes_on_from_pytorchs_checkpoint():
    found = []
    for lib in (xgrad, torch):
        w = torch.tensor([3.0, -4.0], requires_grad=True)
        first = torch.optim.LBFGS([w], max_iter=3)
        first.step(closure_of(torch, first, w))
        if lib is xgrad:
            w = xgrad.tensor(w.tolist(), requires_grad=True)
            optimizer = xgrad.optim.LBFGS([w])
            optimizer.load_state_dict(first.state_dict())
        else:
            optimizer = first
        optimizer.step(closure_of(lib, optimizer, w))
        found.append((w.detach().numpy(), optimizer.state[w]["n_iter"]))
    np.testing.assert_allclose(found[0][0], found[1][0], rtol=1e-4)
    assert found[0][1] == found[1][1]


def closure_of(lib, optimizer, w):
    def closure():
        optimizer.zero_grad()
        loss = ((w - lib.tensor([1.0, 2.0])) ** 4).sum()
        loss.backward()
        return loss

    return closure


def test_what_lbfgs_refuses():
    w, v = xgrad.ones(2, requires_grad=True), xgrad.ones(2, requires_grad=True)
    with pytest.raises(ValueError, match="LBFGS doesn't support per-parameter options"):
        xgrad.optim.LBFGS([{"params": [w]}, {"params": [v]}])
    optimizer = xgrad.optim.LBFGS([w], line_search_fn="golden")
    with pytest.raises(RuntimeError, match="only 'strong_wolfe' is supported"):
        optimizer.step(closure_of(xgrad, optimizer, w))
    with pytest.raises(TypeError, match="needs a closure"):
        optimizer.step()


def embedded(lib, name, options):
    rng = np.random.RandomState(0)
    table = lib.tensor(rng.randn(6, 2).tolist(), dtype=lib.float32, requires_grad=True)
    optimizer = getattr(lib.optim, name)([table], **options)
    for _ in range(10):
        optimizer.zero_grad()
        rows = lib.tensor(rng.randint(0, 6, size=rng.randint(1, 5)).tolist())
        (lib.nn.functional.embedding(rows, table, sparse=True) ** 2).sum().backward()
        optimizer.step()
    return table.detach().numpy()


@pytest.mark.parametrize(
    "case",
    [
        ("SparseAdam", {"lr": 0.1}), ("SparseAdam", {"lr": 0.01, "maximize": True, "betas": (0.5, 0.7)}),
        ("SGD", {"lr": 0.1, "momentum": 0.9}), ("Adagrad", {"lr": 0.1}),
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
def test_sparse_gradients(case):
    np.testing.assert_allclose(embedded(xgrad, *case), embedded(torch, *case), rtol=1e-5, atol=1e-6)


def test_sparse_gradients_and_parameters_that_are_refused():
    for name, text in (
        ("Adam", "Adam does not support sparse gradients, please consider SparseAdam instead"),
        ("RMSprop", "RMSprop does not support sparse gradients"),
    ):
        with pytest.raises(RuntimeError, match=text):
            embedded(xgrad, name, {})
    with pytest.raises(RuntimeError, match="weight_decay option is not compatible with sparse gradients"):
        embedded(xgrad, "Adagrad", {"weight_decay": 0.1})
    w = xgrad.ones(2, requires_grad=True)
    optimizer = xgrad.optim.SparseAdam([w])
    w.sum().backward()
    with pytest.raises(RuntimeError, match="SparseAdam does not support dense gradients, please consider Adam instead"):
        optimizer.step()
    with pytest.raises(ValueError, match=r"Complex params at indices \[\[0, 0\]\]"):
        xgrad.optim.SparseAdam([xgrad.ones(2, dtype=xgrad.complex64)])
