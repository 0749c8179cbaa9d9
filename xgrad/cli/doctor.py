"""`python -m xgrad doctor`: say what is installed and what clashes, and which devices JAX sees.

Also their memory, whether writes are in place, and whether a first gradient is right; for each problem, the command
that mends it.  Exits with 1 if xgrad cannot work.
"""

import argparse
import importlib
import os
import platform
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import xgrad

from ..base.jax_compat import CANARIES, changed
from ..base.platforms import default_platform, start
from ..chips import target
from ..chips.names import CHIPS
from ..compile_cache import folder_is_own, why_off
from ..execution.references import is_deleted
from . import rich_table
from .accelerators import accelerators
from .requirements import LIBRARIES, NEEDED, PLUGINS, clashes, version_of

_EXTRAS = {
    "demo": ("matplotlib", "optax", "rich", "scikit-learn", "tqdm"),
    "viz": ("graphviz", "matplotlib"),
    "notebooks": ("ipykernel", "jupytext", "nbconvert"),
}
_ASKED = {"gpu": {"gpu", "cuda", "rocm"}, "tpu": {"tpu"}}  # the names that JAX_PLATFORMS has for a kind
_CLASH = "clash"  # a finding that should be mended, though xgrad works


class Finding(NamedTuple):
    """A line of the report: right (True), wrong (False), a clash, or information (None); the command that mends it."""

    state: bool | str | None
    line: str
    command: str | None = None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    rich_table.add_argument(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print one line for each finding; return 1 if a finding is wrong, else 0."""
    count: Counter[bool | str | None] = Counter()
    found = _counted(findings(), count)
    if arguments.rich:
        rich_table.show(arguments.parser, ("", ""), map(_cells, found))
    else:
        for finding in found:
            _print(finding)
    wrong, clashing = count[False], count[_CLASH]
    if wrong:
        print(f"{wrong} thing{'s are' if wrong > 1 else ' is'} wrong")
    elif clashing:
        print(f"xgrad works; {clashing} thing{'s' if clashing > 1 else ''} around it should be mended")
    else:
        print("all is well")
    return int(wrong > 0)


def findings() -> Iterator[Finding]:
    """Yield the findings of all checks; an exception of any type is one."""
    seen = set()
    checks = installed, fitting, libraries, devices, hidden, targets, settings, caches, insides, donation, gradients
    for check in checks:
        try:
            yield from (Finding(*found) for found in check())
        except Exception as error:
            text = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
            if text not in seen:  # a backend that cannot start fails each check
                seen.add(text)
                yield Finding(False, f"{check.__name__}: {text}", _after(error))


def _counted(found: Iterator[Finding], count: Counter) -> Iterator[Finding]:
    for finding in found:
        count[finding.state] += 1
        yield finding


_MARKS = {True: ("ok", "green"), False: ("WRONG", "bold red"), _CLASH: ("clash", "yellow"), None: ("", "")}


def _print(found: Finding) -> None:
    print(f"{_MARKS[found.state][0]:<5}  {found.line}")
    if found.command:
        print(f"{'':<5}  mend: {found.command}")


def _cells(found: Finding) -> list[rich_table.Cell]:
    return [_MARKS[found.state], (found.line + (f"\nmend: {found.command}" if found.command else ""), "")]


def _after(error: Exception) -> str | None:
    """Return a command to try after an error of JAX's, or None."""
    chosen = os.environ.get("JAX_PLATFORMS")
    if isinstance(error, RuntimeError) and "initialize backend" in str(error) and chosen:
        return f"unset JAX_PLATFORMS   (it is {chosen}, and JAX looks for nothing else)"
    return None


def installed() -> Iterator[Finding]:
    yield Finding(
        True,
        f"xgrad {xgrad.__version__}, Python {platform.python_version()} on {platform.system()} {platform.machine()}",
    )
    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        yield Finding(None, "a free-threaded Python: writes copy, because reference counts cannot be trusted")
    for package in (*NEEDED, *PLUGINS):
        if (version := version_of(package)) is not None:
            yield Finding(True, f"{package} {version}")
    for extra, packages in _EXTRAS.items():
        missing = [p for p in packages if version_of(p) is None]
        told = f'lacks {", ".join(missing)}: pip install "xgrad[{extra}]"' if missing else "is complete"
        yield Finding(None, f"optional: [{extra}] {told}")


def fitting() -> Iterator[Finding]:
    """Yield the versions that do not fit together."""
    # On a machine without a TPU, libtpu may be installed and is not used.
    ours = [p for p in PLUGINS if p != "libtpu" or any(a.platform == "tpu" for a in accelerators())]
    found = list(clashes(ours))
    for clash in found:
        yield Finding(False if clash.fatal else _CLASH, clash.what, clash.command)
    if not found:
        yield Finding(True, "the versions of these, and of the libraries below, fit together")


def libraries() -> Iterator[Finding]:
    """Yield for each library that xgrad.interop supports: installed or not, and importable or not."""
    absent = []
    for package, (extra, module) in LIBRARIES.items():
        version = version_of(package)
        if version is None:
            absent.append(extra)
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # a library's own deprecations are not xgrad's
                importlib.import_module(module)
        except Exception as error:
            reason = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
            yield Finding(
                _CLASH,
                f"{package} {version} cannot be imported: {reason}",
                f'pip install --upgrade {package} "jax=={version_of("jax")}"',
            )
        else:
            yield Finding(None, f"optional: {package} {version}")
    if absent:
        yield Finding(None, f'optional: no {", ".join(absent)}: pip install "xgrad[{",".join(absent)}]"')
    if (version := version_of("torch")) is not None:
        yield Finding(None, f"optional: torch {version}, for xgrad.interop.torch")


def devices() -> Iterator[Finding]:
    start()
    seen = jax.devices()
    for device in seen:
        yield Finding(True, f"{xgrad.device(device)}: {device.device_kind}{_memory(device)}")
    asked = os.environ.get("JAX_PLATFORMS")
    yield Finding(
        None,
        f"the platform is {default_platform()}, the default device {xgrad.device('xla')}; {len(seen)} in all"
        + (f", JAX_PLATFORMS={asked}" if asked else ""),
    )
    if default_platform() == "cpu" and (total := _host_memory("MemTotal")):
        free = _host_memory("MemAvailable")
        yield Finding(None, f"memory of the host: {_size(total)}" + (f", {_size(free)} available" if free else ""))
    x64 = jax.numpy.asarray(0.0, dtype=float).dtype == "float64"
    how = "enabled" if x64 else 'off: jax.config.update("jax_enable_x64", True) allows float64 and int64'
    yield Finding(None, f"x64 is {how}")
    word = xgrad.get_float32_matmul_precision()
    asked = jax.config.jax_default_matmul_precision  # pyright: ignore[reportAttributeAccessIssue] - made at run time
    yield Finding(None, f"products of float32: {word}" + (f", jax_default_matmul_precision={asked}" if asked else ""))


def _memory(device: Any) -> str:
    """Return the text of the device's memory limit and use; empty if it reports no limit, as a CPU does."""
    try:
        told = device.memory_stats() or {}
    except (NotImplementedError, RuntimeError):  # some plugins raise if they have no statistics
        return ""
    limit, used = told.get("bytes_limit"), told.get("bytes_in_use")
    if not limit:
        return ""
    return f", {_size(limit)} for JAX" + ("" if used is None else f", {_size(used)} in use")


def _host_memory(entry: str) -> int | None:
    try:
        with open("/proc/meminfo") as lines:
            kilobytes = next(int(line.split()[1]) for line in lines if line.startswith(f"{entry}:"))
    except (OSError, StopIteration):
        return None
    return 1024 * kilobytes


def _size(count: int) -> str:
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{count / 2**20:.0f} MiB"


def hidden() -> Iterator[Finding]:
    """Yield the machine's accelerators that JAX does not see."""
    seen = {"gpu" if d.platform in ("cuda", "rocm") else d.platform for d in jax.devices()}
    asked = os.environ.get("JAX_PLATFORMS")
    for name, kind, where, command in accelerators():
        if kind in seen:
            continue
        there = f"{name} is in this machine ({where}), and JAX does not see it"
        plugin = next((p for p in PLUGINS if version_of(p) and ("tpu" in p) == (kind == "tpu")), None)
        if asked and not {*asked.split(",")} & _ASKED[kind]:
            yield Finding(None, f"{there}: JAX_PLATFORMS={asked} asks for others alone")
        elif plugin is None:
            yield Finding(_CLASH, f"{there}: JAX's plugin for it is not installed", command)
        elif kind == "gpu" and os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1"):
            yield Finding(_CLASH, f"{there}: CUDA_VISIBLE_DEVICES hides it", "unset CUDA_VISIBLE_DEVICES")
        else:
            platform_name = "cuda" if "cuda" in plugin else "rocm" if "rocm" in plugin else "tpu"
            yield Finding(
                _CLASH,
                f"{there}, though {plugin} {version_of(plugin)} is installed; this says why:",
                f'JAX_PLATFORMS={platform_name} python -c "import jax; jax.devices()"',
            )


def targets() -> Iterator[Finding]:
    """Yield the chips that programs can be compiled for on any machine.  No compiler is loaded."""
    for kind in dict.fromkeys(chip.platform for chip in CHIPS.values()):
        names = [name for name, chip in CHIPS.items() if chip.platform == kind]
        one = target(names[0])
        yield Finding(None, f"targets {', '.join(names)}: {one.missing or f'compiled for by {one.compiler}'}")


def settings() -> Iterator[Finding]:
    """Yield the settings of JAX and XLA that xgrad changes for the whole process, at its first tensor."""
    asynchronous = jax.config.values.get("jax_cpu_enable_async_dispatch")  # None: this JAX has no such option
    if default_platform() == "cpu" and asynchronous is not None:
        where, other = ("a thread of JAX's", False) if asynchronous else ("the calling thread", True)
        why = "" if asynchronous else ", which takes 0.6 of the time of small eager operators"
        how = f"xgrad.config.async_dispatch({other}) before the first tensor changes it"
        yield Finding(None, f"programs of the CPU run in {where}{why}; {how}")


def caches() -> Iterator[Finding]:
    info = xgrad.compile_cache_info()
    if info is None:
        why = f" ({reason})" if (reason := why_off()) else ""
        yield Finding(None, f"compile cache: off{why}; XGRAD_COMPILE_CACHE=FOLDER keeps programs for the next process")
    else:
        whose = "of xgrad's programs alone" if folder_is_own() else "programs, as JAX is set"
        yield Finding(None, f"compile cache: {info.folder}, {info.programs} {whose}, {info.bytes / 1e6:.1f} MB")
        if not os.access(info.folder, os.W_OK):
            yield Finding(_CLASH, f"{info.folder} cannot be written", f"chmod u+w {info.folder}")


def insides() -> Iterator[Finding]:
    """Yield what xgrad takes from JAX beyond its documentation: as it was, or changed, and what follows."""
    for what, (canary, then) in CANARIES.items():
        differs = changed(canary)
        yield Finding(_CLASH if differs else True, what + f": no longer so; {then}" * differs)


def donation() -> Iterator[Finding]:
    """Check that a write to a tensor's own buffer is in place, and that one to a user's array does not change it."""
    x = xgrad.zeros(1 << 16)
    x[0].add_(1)  # the first write may copy
    before = _address(x)
    x[1].add_(1)
    after = _address(x)
    if before is None:
        yield Finding(None, "donation: this backend does not show buffer addresses")
    elif before == after:
        yield Finding(True, "donation works: a write through a view is made in place")
    else:
        yield Finding(None, "donation does not work here: writes copy (slower, and still right)")
    mine = jnp.ones(4)
    xgrad.as_tensor(mine)[0].mul_(5)
    safe = not is_deleted(mine) and bool(np.array_equal(mine, np.ones(4)))
    yield Finding(
        safe,
        "a user's array "
        + ("is left alone by a write to its tensor" if safe else "was CHANGED by a write to its tensor"),
    )


def _address(tensor: Any) -> int | None:
    # Read the storage's array directly: an array that `to_jax` and its like return is never donated again.
    try:
        return tensor._share().array.unsafe_buffer_pointer()
    except (AttributeError, NotImplementedError, RuntimeError):
        return None


def gradients() -> Iterator[Finding]:
    """Check the gradient of a write through a view, in both paths, against numbers worked out by hand."""

    def in_place(x: xgrad.Tensor, w: xgrad.Tensor) -> xgrad.Tensor:
        y = x.clone()
        v = y[0]
        v.mul_(w)
        return (y * y).sum()

    # y = [w0 x00, w1 x01; x10, x11]:  dy²/dx = 2 w² x in the first row, 2 x in the second;  dy²/dw = 2 w x².
    expected = (np.array([[18.0, 64.0], [6.0, 8.0]]), np.array([6.0, 32.0]))
    for path in ("replay", "geometry"):
        x = xgrad.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
        w = xgrad.tensor([3.0, 4.0], requires_grad=True)
        with xgrad.views.tracking(path):
            found = xgrad.autograd.grad(in_place(x, w), (x, w))
        good = all(f is not None and np.array_equal(f.numpy(), e) for f, e in zip(found, expected))
        yield Finding(
            good, f"the gradient of a write through a view is {'right' if good else 'WRONG'} on the {path} path"
        )
