"""A GradScaler's steps of xgrad.optim, eager, lazy and compiled: skipped by a value, and equal to torch's."""

import math

import numpy as np
import pytest
import torch

import xgrad
from xgrad import optim

from ..optim.table import FIRST, loss_of, parameters, same, told

# What the loss is multiplied by in each step: where it is not finite the step is skipped.
FACTORS = [1.0, math.inf, 1.0, 1.0, math.nan, -math.inf, *[1.0] * 5, math.inf, *[1.0] * 4, math.nan, *[1.0] * 13]
HOW = {"eager": lambda step: step, "lazy": xgrad.lazy(), "compile": xgrad.compile}


class Run:
    """A model, a schedule, optimizers and a scaler of either library; a step of them."""

    def __init__(self, lib, cases, clip=False, schedule=True, **options):
        self.lib, self.clip = lib, clip
        self.models = [parameters(lib, seed=i) for i in range(len(cases))]
        self.optimizers = [getattr(lib.optim, n)(m[0], **o) for (n, o), m in zip(cases, self.models)]
        rates = lib.optim.lr_scheduler.ExponentialLR
        self.schedules = [rates(o, 0.95) for o in self.optimizers] if schedule else []
        self.scaler = lib.amp.GradScaler("cpu", **{"init_scale": 16.0, "growth_interval": 3, **options})

    def step(self, factor, only=None):
        """`only`: the number of the model whose loss the factor belongs to."""
        loss = 0
        for i, (model, optimizer) in enumerate(zip(self.models, self.optimizers)):
            optimizer.zero_grad()
            loss = loss + loss_of(*model) * (factor if only is None or only == i else 1.0)
        self.scaler.scale(loss).backward()
        for (params, _), optimizer in zip(self.models, self.optimizers):
            if self.clip:
                self.scaler.unscale_(optimizer)
                self.lib.nn.utils.clip_grad_norm_(params, 1.0)
            self.scaler.step(optimizer)
        self.scaler.update()
        return loss.detach()

    def train(self, how="eager", factors=FACTORS, **options):
        self.run = HOW[how](self.step) if self.lib is xgrad else self.step
        for factor in factors:
            self.run(self.lib.tensor(factor), **options)
            for schedule in self.schedules:
                schedule.step()
        return self

    def __eq__(self, other):
        for i, model in enumerate(self.models):
            same((model[0], self.optimizers[i]), (other.models[i][0], other.optimizers[i]), 1e-5)
        return self.scaler.state_dict() == other.scaler.state_dict()


@pytest.mark.filterwarnings("ignore:Detected call of")
@pytest.mark.parametrize("clip", [False, True])
@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("case", FIRST, ids=told)
@pytest.mark.one_in(9)
def test_steps_scales_and_states_are_those_of_torch(case, how, clip):
    assert Run(xgrad, [case], clip).train(how) == Run(torch, [case], clip).train()


@pytest.mark.unverified("it counts traces")
def test_a_compiled_step_is_traced_once_from_the_first_on():
    for _ in range(2):  # the first in a process imports and opens files
        run = Run(xgrad, [("Adam", {"lr": 0.1})]).train("compile", [math.inf, 1.0, 1.0]).run
    assert run.metrics().traces == 1, run.metrics().reasons


@pytest.mark.filterwarnings("ignore:Detected call of")
@pytest.mark.parametrize("name", ["ASGD", "Rprop", "SGD"])
def test_a_first_step_that_is_skipped_begins_with_the_rate_of_the_first_that_is_not(name):
    case, factors = (name, {"lr": 0.1}), [math.inf, math.nan, 1.0, 1.0]
    theirs = Run(torch, [case]).train(factors=factors)
    for how in HOW:
        assert Run(xgrad, [case]).train(how, factors) == theirs


@pytest.mark.parametrize("how", ["lazy", "compile"])
def test_one_optimizer_of_two_is_skipped(how):
    cases = [("Adam", {"lr": 0.1}), ("SGD", {"lr": 0.01, "momentum": 0.9})]
    ours, theirs = (Run(lib, cases, schedule=False) for lib in (xgrad, torch))
    for only in (0, 1):
        factors = [1.0, math.inf, 1.0]
        assert ours.train(how, factors, only=only) == theirs.train(factors=factors, only=only)


def test_a_scale_that_is_set_or_loaded_between_compiled_steps_is_that_of_the_next():
    case = ("Adam", {"lr": 0.1})
    ours, theirs = (Run(lib, [case], schedule=False) for lib in (xgrad, torch))
    run = xgrad.compile(ours.step)
    seen = []
    for each, step in (ours, run), (theirs, theirs.step):
        scaler, lib, found = each.scaler, each.lib, []
        step(lib.tensor(1.0))
        saved = scaler.state_dict()
        found.append(saved)
        step(lib.tensor(math.inf))
        found.append(scaler.get_scale())
        scaler.load_state_dict({**saved, "scale": 4.0, "_growth_tracker": 2})
        step(lib.tensor(1.0))
        found.append(scaler.state_dict())
        scaler.update(32.0)
        scaler.set_growth_interval(1)
        step(lib.tensor(1.0))
        found.append(scaler.get_scale())
        scaler.set_growth_factor(4.0)
        scaler.set_backoff_factor(0.25)
        step(lib.tensor(1.0))
        step(lib.tensor(math.inf))
        seen.append([*found, scaler.get_scale()])
    assert seen[0] == seen[1]
    assert ours == theirs


@pytest.mark.eager("launches")
def test_lazy_steps_read_nothing():
    ours = Run(xgrad, [("Adam", {"lr": 0.1})], clip=True, schedule=False)
    ours.step(xgrad.tensor(1.0))
    xgrad.lazy.reset()
    with xgrad.lazy():
        for factor in (1.0, math.inf, 1.0):
            ours.step(xgrad.tensor(factor))
        assert xgrad.lazy.metrics().launches == 0
    assert ours.optimizers[0].state_dict()["state"][0]["step"].item() == 3


def test_many_gradients_are_unscaled_in_lazy_blocks():
    params = [xgrad.ones(2, requires_grad=True) for _ in range(300)]
    optimizer, scaler = optim.SGD(params, lr=0.5), xgrad.amp.GradScaler("cpu", init_scale=4.0)
    with xgrad.lazy():
        for factor in (1.0, math.inf, 1.0):
            optimizer.zero_grad()
            scaler.scale(sum(p.sum() for p in params) * factor).backward()
            scaler.step(optimizer)
            scaler.update()
    assert scaler.get_scale() == 2.0
    assert {tuple(p.tolist()) for p in params} == {(0.0, 0.0)}


def test_gradients_flow_through_a_differentiable_step_that_is_skipped():
    def program(skipped):
        w = xgrad.tensor([1.0, 2.0], requires_grad=True)
        p = w.clone()
        optimizer = optim.Adam([p], lr=0.1, differentiable=True)
        p.grad = w + (math.inf if skipped else 1.0)
        optimizer._step_unless(xgrad.tensor(1.0 if skipped else 0.0))
        p.sum().backward()
        return w.grad

    assert program(True).tolist() == [1.0, 1.0]
    assert program(False).isfinite().all()


class Mine(optim.Adam):
    """Adam and something else."""

    def step(self, closure=None):
        super().step(closure)


class Scaled(optim.Optimizer):
    """PyTorch's protocol: a step that skips itself."""

    _step_supports_amp_scaling = True

    def __init__(self, params):
        super().__init__(params, {"lr": 0.1})

    @xgrad.no_grad()
    def step(self, closure=None):
        for p in self.param_groups[0]["params"]:
            grad = p.grad if self.grad_scale is None else p.grad / self.grad_scale
            p.copy_(xgrad.where(self.found_inf > 0, p, p - 0.1 * grad))


def _hooked(params):
    optimizer = optim.Adam(params)
    optimizer.register_step_post_hook(lambda *args: None)
    return optimizer


def _patched(params):
    optimizer = optim.Adam(params)
    optimizer.step = lambda: optim.Adam.step(optimizer)
    return optimizer


def _dampened(params):
    return optim.SGD(params, lr=0.1, momentum=0.9, dampening=0.5)


REFUSED = {
    "step hooks": (_hooked, "has step hooks, which Python runs.*outside"),
    "a method": (Mine, "Mine has methods of your own"),
    "a replaced step": (_patched, "was replaced by a function of your own"),
    "dampening": (_dampened, "SGD with momentum and dampening.*Do one step outside"),
}


def _stepping(make, params):
    optimizer, scaler = make(params), xgrad.amp.GradScaler("cpu", init_scale=4.0)

    def step(factor):
        optimizer.zero_grad()
        scaler.scale((params[0] * params[0]).sum() * factor).backward()
        scaler.step(optimizer)
        scaler.update()

    return step


@pytest.mark.parametrize("name", REFUSED)
def test_a_compiled_step_that_cannot_be_skipped_is_refused_and_changes_nothing(name):
    make, text = REFUSED[name]
    w = xgrad.tensor([1.0, -2.0], requires_grad=True)
    step = _stepping(make, [w])
    with pytest.raises(RuntimeError, match=text):
        xgrad.compile(step)(xgrad.tensor(1.0))
    assert w.tolist() == [1.0, -2.0]
    with xgrad.lazy():  # it reads the gradients
        step(xgrad.tensor(math.inf))
        assert w.tolist() == [1.0, -2.0]
        step(xgrad.tensor(1.0))
    assert w.tolist() != [1.0, -2.0]


def test_sgd_with_dampening_is_skipped_after_its_first_step():
    case, factors = ("SGD", {"lr": 0.01, "momentum": 0.9, "dampening": 0.3}), [1.0, math.inf, 1.0]
    ours, theirs = (Run(lib, [case], schedule=False).train(factors=[1.0]) for lib in (xgrad, torch))
    assert ours.train("compile", factors) == theirs.train(factors=factors)


@pytest.mark.parametrize("how", HOW)
def test_a_step_that_skips_itself(how):
    w = xgrad.tensor([1.0, -2.0], requires_grad=True)
    step = HOW[how](_stepping(Scaled, [w]))
    for factor in (1.0, math.inf, 1.0):
        step(xgrad.tensor(factor))
    np.testing.assert_allclose(w.tolist(), [0.64, -1.28], rtol=1e-6)
