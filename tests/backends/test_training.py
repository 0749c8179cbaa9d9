"""Whole training loops on a backend: xgrad.nn, optimizers, DataLoader, and checkpoints that cross to another device."""

import io

import numpy as np
import pytest

import xgrad
from xgrad.utils.data import DataLoader, TensorDataset

from ..oracle import values

BACKENDS = {
    "eager": {},
    "lazy": {"execution": "lazy"},
    "strided": {"strides": True},
    "copies": {"donation": False},
    "lacks": {"without": ["gelu", "addcdiv", "layer_norm", "dropout"]},
    "narrow": {"dtypes": ["float32", "int32"]},
}
RULES = {
    "AdamW": lambda p: xgrad.optim.AdamW(p, lr=0.05),
    "SGD": lambda p: xgrad.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True),
    "RMSprop": lambda p: xgrad.optim.RMSprop(p, lr=0.01, centered=True),
}


def made(place):
    xgrad.manual_seed(3)
    net = xgrad.nn.Sequential(
        xgrad.nn.Linear(4, 8), xgrad.nn.LayerNorm(8), xgrad.nn.GELU(), xgrad.nn.Dropout(0.25), xgrad.nn.Linear(8, 2)
    )
    return net.to(place)


def trained(net, optimizer, place, epochs=2):
    data = TensorDataset(xgrad.tensor(values((8, 4))).float(), xgrad.tensor([0, 1] * 4))
    loader = DataLoader(data, batch_size=4, shuffle=True, generator=xgrad.Generator().manual_seed(5))
    xgrad.manual_seed(4)  # of the dropout
    losses = []
    for _ in range(epochs):
        for x, y in loader:
            optimizer.zero_grad()
            loss = xgrad.nn.functional.cross_entropy(net(x.to(place)), y.to(place))
            loss.backward()
            xgrad.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            losses.append(loss.detach())
    return [loss.item() for loss in losses]


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("name", "rule"),
    [
        *((name, "AdamW") for name in BACKENDS),
        *((name, rule) for name in ("eager", "lazy") for rule in ("SGD", "RMSprop")),
    ],
)
def test_a_loop_on_a_backend_is_the_loop_on_the_cpu(name, rule):
    chip = xgrad.Backend("chip", **BACKENDS[name])
    net, plain = made(chip), made("cpu")
    optimizer, other = RULES[rule](net.parameters()), RULES[rule](plain.parameters())
    np.testing.assert_allclose(trained(net, optimizer, chip), trained(plain, other, "cpu"), rtol=2e-5)
    for a, b in zip(net.parameters(), plain.parameters()):
        assert a.device == a.grad.device == chip.device
        np.testing.assert_allclose(a.tolist(), b.tolist(), rtol=2e-4, atol=1e-6)


@pytest.mark.parametrize("name", ["eager", "lazy"])
def test_a_checkpoint_crosses_from_a_backend_to_the_cpu_and_on(name):
    chip = xgrad.Backend("chip", **BACKENDS[name])
    net = made(chip)
    optimizer = xgrad.optim.AdamW(net.parameters(), lr=0.05)
    trained(net, optimizer, chip, 1)
    file = io.BytesIO()
    xgrad.save({"net": net.state_dict(), "optimizer": optimizer.state_dict()}, file)
    file.seek(0)
    state = xgrad.load(file, map_location="cpu")
    assert {t.device.type for t in state["net"].values()} == {"cpu"}
    ends = []
    for place in ("cpu", chip, chip.replace(strides=True)):
        again = made(place)
        again.load_state_dict(state["net"])
        other = xgrad.optim.AdamW(again.parameters(), lr=0.05)
        other.load_state_dict(state["optimizer"])
        moments = [s["exp_avg"].device.type for s in other.state.values()]
        assert {*moments} == {xgrad.device(place).type}
        ends.append(trained(again, other, place, 1))
    np.testing.assert_allclose(ends[1:], [ends[0]] * 2, rtol=2e-5)
