"""accelerators: finds the machine's accelerators, whether or not JAX sees them, for `python -m xgrad doctor`.

For each it knows the pip extra that makes JAX see it.  It reads the files that drivers make under /dev and /proc, the
PCI bus under /sys, and the environment of TPU virtual machines.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

_TPU_VARIABLES = ("TPU_ACCELERATOR_TYPE", "TPU_WORKER_ID", "TPU_WORKER_HOSTNAMES", "TPU_NAME", "COLAB_TPU_ADDR")
_TPU_CHIPS = {"0x0027", "0x0056", "0x005e", "0x0062", "0x0063", "0x006f", "0x0076"}  # PCI numbers, v2 to v7
_CUDA_13_DRIVER = 580  # the oldest; for CUDA 12 it is 525


class Accelerator(NamedTuple):
    """An accelerator: its name, JAX's platform, the file or variable that shows it, the command to install its JAX."""

    name: str
    platform: str
    seen: str
    command: str


def accelerators(root: Path = Path("/"), environment: Mapping[str, str] = os.environ) -> list[Accelerator]:
    """Return the machine's accelerators."""
    found = []
    gpus = sorted((root / "dev").glob("nvidia[0-9]*"))
    if gpus or ((root / "dev/dxg").exists() and (root / "usr/lib/wsl/lib/libcuda.so.1").exists()):
        seen = _path(root, gpus[0] if gpus else root / "dev/dxg")
        found.append(Accelerator("an NVIDIA GPU", "gpu", seen, f'pip install "xgrad[{_cuda(root)}]"'))
    if (root / "dev/kfd").exists():
        found.append(Accelerator("an AMD GPU", "gpu", "/dev/kfd", 'pip install "jax[rocm7-local]"'))
    variable = next((name for name in _TPU_VARIABLES if environment.get(name)), None)
    chip = next(iter(sorted((root / "dev").glob("accel[0-9]*"))), None) or _tpu_on_bus(root)
    if variable is not None or chip is not None:
        seen = f"the variable {variable}" if chip is None else _path(root, chip)
        found.append(Accelerator("a TPU", "tpu", seen, 'pip install "xgrad[tpu]"'))
    return found


def _path(root: Path, path: Path) -> str:
    return f"/{path.relative_to(root)}"


def _cuda(root: Path) -> str:
    """Return the extra for the NVIDIA driver: cuda13, or cuda12 if the driver is too old for CUDA 13."""
    try:
        text = (root / "proc/driver/nvidia/version").read_text()
    except OSError:
        return "cuda13"
    version = re.search(r"\s(\d{3})\.\d+", text)
    return "cuda12" if version and int(version[1]) < _CUDA_13_DRIVER else "cuda13"


def _tpu_on_bus(root: Path) -> Path | None:
    for device in sorted((root / "sys/bus/pci/devices").glob("*")):
        try:
            vendor, chip = ((device / name).read_text().strip() for name in ("vendor", "device"))
        except OSError:
            continue
        if vendor == "0x1ae0" and chip in _TPU_CHIPS:
            return device
    return None
