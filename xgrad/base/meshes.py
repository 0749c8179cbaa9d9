"""xgrad.mesh: a `with` block that names the axes of a mesh of devices, for sharding by `device=PartitionSpec(...)`."""

from math import prod
from typing import Any

import jax
from jax.sharding import AxisType, Mesh

from ..config import Block, state
from ..errors import PlacementError
from .declared import DeclaredMesh, DeclaredPlace
from .devices import automatic, placement_of
from .platforms import start


class mesh(Block):
    """Within the block a `jax.sharding.PartitionSpec` is a device: it names axes of this mesh.

    Made of a `jax.sharding.Mesh`, of a dictionary of axis names and sizes, or of sizes and names: `mesh((4, 2),
    ("data", "model"))`.  It uses `devices`, by default the first ones that JAX sees; if those are an `xgrad.Backend`,
    tensors are on that backend.  The block yields the `jax` mesh.  It is per thread, and only the innermost one counts.

    Raises `PlacementError` if there are too few devices, or if an axis is named twice.

    >>> import jax, xgrad
    >>> from jax.sharding import PartitionSpec as P
    >>> with xgrad.mesh({"data": 1}):
    ...     x = xgrad.ones(4, 2, device=P("data"))
    >>> x.sharding.mesh.axis_names
    ('data',)
    """

    __slots__ = ("_before", "_of", "mesh")

    def __init__(self, shape: Any, axis_names: Any = None, devices: Any = None) -> None:
        of = placement_of(devices) if hasattr(devices, "__xgrad_place__") else None
        if isinstance(shape, mesh):
            shape, of = shape.mesh, of or shape._of
        elif isinstance(shape, DeclaredMesh):
            shape, of = shape
        if of is not None:
            devices = of.behind
        self.mesh: Mesh = automatic(shape) if isinstance(shape, Mesh) else _made(shape, axis_names, devices)
        if of is not None and not {*self.mesh.devices.flat} <= {*of.behind}:
            raise PlacementError(f"a mesh of the backend '{of.name}' is over {of.behind}, but {self.mesh} has others")
        self._of: DeclaredPlace | None = of

    def __enter__(self) -> Mesh:
        self._will_restore("mesh")
        state.mesh = self.mesh if self._of is None else DeclaredMesh(self.mesh, self._of)
        return self.mesh

    def __repr__(self) -> str:
        return f"xgrad.mesh({dict(self.mesh.shape)})"


def _made(shape: Any, names: Any, given: Any) -> Mesh:
    if isinstance(shape, dict):
        shape, names = tuple(shape.values()), tuple(shape)
    elif names is None:
        raise TypeError('mesh() takes a jax Mesh, {"data": 4}, or sizes and axis names: (4, 2), ("data", "model")')
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    names = (names,) if isinstance(names, str) else tuple(names)
    if len(shape) != len(names):
        raise PlacementError(f"a mesh of {len(shape)} dimensions, {shape}, needs as many axis names, but got {names}")
    if len({*names}) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise PlacementError(f"mesh axis '{twice}' is named twice: {names}")
    if any(n < 1 for n in shape):
        raise PlacementError(f"a mesh axis has at least one device, but got {dict(zip(names, shape))}")
    start()
    present = [placement_of(d) for d in given] if given is not None else jax.devices()
    if prod(shape) > len(present):
        raise PlacementError(
            f"the mesh {dict(zip(names, shape))} needs {prod(shape)} devices, but there are {len(present)}. (On a CPU, "
            f"XLA_FLAGS=--xla_force_host_platform_device_count={prod(shape)} makes more, if set before JAX starts.)"
        )
    return jax.make_mesh(shape, names, devices=present[: prod(shape)], axis_types=(AxisType.Auto,) * len(names))
