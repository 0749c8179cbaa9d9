"""The folder of the compile cache, which is JAX's persistent compilation cache, for all programs of the process.

Invariant: only what this release of jaxlib compiled on a machine like this one, for this user, is loaded.  JAX's keys
tell programs, compiler options and devices apart; the folder tells jaxlib, platform and processor apart, since compiled
code for a CPU may use instructions that another one lacks.  A file that cannot be read is compiled anew.
"""

import hashlib
import os
import platform
import sys
import tempfile
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

import jax
from jax.experimental.compilation_cache import compilation_cache

VARIABLE = "XGRAD_COMPILE_CACHE"


class CacheInfo(NamedTuple):
    """The folder, how many programs are in it, and how many bytes they take."""

    folder: Path
    programs: int
    bytes: int


def enable_compile_cache(folder: str | os.PathLike | None = None) -> Path:
    """Keep compiled programs in a folder, and load those that are there; returns the folder that is used.

    It is a subfolder of `folder`, named after jaxlib, platform and processor; by default of the user's cache folder
    (`$XDG_CACHE_HOME/xgrad` or `~/.cache/xgrad`).  All programs of the process count, JAX's own too, from now on.
    Setting XGRAD_COMPILE_CACHE to 1, or to a folder, does so when xgrad is imported.

    Raises `PermissionError` if others could write there: what is loaded is run.

    >>> import tempfile, xgrad
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     used = xgrad.enable_compile_cache(folder)
    ...     xgrad.disable_compile_cache()
    >>> used.name.startswith("jaxlib-")
    True
    """
    parent = _default() if folder is None else Path(folder).expanduser().resolve()
    used = parent / _kind()
    parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    used.mkdir(mode=0o700, exist_ok=True)
    for place in (parent, used):
        _check_private(place)
    with tempfile.TemporaryFile(dir=used):  # an error now, and not a silent one later
        pass
    jax.config.update("jax_compilation_cache_dir", str(used))
    # Small programs are what an eager step is made of: 30 ms to compile, 7 to load.
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    compilation_cache.reset_cache()  # JAX looks for a folder once, at the first program
    return used


def disable_compile_cache() -> None:
    """Neither keep nor load compiled programs from now on."""
    jax.config.update("jax_compilation_cache_dir", None)
    compilation_cache.reset_cache()


def compile_cache_info() -> CacheInfo | None:
    """The folder that is used, and what is in it; None while there is none."""
    folder = jax.config.jax_compilation_cache_dir  # pyright: ignore[reportAttributeAccessIssue] - made at run time
    if not folder:
        return None
    files = [f for f in Path(folder).glob("*") if f.name.endswith("-cache") and f.is_file()]
    return CacheInfo(Path(folder), len(files), sum(f.stat().st_size for f in files))


def enable_as_asked() -> None:
    """What the environment variable says."""
    asked = os.environ.get(VARIABLE, "")
    if asked not in ("", "0"):
        enable_compile_cache(None if asked == "1" else asked)


def _default() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "xgrad"


def _kind() -> str:
    """A name for jaxlib, platform and processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        processor = sorted({line for line in lines if line.startswith(("flags", "Features", "model name"))})
    except OSError:  # not Linux
        processor = [platform.processor()]
    mark = hashlib.sha256("\n".join(processor).encode()).hexdigest()[:12]
    return f"jaxlib-{metadata.version('jaxlib')}-{sys.platform}-{platform.machine()}-{mark}"


def _check_private(folder: Path) -> None:
    if hasattr(os, "getuid"):
        found = folder.stat()
        if found.st_uid not in (os.getuid(), 0) or found.st_mode & 0o022:
            raise PermissionError(
                f"the compile cache holds programs that are run, and others may write to {folder}: give a folder that "
                "only you can write to (chmod go-w)"
            )
