"""steps_of: writes the steps from a base to its view as code (`[:, 2:3]`, `reshape(4)`), for xgrad.viz's pictures."""

from typing import Any

from ..views.chain import ViewChain
from ..views.value_ops import BitCast
from ..views.view_ops import AsStrided, Diagonal, Expand, Permute, Reshape, Slice, Unfold


def steps_of(chain: ViewChain) -> list[str]:
    """Return a text for each step of a chain.

    >>> import numpy as np
    >>> steps_of(ViewChain.root((4, 6), np.dtype("float32")).view("t").view("select", 0, 2))
    ['[:, 2:3]', 'reshape(4)']
    """
    shape, found = chain.root_shape, []
    dtype = chain.root_dtype
    for step in chain.steps:
        found.append(_step(step, shape))
        shape, dtype = step.result(shape, dtype)
    return found


def _step(step: Any, shape: tuple[int, ...]) -> str:
    match step:
        case Slice():
            parts = [_slice(*each) for each in zip(step._starts, step.sizes, step.steps, shape, strict=True)]
            while len(parts) > 1 and parts[-1] == ":":
                parts.pop()
            return f"[{', '.join(parts)}]"
        case Permute():
            return f"permute{_tuple(step.dims)}"
        case Reshape():
            return f"reshape{_tuple(step.shape)}"
        case Expand():
            return f"expand{_tuple(step.shape)}"
        case Diagonal():
            return f"diagonal({step.offset})"
        case Unfold():
            return f"unfold({step.dim}, {step.size}, {step.step})"
        case AsStrided():
            return f"as_strided({list(step.sizes)}, {list(step.strides)}, {step.offset})"
        case BitCast():
            return f"view({step.dtype.name})"
    return f"{type(step).__name__.lower()}()"


def _slice(start: int, size: int, step: int, whole: int) -> str:
    if start == 0 and size == whole and step == 1:
        return ":"
    stop = start + (size - 1) * step + 1 if size else start
    return f"{start}:{stop}" + (f":{step}" if step != 1 else "")


def _tuple(numbers: tuple[int, ...]) -> str:
    return f"({', '.join(map(str, numbers))})"
