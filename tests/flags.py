"""XLA's flags for the tests, in the environment before JAX starts: eight CPU devices, and programs that compile fast.

Compiling takes most of the tests' time, and hardly a program runs twice.  With these flags it takes a third of the CPU
seconds: LLVM's passes are off, kernels have the older emitters, and one module is not split among threads.  Results are
those of other programs, within the tests' tolerances.  XGRAD_TESTS_OPTIMIZE=1 compiles as users do.
"""

import importlib.util
import mmap
import os
from pathlib import Path

# (name, value); jaxlib ends the process for a flag that it does not know
COMPILE_FAST = (("xla_cpu_use_fusion_emitters", "false"), ("xla_cpu_parallel_codegen_split_count", "1"))


def known(name: str) -> bool:
    """Return True if the installed jaxlib has the flag: its library contains the name as a string of its own.

    A flag that is no more, as one in jaxlib 0.12, stays within the descriptions of messages.
    """
    spec = importlib.util.find_spec("jaxlib")
    folder = Path(spec.origin).parent if spec and spec.origin else Path()
    for library in sorted(folder.glob("*.so"), key=lambda path: -path.stat().st_size)[:1]:
        with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return content.find(b"\0" + name.encode() + b"\0") >= 0
    return False


def set_flags() -> None:
    """Put the flags into the environment, whose own take precedence; processes that a test starts inherit them."""
    wanted = [("xla_force_host_platform_device_count", "8")]
    if not os.environ.get("XGRAD_TESTS_OPTIMIZE"):
        os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
        wanted += COMPILE_FAST
    given = os.environ.get("XLA_FLAGS", "")
    flags = [f"--{name}={value}" for name, value in wanted if name not in given and known(name)]
    os.environ["XLA_FLAGS"] = " ".join([given, *flags]).strip()
