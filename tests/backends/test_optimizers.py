"""Each optimizer on a declared backend steps as on the CPU: eager and lazy, with donation and without."""

import numpy as np
import pytest

import xgrad

OPTIMIZERS = {
    "SGD": {"momentum": 0.9},
    **{name: {} for name in ("ASGD", "Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "NAdam", "RAdam")},
    **{name: {} for name in ("RMSprop", "Rprop")},
    "Muon": {},
    "LBFGS": {},
}
BACKENDS = {
    "eager": {},
    "no donation": {"donation": False},
    "strides": {"strides": True},
    "lazy": {"execution": "lazy"},
    "lacking": {"without": ["sort"], "dtypes": ["float32", "int32", "bool"]},
}
VALUES = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)


def trained(name, device, statics, in_lazy_block=False):
    w = xgrad.tensor(VALUES, device=device, requires_grad=True)
    b = xgrad.tensor(VALUES[0], device=device, requires_grad=True)
    leaves = [w] if name == "Muon" else [w, b]
    optimizer = getattr(xgrad.optim, name)(leaves, lr=0.01, **statics)
    x = xgrad.tensor(VALUES.T.copy(), device=device)

    def closure():
        optimizer.zero_grad()
        loss = ((x @ w + b).tanh() ** 2).sum()
        loss.backward()
        return loss

    for _ in range(3):
        if in_lazy_block:
            with xgrad.lazy():
                optimizer.step(closure)
        else:
            optimizer.step(closure)
    assert all(leaf.device == x.device for leaf in leaves)
    return [leaf.detach().cpu().numpy() for leaf in leaves]


@pytest.mark.one_in(2)
@pytest.mark.parametrize("declared", BACKENDS.values(), ids=BACKENDS)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_steps_are_those_of_the_cpu(name, declared):
    chip = xgrad.Backend("chip", **declared)
    for ours, theirs in zip(trained(name, chip, OPTIMIZERS[name]), trained(name, "cpu", OPTIMIZERS[name])):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def test_steps_in_a_lazy_block():
    ours = trained("Adam", xgrad.Backend("chip"), {}, in_lazy_block=True)
    for mine, theirs in zip(ours, trained("Adam", "cpu", {})):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("donation", [True, False])
def test_foreach_writes_on_an_eager_backend(donation):
    chip = xgrad.Backend("chip", donation=donation)
    written = [xgrad.zeros(3, device=chip) + n for n in range(2)]
    for _ in range(2):
        xgrad._foreach_add_(written, 1.0)
    assert [t.tolist() for t in written] == [[2.0] * 3, [3.0] * 3]
    view = written[0][1:]
    xgrad._foreach_mul_([view], 2.0)
    assert written[0].tolist() == [2.0, 4.0, 4.0]
