"""BatchedOperator: maps an operator over a batch in xgrad.vmap, by `jax.vmap` of its function and derivative formulas.

As every operator it has a kernel (its forward programs) and plans (what forward saves, and the backward program).

Invariant: the gradients come from the operator's own formulas, entry by entry (with PyTorch's subgradients and saved
values), not from what JAX would derive from the mapped function.  A gradient of an argument without a batch is summed
over the batch.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax

from ..dispatch.kernel import Kernel
from ..dispatch.operator import Operator
from ..dispatch.plan import Plan
from ..execution.programs.half import summed


class BatchedOperator(Operator):
    """An operator over a batch: the batch is the first dimension of the results and of the arguments that `axes` marks.

    Arguments that `axes` does not mark are the same for all entries.
    """

    def __init__(self, kernel: Kernel, axes: tuple[bool, ...]) -> None:
        single = kernel.operator
        self.name: str = single.name
        self.node_name: str = single.node_name
        self.outputs: Any = single.outputs
        self.differentiable: bool = single.differentiable
        self.jit: bool = single.jit
        self.pointwise: bool = False
        self.converts: bool = single.converts
        self.in_backward: bool = single.in_backward
        self.first: bool = single.first
        self.masked: bool = single.masked
        self.wide = self.wide_gradients = False  # the functions of the single entry are
        self.parameters: tuple[str, ...] = single.parameters
        self.variadic: str | None = single.variadic
        self.static_names: tuple[str, ...] = ()
        self.formulas: dict[str, Callable[..., Any]] = single.formulas
        self.defaults: dict[str, Any] = {}
        self.check: Callable[..., Any] | None = None
        self.single: Kernel = kernel
        self.axes: tuple[bool, ...] = axes
        self.function: Any = jax.vmap(kernel.function, in_axes=_axes(axes))
        if single.overflows is not None:
            self.overflows = jax.vmap(partial(single.overflows, **kernel.statics), in_axes=(0, *_axes(axes)))
        self.kernels: dict[tuple[Any, ...], Any] = {}
        self.kernels[()] = BatchedKernel(self, ())
        self.kernels[()].program.place = kernel.program.place


def _axes(batched: tuple[bool, ...]) -> tuple[int | None, ...]:
    return tuple(0 if b else None for b in batched)


class BatchedKernel(Kernel):
    """The programs of a `BatchedOperator`."""

    __slots__ = ()
    operator: Any

    def plan(self, needs: int, count: int) -> Plan:
        plan = self.plans.get(needs)
        if plan is None:
            plan = self.plans[needs] = BatchedPlan(self, self.operator.single.plan(needs, count))
        return plan


class BatchedPlan(Plan):
    """Saves what the plan of the single operator saves; its backward is that plan's, over a batch."""

    __slots__ = ("single",)
    has_formula = False  # backward needs the shapes of the arguments
    fits: set[tuple[Any, ...]]
    general: bool

    def __init__(self, kernel: BatchedKernel, single: Plan) -> None:
        for name in Plan.__slots__:
            setattr(self, name, getattr(single, name))
        self.kernel: Any = kernel
        self.single: Plan = single
        self.programs: dict[Any, Callable[..., Any]] = {}
        self.operators: dict[Any, Any] = {}
        self.simple: dict[int, Callable[..., Any]] = {}
        self.formulas: dict[tuple[int, int], Any] = {}
        self.passes = self.reuses = False
        self.fits, self.general = set(), True  # each backward fits its gradients to the arguments

    def backward(
        self, needs: int, defined: tuple[Any, ...], static: tuple[Any, ...] | None, metas: tuple[Any, ...]
    ) -> "Callable[..., Any]":
        operator = self.kernel.operator
        assert isinstance(operator, BatchedOperator)
        axes = operator.axes
        n_grads = sum(d is None for d in defined)
        wanted = [i for i in range(len(axes)) if needs >> i & 1]
        entry_defined = tuple(d if d is None else (d[0][1:], d[1]) for d in defined)
        if static is not None:
            static = (tuple(_entry(s, b) for s, b in zip(static[0], axes, strict=True)), static[1])
        saved_axes = tuple(0 if axes[i] else None for i in self.saved)

        def run(*values: Any) -> Any:
            like = values[0]
            fits: list = [None] * len(axes)
            for i in wanted:
                shape, dtype = metas[i] or (like.shape, like.dtype)
                fits[i] = (_entry(shape, axes[i]), dtype)
            entry = self.single.backward(needs, entry_defined, static, tuple(fits))
            results = len(values) - n_grads - len(saved_axes)
            out = jax.vmap(entry, in_axes=(0,) * n_grads + saved_axes + (0,) * results)(*values)
            many = out if isinstance(out, tuple) else (out,)
            fitted = [o if axes[i] else summed(o, (0,)) for i, o in zip(wanted, many, strict=True)]
            return tuple(fitted) if len(fitted) > 1 else fitted[0]

        return run


def _entry(shape: tuple, batched: bool) -> tuple:
    return tuple(shape[1:]) if batched else tuple(shape)


def batched_operator(kernel: Kernel, axes: tuple[bool, ...]) -> Operator:
    """Make the operator of `kernel` over a batch; cached for each choice of arguments.

    Raises `RuntimeError` for an operator whose result's shape depends on values.
    """
    found = kernel.batched.get(axes)
    if found is None:
        operator = kernel.operator
        if not operator.jit:
            raise RuntimeError(
                "vmap: We do not support batching operators that can output dynamic shape. Attempted to vmap over "
                f"{operator.name}, whose result's shape depends on values. Use xgrad.where, or a mask."
            )
        found = kernel.batched[axes] = BatchedOperator(kernel, axes)
    return found
