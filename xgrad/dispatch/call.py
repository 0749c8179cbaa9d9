"""The one path that every operator takes: unwrap, kernel, wrap, record; and its in-place and out= forms.

Everything around the kernel stays within a few microseconds: what a call makes is a Tensor, and if it is recorded a
node, three tuples and a number.  Storages, version counters, SavedVariables and hook containers are made when somebody
needs them.  A mask of bits, not a tuple, says which arguments require grad.
"""

from typing import Any

import jax
import numpy as np

from .. import dtypes, limits
from ..batching import batched_tensor
from ..batching.batched_tensor import batch_like, check_batched, level_of, requiring, run_batched, wrap, write_batched
from ..config import INFERENCE_LEVEL, settings, state, to_outer_forward_level
from ..donation import surely
from ..dtypes import INEXACT, INEXACT_KINDS
from ..engine.accumulate_grad import make_accumulator
from ..engine.copy_slices import history_of_view, rebase_history
from ..engine.edges import gradient_edge
from ..engine.node import InputMetadata
from ..engine.saved_variable import SavedVariable, snapshot
from ..errors import DtypeDisabledError, NumberOverflowError, OutOfMemoryError
from ..limits import out_of_memory
from ..tensor import Tensor, blank, from_array, from_foreign, mark
from ..views.meta import PrimalMeta, chain_now, check_inplace, relation_of
from ..views.storage import VersionCounter, place_of
from . import declare, operator_node
from .declare import Operator
from .kernel import Kernel, Plan
from .override_calls import ask
from .view import view_along

_NO_EDGE = (None, 0)
_NUMBERS = (int, float, bool, complex)
_USUAL = frozenset({Tensor, type(None), *_NUMBERS})


def is_operand(x: Any) -> bool:
    """Whether an operator takes `x` as an array argument."""
    if isinstance(x, (Tensor, *_NUMBERS, np.generic, jax.Array, np.ndarray)):
        return True
    return getattr(type(x), "__xgrad_function__", None) is not None


def call(op: Operator, args: tuple, statics: tuple) -> Any:
    """Run an operator on Tensors and numbers; record it if a gradient may be asked for."""
    if settings.operator_modes and (mode := state.operator_mode) is not None:
        return mode.call(op, args, statics)
    try:
        kernel = op.kernels[statics]
    except (KeyError, TypeError):
        kernel = op.kernel(statics)
    arrays = []
    needs, bit = 0, 1
    for a in args:
        if a.__class__ is Tensor:
            array = a._array
            arrays.append(a._read() if array is None else array)
            if a._requires_grad or (a._view is not None and a._view.base._requires_grad):
                needs |= bit
        elif a is None or a.__class__ in _NUMBERS:
            arrays.append(a)
        else:
            return _call_any(op, args, statics)
        bit += bit
    try:
        out = kernel.run(*arrays)
    except Exception as error:
        if isinstance(error, OverflowError) and (fitting := _numbers_that_fit(op, args)) is not args:
            return call(op, fitting, statics)
        op.forget(statics)
        raise explain(error, op, arrays) from error.__cause__
    if out.__class__ is tuple:
        return _several(kernel, needs, args, out)
    result = blank(Tensor)
    result._array = out
    if state.forward_level >= 0:  # before it is saved: a saved result carries its tangent
        _forward(kernel, args, (result,))
    if needs and kernel.differentiable and state.grad_enabled and (aval := out.aval).dtype.kind in INEXACT_KINDS:
        plan = kernel.plans.get(needs) or kernel.plan(needs, len(args))
        node = plan.node_class() if plan.overloads is None else plan.class_for(args)()
        node.plan = plan
        node.avals = (aval,)
        node.sequence_nr = state.next_sequence_nr()
        edges = []
        for a in args if plan.alone else plan.only(args):
            if a is None:
                edges.append(_NO_EDGE)
            elif a._view is not None:
                edges.append(edge := gradient_edge(a))
                if edge[0] is None and not plan.saves_result:  # made under no_grad: no input is saved for it
                    plan = node.plan = kernel.narrowed(plan.needs & ~(1 << len(edges) - 1), len(args))
            elif (fn := a._grad_fn) is not None:
                edges.append((fn, a._output_nr))
            elif (reference := a._accumulator) is not None and (fn := reference()) is not None:
                edges.append((fn, 0))
            else:
                edges.append((make_accumulator(a), 0))
        node.next_edges = tuple(edges)
        result._grad_fn = node
        result._requires_grad = True
        if state.saved_hooks:
            save_for_backward(plan, node, args, (result,) if plan.saves_result else ())
        elif plan.keeps_result and result._tangents is None:
            result._version_counter = counter = VersionCounter()
            node.saved = (SavedVariable.of_result(out, counter),)
        elif plan.saves_result or plan.static:
            save_for_backward(plan, node, args, (result,) if plan.saves_result else ())
        elif plan.pick is not None:
            saved = node.saved = plan.pick(args)
            for a in saved:
                if a.__class__ is Tensor and a._version_counter is not None:
                    node.versions = versions_of(saved)
                    break
    return result


def _several(kernel: Kernel, needs: int, args: tuple, out: tuple) -> Any:
    """The results of an operator that has several."""
    results = tuple(from_array(o) for o in out)
    if state.forward_level >= 0:
        _forward(kernel, args, results)
    if needs and kernel.differentiable and state.grad_enabled:
        _record_many(kernel, needs, args, results)
    return results if kernel.outputs is None else kernel.outputs(*results)


def _call_any(op: Operator, args: tuple, statics: tuple) -> Any:
    """`call` for arguments that are not all plain Tensors and numbers."""
    level = level_of(args)
    for a in args:
        if isinstance(a, Tensor) and a._sparse:
            return a._dispatch(op, args, statics, level)
    if level is not None:
        return _call_batched(op, tuple(_operand(op, x) for x in args), statics, level)
    result = ask(op, args, statics)
    if result is not NotImplemented:
        return result
    # A leaf of a subclass is the variable of its accumulator itself, and not the twin that the operator takes.
    leaves = [gradient_edge(a) for a in args if isinstance(a, Tensor) and a._requires_grad and a._grad_fn is None]
    result = call(op, tuple(_operand(op, x) for x in args), statics)
    del leaves
    return result


def _call_batched(op: Operator, args: tuple, statics: tuple, level: Any) -> Any:
    """Inside of vmap: run the operator on the values, one level down, and record it for the entries."""
    kernel = op.kernel(statics)
    out, batched = run_batched(kernel, statics, args, level)
    results = tuple(wrap(o, level, batched) for o in (out if isinstance(out, tuple) else (out,)))
    if state.forward_level >= 0:
        _forward(kernel, args, results)
    needs = requiring(args, level)
    if needs and kernel.differentiable and state.grad_enabled:
        _record_many(kernel, needs, args, results)
    if not isinstance(out, tuple):
        return results[0]
    return results if kernel.outputs is None else kernel.outputs(*results)


def versions_of(saved: tuple) -> tuple[int, ...]:
    return tuple(
        [a._version_counter.value if isinstance(a, Tensor) and a._version_counter is not None else 0 for a in saved]
    )


def _operand(op: Operator, x: Any) -> Any:
    """An argument as a Tensor or a Python number."""
    if x.__class__ in _USUAL:
        return x
    if isinstance(x, Tensor):
        return x if x._level is not None else _plain(x)
    if isinstance(x, np.generic):
        return x.item() if np.dtype(x.dtype) not in (dtypes.bfloat16,) else float(x)
    if isinstance(x, (jax.Array, np.ndarray)):
        return from_foreign(x)
    raise TypeError(f"{op.name}(): expected a Tensor or a number as an array argument, but got {type(x).__name__}")


def _numbers_that_fit(op: Operator, args: tuple) -> tuple:
    """Integers beyond JAX's default dtype as floats, where they meet a floating-point tensor."""
    info = np.iinfo(dtypes.default_integer())
    wide = [i for i, a in enumerate(args) if a.__class__ is int and not info.min <= a <= info.max]
    if not wide:
        return args
    if not any(a.__class__ is Tensor and a.dtype in INEXACT for a in args):
        raise OverflowError(
            f"Overflow: {op.name}(): the number {args[wide[0]]} does not fit into {info.dtype.name}, in which JAX "
            f"takes Python integers{dtypes.widen(info.dtype)}"
        )
    return tuple(float(a) if i in wide else a for i, a in enumerate(args))


def _plain(x: Tensor) -> Tensor:
    """An instance of a subclass, as the Tensor that it is."""
    twin = blank(Tensor)
    twin.__dict__ = x.__dict__
    return twin


def explain(error: Exception, op: Operator, arrays: list) -> Exception:
    """An error out of a kernel in the type and words that PyTorch's users know."""
    if isinstance(error, DtypeDisabledError):
        return error
    if (memory := out_of_memory(error)) is not None:
        return memory
    if isinstance(error, OverflowError) and "jitted computation" in str(error):
        return NumberOverflowError(
            f"{op.name}(): sizes or numbers beyond int32, in which JAX counts while its 64-bit mode is off"
            f"{dtypes.widen(dtypes.default_integer())}: {error}"
        )
    if isinstance(error, MemoryError):
        return OutOfMemoryError(f"can't allocate memory: {op.name}(): {error}")
    if arrays[:1] == [None] and op.parameters and op.parameters[0] not in op.defaults:
        return TypeError(f"{op.name}(): argument 'input' (position 1) must be Tensor, not NoneType")
    text = str(error).splitlines()[0] if str(error) else type(error).__name__
    if isinstance(error, jax.errors.ConcretizationTypeError):
        return error  # the kernel reads a value that is traced
    if isinstance(error, TypeError) and ("incompatible shapes" in text or "shape" in text):
        shapes = ", ".join(str(list(a.shape)) for a in arrays if hasattr(a, "shape"))
        return RuntimeError(f"{op.name}(): the shapes {shapes} do not fit together: {text}")
    if isinstance(error, ValueError) and "None is not a valid value" in text:
        return TypeError(f"{op.name}(): expected a Tensor or a number as an array argument, but got NoneType")
    if isinstance(error, ValueError) and "devices" in text:
        return RuntimeError(
            f"Expected all tensors to be on the same device, but {op.name}() got tensors on several: {text}"
        )
    return error


def _static(args: tuple) -> tuple[tuple, tuple]:
    """The shapes and dtypes of the arguments; () and None for a number."""
    shapes, kinds = [], []
    for a in args:
        if a.__class__ is Tensor and (array := a._array) is not None:
            aval = array.aval
            shapes.append(aval.shape)
            kinds.append(aval.dtype)
        else:
            shapes.append(tuple(a.shape) if isinstance(a, Tensor) else ())
            kinds.append(a.dtype if isinstance(a, Tensor) else None)
    return tuple(shapes), tuple(kinds)


def save_for_backward(plan: Plan, node: Any, args: tuple, results: tuple, weak_grad_fn: Any = None) -> None:
    """Keep for backward what the plan names."""
    if plan.static:
        node.static = _static(args)
        if not (results or plan.saved):
            return
    if state.saved_hooks:
        node.saved = tuple(
            SavedVariable.packed(a, False) if isinstance(a, Tensor) else a for a in (args[i] for i in plan.saved)
        ) + tuple(SavedVariable.packed(r, True, weak_grad_fn) for r in results)
        node.versions = (0,) * len(node.saved)
        return
    node.saved = tuple([SavedVariable(r, True, weak_grad_fn) for r in results])
    node.versions = (0,) * len(results)
    if plan.pick is not None:
        inputs = plan.pick(args)
        node.saved = inputs + node.saved
        node.versions = versions_of(inputs) + node.versions


def _also_saved(node: Any, saved: tuple) -> None:
    node.versions = (*(node.versions or (0,) * len(node.saved)), *(0 for _ in saved))
    node.saved = (*node.saved, *saved)


def _record(kernel: Kernel, needs: int, args: tuple, skip_self: bool = False) -> Any:
    """A node for a call whose results are still to be attached."""
    plan = kernel.plans.get(needs) or kernel.plan(needs, len(args))
    node = plan.node_class() if plan.overloads is None else plan.class_for(args)()
    node.plan = plan
    node.sequence_nr = state.next_sequence_nr()
    edges = []
    for i, a in enumerate(args):
        if needs >> i & 1 and not (skip_self and i == 0):
            edges.append(edge := gradient_edge(a))
            if edge[0] is None and not node.plan.saves_result:
                node.plan = kernel.narrowed(node.plan.needs & ~(1 << i), len(args))
        else:
            edges.append(_NO_EDGE)
    node.next_edges = tuple(edges)
    return node


def _record_many(kernel: Kernel, needs: int, args: tuple, results: tuple) -> None:
    """Record an operator with several results; those of an integer dtype have no gradient."""
    if not any(r.dtype in INEXACT for r in results):
        return
    node = _record(kernel, needs, args)
    node.avals = tuple(InputMetadata(tuple(r.shape), r.dtype) for r in results)
    constant = kernel.operator.constant
    for i, result in enumerate(results):
        if result.dtype in INEXACT and i not in constant:
            result._grad_fn, result._output_nr, result._requires_grad = node, i, True
    plan = node.plan
    if plan.saves_result:
        _save_many(plan, node, args, results)
    elif plan.saved or plan.static:
        save_for_backward(plan, node, args, ())


def _save_many(plan: Plan, node: Any, args: tuple, results: tuple) -> None:
    """Results without a gradient (indices) are saved as inputs are: they do not refer to the node."""
    save_for_backward(plan, node, args, ())
    make = SavedVariable.packed if state.saved_hooks else SavedVariable
    chosen = results if plan.results is None else [results[i] for i in plan.results]
    saved = tuple(make(r, r._grad_fn is not None) for r in chosen)
    _also_saved(node, saved)


def _forward(kernel: Kernel, args: tuple, results: tuple) -> None:
    """Forward mode: give the results the tangents that `jax.jvp` of the function makes of the arguments'.

    In inference mode: make inference tensors of the results.
    """
    level = state.forward_level
    if level == INFERENCE_LEVEL:
        for result in results:
            mark(result)
        return
    tangents = [a._tangent_at(level) if isinstance(a, Tensor) else None for a in args]
    moving = kernel.differentiable and any(t is not None for t in tangents)
    levels = state.forward_level, state.outer_forward_levels
    try:
        outer = to_outer_forward_level()
        if outer >= 0:
            _forward(kernel, args, results)
        if not moving:
            return
        # The primals without their tangents at this level: the rule is an ordinary operator, recorded in reverse mode,
        # and differentiated at the outer levels, like any other.
        rule = kernel.jvp(tuple(t is not None for t in tangents))
        operands = (*args, *(t for t in tangents if t is not None))
        if state.grad_enabled and any(isinstance(x, Tensor) and x.requires_grad for x in operands):
            # The rule may save more than the operator does: what is written later must not concern it.
            operands = tuple(snapshot(x) if isinstance(x, Tensor) else x for x in operands)
        out = call(rule, operands, ())
    finally:
        state.forward_level, state.outer_forward_levels = levels
    constant = kernel.operator.constant
    for i, (result, tangent) in enumerate(zip(results, out if isinstance(out, tuple) else (out,), strict=True)):
        if result.dtype in INEXACT and i not in constant:
            result._set_tangent(level, tangent)


def call_inplace(op: Operator, args: tuple, statics: tuple) -> Tensor:
    """Run an operator and write its result into its first argument, through its view chain.

    Order: does anything require grad → check_inplace → save (the *old* array of self: free here) → kernel → write,
    bump generation and version → rebase_history → forward mode → save results.
    """
    if settings.operator_modes and (mode := state.operator_mode) is not None:
        return mode.call_inplace(op, args, statics)
    self = args[0]
    usual = _USUAL.issuperset(map(type, args))
    if not usual:
        for a in args:
            if isinstance(a, Tensor) and a._sparse:
                return a._dispatch_inplace(op, args, statics, level_of(args))
    if not usual and level_of(args) is None and (result := ask(op, args, statics, inplace=True)) is not NotImplemented:
        return result
    if not isinstance(self, Tensor):
        raise TypeError(f"{op.name}_(): the first argument must be a Tensor, but got {type(self).__name__}")
    args = _numbers_that_fit(op, args if usual else tuple(_operand(op, a) for a in args))
    kernel = op.kernel(statics)
    level = None
    needs = 0
    for i, a in enumerate(args):
        if a.__class__ is Tensor:
            if a.requires_grad:
                needs |= 1 << i
        elif isinstance(a, Tensor):
            level = level_of(args)
            needs = requiring(args, level)
            break
    if not (state.grad_enabled and kernel.differentiable and self.dtype in INEXACT):
        needs = 0
    if level is not None:
        check_batched(op, args, level, needs > 0)
    if needs:
        check_inplace(self)
    if self._inference:
        self._bump(0)  # refuses, outside of inference mode
    moving = state.forward_level >= 0 and any(
        isinstance(a, Tensor) and a._moves() for a in (args[:1] if op.overwrites else args)
    )
    node = holder = None
    if moving:
        before, holder = snapshot(self), snapshot(self)
        holder._tangents = None
        _forward(kernel, tuple(before if a is self else a for a in args), (holder,))
    if needs:
        # A view's own edge becomes its base's, by CopySlices.
        node = _record(kernel, needs, args, skip_self=self._view is not None)
        node.inplace = True
        plan = node.plan
        if plan.saved or plan.static:
            save_for_backward(plan, node, (snapshot(self) if 0 in plan.saved else self, *args[1:]), ())
    version = self._version if needs else 0
    inputs = None if node is None else (node.saved, node.versions)
    try:
        if level is None:
            _write(op, kernel, self, [a._read() if isinstance(a, Tensor) else a for a in args[1:]])
        else:
            write_batched(kernel, statics, args, level)
        if node is not None or holder is not None:
            _follow(self, node, inputs, holder)
    except BaseException:
        # An interrupt between a value and its history would leave the gradient of another value.
        if needs and self._version != version:
            try:
                surely(_follow, self, node, inputs, holder)
            except BaseException:
                surely(_follow, self, node, inputs, holder)
        raise
    return self


def _follow(self: Tensor, node: Any, inputs: tuple | None, holder: Tensor | None) -> None:
    """What an in-place operation does when the value is written.  May be done again."""
    if node is not None:
        node.avals = (InputMetadata(self.shape, self.dtype),)
        view = self._view
        if view is None or getattr(view.base._grad_fn, "fn", None) is not node:  # else it has been done
            rebase_history(self, node, relation_of)
    if holder is not None and holder._tangents:
        _write_tangents(self, holder)
    if node is not None and node.plan.saves_result:
        assert inputs is not None
        node.saved, node.versions = inputs
        _save_result(node, self)


def _write(op: Operator, kernel: Kernel, self: Tensor, arrays: list) -> None:
    """The in-place kernel, where the value lives: into the array itself, or through the chain into the root."""
    chain = self._chain
    try:
        if chain is None or chain.is_root:
            self._rewrite(kernel.write, *arrays)
        elif state.trace is not None:
            # Parts of a larger program, which is told apart what is read and what is written (compiler/program.py).
            new = kernel.written(chain.replay(self._held()), *arrays)
            self._rewrite(lambda donate, where=None: chain.writer(False, where), new, *chain.starts)
        else:
            # One program reads the view, computes and writes back; it returns the root and nothing else, for XLA
            # would copy the whole buffer if it did.
            self._rewrite(
                lambda donate, where=None: chain.update(kernel.written, kernel, donate, where), chain.starts, *arrays
            )
    except Exception as error:
        op.forget(tuple(kernel.statics.values()))
        raise explain(error, op, [self, *arrays]) from error.__cause__


def _save_result(node: Any, self: Tensor) -> None:
    """Save the result of an in-place operation: on a view it belongs to the view's new grad_fn, held weakly."""
    view = self._view
    weak = None if view is None else history_of_view(self, view.base)
    if state.saved_hooks:
        saved = SavedVariable.packed(self, True, weak)
    else:
        saved = SavedVariable(self, True, weak)
    saved._output_nr = 0
    _also_saved(node, (saved,))


def _write_tangents(self: Tensor, holder: Tensor) -> None:
    """Tangents are written in place like the value, so that views of them stay views."""
    level = state.forward_level
    levels = state.forward_level, state.outer_forward_levels
    try:
        outer = to_outer_forward_level()
        if outer >= 0:
            _write_tangents(self, holder)
        new = holder._tangent_at(level)
        if new is None:
            return
        mine = self._tangent_at(level)
        if mine is not None:
            mine.copy_(new)
        else:
            tangent_through_base(self, new.to(self.dtype), level)
    finally:
        state.forward_level, state.outer_forward_levels = levels


def tangent_through_base(self: Tensor, new: Tensor, level: int) -> None:
    """Give a tensor a tangent.  The base of a view gets one too, zero elsewhere, of which the view's is a view."""
    meta = self._view
    if meta is None or meta.__class__ is PrimalMeta:
        self._set_tangent(level, new)
        return
    whole = meta.base._tangent_at(level)
    if whole is None:
        zeros = limits.zeros(meta.base.shape, meta.base.dtype, place_of(meta.base._held()))
        whole = batch_like(from_array(zeros), new)
        meta.base._set_tangent(level, whole)
    tangent = view_along(whole, chain_now(meta), meta.name)
    tangent.copy_(new)
    self._set_tangent(level, tangent)


def call_out(op: Operator, args: tuple, statics: tuple, out: Any) -> Any:
    """The `out=` form: write the result into `out`, which takes the result's shape; several into a tuple of tensors.

    Raises `RuntimeError` if anything requires grad (as PyTorch does) and if the dtype cannot be cast.
    """
    outs = (out,) if op.outputs is None else out
    if not isinstance(outs, (tuple, list)) or not all(isinstance(o, Tensor) for o in outs):
        wanted = "Tensor" if op.outputs is None else f"tuple of {len(op.outputs._fields)} Tensors"
        raise TypeError(f"{op.name}(): argument 'out' must be {wanted}, not {type(out).__name__}")
    if state.grad_enabled and any(isinstance(a, Tensor) and a.requires_grad for a in (*args, *outs)):
        raise RuntimeError(
            f"{op.name}(): functions with out=... arguments don't support automatic differentiation, but one of the "
            "arguments requires grad."
        )
    if state.forward_level >= 0 and any(isinstance(a, Tensor) and a._moves() for a in (*args, *outs)):
        raise NotImplementedError(
            f"Trying to use forward AD with {op.name}_out that does not support it because it is an out= function: "
            f"call {op.name}() without out, and copy_() its result."
        )
    result = call(op, args, statics)
    if op.outputs is None:
        return write_out(op.name, result, out)
    if len(outs) != len(result):
        raise TypeError(f"{op.name}(): argument 'out' must be a tuple of {len(result)} Tensors, but has {len(outs)}")
    return op.outputs(*[write_out(op.name, r, o) for r, o in zip(result, outs, strict=True)])


def write_out(name: str, result: Tensor, out: Tensor) -> Tensor:
    """Write `result` into `out`, resizing `out` if its shape is another (a warning tells, unless it was empty)."""
    if dtypes.category(result.dtype) > dtypes.category(out.dtype):
        names = [dtypes.TORCH_NAMES.get(d, d.name) for d in (result.dtype, out.dtype)]
        raise RuntimeError(f"result type {names[0]} can't be cast to the desired output type {names[1]} ({name}, out=)")
    if out.shape != result.shape:
        if 0 not in out.shape and out.shape != (0,):
            import warnings

            warnings.warn(
                f"An output with one or more elements was resized since it had shape {list(out.shape)}, which does not "
                f"match the required output shape {list(result.shape)}. Pass an `out` of the right shape.",
                stacklevel=3,
            )
        out._array = limits.zeros(result.shape, out.dtype, _place_for(out, result))
        out._storage, out._owned = None, True
        out._chain = None  # pyright: ignore[reportAttributeAccessIssue] - as in the class: it goes with _storage
    return out.copy_(result)


def _place_for(out: Tensor, result: Tensor) -> Any:
    """Where an `out` of another shape is put: on its device; on a mesh, as the result is sharded."""
    place = place_of(out._held())
    return place if place is None or len(place.device_set) == 1 else place_of(result._read())


operator_node.call = batched_tensor.call = call
batched_tensor.call_inplace = call_inplace
declare.call, declare.call_inplace, declare.call_out, declare.is_operand = call, call_inplace, call_out, is_operand
