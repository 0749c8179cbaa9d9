"""Does the engine's work for `detect_anomaly`: tells where forward made a failing node, and looks for NaN.

It also logs the nodes that run.  In anomaly mode each sequence number that a thread hands out is an `Origin`: an int
with the stack at which it was handed out and the node that was being evaluated then.  So recording costs nothing while
the mode is off, and every node with a number takes part.  `Node.metadata` shows them as `traceback_` and `parent_`
(PyTorch: torch/csrc/autograd/anomaly_mode.cpp, python_anomaly_mode.cpp).

Invariant: numbers come from the thread's one counter in either mode, so nodes keep their order.
"""

import logging
import os
import sys
import traceback
import warnings
from typing import Any

import jax
import jax.numpy as jnp

from ..config import state
from ..views.storage import Tracer
from .arithmetic import Arithmetic
from .node import Node

log: Any = logging.getLogger("xgrad.autograd.graph")

_PACKAGE = os.path.dirname(os.path.dirname(__file__)) + os.sep
_SCRIPTS = os.path.join(_PACKAGE, "cli") + os.sep  # they use the package as users do


def is_ours(frame: Any) -> bool:
    """Return whether a frame is xgrad's, by its file or its module: a public function's code may stand in a user's
    file.

    (dispatch/public_code.py: an operator that a user declares, a function of `from_jax`.)
    """
    file = frame.f_code.co_filename
    if file.startswith(_PACKAGE):
        return not file.startswith(_SCRIPTS)
    return str(frame.f_globals.get("__name__")).startswith("xgrad.")


_any_nan = jax.jit(lambda array: jnp.isnan(array).any())


class Origin(int):
    """A sequence number that knows where it was handed out."""

    frames: traceback.StackSummary
    parent: Node | None

    def metadata(self) -> dict[str, Any]:
        """The entries that PyTorch puts in the metadata of a node that was made in anomaly mode."""
        told: dict[str, Any] = {"traceback_": self.frames.format()}
        if self.parent is not None:
            told["parent_"] = self.parent
        return told


def _next_origin() -> Origin:
    return origin_of(state.count())


def origin_of(number: int) -> Origin:
    """`number`, with the stack of its caller's caller and the node that is being evaluated."""
    origin = Origin(number)
    # Lines of source are read when a stack is printed: most never are.
    users = ((frame, line) for frame, line in traceback.walk_stack(sys._getframe(2)) if not is_ours(frame))
    origin.frames = traceback.StackSummary.extract(users, lookup_lines=False)
    origin.frames.reverse()
    origin.parent = state.current_node
    return origin


def set_enabled(enabled: bool, check_nan: bool) -> None:
    """Switch the mode for this thread."""
    state.anomaly, state.anomaly_check_nan, state.next_sequence_nr = modes(enabled, check_nan).values()


def modes(enabled: bool, check_nan: bool) -> dict[str, Any]:
    """Return the modes of this thread that switch it on or off."""
    count: Any = _next_origin if enabled else state.count
    return {"anomaly": enabled, "anomaly_check_nan": check_nan, "next_sequence_nr": count}


def watched() -> bool:
    """Return whether a run that begins now must be observed, node by node."""
    return state.anomaly or state.recorder is not None or log.isEnabledFor(logging.DEBUG)


def tell(node: Node, grads: list[Any]) -> None:
    """Log that `node` is about to be executed."""
    if log.isEnabledFor(logging.DEBUG):
        # The record gets strings: with tensors in it a stored record would keep the graph alive.
        log.debug("Executing: %s with grad_outputs: [%s]", str(node), ",".join(_brief(g) for g in grads))


_SHORT = (("bfloat", "bf"), ("float", "f"), ("complex", "c"), ("uint", "u"), ("int", "i"), ("bool", "b8"), ("_", ""))


def _brief(grad: Any) -> str:
    """A gradient's dtype and shape, as 'f32[2, 3]'."""
    if grad is None:
        return "None"
    name = grad.dtype.name
    for long, short in _SHORT:
        name = name.replace(long, short)
    return f"{name}[{', '.join(map(str, grad.shape))}]"


def look_for_nan(node: Node, results: Any, arithmetic: Arithmetic) -> None:
    """Raise `RuntimeError` if a gradient that `node` computed contains a NaN.  A tracer has no values to be checked."""
    for i, result in enumerate(results):
        if result is None:
            continue
        tensor = arithmetic.to_tensor(result)
        while tensor._level is not None:  # inside of vmap: all entries
            tensor = tensor._value
        array = (tensor._values() if tensor._sparse else tensor)._read()
        if not isinstance(array, Tracer) and _any_nan(array):
            raise RuntimeError(f"Function '{node.name()}' returned nan values in its {i}th output.")


def report(error: BaseException) -> None:
    """Warn of the node at which a run failed: where forward made it, and which nodes were being evaluated then."""
    node = state.current_node
    if not state.anomaly or node is None:
        return
    name, what = node.name(), node.metadata
    told = [_traced(f"Error detected in {name}. Traceback of forward call that caused the error:", name, what)]
    while (node := what.get("parent_")) is not None:
        name, what = node.name(), node.metadata
        lead = f"Previous calculation was induced by {name}. "
        lead += "Traceback of forward call that induced the previous calculation:"
        told.append("\n\n" + _traced(lead, name, what))
    for text in told:
        try:
            warnings.warn(text, UserWarning, stacklevel=_to_user())
        except Warning:  # a filter makes errors of warnings; the first error is the one to be raised
            error.add_note(text)


def _traced(lead: str, name: str, metadata: dict) -> str:
    stack = metadata.get("traceback_")
    if stack is None:
        return (
            f"Error detected in {name}. No forward pass information available. Enable detect anomaly during forward "
            "pass for more information."
        )
    return f"{lead}\n{''.join(stack)}"


def _to_user() -> int:
    """The `stacklevel`, for the caller, of the first frame outside of xgrad."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and is_ours(frame):
        level, frame = level + 1, frame.f_back
    return level
