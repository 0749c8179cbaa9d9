"""functional_call and stack_module_state: modules as functions of their parameters, against torch."""

import numpy as np
import pytest

import xgrad
from xgrad.func import debug_unwrap, functional_call

from ..oracle import array, as_torch, data, same_error, values


def network(T):
    """Two layers that share their weight, and a buffer that counts."""

    class Network(T.nn.Module):
        def __init__(self):
            super().__init__()
            self.first = T.nn.Linear(3, 3, dtype=T.float64)
            self.second = T.nn.Linear(3, 3, dtype=T.float64)
            self.second.weight = self.first.weight
            self.register_buffer("calls", T.zeros(()))

        def forward(self, x, *, scale=1.0):
            self.calls = self.calls + 1
            return self.second(self.first(x).tanh()) * scale

    return Network()


def parameters(T, seed=0):
    return {
        "first.weight": data(T, (3, 3), seed),
        "first.bias": data(T, (3,), seed),
        "second.bias": data(T, (3,), seed + 1),
    }


def test_a_call_with_other_parameters():
    def program(T):
        net, state = network(T), parameters(T) | {"calls": T.tensor(5.0)}
        before = net.first.weight
        out = T.func.functional_call(net, state, data(T, (2, 3)), {"scale": 2.0})
        again = T.func.functional_call(net, (parameters(T), {}), (data(T, (2, 3)),))
        return out, again, state["calls"], net.first.weight is before, net.second.weight is before

    as_torch(program)


@pytest.mark.exhaustive
def test_gradients_with_respect_to_parameters_for_each_example():
    def program(T):
        net, F = network(T), T.func

        def loss(p, x):
            return F.functional_call(net, p, x).pow(2).sum()

        whole = F.grad(loss)(parameters(T), data(T, (2, 3)))
        each = T.vmap(F.grad(loss), in_dims=(None, 0))(parameters(T), data(T, (2, 3)))
        return whole, each

    as_torch(program)


def test_an_ensemble():
    def program(T):
        models = [T.nn.Linear(3, 2, dtype=T.float64) for _ in range(2)]
        with T.no_grad():
            for i, model in enumerate(models):
                model.weight.copy_(data(T, (2, 3), i))
                model.bias.copy_(data(T, (2,), i))
        params, buffers = T.func.stack_module_state(models)
        call = T.vmap(lambda p, x: T.func.functional_call(models[0], p, x), in_dims=(0, None))
        return params, buffers, [p.requires_grad and p.is_leaf for p in params.values()], call(params, data(T, (4, 3)))

    as_torch(program)


def test_wrong_calls():
    def call(*args, **kwargs):
        return lambda T: T.func.functional_call(network(T), *(a(T) for a in args), data(T, (2, 3)), **kwargs)

    same_error(call(lambda T: (parameters(T), parameters(T))), "appeared in multiple dictionaries")
    same_error(call(lambda T: 3), "to be a dict, or a list/tuple of dicts")
    same_error(call(lambda T: [3]), "all elements of parameter_and_buffer_dicts to be dictionaries")
    same_error(call(parameters, strict=True), "(?i)missing key")
    tied = lambda T: parameters(T) | {"second.weight": data(T, (3, 3), 7)}  # noqa: E731
    same_error(call(tied), "tied|one tensor")
    same_error(lambda T: T.func.stack_module_state([]), "at least one model")
    same_error(lambda T: T.func.stack_module_state([T.nn.Linear(1, 1), T.nn.Linear(1, 1).eval()]), "same training/eval")
    same_error(lambda T: T.func.stack_module_state([T.nn.Linear(1, 1), T.nn.Sequential()]), "of the same class")


def test_after_an_error_the_module_has_its_own_parameters():
    net = network(xgrad)
    before = net.first.weight
    try:
        functional_call(net, parameters(xgrad), xgrad.ones(7))
    except RuntimeError:
        pass
    assert net.first.weight is before


def test_debug_unwrap_shows_all_entries():
    shown = []
    x = data(xgrad, (2, 3))
    xgrad.vmap(xgrad.vmap(lambda v: shown.extend([debug_unwrap(v), debug_unwrap(v, recurse=False)]) or v))(x)
    np.testing.assert_array_equal(array(shown[0]), values((2, 3)))
    assert shown[1].shape == (3,)
    assert debug_unwrap(x) is x
