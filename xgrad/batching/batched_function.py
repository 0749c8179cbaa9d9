"""apply_batched: runs a user's autograd.Function in vmap, by its `vmap` method or by mapping forward, backward and jvp.

The rule runs one level down, where the operators that it calls are recorded; at the level of the entries the Function
is recorded as itself, with its own backward (PyTorch: torch/_functorch/autograd_function.py).
"""

from typing import Any, NamedTuple

from ..config import state
from ..engine.python_function import FunctionCtx, run_function
from ..tensor import Tensor
from .batched_tensor import VmapLevel, add_batch, at_level, in_level, remove_batch, wrap
from .trees import flatten, spread, unflatten


class VmapInfo(NamedTuple):
    """The argument of a `vmap` staticmethod: batch size and randomness of the vmap."""

    batch_size: int
    randomness: str


class _AtLevel:
    """The Function for the entries of a batch: its forward is the rule, one level down."""

    def __init__(self, function: Any, base: Any, level: VmapLevel, modes: tuple[Any, ...]) -> None:
        self._function, self._base, self._level, self._modes = function, base, level, modes
        self._backward_cls, self.jvp, self.__name__ = function._backward_cls, function.jvp, function.__name__

    def forward(self, *args: Any) -> Any:
        """Return the outputs for the entries."""
        inner = state.grad_enabled, state.forward_level, state.outer_forward_levels, state.vmap_levels
        state.grad_enabled, state.forward_level, state.outer_forward_levels = self._modes  # for recording below
        state.vmap_levels = inner[3][: self._level.depth - 1]
        try:
            return _one_level_down(self._function, self._base, self._level, args)
        finally:
            state.grad_enabled, state.forward_level, state.outer_forward_levels, state.vmap_levels = inner


def apply_batched(
    function: Any, base: Any, args: tuple[Any, ...], kwargs: dict[Any, Any], setup_context: Any, level: VmapLevel
) -> Any:
    """Run `function.apply` with an argument that is an entry of the batch of `level`.

    `base`: the class `autograd.Function`, whose methods are those that `function` does not override.
    Raises `RuntimeError` for a Function without a rule, or with two.
    """
    name = function.__name__
    if any(isinstance(value, Tensor) for value in kwargs.values()):
        raise NotImplementedError(
            f"Run vmap on autograd.Function with kwarg-only Tensor args: {name} got {sorted(kwargs)}. Please do not "
            "pass kwarg-only Tensors to autograd.Function."
        )
    overridden = function.vmap is not base.vmap
    if function.generate_vmap_rule and overridden:
        raise RuntimeError(
            f"You tried to vmap over {name}, but it has both generate_vmap_rule=True and an overridden vmap "
            "staticmethod. Please set generate_vmap_rule=False or delete the overridden vmap staticmethod."
        )
    if not (function.generate_vmap_rule or overridden):
        raise RuntimeError(
            f"You tried to vmap over {name}, but it does not have vmap support. Please override and implement the vmap "
            "staticmethod or set generate_vmap_rule=True."
        )
    if setup_context is None and overridden:
        raise RuntimeError(
            "In order to use an autograd.Function with functorch transforms (vmap, grad, jvp, jacrev, ...), it must "
            f"override the setup_context staticmethod, and {name} does not."
        )
    if setup_context is None:
        setup_context = _set_up_by_forward(function)
    modes = state.grad_enabled, state.forward_level, state.outer_forward_levels
    at = _AtLevel(function, base, level, modes)
    return run_function(at, args, kwargs, setup_context)


def _set_up_by_forward(function: Any) -> Any:
    """Make a setup_context for a Function whose forward takes `ctx`: it runs forward once more, on the entries."""

    def setup_context(ctx: Any, inputs: tuple, output: Any) -> None:
        function.forward(ctx, *inputs)

    return setup_context


def _one_level_down(function: Any, base: Any, level: VmapLevel, args: tuple) -> Any:
    leaves, structure = flatten(args)
    dims = [0 if at_level(a, level) and a._batched else None for a in leaves]
    values = [a._value if at_level(a, level) else a for a in leaves]
    if not any(d == 0 for d in dims):
        outputs, places = function.apply(*unflatten(structure, values)), None
    elif function.generate_vmap_rule:
        mapped = _mapped(function, base, VmapInfo(level.size, level.randomness), dims, structure)
        outputs = mapped.apply(*values)
        places = mapped.out_dims
    else:
        info = VmapInfo(level.size, level.randomness)
        result = function.vmap(info, unflatten(structure, dims), *unflatten(structure, values))
        outputs, places = _two(result)
    return _wrapped(outputs, places, values, leaves, level)


def _two(result: Any) -> tuple[Any, Any]:
    start = (
        "Expected the vmap staticmethod to have two returns, an output and out_dims with pytree structure compatible "
        "with the output. "
    )
    if not isinstance(result, tuple):
        raise RuntimeError(f"{start}Got a {type(result)} instead")
    if len(result) != 2:
        raise RuntimeError(f"{start}Got {len(result)} returns instead")
    return result


def _wrapped(outputs: Any, out_dims: Any, values: list, originals: list, level: VmapLevel) -> Any:
    """Return the outputs of a rule as entries; an output that is an input stays that input."""
    leaves, structure = flatten(outputs)
    dims = spread(out_dims, outputs)
    if dims is None:
        raise RuntimeError(
            "The autograd.Function's vmap staticmethod returned an incompatible (output, out_dims) tuple. Expected "
            f"out_dims={out_dims} to be compatible with the structure of `output`. out_dims has structure "
            f"{flatten(out_dims)[1]} but output has structure {structure}."
        )
    known = {id(v): o for v, o in zip(values, originals, strict=True)}
    found = []
    for leaf, d in zip(leaves, dims, strict=True):
        if not isinstance(leaf, Tensor):
            found.append(leaf)
        elif id(leaf) in known:
            found.append(known[id(leaf)])
        else:
            found.append(wrap(leaf, level, False) if d is None else add_batch(leaf, d % leaf.ndim, level))
    return unflatten(structure, found)


# -- the generated rule -----------------------------------------------------------------------------------------------


class _InnerCtx(FunctionCtx):
    """The `ctx` that the user's Function sees while it is mapped; the real one takes over the tensors that it saves."""

    saved_tensors: tuple[Any, ...] = ()
    needs_input_grad: tuple[Any, ...] = ()


def _mapped(function: Any, base: Any, info: VmapInfo, in_dims: list, structure: Any) -> Any:
    """Make a Function over whole batches, whose forward, backward and jvp are the ones of `function`, mapped."""

    def opened(body: Any) -> Any:
        return in_level(body, *info)

    def entries(values: Any, dims: list, level: VmapLevel) -> list:
        return [v if d is None or v is None else wrap(v, level) for v, d in zip(values, dims, strict=True)]

    def lowered(values: Any, level: VmapLevel) -> tuple[list, list]:
        """Return the values of entries one level down, and their batch dimensions."""
        below = [v._value if at_level(v, level) else v for v in values]
        return below, [0 if at_level(v, level) and v._batched else None for v in values]

    def forward(ctx: Any, *values: Any) -> Any:
        def body(level: VmapLevel) -> Any:
            given = unflatten(structure, entries(values, in_dims, level))
            inner = ctx.inner = _InnerCtx()
            inner.needs_input_grad = ctx.needs_input_grad
            if function.setup_context is base.setup_context:
                outputs = function.forward(inner, *given)
            else:
                outputs = function.forward(*given)
                function.setup_context(inner, given, outputs)
            leaves, made = flatten(outputs)
            below, ctx.out_dims = lowered(leaves, level)
            Mapped.out_dims = unflatten(made, ctx.out_dims)
            saved, ctx.saved_dims = lowered(inner.to_save or (), level)
            ctx.save_for_backward(*saved)
            for_forward, ctx.forward_dims = lowered(inner.saved_for_forward or (), level)
            ctx.save_for_forward(*for_forward)
            ctx.mark_dirty(*lowered(inner.dirty_tensors or (), level)[0])
            ctx.mark_non_differentiable(*lowered(inner.non_differentiable or (), level)[0])
            ctx.set_materialize_grads(inner.materialize_grads)
            inner.to_save = inner.saved_for_forward = inner.dirty_tensors = inner.non_differentiable = None
            return unflatten(made, below)

        return opened(body)

    def backward(ctx: Any, *grads: Any) -> Any:
        def body(level: VmapLevel) -> Any:
            inner = ctx.inner
            inner.saved_tensors = tuple(entries(ctx.saved_tensors, ctx.saved_dims, level))
            try:
                results = function.backward(inner, *entries(grads, ctx.out_dims, level))
            finally:
                inner.saved_tensors = ()
            results = results if isinstance(results, tuple) else (results,)
            return (
                tuple(_of_input(r, d, level) for r, d in zip(results, in_dims, strict=False)) + results[len(in_dims) :]
            )

        return opened(body)

    def jvp(ctx: Any, *tangents: Any) -> Any:
        def body(level: VmapLevel) -> Any:
            inner = ctx.inner
            dims = ctx.forward_dims or ctx.saved_dims
            inner.saved_tensors = tuple(entries(ctx.saved_tensors, dims, level))
            try:
                results = function.jvp(inner, *entries(tangents, in_dims, level))
            finally:
                inner.saved_tensors = ()
            results = results if isinstance(results, tuple) else (results,)
            return tuple(
                r if r is None or d is None else remove_batch(r, 0, level)
                for r, d in zip(results, ctx.out_dims, strict=True)
            )

        return opened(body)

    body = {"forward": forward, "backward": backward, "jvp": jvp}
    Mapped: Any = type(function)(
        f"Vmapped{function.__name__}", (base,),
        {k: staticmethod(v) for k, v in body.items()} | {"generate_vmap_rule": True},
    )  # fmt: skip
    return Mapped


def _of_input(grad: Any, dim: int | None, level: VmapLevel) -> Any:
    """Return the gradient of a batch; for an input that is the same for all entries, the sum over them."""
    if grad is None:
        return None
    if dim is not None:
        return remove_batch(grad, 0, level)
    if not at_level(grad, level):
        return grad
    return grad._value.sum(0) if grad._batched else grad._value
