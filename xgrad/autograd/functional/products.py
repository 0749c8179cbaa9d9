"""vjp, jvp, vhp, hvp: compute products of a vector and a Jacobian or Hessian, for xgrad.autograd.functional.

Products with a vector from the left cost a backward.  Those from the right are found by the *double backward trick*:
the product J^T u is linear in u, so differentiating it with respect to u, weighted with v, gives J v.
"""

from typing import Any

from ...tensor import Tensor
from ..grad_mode import enable_grad
from .arguments import (
    ONE_INPUT,
    ONE_OUTPUT,
    Function,
    _zeros_like,
    filled,
    fresh,
    gradients,
    require,
    result,
    returned,
    scalar,
    tensors,
    vector,
)

Tensors = Tensor | tuple[Tensor, ...]


@enable_grad()
def vjp(
    func: Function, inputs: Tensors, v: Tensors | None = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """Return `func(*inputs)`, and the product of `v` with its Jacobian, which is shaped as the inputs are.

    `v`: shaped as the output; optional for an output of one element.  `create_graph`: both results can be
    differentiated, with respect to `inputs` and `v`.  `strict`: an input on which no output depends is an error,
    instead of zeros.  Tuples give tuples, tensors tensors.

    Raises `TypeError` for an argument that is not a tensor, `RuntimeError` for a `v` of another shape.

    >>> import xgrad
    >>> x = xgrad.tensor([1.0, 2.0])
    >>> xgrad.autograd.functional.vjp(lambda x: x * x, x, xgrad.tensor([1.0, 10.0]))
    (tensor([1., 4.]), tensor([ 2., 40.]))
    """
    given, many = tensors(inputs, "inputs", "vjp")
    leaves = fresh(given, create_graph)
    outputs, several = returned(func(*leaves), "vjp", strict)
    weights = vector(v, outputs, several, "vjp", create_graph, ONE_OUTPUT)
    found = gradients(outputs, leaves, weights, create_graph)
    product = filled("vjp", found, leaves, strict, create_graph)
    return result(outputs, several, create_graph), result(product, many, create_graph)


@enable_grad()
def jvp(
    func: Function, inputs: Tensors, v: Tensors | None = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """Return `func(*inputs)`, and the product of its Jacobian with `v`, which is shaped as the output is.

    `v`: shaped as the inputs; optional for an input of one element.  The other arguments are the same as in `vjp`.
    It takes two backwards; `forward_ad` takes none.

    >>> import xgrad
    >>> x = xgrad.tensor([1.0, 2.0])
    >>> xgrad.autograd.functional.jvp(lambda x: (x * x).sum(), x, xgrad.tensor([1.0, 10.0]))
    (tensor(5.), tensor(42.))
    """
    given, many = tensors(inputs, "inputs", "jvp")
    leaves = fresh(given, create_graph)
    weights = vector(v, leaves, many, "jvp", create_graph, ONE_INPUT)
    outputs, several = returned(func(*leaves), "jvp", strict)
    probes = tuple(_zeros_like(o, requires_grad=True) for o in outputs)
    pulled = gradients(outputs, leaves, probes, True)
    require("gradient", pulled, strict)
    found = gradients(pulled, probes, weights, create_graph)
    product = filled("jvp", found, outputs, strict, create_graph)
    return result(outputs, several, create_graph), result(product, several, create_graph)


@enable_grad()
def vhp(
    func: Function, inputs: Tensors, v: Tensors | None = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """Return `func(*inputs)`, of one element, and the product of `v` with its Hessian, both shaped as the inputs are.

    `v` is optional for an input of one element.  The other arguments are the same as in `vjp`.
    Raises `RuntimeError` unless the function returns one tensor of one element.

    >>> import xgrad
    >>> x = xgrad.tensor([1.0, 2.0])
    >>> xgrad.autograd.functional.vhp(lambda x: (x * x * x).sum(), x, xgrad.tensor([1.0, 10.0]))
    (tensor(9.), tensor([  6., 120.]))
    """
    leaves, many, weights, output, slope = _slope(func, inputs, v, create_graph, strict, "vhp")
    found = gradients(slope, leaves, weights, create_graph)
    product = filled("vhp", found, leaves, strict, create_graph)
    return result((output,), False, create_graph), result(product, many, create_graph)


@enable_grad()
def hvp(
    func: Function, inputs: Tensors, v: Tensors | None = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """Return `func(*inputs)`, of one element, and the product of its Hessian with `v`, both shaped as the inputs are.

    A Hessian of continuous second derivatives is symmetric: then `vhp` gives the same for one backward less.

    >>> import xgrad
    >>> x = xgrad.tensor([1.0, 2.0])
    >>> xgrad.autograd.functional.hvp(lambda x: (x * x * x).sum(), x, xgrad.tensor([1.0, 10.0]))
    (tensor(9.), tensor([  6., 120.]))
    """
    leaves, many, weights, output, slope = _slope(func, inputs, v, create_graph, strict, "hvp")
    probes = tuple(_zeros_like(x, requires_grad=True) for x in leaves)
    pulled = gradients(slope, leaves, probes, True)
    found = gradients(pulled, probes, weights, create_graph)
    product = filled("hvp", found, leaves, strict, create_graph)
    return result((output,), False, create_graph), result(product, many, create_graph)


def _slope(func: Function, inputs: Any, v: Any, create_graph: bool, strict: bool, name: str) -> tuple:
    """Return the first steps of vhp and hvp: the function's value and its first derivatives, recorded."""
    given, many = tensors(inputs, "inputs", name)
    leaves = fresh(given, create_graph)
    weights = vector(v, leaves, many, name, create_graph, ONE_INPUT)
    output = scalar(func(*leaves), name, strict)
    slope = gradients((output,), leaves, create_graph=True)
    require("jacobian", slope, strict)
    return leaves, many, weights, output, slope
