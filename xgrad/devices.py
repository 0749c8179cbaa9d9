"""Where a tensor is: PyTorch's device strings over `jax.Device` and `jax.sharding.Sharding`.

`"cpu"`, `"gpu:0"` or `"cuda:0"`, `"tpu:3"`, `"xla"` (the default device), a `jax.Device`, or a multi-device
`jax.sharding.Sharding` are accepted wherever a device is.  Movement is `jax.device_put`.
Invariant: an unknown or absent device is an error at the call, before anything moves.
"""

from typing import Any

import jax
from jax.sharding import Sharding, SingleDeviceSharding

_PLATFORM = {"cuda": "gpu", "gpu": "gpu", "cpu": "cpu", "tpu": "tpu", "xla": None}  # None: JAX's default


class device:
    """A place for tensors: `type` ("cpu", "cuda", "tpu") and `index`, as in PyTorch, and the `jax` placement behind it.

    >>> import xgrad
    >>> xgrad.device("cpu").type
    'cpu'
    """

    __slots__ = ("index", "placement", "type")

    def __init__(self, spec: Any, index: int | None = None) -> None:
        if index is not None:
            spec = f"{spec}:{index}"
        self.placement = placement_of(spec)
        first = next(iter(self.placement.device_set)) if isinstance(self.placement, Sharding) else self.placement
        self.type = "cuda" if first.platform in ("gpu", "cuda", "rocm") else first.platform
        self.index = jax.devices(first.platform).index(first)

    def __repr__(self) -> str:
        return f"device(type='{self.type}')" if self._only else f"device(type='{self.type}', index={self.index})"

    def __str__(self) -> str:
        return self.type if self._only else f"{self.type}:{self.index}"

    @property
    def _only(self) -> bool:
        return self.type == "cpu" and self.index == 0

    def __eq__(self, other: object) -> bool:
        if isinstance(other, str):  # PyTorch: of another type
            return False
        return isinstance(other, device) and same_placement(self.placement, other.placement)

    def __hash__(self) -> int:
        return hash(frozenset(devices_of(self.placement)))


def placement_of(spec: Any) -> Any:
    """The `jax.Device` or `Sharding` that a device specification means.

    Raises `RuntimeError` for a string that names no device and for a device that JAX does not see.
    """
    if isinstance(spec, device):
        return spec.placement
    if isinstance(spec, (jax.Device, Sharding)):
        return spec.device_set.copy().pop() if isinstance(spec, SingleDeviceSharding) else spec
    if not isinstance(spec, str):
        raise TypeError(f"expected a device such as 'cpu', 'gpu:0', a jax.Device or a Sharding, but got {spec!r}")
    name, _, number = spec.partition(":")
    if name not in _PLATFORM or not (number.isdigit() or not number):
        raise RuntimeError(f"Invalid device string: '{spec}'; expected cpu, gpu:N, cuda:N, tpu:N or xla:N")
    try:
        present = jax.devices(_PLATFORM[name])
    except RuntimeError:
        present = []
    if int(number or 0) >= len(present):
        seen = ", ".join(f"{d.type}:{d.index}" for d in devices())
        raise RuntimeError(f"device '{spec}' is not available: JAX sees {seen}. `python -m xgrad doctor` says more.")
    return present[int(number or 0)]


def same_placement(a: Any, b: Any) -> bool:
    """Whether two placements (devices or shardings) put an array on the same device or devices."""
    if a is b or a == b:
        return True
    return devices_of(a) == devices_of(b) and len(devices_of(a)) == 1


def devices_of(placement: Any) -> set:
    return set(placement.device_set) if isinstance(placement, Sharding) else {placement}


def devices(platform: str | None = None) -> list[device]:
    """The devices that JAX sees, as `xgrad.device`s.

    >>> import xgrad
    >>> len(xgrad.devices()) >= 1
    True
    """
    return [device(d) for d in (jax.devices(platform) if platform else jax.devices())]


def supports_as_strided(array: Any) -> bool:
    """Whether views on this array's device are tracked by geometry unless the user says otherwise.

    XLA has no strides on any of its devices, so none declares the capability today.
    """
    return False
