"""Finds the elements of a dense or sparse input that gradcheck changes for finite differences, and their positions.

For a dense tensor these are all its elements.  For a sparse one they are the entries that it has: under `masked` its
Jacobian is with respect to these only; else every place is filled first, since each of them might have been an entry.
"""

import numpy as np

from ...sparse.tensor import SparseTensor, make
from ...tensor import Tensor, from_foreign


def host(x: Tensor) -> np.ndarray:
    """Return a copy of the values on the host: outputs may share memory with the inputs that are changed."""
    return np.array((x.detach().to_dense() if x._sparse else x)._read())


def entries(x: Tensor) -> tuple[Tensor, np.ndarray]:
    """Return a tensor that shares the entries of `x`, to be written in place; and their element numbers in `x`."""
    if not isinstance(x, SparseTensor):
        return x.data, np.arange(x.numel())
    data, index = SparseTensor._values(x).data, host(x._index)  # of a compressed layout: its elements, not its blocks
    sizes = tuple(x.shape)
    first = np.array(np.ravel_multi_index(tuple(index), sizes[: len(index)]))  # numbers of whole dense parts
    width = int(np.prod(sizes[len(index) :], dtype=int))
    return data, np.add.outer(first * width, np.arange(width)).reshape(-1)


def filled(x: Tensor) -> Tensor:
    """Return a sparse tensor that is equal to `x`, and has an entry at every place; a dense one as it is."""
    if not isinstance(x, SparseTensor):
        return x
    sizes, n = tuple(x.shape), x.sparse_dim()
    index = np.indices(sizes[:n]).reshape(n, -1)
    values = host(x).reshape(-1, *sizes[n:])
    full = make(from_foreign(index), from_foreign(values), sizes, True)
    if (form := x._form()) is not None:
        full = form(full)
    return full.requires_grad_(x.requires_grad)
