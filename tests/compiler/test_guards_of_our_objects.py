"""xgrad's own objects, registries and switches count as the user's own: what the trace read of them is compared."""

import builtins
import collections
import copy
import pickle
import sys
import types

import pytest

import xgrad
from tests.property import guards
from tests.property.ingredients import INGREDIENTS
from xgrad import distributions as dist
from xgrad import nn, optim

KINDS = [*INGREDIENTS]
OURS = KINDS[KINDS.index("a schedule's last rate") :]
GLOBAL_HOOKS = ("hooks of all modules", "hooks of all optimizers")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.one_in(4)
@pytest.mark.unverified("the test compares with the eager run itself")
@pytest.mark.parametrize("kind", OURS)
@pytest.mark.parametrize("place", guards.PLACES)
def test_each_change_of_an_object_of_ours_is_seen(kind, place):
    world = guards.World(guards.Case([(kind, place)], "user", False))
    try:
        found = [world.call()]
        for which in range(len(INGREDIENTS[kind][2])):
            assert world.change((0, which)), world.case.change((0, which))
            found += [world.call(), world.call()]
    finally:
        world.close()
    assert {*found} <= {None, "refused"}


def read(schedule):
    return xgrad.compile(lambda x, really=True: x * schedule.get_last_lr()[0] if really else x)


def halving():
    optimizer = optim.SGD([xgrad.ones(1, requires_grad=True)], lr=0.5)
    return optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.5)


def test_a_rate_that_is_read():
    schedule = halving()
    step, found = read(schedule), []
    for _ in range(4):
        found.append(step(xgrad.ones(())).item())
        schedule.optimizer.step()
        schedule.step()
    assert found == [0.5, 0.25, 0.125, 0.0625]


@pytest.mark.unverified("counts traces")
def test_an_object_that_no_code_reads_is_no_part_of_the_program():
    schedule = halving()
    step = read(schedule)
    for _ in range(3):
        assert step(xgrad.ones(()), False).item() == 1
        schedule.optimizer.step()
        schedule.step()
    assert step.metrics().traces == 1, step.metrics().reasons


@pytest.mark.unverified("counts traces")
def test_the_program_from_before_a_hook_of_all_modules_runs_again_without_it():
    layer = nn.Linear(2, 2)
    step, x = xgrad.compile(lambda x: layer(x).detach()), xgrad.ones(2)
    first = step(x).tolist()
    with nn.modules.module.register_module_forward_hook(lambda module, args, result: result * 2):
        assert step(x).tolist() == pytest.approx([2 * value for value in first])
    assert step(x).tolist() == first
    assert step.metrics().traces == 2
    assert "the hooks of all modules and optimizers" in step.metrics().reasons[0]


@pytest.mark.parametrize("kind", ["parameter", "buffer", "module"])
def test_a_hook_of_registrations(kind):
    register = getattr(nn.modules.module, f"register_module_{kind}_registration_hook")

    @xgrad.compile
    def step(x):
        made = nn.Module()
        made.register_parameter("parameter", nn.Parameter(xgrad.ones(2)))
        made.register_buffer("buffer", xgrad.ones(2))
        made.module = nn.Identity()
        return x * len(seen)

    seen = []
    step(xgrad.ones(2))
    with register(lambda module, name, value: seen.append(name)), pytest.raises(NotImplementedError, match="list"):
        step(xgrad.ones(2))
    assert not seen


SWITCHES = [
    (xgrad.get_num_threads, xgrad.set_num_threads, 3),
    (xgrad.are_deterministic_algorithms_enabled, xgrad.use_deterministic_algorithms, True),
    (lambda: xgrad.backends.cudnn.benchmark, lambda v: setattr(xgrad.backends.cudnn, "benchmark", v), True),
    (lambda: dist.Distribution._validate_args, dist.Distribution.set_default_validate_args, False),
]


@pytest.mark.parametrize(("ask", "put", "value"), SWITCHES, ids=["threads", "deterministic", "cudnn", "validate_args"])
def test_a_switch_that_is_read(ask, put, value):
    before = ask()
    step, x = xgrad.compile(lambda x: x * float(ask())), xgrad.ones(())
    try:
        assert step(x).item() == float(before)
        put(value)
        assert step(x).item() == float(value)
    finally:
        put(before)
    assert step(x).item() == float(before)


def test_a_builtin_that_is_replaced(monkeypatch):
    step = xgrad.compile(lambda x: x * abs(-2.0))
    assert step(xgrad.ones(())).item() == 2
    monkeypatch.setattr(builtins, "abs", lambda value: 5.0)
    assert step(xgrad.ones(())).item() == 5


shared = [2.0, 3.0]


def test_a_list_that_another_function_ignores():
    ignore = lambda values: 7  # noqa: E731
    step = xgrad.compile(lambda x: x * (shared[-1] + ignore(shared)))
    assert step(xgrad.ones(())).item() == 10
    shared.append(1.0)
    assert step(xgrad.ones(())).item() == 8


class Kept:
    """A class that nothing has copied before."""

    def __init__(self):
        self.k = 2.0


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))])
def test_the_first_copy_of_a_class_is_no_change_of_it(copied):
    if "__slotnames__" in vars(Kept):
        del Kept.__slotnames__
    kept = Kept()
    step = xgrad.compile(lambda x: x * copied(kept).k)
    assert step(xgrad.ones(())).item() == 2
    kept.k = 3.0
    assert step(xgrad.ones(())).item() == 3


def _different(function, change):
    """Compare a compiled function with the eager one before and after a change, which must show."""
    compiled, x = xgrad.compile(function), xgrad.ones(2)
    before = function(x).tolist()
    assert compiled(x).tolist() == compiled(x).tolist() == before
    change()
    assert function(x).tolist() != before
    assert compiled(x).tolist() == function(x).tolist()


@pytest.mark.parametrize("name", ["xgrad.settings", "xgrad.nn.modules.linear", "xgrad.optim", "jax.numpy", "numpy.my"])
def test_a_class_of_the_users_under_a_librarys_name(name):
    class Settings:
        __module__ = name
        rate = 2.0

        def __init__(self):
            self.scale = 2.0

        def times(self, x):
            return x * self.scale

    class Bare:
        __module__ = name
        rate = 2.0

    made, bare = Settings(), Bare()
    _different(lambda x: made.times(x), lambda: setattr(made, "scale", 3.0))
    _different(lambda x: x * made.rate, lambda: setattr(Settings, "rate", 3.0))
    _different(lambda x: x * Bare.rate, lambda: setattr(Bare, "rate", 3.0))
    _different(lambda x: x * bare.rate, lambda: setattr(Bare, "rate", 4.0))
    _different(lambda x: made.times(x), lambda: setattr(Settings, "times", lambda self, x: x * 7))


@pytest.mark.parametrize("name", ["xgrad.extras", "xgrad.nn.extras", "xgradient", "xgrad_extras", "flax.extras"])
def test_a_module_of_the_users_under_a_librarys_name(name, monkeypatch, tmp_path):
    module = types.ModuleType(name)
    module.__file__ = str(tmp_path / "extras.py")
    monkeypatch.setitem(sys.modules, name, module)
    code = "RATE = 2.0\ndef scaled(x):\n    return x * RATE\nclass Scale:\n    by = lambda self, x: x * RATE\n"
    exec(compile(code, module.__file__, "exec"), vars(module))
    _different(lambda x: module.scaled(x), lambda: setattr(module, "RATE", 3.0))
    _different(lambda x: x * module.RATE, lambda: setattr(module, "RATE", 4.0))
    _different(lambda x: module.Scale().by(x), lambda: setattr(module, "RATE", 5.0))


@pytest.mark.parametrize("base", [list, dict, set, collections.deque, collections.OrderedDict, tuple])
def test_the_first_attribute_of_a_containers_subclass(base):
    class Container(base):
        scale = 2.0

        def times(self, x):
            return x * self.scale

    made, other = Container(), Container()
    _different(lambda x: made.times(x), lambda: setattr(made, "scale", 3.0))
    _different(lambda x: x * getattr(other, "scale"), lambda: setattr(other, "scale", 3.0))  # noqa: B009


@pytest.mark.parametrize("reads", [True, False])
def test_a_group_of_an_optimizer_of_a_class_of_its_own(reads):
    class Group(dict):
        boost = 1.0

        if reads:

            def __getitem__(self, name):
                return dict.__getitem__(self, name) * (self.boost if name == "lr" else 1)

    def run(wrap):
        w = xgrad.nn.Parameter(xgrad.ones(2))
        optimizer = xgrad.optim.SGD([w], lr=1.0)
        group = optimizer.param_groups[0] = Group(optimizer.param_groups[0])

        def step(x):
            optimizer.zero_grad()
            (w * x * (1 if reads else group.boost)).sum().backward()
            optimizer.step()
            return w.detach().clone()

        step, found = wrap(step), []
        for boost in (1.0, 1.0, 5.0, 7.0):
            group.boost = boost
            found.append(step(xgrad.ones(2)).tolist())
        return found

    assert run(xgrad.compile) == run(lambda step: step)
