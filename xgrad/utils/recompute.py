"""run_checkpointed: runs a function for `checkpoint(use_reentrant=False)`, and again in backward for its saved tensors.

    forward                                   backward runs a node of the block
    each saved tensor ──pack──► Holder        unpack(holder): run the function once more on the saved inputs;
    inputs ──► SavedVariables                 the i-th tensor that it saves belongs to the i-th holder

Invariants:

* The innermost checkpoint manages a saved tensor; its *inputs* are saved like any tensor, so that a checkpoint around
  it manages them.  To unpack one tensor, all checkpoints that were open when it was saved recompute, outermost first.
* Recomputed values belong to one run of the engine.  Each goes when it is unpacked, when the node that saved it is
  released, or when that run ends, whichever is first; a second backward recomputes again.
* Nothing here refers to a node or a result of the block: the hooks lead to the `Frame`, and the frame to inputs.

Under a JAX trace, XLA would merge a recomputation with the original, and nothing would be saved.  So there the inputs
of the recomputation are made to depend on a gradient that has arrived (`after`); an optimization barrier, which is what
`jax.checkpoint` uses, is gone on XLA's CPU before equal computations are merged.

PyTorch: torch/utils/checkpoint.py.
"""

import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import jax
import jax.numpy as jnp

from ..autograd.graph import saved_tensors_hooks
from ..base.jax_compat import Tracer
from ..config import state
from ..dispatch.autocasting import use_casts
from ..engine.edges import attach_edge, gradient_edge
from ..engine.saved_variable import SavedVariable, Stopped, plain_entry
from ..random import draw_again, note_drawn
from ..tensor import Tensor, blank, from_array


class CheckpointError(RuntimeError):
    """The recomputation of a checkpointed function did not save what its first run saved."""


class Holder:
    """Represents one saved tensor in the graph.  It has no value: each recomputation has its own."""

    __slots__ = ("__weakref__",)


class Recomputed:
    """One recomputation: the values that have not been unpacked yet."""

    def __init__(self) -> None:
        self.values: weakref.WeakKeyDictionary[Holder, Any] = weakref.WeakKeyDictionary()
        self.count = 0
        self.different: list[tuple[Any, ...]] = []  # (position, metadata of the saved tensor, of the recomputed one)
        self.unfinished = False  # True if the function was still in its first run, and has gone further this time


class Frame:
    """One call of `checkpoint`."""

    def __init__(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[Any, Any],
        context: Any,
        early_stop: bool,
        describe: Callable[..., Any] | None,
        explain: Callable[..., Any] | None,
    ) -> None:
        self.function = function
        self.args: tuple[Any, ...] = tuple(_saved(a) for a in args)
        self.kwargs: dict[Any, Any] = {name: _saved(a) for name, a in kwargs.items()}
        self.context = context
        self.early_stop = early_stop
        self.describe = describe
        self.explain = explain
        self.holders: list[weakref.ref[Holder]] = []
        self.described: list[Any] = []
        self.complete = False
        self.drawn: dict[Any, Any] | None = None  # the keys that the generators had when the function first used them
        self.generator: Any = state.generator
        self.tracking: str | None = state.tracking
        self.vmap_levels: tuple[Any, ...] = state.vmap_levels
        self.transforms: int = state.transforms
        self.autocast: Any = state.autocast
        # Both have the GraphTask (or GraphExecGroup) as a key, and are dropped with it.
        self.runs: weakref.WeakKeyDictionary[Any, Recomputed] = weakref.WeakKeyDictionary()
        self.arrived: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()

    def name(self) -> str:
        """Return the name for messages of saved variables, whose owner this is."""
        return "checkpoint"

    def pack(self, tensor: Tensor) -> Any:
        """Replace a tensor that the first run saves by a holder."""
        if self.belongs_inside(tensor):
            return _as_it_is(tensor)
        holder = Holder()
        self.holders.append(weakref.ref(holder))
        if self.describe is not None:
            self.described.append(self.describe(tensor))
        return holder

    def belongs_inside(self, tensor: Tensor) -> bool:
        """Return True for an entry of a vmap that the function runs itself: another run has other entries."""
        return tensor._level is not None and tensor._level not in self.vmap_levels

    def unpack(self, holder: Any) -> Tensor:
        """Return the value of one holder, after recomputing all of them if that has not been done."""
        if isinstance(holder, Tensor):
            return holder
        try:
            return self._unpack(holder)
        except CheckpointError as error:
            if self.explain is None:
                raise
            raise CheckpointError(self.explain(error)) from error

    def _unpack(self, holder: Holder) -> Tensor:
        group = state.graph_exec_group
        key = state.graph_task if group is None else group
        run = None if key is None else self.runs.get(key)
        if run is None:
            run = self.recompute()
            if key is not None:
                self.runs[key] = run
        found = run.values.pop(holder, None)
        if found is None:
            overlap = "Under GraphExecGroup, two backward calls must not need the same saved tensor. " if group else ""
            raise CheckpointError(
                "xgrad.utils.checkpoint: Unpack is being triggered for a tensor that was already unpacked once in "
                f"this backward; recomputed tensors are let go as soon as they are used. {overlap}If you read "
                "ctx.saved_tensors in a custom backward, read it only once."
            )
        value, tensor, version = found
        # A tensor that has no place in the graph is returned itself, as PyTorch does.
        return value if tensor is None or tensor._version != version else tensor

    def recompute(self) -> Recomputed:
        """Run the function again, as it was run first."""
        run = Recomputed()
        args, kwargs = self._inputs()
        hooks = _Recording(self, run)
        closed = [level for level in self.vmap_levels if not level.open]
        # Modes are restored by assignments: the end of a `with` block may be interrupted before it begins.
        modes = (
            state.grad_enabled, state.tracking, state.vmap_levels, state.transforms, state.saved_hooks,
            state.autocast, state.autocast_casts, state.autocast_nesting,
            state.random_again, state.random_log, state.generator,
        )  # fmt: skip
        try:
            self._enter(closed)
            with saved_tensors_hooks(hooks.pack, hooks.unpack), suppress(Stopped), self.context:
                self.function(*args, **kwargs)
        finally:
            (
                state.grad_enabled, state.tracking, state.vmap_levels, state.transforms, state.saved_hooks,
                state.autocast, state.autocast_casts, state.autocast_nesting,
                state.random_again, state.random_log, state.generator,
            ) = modes  # fmt: skip
            for level in closed:
                level.open = False
        self._check(run)
        return run

    def _enter(self, closed: list) -> None:
        """Enter the modes of the first run: backward may run in others, and when a vmap of that time has ended."""
        state.grad_enabled, state.tracking = True, self.tracking
        state.vmap_levels, state.transforms = self.vmap_levels, self.transforms
        for level in closed:
            level.open = True
        use_casts(self.autocast)
        if self.drawn is not None:
            draw_again(self.drawn, self.generator)

    def _inputs(self) -> tuple[tuple, dict]:
        args = tuple(a.unpack(self) if isinstance(a, SavedVariable) else a for a in self.args)
        kwargs = {n: a.unpack(self) if isinstance(a, SavedVariable) else a for n, a in self.kwargs.items()}
        gradient = None if state.graph_task is None else self.arrived.get(state.graph_task)
        return (args, kwargs) if gradient is None else after((args, kwargs), gradient)

    def watch(self, outputs: Any, inputs: Any) -> None:
        """Under a trace, store the outputs' gradients when they arrive: the recomputation has to wait for one."""
        given = {id(t) for t in _tensors(inputs)}
        for output in _tensors(outputs):
            if not output.is_leaf and id(output) not in given and isinstance(output._held(), Tracer):
                output.register_hook(self._note)

    def _note(self, grad: Tensor) -> None:
        array = grad._read()
        if array.size and isinstance(array, Tracer):
            self.arrived.setdefault(state.graph_task, array)

    def _check(self, run: Recomputed) -> None:
        """Raise `CheckpointError` unless the recomputed tensors are like the saved ones."""
        if run.unfinished:
            return
        if run.count != len(self.holders):
            raise CheckpointError(
                "xgrad.utils.checkpoint: A different number of tensors was saved during the original forward and "
                f"recomputation.\nNumber of tensors saved during forward: {len(self.holders)}\n"
                f"Number of tensors saved during recomputation: {run.count}.\n{TIP}"
            )
        if run.different:
            lines = "".join(
                f"tensor at position {i}:\nsaved metadata: {_shown(saved)}\nrecomputed metadata: {_shown(now)}\n"
                for i, saved, now in run.different
            )
            raise CheckpointError(
                "xgrad.utils.checkpoint: Recomputed values for the following tensors have different metadata than "
                f"during the forward pass.\n{lines}\n{TIP}"
            )


class _Recording:
    """The hooks of a recomputation.  They give the recomputed graph its values, for a backward inside the function."""

    def __init__(self, frame: Frame, run: Recomputed) -> None:
        self.frame, self.run = frame, run

    def pack(self, tensor: Tensor) -> Any:
        frame, run = self.frame, self.run
        value = _as_it_is(tensor)
        if frame.belongs_inside(tensor):
            return value
        place = run.count
        run.count += 1
        if place >= len(frame.holders):
            if frame.complete:
                raise CheckpointError(
                    "xgrad.utils.checkpoint: trying to save more tensors during recomputation than during the "
                    f"original forward pass, where it saved {len(frame.holders)}.\n{TIP}"
                )
            run.unfinished = True
            return value
        holder = frame.holders[place]()
        if holder is not None:  # else the node that it belonged to is released
            outside = tensor._level is None and not tensor.requires_grad and not tensor._moves()
            run.values[holder] = (value, tensor, tensor._version) if outside else (value, None, 0)
            if frame.describe is not None and not _alike(frame.described[place], now := frame.describe(tensor)):
                run.different.append((place, frame.described[place], now))
        if frame.early_stop and run.count == len(frame.holders):
            raise Stopped
        return value

    def unpack(self, value: Tensor) -> Tensor:
        return value


TIP = (
    "The function has to do the same both times: look for global state that it depends on and changes, and for inputs "
    "that were changed in place.\nTip: To see a more detailed error message, either pass `debug=True` to "
    "`xgrad.utils.checkpoint.checkpoint(...)` or wrap the code with "
    "`with xgrad.utils.checkpoint.set_checkpoint_debug_enabled(True):`, which lists the operators of both runs."
)


def run_checkpointed(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[Any, Any],
    *,
    contexts: tuple[Any, Any],
    preserve_rng_state: bool,
    early_stop: bool,
    describe: Callable[..., Any] | None,
    explain: Callable[..., Any] | None = None,
) -> Any:
    """Run the function; backward recomputes the tensors that it saves."""
    if not state.grad_enabled:
        return function(*args, **kwargs)
    forward_context, recompute_context = contexts
    frame = Frame(function, args, kwargs, recompute_context, early_stop, describe, explain)
    # Modes are restored by assignments: the end of a `with` block may be interrupted before it begins.
    hooks, log = state.saved_hooks, state.random_log
    casts = state.autocast, state.autocast_casts, state.autocast_nesting
    try:
        if casts[0] is not None:
            use_casts(casts[0])
        with saved_tensors_hooks(frame.pack, frame.unpack), forward_context:
            if preserve_rng_state:
                frame.drawn = state.random_log = {}
            outputs = function(*args, **kwargs)
            frame.complete = True
    finally:
        state.saved_hooks, state.random_log = hooks, log
        if casts[0] is not None:
            state.autocast, state.autocast_casts, state.autocast_nesting = casts
        if preserve_rng_state:
            note_drawn(frame.drawn or {})
    if not frame.complete:
        raise RuntimeError(
            "xgrad.utils.checkpoint: the forward context provided by context_fn suppressed an exception raised during "
            "the checkpointed forward. A forward that failed has no value to return."
        )
    frame.watch(outputs, (args, kwargs))
    return outputs


def metadata(tensor: Tensor) -> tuple[Any, ...]:
    """Return the properties that the default determinism check compares: shape, dtype and devices."""
    placed = tensor._placed()
    return tuple(tensor.shape), tensor.dtype, None if placed is None else placed.device_set


def _alike(saved: Any, now: Any) -> bool:
    """Return True if the compared properties are the same; a traced tensor may be on any device."""
    if saved.__class__ is tuple and None in (saved[-1], now[-1]):
        return saved[:-1] == now[:-1]
    return saved == now


def after(inputs: Any, gradient: Any) -> Any:
    """Make `inputs` depend on `gradient`, in a way that XLA cannot fold: it computes their users after the gradient.

    Only activations depend: the tensors with a history; if there are none, those that require no gradient (the data);
    else all.  Weights would be copied for nothing.  Exact for every value of the gradient: 32 bits have at most 32
    ones.
    """
    tensors = _tensors(inputs)
    chosen = [t for t in tensors if not t.is_leaf] or [t for t in tensors if not t.requires_grad] or tensors
    tied = {id(t) for t in chosen}
    first = jax.lax.stop_gradient(gradient[(0,) * gradient.ndim])
    first = first.real if jnp.iscomplexobj(first) else first
    bits = jax.lax.bitcast_convert_type(first, jnp.dtype(f"uint{8 * first.dtype.itemsize}"))
    always = jax.lax.population_count(bits) <= 8 * first.dtype.itemsize

    def tie(tensor: Tensor) -> Tensor:
        if id(tensor) not in tied:
            return tensor
        array = tensor._read()
        twin = from_array(jnp.where(always, array, jnp.zeros_like(array)))
        edge = gradient_edge(tensor)
        if edge[0] is not None:
            attach_edge(twin, edge)
        else:  # a view made under no_grad may require grad without an edge
            twin._requires_grad = tensor.requires_grad
        return twin

    return _mapped(tie, inputs)


def _as_it_is(tensor: Tensor) -> Tensor:
    """Return the value as a tensor outside of the graph, which a later write in the function does not change."""
    if tensor._level is not None:  # inside of vmap
        return plain_entry(tensor)
    value = blank(Tensor)
    value._array, value._owned = tensor._read(), False
    return value


def _saved(value: Any) -> Any:
    return SavedVariable.packed(value, False) if isinstance(value, Tensor) else value


def _mapped(function: Callable, value: Any) -> Any:
    """Return `value` with `function` applied to each tensor in nested tuples, lists and dictionaries."""
    if isinstance(value, Tensor):
        return function(value)
    if isinstance(value, dict):
        return {key: _mapped(function, item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        items = [_mapped(function, item) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return value


def _tensors(value: Any) -> list[Tensor]:
    """Return the tensors in nested tuples, lists and dictionaries."""
    found: list[Tensor] = []
    _mapped(lambda tensor: found.append(tensor) or tensor, value)
    return found


def _shown(described: Any) -> str:
    shape, dtype, devices = described
    where = "traced" if devices is None else ", ".join(sorted(map(str, devices)))
    return f"{{'shape': {list(shape)}, 'dtype': {dtype.name}, 'device': {where}}}"
