"""Program: compiles an optax step into one XLA program, also with a line search, whose loss function differs each step.

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
from ..dispatch.multi_write import Donating, MultiWrite
from ..execution.pending import spread
from ..views.transaction import DonatingProgram

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
    """Runs `function(written, read, functions)` as one XLA program."""

    def __init__(self, function: Callable[[list, list, dict], list]) -> None:
        functions = self._functions = _Functions()

        def whole(written: list[Any], read: list[Any]) -> list[Any]:
            return function(written, read, {name: functions.noted(name) for name in functions.given})

        self._whole = whole
        self.write: MultiWrite = MultiWrite(whole, "optimizer_step")
        self.donating: Donating | None = None
        self._lifted: dict[str, Callable] = {}

    def shapes(self, written: list[Any], read: list[Any], functions: dict[str, Callable]) -> list:
        """Return the shapes and dtypes of the results."""
        with self._functions.holding(functions):
            return jax.eval_shape(checked(self._whole), written, read)

    def placed(self, arrays: list[Any]) -> Donating:
        """Return the program for results placed as these arrays are, which stands for all later steps."""
        where = [array.sharding for array in arrays] if any(map(spread, arrays)) else None
        self.donating = self.write.on(where)
        return self.donating

    def with_functions(
        self, donating: Donating, written: list[Any], read: list[Any], functions: dict[str, Callable]
    ) -> DonatingProgram:
        """Return the program of a step that calls these functions."""
        holding = self._functions.holding
        if self._functions.called:
            with holding(functions):
                closed = jax.make_jaxpr(self._whole)(written, read)
            return _Once(donating, self._lift(closed, len(written), donating.where), self._lifted)

        def run(written: list[Any], read: list[Any]) -> list[Any]:
            with holding(functions):  # in case JAX traces it again
                return donating.jitted(written, read)

        return _Once(donating, run, self._lifted)

    def _lift(self, closed: ClosedJaxpr, count: int, where: list[Any] | None) -> Callable[[list, list], list]:
        """Return a traced call as a program on the arrays that functions close over, and the `count` written ones."""
        jaxpr, consts = closed.jaxpr, closed.consts
        text = _written(jaxpr)
        run = None if text is None else self._lifted.get(text)
        if run is None:
            part = jaxpr.replace(constvars=[], invars=[*jaxpr.constvars, *jaxpr.invars])
            donated = tuple(range(len(consts), len(consts) + count))
            placed: Any = {} if where is None else {"out_shardings": where}
            run = jax.jit(checked(jaxpr_as_fun(ClosedJaxpr(part, []))), donate_argnums=donated, **placed)
            if text is not None:
                if len(self._lifted) >= _MOST:
                    self._lifted.clear()
                self._lifted[text] = run
        return lambda written, read: run(*consts, *written, *read)


class _Once(DonatingProgram):
    """A program with the functions of one step.  Python runs in each call: so copies are always put aside."""

    def __init__(self, program: Donating, function: Callable[[list, list], list], lifted: dict[str, Callable]) -> None:
        self.name, self.instead = program.name, program.instead
        self._program, self._function, self._lifted = program, function, lifted

    def needs(self, arrays: list[Any]) -> tuple[int, bool]:
        return self._program.needs(arrays)[0], False

    def call(self, given: list[Any], operands: list[Any], results: list[Any]) -> None:
        results.append(self._function(given, operands))

    def has_run(self, written: Any, operands: list[Any]) -> None:
        pass  # the next step's functions are others

    def renew(self) -> None:
        self._lifted.clear()
        self._program.renew()


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
