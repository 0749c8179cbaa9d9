"""Arithmetic: adds, casts, moves, ... gradients in backward, either as bare JAX arrays or as Tensors.

    ARRAYS     bare arrays: nothing is recorded, and an array with no other reference may be overwritten
    TENSORS    Tensors: each map is an operator, which is recorded and carries tangents and batches along

A graph task chooses one for its whole run (`GraphTask.arithmetic`), and passes it to each node's `apply`: a formula
that is written in these maps is right in both.  In both a sparse gradient travels in a `SparseGradient`.

The maps of TENSORS are methods of Tensor, which xgrad/attach.py puts there: operators stand above the engine.  They are
called on the class, so that methods of a user's subclass of Tensor change no gradient.
"""

import functools
from typing import Any

import numpy as np

from ..base.limits import zeros
from ..execution.pending import declared_of
from ..execution.programs.programs import jit_checked
from ..execution.references import is_alone
from ..tensor import Tensor, from_array
from ..views.chain import ViewChain
from ..views.storage import Tracer, may_donate
from . import sparse_gradient
from .fit import fit
from .input_buffer import accumulate, stolen
from .placement import put
from .sparse_gradient import SparseGradient


def copy(array: Any) -> Any:
    return array.copy()


_copy = jit_checked(copy)


@functools.lru_cache(maxsize=4096)
def fit_program(shape: tuple, dtype: np.dtype) -> Any:
    """Return the program that sums a gradient to a shape and casts it."""

    def sum_to_size(array: Any) -> Any:
        return fit(array, shape, dtype)

    return jit_checked(sum_to_size, (shape, dtype))


class Arithmetic:
    """The maps.  `chain` leads from a base to a view of it; `fit`, `read`, ... of a gradient are linear in it."""

    tensors: bool  # True if gradients travel as Tensors

    def from_tensor(self, tensor: Any) -> Any:
        """Convert a Tensor to a gradient that travels; None stays None."""
        raise NotImplementedError

    def to_tensor(self, grad: Any) -> Any:
        """Convert a gradient to a Tensor, for hooks and users; None stays None."""
        raise NotImplementedError

    def into_tensor(self, grads: list[Any], index: int) -> Any:
        """Convert `grads[index]` to a Tensor that outlives the run; it may own the array."""
        raise NotImplementedError

    def constant(self, array: Any) -> Any:
        """Convert an array that the engine made to a factor of gradients."""
        raise NotImplementedError

    def add(self, buffer: list[Any], index: int, grads: list[Any]) -> None:
        """Add `grads[0]` to `buffer[index]`.  In a list a gradient's references can be counted."""
        raise NotImplementedError

    def fit(self, grad: Any, shape: tuple[Any, ...], dtype: np.dtype) -> Any:
        """Sum the gradient to `shape` and cast it to `dtype`."""
        raise NotImplementedError

    def move(self, grad: Any, place: Any, committed: bool = True) -> Any:
        """Transfer the gradient to another device or sharding: see `put`."""
        raise NotImplementedError

    def read(self, chain: ViewChain, grad: Any) -> Any:
        """Read the part of a base's gradient that the view shows."""
        raise NotImplementedError

    def adjoint(self, chain: ViewChain, grad: Any) -> Any:
        """Make the base's gradient of a view's: zero where the view shows nothing."""
        raise NotImplementedError

    def write(self, chain: ViewChain, grads: list[Any], new: Any, ours: bool = False) -> Any:
        """Return the base's gradient `grads[0]` with `new` (None: zeros) where the view is.  The list may lose it.

        `ours`: the engine made `grads[0]`, so its memory may be overwritten if the list has the only reference.
        """
        raise NotImplementedError


class _Arrays(Arithmetic):
    tensors = False

    def from_tensor(self, tensor: Any) -> Any:
        """The tensor's array, copied unless one of xgrad's kernels made it."""
        if tensor is None:
            return None
        if tensor._sparse:
            return SparseGradient(tensor)
        array, storage = tensor._read(), tensor._storage
        return array if (tensor if storage is None else storage)._owned else _copy(array)

    def to_tensor(self, grad: Any) -> Any:
        if grad is None:
            return None
        return grad.tensor if grad.__class__ is SparseGradient else from_array(grad)

    def into_tensor(self, grads: list[Any], index: int) -> Any:
        if grads[index] is None:
            return None
        return grads[index].shared() if grads[index].__class__ is SparseGradient else stolen(grads, index)

    def constant(self, array: Any) -> Any:
        return array

    def add(self, buffer: list[Any], index: int, grads: list[Any]) -> None:
        accumulate(buffer, index, grads)

    def fit(self, grad: Any, shape: tuple[Any, ...], dtype: np.dtype) -> Any:
        return fit_program(shape, dtype)(grad)

    def move(self, grad: Any, place: Any, committed: bool = True) -> Any:
        return put(grad, place, committed)

    def read(self, chain: ViewChain, grad: Any) -> Any:
        return chain.replay(grad)

    def adjoint(self, chain: ViewChain, grad: Any) -> Any:
        return chain.adjoint(grad)

    def write(self, chain: ViewChain, grads: list[Any], new: Any, ours: bool = False) -> Any:
        donate = ours and may_donate(grads, 0) and not isinstance(new, Tracer)
        new = zeros(chain.shape, chain.dtype) if new is None else new
        if ours and (where := declared_of(grads[0])) is not None:
            box, out = grads[:1], []
            grads[0] = None
            where.runtime.write(out, box, is_alone(box), chain.writer, (new, *chain.starts))
            return out[0]
        whole, grads[0] = grads[0], None
        return chain.write_back(whole, new, donate)


class _Tensors(Arithmetic):
    tensors = True

    def from_tensor(self, tensor: Any) -> Any:
        return SparseGradient(tensor) if tensor is not None and tensor._sparse else tensor

    def to_tensor(self, grad: Any) -> Any:
        return grad.tensor if grad.__class__ is SparseGradient else grad

    def into_tensor(self, grads: list[Any], index: int) -> Any:
        return grads[index].shared() if grads[index].__class__ is SparseGradient else grads[index]

    def constant(self, array: Any) -> Any:
        return from_array(array)

    def add(self, buffer: list[Any], index: int, grads: list[Any]) -> None:
        a, b = buffer[index], grads[0]
        if SparseGradient in (a.__class__, b.__class__):
            buffer[index] = sparse_gradient.add(self.to_tensor(a), self.to_tensor(b))
        else:
            buffer[index] = Tensor.add(a, b)

    def fit(self, grad: Any, shape: tuple[Any, ...], dtype: np.dtype) -> Any:
        return Tensor._fit(grad, shape, dtype)

    def move(self, grad: Any, place: Any, committed: bool = True) -> Any:
        return Tensor._put(grad, place, committed=committed)

    def read(self, chain: ViewChain, grad: Any) -> Any:
        return Tensor._replay(grad, chain)

    def adjoint(self, chain: ViewChain, grad: Any) -> Any:
        return Tensor._adjoint(grad, chain)

    def write(self, chain: ViewChain, grads: list[Any], new: Any, ours: bool = False) -> Any:
        return Tensor._write_back(grads[0], chain, new)


ARRAYS, TENSORS = _Arrays(), _Tensors()
