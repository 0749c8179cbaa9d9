"""Random programs of views and in-place writes, as data: generated, run on torch and on xgrad, compared, shrunk.

A program is a list of `Step`s, each one line of Python that both libraries understand:

    t0 = data((2, 3), 0).requires_grad_()
    t1 = t0.clone()
    t2 = t1.select(0, 1)
    t2.mul_(t0.select(0, 0))

Torch runs the steps while they are drawn, so that the generator knows shapes, strides and what may overlap; what
happened is noted in a `Trace`.  xgrad runs the same lines afterwards, once in each path, and is compared with it.

Where the two libraries differ on purpose, the generator knows, and says it here:

* A write to a view that overlaps itself is refused by xgrad.  PyTorch refuses it for expanded views, and for
  others writes in an undefined order and gives wrong gradients: torch does not run such a step, and counts as refusing.
  But xgrad fills it with a number, which PyTorch does too until backward refuses.  Not generated (ops/test_fill.py).
* An operand that overlaps the written view partly (`x.add_(x.t())`): PyTorch refuses, or reads what it just wrote;
  xgrad computes with the value from before the write.  Not generated.
* `as_strided` of a view may reach outside of the view.  PyTorch's gradient then drops what lies outside, xgrad's goes
  to the base.  Generated only within the view, of a tensor that autograd knows as a base or as a view; and for the same
  reason no gradient is then asked for that would arrive at a view on the way.
* Results of operators are laid out row-major in xgrad, while PyTorch keeps the permutation of its operands' strides.
  Of a result that is no row-major block, only views are taken that no layout forbids (no `view`, no `as_strided`).
* A result that backward needs (`tanh`), overwritten through an alias with another version counter (`.data`):
  PyTorch does not notice, and differentiates with the new value.  xgrad keeps the value that was saved.  From there on
  the gradients of the program are compared between the two paths only.
* A leaf that was reshaped in place, unrecorded, after it had been used: what arrives at it has the old shape, and
  PyTorch may store it so.  Not generated.
* A view of a tensor that began to require grad later is refused by PyTorch as "a leaf" in an in-place operation, unless
  somebody has read its `grad_fn` since.  xgrad always makes its `grad_fn` anew: torch is made to read it first.
* `.grad` that a backward without `create_graph` accumulates: PyTorch's has lost its tangent, where it is the first, and
  xgrad's has not.  Tangents of gradients are compared as `grad` gives them.
* `dual.mul_(x)` where `x` shares memory with the dual: PyTorch's tangent is made with the value after the write, and is
  wrong.  Not generated.  Nor duals of tensors that overlap themselves, which PyTorch refuses for the tangent's layout.
* An in-place view operation on `dual[...]`: PyTorch's `dual` has its tangent transposed too.  Not generated.
* An argument of `func.grad` or `func.jvp` that is written afterwards: PyTorch refuses backward, for it saved the
  argument itself.  xgrad saved a stand-in, which nobody can write, and goes on.  Not generated.
* The result of `vmap` may be a view of one that nobody sees, as PyTorch lays it out: it is cloned.
* PyTorch breaks down ("INTERNAL ASSERT FAILED") where a tensor that retains its gradient is reshaped in place and then
  written.  Such a program is not compared.
* PyTorch crashes when a hook is registered on a view that a write made stale: it is made to read `grad_fn` first.
"""

import collections
import contextlib
import itertools
import random
import re
import warnings
from dataclasses import dataclass, field, replace
from typing import ClassVar

import jax
import numpy as np
import torch
from jax.sharding import NamedSharding, PartitionSpec

import xgrad

from ..oracle import array, data, family, maybe_no_grad, same, tracking
from . import world

HEADER = """\
import contextlib
import numpy as np
import {module} as T
import {module}.utils.checkpoint

def noted(x):
    return x.detach().numpy().copy()

def data(shape, seed):
    return T.from_numpy(np.random.default_rng([seed, *shape]).uniform(-1, 1, shape))
"""

NAME = re.compile(r"\bt\d+\b")
HOOKS = re.compile(r"\.(register_hook|retain_grad|register_post_accumulate_grad_hook)\(")
DIRTY = re.compile(r"\b(?:Scale|MulInto)\.apply\((t\d+)")


@dataclass(frozen=True)
class Step:
    """One line, and whether grad mode is on; `refused`: a write that xgrad refuses, and that torch does not run.

    `within`: the context managers around it.
    """

    line: str
    grad: bool = True
    refused: bool = False
    within: tuple = ()

    @property
    def defines(self):
        left, equals, _ = self.line.partition(" = ")
        return tuple(NAME.findall(left)) if equals and "[" not in left else ()

    @property
    def uses(self):
        return tuple(dict.fromkeys(NAME.findall(self.line.partition(" = ")[2] if self.defines else self.line)))

    @property
    def writes(self):
        """The tensor that it writes to, as an expression, None if there is none."""
        if " = " in self.line and not self.defines:
            left = self.line.partition(" = ")[0]
            return left if NAME.match(left) else None
        found = DIRTY.search(self.line) or re.match(r"(t\d+)\.\w+_\(", self.line)
        return found[1] if found else None

    def source(self):
        line = self.line + ("  # refused: it overlaps itself" if self.refused else "")
        around = self.within if self.grad else (*self.within, "T.no_grad()")
        return f"with {', '.join(around)}:\n    {line}" if around else line


@dataclass(frozen=True)
class Program:
    """The steps, then `backward` of a loss made of `root` with respect to `inputs`, in one of the `ENDINGS`."""

    steps: tuple
    root: str
    inputs: tuple
    end: str = "grad"
    forward: bool = False  # whether all that is in a dual level

    def source(self, module="torch"):
        lines = [HEADER.format(module=module), world.SOURCE, *(step.source() for step in self.steps), *self.ending()]
        if self.forward:
            lines.insert(2, "T.autograd.forward_ad.enter_dual_level()")
        return "\n".join(lines) + "\n"

    def ending(self):
        names = ", ".join(self.inputs)
        loss = f"loss = ({self.root} * {self.root} * {self.root}).sum()"
        if self.end != "grad":
            return (loss, *(line.format(names=names, first=self.inputs[0]) for line in ENDINGS[self.end]))
        return (
            loss,
            f"first = T.autograd.grad(loss, [{names}], create_graph=True, allow_unused=True)",
            "penalty = sum((g * g).sum() for g in first if g is not None)",
            f"second = T.autograd.grad(penalty, [{names}], retain_graph=True, allow_unused=True)",
            "loss.backward()",
        )

    def without(self, steps):
        """The program without some steps and whatever depends on them, or None if nothing is left of its end."""
        gone, kept = set(), []
        for i, step in enumerate(self.steps):
            if i in steps or gone.intersection(step.uses):
                gone.update(step.defines)
            else:
                kept.append(step)
        inputs = tuple(name for name in self.inputs if name not in gone)
        if self.root in gone or not inputs:
            return None
        return replace(self, steps=tuple(kept), inputs=inputs)


ENDINGS = {
    "grad": (),  # what `Program.ending` says
    "backward": ("loss.backward()",),
    "twice": ("loss.backward(retain_graph=True)", "loss.backward()"),
    "inputs": ("loss.backward(inputs=[{names}], retain_graph=True)", "loss.backward(inputs=[{first}])"),
    "graph": ("loss.backward(create_graph=True)", "again({first})"),
}


@dataclass
class Trace:
    """What a run did: the error of each step, None where it succeeded, and what was seen at the end."""

    errors: list = field(default_factory=list)
    seen: dict = field(default_factory=dict)
    gradients_count: bool = True  # whether torch's gradients are an oracle


# -- running -----------------------------------------------------------------------------------------------------------


class Run:
    """The state of a program that runs on one library."""

    def __init__(self, T, forward=False):
        self.T = T
        self.places = None if T is torch else Places.here
        self.env = {"T": T, "data": self.data, "noted": noted}
        exec(_WORLD, self.env)
        self.trace = Trace()
        self.array = array
        self.ends = contextlib.ExitStack()
        if forward:
            self.ends.enter_context(T.autograd.forward_ad.dual_level())
        self.forward = forward

    def data(self, shape, seed):
        """Data that both libraries get; sharded, if the program runs so."""
        made = data(self.T, shape, seed)
        return made if self.places is None else made.to(self.places.of(shape, seed))

    def step(self, step):
        error = None
        if not all(name in self.env for name in step.uses):
            error = NameError("an operand was not made")
        elif step.refused and self.T is torch:
            error = RuntimeError("xgrad refuses to write to a view that overlaps itself")
        else:
            before = len(self.env["LOG"])
            try:
                with contextlib.ExitStack() as within, warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # of a checkpoint without gradients
                    for context in step.within:
                        within.enter_context(eval(context, self.env))
                    within.enter_context(maybe_no_grad(self.T, step.grad))
                    exec(_compiled(step.line), self.env)
            except Exception as caught:
                error = caught
                if step.refused:  # what xgrad did until it refused, torch did not even begin
                    del self.env["LOG"][before:]
        self.trace.errors.append(error)
        if self.places is not None:
            self.places.check(self.tensors(), str(step))
        return error

    def tensors(self):
        return {name: x for name, x in self.env.items() if NAME.fullmatch(name)}

    def finish(self, program):
        """What can be seen of the tensors and of the gradients, at the end."""
        with warnings.catch_warnings(), self.ends:
            warnings.simplefilter("ignore")  # of gradients of what is no leaf, of backward with create_graph
            self._see(program)
        return self.trace

    def _see(self, program):
        tensors, seen = self.tensors(), self.trace.seen
        seen["value"] = {name: array(x).copy() for name, x in tensors.items()}
        seen["version"] = {name: x._version for name, x in tensors.items()}
        seen["requires_grad"] = {name: x.requires_grad for name, x in tensors.items()}
        seen["retains"] = {name: x._base is not None for name, x in tensors.items()}
        seen["gradient"] = self._attempt(lambda: self._gradients(program))
        seen["grad"] = {name: self._attempt(lambda x=x: x.grad) for name, x in tensors.items()}
        if self.places is not None:
            self.places.check(self.tensors(), "backward")
            self.places.check_gradients(self.tensors())
        seen["leaf"] = {name: self._attempt(lambda x=x: x.is_leaf) for name, x in tensors.items()}
        if self.forward:
            seen["tangent"] = {name: self._attempt(lambda x=x: self._tangent(x)) for name, x in tensors.items()}
        seen["log"] = ordered(self.env["LOG"])

    def _tangent(self, x):
        """The tangent; zeros where there is none, for one library may know that it is zero and the other need not."""
        tangent = self.T.autograd.forward_ad.unpack_dual(x).tangent
        return np.zeros(tuple(x.shape)) if tangent is None else array(tangent)

    @staticmethod
    def _attempt(look):
        try:
            return look()
        except Exception as error:
            return error

    def _gradients(self, program):
        if not all(name in self.env for name in (program.root, *program.inputs)):
            return None
        T, found = self.T, []
        root, inputs = self.env[program.root], [self.env[name] for name in program.inputs]
        loss = (root * root * root).sum()
        if program.end != "grad":
            self.env["loss"] = loss
            for line in program.ending()[1:]:
                exec(_compiled(line), self.env)
            return found
        first = T.autograd.grad(loss, inputs, create_graph=True, allow_unused=True)
        found.append([None if g is None else self.array(g) for g in first])
        if self.forward:
            found.append([None if g is None else self._tangent(g) for g in first])
        useful = [g for g in first if g is not None and g.requires_grad]
        second = [None] * len(inputs)
        if useful:
            penalty = (useful[0] * useful[0]).sum()
            for g in useful[1:]:
                penalty = penalty + (g * g).sum()
            second = T.autograd.grad(penalty, inputs, retain_graph=True, allow_unused=True)
        # Of a gradient that is constantly zero, one library knows that it is a constant and the other need not.
        found.append([x.detach() * 0 if g is None else g for x, g in zip(inputs, second)])
        found[-1] = [self.array(g) for g in found[-1]]
        loss.backward()
        return found


class Places:
    """Random shardings for what programs are made of; and what is promised of shardings, checked.

    Within `with Places(salt):` programs run sharded on xgrad, over eight devices.
    """

    here = None
    mesh = None
    checked: ClassVar = collections.Counter()

    def __init__(self, salt):
        self.salt = salt
        self.first = {}  # by id of a tensor: the tensor, and the sharding with which it was first seen
        Places.mesh = Places.mesh or xgrad.mesh({"a": 2, "b": 2, "c": 2}).mesh

    def __enter__(self):
        Places.here = self

    def __exit__(self, *error):
        Places.here = None

    def of(self, shape, seed):
        """The sharding of the data of this shape and seed: each axis splits one dimension, or none."""
        draw = random.Random(f"{self.salt} {shape} {seed}")
        parts = [[] for _ in shape]
        for axis in "abc":
            d = draw.randrange(len(shape) + 1)
            if d < len(shape) and shape[d] % (2 ** (len(parts[d]) + 1)) == 0:
                parts[d].append(axis)
        return NamedSharding(self.mesh, PartitionSpec(*(tuple(p) if p else None for p in parts)))

    def check(self, tensors, where):
        """No write has changed the sharding of a storage."""
        for name, x in tensors.items():
            held = x._held()
            if isinstance(held, jax.core.Tracer) or not held.committed:
                continue
            first = self.first.setdefault(id(x), (x, held.sharding))[1]
            assert held.sharding.is_equivalent_to(first, held.ndim), (
                f"sharding of {name} after {where}: {held.sharding}, it was {first}"
            )
            self.checked["storages"] += 1

    def check_gradients(self, tensors):
        """The gradient of a leaf is sharded as the leaf is."""
        for name, x in tensors.items():
            if x._grad_fn is not None or x._view is not None or x._grad is None or not x._held().committed:
                continue
            have, want = x._grad._read().sharding, x._read().sharding
            assert have.is_equivalent_to(want, x.ndim), f"sharding of {name}.grad: {have}, of {name}: {want}"
            self.checked["gradients"] += 1


_lines = {}


def _compiled(line):
    code = _lines.get(line)
    if code is None:
        if len(_lines) > 20_000:
            _lines.clear()
        code = _lines[line] = compile(line, line, "exec")
    return code


def ordered(log):
    """What was noted.  In which order an operator packs what it saves is nobody's business."""
    found = []
    for what, entries in itertools.groupby(log, lambda entry: entry[0]):
        if what.endswith(" packs"):
            entries = sorted(entries, key=lambda entry: (entry[1].shape, entry[1].round(6).ravel().tolist()))
        found += entries
    return found


def noted(x):
    """A copy of the values; what is handed out through NumPy would not be donated any more."""
    return x.detach().numpy().copy() if isinstance(x, torch.Tensor) else np.array(x._read().copy())


_WORLD = compile(world.SOURCE, "world", "exec")


def run(program, T):
    """Run a program on one library."""
    running = Run(T, program.forward)
    for step in program.steps:
        running.step(step)
    return running.finish(program)


class WholeRun(Run):
    """A run on xgrad of which `xgrad.compile` runs a part as one program.

    `whole`: all of it, gradients included.  Otherwise the second half of the steps, on what the first half made;
    gradients come afterwards, through what the program leaves.
    """

    def __init__(self, whole):
        super().__init__(xgrad)
        self.whole = whole
        self.gradient = None  # as it was found inside

    def run(self, program):
        cut = 0 if self.whole else len(program.steps) // 2
        for step in program.steps[:cut]:
            self.step(step)
        known = {**self.tensors(), "HANDLES": self.env["HANDLES"]}
        tensors, gradient, log, errors = xgrad.compile(_inside)(program, cut, self.whole, known)
        self.env.update(tensors)
        self.env["LOG"] += [(name, None if x is None else noted(x)) for name, x in log]
        self.trace.errors += errors
        if self.whole:
            if isinstance(gradient, list):
                gradient = [[None if g is None else array(g) for g in part] for part in gradient]
            self.gradient = (gradient,)
        return self.finish(program)

    def _gradients(self, program):
        if self.gradient is None:
            return super()._gradients(program)
        (gradient,) = self.gradient
        if isinstance(gradient, Exception):
            raise gradient
        return gradient


def _inside(program, cut, whole, known):
    """What `WholeRun` has compiled.  What hooks note are tensors here."""
    running = Run(xgrad)
    running.array = lambda x: x
    running.env.update(known, HANDLES=dict(known["HANDLES"]), noted=lambda x: x.detach().clone())
    for step in program.steps[cut:]:
        running.step(step)
    gradient = None
    if whole:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            gradient = running._attempt(lambda: running._gradients(program))
    return running.tensors(), gradient, running.env["LOG"], running.trace.errors


def can_be_whole(program, theirs, whole):
    """Whether a `WholeRun` can be compared.

    Through what a program leaves there is no second derivative, and none from one result to another.
    """
    steps = program.source().partition(world.SOURCE)[2]
    if program.forward or "noted" in steps or "'values'" in steps:  # tangents; values that are read inside
        return False
    if whole:
        return True
    return program.end in ("backward", "twice") and not isinstance(theirs.seen["gradient"], Exception)


COUNTS = collections.Counter()  # of whole runs that were compared
WHOLE = (("replay", "whole"), ("geometry", "rest"))
EAGER = (("replay", 0), ("geometry", 0))
COMPILED = (("replay", 3), ("geometry", 20))  # backward as programs of so many nodes at least


def compare(program, theirs=None, ways=EAGER):
    """Assert that xgrad does in both paths what torch did.  `theirs`: torch's trace, if the program has run there.

    `ways`: pairs (path, nodes of a compiled segment, 0 for the eager engine).
    """
    if theirs is None:
        running = TorchRun(program.forward)
        for step in program.steps:
            running.step(step)
        theirs = running.finish(program)
    if any("INTERNAL ASSERT" in str(error) for error in theirs.errors):
        return  # torch is no oracle
    first = None
    for path, segment in ways:
        if isinstance(segment, str):
            if not can_be_whole(program, theirs, segment == "whole"):
                continue
            try:
                with tracking(path):
                    ours = WholeRun(segment == "whole").run(program)
            except NotImplementedError:
                continue
            COUNTS[segment] += 1
            if segment == "rest":  # what is noted when the program leaves a history is not what each backward notes
                ours.seen.pop("log")
                theirs = replace(theirs, seen={k: v for k, v in theirs.seen.items() if k != "log"})
            path += f" {segment} compiled"
        else:
            compiled = xgrad.autograd.compiled_backward(segment or 64, enabled=bool(segment))
            with tracking(path), compiled:
                ours = run(program, xgrad)
            path += " compiled" * bool(segment)
        for step, mine, other in zip(program.steps, ours.errors, theirs.errors):
            _same_outcome(f"{path}: {step.line}", mine, other)
        for kind, expected in theirs.seen.items():
            if kind in ("gradient", "grad", "log") and not theirs.gradients_count:
                if first is not None:
                    same_or_error(f"replay and geometry: {kind}", ours.seen[kind], first.seen[kind])
                continue
            same_or_error(f"{path}: {kind}", ours.seen[kind], expected)
        first = ours


def same_or_error(where, ours, theirs):
    if isinstance(theirs, dict):
        assert list(ours) == list(theirs), where
        for key in theirs:
            same_or_error(f"{where} of {key}", ours[key], theirs[key])
    elif isinstance(theirs, Exception) or isinstance(ours, Exception):
        _same_outcome(where, ours, theirs)
    else:
        same(ours, theirs, where, 1e-7, 1e-10)


def _same_outcome(where, ours, theirs):
    if isinstance(theirs, Exception):
        assert isinstance(ours, family(theirs)), f"{where}: xgrad gave {ours!r}, torch raised {theirs!r}"
        for phrase in PHRASES:
            said = phrase in str(theirs)
            assert not said or phrase in str(ours), f"{where}: xgrad raised {ours!r}, torch {theirs!r}"
        if "is being modified inplace" in str(theirs):  # by this write, or by one before
            assert "modified inplace" in str(ours), f"{where}: xgrad raised {ours!r}, torch {theirs!r}"
    else:
        assert not isinstance(ours, Exception), f"{where}: xgrad raised {ours!r}, torch did not"


PHRASES = (
    "modified by an inplace operation",
    "a leaf Variable that requires grad is being used in an in-place operation",
    "a view of a leaf Variable that requires grad is being used in an in-place operation",
    "backward through the graph a second time",
    "does not require grad",
    "does not require gradient",
    "One of the differentiated Tensors",
    "can't retain_grad on Tensor that has requires_grad=False",
)


# -- what torch's memory looks like ------------------------------------------------------------------------------------


def places(x):
    """The storage offsets of the elements of a torch tensor."""
    offsets = np.array([x.storage_offset()])
    for n, stride in zip(x.shape, x.stride()):
        offsets = (offsets[:, None] + np.arange(n) * stride).ravel()
    return offsets.tolist()


def storage(x):
    return x.untyped_storage()._cdata


def overlaps_itself(x):
    where = places(x)
    return len(set(where)) < len(where)


def overlaps_partly(x, y):
    """Whether two tensors share some memory and are not the same view."""
    if storage(x) != storage(y):
        return False
    alike = x.shape == y.shape and x.stride() == y.stride() and x.storage_offset() == y.storage_offset()
    return not alike and not set(places(x)).isdisjoint(places(y))


class TorchRun(Run):
    """A run on torch that notes layouts and version counters."""

    def __init__(self, forward=False):
        super().__init__(torch, forward)
        self.scattered = set()  # storages that are no row-major block
        self.counter = {}  # name -> the number of its version counter
        self.results = set()  # (storage, version counter) of results that backward needs
        self.numbers = itertools.count()

    def step(self, step):
        before, target = None, step.writes
        if step.refused and target and all(n in self.env for n in step.uses):
            # A program that was shrunk may no longer overlap.
            step = step if overlaps_itself(eval(target, self.env)) else replace(step, refused=False)
        if step.uses and step.uses[0] in self.env and (target or HOOKS.search(step.line)):
            before = self.env[step.uses[0]]
            with contextlib.suppress(RuntimeError):
                before.grad_fn
        error = super().step(step)
        if error is None:
            self._note(step, before if target else None)
        return error

    def _note(self, step, written):
        source = step.uses[0] if step.uses else None
        for name in step.defines:
            x = self.env[name]
            shares = source is not None and storage(x) == storage(self.env[source])
            if shares and ".data" not in step.line:
                self.counter[name] = self.counter[source]
            else:
                self.counter[name] = next(self.numbers)
            if not shares and not x.is_contiguous():
                self.scattered.add(storage(x))
            if "tanh" in step.line and x.requires_grad:
                self.results.add((storage(x), self.counter[name]))
        if written is not None and not re.search(r"\.(t|transpose|squeeze|unsqueeze|requires_grad)_\(", step.line):
            where, number = storage(written), self.counter[source]
            if any(s == where and n != number for s, n in self.results):
                self.trace.gradients_count = False
            if "tanh_" in step.line and written.requires_grad:
                self.results.add((where, number))


# -- shrinking ---------------------------------------------------------------------------------------------------------


def fails(program, ways=EAGER):
    """The message with which a program fails, None if it does not."""
    try:
        compare(program, ways=ways)
    except AssertionError as error:
        return str(error)
    return None


def shrink(program, fails=fails):
    """The program with as few steps and inputs as still fail."""
    smaller = True
    while smaller:
        smaller = False
        for i in reversed(range(len(program.steps))):
            candidate = program.without({i})
            if candidate is not None and fails(candidate):
                program, smaller = candidate, True
                break
        for name in program.inputs:
            fewer = tuple(n for n in program.inputs if n != name)
            candidate = replace(program, inputs=fewer)
            if fewer and fails(candidate):
                program, smaller = candidate, True
                break
    return program
