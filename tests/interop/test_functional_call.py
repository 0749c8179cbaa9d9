"""An nn.Module in a training loop of pure JAX: its parameters are a dictionary of arrays there."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import xgrad
from xgrad import nn
from xgrad.func import functional_call


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(3, 4, dtype=xgrad.float64), nn.Linear(4, 1, dtype=xgrad.float64)
        self.register_buffer("seen", xgrad.zeros(3, dtype=xgrad.float64))

    def forward(self, x):
        self.seen.add_(x.detach().mean(0))
        h = self.first(x)
        h[:, 0] = x[:, 1]  # a write through a view, as everywhere
        return self.second(h.tanh())


X = np.random.default_rng(0).standard_normal((8, 3))
Y = X.sum(1, keepdims=True)


@pytest.mark.exhaustive
def test_a_module_is_trained_by_jax_as_by_the_tape():
    net = Net()
    params = {name: jnp.asarray(p.detach().numpy()) for name, p in net.named_parameters()}
    buffers = {name: jnp.asarray(b.numpy()) for name, b in net.named_buffers()}

    @xgrad.to_jax
    def loss_of(params, buffers, x, y):
        loss = ((functional_call(net, (params, buffers), (x,)) - y) ** 2).mean()
        return loss, buffers  # which forward has written

    tx = optax.adamw(1e-2)
    state = tx.init(params)

    @jax.jit
    def step(params, buffers, state):
        (loss, buffers), grads = jax.value_and_grad(loss_of, has_aux=True)(params, buffers, X, Y)
        updates, state = tx.update(grads, state, params)
        return optax.apply_updates(params, updates), buffers, state, loss

    for _ in range(5):
        params, buffers, state, loss = step(params, buffers, state)
    assert net.seen.abs().sum().item() == 0  # the module itself has not been touched

    optimizer = xgrad.interop.optax.Optimizer(net.named_parameters(), tx)
    for _ in range(5):
        optimizer.zero_grad()
        mine = ((net(xgrad.tensor(X)) - xgrad.tensor(Y)) ** 2).mean()
        mine.backward()
        optimizer.step()
    assert abs(mine.item() - float(loss)) < 1e-12
    for name, p in net.named_parameters():
        assert np.allclose(p.detach().numpy(), params[name], atol=1e-12)
    assert np.allclose(net.seen.numpy(), buffers["seen"])
