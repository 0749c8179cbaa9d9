"""Passes: applies the jaxpr passes given to `xgrad.Backend(passes=...)` to each of its programs, before it is lowered.

    program's function ──make_jaxpr──► closed jaxpr ──pass──► closed jaxpr ──pass──► ... ──► lowered by jax.jit

`passes.py` has such passes.  They are applied within JAX's trace of the program, so once for each choice of shapes and
dtypes.  A pass with the attribute `stablehlo = True` gets and returns the text of a StableHLO module in place of a
closed jaxpr.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.export
import numpy as np

from ..base.dtypes import INEXACT
from ..base.jax_compat import jaxprs, stablehlo
from ..errors import CompiledMismatchError

# By itemsize: a pass may sum in another order.
_RTOL = {8: 1e-10, 4: 1e-4, 2: 2e-2, 1: 0.2}


class Passes:
    """The passes of one backend, in order; `last`: xgrad's own, which come after the user's."""

    def __init__(
        self, backend: str, passes: Sequence[Callable[[Any], Any]], last: Sequence[Callable[[Any], Any]] = ()
    ) -> None:
        self.backend, self.passes, self.last = backend, tuple(passes), last
        self._jitted: dict[Any, Any] = {}  # by program, and the number of its passes

    def through(self, function: Callable[..., Any], count: int | None = None) -> Callable[..., Any]:
        """Return a function of arrays whose program went through the first `count` passes; None: through all."""

        def rewritten(*args: Any) -> Any:
            closed, shapes = jax.make_jaxpr(function, return_shape=True)(*args)
            for change in self.passes[:count]:
                closed = self._changed(change, closed)
            for change in self.last:
                closed = change(closed)
            results = jaxprs().jaxpr_as_fun(closed)(*jax.tree.leaves(args))
            return jax.tree.unflatten(jax.tree.structure(shapes), results)

        rewritten.__name__ = getattr(function, "__name__", "rewritten")
        return rewritten

    def jitted(self, program: Any, count: int | None = None) -> Any:
        """Return a program's jitted function through the first `count` passes; None: through all."""
        found = self._jitted.get((program, count))
        if found is None:
            found = self._jitted[program, count] = jax.jit(self.through(program.function, count))
        return found

    def written(self, writing: Any) -> Any:
        """Return a program that writes in place, through all passes."""
        found = self._jitted.get(writing)
        if found is None:
            found = self._jitted[writing] = writing.through(self.through)
        return found

    def _changed(self, change: Any, closed: Any) -> Any:
        """Return what a pass makes of a program.  Raises `TypeError` for one that does not take its place."""
        name = getattr(change, "__name__", repr(change))
        who = f"the pass '{name}' of the backend '{self.backend}'"
        text = getattr(change, "stablehlo", False)
        try:
            new = _by_text(change, closed, who) if text else change(closed)
        except (TypeError, jax.errors.JaxRuntimeError):
            raise
        except Exception as error:
            raise RuntimeError(f"{who} raised {type(error).__name__}: {error}") from error
        if not isinstance(new, jaxprs().ClosedJaxpr):
            raise TypeError(
                f"{who} returns {type(new).__name__}, but has to return a closed jaxpr: jax.make_jaxpr(...)"
            )
        for what, old, own in (
            ("operands", closed.in_avals, new.in_avals), ("results", closed.out_avals, new.out_avals)
        ):  # fmt: skip
            if _kinds(old) != _kinds(own):
                raise TypeError(f"{who} returns a program with the {what} {_kinds(own)}, but it had {_kinds(old)}")
        return new

    def compare(self, program: Any, values: Sequence[Any], out: Any, line: str) -> None:
        """Raise `CompiledMismatchError`, which names the pass, if results are others than without passes."""
        expected = self.jitted(program, 0)(*values)
        if (worst := difference(expected, out)) is None:
            return
        guilty = len(self.passes)
        for count in range(1, guilty):
            if difference(expected, self.jitted(program, count)(*values)) is not None:
                guilty = count
                break
        name = getattr(self.passes[guilty - 1], "__name__", repr(self.passes[guilty - 1]))
        raise CompiledMismatchError(
            f"the pass '{name}' of the backend '{self.backend}' changes the values of '{program.name}', at {line}: "
            f"{worst}. Nothing was changed. Mend the pass, or leave it out: backend.replace(passes=[])"
        )


def difference(expected: Any, found: Any) -> str | None:
    """Return the largest difference of results, in words, if it is more than rounding; else None."""
    largest, words = 0.0, None
    for a, b in zip(jax.tree.leaves(expected), jax.tree.leaves(found), strict=True):
        if jax.numpy.issubdtype(a.dtype, jax.dtypes.extended):
            a, b = map(jax.random.key_data, (a, b))
        a, b = np.asarray(a), np.asarray(b)
        exact = a.dtype not in INEXACT
        wide = np.float64 if a.dtype.kind != "c" else np.complex128
        x, y = (a, b) if exact else (a.astype(wide), b.astype(wide))
        same = (x == y) | ((x != x) & (y != y))
        if same.all():
            continue
        with np.errstate(all="ignore"):
            apart = np.where(same, 0.0, np.abs(x.astype(wide) - y.astype(wide)))
        apart = np.where(np.isnan(apart), np.inf, apart)
        size = a.dtype.itemsize // (2 if a.dtype.kind == "c" else 1)
        scale = max(1.0, float(np.abs(np.where(np.isfinite(x), x, 0)).max()))
        place = np.unravel_index(int(apart.argmax()), apart.shape)
        most = float(apart[place])
        if most > (0.0 if exact else _RTOL[size] * scale) and most >= largest:
            at = f" at {[int(i) for i in place]}" if place else ""
            largest, words = most, f"the largest difference is {most:.3g}, {b[place]!s} in place of {a[place]!s}{at}"
    return words


def _kinds(avals: Any) -> str:
    return ", ".join(f"{aval.dtype.name}{list(aval.shape)}" for aval in avals) or "none"


def _by_text(change: Callable[[str], Any], closed: Any, who: str) -> Any:
    """Return the program that a pass over StableHLO's text makes of a closed jaxpr."""
    structs = [jax.ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=aval.weak_type) for aval in closed.in_avals]
    exported = jax.export.export(jax.jit(jaxprs().jaxpr_as_fun(closed)))(*structs)
    text = change(exported.mlir_module())
    if not isinstance(text, str):
        raise TypeError(f"{who} returns {type(text).__name__}, but has to return the text of a StableHLO module")
    dialect = stablehlo()
    module = dialect.serialize_portable_artifact_str(text, dialect.get_current_version())
    return jax.make_jaxpr(dataclasses.replace(exported, mlir_module_serialized=module).call)(*structs)
