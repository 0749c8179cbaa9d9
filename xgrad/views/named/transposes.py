"""permute, transpose, t, T, mT, H, mH, adjoint, movedim: return the `ViewChain`, the list of steps, of a new view.

Each function takes the chain from a storage to a tensor (../chain.py), checks its arguments as PyTorch does, and
returns the chain to the new view.
"""

from typing import Any

from ..chain import ViewChain
from ..view_ops import Permute
from .arguments import sizes_of, wrap_dim
from .reinterpreted import conj


def permute(chain: ViewChain, *dims: Any) -> ViewChain:
    order, ndim = sizes_of(dims), len(chain.shape)
    if len(order) != ndim:
        raise RuntimeError(
            "permute(): number of dimensions in the tensor input does not match the length of the desired ordering of "
            f"dimensions i.e. input.dim() = {ndim} is not equal to len(dims) = {len(order)}"
        )
    wrapped = tuple(wrap_dim(d, ndim) for d in order)
    if len(set(wrapped)) != ndim:
        raise RuntimeError(f"permute(): duplicate dims are not allowed, repeated dim in {list(order)}.")
    return chain.then(Permute(wrapped))


def transpose(chain: ViewChain, dim0: int, dim1: int) -> ViewChain:
    dim0, dim1 = wrap_dim(dim0, len(chain.shape)), wrap_dim(dim1, len(chain.shape))
    dims = list(range(len(chain.shape)))
    if dims:
        dims[dim0], dims[dim1] = dim1, dim0
    return chain.then(Permute(tuple(dims)))


def t(chain: ViewChain) -> ViewChain:
    if len(chain.shape) > 2:
        raise RuntimeError(f"t() expects a tensor with <= 2 dimensions, but self is {len(chain.shape)}D")
    return T(chain)


def T(chain: ViewChain) -> ViewChain:
    return chain.then(Permute(tuple(reversed(range(len(chain.shape))))))


def _matrices(chain: ViewChain, what: str) -> ViewChain:
    if len(chain.shape) == 1:
        raise RuntimeError(f"tensor.{what} is only supported on matrices or batches of matrices. Got 1-D tensor.")
    return transpose(chain, -2, -1) if chain.shape else chain


def mT(chain: ViewChain) -> ViewChain:
    return _matrices(chain, "mT")


def mH(chain: ViewChain) -> ViewChain:
    return conj(_matrices(chain, "mH"))


def adjoint(chain: ViewChain) -> ViewChain:
    return conj(_matrices(chain, "adjoint()"))


def H(chain: ViewChain) -> ViewChain:
    ndim = len(chain.shape)
    if ndim not in (0, 2):
        more = " For batches of matrices, consider using tensor.mH" if ndim > 2 else ""
        raise RuntimeError(f"tensor.H is only supported on matrices (2-D tensors). Got {ndim}-D tensor.{more}")
    return conj(T(chain))


def movedim(chain: ViewChain, source: Any, destination: Any) -> ViewChain:
    sources, destinations = sizes_of((source,)), sizes_of((destination,))
    if len(sources) != len(destinations):
        raise RuntimeError(
            f"movedim: Invalid source or destination dims: source ({list(sources)} dims) should contain the same "
            f"number of dims as destination ({list(destinations)} dims)"
        )
    ndim = len(chain.shape)
    src = [wrap_dim(d, ndim) for d in sources]
    dst = [wrap_dim(d, ndim) for d in destinations]
    for dims, given, name in ((src, sources, "source"), (dst, destinations, "destination")):
        if len(set(dims)) != len(dims):
            raise RuntimeError(f"movedim: repeated dim in `{name}` ({list(given)})")
    rest = iter([d for d in range(ndim) if d not in src])
    placed = dict(zip(dst, src))
    return chain.then(Permute(tuple(placed[d] if d in placed else next(rest) for d in range(ndim))))
