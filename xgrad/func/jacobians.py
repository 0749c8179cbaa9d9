"""jacrev, jacfwd, hessian: compute whole Jacobians and Hessians, by `vmap` of `vjp` or `jvp` over unit vectors."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

from ..batching.trees import flatten, unflatten
from ..dispatch.ruled_views import aliased
from ..dispatch.tables import FUNCTIONS
from ..tensor import Tensor
from .derivatives import chosen, jvp_of, vjp_of
from .vmap import vmap


def _unit_vectors(like: Sequence[Tensor], first: int, count: int) -> list[Tensor]:
    """Return `count` unit vectors of the space of these tensors, from `first` on, stacked along a new dimension 0."""
    zeros, vectors, start = FUNCTIONS[""]["zeros"], [], 0
    for t in like:
        n = t.shape.numel()
        block = zeros(count, n, dtype=t.dtype, device=t.device)
        aliased(block.diagonal, first - start).fill_(1)
        vectors.append(block.reshape(count, *t.shape))
        start += n
    return vectors


def _mapped(
    function: Callable, like: Sequence[Tensor], chunk_size: int | None, randomness: str = "error"
) -> list[Tensor]:
    """Apply `function` to each unit vector of the space of these tensors, in chunks."""
    total = sum(t.shape.numel() for t in like)
    step = total if chunk_size is None else chunk_size
    cat = FUNCTIONS[""]["cat"]
    parts = []
    for first in range(0, total, max(step, 1)):
        vectors = _unit_vectors(like, first, min(step, total - first))
        parts.append(flatten(vmap(function, randomness=randomness)(*vectors))[0])
    return [column[0] if len(column) == 1 else cat(list(column)) for column in zip(*parts, strict=True)]


def _refuse_complex(name: str, tensors: list, what: str) -> None:
    for t in tensors:
        if isinstance(t, Tensor) and t.is_complex():
            raise RuntimeError(
                f"{name}: Expected all {what}s to be real but received complex tensor at flattened {what} idx: "
                f"{next(i for i, x in enumerate(tensors) if x is t)}"
            )


def jacrev(
    func: Callable[..., Any],
    argnums: int | tuple[int, ...] = 0,
    *,
    has_aux: bool = False,
    chunk_size: int | None = None,
    _preallocate_and_copy: bool = False,
) -> Callable[..., Any]:
    """Return the Jacobian of a function, by reverse mode: one `vjp` for each element of the output, all at once.

    For an output of shape `o` and an argument of shape `i` it has the shape `o + i`; nested as the outputs are, and in
    each place as the arguments are.  `chunk_size`: the most rows at a time.

    >>> import xgrad
    >>> xgrad.func.jacrev(lambda x: x * x)(xgrad.tensor([1.0, 2.0]))
    tensor([[2., 0.],
            [0., 4.]])
    """
    if not (chunk_size is None or chunk_size > 0):
        raise ValueError("jacrev: `chunk_size` should be greater than 0.")

    @functools.wraps(func)
    def jacobian(*args: Any) -> Any:
        _refuse_complex("jacrev", flatten(args)[0], "input")
        output, pull, aux = vjp_of(func, args, argnums, has_aux)
        outputs, made = flatten(output)
        _refuse_complex("jacrev", outputs, "output")
        inputs, structure = flatten(chosen(args, argnums))

        def rows(*cotangents: Any) -> Any:
            return pull(unflatten(made, cotangents))

        blocks = _mapped(rows, outputs, chunk_size)  # one for each input, the rows of all outputs below each other
        found, first = [], 0
        for o in outputs:
            n = o.shape.numel()
            parts = [b.narrow(0, first, n).reshape(*o.shape, *i.shape) for b, i in zip(blocks, inputs, strict=True)]
            found.append(unflatten(structure, parts))
            first += n
        result = unflatten(made, found)
        return (result, aux) if has_aux else result

    return jacobian


def jacfwd(
    func: Callable[..., Any], argnums: int | tuple[int, ...] = 0, has_aux: bool = False, *, randomness: str = "error"
) -> Callable[..., Any]:
    """Return the Jacobian of a function, by forward mode: one `jvp` for each element of the input, all at once.

    Its shape and structure are the same as in `jacrev`.

    >>> import xgrad
    >>> xgrad.func.jacfwd(lambda x: x * x)(xgrad.tensor([1.0, 2.0]))
    tensor([[2., 0.],
            [0., 4.]])
    """

    @functools.wraps(func)
    def jacobian(*args: Any) -> Any:
        _refuse_complex("jacfwd", flatten(args)[0], "input")
        numbers = argnums if isinstance(argnums, tuple) else (argnums,)
        inputs, structure = flatten(chosen(args, numbers))
        seen: list = []

        def columns(*tangents: Any) -> Any:
            output, moved, aux = jvp_of(func, args, unflatten(structure, tangents), numbers, has_aux=has_aux)
            leaves, made = flatten(moved)
            seen[:] = [made, [tuple(t.shape) for t in leaves], _values(flatten(aux))]
            _refuse_complex("jacfwd", flatten(output)[0], "output")
            return tuple(leaves)

        blocks = _mapped(columns, inputs, None, randomness)  # one for each output: the columns of all inputs
        made, shapes, aux = seen
        found = []
        for block, shape in zip(blocks, shapes, strict=True):
            parts, first = [], 0
            for i in inputs:
                n = i.shape.numel()
                parts.append(block.narrow(0, first, n).movedim(0, -1).reshape(*shape, *i.shape))
                first += n
            nested = unflatten(structure, parts)
            found.append(nested if isinstance(argnums, tuple) else nested[0])
        result = unflatten(made, found)
        return (result, aux) if has_aux else result

    return jacobian


def _values(aux: tuple[list, Any]) -> Any:
    """Return the function's second result, `aux`, which is the same for all columns."""
    leaves, structure = aux
    return unflatten(structure, [t._value if isinstance(t, Tensor) and t._level is not None else t for t in leaves])


def hessian(func: Callable[..., Any], argnums: int | tuple[int, ...] = 0) -> Callable[..., Any]:
    """Return the function of second derivatives, `jacfwd(jacrev(func))`: forward mode over reverse mode.

    >>> import xgrad
    >>> xgrad.func.hessian(lambda x: (x**3).sum())(xgrad.tensor([1.0, 2.0]))
    tensor([[ 6.,  0.],
            [ 0., 12.]])
    """
    return jacfwd(jacrev(func, argnums), argnums)
