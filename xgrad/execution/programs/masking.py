"""masked: makes from a program at padded shapes a function with the values of the same program at the true shapes.

It is for `xgrad.compile(dynamic=...)` and `xgrad.Backend(shapes=...)`.  JAX traces the program at both shapes, and the
two traces are read side by side:

    true      a:f32[5,3]   b = reduce_sum[axes=(0,)] a                     c = div b 5.0
    padded    a:f32[8,3]   b = reduce_sum[axes=(0,)] a                     c = div b 8.0
    masked    n, a         b = reduce_sum[axes=(0,)] where(i < n, a, 0)    c = div b n

A dimension is padded where the two differ.  Invariant: of each array the true values stand in front in each dimension,
as many as the trace at the true shapes has; what is behind them is arbitrary.  So operations that compute each element,
or each row, by itself stay as they are; those that combine along a padded dimension (sums, products, maxima, scatters)
get the value there that changes nothing.  A number that differs between the traces is computed from the true sizes,
which are an operand: programs of other sizes are the same then.  An operation without a rule, with other parameters, or
that reads other values than its twin, is an `UnpaddedError`.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import combinations
from math import prod
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from ...base.jax_compat import CUSTOM_INNER, INNER, jaxprs
from .mask_rules import ANOTHER, CALLS, CONTROL, ELEMENTWISE, RULES, SIZES, UnpaddedError, padded_dims

# The forms in which numbers are made of sizes: the size of the number, the number of the size; the last is n / (n - 1).
_FORMS: Any = [
    (lambda x: x, lambda n: n),
    (lambda x: 1 / x, lambda n: 1 / n),
    (lambda x: x / (x - 1), lambda n: n / (n - 1)),
]
# Promises about indices that padding may break.
_PROMISES = {"unique_indices": False, "indices_are_sorted": False}


def masked(exact: Any, padded: Any, sizes: dict[tuple[int, int], int]) -> Callable[..., list[Any]]:
    """Return a function of (true sizes, *padded operands) that returns the flat, padded results.

    `exact`, `padded`: closed jaxprs of one function.  `sizes`: by (true size, padded size), the place in the true
    sizes, which are a vector of int32.  The function raises `UnpaddedError` when it is traced.
    """

    def function(true: Any, *operands: Any) -> list[Any]:
        try:
            return Walk(sizes, true).run(exact, padded, operands)
        except UnpaddedError:
            raise
        except (KeyError, TypeError, ValueError) as error:  # of JAX, where what is computed does not fit together
            raise UnpaddedError(f"{ANOTHER} ({type(error).__name__})") from error

    return function


def key_of(value: Any) -> Any:
    """Return a key of a jaxpr, equal for programs that compute the same: variables are numbered.

    Its text would not do: JAX prints neither weak types nor which function a callback calls.
    """
    core = jaxprs()
    if isinstance(value, (core.ClosedJaxpr, core.Jaxpr)):  # one class from jax 0.12 on, with `consts`
        consts = [(np.shape(x), str(x.dtype), np.asarray(x).tobytes()) for x in getattr(value, "consts", ())]
        value = getattr(value, "jaxpr", value)
        numbers: dict[Any, int] = {}

        def named(v: Any) -> Any:
            aval = v.aval
            if isinstance(v, core.Literal):
                return str(aval), aval.weak_type, np.asarray(v.val).tobytes()
            return numbers.setdefault(v, len(numbers)), str(aval), getattr(aval, "weak_type", False)

        heads = tuple([named(v) for v in (*value.constvars, *value.invars)])
        eqns = [
            (eqn.primitive.name, key_of(eqn.params), *map(named, eqn.invars), None, *map(named, eqn.outvars))
            for eqn in value.eqns
        ]
        return heads, tuple(eqns), tuple([named(v) for v in value.outvars]), tuple(consts)
    if isinstance(value, dict):
        return tuple([(name, key_of(part)) for name, part in sorted(value.items())])
    if isinstance(value, (tuple, list)):
        return tuple(map(key_of, value))
    if isinstance(value, np.ndarray):
        return value.shape, str(value.dtype), value.tobytes()
    try:
        hash(value)
    except TypeError:
        return str(value)
    return value


class Walk:
    """Evaluates the padded trace, beside the exact one."""

    def __init__(self, sizes: dict[tuple[int, int], int], true: Any) -> None:
        self.sizes, self.true = sizes, true

    def run(self, exact: Any, padded: Any, operands: Sequence[Any]) -> list[Any]:
        e, p = exact.jaxpr, padded.jaxpr
        if len(e.eqns) != len(p.eqns) or len(exact.consts) != len(padded.consts):
            raise UnpaddedError(ANOTHER)
        twins, values = dict(zip(p.invars, e.invars, strict=True)), dict(zip(p.invars, operands, strict=True))
        literal = jaxprs().Literal

        def read(what: str, ours: Any, theirs: Any) -> Any:
            if isinstance(theirs, literal) and isinstance(ours, literal):
                return self.number(what, ours.val, theirs.val)
            if isinstance(theirs, literal) or twins[theirs] is not ours:  # what it reads was computed elsewhere
                raise UnpaddedError(ANOTHER)
            return values[theirs]

        for ours, theirs, const, other in zip(e.constvars, p.constvars, exact.consts, padded.consts):
            twins[theirs] = ours
            if np.shape(const) == np.shape(other) and np.array_equal(const, other):
                values[theirs] = other
            elif np.shape(const) or np.shape(other):
                raise UnpaddedError("it holds an array of the true size")
            else:
                values[theirs] = self.number("it", const, other)
        for ours, theirs in zip(e.eqns, p.eqns):
            name = theirs.primitive.name
            if ours.primitive is not theirs.primitive or len(ours.outvars) != len(theirs.outvars):
                raise UnpaddedError(ANOTHER)
            given = [read(f"'{name}'", a, b) for a, b in zip(ours.invars, theirs.invars, strict=True)]
            for a, b in zip(ours.outvars, theirs.outvars):
                self.known(name, a.aval, b.aval)
            out = self.equation(name, ours, theirs, given)
            twins.update(zip(theirs.outvars, ours.outvars))
            values.update(zip(theirs.outvars, out if theirs.primitive.multiple_results else [out], strict=True))
        return [read("a result", a, b) for a, b in zip(e.outvars, p.outvars, strict=True)]

    def equation(self, name: str, exact: Any, padded: Any, given: list[Any]) -> Any:
        """Return the result of one operation, or results."""
        if name in CALLS:
            return self.run(_within(exact.params), _within(padded.params), given)
        if (control := CONTROL.get(name)) is not None:
            return control(self, exact, padded, given)
        same = {key: value for key, value in exact.params.items() if key not in SIZES}
        if any(not _equal(value, padded.params[key]) for key, value in same.items()):
            raise UnpaddedError(f"'{name}' has the true size among its parameters")
        params = padded.params
        pairs = [*zip(exact.invars, padded.invars), *zip(exact.outvars, padded.outvars)]
        where = [padded_dims(a.aval, b.aval) for a, b in pairs]
        if name in ELEMENTWISE and len(exact.outvars) == 1:
            sizes = [[*zip(a.aval.shape, b.aval.shape)] for a, b in pairs]
            if any(shape[i] != sizes[-1][i] for dims, shape in zip(where, sizes) for i in dims):
                raise UnpaddedError(f"'{name}' repeats a padded dimension")
        if name not in ELEMENTWISE and any(where):
            rule = RULES.get(name)
            if rule is None:
                raise UnpaddedError(f"'{name}' has a padded operand or result")
            given = rule(self, exact, padded, given, where) or given
            params = {**padded.params, **{key: value for key, value in _PROMISES.items() if key in padded.params}}
        elif name not in ELEMENTWISE and not _equal(exact.params, padded.params):
            raise UnpaddedError(f"'{name}' has the true size among its parameters")
        return padded.primitive.bind(*given, **params)

    def known(self, name: str, exact: Any, padded: Any) -> None:
        """Raise `UnpaddedError` for a result with a size that no operand of the program has."""
        if len(exact.shape) != len(padded.shape) or exact.dtype != padded.dtype:
            raise UnpaddedError(ANOTHER)
        for i in padded_dims(exact, padded):
            if self.rows(exact.shape[i], padded.shape[i]) is None:
                raise UnpaddedError(f"'{name}' makes a size of {exact.shape[i]}, which is not an operand's")

    def rows(self, n: int, m: int) -> Any:
        """Return a true size: an operand's, or a multiple of one, of rows that were joined; None for any other."""
        for (size, wide), place in self.sizes.items():
            if not n % size and n // size * wide == m:
                return self.true[place] * np.int32(n // size)
        return None

    def number(self, what: str, exact: Any, padded: Any) -> Any:
        """Return a number of the program; where the traces differ, computed from the true sizes."""
        old, new = np.asarray(exact), np.asarray(padded)
        if old.dtype == new.dtype and old.tobytes() == new.tobytes():
            return padded
        lacks = f"{what} has the number {exact}, which depends on the true size"
        floating = jnp.issubdtype(old.dtype, jnp.floating)
        if not floating and not jnp.issubdtype(old.dtype, jnp.integer):
            raise UnpaddedError(lacks)
        for size_of, number_of in _FORMS if floating else _FORMS[:1]:
            with suppress(ZeroDivisionError, OverflowError, ValueError):  # of a number that has not this form
                sizes = round(size_of(float(old))), round(size_of(float(new)))
                made = [np.array(number_of(float(size))).astype(old.dtype) for size in sizes]
                if made[0] == old and made[1] == new and (size := self.size(*sizes)) is not None:
                    if number_of is not _FORMS[0][1]:
                        size = size.astype(jnp.promote_types(old.dtype, jnp.float32))
                    return number_of(size).astype(old.dtype)
        raise UnpaddedError(lacks)

    def size(self, old: int, new: int) -> Any:
        """Return a number of elements, computed from the true sizes; None if it is not made of them."""
        ways = []
        for chosen in (c for count in range(len(self.sizes)) for c in combinations(self.sizes, count + 1)):
            n, m = (prod(sizes) for sizes in zip(*chosen))
            factor, rest = divmod(new - old, m - n)
            offset = old - factor * n
            if factor and not rest and max(map(abs, (old, offset, factor))) < 1 << 31:
                ways.append((abs(offset), abs(factor), offset, factor, chosen))
        if not ways:
            return None
        *_, offset, factor, chosen = min(ways)  # the simplest one, which other sizes have too
        product = prod(self.true[self.sizes[pair]] for pair in chosen)
        return product * np.int32(factor) + np.int32(offset)

    def filled(self, x: Any, exact: Any, dims: Sequence[int], value: Any) -> Any:
        """Return an array with a value where these dimensions are padded."""
        if not dims:
            return x
        inside: Any = True
        for i in dims:
            inside &= lax.broadcasted_iota(jnp.int32, x.shape, i) < self.rows(exact.shape[i], x.shape[i])
        return jnp.where(inside, x, np.asarray(extreme(value, x.dtype)).astype(x.dtype))


def _within(params: dict[str, Any]) -> Any:
    """Return the program that an operation calls."""
    inner = next(params[key] for key in (INNER, CUSTOM_INNER) if key in params)
    core = jaxprs()
    return inner if isinstance(inner, core.ClosedJaxpr) else core.ClosedJaxpr(inner, ())


def _equal(a: Any, b: Any) -> bool:
    """Return True for equal parameters; programs and functions among them are compared as text."""
    try:
        return bool(a == b) or str(a) == str(b)
    except (TypeError, ValueError):
        return str(a) == str(b)


def extreme(value: Any, dtype: Any) -> Any:
    """Return a number of a dtype: the least or the most one where the value says so."""
    if not isinstance(value, str):
        return value
    least = value == "least"
    if dtype == np.bool_:
        return not least
    if jnp.issubdtype(dtype, jnp.inexact):
        infinite = np.asarray(-np.inf if least else np.inf).astype(dtype)
        most = jnp.finfo(dtype)
        return infinite if np.isinf(infinite) else most.min if least else most.max
    return jnp.iinfo(dtype).min if least else jnp.iinfo(dtype).max
