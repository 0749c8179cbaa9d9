"""Cuts deep chains of operations into functions, so that XLA's CPU compiler does not compute shared results again.

The compiler fuses an operation into each user of its result.  Where backward uses what forward computed, the n-th
operation of a chain begins with the first n - 1: the time to compile and to run grows with n squared or faster.  So in
a deep chain a result that has several users ends a function that XLA does not inline, which makes it compute the result
once.

    a ──► b ──► c ──► d         b is used twice:  [a b] ──► [c d]     two functions
          └──────────────► e                        └──────────► e

1,600 operations and their backward: compiled in 5 s in place of many minutes.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import jax
from jax.experimental.xla_metadata import set_xla_metadata

from ...base.jax_compat import INNER, NOT_INLINED, jaxprs
from ...base.platforms import traced_for
from .parts import in_parts, values_of, variables

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


def with_chains(closed: Any) -> Callable[..., list[Any]]:
    """Return a traced program as a function, in which deep chains are cut for XLA's CPU compiler."""
    whole = jaxprs().jaxpr_as_fun(closed)

    def program(*operands: Any) -> list[Any]:
        jaxpr = closed.jaxpr
        if len(jaxpr.eqns) <= DEEP or traced_for() != "cpu":
            return whole(*operands)
        parts = [*_parts(jaxpr)]
        if not any(called for called, _ in parts):
            return whole(*operands)
        return in_parts(closed, parts, _run)(*operands)

    program.__name__ = "jaxpr_as_fun"
    return program


def _run(called: bool, part: Callable[..., list[Any]], operands: list[Any]) -> list[Any]:
    """Run a part, or call it as a function that XLA does not inline.

    The attribute is the call's alone: its operations are fused.
    """
    if not called:
        return part(*operands)
    (eqn,) = jax.make_jaxpr(jax.jit(part))(*operands).jaxpr.eqns
    with set_xla_metadata(**NOT_INLINED):
        return eqn.primitive.bind(*operands, **eqn.params)


def _parts(jaxpr: Any) -> Iterator[tuple[bool, list[Any]]]:
    """Yield the equations in order, in parts, each with True if it is one of a deep chain: a function of its own."""
    uses = Counter(variables(jaxpr.eqns))
    uses.update(values_of(jaxpr.outvars))
    row: list[Any] = []
    depths: dict[Any, int] = {}  # of what the row computes: how many of its operations stand behind one another
    for eqn in (*jaxpr.eqns, None):
        if eqn is not None and not ends_chain(eqn):
            row.append(eqn)
            depth = 1 + max((depths.get(v, 0) for v in values_of(eqn.invars)), default=0)
            depths.update(dict.fromkeys(eqn.outvars, depth))
            continue
        if max(depths.values(), default=0) > DEEP:
            yield from _functions(row, uses)
        elif row:
            yield False, row
        row, depths = [], {}
        if eqn is not None:
            yield False, [eqn]


def _functions(row: list[Any], uses: Counter[Any]) -> Iterator[tuple[bool, list[Any]]]:
    part: list[Any] = []
    for eqn in row:
        part.append(eqn)
        if len(part) == MOST or any(uses[v] > 1 for v in eqn.outvars):
            yield True, part
            part = []
    if part:
        yield True, part


def ends_chain(eqn: Any) -> bool:
    """Return True for an equation that XLA does not fuse with its operands and its users."""
    inner = eqn.params.get(INNER)
    if eqn.effects or eqn.primitive.name.startswith(_ENDS):
        return True
    return isinstance(inner, jaxprs().ClosedJaxpr) and any(map(ends_chain, inner.jaxpr.eqns))
