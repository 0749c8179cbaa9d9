"""Checks for `xgrad conform` how a device shares memory: in-place writes, users' arrays, views, saved tensors."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..autograd.backward import grad
from ..errors import VersionError
from ..execution.references import is_deleted
from ..tensor import Tensor, from_foreign
from .execution import Place, values
from .measure import compare
from .records import RIGHT, WRONG, Check

SIZE = 1 << 14


def _counting(place: Place, dtype: np.dtype, *shape: int) -> Tensor:
    count = int(np.prod(shape))
    (x,) = place.tensors([(np.arange(count) % 7).astype(dtype).reshape(shape)])
    return x


def donation(place: Place, dtype: np.dtype) -> list[Check]:
    """A chain of writes; each may take the memory of the array before it."""
    x = _counting(place, dtype, SIZE)
    before = after = None
    for i in range(3):
        before, after = after, _address(x)
        x[i : i + 2].copy_(x[4:6].clone())
    wanted = np.arange(SIZE) % 7
    wanted[0], wanted[1], wanted[2:4] = 4, 4, (4, 5)
    how = "" if after is None else "writes are made in place" if before == after else "writes copy"
    (found,) = values([x])
    check = compare("values", [found], [wanted.astype(dtype)], dtype)
    return [Check(check.name, check.state, check.error, check.why or how)]


def _address(x: Tensor) -> int | None:
    try:
        return x._share().array.unsafe_buffer_pointer()
    except (AttributeError, NotImplementedError, RuntimeError):
        return None


def own_array(place: Place, dtype: np.dtype) -> list[Check]:
    """A JAX array that a tensor was made of is not changed by a write to the tensor."""
    mine = jax.device_put(np.ones(4, dtype), place.jax_device) if place.jax_device else jnp.ones(4, dtype)
    x = from_foreign(mine).to(place.given)
    x[0].zero_()
    x[1:].zero_()
    if is_deleted(mine):
        return [Check("array", WRONG, None, "a write deleted the array that the tensor was made of")]
    return [
        compare("array", [np.asarray(mine)], [np.ones(4, dtype)], dtype),
        compare("tensor", values([x]), [np.zeros(4, dtype)], dtype),
    ]


def host_array(place: Place, dtype: np.dtype) -> list[Check]:
    """A tensor and the NumPy array that it was made of share no memory; a write does not change what `numpy()` gave."""
    mine = np.ones(64, dtype)
    (x,) = place.tensors([mine])
    mine[:] = 0
    (seen,) = values([x])
    x[3].zero_()
    wanted = np.ones(64, dtype)
    checks = [compare("from NumPy", [seen], [wanted], dtype)]
    wanted[3] = 0
    return [*checks, compare("written", values([x]), [wanted], dtype)]


def aliases(place: Place, dtype: np.dtype) -> list[Check]:
    """A base and views that overlap see each other's writes, in any order."""
    base = _counting(place, dtype, 4, 4)
    array = values([base])[0].copy()
    row, column, rows = base[1], base[:, 2], base[1:3]
    corner = rows[0, 2:]
    for at, (tensor, mine) in enumerate(
        [(row, array[1]), (column, array[:, 2]), (corner, array[1, 2:]), (base, array), (rows, array[1:3])]
    ):
        new = np.broadcast_to(array[at % 4, :1], mine.shape).copy()
        (value,) = place.tensors([new])
        tensor.copy_(value)
        mine[...] = new
    shown = [array, array[1], array[:, 2], array[1:3], array[1, 2:]]
    return [compare("values", values([base, row, column, rows, corner]), shown, dtype)]


def saved(place: Place, dtype: np.dtype) -> list[Check]:
    """Backward refuses a saved tensor that was written, and takes one that was not."""
    x, y = place.tensors([np.full((2, 3), 2, dtype), np.full((2, 3), 3, dtype)])
    x.requires_grad_()
    (weights,) = place.tensors([np.ones((2, 3), dtype)])
    found: Any = grad(x * y, x, weights)
    checks = [compare("gradient", values(list(found)), [np.full((2, 3), 3, dtype)], dtype)]
    product = x * y
    y[0].zero_()
    try:
        grad(product, x, weights)
    except VersionError:
        return [*checks, Check("written", RIGHT)]
    return [*checks, Check("written", WRONG, None, "backward used a saved tensor that had been written since")]


MEMORY = {
    "donation": donation, "the user's JAX array": own_array, "the user's NumPy array": host_array,
    "base and views": aliases, "saved tensors": saved,
}  # fmt: skip
ONLY_FLOATING = {"saved tensors"}
