"""Lacks: what a backend lacks to run a program: operators, operations of StableHLO, dtypes; and what it only stores."""

from typing import Any

import jax

from ..base.dtypes import x64_enabled
from ..errors import BackendError
from ..execution.pending import Aval, Pending, declared_of
from ..execution.shapes import AT_ONCE, avals_of, kind_of
from .without import moves
from .without_hlo import HloFilter


class Lacks:
    """The operators, operations of StableHLO and dtypes that one backend lacks."""

    def __init__(
        self, backend: Any, operators: frozenset[str], dtypes: frozenset[Any] | None, stores: frozenset[Any] | None
    ) -> None:
        self._backend, self._operators, self._dtypes, self.stores = backend, operators, dtypes, stores
        self._no_complex: bool = "complex" in backend.without
        self._hlo: HloFilter | None = HloFilter(backend.without_hlo) if backend.without_hlo else None
        self.passes: Any = None  # of the backend, through which programs go

    def of(self, program: Any, operands: Any) -> str:
        """Return what the backend lacks to run a program, in words; "" if it has all."""
        if program.operator in self._operators:
            return f"the operator '{program.operator}'"
        if self._hlo is not None and program.lazy:
            lack = self._hlo.lack(program, (x64_enabled(), *map(kind, operands)), self.passes)
            if lack:
                return lack
        if self._dtypes is None and not self._no_complex:
            return ""
        arrays = jax.tree.leaves([*operands], is_leaf=lambda x: x.__class__ is Pending)
        found, results = [(x.dtype, "") for x in arrays if declared_of(x) is not None], results_of(program, operands)
        found += [(aval.dtype, ", which its result has") for aval in results]
        for dtype, of in found:
            stored = self.stores is not None and dtype in self.stores
            if self._computes(dtype) or (stored and moves(program, operands, results)):
                continue
            if self._no_complex and dtype.kind == "c":
                return "complex numbers"
            return f"the dtype {dtype.name}{of}" + ", and which it stores only" * stored
        return ""

    def require_stored(self, dtype: Any, line: str) -> None:
        """Raise `BackendError` if no tensor of a dtype can be on the backend."""
        if not self._computes(dtype) and dtype not in (self.stores or ()):
            raise BackendError(
                f"A tensor of {dtype.name} cannot be on the backend '{self._backend.name}', which lacks the dtype "
                f"{dtype.name} (at {line}). Give it another one, dtype=... or x.to(dtype); or declare "
                f"stores=['{dtype.name}'], with which the backend stores, casts and moves it."
            )

    def _computes(self, dtype: Any) -> bool:
        return (self._dtypes is None or dtype in self._dtypes) and not (self._no_complex and dtype.kind == "c")


def results_of(program: Any, operands: Any) -> tuple[Aval, ...]:
    """Return what a program will give, none if only running it shows that."""
    if not program.lazy:
        return ()
    key = (x64_enabled(), *map(kind, operands))
    found = program.avals.get(key) or avals_of(program, key)
    return () if found is AT_ONCE else found if found.__class__ is tuple else (found,)


def kind(x: Any) -> Any:
    """Return the aval of an operand, in tuples as it is; None for None."""
    if x.__class__ is tuple:
        return tuple([kind(part) for part in x])
    return None if x is None else kind_of(x)
