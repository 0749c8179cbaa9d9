"""Program: a function as one XLA program, also where it calls functions of the user's that are others each time.

A line search evaluates the loss again, within the program: the loss of this step's batch, which the loss function
closes over.  A program that was compiled for one batch would use that batch for ever, without a word.  So a function
that the transformation really calls is traced in each step, and the arrays that it closes over are operands of the
program, which is compiled again only if the equations are others.
"""

from collections.abc import Callable, Iterator
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, jaxpr_as_fun

from ..base.limits import checked
from ..config import block

_DONATED = (0, 3)  # the parameters and the state, of (parameters, other parameters, gradients, state, extra)
_MOST = 64  # programs of one structure


class _Functions:
    """The functions of the call that is being traced, and `called`: True if one of them was called.

    A jitted function refers to this, and not to the `Program`: an unused program is then freed at once.
    """

    def __init__(self) -> None:
        self.given: dict[str, Callable] = {}
        self.called = False

    @block
    def holding(self, functions: dict[str, Callable]) -> Iterator[None]:
        """Hold these functions within the block, during a trace."""
        self.given = functions
        try:
            yield
        finally:
            self.given = {}

    def noted(self, name: str) -> Callable:
        """Return one of the functions, with a wrapper that sets `called`."""
        function = self.given[name]

        def noted(*args: Any, **kwargs: Any) -> Any:
            self.called = True
            return function(*args, **kwargs)

        return noted


class Program:
    """`function(parameters, others, gradients, state, {**extra, **functions})`, with parameters and state donated."""

    def __init__(self, function: Callable, out_shardings: Any) -> None:
        functions = self._functions = _Functions()

        def whole(*values: Any) -> Any:
            *rest, extra = values
            return function(*rest, {**extra, **{name: functions.noted(name) for name in functions.given}})

        self._whole, self._placed = whole, out_shardings
        self.jitted: Any = _jit(whole, _DONATED, out_shardings)
        self._lifted: dict[str, Callable] = {}
        self.ran = False  # True from the second call on: JAX then runs it without going through Python
        self.need = 0  # the bytes that it needs besides its operands

    def shapes(self, values: tuple, functions: dict[str, Callable]) -> list:
        """Return the shapes and dtypes of the state after the step."""
        with self._functions.holding(functions):
            return jax.eval_shape(self.jitted, *values)[2]

    def with_functions(self, values: tuple, functions: dict[str, Callable]) -> Callable:
        """Return the function to be called with such values in this step."""
        if self._functions.called:
            with self._functions.holding(functions):
                closed, shapes = jax.make_jaxpr(self._whole, return_shape=True)(*values)
            return self._lift(closed, jax.tree.structure(shapes), [len(jax.tree.leaves(value)) for value in values])

        def run(*values: Any) -> Any:
            with self._functions.holding(functions):  # in case JAX traces it again
                return self.jitted(*values)

        return run

    def _lift(self, closed: ClosedJaxpr, tree: Any, sizes: list[int]) -> Callable:
        """Return a traced call as a program on the arrays that functions close over, and the values."""
        jaxpr, consts = closed.jaxpr, closed.consts
        text = _written(jaxpr)
        run = None if text is None else self._lifted.get(text)
        if run is None:
            part = jaxpr.replace(constvars=[], invars=[*jaxpr.constvars, *jaxpr.invars])
            starts = {i: len(consts) + sum(sizes[:i]) for i in _DONATED}
            donated = tuple(starts[i] + k for i in _DONATED for k in range(sizes[i]))
            placed = None if self._placed is None else jax.tree.leaves(self._placed)
            run = _jit(jaxpr_as_fun(ClosedJaxpr(part, [])), donated, placed)
            if text is not None:
                if len(self._lifted) >= _MOST:
                    self._lifted.clear()
                self._lifted[text] = run
        return lambda *values: tree.unflatten(run(*consts, *jax.tree.leaves(values)))


def _jit(function: Callable, donated: tuple[int, ...], out_shardings: Any) -> Callable:
    placed = {} if out_shardings is None else {"out_shardings": out_shardings}
    return jax.jit(checked(function), donate_argnums=donated, **placed)


def _written(jaxpr: Jaxpr) -> str | None:
    """Return the equations as text; None if they contain arrays, because text does not show all elements."""
    return None if _has_arrays(jaxpr) else str(jaxpr)


def _has_arrays(jaxpr: Any) -> bool:
    for eqn in jaxpr.eqns:
        if any(isinstance(atom, Literal) and getattr(atom.val, "ndim", 0) for atom in eqn.invars):
            return True
        for value in jax.tree.leaves(list(eqn.params.values()), is_leaf=lambda v: isinstance(v, (ClosedJaxpr, Jaxpr))):
            if isinstance(value, ClosedJaxpr) and (value.consts or _has_arrays(value.jaxpr)):
                return True
            if isinstance(value, Jaxpr) and _has_arrays(value):
                return True
    return False
