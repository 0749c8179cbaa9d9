"""OperatorNode: the node that a recorded operator leaves, with what it saved.

One subclass for each operator, made when it is first recorded, under PyTorch's name (MulBackward0), with the attributes
`_saved_<argument>` and `_raw_saved_<argument>`.

`saved` holds inputs as the Tensors themselves, numbers as they are, and SavedVariables for results and whatever a hook
packed; `versions` the versions at which inputs were saved.
"""

from typing import TYPE_CHECKING, Any

from ..engine.node import Node
from ..engine.saved_variable import RELEASED, SavedVariable, check_version, freed_error
from ..tensor import Tensor
from ..views.storage import sole

if TYPE_CHECKING:
    from .kernel import Plan

_classes: dict[str, type] = {}
_REUSE_FROM = 1 << 14  # elements from which a gradient's memory is worth reusing


def node_class(name: str) -> type:
    """The node class of this name, made once."""
    found = _classes.get(name)
    if found is None:
        found = _classes[name] = type(name, (OperatorNode,), {"__module__": __name__})
    return found


class OperatorNode(Node):
    """A recorded operator."""

    plan: "Plan"
    saved: tuple = ()
    versions: tuple = ()
    static: tuple | None = None  # (shapes, dtypes) of the arguments, where a formula asks for them
    inplace: bool = False

    def apply(self, grads: list, needs: int) -> Any:
        plan = self.plan
        edges = self.next_edges
        needs = plan.needs if needs == -1 else needs & plan.needs
        if len(grads) == 1:
            grad = grads[0]
            if grad is None or not needs:
                return (None,) * len(edges)
            defined: tuple = (None,)
            shape, dtype = grad.shape, grad.dtype
            recorded = isinstance(grad, Tensor)
            del grad
        else:
            if not needs or all(g is None for g in grads):
                return (None,) * len(edges)
            defined = tuple(None if g is not None else (a.shape, a.dtype) for g, a in zip(grads, self.avals, strict=True))
            grads = [g for g in grads if g is not None]
            shape, dtype = None, None
            recorded = isinstance(grads[0], Tensor)
        if self.saved is RELEASED:
            raise freed_error(self.name())
        # Where an argument was broadcast or cast, the program fits the gradient to it.
        metas: list = [None] * len(edges)
        for i in plan.indices:
            child, number = edges[i]
            if child is None:
                if i == 0 and self.inplace:  # under CopySlices: the part that was written
                    metas[0] = (tuple(self.avals[0].shape), self.avals[0].dtype)
            else:
                meta = child.avals[number]
                if meta.shape != shape or meta.dtype != dtype:
                    metas[i] = (tuple(meta.shape), meta.dtype)
        reuse = (
            plan.kernel.operator.pointwise
            and not recorded
            and len(grads) == 1
            and metas.count(None) == len(metas)
            and grads[0].size >= _REUSE_FROM
            and sole(grads, 0)
        )
        key = (needs, defined, self.static, tuple(metas), reuse)
        if recorded:
            results = call(plan.operator(key), (*grads, *self._unpack()), ())
        else:
            results = plan.program(key)(*grads, *self._unpack_arrays())
        if len(edges) == 1:
            return (results,)
        out: list = [None] * len(edges)
        if needs & (needs - 1):
            found = iter(results)
            for i in plan.indices:
                if needs >> i & 1:
                    out[i] = next(found)
        else:
            out[needs.bit_length() - 1] = results
        return out

    def _unpack_arrays(self) -> list:
        values = []
        for entry, version in zip(self.saved, self.versions, strict=True):
            if isinstance(entry, Tensor):
                counter = entry._version_counter
                if counter is not None and counter.value != version:
                    check_version(entry, version)
                array = entry._array
                values.append(entry._read() if array is None else array)
            elif isinstance(entry, SavedVariable):
                values.append(entry.array(self))
            else:
                values.append(entry)
        return values

    def _unpack(self) -> list:
        values = []
        for entry, version in zip(self.saved, self.versions, strict=True):
            if isinstance(entry, Tensor):
                check_version(entry, version)
                values.append(entry)
            elif isinstance(entry, SavedVariable):
                values.append(entry.unpack(self))
            else:
                values.append(entry)
        return values

    def release(self) -> None:
        saved = self.saved
        if saved and saved is not RELEASED:
            for entry in saved:
                if isinstance(entry, SavedVariable):
                    entry.release()
            self.saved = RELEASED

    # -- _saved_self, _raw_saved_self ---------------------------------------------------------------------------------

    def _names(self) -> list[str]:
        """The names of the saved values, in their order."""
        plan = self.plan
        names = [plan.used[i] for i in plan.saved]
        if plan.saves_result:
            many = len(self.avals) > 1
            names += [f"result{i}" for i in range(len(self.avals))] if many else ["result"]
        return names

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_saved_"):
            wanted, raw = name[len("_saved_") :], False
        elif name.startswith("_raw_saved_"):
            wanted, raw = name[len("_raw_saved_") :], True
        else:
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")
        plan = self.plan
        statics = plan.kernel.statics
        if not raw and wanted in statics:
            return statics[wanted]
        names = self._names()
        if wanted not in names:
            if wanted in plan.used:
                return None  # an argument whose value no wanted gradient needs
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")
        if self.saved is RELEASED:
            raise freed_error(self.name())
        place = names.index(wanted)
        if raw:
            return self._raw(place)
        entry = self.saved[place]
        return self._unpack()[place] if isinstance(entry, (Tensor, SavedVariable)) else entry

    def _raw(self, place: int) -> Any:
        """The SavedVariable of one saved value, made now if the node kept a bare tensor."""
        entry = self.saved[place]
        if isinstance(entry, Tensor):
            check_version(entry, self.versions[place])
            entry = SavedVariable(entry, False)
            self.saved = (*self.saved[:place], entry, *self.saved[place + 1 :])
        return entry


call: Any = None  # set by call.py, which needs this module
