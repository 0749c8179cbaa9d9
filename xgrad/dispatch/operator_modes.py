"""Operator modes: somebody is asked about each operator and each view that a block calls, before it runs.

Invariant: until the first mode is entered, they cost nothing.  The call path asks for no mode; the first `OperatorMode`
that is entered puts functions that do into the places from which operators are called: the globals of the functions
that the table made, and the modules that import `call` by name.  From then on an operator costs 0.1 µs more.

Modes are per thread.  The innermost is asked; what it runs, the one around it is asked about, and so on.  They see
what a user's code calls, by public names, and what backward runs only if they want (`whole`).
(PyTorch: torch/utils/_python_dispatch.py, TorchDispatchMode.)
"""

import functools
import sys
from collections.abc import Callable
from typing import Any

from ..config import state
from . import call as path
from . import call_pair, declare, operator_node, view
from .declare import FUNCTIONS, METHODS, OPERATORS, SCOPES, Operator, freeze
from .kernel import Kernel

_call, _call_inplace, _call_pair = path.call, path.call_inplace, call_pair.call_pair
_try_view, _views_of, _view_inplace = view.try_view, view.views_of, view.view_inplace


class OperatorMode:
    """A `with` block in which `run` runs each operator, `write` each in-place one, and `see` makes each view.

    What a class does not define is left to the mode around this one.
    """

    whole = False  # whether it is also asked about operators that backward records, for a second derivative
    _outer: "OperatorMode | None" = None

    def __enter__(self) -> "OperatorMode":
        _install()
        self._outer, state.operator_mode = state.operator_mode, self
        return self

    def __exit__(self, *error: Any) -> None:
        state.operator_mode = self._outer

    def run(self, op: Operator, args: tuple, statics: tuple) -> Any:
        """Run an operator: `super().run(op, args, statics)`, or something in its place."""
        return _call(op, args, statics) if self._outer is None else self._outer.run(op, args, statics)

    def write(self, op: Operator, args: tuple, statics: tuple) -> Any:
        """Run the in-place form."""
        return _call_inplace(op, args, statics) if self._outer is None else self._outer.write(op, args, statics)

    def see(self, name: str, tensor: Any, make: Callable) -> Any:
        """Make views of `tensor` by `make()`, which computes nothing and gives None where a copy is needed."""
        return make() if self._outer is None else self._outer.see(name, tensor, make)


def given(op: Operator, args: tuple, statics: tuple, out: Any) -> Any:
    """The operator's results, recorded, as if its kernel had given `out`: an array, or a tuple of them."""
    kernel = op.kernel(statics)
    twin = Operator.__new__(Operator)
    twin.__dict__.update(op.__dict__)
    twin.kernels = {freeze(statics): _Given(kernel, out)}
    return _call(twin, args, statics)


class _Given(Kernel):
    """A kernel whose result is known; everything else is the real one's."""

    __slots__ = ("real",)

    def __init__(self, real: Kernel, out: Any) -> None:
        self.real = real
        for name in Kernel.__slots__:
            setattr(self, name, getattr(real, name))
        self.run = lambda *arrays: out
        self.ran = True

    def plan(self, needs: int, count: int) -> Any:
        return self.real.plan(needs, count)

    def jvp(self, tangents: tuple[bool, ...]) -> Any:
        return self.real.jvp(tangents)


def _ask(op: Operator, args: tuple, statics: tuple) -> Any:
    mode = state.operator_mode
    if mode is None:
        return _call(op, args, statics)
    state.operator_mode = None  # an operator that is made of others is asked about once
    try:
        return mode.run(op, args, statics)
    finally:
        state.operator_mode = mode


def _ask_pair(op: Operator, a: Any, b: Any) -> Any:
    return _call_pair(op, a, b) if state.operator_mode is None else _ask(op, (a, b), ())


def _ask_inplace(op: Operator, args: tuple, statics: tuple) -> Any:
    mode = state.operator_mode
    if mode is None:
        return _call_inplace(op, args, statics)
    state.operator_mode = None
    try:
        return mode.write(op, args, statics)
    finally:
        state.operator_mode = mode


def _ask_in_node(op: Operator, args: tuple, statics: tuple) -> Any:
    mode = innermost = state.operator_mode
    while mode is not None and not mode.whole:
        mode = mode._outer
    if mode is None:
        return _call(op, args, statics)
    state.operator_mode = None
    try:
        return mode.run(op, args, statics)
    finally:
        state.operator_mode = innermost


def _ask_view(plain: Callable, name: Callable) -> Callable:
    """`plain(self, ...)`, which makes views, as a function that asks; `name` gives the view's of the arguments."""

    @functools.wraps(plain)
    def asks(self: Any, *rest: Any, **named: Any) -> Any:
        mode = state.operator_mode
        if mode is None:
            return plain(self, *rest, **named)
        state.operator_mode = None
        try:
            return mode.see(name(*rest), self, lambda: plain(self, *rest, **named))
        finally:
            state.operator_mode = mode

    return asks


def _install() -> None:
    """Put the functions that ask into the places from which operators are called, once."""
    if declare.call is _ask:
        return
    asking: dict[Any, Callable] = {
        _call: _ask,
        _call_pair: _ask_pair,
        _call_inplace: _ask_inplace,
        _try_view: _ask_view(_try_view, lambda key, *_: key[0]),
        _views_of: _ask_view(_views_of, lambda keys, name: name.removesuffix("Backward0").lower()),
        _view_inplace: _ask_view(_view_inplace, lambda key, *_: f"{key[0]}_"),
    }
    names = ("call", "call_pair", "call_inplace", "_call", "_pair", "_inplace", "try_view", "views_of", "view_inplace")
    packages = ("xgrad.ops.", "xgrad.dispatch.", "xgrad.batching.")
    # Not the nodes: what backward runs is nobody's choice.
    own = (__name__, operator_node.__name__)
    scopes = [vars(m) for name, m in list(sys.modules.items()) if name.startswith(packages) and name not in own]
    for scope in (*scopes, *SCOPES):
        for name in names:
            if scope.get(name) in asking:
                scope[name] = asking[scope[name]]
    operator_node.call = _ask_in_node


def public_name(op: Operator) -> str:
    """An operator's public name: that of `max.dim` is max."""
    return op.name.split(".")[0].strip("_")


def public(op: Operator) -> Any:
    """The public function of an operator (`xgrad.mm`); the operator itself where it has none of its own."""
    name = public_name(op)
    for table in (FUNCTIONS[""], *(t for place, t in FUNCTIONS.items() if place), METHODS):
        if name in table:
            return table[name]
    return op


def named(function: Any) -> str | None:
    """The name under which modes see a public function, None if it is no operator."""
    operators = {public_name(op) for op in OPERATORS.values()}
    op = function if isinstance(function, Operator) else getattr(function, "operator", None)
    if isinstance(op, Operator):
        return public_name(op)
    names = (name for table in (*FUNCTIONS.values(), METHODS) for name, known in table.items() if known is function)
    return next((name for name in names if name in operators), None)
