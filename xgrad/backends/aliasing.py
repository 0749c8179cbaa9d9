"""`xgrad.Backend(aliasing=...)`: decides when a write through a view reaches the base and the other views.

    "write_through"   at once, in the storage's memory: what the runtime does by itself
    "regenerate"      when one of them is read: until then the write waits, as a view and its new value, in the lazy
                      queue of its thread (lazily.py), which an eager backend has for this alone
    "copy_on_write"   at once, in new memory if other tensors share the storage

Invariant: all three give the same values, versions, history and hooks.

"regenerate" is PyTorch's functionalization (aten/src/ATen/FunctionalStorageImpl.cpp): a storage has a list of updates,
which `sync_` applies when a tensor is read that is not up to date.  Two laws of a view spare here what PyTorch leaves
to the compiler: a view that was written last is its new value; and a part that is overwritten is not read.
"""

from types import FunctionType
from typing import Any

import numpy as np

from ..execution.pending import Pending, aval_of
from ..execution.references import COUNTED, is_alone, references
from ..tensor import Tensor, blank
from ..views.storage import Storage
from .lazily import queue_in_thread, queue_of
from .operands import traced
from .shards import spread_of

POLICIES = ("write_through", "regenerate", "copy_on_write")
_OVERWRITE = frozenset({"copy", "fill", "zero"})


class Regenerate:
    """Writes through views wait until somebody reads their storage."""

    def __init__(self, runtime: Any) -> None:
        self.runtime = runtime

    def start(self) -> None:
        """Prepare for the first write: nothing."""

    def known(self, program: Any, operands: Any) -> Any:
        """Return the value of a view that was written last; None if it has to be read from the root."""
        if program.role != "read":
            return None
        root, *starts = operands
        if root.__class__ is not Pending or root.latest is None or root.queue is None:
            return None
        view, at, new = root.latest
        if view is not program or any(a is not b for a, b in zip(at, starts)):
            return None
        self.runtime.stale = False  # a report counts no reading
        return new

    def write(self, out: list[Any], box: list[Any], holder: Any, alone: bool, program: Any, operands: Any) -> bool:
        """Put the root that a write will give into `out`; nothing if the write does not wait.

        Then return True if only `holder` refers to the array in `box`, now that nothing waits to be written into it.
        """
        runtime, parts = self.runtime, getattr(program, "parts", None)
        spread = runtime.several and spread_of((*box, *operands)) is not None
        if parts is None or spread or any(map(traced, operands)):
            if queue_of(runtime) is not None or box[0].queue is None:
                return alone
            box[0].evaluated("a write of the whole")
            return holder._owned and is_alone(box)
        views, kernel = parts
        whole, latest = box[0], None
        if kernel is None or kernel.operator.name not in _OVERWRITE:
            if kernel is None:
                new, *starts = operands
            else:
                starts, *others = operands
                new = kernel.write(False)(views.view(whole, *starts), *others)
            here = new.__class__ is Pending and new.place == runtime.number
            if here and (new.shape, new.dtype) == (views.shape, views.dtype):
                latest = views.view, starts, new
            program, operands = views.write, (new, *starts)
        operands = whole, *operands
        if runtime.constants is not None:
            program, operands = runtime.constants.bound(program, operands)
        if runtime.lacks(program, operands):
            out.append(program(*operands))
            return alone
        if runtime.reports:
            runtime.count(program, operands)
        root = runtime.adopted(queue_in_thread(runtime).note(program, operands), operands, [*operands])
        root.latest = latest
        out.append(root)
        return alone


class CopyOnWrite:
    """A write takes new memory if other tensors share the storage."""

    def __init__(self, runtime: Any) -> None:
        self.runtime = runtime
        self._alone: int | None = None  # the references to a storage of one tensor, as `write` counts them

    def start(self) -> None:
        """Prepare for the first write: count the references to a storage that one tensor has."""
        if self._alone is None:
            probe: Any = blank(Tensor)
            array = probe._array = Pending(None, 0, aval_of((), np.dtype("float32"), False))
            array.value, array.place = np.zeros((), np.float32), self.runtime.number
            probe._share()
            probe._rewrite(lambda donate, where=None: lambda root: root)

    def known(self, program: Any, operands: Any) -> Any:
        """Return None: each view is read from the root."""

    def write(self, out: list[Any], box: list[Any], holder: Any, alone: bool, program: Any, operands: Any) -> bool:
        """Return `alone`, or False if other tensors share the storage: then the write copies."""
        if self._alone is None:
            self._alone = references(holder)
        if program.__class__ is FunctionType or holder.__class__ is not Storage:
            return alone
        if COUNTED and references(holder) <= self._alone:
            return alone
        runtime, whole = self.runtime, box[0]
        noted = queue_of(runtime) is not None
        if whole.owned and whole.value is not None and (alone or noted):  # else it is copied anyway
            for events in runtime.reports:
                events.shared.add(whole.nbytes)
        if noted:  # the queue may not take its memory
            whole.owned = False
        return False


def policy(runtime: Any) -> Any:
    """Return what a backend's `aliasing` needs; None for writes that go through at once."""
    kinds = {"regenerate": Regenerate, "copy_on_write": CopyOnWrite}
    kind = kinds.get(runtime.backend.aliasing)
    return kind and kind(runtime)
