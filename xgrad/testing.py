"""xgrad.testing.assert_close: raises unless values are equal within a tolerance (torch/testing/_comparison.py)."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from .base import dtypes
from .base.missing import close_namespace as _close_namespace
from .tensor import Size, Tensor

__all__ = ["assert_close"]

# PyTorch's tolerances: dtype → (rtol, atol); other dtypes compare exactly.
_TOLERANCES = {
    "float16": (1e-3, 1e-5), "bfloat16": (1.6e-2, 1e-5), "float32": (1.3e-6, 1e-5), "float64": (1e-7, 1e-7),
    "complex64": (1.3e-6, 1e-5), "complex128": (1e-7, 1e-7),
}  # fmt: skip


def assert_close(
    actual: Any,
    expected: Any,
    *,
    allow_subclasses: bool = True,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = False,
    check_device: bool = True,
    check_dtype: bool = True,
    check_layout: bool = True,
    check_stride: bool = False,
    msg: str | Callable[[str], str] | None = None,
) -> None:
    """Raise `AssertionError` unless |actual − expected| ≤ atol + rtol·|expected|, elementwise; of trees, leaf by leaf.

    Tensors, numbers, and mappings and sequences of them.  The tolerances default by dtype; shapes have to be equal, and
    dtypes, devices and layouts unless their check is off.  `msg` is the error's text, or makes it.

    >>> import xgrad
    >>> xgrad.testing.assert_close(xgrad.ones(2) / 3, xgrad.tensor([1 / 3, 1 / 3]))
    >>> xgrad.testing.assert_close(xgrad.ones(2), xgrad.tensor([1.0, 1.1]))
    Traceback (most recent call last):
    AssertionError: Tensor-likes are not close!
    <BLANKLINE>
    Mismatched elements: 1 / 2 (50.0%)
    Greatest absolute difference: 0.10000002384185791 at index (1,) (up to 1e-05 allowed)
    Greatest relative difference: 0.09090910851955414 at index (1,) (up to 1.3e-06 allowed)
    """
    if (rtol is None) != (atol is None):
        lacks = "rtol" if rtol is None else "atol"
        raise ValueError(f"Both 'rtol' and 'atol' must be either specified or omitted, but got no {lacks}.")
    try:
        _compare(actual, expected, "", rtol, atol, equal_nan, (check_device, check_dtype, check_layout))
    except AssertionError as error:
        if msg is None:
            raise
        raise AssertionError(msg(str(error)) if callable(msg) else msg) from None


def _compare(a: Any, b: Any, where: str, rtol: Any, atol: Any, equal_nan: bool, checks: tuple[bool, ...]) -> None:
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        if a.keys() != b.keys():
            raise _failure(f"The keys of the mappings do not match: {sorted(a)} and {sorted(b)}", where)
        for key in a:
            _compare(a[key], b[key], f"{where}[{key!r}]", rtol, atol, equal_nan, checks)
        return
    if _sequence(a) and _sequence(b):
        if len(a) != len(b):
            raise _failure(f"The length of the sequences mismatch: {len(a)} != {len(b)}", where)
        for i, pair in enumerate(zip(a, b, strict=True)):
            _compare(*pair, f"{where}[{i}]", rtol, atol, equal_nan, checks)
        return
    if a is None and b is None:
        return
    _compare_leaves(a, b, where, rtol, atol, equal_nan, checks)


def _failure(text: str, where: str) -> AssertionError:
    return AssertionError(f"{text}\n\nThe failure occurred for item {where}" if where else text)


def _sequence(x: Any) -> bool:
    return isinstance(x, Sequence) and not isinstance(x, str)


def _compare_leaves(
    a: Any, b: Any, where: str, rtol: Any, atol: Any, equal_nan: bool, checks: tuple[bool, ...]
) -> None:
    for name, checked in zip(("device", "dtype", "layout"), checks, strict=True):
        if isinstance(a, Tensor) and isinstance(b, Tensor) and checked and getattr(a, name) != getattr(b, name):
            unequal = f"{getattr(a, name)} != {getattr(b, name)}"
            raise _failure(f"The values for attribute '{name}' do not match: {unequal}.", where)
    x, y = _array(a), _array(b)
    if x is None or y is None:
        if a != b:
            raise _failure(f"Objects are not equal: {a!r} != {b!r}", where)
        return
    if x.shape != y.shape:
        raise _failure(f"The values for attribute 'shape' do not match: {Size(x.shape)} != {Size(y.shape)}.", where)
    if rtol is None:
        pairs = [_TOLERANCES.get(z.dtype.name, (0.0, 0.0)) for z in (x, y)]
        rtol, atol = (max(both) for both in zip(*pairs, strict=True))
    wide = np.result_type(x.dtype if x.dtype.kind != "V" else np.float32, np.float64)
    close = np.isclose(x.astype(wide), y.astype(wide), rtol=rtol, atol=atol, equal_nan=equal_nan)
    if not close.all():
        raise _failure(_difference(x, y, close, rtol, atol), where)


def _difference(x: np.ndarray, y: np.ndarray, close: np.ndarray, rtol: float, atol: float) -> str:
    """Say in PyTorch's words how far x is from y."""
    if x.dtype.kind == "b" and not x.ndim:
        return f"Booleans mismatch: {x.item()} is not {y.item()}"
    common = dtypes.promote_types(x.dtype, y.dtype)
    common = common if common in dtypes.INEXACT else np.dtype(np.int64)
    with np.errstate(all="ignore"):
        gap = np.where(close, 0, np.abs(x.astype(common) - y.astype(common)))
        ratio = np.where(close, 0, gap / np.abs(y.astype(common)))
    kind, fit = "Tensor-likes" if x.ndim else "Scalars", "close" if rtol or atol else "equal"
    lines = [f"{kind} are not {fit}!", ""]
    if x.ndim:
        lines.append(f"Mismatched elements: {(~close).sum()} / {close.size} ({100 * (~close).mean():.1f}%)")
    else:
        lines.append(f"Expected {y.item()} but got {x.item()}.")
    for name, far, most in (("absolute", gap, atol), ("relative", ratio, rtol)):
        worst = np.unravel_index(int(np.argmax(far)), far.shape)
        what = f"Greatest {name} difference" if x.ndim else f"{name.capitalize()} difference"
        place = f" at index {tuple(map(int, worst))}" if x.ndim else ""
        lines.append(f"{what}: {far[worst].item()}{place}" + (f" (up to {most} allowed)" if fit == "close" else ""))
    return "\n".join(lines)


def _array(x: Any) -> np.ndarray | None:
    if isinstance(x, Tensor):
        return x.detach().to_dense().numpy() if x.layout != "strided" else x.detach().resolve_conj().numpy()
    return np.asarray(x) if isinstance(x, (bool, int, float, complex, np.ndarray, np.generic)) else None


_close_namespace(__name__)
