"""Makes the NumPy arrays that an operator's sample inputs (dispatch/samples.py) describe, for the conformance checks.

The numbers are the same in each run.  The elements of a floating-point array differ, in float64, so that a maximum, a
sort or a derivative is determined; only a matrix of kind "definite" is symmetric.
"""

from typing import Any

import jax
import numpy as np

from ..dispatch.operator import Operator
from ..dispatch.samples import HERE, Draw, Sample

FLOATING = ("real", "complex", "definite", "regular", "rising")

_OFFSETS = (0.37, 0.43, 0.61, 0.71, 0.29, 0.53, 0.67, 0.83, 0.47)  # so that no element of two arguments is equal


def values(draw: Draw, seed: int) -> np.ndarray:
    """The elements of a draw, in float64, integers or bools."""
    n = int(np.prod(draw.shape))
    order = np.random.RandomState(seed).permutation(n)
    if draw.kind == "whole":
        spread = np.arange(int(draw.low), int(draw.high))
        return np.resize(np.random.RandomState(seed).permutation(spread), n).reshape(draw.shape)
    if draw.kind == "exchanges":
        return values(draw._replace(kind="whole"), seed).astype(np.int32)
    if draw.kind == "truth":
        return (order % 2 == 0).reshape(draw.shape)
    if draw.kind == "key":
        return np.asarray(jax.random.key_data(jax.random.key(seed)))
    if draw.kind == "definite":
        root = values(Draw("regular", draw.shape, 0, 0), seed)
        return root @ np.swapaxes(root, -1, -2)
    cells = (order + _OFFSETS[seed % len(_OFFSETS)]) / max(n, 1)
    if draw.kind == "regular":  # a diagonal that grows outweighs the rest
        rest = (cells - 0.5).reshape(draw.shape) / draw.shape[-1]
        return rest + np.eye(draw.shape[-2], draw.shape[-1]) * (1 + np.arange(draw.shape[-1]))
    spread = (draw.low + (draw.high - draw.low) * cells).reshape(draw.shape)
    return np.sort(spread, -1) if draw.kind == "rising" else spread


def arguments(
    op: Operator, sample: Sample, dtype: Any, seed: int = 0, device: Any = None
) -> tuple[list, list[int], tuple]:
    """Arrays and numbers for an operator; the places of those that move; static arguments in their order.

    `dtype`: of the floating-point arrays; complex ones have imaginary parts of the same kind.  `device`: the
    `jax.Device` that stands for the default one.
    """
    arrays = list(sample.arrays)
    statics = dict(sample.statics)
    for name, value in statics.items():
        if value is HERE:
            statics[name] = jax.sharding.SingleDeviceSharding(device or jax.devices()[0])
    for name in op.parameters[len(arrays) :]:
        arrays.append(statics.pop(name) if name in statics else op.defaults[name])
    floating = [i for i, a in enumerate(arrays) if isinstance(a, Draw) and a.kind in FLOATING]
    moving = [i for i in floating if arrays[i].moves]
    for i, draw in enumerate(arrays):
        if isinstance(draw, list):
            arrays[i] = np.asarray(draw)
        if isinstance(draw, Draw):
            found = values(draw, seed + i)
            if i in floating:
                complex_too = np.dtype(dtype).kind == "c" or draw.kind == "complex"
                if complex_too and draw.kind == "definite":  # Hermitian: a skew part, too small to change the sign
                    part = 0.05j * values(draw._replace(kind="regular"), seed + i + 3)
                    found = found + part - np.swapaxes(part, -1, -2)
                elif complex_too:
                    found = found + 0.5j * values(draw, seed + i + 3)
                found = found.astype(np.promote_types(dtype, np.complex64) if complex_too else dtype)
            arrays[i] = np.asarray(found)
    return arrays, moving, tuple([statics.pop(n) if n in statics else op.defaults[n] for n in op.static_names])
