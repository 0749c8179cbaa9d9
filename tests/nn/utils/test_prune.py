"""Pruning, against torch's: masks, values, names of states, gradients, several methods on one parameter, errors."""

import pytest
import torch
import torch.nn.utils.prune

import xgrad

from ...oracle import as_torch, data, same, same_error


def layer(T, *shape, name="weight"):
    module = T.nn.Linear(3, 4, dtype=T.float64)
    module.weight.data, module.bias.data = data(T, (4, 3)), data(T, (4,), 1)
    return module


def shown(T, module):
    """All that pruning made of a module, and the gradient through it."""
    module(data(T, (2, 3), 5)).square().sum().backward()
    hooks = [type(h).__name__ for h in module._forward_pre_hooks.values()]
    named = dict(module.named_parameters())
    return [dict(module.state_dict()), module.weight, {n: p.grad for n, p in named.items()}, hooks, list(named)]


def in_turn(*calls):
    def program(T):
        module = layer(T)
        for call in calls:
            assert call(T.nn.utils.prune, module, T) is module
        return shown(T, module)

    return program


METHODS = {
    "identity": [lambda P, m, T: P.identity(m, "weight")],
    "l1": [lambda P, m, T: P.l1_unstructured(m, "weight", 5)],
    "a part": [lambda P, m, T: P.l1_unstructured(m, "weight", amount=0.3)],
    "none": [lambda P, m, T: P.l1_unstructured(m, "weight", 0)],
    "all": [lambda P, m, T: P.l1_unstructured(m, "bias", 4)],
    "scores": [lambda P, m, T: P.l1_unstructured(m, "weight", 4, importance_scores=data(T, (4, 3), 9))],
    "rows": [lambda P, m, T: P.ln_structured(m, "weight", 2, n=2, dim=0)],
    "columns": [lambda P, m, T: P.ln_structured(m, "weight", 0.4, n=float("-inf"), dim=-1)],
    "no rows": [lambda P, m, T: P.ln_structured(m, "weight", 0.0, n=1, dim=0)],
    "every one by chance": [lambda P, m, T: P.random_unstructured(m, "weight", 1.0)],
    "a mask": [lambda P, m, T: P.custom_from_mask(m, "weight", data(T, (4, 3), 3) > 0)],
    "twice": [lambda P, m, T: P.l1_unstructured(m, "weight", 3), lambda P, m, T: P.l1_unstructured(m, "weight", 0.5)],
    "rows of the rest": [lambda P, m, T: P.ln_structured(m, "weight", 1, 2, 0),
                         lambda P, m, T: P.ln_structured(m, "weight", 1, 1, 0),
                         lambda P, m, T: P.custom_from_mask(m, "weight", data(T, (4, 3), 3) > 0)],
    "mixed": [lambda P, m, T: P.ln_structured(m, "weight", 1, 2, -1),
              lambda P, m, T: P.l1_unstructured(m, "weight", 2)],
    "removed": [lambda P, m, T: P.l1_unstructured(m, "weight", 3), lambda P, m, T: P.remove(m, "weight")],
    "again": [lambda P, m, T: P.l1_unstructured(m, "weight", 3), lambda P, m, T: P.remove(m, "weight"),
              lambda P, m, T: P.l1_unstructured(m, "weight", 4)],
}  # fmt: skip


@pytest.mark.parametrize("name", METHODS)
def test_methods(name):
    as_torch(in_turn(*METHODS[name]))


def test_several_parameters_at_once():
    def program(T):
        P, net = T.nn.utils.prune, T.nn.Sequential(layer(T), T.nn.Tanh(), layer(T))
        net[2].weight.data *= 0.5
        pairs = [(net[0], "weight"), (net[2], "weight"), (net[2], "bias")]
        assert not P.is_pruned(net)
        P.global_unstructured(pairs, pruning_method=P.L1Unstructured, amount=7)
        P.global_unstructured(pairs, P.L1Unstructured, {pairs[0]: data(T, (4, 3), 8)}, amount=0.25)
        assert P.is_pruned(net)
        return [dict(net.state_dict()), net[0].weight, net[2].bias]

    as_torch(program)


def test_chance_prunes_as_many_and_keeps_what_was_pruned():
    P = xgrad.nn.utils.prune
    module = P.random_structured(layer(xgrad), "weight", 2, dim=0)
    assert (module.weight_mask.sum(dim=1) == 0).sum().item() == 2
    first = module.weight_mask.clone()
    P.random_unstructured(module, "weight", 3)
    assert module.weight_mask.sum().item() == 3
    assert (module.weight_mask <= first).all().item()


def test_a_method_of_ones_own_and_its_prune():
    def program(T):
        P = T.nn.utils.prune

        class Negative(P.BasePruningMethod):
            PRUNING_TYPE = "unstructured"

            def compute_mask(self, t, default_mask):
                return default_mask * (t >= 0)

        module = layer(T)
        Negative.apply(module, "weight")
        x = data(T, (2, 3))
        return [module.weight, Negative().prune(x), P.L1Unstructured(2).prune(x, importance_scores=data(T, (2, 3), 4))]

    as_torch(program)


def test_training_compiled_and_a_state_of_torchs():
    theirs = torch.nn.utils.prune.l1_unstructured(layer(torch), "weight", 5)
    ours = xgrad.nn.utils.prune.identity(layer(xgrad), "weight")
    ours.load_state_dict({k: xgrad.from_numpy(v.numpy()) for k, v in theirs.state_dict().items()})
    sgd = xgrad.optim.SGD(ours.parameters(), 0.1), torch.optim.SGD(theirs.parameters(), 0.1)

    def step(module, optimizer, x):
        optimizer.zero_grad()
        loss = module(x).square().sum()
        loss.backward()
        optimizer.step()
        return loss.detach()

    compiled = xgrad.compile(step)
    for _ in range(3):
        same(compiled(ours, sgd[0], data(xgrad, (2, 3), 5)), step(theirs, sgd[1], data(torch, (2, 3), 5)))
    same(dict(ours.state_dict()), dict(theirs.state_dict()))


ERRORS = {
    "too many": (lambda P, m, T: P.l1_unstructured(m, "weight", 13), "should be smaller than the number of parameters"),
    "a part above 1": (lambda P, m, T: P.l1_unstructured(m, "weight", 1.5), "should either be a float in the range"),
    "negative": (lambda P, m, T: P.random_unstructured(m, "weight", -1), "should either be a float in the range"),
    "a word": (lambda P, m, T: P.l1_unstructured(m, "weight", "x"), "Invalid type for amount"),
    "one dimension": (lambda P, m, T: P.ln_structured(m, "bias", 1, 2, 0), "Structured pruning can only be applied"),
    "dim": (lambda P, m, T: P.ln_structured(m, "weight", 1, 2, 2), "Invalid index 2 for tensor of size"),
    "scores": (lambda P, m, T: P.l1_unstructured(m, "weight", 1, importance_scores=T.ones(2)), "the same shape"),
    "a mask": (lambda P, m, T: P.custom_from_mask(m, "weight", T.ones(2)), "must match"),
    "not pruned": (lambda P, m, T: P.remove(m, "weight"), "has to be pruned before pruning can be removed"),
    "no pairs": (lambda P, m, T: P.global_unstructured(3, P.Identity), "parameters is not an Iterable"),
    "structured": (lambda P, m, T: P.global_unstructured([(m, "weight")], P.LnStructured, amount=1, n=2), "Only"),
    "another parameter's": (lambda P, m, T: P.PruningContainer(P.Identity.apply(m, "weight")).add_pruning_method(
        P.Identity.apply(m, "bias")), "acting on the parameter named 'weight'"),
    "no method": (lambda P, m, T: P.PruningContainer(P.Identity.apply(m, "bias")).add_pruning_method(3),
                  "not a BasePruningMethod"),
}  # fmt: skip


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name):
    call, match = ERRORS[name]
    same_error(lambda T: call(T.nn.utils.prune, layer(T), T), match)


def test_a_method_that_fails_leaves_the_module_as_it_was():
    P, module = xgrad.nn.utils.prune, layer(xgrad)
    weight = module.weight
    with pytest.raises(ValueError, match="smaller"):
        P.l1_unstructured(module, "weight", 13)
    assert module.weight is weight
    assert list(module.state_dict()) == ["bias", "weight"]
    P.l1_unstructured(module, "weight", 3)
    for _ in range(2):
        with pytest.raises(ValueError, match="smaller"):
            P.l1_unstructured(module, "weight", 13)
    assert len(module._forward_pre_hooks) == 1
    P.l1_unstructured(module, "weight", 2)
    assert module.weight_mask.sum().item() == 7
