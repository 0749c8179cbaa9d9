"""The folder of the compile cache, which is JAX's persistent compilation cache, for all programs of the process.

`import xgrad` uses the user's folder, unless XGRAD_COMPILE_CACHE is 0, the program has given JAX a folder of its own,
or the user's cannot be had: then nothing is stored, and `python -m xgrad doctor` says why.

Invariant: only programs that this release of jaxlib compiled on a machine like this one, for this user, are loaded.
JAX's keys identify programs, compiler options and devices; the folder identifies jaxlib, platform and processor, since
compiled code for a CPU may use instructions that another one lacks.  A program whose file is damaged is compiled again.
"""

import contextlib
import hashlib
import os
import platform
import sys
import tempfile
import time
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

import jax
from jax.experimental.compilation_cache import compilation_cache

VARIABLE = "XGRAD_COMPILE_CACHE"
MOST_BYTES = 1 << 30
DAY = 86_400.0
_refused: list[str] = []  # why `import xgrad` could not use the user's folder


class CacheInfo(NamedTuple):
    """The folder, the number of programs in it, and the number of bytes they take."""

    folder: Path
    programs: int
    bytes: int


def enable_compile_cache(folder: str | os.PathLike[str] | None = None, *, most_bytes: int = MOST_BYTES) -> Path:
    """Store compiled programs in a folder, and load those that are there; returns the folder that is used.

    It is a subfolder of `folder`, named after jaxlib, platform and processor; by default of the user's cache folder
    (`$XDG_CACHE_HOME/xgrad` or `~/.cache/xgrad`).  All programs of the process count, JAX's own too, from now on.
    `import xgrad` does so with the default folder, and with the one that the environment variable XGRAD_COMPILE_CACHE
    names; XGRAD_COMPILE_CACHE=0 turns it off.  Programs beyond `most_bytes` are deleted, once a day, those first that
    were used the longest ago.

    Raises `PermissionError` if others could write there: loaded programs are run; `ValueError` for
    a negative `most_bytes`.

    >>> import tempfile, xgrad
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     used = xgrad.enable_compile_cache(folder)
    ...     xgrad.disable_compile_cache()
    >>> used.name.startswith("jaxlib-")
    True
    """
    if most_bytes < 0:
        raise ValueError(f"most_bytes must not be negative, but got {most_bytes}")
    parent = _default() if folder is None else Path(folder).expanduser().resolve()
    used = parent / _kind()
    parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    used.mkdir(mode=0o700, exist_ok=True)
    for place in (parent, used):
        _check_private(place)
    with tempfile.TemporaryFile(dir=used):  # an error now, and not a silent one later
        pass
    _trim_daily(used, most_bytes)
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
    folder = used_folder()
    if folder is None:
        return None
    files = _programs(folder)
    return CacheInfo(folder, len(files), sum(size for _, size, _ in files))


def used_folder() -> Path | None:
    """Return the folder that is used; None while there is none."""
    folder = jax.config.jax_compilation_cache_dir  # pyright: ignore[reportAttributeAccessIssue] - made at run time
    return Path(folder) if folder else None


def enable_as_asked() -> None:
    """Enable the cache as the environment variable says, and by itself where the user's folder can be had."""
    asked = os.environ.get(VARIABLE, "")
    if asked == "0":
        return
    if asked:
        enable_compile_cache(None if asked == "1" else asked)
    elif not jax.config.jax_compilation_cache_dir:  # pyright: ignore[reportAttributeAccessIssue] - made at run time
        try:
            enable_compile_cache()
        except (OSError, RuntimeError) as error:  # a home that is missing, full, not to be written, or not private
            _refused.append(str(error))


def why_off() -> str | None:
    """Return the reason why `import xgrad` could not use the user's folder; None if it did not try."""
    return _refused[0] if _refused else None


def _programs(folder: Path) -> list[tuple[float, int, Path]]:
    """Return (time of the last use, bytes, file) of each stored program.  Other processes may delete them meanwhile."""
    found = []
    for file in folder.glob("*-cache"):
        with contextlib.suppress(OSError):
            info = file.stat()
            found.append((max(info.st_atime, info.st_mtime), info.st_size, file))
    return found


def _trim_daily(folder: Path, most_bytes: int) -> None:
    """Delete the programs that were used the longest ago, until the rest has `most_bytes`; not twice in one day.

    JAX can bound its cache too, with a lock at each program and a package that it does not install.
    """
    marker = folder / "trimmed"
    with contextlib.suppress(OSError):
        if time.time() - marker.stat().st_mtime < DAY:
            return
    with contextlib.suppress(OSError):
        marker.touch()
    programs = sorted(_programs(folder))
    total = sum(size for _, size, _ in programs)
    for _, size, file in programs:
        if total <= most_bytes:
            break
        with contextlib.suppress(OSError):
            file.unlink()
        total -= size


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
