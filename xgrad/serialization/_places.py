"""Places: chooses by `map_location` a device for each storage in a loaded file (PyTorch: `_get_restore_location`)."""

from collections.abc import Mapping
from typing import Any

import jax

from ..base.declared import DeclaredPlace
from ..base.devices import Devices, device, is_left_to_jax, placement_of


class SavedStorage:
    """The argument of a `map_location` function: a storage of the file, which is not on any device yet.

    `cpu()` and `cuda(index)` name one; returning the storage itself means the CPU.
    """

    def __init__(self, nbytes: int) -> None:
        self._nbytes = nbytes

    @property
    def device(self) -> device:
        return device("cpu")

    def nbytes(self) -> int:
        """Return the number of bytes."""
        return self._nbytes

    size = __len__ = nbytes

    def cpu(self) -> str:
        """Return the name of the host."""
        return "cpu"

    def cuda(self, index: int | None = None) -> str:
        """Return the name of a GPU."""
        return "cuda" if index is None else f"cuda:{index}"


class Places:
    """The places of a file's storages."""

    def __init__(self, map_location: Any) -> None:
        self._given = map_location
        self._everywhere: Any = None
        if isinstance(map_location, Mapping):
            self._by_name = {str(key): value for key, value in map_location.items()}
        elif map_location is not None and not _is_function(map_location):
            self._everywhere = _asked(map_location)

    def of(self, saved: str | None, nbytes: int) -> Any:
        """Return the device or sharding for a storage that was saved on the device `saved`; None for the default one.

        Raises `RuntimeError` for a device that does not exist here.
        """
        given = self._given
        if given is None:
            return _as_saved(saved)
        if isinstance(given, Mapping):
            return _asked(self._by_name[saved]) if saved in self._by_name else _as_saved(saved)
        if not _is_function(given):
            return self._everywhere
        storage = SavedStorage(nbytes)
        answer = given(storage, saved or "cpu")
        if answer is None:
            return _as_saved(saved)
        return _asked(device._made(placement_of("cpu"), False, chosen=False) if answer is storage else answer)


def _is_function(given: Any) -> bool:
    """Return True for a function of a storage and its place; a device is callable too, as a decorator."""
    return callable(given) and not isinstance(given, device)


def _asked(spec: Any) -> Any:
    return None if is_left_to_jax(spec) else placement_of(spec)


def _as_saved(saved: str | None) -> Any:
    if saved is None:
        return None
    try:
        return placement_of(saved)
    except RuntimeError as error:
        raise RuntimeError(
            f"the file has tensors that were saved on {saved}: {error} Give load() a map_location, such as "
            "map_location='cpu'."
        ) from None


def name_of(array: Any) -> str | None:
    """Return the name of the device that an array was put on, None if JAX chose or there are several."""
    if not array.committed or len(array.sharding.device_set) > 1:
        return None
    where = device(array.sharding)
    kinds = jax.Device, Devices, DeclaredPlace
    return f"{where.type}:{where.index or 0}" if isinstance(placement_of(where), kinds) else None
