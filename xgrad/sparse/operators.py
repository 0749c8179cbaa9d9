"""Runs operators (add, mul, mm, sum, ...) on sparse tensors, by a table of functions, and differentiates them.

An operator that is neither in the table nor in KEEP_ZERO is an error; but for the operators of gradients, which no user
calls, sparse arguments are made dense.  Loaded with the first sparse tensor.
(PyTorch: SparseTensorMath.cpp, derivatives.yaml.)
"""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

from ..base import dtypes
from ..config import Unrecorded, state
from ..dispatch import tables
from ..dispatch.call import call
from ..dispatch.inplace import call_inplace
from ..dispatch.operator import Operator
from ..dispatch.promotion import conj, promote
from ..engine.history import rebase_history
from ..ops.sparse.parts import private
from ..tensor import Tensor, from_array
from ..views.meta import check_inplace
from ..views.named.arguments import int_of
from .node import caller, record, refusal
from .tensor import Pattern, SparseTensor, bcoo, densely, empty, from_parts, gather, gathered, make

_functions: dict[str, Any] = tables.FUNCTIONS[""]


# -- sums -------------------------------------------------------------------------------------------------------------


def _scatter_add(self: Any, values: Any, indices: Any, alpha: Any) -> Any:
    """Add `alpha` times a sparse array to a dense one; in place, it costs the size of the sparse one."""
    self, values = promote(self, values * jnp.asarray(alpha).astype(values.dtype))
    if not indices.shape[0]:
        return self + jnp.sum(values, 0, dtype=values.dtype)
    return self.at[tuple(indices)].add(values)


_add_entries = Operator("add", _scatter_add, wide=(True, True))
_add_entries.derivative(
    self=lambda grad: grad, values=lambda grad, indices, alpha: gathered(grad, indices) * jnp.asarray(conj(alpha))
)


def _scaled(x: Any, alpha: Any) -> Any:
    return x if alpha.__class__ is int and alpha == 1 else x * alpha


def _conj(number: Any) -> Any:
    return number.conjugate() if isinstance(number, complex) else number


def _same_size(self: Tensor, other: Tensor, what: str) -> None:
    if tuple(self.shape) != tuple(other.shape):
        raise RuntimeError(
            f"{what}: expected 'self' and 'other' to have same size, but self has size {list(self.shape)} while other "
            f"has size {list(other.shape)} (FYI: {what} with a sparse tensor does not broadcast)"
        )


def _add(self: Any, other: Any, alpha: Any = 1) -> Any:
    alpha = alpha.item() if isinstance(alpha, Tensor) else alpha
    kinds = [getattr(x, "_sparse", None) for x in (self, other)]
    if None in kinds or kinds == [True, False]:
        raise RuntimeError("add(sparse, dense) is not supported. Use add(dense, sparse) instead.")
    _same_size(self, other, "add")

    def rule(grad: Any, needs: int) -> tuple:
        return grad, _scaled(grad, _conj(alpha)) if needs & 2 else None

    if self._sparse:
        return record("AddBackward0", _joined(self, other, alpha), (self, other), rule)
    parts: Any = (self, other._entries, other._index, alpha)
    if not (state.grad_enabled and other.requires_grad):
        return call(_add_entries, parts, ())
    with Unrecorded():
        result = call(_add_entries, parts, ())
    return record("AddBackward0", result, (self, other), rule)


def _joined(a: Any, b: Any, alpha: Any) -> Any:
    """a + alpha * b, with the entries of both; coalesced if both are.  XLA then needs no values for the shape."""
    if a.sparse_dim() != b.sparse_dim():
        raise RuntimeError(
            f"add: expected 'self' and 'other' to have the same number of sparse dimensions, but got {a.sparse_dim()} "
            f"and {b.sparse_dim()}"
        )
    dtype = dtypes.promote_types(a._dtype, b._dtype)
    entries, others = a._entries.to(dtype), _scaled(b._entries, alpha).to(dtype)
    if not b._nnz():
        return make(a._index, private(entries), a._sizes, a._coalesced)
    if not a._nnz():
        return make(b._index, private(others), b._sizes, b._coalesced)
    if a._index is b._index:
        return make(a._index, entries + others, a._sizes, a._coalesced)
    cat = _functions["cat"]
    both = make(cat([a._index, b._index], 1), cat([entries, others]), a._sizes, False)
    return both.coalesce() if a._coalesced and b._coalesced else both


def _sub(self: Any, other: Any, alpha: Any = 1) -> Tensor:
    return _add(self, other, -alpha)


# -- products ---------------------------------------------------------------------------------------------------------


def _on_values(self: SparseTensor, values: Tensor) -> SparseTensor:
    return self._with(values)


def is_scalar(x: Any) -> bool:
    return not isinstance(x, Tensor) or (not x._sparse and not x.ndim)


def _mul(self: Any, other: Any) -> Tensor:
    if not getattr(self, "_sparse", False):
        self, other = other, self
    if not isinstance(other, Tensor):
        result = _on_values(self, self._entries * other)
        return record("MulBackward0", result, (self,), lambda grad, needs: (grad * _conj(other),))
    if is_scalar(other):

        def by_number(grad: Any, needs: int, x: Any, factor: Any) -> tuple:
            right = (densely(x).conj() * densely(grad)).sum() if needs & 2 else None
            return grad * factor.conj(), right

        with Unrecorded():
            result = _on_values(self, self._entries * other)
        return record("MulBackward0", result, (self, other), by_number, (self, other))
    _same_size(self, other, "mul")
    pattern = Pattern(other) if isinstance(other, SparseTensor) else None

    def rule(grad: Any, needs: int, x: Any, y: Any) -> tuple:
        left = grad * densely(y).conj() if needs & 1 else None
        if needs & 2 and pattern is not None:
            return left, pattern.masked(densely(x).conj() * densely(grad))
        return left, _mul(_recorded_conj(x), densely(grad)) if needs & 2 else None

    with Unrecorded():
        first = self if pattern is None else self.coalesce()
        result = _on_values(first, first._entries * call(gather, (densely(other), first._index), ()))
    return record("MulBackward0", result, (self, other), rule, (self, other))


def _div(self: Any, other: Any) -> Tensor:
    if not isinstance(self, SparseTensor) or not is_scalar(other):
        found = list(other.shape) if isinstance(other, Tensor) else other
        raise RuntimeError(
            f"Sparse division requires a scalar or zero-dim dense tensor divisor (got shape {found} for divisor)"
        )
    if not isinstance(other, Tensor):
        result = _on_values(self, self._entries / other)
        return record("DivBackward0", result, (self,), lambda grad, needs: (grad / _conj(other),))

    def rule(grad: Any, needs: int, x: Any, y: Any) -> tuple:
        below = -(densely(grad) * densely(x).conj() / (y * y).conj()).sum() if needs & 2 else None
        return grad / y.conj(), below

    with Unrecorded():
        result = _on_values(self, self._entries / other)
    return record("DivBackward0", result, (self, other), rule, (self, other))


def _neg(self: SparseTensor) -> Tensor:
    return record("NegBackward0", _on_values(self, -self._entries), (self,), lambda grad, needs: (-grad,))


def _clone(self: SparseTensor) -> Tensor:
    return record("CloneBackward0", self._shallow(), (self,), lambda grad, needs: (grad,))


def _conjugate(self: SparseTensor) -> SparseTensor:
    """The conjugate, not recorded."""
    return _on_values(self, self._entries.conj().resolve_conj())


# -- matrix products --------------------------------------------------------------------------------------------------

_product = Operator(
    "sparse_mm", lambda values, indices, dense, *, size: bcoo(values, indices, size) @ dense, wide=(True, True)
)
_sampled = Operator(  # the entries at `indices` of grad @ dense.mH
    "sampled_mm",
    lambda grad, dense, indices: jnp.sum(grad[indices[0]] * jnp.conj(dense[indices[1]]), -1),
    wide=(True, True),
)


def _matrix(x: Any, name: str) -> None:
    if x.ndim != 2 or (x._sparse and x.dense_dim()):
        raise RuntimeError(f"{name}: expected a matrix without dense dimensions if it is sparse, got {x.ndim}D tensor")


def sparse_mm(self: Any, other: Any, masked: bool, name: str = "mm") -> Tensor:
    """Multiply a sparse matrix with a dense or sparse one; `masked`: the sparse factor's gradient is sparse too."""
    _matrix(self, name)
    _matrix(other, name)
    if self.shape[1] != other.shape[0]:
        raise RuntimeError(
            f"{name}: Expected dim 0 size {self.shape[1]}, got {other.shape[0]}: mat1 and mat2 shapes cannot be "
            f"multiplied ({self.shape[0]}x{self.shape[1]} and {other.shape[0]}x{other.shape[1]})"
        )
    if self.dtype != other.dtype:
        raise RuntimeError(
            f"{name}: expected both to have the same dtype, but got {self.dtype.name} and {other.dtype.name}"
        )
    if not self._sparse:
        return sparse_mm(other.t(), self.t(), masked, name).t()
    if other._sparse:
        return sparse_mm(self, other.to_dense(), True, name).to_sparse()
    entries, index, size = self._entries, self._index, self._sizes
    with Unrecorded():
        result = call(_product, (entries, index, other), (size,))
    pattern = Pattern(self)

    def rule(grad: Any, needs: int, x: Any, y: Any) -> tuple:
        grad = densely(grad)
        left = right = None
        if needs & 1:
            left = pattern.of(call(_sampled, (grad, y, pattern.unique()), ())) if masked else grad @ y.conj().t()
        if needs & 2:
            right = sparse_mm(_recorded_conj(x).t(), grad, masked, name)
        return left, right

    return record("SparseAddmmBackward0" if masked else "MmBackward0", result, (self, other), rule, (self, other))


def _recorded_conj(x: Any) -> Any:
    if x.dtype not in dtypes.COMPLEX:
        return x
    return record("ConjBackward0", _conjugate(x), (x,), lambda grad, needs: (densely(grad).conj(),))


def _mm(self: Any, other: Any) -> Tensor:
    return sparse_mm(self, other, False)


def _matmul(self: Any, other: Any) -> Tensor:
    if other.ndim == 1 and self._sparse:
        return sparse_mm(self, other.unsqueeze(1), False, "mv").squeeze(1)
    return sparse_mm(self, other, False, "matmul")


def addmm(input: Any, mat1: Any, mat2: Any, beta: Any = 1, alpha: Any = 1, masked: bool = False) -> Tensor:
    """beta * input + alpha * (mat1 @ mat2), with one sparse factor and a dense sum."""
    if input._sparse or (mat1._sparse and mat2._sparse):
        raise refusal("addmm of a sparse input, or of two sparse factors,")
    return _scaled(input, beta) + _scaled(sparse_mm(mat1, mat2, masked, "addmm"), alpha)


# -- reductions, and functions that keep zero -------------------------------------------------------------------------


def sparse_sum(self: SparseTensor, dim: Any, dtype: Any = None) -> Tensor:
    """Sum over some dimensions: the result is sparse while a sparse dimension is left, and so is its gradient."""
    if dtype is not None:
        self = self._cast(dtypes.as_dtype(dtype))
    given = (dim,) if not isinstance(dim, (tuple, list)) else tuple(dim)
    ndim, n = self.ndim, self.sparse_dim()
    dims = [int_of(d) for d in given]
    for d in dims:
        if not -ndim <= d < ndim:
            raise IndexError(f"Dimension out of range (expected to be in range of [{-ndim}, {ndim - 1}], but got {d})")
    dims = [d % ndim for d in dims]
    if len(set(dims)) < len(dims):
        raise RuntimeError(f"dim {dims[0]} appears multiple times in the list of dims")
    left = [d for d in range(ndim) if d not in dims]
    rows = [d for d in left if d < n]
    inner = tuple(d - n + 1 for d in dims if d >= n)
    values = self._entries.sum(inner) if inner else self._entries
    size = tuple(self._sizes[d] for d in left)
    if rows:
        index = from_array(self._index._read()[jnp.asarray(rows)])
        result: Any = make(index, private(values), size, False).coalesce()
    else:
        result = values.sum(0)
    pattern = Pattern(self)
    spread = [1 if d in dims else s for d, s in enumerate(self._sizes) if d >= n]

    def rule(grad: Any, needs: int) -> tuple:
        grad, index = densely(grad), pattern.unique()
        if rows:
            grad = call(gather, (grad, from_array(index._read()[jnp.asarray(rows)])), ())
        return (pattern.of(grad.reshape(-1, *spread).expand(pattern.entries())),)

    return record("SparseSumBackward0", result, (self,), rule)


def _sum(self: SparseTensor, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Tensor:
    if dim is not None:
        if keepdim:
            raise refusal("sum(keepdim=True)")
        return sparse_sum(self, dim, dtype)
    if dtype is not None:
        self = self._cast(dtypes.as_dtype(dtype))
    pattern = Pattern(self)
    return record(
        "SumBackward0",
        self._entries.sum(),
        (self,),
        lambda grad, needs: (pattern.of(grad.expand(pattern.entries())),),
    )


# Functions with f(0) == 0: computed for each entry of the coalesced tensor.
KEEP_ZERO = frozenset([
    "abs", "asin", "asinh", "atan", "atanh", "ceil", "deg2rad", "erf", "expm1", "floor", "isinf", "isnan", "log1p",
    "nan_to_num", "rad2deg", "relu", "round", "sgn", "sign", "sin", "sinh", "sqrt", "square", "tan", "tanh", "trunc",
])  # fmt: skip


def _keep_zero(op: Operator, self: SparseTensor, rest: tuple, statics: tuple) -> Tensor:
    x: Any = self.coalesce()
    return from_parts(x._index, call(op, (x.values(), *rest), statics), x._sizes, True)


_TABLE: dict[str, Callable] = {
    "add": _add, "sub": _sub, "mul": _mul, "div": _div, "true_divide": _div, "neg": _neg, "clone": _clone,
    "mm": _mm, "matmul": _matmul, "mv": _matmul, "addmm": addmm,
}  # fmt: skip


# -- entry points -----------------------------------------------------------------------------------------------------


def dispatch_coordinates(op: Operator, args: tuple[Any, ...], statics: tuple[Any, ...]) -> Any:
    """Run an operator with a sparse_coo tensor among its arguments, or with one that counts as such."""
    name = op.name
    if name.endswith("_backward") or name == "_fit":  # an operator of gradients, which accepts dense and sparse tensors
        return call(op, tuple(a.to_dense() if isinstance(a, SparseTensor) else a for a in args), statics)
    if name in _TABLE and not statics:
        return _TABLE[name](*args)
    if name == "sum":
        return _sum(args[0], *statics)
    if name in KEEP_ZERO and isinstance(args[0], SparseTensor):
        return _keep_zero(op, args[0], args[1:], statics)
    raise refusal(caller() if name.startswith("_") else name)


def dispatch_inplace(op: Operator, args: tuple[Any, ...], statics: tuple[Any, ...]) -> Tensor:
    """Run the in-place form of an operator on a sparse tensor."""
    self, name = args[0], op.name
    if name == "copy" and len(args) == 2 and self._sparse != getattr(args[1], "_sparse", False):
        kinds = [f"xgrad{'.sparse' if x._sparse else ''}.{dtypes.torch_name(x.dtype)}Tensor" for x in args]
        raise RuntimeError(
            "copy_() between dense and sparse Tensors is not implemented! Found self type = "
            f"{kinds[0]} and src type = {kinds[1]}; give it other.to_dense() or self.to_sparse()."
        )
    if self._sparse:
        if name == "copy":
            _same_size(self, args[1], "copy_")
            return write_in_place(self, _clone(args[1]), "CopyBackwards")
        if name not in ("add", "sub", "mul", "div", "neg"):
            raise refusal(f"{name}_")
        if state.grad_enabled and self.requires_grad:
            check_inplace(self)
        before = _before(self)  # the old value is saved
        args = tuple(before if a is self else a for a in args)
        return write_in_place(self, call(op, args, statics), None)
    if name not in ("add", "sub") or len(args) < 2 or not isinstance(args[1], SparseTensor):
        raise refusal(f"{name}_")
    other, alpha = args[1], args[2] if len(args) > 2 else 1
    alpha = alpha.item() if isinstance(alpha, Tensor) else alpha
    _same_size(self, other, "add")
    alpha = alpha if name == "add" else -alpha
    if not (state.grad_enabled and other.requires_grad):
        return call_inplace(_add_entries, (self, other._entries, other._index, alpha), ())
    check_inplace(self)
    node: Any = _add(self, other, alpha)._grad_fn
    with Unrecorded():
        call_inplace(_add_entries, (self, other._entries, other._index, alpha), ())
    rebase_history(self, node)
    return self


def _before(self: SparseTensor) -> SparseTensor:
    """A twin of the tensor with its present value and its place in the graph."""
    twin = _on_values(self, self._entries)
    twin._grad_fn, twin._output_nr, twin._requires_grad = self._grad_fn, self._output_nr, self._requires_grad
    return twin


def write_in_place(self: SparseTensor, result: Any, name: str | None) -> Tensor:
    """Give a sparse tensor the value and the history of `result`; with a `name`, of one that forgets the old value."""
    if not isinstance(result, SparseTensor):
        raise RuntimeError("an in-place operation cannot make a sparse tensor dense")
    recording = state.grad_enabled and (self.requires_grad or result.requires_grad)
    if recording:
        check_inplace(self)
    if self._inference:
        self._bump(0)  # raises, outside of inference mode
    if dtypes.category(result._dtype) > dtypes.category(self._dtype):
        names = [dtypes.torch_name(d) for d in (result._dtype, self._dtype)]
        raise RuntimeError(f"result type {names[0]} can't be cast to the desired output type {names[1]}")
    result = result._cast(self._dtype)
    if recording:
        if name is not None:
            source = result if result.requires_grad else None
            inputs = (self,) if source is None else (self, source)
            zeros = empty(self, self._sizes)
            result = record(name, result._shallow(), inputs, lambda grad, needs: (zeros, grad)[: len(inputs)])
        rebase_history(self, result._grad_fn)
    self._become(result)
    return self
