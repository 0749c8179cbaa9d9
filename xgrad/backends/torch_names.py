"""Makes the modules xgrad.backends.cudnn, mps, mkl, ..., whose switches and functions have no effect here.

XLA picks its kernels itself; but `xgrad.backends.cudnn.benchmark = True` is a line of much PyTorch code.  `_TABLE`
gives each module's switches with their first values, and its functions, marked by "()", with what they return.
(PyTorch: torch/backends.)
"""

import contextlib
from collections.abc import Callable
from platform import machine
from types import ModuleType
from typing import Any

from ..config import settings

_TABLE: dict[str, dict[str, Any]] = {
    "cudnn": {
        "enabled": True, "benchmark": False, "benchmark_limit": 10, "deterministic": False, "allow_tf32": True,
        "is_available()": False, "version()": None, "is_acceptable()": False,
    },
    "cudnn.rnn": {"fp32_precision": "none"},
    "cudnn.conv": {"fp32_precision": "none"},
    "cuda": {
        "is_built()": False, "flash_sdp_enabled()": False, "mem_efficient_sdp_enabled()": False,
        "math_sdp_enabled()": True, "cudnn_sdp_enabled()": False, "enable_flash_sdp()": None,
        "enable_mem_efficient_sdp()": None, "enable_math_sdp()": None, "enable_cudnn_sdp()": None,
        "preferred_linalg_library()": None, "is_flash_attention_available()": False,
    },
    "cuda.matmul": {
        "allow_tf32": False, "allow_fp16_reduced_precision_reduction": True,
        "allow_bf16_reduced_precision_reduction": True, "fp32_precision": "none",
    },
    "cuda.cufft_plan_cache": {"size": 0, "max_size": 0, "clear()": None},
    "mps": {"is_available()": False, "is_built()": False, "is_macos13_or_newer()": False},
    "mkl": {"is_available()": False},
    "mkldnn": {"is_available()": False, "enabled": False, "deterministic": False, "allow_tf32": False},
    "openmp": {"is_available()": False},
    # torchvision resizes images of uint8 as whole numbers then, as interpolate does here
    "cpu": {"get_cpu_capability()": "AVX2" if machine() in ("x86_64", "AMD64") else "DEFAULT"},
    "opt_einsum": {"is_available()": True, "enabled": True, "strategy": "auto"},
    "xeon": {}, "quantized": {"engine": "none", "supported_engines": ["none"]}, "nnpack": {"is_available()": False},
}  # fmt: skip


class Library(ModuleType):
    """The module of a library that XLA does not call through PyTorch's names."""

    @contextlib.contextmanager
    def flags(self, **switches: Any) -> Any:
        """Have other values of the switches within a `with` block."""
        before = {name: getattr(self, name) for name in switches if hasattr(self, name)}
        self.__dict__.update(switches)
        try:
            yield
        finally:
            for name in switches:
                del self.__dict__[name]
            self.__dict__.update(before)

    sdp_kernel = set_flags = flags

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        settings.changed()  # a compiled function may have asked for it

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"{self.__name__} has no attribute {name!r}: XLA picks its kernels without this library")


def _answering(value: Any) -> Callable[..., Any]:
    return lambda *args, **options: value


def _made() -> dict[str, Library]:
    made: dict[str, Library] = {}
    for path, switches in _TABLE.items():
        module = made[path] = Library(f"xgrad.backends.{path}")
        for name, value in switches.items():
            setattr(module, name.removesuffix("()"), _answering(value) if name.endswith("()") else value)
        parent, _, name = path.rpartition(".")
        if parent:
            setattr(made[parent], name, module)
    return {path: module for path, module in made.items() if "." not in path}


LIBRARIES: dict[str, Library] = _made()
