"""Operator: holds what one operator declares (its JAX function, gradient formulas, names) and its kernels.

Nothing here runs an operator.  Files of dispatch/ that do, each importing some of those on its left:

    operator ◄── plan ◄── operator_node ◄── kernel ◄── call ◄── call_pair, inplace, out ◄── declare

A kernel binds static arguments (kernel.py), a plan says what is saved and computed for some gradients (plan.py).
"""

import inspect
import os
from collections.abc import Callable
from typing import Any

from ..tensor import Tensor
from .argument_kinds import kinds_of
from .dependence import DIFFERENTIATED, MASKED

_OPS = os.path.join(os.path.dirname(os.path.dirname(__file__)), "ops", "")


class Operator:
    """One operator: its declaration as data, and its kernels by static arguments."""

    # True for the backward of an operator that is linear in each of its arguments, as products are.
    multilinear = False
    # True if it casts to a requested dtype, and so may read 64-bit tensors while JAX's x64 mode is off.
    converts = False
    # False if it runs at once in a lazy block too: its trace has effects, and may not be repeated.
    lazy = True
    # True for the backward of another operator, recorded: no user called it.
    in_backward = False
    # Called in backward with (the gradients of the results, the saved values): raises for senseless gradients.
    check_gradients: Callable[..., Any] | None = None
    # PyTorch's name of the derivative that is missing there and here: an error in backward and in forward mode.
    missing = ""
    # True for the in-place form of an operator without derivative: the old value's gradient and tangent become zero.
    overwrites = False
    # The function whose derivative is taken, where it is not the one that runs: that is a backend's lowering.
    reference: Callable[..., Any] | None = None
    # Reports that a sum of integers does not fit into int32 (narrow_sums.py).
    overflows: Any = None
    # The file and line of its declaration, looked up only if the operator is a public function.
    place: tuple[str, int] = ("", 0)
    # The results that have no gradient, by their numbers.
    constant: frozenset[int] = frozenset()
    # The forms beside the function: "out", "inplace".
    forms: tuple[str, ...] = ()

    def __init__(
        self,
        name: str,
        function: Callable[..., Any],
        *,
        differentiable: bool = True,
        jit: bool = True,
        outputs: Any = None,
        node: str | None = None,
        pointwise: bool = False,
        samples: tuple[Any, ...] = (),
        wide: tuple[bool, bool] = (False, False),
    ) -> None:
        self.name = name
        self.function = function
        self.differentiable = differentiable
        self.jit = jit
        self.outputs = outputs
        self.pointwise = pointwise
        self.samples = samples  # small inputs for the test of all operators (samples.py)
        # True if results (gradients) in half precision are computed in float32, and rounded once: see rounding.py.
        self.wide, self.wide_gradients = wide
        # True if PyTorch knows exactly on which arguments its gradient depends; not set for a backward.
        self.first: bool = name not in DIFFERENTIATED
        self.masked: bool = name in MASKED  # True if its gradient passes a mask, which has no derivative
        self.node_name: str = node or _node_name(name)
        self.kernels: dict[tuple[Any, ...], Any] = {}  # by static arguments: kernel.py fills it
        self.formulas: dict[str, Callable[..., Any]] = {}
        self.check: Callable[..., Any] | None = None
        code = inspect.unwrap(function).__code__
        n = code.co_argcount
        self.parameters: tuple[str, ...] = code.co_varnames[:n]
        self.static_names: tuple[str, ...] = code.co_varnames[n : n + code.co_kwonlyargcount]
        self.variadic: str | None = (
            code.co_varnames[n + code.co_kwonlyargcount] if code.co_flags & inspect.CO_VARARGS else None
        )
        self.defaults: dict[str, Any] = dict(function.__kwdefaults__ or {})
        positional = function.__defaults__ or ()
        self.defaults.update(zip(self.parameters[n - len(positional) :], positional, strict=True))
        self.kinds: dict[str, str] = kinds_of(name, self.static_names, self.defaults)

    @property
    def is_of_package(self) -> bool:
        """True if a file of ops/ defines the function that runs, and its derivative is of that."""
        code = getattr(inspect.unwrap(self.function), "__code__", None)  # a batched operator's function is a partial
        return self.reference is None and code is not None and code.co_filename.startswith(_OPS)

    def derivative(self, /, **formulas: Callable[..., Any]) -> None:
        """Give formulas for arguments (or `all`).  The `/` leaves the name `self` free for a formula."""
        unknown = set(formulas) - {*self.parameters, self.variadic, "all"}
        if unknown:
            raise TypeError(f"{self.name} has no argument {sorted(unknown)}")
        self.formulas.update(formulas)

    def __repr__(self) -> str:
        return f"<operator {self.name}>"


def _node_name(name: str) -> str:
    """PyTorch's name for the node of an operator: mul → MulBackward0, avg_pool2d → AvgPool2DBackward0."""
    return "".join(part.title() for part in name.split("_")) + "Backward0"


def linear(*_: Any) -> Any:
    """Marks an argument in which the function is linear (or affine): its gradient needs every argument but itself.

    It does not need an optional argument whose own gradient is made of `grad` alone, as a bias's is.
    """
    raise NotImplementedError


def argument_names(operator: Operator, count: int) -> tuple[str, ...]:
    """The names of `count` array arguments; the arguments of a sequence are numbered."""
    extra = count - len(operator.parameters)
    return operator.parameters + tuple(f"{operator.variadic}[{i}]" for i in range(extra))


def formula_of(operator: Operator, name: str) -> Callable[..., Any] | None:
    """The explicit formula for an argument, or None if it is derived."""
    formulas = operator.formulas
    return formulas.get(name) or formulas.get("all")


def is_addend(operator: Operator, name: str) -> bool:
    """Return whether an argument is optional, and its gradient made of `grad` alone, as a bias's is."""
    formula = operator.formulas.get(name)
    optional = name in operator.defaults and operator.defaults[name] is None
    return optional and formula is not None and asks_for(formula) == ("grad",)


def asks_for(formula: Callable[..., Any]) -> tuple[str, ...]:
    """The names of a formula's parameters: the values that it takes."""
    return formula.__code__.co_varnames[: formula.__code__.co_argcount]


def freeze(value: Any) -> Any:
    """Make a static argument hashable: lists become tuples, 0-dim tensors numbers."""
    if isinstance(value, Tensor):
        return value.item()
    if isinstance(value, (list, tuple)):
        return tuple(freeze(v) for v in value)
    if isinstance(value, slice):
        return ("slice", freeze(value.start), freeze(value.stop), freeze(value.step))
    if hasattr(value, "__index__"):
        return value.__index__()
    return value
