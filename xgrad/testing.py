"""Comparison of tensors in tests (PyTorch: torch/testing/_comparison.py)."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from . import dtypes
from .missing import missing as _missing
from .tensor import Tensor

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
    AssertionError: Tensor-likes are not close! Mismatched elements: 1 / 2 (50.0%), greatest absolute difference 0.1...
    """
    if (rtol is None) != (atol is None):
        raise ValueError("rtol and atol are given together, or neither: got only one of them")
    try:
        _compare(actual, expected, "", rtol, atol, equal_nan, (check_device, check_dtype, check_layout))
    except AssertionError as error:
        if msg is None:
            raise
        raise AssertionError(msg(str(error)) if callable(msg) else msg) from None


def _compare(a: Any, b: Any, where: str, rtol: Any, atol: Any, equal_nan: bool, checks: tuple[bool, ...]) -> None:
    at = f" at {where}" if where else ""
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        if a.keys() != b.keys():
            raise AssertionError(f"The keys of the mappings do not match{at}: {sorted(a)} and {sorted(b)}")
        for key in a:
            _compare(a[key], b[key], f"{where}[{key!r}]", rtol, atol, equal_nan, checks)
        return
    if _sequence(a) and _sequence(b):
        if len(a) != len(b):
            raise AssertionError(f"The length of the sequences mismatch{at}: {len(a)} != {len(b)}")
        for i, pair in enumerate(zip(a, b, strict=True)):
            _compare(*pair, f"{where}[{i}]", rtol, atol, equal_nan, checks)
        return
    if a is None and b is None:
        return
    _compare_leaves(a, b, at, rtol, atol, equal_nan, checks)


def _sequence(x: Any) -> bool:
    return isinstance(x, Sequence) and not isinstance(x, str)


def _compare_leaves(a: Any, b: Any, at: str, rtol: Any, atol: Any, equal_nan: bool, checks: tuple[bool, ...]) -> None:
    for i, (name, what) in enumerate((("device", "devices"), ("dtype", "dtypes"), ("layout", "layout"))):
        if isinstance(a, Tensor) and isinstance(b, Tensor) and checks[i] and getattr(a, name) != getattr(b, name):
            raise AssertionError(f"The values for attribute '{name}' do not match{at}: the {what} are not equal: "
                                 f"{getattr(a, name)} != {getattr(b, name)}")  # fmt: skip
    x, y = _array(a), _array(b)
    if x is None or y is None:
        if a != b:
            raise AssertionError(f"Objects are not equal{at}: {a!r} != {b!r}")
        return
    if x.shape != y.shape:
        raise AssertionError(f"The values for attribute 'shape' do not match{at}: {[*x.shape]} != {[*y.shape]}")
    if rtol is None:
        pairs = [_TOLERANCES.get(dtypes.torch_name(z.dtype).rpartition(".")[2], (0.0, 0.0)) for z in (x, y)]
        rtol, atol = (max(both) for both in zip(*pairs, strict=True))
    wide = np.result_type(x.dtype if x.dtype.kind != "V" else np.float32, np.float64)
    x, y = x.astype(wide), y.astype(wide)
    close = np.isclose(x, y, rtol=rtol, atol=atol, equal_nan=equal_nan)
    if not close.all():
        with np.errstate(invalid="ignore", divide="ignore"):
            gap = np.abs(x - y)
        kind = "Scalars" if x.ndim == 0 else "Tensor-likes"
        raise AssertionError(
            f"{kind} are not close{at}! Mismatched elements: {(~close).sum()} / {close.size} "
            f"({100 * (~close).mean():.1f}%), greatest absolute difference {np.nanmax(gap)} (up to {atol} allowed), "
            f"greatest relative difference {np.nanmax(gap / np.abs(y))} (up to {rtol} allowed)"
        )


def _array(x: Any) -> np.ndarray | None:
    if isinstance(x, Tensor):
        return x.detach().to_dense().numpy() if x.layout != "strided" else x.detach().resolve_conj().numpy()
    return np.asarray(x) if isinstance(x, (bool, int, float, complex, np.ndarray, np.generic)) else None


def __dir__() -> list[str]:
    return sorted(__all__)


globals()["__getattr__"] = _missing(__name__)
