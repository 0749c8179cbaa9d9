"""One program serves a schedule: numbers of an optimizer are operands, and a changed option is always honoured."""

import copy

import pytest
import torch

import xgrad
from tests.optim import table
from xgrad import nn, optim

X64 = xgrad.float64


def start(library=xgrad):
    """Two parameters, of the same values in both libraries."""
    dtype = library.float64
    w = library.tensor([[0.5, -1.0, 2.0], [1.5, 0.25, -0.75]], dtype=dtype, requires_grad=True)
    v = library.tensor([[1.0, -0.5, 0.5]], dtype=dtype, requires_grad=True)
    return [w, v]


def loss_of(params, x):
    w, v = params
    return ((x * w).sin().sum(0) * v).square().sum()


@pytest.fixture(scope="module", autouse=True)
def imported():
    """Import what a step imports: frames of pytest's import hook ask a `state`, and then a step is traced twice."""
    params = [xgrad.ones(2, 3, requires_grad=True), xgrad.ones(1, 3, requires_grad=True)]
    xgrad.compile(stepping(optim.Adam(params), params, xgrad.ones(1, 3)), verify=False)()


def stepping(optimizer, params, x):
    def step():
        optimizer.zero_grad()
        loss = loss_of(params, x)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def eager(make, change, steps, library=xgrad):
    """Return the losses and the parameters of an uncompiled run.  `change(optimizer, i)` comes after each step."""
    params = start(library)
    optimizer = make(library.optim, params)
    x = library.tensor([[1.0, 2.0, 0.5]], dtype=library.float64)
    step, losses = stepping(optimizer, params, x), []
    for i in range(steps):
        losses.append(float(step()))
        change(optimizer, i)
    return losses, [p.detach().tolist() for p in params]


def agree(make, change, steps=5, traces=1, oracle=False):
    params = start()
    optimizer = make(optim, params)
    step = xgrad.compile(stepping(optimizer, params, xgrad.tensor([[1.0, 2.0, 0.5]], dtype=X64)))
    losses = []
    for i in range(steps):
        losses.append(float(step()))
        change(optimizer, i)
    assert step.metrics().traces == traces, step.metrics().reasons
    for library in (xgrad, torch) if oracle else (xgrad,):
        others, values = eager(make, change, steps, library)
        rel = 1e-9 if library is xgrad else 1e-6  # counts and a tensor's rate are float32
        assert losses == pytest.approx(others, rel=rel)
        for p, value in zip(params, values):
            assert p.flatten().tolist() == pytest.approx([x for row in value for x in row], rel=rel)


def halve(optimizer, i):
    for group in optimizer.param_groups:
        group["lr"] *= 0.5


NAMES = ("SGD", "Adam", "AdamW", "NAdam", "RAdam", "Adamax", "Adagrad", "Adadelta", "RMSprop", "Rprop", "ASGD")


@pytest.mark.unverified("counts traces")
@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", [*NAMES, "Adafactor"])
def test_a_changed_rate_runs_the_same_program(name):
    agree(lambda o, p: getattr(o, name)(p, lr=0.05), halve, oracle=name != "Adafactor")


@pytest.mark.unverified("counts traces")
def test_all_numbers_are_operands():
    def change(optimizer, i):
        group = optimizer.param_groups[0]
        group.update(lr=0.05 / (i + 1), betas=(0.9 - 0.01 * i, 0.99), weight_decay=0.1 + i, eps=1e-8 * (i + 1))

    agree(lambda o, p: o.AdamW(p, lr=0.05, weight_decay=0.1), change, oracle=True)


@pytest.mark.unverified("counts traces")
def test_one_cycle_changes_the_momentum_too():
    schedules = {}

    def make(o, p):
        optimizer = o.SGD(p, lr=0.01, momentum=0.8)
        library = torch if o is torch.optim else xgrad
        schedules[id(optimizer)] = library.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=8)
        return optimizer

    agree(make, lambda optimizer, i: schedules[id(optimizer)].step(), oracle=True)


@pytest.mark.unverified("counts traces")
def test_a_warm_up_from_zero():
    def change(optimizer, i):
        optimizer.param_groups[0]["lr"] = 0.01 * (i + 1)

    agree(lambda o, p: o.Adam(p, lr=0.0), change, oracle=True)


@pytest.mark.unverified("counts traces")
def test_groups_of_equal_numbers_have_operands_of_their_own():
    def change(optimizer, i):
        optimizer.param_groups[i % 2]["lr"] *= 0.5

    agree(lambda o, p: o.Adam([{"params": p[:1]}, {"params": p[1:]}], lr=0.1), change, oracle=True)


@pytest.mark.parametrize("option", [
    {"weight_decay": 0.5}, {"maximize": True}, {"amsgrad": True}, {"lr": 1}, {"betas": (0.0, 0.5)}, {"lr": "tensor"},
    {"params": "fewer"},
], ids=lambda option: next(iter(option)))  # fmt: skip
@pytest.mark.unverified("counts traces")
def test_an_option_that_changes_the_program_is_honoured(option):
    def change(optimizer, i):
        if i == 1:
            group = optimizer.param_groups[0]
            new = dict(option)
            if new.get("lr") == "tensor":
                new["lr"] = (torch if isinstance(optimizer, torch.optim.Optimizer) else xgrad).tensor(0.2)
            if "params" in new:
                new["params"] = group["params"][:1]
            group.update(new)

    one = option.get("lr") == 1
    agree(lambda o, p: o.Adam(p, lr=0.1), change, traces=1 if one else 2, oracle="amsgrad" not in option)


@pytest.mark.unverified("the eager run makes a state of its own")
def test_the_first_buffer_without_dampening_is_another_program():
    agree(lambda o, p: o.SGD(p, lr=0.05, momentum=0.9, dampening=0.5), halve, traces=2, oracle=True)


def test_a_loaded_state_is_honoured():
    other = optim.Adam(start(), lr=0.3, betas=(0.5, 0.9))

    def change(optimizer, i):
        if i == 1:
            optimizer.load_state_dict(copy.deepcopy(other.state_dict()))

    agree(lambda o, p: o.Adam(p, lr=0.1), change, traces=2)


def test_a_group_that_is_added_is_honoured():
    def change(optimizer, i):
        if i == 1:
            optimizer.add_param_group({"params": optimizer.extra, "lr": 0.3})

    def make(o, p):
        optimizer = o.Adam(p[:1], lr=0.1)
        optimizer.extra = p[1:]
        return optimizer

    agree(make, change, traces=3, oracle=True)  # the second: a parameter outside of the groups has got a gradient


# ------------------------------------------------------------ code that reads the numbers itself

kept = []


def reads(optimizer, loss):
    return loss * optimizer.param_groups[0]["lr"]


def compares(optimizer, loss):
    return loss * 2 if optimizer.param_groups[0]["lr"] > 0.04 else loss


def by_text(optimizer, loss):
    return loss * len(f"{optimizer.param_groups[0]['lr']:.9g}")


def by_class(optimizer, loss):
    return loss * 3 if isinstance(optimizer.param_groups[0]["lr"], float) else loss


def by_type(optimizer, loss):
    return loss * 3 if type(optimizer.param_groups[0]["lr"]) is float else loss


def by_float(optimizer, loss):
    return loss * float(optimizer.param_groups[0]["betas"][0])


def of_the_state_dict(optimizer, loss):
    return loss * optimizer.state_dict()["param_groups"][0]["lr"]


def in_c(optimizer, loss):
    import json

    return loss * float(json.loads(json.dumps(optimizer.param_groups[0]["lr"])))


def kept_elsewhere(optimizer, loss):
    kept.append(optimizer.param_groups[0]["lr"])
    return loss * kept.pop()


def as_an_operand(optimizer, loss):
    return xgrad.add(loss, loss, alpha=optimizer.param_groups[0]["lr"])


READERS = [
    reads, compares, by_text, by_class, by_type, by_float, of_the_state_dict, in_c, kept_elsewhere, as_an_operand,
]  # fmt: skip


@pytest.mark.unverified("the eager run makes a state of its own")
@pytest.mark.parametrize("read", READERS, ids=lambda read: read.__name__)
def test_code_that_reads_a_number_sees_the_one_of_the_call(read):
    def run(compiled):
        params = start()
        optimizer = optim.Adam(params, lr=0.05)
        x = xgrad.tensor([[1.0, 2.0, 0.5]], dtype=X64)

        def step():
            optimizer.zero_grad()
            loss = read(optimizer, loss_of(params, x))
            loss.backward()
            optimizer.step()
            return loss.detach()

        step, found = xgrad.compile(step) if compiled else step, []
        for i in range(3):
            found.append(float(step()))
            group = optimizer.param_groups[0]
            group.update(lr=group["lr"] / 3, betas=(0.9 - 0.2 * i, 0.999))
        assert group["lr"] == 0.05 / 3 / 3 / 3
        return found + params[0].flatten().tolist()

    assert run(True) == pytest.approx(run(False), rel=1e-9)


def test_a_number_that_is_returned_is_the_one_of_the_call():
    params = start()
    optimizer = optim.SGD(params, lr=0.25)

    @xgrad.compile
    def step():
        optimizer.zero_grad()
        params[0].sum().backward()
        optimizer.step()
        return optimizer.param_groups[0]["lr"]

    assert step() == 0.25
    assert type(step()) is float
    optimizer.param_groups[0]["lr"] = 0.5
    assert step() == 0.5


def test_a_hook_that_reads_the_rate_sees_the_one_of_the_call():
    def run(compiled):
        params = start()
        optimizer = optim.SGD(params, lr=0.05)

        def scale(optimizer, args, kwargs):
            for p in optimizer.param_groups[0]["params"]:
                p.grad.mul_(optimizer.param_groups[0]["lr"])

        optimizer.register_step_pre_hook(scale)
        step = stepping(optimizer, params, xgrad.ones(1, 3, dtype=X64))
        step = xgrad.compile(step) if compiled else step
        for _ in range(3):
            step()
            halve(optimizer, 0)
        return params[0].flatten().tolist()

    assert run(True) == pytest.approx(run(False), rel=1e-9)


def test_a_rate_that_the_function_sets_for_a_step_is_its_own():
    def run(compiled):
        params = start()
        optimizer = optim.SGD(params, lr=0.05)
        group = optimizer.param_groups[0]

        def step():
            optimizer.zero_grad()
            loss_of(params, xgrad.ones(1, 3, dtype=X64)).backward()
            before, group["lr"] = group["lr"], 0.125
            optimizer.step()
            group["lr"] = before

        step = xgrad.compile(step) if compiled else step
        for _ in range(3):
            step()
            halve(optimizer, 0)
        return params[0].flatten().tolist()

    assert run(True) == pytest.approx(run(False), rel=1e-9)


def test_an_optimizer_of_the_users_keeps_its_constants():
    class Twice(optim.SGD):
        def _hyper(self, group, p):
            return {**super()._hyper(group, p), "lr": 2 * group["lr"]}

    agree(lambda o, p: Twice(p, lr=0.05), halve, steps=3, traces=3)


# ------------------------------------------------------------ the first step


@pytest.mark.unverified("counts traces")
def test_two_optimizers_start_in_one_trace():
    params = start()
    first, second = optim.AdamW(params[:1], lr=0.1), optim.SGD(params[1:], lr=0.1, momentum=0.9)

    @xgrad.compile
    def step():
        for optimizer in (first, second):
            first.zero_grad()
            second.zero_grad()
            loss_of(params, xgrad.ones(1, 3, dtype=X64)).backward()
            optimizer.step()

    for _ in range(3):
        step()
    assert step.metrics().traces == 1, step.metrics().reasons
    assert first.state[params[0]]["step"] == 3


@pytest.mark.unverified("counts traces")
def test_a_module_sets_its_gradients_to_none_in_one_trace():
    layer = nn.Linear(3, 2)
    optimizer = optim.SGD(layer.parameters(), lr=0.1)

    @xgrad.compile
    def step(x):
        layer.zero_grad()
        layer(x).sum().backward()
        optimizer.step()

    for _ in range(3):
        step(xgrad.ones(2, 3))
    assert step.metrics().traces == 1, step.metrics().reasons


def test_a_first_step_that_fails_leaves_no_state():
    params = start()
    optimizer = optim.Adam(params, lr=0.1)

    @xgrad.compile
    def step():
        params[0].sum().backward()
        optimizer.step()
        return float(params[0].sum())

    with pytest.raises(xgrad.errors.TracedValueError):
        step()
    assert not optimizer.state
    assert optimizer.param_groups[0]["lr"] == 0.1
    assert params[0].grad is None


@pytest.mark.unverified("the eager run makes a state of its own")
def test_code_that_asks_for_a_state_sees_what_the_call_finds():
    params = start()
    optimizer = optim.Adam(params, lr=0.1)

    @xgrad.compile
    def step():
        scale = 1.0 if optimizer.state else 100.0
        optimizer.zero_grad()
        (params[0].sum() * scale).backward()
        optimizer.step()
        return params[0].grad.detach()

    assert [float(step()[0, 0]) for _ in range(3)] == [100.0, 1.0, 1.0]


def test_all_optimizers_are_here():
    """Whoever adds one adds it here: Muon takes matrices only, and three have sparse gradients or a search."""
    assert set(table.OPTIONS) <= {*NAMES, "Adafactor", "Muon", "LBFGS", "SparseAdam"}


# ---------------------------------------------------------------- schedules that step inside


def schedules(library, optimizer):
    made = library.optim.lr_scheduler
    return {
        "LambdaLR": lambda: made.LambdaLR(optimizer, lambda epoch: 0.9**epoch),
        "MultiplicativeLR": lambda: made.MultiplicativeLR(optimizer, lambda epoch: 0.9),
        "StepLR": lambda: made.StepLR(optimizer, 2, 0.5),
        "MultiStepLR": lambda: made.MultiStepLR(optimizer, [1, 3], 0.5),
        "ConstantLR": lambda: made.ConstantLR(optimizer, 0.5, 3),
        "LinearLR": lambda: made.LinearLR(optimizer, total_iters=4),
        "ExponentialLR": lambda: made.ExponentialLR(optimizer, 0.5),
        "PolynomialLR": lambda: made.PolynomialLR(optimizer, 4),
        "CosineAnnealingLR": lambda: made.CosineAnnealingLR(optimizer, 4),
        "CosineAnnealingWarmRestarts": lambda: made.CosineAnnealingWarmRestarts(optimizer, 3),
        "CyclicLR": lambda: made.CyclicLR(optimizer, 0.01, 0.1, step_size_up=2, cycle_momentum=False),
        "OneCycleLR": lambda: made.OneCycleLR(optimizer, 0.1, total_steps=8),
        "SequentialLR": lambda: made.SequentialLR(
            optimizer, [made.ConstantLR(optimizer, 0.5, 2), made.ExponentialLR(optimizer, 0.5)], milestones=[2]
        ),
        "ChainedScheduler": lambda: made.ChainedScheduler(
            [made.ConstantLR(optimizer, 0.5, 2), made.ExponentialLR(optimizer, 0.5)]
        ),
        "SWALR": lambda: library.optim.swa_utils.SWALR(optimizer, 0.02, anneal_epochs=3),
    }


def rates(library, name, rate, order, compiled):
    """Return the rates and a parameter after each of five calls, and how often the function was traced."""
    w = library.tensor([1.0, 2.0], requires_grad=True)
    optimizer = library.optim.Adam([w], lr=library.tensor(0.1) if rate == "tensor" else 0.1)
    schedule = schedules(library, optimizer)[name]()
    x, found = library.tensor([1.0, 3.0]), []

    def step():
        optimizer.zero_grad()
        (w * x).square().sum().backward()
        if order == "first":
            schedule.step()
        optimizer.step()
        if order != "first":
            schedule.step()

    def asking():
        step()
        return x * schedule.get_last_lr()[0]

    function = asking if order == "asked" else step
    function = xgrad.compile(function) if compiled else function
    for _ in range(5):
        result = function()
        found += [float(optimizer.param_groups[0]["lr"]), float(schedule.get_last_lr()[0]), *w.detach().tolist()]
        found += [] if result is None else result.tolist()
    return found, compiled and function.metrics().traces


@pytest.mark.filterwarnings("ignore")
@pytest.mark.one_in(4)
@pytest.mark.unverified("counts traces")
@pytest.mark.parametrize("name", schedules(xgrad, None))
@pytest.mark.parametrize("rate", ["float", "tensor"])
def test_a_schedule_steps_after_each_run_of_one_program(name, rate):
    theirs, _ = rates(torch, name, rate, "last", False)
    found, traces = rates(xgrad, name, rate, "last", True)
    assert found == pytest.approx(theirs, rel=1e-4, abs=1e-6)
    if (name, rate) != ("OneCycleLR", "tensor"):  # with a tensor as rate the momentum is a constant
        assert traces == 1


@pytest.mark.filterwarnings("ignore")
@pytest.mark.one_in(8)
@pytest.mark.unverified("traced in each call")
@pytest.mark.parametrize("name", schedules(xgrad, None))
@pytest.mark.parametrize("order", ["first", "asked"])
@pytest.mark.parametrize("rate", ["float", "tensor"])
def test_a_function_that_depends_on_its_schedules_step_is_traced_in_each_call(name, order, rate):
    theirs, _ = rates(torch, name, rate, order, False)
    found, _ = rates(xgrad, name, rate, order, True)
    assert found == pytest.approx(theirs, rel=1e-4, abs=1e-6)


def test_a_plateau_needs_its_measure_outside():
    params = start()
    optimizer = optim.SGD(params, lr=0.1)
    schedule = optim.lr_scheduler.ReduceLROnPlateau(optimizer)

    @xgrad.compile
    def step():
        loss = params[0].sum()
        loss.backward()
        optimizer.step()
        schedule.step(loss.detach())

    with pytest.raises(xgrad.errors.TracedValueError, match="reads the value of a tensor"):
        step()
    assert (schedule.last_epoch, schedule.best) == (0, float("inf"))


def test_a_verified_call_makes_the_schedules_step_once():
    params = start()
    optimizer = optim.SGD(params, lr=0.5)
    schedule = optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.5)

    @xgrad.compile(verify=True)
    def step():
        optimizer.zero_grad()
        params[0].sum().backward()
        optimizer.step()
        schedule.step()

    for _ in range(3):
        step()
    assert (schedule.get_last_lr(), schedule.last_epoch) == ([0.0625], 3)
