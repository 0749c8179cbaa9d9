"""set_num_threads, use_deterministic_algorithms, ...: PyTorch's settings of the process, here mostly without effect.

JAX owns the threads, and XLA's programs give equal results for equal operands on a CPU and a TPU, so most of these are
kept so that they can be read, and change nothing.  `set_float32_matmul_precision` is JAX's own switch.
(PyTorch: torch/__init__.py, aten/src/ATen/Context.h.)
"""

import os
from typing import Any

import jax

from ..config import settings


class _Kept(dict[str, Any]):
    """The switches' values.  A compiled function may have asked for one that changes."""

    def __setitem__(self, name: str, value: Any) -> None:
        if value != self[name]:
            super().__setitem__(name, value)
            settings.changed()


_kept = _Kept(threads=os.cpu_count() or 1, interop=os.cpu_count() or 1, deterministic=0, precision="highest")

# PyTorch's word → JAX's: of a TPU's three ways to multiply float32, and of an Ampere GPU's two.
_PRECISIONS = {"highest": None, "high": "high", "medium": "default"}


def get_num_threads() -> int:
    """Return the number of cores, or the number that `set_num_threads` got."""
    return int(_kept["threads"])


def set_num_threads(number: int) -> None:
    """Keep a number for `get_num_threads`: XLA's threads are as many as the cores, or as taskset leaves.

    Raises `RuntimeError` for a number below one.
    """
    _kept["threads"] = _positive("set_num_threads", number)


def get_num_interop_threads() -> int:
    """Return the number of cores, or the number that `set_num_interop_threads` got."""
    return int(_kept["interop"])


def set_num_interop_threads(number: int) -> None:
    """Keep a number for `get_num_interop_threads`.  Raises `RuntimeError` for a number below one."""
    _kept["interop"] = _positive("set_num_interop_threads", number)


def _positive(where: str, number: int) -> int:
    if not isinstance(number, int):
        raise TypeError(f"{where} expects an int, but got {type(number).__name__}")
    if number < 1:
        raise RuntimeError(f"{where} expects a positive integer, but got {number}")
    return number


def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """Keep the mode.  XLA is deterministic on CPU and TPU; for a GPU set XLA_FLAGS=--xla_gpu_deterministic_ops=true.

    >>> import xgrad
    >>> xgrad.use_deterministic_algorithms(True, warn_only=True)
    >>> xgrad.are_deterministic_algorithms_enabled(), xgrad.get_deterministic_debug_mode()
    (True, 1)
    >>> xgrad.use_deterministic_algorithms(False)
    """
    _kept["deterministic"] = (1 if warn_only else 2) if mode else 0


def are_deterministic_algorithms_enabled() -> bool:
    """Return True after `use_deterministic_algorithms(True)`."""
    return bool(_kept["deterministic"])


def is_deterministic_algorithms_warn_only_enabled() -> bool:
    """Return True after `use_deterministic_algorithms(True, warn_only=True)`."""
    return _kept["deterministic"] == 1


def set_deterministic_debug_mode(debug_mode: int | str) -> None:
    """Keep a mode: "default", "warn" or "error", or its number.  Raises `RuntimeError` for another."""
    names = ("default", "warn", "error")
    if debug_mode not in (*names, 0, 1, 2):
        raise RuntimeError(f"invalid value of debug_mode, expected one of {names} or its number, but got {debug_mode}")
    _kept["deterministic"] = names.index(debug_mode) if isinstance(debug_mode, str) else debug_mode


def get_deterministic_debug_mode() -> int:
    """Return the number of the mode: 0, 1 (warn) or 2 (error)."""
    return int(_kept["deterministic"])


def set_float32_matmul_precision(precision: str) -> None:
    """Choose how float32 matrices are multiplied where the device has several ways, as TPUs and new GPUs do.

    "highest" is float32, "high" takes three bfloat16 passes or TensorFloat32, "medium" one bfloat16 pass.  On CPUs
    there is one way.  A setting of JAX's (jax_default_matmul_precision), which "high" and "medium" make and "highest"
    leaves unset, comes first.  Raises `RuntimeError` for another word.

    >>> import xgrad
    >>> xgrad.set_float32_matmul_precision("highest")
    >>> xgrad.get_float32_matmul_precision()
    'highest'
    """
    if precision not in _PRECISIONS:
        raise RuntimeError(f"float32 matmul precision is one of {[*_PRECISIONS]}, but got {precision!r}")
    if precision != _kept["precision"]:
        jax.config.update("jax_default_matmul_precision", _PRECISIONS[precision])
    _kept["precision"] = precision


def get_float32_matmul_precision() -> str:
    """Return the word that `set_float32_matmul_precision` got last, "highest" at first."""
    return str(_kept["precision"])


def set_flush_denormal(mode: bool) -> bool:
    """Return False, as PyTorch does where the processor cannot: XLA flushes denormal numbers as the device does."""
    return False
