"""OperatorNode: the autograd node of an operator, which holds the values that it saved and runs its backward.

There is one subclass for each operator, made when it is first recorded, under PyTorch's name (MulBackward0).  Its
attributes `_saved_<argument>` and `_raw_saved_<argument>` are in saved_attributes.py.

`saved` has inputs as the Tensors themselves, numbers as they are, and SavedVariables for results and for values that a
hook packed; `versions` the versions at which inputs were saved, if one of them was not 0.
"""

from collections.abc import Callable
from math import prod
from typing import Any

from ..engine.arithmetic import Arithmetic, fit_program
from ..engine.node import InternalNode, Node
from ..engine.programs.formula import Formula
from ..engine.saved_variable import RELEASED, SavedVariable, check_version, detached_error, freed_error
from ..engine.sparse_gradient import SparseGradient
from ..execution.runner import runner
from ..tensor import Tensor
from ..views.storage import Tracer, may_donate
from .plan import Plan
from .saved_attributes import look_up, names

_classes: dict[str, type] = {}
_DEFINED = (None,)  # the one result has a gradient
_REUSE_FROM = 1 << 14  # elements from which a gradient's memory is worth reusing
_UNSET: Any = object()


def node_class(name: str) -> type[Any]:
    """The node class of this name, made once."""
    found = _classes.get(name)
    if found is None:
        bare = name.removeprefix("torch::autograd::")
        bases = (OperatorNode,) if bare == name else (InternalNode, OperatorNode)
        found = _classes[name] = type(bare, bases, {"__module__": __name__})
    return found


class OperatorNode(Node):
    """A recorded operator."""

    plan: Plan
    saved: tuple[Any, ...] = ()
    versions: tuple[Any, ...] | None = None  # None: every input was at version 0
    static: tuple[Any, ...] | None = None  # (shapes, dtypes) of the arguments, where a formula asks for them
    inplace: bool = False
    indices: tuple[Any, ...] | None = None  # the user's index tensors and masks, for `_saved_indices`

    def apply(self, grads: list[Any], needs: int, arithmetic: Arithmetic) -> Any:
        plan = self.plan
        needs = plan.needs if needs == -1 else needs & plan.needs
        grad = grads[0]
        if (
            len(grads) > 1
            or grad is None
            or not needs
            or arithmetic.tensors
            or plan.general
            # A trace's program must not depend on what ran before, or the next trace would be another program.
            # A backend that pads has one program for many sizes: one that fits its gradients has their sizes in it.
            or (plan.fits and grad.shape in plan.fits and not isinstance(grad, Tracer) and not runner.pads(grad))
            or grad.__class__ is SparseGradient
        ):
            return self._apply(grads, needs, arithmetic)
        if plan.passes:
            return tuple([grad if needs >> i & 1 else None for i in range(len(self.next_edges))])
        reuse = plan.reuses and prod(grad.shape) >= _REUSE_FROM
        del grad
        values = self._unpack_arrays() if self.saved else ()
        try:
            if reuse and may_donate(grads, 0) and not any(isinstance(value, Tracer) for value in values):
                results = plan.program((needs, _DEFINED, None, plan.no_metas, True))(*grads, *values)
            else:
                program = plan.simple.get(needs)
                if program is None:
                    program = plan.simple[needs] = plan.program((needs, _DEFINED, None, plan.no_metas, False))
                results = program(grads[0], *values)
        except (TypeError, ValueError):
            self._refuse_misfit()
            raise
        if len(self.next_edges) == 1:
            return (results,)
        return results if needs == plan.all else _spread(results, needs, len(self.next_edges))

    def formula(self, given: int, needs: int) -> Formula | None:
        plan = self.plan
        wanted = plan.needs if needs == -1 else needs & plan.needs
        found = plan.formulas.get((given, wanted), _UNSET)
        if found is _UNSET:
            found = plan.formulas[given, wanted] = self._make_formula(plan, wanted)
        return found

    def _make_formula(self, plan: Plan, needs: int) -> Formula | None:
        if not plan.has_formula or plan.kernel.operator.check_gradients is not None:  # a check reads values
            return None
        count = len(self.next_edges)

        def run(grads: list, values: list, avals: tuple, static: Any) -> list:
            defined = tuple([None if g is not None else (a.shape, a.dtype) for g, a in zip(grads, avals, strict=True)])
            function = plan.backward(needs, defined, static, plan.no_metas)
            return _spread(function(*[g for g in grads if g is not None], *values), needs, count)

        return Formula(needs, run)

    def operands(self, unpacking: Callable[[Node], None]) -> list[Any]:
        for entry in self.saved:
            if entry.__class__ is SavedVariable and entry.unpack_hook is not None:
                unpacking(self)
                break
        return self._unpack_arrays()

    def outline(self, facts: list[Any], operands: list[Any]) -> bool:
        plan, saved, versions = self.plan, self.saved, self.versions
        if saved is RELEASED or not plan.has_formula or plan.kernel.operator.check_gradients is not None:
            return False  # the loop raises, or reads values
        facts += (plan, self.avals, self.static, self.inplace)
        for i, entry in enumerate(saved):
            if entry.__class__ is Tensor:
                counter = entry._version_counter
                if counter is not None and counter.value != (0 if versions is None else versions[i]):
                    return False
                array = entry._array
                operands.append(entry._read() if array is None else array)
            elif entry.__class__ is SavedVariable:
                if entry._unpack is not None:
                    return False
                operands.append(entry.array(self))
            else:
                operands.append(entry)
        return True

    def disposable(self) -> list[bool]:
        return [
            entry.is_ours() if entry.__class__ is SavedVariable
            else entry.__class__ is Tensor and entry._storage is None and entry._owned
            for entry in self.saved
        ]  # fmt: skip

    def _apply(self, grads: list, needs: int, arithmetic: Arithmetic) -> Any:
        """Handle every case: several results, undefined gradients, recording, broadcast or cast arguments."""
        plan, edges = self.plan, self.next_edges
        defined, given = [], []
        for g, a in zip(grads, self.avals, strict=True):
            if g is None:
                defined.append((a.shape, a.dtype))
            else:
                defined.append(None)
                given.append(g)
        if not needs or not given:
            return (None,) * len(edges)
        first = given[0]
        recorded = arithmetic.tensors
        if first.__class__ is SparseGradient:
            return first.tensor._interpreter.gradients(self, first.tensor, needs, arithmetic)
        like = first if len(grads) == 1 else None
        metas = self._metas(needs, like)
        if plan.passes and not any(metas):
            return tuple(first if needs >> i & 1 else None for i in range(len(edges)))
        key = (needs, tuple(defined), self.static, metas, False)
        values = self._unpack() if recorded else self._unpack_arrays()
        check = plan.kernel.operator.check_gradients
        if check is not None:
            check(grads, values)
        if recorded and needs != plan.needs:  # values that only other formulas use must not enter the new graph
            kept = plan.kernel.plan(needs, len(plan.used)).saved
            for i, place in enumerate(plan.saved):
                if place not in kept and isinstance(values[i], Tensor):
                    values[i] = values[i].detach()
        try:
            if recorded:
                values = [*given, *values]
                results = _recorded(plan, key, values)
            else:
                results = plan.program(key)(*given, *values)
        except (TypeError, ValueError):
            self._refuse_misfit()
            raise
        return (results,) if len(edges) == 1 else _spread(results, needs, len(self.next_edges))

    def _metas(self, needs: int, like: Any) -> tuple[Any, ...]:
        """Return the shape and dtype to which the program fits each gradient; None if the gradient has the shape and
        dtype of `like`.

        An argument that was broadcast or cast has others.
        """
        metas: list = [None] * len(self.next_edges)
        for i in self.plan.indices:
            if not needs >> i & 1:  # a bias whose gradient is not wanted must not cost the weight a program
                continue
            child, number = self.next_edges[i]
            meta = child.avals[number] if child is not None else self.avals[0] if self.inplace and not i else None
            if meta is not None and (like is None or meta.shape != like.shape or meta.dtype != like.dtype):
                metas[i] = (tuple(meta.shape), meta.dtype)
        return tuple(metas)

    def program_ahead(self, needs: int, grad: Any) -> tuple[Any, list[Any]] | None:
        plan, shape = self.plan, self.avals[0].shape
        needs = plan.needs if needs == -1 else needs & plan.needs
        operands = [grad]
        if len(self.avals) != 1 or not needs or not self.outline([], operands):
            return None
        metas = self._metas(needs, self.avals[0])
        if not (plan.general or shape in plan.fits):
            if plan.passes:
                return next(((fit_program(*meta), [grad]) for meta in metas if meta is not None), None)
            reuse = plan.reuses and prod(shape) >= _REUSE_FROM
            program: Any = plan.program((needs, _DEFINED, None, plan.no_metas, reuse))
            if not any(metas):
                return program, operands
            found = program.eval_shape(*operands)
            found = _spread(found, needs, len(metas))
            if all(m is None or (f.shape, f.dtype) == m for f, m in zip(found, metas, strict=True)):
                return program, operands
            self.plan.fits.add(shape)  # as `misfit` would, after the first run
        if plan.passes and not any(metas):
            return None
        return plan.program((needs, _DEFINED, self.static, metas, False)), operands

    def unpack_misfit(self) -> str:
        for entry in self.saved:
            if isinstance(entry, SavedVariable) and (words := entry.misfit()):
                return f"{words} (in the backward of {self.name()})."
        return ""

    def _refuse_misfit(self) -> None:
        """Raise `RuntimeError` if an unpack hook returned another shape: this explains the failure of a derivative."""
        if words := self.unpack_misfit():
            raise RuntimeError(words) from None

    def takes_sparse(self) -> bool:
        return len(self.avals) == 1

    def misfit(self) -> None:
        """Called by the engine for a gradient of another shape or dtype: from now on the program fits it.

        In a lazy block it saves nothing, and the second step of a loop would be another program than the first.  Where
        the gradient passes as it is, the engine's own program is all there is to run.
        """
        if runner.queue() is None and not self.plan.passes:
            self.plan.fits.add(self.avals[0].shape)

    def _unpack_arrays(self) -> list:
        """The saved values as operands of a program, after the version check."""
        saved = self.saved  # once: another thread may release it
        if saved is RELEASED:
            raise freed_error(self.name())
        values = []
        versions = self.versions
        for i, entry in enumerate(saved):
            if entry.__class__ is Tensor:
                counter = entry._version_counter
                if counter is not None and counter.value != (0 if versions is None else versions[i]):
                    check_version(entry, 0 if versions is None else versions[i])
                array = entry._array
                values.append(entry._read() if array is None else array)
            elif isinstance(entry, SavedVariable):
                values.append(entry.array(self))
            else:
                values.append(entry)
        return values

    def _unpack(self) -> list:
        """The saved values as tensors in the graph, after the version check."""
        saved = self.saved  # once: another thread may release it
        if saved is RELEASED:
            raise freed_error(self.name())
        values = []
        versions = self.versions
        for i, entry in enumerate(saved):
            if isinstance(entry, Tensor):
                check_version(entry, 0 if versions is None else versions[i])
                child = self.next_edges[self.plan.saved[i]][0]
                if child is not None and not child.is_accumulator and entry._grad_fn is None and entry._view is None:
                    raise detached_error(self.name())
                values.append(entry)
            elif isinstance(entry, SavedVariable):
                values.append(entry.unpack(self))
            else:
                values.append(entry)
        return values

    def _look_up(self, name: str, raw: bool) -> Any:
        return look_up(self, name, raw)

    def _attributes(self) -> list[str]:
        return names(self)

    def release(self) -> None:
        saved = self.saved
        if saved and saved is not RELEASED:
            for entry in saved:
                if isinstance(entry, SavedVariable):
                    entry.release()
            self.saved = RELEASED


def _recorded(plan: Plan, key: tuple, values: list) -> Any:
    """Run the backward of a node, recorded.  A result requires grad if it depends on a value that does."""
    if not (plan.kernel.operator.first or plan.kernel.operator.multilinear):
        return Tensor._call(plan.operator(key), tuple(values), ())
    touched, each = plan.dependence(key, values)
    moving = [isinstance(v, Tensor) and v.requires_grad for v in values]
    for i, (moves, used) in enumerate(zip(moving, touched, strict=True)):
        if moves and not used:
            values[i] = values[i].detach()
    results = Tensor._call(plan.operator(key), tuple(values), ())
    if len(each) == 1 or not any(moving):
        return results
    return tuple(
        [
            r if any(m and u for m, u in zip(moving, used, strict=True)) else r.detach()
            for r, used in zip(results, each, strict=True)
        ]
    )


def _spread(results: Any, needs: int, count: int) -> list:
    """Put each wanted gradient in the place of its edge."""
    spread: list[Any] = [None] * count
    found = iter(results if needs & (needs - 1) else (results,))
    for i in range(count):
        if needs >> i & 1:
            spread[i] = next(found)
    return spread
