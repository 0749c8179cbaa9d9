"""in_parts: cuts a jaxpr into functions, one for each list of its equations; run_equation: runs one of them."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ...base.jax_compat import jaxprs

Call = Callable[[Any, Callable[..., list[Any]], list[Any]], list[Any]]


def in_parts(closed: Any, parts: list[tuple[Any, list[Any]]], call: Call) -> Callable[..., list[Any]]:
    """Return a program as a function of its operands.

    `parts`: all its equations, in order, each list of them with a label.  `call(label, function, operands)` returns the
    results of a part that others use, in an order that is the same in each process.
    """
    jaxpr, core = closed.jaxpr, jaxprs()
    later = set(values_of(jaxpr.outvars))
    pieces = []
    for label, eqns in reversed(parts):
        own = {v for eqn in eqns for v in eqn.outvars}
        leaving = [v for eqn in eqns for v in eqn.outvars if v in later]
        taken = list(dict.fromkeys(v for v in variables(eqns) if v not in own))
        later.update(taken)
        part = core.ClosedJaxpr(jaxpr.replace(constvars=[], invars=taken, outvars=leaving, eqns=eqns), [])
        pieces.append((label, taken, leaving, core.jaxpr_as_fun(part)))

    def program(*operands: Any) -> list[Any]:
        values = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*closed.consts, *operands), strict=True))
        for label, taken, leaving, function in reversed(pieces):
            values.update(zip(leaving, call(label, function, [values[v] for v in taken]), strict=True))
        return [v.val if isinstance(v, core.Literal) else values[v] for v in jaxpr.outvars]

    return program


def run_equation(jaxpr: Any, eqn: Any, values: dict[Any, Any]) -> list[Any]:
    """Return the results of one equation of a jaxpr, for the values of variables."""
    core, given = jaxprs(), list(dict.fromkeys(values_of(eqn.invars)))
    alone = jaxpr.replace(constvars=[], invars=given, outvars=eqn.outvars, eqns=[eqn])
    return core.jaxpr_as_fun(core.ClosedJaxpr(alone, []))(*[values[v] for v in given])


def variables(eqns: Iterable[Any]) -> Iterator[Any]:
    """Yield the variables that equations read, as often as they do."""
    return (v for eqn in eqns for v in values_of(eqn.invars))


def values_of(operands: Iterable[Any]) -> Iterator[Any]:
    """Yield the operands that are variables, and not constants."""
    literal = jaxprs().Literal
    return (v for v in operands if not isinstance(v, literal))
