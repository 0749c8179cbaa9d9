"""ViewMeta: autograd's record of a differentiable view; the file also checks if a view may be written in place.

`ViewMeta` ties a view to its base, which is not itself a view.  The view's own `grad_fn` holds for one
version of the storage only; when a sibling or the base is written later, reading `grad_fn` regenerates it from the
base's present history (torch/csrc/autograd/variable.cpp, VariableHooks::grad_fn).

    base ──grad_fn──► CopySlices ─┬─► (the base's former history)
      ▲                           └─► (the value that was written)
      │ base, chain
    view ──grad_fn──► SelectBackward0 ──► CopySlices        regenerated when view.version != attr_version
"""

import enum
import re
from typing import Any

from ..config import state
from ..errors import InplaceViewError, LeafInplaceError
from .chain import ViewChain

Tensor = Any  # tensor.py imports this module


class CreationMeta(enum.Enum):
    """The way a view was made, which decides if it may be written in place."""

    DEFAULT = 0
    IN_CUSTOM_FUNCTION = 1
    MULTI_OUTPUT_NODE = 2
    NO_GRAD_MODE = 3
    INFERENCE_MODE = 4


class ViewMeta:
    """Base, chain from the base's original value, and the version at which the view's `grad_fn` holds."""

    __slots__ = ("attr_version", "base", "chain", "creation_meta", "name", "tracking")

    def __init__(
        self, base: Tensor, chain: ViewChain, version: int, creation_meta: CreationMeta, name: str, tracking: str
    ) -> None:
        self.base: Any = base
        self.chain: ViewChain = chain
        self.attr_version: int = version
        self.creation_meta: CreationMeta = creation_meta
        self.name: str = name
        self.tracking: str = tracking

    def of_primal(self) -> "PrimalMeta":
        """Return the same meta for a view that takes no part in its base's tangents."""
        return PrimalMeta(self.base, self.chain, self.attr_version, self.creation_meta, self.name, self.tracking)


class PrimalMeta(ViewMeta):
    """Views made by `unpack_dual`, and their views, do not share their base's tangents."""

    __slots__ = ()


def propagate_creation_meta(parent: "ViewMeta | None", own: CreationMeta) -> CreationMeta:
    """Return the creation meta of a view of a view, which inherits a parent's restriction.

    A parent with DEFAULT restricts nothing; INFERENCE_MODE stays; else an own reason replaces the parent's.
    """
    if parent is None or parent.creation_meta is CreationMeta.DEFAULT:
        return own
    if parent.creation_meta is CreationMeta.INFERENCE_MODE:
        return CreationMeta.INFERENCE_MODE
    return own if own is not CreationMeta.DEFAULT else parent.creation_meta


def creation_meta_now(own: CreationMeta = CreationMeta.DEFAULT) -> CreationMeta:
    """Return the creation meta of a view made in the present modes: inference mode wins, then no_grad, then `own`."""
    if state.inference:
        return CreationMeta.INFERENCE_MODE
    return own if state.grad_enabled else CreationMeta.NO_GRAD_MODE


_MODES = {
    CreationMeta.NO_GRAD_MODE: ("no_grad mode", "with grad mode enabled"),
    CreationMeta.INFERENCE_MODE: ("inference mode", "in normal mode"),
}
_WHY = {
    CreationMeta.IN_CUSTOM_FUNCTION: (
        "This view was created inside a custom Function (or because an input was returned as-is), and the in-place "
        "write would bypass the Function's backward. Return a clone() from the Function instead, or write out of place."
    ),
    CreationMeta.MULTI_OUTPUT_NODE: (
        "This view is the output of a function that returns multiple views (split, chunk, unbind, ...). Such functions "
        "do not allow the output views to be modified inplace. Replace the in-place operation by an out-of-place one, "
        "or take the view by indexing."
    ),
    CreationMeta.NO_GRAD_MODE: (
        "So autograd cannot know whether the write is to be recorded. You can clarify your code by moving both the "
        "view and the inplace either both inside the no_grad block (nothing is recorded then), or both outside of it "
        "(the write is)."
    ),
    CreationMeta.INFERENCE_MODE: (
        "So autograd cannot know whether the write is to be recorded. You can clarify your code by moving both the "
        "view and the inplace either both inside the inference_mode block (nothing is recorded then), or both outside "
        "of it (the write is); or clone() the view."
    ),
}


def view_error(view: Tensor, indirect: bool) -> InplaceViewError:
    """Return the error for a view that may not be written, or (`indirect`) whose stale grad_fn has no other."""
    meta = view._view
    assert meta is not None
    node, creation = view._grad_fn, meta.creation_meta
    made = "" if node is None else re.sub(r"Backward\d*$", "", node.name())
    which = "A view" if node is None else f"Output {view._output_nr} of {made}"
    doing = f"{'its base or another view of its base has been' if indirect else 'is being'} modified inplace"
    if creation in _MODES or node is None:  # a Function's result has no grad_fn if it ran under no_grad
        mode, now = _MODES.get(creation, _MODES[CreationMeta.NO_GRAD_MODE])
        was = "was created in" if node is None else "is a view of a view which was created in"
        return InplaceViewError(f"{which} {was} {mode} and {doing} {now}. {_WHY[creation]}")
    return InplaceViewError(f"{which} is a view and {doing}. {_WHY[creation]}")


def check_inplace(self: Tensor) -> None:
    """Raise for an in-place operation that needs grad and cannot be differentiated.  Changes nothing.

    Raises `InplaceViewError` for a view whose creation meta forbids it, `LeafInplaceError` for a leaf that requires
    grad and for a view of one.
    """
    meta = self._view
    if meta is None:
        if self._requires_grad and self._grad_fn is None:
            raise LeafInplaceError(
                "a leaf Variable that requires grad is being used in an in-place operation. Wrap the write in "
                "xgrad.no_grad() if it is an update of a parameter, or work on a clone()."
            )
        return
    if meta.creation_meta is not CreationMeta.DEFAULT:
        raise view_error(self, indirect=False)
    base = meta.base
    if base._storage is not self._storage:
        raise InplaceViewError(
            "this view no longer shares storage with its base, because .data was set on one of them; a recorded "
            "in-place operation through it would give the base a wrong gradient. Take the view anew."
        )
    if base._grad_fn is None and (base._requires_grad or self._requires_grad):
        raise LeafInplaceError(
            "a view of a leaf Variable that requires grad is being used in an in-place operation. Wrap the write in "
            "xgrad.no_grad(), or take the view of a clone() of the leaf."
        )


def chain_now(meta: ViewMeta) -> ViewChain:
    """Return the chain from the present value of a view's base to the view."""
    moved = meta.base._moved
    if moved is None:
        return meta.chain
    back = moved.inverse()  # the base itself was transposed in place since: undo that first
    if back is None:
        raise InplaceViewError("a view of a tensor that as_strided_() changed afterwards cannot be differentiated")
    return back.concat(meta.chain)


def relation_of(view: Tensor) -> tuple[ViewChain, str]:
    """Return the chain from the *present* value of a view's base to the view, and its path.

    On the replay path it is the view's own chain; on the geometry path one `as_strided` with the view's sizes, strides
    and offset in its base.  CopySlices and a regenerated `grad_fn` differentiate this chain only.
    """
    meta = view._view
    assert meta is not None
    chain = meta.chain if meta.base._moved is None else chain_now(meta)
    if meta.tracking == "geometry" and chain.expressible and not chain.is_root:
        seen = chain.geometry
        if seen is not None:  # conj, neg, real and the like have none: they are replayed
            root = ViewChain.root(chain.root_shape, chain.root_dtype)
            return root.view("as_strided", seen.sizes, seen.strides, seen.offset), "geometry"
    return chain, "replay"
