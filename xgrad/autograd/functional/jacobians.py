"""autograd.functional.jacobian and hessian: compute row by row, or all rows or all columns in one batch.

The batch of rows is the identity matrix, cut into one block for each output; the batch of columns is cut by inputs:

    f(x) = (x*x, x.sum()), x of 3 elements        rows for x*x    rows for x.sum()
                                                   1 0 0            0
                                                   0 1 0            0
                                                   0 0 1            0
                                                   0 0 0            1
"""

from collections.abc import Sequence
from typing import Any

from ...config import Recorded
from ...dispatch import tables
from ...tensor import Tensor
from ..forward_ad import dual_level, make_dual, unpack_dual
from ..mapped import mapped
from .arguments import Function, _refuse, _zeros_like, fresh, gradients, nested, require, returned, scalar, tensors

_STRATEGIES = ("forward-mode", "reverse-mode")


def jacobian(
    func: Function,
    inputs: Tensor | tuple[Tensor, ...],
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    strategy: str = "reverse-mode",
) -> Any:
    """Return the Jacobian of `func` at `inputs`: for each output and input a tensor of the joined shapes of both.

    One tensor for one output and one input; a tuple if one of the two is a tuple; a tuple of tuples,
    `J[output][input]`, if both are.  By reverse mode `J` has the dtype of the input, by forward mode the dtype of the
    output.

    `create_graph`: it can be differentiated.  `strict`: an output that depends on no input is an error, instead of
    zeros.  `vectorize`: all rows in one batched backward, not one after another.  `strategy`: "reverse-mode", or
    "forward-mode", which is batched, takes no `create_graph` and no `strict`, and pays where there are more outputs
    than inputs.

    Raises `TypeError` for an argument that is not a tensor, `RuntimeError` for what `strict` forbids,
    `NotImplementedError` for combinations that don't exist.

    >>> import xgrad
    >>> xgrad.autograd.functional.jacobian(lambda x: x * x, xgrad.tensor([1.0, 2.0]))
    tensor([[2., 0.],
            [0., 4.]])
    """
    if strategy not in _STRATEGIES:
        raise AssertionError(
            f'Expected strategy to be either "forward-mode" or "reverse-mode", but got {strategy!r}. Hint: forward '
            "mode is faster for a function with more outputs than inputs, reverse mode for the others."
        )
    name = "autograd.functional.jacobian"
    given, many = tensors(inputs, "inputs", "jacobian")
    if strategy == "forward-mode":
        if create_graph:
            raise NotImplementedError(
                f'{name}: `create_graph=True` and `strategy="forward-mode"` are not supported together (yet). Please '
                'either set `create_graph=False` or `strategy="reverse-mode"`.'
            )
        if strict:
            raise RuntimeError(
                f'{name}: `strict=True` and `strategy="forward-mode"` are not supported together (yet). Please either '
                'set `strict=False` or `strategy="reverse-mode"`.'
            )
        if not vectorize:
            raise NotImplementedError(
                "Computing Jacobian using forward-AD or forward-over-reverse Hessian is only implemented for "
                "`vectorize=True`."
            )
        return _by_columns(func, given, many)
    with Recorded():
        leaves = fresh(given, create_graph)
        outputs, several = returned(func(*leaves), "jacobian", strict)
        if vectorize and strict:
            raise RuntimeError(
                f"{name}: `strict=True` and `vectorized=True` are not supported together. Please either set "
                "`strict=False` or `vectorize=False`."
            )
        rows = (
            _batched_rows(outputs, leaves, create_graph) if vectorize else _rows(outputs, leaves, create_graph, strict)
        )
    if not create_graph:
        rows = [[block.detach() for block in row] for row in rows]
    return nested(rows, (several, many))


def _rows(outputs: tuple, leaves: tuple, create_graph: bool, strict: bool) -> list[list[Tensor]]:
    """Compute the rows by one backward for each element of each output."""
    blocks = []
    for i, output in enumerate(outputs):
        flat = output.reshape(-1)
        columns: tuple[list[Tensor], ...] = tuple([] for _ in leaves)
        for j in range(output.numel()):
            found = gradients((flat[j],), leaves, None, create_graph, retain_graph=True)
            for k, (gradient, leaf, column) in enumerate(zip(found, leaves, columns, strict=True)):
                if gradient is None and strict:
                    raise RuntimeError(
                        f"Output {i} of the user-provided function is independent of input {k}. This is not allowed in "
                        "strict mode."
                    )
                if gradient is not None and strict and create_graph and not gradient.requires_grad:
                    _refuse("vjp", True, k)
                column.append(_zeros_like(leaf) if gradient is None else gradient)
        blocks.append([_block(column, output, leaf) for column, leaf in zip(columns, leaves, strict=True)])
    return blocks


def _block(rows: list[Tensor], output: Tensor, leaf: Tensor) -> Tensor:
    shape = (*output.shape, *leaf.shape)
    return tables.FUNCTIONS[""]["stack"](rows).reshape(shape) if rows else leaf.new_zeros(shape)


def _batched_rows(outputs: tuple, leaves: tuple, create_graph: bool) -> list[list[Tensor]]:
    """Compute the rows by one backward for all elements of all outputs."""
    sizes = [o.numel() for o in outputs]
    if not sum(sizes):
        return [[_block([], o, x) for x in leaves] for o in outputs]
    flat = tuple(o.reshape(-1) for o in outputs)
    found = gradients(flat, leaves, _identity(outputs, sizes), create_graph, is_grads_batched=True)
    columns = [
        [_block([], o, x) for o in outputs]
        if every is None
        else [part.reshape((*o.shape, *x.shape)) for part, o in zip(every.split(sizes), outputs, strict=True)]
        for every, x in zip(found, leaves, strict=True)
    ]
    return [list(row) for row in zip(*columns, strict=True)]


def _identity(like: Sequence[Tensor], sizes: list[int]) -> tuple[Tensor, ...]:
    """Return the identity matrix in blocks of columns, each with the dtype and the devices of its tensor."""
    blocks = []
    for i, (x, n) in enumerate(zip(like, sizes, strict=True)):
        block = x.new_zeros((sum(sizes), n))
        block.diagonal(-sum(sizes[:i])).fill_(1)
        blocks.append(block)
    return tuple(blocks)


def _by_columns(func: Function, given: tuple, many: bool) -> Any:
    """Compute the columns by one run of the function in forward mode, with a tangent for each element of each input."""
    sizes = [x.numel() for x in given]
    primals: tuple = ()
    several = False

    def tangents_of(*tangents: Tensor) -> tuple[Tensor, ...]:
        nonlocal primals, several
        with dual_level():
            duals = tuple(make_dual(x, t.reshape(x.shape)) for x, t in zip(given, tangents, strict=True))
            outputs, several = tensors(func(*duals), "outputs of the user-provided function", "jacobian")
            unpacked = [unpack_dual(o) for o in outputs]
            primals = tuple(primal.shape for primal, _ in unpacked)
            return tuple(_zeros_like(primal) if tangent is None else tangent for primal, tangent in unpacked)

    batches = mapped(tangents_of, *_identity(given, sizes))
    blocks = [
        [part.movedim(0, -1).reshape((*shape, *x.shape)) for part, x in zip(batch.split(sizes), given, strict=True)]
        for batch, shape in zip(batches, primals, strict=True)
    ]
    return nested(blocks, (several, many))


def hessian(
    func: Function,
    inputs: Tensor | tuple[Tensor, ...],
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    outer_jacobian_strategy: str = "reverse-mode",
) -> Any:
    """Return the Hessian of `func`, which returns one element, at `inputs`: the Jacobian of its gradient.

    One tensor for one input, of its shape twice; for a tuple a tuple of tuples, `H[i][j]` of the shapes of both inputs.
    `outer_jacobian_strategy`: how the outer Jacobian is found; the inner one is a backward.  The other arguments and
    the errors are the same as in `jacobian`; in addition a `RuntimeError` if the function returns more than one
    element.

    >>> import xgrad
    >>> xgrad.autograd.functional.hessian(lambda x: (x**3).sum(), xgrad.tensor([1.0, 2.0]))
    tensor([[ 6.,  0.],
            [ 0., 12.]])
    """
    given, many = tensors(inputs, "inputs", "hessian")

    def slope(*x: Tensor) -> tuple[Tensor, ...]:
        if outer_jacobian_strategy == "forward-mode":  # duals of inputs that may not require grad
            x = tuple(t.requires_grad_() for t in x)
        with Recorded():
            leaves = fresh(x, True)
            output = scalar(func(*leaves), "hessian", strict).reshape(())
            found = gradients((output,), leaves, create_graph=True)
            first = tuple(_zeros_like(leaf) if g is None else g for g, leaf in zip(found, leaves, strict=True))
        require("jacobian", first, strict)
        return first

    rows = jacobian(slope, given, create_graph, strict, vectorize, outer_jacobian_strategy)
    return rows if many else rows[0][0]
