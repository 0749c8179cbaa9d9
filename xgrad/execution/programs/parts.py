"""in_parts: a traced program as a function that runs its equations part by part, each in a way of its own."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from jax.extend.core import ClosedJaxpr, Literal, jaxpr_as_fun

Call = Callable[[Any, Callable[..., list[Any]], list[Any]], list[Any]]


def in_parts(closed: ClosedJaxpr, parts: list[tuple[Any, list[Any]]], call: Call) -> Callable[..., list[Any]]:
    """Return a program as a function of its operands.

    `parts`: all its equations, in order, each list of them with a label.  `call(label, function, operands)` returns the
    results of a part that others use, in an order that is the same in each process.
    """
    jaxpr = closed.jaxpr
    later = {v for v in jaxpr.outvars if not isinstance(v, Literal)}
    pieces = []
    for label, eqns in reversed(parts):
        own = {v for eqn in eqns for v in eqn.outvars}
        leaving = [v for eqn in eqns for v in eqn.outvars if v in later]
        taken = list(dict.fromkeys(v for v in variables(eqns) if v not in own))
        later.update(taken)
        part = ClosedJaxpr(jaxpr.replace(constvars=[], invars=taken, outvars=leaving, eqns=eqns), [])
        pieces.append((label, taken, leaving, jaxpr_as_fun(part)))

    def program(*operands: Any) -> list[Any]:
        values = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*closed.consts, *operands), strict=True))
        for label, taken, leaving, function in reversed(pieces):
            values.update(zip(leaving, call(label, function, [values[v] for v in taken]), strict=True))
        return [v.val if isinstance(v, Literal) else values[v] for v in jaxpr.outvars]

    return program


def variables(eqns: Iterable[Any]) -> Iterator[Any]:
    """Yield the variables that equations read, as often as they do."""
    return (v for eqn in eqns for v in eqn.invars if not isinstance(v, Literal))
