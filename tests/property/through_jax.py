"""Random programs as functions of their data, through `xgrad.to_jax` under JAX's transformations, against the tape.

    jit      everything that a program shows, gradients that it computes inside included, as one program
    vmap     the same for two sets of data at once: each entry is what the tape gives for that entry
    grad     JAX differentiates the values that the steps leave, the tape differentiates the same steps
    vjp      with gradients for all that the steps leave
    jvp      against the tape's forward mode
    second   `jax.grad` of a function of `jax.grad`, against the tape's second derivative
    inside   `jax.grad` of a function of the gradient that the tape finds inside

JAX differentiates values and knows nothing of the tape's marks.  For `grad` and what follows, a program is therefore
freed of them: of `requires_grad_()`, hooks and retained gradients, no_grad, detached aliases, and Functions whose
backward is not the derivative of their forward.  Steps that torch then refuses are left out.
"""

import collections
import re
import warnings
from dataclasses import replace

import jax
import numpy as np
import torch

import xgrad

from ..oracle import array, tracking, values
from .programs import Run, ordered, same_or_error

WAYS = ("jit", "vmap", "grad", "vjp", "jvp", "second", "inside")
COUNTS = collections.Counter()  # of what was compared

_MARKS = re.compile(r"HANDLES|\.(retain_grad|register_\w+|requires_grad|is_leaf|grad_fn)\b(?!_)")
_FREED = (
    (re.compile(r"\.requires_grad_\(\)"), ""),
    (re.compile(r"^(t\d+ = data\(.*)\.detach\(\)$"), r"\1"),
    (re.compile(r"\b(t\d+)\.(detach\(\)|data)$"), r"\1[...]"),
    (re.compile(r"\bSame\.apply\((t\d+)\)"), r"\1.view_as(\1)"),
    (re.compile(r"\bFlat\.apply\((t\d+)\)"), r"\1.unsqueeze(0)"),
    # What it saves is to stay as it is, and its backward knows no broadcasting.
    (re.compile(r"\bMulInto\.apply\((t\d+), (.*)\)$"), r"MulInto.apply(\1, \2.expand_as(\1).clone())"),
    (re.compile(r"\bdual\((t\d+), .*\)$"), r"\1.view_as(\1)"),
    (re.compile(r", reentrant=True"), ""),  # is for `backward` alone
)
# The Functions have no forward mode, and MulInto no second derivative.
_WITHOUT_FUNCTIONS = (
    (re.compile(r"\bScale\.apply\((t\d+), (.*)\)$"), r"\1.mul_(\2)"),
    (re.compile(r"\bSquare\.apply\((t\d+)\)"), r"\1 * \1"),
    (re.compile(r"\bMulInto\.apply\((t\d+), (.*)\)$"), r"(lambda y: (\1.mul_(y), y * 2))(\2)"),
)


def compare(program, way, path="replay"):
    """Assert that a program through `to_jax` does in one of the `WAYS` what it does on the tape.

    Gives whether there was something to compare.
    """
    with tracking(path), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of gradients of what is no leaf, of backward with create_graph
        compared = _compare_all(program, way) if way in ("jit", "vmap") else _compare_derivatives(program, way)
    COUNTS[way if compared else f"{way}: nothing to compare"] += 1
    return compared


def fails(program, way, path="replay"):
    """The message with which a program fails, None if it does not."""
    try:
        compare(program, way, path)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


class Data:
    """What a program's `data` gives: numbers, noted in the order in which they are asked for."""

    def __init__(self, entry=0):
        self.entry, self.arrays = entry, []

    def __call__(self, shape, seed):
        self.arrays.append(values(shape, seed + 100 * self.entry))
        return xgrad.from_numpy(self.arrays[-1])


class Leaves(Data):
    """The same as copies of leaves that require grad, so that any of them may be written."""

    def __init__(self):
        super().__init__()
        self.leaves = []

    def __call__(self, shape, seed):
        self.leaves.append(super().__call__(shape, seed).requires_grad_())
        return self.leaves[-1].clone()


def following(tensors):
    """`data` that gives these tensors, one after the other."""
    remaining = iter(tensors)
    return lambda shape, seed: next(remaining)


class Seen(Run):
    """A run on xgrad that shows tensors, where `Run` shows their values."""

    def __init__(self, data, forward=False):
        super().__init__(xgrad, forward)
        self.env.update(data=data, noted=lambda x: x.detach().clone())
        self.array = lambda x: x

    def all(self, program):
        """What the steps raised, and what can be seen at the end."""
        with self.ends:
            for step in program.steps:
                self.step(step)
            tensors = self.tensors()
            seen = {"value": dict(tensors), "gradient": self._attempt(lambda: self._gradients(program))}
            seen["grad"] = {name: self._attempt(lambda x=x: x.grad) for name, x in tensors.items()}
            if self.forward:
                seen["tangent"] = {name: self._attempt(lambda x=x: self._tangent(x)) for name, x in tensors.items()}
        return {"error": dict(enumerate(self.trace.errors)), **seen, "log": self.env["LOG"]}

    def left(self, program, names=None):
        """The tensors that the steps leave, or those of them that are asked for."""
        for step in program.steps:
            error = self.step(step)
            if error is not None:
                raise AssertionError(f"{step.line} raised {error!r}") from error
        return [self.env[name] for name in names or self.tensors()]

    def _tangent(self, x):
        tangent = xgrad.autograd.forward_ad.unpack_dual(x).tangent
        return x.detach() * 0 if tangent is None else tangent


# -- everything that a program shows -----------------------------------------------------------------------------------


def _compare_all(program, way):
    entries = [Data(), Data(1)] if way == "vmap" else [Data()]
    expected = []
    for data in entries:
        tensors, joined = _parted(Seen(data, program.forward).all(program))
        expected.append(joined([array(x) for x in tensors]))
    traced = []

    def function(*given):
        tensors, joined = _parted(Seen(following(given), program.forward).all(program))
        traced.append(joined)
        return tensors

    pure = xgrad.to_jax(function)
    if way == "jit":
        entries_found = [jax.jit(pure)(*entries[0].arrays)]
    else:
        found = jax.jit(jax.vmap(pure))(*[np.stack(arrays) for arrays in zip(*(data.arrays for data in entries))])
        entries_found = [[x[i] for x in found] for i in range(len(entries))]
    for i, (found, theirs) in enumerate(zip(entries_found, expected)):
        ours = traced[-1](found)
        for seen in (ours, theirs):
            seen["log"] = ordered(seen["log"])
        for kind, of_tape in theirs.items():
            same_or_error(f"{way} {i}: {kind}", ours[kind], of_tape)
    return True


def _parted(tree):
    """(its tensors, the function that gives the tree with arrays in their places).  It is not to keep tensors alive."""
    leaves, structure = jax.tree.flatten(tree, is_leaf=lambda x: x is None or isinstance(x, xgrad.Tensor))
    others = [None if isinstance(x, xgrad.Tensor) else (x,) for x in leaves]

    def joined(arrays):
        arrays = iter(arrays)
        return structure.unflatten([np.asarray(next(arrays)) if x is None else x[0] for x in others])

    return [x for x in leaves if isinstance(x, xgrad.Tensor)], joined


# -- derivatives -------------------------------------------------------------------------------------------------------


def _compare_derivatives(program, way):
    # Arrays are operands of the programs, never constants, of which XLA folds transposes wrong (jaxlib 0.7.2).
    program = _settled(_freed(program, _FREED + _WITHOUT_FUNCTIONS * (way not in ("grad", "vjp"))))
    if program is None:
        return False
    data = Leaves()
    running = Seen(data)
    running.left(program)
    known = {name: x for name, x in running.tensors().items() if _differentiable(x, data.leaves)}
    if not known:
        return False
    left, leaves, arrays = [*known.values()], data.leaves, data.arrays

    def steps(*given):
        return Seen(following(given)).left(program, known)

    def total(*given):
        return _total(steps(*given))

    def penalty(*given):
        wanted = [x.requires_grad_() for x in given]
        return _squares(_gradients([total(*(x.clone() for x in wanted))], wanted, create_graph=True)).detach()

    steps_in_jax, total_in_jax = xgrad.to_jax(steps), xgrad.to_jax(total)
    gradient = jax.grad(total_in_jax, range(len(arrays)))
    if way == "jvp":
        tangents = [values(a.shape, 7) for a in arrays]
        expected = _pushed(steps, arrays, tangents)
        found = jax.jit(lambda at, along: jax.jvp(steps_in_jax, at, along)[1])(arrays, tangents)
    elif way == "vjp":
        cotangents = [values(tuple(x.shape), 7) for x in left]
        expected = _gradients(left, leaves, [*map(xgrad.from_numpy, cotangents)])
        found = jax.jit(lambda at, grads: jax.vjp(steps_in_jax, *at)[1](grads))(arrays, cotangents)
    elif way == "grad":
        expected = _gradients([_total(left)], leaves)
        found = jax.jit(gradient)(*arrays)
    else:
        expected = _gradients([_squares(_gradients([_total(left)], leaves, create_graph=True))], leaves)
        of_gradient = xgrad.to_jax(penalty) if way == "inside" else lambda *given: _squares(gradient(*given))
        found = jax.jit(jax.grad(of_gradient, range(len(arrays))))(*arrays)
    for i, (ours, theirs) in enumerate(zip(found, expected, strict=True)):
        same_or_error(f"{way}: {i}", np.asarray(ours), array(theirs))
    return True


def _differentiable(x, leaves):
    """Whether the tape can differentiate it.

    It refuses where a later step overwrote what backward needs, and one of several views whose base was written.
    """
    try:
        if x.grad_fn is not None:
            xgrad.autograd.grad(x.sum(), leaves, retain_graph=True, allow_unused=True)
            return True
    except (xgrad.errors.InplaceViewError, xgrad.errors.VersionError):
        pass
    return False


def _freed(program, rewritten):
    """The program without the marks that only the tape knows; None if nothing is left."""
    base = program.steps[0].defines
    program = replace(program, root=base[0], inputs=base)  # all that the steps leave is differentiated
    marks = {i for i, step in enumerate(program.steps) if _MARKS.search(step.line) and not step.defines}
    program = program.without(marks)
    if program is None:
        return None
    steps = []
    for step in program.steps:
        line = step.line
        for pattern, new in rewritten:
            line = pattern.sub(new, line)
        steps.append(replace(step, line=line, grad=True, within=()))
    return replace(program, steps=tuple(steps), end="grad", forward=False)


def _settled(program):
    """The program without the steps that raise where all data are copies of leaves that require grad."""
    while program is not None:
        running = Run(torch)
        running.env["data"] = lambda shape, seed: torch.from_numpy(values(shape, seed)).requires_grad_().clone()
        for step in program.steps:
            running.step(step)
        raised = {i for i, error in enumerate(running.trace.errors) if error is not None}
        if not raised:
            return program
        program = program.without(raised)
    return None


def _total(tensors):
    return sum((x * x * x).sum() for x in tensors)


def _squares(gradients):
    return sum((g * g).sum() for g in gradients)


def _gradients(outputs, leaves, cotangents=None, create_graph=False):
    """The tape's, with zeros for None."""
    if cotangents is not None:
        kept = [i for i, x in enumerate(outputs) if x.requires_grad]
        outputs, cotangents = [outputs[i] for i in kept], [cotangents[i] for i in kept]
    if not any(x.requires_grad for x in outputs):
        return [x.detach() * 0 for x in leaves]
    found = xgrad.autograd.grad(outputs, leaves, cotangents, create_graph=create_graph, allow_unused=True)
    return [x.detach() * 0 if g is None else g for x, g in zip(leaves, found)]


def _pushed(steps, arrays, tangents):
    """The tangents of what the steps leave, by the tape's forward mode."""
    fw = xgrad.autograd.forward_ad
    with fw.dual_level():
        left = steps(*(fw.make_dual(xgrad.from_numpy(a), xgrad.from_numpy(t)) for a, t in zip(arrays, tangents)))
        moving = [fw.unpack_dual(x).tangent for x in left]
    return [x.detach() * 0 if t is None else t for x, t in zip(left, moving)]
