"""autograd.Function: an operation whose derivative the user writes (PyTorch: torch/autograd/function.py)."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

from ..config import state
from ..engine.node import Node
from ..engine.python_function import FunctionContext, PythonNode, run_function
from ..errors import NotDifferentiableError
from ..tensor import Tensor


class Function:
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

    _node_class: type

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls._node_class = type(
            cls.__name__ + "Backward", (PythonNode,), {"function": cls, "__module__": cls.__module__}
        )

    def __init__(self) -> None:
        raise RuntimeError(f"{type(self).__name__} should not be instantiated. Call {type(self).__name__}.apply(...).")

    @staticmethod
    def forward(*args: Any, **kwargs: Any) -> Any:
        """The operation's value: `forward(ctx, *args)`, or `forward(*args)` beside a `setup_context`."""
        raise NotImplementedError("You must implement the forward function for custom autograd.Function.")

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: Any) -> Any:
        """What a `forward` without `ctx` leaves to be done: save tensors, and mark inputs and outputs."""
        raise NotImplementedError("setup_context is not implemented.")

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        """The gradient of each argument of forward (None for those without one), given those of the outputs."""
        raise NotImplementedError("You must implement the backward function for your custom autograd.Function.")

    @staticmethod
    def jvp(ctx: Any, *grad_inputs: Any) -> Any:
        """The tangent of each output, given those of the inputs."""
        raise NotImplementedError(
            "You must implement the jvp function for custom autograd.Function to use it with forward mode AD."
        )

    @classmethod
    def _new_style(cls) -> bool:
        return cls.setup_context is not Function.setup_context

    @classmethod
    def _bind(cls, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
        """The arguments in the places of forward's parameters, with defaults where PyTorch fills them in."""
        signature = inspect.signature(cls.forward)
        if cls._new_style():
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            args, kwargs = bound.args, bound.kwargs
        else:
            bound = signature.bind(None, *args, **kwargs)  # None: ctx
            places = [p for p in signature.parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD][1:]
            named = [i for i, p in enumerate(places) if p.name in kwargs]
            filled = [bound.arguments.get(p.name, p.default) for p in places[len(args) : max(named, default=-1) + 1]]
            args, kwargs = (*args, *filled), {k: v for k, v in kwargs.items() if k not in {p.name for p in places}}
        for name, value in kwargs.items():
            if isinstance(value, Tensor) and value.requires_grad:
                raise TypeError(
                    f"{cls.__name__}.apply(): the tensor {name!r} requires grad, but backward has no place for the "
                    "gradient of a keyword-only argument"
                )
        return args, kwargs

    @classmethod
    def apply(cls, *args: Any, **kwargs: Any) -> Any:
        """Run the operation and record it.

        Keyword arguments are put into the places of forward's parameters.  Raises `TypeError` for a tensor that
        requires grad and has no place there.
        """
        missing = cls._new_style() and len(args) != _arity(cls.forward)
        if kwargs or missing:
            args, kwargs = cls._bind(args, kwargs)
        return run_function(cls, cls._node_class, args, kwargs)


def once_differentiable(backward: Callable) -> Callable:
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


class _NotTwice(Node):
    def name(self) -> str:
        return "ErrorBackward"

    def apply(self, grads: list, needs: int) -> Any:
        raise NotDifferentiableError(
            "trying to differentiate twice a function that was marked with @once_differentiable"
        )


def _refusing(output: Any) -> Any:
    if not isinstance(output, Tensor):
        return output
    alias = output.detach()
    node = _NotTwice()
    node.next_edges, node.avals = (), (alias,)
    alias._grad_fn, alias._requires_grad = node, True
    return alias


__all__ = ["Function", "FunctionContext", "once_differentiable"]


def _arity(function: Callable) -> int:
    """How many arguments a function takes by position, -1 for what has no code."""
    code = getattr(function, "__code__", None)
    return -1 if code is None else code.co_argcount
