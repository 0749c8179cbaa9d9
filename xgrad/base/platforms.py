"""Prepares JAX's CPU before the first array, and says for which platform (cpu, gpu, tpu) JAX now traces a program.

`traced_for()` returns JAX's default platform or, inside `with tracing_for(platform)`, that one, whose chip need not be
in this machine.  Code that has a program in several versions asks it in the trace.  The block's platform is part of the
key of JAX's caches, so no program that was traced for one platform serves another.  `start()` sets JAX's option for
asynchronous dispatch and, if the CPU represents several devices, the number of its threads.
"""

import functools
import os
import re
from typing import Any

import jax

from ..config import async_dispatch, settings
from .jax_compat import user_context

# The platforms whose devices have strides.  XLA gives them to none of its own, a declared backend may.
STRIDED: set[str] = set()

_of_block: Any = user_context()


@functools.cache
def start() -> None:
    """Choose how JAX's CPU runs programs, before there is a first array; what may make that one calls this.

    The calling thread runs them, if the user has not chosen (`xgrad.config.async_dispatch`).

    A CPU that represents several devices gets threads for all programs that are in flight.  Each device's part of a
    program has a thread of one pool, and waits in it for the other parts.  Programs that wait for each other's threads
    never end: XLA gives up after 40 s, and the process with it (seen on jax 0.7.2 and 0.10.2 with 8 devices on 2
    processors).  JAX lets 32 programs of a device be in flight.

    Without effect once JAX has started.
    """
    if not settings.dispatch_chosen:
        async_dispatch(False)
    asked = re.findall(r"xla_force_host_platform_device_count=(\d+)", os.environ.get("XLA_FLAGS", ""))
    devices = int(asked[-1]) if asked else max(getattr(jax.config, "jax_num_cpu_devices", 1), 1)
    if devices > 1 and "PJRT_NPROC" not in os.environ:
        os.environ["PJRT_NPROC"] = str(32 * devices)
        try:
            jax.devices()  # XLA reads the variable here, and never again
        finally:
            del os.environ["PJRT_NPROC"]


@functools.cache
def default_platform() -> str:
    """Return where JAX computes by default: "cpu", "gpu" or "tpu"."""
    start()
    return jax.default_backend()


def local_devices(platform: str | None = None) -> list[Any]:
    """Return JAX's devices of this process, of a platform or of the default one."""
    start()
    return jax.local_devices(backend=platform)


def traced_for() -> str:
    """Return the platform whose compiler is given what is traced now: "cpu", "gpu" or "tpu"."""
    return _of_block.value or default_platform()


def tracing_for(platform: str) -> Any:
    """Return a block in which traces are made for a platform, whether it is here or not; for this thread."""
    return _of_block(platform)
