"""The folder of the compile cache, which is JAX's persistent compilation cache, for all programs of the process.

Invariant: only programs that this release of jaxlib compiled on a machine like this one, for this user, are loaded.
JAX's keys identify programs, compiler options and devices; the folder identifies jaxlib, platform and processor, since
compiled code for a CPU may use instructions that another one lacks.  A program whose file is damaged is compiled again.
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
    """The folder, the number of programs in it, and the number of bytes they take."""

    folder: Path
    programs: int
    bytes: int


def enable_compile_cache(folder: str | os.PathLike[str] | None = None) -> Path:
    """Store compiled programs in a folder, and load those that are there; returns the folder that is used.

    It is a subfolder of `folder`, named after jaxlib, platform and processor; by default of the user's cache folder
    (`$XDG_CACHE_HOME/xgrad` or `~/.cache/xgrad`).  All programs of the process count, JAX's own too, from now on.
    Setting XGRAD_COMPILE_CACHE to 1, or to a folder, does so when xgrad is imported.

    Raises `PermissionError` if others could write there: loaded programs are run.

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
    # An eager step is made of small programs: 30 ms to compile, 7 to load.
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    compilation_cache.reset_cache()  # JAX looks for a folder once, at the first program
    return used


def disable_compile_cache() -> None:
    """Neither store nor load compiled programs from now on."""
    jax.config.update("jax_compilation_cache_dir", None)
    compilation_cache.reset_cache()


def compile_cache_info() -> CacheInfo | None:
    """Return the folder that is used, and its size; None while there is none."""
    folder = jax.config.jax_compilation_cache_dir  # pyright: ignore[reportAttributeAccessIssue] - made at run time
    if not folder:
        return None
    files = [f for f in Path(folder).glob("*") if f.name.endswith("-cache") and f.is_file()]
    return CacheInfo(Path(folder), len(files), sum(f.stat().st_size for f in files))


def enable_as_asked() -> None:
    """Enable the cache if the environment variable asks for it."""
    asked = os.environ.get(VARIABLE, "")
    if asked not in ("", "0"):
        enable_compile_cache(None if asked == "1" else asked)


def _default() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "xgrad"


def _kind() -> str:
    """Return a name for jaxlib, platform and processor."""
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
