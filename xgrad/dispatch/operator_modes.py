"""OperatorMode: a `with` block that gets each operator and view before it runs (PyTorch: TorchDispatchMode).

    call(op, ...) ──► state.operator_mode.call ──► mode.run ──► the mode around it ... ──► call(op, ...)

Every operator tests for a mode first, before it tests its arguments: declared operators, operators made by `from_jax`,
in-place forms, and views.  Until the first mode of the process is entered, the test is one flag, `runner.plain`, of
4 ns; from then on it is a flag of the thread, of 30 ns.

Modes are per thread.  The innermost gets an operator first, and passes it to the mode around it by `super().run`; other
operators that it calls are seen by no mode.  Modes see the operators of users' code, by public names, and the operators
of backward only on request (`whole`).
(PyTorch: torch/utils/_python_dispatch.py, TorchDispatchMode.)
"""

from collections.abc import Callable
from typing import Any

from ..config import Block, state
from ..execution.programs.programs import Known
from ..execution.runner import runner
from .call import call
from .inplace import call_inplace
from .kernel import Kernel, kernel_of
from .operator import Operator, freeze
from .tables import FUNCTIONS, METHODS, OPERATORS


class OperatorMode(Block):
    """A `with` block in which `run` runs each operator, `write` each in-place one, and `see` makes each view.

    Methods that a class does not define leave these to the mode around this one.
    """

    whole = False  # True: it also gets operators that backward records, for a second derivative
    _outer: "OperatorMode | None" = None

    def __enter__(self) -> "OperatorMode":
        runner.ask()
        self._will_restore("operator_mode")
        self._outer, state.operator_mode = state.operator_mode, self
        return self

    # Methods for subclasses to override.

    def run(self, op: Operator, args: tuple[Any, ...], statics: tuple[Any, ...]) -> Any:
        """Run an operator: `super().run(op, args, statics)`, or something in its place."""
        return call(op, args, statics) if self._outer is None else self._outer.run(op, args, statics)

    def write(self, op: Operator, args: tuple[Any, ...], statics: tuple[Any, ...]) -> Any:
        """Run the in-place form."""
        return call_inplace(op, args, statics) if self._outer is None else self._outer.write(op, args, statics)

    def see(self, name: str, tensor: Any, make: Callable[..., Any]) -> Any:
        """Make views of `tensor` by `make()`, which computes nothing, and returns None if a copy is needed."""
        return make() if self._outer is None else self._outer.see(name, tensor, make)

    # Operators call these on the innermost mode.  Inside, no mode is called again: a composed operator is one operator.

    def call(self, op: Operator, args: tuple[Any, ...], statics: tuple[Any, ...]) -> Any:
        """Run an operator through the modes."""
        mode: OperatorMode | None = self
        while op.in_backward and mode is not None and not mode.whole:
            mode = mode._outer
        before, state.operator_mode = state.operator_mode, None
        try:
            return call(op, args, statics) if mode is None else mode.run(op, args, statics)
        finally:
            state.operator_mode = before

    def call_inplace(self, op: Operator, args: tuple[Any, ...], statics: tuple[Any, ...]) -> Any:
        """Run the in-place form through the modes."""
        before, state.operator_mode = state.operator_mode, None
        try:
            return self.write(op, args, statics)
        finally:
            state.operator_mode = before

    def view(self, name: str, tensor: Any, make: Callable[..., Any]) -> Any:
        """Make views of `tensor` through the modes."""
        before, state.operator_mode = state.operator_mode, None
        try:
            return self.see(name, tensor, make)
        finally:
            state.operator_mode = before


def given(op: Operator, args: tuple[Any, ...], statics: tuple[Any, ...], out: Any) -> Any:
    """Return an operator's results, recorded as if its kernel had returned `out`: an array, or a tuple of them."""
    kernel = kernel_of(op, statics)
    twin = Operator.__new__(Operator)
    twin.__dict__.update(op.__dict__)
    twin.kernels = {freeze(statics): _Given(kernel, out)}
    return call(twin, args, statics)


class _Given(Kernel):
    """A kernel with a known result; all else is the real kernel's."""

    __slots__ = ("real",)

    def __init__(self, real: Kernel, out: Any) -> None:
        self.real = real
        for name in Kernel.__slots__:
            setattr(self, name, getattr(real, name))
        self.run = lambda *arrays: out
        self.program = Known(self.run)
        self.ran = True

    def plan(self, needs: int, count: int) -> Any:
        return self.real.plan(needs, count)

    def jvp(self, tangents: tuple[bool, ...]) -> Any:
        return self.real.jvp(tangents)


def public_name(op: Operator) -> str:
    """An operator's public name: `max.dim` has the public name `max`."""
    return op.name.split(".")[0].strip("_")


def public(op: Operator) -> Any:
    """The public function of an operator (`xgrad.mm`); the operator itself if it has no function."""
    name = public_name(op)
    for table in (FUNCTIONS[""], *(t for place, t in FUNCTIONS.items() if place), METHODS):
        if name in table:
            return table[name]
    return op


def named(function: Any) -> str | None:
    """The name under which modes see a public function, None if it is not an operator; torch.ops.aten.mm is one,
    too."""
    function = getattr(function, "_function", function)
    operators = {public_name(op) for op in OPERATORS.values()}
    op = function if isinstance(function, Operator) else getattr(function, "operator", None)
    if isinstance(op, Operator):
        return public_name(op)
    names = (name for table in (*FUNCTIONS.values(), METHODS) for name, known in table.items() if known is function)
    return next((name for name in names if name in operators), None)
