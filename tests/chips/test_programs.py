"""Programs of steps for a target: nothing runs or changes, operands have names, equations lines, meshes shardings."""

import jax
import numpy as np
import optax
import pytest
from jax.sharding import PartitionSpec as P

import xgrad
from xgrad import nn
from xgrad.chips import ChipReport
from xgrad.chips.programs import Asked
from xgrad.errors import PlacementError
from xgrad.interop.optax import Optimizer

WIDTH = 8


def training(optimizer=None):
    """A model, its optimizer, a step and a batch."""
    xgrad.manual_seed(0)
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Dropout(0.5), nn.Linear(WIDTH, WIDTH))
    optimizer = (optimizer or (lambda p: xgrad.optim.Adam(p, lr=0.1)))(model.parameters())

    @xgrad.compile
    def step(inputs):
        optimizer.zero_grad()
        loss = model(inputs).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return model, optimizer, step, xgrad.ones(4, WIDTH)


def state_of(model, optimizer):
    """All that a step changes, as values; and the objects themselves."""
    state = vars(optimizer).get("state", vars(optimizer).get("_state"))
    parts = state.values() if isinstance(state, dict) else [state]
    tensors = [t for t in jax.tree.leaves([*parts], is_leaf=xgrad.is_tensor) if xgrad.is_tensor(t)]
    tensors += model.parameters()
    return (
        [t.detach().numpy().copy() for t in tensors], [id(t) for t in tensors], [t._version for t in tensors],
        [id(t.grad) for t in tensors], xgrad.get_rng_state().numpy(), len([*parts]),
    )  # fmt: skip


def same(a, b):
    np.testing.assert_equal(a, b)


@pytest.mark.parametrize("steps", [0, 2])
@pytest.mark.parametrize("kind", [None, lambda p: Optimizer(p, optax.adam(0.1))], ids=["xgrad.optim", "optax"])
def test_compiling_a_step_for_a_target_runs_and_changes_nothing(compiler, kind, steps):
    model, optimizer, step, x = training(kind)
    for _ in range(steps):
        step(x)
    before, metrics = state_of(model, optimizer), step.metrics()
    report = step.compiled_for("tpu:v5e", x)
    assert report.fits, report
    same(state_of(model, optimizer), before)
    assert step.metrics() == metrics
    # The step goes on as one that was never compiled for a target.
    losses = [step(x).item() for _ in range(2)]
    model, optimizer, step, x = training(kind)
    for _ in range(steps):
        step(x)
    assert losses == [step(x).item() for _ in range(2)]


def pulled_back(parameters):
    """An optimizer whose state are the parameters at its first step."""
    tx = optax.GradientTransformation(
        lambda p: jax.tree.map(lambda a: a * 1, p), lambda u, s, p: (jax.tree.map(lambda u, s: 0.1 * (s - u), u, s), s)
    )
    return Optimizer(parameters, tx)


def test_state_that_begins_from_parameters_does_so_at_the_first_step(compiler):
    """Not at the time when the step was compiled for a target."""
    found = []
    for ask in (False, True):
        model, _, step, x = training(pulled_back)
        if ask:
            assert step.compiled_for("tpu:v5e", x).fits
        with xgrad.no_grad():
            model[0].weight.fill_(1)
        step(x)
        found.append(model[0].weight.detach().numpy())
    same(*found)


def test_the_state_of_optax_has_names_and_shapes_alone(compiler):
    with xgrad.chips.shapes():
        model = nn.Linear(WIDTH, WIDTH)
        optimizer = Optimizer(model.named_parameters(), optax.adam(0.1))

    @xgrad.compile
    def step(inputs):
        optimizer.zero_grad()
        model(inputs).sum().backward()
        optimizer.step()

    target = xgrad.target("tpu:v5e:2x2", {"data": 4}, {"*.weight": P("data")})
    report = step.compiled_for(target, jax.ShapeDtypeStruct((4, WIDTH), np.float32))
    assert report.fits, report
    places = dict(zip(report._program.names, (s.sharding.spec for s in report._program.structs)))
    assert places["model.weight: mu"] == places["model.weight: nu"] == P("data")
    assert places["model.bias: mu"] == places["the optimizer: count"] == P()


@pytest.mark.parametrize("steps", [0, 1])
def test_operands_have_names_and_all_that_is_written_is_donated(compiler, steps):
    _, _, step, x = training()
    for _ in range(steps):
        step(x)
    report = step.compiled_for("tpu:v5e", x)
    names = report._program.names
    assert {"inputs", "model.0.weight", "model.2.bias", "the random generator's key"} <= {*names}
    assert {"model.0.weight: exp_avg", "model.0.weight: step"} <= {*names}
    assert {names[i] for i in report._program.donate} >= {"model.0.weight", "model.0.weight: exp_avg_sq"}
    assert report.undonated == []
    assert len(report.aliased) >= 12


def test_parts_have_the_lines_of_the_users_program(compiler):
    _, _, step, x = training()
    report = step.compiled_for("tpu:v5e", x)
    line = step._function.__code__.co_firstlineno
    for offset in (3, 4, 5):  # forward, backward, optimizer
        assert f"/test_programs.py:{line + offset}/" in report.as_text()


def test_shapes_stand_for_tensors(compiler):
    key = xgrad.get_rng_state()
    with xgrad.chips.shapes():
        model = nn.Linear(1 << 20, 1 << 20)
        optimizer = xgrad.optim.Adam(model.parameters())
        x = xgrad.ones(2, 1 << 20)
    assert (key == xgrad.get_rng_state()).all()
    assert x.shape == (2, 1 << 20)

    @xgrad.compile
    def step(inputs):
        optimizer.zero_grad()
        model(inputs).sum().backward()
        optimizer.step()

    report = step.compiled_for("cuda:t4", x)
    assert report.answer.memory["argument"] > 3 << 42  # 12 TiB that nobody has
    assert report.state == "does not fit"
    lines = str(report).splitlines()
    assert "the program takes" in lines[1]
    assert lines[2].split() == ["arguments", "12", "TiB"]
    assert lines[3].split() == ["model.weight", "4", "TiB"]
    assert step.compiled_for("cuda:t4", jax.ShapeDtypeStruct((2, 1 << 20), np.float32)).answer == report.answer
    with pytest.raises(RuntimeError, match=r"needs the values of a tensor that has a shape \[2, 1048576\] alone"):
        x.sum().item()
    assert not optimizer.state
    with pytest.raises(RuntimeError, match="needs the values"):
        step(x)


def test_plain_functions_modules_and_lazy_programs(compiler):
    x = xgrad.ones(4, WIDTH)
    target = xgrad.target("tpu:v5e")
    assert target.compile(lambda x: x * 2, x).fits
    model = nn.Linear(WIDTH, WIDTH)
    report = target.compile(model, x)
    assert report.fits
    assert {*report._program.names} == {"input", "self.weight", "self.bias"}
    assert target.compile(xgrad.compile(model), x).fits
    with xgrad.lazy():
        y = (x * 3).tanh()
    report = xgrad.lazy.compiled_for("tpu:v5e")
    assert report.name == "the last lazy program"
    assert "tanh" in report.as_text()
    del y
    line = test_plain_functions_modules_and_lazy_programs.__code__.co_firstlineno + 10
    assert f"test_programs.py:{line}/" in report.as_text()
    with pytest.raises(TypeError, match="a function, a compiled one or xgrad\\.lazy can be compiled, but got int"):
        target.compile(3)


def test_a_call_in_a_lazy_block_evaluates_what_is_pending(compiler):
    _, _, step, _ = training()
    with xgrad.lazy():
        x = xgrad.ones(4, WIDTH) * 2
        assert step.compiled_for("tpu:v5e", x).fits


def test_what_is_not_donated_has_a_reason(compiler):
    kept = xgrad.compile(lambda x: x.mul_(2), donate=False).compiled_for("tpu:v5e", xgrad.ones(WIDTH))
    assert kept.undonated == [("x", "donate=False keeps it")]
    lost = xgrad.target("tpu:v5e").ask(lambda x: x.sum(), jax.ShapeDtypeStruct((8,), np.float32), donate=(0,))
    program = Asked("sum", None, [], donate=(0,), names=("x",))
    assert ChipReport(kept.target, lost, program).undonated == [("x", "no result can have its memory")]


def sharded(shardings, **axes):
    return xgrad.target("tpu:v5e:2x2", axes or {"data": 2, "model": 2}, shardings)


def test_patterns_of_names_shard_parameters_and_their_state(compiler):
    _, _, step, x = training()
    alone = step.compiled_for("tpu:v5e", x)
    report = step.compiled_for(sharded({"inputs": P("data"), "*.weight": P("model", None)}), x)
    matrices, rest = 2 * 3 * WIDTH * WIDTH * 4, 4 * WIDTH * 4
    assert alone.answer.memory["argument"] - report.answer.memory["argument"] == matrices // 2 + rest // 2
    assert {axis for e in report.exchanges for axis in e.axes.split(", ")} == {"data", "model"}
    assert report.undonated == []
    places = dict(zip(report._program.names, (s.sharding.spec for s in report._program.structs)))
    assert places["model.0.weight: exp_avg"] == P("model", None)
    assert places["model.0.weight: step"] == P()


def test_shardings_that_do_not_fit(compiler):
    _, _, step, x = training()
    with pytest.raises(PlacementError, match=r"inputs: dimension 0 of size 3 is not divisible by mesh axis 'data'"):
        step.compiled_for(sharded({"inputs": P("data")}), xgrad.ones(3, WIDTH))
    with pytest.raises(PlacementError, match=r"no operand is named input, \*\.gain; there are .*model\.0\.weight"):
        step.compiled_for(sharded({"input": P("data"), "*.gain": P()}), x)
    with pytest.raises(PlacementError, match=r"inputs: .*rows"):
        step.compiled_for(sharded({"inputs": P("rows")}), x)


def test_tensors_on_a_mesh_stay_there(compiler):
    """And a step that has run on the CPU's mesh is compiled for the target's."""
    xgrad.manual_seed(0)
    with xgrad.mesh({"data": 4}):
        w = xgrad.randn(WIDTH, WIDTH, device=P()).requires_grad_()
        x = xgrad.ones(4, WIDTH, device=P("data"))

    @xgrad.compile
    def step(x):
        w.grad = None
        (x @ w).square().sum().backward()
        with xgrad.no_grad():
            w.sub_(0.1 * w.grad)

    step(x)
    report = step.compiled_for("tpu:v5e:2x2", x)
    assert report.fits, report
    assert report.answer.memory["argument"] == WIDTH * WIDTH * 4 + WIDTH * 4
    assert [(e.what, e.axes) for e in report.exchanges] == [("all-reduce", "data")]
    with pytest.raises(ValueError, match="tpu:v5e:4x4 has 16 devices, but an argument is on"):
        step.compiled_for("tpu:v5e:4x4", x)


def test_a_function_that_cannot_be_traced_raises_as_its_call_would(compiler):
    @xgrad.compile
    def f(x):
        return x if x.sum() > 0 else -x

    with pytest.raises(xgrad.errors.TracedValueError, match="reads the value of a tensor"):
        f.compiled_for("tpu:v5e", xgrad.ones(3))
