"""Schedules of learning rates: a hundred steps of each, with each option, equal to torch's."""

import copy
import pickle
import warnings

import pytest
import torch
import torch.optim.swa_utils

import xgrad
import xgrad.optim.swa_utils

LIBRARIES = (torch, xgrad)
STEPS = 100


def halve(epoch):
    return 0.5**epoch


class Decay:
    """A callable object: schedules save its attributes."""

    def __init__(self, rate):
        self.rate = rate

    def __call__(self, epoch):
        return self.rate**epoch


def optimizer_of(T, kind="SGD", groups=2, **options):
    options = {"lr": 0.3, **({"momentum": 0.9} if kind == "SGD" else {}), **options}
    parameters = [T.ones(1, requires_grad=True) for _ in range(groups)]
    rates = [0.3, 0.05, 0.7][:groups]
    return getattr(T.optim, kind)([{"params": [p], "lr": lr} for p, lr in zip(parameters, rates)], **options)


SCHEDULES = {
    "LambdaLR": lambda S, o: S.LambdaLR(o, halve),
    "LambdaLR, two": lambda S, o: S.LambdaLR(o, [halve, Decay(0.9)]),
    "MultiplicativeLR": lambda S, o: S.MultiplicativeLR(o, lambda epoch: 0.95),
    "MultiplicativeLR, two": lambda S, o: S.MultiplicativeLR(o, [lambda epoch: 1 + epoch / 100, Decay(0.99)]),
    "StepLR": lambda S, o: S.StepLR(o, 7),
    "StepLR, gamma": lambda S, o: S.StepLR(o, 3, gamma=0.9),
    "MultiStepLR": lambda S, o: S.MultiStepLR(o, [3, 10, 10, 40]),
    "MultiStepLR, gamma": lambda S, o: S.MultiStepLR(o, (0, 5), gamma=0.7),
    "ConstantLR": lambda S, o: S.ConstantLR(o),
    "ConstantLR, options": lambda S, o: S.ConstantLR(o, factor=0.25, total_iters=20),
    "LinearLR": lambda S, o: S.LinearLR(o),
    "LinearLR, options": lambda S, o: S.LinearLR(o, start_factor=0.9, end_factor=0.1, total_iters=60),
    "ExponentialLR": lambda S, o: S.ExponentialLR(o, 0.97),
    "PolynomialLR": lambda S, o: S.PolynomialLR(o),
    "PolynomialLR, power": lambda S, o: S.PolynomialLR(o, total_iters=50, power=2.5),
    "CosineAnnealingLR": lambda S, o: S.CosineAnnealingLR(o, 30),
    "CosineAnnealingLR, eta_min": lambda S, o: S.CosineAnnealingLR(o, 7, eta_min=0.01),
    "CosineAnnealingWarmRestarts": lambda S, o: S.CosineAnnealingWarmRestarts(o, 10),
    "CosineAnnealingWarmRestarts, longer": lambda S, o: S.CosineAnnealingWarmRestarts(o, 5, T_mult=2, eta_min=0.01),
    "CyclicLR": lambda S, o: S.CyclicLR(o, 0.1, 0.5, step_size_up=9),
    "CyclicLR, down": lambda S, o: S.CyclicLR(o, 0.1, 0.5, 9, 4, base_momentum=0.5, max_momentum=0.99),
    "CyclicLR, triangular2": lambda S, o: S.CyclicLR(o, [0.1, 0.2], [0.5, 0.6], 9, mode="triangular2"),
    "CyclicLR, exp_range": lambda S, o: S.CyclicLR(o, 0.1, 0.5, 9, mode="exp_range", gamma=0.99),
    "CyclicLR, scale_fn": lambda S, o: S.CyclicLR(o, 0.1, 0.5, 9, scale_fn=Decay(0.9), cycle_momentum=False),
    "CyclicLR, iterations": lambda S, o: S.CyclicLR(o, 0.1, 0.5, 9, scale_fn=halve, scale_mode="iterations"),
    "OneCycleLR": lambda S, o: S.OneCycleLR(o, 0.5, total_steps=STEPS + 1),
    "OneCycleLR, epochs": lambda S, o: S.OneCycleLR(o, [0.5, 0.6], epochs=11, steps_per_epoch=10, pct_start=0.4),
    "OneCycleLR, three": lambda S, o: S.OneCycleLR(o, 0.5, STEPS + 1, three_phase=True, div_factor=5.0),
    "OneCycleLR, linear": lambda S, o: S.OneCycleLR(o, 0.5, 120, anneal_strategy="linear", final_div_factor=10.0),
    "OneCycleLR, momentum": lambda S, o: S.OneCycleLR(o, 0.5, 120, base_momentum=[0.1, 0.2], max_momentum=0.7),
    "OneCycleLR, rates only": lambda S, o: S.OneCycleLR(o, 0.5, 120, cycle_momentum=False),
    "ChainedScheduler": lambda S, o: S.ChainedScheduler([S.ConstantLR(o, 0.1, 20), S.ExponentialLR(o, 0.9)]),
    "ChainedScheduler, optimizer": lambda S, o: S.ChainedScheduler([S.StepLR(o, 7), S.LinearLR(o)], optimizer=o),
    "SequentialLR": lambda S, o: S.SequentialLR(o, [S.ConstantLR(o, 0.1, 20), S.ExponentialLR(o, 0.9)], [20]),
    "SequentialLR, warm-up": lambda S, o: S.SequentialLR(
        o, [S.LinearLR(o, 0.1, total_iters=10), S.CosineAnnealingLR(o, 90), S.StepLR(o, 3)], [10, 95]
    ),
    "SequentialLR, nested": lambda S, o: S.SequentialLR(
        o, [S.ChainedScheduler([S.LinearLR(o), S.StepLR(o, 2)]), S.CosineAnnealingWarmRestarts(o, 4)], milestones=[8]
    ),
    "SWALR": lambda S, o: S.SWALR(o, 0.02),
    "SWALR, linear": lambda S, o: S.SWALR(o, [0.02, 0.9], anneal_epochs=33, anneal_strategy="linear"),
    "SWALR, at once": lambda S, o: S.SWALR(o, 0.02, anneal_epochs=0),
}


class Names:
    """The schedules of both modules."""

    def __init__(self, T):
        self.T = T

    def __getattr__(self, name):
        home = self.T.optim.swa_utils if name == "SWALR" else self.T.optim.lr_scheduler
        return getattr(home, name)


def made(T, name, kind="SGD", **options):
    optimizer = optimizer_of(T, kind, **options)
    optimizer.step()  # before the first step of the schedule, that it does not warn
    scheduler = SCHEDULES[name](Names(T), optimizer)
    optimizer.step()
    return optimizer, scheduler


def numbers(optimizer, scheduler):
    keys = ("lr", "momentum", "betas", "initial_lr", "max_lr", "min_lr", "swa_lr", "base_momentum", "max_momentum")
    groups = [[group.get(key) for key in keys] for group in optimizer.param_groups]
    return [[float(rate) for rate in scheduler.get_last_lr()], plain(groups)]


def plain(value):
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, (torch.Tensor, xgrad.Tensor)):
        return value.tolist()
    return value


def same(a, b, tolerance=1e-12):
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key], tolerance) for key in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(same(x, y, tolerance) for x, y in zip(a, b))
    if isinstance(a, float) and isinstance(b, float):
        return a == b or abs(a - b) <= tolerance * max(abs(a), abs(b))
    return a == b


def run(pairs, steps=STEPS):
    for i in range(steps):
        found = []
        for optimizer, scheduler in pairs:
            scheduler.step()
            found.append(numbers(optimizer, scheduler))
        assert same(*found), i


# A chain within a sequence begins with two steps, of which torch warns too.
pytestmark = pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler:UserWarning")


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_hundred_steps(name):
    pairs = [made(T, name) for T in LIBRARIES]
    assert same(*(numbers(*pair) for pair in pairs))
    run(pairs)
    states = [plain(scheduler.state_dict()) for _, scheduler in pairs]
    for state in states:
        state.pop("anneal_func", None)
    assert same(*states)


@pytest.mark.parametrize("name", ["CyclicLR", "OneCycleLR"])
def test_momentum_of_adam(name):
    run([made(T, name, "AdamW") for T in LIBRARIES], 30)


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_state_of_either_library_resumes(name):
    pairs = [made(T, name) for T in LIBRARIES]
    run(pairs, 17)
    for source in range(2):
        optimizer, scheduler = pairs[source]
        saved = copy.deepcopy(scheduler.state_dict()), copy.deepcopy(optimizer.param_groups)
        resumed, again = made(xgrad, name)
        for group, before in zip(resumed.param_groups, saved[1]):
            group.update((key, value) for key, value in before.items() if key != "params")
        again.load_state_dict(saved[0])
        for _ in range(20):
            again.step()
        found = numbers(resumed, again)
        if source == 0:
            first = found
    assert same(first, found)
    for _ in range(20):
        pairs[1][1].step()
    assert same(found, numbers(*pairs[1]))


CLOSED = [name for name in SCHEDULES if name.split(",")[0] in (
    "StepLR", "MultiStepLR", "ConstantLR", "LinearLR", "ExponentialLR", "PolynomialLR", "CosineAnnealingLR", "LambdaLR",
)]  # fmt: skip


@pytest.mark.parametrize("name", CLOSED)
def test_an_epoch_that_is_given(name):
    pairs = [made(T, name) for T in LIBRARIES]
    for epoch in (0, 3, 4, 12, 70):
        for _, scheduler in pairs:
            with pytest.warns(UserWarning, match="The epoch parameter in `scheduler.step\\(\\)` was not necessary"):
                scheduler.step(epoch)
        assert same(*(numbers(*pair) for pair in pairs))


def test_fractions_of_epochs_of_warm_restarts():
    for name in ("CosineAnnealingWarmRestarts", "CosineAnnealingWarmRestarts, longer"):
        pairs = [made(T, name) for T in LIBRARIES]
        for epoch in (0.5, 3, 11.25, 40.75, 2):
            for _, scheduler in pairs:
                scheduler.step(epoch)
            assert same(*(numbers(*pair) for pair in pairs))


PLATEAUS = {
    "default": {},
    "max": {"mode": "max"},
    "abs": {"threshold_mode": "abs", "threshold": 0.05},
    "max abs": {"mode": "max", "threshold_mode": "abs", "threshold": 0.05},
    "patience": {"patience": 2, "factor": 0.5},
    "cooldown": {"patience": 1, "cooldown": 4},
    "min_lr": {"patience": 0, "min_lr": 0.02},
    "min_lrs": {"patience": 0, "min_lr": [0.02, 0.04]},
    "eps": {"patience": 0, "eps": 0.01},
}


@pytest.mark.parametrize("name", PLATEAUS)
def test_reduce_on_plateau(name):
    optimizers = [optimizer_of(T) for T in LIBRARIES]
    schedulers = [T.optim.lr_scheduler.ReduceLROnPlateau(o, **PLATEAUS[name]) for T, o in zip(LIBRARIES, optimizers)]
    for i in range(STEPS):
        measure = 1 / (1 + i % 23) + (i // 23) * 0.1
        for T, scheduler in zip(LIBRARIES, schedulers):
            scheduler.step(T.tensor(measure) if i % 2 else measure)
        assert same(*(numbers(*pair) for pair in zip(optimizers, schedulers)))
        assert schedulers[0].in_cooldown == schedulers[1].in_cooldown
    theirs, ours = (plain(scheduler.state_dict()) for scheduler in schedulers)
    assert same(theirs, ours)
    again = xgrad.optim.lr_scheduler.ReduceLROnPlateau(optimizers[1])
    again.load_state_dict(schedulers[0].state_dict())
    assert same(plain(again.state_dict()), ours)


def test_plateau_after_a_new_group():
    for min_lr in (0.01, [0.01, 0.01]):
        found = []
        for T in LIBRARIES:
            optimizer = optimizer_of(T)
            scheduler = T.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, min_lr=min_lr)
            optimizer.add_param_group({"params": [T.ones(1, requires_grad=True)]})
            scheduler.step(1.0)
            if isinstance(min_lr, list):
                with pytest.raises(RuntimeError, match="The number of param groups in the `optimizer`"):
                    scheduler.step(1.0)
            else:
                scheduler.step(1.0)
            found.append([float(group["lr"]) for group in optimizer.param_groups])
        assert found[0] == found[1]


@pytest.mark.parametrize("name", ["StepLR, gamma", "CosineAnnealingLR", "LinearLR", "OneCycleLR, rates only"])
def test_rates_that_are_tensors_are_written(name):
    pairs, held = [], []
    for T in LIBRARIES:
        parameter, rate = T.ones(1, requires_grad=True), T.tensor(0.3, dtype=T.float64)
        optimizer = T.optim.SGD([parameter], lr=rate)
        optimizer.step()
        pairs.append((optimizer, SCHEDULES[name](Names(T), optimizer)))
        optimizer.step()
        held.append(optimizer.param_groups[0]["lr"])
    for _ in range(30):
        for _, scheduler in pairs:
            scheduler.step()
        assert same(*([float(x) for x in scheduler.get_last_lr()] for _, scheduler in pairs), tolerance=1e-9)
    if name != "OneCycleLR, rates only":
        assert held[1] is pairs[1][0].param_groups[0]["lr"]
        assert held[1].item() == pairs[1][1].get_last_lr()[0].item()


def warned(function):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        function()
    return [(w.category, str(w.message).split()[:6]) for w in found], {w.filename for w in found}


def test_warnings():
    def order(T):
        optimizer = optimizer_of(T)
        scheduler = T.optim.lr_scheduler.StepLR(optimizer, 2)
        for _ in range(3):
            scheduler.step()
            optimizer.step()

    def overridden(T):
        optimizer = optimizer_of(T)
        scheduler = T.optim.lr_scheduler.StepLR(optimizer, 2)
        optimizer.step = lambda: None
        optimizer.step()
        scheduler.step()

    def get_lr(T):
        made(T, "ExponentialLR")[1].get_lr()

    def right(T):
        optimizer = optimizer_of(T)
        schedulers = [T.optim.lr_scheduler.StepLR(optimizer, 2), T.optim.lr_scheduler.LinearLR(optimizer)]
        for _ in range(3):
            optimizer.step()
            for scheduler in schedulers:
                scheduler.step()

    for program, count in ((order, 1), (overridden, 1), (get_lr, 1), (right, 0)):
        (theirs, _), (ours, files) = (warned(lambda: program(T)) for T in LIBRARIES)  # noqa: B023 - called at once
        assert len(ours) == count
        assert theirs == ours, program
        assert files <= {__file__}


WRONG = {
    "no optimizer": lambda S, o: S.StepLR(object(), 1),
    "no optimizer, plateau": lambda S, o: S.ReduceLROnPlateau(3),
    "no optimizer, cyclic": lambda S, o: S.CyclicLR(3, 0.1, 0.2),
    "no optimizer, one cycle": lambda S, o: S.OneCycleLR(3, 0.1, 10),
    "resumed": lambda S, o: S.StepLR(o, 1, last_epoch=3),
    "base": lambda S, o: S.LRScheduler(o),
    "lambdas": lambda S, o: S.LambdaLR(o, [halve]),
    "lambdas, multiplicative": lambda S, o: S.MultiplicativeLR(o, [halve]),
    "number": lambda S, o: S.MultiplicativeLR(o, 3),
    "constant": lambda S, o: S.ConstantLR(o, factor=2.0),
    "start": lambda S, o: S.LinearLR(o, start_factor=0.0),
    "end": lambda S, o: S.LinearLR(o, end_factor=2.0),
    "T_0": lambda S, o: S.CosineAnnealingWarmRestarts(o, 0),
    "T_mult": lambda S, o: S.CosineAnnealingWarmRestarts(o, 1, 0),
    "eta_min": lambda S, o: S.CosineAnnealingWarmRestarts(o, 1, 1, "0"),
    "negative": lambda S, o: S.CosineAnnealingWarmRestarts(o, 1).step(-1),
    "factor": lambda S, o: S.ReduceLROnPlateau(o, factor=1.0),
    "min_lr": lambda S, o: S.ReduceLROnPlateau(o, min_lr=[0.1]),
    "mode": lambda S, o: S.ReduceLROnPlateau(o, mode="mean"),
    "threshold": lambda S, o: S.ReduceLROnPlateau(o, threshold_mode="mean"),
    "cyclic mode": lambda S, o: S.CyclicLR(o, 0.1, 0.2, mode="square"),
    "cyclic lengths": lambda S, o: S.CyclicLR(o, [0.1], 0.2),
    "no total": lambda S, o: S.OneCycleLR(o, 0.1),
    "total": lambda S, o: S.OneCycleLR(o, 0.1, 0),
    "epochs": lambda S, o: S.OneCycleLR(o, 0.1, epochs=-1, steps_per_epoch=3),
    "steps": lambda S, o: S.OneCycleLR(o, 0.1, epochs=1, steps_per_epoch=3.0),
    "pct_start": lambda S, o: S.OneCycleLR(o, 0.1, 10, pct_start=2.0),
    "anneal": lambda S, o: S.OneCycleLR(o, 0.1, 10, anneal_strategy="square"),
    "too many": lambda S, o: [S.OneCycleLR(o, 0.1, 3)] * 1 and stepped(S.OneCycleLR(o, 0.1, 3), 4),
    "none": lambda S, o: S.ChainedScheduler([]),
    "none in turn": lambda S, o: S.SequentialLR(o, [], []),
    "milestones": lambda S, o: S.SequentialLR(o, [S.StepLR(o, 1)], [1]),
    "plateau in a chain": lambda S, o: S.ChainedScheduler([S.ReduceLROnPlateau(o)]),
    "no schedule": lambda S, o: S.ChainedScheduler([3], o),
    "two optimizers": lambda S, o: S.ChainedScheduler([S.StepLR(o, 1), S.StepLR(optimizer_of(S.T), 1)]),
    "swa": lambda S, o: S.SWALR(o, 0.1, anneal_strategy="square"),
    "swa epochs": lambda S, o: S.SWALR(o, 0.1, anneal_epochs=-1),
}


def stepped(scheduler, n):
    for _ in range(n):
        scheduler.optimizer.step()
        scheduler.step()


@pytest.mark.parametrize("name", WRONG)
def test_errors(name):
    errors = []
    for T in LIBRARIES:
        with pytest.raises(Exception) as error:  # noqa: PT011 - compared below
            WRONG[name](Names(T), optimizer_of(T))
        errors.append((type(error.value), str(error.value).split()[:4]))
    assert errors[0] == errors[1]


@pytest.mark.parametrize("name", ["CyclicLR", "OneCycleLR"])
def test_momentum_has_to_be_there(name):
    for T in LIBRARIES:
        optimizer = T.optim.Adagrad([T.ones(1, requires_grad=True)]) if hasattr(T.optim, "Adagrad") else None
        if optimizer is not None:
            with pytest.raises(ValueError, match="optimizer must support momentum or beta1"):
                SCHEDULES[name](Names(T), optimizer)


def test_schedules_are_pickled_and_die_with_their_optimizer():
    import gc
    import weakref

    optimizer, scheduler = made(xgrad, "CosineAnnealingLR")
    state = pickle.loads(pickle.dumps(scheduler.state_dict()))
    assert state == scheduler.state_dict()
    gc.collect()
    gc.disable()
    try:
        alive = weakref.ref(optimizer)
        del optimizer, scheduler
        assert alive() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("how", ["eager", "lazy", "compiled"])
def test_a_schedule_in_training(how):
    losses = []
    for T in LIBRARIES:
        x = T.arange(6.0).reshape(3, 2)
        w = T.ones(2, requires_grad=True)
        rate = T.tensor(0.01) if how == "compiled" else 0.01  # a number that changes would be compiled again
        optimizer = T.optim.SGD([w], lr=rate, momentum=0.5)
        scheduler = T.optim.lr_scheduler.CosineAnnealingLR(optimizer, 5)

        def step(x, w=w, optimizer=optimizer):
            optimizer.zero_grad()
            loss = ((x @ w) ** 2).sum()
            loss.backward()
            optimizer.step()
            return loss

        if T is xgrad and how == "compiled":
            step = xgrad.compile(step)
        found = []
        for _ in range(8):
            if T is xgrad and how == "lazy":
                with xgrad.lazy():
                    found.append(step(x).detach())
            else:
                found.append(step(x).detach())
            scheduler.step()
        losses.append([float(loss) for loss in found])
    assert same(*losses, tolerance=1e-5)
