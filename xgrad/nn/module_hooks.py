"""call_with_hooks: calls a Module with its hooks, and gives backward hooks the gradients of its inputs and outputs.

A full backward hook needs the gradients of the module's inputs *and* of its outputs.  Two identity nodes see them:

    inputs ──► [in] ──► forward ──► [out] ──► outputs           recorded only if a tensor among them requires grad
    hook(grad_input, grad_output) ◄── in    out ──► pre-hooks(grad_output)

When `out` has run, its gradients are stored; when `in` has, the hooks get both.  Without an input that requires grad
the hooks run at `out`.  (PyTorch: torch/utils/hooks.py, BackwardHook.)
"""

import warnings
import weakref
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from ..autograd.function import Function
from ..config import state
from ..engine.hooks import RemovableHandle, register
from ..tensor import Tensor


class ModuleHook:
    """Puts a module in front of a hook's arguments.  It refers weakly to it, and its deep copy to the module's copy."""

    def __init__(self, hook: Callable[..., Any], module: Any) -> None:
        self.hook: Callable[..., Any] = hook
        self._module: Callable[[], Any] = weakref.ref(module)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        module = self._module()
        if module is None:
            raise RuntimeError("the module of this hook does not exist any more")
        return self.hook(module, *args, **kwargs)

    def __getstate__(self) -> dict[str, Any]:
        return {"hook": self.hook, "module": self._module()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.hook, self._module = state["hook"], weakref.ref(state["module"])


def registered(hooks: Any, hook: Any, prepend: bool = False, **flags: Any) -> RemovableHandle:
    """Add a hook to an ordered dictionary, at its end or its beginning, and its id to the dictionaries `flags`.

    Raises `TypeError` if the hook cannot be called.
    """
    handle = register(hooks, hook, *flags.values())
    if prepend:
        hooks.move_to_end(handle.id, last=False)
    return handle


# {kind: hooks of all modules}; `Module.__call__` looks into ANY, {id: kind}, only.
ANY: dict[int, str] = OrderedDict()
GLOBAL: dict[str, dict[int, Any]] = {
    kind: OrderedDict()
    for kind in ("forward_pre", "forward", "with_kwargs", "always_called", "backward_pre", "backward", "old_backward")
}


def call_with_hooks(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call `module.forward(*args, **kwargs)` with the module's hooks around it."""
    call = _Call(module, args, kwargs)
    try:
        return call.run()
    except Exception:
        call.run_those_always_called()
        raise


class _Call:
    """One call of a module with hooks."""

    def __init__(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.module, self.args, self.kwargs = module, args, kwargs
        self.result: Any = None
        self.called: set[int] = set()

    def run(self) -> Any:
        module = self.module
        for number, pre in (*GLOBAL["forward_pre"].items(), *module._forward_pre_hooks.items()):
            self._before(number, pre)
        watch = None
        old = [*GLOBAL["old_backward"].values()]
        full = [*GLOBAL["backward"].values()]
        (old if module._is_full_backward_hook is False else full).extend(module._backward_hooks.values())
        pre_hooks = (*GLOBAL["backward_pre"].values(), *module._backward_pre_hooks.values())
        if full or pre_hooks:
            watch = _Watch(module, tuple(full), pre_hooks)
            self.args = watch.inputs(self.args)
        self.result = module.forward(*self.args, **self.kwargs)
        for number, hook in (*GLOBAL["forward"].items(), *module._forward_hooks.items()):
            self.called.add(number)
            self._after(number, hook)
        if watch is not None:
            if not isinstance(self.result, (Tensor, tuple)):
                warnings.warn(
                    "For backward hooks to be called, module output should be a Tensor or a tuple of Tensors but "
                    f"received {type(self.result)}",
                    stacklevel=4,
                )
            self.result = watch.outputs(self.result)
        if old:
            _watch_node(module, old, self.result)
        return self.result

    def _before(self, number: int, hook: Callable[..., Any]) -> None:
        if number not in self.module._forward_pre_hooks_with_kwargs:
            new = hook(self.module, self.args)
            if new is not None:
                self.args = new if isinstance(new, tuple) else (new,)
            return
        new = hook(self.module, self.args, self.kwargs)
        if new is not None:
            if not (isinstance(new, tuple) and len(new) == 2):
                raise RuntimeError(
                    f"forward pre-hook must return None or a tuple of (new_args, new_kwargs), but got {new}."
                )
            self.args, self.kwargs = new

    def _after(self, number: int, hook: Callable[..., Any]) -> None:
        with_kwargs = number in self.module._forward_hooks_with_kwargs or number in GLOBAL["with_kwargs"]
        named = (self.kwargs,) if with_kwargs else ()
        new = hook(self.module, self.args, *named, self.result)
        if new is not None:
            self.result = new

    def run_those_always_called(self) -> None:
        """Run the hooks with `always_call` after an error, which is raised again: their own errors become warnings."""
        always = {*GLOBAL["always_called"], *self.module._forward_hooks_always_called}
        for number, hook in (*GLOBAL["forward"].items(), *self.module._forward_hooks.items()):
            if number in always and number not in self.called:
                try:
                    self._after(number, hook)
                except Exception as error:
                    warnings.warn(
                        "module forward hook with ``always_call=True`` raised an exception that was silenced as "
                        f"another error was raised in forward: {error}",
                        stacklevel=4,
                    )


def _watch_node(module: Any, hooks: list[Callable[..., Any]], result: Any) -> None:
    """Register hooks of the old kind on the node of the first tensor of a result."""
    while not isinstance(result, Tensor):
        result = next(v for v in result.values() if isinstance(v, Tensor)) if isinstance(result, dict) else result[0]
    if result.grad_fn is not None:
        for hook in hooks:
            result.grad_fn.register_hook(ModuleHook(hook, module))


class BackwardHookFunction(Function):
    """The identity, recorded: the node that sees a module's gradients."""

    @staticmethod
    def forward(ctx: Any, *tensors: Any) -> Any:
        """Return the tensors themselves."""
        ctx.mark_non_differentiable(*[t for t in tensors if not t.requires_grad])
        return tensors

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """Return the gradients themselves."""
        return grads


_NODE = "BackwardHookFunctionBackward"


class _Watch:
    """The gradients of one call of a module, and the hooks that were registered when it was called."""

    def __init__(self, module: Any, hooks: tuple[Any, ...], pre_hooks: tuple[Any, ...]) -> None:
        self.module, self.hooks, self.pre_hooks = module, hooks, pre_hooks
        self.grad_outputs: tuple[Any, ...] | None = None
        self.input_places: list[int] | None = None  # of the tensors, None if nothing was recorded
        self.output_places: list[int] = []
        self.n_inputs = self.n_outputs = 0

    def inputs(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        self.n_inputs = len(args)
        new, self.input_places, node = _through_node(args)
        if node is not None:
            node.register_hook(self._at_inputs)
        return new

    def outputs(self, result: Any) -> Any:
        values = result if isinstance(result, tuple) else (result,)
        self.n_outputs = len(values)
        new, places, node = _through_node(values)
        if node is not None:
            self.output_places = places or []
            node.register_hook(self._at_outputs)
        return new if isinstance(result, tuple) else new[0]

    def _at_outputs(self, _: Any, grads: tuple) -> tuple:
        outputs: Any = _spread(self.output_places, grads, self.n_outputs)
        for hook in self.pre_hooks:
            outputs = _replaced(outputs, hook(self.module, outputs), "Backward pre hook", "grad_output")
        if self.input_places is not None:
            self.grad_outputs = outputs
        else:
            self._without_inputs(outputs)
        return tuple(outputs[i] for i in self.output_places)

    def _without_inputs(self, grad_outputs: tuple) -> None:
        warnings.warn(
            "Full backward hook is firing when gradients are computed with respect to module outputs since no inputs "
            "require gradients: its grad_input is None for all of them.",
            stacklevel=5,
        )
        for hook in self.hooks:
            new = hook(self.module, (None,) * self.n_inputs, grad_outputs)
            if new is not None and not (isinstance(new, tuple) and all(g is None for g in new)):
                raise RuntimeError(
                    "Backward hook for Modules where no input requires gradient should always return None or None for "
                    "all gradients."
                )

    def _at_inputs(self, grads: tuple, _: Any) -> tuple | None:
        if self.grad_outputs is None:  # the gradient came to the inputs past the outputs, as in double backward
            return None
        inputs: Any = _spread(self.input_places or [], grads, self.n_inputs)
        for hook in self.hooks:
            inputs = _replaced(inputs, hook(self.module, inputs, self.grad_outputs), "Backward hook", "grad_input")
        self.grad_outputs = None
        return tuple(inputs[i] for i in self.input_places or [])


def _as_tuple(value: Any) -> Any:
    return (value,) if isinstance(value, Tensor) else value


def _replaced(grads: Any, new: Any, hook: str, name: str) -> Any:
    """Return what a hook gave in place of the gradients, or these.  Raises `RuntimeError` for another number."""
    if new is None:
        return grads
    new = _as_tuple(new)
    if len(new) != len(grads):
        raise RuntimeError(f"{hook} returned an invalid number of {name}, got {len(new)}, but expected {len(grads)}")
    return new


def _spread(places: list[int], values: tuple, n: int) -> tuple:
    """Return the values in their places among `n`, None elsewhere."""
    spread: list[Any] = [None] * n
    for place, value in zip(places, values, strict=True):
        spread[place] = value
    return tuple(spread)


def _through_node(values: tuple) -> tuple[Any, list[int] | None, Any]:
    """Return (the values, with their tensors behind one node; the tensors' places; the node, None if not recorded)."""
    places = [i for i, v in enumerate(values) if isinstance(v, Tensor)]
    if not state.grad_enabled or not any(values[i].requires_grad for i in places):
        return values, None, None
    seen = BackwardHookFunction.apply(*(values[i] for i in places))
    new = list(values)
    for i, tensor in zip(places, seen, strict=True):
        new[i] = tensor
    node = next(t.grad_fn for t in seen if t.grad_fn is not None and t.grad_fn.name() == _NODE)
    return (tuple(new) if type(values) is tuple else type(values)(*new)), places, node
