"""Defines `xgrad.device`, and converts PyTorch's device strings to `jax.Device`s and `jax.sharding.Sharding`s.

`"cpu"`, `"gpu:0"` or `"cuda:0"`, `"tpu:3"`, `"xla"` (the default device), a `jax.Device`, or a multi-device
`jax.sharding.Sharding` are accepted wherever a device is; within `with xgrad.mesh(...)` a `PartitionSpec` too.

Invariants: an unknown device, an axis that the mesh lacks, and a dimension that does not divide evenly are errors at
the call, before anything moves; an absent device is one when a tensor is put there.  Meshes are `Auto`: XLA decides
which devices compute what.  With several processes each counts its own devices, as PyTorch's do: "gpu:0" is the first
of this one; a mesh uses the devices of all processes.

More than 450 lines: one place distinguishes names, places and shardings.
"""

from collections.abc import Callable
from math import prod
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple

import jax
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec, Sharding, SingleDeviceSharding

from ..config import Leaving, state
from ..errors import PlacementError
from .declared import AbsentDevice, AbsentDeviceError, DeclaredDevice, DeclaredMesh, DeclaredPlace, absent, registered
from .decorators import in_block
from .immutable import Immutable, fixed
from .jax_compat import Tracer
from .platforms import STRIDED, local_devices, traced_for

_PLATFORM = {"cuda": "gpu", "gpu": "gpu", "cpu": "cpu", "tpu": "tpu", "xla": None}  # None: JAX's default
# PyTorch's other devices, which can be named, and compared with others.
_ELSEWHERE = frozenset([
    "fpga", "hip", "hpu", "ideep", "ipu", "lazy", "maia", "mkldnn", "mps", "mtia", "opencl", "opengl", "privateuseone",
    "ve", "vulkan", "xpu",
])  # fmt: skip


class device(Immutable):
    """A place for tensors: `type` ("cpu", "cuda", "tpu") and `index`, as in PyTorch, and its `placement`.

    The index of the first CPU is None, as PyTorch's for a CPU that was asked for without one.

    The device of a sharded tensor is all of its devices: `index` is the index of the first one, two are equal if they
    are the same devices, and a tensor that is put there is sharded likewise if its shape allows it, and else copied to
    each.

    A device that JAX does not see, such as "cuda:0" without a GPU, is a name, and an error where a tensor is put.
    Tensors on "meta" have a shape and a dtype, and no values.

    In a `with device:` block new tensors are made there, unless they say otherwise; it also decorates a function.

    >>> import xgrad
    >>> xgrad.device("cpu").type
    'cpu'
    >>> with xgrad.device("cpu"):
    ...     x = xgrad.ones(2)
    """

    __slots__ = ("_number", "chosen", "placement", "traced", "type")

    _number: int | None
    chosen: bool  # False for a tensor's that JAX put on its default device: what is made there is committed as little
    placement: Any
    traced: bool  # True for a traced tensor's: it is wherever its program runs
    type: str

    def __new__(cls, spec: Any, index: int | None = None) -> "device":
        if index is not None:
            spec = f"{spec}:{index}"
        try:
            placement = absent("meta", None) if spec == "meta" else placement_of(spec)
        except AbsentDeviceError as error:
            placement = absent(*error.args[1:])
        if isinstance(placement, Devices):
            placement = placement.sharding or local_devices()[0]
        return cls._made(placement, False)

    @classmethod
    def _made(cls, placement: Any, traced: bool, chosen: bool = True) -> "device":
        new, first = object.__new__(cls), min(devices_of(placement), key=_id_of)
        fixed(new, "placement", placement)
        fixed(new, "traced", traced)
        fixed(new, "chosen", chosen)
        fixed(new, "type", "cuda" if first.platform in ("gpu", "cuda", "rocm") else first.platform)
        fixed(new, "_number", first.id if isinstance(first, DeclaredDevice) else _own(first).index(first))
        return new

    @property
    def index(self) -> int | None:
        """The number among the devices of its type; None for the first CPU."""
        return None if self._only else self._number

    def __repr__(self) -> str:
        if self._several:
            placement = layout_of(self.placement)
            shown: Any = placement.spec if isinstance(placement, NamedSharding) else placement
            mesh = f", mesh={dict(placement.mesh.shape)}" if isinstance(placement, NamedSharding) else ""
            return f"device(type='{self.type}', sharding={shown}{mesh})"
        if self._only:
            return f"device(type='{self.type}')"
        elsewhere = "" if self._process is None else f", process={self._process}"
        return f"device(type='{self.type}', index={self._number}{elsewhere})"

    def __str__(self) -> str:
        if self._several:
            found = devices_of(self.placement)
            if jax.process_count() > 1:  # JAX's numbers, with gaps, would mean nothing
                hosts = len({d.process_index for d in found})
                return f"{self.type}:{len(found)} devices of {hosts} process{'es' if hosts > 1 else ''}"
            numbers = sorted(d.id for d in found)
            run = numbers[-1] - numbers[0] == len(numbers) - 1
            return f"{self.type}:{f'{numbers[0]}-{numbers[-1]}' if run else ','.join(map(str, numbers))}"
        elsewhere = "" if self._process is None else f" of process {self._process}"
        return self.type if self._only else f"{self.type}:{self._number}{elsewhere}"

    @property
    def _only(self) -> bool:
        if self._number is None:  # an absent one
            return True
        return self.type == "cpu" and self._number == 0 and not self._several and self._process is None

    @property
    def _process(self) -> int | None:
        """The number of the process that the device belongs to, if that is another one."""
        process = min(devices_of(self.placement), key=_id_of).process_index
        return None if process == jax.process_index() else process

    @property
    def _several(self) -> bool:
        return len(devices_of(self.placement)) > 1

    def __eq__(self, other: object) -> bool:
        if isinstance(other, str):  # PyTorch: of another type
            return False
        return isinstance(other, device) and devices_of(self.placement) == devices_of(other.placement)

    def __hash__(self) -> int:
        return hash(frozenset(devices_of(self.placement)))

    def __deepcopy__(self, memo: Any) -> "device":
        return self

    def __reduce__(self) -> Any:
        if self._several or self.traced or self._process is not None:
            raise TypeError(f"cannot pickle {self!r}: its devices belong to this process")
        return device, (self.type, self._number), self.chosen

    def __setstate__(self, chosen: bool) -> None:
        fixed(self, "chosen", chosen)

    def __enter__(self) -> "device":
        before = {"place": state.place, "places": state.places}
        state.place, state.places = sharding_of(self), (*state.places, before)
        return self

    __exit__: Any = Leaving()

    def _close(self) -> Callable[[], Any]:
        return map(vars(state).update, map(itemgetter(-1), map(attrgetter("places"), (state,)))).__next__

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return in_block(function, lambda: self)


class Devices(NamedTuple):
    """All devices of a sharding, asked for as `x.device`: an array is sharded likewise if its shape allows it.

    Without a sharding: the devices of the program that is being traced.
    """

    sharding: Sharding | None


def device_of(array: Any) -> device:
    """Return the device of a value."""
    if isinstance(array, Tracer):
        return of_trace()
    where = array.sharding
    if array.committed or len(where.device_set) > 1:
        return device(where)
    return device._made(*where.device_set, traced=False, chosen=False)


def of_trace() -> device:
    """Return the device of a traced tensor."""
    return device._made(placement_of("xla"), True)


def placement_of(spec: Any) -> Any:
    """Return the `jax.Device`, `Sharding` or (for a `device` that is several) `Devices` of a device specification.

    Raises `RuntimeError` for a string that names no device and for a device that JAX does not see, `PlacementError` for
    a `PartitionSpec` outside of `with xgrad.mesh(...)` or with an axis that the mesh lacks.
    """
    if isinstance(spec, device):
        if spec.traced:
            return Devices(None)
        if spec.placement.__class__ is AbsentDevice:
            return placement_of(str(spec))  # which raises, unless the device has come since
        return Devices(spec.placement) if spec._several else spec.placement
    if isinstance(spec, jax.Device):
        return spec
    if isinstance(spec, PartitionSpec):
        return _over_mesh(spec)
    if isinstance(spec, Sharding):
        return _usual(spec)
    if not isinstance(spec, str):
        declared = getattr(spec, "__xgrad_place__", None)
        if declared is not None:
            return declared()
        raise TypeError(
            f"expected a device such as 'cpu', 'gpu:0', a jax.Device, a Sharding or a PartitionSpec, but got {spec!r}"
        )
    name, _, number = spec.partition(":")
    place = registered(name)
    if place is not None and (number or "0") == "0":
        return place.runtime.start()
    if (name not in _PLATFORM and name not in _ELSEWHERE) or not (number.isdigit() or not number):
        known = "".join(f", {other}:0" for other in registered())
        raise RuntimeError(
            f"Invalid device string: '{spec}'; expected cpu, gpu:N, cuda:N, tpu:N or xla:N{known}"
            + ("" if place is None else _told(place))
            + ("" if place is not None else ". A declared backend has its name from Backend.register() on")
        )
    try:
        present = local_devices(_PLATFORM[name])
    except (KeyError, RuntimeError):
        present = []
    if int(number or 0) >= len(present):
        seen = ", ".join(f"{d.type}:{d._number}" for d in devices())
        here = " in this process" if jax.process_count() > 1 else ""
        raise AbsentDeviceError(
            f"device '{spec}' is not available: JAX sees {seen}{here}. `python -m xgrad doctor` says more.",
            name, int(number) if number else None,
        )  # fmt: skip
    if not number and len(present) > 1 and name not in ("cpu", "xla"):
        return present[default_number(present)]  # "cuda" is the GPU of `cuda.set_device`, as in PyTorch
    return present[int(number or 0)]


def _told(place: DeclaredPlace) -> str:
    if place.several:
        return f"; a tensor of the backend '{place.name}' is on {place.name}:0, or sharded"
    return f"; the backend '{place.name}' has one device"


def sharding_of(spec: Any) -> Sharding | Devices:
    """Return the sharding of arrays on a device."""
    where = placement_of(spec)
    return where if isinstance(where, (Sharding, Devices)) else SingleDeviceSharding(where)


def set_default_device(device: Any) -> None:
    """Make new tensors of this thread on `device`, which is whatever a device may be; None: on JAX's default device.

    Tensors that are like another one are where that is.  `from_numpy` copies, so it makes a new one.  For a block:
    `with xgrad.device(...):`.  Raises `RuntimeError` for a device that is not there.

    >>> import xgrad
    >>> xgrad.set_default_device("cpu:0")
    >>> xgrad.get_default_device(), xgrad.zeros(2).device
    (device(type='cpu'), device(type='cpu'))
    >>> xgrad.set_default_device(None)
    """
    state.place = None if device is None else sharding_of(device)


def get_default_device() -> device:
    """Return the device on which new tensors of this thread are made.

    >>> import xgrad
    >>> xgrad.get_default_device()
    device(type='cpu')
    """
    place = state.place
    if place.__class__ is Devices:
        return of_trace() if place.sharding is None else device(place.sharding)
    if place is not None:
        return device(place)
    where = jax.config.jax_default_device or "xla"  # pyright: ignore[reportAttributeAccessIssue] - made at run time
    return device._made(placement_of(where), traced=False, chosen=False)


def default_number(present: list[Any]) -> int:
    """Return the number of the default device among these `jax.Device`s; 0 if it is not one of them."""
    where: Any = state.place
    if where is None:
        where = jax.config.jax_default_device  # pyright: ignore[reportAttributeAccessIssue] - made at run time
    if isinstance(where, Sharding):
        where = _usual(where)
    return present.index(where) if where in present else 0


def _usual(sharding: Sharding) -> Any:
    """Return a sharding in the form in which it is compared: one device as that device, a mesh with `Auto` axes."""
    if isinstance(sharding, SingleDeviceSharding):
        (where,) = sharding.device_set
        return where if sharding.memory_kind in (None, where.default_memory().kind) else sharding
    if isinstance(sharding, NamedSharding) and any(kind != AxisType.Auto for kind in _kinds(sharding.mesh)):
        if not isinstance(sharding.mesh, Mesh):
            raise PlacementError(f"{sharding} is over an abstract mesh, which has no devices")
        return NamedSharding(automatic(sharding.mesh), sharding.spec, memory_kind=sharding.memory_kind)
    return sharding


def is_left_to_jax(spec: Any) -> bool:
    """Return True for the device of a tensor that is not committed, if new tensors are made there now.

    In the trace of a compiled function, which takes all devices that are equal for one, the device is asked for.
    """
    if spec.__class__ is not device or spec.chosen or state.place is not None or state.trace is not None:
        return False
    chosen = jax.config.jax_default_device  # pyright: ignore[reportAttributeAccessIssue] - made at run time
    return spec.placement is (local_devices()[0] if chosen is None else chosen)


def is_default(placement: Any) -> bool:
    """Return True for JAX's default device, if it is the only one of its kind: no array need be committed to it.

    JAX compiles a program again where one operand is committed, and commits the results, parameters at last.
    """
    present = local_devices()
    return (
        len(present) == 1
        and (_usual(placement) if isinstance(placement, Sharding) else placement) is present[0]
        and jax.config.jax_default_device in (None, *present)  # pyright: ignore[reportAttributeAccessIssue]
    )


def same_placement(a: Any, b: Any, ndim: int | None = None) -> bool:
    """Return True if two placements (devices or shardings) put an array on the same devices, in the same way.

    With `ndim`, for an array of so many dimensions: P("i") and P("i", None) are the same then.
    """
    a, b = (_usual(p) if isinstance(p, Sharding) else p for p in (a, b))
    if a is b or a == b:
        return True
    if not (isinstance(a, Sharding) and isinstance(b, Sharding)):
        return devices_of(a) == devices_of(b) and len(devices_of(a)) == 1 and _memory(a) == _memory(b)
    return ndim is not None and a.device_set == b.device_set and a.is_equivalent_to(b, ndim)


def _memory(placement: Any) -> str:
    (where,) = devices_of(placement)
    return getattr(placement, "memory_kind", None) or where.default_memory().kind


def devices_of(placement: Any) -> set[Any]:
    return set(placement.device_set) if isinstance(placement, Sharding) else {placement}


def _id_of(d: Any) -> int:
    return d.id


def _own(d: Any) -> list:
    """Return all devices of its kind that belong to its process."""
    return jax.local_devices(process_index=d.process_index, backend=d.platform)


def layout_of(placement: Any) -> Any:
    """Return the sharding of JAX's that a sharded place of a declared backend has; any other placement as it is."""
    return placement.layout or placement if placement.__class__ is DeclaredPlace else placement


def replicated(sharding: Any) -> Any:
    """Return the sharding that has an array whole on each device of a mesh; of no mesh, the sharding itself."""
    sharding = layout_of(sharding)
    return NamedSharding(sharding.mesh, PartitionSpec()) if isinstance(sharding, NamedSharding) else sharding


def kept(here: Any, placement: Any) -> Any:
    """Return where a tensor at `here` goes that is to have a placement.

    A sharding over devices that compute for its declared backend leaves it on that backend.
    """
    if here.__class__ is DeclaredPlace and placement.__class__ is not DeclaredPlace and here.home.keeps(placement):
        return here.home.laid(placement)
    return placement


def spread(array: Any) -> bool:
    """Return True if this process lacks a part of the values: several processes have them, or another one."""
    if jax.process_count() == 1 or array.is_fully_addressable:
        return False
    return not (array.is_fully_replicated and array.sharding.addressable_devices)


def require_here(array: Any, what: str) -> None:
    """Raise `PlacementError` if `what` cannot read the values in this process."""
    if spread(array):
        raise PlacementError(
            f"{what} needs values that are not all in this process: a tensor of shape {list(array.shape)} on "
            f"{device(array.sharding)}. Reduce it first (each process has the result of x.sum()), or have it whole in "
            "each, xgrad.distributed.full_tensor(x). All processes have to do so, not one alone."
        )


def devices(platform: str | None = None) -> list[device]:
    """Return the devices that JAX sees, as `xgrad.device`s; with several processes, only the devices of this one.

    >>> import xgrad
    >>> len(xgrad.devices()) >= 1
    True
    """
    return [device(d) for d in local_devices(platform)]


def supports_as_strided(array: Any) -> bool:
    """Return True if views on this array's device are tracked by geometry by default.

    A tracer's is the platform for which it is traced.
    """
    if isinstance(array, Tracer):
        return traced_for() in STRIDED
    return any(d.strided if d.__class__ is DeclaredDevice else d.platform in STRIDED for d in array.sharding.device_set)


# -- meshes -----------------------------------------------------------------------------------------------------------


def _kinds(of: Any) -> tuple:
    return tuple(of.axis_types)


def automatic(of: Mesh) -> Mesh:
    """Return the mesh with `Auto` axes: with JAX's `Explicit` ones an operator would need its result's sharding."""
    return of if all(kind == AxisType.Auto for kind in _kinds(of)) else Mesh(of.devices, of.axis_names)


def left_to_xla(array: Any) -> Any:
    """Return an array over a mesh with `Explicit` axes as one with `Auto` ones; any other as it is."""
    where: Any = getattr(array, "sharding", None)
    if where.__class__ is NamedSharding and (usual := _usual(where)) is not where:
        return jax.device_put(array, usual)
    return array


def _over_mesh(spec: PartitionSpec) -> NamedSharding | DeclaredPlace:
    here = state.mesh
    if here is None:
        raise PlacementError(
            f"{spec} names axes of a mesh, and there is none here: use it within `with xgrad.mesh(...)`, for example "
            '`with xgrad.mesh({"data": 8}):`, or give a NamedSharding.'
        )
    here, place = here if isinstance(here, DeclaredMesh) else (here, None)
    seen: set[Any] = set()
    for name in (name for entry in spec for name in _names(entry, spec)):
        if name not in here.shape:
            raise PlacementError(f"{spec} names the axis '{name}', which the mesh {dict(here.shape)} lacks")
        if name in seen:
            raise PlacementError(f"{spec} names the mesh axis '{name}' twice: it can split one dimension only")
        seen.add(name)
    found = NamedSharding(here, spec)
    return found if place is None else place.laid(found)


def _names(entry: Any, spec: Any) -> tuple:
    """Return the mesh axes over which one dimension is split."""
    if entry is PartitionSpec.UNCONSTRAINED:
        raise PlacementError(f"{spec} leaves a dimension unconstrained, which says nothing of where to put an array")
    return () if entry is None else entry if isinstance(entry, tuple) else (entry,)


def settled(placement: Any, shape: tuple[int, ...]) -> Any:
    """Return the placement of an array of this shape: a `jax.Device` or a `Sharding`; None if it stays where it is.

    Raises `PlacementError`, naming dimension and axis, for a shape that does not divide evenly.
    """
    if isinstance(placement, Devices):
        sharding: Any = placement.sharding
        if sharding is None or misfit(sharding, shape) is None:
            return sharding
        whole = replicated(sharding)
        return sharding.home.laid(whole) if sharding.__class__ is DeclaredPlace else whole
    if isinstance(placement, Sharding):
        error = misfit(placement, shape)
        if error is not None:
            raise PlacementError(error)
    return placement


def misfit(sharding: Sharding, shape: tuple[int, ...]) -> str | None:
    """Return why an array of this shape cannot have the sharding; None if it can."""
    sharding = layout_of(sharding)
    if not isinstance(sharding, NamedSharding):
        try:
            sharding.shard_shape(tuple(shape))
        except ValueError as error:
            return str(error)
        return None
    spec, sizes = sharding.spec, sharding.mesh.shape
    if len(spec) > len(shape):
        return f"{spec} speaks of {len(spec)} dimensions, but the tensor has {len(shape)}: its shape is {list(shape)}"
    for d, (n, entry) in enumerate(zip(shape, spec)):
        names = _names(entry, spec)
        parts = prod(sizes[name] for name in names)
        if n % parts:
            axes = " and ".join(f"'{name}' of size {sizes[name]}" for name in names)
            return (
                f"dimension {d} of size {n} is not divisible by mesh {'axis' if len(names) == 1 else 'axes'} {axes}"
                f"{'' if len(names) == 1 else f' ({parts} parts)'}: shape {list(shape)}, {spec}. Pad it, or leave the "
                "dimension whole (None)."
            )
    return None
