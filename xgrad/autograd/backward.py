"""xgrad.autograd.backward and grad: check their arguments and run the engine (PyTorch: torch/autograd/__init__.py)."""

import warnings
from collections.abc import Iterable, Mapping
from math import prod
from typing import Any

import jax.numpy as jnp

from ..base import dtypes
from ..base.size import Size
from ..base.tracebacks import shorten
from ..batching.batched_tensor import VmapLevel, in_level, inner_value, remove_batch, wrap
from ..config import settings, state
from ..dispatch import tables
from ..engine.edges import GradientEdge, gradient_edge
from ..engine.engine import execute
from ..engine.node import Node
from ..engine.placement import beside
from ..execution.programs.programs import jit_checked
from ..overrides import dispatch, overloaded
from ..tensor import Tensor, from_array
from .compiled_backward import use


def _ones_like(like: Any) -> Any:
    return jnp.ones_like(like)


# `like` is an unused operand: the result is on its devices.
_ones = jit_checked(_ones_like, keep_unused=True)


def _sequence(value: Any) -> tuple:
    return (value,) if isinstance(value, (Tensor, GradientEdge)) or not isinstance(value, Iterable) else tuple(value)


def _inputs(value: Any, where: str) -> tuple:
    """Return the `inputs` argument, one, several or a dict of them, as a tuple."""
    if type(value) is dict:
        value = value.values()
    elif isinstance(value, Mapping):
        raise TypeError(
            f"`inputs` argument to `{where}()` must be a dict, not {type(value).__name__}. Other Mapping types are not "
            "supported."
        )
    elif not isinstance(value, (Tensor, GradientEdge, Iterable)):
        raise TypeError(f"'{type(value).__name__}' object is not iterable: `inputs` argument to `{where}()`")
    found = _sequence(value)
    if not found:
        raise RuntimeError(f"`inputs` argument to `{where}()` cannot be empty.")
    return found


def _roots(tensors: Any, grads: Any, batched: bool) -> tuple[tuple, list]:
    """Return the edges at which backward starts, and the gradients with which it starts, checked."""
    roots = (tensors,) if tensors.__class__ is Tensor else _sequence(tensors)
    given = (None,) * len(roots) if grads is None else _given(grads, len(roots))
    edges, values = [], []
    for i, tensor in enumerate(roots):
        edges.append(_root(tensor, i))
    for i, tensor in enumerate(roots):
        values.append(_root_grad(tensor, given[i], i, batched))
    return tuple(edges), values


def _given(grads: Any, count: int) -> tuple:
    """Return the user's gradients for `count` roots.  Raises if their type or number is wrong."""
    found = _sequence(grads)
    for grad in found:
        if grad is not None and not isinstance(grad, Tensor):
            raise TypeError(f"gradients can be either Tensors or None, but got {type(grad).__name__}")
    if len(found) != count:
        raise RuntimeError(f"got {count} tensors and {len(found)} gradients")
    return found


def _root(tensor: Any, i: int) -> tuple[Node, int]:
    if isinstance(tensor, GradientEdge):
        return (tensor.node, tensor.output_nr)
    if not isinstance(tensor, Tensor):
        raise TypeError(
            f"Expected output to be a xgrad.Tensor or a GradientEdge, but element {i} of tensors is "
            f"{type(tensor).__name__}"
        )
    edge = gradient_edge(tensor)
    if edge[0] is None:
        raise RuntimeError(f"element {i} of tensors does not require grad and does not have a grad_fn")
    return edge


def _root_grad(tensor: Any, grad: Any, i: int, batched: bool) -> Tensor | None:
    """Return the gradient to start with, checked; ones for a real scalar."""
    if grad is None:
        if isinstance(tensor, GradientEdge):
            meta = tensor.node.avals[tensor.output_nr]
            if any(n != 1 for n in meta.shape):
                raise RuntimeError("grad can be implicitly created only for scalar outputs")
            return from_array(jnp.ones(meta.shape, meta.dtype))
        plain = tensor.__class__ is Tensor
        value = tensor._read() if plain else tensor
        if prod(value.shape) != 1:
            raise RuntimeError(
                f"grad can be implicitly created only for scalar outputs, but output {i} has shape "
                f"{list(tensor.shape)}: give a gradient of that shape, or reduce the output first"
            )
        if value.dtype in dtypes.COMPLEX:
            raise RuntimeError(
                f"grad can be implicitly created only for real scalar outputs but got {tensor.dtype.name}"
            )
        if batched:
            raise ValueError(
                "If `is_grads_batched=True`, we interpret the first dimension of each grad_output as the batch "
                f"dimension, but there is none for output {i}. Give a batch of ones."
            )
        if tensor._level is not None:
            return from_array(beside(jnp.ones((), value.dtype), inner_value(tensor)._held()))
        return from_array(_ones(value if plain else tensor._read()))
    meta = tensor.node.avals[tensor.output_nr] if isinstance(tensor, GradientEdge) else tensor
    if batched:
        _check_batch(grad, meta, i)
    elif tuple(grad.shape) != tuple(meta.shape):
        raise RuntimeError(
            f"Mismatch in shape: grad_output[{i}] has a shape of {grad.shape} and output[{i}] has a shape of "
            f"{Size(meta.shape)}."
        )
    if (grad.dtype in dtypes.COMPLEX) != (meta.dtype in dtypes.COMPLEX):
        raise RuntimeError(
            "For complex Tensors, both grad_output and output are required to have the same dtype. Mismatch in dtype: "
            f"grad_output[{i}] has a dtype of {grad.dtype.name} and output[{i}] has a dtype of {meta.dtype.name}."
        )
    return grad


def _check_batch(grad: Tensor, meta: Any, i: int) -> None:
    """Raise unless a batch of root gradients has one more dimension than its output, in front."""
    if not grad.ndim:
        raise IndexError(
            f"invalid index of a 0-dim tensor: grad_output[{i}] has no dimension, and with `is_grads_batched=True` the "
            "first one is the batch."
        )
    if tuple(grad.shape[1:]) != tuple(meta.shape):
        raise RuntimeError(
            "If `is_grads_batched=True`, we interpret the first dimension of each grad_output as the batch dimension: "
            "the others have to be the output's. But a mismatch was detected: without its batch dimension "
            f"grad_output[{i}] has a shape of {grad.shape[1:]} and output[{i}] has a shape of {Size(meta.shape)}. For "
            "a single gradient leave `is_grads_batched` out; a batch of them has the shape "
            f"{[grad.shape[0], *meta.shape]}."
        )


def _batch_size(values: list) -> int:
    """Return the number of gradients for each output.  Raises `ValueError` if the outputs' numbers differ."""
    sizes = [v.shape[0] for v in values]
    if len(set(sizes)) > 1:
        raise ValueError(
            "vmap: Expected all tensors to have the same size in the mapped dimension, got sizes "
            f"{sizes} for the mapped dimension: with `is_grads_batched=True` that is the first one of each grad_output."
        )
    return sizes[0]


def backward(
    tensors: Any,
    grad_tensors: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    grad_variables: Any = None,
    inputs: Any = None,
    *,
    compiled: bool | None = None,
) -> None:
    """Compute the gradients of `tensors` and accumulate them in the `.grad` of leaves (PyTorch: autograd.backward).

    `grad_tensors`: one gradient for each tensor, None for a real scalar.  `retain_graph`: do not release saved tensors,
    so that another backward can run (default: `create_graph`).  `create_graph`: record the computation of the gradients
    too.  `inputs`: accumulate only into these (several, or a dict of them); a non-leaf among them retains its gradient.
    `compiled`: run as programs (`compiled_backward`), or node by node; by default as the enclosing block says.
    `grad_variables` is the old name of `grad_tensors`.
    Raises `RuntimeError` if nothing requires grad, for a non-scalar without gradient, for mismatched shapes, and
    `FreedGraphError` when the graph has been released.

    >>> import xgrad
    >>> x = xgrad.tensor([1.0, 2.0], requires_grad=True)
    >>> xgrad.autograd.backward((x * x).sum())
    >>> x.grad
    tensor([2., 4.])
    """
    if state.vmap_levels or state.transforms:
        raise RuntimeError(
            "backward() called inside a functorch transform. This is not supported, please use xgrad.func.grad or "
            "xgrad.func.vjp instead or call backward() outside of vmap, grad, vjp and the like."
        )
    if grad_variables is not None:
        warnings.warn("`grad_variables` is deprecated. Use `grad_tensors` instead.", FutureWarning, stacklevel=2)
        if grad_tensors is not None:
            raise RuntimeError(
                "`grad_tensors` and `grad_variables` (deprecated) arguments both passed to `backward()`. Please only "
                "use `grad_tensors`."
            )
        grad_tensors = grad_variables
    wanted = () if inputs is None else _inputs(inputs, "backward")
    edges, values = _roots(tensors, grad_tensors, False)
    for x in wanted:
        if isinstance(x, Tensor) and not x.requires_grad:
            raise RuntimeError("can't retain_grad on Tensor that has requires_grad=False: it cannot be one of inputs")
    outputs = []
    for x in wanted:
        outputs.append(_input_edge(x))
    for x in wanted:
        if isinstance(x, Tensor) and not x.is_leaf:
            x.retain_grad()
    if create_graph:
        _warn_of_cycle()
    keep = create_graph if retain_graph is None else retain_graph
    before = state.compiled
    try:
        if compiled is not None:
            use(compiled)
        execute(edges, values, keep_graph=keep, create_graph=create_graph, outputs=outputs, accumulate_grad=True)
    except BaseException as error:
        shorten(error)
        raise
    finally:
        state.compiled = before


class _cycle:
    """`warned`: True once the warning of reference cycles was given; it comes once, as PyTorch's."""

    warned = False


def _warn_of_cycle() -> None:
    if settings.warn_always or not _cycle.warned:
        _cycle.warned = True
        warnings.warn(
            "Using backward() with create_graph=True will create a reference cycle between the parameter and its "
            "gradient, which lives until Python's garbage collector finds it. Use autograd.grad to create a graph, or "
            "set the parameters' .grad to None afterwards.",
            stacklevel=3,
        )


def _input_edge(x: Any) -> tuple:
    if isinstance(x, GradientEdge):
        return (x.node, x.output_nr)
    if not isinstance(x, Tensor):
        raise RuntimeError(f"all inputs have to be Tensors or GradientEdges, but got {type(x).__name__}")
    if not x.requires_grad:
        raise RuntimeError("One of the differentiated Tensors does not require grad")
    edge = gradient_edge(x)
    return edge if edge[0] is not None else (Node(), 0)  # a view made under no_grad: no graph leads to it


def grad(
    outputs: Any,
    inputs: Any,
    grad_outputs: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
    *,
    compiled: bool | None = None,
) -> tuple[Tensor | None, ...] | dict[Any, Tensor | None]:
    """Return the gradients of `outputs` with respect to `inputs`; `.grad` stays as it is (PyTorch: autograd.grad).

    A tuple, or for a dict of inputs a dict with its keys.

    Arguments as of `backward`, and: `allow_unused`: None for an input that no output depends on, instead of an error;
    `materialize_grads`: zeros for it; `is_grads_batched`: `grad_outputs` have a leading batch dimension, and so have
    the results.  If an input's node runs too, its gradient is captured before its own hooks have run.

    >>> import xgrad
    >>> x = xgrad.tensor(3.0, requires_grad=True)
    >>> xgrad.autograd.grad(x * x, x)
    (tensor(6.),)
    """
    if asked := overloaded((outputs, inputs)):
        options = {
            "grad_outputs": grad_outputs, "retain_graph": retain_graph, "create_graph": create_graph,
            "only_inputs": only_inputs, "allow_unused": allow_unused, "is_grads_batched": is_grads_batched,
            "materialize_grads": materialize_grads, "compiled": compiled,
        }  # fmt: skip
        return dispatch(grad, asked, (outputs, inputs), options)
    if not only_inputs:
        warnings.warn(
            "only_inputs argument is deprecated and is ignored now: backward() is what accumulates in other leaves.",
            FutureWarning,
            stacklevel=2,
        )
    if materialize_grads and allow_unused is False:
        raise ValueError("Expected allow_unused to be True or not passed when materialize_grads=True, but got: False.")
    named = tuple(inputs) if isinstance(inputs, dict) else None
    wanted = _inputs(inputs, "grad")
    targets = [_input_edge(x) for x in wanted]
    edges, values = _roots(outputs, grad_outputs, is_grads_batched)
    keep = create_graph if retain_graph is None else retain_graph
    run = _run_batched if is_grads_batched else _run
    before = state.compiled
    try:
        if compiled is not None:
            use(compiled)
        results = run(edges, values, targets, keep, create_graph)
    except BaseException as error:
        shorten(error)
        raise
    finally:
        state.compiled = before
    for i, (x, result) in enumerate(zip(wanted, results, strict=True)):
        if result is None and materialize_grads:
            if isinstance(x, GradientEdge):
                raise RuntimeError("materialize_grads cannot be used when the given input is a GradientEdge")
            results[i] = tables.FUNCTIONS[""]["zeros_like"](x.detach(), requires_grad=create_graph)
        elif result is None and not allow_unused:
            raise RuntimeError(
                f"The differentiated Tensor at index {i} appears to not have been used in the graph. Set "
                "allow_unused=True if this is the desired behavior."
            )
    return tuple(results) if named is None else dict(zip(named, results, strict=True))


def _run(edges: tuple, values: list, targets: list, keep: bool, create_graph: bool) -> list:
    return execute(edges, values, keep_graph=keep, create_graph=create_graph, outputs=targets, accumulate_grad=False)


def _run_batched(edges: tuple, values: list, targets: list, keep: bool, create_graph: bool) -> list:
    """Run once for all entries of a batch of root gradients: the gradients are batched, the graph is not."""

    def run(level: VmapLevel) -> list:
        results = _run(edges, [wrap(v, level) for v in values], targets, keep, create_graph)
        return [None if r is None else remove_batch(r, 0, level) for r in results]

    return in_level(run, _batch_size(values))


def backward_of(
    self: Tensor,
    gradient: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: Any = None,
    *,
    compiled: bool | None = None,
) -> None:
    """Accumulate the gradients of this tensor in the leaves' `.grad`: `autograd.backward(self, gradient, ...)`."""
    backward(self, gradient, retain_graph, create_graph, inputs=inputs, compiled=compiled)
