"""An NNX module is trained by the tape as by NNX itself, and its Variables and the tensors are one and the same."""

import copy
import gc
import pickle
import subprocess
import sys
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import xgrad
from xgrad.func import functional_call, grad
from xgrad.interop.flax import wrap
from xgrad.utils.checkpoint import checkpoint

from .training import IMAGES, LABELS, STEPS, TOKENS, TX, Tape, difference, labelled

SGD = optax.sgd(0.1)
F64 = {"dtype": jnp.float64, "param_dtype": jnp.float64}


class Convolutional(nnx.Module):
    def __init__(self, rngs):
        self.conv = nnx.Conv(1, 4, (3, 3), **F64, rngs=rngs)
        self.norm = nnx.BatchNorm(4, **F64, rngs=rngs)
        self.norm.mean, self.norm.var = nnx.BatchStat(jnp.zeros(4)), nnx.BatchStat(jnp.ones(4))  # Flax's are float32
        self.drop = nnx.Dropout(0.3, rngs=rngs)
        self.out = nnx.Linear(4, 3, **F64, rngs=rngs)

    def __call__(self, x):
        x = self.drop(nnx.relu(self.norm(self.conv(x))))
        return self.out(x.mean((1, 2)))


class Block(nnx.Module):
    def __init__(self, rngs):
        self.attend = nnx.MultiHeadAttention(
            2, 8, dropout_rate=0.2, decode=False, deterministic=False, **F64, rngs=rngs
        )
        self.norms = nnx.List([nnx.LayerNorm(8, **F64, rngs=rngs) for _ in range(2)])
        self.wide, self.narrow = nnx.Linear(8, 16, **F64, rngs=rngs), nnx.Linear(16, 8, **F64, rngs=rngs)

    def __call__(self, x):
        x = x + self.attend(self.norms[0](x), mask=nnx.make_causal_mask(x[..., 0]))
        return x + self.narrow(nnx.gelu(self.wide(self.norms[1](x))))


class Transformer(nnx.Module):
    def __init__(self, rngs):
        self.embed = nnx.Embed(11, 8, **F64, rngs=rngs)
        self.blocks = nnx.List([Block(rngs)])

    def __call__(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.embed.attend(x)  # the embedding is used twice


class Small(nnx.Module):
    def __init__(self, rngs):
        self.first = nnx.Linear(3, 4, **F64, rngs=rngs)
        self.drop = nnx.Dropout(0.5, rngs=rngs)
        self.second = nnx.Linear(4, 2, **F64, rngs=rngs)

    def __call__(self, x):
        return self.second(self.drop(nnx.tanh(self.first(x))))

    def hidden(self, x, *, double=False):
        return nnx.tanh(self.first(x)) * (2 if double else 1)


def value(variable):
    return variable.get_value() if hasattr(variable, "get_value") else variable.value


def assign(variable, new):
    (variable.set_value if hasattr(variable, "set_value") else lambda v: setattr(variable, "value", v))(new)


X = np.arange(12.0).reshape(4, 3) / 10


def small():
    model = Small(nnx.Rngs(0))
    return model, wrap(model)


@nnx.jit
def own_step(model, optimizer, inputs, labels):
    loss, grads = nnx.value_and_grad(lambda m: labelled(m(inputs), labels))(model)
    optimizer.update(model, grads)
    return loss


@pytest.mark.exhaustive
@pytest.mark.parametrize(("kind", "inputs", "labels"), [(Convolutional, IMAGES, LABELS), (Transformer, TOKENS, TOKENS)])
def test_twenty_steps_are_those_of_nnx(kind, inputs, labels):
    model, reference = kind(nnx.Rngs(1)), kind(nnx.Rngs(1))
    optimizer = nnx.Optimizer(reference, TX, wrt=nnx.Param)
    step = Tape(wrap(model))
    for _ in range(STEPS):
        mine, its = step(inputs, labels), own_step(reference, optimizer, inputs, labels)
        assert abs(mine.item() - float(its)) < 1e-10
    assert difference(nnx.state(model), nnx.state(reference)) < 1e-10
    assert step.step.metrics().traces == 1
    step.net.eval()
    reference.eval()
    given = step.net(xgrad.tensor(inputs))
    assert np.allclose(given.detach().numpy(), reference(inputs), atol=1e-10)


@pytest.mark.exhaustive
def test_eager_steps_are_those_of_nnx():
    (model, net), reference = small(), Small(nnx.Rngs(0))
    optimizer, labels = nnx.Optimizer(reference, SGD, wrt=nnx.Param), np.array([0, 1, 1, 0])
    for _ in range(3):
        net.zero_grad()
        xgrad.nn.functional.cross_entropy(net(xgrad.tensor(X)), xgrad.tensor(labels)).backward()
        with xgrad.no_grad():
            for p in net.parameters():
                p.sub_(p.grad, alpha=0.1)
        own_step(reference, optimizer, X, labels)
    assert difference(nnx.state(model), nnx.state(reference)) < 1e-10


@pytest.mark.exhaustive
def test_names_are_the_paths_of_the_module():
    net = wrap(Transformer(nnx.Rngs(0)))
    names = [name for name, _ in net.named_parameters()]
    assert "embed.embedding" in names
    assert "blocks.0.norms.0.scale" in names
    assert net.blocks.get_parameter("0.attend.query.kernel").shape == (8, 2, 4)
    assert [name for name, _ in small()[1].named_buffers()] == ["drop.rngs.count", "drop.rngs.key"]
    assert "(first): Linear(bias: [4], kernel: [3, 4])" in repr(small()[1])


def test_variables_have_the_latest_values():
    model, net = small()
    before = value(model.first.kernel)
    with xgrad.no_grad():
        net.first.kernel.mul_(2)
    assert np.array_equal(value(model.first.kernel), 2 * before)
    assert np.array_equal(nnx.state(model)["first"]["kernel"][...], 2 * before)
    net.load_state_dict({name: xgrad.ones_like(t) for name, t in net.state_dict().items()}, assign=True)
    assert np.array_equal(value(model.first.kernel), np.ones((3, 4)))
    assert type(model.first.kernel) is nnx.Param


def test_what_is_set_in_a_variable_is_what_the_tensor_has():
    model, net = small()
    parameter = net.second.bias
    assign(model.second.bias, jnp.array([3.0, 4.0]))
    assert parameter.tolist() == [3.0, 4.0]
    assert net.second.bias is parameter
    nnx.update(model, nnx.state(Small(nnx.Rngs(7))))
    net.eval()
    assert np.allclose(net(xgrad.tensor(X)).detach().numpy(), model(X))
    model.second.bias = nnx.Param(jnp.array([5.0, 6.0]))  # another Variable in its place
    assert np.allclose(net(xgrad.tensor(X)).detach().numpy(), model(X))
    assert parameter.tolist() == [5.0, 6.0]
    with pytest.raises(TypeError, match="takes an array"):
        assign(model.second.bias, "five")


@pytest.mark.exhaustive
def test_a_transform_of_nnx_may_train_the_wrapped_module_meanwhile():
    model, net = small()
    optimizer = nnx.Optimizer(model, SGD, wrt=nnx.Param)
    first = net.first.kernel.detach().clone()
    own_step(model, optimizer, X, np.array([0, 1, 1, 0]))
    assert not xgrad.equal(net.first.kernel, first)
    assert net.drop.rngs.count.item() == 1
    net(xgrad.tensor(X)).sum().backward()
    assert net.drop.rngs.count.item() == 2


@pytest.mark.unverified("the eager run writes the first time")
def test_buffers_are_used_up_in_place_unless_somebody_has_read_them():
    model, net = small()
    for p in net.parameters():
        p.requires_grad_(False)

    @xgrad.compile
    def step():
        for p in net.parameters():
            p.mul_(2)

    step()  # the arrays came from the user: copied
    address = net.first.kernel._read().unsafe_buffer_pointer()
    assert net.first.kernel._owned
    step()
    assert net.first.kernel._read().unsafe_buffer_pointer() == address
    read = jax.device_put(value(model.first.kernel), jax.devices()[0])  # another object over the same memory
    kept = np.array(read)
    step()
    assert np.array_equal(read, kept)
    assert np.array_equal(value(model.first.kernel), 2 * kept)


def test_a_call_hands_nothing_out():
    _, net = small()
    with xgrad.no_grad():
        for p in net.parameters():
            p.mul_(2)
    net(xgrad.tensor(X)).sum().backward()
    net.train()
    assert all(p._owned for p in net.parameters())


def test_frozen_parameters_get_no_gradient_and_hooks_see_the_others():
    _, net = small()
    net.first.requires_grad_(False)
    seen = []
    net.second.kernel.register_hook(lambda g: seen.append(g.shape) or g * 0)
    net(xgrad.tensor(X)).sum().backward()
    assert net.first.kernel.grad is None
    assert seen == [(4, 2)]
    assert net.second.kernel.grad.abs().sum().item() == 0
    assert net.second.bias.grad.tolist() == [4.0, 4.0]


def test_train_and_eval_switch_the_flags_of_nnx():
    model, net = small()
    assert net.training
    assert net.eval() is net
    assert model.drop.deterministic
    assert not net.first.training
    assert xgrad.equal(net(xgrad.tensor(X)), net(xgrad.tensor(X)))
    model.train()  # by the module itself: seen by the next eager call
    assert not xgrad.equal(net(xgrad.tensor(X)), net(xgrad.tensor(X)))
    model.eval()
    assert not wrap(model).training


def test_compiled_calls_follow_train_and_eval():
    model, net = small()
    call = xgrad.compile(lambda x: net(x).detach())
    assert not xgrad.equal(call(xgrad.tensor(X)), call(xgrad.tensor(X)))
    count = net.drop.rngs.count.item()
    net.eval()
    assert np.allclose(call(xgrad.tensor(X)).numpy(), model(X))
    assert net.drop.rngs.count.item() == count == 2
    assert call.metrics().traces == 2


@pytest.mark.exhaustive
def test_double_backward_is_that_of_jax():
    model, net = small()
    net.eval()
    x = xgrad.tensor(X, requires_grad=True)
    (gx,) = xgrad.autograd.grad((net(x) ** 2).sum(), x, create_graph=True)
    (gx**2).sum().backward()

    graphdef, params, rest = nnx.split(model, nnx.Param, ...)

    def outer(params):
        return (jax.grad(lambda x: (nnx.merge(graphdef, params, rest)(x) ** 2).sum())(X) ** 2).sum()

    expected = jax.grad(outer)(params)["first"]["kernel"]
    assert np.allclose(net.first.kernel.grad.numpy(), value(expected), atol=1e-12)


@pytest.mark.exhaustive
def test_functional_call_takes_other_tensors():
    model, net = small()
    net.eval()
    others = {name: p.detach() * 3 for name, p in net.named_parameters()}
    found = grad(lambda p, x: functional_call(net, p, x).sum())(others, xgrad.tensor(X))
    graphdef, state, rest = nnx.split(model, nnx.Param, ...)
    tripled = jax.tree.map(lambda a: a * 3, state)
    expected = jax.grad(lambda s: nnx.merge(graphdef, s, rest)(X).sum())(tripled)
    assert np.allclose(found["first.kernel"].numpy(), value(expected["first"]["kernel"]))
    assert net.first.kernel.grad is None


@pytest.mark.exhaustive
@pytest.mark.parametrize("compiled", [False, True])
def test_a_checkpoint_draws_the_same_numbers_again_and_moves_no_state(compiled):
    def gradients(run):
        _, net = small()

        def step(x):
            run(net, x).sum().backward()
            return [p.grad for p in net.parameters()]

        found = (xgrad.compile(step) if compiled else step)(xgrad.tensor(X))
        return [*found, net.drop.rngs.count]

    plain = gradients(lambda net, x: net(x))
    again = gradients(lambda net, x: checkpoint(net, x, use_reentrant=False))
    assert all(xgrad.allclose(a, b) for a, b in zip(plain, again, strict=True))
    assert plain[-1].item() == 1


def test_a_state_that_is_written_after_the_call_is_not_that_of_backward():
    _, net = small()
    first = net(xgrad.tensor(X))
    net(xgrad.tensor(X))
    first.sum().backward()  # no complaint of a buffer that was modified
    mine = net.second.kernel.grad
    _, other = small()
    other(xgrad.tensor(X)).sum().backward()
    assert xgrad.equal(mine, other.second.kernel.grad)


def test_state_dict_goes_into_another_module():
    (model, net), (_, other) = small(), (None, wrap(Small(nnx.Rngs(5))))
    assert other.load_state_dict(net.state_dict()).missing_keys == []
    assert xgrad.equal(other(xgrad.tensor(X)), net(xgrad.tensor(X)))  # the streams of random numbers are state too
    with pytest.raises(RuntimeError, match=r'(?s)Missing key.*"first.bias".*Unexpected key.*"first.weight"'):
        net.load_state_dict({**{k: v for k, v in net.state_dict().items() if k != "first.bias"},
                             "first.weight": xgrad.ones(1)})  # fmt: skip
    with pytest.raises(RuntimeError, match=r"size mismatch for second\.bias"):
        net.load_state_dict({**net.state_dict(), "second.bias": xgrad.ones(3)})
    net.to(jax.devices()[1])
    assert value(model.first.kernel).devices() == {jax.devices()[1]}
    assert net(xgrad.tensor(X, device=jax.devices()[1])).device == xgrad.device(jax.devices()[1])


@pytest.mark.exhaustive
def test_methods_flags_and_functions():
    model, net = small()
    hidden = wrap(model, method="hidden")
    assert hidden.first.kernel is net.first.kernel
    once = hidden(xgrad.tensor(X))
    assert xgrad.allclose(hidden(xgrad.tensor(X), double=True), once * 2)
    assert wrap(model, method=lambda m, x: {"h": m.hidden(x)})(xgrad.tensor(X))["h"].requires_grad
    other = {"first.kernel": xgrad.zeros(3, 4), "first.bias": xgrad.ones(4)}
    assert xgrad.allclose(functional_call(hidden, other, xgrad.tensor(X)), xgrad.ones(4, 4).double().tanh())
    net.load_state_dict({n: t * 0 for n, t in net.state_dict().items() if "first" in n}, strict=False, assign=True)
    assert hidden(xgrad.tensor(X)).abs().max().item() == 0
    first = wrap(model.first)
    assert first.kernel is net.first.kernel
    net.first.kernel.data = xgrad.zeros(3, 4)
    with pytest.raises(ValueError, match="bias was a parameter when the module was wrapped before"):
        wrap(model, wrt=nnx.BatchStat)
    assert hidden(xgrad.tensor(X)).abs().max().item() == model.hidden(X).max() == 0


def test_only_what_wrt_names_is_a_parameter():
    model = Small(nnx.Rngs(0))
    net = wrap(model, wrt=lambda path, v: isinstance(v, nnx.Param) and "second" in path)
    assert [name for name, _ in net.named_parameters()] == ["second.bias", "second.kernel"]
    net(xgrad.tensor(X)).sum().backward()
    assert net.second.bias.grad is not None


def test_sown_values_arrive_in_the_module():
    class Sowing(nnx.Module):
        def __init__(self):
            self.w = nnx.Param(jnp.ones(3))

        def __call__(self, x):
            self.seen = nnx.Intermediate(x * self.w[...])
            return (x * self.w[...]).sum()

    model = Sowing()
    net = wrap(model)
    net(xgrad.tensor([1.0, 2.0, 3.0])).backward()
    assert value(model.seen).tolist() == [1.0, 2.0, 3.0]
    with pytest.raises(NotImplementedError, match="makes new Variables"):
        xgrad.compile(wrap(Sowing()))(xgrad.ones(3))


def test_copies_are_modules_of_their_own():
    model, net = small()
    net.first.requires_grad_(False)
    twin = copy.deepcopy(net)
    with xgrad.no_grad():
        twin.second.kernel.zero_()
    assert net.second.kernel.abs().sum().item() > 0
    assert not value(twin.module.second.kernel).any()
    assert not twin.first.kernel.requires_grad
    again = pickle.loads(pickle.dumps(nnx.state(model)))
    assert np.array_equal(value(again["first"]["kernel"]), value(model.first.kernel))


def test_nothing_is_kept_alive():
    gc.disable()
    try:
        model, net = small()
        net(xgrad.tensor(X)).sum().backward()
        kernel = weakref.ref(net.first.kernel)
        del net
        value(model.first.kernel)  # the module still has its values
        assert kernel() is not None
        del model
        gc.enable()
        gc.collect()
        assert kernel() is None
    finally:
        gc.enable()


def test_bad_input_is_told():
    with pytest.raises(TypeError, match=r"expected a module of Flax .* but got xgrad.nn"):
        wrap(xgrad.nn.Linear(2, 2))
    with pytest.raises(TypeError, match="the class Small: make one"):
        wrap(Small)
    with pytest.raises(ValueError, match="Dropout has no parameters"):
        wrap(nnx.Dropout(0.5, rngs=nnx.Rngs(0)))
    _, net = small()
    with pytest.raises(NotImplementedError, match="runs as one JAX function"):
        net.first(xgrad.tensor(X))
    with pytest.raises(NotImplementedError, match="would never be called"):
        net.first.register_forward_hook(print)

    class Counting(nnx.Module):
        def __init__(self):
            self.w, self.calls = nnx.Param(jnp.ones(3)), 0

        def __call__(self, x):
            self.calls += 1
            return x * self.w[...]

    with pytest.raises(RuntimeError, match="changes what is not a Variable"):
        wrap(Counting())(xgrad.ones(3))


@pytest.mark.exhaustive
def test_nothing_of_flax_is_changed_before_a_module_is_wrapped():
    code = """
from flax import nnx
before = {**vars(nnx.Variable)}
from xgrad.interop import flax
assert {**vars(nnx.Variable)} == before
flax.wrap(nnx.Linear(2, 3, rngs=nnx.Rngs(0)))
assert [name for name in before if vars(nnx.Variable)[name] is not before[name]] in (["_raw_value"], ["raw_value"])
"""
    subprocess.run([sys.executable, "-c", code], check=True)
