"""Kernel: compiles and caches the forward, in-place and derivative programs of an operator with given static arguments.

Invariant: no operator compiles twice for the same shapes, dtypes and static arguments, while it has at most
MOST_KERNELS kernels.  Every program is a cached `jax.jit` of a pure function over arrays: the forward (`run`), the
in-place form, one backward for each set of wanted gradients (`Plan.programs`), one forward-mode rule for each set of
tangents.

`Kernel.run` runs the forward at once; where a lazy block or an `xgrad.Backend` may take it, `call` asks `runner`.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Sharding

from ..base import dtypes
from ..base.declared import DeclaredPlace
from ..base.devices import Devices
from ..base.limits import checked
from ..errors import ShapeMismatchError
from ..execution.donation import Writing
from ..execution.programs.half import in_single
from ..execution.programs.programs import Immediate, Program, jit_checked, jit_placed
from ..tensor import Tensor
from .argument_kinds import without_tensors
from .narrow_sums import telling
from .node_names import BY_NUMBERS, name_of
from .operator import Operator, freeze
from .operator_node import node_class
from .plan import Plan


class Kernel:
    """The programs of one operator with one choice of static arguments."""

    __slots__ = (
        "_jvps",
        "_writes",
        "batched",
        "differentiable",
        "function",
        "node_class",
        "operator",
        "outputs",
        "overloads",
        "own",
        "plans",
        "program",
        "ran",
        "reference",
        "run",
        "statics",
    )

    def __init__(self, operator: Operator, statics: tuple[Any, ...]) -> None:
        self.operator: Operator = operator
        self.statics: dict[str, Any] = dict(zip(operator.static_names, statics, strict=True))
        self.function: Any = partial(operator.function, **self.statics) if statics else operator.function
        self.reference: Any = self.function  # whose derivative is taken
        if operator.reference is not None:
            self.reference = partial(operator.reference, **self.statics)
        adds = self.statics.get("accumulate") or self.statics.get("reduce")  # what else would put elements
        if operator.wide or (adds and operator.wide_gradients):
            self.function = in_single(self.function)
        if operator.wide_gradients:
            self.reference = in_single(self.reference)
        # True if it runs no code of a user's: neither a backend's lowering nor a function among its arguments.
        self.own: bool = operator.is_of_package and not any(callable(v) and not isinstance(v, type) for v in statics)
        ran = self.function if operator.overflows is None else telling(operator, self.function, self.statics)
        self.program: Program = (
            jit_checked(
                ran, self, converts=operator.converts, own=self.own, lazy=operator.lazy and not _placed(statics)
            )
            if operator.jit
            else Immediate(checked(self.function, self))
        )
        self.program.label = self.program.operator = operator.name
        self.program.place = next(
            (where for value in statics if (where := getattr(value, "sharding", value)).__class__ is DeclaredPlace),
            None,
        )
        self.run: Callable[..., Any] = self._first  # then `program` itself
        self.ran: bool = False
        self.differentiable: bool = operator.differentiable
        self.outputs: Any = operator.outputs
        self.node_class: type[Any] = node_class(name_of(operator.name, self.statics, operator.node_name))
        # The node's class for each mask of arguments that are numbers; None: always the same class.
        named = BY_NUMBERS.get(operator.name)
        self.overloads: dict[int, type[Any]] | None = (
            None if named is None else {bits: node_class(name) for bits, name in named[1].items()}
        )
        self.plans: dict[Any, Plan] = {}
        self._writes: dict[Any, Callable] = {}
        self._jvps: dict[tuple, Any] = {}
        self.batched: dict[tuple[bool, ...], Any] = {}  # its operators over a batch, for each choice of arguments

    def _first(self, *arrays: Any) -> Any:
        out = self.program.run(*arrays)
        self.run, self.ran = self.program.run, True
        return out

    def plan(self, needs: int, count: int) -> Plan:
        """The plan for backward when the arguments in the mask `needs` require grad: what is saved, what is run."""
        # For an operator with any number of arguments a plan belongs to a mask and a number of arguments.
        key = needs if self.operator.variadic is None else (needs, count)
        plan = self.plans.get(key)
        if plan is None:
            plan = self.plans[key] = Plan(self, needs, count)
        return plan

    def class_for(self, args: tuple[Any, ...]) -> type[Any]:
        """The node's class where it depends on which arguments are numbers."""
        assert self.overloads is not None
        numbers, bit = 0, 1
        for a in args:
            if a.__class__ is not Tensor and a is not None and not isinstance(a, Tensor):
                numbers |= bit
            bit += bit
        return self.overloads.get(numbers, self.node_class)

    def written(self, self_array: Any, *others: Any) -> Any:
        """Run the function as an in-place operation: its result must fit into `self`, and is cast to its dtype."""
        result = self.function(self_array, *others)
        name = self.operator.name
        if result.shape != self_array.shape:
            raise ShapeMismatchError(
                f"output with shape {list(self_array.shape)} doesn't match the broadcast shape {list(result.shape)} "
                f"({name}_ cannot change the shape of the tensor that it writes)"
            )
        if dtypes.category(result.dtype) > dtypes.category(self_array.dtype):
            names = [dtypes.TORCH_NAMES.get(d, d.name) for d in (result.dtype, self_array.dtype)]
            raise RuntimeError(f"result type {names[0]} can't be cast to the desired output type {names[1]} ({name}_)")
        return dtypes.converted(result, self_array.dtype)

    def write(self, donate: bool, where: Any = None) -> Callable[..., Any]:
        """The jitted in-place form, over arrays; with `donate` the result uses the first argument's memory.

        `where`: the sharding of the result, because XLA might choose another.
        """
        key = donate if where is None else (donate, where)
        program = self._writes.get(key)
        if program is None:
            # It runs where the array is, also if it does not read it (zero_).
            if donate:
                program = Writing(self.written, self, where)
            else:
                placed = where is not None
                program = (
                    jit_placed(self.written, where)
                    if placed
                    else jit_checked(self.written, self, keep_unused=True, own=self.own)
                )
                program.label, program.operator = f"{self.operator.name}_", self.operator.name
            self._writes[key] = program
        return program

    def jvp(self, tangents: tuple[bool, ...]) -> Any:
        """An operator over (*primals, *tangents) that gives the tangents of the inexact results."""
        found = self._jvps.get(tangents)
        if found is None:
            found = self._jvps[tangents] = self._make_jvp(tangents)
        return found

    def _make_jvp(self, given: tuple[bool, ...]) -> Any:
        n, function = len(given), self.reference
        if name := self.operator.missing:
            raise NotImplementedError(
                f"Trying to use forward AD with {name} that does not support it because it has not been implemented. "
                "Take the primal of what goes in (unpack_dual), if no tangent is meant to pass."
            )

        def rule(*values: Any) -> Any:
            primals, tangents = values[:n], values[n:]
            moving = [i for i in range(n) if given[i]]

            def along(*moved: Any) -> Any:
                full = list(primals)
                for i, value in zip(moving, moved, strict=True):
                    full[i] = value
                return function(*full)

            at = [primals[i] for i in moving]
            fitted = [t.astype(p.dtype) for t, p in zip(tangents, at, strict=True)]
            out = jax.jvp(along, at, fitted)[1]
            if isinstance(out, tuple):
                return tuple(t if t.dtype in dtypes.INEXACT else jnp.zeros(()) for t in out)
            # A comparison, written in place over a value with a tangent.
            return out if out.dtype in dtypes.INEXACT else jnp.zeros(out.shape, at[0].dtype)

        op, wide = self.operator, self.operator.wide_gradients
        return Operator(f"{op.name}_jvp", rule, node=f"{op.node_name}Jvp", jit=op.jit, wide=(wide, wide))


def _placed(statics: tuple[Any, ...]) -> bool:
    """Return True if a static argument is the place of the result, which no queue knows before it runs."""
    return any(
        value.layout is not None if value.__class__ is DeclaredPlace else isinstance(value, (Sharding, Devices))
        for value in statics
    )


MOST_KERNELS = 1024  # of one operator; the oldest goes first


def kernel_of(op: Operator, statics: tuple[Any, ...]) -> Kernel:
    """Return the operator's kernel for these static arguments; make it the first time."""
    try:
        kernel = op.kernels.get(statics)
    except TypeError:
        statics = freeze(statics)
        kernel = op.kernels.get(statics)
    if kernel is None:
        plain = without_tensors(op.name, op.static_names, statics)
        if plain is not None:
            return kernel_of(op, plain)
        if len(op.kernels) >= MOST_KERNELS:
            op.kernels.pop(next(iter(op.kernels)), None)
        kernel = op.kernels[statics] = Kernel(op, statics)
    return kernel


def forget(op: Operator, statics: tuple[Any, ...]) -> None:
    """Drop a kernel that failed before it ever ran: its static arguments may be equal to good ones (1.0 == 1)."""
    kernel = op.kernels.get(statics := freeze(statics))
    if kernel is not None and statics and not kernel.ran:
        op.kernels.pop(statics, None)
