"""The base class: groups, hooks, checkpoints, errors, and an optimizer of the user's own."""

import copy
import importlib
import pickle

import numpy as np
import pytest
import torch

import xgrad

from .table import loss_of, numbers, parameters, same, trained

BOTH = pytest.mark.parametrize("lib", [xgrad, torch], ids=["xgrad", "torch"])  # the oracle passes the same tests


def stepped(optimizer, params, targets):
    optimizer.zero_grad()
    loss = loss_of(params, targets)
    loss.backward()
    return loss


# ------------------------------------------------------------ groups


def groups(lib, params):
    return lib.optim.Adam(
        [{"params": params[:1], "lr": 0.5}, {"params": iter(params[1:]), "betas": (0.5, 0.7)}], lr=0.1
    )


@BOTH
def test_groups_take_the_defaults_that_they_do_not_give(lib):
    optimizer = groups(lib, parameters(lib)[0])
    assert [g["lr"] for g in optimizer.param_groups] == [0.5, 0.1]
    assert [g["betas"] for g in optimizer.param_groups] == [(0.9, 0.999), (0.5, 0.7)]
    assert optimizer.param_groups[0].keys() == optimizer.param_groups[1].keys()
    assert list(optimizer.defaults) == [key for key in optimizer.param_groups[0] if key != "params"]


def test_groups_that_change_while_training_are_pytorchs():
    def change(i, optimizer):
        group = optimizer.param_groups[0]
        if i == 3:
            group["lr"] *= 0.5
        if i == 4:
            group["weight_decay"] = 0.3
        if i in (5, 8):
            group["params"][0].requires_grad_(i == 8)
        if i == 9:
            group["betas"] = (0.8, 0.9)

    def grads_stay_none(lib):
        return trained(lib, ("AdamW", {"lr": 0.1}), 12, change=change)

    ours, theirs = grads_stay_none(xgrad), grads_stay_none(torch)
    same(ours, theirs, 1e-5)
    assert [float(s["step"]) for s in ours[1].state.values()] == [9.0, 12.0]


@BOTH
def test_a_group_is_added_later(lib):
    params, targets = parameters(lib)
    optimizer = lib.optim.SGD(params[:1], lr=0.1)
    optimizer.add_param_group({"params": params[1], "lr": 0.2})
    before = numbers(params)[1].copy()
    stepped(optimizer, params, targets)
    optimizer.step()
    assert abs(before - numbers(params)[1]).max() > 0
    assert optimizer.param_groups[1]["params"][0] is params[1]


@BOTH
def test_parameters_come_with_names(lib):
    params, _ = parameters(lib)
    optimizer = lib.optim.SGD(zip("ab", params), lr=0.1)
    assert optimizer.param_groups[0]["param_names"] == ["a", "b"]
    assert optimizer.state_dict()["param_groups"][0]["param_names"] == ["a", "b"]
    with pytest.raises(ValueError, match="all optimizer param groups should be with/without names"):
        optimizer.add_param_group({"params": [lib.ones(2, requires_grad=True)]})
    with pytest.raises(ValueError, match="Some param names are missing"):
        lib.optim.SGD([("a", params[0]), params[1]])


@BOTH
def test_wrong_parameters_are_refused(lib):
    x = lib.ones(2, requires_grad=True)
    for wrong, error, text in (
        ([], ValueError, "optimizer got an empty parameter list"),
        (x, TypeError, "params argument given to the optimizer should be an iterable of Tensors or dicts, but got"),
        ([2.0], TypeError, "optimizer can only optimize Tensors, but one of the params is float"),
        ([x * 2], ValueError, "can't optimize a non-leaf Tensor"),
        ([{"params": [x]}, {"params": [x]}], ValueError, "some parameters appear in more than one parameter group"),
        ([{"params": {x}}], TypeError, "optimizer parameters need to be organized in ordered collections"),
    ):
        with pytest.raises(error, match=text):
            lib.optim.SGD(wrong, lr=0.1)
    with pytest.raises(TypeError, match="param_group must be a dict"):
        lib.optim.SGD([x]).add_param_group([x])
    with pytest.warns(UserWarning, match="optimizer contains a parameter group with duplicate parameters"):
        lib.optim.SGD([x, x], lr=0.1)


def test_a_parameter_that_is_there_twice_is_changed_twice():
    found = []
    for lib in (xgrad, torch):
        x = lib.tensor([1.0, 2.0], requires_grad=True)
        with pytest.warns(UserWarning, match="duplicate"):
            optimizer = lib.optim.Adam([x, x], lr=0.1)
        for _ in range(2):
            optimizer.zero_grad()
            (x * x).sum().backward()
            optimizer.step()
        found.append(x.detach().numpy())
    np.testing.assert_allclose(*found, rtol=1e-6)


@BOTH
def test_a_required_option_must_be_given(lib):
    required = importlib.import_module(f"{lib.__name__}.optim.optimizer").required
    with pytest.raises(ValueError, match="didn't specify a value of required optimization parameter lr"):
        lib.optim.Optimizer([lib.ones(2)], {"lr": required})


@BOTH
def test_repr_shows_the_groups(lib):
    params, _ = parameters(torch)
    assert repr(groups(lib, parameters(lib)[0])) == repr(groups(torch, params))


# ------------------------------------------------------------ a step


@BOTH
def test_the_closure_evaluates_the_model_with_gradients(lib):
    params, targets = parameters(lib)
    optimizer = lib.optim.SGD(params, lr=0.1)
    with lib.no_grad():
        loss = optimizer.step(lambda: stepped(optimizer, params, targets))
    assert loss.requires_grad
    assert params[0].grad is not None


@BOTH
def test_zero_grad(lib):
    params, targets = parameters(lib)
    optimizer = lib.optim.SGD(params, lr=0.1)
    stepped(optimizer, params, targets)
    grad = params[0].grad
    optimizer.zero_grad(set_to_none=False)
    assert params[0].grad is grad
    assert not grad.any()
    optimizer.zero_grad()
    assert params[0].grad is None


@BOTH
def test_a_step_is_an_inplace_operation(lib):
    base = lib.tensor([1.0, 2.0, 3.0])
    p = base[1:].detach().requires_grad_()
    optimizer = lib.optim.Adam([p], lr=0.5)
    y = (p * p).sum()
    z = (p * p).sum()
    y.backward()
    version = p._version
    optimizer.step()
    assert p._version > version
    np.testing.assert_allclose(base.numpy(), [1.0, 1.5, 2.5], rtol=1e-6)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.backward()


@BOTH
def test_aliases_of_a_state_see_the_steps(lib):
    params, targets = parameters(lib)
    optimizer = lib.optim.Adam(params, lr=0.5)
    stepped(optimizer, params, targets)
    optimizer.step()
    average = optimizer.state[params[0]]["exp_avg"]
    head, detached = average[:1], params[0].detach()
    optimizer.step()
    assert optimizer.state[params[0]]["exp_avg"] is average
    np.testing.assert_array_equal(head.numpy(), average.numpy()[:1])
    np.testing.assert_array_equal(detached.numpy(), params[0].detach().numpy())


# ------------------------------------------------------------ hooks


@BOTH
def test_hooks_around_a_step(lib):
    module = importlib.import_module(f"{lib.__name__}.optim.optimizer")
    params, _ = parameters(lib)
    optimizer = lib.optim.SGD(params, lr=0.1)
    seen = []
    handles = [
        optimizer.register_step_pre_hook(lambda o, args, kwargs: seen.append("pre")),
        optimizer.register_step_post_hook(lambda o, args, kwargs: seen.append("post")),
        module.register_optimizer_step_pre_hook(lambda o, args, kwargs: seen.append("all pre")),
        module.register_optimizer_step_post_hook(lambda o, args, kwargs: seen.append("all post")),
    ]
    optimizer.step()
    assert seen == ["all pre", "pre", "post", "all post"]
    for handle in handles:
        handle.remove()
    optimizer.step()
    assert len(seen) == 4
    with optimizer.register_step_pre_hook(lambda o, args, kwargs: ((o, lambda: 3.0), kwargs)):
        assert optimizer.step() == 3.0
    optimizer.register_step_pre_hook(lambda o, args, kwargs: 1)
    with pytest.raises(RuntimeError, match=r"must return None or a tuple of \(new_args, new_kwargs\)"):
        optimizer.step()


@BOTH
def test_hooks_around_checkpoints(lib):
    params, _ = parameters(lib)
    optimizer = lib.optim.SGD(params, lr=0.1)
    seen = []
    optimizer.register_state_dict_pre_hook(lambda o: seen.append("second"))
    optimizer.register_state_dict_pre_hook(lambda o: seen.append("first"), prepend=True)
    optimizer.register_state_dict_post_hook(lambda o, found: {**found, "more": 1})
    optimizer.register_load_state_dict_pre_hook(lambda o, found: seen.append(found.pop("more")))
    optimizer.register_load_state_dict_post_hook(lambda o: seen.append("loaded"))
    found = optimizer.state_dict()
    assert seen == ["first", "second"]
    optimizer.load_state_dict(found)
    assert seen[2:] == [1, "loaded"]
    assert found["more"] == 1


# ------------------------------------------------------------ checkpoints


@pytest.mark.parametrize("name", ["SGD", "Adam"])
def test_training_resumes_from_pytorchs_checkpoint_and_back(name):
    options = {"lr": 0.1, "momentum": 0.9} if name == "SGD" else {"lr": 0.1}
    theirs, optimizer = trained(torch, (name, options), 3)
    saved = copy.deepcopy(optimizer.state_dict())

    mine = [xgrad.tensor(n.tolist(), dtype=xgrad.float32, requires_grad=True) for n in numbers(theirs)]
    resumed = getattr(xgrad.optim, name)(mine, lr=1.0)
    resumed.load_state_dict(saved)
    back = getattr(torch.optim, name)(theirs, lr=1.0)
    back.load_state_dict(as_torch(resumed.state_dict()))
    assert back.state_dict()["param_groups"] == saved["param_groups"]
    for lib, params, o in ((xgrad, mine, resumed), (torch, theirs, back)):
        targets = parameters(lib)[1]
        for _ in range(3):
            stepped(o, params, targets)
            o.step()
    same((mine, resumed), (theirs, back), 1e-5)


def as_torch(value):
    if isinstance(value, dict):
        return {key: as_torch(item) for key, item in value.items()}
    if isinstance(value, list):
        return [as_torch(item) for item in value]
    return torch.tensor(value.numpy()) if isinstance(value, xgrad.Tensor) else value


def test_a_loaded_state_is_the_optimizers_own():
    params, optimizer = trained(xgrad, ("Adam", {}), 2)
    other = xgrad.optim.Adam(params)
    saved = optimizer.state_dict()
    other.load_state_dict(saved)
    before = saved["state"][0]["exp_avg"].numpy().copy()
    other.step()
    np.testing.assert_array_equal(saved["state"][0]["exp_avg"].numpy(), before)
    assert float(other.state[params[0]]["step"]) == 3


def test_a_loaded_state_has_the_parameters_dtype_and_keeps_the_count():
    _, optimizer = trained(torch, ("Adam", {}), 2, "float64")
    params, _ = parameters(xgrad)
    mine = xgrad.optim.Adam(params)
    mine.load_state_dict(optimizer.state_dict())
    state = mine.state[params[0]]
    assert state["exp_avg"].dtype == xgrad.float32
    assert state["step"].dtype == xgrad.float32
    old = optimizer.state_dict()
    for entries in old["state"].values():
        entries["step"] = 2  # as before PyTorch 1.12
    mine.load_state_dict(old)
    assert float(mine.state[params[0]]["step"]) == 2


@BOTH
def test_checkpoints_of_other_groups_are_refused(lib):
    params, _ = parameters(lib)
    whole, parts = lib.optim.SGD(params, lr=0.1), groups(lib, params)
    with pytest.raises(ValueError, match="loaded state dict has a different number of parameter groups"):
        whole.load_state_dict(parts.state_dict())
    with pytest.raises(ValueError, match="contains a parameter group that doesn't match the size of optimizer's group"):
        whole.load_state_dict(lib.optim.SGD(params[:1], lr=0.1).state_dict())


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda o: pickle.loads(pickle.dumps(o))], ids=["copy", "pickle"])
def test_copies_go_on_by_themselves(copied):
    params, optimizer = trained(xgrad, ("Adam", {"lr": 0.1}), 2)
    other = copied(optimizer)
    theirs = other.param_groups[0]["params"]
    before = numbers(params)[0].copy()
    for p, q in zip(theirs, params):
        p.grad = q.grad.clone()
    other.step()
    np.testing.assert_array_equal(numbers(params)[0], before)
    optimizer.step()
    for a, b in zip(numbers(params), numbers(theirs)):
        np.testing.assert_array_equal(a, b)


# ------------------------------------------------------------ an optimizer of one's own


def own(lib):
    class Own(lib.optim.Optimizer):
        def __init__(self, params, lr=1e-2, beta=0.9):
            super().__init__(params, dict(lr=lr, beta=beta))

        @lib.no_grad()
        def step(self, closure=None):
            for group in self.param_groups:
                for p in group["params"]:
                    if p.grad is None:
                        continue
                    state = self.state[p]
                    if len(state) == 0:
                        state["step"] = 0
                        state["square"] = lib.zeros_like(p)
                    state["step"] += 1
                    state["square"].mul_(group["beta"]).addcmul_(p.grad, p.grad, value=1 - group["beta"])
                    root = state["square"].div(1 - group["beta"] ** state["step"]).sqrt_().add_(1e-8)
                    p.addcdiv_(p.grad, root, value=-group["lr"])

    return Own


def test_an_optimizer_of_ones_own_is_written_as_for_pytorch():
    found = []
    for lib in (xgrad, torch):
        params, targets = parameters(lib)
        optimizer = own(lib)(params)
        seen = []
        optimizer.register_step_post_hook(lambda *_, seen=seen: seen.append(1))
        for _ in range(5):
            stepped(optimizer, params, targets)
            optimizer.step()
        assert len(seen) == 5
        again = own(lib)(params)
        again.load_state_dict(optimizer.state_dict())
        assert again.state[params[0]]["step"] == 5
        found.append(numbers(params))
    for a, b in zip(*found):
        np.testing.assert_allclose(a, b, rtol=1e-5)


def test_the_base_class_has_no_step():
    with pytest.raises(NotImplementedError):
        xgrad.optim.Optimizer([xgrad.ones(2)], {}).step()
