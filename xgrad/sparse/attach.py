"""Gives SparseTensor the interpreter that runs operators on it, and its methods `zero_` and `to_sparse`.

The package's `__init__` imports this file, so that every sparse tensor has them.
"""

from typing import Any

from ..base.limits import require_kept
from ..batching.batched_tensor import level_of
from ..dispatch.interpreter import Interpreter, Rank
from ..dispatch.operator import Operator
from ..engine.arithmetic import Arithmetic
from ..ops.sparse.layout_names import layout_of
from ..tensor import Tensor
from .compressed_tensor import converted, dispatch_compressed
from .gradients import node_gradients
from .node import refusal
from .operators import dispatch_coordinates, dispatch_inplace, write_in_place
from .tensor import SparseTensor, empty


class _Sparse(Interpreter):
    """Runs operators on sparse tensors; an operator that is not in the tables of operators.py is an error."""

    rank = Rank.SPARSE

    def call(self, op: Operator, args: tuple[Any, ...], statics: tuple[Any, ...]) -> Any:
        if level_of(args) is not None:
            raise refusal(f"{op.name} under vmap")
        require_kept(*args, *statics)
        if any(isinstance(a, SparseTensor) and a.layout != "sparse_coo" for a in args):
            return dispatch_compressed(op, args, statics)
        return dispatch_coordinates(op, args, statics)

    def call_inplace(self, op: Operator, args: tuple[Any, ...], statics: tuple[Any, ...]) -> Any:
        if level_of(args) is not None:
            raise refusal(f"{op.name}_ under vmap")
        require_kept(*args, *statics)
        return dispatch_inplace(op, args, statics)

    def gradients(self, node: Any, grad: SparseTensor, needs: int, arithmetic: Arithmetic) -> Any:
        return node_gradients(node, grad, needs, arithmetic)


def zero_(self: SparseTensor) -> Tensor:
    return write_in_place(self, empty(self, self._sizes), "ZeroBackward0")


def to_sparse(
    self: SparseTensor,
    sparse_dim: int | None = None,
    *,
    layout: Any = None,
    blocksize: Any = None,
    dense_dim: Any = None,
) -> Any:
    if sparse_dim is not None and sparse_dim != self.sparse_dim():
        return self.to_dense().to_sparse(sparse_dim)
    if dense_dim is not None and dense_dim != self.dense_dim():
        raise RuntimeError("to_sparse: conversion from Sparse with another dense_dim is not supported: call to_dense()")
    return converted(self, layout_of(layout or "sparse_coo"), blocksize, "ToSparseBackward1")


_attached: dict[str, Any] = {"_interpreter": _Sparse(), "zero_": zero_, "to_sparse": to_sparse}
for _name, _value in _attached.items():
    setattr(SparseTensor, _name, _value)
