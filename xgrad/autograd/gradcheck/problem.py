"""Problem: holds the function and inputs that gradcheck checks, complex values split into real and imaginary parts.

Backward presumes a real loss, so a complex *output* is checked by the functions real(f) and imag(f).  Forward mode
has a tangent for each real direction, so a complex *input* is checked by x -> f(x + i y0) and y -> f(x0 + i y).
"""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...base import dtypes
from ...dispatch import tables
from ...tensor import Tensor
from .entries import filled

_DOUBLE = (dtypes.float64, dtypes.complex128)


@dataclass(frozen=True)
class Problem:
    """A function whose derivative at `inputs` is to be checked, by backward or by forward mode."""

    function: Callable[..., Any]
    inputs: tuple[Any, ...]
    returned: tuple[Any, ...]
    forward: bool
    complex_places: frozenset[int] = frozenset()  # the outputs, or the inputs in forward mode, that were complex
    part: str = ""  # "real" or "imaginary"

    @property
    def wanted(self) -> list[tuple[int, Tensor]]:
        """The inputs to differentiate by, with their places."""
        return differentiable(self.inputs)

    @property
    def outputs(self) -> list[tuple[int, Tensor]]:
        """The outputs that can be differentiated, with their places."""
        return differentiable(self.returned)

    def evaluate(self) -> list[Tensor]:
        """Return the outputs that can have derivatives, at the inputs' present values."""
        return [x for _, x in floats(run(self.function, self.inputs))]

    def moved(self, masked: bool) -> "Problem":
        """Return the problem for finite differences: sparse inputs that are not masked have an entry at every place."""
        if masked or not any(x._sparse for _, x in floats(self.inputs)):
            return self
        return replace(self, inputs=tuple(filled(x) if isinstance(x, Tensor) else x for x in self.inputs))

    def __str__(self) -> str:
        if not self.complex_places:
            return ""
        element = "inputs" if self.forward else "outputs"
        return f"While considering the {self.part} part of complex {element} only, "


def as_tuple(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)


def differentiable(values: Sequence[Any]) -> list[tuple[int, Any]]:
    """Return the tensors that require grad, with their places."""
    return [(i, x) for i, x in enumerate(values) if isinstance(x, Tensor) and x.requires_grad]


def floats(values: Sequence[Any]) -> list[tuple[int, Any]]:
    """Return the tensors that can have derivatives, with their places."""
    return [(i, x) for i, x in enumerate(values) if isinstance(x, Tensor) and x.dtype in dtypes.INEXACT]


def run(function: Callable[..., Any], inputs: Sequence[Any]) -> tuple[Any, ...]:
    """Return the function's result as a tuple of tensors."""
    returned = as_tuple(function(*inputs))
    for i, x in enumerate(returned):
        if not isinstance(x, Tensor):
            raise TypeError(
                f"gradcheck expects a function that returns a Tensor or a tuple of Tensors, but output {i} is of type "
                f"{type(x).__name__}"
            )
    return returned


def _is_complex(x: Any) -> bool:
    return isinstance(x, Tensor) and x.dtype in dtypes.COMPLEX


def backward_problems(
    function: Callable[..., Any], inputs: tuple[Any, ...], returned: tuple[Any, ...]
) -> list[Problem]:
    """Return the problems that check backward."""
    places = frozenset(i for i, x in enumerate(returned) if _is_complex(x))
    if not places:
        return [Problem(function, inputs, returned, False)]

    def part_of(name: str) -> Callable:
        part = tables.FUNCTIONS[""][name]
        return lambda *args: tuple(part(x) if _is_complex(x) else x for x in run(function, args))

    return [
        Problem(f := part_of(name), inputs, run(f, inputs), False, places, part)
        for name, part in (("imag", "imaginary"), ("real", "real"))
    ]


def forward_problems(function: Callable[..., Any], inputs: tuple[Any, ...], returned: tuple[Any, ...]) -> list[Problem]:
    """Return the problems that check forward mode."""
    places = frozenset(i for i, x in enumerate(inputs) if _is_complex(x))
    if not places:
        return [Problem(function, inputs, returned, True)]

    def with_part(join: Callable) -> Callable:
        return lambda *args: function(*(join(a, inputs[i]) if i in places else a for i, a in enumerate(args)))

    def problem(part: str, parts: Sequence[Any], f: Callable) -> Problem:
        return Problem(f, tuple(parts), run(f, parts), True, places, part)

    imaginary = [x.imag if i in places else x for i, x in enumerate(inputs)]
    real = [x.real if i in places else x for i, x in enumerate(inputs)]
    return [
        problem("imaginary", imaginary, with_part(lambda y, whole: whole.real + y * 1j)),
        problem("real", real, with_part(lambda x, whole: x + whole.imag * 1j)),
    ]


def check_inputs(inputs: tuple[Any, ...]) -> None:
    """Raise for inputs that can't be checked, and warn of low precision."""
    wanted = differentiable(inputs)
    if not wanted:
        raise ValueError(
            "gradcheck expects at least one input tensor to require gradient, but none of them have requires_grad=True."
        )
    for i, x in wanted:
        if x.dtype not in _DOUBLE:
            switch = "" if dtypes.x64_enabled() else (
                "JAX's 64-bit mode is off: call jax.config.update('jax_enable_x64', True) before any tensor is made, "
                "and make them float64. "
            )  # fmt: skip
            warnings.warn(
                f"Input #{i} requires gradient and is not a double precision floating point or complex, but "
                f"{x.dtype.name}. This check will likely fail if all the inputs are not of double precision floating "
                f"point or complex. {switch}",
                stacklevel=5,
            )
        content = x._values() if x._sparse else x
        if any(stride == 0 and size > 1 for stride, size in zip(content.stride(), content.shape, strict=True)):
            raise RuntimeError(
                f"The {i}th input has a dimension with stride 0. gradcheck only supports inputs that are "
                "non-overlapping to be able to compute the numerical gradients correctly. You should call .contiguous "
                "on the input before passing it to gradcheck."
            )


def check_outputs(returned: tuple[Any, ...]) -> None:
    """Raise for sparse outputs, whose derivatives are not matrices."""
    if any(x._sparse for x in returned):
        raise ValueError(
            "Sparse output is not supported at gradcheck yet. Please call to_dense(masked_grad=...) on the output of "
            "fn for gradcheck."
        )
