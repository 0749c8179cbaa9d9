"""Lifted: a function's tensors from outside as arguments, for a program that contains the function.

    w = ...                                    look(f, x): f runs once; it uses w
    f = lambda x: x * w          ──►           lifted: (x, w) ↦ f(x), with the argument in the place of w's value
                                               then jax.lax.cond over arrays of x and w, whose gradients are the tape's

Invariant: after a call each tensor from outside has its own attributes again.
"""

from collections.abc import Callable
from typing import Any

from ..batching.trees import flatten, unflatten
from ..compiler.overlay import Touched
from ..config import state
from ..interop._by_tape import taped
from ..tensor import Tensor, from_array
from ..views.storage import Tracer
from .checks import mutated, run


def is_traced(tensor: Any) -> bool:
    """Return True for a tensor without a value: inside of `xgrad.compile`, or of a trace of JAX's."""
    return isinstance(tensor, Tensor) and isinstance(tensor._held(), Tracer)


def look(where: str, function: Callable[..., Any], operands: Any) -> tuple[Any, list[Tensor]]:
    """Run a function once; return its result and the tensors from outside that it uses.

    Outside of `xgrad.compile` the tensors are not known; one that requires grad raises `RuntimeError`.
    Raises `NotImplementedError` for a function that draws random numbers.
    """
    leaves, structure = flatten(operands)
    stand_ins = [from_array(t._read()) if isinstance(t, Tensor) else t for t in leaves]
    given = [t for t in stand_ins if isinstance(t, Tensor)]
    overlay, touched, drawn = state.overlay, Touched(), {}
    log, casts = state.random_log, state.autocast_casts
    state.random_log, state.autocast_casts = drawn, None
    state.transforms += 1  # backward() is refused: it would add to gradients outside
    if overlay is not None:
        overlay.watching.append(touched)
    try:
        result = run(where, function, unflatten(structure, stand_ins), given)
    finally:
        state.random_log, state.autocast_casts = log, casts
        state.transforms -= 1
        if overlay is not None:
            overlay.watching.remove(touched)
    if drawn:
        raise NotImplementedError(
            f"{where}: a function that draws random numbers cannot be a branch of a program: draw them before, and "
            "give them as operands"
        )
    if overlay is None and any(isinstance(t, Tensor) and t.requires_grad for t in flatten(result)[0]):
        raise RuntimeError(
            f"{where}: a function uses a tensor from outside that requires grad. Inside of a trace of JAX's give such "
            "tensors as operands; xgrad.compile finds them."
        )
    if touched.written():
        raise mutated(where, function)
    return result, touched.outside()


# The modes of the call.  A cached cast would be that of a tensor from outside, not of what takes its place.
_MODES = ("autocast", "autocast_casts", "place", "mesh", "tracking")


class Lifted:
    """A function of the operands' tensors and of those from outside, over arrays; it returns a list of arrays."""

    def __init__(self, where: str, function: Callable[..., Any], operands: Any, outside: list[Tensor]) -> None:
        self._where, self._function, self._outside = where, function, outside
        leaves, self._structure = flatten(operands)
        self._places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
        self._fixed = [None if isinstance(leaf, Tensor) else leaf for leaf in leaves]
        self._modes = {name: getattr(state, name) for name in _MODES}  # backward runs the function again, elsewhere
        self._before: list[tuple[Tensor, dict[str, Any]]] = []
        if state.overlay is not None:
            state.overlay.at_end.append(self._forget)

    def _forget(self) -> None:
        """Drop the function and its tensors: JAX's caches hold this object, and run it in the trace only."""
        self._function, self._outside, self._fixed = _ended_with_its_trace, [], []

    def __call__(self, *arrays: Any) -> list[Any]:
        return taped(self._flat, self._ended)(*arrays)

    def _flat(self, *tensors: Tensor) -> list[Any]:
        full = [*self._fixed]
        for place, tensor in zip(self._places, tensors, strict=False):
            full[place] = tensor
        given = tensors[: len(self._places)]
        for tensor, other in zip(self._outside, tensors[len(given) :], strict=True):
            self._enter(tensor, other)
        modes = {name: getattr(state, name) for name in _MODES}
        try:
            self._switch({**self._modes, "autocast_casts": None})
            result = run(self._where, self._function, unflatten(self._structure, full), [*given, *self._outside])
        finally:
            self._switch(modes)
        return [t for t in flatten(result)[0] if isinstance(t, Tensor)]

    @staticmethod
    def _switch(modes: dict[str, Any]) -> None:
        for name, value in modes.items():
            setattr(state, name, value)

    def _enter(self, tensor: Tensor, other: Tensor) -> None:
        """Give a tensor the value and history of another one; to the end of backward, for nodes save the tensor."""
        own = tensor.__dict__
        now = dict(other.__dict__)
        for name in ("_is_param", "_grad", "_trace"):
            if name in own:
                now[name] = own[name]
        if "_trace" not in own and state.overlay is not None:
            now["_trace"] = state.overlay
        self._before.append((tensor, own))
        tensor.__dict__ = now

    def _ended(self) -> None:
        while self._before:
            tensor, own = self._before.pop()
            tensor.__dict__ = own


def _ended_with_its_trace(*tensors: Any) -> Any:
    raise RuntimeError("a program ran a function of cond or while_loop after its trace: please report it")
