"""Declares small test inputs of operators, `@operator(samples=...)`, for the tests and `xgrad conform`.

    @operator(samples=(sample(real(2, 3), dim=1), sample(real(), dim=0)) + COMPLEX)

tests/ops/test_table.py checks each operator with them.  An array argument is a domain with a shape, from which numbers
are drawn, always the same.  A list is an array of its numbers; a number, or None, is itself.  Static arguments go by
their names; those that are not named, and arrays at the end, have their defaults.

The tables of samples at the end are shared by operators of one kind.  Choose shapes that others use, because a
test compiles some of what it runs once for each shape; no more than a dozen elements.
"""

from typing import Any, NamedTuple

COMPLEX = ("complex",)  # beside samples: the operator takes complex numbers too, and is tested with them
SINGLE = ("single",)  # beside samples: it refuses the half precisions
CONVENTION = ("convention",)  # beside samples: PyTorch's gradient is not the function's derivative
FIRST_ORDER = ("first order",)  # beside samples: there are no second derivatives, which is an error
STOPPED = ("stopped",)  # beside samples: its derivatives are 0 by definition, though differences are not


class Draw(NamedTuple):
    """An array to be drawn: its kind, its shape, and the bounds of its elements.

    Elements of floating dtypes are all different.
    """

    kind: str
    shape: tuple[int, ...]
    low: float
    high: float
    moves: bool = True  # whether gradients and tangents are tested with respect to it, if it is floating-point


class Sample(NamedTuple):
    """The array arguments of an operator, in order, and static arguments by name."""

    arrays: tuple[Any, ...]
    statics: dict[str, Any]


def sample(*arrays: Any, **statics: Any) -> Sample:
    """One input of an operator: arrays (`real(2, 3)`), numbers or None, and static arguments by name."""
    return Sample(arrays, statics)


def real(*shape: int) -> Draw:
    """Numbers between -2 and 2, none of them close to a multiple of 0.5."""
    return Draw("real", shape, -2, 2)


def between(low: float, high: float, *shape: int) -> Draw:
    """Numbers between two others."""
    return Draw("real", shape, low, high)


def complex_numbers(*shape: int) -> Draw:
    """Complex numbers, for an operator that takes no real ones."""
    return Draw("complex", shape, -2, 2)


def positive(*shape: int) -> Draw:
    """Numbers between 0.3 and 3."""
    return Draw("real", shape, 0.3, 3)


def fixed(draw: Draw) -> Draw:
    """The array as an argument without a gradient: probabilities, a target."""
    return draw._replace(moves=False)


def whole(low: int, high: int, *shape: int) -> Draw:
    """Integers of `range(low, high)`, in mixed order; equal ones where there are not enough."""
    return Draw("whole", shape, low, high)


def rising(*shape: int) -> Draw:
    """Numbers between -2 and 2 that rise along the last dimension, without a gradient: edges of bins."""
    return Draw("rising", shape, -2, 2, False)


def exchanges(n: int, *shape: int) -> Draw:
    """The row exchanges of a factorization of n rows: int32, counted from 1."""
    return Draw("exchanges", shape, 1, n + 1)


def truth(*shape: int) -> Draw:
    """Truth values of both kinds."""
    return Draw("truth", shape, 0, 2)


def definite(*shape: int) -> Draw:
    """Symmetric (Hermitian) positive definite matrices, with eigenvalues that differ, and derivatives along such."""
    return Draw("definite", shape, 1, 4)


def regular(*shape: int) -> Draw:
    """Matrices that are far from singular."""
    return Draw("regular", shape, -1, 1)


def key() -> Draw:
    """A key of random numbers."""
    return Draw("key", (), 0, 0)


HERE = Draw("here", (), 0, 0)  # as a static argument: the default device


# -- tables of samples ------------------------------------------------------------------------------------------------


def unary(low: float, high: float) -> tuple[Sample, ...]:
    """Samples of a pointwise function of numbers between two others: with dimensions, without, and without elements."""
    return tuple([sample(between(low, high, *shape)) for shape in ((2, 3), (), (0, 3))])


REAL = unary(-2, 2)
POSITIVE = unary(0.3, 3)
UNIT = unary(-0.9, 0.9)
WHOLE = (sample(whole(-3, 4, 2, 3)), sample(whole(-3, 4)), sample(whole(-3, 4, 0, 3)))
BINARY = (
    sample(real(2, 3), real(3)), sample(real(2, 3), real(2, 3)), sample(real(), real()), sample(real(0, 3), real(3)),
    sample(real(2, 3), 1.25),
)  # fmt: skip
BINARY_POSITIVE = (
    sample(positive(2, 3), positive(3)), sample(positive(2, 3), positive(2, 3)), sample(positive(), positive()),
    sample(positive(0, 3), positive(3)),
)  # fmt: skip
BINARY_WHOLE = (
    sample(whole(-5, 6, 2, 3), whole(1, 4, 3)), sample(whole(-5, 6), whole(1, 4)),
    sample(whole(-5, 6, 0, 3), whole(1, 4, 3)),
)  # fmt: skip
TERNARY = (
    sample(real(2, 3), positive(3), positive(2, 1)), sample(real(), positive(), positive()),
    sample(real(0, 3), positive(3), positive(3)),
)  # fmt: skip
ALONG = (sample(real(2, 3), dim=1), sample(real(2, 3), dim=0), sample(real(), dim=0), sample(real(0, 3), dim=0))
REDUCTION = (
    sample(real(2, 3)), sample(real(2, 3), dim=1, keepdim=True), sample(real(), dim=()), sample(real(0, 3), dim=1),
)  # fmt: skip
