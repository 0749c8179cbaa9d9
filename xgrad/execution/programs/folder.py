"""xgrad's compile cache: stores its compiled programs on disk, by JAX's persistent cache, in a folder of its own.

xgrad's first program switches it on, in the user's folder, unless XGRAD_COMPILE_CACHE is 0, somebody has given JAX a
folder, or the user's cannot be used: then xgrad stores nothing, and `python -m xgrad doctor` says why.

JAX has one folder for a process; other packages' programs are not stored in this one (`jax_compat.OwnPrograms`).  If
somebody gives JAX another folder later, the cache is theirs from the next program on, as if xgrad had not been there.

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
import threading
import time
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import jax
from jax.experimental.compilation_cache import compilation_cache

from ...base.jax_compat import ENABLED, LEAST_TIME, SOUGHT, XLA_CACHES, OwnPrograms, xgrad_compiles
from ...config import block

VARIABLE = "XGRAD_COMPILE_CACHE"
MOST_BYTES = 1 << 30
DAY = 86_400.0
_refused: list[str] = []  # why the user's folder could not be used


class _Cache:
    wanted = False  # True until the first program, if it is to switch the cache on
    asked: Path | None = None  # the folder that the environment variable names
    used: str | None = None  # the folder that xgrad gave JAX
    xla_caches = ""  # the caches that XLA would have had in there
    off: tuple[Any, ...] = ()  # for each block `cache_off` that is open
    enabled = True  # JAX's setting before the first of them
    lock: Any = threading.RLock()


_cache = _Cache()


class CacheInfo(NamedTuple):
    """The folder, the number of programs in it, and the number of bytes they take."""

    folder: Path
    programs: int
    bytes: int


def enable_compile_cache(folder: str | os.PathLike[str] | None = None, *, most_bytes: int = MOST_BYTES) -> Path:
    """Store compiled programs in a folder, and load those that are there; returns the folder that is used.

    It is a subfolder of `folder`, named after jaxlib, platform and processor; by default of the user's cache folder
    (`$XDG_CACHE_HOME/xgrad` or `~/.cache/xgrad`).  Programs that xgrad calls are stored, and no other ones of the
    process, from now on; a folder that JAX had until now is used no longer.  xgrad's first program does so with the
    default folder, or the one that the environment variable XGRAD_COMPILE_CACHE names, if JAX has none;
    XGRAD_COMPILE_CACHE=0 turns it off.  Programs beyond `most_bytes` are deleted, once a day, those first that were
    used the longest ago.

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
    used = _made(folder, most_bytes)
    _use(used)
    return used


def _made(folder: str | os.PathLike[str] | None, most_bytes: int) -> Path:
    """Make the folder, where it is not there, and return it."""
    parent = _default() if folder is None else Path(folder).expanduser().resolve()
    used = parent / _kind()
    parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    used.mkdir(mode=0o700, exist_ok=True)
    for place in (parent, used):
        check_private(place.stat(), place, "give a folder that only you can write to")
    with tempfile.TemporaryFile(dir=used):  # an error now, and not a silent one later
        pass
    _trim_daily(used, most_bytes)
    return used


def _use(folder: Path | None) -> None:
    """Have JAX store and load xgrad's programs in a folder, or let it have no folder."""
    _cache.wanted, _cache.used = False, None  # while it changes, other threads' programs do not look whose it is
    used = None if folder is None else str(folder)
    _set_for(folder is not None)
    jax.config.update("jax_compilation_cache_dir", used)
    _cache.used = used
    compilation_cache.reset_cache()  # JAX looks for a folder until it has found one


def _set_for(own: bool) -> None:
    """Set JAX's settings for xgrad's own folder, or as they were before.

    JAX would give XLA caches of its own in there, on a GPU, on every platform with their path in the keys of programs:
    these would be found in no other folder.
    """
    least, caches = float(jax.config.values[LEAST_TIME]), jax.config.values.get(XLA_CACHES)
    jax.config.update(LEAST_TIME, OwnPrograms(least) if own else least)
    if own and caches:
        _cache.xla_caches = caches
        jax.config.update(XLA_CACHES, "")
    elif not own and caches == "" and _cache.xla_caches:
        jax.config.update(XLA_CACHES, _cache.xla_caches)
        _cache.xla_caches = ""


def _sought(event: str, **_: Any) -> None:
    """Switch the cache on for xgrad's first program; leave it to whoever has given JAX another folder since."""
    if event != SOUGHT:
        return
    if _cache.used is not None and _cache.used != _folder_of_jax():
        _cache.used = None
        _set_for(False)
        compilation_cache.reset_cache()
    elif _cache.wanted and xgrad_compiles():
        _enable_if_wanted()


def _enable_if_wanted() -> None:
    """Use the folder that the environment asks for, or the user's where it can be had, if JAX has none."""
    if not _cache.wanted:
        return
    _cache.wanted = False
    if not _folder_of_jax():
        try:
            _use(_cache.asked or _made(None, MOST_BYTES))
        except (OSError, RuntimeError) as error:  # a home that is missing, full, not to be written, or not private
            _refused.append(str(error))


def disable_compile_cache() -> None:
    """Neither store nor load compiled programs from now on."""
    _use(None)


@block
def cache_off() -> Iterator[None]:
    """A block in which programs are neither stored nor loaded, in no thread, whoever gave JAX the folder."""
    own = object()
    try:
        with _cache.lock:
            if not _cache.off:  # else another thread is in such a block
                _cache.enabled = bool(jax.config.values[ENABLED])
            _cache.off = (*_cache.off, own)
            _set_enabled(False)
        yield
    finally:
        try:
            _leave(own)
        except BaseException:  # an interrupt
            _leave(own)
            raise


def _leave(own: Any) -> None:
    """End a block `cache_off`, wherever an interrupt has left it.  May be repeated."""
    with _cache.lock:
        others = tuple([block for block in _cache.off if block is not own])
        if not others and _cache.off:
            _set_enabled(_cache.enabled)
        _cache.off = others


def _set_enabled(value: bool) -> None:
    if jax.config.values[ENABLED] != value:
        jax.config.update(ENABLED, value)
        compilation_cache.reset_cache()  # JAX looks at the setting until it has found it once


def _folder_of_jax() -> str | None:
    return jax.config.jax_compilation_cache_dir  # pyright: ignore[reportAttributeAccessIssue] - made at run time


def compile_cache_info() -> CacheInfo | None:
    """Return the folder that is used, and its size; None while there is none."""
    folder = used_folder()
    if folder is None:
        return None
    files = programs_in(folder)
    return CacheInfo(folder, len(files), sum(size for _, size, _ in files))


def used_folder() -> Path | None:
    """Return the folder that is used, from the first program on; None if there is none."""
    _enable_if_wanted()
    folder = _folder_of_jax()
    return Path(folder) if folder else None


def folder_is_own() -> bool:
    """Return True if xgrad gave JAX the folder: then there are xgrad's programs only in it."""
    return _cache.used is not None and _cache.used == _folder_of_jax()


def enable_as_asked() -> None:
    """Have the first program enable the cache, as the environment variable says."""
    asked = os.environ.get(VARIABLE, "")
    _cache.wanted = asked != "0"
    if asked not in ("", "0", "1"):
        _cache.asked = _made(asked, MOST_BYTES)
    jax.monitoring.register_event_listener(_sought)


def why_off() -> str | None:
    """Return the reason why the user's folder could not be used; None if it was not tried."""
    return _refused[0] if _refused else None


def programs_in(folder: Path) -> list[tuple[float, int, Path]]:
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
    programs = sorted(programs_in(folder))
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


def check_private(found: os.stat_result, place: Any, instead: str) -> None:
    """Raise `PermissionError` if others could write to a place."""
    if hasattr(os, "getuid") and (found.st_uid not in (os.getuid(), 0) or found.st_mode & 0o022):
        raise PermissionError(
            f"the compile cache holds programs that are run, and others may write to {place}: {instead} (chmod go-w)"
        )
