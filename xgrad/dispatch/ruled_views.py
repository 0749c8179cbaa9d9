"""ruled: makes a tensor's views as its backend, `xgrad.Backend(views=...)`, says, for dispatch/view.py.

A rule gives a view steps of its own; says that it costs nothing ("free"), is a copy, or is tracked by "replay" or by
"geometry"; or refuses it.  `dispatch/view.py` calls `ruled` only once a backend with rules is in use.  Operators that
write into a view which they make, as `x[i] = v` does, make it by `aliased`.
"""

from collections.abc import Callable
from typing import Any

from ..config import state
from ..execution.pending import declared_of
from ..execution.runner import runner
from ..tensor import Tensor
from ..views.chain import ViewChain
from ..views.rules import Rules, ViewRule


def rules_of(self: Any) -> Any:
    """Return the `backends.views.Views` of the backend that a tensor is on; None if it has no rules."""
    place = declared_of(self._held()) if isinstance(self, Tensor) else None
    return None if place is None else place.runtime.views


def plainly(chain: ViewChain, key: tuple[Any, ...]) -> ViewChain | None:
    """Return the view of a chain by xgrad's own steps."""
    return chain.view(*key)


def aliased(make: Callable[..., Any], *args: Any) -> Any:
    """Return the view `make(*args)`, which is to be written at once: an alias where views are copies too."""
    if not runner.views:
        return make(*args)
    before, state.aliased = state.aliased, True
    try:
        return make(*args)
    finally:
        state.aliased = before


def ruled(own: Any, self: Tensor, keys: list[tuple[Any, ...]], make: Callable[[Any], Any]) -> Any:
    """Make views of `self` by its backend's rules; `make(grow)` makes them of chains that `grow(chain, key)` gives.

    Raises `BackendError` for a view that the backend refuses.
    """
    rules: Rules = own.rules
    found = {rules.of(part[0]): part[0] for key in keys for part in rules.parts(key, self.ndim)}
    if "refuse" in found:
        raise own.refusal(found["refuse"], self)
    out = make(rules.chain if any(rule.__class__ is ViewRule for rule in found) else plainly)
    many = out.__class__ is tuple
    views = out if many else () if out is None else (out,)
    if "copy" in found and not state.aliased:
        copies = [view.clone() for view in views]
        for copy in copies:
            own.copied(found["copy"], self._held(), copy._held())
        return tuple(copies) if many else copies[0] if copies else None
    path = "geometry" if "geometry" in found else "replay" if "replay" in found else None
    for view in views:
        if path is not None and view._view is not None and state.tracking is None:
            view._view.tracking = path
        if found.keys() == {"free"}:
            own.frees(self._chain, view._chain)
    return out
