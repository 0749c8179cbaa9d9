"""An Equinox module is trained by the tape as by `eqx.filter_value_and_grad`; its state and its flags are kept."""

import copy

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import xgrad
from xgrad.func import functional_call, grad
from xgrad.interop.equinox import wrap
from xgrad.utils.checkpoint import checkpoint

from .training import IMAGES, LABELS, STEPS, TOKENS, TX, Tape, difference, labelled

KEY = jax.random.key(3)


def keys(n, seed=0):
    return iter(jax.random.split(jax.random.key(seed), n))


class Convolutional(eqx.Module):
    conv: eqx.nn.Conv2d
    norm: eqx.nn.BatchNorm
    drop: eqx.nn.Dropout
    out: eqx.nn.Linear

    def __init__(self):
        key = keys(2)
        self.conv = eqx.nn.Conv2d(1, 4, 3, padding=1, key=next(key))
        self.norm = eqx.nn.BatchNorm(4, "batch", mode="batch", dtype=jnp.float64)
        self.drop = eqx.nn.Dropout(0.3)
        self.out = eqx.nn.Linear(4, 3, key=next(key))

    def __call__(self, x, key, state):
        x, state = self.norm(self.conv(x), state)
        return self.out(self.drop(jax.nn.relu(x), key=key).mean((1, 2))), state


def convolve(model, state, images, key):
    keys = jax.random.split(key, len(images))
    images = jnp.moveaxis(images, -1, 1)
    return jax.vmap(model, in_axes=(0, 0, None), out_axes=(0, None), axis_name="batch")(images, keys, state)


class Block(eqx.Module):
    attend: eqx.nn.MultiheadAttention
    norms: list
    mlp: eqx.nn.MLP

    def __init__(self, key):
        self.attend = eqx.nn.MultiheadAttention(2, 8, dropout_p=0.2, key=next(key))
        self.norms = [eqx.nn.LayerNorm(8) for _ in range(2)]
        self.mlp = eqx.nn.MLP(8, 8, 16, 1, activation=jax.nn.gelu, key=next(key))

    def __call__(self, x, key):
        h = jax.vmap(self.norms[0])(x)
        x = x + self.attend(h, h, h, mask=jnp.tril(jnp.ones((len(x), len(x)), bool)), key=key)
        return x + jax.vmap(self.mlp)(jax.vmap(self.norms[1])(x))


class Transformer(eqx.Module):
    embed: eqx.nn.Embedding
    blocks: list

    def __init__(self):
        key = keys(3)
        self.embed = eqx.nn.Embedding(11, 8, key=next(key))
        self.blocks = [Block(key)]

    def __call__(self, tokens, key):
        x = jax.vmap(self.embed)(tokens)
        for block in self.blocks:
            x = block(x, key)
        return x @ self.embed.weight.T


def read(model, state, tokens, key):
    return jax.vmap(model)(tokens, jax.random.split(key, len(tokens))), state


class Small(eqx.Module):
    first: eqx.nn.Linear
    second: eqx.nn.Linear
    drop: eqx.nn.Dropout
    order: jax.Array

    def __init__(self):
        key = keys(2)
        self.first, self.second = eqx.nn.Linear(3, 4, key=next(key)), eqx.nn.Linear(4, 2, key=next(key))
        self.drop, self.order = eqx.nn.Dropout(0.5), jnp.array([1, 0])

    def __call__(self, x, key=None, *, double=False):
        return self.second(self.drop(jnp.tanh(self.first(x)), key=key))[self.order] * (2 if double else 1)


X = np.arange(3.0) / 10


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("kind", "run", "inputs", "labels"),
    [(Convolutional, convolve, IMAGES, LABELS), (Transformer, read, TOKENS, TOKENS)],
)
def test_twenty_steps_are_those_of_equinox(kind, run, inputs, labels):
    model, state = eqx.nn.make_with_state(kind)()
    stateful = kind is Convolutional
    net = wrap(model, state, function=run) if stateful else wrap(model, function=lambda m, *a: run(m, None, *a)[0])
    step = Tape(net)

    @eqx.filter_jit
    def own_step(model, state, optimizer, key):
        def loss_of(model):
            logits, new = run(model, state, inputs, key)
            return labelled(logits, labels), new

        (loss, state), grads = eqx.filter_value_and_grad(loss_of, has_aux=True)(model)
        updates, optimizer = TX.update(grads, optimizer, eqx.filter(model, eqx.is_inexact_array))
        return eqx.apply_updates(model, updates), state, optimizer, loss

    optimizer = TX.init(eqx.filter(model, eqx.is_inexact_array))
    for count in range(STEPS):
        key = jax.random.fold_in(KEY, count)
        mine = step(inputs, labels, key)
        model, state, optimizer, its = own_step(model, state, optimizer, key)
        assert abs(mine.item() - float(its)) < 1e-10
    assert difference(eqx.filter(net.module, eqx.is_array), eqx.filter(model, eqx.is_array)) < 1e-10
    assert not stateful or difference(net.state, state) < 1e-10
    assert step.step.metrics().traces == 1
    net.eval()
    inference = eqx.nn.inference_mode(model)
    assert np.allclose(
        net(xgrad.tensor(inputs), KEY).detach().numpy(), run(inference, state, inputs, KEY)[0], atol=1e-10
    )


@pytest.mark.exhaustive
def test_names_are_paths_and_other_arrays_are_buffers():
    net = wrap(Small())
    assert [name for name, _ in net.named_parameters()] == [
        "first.weight", "first.bias", "second.weight", "second.bias",
    ]  # fmt: skip
    assert [name for name, _ in net.named_buffers()] == ["order"]
    deep = dict(wrap(Transformer(), function=lambda m, *a: read(m, None, *a)[0]).named_parameters())
    assert "blocks.0.mlp.layers.0.weight" in deep
    spec = eqx.tree_at(lambda m: m.second.bias, jax.tree.map(lambda _: False, Small()), True)
    assert [name for name, _ in wrap(Small(), filter_spec=spec).named_parameters()] == ["second.bias"]


def test_the_module_has_the_latest_arrays():
    given = Small()
    net = wrap(given)
    with xgrad.no_grad():
        net.first.bias.add_(1)
    before = net.module.first.bias
    with xgrad.no_grad():
        net.first.bias.add_(1)
    assert np.allclose(before, given.first.bias + 1)  # what was read stays
    assert np.allclose(net.module.first.bias, given.first.bias + 2)
    assert net.module.drop.p == 0.5


@pytest.mark.exhaustive
def test_modes_keys_and_flags():
    net, x = wrap(Small()), xgrad.tensor(X)
    assert net.training
    assert not xgrad.equal(net(x, KEY), net(x, jax.random.key(4)))
    with pytest.raises(RuntimeError, match="key"):  # Equinox: dropout needs one
        net(x)
    net.eval()
    assert np.allclose(net(x).detach().numpy(), eqx.nn.inference_mode(Small())(X))
    assert xgrad.allclose(net(x, double=True), net(x) * 2)
    assert net.module.drop.inference
    net.train()
    assert not xgrad.equal(net(x, KEY), net(x, jax.random.key(4)))
    assert not wrap(eqx.nn.inference_mode(Small())).training


@pytest.mark.exhaustive
def test_freezing_hooks_double_backward_and_functional_call():
    net, x = wrap(eqx.nn.inference_mode(Small())), xgrad.tensor(X, requires_grad=True)
    net.first.bias.requires_grad_(False)
    seen = []
    net.second.bias.register_hook(lambda g: seen.append(g.tolist()))
    (gx,) = xgrad.autograd.grad(net(x).sum(), x, create_graph=True)
    (gx**2).sum().backward()
    expected = eqx.filter_grad(lambda m: (jax.grad(lambda x: m(x).sum())(X) ** 2).sum())(net.module)
    assert np.allclose(net.first.weight.grad.numpy(), expected.first.weight)
    assert net.first.bias.grad is None
    net(x).sum().backward()
    assert seen[-1] == [1.0, 1.0]
    others = {name: p.detach() * 2 for name, p in net.named_parameters()}
    found = grad(lambda p: functional_call(net, p, xgrad.tensor(X)).sum())(others)
    doubled = jax.tree.map(lambda a: a * 2 if eqx.is_inexact_array(a) else a, net.module, is_leaf=eqx.is_array)
    expected = eqx.filter_grad(lambda m: m(X).sum())(doubled)
    assert np.allclose(found["first.weight"].numpy(), expected.first.weight)


@pytest.mark.exhaustive
def test_a_checkpoint_moves_the_state_once():
    def gradients(run):
        net = wrap(*eqx.nn.make_with_state(Convolutional)(), function=convolve)
        run(net, xgrad.tensor(IMAGES), KEY).square().sum().backward()
        return [*(p.grad for p in net.parameters()), *net.buffers()]

    plain = gradients(lambda net, *args: net(*args))
    again = gradients(lambda net, *args: checkpoint(net, *args, use_reentrant=False))
    assert all(xgrad.allclose(a, b) for a, b in zip(plain, again, strict=True))


def test_copies_and_states():
    net = wrap(Small())
    net.first.requires_grad_(False)
    twin = copy.deepcopy(net.eval())
    assert not twin.first.bias.requires_grad
    assert xgrad.equal(twin(xgrad.tensor(X)), net(xgrad.tensor(X)))
    with xgrad.no_grad():
        twin.second.bias.zero_()
    assert net.second.bias.abs().sum().item() > 0
    net.load_state_dict(twin.state_dict())
    assert net.module.second.bias.tolist() == [0.0, 0.0]
    with pytest.raises(RuntimeError, match=r'Missing key.*"first.weight"'):
        net.load_state_dict({})


def test_bad_input_is_told():
    model, state = eqx.nn.make_with_state(Convolutional)()
    with pytest.raises(TypeError, match=r"expected a module of Equinox .* the class Small: make one"):
        wrap(Small)
    with pytest.raises(ValueError, match="Dropout has no parameters"):
        wrap(eqx.nn.Dropout(0.5))
    with pytest.raises(TypeError, match=r"state= takes the eqx.nn.State of Convolutional, not builtins.dict"):
        wrap(model, {})
    with pytest.raises(TypeError, match="function= takes a function"):
        wrap(model, state, function=3)
    with pytest.raises(TypeError, match=r"is to give \(result, new state\), but it gave a"):
        wrap(model, state, function=lambda m, s, x: x)(xgrad.ones(2))
    with pytest.raises(NotImplementedError, match="would never be called"):
        wrap(Small()).first.register_forward_hook(print)
