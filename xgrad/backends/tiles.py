"""tiled: computes an array's bytes on a chip that stores whole tiles, for an `xgrad.Backend`'s memory and times."""

from collections.abc import Mapping
from typing import Any

import numpy as np


def of_dtype(values: Any, dtype: Any) -> Any:
    """Return the value for a dtype: of a mapping by names its own, else the one of "*"; anything else is for all."""
    return values.get(np.dtype(dtype).name, values.get("*")) if isinstance(values, Mapping) else values


def tiled(shape: tuple[int, ...], dtype: Any, tiles: Any) -> int:
    """Return the bytes of an array; `tiles`: of the last dimensions, by dtype perhaps, None for none.

    A shape with fewer dimensions has ones before them; a single number is as it is.

    >>> tiled((3, 130), "float32", (8, 128)), tiled((5,), "float32", (8, 128)), tiled((5,), "float32", None)
    (8192, 4096, 20)
    """
    tile = of_dtype(tiles, dtype)
    if tile is not None and shape and 0 not in shape:
        shape = (*[1] * (len(tile) - len(shape)), *shape)
        first = len(shape) - len(tile)
        shape = (*shape[:first], *[-(-n // t) * t for n, t in zip(shape[first:], tile)])
    size = np.dtype(dtype).itemsize
    for n in shape:
        size *= n
    return size
