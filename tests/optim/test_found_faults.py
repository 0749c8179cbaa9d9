"""Faults of optimizers that comparisons with PyTorch found: averages, restored complex state, line searches, RAdam."""

import copy

import numpy as np
import pytest
import torch

import xgrad
from xgrad.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn


@pytest.mark.parametrize("reset", ["x.zero_()", "x.data.zero_()", "x.data = xgrad.tensor(0)", "x.detach()[...] = 0"])
@pytest.mark.parametrize("compiled", [False, True])
def test_an_average_begins_anew_after_a_reset_in_place(reset, compiled):
    m = xgrad.nn.Linear(1, 1)
    a = AveragedModel(m, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    step = xgrad.compile(lambda: a.update_parameters(m)) if compiled else lambda: a.update_parameters(m)
    step()
    step()
    exec(reset, {"x": a.n_averaged, "xgrad": xgrad})
    with xgrad.no_grad():
        m.weight.fill_(10.0)
    step()
    assert (a.module.weight.item(), a.n_averaged.item()) == (10, 1)


def test_a_compiled_step_keeps_state_by_tensors():
    """The keys are compared by identity: two tensors of equal values are two keys."""
    w, v = (xgrad.ones(2, requires_grad=True) for _ in range(2))
    state = {w: {"m": xgrad.zeros(2)}, v: {"m": xgrad.zeros(2)}}

    def step():
        w.grad = v.grad = None
        (w * w + 2 * v * v).sum().backward()
        for p in (w, v):
            state[p]["m"] = 0.9 * state[p]["m"] + p.grad
            with xgrad.no_grad():
                p.sub_(state[p]["m"], alpha=0.1)

    compiled = xgrad.compile(step)
    for _ in range(3):
        compiled()
    np.testing.assert_allclose(w.detach().numpy(), 0.062, rtol=1e-5)
    np.testing.assert_allclose(state[w]["m"].numpy(), 3.98, rtol=1e-5)
    np.testing.assert_allclose(v.detach().numpy(), -0.54, rtol=1e-5)


def test_radam_rectifies_without_cancellation():
    changes = []
    for T in (xgrad, torch):
        p = T.ones(1, requires_grad=True)
        optimizer = T.optim.RAdam([p], lr=1.0, betas=(0.9, 0.99999))
        for _ in range(6):
            before, p.grad = p.item(), T.full((1,), 0.5)
            optimizer.step()
        changes.append(p.item() - before)
    np.testing.assert_allclose(*changes, rtol=1e-4)


def test_a_line_search_over_a_linear_stretch_goes_on():
    found = []
    for T in (xgrad, torch):
        p, q = (T.tensor(values, requires_grad=True) for values in ([-1.2, 1.0], [[0.5]]))
        optimizer = T.optim.LBFGS([p, q], line_search_fn="strong_wolfe", max_iter=3)

        def closure():
            optimizer.zero_grad()  # noqa: B023
            loss = p.abs().sum() + q.abs().sum()  # noqa: B023
            loss.backward()
            return loss

        optimizer.step(closure)
        found.append([*p.tolist(), q.item()])
    np.testing.assert_allclose(*found, atol=1e-4)


@pytest.mark.parametrize("name", ["ASGD", "NAdam"])
def test_the_real_state_of_complex_parameters_is_restored_as_real(name):
    p = xgrad.tensor([1 + 2j], requires_grad=True)
    optimizer = getattr(xgrad.optim, name)([p])
    p.grad = xgrad.tensor([1 - 1j])
    optimizer.step()
    before = {key: value.dtype for key, value in optimizer.state[p].items()}
    optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    assert {key: value.dtype for key, value in optimizer.state[p].items()} == before
    optimizer.step()


@pytest.mark.parametrize("name", ["SGD", "Adam", "RMSprop"])
def test_a_tensor_of_a_negative_rate_is_an_error(name):
    with pytest.raises(ValueError, match="Invalid learning rate"):
        getattr(xgrad.optim, name)([xgrad.ones(1, requires_grad=True)], lr=xgrad.tensor(-1.0))


def test_a_step_after_a_failed_first_one_is_the_first(monkeypatch):
    """The buffer that the failed step had made counted: the first gradient was weighted by 1 - dampening."""
    found = []
    for T in (xgrad, torch):
        p = T.tensor([1.0, 2.0], requires_grad=True)
        optimizer = T.optim.SGD([p], lr=0.1, momentum=0.9, dampening=0.5)
        p.grad = T.tensor([1.0, -1.0])
        if T is xgrad:
            with monkeypatch.context() as broken:
                broken.setattr("xgrad.optim.rule._together", lambda form, count: 1 / 0)
                with pytest.raises(ZeroDivisionError):
                    optimizer.step()
        for _ in range(2):
            optimizer.step()
        with monkeypatch.context() as broken:
            if T is xgrad:  # a later step that fails leaves the buffer
                broken.setattr("xgrad.optim.rule._together", lambda form, count: 1 / 0)
                with pytest.raises(ZeroDivisionError):
                    optimizer.step()
        optimizer.step()
        found.append(p.tolist())
    np.testing.assert_allclose(*found, rtol=1e-6)
