"""The result dtypes of an operator for pairs of operands, beside PyTorch's.

xgrad's are traced, so that hundreds of pairs compile nothing.
"""

from collections.abc import Callable, Iterable
from itertools import product
from typing import Any

import jax
import torch

import xgrad

from ..oracle import family

DTYPES = (
    "bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64", "complex64",
    "complex128",
)  # fmt: skip
TENSORS = tuple((shape, dtype) for shape in ((2,), ()) for dtype in DTYPES)
VECTORS = TENSORS[: len(DTYPES)]
NUMBERS = (True, 1, 1.0, 1j)


def operand(T: Any, spec: Any) -> Any:
    if not isinstance(spec, tuple):
        return spec
    shape, dtype = spec
    return T.ones(shape, dtype=getattr(T, dtype))


def outcome(T: Any, function: Callable, specs: tuple) -> Any:
    """The name of the result's dtype, or the error."""
    try:
        return str(function(T, *(operand(T, s) for s in specs)).dtype).rpartition(".")[2]
    except Exception as error:
        return error


def agree_on_dtypes(
    function: Callable, left: Iterable = (*TENSORS, *NUMBERS), right: Iterable = (*TENSORS, *NUMBERS), but: Any = ()
) -> None:
    """Assert that `function(T, a, b)` gives torch's dtype, or fails as torch does, for all operands but those `but`."""
    pairs = [p for p in product(left, right) if any(isinstance(s, tuple) for s in p) and p not in but]
    ours: list = []
    jax.eval_shape(lambda: ours.extend(outcome(xgrad, function, p) for p in pairs))
    wrong = {p: found for p, got in zip(pairs, ours) if (found := difference(got, outcome(torch, function, p)))}
    assert not wrong, f"{len(wrong)} of {len(pairs)}, the first: {dict(list(wrong.items())[:5])}"


def difference(ours: Any, theirs: Any) -> Any:
    """None if the outcomes are the same; complex64 stands for complex32, which XLA does not have."""
    if isinstance(theirs, Exception):
        return None if "ComplexHalf" in str(theirs) or isinstance(ours, family(theirs)) else (ours, theirs)
    wanted = theirs.replace("complex32", "complex64")
    return None if not isinstance(ours, Exception) and ours == wanted else (ours, theirs)
