"""Random programs of views and in-place writes do on xgrad, in both paths, what they do on torch.

`programs.py` says what programs are and where the libraries differ on purpose, `drawing.py` makes them.
`python -m tests.property.run` runs any number of them.
"""

import random

import jax
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import xgrad

from ..lanes import budget
from ..oracle import PATHS
from . import drawing, programs, through_jax

# The same programs in each run, so that a failure speaks of the change at hand; the command draws others.
# A budget is (how many of each flavour in the quick lane, how many in the exhaustive one).
EXAMPLES = budget(2, 40)  # of a plain flavour; each runs in both paths
# Programs of the other flavours compile more.
FIXED = tuple(name for name in drawing.FLAVOURS if name not in drawing.PLAIN)
FEW = budget(1, 10)
COMPILED = budget(3, 30)  # whose backward is compiled
WHOLE = budget(1, 12)  # of which xgrad.compile runs a part
SHARDED = budget(2, 10)  # over eight devices
TO_JAX = budget(1, 30)  # that run through to_jax


class HypothesisDraw(drawing.Draw):
    def __init__(self, data):
        self.below = lambda n: data.draw(st.integers(0, n - 1))


@pytest.mark.parametrize("flavour", drawing.PLAIN)
@EXAMPLES
def test_random_program_agrees_with_torch(flavour, budget):
    @settings(
        max_examples=budget,
        deadline=None,
        derandomize=True,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
    )
    @given(st.data())
    def agrees(data):
        program, theirs = drawing.generate(HypothesisDraw(data), drawing.FLAVOURS[flavour], 10)
        try:
            programs.compare(program, theirs)
        except AssertionError as error:
            error.add_note(f"\n{program.source('torch')}")
            raise

    agrees()


@pytest.mark.parametrize("flavour", FIXED)
@FEW
def test_fixed_program_agrees_with_torch(flavour, budget):
    first = 1000 + FIXED.index(flavour)
    for seed in range(first, first + budget * len(FIXED), len(FIXED)):
        draw = drawing.Draw(random.Random(seed))
        program, theirs = drawing.generate(draw, drawing.FLAVOURS[flavour], 3 + draw.below(10))
        try:
            programs.compare(program, theirs)
        except AssertionError as error:
            error.add_note(f"\nseed {seed}\n{program.source('torch')}")
            raise


@pytest.mark.one_in(2)
@pytest.mark.parametrize("flavour", [name for name, flavour in drawing.FLAVOURS.items() if not flavour.forward])
@COMPILED
def test_compiled_backward_of_a_program_agrees_with_torch(flavour, budget):
    """Each in one of the paths, in short and in long segments."""
    compiled_backward = xgrad.autograd.compiled_backward
    compiled_backward.reset()
    for seed in range(2000, 2000 + budget):
        draw = drawing.Draw(random.Random(seed))
        program, theirs = drawing.generate(draw, drawing.FLAVOURS[flavour], 3 + draw.below(10))
        try:
            programs.compare(program, theirs, [programs.COMPILED[seed % 2]])
        except AssertionError as error:
            error.add_note(f"\nseed {seed}\n{program.source('torch')}")
            raise
    metrics = compiled_backward.metrics()
    assert metrics["backwards"] > budget / 2
    assert metrics["fallbacks"] == 0


@pytest.mark.one_in(2)
@pytest.mark.parametrize("flavour", [name for name, flavour in drawing.FLAVOURS.items() if not flavour.forward])
@WHOLE
def test_program_that_is_compiled_agrees_with_torch(flavour, budget):
    """All of it as one program, in the replay path; the second half of it, in the geometry path."""
    programs.COUNTS.clear()
    for seed in range(3000, 3000 + budget):
        draw = drawing.Draw(random.Random(seed))
        program, theirs = drawing.generate(draw, drawing.FLAVOURS[flavour], 3 + draw.below(10))
        try:
            programs.compare(program, theirs, programs.WHOLE)
        except AssertionError as error:
            error.add_note(f"\nseed {seed}\n{program.source('torch')}")
            raise
    assert programs.COUNTS["whole"] > budget / 2


@pytest.mark.skipif(len(jax.devices()) < 8, reason="needs eight devices")
@pytest.mark.parametrize(("ways", "first"), [("EAGER", 5000), ("COMPILED", 5100)])
@SHARDED
def test_sharded_program_agrees_with_torch(ways, first, budget):
    """Whatever the data is sharded like, and no write changes the sharding of a storage."""
    checked = programs.Places.checked
    checked.clear()
    for seed in range(first, first + budget):
        draw = drawing.Draw(random.Random(seed))
        program, theirs = drawing.generate(draw, draw.one(list(drawing.FLAVOURS.values())), 3 + draw.below(8))
        try:
            with programs.Places(seed % 4):
                programs.compare(program, theirs, [getattr(programs, ways)[seed % 2]])
        except AssertionError as error:
            error.add_note(f"\nseed {seed}\n{program.source('torch')}")
            raise
    assert checked["storages"] > 10 * budget
    assert checked["gradients"] > budget / 4


@pytest.mark.one_in(2)
@pytest.mark.parametrize("flavour", drawing.FLAVOURS)
@TO_JAX
def test_program_through_to_jax_agrees_with_the_tape(flavour, budget):
    """Each under one of JAX's transformations and in one of the paths."""
    through_jax.COUNTS.clear()
    for seed in range(4000, 4000 + budget):
        draw = drawing.Draw(random.Random(seed))
        program, _ = drawing.generate(draw, drawing.FLAVOURS[flavour], 3 + draw.below(6))
        way, path = through_jax.WAYS[seed % 7], PATHS[seed // 7 % 2]
        try:
            through_jax.compare(program, way, path)
        except Exception as error:
            error.add_note(f"\nseed {seed}, {way} in the {path} path\n{program.source('torch')}")
            raise
    assert sum(through_jax.COUNTS[way] for way in through_jax.WAYS) > 0.8 * budget


@pytest.mark.exhaustive
def test_generator_reaches_what_it_is_for():
    """Of a few hundred programs most have gradients, many steps write through views, some raise."""
    seen = {"gradient": 0, "error": 0, "refused": 0, "uncompared": 0, "called": 0, "tangent": 0}
    lines, ends = set(), set()
    for seed in range(220):
        draw = drawing.Draw(random.Random(seed))
        program, trace = drawing.generate(draw, draw.one(list(drawing.FLAVOURS.values())), 12)
        seen["gradient"] += isinstance(trace.seen["gradient"], list)
        seen["error"] += any(trace.errors)
        seen["refused"] += any(step.refused for step in program.steps)
        seen["uncompared"] += not trace.gradients_count
        seen["called"] += len(trace.seen["log"]) > 1
        seen["tangent"] += any(getattr(x, "any", bool)() for x in trace.seen.get("tangent", {}).values())
        ends.add(program.end)
        said = [text for step in program.steps for text in (step.line, *step.within)]
        lines.update(word for text in said for word in text.replace("(", " ").replace(".", " ").split())
    assert seen["gradient"] > 110
    assert seen["error"] > 22
    assert seen["refused"] > 1
    assert seen["uncompared"] < 22
    assert seen["called"] > 8
    assert seen["tangent"] > 10
    assert ends == set(programs.ENDINGS)
    wanted = (
        "select narrow transpose permute t view reshape unsqueeze squeeze expand diagonal unfold as_strided split chunk"
    )
    wanted += " unbind detach data mul_ add_ sub_ copy_ tanh_ zero_ fill_ t_ transpose_ squeeze_ unsqueeze_"
    wanted += " register_hook retain_grad saved_tensors_hooks Scale MulInto Square Same Flat checkpoint vmap jvp dual"
    assert set(wanted.split()) <= lines


@pytest.mark.parametrize("path_that_lies", ["replay", "geometry"])
def test_comparison_notices_a_wrong_gradient(monkeypatch, path_that_lies):
    """The comparison itself fails when one path sends a gradient to the wrong place."""
    from xgrad.config import state
    from xgrad.engine import view_nodes

    right = view_nodes.ChainBackward.apply
    step = programs.Step
    program = programs.Program(
        (step("t0 = data((4,), 0).requires_grad_()"), step("t1 = t0.clone()"), step("t2 = t1.narrow(0, 1, 2)")),
        "t2",
        ("t0",),
    )
    assert programs.fails(program) is None

    def wrong(self, grads, needs, arithmetic):
        if state.tracking == path_that_lies and not hasattr(grads[0], "_read"):
            grads = [grads[0] * 2]
        return right(self, grads, needs, arithmetic)

    monkeypatch.setattr(view_nodes.ChainBackward, "apply", wrong)
    assert path_that_lies in programs.fails(program)


@pytest.mark.exhaustive
@pytest.mark.parametrize("way", through_jax.WAYS)
def test_comparison_through_to_jax_notices_a_wrong_derivative(monkeypatch, way):
    """Wrong under a trace alone, where the program's own backward is traced, and else wrong on the tape."""
    from xgrad.dispatch import call
    from xgrad.engine import view_nodes
    from xgrad.views.storage import Tracer

    right = view_nodes.ChainBackward.apply
    step = programs.Step
    steps = (step("t0 = data((4,), 0).requires_grad_()"), step("t1 = t0.clone()"), step("t2 = t1.narrow(0, 1, 2)"))
    program = programs.Program((*steps, step("t3 = t2.tanh()")), "t3", ("t0",))
    assert through_jax.fails(program, way) is None

    def wrong(self, grads, needs, arithmetic):
        array = getattr(grads[0], "_array", grads[0])
        return right(self, [grads[0] * (2 if isinstance(array, Tracer) is traced else 1)], needs, arithmetic)

    traced = way in ("jit", "vmap", "inside")
    monkeypatch.setattr(view_nodes.ChainBackward, "apply", wrong)
    if way == "jvp":
        monkeypatch.setattr(call, "forward", lambda *args: None)
    assert f"{way}" in through_jax.fails(program, way)


def test_comparison_notices_what_hooks_and_tangents_do(monkeypatch):
    """A hook that is not called, and a tangent that is wrong, fail the comparison."""
    from xgrad.dispatch import call
    from xgrad.engine import evaluate

    step = programs.Step
    hooked = programs.Program(
        (step("t0 = data((4,), 0).requires_grad_()"), step("HANDLES[0] = t0.register_hook(hook('hook 0'))")),
        "t0",
        ("t0",),
        "backward",
    )
    moving = programs.Program(
        (step("t0 = data((4,), 0).requires_grad_()"), step("t1 = dual(t0, data((4,), 1))"), step("t2 = t1.tanh()")),
        "t0",
        ("t0",),
        forward=True,
    )
    assert programs.fails(hooked) is None
    assert programs.fails(moving) is None
    with monkeypatch.context() as broken:
        broken.setattr(evaluate, "run_tensor_hooks", lambda hooks, grad: grad)
        assert "log" in programs.fails(hooked)
    with monkeypatch.context() as broken:
        broken.setattr(call, "forward", lambda *args: None)
        assert "tangent of t2" in programs.fails(moving)


def test_shrinking_keeps_what_is_needed():
    step = programs.Step
    steps = (
        step("t0 = data((4,), 0).requires_grad_()"),
        step("t1 = t0.clone()"),
        step("t2 = t1.narrow(0, 1, 2)"),
        step("t3 = t1.detach()"),
    )
    program = programs.Program(steps, "t1", ("t0", "t2"))
    fewer = program.without({2})
    assert [s.line for s in fewer.steps] == [steps[0].line, steps[1].line, steps[3].line]
    assert fewer.inputs == ("t0",)
    assert program.without({1}) is None
