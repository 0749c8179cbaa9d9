"""Random programs of views and in-place writes do on xgrad, in both paths, what they do on torch.

`programs.py` says how programs are made and where the libraries differ on purpose.  `python -m tests.property.run`
runs any number of them.
"""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from . import programs

EXAMPLES = 80  # for each flavour; each runs in both paths


class HypothesisDraw(programs.Draw):
    def __init__(self, data):
        self.below = lambda n: data.draw(st.integers(0, n - 1))


@pytest.mark.parametrize("flavour", programs.FLAVOURS)
def test_random_program_agrees_with_torch(flavour):
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
        print_blob=True,
    )
    @given(st.data())
    def agrees(data):
        program, theirs = programs.generate(HypothesisDraw(data), programs.FLAVOURS[flavour], 10)
        try:
            programs.compare(program, theirs)
        except AssertionError as error:
            error.add_note(f"\n{program.source('torch')}")
            raise

    agrees()


def test_generator_reaches_what_it_is_for():
    """Of a few hundred programs most have gradients, many steps write through views, some raise."""
    import random

    seen = {"gradient": 0, "error": 0, "refused": 0, "uncompared": 0}
    lines = set()
    for seed in range(150):
        draw = programs.Draw(random.Random(seed))
        program, trace = programs.generate(draw, draw.one(list(programs.FLAVOURS.values())), 12)
        seen["gradient"] += isinstance(trace.seen["gradient"], list)
        seen["error"] += any(trace.errors)
        seen["refused"] += any(step.refused for step in program.steps)
        seen["uncompared"] += not trace.gradients_count
        lines.update(word for step in program.steps for word in step.line.replace("(", " ").replace(".", " ").split())
    assert seen["gradient"] > 75
    assert seen["error"] > 15
    assert seen["refused"] > 3
    assert seen["uncompared"] < 15
    wanted = (
        "select narrow transpose permute t view reshape unsqueeze squeeze expand diagonal unfold as_strided split chunk"
    )
    wanted += " unbind detach data mul_ add_ sub_ copy_ tanh_ zero_ fill_ t_ transpose_ squeeze_ unsqueeze_"
    assert set(wanted.split()) <= lines


@pytest.mark.parametrize("path_that_lies", ["replay", "geometry"])
def test_comparison_notices_a_wrong_gradient(monkeypatch, path_that_lies):
    """The comparison itself fails when one path sends a gradient to the wrong place."""
    from xgrad.config import state
    from xgrad.engine import copy_slices

    right = copy_slices.ChainBackward.apply
    step = programs.Step
    program = programs.Program(
        (step("t0 = data((4,), 0).requires_grad_()"), step("t1 = t0.clone()"), step("t2 = t1.narrow(0, 1, 2)")),
        "t2",
        ("t0",),
    )
    assert programs.fails(program) is None

    def wrong(self, grads, needs):
        if state.tracking == path_that_lies and not hasattr(grads[0], "_read"):
            grads = [grads[0] * 2]
        return right(self, grads, needs)

    monkeypatch.setattr(copy_slices.ChainBackward, "apply", wrong)
    assert path_that_lies in programs.fails(program)


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
