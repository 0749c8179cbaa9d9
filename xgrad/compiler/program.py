"""The traced function as programs: the forward one, and the backward of what leaves with a history.

A trace gives one list of equations.  Equations of `input_p` are inputs from outside; the first one of a gradient that
arrives is where the forward program ends and the backward one begins.  Whatever the second uses of the first is
returned by it, and kept (*residuals*), unless it is an input.

    in 0 ─┐                              ┌─ out 0, out 1, ...
    in 1 ─┴─ forward equations ──────────┼─ residuals ─┐
                                         grad 0 ───────┴─ backward equations ── gradients of inputs

jaxprs are taken apart and put together with `jax.extend.core`, as in JAX's "Writing custom Jaxpr interpreters".
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, Literal, jaxpr_as_fun

from ..engine.fusion import apart
from .trace import input_p

GRADIENT = 1 << 30  # the numbers of gradients that arrive start here


class Backward(NamedTuple):
    """The backward program, and where its operands come from."""

    closed: ClosedJaxpr  # of (residuals, gradients that arrive)
    inputs: list[int]  # the residuals that are inputs, by their numbers
    residuals: int  # how many more the forward program returns, at the end
    avals: list[Any]  # of the gradients that arrive, None where they are not taken
    programs: dict[tuple, Callable]

    def run(self, residuals: list, grads: list) -> list:
        """The gradients of the inputs; an undefined gradient that arrives is None."""
        given = tuple(grad is not None for grad in grads)
        program = self.programs.get(given)
        if program is None:
            whole = jaxpr_as_fun(self.closed)

            def backward(residuals: list, grads: list) -> list:
                arrived = iter(grads)
                taken = []
                for is_given, aval in zip(given, self.avals, strict=True):
                    grad = next(arrived) if is_given else None
                    if aval is not None:
                        taken.append(jnp.zeros(aval.shape, aval.dtype) if grad is None else grad)
                return whole(*residuals, *taken)

            program = self.programs[given] = jax.jit(backward)
        return program(residuals, [grad for grad in grads if grad is not None])


class Program(NamedTuple):
    """The forward program."""

    closed: ClosedJaxpr
    inputs: list[int]  # the numbers of the roots that it takes
    backward: Backward | None

    def jitted(self, donated: tuple[int, ...], options: dict | None) -> Any:
        """To be called with the inputs, of which those at the places `donated` are used up."""
        return jax.jit(jaxpr_as_fun(self.closed), donate_argnums=donated, compiler_options=options)


def split(traced: ClosedJaxpr, count: int, arriving: list[int | None]) -> Program:
    """Take apart what a trace gave; its first `count` results are the forward program's.

    `arriving`: the numbers of the gradients that arrive, None for a result of which there is no backward.
    """
    jaxpr, consts = traced.jaxpr, traced.consts
    inputs: dict[Any, int] = {}  # variable: number
    gradients: dict[int, Any] = {}
    halves: tuple[list, list] = ([], [])
    for eqn in jaxpr.eqns:
        if eqn.primitive is not input_p:
            halves[bool(gradients)].append(eqn)
        elif eqn.params["number"] >= GRADIENT:
            gradients[eqn.params["number"]] = eqn.outvars[0]
        else:
            inputs[eqn.outvars[0]] = eqn.params["number"]
    forward, backward = halves
    outvars, pulled = list(jaxpr.outvars[:count]), list(jaxpr.outvars[count:])
    known = dict(zip(jaxpr.constvars, consts, strict=True))
    backward = _live(backward, pulled)
    before = {variable for eqn in forward for variable in eqn.outvars}
    needed = _used(backward, pulled)
    residuals = [variable for variable in needed if variable in before] if pulled else []
    second = None
    if pulled:
        grads = [None if number is None else gradients[number] for number in arriving]
        direct = [variable for variable in needed if variable in inputs]
        closed = _closed(jaxpr, known, [*direct, *residuals, *(g for g in grads if g)], backward, pulled)
        avals = [None if g is None else g.aval for g in grads]
        second = Backward(closed, [inputs[v] for v in direct], len(residuals), avals, {})
    outvars += residuals
    forward = _live(forward, outvars)
    forward, backward = _read_first(forward, forward + backward), _read_first(backward, forward + backward)
    taken = [variable for variable in _used(forward, outvars) if variable in inputs]
    return Program(_closed(jaxpr, known, taken, forward, outvars), [inputs[v] for v in taken], second)


def _live(eqns: list, outvars: list) -> list:
    """The equations on which results depend; what a backward that failed has left is not among them."""
    needed = set(_used([], outvars))
    found = []
    for eqn in reversed(eqns):
        if eqn.effects or not needed.isdisjoint(eqn.outvars):
            found.append(eqn)
            needed.update(_used([eqn], []))
    return found[::-1]


_READ, _WRITES = "trace_replay", ("trace_write", "view_update")  # names of the programs of views (views/program.py)


def _read_first(eqns: list, everywhere: list) -> list:
    """Equations of which those that read a part of what is written elsewhere are computed as they stand.

    XLA would fuse such a read into its users, which may come after the write, and copy the whole for it.
    """
    written = {eqn.invars[0] for eqn in everywhere if eqn.params.get("name") in _WRITES if _is_var(eqn.invars[0])}
    return [
        _apart(eqn) if eqn.params.get("name") == _READ and _is_var(eqn.invars[0]) and eqn.invars[0] in written else eqn
        for eqn in eqns
    ]


def _is_var(atom: Any) -> bool:
    return not isinstance(atom, Literal)


def _apart(eqn: Any) -> Any:
    inner = jaxpr_as_fun(eqn.params["jaxpr"])
    avals = [jax.ShapeDtypeStruct(atom.aval.shape, atom.aval.dtype) for atom in eqn.invars]
    return eqn.replace(params={**eqn.params, "jaxpr": jax.make_jaxpr(lambda *a: [apart(lambda *b: inner(*b)[0], *a)])(*avals)})


def _used(eqns: list, outvars: list) -> list:
    """The variables that equations and results refer to, each once, in order."""
    found: dict[Any, None] = {}
    for eqn in eqns:
        for atom in eqn.invars:
            if not isinstance(atom, Literal):
                found[atom] = None
    for atom in outvars:
        if not isinstance(atom, Literal):
            found[atom] = None
    return list(found)


def _closed(jaxpr: Any, known: dict, invars: list, eqns: list, outvars: list) -> ClosedJaxpr:
    constvars = [variable for variable in _used(eqns, outvars) if variable in known]
    part = jaxpr.replace(constvars=constvars, invars=invars, eqns=eqns, outvars=outvars)
    return ClosedJaxpr(part, [known[variable] for variable in constvars])
