"""Averages of weights, equal to torch's."""

import copy

import numpy as np
import pytest
import torch
import torch.optim.swa_utils

import xgrad
import xgrad.optim.swa_utils

LIBRARIES = (torch, xgrad)


def model_of(T, dtype="float32"):
    model = T.nn.Sequential(T.nn.Linear(3, 2), T.nn.Linear(2, 1))
    model.register_buffer("steps", T.tensor([1.0, 2.0]))
    model.register_buffer("count", T.tensor(7))
    for i, p in enumerate(model.parameters()):
        p.data = T.arange(float(p.numel())).reshape(p.shape) + i
    return model.to(getattr(T, dtype))


def changed(T, model, i):
    with T.no_grad():
        for p in model.parameters():
            p.add_(i / 7)
        model.steps.mul_(1.5)
        model.count.add_(3)


def numpy_of(model):
    return {name: np.asarray(value.double().tolist()) for name, value in model.state_dict().items()}


def close(a, b, rtol):
    assert a.keys() == b.keys()
    for name in a:
        np.testing.assert_allclose(a[name], b[name], rtol=rtol, atol=1e-7, err_msg=name)


AVERAGES = {
    "mean": lambda S: {},
    "mean, one": lambda S: {"avg_fn": S.get_swa_avg_fn()},
    "mean, many": lambda S: {"multi_avg_fn": S.get_swa_multi_avg_fn()},
    "decay, one": lambda S: {"avg_fn": S.get_ema_avg_fn(0.9)},
    "decay, many": lambda S: {"multi_avg_fn": S.get_ema_multi_avg_fn(0.9)},
    "fast decay": lambda S: {"multi_avg_fn": S.get_ema_multi_avg_fn(0.2)},
    "buffers": lambda S: {"multi_avg_fn": S.get_ema_multi_avg_fn(0.9), "use_buffers": True},
    "own": lambda S: {"avg_fn": lambda average, new, n: 0.1 * average + 0.9 * new},
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", AVERAGES)
def test_averages(name, dtype):
    pairs = []
    for T in LIBRARIES:
        model = model_of(T, dtype)
        pairs.append((T, model, T.optim.swa_utils.AveragedModel(model, **AVERAGES[name](T.optim.swa_utils))))
    for i in range(6):
        for T, model, averaged in pairs:
            averaged.update_parameters(model)
            changed(T, model, i)
        close(*(numpy_of(averaged) for _, _, averaged in pairs), 1e-6 if dtype == "float32" else 1e-7)
    x = [[1.0, 2.0, 3.0]]
    theirs, ours = (averaged(T.tensor(x, dtype=getattr(T, dtype))).tolist() for T, _, averaged in pairs)
    np.testing.assert_allclose(theirs, ours, rtol=1e-5)
    averaged = pairs[1][2]
    assert all(p.requires_grad and p.is_leaf for p in averaged.parameters())
    assert averaged.module[0].weight.data_ptr != pairs[1][1][0].weight.data_ptr


def test_a_state_of_torch_goes_on():
    theirs, ours = (T.optim.swa_utils.AveragedModel(model_of(T)) for T in LIBRARIES)
    model = model_of(torch)
    for i in range(3):
        theirs.update_parameters(model)
        changed(torch, model, i)
    ours.load_state_dict({name: xgrad.tensor(value.tolist()) for name, value in theirs.state_dict().items()})
    mine = model_of(xgrad)
    mine.load_state_dict({name: xgrad.tensor(value.tolist()) for name, value in model.state_dict().items()})
    for averaged, present in ((theirs, model), (ours, mine)):
        averaged.update_parameters(present)
    close(numpy_of(theirs), numpy_of(ours), 1e-6)
    ours.n_averaged = xgrad.tensor(0)
    ours.update_parameters(mine)  # begins anew
    assert ours.module[0].weight.tolist() == mine[0].weight.tolist()


@pytest.mark.parametrize("how", ["lazy", "compiled"])
def test_lazily_and_compiled(how):
    model = model_of(xgrad)
    eager = xgrad.optim.swa_utils.AveragedModel(model, multi_avg_fn=xgrad.optim.swa_utils.get_ema_multi_avg_fn(0.5))
    eager.update_parameters(model)
    other = copy.deepcopy(eager)
    other.update_parameters(model)
    eager.update_parameters(model)
    step = other.update_parameters if how == "lazy" else xgrad.compile(lambda: other.update_parameters(model))
    for i in range(3):
        changed(xgrad, model, i)
        eager.update_parameters(model)
        if how == "lazy":
            with xgrad.lazy():
                step(model)
        else:
            step()
    close(numpy_of(eager), numpy_of(other), 1e-6)


def test_errors():
    for T in LIBRARIES:
        S = T.optim.swa_utils
        for make in (S.get_ema_avg_fn, S.get_ema_multi_avg_fn):
            with pytest.raises(ValueError, match="Invalid decay value 2 provided"):
                make(2)
        with pytest.raises(AssertionError, match="Only one of avg_fn and multi_avg_fn"):
            S.AveragedModel(model_of(T), avg_fn=S.get_ema_avg_fn(), multi_avg_fn=S.get_ema_multi_avg_fn())


def test_update_bn():
    found = []
    for T in LIBRARIES:
        model = T.nn.Sequential(T.nn.BatchNorm1d(2), T.nn.BatchNorm1d(2)).eval()
        batches = [T.arange(8.0).reshape(4, 2) * (i + 1) for i in range(3)]
        T.optim.swa_utils.update_bn([(batch, 0) for batch in batches], model)
        assert not model.training
        assert model[0].momentum == 0.1
        T.optim.swa_utils.update_bn(batches, T.nn.Linear(2, 2))
        found.append(numpy_of(model))
    close(*found, 1e-6)


def averaged_by_steps(lib, option):
    """Return the average's weight and count after steps, and more steps from a count of 0; compiled if it is xgrad."""
    utils = lib.optim.swa_utils
    options = {
        "mean": {}, "multi": {"multi_avg_fn": utils.get_ema_multi_avg_fn(0.9)},
        "single": {"avg_fn": utils.get_ema_avg_fn(0.9)},
    }[option]  # fmt: skip
    model = lib.nn.Linear(2, 1)
    average = utils.AveragedModel(model, **options)
    with lib.no_grad():
        for p in model.parameters():
            p.fill_(1.0)
        average.module.weight.fill_(7.0)  # the first call overwrites it
    optimizer = lib.optim.SGD(model.parameters(), lr=0.1)

    def step():
        optimizer.zero_grad()
        model(lib.ones(1, 2)).sum().backward()
        optimizer.step()
        average.update_parameters(model)

    step = xgrad.compile(step) if lib is xgrad else step
    for _ in range(4):
        step()
    average.load_state_dict({name: t.clone() * 0 for name, t in average.state_dict().items()})
    for _ in range(3):
        step()
    return average.module.weight.tolist(), int(average.n_averaged)


@pytest.mark.parametrize("option", ["mean", "multi", "single"])
@pytest.mark.one_in(3)
def test_a_compiled_step_averages_from_the_first_call_on(option):
    ours, theirs = (averaged_by_steps(lib, option) for lib in (xgrad, torch))
    np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-5)
    assert ours[1] == theirs[1]
