"""A step lazily, compiled, recorded, with tensors as hyperparameters, on views, and broken off."""

import re

import numpy as np
import pytest
import torch

import xgrad
from xgrad.optim import rule

from .table import FIRST, loss_of, numbers, parameters, same, told, trained


@pytest.mark.parametrize("how", ["lazy", "compile"])
@pytest.mark.parametrize("case", FIRST, ids=told)
@pytest.mark.one_in(6)
def test_lazy_and_compiled_steps_are_the_eager_ones(case, how):
    params, targets = parameters(xgrad)
    optimizer = getattr(xgrad.optim, case[0])(params, **case[1])

    def step():
        optimizer.zero_grad()
        loss = loss_of(params, targets)
        loss.backward()
        optimizer.step()
        return loss.detach()

    run = xgrad.lazy()(step) if how == "lazy" else xgrad.compile(step)
    for i in range(6):
        if i == 4 and how == "compile":
            optimizer.param_groups[0]["lr"] = 0.001
        run().item()

    def change(i, optimizer):
        if i == 4 and how == "compile":
            optimizer.param_groups[0]["lr"] = 0.001

    same((params, optimizer), trained(torch, case, 6, change=change), 1e-5)


@pytest.mark.unverified("it counts traces")
def test_a_rate_that_is_a_tensor_changes_without_another_trace():
    params, targets = parameters(xgrad)
    lr = xgrad.tensor(0.1)
    optimizer = xgrad.optim.Adam(params, lr=lr)

    @xgrad.compile
    def step():
        optimizer.zero_grad()
        loss_of(params, targets).backward()
        optimizer.step()

    for i in range(6):
        if i == 3:
            lr.fill_(0.01)
        step()
    assert step.metrics().traces == 1
    same((params, optimizer), trained(torch, ("Adam", {"lr": 0.1}), 6, change=_to_a_tenth), 1e-5)


def _to_a_tenth(i, optimizer):
    if i == 3:
        optimizer.param_groups[0]["lr"] = 0.01


@pytest.mark.parametrize("case", [("Adam", {"lr": 0.1}), ("SGD", {"lr": 0.1, "weight_decay": 0.1}), ("RMSprop", {})])
def test_gradients_flow_through_a_differentiable_step(case):
    found = []
    for lib in (xgrad, torch):
        start, targets = parameters(lib)
        w = start[0]
        p = w.clone()
        optimizer = getattr(lib.optim, case[0])([p], differentiable=True, **case[1])
        for _ in range(2):
            (p.grad,) = lib.autograd.grad(((p - targets[0]) ** 3).sum(), p, create_graph=True)
            optimizer.step()
        p.sum().backward()
        found.append((p.detach().numpy(), w.grad.numpy()))
    np.testing.assert_allclose(found[0][0], found[1][0], rtol=1e-5)
    np.testing.assert_allclose(found[0][1], found[1][1], rtol=1e-4, atol=1e-6)


def test_leaves_that_share_a_storage():
    found = []
    for lib in (xgrad, torch):
        base = lib.tensor([1.0, 2.0, 3.0, 4.0])
        params = [base[:2].detach().requires_grad_(), base[1:].detach().requires_grad_()]
        optimizer = lib.optim.Adam(params, lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            (params[0].sum() + (params[1] ** 2).sum()).backward()
            optimizer.step()
        found.append(base.numpy())
    np.testing.assert_allclose(*found, rtol=1e-6)


@pytest.mark.eager("failures")
def test_a_step_that_is_broken_off_loses_nothing(monkeypatch):
    params, optimizer = trained(xgrad, ("Adam", {"lr": 0.1}), 2)
    before = [n.copy() for n in numbers(params)]

    def broken(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(rule, "_step", broken)
    rule._together.cache_clear()
    with pytest.raises(KeyboardInterrupt):
        optimizer.step()
    monkeypatch.undo()
    rule._together.cache_clear()
    for a, b in zip(numbers(params), before):
        np.testing.assert_array_equal(a, b)
    assert float(optimizer.state[params[0]]["step"]) == 2
    optimizer.step()
    assert float(optimizer.state[params[0]]["step"]) == 3


def test_wrong_hyperparameters_are_refused():
    for lib in (xgrad, torch):
        w = lib.ones(2, requires_grad=True)
        for name, options, text in (
            ("SGD", {"lr": -1.0}, "Invalid learning rate: -1.0"),
            ("SGD", {"momentum": -1.0}, "Invalid momentum value: -1.0"),
            ("SGD", {"nesterov": True}, "Nesterov momentum requires a momentum and zero dampening"),
            ("Adam", {"betas": (1.0, 0.9)}, "Invalid beta parameter at index 0: 1.0"),
            ("Adam", {"eps": -1.0}, "Invalid epsilon value: -1.0"),
            ("Adam", {"lr": lib.ones(2)}, "Tensor lr must be 1-element"),
            ("AdamW", {"weight_decay": -1.0}, "Invalid weight_decay value: -1.0"),
            ("NAdam", {"momentum_decay": -1.0}, "Invalid momentum_decay value: -1.0"),
            ("Adadelta", {"rho": 2.0}, "Invalid rho value: 2.0"),
            ("Adagrad", {"lr_decay": -1.0}, "Invalid lr_decay value: -1.0"),
            ("RMSprop", {"alpha": -1.0}, "Invalid alpha value: -1.0"),
            ("Rprop", {"etas": (1.5, 2.0)}, "Invalid eta values: 1.5, 2.0"),
            ("Adafactor", {"d": 0.5}, "Clipping threshold d should be >= 1 but is: 0.5"),
            ("Muon", {}, "Muon only supports 2D parameters"),
        ):
            with pytest.raises(ValueError, match=text):
                getattr(lib.optim, name)([w], **options)


@pytest.mark.parametrize("name", ["Adam", "Adafactor", "SGD", "SparseAdam"])
@pytest.mark.parametrize("shapes", [((1, 2), (3, 2)), ((3, 2), (1, 2)), ((2, 2), (3, 2))], ids=str)
@pytest.mark.eager("failures")
def test_the_state_of_another_shape_is_refused_before_anything_is_written(name, shapes):
    options = {"lr": 0.1} | ({"momentum": 0.9} if name == "SGD" else {})

    def begun(shape):
        w = xgrad.ones(shape, requires_grad=True)
        found = xgrad.nn.functional.embedding(xgrad.tensor([0]), w, sparse=name == "SparseAdam")
        found.sum().backward()
        return w, getattr(xgrad.optim, name)([w], **options)

    _, other = begun(shapes[0])
    other.step()
    w, optimizer = begun(shapes[1])
    optimizer.load_state_dict(other.state_dict())
    with pytest.raises(RuntimeError, match=r"do not match a parameter of shape \[\d, 2\]"):
        optimizer.step()
    assert w.shape == shapes[1]
    assert w.tolist() == [[1.0, 1.0]] * shapes[1][0]


@pytest.mark.parametrize("lr", [np.array(0.1), np.float32(0.1)], ids=["array", "scalar"])
def test_a_rate_of_numpys_is_a_number(lr):
    w = xgrad.ones(2, requires_grad=True)
    w.sum().backward()
    xgrad.optim.SGD([w], lr=lr).step()
    np.testing.assert_allclose(w.detach().numpy(), [0.9, 0.9], rtol=1e-6)


def test_rprop_stays_where_the_gradient_is_no_number():
    found = []
    for lib in (xgrad, torch):
        w = lib.ones(2, requires_grad=True)
        optimizer = lib.optim.Rprop([w], lr=0.1)
        for grad in ([float("nan"), 1.0], [1.0, 1.0]):
            w.grad = lib.tensor(grad)
            optimizer.step()
        found.append(w.detach().numpy())
    np.testing.assert_allclose(*found, rtol=1e-6)


@pytest.mark.parametrize("grad", [[3.0, 4.0], [0.0]], ids=["two", "zero"])
def test_a_frozen_view_keeps_its_gradient_in_a_compiled_step(grad):
    n = len(grad)
    found = []
    for lib in (xgrad, torch):
        p = lib.tensor([1.0, 2.0, 3.0, 4.0])[1 : 1 + n].detach().requires_grad_()
        p.grad = lib.tensor(grad)
        p.requires_grad_(False)
        optimizer = lib.optim.SGD([p], lr=0.1, weight_decay=0.5)
        step = xgrad.compile(optimizer.step) if lib is xgrad else optimizer.step
        for _ in range(3):
            step()
        found.append(p.numpy())
    np.testing.assert_allclose(*found, rtol=1e-6)


def test_equal_parameters_are_updated_by_equal_kernels():
    # XLA compiles equal kernels once: a step of many parameters of few shapes must not number them.
    def kinds(count):
        params = [xgrad.ones(16, requires_grad=True) for _ in range(count)]
        optimizer = xgrad.optim.AdamW(params)

        @xgrad.compile
        def step():
            optimizer.zero_grad()
            sum((p * p).sum() for p in params).backward()
            optimizer.step()

        step()
        kernels = re.findall(r"\n%\w+[\w.]* \([^)]*\) -> [^{]*(\{.*?\n\})", step.as_text(), re.DOTALL)
        return {re.sub(r"%[\w.]+|, metadata=\{[^}]*\}", "", body) for body in kernels}

    few, many = kinds(6), kinds(12)
    assert few
    assert len(many) <= len(few) + 2
