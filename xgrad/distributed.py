"""xgrad.distributed: from_local joins the parts of several processes into one tensor, full_tensor gathers it whole.

`jax.distributed` is the engine, and a tensor over the devices of all processes is a tensor like any other: each process
runs the same operators on it, in the same order, and XLA does the transfers.  So this module has no collectives.

Invariant: a mistake that every process makes is an error before the processes wait for each other.

get_rank and get_world_size ask JAX.  (PyTorch: torch.distributed, torch.distributed.tensor.)
"""

from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec, Sharding

from .base import dtypes
from .base.devices import placement_of, require_here
from .base.missing import close_namespace as _close_namespace
from .base.platforms import start
from .errors import PlacementError
from .ops.create.casts import move
from .ops.create.from_data import as_tensor
from .tensor import Tensor, from_foreign

__all__ = [
    "destroy_process_group", "from_local", "full_tensor", "get_rank", "get_world_size", "is_available",
    "is_initialized",
]  # fmt: skip


def is_available() -> bool:
    """Return False: xgrad has no process groups (torch.distributed's question; programs then leave collectives out)."""
    return False


def is_initialized() -> bool:
    """Return False: xgrad has no process groups."""
    return False


is_torchelastic_launched = is_mpi_available = is_nccl_available = is_gloo_available = is_initialized


def get_rank(group: Any = None) -> int:
    """Return this process's number among JAX's, 0 of one."""
    start()
    return jax.process_index()


def get_world_size(group: Any = None) -> int:
    """Return the number of JAX's processes."""
    start()
    return jax.process_count()


def destroy_process_group(group: Any = None) -> None:
    """Do nothing: xgrad has no process groups."""


def from_local(local: Any, device: Any) -> Tensor:
    """Return one tensor over all processes, made of each one's part: a leaf, sharded as `device` says.

    `local` (an array, a tensor or numbers) is the part on this process's devices: with `PartitionSpec("data")`, this
    process's share of the rows of the batch, the first process's first.  If all processes have the same values
    (`PartitionSpec()`), it is the whole.  In a single process it is the whole, too.

    Raises `PlacementError` if `device` is not a sharding over a mesh, or if the part does not divide among this
    process's devices, `TypeError` for a part that requires grad.  (PyTorch: DTensor.from_local, without its mesh's
    collectives.)

    >>> import numpy as np, xgrad
    >>> from jax.sharding import PartitionSpec as P
    >>> with xgrad.mesh({"data": 1}):
    ...     batch = xgrad.distributed.from_local(np.ones((4, 2), np.float32), P("data"))
    >>> batch.shape
    xgrad.Size([4, 2])
    """
    where = placement_of(device)
    if not isinstance(where, NamedSharding):
        raise PlacementError(
            f"from_local() takes a NamedSharding, or a PartitionSpec within xgrad.mesh: got {device!r}"
        )
    if isinstance(local, Tensor):
        if local.requires_grad:
            raise TypeError("from_local() makes a leaf: detach() the part, which requires grad")
        local = local._read()
        require_here(local, "from_local()")
    elif isinstance(local, (np.ndarray, np.generic)):
        local = dtypes.narrowed(np.asarray(local))
    else:
        local = as_tensor(local)._read()
    part = np.array(local)  # a copy: JAX may keep a reference to the memory
    try:
        return from_foreign(jax.make_array_from_process_local_data(where, part))
    except ValueError as error:
        raise PlacementError(
            f"a part of shape {list(part.shape)} does not divide as {where.spec} asks, over the mesh "
            f"{dict(where.mesh.shape)} ({len(where.addressable_devices)} of its devices are this process's): {error}"
        ) from None


def full_tensor(tensor: Tensor) -> Tensor:
    """Return the whole tensor in each process: copied to all devices of its mesh.  Recorded, like a transfer.

    All processes have to call it.  Raises `PlacementError` for a tensor over several devices without a mesh.

    >>> import xgrad
    >>> from jax.sharding import PartitionSpec as P
    >>> with xgrad.mesh({"data": 1}):
    ...     x = xgrad.arange(3, device=P("data"))
    >>> xgrad.distributed.full_tensor(x).tolist()
    [0, 1, 2]
    """
    where: Sharding | None = tensor._placed()
    if where is None or len(where.device_set) == 1:
        return tensor
    if not isinstance(where, NamedSharding):
        raise PlacementError(f"full_tensor() takes a tensor over a mesh, and this one is sharded by {where}")
    return move(tensor, NamedSharding(where.mesh, PartitionSpec()))


_close_namespace(__name__)
