"""Say what is installed, which devices JAX sees, whether float64 is enabled, whether writes are in place, and whether a
first gradient is right.  Exits with 1 if something that xgrad needs is wrong.
"""

import argparse
import platform
import sys
from collections.abc import Iterator
from importlib import metadata
from typing import Any

_NEEDED = ("jax", "jaxlib", "numpy")
_EXTRAS = {
    "demo": ("matplotlib", "optax", "rich", "scikit-learn", "tqdm"),
    "viz": ("graphviz", "matplotlib"),
    "notebooks": ("ipykernel", "jupytext", "nbconvert"),
}
_OLDEST_JAX = (0, 7, 2)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """None beside --help."""


def run(arguments: argparse.Namespace) -> int:
    """Print one line for each finding; 1 if one is wrong."""
    wrong = 0
    for check in (installed, devices, donation, gradients):
        try:
            for good, line in check():
                wrong += good is False
                print(f"{'ok   ' if good else 'WRONG' if good is False else '     '}  {line}")
        except Exception as error:  # whatever it is, it is a finding
            wrong += 1
            print(f"WRONG  {check.__name__}: {type(error).__name__}: {error}")
    print("all is well" if not wrong else f"{wrong} thing{'s are' if wrong > 1 else ' is'} wrong")
    return int(wrong > 0)


Finding = tuple[bool | None, str]  # right, wrong, or only told


def version_of(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def installed() -> Iterator[Finding]:
    import xgrad

    yield (
        True,
        f"xgrad {xgrad.__version__}, Python {platform.python_version()} on {platform.system()} {platform.machine()}",
    )
    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        yield None, "a free-threaded Python: writes copy, for reference counts cannot be trusted"
    for package in _NEEDED:
        version = version_of(package)
        yield version is not None, f"{package} {version or 'is not installed'}"
    jax = tuple(int(part) for part in (version_of("jax") or "0").split(".")[:3] if part.isdigit())
    if jax < _OLDEST_JAX:
        yield False, f"jax is older than {'.'.join(map(str, _OLDEST_JAX))}: pip install --upgrade jax"
    for extra, packages in _EXTRAS.items():
        missing = [p for p in packages if version_of(p) is None]
        told = f'lacks {", ".join(missing)}: pip install "xgrad[{extra}]"' if missing else "is complete"
        yield None, f"optional: [{extra}] {told}"


def devices() -> Iterator[Finding]:
    import jax

    import xgrad

    seen = jax.devices()
    for device in seen:
        yield True, f"{xgrad.device(device)}: {device.device_kind}"
    yield None, f"the default device is {xgrad.device('xla')}; {len(seen)} in all"
    x64 = jax.numpy.asarray(0.0, dtype=float).dtype == "float64"
    how = "enabled" if x64 else 'off: jax.config.update("jax_enable_x64", True) allows float64 and int64'
    yield None, f"x64 is {how}"
    info = xgrad.compile_cache_info()
    if info is None:
        yield None, "compile cache: off; XGRAD_COMPILE_CACHE=1 keeps compiled programs for the next process"
    else:
        yield None, f"compile cache: {info.folder}, {info.programs} programs, {info.bytes / 1e6:.1f} MB"


def donation() -> Iterator[Finding]:
    """A write to a buffer that a tensor owns alone must keep it, and one to a user's array must not touch that."""
    import jax.numpy as jnp
    import numpy as np

    import xgrad

    x = xgrad.zeros(1 << 16)
    x[0].add_(1)  # the first write may copy
    before = _address(x)
    x[1].add_(1)
    after = _address(x)
    if before is None:
        yield None, "donation: this backend does not tell buffer addresses"
    elif before == after:
        yield True, "donation works: a write through a view is made in place"
    else:
        yield None, "donation does not work here: writes copy (slower, and still right)"
    mine = jnp.ones(4)
    xgrad.as_tensor(mine)[0].mul_(5)
    safe = not mine.is_deleted() and bool(np.array_equal(mine, np.ones(4)))
    yield (
        safe,
        "a user's array "
        + ("is left alone by a write to its tensor" if safe else "was CHANGED by a write to its tensor"),
    )


def _address(tensor: Any) -> int | None:
    # The array itself, not what `to_jax` and its like hand out: an array that was handed out is never donated again.
    try:
        return tensor._share().array.unsafe_buffer_pointer()
    except (AttributeError, NotImplementedError, RuntimeError):
        return None


def gradients() -> Iterator[Finding]:
    """A write through a view, in both paths, against numbers worked out by hand."""
    import numpy as np

    import xgrad

    def in_place(x: "xgrad.Tensor", w: "xgrad.Tensor") -> "xgrad.Tensor":
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
        yield good, f"the gradient of a write through a view is {'right' if good else 'WRONG'} on the {path} path"
