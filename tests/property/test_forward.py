"""Random programs of views and in-place writes, run on dual tensors: tangents, and gradients of tangents, are torch's.

The programs are those of `programs.py`, with two changes: data become dual tensors, or written numbers do; and what is
written is a copy of its operand, for PyTorch's tangent of `x.mul_(x)` is wrong.
"""

import random
import re

import numpy as np
import pytest
import torch
import torch.autograd.forward_ad

import xgrad
import xgrad.autograd.forward_ad

from ..oracle import array, data, tracking
from . import drawing, programs

# torch compiles its own forward-mode rules when the first level is entered.
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")


DATA = re.compile(r"(t\d+) = (data\((\(.*?\)), (\d+)\).*)")
OPERAND = re.compile(r"\.(mul_|add_|sub_|copy_)\((t\d+)(.*)\)$")
NUMBER = re.compile(r"(mul_|add_|fill_)\(0\.\d+\)")


def on_duals(step, rng):
    line = OPERAND.sub(r".\1(\2\3.clone())", step.line)
    made = DATA.fullmatch(line)
    if made and rng.random() < 0.6:
        line = f"{made[1]} = dual({made[2]}, data({made[3]}, {int(made[4]) + 50}))"
    if rng.random() < 0.6:
        line = NUMBER.sub(r"\1(scalar)", line)
    return programs.Step(line, step.grad, step.refused)


def run(program, T):
    """(whether each step raised, the tangents, reverse over forward and forward over reverse), with zeros for None."""
    fw = T.autograd.forward_ad
    with fw.dual_level():
        running = programs.Run(T)
        running.env["dual"] = fw.make_dual
        running.env["scalar"] = fw.make_dual(data(T, (), 1), data(T, (), 2))
        for step in program.steps:
            running.step(step)
        tensors = running.tensors()
        raised = [error is not None for error in running.trace.errors]
        return raised, {n: tangent(fw, x) for n, x in tensors.items()}, attempt(lambda: gradients(T, program, tensors))


def attempt(look):
    try:
        return look()
    except Exception as error:
        return error


def tangent(fw, x):
    found = attempt(lambda: fw.unpack_dual(x).tangent)
    return found if isinstance(found, Exception) else zeros(found, x)


def zeros(found, x):
    return np.zeros(tuple(x.shape)) if found is None else array(found)


def gradients(T, program, tensors):
    fw = T.autograd.forward_ad
    if not all(name in tensors for name in (program.root, *program.inputs)):
        return []
    root, inputs = tensors[program.root], [tensors[name] for name in program.inputs]
    loss = (root * root * root).sum()
    moving = fw.unpack_dual(loss).tangent
    found = [None] * len(inputs)
    if moving is not None and moving.requires_grad:
        found = T.autograd.grad(moving, inputs, retain_graph=True, allow_unused=True)
    first = T.autograd.grad(loss, inputs, allow_unused=True)
    found = [*found, *(None if g is None else fw.unpack_dual(g).tangent for g in first)]
    return [zeros(g, x) for g, x in zip(found, [*inputs, *inputs])]


def same(ours, theirs, where):
    if isinstance(theirs, Exception) or isinstance(ours, Exception):
        assert isinstance(ours, Exception), f"{where}: torch raised {theirs!r}"
        assert isinstance(theirs, Exception), f"{where}: xgrad raised {ours!r}"
    else:
        np.testing.assert_allclose(ours, theirs, 1e-8, 1e-10, err_msg=where)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("seed", range(12))
def test_random_program_on_duals_agrees_with_torch(seed):
    rng = random.Random(seed)
    draw = drawing.Draw(rng)
    # In the other flavours, tensors have tangents, hooks and regions of their own.
    flavour = draw.one([drawing.FLAVOURS[name] for name in drawing.PLAIN])
    program, trace = drawing.generate(draw, flavour, 8)
    if not trace.gradients_count:  # a saved result was overwritten through .data, which torch does not notice
        return
    program = programs.Program(tuple(on_duals(step, rng) for step in program.steps), program.root, program.inputs)
    raised, tangents, derived = run(program, torch)
    for path in ("replay", "geometry"):
        with tracking(path):
            ours = run(program, xgrad)
        where = f"{path}:\n{program.source('torch')}\n"
        assert ours[0] == raised, where
        assert list(ours[1]) == list(tangents), where
        for name in tangents:
            same(ours[1][name], tangents[name], f"{where}tangent of {name}")
        if isinstance(derived, Exception) or isinstance(ours[2], Exception):
            same(ours[2], derived, where)
        else:
            for i, (a, b) in enumerate(zip(ours[2], derived, strict=True)):
                same(a, b, f"{where}derivative {i}")
