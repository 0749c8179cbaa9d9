"""from_dlpack, to_dlpack: share memory with other libraries' arrays, by DLPack (PyTorch: torch/utils/dlpack.py).

Invariant: JAX gets only arrays that it takes as they are.  It would narrow 64-bit numbers while its 64-bit mode is off,
preserve a transposed layout (from 0.8 on), and share memory though a copy was asked for (0.10): so the other library's
description is read first.  The protocol: https://dmlc.github.io/dlpack
"""

import ctypes
from typing import Any

import jax
import numpy as np

from ..base import dtypes
from ..base.devices import same_placement, settled
from ..base.missing import close_namespace as _close_namespace
from ..base.platforms import start
from ..dispatch.call import call
from ..execution.runner import evaluate_held, transferred
from ..ops.create.from_data import _converted, named_place
from ..tensor import Tensor, from_foreign

__all__ = ["from_dlpack", "to_dlpack"]

_CODES = {0: "int", 1: "uint", 2: "float", 5: "complex"}
_WIDE = {d.name for d in dtypes.WIDE}


class _DLTensor(ctypes.Structure):
    """The struct DLTensor of dlpack.h."""

    _fields_ = [
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]  # fmt: skip


_BEFORE_VERSIONED = 32  # bytes of a DLManagedTensorVersioned before its DLTensor: version, two pointers, flags
_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
_name = ctypes.pythonapi.PyCapsule_GetName
_name.restype, _name.argtypes = ctypes.c_char_p, (ctypes.py_object,)


def _described(capsule: Any) -> _DLTensor:
    name = _name(capsule)
    if name not in (b"dltensor", b"dltensor_versioned"):
        raise RuntimeError(
            f"from_dlpack received an invalid capsule ({name!r}): DLTensor capsules can be consumed only once, and "
            "this one has been, unless it never was one"
        )
    return _DLTensor.from_address(_pointer(capsule, name) + _BEFORE_VERSIONED * (name != b"dltensor"))


class _NotContiguousError(Exception):
    pass


class _TooWideError(Exception):
    """The memory has numbers of 64 bits while JAX's 64-bit mode is off."""


class _Looked:
    """A proxy for another library's array, which reads the DLPack description that JAX gets, or NumPy (`by_numpy`)."""

    def __init__(self, source: Any, by_numpy: bool = False) -> None:
        self._source, self._by_numpy = source, by_numpy
        self.address = 0

    def __dlpack__(self, **options: Any) -> Any:
        capsule = self._source if _is_capsule(self._source) else self._source.__dlpack__(**options)
        seen = _described(capsule)
        if self._by_numpy:
            return capsule
        if f"{_CODES.get(seen.code)}{seen.bits}" in _WIDE and not dtypes.x64_enabled():
            raise _TooWideError
        shape = [seen.shape[i] for i in range(seen.ndim)]
        expected = 1
        for i in reversed(range(seen.ndim)):
            if seen.strides and shape[i] != 1 and seen.strides[i] != expected and 0 not in shape:
                raise _NotContiguousError
            expected *= shape[i]
        self.address = (seen.data or 0) + seen.byte_offset
        return capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        if _is_capsule(self._source):
            seen = _described(self._source)
            return seen.device_type, seen.device_id
        return self._source.__dlpack_device__()


def _is_capsule(value: Any) -> bool:
    return type(value).__name__ == "PyCapsule"


def from_dlpack(ext_tensor: Any, *, device: Any = None, copy: bool | None = None) -> Tensor:
    """Return a tensor over the memory of another library's array: an object with `__dlpack__`, or a DLPack capsule.

    copy: False shares the memory or raises `ValueError`, True never shares, None shares if the memory begins at a
    multiple of 64 bytes.  device: the tensor's device; by default it stays where it is.

    xgrad takes shared memory for constant, as JAX does: it never writes to it (the first in-place operation on the
    tensor copies), but if its owner does, the tensor and values saved of it for backward change, without an error.

    Numbers of 64 bits become numbers of 32, in a copy, while JAX's 64-bit mode is off (`xgrad.config.narrow`).  Raises
    `ValueError` for memory that is not contiguous, and the errors of the other library, such as torch's for a tensor
    that requires grad.

    >>> import numpy as np, xgrad
    >>> xgrad.from_dlpack(np.arange(3, dtype=np.int32))
    tensor([0, 1, 2], dtype=xgrad.int32)
    """
    if not hasattr(ext_tensor, "__dlpack__") and not _is_capsule(ext_tensor):
        raise TypeError(f"from_dlpack() needs an object with __dlpack__, but got {type(ext_tensor).__name__}")
    looked = _Looked(ext_tensor)
    start()
    try:
        array = jax.dlpack.from_dlpack(looked)
    except _NotContiguousError:
        raise ValueError(
            "from_dlpack() needs memory that is contiguous, in row-major order: make a contiguous copy first"
        ) from None
    except _TooWideError:
        array = _narrowed(ext_tensor, copy)
    where = settled(named_place(device), array.shape)
    moves = where is not None and not same_placement(where, array.sharding, array.ndim)
    if copy is False and (moves or (array.size and array.unsafe_buffer_pointer() != looked.address)):
        why = "it goes to another device" if moves else "it does not begin at a multiple of 64 bytes"
        raise ValueError(f"from_dlpack() can't share this memory, because {why}: leave copy out")
    tensor = from_foreign(transferred(array, where) if moves else array if device else untied(array))
    if copy:
        tensor = call(_converted.operator, (tensor,), (tensor.dtype,))
        evaluate_held(tensor)  # now, in a lazy block too: the owner of the memory may write to it
    return tensor


def _narrowed(source: Any, copy: bool | None) -> jax.Array:
    if copy is False:
        raise ValueError(
            "from_dlpack() can't share this memory, because its 64-bit numbers become 32-bit numbers while JAX's "
            "64-bit mode is off: leave copy out"
        )
    return jax.numpy.asarray(dtypes.narrowed(np.from_dlpack(_Looked(source, by_numpy=True))))


def untied(array: jax.Array) -> jax.Array:
    """Return an uncommitted CPU array over the same memory, like the arrays of `xgrad.tensor`.

    JAX commits imported arrays to their device, so that they could not be combined with tensors on a mesh.
    """
    (where,) = array.sharding.device_set
    if where.platform != "cpu" or where != (jax.config.jax_default_device or jax.devices()[0]):  # pyright: ignore
        return array
    with jax.ensure_compile_time_eval():
        return jax.device_put(np.asarray(array))


def to_dlpack(tensor: Tensor) -> Any:
    """Return a DLPack capsule over the tensor's memory, which one library can take, once.

    Pass the tensor itself to a `from_dlpack` that takes objects.  The tensor's next in-place operation copies; a write
    to the memory from the other side changes the tensor and values saved of it for backward, without an error.  Raises
    `RuntimeError` for a tensor that requires grad.

    >>> import xgrad
    >>> xgrad.utils.dlpack.from_dlpack(xgrad.utils.dlpack.to_dlpack(xgrad.ones(2)))
    tensor([1., 1.])
    """
    return tensor.__dlpack__()


_close_namespace(__name__)
