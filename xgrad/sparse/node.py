"""SparseNode: records an operation on sparse tensors for backward; `refusal` makes the error for a missing operation.

A SparseNode works on Tensors: its rule is made of operators, and so is differentiable itself.  Code that reads a sparse
tensor as one array raises an error with the name of the function that the user called.
"""

import sys
from collections.abc import Callable
from typing import Any

from ..base import dtypes
from ..config import state
from ..engine.edges import gradient_edge
from ..engine.node import InputMetadata, TensorNode, wire
from ..engine.saved_variable import RELEASED, SavedVariable, freed_error
from ..ops.sparse.parts import require_plain
from ..tensor import Tensor


class SparseNode(TensorNode):
    """A recorded operation on sparse tensors; its rule works on Tensors, dense or sparse, and is recorded if asked."""

    rule: Any
    saved: tuple[Any, ...] = ()

    def apply_to_tensors(self, grads: list[Any], needs: int) -> Any:
        edges = self.next_edges
        if self.saved is RELEASED:
            raise freed_error(self.name())
        if grads[0] is None:
            return [None] * len(edges)
        if needs == -1:
            needs = sum(1 << i for i, (node, _) in enumerate(edges) if node is not None)
        results = self.rule(grads[0], needs, *(s.unpack(self) for s in self.saved))
        return [r if needs >> i & 1 else None for i, r in enumerate(results)]

    def release(self) -> None:
        if self.saved and self.saved is not RELEASED:
            for entry in self.saved:
                entry.release()
            self.saved = RELEASED

    def _names(self) -> tuple[str, ...]:
        """PyTorch's names of what the node saved."""
        return _NAMES.get(type(self).__name__, ("self", "other")) if self.saved else ()

    def _look_up(self, name: str, raw: bool) -> Any:
        place = self._names().index(name) if name in self._names() else None
        if place is None:
            raise KeyError(name)
        if self.saved is RELEASED:
            raise freed_error(self.name())
        return self.saved[place] if raw else self.saved[place].unpack(self)

    def _attributes(self) -> list[str]:
        return [f"{kind}_{name}" for name in self._names() for kind in ("_raw_saved", "_saved")]


_NAMES = {"SparseAddmmBackward0": ("mat1", "mat2"), "MmBackward0": ("self", "mat2")}
_classes: dict[str, type] = {}


def record(
    name: str, result: Tensor, inputs: tuple[Any, ...], rule: Callable[..., Any], saved: tuple[Any, ...] = ()
) -> Any:
    """Make `result` differentiable in `inputs`: `rule(grad, needs, *saved)` returns a gradient or None for each."""
    require_plain(name, *inputs)
    if state.forward_level >= 0 and any(t._tangents for t in inputs):
        raise NotImplementedError(
            f"Trying to use forward AD with {name} that does not support it: no forward-mode AD of sparse tensors"
        )
    if state.grad_enabled and result._dtype in dtypes.INEXACT and any(t.requires_grad for t in inputs):
        kind = _classes.get(name) or _classes.setdefault(name, type(name, (SparseNode,), {"__module__": __name__}))
        edges = tuple(gradient_edge(t) if t.requires_grad else (None, 0) for t in inputs)
        node = wire(kind(), edges, (InputMetadata(result.shape, result._dtype),))
        forms = [t._form() if t._sparse else None for t in inputs]
        node.rule = _formed(rule, forms) if any(forms) else rule
        node.saved = tuple(SavedVariable.packed(t, False) for t in saved)
        result._grad_fn, result._output_nr, result._requires_grad = node, 0, True
    return result


def _formed(rule: Callable, forms: list) -> Callable:
    """Make a rule whose gradients have the layouts of the tensors that they belong to."""

    def formed(grad: Any, needs: int, *saved: Any) -> tuple:
        grads = rule(grad, needs, *saved)
        return tuple(g if form is None or g is None else form(g) for form, g in zip(forms, grads, strict=False))

    return formed


def caller() -> str:
    """The name of xgrad's function that the user called: the outermost frame of the package."""
    name, frame = "this operator", sys._getframe(1)
    while frame is not None:
        op = frame.f_globals.get("_op")  # of a function that was made from a declaration
        if op is None and str(frame.f_globals.get("__name__")).partition(".")[0] != "xgrad":
            break
        found = op.name if op is not None else frame.f_code.co_name
        if found == "read":  # ops/shape/views.py: T and its like
            found = str(frame.f_locals.get("name", found))
        if not found.startswith("_") or found.startswith("__"):
            name = found
        frame = frame.f_back
    return name.partition(".")[0].rstrip("_")


def refusal(name: str) -> NotImplementedError:
    return NotImplementedError(
        f"Could not run '{name}': {name} is not implemented for sparse tensors of this layout. Call to_dense() first, "
        "or work on values() (of a coalesced tensor)."
    )
