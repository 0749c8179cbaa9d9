"""Activation checkpointing: backward computes values again instead of saving them (PyTorch: torch/utils/checkpoint.py).

Two variants, as in PyTorch.  The one to use (use_reentrant=False) records the function's graph and replaces saved
tensors by recomputation; it works with every way of asking for gradients (see recompute.py).  The old one
(use_reentrant=True) runs the function unrecorded, and again with a `backward` of its own inside of backward.
"""

import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from functools import partial
from typing import Any

from ..autograd.backward import backward
from ..autograd.function import Function
from ..base.jax_compat import Tracer
from ..base.missing import close_namespace as _close_namespace
from ..base.platforms import default_platform
from ..config import Block, block, state
from ..dispatch.autocasting import use_casts
from ..random import draw_again, note_drawn
from ..tensor import Tensor
from .recompute import CheckpointError, after, metadata, run_checkpointed
from .selective import (
    CheckpointPolicy,
    SelectiveCheckpointContext,
    create_selective_checkpoint_contexts,
    logging_contexts,
    told,
)

__all__ = [
    "checkpoint", "checkpoint_sequential", "CheckpointError", "CheckpointFunction", "check_backward_validity",
    "detach_variable", "get_device_states", "set_device_states", "noop_context_fn", "set_checkpoint_early_stop",
    "DefaultDeviceType", "set_checkpoint_debug_enabled", "CheckpointPolicy", "SelectiveCheckpointContext",
    "create_selective_checkpoint_contexts", "GraphExecGroup",
]  # fmt: skip

_CHECKS: dict[str, Callable | None] = {"default": metadata, "none": None}


class _Overrides:
    """The settings of the two context managers below, for the process as in PyTorch; None leaves them to each call."""

    early_stop: bool | None = None
    debug: bool | None = None


def noop_context_fn() -> tuple[Any, Any]:
    """Return two context managers that do nothing: the default `context_fn`."""
    return nullcontext(), nullcontext()


@block
def set_checkpoint_early_stop(enable: bool) -> Iterator[None]:
    """Let checkpoints made in the block stop recomputing once they have the values that backward needs, or not.

    It overrides their argument `early_stop`, and need not be active in backward.
    """
    before, _Overrides.early_stop = _Overrides.early_stop, enable
    try:
        yield
    finally:
        _Overrides.early_stop = before


@block
def set_checkpoint_debug_enabled(enabled: bool | None) -> Iterator[None]:
    """Let checkpoints made in the block log their operators for error messages, or not; None: as their `debug` says."""
    before, _Overrides.debug = _Overrides.debug, enabled
    try:
        yield
    finally:
        _Overrides.debug = before


def _variant(use_reentrant: bool | None, name: str) -> bool:
    """Return `use_reentrant`; without it False, with a warning at the caller of the function `name`."""
    if use_reentrant is not None:
        return use_reentrant
    warnings.warn(
        f"xgrad.utils.{name}: the use_reentrant parameter should be passed explicitly. Without it you get "
        "use_reentrant=False, which is recommended; PyTorch would take True.",
        stacklevel=3,
    )
    return False


def checkpoint(
    function: Callable[..., Any],
    *args: Any,
    use_reentrant: bool | None = None,
    context_fn: Callable[[], tuple[Any, Any]] = noop_context_fn,
    determinism_check: str = "default",
    debug: bool = False,
    early_stop: bool = True,
    **kwargs: Any,
) -> Any:
    """Return `function(*args, **kwargs)`, saving its inputs for backward but not its intermediate values.

    Backward runs the function again.  Memory falls from all values that the function saves to its inputs, at the cost
    of one more run of it.  Under `jax.jit` too: pass activations as arguments (in tuples, lists and dictionaries if you
    like), not through a closure, because XLA merges the recomputation with the first run unless the inputs prevent it.

    The function has to do the same both times.  Random numbers are the same unless `preserve_rng_state=False`, from any
    generator (PyTorch does so for its default generators only).

    With `use_reentrant=False`:

    * `context_fn` returns two context managers, for the run and for the recomputation (see
      `create_selective_checkpoint_contexts`);
    * `determinism_check` "default" compares shape, dtype and device of saved and recomputed tensors, "none" compares
      only their number; `debug=True` adds the operators of both runs to the error;
    * `early_stop` ends a recomputation once it has all values that backward needs.

    With `use_reentrant=True` tensors inside of containers get no gradient, and only `backward()` without `inputs=`
    works.  Without `use_reentrant` there is a warning, as in PyTorch, and the variant that it recommends, False.

    Raises `CheckpointError` in backward if the recomputation saves other tensors, `ValueError` for arguments that the
    variant does not have.

    >>> import xgrad
    >>> from xgrad.utils.checkpoint import checkpoint
    >>> x = xgrad.tensor([1.0, 2.0], requires_grad=True)
    >>> y = checkpoint(lambda x: (x * x).exp(), x, use_reentrant=False)
    >>> y.sum().backward()
    >>> x.grad
    tensor([  5.4366, 218.3926])
    """
    use_reentrant = _variant(use_reentrant, "checkpoint")
    preserve = kwargs.pop("preserve_rng_state", True)
    if use_reentrant:
        if kwargs:
            raise ValueError("Unexpected keyword arguments: " + ",".join(kwargs))
        if context_fn is not noop_context_fn or debug is not False:
            raise ValueError("Passing `context_fn` or `debug` is only supported when use_reentrant=False.")
        return CheckpointFunction.apply(function, preserve, *args)
    debugging = debug if _Overrides.debug is None else _Overrides.debug
    if debugging and context_fn is not noop_context_fn:
        raise ValueError("debug=True is incompatible with non-default context_fn")
    if determinism_check not in _CHECKS:
        raise ValueError(f"determinism_check should be one of {list(_CHECKS)}, but got {determinism_check}")
    contexts = logging_contexts() if debugging else context_fn()
    return run_checkpointed(
        function,
        args,
        kwargs,
        contexts=contexts,
        preserve_rng_state=preserve,
        early_stop=early_stop if _Overrides.early_stop is None else _Overrides.early_stop,
        describe=_CHECKS[determinism_check],
        explain=partial(told, contexts=contexts) if debugging else None,
    )


def checkpoint_sequential(
    functions: Any, segments: int, input: Any, use_reentrant: bool | None = None, **kwargs: Any
) -> Any:
    """Run functions one after the other (a list, or an `nn.Sequential`) in `segments` parts, each a `checkpoint`.

    The last part is not checkpointed: backward needs its values at once.
    Raises `ValueError` for keyword arguments other than `preserve_rng_state`.

    >>> import xgrad
    >>> from xgrad.utils.checkpoint import checkpoint_sequential
    >>> x = xgrad.ones(2, requires_grad=True)
    >>> checkpoint_sequential([xgrad.exp, xgrad.sin, xgrad.cos], 2, x, use_reentrant=False).sum().backward()
    >>> x.grad
    tensor([0.9897, 0.9897])
    """
    use_reentrant = _variant(use_reentrant, "checkpoint.checkpoint_sequential")
    preserve = kwargs.pop("preserve_rng_state", True)
    if kwargs:
        raise ValueError("Unexpected keyword arguments: " + ",".join(kwargs))
    functions = list(functions.children() if hasattr(functions, "children") else functions)

    def part(start: int, stop: int) -> Callable:
        def run(value: Any) -> Any:
            for function in functions[start:stop]:
                value = function(value)
            return value

        return run

    size = len(functions) // segments
    for start in range(0, size * (segments - 1), size):
        input = checkpoint(part(start, start + size), input, use_reentrant=use_reentrant, preserve_rng_state=preserve)
    return part(size * (segments - 1), len(functions))(input)


class CheckpointFunction(Function):
    """The reentrant variant: `CheckpointFunction.apply(function, preserve_rng_state, *args)`."""

    @staticmethod
    def forward(ctx: Any, run_function: Callable[..., Any], preserve_rng_state: bool, *args: Any) -> Any:
        """Run the function unrecorded; save its arguments."""
        check_backward_validity(args)
        ctx.run_function = run_function
        ctx.inputs = [None if isinstance(a, Tensor) else a for a in args]
        ctx.tensor_indices = [i for i, a in enumerate(args) if isinstance(a, Tensor)]
        ctx.save_for_backward(*(args[i] for i in ctx.tensor_indices))
        ctx.generator, ctx.drawn, ctx.autocast = state.generator, None, state.autocast
        # Modes are restored by assignments: the end of a `with` block may be interrupted before it begins.
        modes = state.grad_enabled, state.random_log
        try:
            state.grad_enabled = False
            if not preserve_rng_state:
                return run_function(*args)
            ctx.drawn = state.random_log = {}
            return run_function(*args)
        finally:
            state.grad_enabled, state.random_log = modes
            if ctx.drawn is not None:
                note_drawn(ctx.drawn)

    @staticmethod
    def backward(ctx: Any, *args: Any) -> Any:
        """Run the function again, recorded, and a backward through it."""
        if state.graph_task.exec_info:
            raise RuntimeError(
                "When use_reentrant=True, xgrad.utils.checkpoint is incompatible with .grad() or passing an `inputs` "
                "parameter to .backward(). Either set use_reentrant=False, or call .backward() without `inputs`."
            )
        inputs = list(ctx.inputs)
        for i, tensor in zip(ctx.tensor_indices, ctx.saved_tensors, strict=True):
            inputs[i] = tensor
        arrived = next((a for a in args if isinstance(a, Tensor) and isinstance(a._read(), Tracer)), None)
        if arrived is not None and arrived.numel():
            inputs = after(inputs, arrived._read())
        detached = detach_variable(tuple(inputs))
        modes = (
            state.grad_enabled, state.random_again, state.random_log, state.generator,
            state.autocast, state.autocast_casts, state.autocast_nesting,
        )  # fmt: skip
        try:
            if ctx.drawn is not None:
                draw_again(ctx.drawn, ctx.generator)
            state.grad_enabled = not state.inference
            use_casts(ctx.autocast)
            outputs = ctx.run_function(*detached)
        finally:
            (
                state.grad_enabled, state.random_again, state.random_log, state.generator,
                state.autocast, state.autocast_casts, state.autocast_nesting,
            ) = modes  # fmt: skip
        if isinstance(outputs, Tensor):
            outputs = (outputs,)
        pairs = [(o, g) for o, g in zip(outputs, args, strict=False) if isinstance(o, Tensor) and o.requires_grad]
        if not pairs:
            raise RuntimeError("none of output has requires_grad=True, this checkpoint() is not necessary")
        backward([o for o, _ in pairs], [g for _, g in pairs])
        return (None, None, *(a.grad if isinstance(a, Tensor) else None for a in detached))


def detach_variable(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the tuple with its tensors as leaves that require grad as before.  Raises `RuntimeError` for another value
    than a tuple."""
    if not isinstance(inputs, tuple):
        raise RuntimeError(f"Only tuple of tensors is supported. Got Unsupported input type: {type(inputs).__name__}")
    return tuple(a.detach().requires_grad_(a.requires_grad) if isinstance(a, Tensor) else a for a in inputs)


def check_backward_validity(inputs: Iterable[Any]) -> None:
    """Warn if none of the inputs requires grad."""
    if not any(a.requires_grad for a in inputs if isinstance(a, Tensor)):
        warnings.warn("None of the inputs have requires_grad=True. Gradients will be None", stacklevel=2)


class DefaultDeviceType:
    """The device type for which PyTorch stores the states of random generators.

    Here it is stored without effect: a key gives the same numbers on every device, so devices have no states.
    """

    _default_device_type: str | None = None

    @staticmethod
    def set_device_type(device: str = "cuda") -> None:
        """Set the device type."""
        DefaultDeviceType._default_device_type = device

    @staticmethod
    def get_device_type() -> str:
        """Return the device type, by default JAX's default platform."""
        return DefaultDeviceType._default_device_type or default_platform()


def get_device_states(*args: Any) -> tuple[list[int], list[Tensor]]:
    """Return the states of random generators that belong to the arguments' devices: none (see `DefaultDeviceType`)."""
    return [], []


def set_device_states(devices: list[int], states: list[Tensor], *, device_type: str | None = None) -> None:
    """Do nothing: devices have no states (see `DefaultDeviceType`)."""


class GraphExecGroup(Block):
    """Backward calls in the block recompute each checkpoint (use_reentrant=False) once between them.

    They must run through parts of the graph that do not overlap, even with `retain_graph=True`.
    Raises `RuntimeError` when it is nested.
    """

    def __enter__(self) -> "GraphExecGroup":
        if state.graph_exec_group is not None:
            raise RuntimeError(
                f"GraphExecGroup contexts cannot be nested. Already inside group {state.graph_exec_group}"
            )
        self._will_restore("graph_exec_group")
        state.graph_exec_group = self
        return self

    @classmethod
    def _get_current_group(cls) -> "GraphExecGroup | None":
        return state.graph_exec_group


_close_namespace(__name__)
