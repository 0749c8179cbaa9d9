"""Kept: the operator of `from_jax(policy=)`, which saves the residuals of `jax.vjp` that the policy selects.

    forward program:   *leaves           ──►  *results, *residuals      (jax.vjp, split in two)
    backward program:  *grads, *saved    ──►  the gradients of the leaves

A residual that is a leaf or a result itself is not returned a second time, because XLA would copy it.

Invariant: residuals are values without a history.  A derivative of the backward must know how they depend on the
leaves, so where the backward is recorded it is the one that computes the function again (PyTorch's formulas are
differentiated through the tensors that they save; JAX's residuals cannot be).  Hence the leaves are always saved too.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from ..base import dtypes
from ..base.jax_compat import Tracer
from ..dispatch.call import call
from ..dispatch.kernel import Kernel, kernel_of
from ..dispatch.operator import Operator
from ..dispatch.plan import Plan
from ..dispatch.promotion import conj
from ..engine.fit import fit


class Kept(Operator):
    """The operator over the leaves of one structure, for one set of needed gradients and one set of shapes.

    Its results are the function's results, and the residuals that are neither leaves nor results.
    """

    lazy = False  # the trace sets `places`, and another one may find other residuals

    def __init__(self, plain: Operator, results: Callable, count: int, needs: int, policy: Callable | None) -> None:
        super().__init__(plain.name, _over(self), node=plain.node_name)
        self.first = False  # False: a recorded backward is of the leaves, the program's of the residuals
        self.plain, self.count = plain, count
        self.wanted = [i for i in range(count) if needs >> i & 1]
        everything = policy is jax.checkpoint_policies.everything_saveable
        self.results = results if everything else jax.checkpoint(results, policy=policy)
        # Set by the trace: which results have gradients; the tree of the function that `jax.vjp` returned; and for each
        # of its arrays the place among (*leaves, *results), or the array itself if it is constant.
        self.moving: tuple[bool, ...] = ()
        self.tree: Any = None
        self.places: list[Any] = []
        self.kernels[()] = KeptKernel(self, ())

    def run(self, leaves: tuple) -> Any:
        """Return the function's results, recorded."""
        results = call(self, leaves, ())
        own = len(self.moving)
        return results[0] if own == 1 else results[:own]

    def traced(self, leaves: tuple) -> tuple:
        """Return (*results, *residuals) of traced leaves."""

        def of_wanted(*values: Any) -> tuple[list, list]:
            full = [*leaves]
            for i, value in zip(self.wanted, values, strict=True):
                full[i] = value
            results = self.results(tuple(full))
            self.moving = tuple([r.dtype in dtypes.INEXACT for r in results])
            return [r for r in results if r.dtype in dtypes.INEXACT], [
                r for r in results if r.dtype not in dtypes.INEXACT
            ]

        moved, pull, rest = jax.vjp(of_wanted, *[leaves[i] for i in self.wanted], has_aux=True)
        moved, rest = iter(moved), iter(rest)
        out = [next(moved) if moves else next(rest) for moves in self.moving]
        residuals, self.tree = jax.tree_util.tree_flatten(pull)
        self.places = []
        for residual in residuals:
            known = [*leaves, *out]
            place = next((i for i, value in enumerate(known) if value is residual), len(known))
            if place == len(known):
                if not isinstance(residual, Tracer):
                    self.places.append(residual)
                    continue
                out.append(residual)
            self.places.append(place)
        self.constant = frozenset(range(len(self.moving), len(out)))
        return tuple(out)


def _over(kept: Kept) -> Callable:
    def run(*leaves: Any) -> tuple:
        return kept.traced(leaves)

    return run


class KeptKernel(Kernel):
    """The programs of a `Kept`."""

    __slots__ = ()
    operator: Any

    def plan(self, needs: int, count: int) -> Plan:
        plan = self.plans.get(needs)
        if plan is None:
            plan = self.plans[needs] = KeptPlan(self, needs, count)
        return plan


class KeptPlan(Plan):
    """Saves the leaves and the residuals; backward runs the function that `jax.vjp` returned."""

    __slots__ = ()

    def __init__(self, kernel: KeptKernel, needs: int, count: int) -> None:
        super().__init__(kernel, needs, count)
        places = [place for place in kernel.operator.places if isinstance(place, int)]
        self.results = tuple(sorted({place - count for place in places if place >= count}))
        self.result_names = ()
        self.saves_result = bool(self.results)

    def backward(self, needs: int, defined: tuple, static: tuple | None, metas: tuple) -> Callable:
        of: Kept = self.kernel.operator  # pyright: ignore[reportAssignmentType] - a KeptKernel's
        count, results, node = of.count, self.results, self.kernel.node_class.__name__
        n_grads = sum(d is None for d in defined)
        assert results is not None

        def run(*values: Any) -> Any:
            given, saved = iter(values[:n_grads]), values[n_grads:]
            grads = [next(given) if d is None else jnp.zeros(*d) for d in defined[: len(of.moving)]]
            known = dict(enumerate(saved[:count]))
            known.update(zip([count + r for r in results], saved[count:], strict=True))
            pull = of.tree.unflatten([known[place] if isinstance(place, int) else place for place in of.places])
            # JAX's product does not conjugate, PyTorch's does: conjugate on the way in and out.
            found = pull([conj(grad) for grad, moves in zip(grads, of.moving, strict=True) if moves])
            out = [
                conj(grad) if metas[i] is None else fit(conj(grad), *metas[i], node=node, index=i)
                for i, grad in zip(of.wanted, found, strict=True)
                if needs >> i & 1
            ]
            return out[0] if len(out) == 1 else tuple(out)

        return run

    def operator(self, key: tuple) -> Operator:
        found = self.operators.get(key)
        if found is None:
            of: Kept = self.kernel.operator  # pyright: ignore[reportAssignmentType] - a KeptKernel's
            needs, defined, static, metas, _ = key
            plan = kernel_of(of.plain, ()).plan(self.needs, of.count)
            again = plan.backward(needs, defined[: len(of.moving)], static, metas)
            n = sum(d is None for d in defined) + of.count

            def run(*values: Any) -> Any:
                return again(*values[:n])

            name = of.node_name.removesuffix("Backward0") + "BackwardBackward0"
            found = self.operators[key] = Operator(f"{of.name}_backward", run, node=name)
            found.in_backward = True
        return found
