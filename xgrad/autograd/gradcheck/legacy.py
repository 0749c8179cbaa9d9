"""get_numerical_jacobian, get_analytical_jacobian, ...: older functions of gradcheck, for code that still calls them.

The two named are deprecated by PyTorch, and warn; `get_numerical_jacobian_wrt_specific_input` does not.
"""

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...tensor import Tensor, from_foreign
from .analytical import by_backward, units
from .numerical import jacobians
from .problem import as_tuple, differentiable, floats


def _deprecated(name: str, grad_out: float) -> None:
    warnings.warn(
        f"`{name}` was part of PyTorch's private API and not meant to be exposed: it is deprecated there, and here. "
        "Use autograd.gradcheck, or autograd.functional.jacobian.",
        FutureWarning,
        stacklevel=3,
    )
    if grad_out != 1.0:
        raise ValueError(f"Expected grad_out to be 1.0. {name} no longer supports values of grad_out != 1.0.")


def _refuse_complex(name: str, outputs: Sequence[Any]) -> None:
    if any(x.is_complex() for _, x in floats(outputs)):
        raise ValueError(
            f"Expected output to be non-complex. {name} no longer supports functions that return complex outputs."
        )


def get_numerical_jacobian(
    fn: Callable[..., Any], inputs: Any, target: Any = None, eps: float = 1e-3, grad_out: float = 1.0
) -> tuple[Tensor, ...]:
    """Return the Jacobian of the first output of `fn(inputs)` for each input that requires grad, by differences.

    Deprecated, as in PyTorch.  `target`: the tensors to differentiate by, if they are not the inputs.  A row for each
    element of the input, a column for each of the output.  Raises `ValueError` for complex outputs.
    """
    _deprecated("get_numerical_jacobian", grad_out)
    given = as_tuple(inputs)
    outputs = as_tuple(fn(given))
    _refuse_complex("get_numerical_jacobian", outputs)
    targets = differentiable(given if target is None else as_tuple(target))

    def evaluate() -> tuple:
        return as_tuple(fn(given))

    return tuple(from_foreign(jacobians(evaluate, x, outputs, eps)[0]) for _, x in targets)


def get_numerical_jacobian_wrt_specific_input(
    fn: Callable[..., Any],
    input_idx: int,
    inputs: Any,
    outputs: Any,
    eps: float,
    input: Any = None,
    is_forward_ad: bool = False,
) -> tuple[Tensor, ...]:
    """Return the Jacobian of each output of `fn(*inputs)` for one input, or for the tensor `input`, by differences."""
    target = inputs[input_idx] if input is None else input
    if not target.requires_grad:
        raise AssertionError("Expected input to have requires_grad=True")
    found = jacobians(lambda: as_tuple(fn(*as_tuple(inputs))), target, as_tuple(outputs), eps)
    return tuple(from_foreign(matrix) for matrix in found)


def get_analytical_jacobian(
    inputs: Any, output: Tensor, nondet_tol: float = 0.0, grad_out: float = 1.0
) -> tuple[Any, ...]:
    """Return the Jacobian of `output` for each input that requires grad, by backward, and True if two backwards agree.

    Deprecated, as in PyTorch.  Two Trues follow, as in PyTorch: gradients have the size and dtype of their input.
    """
    _deprecated("get_analytical_jacobian", grad_out)
    _refuse_complex("get_analytical_jacobian", (output,))
    wanted = [x for _, x in differentiable(as_tuple(inputs))]
    first, second = (by_backward(output, wanted, list(units(output)), float("inf"), False) for _ in range(2))
    equal = all(np.abs(a - b).max(initial=0) <= nondet_tol for a, b in zip(first, second, strict=True))
    return tuple(from_foreign(matrix) for matrix in first), equal, True, True
