"""validate_output: fits a gradient that a node computed to the shape and dtype the next node expects, or raises.

A broadcast gradient is summed to the shape, a complex one for a real tensor loses its imaginary part (unless a custom
Function or an operation on sparse tensors made it: that is an error), another dtype is cast (unless the leaf's
`grad_dtype` is None); anything else is an error that names both shapes (PyTorch: validate_outputs, engine.cpp).
"""

from typing import Any

from ..base.dtypes import COMPLEX
from .arithmetic import Arithmetic
from .fit import expandable, misshapen
from .node import InputMetadata, Node, TensorNode
from .sparse_gradient import Shape, SparseGradient


def validate_output(grad: Any, meta: Any, node: Node, index: int, arithmetic: Arithmetic) -> Any:
    """Convert the gradient to the shape and dtype of `meta`.  Raises `RuntimeError` if that is not possible."""
    if grad.__class__ is SparseGradient or meta.shape.__class__ is Shape:
        return _arrive(grad, meta, node, index, arithmetic)
    shape, dtype = tuple(meta.shape), meta.dtype
    if not expandable(shape, grad.shape):
        raise misshapen(node.name(), index, grad.shape, shape)
    if dtype is None:
        dtype = grad.dtype
        if grad.shape == shape:
            return grad
    if grad.dtype in COMPLEX and dtype not in COMPLEX and isinstance(node, TensorNode):
        raise RuntimeError(
            f"Function {node.name()} returned a complex gradient at index {index} - got {grad.dtype.name} for an input "
            f"of {dtype.name}: its imaginary part would be lost. Return its .real if that is meant."
        )
    node.misfit()
    return arithmetic.fit(grad, shape, dtype)


def _arrive(grad: Any, meta: Any, node: Node, index: int, arithmetic: Arithmetic) -> Any:
    """Run `validate_output` for a sparse gradient, or for one that goes to a sparse tensor."""
    plain = InputMetadata(tuple(meta.shape), meta.dtype)
    if grad.__class__ is not SparseGradient:
        if tuple(grad.shape) == plain.shape and grad.dtype == plain.dtype:
            return grad
        return validate_output(grad, plain, node, index, arithmetic)
    tensor = grad.tensor
    if tuple(tensor.shape) != plain.shape:
        return validate_output(arithmetic.from_tensor(tensor.to_dense()), plain, node, index, arithmetic)
    if tensor._dtype != plain.dtype:
        tensor = tensor._cast(plain.dtype)
    return for_node(node.next_edges[index][0], tensor, arithmetic)


def for_node(node: Node, tensor: Any, arithmetic: Arithmetic) -> Any:
    """A sparse Tensor as a gradient that `node` accepts: a `SparseGradient`, or a dense one."""
    return SparseGradient(tensor) if node.takes_sparse() else arithmetic.from_tensor(tensor.to_dense())
