"""The node behind autograd.Function: it works on Tensors, and is the `ctx` of the user's forward and backward.

PyTorch: torch/csrc/autograd/custom_function.h, python_function.cpp.
"""

from typing import Any

import jax.numpy as jnp

from ..config import state
from ..dtypes import INEXACT
from ..errors import FreedGraphError
from ..tensor import Tensor, from_array
from ..views.meta import CreationMeta, check_inplace, propagate_creation_meta, relation_of
from .copy_slices import rebase_history
from .hooks import move_retained_hook
from .node import InputMetadata, Node, gradient_edge, number
from .saved_variable import SavedVariable


class FunctionContext:
    """What forward and backward of a custom Function get as `ctx`."""

    _to_save: tuple = ()
    _for_forward: tuple = ()
    _dirty: tuple = ()
    _no_grad: tuple = ()
    _materialize: bool = True
    needs_input_grad: tuple[bool, ...] = ()

    def save_for_backward(self, *tensors: Any) -> None:
        """Save tensors (or None) for backward, read there as `ctx.saved_tensors`."""
        _only_tensors(tensors, "save_for_backward")
        self._to_save = tensors

    def save_for_forward(self, *tensors: Any) -> None:
        """Save tensors for `jvp`."""
        _only_tensors(tensors, "save_for_forward")
        self._for_forward = tensors

    def mark_dirty(self, *args: Any) -> None:
        """Tell which inputs forward changed in place; each must be returned too."""
        self._dirty = args

    def mark_non_differentiable(self, *args: Any) -> None:
        """Tell which outputs have no gradient."""
        self._no_grad = args

    def set_materialize_grads(self, value: bool) -> None:
        """Whether backward gets zeros (the default) or None for outputs without a gradient."""
        self._materialize = bool(value)


def _only_tensors(values: tuple, where: str) -> None:
    for i, value in enumerate(values):
        if value is not None and not isinstance(value, Tensor):
            raise TypeError(
                f"{where} can only save variables, but argument {i} is of type {type(value).__name__}; keep other "
                "values as attributes of ctx"
            )


class PythonNode(Node, FunctionContext):
    """The node of one call of a custom Function."""

    raw = False
    function: Any = None  # the Function subclass, set on the node class that it gets
    _saved: tuple | None = ()
    _places: tuple = ()  # for each edge, the place of its tensor among forward's arguments
    _arguments: int = 0

    @property
    def saved_tensors(self) -> tuple:
        """What `save_for_backward` saved."""
        if self._saved is None:
            raise FreedGraphError(
                "Trying to backward through the graph a second time (or directly access saved tensors after they have "
                f"already been freed): {self.name()} released them. Specify retain_graph=True in the first call."
            )
        if not self._saved:  # still in forward, or in jvp
            return self._for_forward or self._to_save
        return tuple(None if s is None else s.unpack(self) for s in self._saved)

    saved_variables = saved_tensors

    @property
    def _raw_saved_tensors(self) -> tuple:
        if self._saved is None:
            raise FreedGraphError("Trying to access saved tensors after they have already been freed.")
        return self._saved

    def release(self) -> None:
        if self._saved:
            for saved in self._saved:
                if saved is not None:
                    saved.release()
            self._saved = None

    def apply(self, grads: list, needs: int) -> list:
        if self._materialize:
            grads = [
                from_array(jnp.zeros(a.shape, a.dtype)) if g is None and a is not None else g
                for g, a in zip(grads, self.avals, strict=True)
            ]
        results = self.function.backward(self, *grads)
        results = results if isinstance(results, tuple) else (results,)
        n = self._arguments
        if len(results) < n or any(extra is not None for extra in results[n:]):
            raise RuntimeError(
                f"function {self.name()} returned an incorrect number of gradients (expected {n}, got {len(results)})"
            )
        for i, result in enumerate(results):
            if result is not None and not isinstance(result, Tensor):
                raise RuntimeError(
                    f"function {self.name()} returned a gradient of type {type(result).__name__} at {i}; expected a "
                    "Tensor or None"
                )
            if result is not None and i not in self._places:
                raise RuntimeError(
                    f"function {self.name()} returned a gradient different from None at position {i + 1}, but the "
                    "corresponding forward input was not a Variable"
                )
        return [results[place] for place in self._places]


def run_function(function: Any, node_class: type, args: tuple, kwargs: dict) -> Any:
    """Call a Function: run forward without recording, wire its outputs, save what it asked for."""
    node = node_class()
    tensors = [(i, a) for i, a in enumerate(args) if isinstance(a, Tensor)]
    node.needs_input_grad = tuple(isinstance(a, Tensor) and a.requires_grad for a in args)
    recording = state.grad_enabled and any(node.needs_input_grad)
    edges = tuple(gradient_edge(a) for _, a in tensors) if recording else ()
    if recording:
        number(node)
    enabled, state.grad_enabled = state.grad_enabled, False
    tangents = [(a, a._tangents) for _, a in tensors if a._tangents]
    for a, _ in tangents:
        a._tangents = None
    try:
        if function._new_style():
            outputs = function.forward(*args, **kwargs)
            function.setup_context(node, args, outputs)
        else:
            outputs = function.forward(node, *args, **kwargs)
    finally:
        state.grad_enabled = enabled
        for a, mine in tangents:
            a._tangents = mine
    many = isinstance(outputs, tuple)
    listed = list(outputs) if many else [outputs]
    _check_dirty(node, [a for _, a in tensors], listed)
    listed = _wire(node, function, tensors, edges, listed, recording)
    if tangents and state.forward_level >= 0:
        _forward(node, function, args, listed)
    if recording:
        node._places, node._arguments = tuple(i for i, _ in tensors), len(args)
        made = {id(o) for o in listed if isinstance(o, Tensor)}
        node._saved = tuple(_save(node, t, made) for t in node._to_save)
    node._to_save, node._for_forward, node._dirty, node._no_grad = (), (), (), ()
    return tuple(listed) if many else listed[0]


def _save(node: PythonNode, tensor: Any, made: set) -> SavedVariable | None:
    if tensor is None:
        return None
    return SavedVariable.packed(tensor, id(tensor) in made and tensor._grad_fn is node)


def _check_dirty(node: PythonNode, inputs: list, outputs: list) -> None:
    for i, dirty in enumerate(node._dirty):
        if not isinstance(dirty, Tensor):
            raise TypeError(f"mark_dirty expects tensors, but argument {i} is of type {type(dirty).__name__}")
        if not any(dirty is x for x in inputs):
            raise RuntimeError(f"mark_dirty only accepts input tensors, but argument {i} isn't one")
        if not any(dirty is o for o in outputs):
            raise RuntimeError(
                "Some elements marked as dirty during the forward method were not returned as output. The inputs that "
                "are modified inplace must all be outputs of the Function."
            )


def _wire(node: PythonNode, function: Any, tensors: list, edges: tuple, outputs: list, recording: bool) -> list:
    """Give each output its place in the graph; an input returned as it is becomes a view of itself."""
    inputs = [a for _, a in tensors]
    differentiable = [
        isinstance(o, Tensor) and o.dtype in INEXACT and not any(o is n for n in node._no_grad) for o in outputs
    ]
    node.next_edges = edges
    wired = []
    views = sum(
        d and isinstance(o, Tensor) and o._view is not None for o, d in zip(outputs, differentiable, strict=True)
    )
    many = sum(differentiable) > 1
    # backward gets one gradient for each output; that of an output that is no tensor is None.
    node.avals = tuple(InputMetadata(o.shape, o.dtype) if isinstance(o, Tensor) else None for o in outputs)
    for place, (output, grad) in enumerate(zip(outputs, differentiable, strict=True)):
        if not isinstance(output, Tensor):
            wired.append(output)
            continue
        is_input = any(output is x for x in inputs)
        is_dirty = any(output is d for d in node._dirty)
        if is_dirty:
            output._bump()  # forward may have written by other means
        if not (recording and grad):
            if output.requires_grad:
                if is_input:  # a detached alias: what the caller has keeps its history
                    output = output.detach()
                elif output._view is None:
                    output.detach_()
            elif is_input and not is_dirty:
                output = _no_grad_view(output)
        elif is_dirty:
            check_inplace(output)
            if output._view is None:
                move_retained_hook(output, node, place)
                output._grad_fn, output._output_nr, output._requires_grad = node, place, True
            else:
                _check_dirty_view(output, inputs, many)
                rebase_history(output, node, relation_of)
        elif is_input:
            output = _no_grad_view(output)
            _set(output, node, place, CreationMeta.IN_CUSTOM_FUNCTION)
        else:
            creation = CreationMeta.MULTI_OUTPUT_NODE if many and views else CreationMeta.IN_CUSTOM_FUNCTION
            _set(output, node, place, creation)
        wired.append(output)
    return wired


def _check_dirty_view(output: Tensor, inputs: list, many: bool) -> None:
    """A view that forward changed gets its history through its base, which has room for one output and edge 0."""
    if many:
        raise RuntimeError(
            "If your Function modifies inplace an input that is a view of another Tensor, your Function cannot return "
            "more than one Tensor."
        )
    if inputs[0] is not output:
        raise RuntimeError(
            "If your Function modifies inplace an input that is a view of another Tensor, that input must be its first "
            "tensor argument."
        )


def _no_grad_view(tensor: Tensor) -> Tensor:
    enabled, state.grad_enabled = state.grad_enabled, False
    try:
        return tensor.alias()
    finally:
        state.grad_enabled = enabled


def _set(output: Tensor, node: PythonNode, place: int, creation: CreationMeta) -> None:
    output._grad_fn, output._output_nr, output._requires_grad = node, place, True
    meta = output._view
    if meta is not None:
        meta.creation_meta = propagate_creation_meta(None, creation)
        meta.attr_version = output._version


def _forward(node: PythonNode, function: Any, args: tuple, outputs: list) -> None:
    level = state.forward_level
    given = [a._tangents.get(level) if isinstance(a, Tensor) and a._tangents else None for a in args]
    state.forward_level = -1
    try:
        results = function.jvp(node, *given)
    finally:
        state.forward_level = level
    results = results if isinstance(results, tuple) else (results,)
    tensors = [o for o in outputs if isinstance(o, Tensor)]
    if len(results) != len(tensors):
        raise RuntimeError(f"{function.__name__}.jvp returned {len(results)} tangents for {len(tensors)} outputs")
    for output, tangent in zip(tensors, results, strict=True):
        if tangent is not None:
            output._tangents = {level: tangent}
