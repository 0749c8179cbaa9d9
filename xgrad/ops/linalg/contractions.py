"""einsum, tensordot, linalg.multi_dot, chain_matmul: sums of products of several tensors.

All are linear in each operand, so an operand is saved only if another one's gradient is wanted.
"""

import functools
from itertools import pairwise
from typing import Any

import jax.numpy as jnp

from ...dispatch.declare import composite, linear, operator
from ...dispatch.out import write_out
from ...dispatch.samples import COMPLEX, real, sample
from ...dispatch.tables import FUNCTIONS
from ...dispatch.wrong_arguments import require_tensor
from ...tensor import Tensor
from .checks import require_same
from .products import shapes_error


@operator(
    "tensordot",
    function=False,
    method=False,
    samples=(
        sample(real(2, 3), real(3, 2), dims=1), sample(real(2, 3), real(2, 3), dims=((0, 1), (0, 1))),
        sample(real(2, 3), real(1, 2), dims=((1,), (0,))), sample(real(2), real(3), dims=0),
    ) + COMPLEX,
)  # fmt: skip
def _tensordot(self, other, *, dims):
    require_same(self, other, "tensordot")
    if not isinstance(dims, int):  # a contracted dimension of size 1 broadcasts: sum the other side first
        for i, j in zip(*dims):
            if self.shape[i] == 1 != other.shape[j]:
                other = jnp.sum(other, axis=j, keepdims=True)
            elif other.shape[j] == 1 != self.shape[i]:
                self = jnp.sum(self, axis=i, keepdims=True)
    return jnp.tensordot(self, other, axes=dims)


_tensordot.derivative(self=linear, other=linear)


@composite(method=False)
def tensordot(a: Tensor, b: Tensor, dims: Any = 2, out: Tensor | None = None) -> Tensor:
    """The sum of products over `dims`: how many last dimensions of a and first of b, or two lists of dimensions."""
    if isinstance(dims, Tensor):
        dims = dims.tolist() if dims.numel() > 1 else int(dims.item())
    if isinstance(dims, (tuple, list)):
        if len(dims) != 2:
            raise ValueError(f"tensordot(): dims must be a number, or two lists of dimensions, but got {dims}")
        dims = tuple((d,) if isinstance(d, int) else tuple(d) for d in dims)
        sizes = [[x.shape[i] for i in d] for x, d in zip((a, b), dims)]
        if len(sizes[0]) != len(sizes[1]) or any(m != n and 1 not in (m, n) for m, n in zip(*sizes)):
            raise RuntimeError(
                f"contracted dimensions need to match, but the first has sizes {sizes[0]} and the second {sizes[1]}"
            )
    elif dims < 0:
        raise RuntimeError(f"tensordot expects dims >= 0, but got dims={dims}")
    given = {} if out is None else {"out": out}
    return _tensordot.function(a, b, dims, **given)


@operator(
    namespace="linalg",
    method=False,
    signature="*tensors",
    samples=(
        sample(real(2, 3), real(3, 2)), sample(real(3), real(3, 2), real(2, 3), real(3)),
        sample(real(2, 3), real(3, 2), real(2, 2)),
    ) + COMPLEX,
)  # fmt: skip
def linalg_multi_dot(*tensors):
    """The product of matrices, in the order that is cheapest; the first and the last may be vectors."""
    if len(tensors) < 2:
        raise RuntimeError(f"multi_dot(): expected at least 2 tensors but got {len(tensors)}")
    for i, x in enumerate(tensors):
        ends = i in (0, len(tensors) - 1)
        if x.ndim != 2 and not (ends and x.ndim == 1):
            raise RuntimeError(f"multi_dot(): tensor {i} must be {'1D or ' if ends else ''}2D but got {x.ndim}D")
    for first, second in pairwise(tensors):
        require_same(first, second, "multi_dot")
        if first.shape[-1] != second.shape[0]:
            raise shapes_error("multi_dot", first.shape, second.shape)
    return jnp.linalg.multi_dot(tensors) if len(tensors) > 2 else jnp.dot(*tensors)


linalg_multi_dot.derivative(all=linear)


_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


@operator(
    "einsum",
    function=False,
    method=False,
    signature="equation, *operands",
    samples=(
        sample(real(2, 3), real(3, 2), equation="ij,jk->ik"), sample(real(3, 3), equation="ii->i"),
        sample(real(2, 2, 3), real(3), real(2, 2), equation="...ij,j,ik->...k"), sample(real(), equation="->"),
    ) + COMPLEX,
)  # fmt: skip
def _einsum(*operands, equation):
    for other in operands[1:]:
        require_same(operands[0], other, "einsum")
    return jnp.einsum(equation, *operands)


_einsum.derivative(all=linear)


@composite(method=False)
def einsum(equation: Any, *operands: Any) -> Tensor:
    """Sums of products by Einstein's convention: `einsum("bij,bjk->bik", x, y)`.

    Also with lists of dimensions: `einsum(x, [0, 1], y, [1, 2], [0, 2])`.

    Raises `RuntimeError` if the equation does not fit the operands.

    >>> import xgrad
    >>> xgrad.einsum("ij->j", xgrad.ones(2, 3))
    tensor([2., 2., 2.])
    """
    if not isinstance(equation, str):
        equation, operands = _from_sublists((equation, *operands))
    elif len(operands) == 1 and isinstance(operands[0], (list, tuple)):
        operands = tuple(operands[0])
    if not operands:
        raise RuntimeError("einsum(): must provide at least one operand")
    _check_letters(equation)
    equation = _with_output(equation.replace(" ", ""))
    terms = equation.partition("->")[0].split(",")
    if len(terms) != len(operands):
        raise RuntimeError(
            f"einsum(): {'fewer' if len(terms) > len(operands) else 'more'} operands were provided than specified in "
            f"the equation: {len(operands)} for '{equation}'"
        )
    for i, (term, x) in enumerate(zip(terms, operands)):
        n = len(term.replace("...", ""))
        if x.ndim < n or (x.ndim > n and "..." not in term):
            raise RuntimeError(
                f"einsum(): the number of subscripts in the equation ({n}) does not match the number of dimensions "
                f"({x.ndim}) for operand {i} and no ellipsis was given"
            )
    _check_sizes(terms, operands)
    return _einsum.function(equation, *operands)


@functools.lru_cache(1024)
def _check_letters(equation: str) -> None:
    """Raise PyTorch's errors for an equation that no operands fit.  JAX takes any character."""
    inputs, arrow, output = equation.partition("->")
    for i, c in enumerate(equation):
        within = i < len(inputs)
        if not (c in _LETTERS or c in " ." or (within and c == ",") or (arrow and len(inputs) <= i < len(inputs) + 2)):
            raise RuntimeError(
                f"einsum(): invalid subscript given at index {i} in the equation string, subscripts must be in [a-zA-Z]"
            )
    terms = [(f"operand {i}", term) for i, term in enumerate(inputs.split(","))] + [("output", output)]
    for name, term in terms:
        if "." in term.replace("...", "", 1):
            many = "..." in term
            why = "for which an ellipsis was already found" if many else "that is not part of any ellipsis"
            raise RuntimeError(f"einsum(): found '.' for {name} {why}")
    for c in output.replace(".", "").replace(" ", ""):
        if output.count(c) > 1:
            raise RuntimeError(f"einsum(): output subscript {c} appears more than once in the output")
        if c not in inputs:
            raise RuntimeError(f"einsum(): output subscript {c} does not appear in the equation for any input operand")


def _check_sizes(terms: list[str], operands: Any) -> None:
    """Raise PyTorch's errors for sizes of a letter that do not fit; a size of 1 is broadcast among operands only."""
    seen: dict[Any, Any] = {}
    for i, (term, x) in enumerate(zip(terms, operands, strict=True)):
        before, dots, behind = term.partition("...")
        covered = range(len(before) + len(behind) - x.ndim, 0)  # counted from the last: -2, -1
        here: dict[Any, Any] = {}
        for c, n in zip((*before, *(covered if dots else ()), *behind), x.shape, strict=True):
            if here.setdefault(c, n) != n:
                raise RuntimeError(
                    f"einsum(): subscript {c} is repeated for operand {i} but the sizes don't match, {n} != {here[c]}"
                )
        for c, n in here.items():
            size = seen.setdefault(c, n)
            if n != 1 and size not in (1, n):
                what = f"subscript {c}" if isinstance(c, str) else f"dimension {c} covered by ellipsis"
                raise RuntimeError(
                    f"einsum(): {what} has size {n} for operand {i} which does not broadcast with previously seen "
                    f"size {size}"
                )
            seen[c] = n if size == 1 else size


def _with_output(equation: str) -> str:
    """PyTorch's implicit output: the ellipsis, then the letters that occur once (capitals first)."""
    if "->" in equation:
        return equation
    letters = equation.replace("...", "").replace(",", "")
    once = sorted(c for c in set(letters) if letters.count(c) == 1)
    return f"{equation}->{'...' if '...' in equation else ''}{''.join(once)}"


def _from_sublists(arguments: tuple) -> tuple[str, tuple]:
    """(equation, operands) of `x, [0, 1], y, [1, ...], [0]`."""

    def term(sublist: Any) -> str:
        for i in sublist:
            if i is not Ellipsis and not 0 <= i < len(_LETTERS):
                raise ValueError(
                    f"einsum(): subscript in subscript list is not within the valid range [0, {len(_LETTERS)}): {i}"
                )
        return "".join("..." if i is Ellipsis else _LETTERS[i] for i in sublist)

    operands, sublists = arguments[0:-1:2], arguments[1::2]
    equation = ",".join(term(s) for s in sublists)
    return (f"{equation}->{term(arguments[-1])}" if len(arguments) % 2 else equation), operands


def _multi_dot(tensors: Any, *, out: Tensor | None = None) -> Tensor:
    given = {} if out is None else {"out": out}
    return linalg_multi_dot.function(*tensors, **given)


def chain_matmul(*matrices: Tensor, out: Tensor | None = None) -> Tensor:
    """The product of matrices, in the order that is cheapest (`linalg.multi_dot`)."""
    for matrix in matrices:
        require_tensor("chain_matmul", matrix)
    if len(matrices) == 1:
        return matrices[0] if out is None else write_out("chain_matmul", matrices[0], out)
    return _multi_dot(matrices, out=out)


_multi_dot.__doc__ = linalg_multi_dot.function.__doc__
FUNCTIONS["linalg"]["multi_dot"] = _multi_dot
FUNCTIONS[""]["chain_matmul"] = chain_matmul
