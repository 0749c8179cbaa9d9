"""Products of two tensors: matmul, mm, bmm, mv, dot, inner, outer, kron, cross, and the addmm family.

All are linear in each factor, and their gradients are transposes: `grad @ other^H` for self, `self^H @ grad` for other.
`linear` derives them from the function as one program, batch sums included, and saves a factor only if the *other*
one's gradient is wanted.  (PyTorch: aten/src/ATen/native/LinearAlgebra.cpp.)
"""

from typing import Any

import jax.numpy as jnp
import numpy as np

from ...base import dtypes
from ...dispatch.declare import linear, operator
from ...dispatch.promotion import broadcast_shapes, conj, promote, wrap_dim
from ...dispatch.samples import COMPLEX, real, sample
from ...dispatch.tables import FUNCTIONS
from ...errors import ShapeMismatchError
from .checks import require_same


def require_numbers(x: Any, name: str) -> None:
    if x.dtype == np.bool_:
        raise NotImplementedError(f"\"{name}\" not implemented for 'Bool'")


def require_ndim(x: Any, ndim: int, name: str, argument: str) -> None:
    if x.ndim != ndim:
        what = {1: "a vector", 2: "a matrix", 3: "a 3D tensor"}[ndim]
        raise ShapeMismatchError(f"{name}: {argument} must be {what}, but it has {x.ndim} dimensions ({list(x.shape)})")


def shapes_error(name: str, first: tuple[Any, ...], second: tuple[Any, ...]) -> ShapeMismatchError:
    text = "x".join(map(str, first)), "x".join(map(str, second))
    return ShapeMismatchError(f"{name}: mat1 and mat2 shapes cannot be multiplied ({text[0]} and {text[1]})")


def product(first: Any, second: Any, name: str) -> Any:
    """The matrix product, after checks of shapes and dtypes."""
    require_same(first, second, name)
    inner = second.shape[-2] if second.ndim > 1 else second.shape[-1]
    if first.shape[-1] != inner:
        raise shapes_error(name, first.shape, second.shape)
    if first.ndim > 2 and second.ndim > 2:
        broadcast_shapes(first.shape[:-2], second.shape[:-2])
    require_numbers(first, name)
    return jnp.matmul(first, second)


# -- products of two --------------------------------------------------------------------------------------------------


@operator(
    dunder="__matmul__",
    rdunder="__rmatmul__",
    namespace=("", "linalg"),
    samples=(
        sample(real(2, 3), real(3, 2)), sample(real(3), real(3)), sample(real(2, 2, 3), real(3)),
        sample(real(3), real(2, 3, 2)), sample(real(2, 1, 2, 2), real(2, 2, 1)), sample(real(0, 3), real(3, 2)),
    ) + COMPLEX,
)  # fmt: skip
def matmul(self, other):
    """The product of two matrices, batches of matrices (which broadcast) or vectors; also written `@`.

    Raises `RuntimeError` if the shapes do not fit or the dtypes differ.

    >>> import xgrad
    >>> xgrad.tensor([[1.0, 2.0]]) @ xgrad.tensor([3.0, 4.0])
    tensor([11.])
    """
    if not (getattr(self, "ndim", 0) and getattr(other, "ndim", 0)):
        ndims = [getattr(x, "ndim", 0) for x in (self, other)]
        raise RuntimeError(f"both arguments to matmul need to be at least 1D, but they are {ndims[0]}D and {ndims[1]}D")
    return product(self, other, "matmul")


matmul.derivative(self=linear, other=linear)


_MATRICES = (sample(real(2, 3), real(3, 2)), sample(real(0, 3), real(3, 2)), sample(real(2, 0), real(0, 2))) + COMPLEX
_BATCHES = (sample(real(2, 2, 3), real(2, 3, 2)), sample(real(0, 2, 3), real(0, 3, 2))) + COMPLEX
_VECTORS = (sample(real(3), real(3)), sample(real(0), real(0))) + COMPLEX
_CROSSED = (
    sample(real(2, 3), real(2, 3), dim=1),
    sample(real(3, 2), real(3, 1), dim=0),
    sample(real(0, 3), real(0, 3)),
)


@operator(signature="input, mat2", samples=_MATRICES)
def mm(self, mat2):
    """The product of two matrices."""
    require_ndim(self, 2, "mm", "input")
    require_ndim(mat2, 2, "mm", "mat2")
    return product(self, mat2, "mm")


mm.derivative(
    self=lambda grad, mat2: grad @ conj(mat2.T),
    mat2=lambda grad, self: conj(self.T) @ grad,
)
FUNCTIONS[""].update(dict.fromkeys(("spmm", "dsmm"), FUNCTIONS[""]["mm"]))  # PyTorch's names for a sparse first factor


@operator(signature="input, mat2", samples=_BATCHES)
def bmm(self, mat2):
    """The products of two batches of as many matrices: (b, n, m) and (b, m, p)."""
    require_ndim(self, 3, "bmm", "input")
    require_ndim(mat2, 3, "bmm", "mat2")
    if self.shape[0] != mat2.shape[0] or self.shape[2] != mat2.shape[1]:
        expected = [self.shape[0], self.shape[2]]
        raise ShapeMismatchError(
            f"bmm: Expected size for first two dimensions of batch2 tensor to be: {expected} "
            f"but got: {list(mat2.shape[:2])}."
        )
    return product(self, mat2, "bmm")


bmm.derivative(
    self=lambda grad, mat2: grad @ conj(mat2.mT),
    mat2=lambda grad, self: conj(self.mT) @ grad,
)


@operator(signature="input, vec", samples=(sample(real(2, 3), real(3)), sample(real(0, 3), real(3))) + COMPLEX)
def mv(self, vec):
    """The product of a matrix and a vector."""
    require_ndim(self, 2, "mv", "input")
    require_ndim(vec, 1, "mv", "vec")
    return product(self, vec, "mv")


mv.derivative(self=lambda grad, vec: jnp.outer(grad, conj(vec)), vec=lambda grad, self: conj(self.T) @ grad)


def _inner_product(self, other, name):
    for x in (self, other):
        if x.ndim != 1:
            raise RuntimeError(f"1D tensors expected, but got {self.ndim}D and {other.ndim}D tensors ({name})")
    if self.shape != other.shape:
        raise ShapeMismatchError(
            f"{name}: inconsistent tensor size, expected tensor [{self.shape[0]}] and src [{other.shape[0]}] to have "
            f"the same number of elements, but got {self.shape[0]} and {other.shape[0]} elements respectively"
        )
    return product(self, other, name)


@operator(signature="input, tensor", samples=_VECTORS)
def dot(self, tensor):
    """The sum of the products of two vectors' elements (not conjugated)."""
    return _inner_product(self, tensor, "dot")


dot.derivative(self=lambda grad, tensor: grad * conj(tensor), tensor=lambda grad, self: grad * conj(self))


@operator(samples=_VECTORS)
def vdot(self, other):
    """The dot product of the conjugate of a vector with another."""
    return _inner_product(conj(self), other, "vdot")


vdot.derivative(self=lambda grad, other: conj(grad) * other, other=lambda grad, self: grad * self)


@operator(samples=(sample(real(2, 3), real(2, 3)), sample(real(3), real(2, 3)), sample(real(2, 3), real())) + COMPLEX)
def inner(self, other):
    """The dot products of the vectors along the last dimensions of both; with a 0-dim one, their product."""
    if not (self.ndim and other.ndim):
        return jnp.multiply(*promote(self, other))
    require_same(self, other, "inner")
    if self.shape[-1] != other.shape[-1]:
        raise ShapeMismatchError(
            "inner() the last dimension must match on both input tensors but got shapes "
            f"{list(self.shape)} and {list(other.shape)}"
        )
    require_numbers(self, "inner")
    return jnp.inner(self, other)


inner.derivative(self=linear, other=linear)


@operator(
    signature="input, vec2", aliases=("ger",), samples=(sample(real(2), real(3)), sample(real(0), real(3))) + COMPLEX
)
def outer(self, vec2):
    """The matrix of all products of two vectors' elements."""
    require_ndim(self, 1, "outer", "self")
    require_ndim(vec2, 1, "outer", "vec2")
    return jnp.outer(*promote(self, vec2))


outer.derivative(self=linear, vec2=linear)


@operator(samples=(sample(real(2, 3), real(2)), sample(real(2, 2), real(1, 2)), sample(real(), real(3))) + COMPLEX)
def kron(self, other):
    """The Kronecker product: `other` scaled by each element of `input`."""
    self, other = promote(self, other)
    if self.dtype == np.bool_:
        return jnp.kron(self.astype(np.uint8), other.astype(np.uint8)).astype(np.bool_)
    return jnp.kron(self, other)


kron.derivative(self=linear, other=linear)


def _cross(self, other, dim, name):
    require_same(self, other, name)
    require_numbers(self, name)
    if self.ndim != other.ndim:
        raise RuntimeError(
            f"{name}: inputs must have the same number of dimensions, but got {self.ndim} and {other.ndim}"
        )
    dim = wrap_dim(dim, self.ndim)
    if self.shape[dim] != 3 or other.shape[dim] != 3:
        raise RuntimeError(
            f"{name}: inputs dimension {dim} must have length 3. Got {self.shape[dim]} and {other.shape[dim]}"
        )
    self, other = jnp.broadcast_arrays(self, other)
    return jnp.cross(self, other, axis=dim)


@operator(node="LinalgCrossBackward0", samples=(*_CROSSED, sample(real(3, 2), real(3, 2))) + COMPLEX)
def cross(self, other, *, dim=None):
    """The cross product of vectors of three elements along `dim`: by default the first dimension of that size."""
    if dim is None:
        dim = next((i for i, n in enumerate(self.shape) if n == 3), None)
        if dim is None:
            raise RuntimeError(f"no dimension of size 3 in input: {list(self.shape)}")
    return _cross(self, other, dim, "cross")


@operator(signature="input, other, *, dim=-1", namespace="linalg", method=False, samples=_CROSSED + COMPLEX)
def linalg_cross(self, other, *, dim=-1):
    """The cross products of the vectors of three elements along `dim`; batches broadcast."""
    return _cross(self, other, dim, "linalg.cross")


@operator(
    signature="x, y, *, dim=-1",
    namespace="linalg",
    method=False,
    samples=(sample(real(2, 3), real(3)), sample(real(2, 3), real(2, 3), dim=0), sample(real(3), real(2, 3))) + COMPLEX,
)
def linalg_vecdot(x, y, *, dim=-1):
    """The sum of conj(x) * y along `dim`, of floating-point or complex numbers of one dtype; batches broadcast."""
    require_same(x, y, "linalg.vecdot")
    if x.dtype not in dtypes.INEXACT:
        raise RuntimeError(
            f"linalg.vecdot: Expected a floating point or complex tensor as input. Got {dtypes.torch_name(x.dtype)}"
        )
    return jnp.sum(conj(x) * y, axis=wrap_dim(dim, max(x.ndim, y.ndim)))


for _op in (cross, linalg_cross):
    _op.derivative(self=linear, other=linear)
linalg_vecdot.derivative(x=lambda grad, y, dim: conj(jnp.expand_dims(grad, dim)) * y, y=linear)


# -- beta * input + alpha * product -----------------------------------------------------------------------------------


def blend(self: Any, product: Any, beta: Any, alpha: Any, name: str) -> Any:
    """beta * self + alpha * product; NaNs in self do not count if beta = 0, nor NaNs in the product if alpha = 0.

    `addr` multiplies by alpha = 0, as PyTorch does.
    """
    for number, what in ((beta, "beta"), (alpha, "alpha")):
        if dtypes.category(jnp.asarray(number).dtype) > max(1, dtypes.category(product.dtype)):
            wrong = ("integral", "floating point") if dtypes.category(product.dtype) < 2 else ("non-complex", "complex")
            raise RuntimeError(
                f"For {wrong[0]} input tensors, argument {what} must not be a {wrong[1]} number ({name})"
            )
    require_same(self, product, name)
    scaled = jnp.where(beta == 0, 0, beta * self).astype(self.dtype)
    if len(self.shape) > product.ndim or any(m not in (1, n) for m, n in zip(self.shape[::-1], product.shape[::-1])):
        raise ShapeMismatchError(
            f"{name}: the expanded size must match: input of shape {list(self.shape)} does not broadcast to the "
            f"product's shape {list(product.shape)}"
        )
    added = alpha * product if name == "addr" else jnp.where(alpha == 0, 0, alpha * product)
    return scaled + added.astype(product.dtype)


def scale(grad: Any, number: Any) -> Any:
    """The gradient of `number * x`."""
    return (grad * conj(jnp.asarray(number))).astype(grad.dtype)


@operator(
    inplace=True,
    signature="input, mat1, mat2, *, beta=1, alpha=1",
    samples=(
        sample(real(2, 2), real(2, 3), real(3, 2)), sample(real(2), real(2, 3), real(3, 2), 0.5, 2.25),
        sample(real(2, 2), real(2, 0), real(0, 2), 0),
    ) + COMPLEX,
)  # fmt: skip
def addmm(self, mat1, mat2, beta=1, alpha=1):
    """beta * input + alpha * (mat1 @ mat2)."""
    return blend(self, mm(mat1, mat2), beta, alpha, "addmm")


addmm.derivative(
    self=lambda grad, beta: scale(grad, beta),
    mat1=lambda grad, mat2, alpha: scale(grad @ conj(mat2.T), alpha),
    mat2=lambda grad, mat1, alpha: scale(conj(mat1.T) @ grad, alpha),
)


@operator(
    inplace=True,
    signature="input, mat, vec, *, beta=1, alpha=1",
    samples=(sample(real(2), real(2, 3), real(3)), sample(real(), real(2, 3), real(3), 0.5, 2.25)) + COMPLEX,
)
def addmv(self, mat, vec, beta=1, alpha=1):
    """beta * input + alpha * (mat @ vec)."""
    return blend(self, mv(mat, vec), beta, alpha, "addmv")


addmv.derivative(
    self=lambda grad, beta: scale(grad, beta),
    mat=lambda grad, vec, alpha: scale(jnp.outer(grad, conj(vec)), alpha),
    vec=lambda grad, mat, alpha: scale(conj(mat.T) @ grad, alpha),
)


@operator(
    inplace=True,
    signature="input, vec1, vec2, *, beta=1, alpha=1",
    samples=(sample(real(2, 3), real(2), real(3)), sample(real(3), real(2), real(3), 0.5, 2.25)) + COMPLEX,
)
def addr(self, vec1, vec2, beta=1, alpha=1):
    """beta * input + alpha * outer(vec1, vec2)."""
    self, product = promote(self, outer(vec1, vec2))
    return blend(self, product, beta, alpha, "addr")


addr.derivative(
    self=lambda grad, beta: scale(grad, beta),
    vec1=lambda grad, vec2, alpha: scale(grad @ conj(vec2).astype(grad.dtype), alpha),
    vec2=lambda grad, vec1, alpha: scale(conj(vec1).astype(grad.dtype) @ grad, alpha),
)


@operator(
    inplace=True,
    signature="input, batch1, batch2, *, beta=1, alpha=1",
    samples=(
        sample(real(2, 2, 2), real(2, 2, 3), real(2, 3, 2)), sample(real(2), real(2, 2, 3), real(2, 3, 2), 0.5, 2.25),
    ) + COMPLEX,
)  # fmt: skip
def baddbmm(self, batch1, batch2, beta=1, alpha=1):
    """beta * input + alpha * bmm(batch1, batch2)."""
    return blend(self, bmm(batch1, batch2), beta, alpha, "baddbmm")


@operator(
    inplace=True,
    signature="input, batch1, batch2, *, beta=1, alpha=1",
    samples=(
        sample(real(2, 2), real(2, 2, 3), real(2, 3, 2)), sample(real(2), real(2, 2, 3), real(2, 3, 2), 0.5, 2.25),
    ) + COMPLEX,
)  # fmt: skip
def addbmm(self, batch1, batch2, beta=1, alpha=1):
    """beta * input + alpha * the sum of the products of a batch of matrices."""
    bmm(batch1, batch2)  # checks
    return blend(self, jnp.einsum("bij,bjk->ik", batch1, batch2), beta, alpha, "addbmm")


for _operator in (baddbmm, addbmm):
    _operator.derivative(
        self=lambda grad, beta: scale(grad, beta),
        batch1=lambda grad, batch2, alpha: scale(grad @ conj(batch2.mT), alpha),
        batch2=lambda grad, batch1, alpha: scale(conj(batch1.mT) @ grad, alpha),
    )
