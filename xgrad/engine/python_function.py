"""BackwardCFunction: the autograd node of a custom `autograd.Function`, and the `ctx` of its forward and backward.

Forward's requests to `ctx` are stored in four attributes, under PyTorch's names, until the outputs have their history:
`to_save`, `saved_for_forward`, `dirty_tensors`, `non_differentiable`.  All are reset when the call ends, so a node
refers to no tensor that it made (PyTorch: torch/csrc/autograd/custom_function.cpp, python_function.cpp).
"""

import warnings
from typing import Any

from ..base.limits import zeros
from ..config import INFERENCE_LEVEL, state
from ..errors import FreedGraphError, LeafInplaceError
from ..tensor import Tensor, from_array
from ..views.meta import CreationMeta, check_inplace
from .edges import gradient_edge
from .history import history_of_view, rebase_history
from .hooks import move_retained_hook
from .node import InputMetadata, TensorNode, wire
from .placement import beside
from .python_function_jvp import differentiable, set_tangents
from .saved_variable import SavedVariable


class FunctionCtx:
    """The methods and settings of `ctx`, the first argument of a custom Function's forward and backward."""

    to_save: tuple[Any, ...] | None = None
    saved_for_forward: tuple[Any, ...] | None = None
    dirty_tensors: tuple[Any, ...] | None = None
    non_differentiable: tuple[Any, ...] | None = None
    materialize_grads: bool = True
    needs_input_grad: tuple[bool, ...] = ()

    def save_for_backward(self, *tensors: Any) -> None:
        """Save tensors (or None) for backward, where `ctx.saved_tensors` returns them; the last call counts.

        Any other value makes `apply` raise `TypeError`.
        """
        self.to_save = tensors

    def save_for_forward(self, *tensors: Any) -> None:
        """Save tensors (or None) for `jvp`, where `ctx.saved_tensors` returns them.

        Raises `AssertionError`, as PyTorch does, for anything else.
        """
        for value in tensors:
            if value is not None and not isinstance(value, Tensor):
                raise AssertionError(
                    "save_for_forward expects all arguments to be tensors; you should save non-tensors as attributes "
                    f"on ctx (got {type(value).__name__})"
                )
        self.saved_for_forward = tensors

    def mark_dirty(self, *args: Any) -> None:
        """Mark inputs as changed in place by forward; forward must return each of them too."""
        self.dirty_tensors = args

    def mark_shared_storage(self, *pairs: Any) -> None:
        """Does nothing: xgrad knows which tensors share storage."""
        warnings.warn(
            "`mark_shared_storage` is deprecated. Tensors with shared storages are automatically tracked.",
            FutureWarning,
            stacklevel=2,
        )

    def mark_non_differentiable(self, *args: Any) -> None:
        """Mark outputs as having no gradient."""
        self.non_differentiable = args

    def set_materialize_grads(self, value: bool) -> None:
        """Choose zeros (True, the default) or None in backward and jvp for outputs and inputs without a gradient."""
        if value is not True and value is not False:
            raise TypeError(
                "set_materialize_grads received an invalid combination of arguments - got "
                f"({type(value).__name__}), but expected (bool)"
            )
        self.materialize_grads = value


class BackwardCFunction(TensorNode, FunctionCtx):
    """The node of one call of a custom Function; each Function has a subclass, named after it."""

    _forward_cls: Any = None  # the Function
    _saved: tuple | None = ()
    _places: tuple = ()  # for each edge, the place of its tensor among forward's arguments
    _arguments: int = 0
    _accessed: bool = False  # where the Function clears its saved tensors with the first access
    _materialize_non_diff_grads: bool = True

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """The tensors of `save_for_backward`; within jvp, the tensors of `save_for_forward`."""
        if self._saved is None:
            raise FreedGraphError(
                "Trying to backward through the graph a second time (or directly access saved tensors after they have "
                f"already been freed): {self.name()} released them. Specify retain_graph=True in the first call."
            )
        if self.saved_for_forward is not None:
            return self.saved_for_forward
        if not self._forward_cls.clear_saved_tensors_on_access:
            return tuple(s.unpack(self) for s in self._saved)
        if self._accessed:
            raise RuntimeError(
                "saved_tensors can only be accessed once when clear_saved_tensors_on_access=True is set on the "
                "autograd.Function. Either access saved_tensors only once, or set clear_saved_tensors_on_access=False."
            )
        saved, self._saved, self._accessed = self._saved, (), True
        return tuple(s.unpack(self) for s in saved)

    @property
    def saved_variables(self) -> tuple[Any, ...]:
        """The old name of `saved_tensors`."""
        warnings.warn("'saved_variables' is deprecated; use 'saved_tensors'", DeprecationWarning, stacklevel=2)
        return self.saved_tensors

    @property
    def _raw_saved_tensors(self) -> tuple:
        if self._saved is None:
            raise FreedGraphError(
                f"Trying to backward through the graph a second time (or directly access saved tensors after they have "
                f"already been freed): {self.name()} released them."
            )
        return self._saved

    def maybe_clear_saved_tensors(self) -> None:
        """Release the saved tensors now, within backward, unless the graph is retained."""
        task = state.graph_task
        if task is None or not task.keep_graph:
            self.release()

    def release(self) -> None:
        for saved in self._saved or ():
            saved.release()
        self._saved = None

    def apply_to_tensors(self, grads: list[Any], needs: int) -> list[Any]:
        if self.materialize_grads and any(g is None for g in grads):
            like = next((g._held() for g in grads if g is not None and not g._sparse), None)
            grads = [
                from_array(beside(zeros(a.shape, a.dtype), like)) if g is None and a is not None else g
                for g, a in zip(grads, self.avals, strict=True)
            ]
        if self._forward_cls.boxed_grads_call:
            grads = [grads]
        results = self._user_function()(self, *grads)
        results = results if isinstance(results, tuple) else (results,)
        n = self._arguments
        if len(results) < n or any(extra is not None for extra in results[n:]):
            raise RuntimeError(
                f"function {self.name()} returned an incorrect number of gradients (expected {n}, got {len(results)})"
            )
        for i, result in enumerate(results[:n]):
            if result is None:
                continue
            if i not in self._places:
                raise RuntimeError(
                    f"function {self.name()} returned a gradient different than None at position {i + 1}, but the "
                    "corresponding forward input was not a Variable"
                )
            if not isinstance(result, Tensor):
                raise RuntimeError(
                    f"expected Variable or None (got {type(result).__name__}) as gradient {i} of {self.name()}"
                )
        return [results[place] for place in self._places]

    def _user_function(self) -> Any:
        """The Function's `backward`, or its `vjp`, which is another name for it."""
        backward, vjp = self._forward_cls.backward, self._forward_cls.vjp
        if vjp is default_backward:
            return backward
        if backward is not default_backward:
            raise RuntimeError(
                "Implementing both 'backward' and 'vjp' for a custom Function is not allowed. You should only "
                "implement one of them."
            )
        return vjp


def default_backward(ctx: Any, *grad_outputs: Any) -> Any:
    """Compute the gradient of each argument of forward (None for an argument without one) from the gradients of the
    outputs."""
    raise NotImplementedError(
        "You must implement either the backward or vjp method for your custom autograd.Function to use it with "
        "backward mode AD."
    )


def run_function(function: Any, args: tuple[Any, ...], kwargs: dict[Any, Any], setup_context: Any) -> Any:
    """Call a Function: run forward without recording, wire its outputs, save the tensors that it asked for.

    `setup_context` is None if forward itself gets `ctx`.
    """
    node = function._backward_cls()
    tensors = [a for a in args if isinstance(a, Tensor)]
    node.needs_input_grad = tuple(isinstance(a, Tensor) and a.requires_grad for a in args)
    recording = state.grad_enabled and any(node.needs_input_grad)
    if recording:
        wire(node, tuple(gradient_edge(a) for a in tensors), ())  # forward will determine its input metadata
    outputs = _run_forward(node, function, args, kwargs, setup_context)
    many = isinstance(outputs, tuple)
    listed = list(outputs) if many else [outputs]
    to_save = _to_save(node, recording)
    as_they_are = () if setup_context is None else (*(node.to_save or ()), *(node.saved_for_forward or ()))
    dirty, without = _marked(node, listed)
    wired = _place_outputs(node, tensors, listed, recording, as_they_are, dirty, without)
    if state.forward_level >= 0 and not state.inference:
        set_tangents(node, function, args, listed, wired, dirty, without)
    if recording:
        node._places = tuple(i for i, a in enumerate(args) if isinstance(a, Tensor))
        node._arguments = len(args)
        made = {id(o) for o in wired if isinstance(o, Tensor)}
        node._saved = tuple(_save(node, t, made) for t in to_save)
    node.to_save = node.saved_for_forward = node.dirty_tensors = node.non_differentiable = None
    return tuple(wired) if many else wired[0]


def _run_forward(node: BackwardCFunction, function: Any, args: tuple, kwargs: dict, setup_context: Any) -> Any:
    before = state.__dict__.copy()
    modes = state.grad_enabled, state.forward_level, state.outer_forward_levels
    state.grad_enabled = False
    if not state.inference:
        state.forward_level, state.outer_forward_levels = -1, ()
    within, suspended = state.forward_level, state.suspended
    try:
        if setup_context is None:
            return function.forward(node, *args, **kwargs)
        outputs = function.forward(*args, **kwargs)
        setup_context(node, args, outputs)
        return outputs
    finally:
        if state.forward_level == within and state.suspended is suspended:  # without a call, which could be interrupted
            state.grad_enabled, state.forward_level, state.outer_forward_levels = modes
        else:
            _put_back(before, modes[0])


def _put_back(before: dict, grad_enabled: bool) -> None:
    """Restore the modes that forward left switched.  Inference mode stays as forward left it, as in PyTorch."""
    inference = state.inference
    state.put_back(before)
    if inference is not state.inference:
        state.inference = inference
        state.forward_level, state.grad_enabled = (INFERENCE_LEVEL, False) if inference else (-1, grad_enabled)
        state.grad_in_inference = grad_enabled


def _tuple_of(node: BackwardCFunction, name: str) -> tuple:
    value = getattr(node, name)
    if value is not None and not isinstance(value, tuple):
        raise RuntimeError(
            f"autograd internal error: {name} attribute is expected to be a tuple but is {type(value).__name__}"
        )
    return value or ()


def _to_save(node: BackwardCFunction, recording: bool) -> tuple:
    """The tensors that forward asked to save, after a check of their types."""
    values = _tuple_of(node, "to_save")
    if not recording:
        return ()
    for i, value in enumerate(values):
        if value is not None and not isinstance(value, Tensor):
            raise TypeError(
                f"save_for_backward can only save variables, but argument {i} is of type {type(value).__name__}; keep "
                "other values as attributes of ctx"
            )
    return values


def _save(node: BackwardCFunction, tensor: Any, made: set) -> SavedVariable:
    if tensor is None:
        return SavedVariable(None, False)
    if id(tensor) in made and tensor.requires_grad:
        if tensor._grad_fn is node:
            return SavedVariable.packed(tensor, True)
        if tensor._view is not None and any(tensor is d for d in node.dirty_tensors or ()):
            saved = SavedVariable.packed(tensor, True, history_of_view(tensor, tensor._view.base))
            saved._output_nr = 0
            return saved
    return SavedVariable.packed(tensor, False)


def _marked(node: BackwardCFunction, outputs: list) -> tuple[tuple, tuple]:
    """The tensors that forward marked as dirty and as not differentiable, after checks."""
    dirty, without = _tuple_of(node, "dirty_tensors"), _tuple_of(node, "non_differentiable")
    for i, tensor in enumerate(dirty):
        if not isinstance(tensor, Tensor):
            raise RuntimeError(f"mark_dirty can only accept variables, but argument {i} is of type {_type(tensor)}")
        if not any(tensor is o for o in outputs):
            raise RuntimeError(
                "Some elements marked as dirty during the forward method were not returned as output. The inputs that "
                "are modified inplace must all be outputs of the Function."
            )
    for tensor in without:
        if not isinstance(tensor, Tensor):
            raise RuntimeError(f"mark_non_differentiable only accepts variable arguments, but got {_type(tensor)}")
    return dirty, without


def _type(value: Any) -> str:
    return type(value).__name__


def _place_outputs(
    node: BackwardCFunction,
    inputs: list,
    outputs: list,
    recording: bool,
    as_they_are: tuple,
    dirty: tuple,
    without: tuple,
) -> list:
    """Give each output its place in the graph; an input returned as it is becomes a view of itself.

    `as_they_are` are tensors that `setup_context` saved: an input among them must not be an output as well.
    """
    for tensor in dirty:
        tensor._bump()  # forward may have written by other means
    # backward gets one gradient for each output; None for an output that is not a tensor.
    node.avals = tuple(
        InputMetadata(o.shape, o._dtype)
        if isinstance(o, Tensor) and (node._materialize_non_diff_grads or differentiable(o, without))
        else None
        for o in outputs
    )
    wired = []
    count = 0
    for place, output in enumerate(outputs):
        if not isinstance(output, Tensor):
            wired.append(output)
            continue
        is_input = any(output is x for x in inputs)
        is_dirty = any(output is d for d in dirty)
        record = recording and differentiable(output, without)
        count += record
        if is_input and not is_dirty and (record or not output.requires_grad):
            if any(output is saved for saved in as_they_are):
                raise RuntimeError(
                    "An input that has been returned as-is as output is being saved for backward. This is not "
                    "supported if you override setup_context. You should return and save a view of the input instead, "
                    "e.g. with x.view_as(x), or set up ctx inside of forward itself."
                )
            output = _no_grad_view(output)
            if record:
                output._grad_fn, output._output_nr, output._requires_grad = node, place, True
        elif not record:
            if output.requires_grad:
                if is_input:  # a detached alias: the caller's tensor keeps its history
                    output = output.detach()
                elif output._view is None:
                    output.detach_()
        elif is_dirty:
            _rebase_dirty(node, output, place, is_input, inputs, outputs)
        else:
            output._grad_fn, output._output_nr, output._requires_grad = node, place, True
        if output._view is not None and not (is_input and is_dirty):
            output._view.creation_meta = CreationMeta.IN_CUSTOM_FUNCTION
            output._view.attr_version = output._version
        wired.append(output)
    if count > 1:
        for output in wired:
            if isinstance(output, Tensor) and output._view is not None:
                output._view.creation_meta = CreationMeta.MULTI_OUTPUT_NODE
    return wired


def _rebase_dirty(
    node: BackwardCFunction, output: Tensor, place: int, is_input: bool, inputs: list, outputs: list
) -> None:
    """Make `node` the history of a tensor that forward changed in place."""
    if output._grad_fn is node:  # forward returned it twice: the last place counts
        output._output_nr = place
        return
    if output._view is None and output._requires_grad and output._grad_fn is None:
        raise LeafInplaceError(
            "a leaf Variable that requires grad has been used in an in-place operation, by the forward of "
            f"{node.name()}, which marked it as dirty. Give the Function a clone() of it."
        )
    check_inplace(output)
    if not is_input:
        warnings.warn(
            "ctx.mark_dirty() received a tensor that was not an input. Only input Tensors that have been mutated "
            "should be passed to ctx.mark_dirty().",
            stacklevel=5,
        )
    if output._view is None:
        move_retained_hook(output, node, place)
        output._hooks = output._grad = None
        output._grad_fn, output._output_nr, output._requires_grad = node, place, True
        return
    # A view that forward changed gets its history through its base, which has room for one output and edge 0.
    if len(outputs) > 1:
        raise RuntimeError(
            "If your Function modifies inplace an input that is a view of another Tensor, your Function cannot return "
            "more than one Tensor. Split it into two, or give it a clone() of the view."
        )
    if not inputs or inputs[0] is not output:
        raise RuntimeError(
            "If your Function modifies inplace an input that is a view of another Tensor, that input must be its first "
            "tensor argument."
        )
    rebase_history(output, node)


def _no_grad_view(tensor: Tensor) -> Tensor:
    modes = state.grad_enabled, state.forward_level
    state.grad_enabled, state.forward_level = False, -1
    try:
        return tensor.alias()
    finally:
        state.grad_enabled, state.forward_level = modes
