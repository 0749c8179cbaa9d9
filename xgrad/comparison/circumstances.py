"""circumstances: collects the versions, devices and date that `xgrad.compare` shows beside its figures."""

import os
import platform
import re
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jax

from ..base.devices import get_default_device, placement_of
from ..cli.requirements import version_of


def circumstances(arrays: Sequence[Any] = (), target: Any = None) -> dict[str, str]:
    """Return versions, the devices of the arrays (else the default one), the target's compiler, and the date."""
    found = {"xgrad": sys.modules["xgrad"].__version__, "jax": jax.__version__, "jaxlib": version_of("jaxlib") or ""}
    default: Any = placement_of(get_default_device())
    devices = {d for array in arrays for d in array.devices()} or {*getattr(default, "behind", (default,))}
    found |= {"python": platform.python_version(), "device": ", ".join(sorted({_kind(d) for d in devices}))}
    if target is not None:
        found |= {"target": target.name, "compiler": target.compiler}
    return found | {"date": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"}


def as_line(found: dict[str, str]) -> str:
    """Return circumstances as one line of text."""
    named = ("xgrad", "jax", "jaxlib", "python")
    return ", ".join(f"{name} {value}" if name in named else value for name, value in found.items())


def _kind(device: Any) -> str:
    """Return the name of a device of JAX's: the processor's of a CPU, with the number that this process may use."""
    if device.platform != "cpu":
        return f"{device.platform} {device.device_kind}"
    name, count = platform.processor() or platform.machine(), os.cpu_count()
    try:
        count = len(os.sched_getaffinity(0))
        model = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(errors="replace"), re.MULTILINE)
        name = model[1] if model else name
    except (OSError, AttributeError):  # not Linux
        pass
    return f"cpu {name}, {count} processors"
