"""Prepares inputs and results for autograd.functional (jacobian, ...): checks and copies tensors, fills in zeros.

Invariant: the user's function always gets new tensors, even for inputs that require grad already.  So a tensor that it
closes over is a constant, and only its arguments are differentiated (torch/autograd/functional.py).
"""

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from ...dispatch import tables
from ...tensor import Tensor
from ..backward import grad

_zeros_like = tables.FUNCTIONS[""]["zeros_like"]


def tensors(value: Any, what: str, function: str) -> tuple[tuple[Tensor, ...], bool]:
    """Return the tensors of a tensor or of a tuple, and True if it was a tuple.  A list is neither, as in PyTorch."""
    many = isinstance(value, tuple)
    listed = value if many else (value,)
    for i, item in enumerate(listed):
        if not isinstance(item, Tensor):
            place = f"value at index {i}" if many else f"given {what}"
            raise TypeError(
                f"The {what} given to {function} must be either a Tensor or a tuple of Tensors but the {place} has "
                f"type {type(item)}."
            )
    return listed, many


def returned(value: Any, function: str, strict: bool) -> tuple[tuple[Tensor, ...], bool]:
    """Return the tensors that the user's function returned, and True if it was a tuple."""
    outputs, many = tensors(value, "outputs of the user-provided function", function)
    require("output", outputs, strict)
    return outputs, many


def scalar(value: Any, function: str, strict: bool) -> Tensor:
    """Return the single element that the user's function has to return for a Hessian."""
    (output, *_), many = returned(value, function, strict)
    if many:
        raise RuntimeError(f"The function given to {function} should return a single Tensor")
    if output.numel() != 1:
        raise RuntimeError(
            f"The Tensor returned by the function given to {function} should contain a single element, but its shape "
            f"is {list(output.shape)}"
        )
    return output


def fresh(given: Sequence[Tensor], create_graph: bool, requires_grad: bool = True) -> tuple[Tensor, ...]:
    """Return new tensors of the same values: connected to tensors whose gradient is asked for, else leaves."""
    return tuple(_connected(x) if create_graph and x.requires_grad else _leaf(x, requires_grad) for x in given)


def _connected(x: Any) -> Tensor:
    return x.clone() if x._sparse else x.view_as(x)


def _leaf(x: Tensor, requires_grad: bool) -> Tensor:
    return x.detach().requires_grad_(requires_grad)


def vector(v: Any, like: tuple[Tensor, ...], many: bool, function: str, create_graph: bool, needless: str) -> Any:
    """Return the vector of a product, checked against the tensors that it multiplies; None for a single element."""
    if v is None:
        if len(like) != 1 or like[0].numel() != 1:
            raise RuntimeError(f"The vector v can only be None if {needless}.")
        return None
    given = fresh(tensors(v, "v", function)[0], create_graph, False)
    if len(given) != len(like):
        raise RuntimeError(
            f"v is a tuple of invalid length: should be {len(like)} but got {len(given)}."
            if many
            else "The given v should contain a single Tensor."
        )
    for i, (mine, other) in enumerate(zip(given, like, strict=True)):
        if mine.shape != other.shape:
            place = f"Entry {i} in " if many else ""
            raise RuntimeError(f"{place}v has invalid size: should be {other.shape} but got {mine.shape}.")
    return given


ONE_INPUT = "the input to the user-provided function is a single Tensor with a single element"
ONE_OUTPUT = "the user-provided function returns a single Tensor with a single element"


def gradients(
    outputs: Sequence[Tensor | None],
    inputs: Sequence[Tensor],
    v: Any = None,
    create_graph: bool = False,
    **how: Any,
) -> tuple[Tensor | None, ...]:
    """`autograd.grad`, with None for inputs that no output depends on; outputs without a gradient do not count."""
    vectors = (None,) * len(outputs) if v is None else v
    pairs = [(o, g) for o, g in zip(outputs, vectors, strict=True) if o is not None and o.requires_grad]
    if not pairs:
        return (None,) * len(inputs)
    roots, grads = zip(*pairs, strict=True)
    found = grad(roots, inputs, grads, create_graph=create_graph, allow_unused=True, **how)
    assert isinstance(found, tuple)
    return found


# Errors of `strict`, by the tensor that was looked at: (nothing connects it, it is connected but constant).
_INDEPENDENT = {
    "output": (
        "",
        "Output {} of the user-provided function does not require gradients. The outputs must be computed in a "
        "differentiable manner from the input when running in strict mode.",
    ),
    "gradient": (
        "The output of the user-provided function is independent of input {}. This is not allowed in strict mode.",
        "The gradient with respect to input {} is independent of the inputs of the user-provided function. This is "
        "not allowed in strict mode.",
    ),
    "jacobian": (
        "The output of the user-provided function is independent of input {}. This is not allowed in strict mode.",
        "While computing the hessian, found that the jacobian of the user-provided function with respect to input {} "
        "is independent of the input. This is not allowed in strict mode: the function has to be twice differentiable "
        "and its jacobian must depend on the inputs, which the jacobian of a linear function does not.",
    ),
    "vjp": (
        "The output of the user-provided function is independent of input {}. This is not allowed in strict mode.",
        "The jacobian of the user-provided function is independent of input {}. This is not allowed in strict mode "
        "when create_graph=True.",
    ),
    "jvp": (
        "The gradient with respect to the input is independent of entry {} in the grad_outputs when using the double "
        "backward trick to compute forward mode gradients. This is not allowed in strict mode.",
        "The jacobian of the user-provided function is independent of input {}. This is not allowed in strict mode "
        "when create_graph=True.",
    ),
    "vhp": (
        "The jacobian of the user-provided function is independent of input {}. This is not allowed in strict mode.",
        "The hessian of the user-provided function is independent of input {}. This is not allowed in strict mode "
        "when create_graph=True.",
    ),
    "hvp": (
        "The hessian of the user-provided function is independent of entry {} in the grad_jacobian. This is not "
        "allowed in strict mode as it prevents from using the double backward trick to replace forward mode AD.",
        "The hessian of the user-provided function is independent of input {}. This is not allowed in strict mode "
        "when create_graph=True.",
    ),
}  # fmt: skip


def _refuse(stage: str, constant: bool, i: int) -> NoReturn:
    raise RuntimeError(_INDEPENDENT[stage][constant].format(i))


def require(stage: str, found: Sequence[Tensor | None], strict: bool = True) -> None:
    """Raise in strict mode unless each tensor exists and depends on the inputs."""
    for i, x in enumerate(found if strict else ()):
        if x is None or not x.requires_grad:
            _refuse(stage, x is not None, i)


def filled(
    stage: str, found: Sequence[Tensor | None], like: Sequence[Tensor], strict: bool, create_graph: bool
) -> tuple[Any, ...]:
    """Return the tensors, with zeros for those that depend on nothing; in strict mode that is an error."""
    for i, x in enumerate(found if strict else ()):
        if x is None or (create_graph and not x.requires_grad):
            _refuse(stage, x is not None, i)
    return tuple(_zeros_like(y) if x is None else x for x, y in zip(found, like, strict=True))


def result(found: Sequence[Tensor], many: bool, create_graph: bool) -> Any:
    """Return a tensor or a tuple, as its argument was; without history unless `create_graph`."""
    kept = tuple(found if create_graph else (x.detach() for x in found))
    return kept if many else kept[0]


def nested(rows: Sequence[Sequence[Tensor]], many: tuple[bool, bool]) -> Any:
    """Return a tuple of tuples, without the levels for which the user gave no tuple."""
    inner = tuple(tuple(row) if many[1] else row[0] for row in rows)
    return inner if many[0] else inner[0]


Function = Callable[..., Any]
