"""A Linen module is trained by the tape as by `jax.value_and_grad`, and its other collections are buffers."""

import copy

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen

import xgrad
from xgrad.func import functional_call, grad
from xgrad.interop.flax import wrap
from xgrad.utils.checkpoint import checkpoint

from .training import IMAGES, LABELS, STEPS, TOKENS, TX, Tape, difference, labelled

F64 = {"dtype": jnp.float64, "param_dtype": jnp.float64}
KEY = jax.random.key(3)


class Convolutional(linen.Module):
    @linen.compact
    def __call__(self, x, train):
        x = linen.Conv(4, (3, 3), **F64)(x)
        x = linen.BatchNorm(use_running_average=not train, **F64)(x)
        x = linen.Dropout(0.3, deterministic=not train)(linen.relu(x))
        return linen.Dense(3, **F64)(x.mean((1, 2)))


class Transformer(linen.Module):
    @linen.compact
    def __call__(self, tokens, train):
        embed = linen.Embed(11, 8, **F64)
        x = embed(tokens)
        attend = linen.MultiHeadDotProductAttention(2, dropout_rate=0.2, deterministic=not train, **F64)
        x = x + attend(linen.LayerNorm(**F64)(x), mask=linen.make_causal_mask(tokens))
        x = x + linen.Dense(8, **F64)(linen.gelu(linen.Dense(16, **F64)(linen.LayerNorm(**F64)(x))))
        return embed.attend(x)


class Small(linen.Module):
    def setup(self):
        self.first, self.second = linen.Dense(4, **F64), linen.Dense(2, **F64)
        self.drop = linen.Dropout(0.5)

    def __call__(self, x, train=False):
        return self.second(self.drop(self.hidden(x), deterministic=not train))

    def hidden(self, x):
        h = linen.tanh(self.first(x))
        self.sow("intermediates", "h", h)
        return h


X = np.arange(12.0).reshape(4, 3) / 10


def small(**options):
    return wrap(Small(), jax.random.key(0), X, **options)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("model", "inputs", "labels"), [(Convolutional(), IMAGES, LABELS), (Transformer(), TOKENS, TOKENS)]
)
def test_twenty_steps_are_those_of_jax(model, inputs, labels):
    variables = jax.tree.map(jnp.float64, model.init(jax.random.key(0), inputs, False))  # Flax's statistics are float32
    step = Tape(wrap(model, variables, rngs={"dropout": KEY}))

    @jax.jit
    def own_step(params, rest, state, count):
        def loss_of(params):
            rngs = {"dropout": jax.random.fold_in(KEY, count)}
            logits, changed = model.apply({"params": params, **rest}, inputs, True, rngs=rngs, mutable=["batch_stats"])
            return labelled(logits, labels), changed

        (loss, changed), grads = jax.value_and_grad(loss_of, has_aux=True)(params)
        updates, state = TX.update(grads, state, params)
        return optax.apply_updates(params, updates), {**rest, **changed}, state, loss

    params = variables["params"]
    rest, state = {k: v for k, v in variables.items() if k != "params"}, TX.init(params)
    for count in range(STEPS):
        mine = step(inputs, labels, True)
        params, rest, state, its = own_step(params, rest, state, jnp.uint32(count))
        assert abs(mine.item() - float(its)) < 1e-10
    assert difference(step.net.variables, {"params": params, **rest}) < 1e-10
    assert step.step.metrics().traces == 1
    step.net.eval()
    mine = step.net(xgrad.tensor(inputs), False)
    assert np.allclose(mine.detach().numpy(), model.apply({"params": params, **rest}, inputs, False), atol=1e-10)


@pytest.mark.exhaustive
def test_names_are_paths_and_other_collections_have_theirs_in_front():
    net = wrap(Convolutional(), Convolutional().init(KEY, IMAGES, False), rngs={"dropout": KEY})
    assert [name for name, _ in net.named_parameters()] == [
        "BatchNorm_0.bias", "BatchNorm_0.scale", "Conv_0.bias", "Conv_0.kernel", "Dense_0.bias", "Dense_0.kernel",
    ]  # fmt: skip
    assert [name for name, _ in net.named_buffers()] == [
        "batch_stats.BatchNorm_0.mean", "batch_stats.BatchNorm_0.var", "rngs.dropout.count", "rngs.dropout.key",
    ]  # fmt: skip
    assert jax.tree.structure(net.variables) == jax.tree.structure(Convolutional().init(KEY, IMAGES, False))


@pytest.mark.exhaustive
def test_the_tree_has_the_latest_arrays():
    net = small()
    with xgrad.no_grad():
        net.first.bias.add_(1)
    before = net.variables["params"]["first"]["bias"]
    with xgrad.no_grad():
        net.first.bias.add_(1)
    assert before.tolist() == [1.0] * 4  # what was read stays
    assert net.variables["params"]["first"]["bias"].tolist() == [2.0] * 4


@pytest.mark.exhaustive
def test_arguments_pass_through_and_a_call_may_bring_its_own_keys():
    net = small()
    x = xgrad.tensor(X)
    given = {"dropout": jax.random.key(8)}
    mine = net(x, train=True, rngs=given)
    theirs = Small().apply(net.variables, X, train=True, rngs=given)
    assert np.allclose(mine.detach().numpy(), theirs)
    assert not xgrad.equal(mine, net(x))
    with pytest.raises(Exception, match="dropout"):  # Flax: no key for it
        net(x, train=True)
    out, changed = net(x, mutable=["intermediates"])
    assert xgrad.allclose(net.second.bias + changed["intermediates"]["h"][0] @ net.second.kernel, out)
    hidden = small(method="hidden")
    assert xgrad.allclose(hidden(x), changed["intermediates"]["h"][0])


def test_collections_change_in_train_mode_only():
    net = wrap(Convolutional(), jax.random.key(0), IMAGES, False, rngs={"dropout": KEY})
    mean = net.get_buffer("batch_stats.BatchNorm_0.mean")
    x = xgrad.tensor(IMAGES)
    net(x, True)
    assert mean.abs().sum().item() > 0
    net.eval()
    with pytest.raises(Exception, match="batch_stats"):  # Flax: the collection is not mutable
        net(x, True, rngs={"dropout": KEY})
    assert xgrad.equal(net(x, False), net(x, False))
    assert net.rngs.dropout.count.item() == 1


@pytest.mark.exhaustive
def test_freezing_hooks_double_backward_and_functional_call():
    net, x = small(), xgrad.tensor(X, requires_grad=True)
    net.first.bias.requires_grad_(False)
    seen = []
    net.second.bias.register_hook(lambda g: seen.append(g.tolist()))
    (gx,) = xgrad.autograd.grad(net(x).sum(), x, create_graph=True)
    (gx**2).sum().backward()

    def outer(params):
        return (jax.grad(lambda x: Small().apply({"params": params}, x).sum())(X) ** 2).sum()

    expected = jax.grad(outer)(net.variables["params"])
    assert np.allclose(net.first.kernel.grad.numpy(), expected["first"]["kernel"])
    assert net.first.bias.grad is None
    net(x).sum().backward()
    assert seen[-1] == [4.0, 4.0]
    others = {name: p.detach() * 2 for name, p in net.named_parameters()}
    found = grad(lambda p: functional_call(net, p, xgrad.tensor(X)).sum())(others)
    doubled = jax.tree.map(lambda a: a * 2, net.variables["params"])
    expected = jax.grad(lambda p: Small().apply({"params": p}, X).sum())(doubled)
    assert np.allclose(found["first.kernel"].numpy(), expected["first"]["kernel"])


@pytest.mark.exhaustive
def test_a_checkpoint_draws_the_same_numbers_again():
    def gradients(run):
        net = small(rngs={"dropout": KEY})
        run(net, xgrad.tensor(X)).sum().backward()
        return [*(p.grad for p in net.parameters()), net.rngs.dropout.count]

    plain = gradients(lambda net, x: net(x, train=True))
    again = gradients(lambda net, x: checkpoint(net, x, use_reentrant=False, train=True))
    assert all(xgrad.allclose(a, b) for a, b in zip(plain, again, strict=True))


@pytest.mark.exhaustive
def test_copies_and_states():
    net = small(rngs={"dropout": KEY})
    net(xgrad.tensor(X), train=True)
    net.first.requires_grad_(False)
    twin = copy.deepcopy(net)
    assert twin.rngs.dropout.count.item() == 1
    assert not twin.first.bias.requires_grad
    other = wrap(Small(), jax.random.key(5), X, rngs={"dropout": jax.random.key(6)})
    other.load_state_dict(net.state_dict())
    assert xgrad.equal(other(xgrad.tensor(X), train=True), net(xgrad.tensor(X), train=True))
    with xgrad.no_grad():
        twin.second.kernel.zero_()
    assert net.second.kernel.abs().sum().item() > 0


def test_bad_input_is_told():
    variables = Small().init(jax.random.key(0), X)
    with pytest.raises(TypeError, match=r"give the variables of Small.init\(key, \*inputs\).* and not nothing"):
        wrap(Small())
    with pytest.raises(ValueError, match=r"are to be collections.*these have \['first', 'second'\]"):
        wrap(Small(), variables["params"])
    with pytest.raises(ValueError, match="Dropout has no parameters"):
        wrap(linen.Dropout(0.5, deterministic=True), {"params": {}})
    with pytest.raises(TypeError, match=r"the variable params.w is not an array, but a builtins.str"):
        wrap(Small(), {"params": {"w": "w"}})
    with pytest.raises(TypeError, match=r"rngs\['dropout'\] must be a key"):
        wrap(Small(), variables, rngs={"dropout": 1})
    with pytest.raises(Exception, match="second"):  # Flax names what it misses
        wrap(Small(), {"params": {"first": variables["params"]["first"]}})(xgrad.tensor(X))
    with pytest.raises(TypeError, match="cannot be pickled"):
        __import__("pickle").dumps(small())
