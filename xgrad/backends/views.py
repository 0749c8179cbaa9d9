"""Views: raises for views that `xgrad.Backend(views=...)` declares "refuse", and counts views that are made as copies.

An array and the copy that stands in place of a view of it refer to each other weakly (`Pending.apart`), so that a write
into one is counted while the other is there.
"""

import weakref
from typing import Any

from ..errors import BackendError
from ..execution.pending import Pending
from ..views.chain import ViewChain
from ..views.rules import Rules
from .events import Apart, Sum


class Views:
    """Applies the rules of one backend's views, and counts by them."""

    def __init__(self, runtime: Any) -> None:
        self.runtime: Any = runtime
        self.rules: Rules = Rules(runtime.backend.views)
        self.free: set[Any] = set()  # programs that read free views

    def refusal(self, name: str, tensor: Any) -> BackendError:
        """Return the error for a view that the backend refuses."""
        return BackendError(
            f"{name}(): The view '{name}' of {tensor._dtype.name}{list(tensor.shape)} is refused by the backend "
            f"'{self.runtime.backend.name}' (at {self.runtime.line()}). Compute with another operation, or take the "
            f"view on the host, x.cpu(); or declare views={{'{name}': 'copy'}}, with which it has a memory of its own."
        )

    def require(self, tensor: Any, key: tuple[Any, ...]) -> None:
        """Raise `BackendError` if the backend refuses the view that a tensor is to become in place."""
        for name, *_ in self.rules.parts(key, tensor.ndim):
            if self.rules.of(name) == "refuse":
                raise self.refusal(name, tensor)

    def copied(self, name: str, whole: Any, copy: Any) -> None:
        """Count a copy in place of a view, and tie it to its base."""
        if whole.__class__ is not Pending or copy.__class__ is not Pending:
            return
        line = self.runtime.line()
        for events in self.runtime.reports:
            events.apart.setdefault((name, line), Sum()).add(copy.nbytes)
        for one, other in ((whole, copy), (copy, whole)):
            kept = [apart for apart in one.apart if apart.other() is not None]
            one.apart = [*kept, Apart(name, line, weakref.ref(other))]

    def written(self, array: Pending) -> None:
        """Count a write that an alias would have shown."""
        for apart in array.apart:
            if apart.other() is not None:
                for events in self.runtime.reports:
                    events.parted[apart.name, apart.line, self.runtime.line()] += 1

    def frees(self, base: ViewChain, view: ViewChain) -> None:
        """Note that reading a view costs nothing, if reading its base does not."""
        if not view.is_root and (base.is_root or base.program.view in self.free):
            self.free.add(view.program.view)
