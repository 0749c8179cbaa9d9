"""xgrad.sparse: mm, addmm and sum of sparse tensors (PyTorch: torch.sparse), and conversion to and from JAX's BCOO.

>>> import xgrad
>>> s = xgrad.sparse_coo_tensor([[0, 1], [2, 0]], [3.0, 4.0], (2, 3), requires_grad=True)
>>> xgrad.sparse.mm(s, xgrad.ones(3, 1)).sum().backward()
>>> s.grad
tensor(indices=tensor([[0, 1],
                       [2, 0]]),
       values=tensor([1., 1.]),
       size=(2, 3), nnz=2, layout=xgrad.sparse_coo)
"""

import functools as _functools
from collections.abc import Callable as _Callable
from collections.abc import Iterator as _Iterator
from typing import Any

from ..base.missing import close_namespace as _close_namespace
from ..config import Generated as _Generated
from ..config import settings as _settings
from ..ops.sparse import conversion as _conversion
from ..tensor import Tensor, from_foreign
from . import attach as _attach  # noqa: F401 - it runs
from . import compressed_tensor as _compressed
from . import operators as _ops
from . import tensor as _tensors

__all__ = ["SparseTensor", "addmm", "check_sparse_tensor_invariants", "from_bcoo", "mm", "sum", "to_bcoo"]

SparseTensor = _tensors.SparseTensor


class check_sparse_tensor_invariants(_Generated):
    """Let the constructors of sparse tensors check all invariants, as with `check_invariants=True`.

    A block, a decorator, or `enable()` and `disable()`, for the whole process; False concerns only
    `check_invariants=None`, which checks indices on a CPU all the same, since wrong ones would give wrong values.

    Raises `RuntimeError` for a block that is entered twice.  (PyTorch: torch.sparse.check_sparse_tensor_invariants.)

    >>> import xgrad
    >>> with xgrad.sparse.check_sparse_tensor_invariants():
    ...     xgrad.sparse.check_sparse_tensor_invariants.is_enabled()
    True
    >>> xgrad.sparse.check_sparse_tensor_invariants.is_enabled()
    False
    """

    def __init__(self, enable: bool = True) -> None:
        self.state = enable
        self.saved_state: bool | None = None

    @staticmethod
    def is_enabled() -> bool:
        """Return True if all invariants are checked."""
        return _settings.check_sparse

    @staticmethod
    def enable() -> None:
        """Check all invariants from now on."""
        _settings.check_sparse = True

    @staticmethod
    def disable() -> None:
        """Check only what `check_invariants=None` checks."""
        _settings.check_sparse = False

    def _block(self) -> _Iterator[None]:
        if self.saved_state is not None:
            raise RuntimeError(
                "This context manager instance is already activated. Make another instance for a block within it."
            )
        check, before = bool(self.state), self.is_enabled()
        self.saved_state, _settings.check_sparse = before, check
        try:
            yield
        finally:
            _settings.check_sparse, self.saved_state = before, None

    def __call__(self, function: _Callable) -> _Callable:
        @_functools.wraps(function)
        def checked(*args: Any, **kwargs: Any) -> Any:
            with type(self)(self.state):
                return function(*args, **kwargs)

        return checked


def _require(tensor: Any, name: str) -> None:
    if not isinstance(tensor, SparseTensor):
        raise TypeError(f"sparse.{name}: expected a sparse tensor, but got {type(tensor).__name__}")


def mm(sparse: Tensor, dense: Tensor) -> Tensor:
    """Return the product of a sparse matrix (n, m) and a dense one (m, k), dense; of two sparse ones, sparse.

    The gradient of the sparse matrix has only its entries; `xgrad.mm` gives it a dense one.
    Raises `RuntimeError` for shapes or dtypes that do not fit.  (PyTorch: torch.sparse.mm.)
    """
    if not isinstance(sparse, SparseTensor) and not isinstance(dense, SparseTensor):
        return _ops._functions["mm"](sparse, dense)
    result = _ops.sparse_mm(sparse, dense, True, "addmm")
    return _compressed.product_of(result, sparse) if result._sparse and isinstance(sparse, SparseTensor) else result


def addmm(mat: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Any = 1.0, alpha: Any = 1.0) -> Tensor:
    """Return beta * mat + alpha * (mat1 @ mat2) with a sparse factor, whose gradient has only its entries.

    Raises `RuntimeError` for shapes or dtypes that do not fit.  (PyTorch: torch.sparse.addmm.)
    """
    if not isinstance(mat1, SparseTensor) and not isinstance(mat2, SparseTensor):
        return _ops._functions["addmm"](mat, mat1, mat2, beta=beta, alpha=alpha)
    return _ops.addmm(mat, mat1, mat2, beta, alpha, True)


def sum(input: Tensor, dim: Any = None, dtype: Any = None) -> Tensor:
    """Return the sum of a sparse tensor's entries, of all or over `dim`; sparse while a sparse dimension is left.

    (PyTorch: torch.sparse.sum.)
    """
    _require(input, "sum")
    assert isinstance(input, SparseTensor)
    return _ops._sum(input, None, False, dtype) if dim is None else _ops.sparse_sum(input, dim, dtype)


def to_bcoo(input: Tensor) -> Any:
    """Return a sparse tensor as a `jax.experimental.sparse.BCOO`, outside of the graph.

    >>> import xgrad
    >>> xgrad.sparse.to_bcoo(xgrad.eye(2).to_sparse())
    BCOO(float32[2, 2], nse=2)
    """
    _require(input, "to_bcoo")
    assert isinstance(input, SparseTensor)
    return input._bcoo()


def from_bcoo(array: Any, requires_grad: bool = False) -> Tensor:
    """Return a sparse tensor of a `jax.experimental.sparse.BCOO` without batch dimensions.

    Raises `ValueError` for one with them, and for one that is padded (indices beyond its shape).
    """
    if array.n_batch:
        raise ValueError(f"from_bcoo: expected no batch dimensions, but got {array.n_batch}")
    coalesced = array.indices_sorted and array.unique_indices
    try:
        return _conversion.sparse_coo_tensor(
            from_foreign(array.indices).t(), from_foreign(array.data), array.shape, is_coalesced=coalesced,
            requires_grad=requires_grad, check_invariants=True,
        )  # fmt: skip
    except RuntimeError as error:
        raise ValueError(f"from_bcoo: {error}") from None


_close_namespace(__name__)
