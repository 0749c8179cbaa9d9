"""func.grad, vjp, jvp, linearize: differentiate a function (PyTorch: torch/_functorch/eager_transforms.py).

They use the autograd graph: an argument is replaced by a stand-in (`stand_ins.py`), the function is run, and the
gradient taken.  So they nest, see through closures, and compose with `vmap`, in-place writes, views, hooks and custom
Functions.
"""

import functools
from collections.abc import Callable
from typing import Any

from ..autograd.forward_ad import enter_level
from ..base.dtypes import INEXACT
from ..batching.trees import flatten, leaves_like, map_tensors, unflatten
from ..config import state
from ..tensor import Tensor
from .stand_ins import (
    Targets,
    at_innermost,
    leave_inference,
    modes_now,
    outside,
    requires_grad_below,
    stand_in,
    transform,
)


def chosen(args: tuple[Any, ...], argnums: Any) -> Any:
    """Return the arguments with these numbers: one, or a tuple.  Raises `RuntimeError` for a number out of range."""
    if isinstance(argnums, tuple):
        if not argnums:
            raise RuntimeError("argnums must be non-empty")
        places = tuple(_place(n, len(args)) for n in argnums)
        if len(set(places)) != len(places):
            raise RuntimeError(f"argnums elements must be unique, got {argnums}")
        return tuple(args[n] for n in places)
    return args[_place(argnums, len(args))]


def _place(number: Any, count: int) -> int:
    if not isinstance(number, int):
        raise RuntimeError(f"argnums must be int or Tuple[int, ...], got: {type(number)}")
    if not -count <= number < count:
        raise RuntimeError(f"Got argnum={number}, but only {count} positional inputs")
    return number % count


def replaced(args: tuple[Any, ...], new: Any, argnums: Any) -> tuple[Any, ...]:
    """Return the arguments with the ones at `argnums` replaced."""
    out = list(args)
    numbers, values = (argnums, new) if isinstance(argnums, tuple) else ((argnums,), (new,))
    for number, value in zip(numbers, values, strict=True):
        out[number] = value
    return tuple(out)


def _with_aux(result: Any, has_aux: bool, where: str) -> tuple[Any, Any]:
    if not has_aux:
        return result, None
    if not (isinstance(result, tuple) and len(result) == 2):
        raise RuntimeError(f"{where}: output of function f should be a tuple: (output, aux) if has_aux is True")
    return result


def grad(func: Callable[..., Any], argnums: int | tuple[int, ...] = 0, has_aux: bool = False) -> Callable[..., Any]:
    """Return the gradient function of a function that returns a 0-dim tensor, for the arguments with these numbers.

    Its results have the structure of those arguments.  `has_aux`: the function returns (output, aux), and the gradient
    function (gradient, aux).  Raises `RuntimeError` for an output that is not a 0-dim tensor.

    >>> import xgrad
    >>> from xgrad.func import grad
    >>> grad(xgrad.sin)(xgrad.tensor(0.0)), grad(grad(lambda x: x**3))(xgrad.tensor(2.0))
    (tensor(1.), tensor(12.))
    """

    @functools.wraps(func)
    def gradient(*args: Any, **kwargs: Any) -> Any:
        found, value = _grad_and_value(func, argnums, has_aux, args, kwargs)
        return (found, value[1]) if has_aux else found

    return gradient


def grad_and_value(
    func: Callable[..., Any], argnums: int | tuple[int, ...] = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """Return a function like `grad`'s, which returns (gradient, value), or (gradient, (value, aux)).

    >>> import xgrad
    >>> xgrad.func.grad_and_value(lambda x: x * x)(xgrad.tensor(3.0))
    (tensor(6.), tensor(9.))
    """

    @functools.wraps(func)
    def both(*args: Any, **kwargs: Any) -> Any:
        return _grad_and_value(func, argnums, has_aux, args, kwargs)

    return both


def _grad_and_value(func: Callable, argnums: Any, has_aux: bool, args: tuple, kwargs: dict) -> tuple[Any, Any]:
    where = "grad_and_value(f)(*args)"
    leaves, structure = flatten(chosen(args, argnums))
    with transform() as outer:
        targets = Targets(leaves, outer)
        result = func(*replaced(args, unflatten(structure, targets.tensors), argnums), **kwargs)
        output, aux = _with_aux(result, has_aux, where)
        if not isinstance(output, Tensor):
            raise RuntimeError(f"{where}: Expected f(*args) to return a Tensor, got {type(output)}")
        if output.ndim:
            raise RuntimeError(
                f"{where}: Expected f(*args) to return a scalar Tensor, got tensor with {output.ndim} dims. Maybe you "
                "wanted to use the vjp or jacrev APIs instead?"
            )
        create = outer and targets.elsewhere([output])
        found = targets.gradients([output], None, create, create)
    keep = _keeper(targets, outer)
    value = keep(output)
    return unflatten(structure, found), (value, map_tensors(keep, aux)) if has_aux else value


def _keeper(targets: Targets, outer: bool) -> Callable:
    """Return the function that turns a result into the tensor that the transform's caller gets."""
    return lambda tensor: outside(tensor, outer and targets.elsewhere([tensor]))


def vjp(func: Callable[..., Any], *primals: Any, has_aux: bool = False) -> tuple[Any, ...]:
    """Return (output, vjp_fn): the value of the function, and the function from cotangents to gradients.

    `vjp_fn(cotangents)`, of the output's structure, returns a tuple with one gradient for each of `primals`.  With
    `has_aux` the function returns (output, aux), and the result is (output, vjp_fn, aux).

    >>> import xgrad
    >>> output, pull = xgrad.func.vjp(xgrad.sin, xgrad.zeros(2))
    >>> pull(xgrad.ones(2))
    (tensor([1., 1.]),)
    """
    output, pull, aux = vjp_of(func, primals, None, has_aux)
    return (output, pull, aux) if has_aux else (output, pull)


def vjp_of(
    func: Callable[..., Any], primals: tuple[Any, ...], argnums: Any, has_aux: bool = False
) -> tuple[Any, Callable[..., Any], Any]:
    """`vjp` with respect to some of the primals (`argnums` None: all)."""
    where = "vjp(f, *primals)"
    leaves, structure = flatten(primals if argnums is None else chosen(primals, argnums))
    with transform() as outer:
        targets = Targets(leaves, outer)
        inner = unflatten(structure, targets.tensors)
        result = func(*(inner if argnums is None else replaced(primals, inner, argnums)))
        result, aux = _with_aux(result, has_aux, where)
        outputs, made = flatten(result)
        _only_tensors(outputs, where)
        for output in outputs:
            if output._dtype not in INEXACT:
                raise RuntimeError(
                    "vjp(f, ...): All outputs of f must be floating-point or complex Tensors, got Tensor with dtype "
                    f"{output.dtype.name}"
                )
    recorded = targets.elsewhere(outputs)

    def pull(cotangents: Any, retain_graph: bool = True, create_graph: bool | None = None) -> Any:
        """Return the gradients of the primals for cotangents of the outputs."""
        given = leaves_like(made, cotangents)
        if given is None:
            raise RuntimeError(
                "Expected pytree structure of cotangents to be the same as pytree structure of outputs to the "
                f"function. cotangents: {flatten(cotangents)[1]}, primal output: {made}"
            )
        if create_graph is None:
            create_graph = state.grad_enabled and (recorded or any(requires_grad_below(g) for g in given))
        with transform():
            found = targets.gradients(outputs, given, retain_graph, create_graph)
        return unflatten(structure, found)

    keep = _keeper(targets, outer)
    return unflatten(made, [keep(o) for o in outputs]), pull, map_tensors(keep, aux)


def _only_tensors(outputs: list, where: str) -> None:
    if not outputs or (len(outputs) == 1 and outputs[0] is None):
        raise RuntimeError(f"{where}: Expected f to be a function that has non-empty output (got output = {outputs})")
    for output in outputs:
        if not isinstance(output, Tensor):
            raise RuntimeError(
                f"{where}: expected f(*primals) to return only tensors, got unsupported type {type(output)}"
            )


def jvp(
    func: Callable[..., Any],
    primals: tuple[Any, ...],
    tangents: tuple[Any, ...],
    *,
    strict: bool = False,
    has_aux: bool = False,
) -> tuple[Any, ...]:
    """Return (output, tangent): the value of the function, and its derivative along `tangents`, by forward mode.

    `primals` and `tangents` are tuples of one structure.  `strict`: an output that does not depend on the primals is an
    error, not zeros.  With `has_aux`: (output, tangent, aux).

    >>> import xgrad
    >>> xgrad.func.jvp(lambda x: x * x, (xgrad.tensor(3.0),), (xgrad.tensor(1.0),))
    (tensor(9.), tensor(6.))
    """
    output, tangent, aux = jvp_of(func, primals, tangents, None, strict, has_aux)
    return (output, tangent, aux) if has_aux else (output, tangent)


def jvp_of(
    func: Callable[..., Any], primals: Any, tangents: Any, argnums: Any, strict: bool = False, has_aux: bool = False
) -> tuple[Any, Any, Any]:
    """`jvp` along some of the primals (`argnums` None: all); `tangents` has their structure."""
    where = "jvp(f, primals, tangents)"
    if not isinstance(primals, tuple):
        raise RuntimeError(f"{where}: Expected primals to be a tuple. E.g. it should be valid to call f(*primals).")
    moving = primals if argnums is None else chosen(primals, argnums if isinstance(argnums, tuple) else (argnums,))
    at, structure = flatten(moving)
    along = leaves_like(structure, tangents)
    if along is None:
        raise RuntimeError(
            f"{where}: Expected primals and tangents to have the same python structure. For example, if primals is a "
            f"tuple of 3 tensors, tangents also must be. Got primals with structure {structure} and tangents with "
            f"structure {flatten(tangents)[1]}"
        )
    for what, leaves in (("primals", at), ("tangents", along)):
        if not leaves:
            raise RuntimeError(f"{where}: Expected {what} to contain at least one Tensor.")
        for leaf in leaves:
            if not isinstance(leaf, Tensor):
                raise RuntimeError(f"{where}: Expected {what} to only contain Tensors, got {type(leaf)}")
    modes = modes_now()
    try:
        leave_inference()
        level = enter_level()
        duals = [_dual(p, t, level) for p, t in zip(at, along, strict=True)]
        inner = unflatten(structure, duals)
        if argnums is not None:
            inner = replaced(primals, inner if isinstance(argnums, tuple) else inner[0], argnums)
        result, aux = _with_aux(func(*inner), has_aux, where)
        outputs, made = flatten(result)
        _only_tensors(outputs, where)
        found = [o._tangent_at(level) for o in outputs]
        if strict and any(t is None for t in found):
            raise RuntimeError(
                "jvp(f, primals, tangents, strict=True): The output of f is independent of the inputs. This is not "
                "allowed with strict=True."
            )
        moved = [o.detach().new_zeros(o.shape) if t is None else t for o, t in zip(outputs, found, strict=True)]
        values = [_without(o, level) for o in outputs]
    finally:
        state.transforms, state.inference, state.grad_enabled, state.grad_in_inference = modes[:4]
        state.forward_level, state.outer_forward_levels = modes[4:]
    return unflatten(made, values), unflatten(made, moved), map_tensors(lambda t: _without(t, level), aux)


def _dual(primal: Tensor, tangent: Tensor, level: int) -> Tensor:
    if primal.shape != tangent.shape:
        raise RuntimeError(
            "Trying to set a forward gradient that has a different size than that of the original Tensor, this is not "
            f"supported. Expected tangent to have the same shape as primal, but got: {list(tangent.shape)} and "
            f"{list(primal.shape)}"
        )
    for what, tensor in (("primal", primal), ("tangent", tangent)):
        if tensor._dtype not in INEXACT:
            raise ValueError(f"Expected {what} to be floating point or complex, but got: {tensor.dtype.name}")
    dual = stand_in(at_innermost(primal))
    dual._set_tangent(level, stand_in(at_innermost(tangent)))
    return dual


def _without(tensor: Tensor, level: int) -> Tensor:
    """Return a result without its tangent at a level that ends; a view's base, which it keeps, loses its own too."""
    for dual in (tensor,) if tensor._view is None else (tensor, tensor._view.base):
        if dual._tangents and level in dual._tangents:
            dual._tangents = {k: t for k, t in dual._tangents.items() if k != level} or None
    return tensor


def linearize(func: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[..., Any]]:
    """Return (output, jvp_fn): the value of the function, and its derivative at `primals` as a linear function.

    The function runs once.  `jvp_fn` is the transpose of its `vjp_fn`, which is linear: the gradient of the gradient
    with respect to the cotangents.  Raises `RuntimeError` for tangents of another structure, shape or dtype.

    >>> import xgrad
    >>> output, push = xgrad.func.linearize(xgrad.sin, xgrad.zeros(2))
    >>> push(xgrad.ones(2))
    tensor([1., 1.])
    """
    output, pull = vjp(func, *primals)
    outputs, made = flatten(output)
    leaves, structure = flatten(primals)
    with transform():
        cotangents = Targets([o.detach().new_zeros(o.shape) for o in outputs], False)
        gradients = flatten(pull(unflatten(made, cotangents.tensors), create_graph=True))[0]

    def push(*tangents: Any) -> Any:
        """Return the tangents of the outputs for tangents of the primals."""
        given = leaves_like(structure, tangents)
        if given is None:
            raise RuntimeError(
                f"Expected the tangents {flatten(tangents)[1]} to have the same argspec as the primals {structure}"
            )
        for i, (tangent, primal) in enumerate(zip(given, leaves, strict=True)):
            for what in ("shape", "dtype", "device"):
                here, there = getattr(tangent, what), getattr(primal, what)
                if here != there:
                    raise RuntimeError(
                        f"tangent:{i} with {what} {here} in flattened pytree doesn't match the {what} {there} of the "
                        "corresponding primal."
                    )
        create = state.grad_enabled and (any(requires_grad_below(t) for t in given) or cotangents.elsewhere(gradients))
        with transform():
            return unflatten(made, cotangents.gradients(gradients, given, True, create))

    return output, push
