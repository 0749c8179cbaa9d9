"""Adds a backend's names at `register()`: for "npu" `Tensor.npu()`, `Tensor.is_npu`, `Module.npu()` and `xgrad.npu`.

`take` removes these names when the backend is unregistered.  A name that is there already stays what it is.
PyTorch adds them by `torch.utils.rename_privateuse1_backend` and `generate_methods_for_privateuse1_backend`
(torch/utils/backend_registration.py).
"""

import sys
from typing import Any

from ..base.declared import DeclaredPlace, registered
from ..base.devices import device as device_of
from ..base.devices import set_default_device
from ..config import state
from ..nn.module import Module
from ..random import get_rng_state, manual_seed, set_rng_state
from ..tensor import Tensor
from .streams import Event, Stream, synchronize


class DeviceModule:
    """The functions of `torch.cuda` for one backend: `xgrad.npu` for "npu", and `torch.npu` under `as_torch()`."""

    def __init__(self, backend: Any) -> None:
        self.__name__ = f"xgrad.{backend.name}"
        self._backend = backend
        self._default: Stream | None = None
        self.Stream = lambda device=None, priority=0: Stream(backend, priority=priority)
        self.Event = lambda enable_timing=False, **options: Event(backend, enable_timing=enable_timing, **options)

    def __repr__(self) -> str:
        return f"<device module '{self.__name__}'>"

    def is_available(self) -> bool:
        """Return True while the backend is registered."""
        return registered(self._backend.name) is self._backend._runtime.place

    is_initialized = is_available

    def is_bf16_supported(self, *args: Any) -> bool:
        """Return True if the backend computes in bfloat16."""
        return self._backend.dtypes is None or "bfloat16" in self._backend.dtypes

    def device_count(self) -> int:
        """Return the number of its devices."""
        return len(self._backend._runtime.place.behind)

    def current_device(self) -> int:
        """Return 0: tensors are made on the first one."""
        return 0

    def set_device(self, device: Any) -> None:
        """Make new tensors of this thread on the backend."""
        set_default_device(self._backend)

    def device(self, device: Any = None) -> Any:
        """Return a block in which new tensors are made on the backend."""
        return self._backend.activate()

    def get_device_name(self, device: Any = None) -> str:
        """Return the name."""
        return self._backend.name

    def synchronize(self, device: Any = None) -> None:
        """Run what waits in this thread; with a Cost the simulated host waits for all."""
        synchronize(self._backend._runtime)

    def stream(self, stream: Any) -> Any:
        """Return the stream, which is a block."""
        return stream

    def current_stream(self, device: Any = None) -> Stream:
        """Return the stream of this thread's innermost block, else the default one."""
        stream = state.stream
        return stream if stream is not None and stream.of(self._backend._runtime) else self.default_stream()

    def default_stream(self, device: Any = None) -> Stream:
        """Return the stream of what runs outside of all blocks; its number is 0."""
        stream = self._default
        if stream is None:
            stream = self._default = Stream(self._backend)
            stream.number = 0
        return stream

    def empty_cache(self) -> None:
        """Do nothing: what is not alive takes no memory."""

    def memory_allocated(self, device: Any = None) -> int:
        """Return the bytes of what is alive, on the fullest device."""
        return self._backend._runtime.memory.used

    memory_reserved = memory_allocated

    def max_memory_allocated(self, device: Any = None) -> int:
        """Return the most bytes that were alive at one time."""
        return self._backend._runtime.memory.peak

    def reset_peak_memory_stats(self, device: Any = None) -> None:
        """Begin to look for the most anew."""
        memory = self._backend._runtime.memory
        memory.peak = memory.used

    def manual_seed(self, seed: int) -> None:
        """Seed the default generator: one generator serves all devices."""
        manual_seed(seed)

    manual_seed_all = manual_seed

    def get_rng_state(self, device: Any = None) -> Tensor:
        """Return the state of the default generator."""
        return get_rng_state()

    def set_rng_state(self, new_state: Tensor, device: Any = None) -> None:
        """Set the state of the default generator."""
        set_rng_state(new_state)

    def get_amp_supported_dtype(self) -> list[Any]:
        """Return the dtypes of autocast."""
        xgrad: Any = sys.modules["xgrad"]
        return [xgrad.bfloat16, xgrad.float16]


_given: dict[DeclaredPlace, list[tuple[Any, str]]] = {}  # by a registered place: the names that it has added


def give(backend: Any, place: DeclaredPlace) -> None:
    """Add the names of a backend that is registered now."""
    if place in _given:
        return
    name = backend.name

    def move(self: Any, device: Any = None, non_blocking: bool = False, memory_format: Any = None) -> Any:
        where = backend if device is None or device.__class__ is int else device_of(device)
        return self.to(where)

    def is_on(self: Tensor) -> bool:
        return self.device.type == name

    move.__name__, move.__qualname__ = name, f"Tensor.{name}"
    move.__doc__ = f"The tensor, or the module's parameters and buffers, on the backend '{name}'."
    place.runtime.module = module = DeviceModule(backend)
    added = _given[place] = []
    for owner, attribute, value in (
        (Tensor, name, move), (Tensor, f"is_{name}", property(is_on)), (Module, name, move),
        (sys.modules["xgrad"], name, module),
    ):  # fmt: skip
        if not hasattr(owner, attribute):
            setattr(owner, attribute, value)
            added.append((owner, attribute))


def take(place: DeclaredPlace) -> None:
    """Remove the names that `give` has added."""
    for owner, attribute in _given.pop(place, ()):
        delattr(owner, attribute)
