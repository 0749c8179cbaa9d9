"""autograd.Function: the base class of operations whose backward users write (PyTorch: torch/autograd/function.py)."""

import functools
import inspect
import warnings
from collections.abc import Callable
from typing import Any

from ..batching.batched_function import apply_batched
from ..batching.batched_tensor import level_of
from ..config import state
from ..engine.error_node import Error, give_history
from ..engine.python_function import BackwardCFunction, FunctionCtx, default_backward, run_function
from ..tensor import Tensor

__all__ = [
    "BackwardCFunction", "Function", "FunctionCtx", "FunctionMeta", "InplaceFunction", "NestedIOFunction",
    "once_differentiable",
]  # fmt: skip


class FunctionMeta(type):
    """Gives each Function the class of its node, `_backward_cls`."""

    _backward_cls: type

    def __init__(cls, name: str, bases: tuple[Any, ...], namespace: dict[Any, Any]) -> None:
        super().__init__(name, bases, namespace)
        cls._backward_cls = type(
            name + "Backward", (BackwardCFunction,), {"_forward_cls": cls, "__module__": cls.__module__}
        )


class Function(FunctionCtx, metaclass=FunctionMeta):
    """Base class of custom operations: static methods `forward` and `backward`, called by `apply`.

    `forward(ctx, *args)` computes with tensors, unrecorded, and saves with `ctx.save_for_backward`; or
    `forward(*args)` together with `setup_context(ctx, inputs, output)`.  `backward(ctx, *grad_outputs)` returns one
    gradient (or None) for each argument of forward; extra trailing Nones are accepted.

    >>> import xgrad
    >>> class Cube(xgrad.autograd.Function):
    ...     @staticmethod
    ...     def forward(ctx, x):
    ...         ctx.save_for_backward(x)
    ...         return x * x * x
    ...     @staticmethod
    ...     def backward(ctx, grad):
    ...         (x,) = ctx.saved_tensors
    ...         return grad * 3 * x * x
    >>> x = xgrad.tensor(2.0, requires_grad=True)
    >>> Cube.apply(x).backward()
    >>> x.grad
    tensor(12.)
    """

    # True: vmap maps forward, backward and jvp themselves.
    generate_vmap_rule = False

    # True: `backward(ctx, grads)` gets the gradients as one list, and may remove those that it has used: they need not
    # live until it ends.
    boxed_grads_call = False

    # True: reading `ctx.saved_tensors` releases them from the node: they can be read once, and backward may free them
    # one by one.
    clear_saved_tensors_on_access = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        warnings.warn(
            f"{type(self)} should not be instantiated. Methods on autograd functions are all static, so you should "
            "invoke them on the class itself.",
            DeprecationWarning,
            stacklevel=2,
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(
            "Legacy autograd function with non-static forward method is deprecated. Please use new-style autograd "
            f"function with static forward method: make forward and backward static, and call {type(self).__name__}"
            ".apply(...)."
        )

    @staticmethod
    def forward(*args: Any, **kwargs: Any) -> Any:
        """Compute the operation's value: `forward(ctx, *args)`, or `forward(*args)` beside a `setup_context`."""
        raise NotImplementedError("You must implement the forward function for custom autograd.Function.")

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> Any:
        """Save tensors, and mark inputs and outputs, for a `forward` without `ctx`."""
        raise NotImplementedError("setup_context is not implemented.")

    backward: Any = staticmethod(default_backward)
    vjp = backward

    @staticmethod
    def jvp(ctx: Any, *grad_inputs: Any) -> Any:
        """Return the tangent of each output, from the tangents of the inputs."""
        raise NotImplementedError(
            "You must implement the jvp function for custom autograd.Function to use it with forward mode AD."
        )

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *args: Any) -> Any:
        """Compute the operation over a batch: return (outputs, their batch dimensions); `in_dims` has the inputs'."""
        raise NotImplementedError(
            "To use autograd.Function with vmap, you must either override the vmap staticmethod or set "
            "generate_vmap_rule=True."
        )

    @classmethod
    def apply(cls, *args: Any, **kwargs: Any) -> Any:
        """Run the operation and record it.

        Keyword arguments are put into the places of forward's parameters.  Raises `TypeError` for one that forward
        does not know, for a place before it without an argument, and for a tensor that requires grad and has no place.
        """
        setup_context = None if cls.setup_context is Function.setup_context else cls.setup_context
        if kwargs or (setup_context is not None and len(args) != _arity(cls.forward)):
            args, kwargs = _bind(cls, args, kwargs, setup_context is not None)
        if state.vmap_levels and (level := level_of(args)) is not None:
            return apply_batched(cls, Function, args, kwargs, setup_context, level)
        recorder = state.recorder
        if recorder is not None:
            return recorder.function(cls, args, lambda: run_function(cls, args, kwargs, setup_context))
        return run_function(cls, args, kwargs, setup_context)


def _bind(cls: Any, args: tuple, kwargs: dict, defaults: bool) -> tuple[tuple, dict]:
    """Return the arguments in the places of forward's parameters; with `defaults`, also the default values of missing
    ones."""
    signature = inspect.signature(cls.forward)
    if defaults:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        args, kwargs = bound.args, bound.kwargs
    else:
        bound = signature.bind(None, *args, **kwargs)  # None: ctx
        places = [p.name for p in signature.parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD][1:]
        named = [i for i, name in enumerate(places) if name in kwargs]
        for i in range(len(args), max(named, default=-1)):
            if places[i] not in kwargs:
                raise TypeError(
                    f"{cls.__name__}.apply(): forward() missing required argument: '{places[i]}' (position {i}): it "
                    f"comes before '{places[named[-1]]}', which was given by name"
                )
        filled = [kwargs[name] for name in places[len(args) : max(named, default=-1) + 1]]
        args, kwargs = (*args, *filled), {k: v for k, v in kwargs.items() if k not in places}
    for name, value in kwargs.items():
        if isinstance(value, Tensor) and value.requires_grad:
            raise TypeError(
                f"{cls.__name__}.apply(): the tensor {name!r} requires grad, but backward has no place for the "
                "gradient of a keyword-only argument"
            )
    return args, kwargs


def once_differentiable(backward: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a `backward` that must not itself be differentiated: double backward through it is an error."""

    @functools.wraps(backward)
    def once(ctx: Any, *grads: Any) -> Any:
        enabled, state.grad_enabled = state.grad_enabled, False
        try:
            outputs = backward(ctx, *grads)
        finally:
            state.grad_enabled = enabled
        if not enabled or not any(isinstance(g, Tensor) and g.requires_grad for g in grads):
            return outputs
        many = isinstance(outputs, tuple)
        listed = outputs if many else (outputs,)
        wrapped = tuple(_refusing(o) for o in listed)
        return wrapped if many else wrapped[0]

    return once


def _refusing(output: Any) -> Any:
    if not isinstance(output, Tensor):
        return output
    alias = output.detach()
    give_history(Error("trying to differentiate twice a function that was marked with @once_differentiable"), (alias,))
    return alias


class InplaceFunction(Function):
    """`Function` under the name that old code knows."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace


class NestedIOFunction(Function):
    """The old Function of nested arguments; like every Function that is called as an instance, it raises."""


_ContextMethodMixin = FunctionCtx
_SingleLevelFunction = Function


def _arity(function: Callable) -> int:
    """Return the number of positional arguments of a function, -1 if it has no code."""
    code = getattr(function, "__code__", None)
    return -1 if code is None else code.co_argcount
