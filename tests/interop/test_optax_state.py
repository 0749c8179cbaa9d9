"""state_dict and load_state_dict of an Optimizer: what is in it, what goes back, and what is refused as a whole."""

import copy

import jax
import numpy as np
import optax
import pytest

import xgrad
from xgrad.interop.optax import Optimizer

from .test_optax import inject, loss_of, parameters


def trained(steps=2, tx=None):
    params = parameters()
    optimizer = Optimizer(zip("wb", params), tx or inject(optax.adam))
    train(optimizer, params, steps)
    return params, optimizer


def train(optimizer, params, steps):
    for _ in range(steps):
        optimizer.zero_grad()
        loss_of(*params).backward()
        optimizer.step()


def continued(optimizer, params):
    train(optimizer, params, 2)
    return [p.tolist() for p in params]


def mu(saved):
    return saved["state"]["0"]["inner_state"]["0"]["mu"]


def test_a_state_is_nested_dictionaries_of_tensors_and_numbers():
    _, optimizer = trained()
    saved = optimizer.state_dict()
    assert saved["param_groups"] == [
        {"params": [0, 1], "param_names": ["w", "b"], "learning_rate": 0.1, "b1": 0.9, "b2": 0.999, "eps": 1e-8,
         "eps_root": 0.0}
    ]  # fmt: skip
    state = saved["state"]["0"]
    assert state["count"].item() == 2
    assert state["inner_state"]["0"]["mu"]["w"].shape == (2, 3)
    assert all(
        isinstance(leaf, xgrad.Tensor) for leaf in jax.tree.leaves(state, is_leaf=lambda x: not isinstance(x, dict))
    )


def test_a_state_that_was_given_out_keeps_its_values():
    params, optimizer = trained()
    saved = optimizer.state_dict()["state"]["0"]["inner_state"]["0"]["mu"]["w"]
    before = saved.numpy().copy()
    train(optimizer, params, 2)
    np.testing.assert_array_equal(saved, before)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("form", ["tensors", "arrays", "numbers"])
def test_training_goes_on_from_a_loaded_state(form):
    params, optimizer = trained()
    optimizer.param_groups[0]["learning_rate"] = 0.03
    saved = copy.deepcopy(optimizer.state_dict())
    weights = [p.tolist() for p in params]
    expected = continued(optimizer, params)
    if form != "tensors":
        saved["state"] = jax.tree.map(np.array, saved["state"])
    if form == "numbers":
        saved["state"]["0"]["count"] = int(saved["state"]["0"]["count"])
    again, other = trained(0)
    for p, w in zip(again, weights):
        p.data = xgrad.tensor(w, dtype=xgrad.float64)
    other.load_state_dict(saved)
    assert other.param_groups[0]["learning_rate"] == 0.03
    assert continued(other, again) == expected


@pytest.mark.parametrize(
    ("spoil", "error", "text"),
    [
        (lambda s: s.pop("state"), RuntimeError, 'Missing key in state_dict: "state"'),
        (lambda s: s.update(more=1), RuntimeError, 'Unexpected key in state_dict: "more"'),
        (lambda s: s["param_groups"].append({}), ValueError, "different number of parameter groups: 2"),
        (lambda s: s["param_groups"][0]["params"].pop(), ValueError, "doesn't match the size of optimizer's group"),
        (lambda s: s["param_groups"][0].pop("b1"), RuntimeError, r'Missing key in state_dict: "param_groups\.0\.b1"'),
        (lambda s: s["param_groups"][0].update(b1=[1.0]), RuntimeError, r"groups\.0\.b1: 'b1' has the shape"),
        (lambda s: s["state"].pop("0"), RuntimeError, r'Missing key in state_dict: "state\.0\.inner_state\.0\.nu\.b"'),
        (lambda s: s["state"].update({"1": {}}), RuntimeError, r'Unexpected key in state_dict: "state\.1"'),
        (
            lambda s: mu(s).pop("w"), RuntimeError,
            r'Missing key in state_dict: "state\.0\.inner_state\.0\.mu\.w"',
        ),
        (lambda s: s["state"]["0"].update(more=3), RuntimeError, r'Unexpected key in state_dict: "state\.0\.more"'),
        (
            lambda s: mu(s).update(w=xgrad.ones(3, dtype=xgrad.float64)), RuntimeError,
            r"size mismatch for state\.0\.inner_state\.0\.mu\.w: it has the shape \(3,\), the optimizer's \(2, 3\)",
        ),
        (
            lambda s: mu(s).update(w=xgrad.ones(2, 3)), RuntimeError,
            r"dtype mismatch for state\.0\.inner_state\.0\.mu\.w: it is float32, the optimizer's is float64",
        ),
        (lambda s: s["state"]["0"].update(count="2"), RuntimeError, "expected a tensor or a number, but got a str"),
        (lambda s: s["state"]["0"].update(count=2.0), RuntimeError, "dtype mismatch for state.0.count"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_named_and_nothing_is_loaded(spoil, error, text):
    _, optimizer = trained(0)
    saved = copy.deepcopy(optimizer.state_dict())
    saved["param_groups"][0]["learning_rate"] = 7.0
    saved["state"]["0"]["count"] = 5
    before = jax.tree.map(np.array, optimizer.state)
    spoil(saved)
    with pytest.raises(error, match=text):
        optimizer.load_state_dict(saved)
    assert optimizer.param_groups[0]["learning_rate"] == 0.1
    jax.tree.map(np.testing.assert_array_equal, optimizer.state, before)


def test_all_problems_are_named_at_once():
    _, optimizer = trained(0)
    saved = optimizer.state_dict()
    saved["state"]["0"].pop("count")
    saved["state"]["0"]["inner_state"]["0"]["nu"].pop("b")
    with pytest.raises(RuntimeError, match=r"(?s)state\.0\.count.*nu\.b"):
        optimizer.load_state_dict(saved)


def test_scheduled_hyperparameters_go_on_where_they_were():
    tx = inject(learning_rate=optax.linear_schedule(1.0, 0.0, 4))
    _, optimizer = trained(2, tx)
    saved = optimizer.state_dict()
    again, other = trained(0, tx)
    other.load_state_dict(saved)
    assert other.param_groups[0]["learning_rate"] == 0.75
    train(other, again, 1)
    assert other.param_groups[0]["learning_rate"] == 0.5


def test_entries_of_the_users_own_are_saved_and_loaded():
    (p, _) = parameters()
    optimizer = Optimizer([{"params": [p], "note": "a"}], optax.sgd(0.1))
    saved = optimizer.state_dict()
    optimizer.param_groups[0]["note"] = "b"
    optimizer.load_state_dict(saved)
    assert optimizer.param_groups[0]["note"] == "a"


def test_hooks_of_saving_and_loading():
    _, optimizer = trained(0)
    log = []
    optimizer.register_state_dict_pre_hook(lambda o: log.append("pre"))
    optimizer.register_state_dict_pre_hook(lambda o: log.append("first"), prepend=True)
    optimizer.register_state_dict_post_hook(lambda o, s: {**s, "epoch": 3})
    saved = optimizer.state_dict()
    assert log == ["first", "pre"]
    assert saved["epoch"] == 3
    optimizer.register_load_state_dict_pre_hook(lambda o, s: s.pop("epoch") and None)
    handle = optimizer.register_load_state_dict_post_hook(lambda o: log.append("loaded"))
    optimizer.load_state_dict(saved)
    handle.remove()
    optimizer.load_state_dict(saved)
    assert log == ["first", "pre", "loaded"]
    assert saved["epoch"] == 3


def test_a_copy_goes_its_own_way():
    params, optimizer = trained(1)
    copied = copy.deepcopy(optimizer)
    others = copied.param_groups[0]["params"]
    assert others[0] is not params[0]
    expected = continued(optimizer, params)
    assert [p.tolist() for p in others] != expected
    assert continued(copied, others) == expected
