"""split: divides the equations that xgrad.compile traced into a forward `Program` and, for gradients, a `Backward`.

A trace gives one list of equations.  Equations of `input_p` are inputs from outside; the first one of an arriving
gradient is where the forward program ends and the backward program begins.  The forward program also returns the values
that the backward program uses (*residuals*), except its own inputs.

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

from ..base.jax_compat import INNER, NAME
from ..base.limits import checked
from ..execution.programs.barriers import held
from ..execution.programs.chains import with_chains
from ..views.program import scalar_of
from .in_segments import in_segments
from .reached_tensors import input_p

GRADIENT = 1 << 30  # the numbers of gradients that arrive start here


class Backward(NamedTuple):
    """The backward program, and the sources of its operands."""

    closed: ClosedJaxpr  # of (residuals, arriving gradients, one(), arrays)
    inputs: list[int]  # the numbers of the inputs among the residuals
    residuals: int  # how many residuals the forward program returns, at the end
    avals: list[Any]  # of the arriving gradients, None for one that the program does not use
    arrays: list[Any]  # constant arrays of the trace
    programs: dict[tuple[Any, ...], Callable[..., Any]]
    places: list[Any] | None  # the shardings of the gradients

    def run(self, residuals: list[Any], grads: list[Any]) -> list[Any]:
        """Return the inputs' gradients.  An arriving gradient may be None: undefined."""
        given = tuple(grad is not None for grad in grads)
        program = self.programs.get(given)
        if program is None:
            parts = in_segments(self.closed, {}) if self.places is None else None
            whole = parts or with_chains(self.closed)

            def backward(residuals: list, grads: list, one: Any, arrays: list) -> list:
                arrived = iter(grads)
                taken = []
                for is_given, aval in zip(given, self.avals, strict=True):
                    grad = next(arrived) if is_given else None
                    if aval is not None:
                        taken.append(jnp.zeros(aval.shape, aval.dtype) if grad is None else grad)
                return [*whole(*residuals, *taken, one, *arrays)]

            if not parts:
                backward = jax.jit(checked(backward), out_shardings=self.places)
            program = self.programs[given] = backward
        return program(residuals, [grad for grad in grads if grad is not None], one(), self.arrays)


class Program(NamedTuple):
    """The forward program."""

    closed: ClosedJaxpr
    inputs: list[int]  # the numbers of the roots that are its first operands
    with_one: bool  # True if `one()` is the next operand
    arrays: list[Any]  # the last operands: constant arrays of the trace
    backward: Backward | None

    def jitted(
        self,
        donated: tuple[int, ...],
        options: dict[Any, Any] | None,
        ins: Any = None,
        outs: Any = None,
        into: Any = None,
    ) -> Any:
        """Return the program as a `jax.jit` that donates the inputs at the places `donated`.

        `ins`, `outs`: the shardings of operands and results, None for "as the operand is" and "as XLA chooses".
        `into`: the `Results` that get the results, if all `outs` are None.
        """
        whole = function = with_chains(self.closed)
        if into is not None:

            def function(*operands: Any) -> Any:
                return into.holding(whole(*operands))

        return jax.jit(function, donate_argnums=donated, compiler_options=options, in_shardings=ins, out_shardings=outs)

    def alone(self, results: list[int]) -> tuple[Callable[..., Any], list[int]] | None:
        """Return a program of some results, and its inputs' numbers; None if it needs `one()` or a constant array.

        A generator's new key depends on the key only, and is computed where the key is.
        """
        jaxpr = self.closed.jaxpr
        outvars = [jaxpr.outvars[number] for number in results]
        eqns = _live([eqn for eqn in jaxpr.eqns if not eqn.effects], outvars)
        used = _used(eqns, outvars)
        numbers = dict(zip(jaxpr.invars, self.inputs))
        invars = [variable for variable in used if variable in numbers]
        defined = {*invars, *jaxpr.constvars, *(variable for eqn in eqns for variable in eqn.outvars)}
        if not defined.issuperset(used):  # `one()`, or a constant array
            return None
        part = jaxpr.replace(invars=invars, eqns=eqns, outvars=outvars)
        return jax.jit(jaxpr_as_fun(ClosedJaxpr(part, self.closed.consts))), [numbers[v] for v in invars]


def split(traced: ClosedJaxpr, count: int, arriving: list[int | None], written: list[int]) -> Program:
    """Split the traced equations into a forward program, with the first `count` results, and a backward program.

    `arriving`: the numbers of the arriving gradients, None for a result without a backward.  `written`: the numbers of
    the roots that are written, in the order of the results that replace them, which their operands get too.
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
    outvars, pulled = list(jaxpr.outvars[:count]), list(jaxpr.outvars[count:])
    known = dict(zip(jaxpr.constvars, consts, strict=True))
    backward = _live(halves[1], pulled)
    before = {variable for eqn in halves[0] for variable in eqn.outvars}
    needed = _used(backward, pulled)
    residuals = [variable for variable in needed if variable in before]
    outvars += residuals
    forward = _live(halves[0], outvars)
    one = _one_like()
    forward, backward = _read_first((forward, backward), one)
    second = None
    if pulled:
        grads = [None if number is None else gradients[number] for number in arriving]
        direct = [variable for variable in needed if variable in inputs]
        invars = [*direct, *residuals, *(g for g in grads if g), one]
        avals = [None if g is None else g.aval for g in grads]
        closed, arrays = _closed(jaxpr, known, invars, backward, pulled)
        second = Backward(closed, [inputs[v] for v in direct], len(residuals), avals, arrays, {}, None)
    used = _used(forward, outvars)
    taken = [variable for variable in used if variable in inputs]
    order = {number: place for place, number in enumerate(written)}
    taken.sort(key=lambda variable: order.get(inputs[variable], len(order)))
    with_one = one in used
    closed, arrays = _closed(jaxpr, known, [*taken, one] if with_one else taken, forward, outvars)
    return Program(closed, [inputs[v] for v in taken], with_one, arrays, second)


def one() -> Any:
    """Return a 1 that XLA cannot fold: it is an operand."""
    return scalar_of(1)


def _one_like() -> Any:
    """Return a jaxpr variable for `one()`."""
    return jax.make_jaxpr(lambda value: value)(one()).jaxpr.invars[0]


def _live(eqns: list, outvars: list) -> list:
    """Return the equations on which results depend; drops the equations of a backward that failed."""
    needed = set(_used([], outvars))
    found = []
    for eqn in reversed(eqns):
        if eqn.effects or not needed.isdisjoint(eqn.outvars):
            found.append(eqn)
            needed.update(_used([eqn], []))
    return found[::-1]


_READ, _WRITES = "trace_replay", ("trace_write", "view_update")  # names of the programs of views (views/program.py)


def _read_first(halves: tuple[list, list], one: Any) -> tuple[list, list]:
    """Return the equations with a change: a read of an array that is written too is computed where it stands (held)."""
    written = {
        eqn.invars[0] for half in halves for eqn in half
        if eqn.params.get(NAME) in _WRITES and _is_var(eqn.invars[0])
    }  # fmt: skip

    def changed(eqns: list) -> list:
        found = []
        for eqn in eqns:
            reads = eqn.params.get(NAME) == _READ and _is_var(eqn.invars[0]) and eqn.invars[0] in written
            found += _held(eqn, one) if reads else [eqn]
        return found

    return changed(halves[0]), changed(halves[1])


def _is_var(atom: Any) -> bool:
    return not isinstance(atom, Literal)


def _held(eqn: Any, one: Any) -> list:
    """Return the equations that replace a read."""
    inner = jaxpr_as_fun(eqn.params[INNER])

    def read(one: Any, *operands: Any) -> Any:
        return held(inner(*operands)[0], one)

    invars = [one, *eqn.invars]
    avals = [jax.ShapeDtypeStruct(atom.aval.shape, atom.aval.dtype) for atom in invars]
    return _inlined(jax.make_jaxpr(read)(*avals).jaxpr, invars, eqn.outvars)


def _inlined(jaxpr: Any, invars: list, outvars: list) -> list:
    """Return the equations of a jaxpr without constants, on other variables."""
    names = dict(zip(jaxpr.invars, invars)) | dict(zip(jaxpr.outvars, outvars))

    def renamed(atoms: list) -> list:
        return [names.get(atom, atom) if _is_var(atom) else atom for atom in atoms]

    return [eqn.replace(invars=renamed(eqn.invars), outvars=renamed(eqn.outvars)) for eqn in jaxpr.eqns]


def _used(eqns: list, outvars: list) -> list:
    """Return the variables that equations and results refer to, each once, in order."""
    found: dict[Any, None] = {}
    for eqn in eqns:
        for atom in eqn.invars:
            if not isinstance(atom, Literal):
                found[atom] = None
    for atom in outvars:
        if not isinstance(atom, Literal):
            found[atom] = None
    return list(found)


def _closed(jaxpr: Any, known: dict, invars: list, eqns: list, outvars: list) -> tuple[ClosedJaxpr, list]:
    """Return a part of a jaxpr, and the arrays that it takes behind its other operands.

    Constant arrays of the trace are operands: XLA would fold them, which takes long for large ones, and its CPU
    compiler gets transposes of them wrong (jaxlib 0.7.2).  Scalars, such as the starts of views, are constants.
    """
    constvars = [variable for variable in _used(eqns, outvars) if variable in known]
    scalars = [variable for variable in constvars if not variable.aval.shape]
    arrays = [variable for variable in constvars if variable.aval.shape]
    part = jaxpr.replace(constvars=scalars, invars=[*invars, *arrays], eqns=eqns, outvars=outvars)
    return ClosedJaxpr(part, [known[variable] for variable in scalars]), [known[variable] for variable in arrays]
