"""Chains: operations in a row, each of which XLA's CPU compiler would compute again for all that use its result.

It fuses an operation into each user of its result.  Where backward uses what forward computed, the n-th operation of a
chain begins with the first n - 1: compiling takes time by the square of n or more, and so does running.  So in a deep
chain a result that has several users ends a function that XLA does not inline, which makes it compute the result once.

    a ──► b ──► c ──► d         b is used twice:  [a b] ──► [c d]     two functions
          └──────────────► e                        └──────────► e

1,600 operations and their backward: compiled in 5 s in place of many minutes.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import jax
from jax.experimental.xla_metadata import set_xla_metadata
from jax.extend.core import ClosedJaxpr, Literal, jaxpr_as_fun

from ..platforms import traced_for

DEEP = 128  # operations in a row; of shorter chains XLA makes good programs
MOST = 64  # operations of a function
# XLA fuses nothing into these, or nothing of them: they end a chain.
_ENDS = ("conv_", "cond", "dot", "dynamic_update", "gather", "fft", "scan", "scatter", "sort", "while")


def in_chains(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of arrays that computes the same, in which deep chains are cut for XLA's CPU compiler."""

    def cut(*args: Any) -> Any:
        closed, shapes = jax.make_jaxpr(function, return_shape=True)(*args)
        return jax.tree.unflatten(jax.tree.structure(shapes), with_chains(closed)(*jax.tree.leaves(args)))

    cut.__name__ = function.__name__
    return cut


def with_chains(closed: ClosedJaxpr) -> Callable[..., list[Any]]:
    """Return a traced program as a function, in which deep chains are cut for XLA's CPU compiler."""
    whole = jaxpr_as_fun(closed)

    def program(*operands: Any) -> list[Any]:
        jaxpr = closed.jaxpr
        if len(jaxpr.eqns) <= DEEP or traced_for() != "cpu":
            return whole(*operands)
        parts = [*_parts(jaxpr)]
        if not any(called for _, called in parts):
            return whole(*operands)
        values = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*closed.consts, *operands), strict=True))
        last = _last_uses(jaxpr, parts)
        for number, (eqns, called) in enumerate(parts):
            own = {v for eqn in eqns for v in eqn.outvars}
            given = list({v: None for v in _variables(eqns) if v not in own})
            leaving = [v for v in own if last.get(v, -1) > number]
            part = jaxpr_as_fun(ClosedJaxpr(jaxpr.replace(constvars=[], invars=given, outvars=leaving, eqns=eqns), []))
            values.update(zip(leaving, (_called if called else _run)(part, [values[v] for v in given]), strict=True))
        return [v.val if isinstance(v, Literal) else values[v] for v in jaxpr.outvars]

    program.__name__ = "jaxpr_as_fun"
    return program


def _run(part: Callable[..., list[Any]], operands: list[Any]) -> list[Any]:
    return part(*operands)


def _called(part: Callable[..., list[Any]], operands: list[Any]) -> list[Any]:
    """Call a function that XLA does not inline.  The attribute is the call's alone: its operations are fused."""
    (eqn,) = jax.make_jaxpr(jax.jit(part))(*operands).jaxpr.eqns
    with set_xla_metadata(inlineable="false"):
        return eqn.primitive.bind(*operands, **eqn.params)


def _variables(eqns: Iterable[Any]) -> Iterator[Any]:
    return (v for eqn in eqns for v in eqn.invars if not isinstance(v, Literal))


def _last_uses(jaxpr: Any, parts: list[tuple[list[Any], bool]]) -> dict[Any, int]:
    """Return {variable: number of the last part that uses it}; a result of the whole is used after all parts."""
    last = {v: number for number, (eqns, _) in enumerate(parts) for v in _variables(eqns)}
    return last | {v: len(parts) for v in jaxpr.outvars if not isinstance(v, Literal)}


def _parts(jaxpr: Any) -> Iterator[tuple[list[Any], bool]]:
    """Yield the equations in order, in parts, each with True if it is one of a deep chain: a function of its own."""
    uses = Counter(_variables(jaxpr.eqns))
    uses.update(v for v in jaxpr.outvars if not isinstance(v, Literal))
    row: list[Any] = []
    depths: dict[Any, int] = {}  # of what the row computes: how many of its operations stand behind one another
    for eqn in (*jaxpr.eqns, None):
        if eqn is not None and not _ends(eqn):
            row.append(eqn)
            depth = 1 + max((depths.get(v, 0) for v in eqn.invars if not isinstance(v, Literal)), default=0)
            depths.update(dict.fromkeys(eqn.outvars, depth))
            continue
        if max(depths.values(), default=0) > DEEP:
            yield from _functions(row, uses)
        elif row:
            yield row, False
        row, depths = [], {}
        if eqn is not None:
            yield [eqn], False


def _functions(row: list[Any], uses: Counter[Any]) -> Iterator[tuple[list[Any], bool]]:
    part: list[Any] = []
    for eqn in row:
        part.append(eqn)
        if len(part) == MOST or any(uses[v] > 1 for v in eqn.outvars):
            yield part, True
            part = []
    if part:
        yield part, True


def _ends(eqn: Any) -> bool:
    inner = eqn.params.get("jaxpr")
    if eqn.effects or eqn.primitive.name.startswith(_ENDS):
        return True
    return isinstance(inner, ClosedJaxpr) and any(map(_ends, inner.jaxpr.eqns))
