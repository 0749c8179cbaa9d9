"""How a tensor prints: as PyTorch does, with its grad_fn, dtype and device where they are not the default."""

import math
from typing import Any

import numpy as np

from .. import dtypes
from ..config import settings
from ..tensor import Tensor
from ..views.storage import Tracer

PRECISION, THRESHOLD, EDGE, WIDTH = 4, 1000, 3, 80


def _formatter(values: np.ndarray) -> Any:
    """A function that prints one element like its neighbours (torch/_tensor_str.py, _Formatter)."""
    if values.dtype == bool:
        return lambda v: str(bool(v)), max((len(str(bool(v))) for v in values.ravel()), default=0)
    if values.dtype.kind in "iu":
        return lambda v: str(int(v)), max((len(str(int(v))) for v in values.ravel()), default=0)
    flat = values.astype(np.float64).ravel()
    finite = flat[np.isfinite(flat) & (flat != 0)]
    scientific = whole = False
    if finite.size:
        low, high = np.abs(finite).min(), np.abs(finite).max()
        whole = bool((finite == np.ceil(finite)).all())
        scientific = high / low > 1000.0 or high > 1.0e8 or (not whole and low < 1.0e-4)
        if whole:
            scientific = (high / low > 1000.0 and high > 1.0e8) or high > 1.0e8

    def show(v: Any) -> str:
        v = float(v)
        if scientific:
            return f"{v:.{PRECISION}e}"
        if not math.isfinite(v):
            return str(v)
        return f"{v:.0f}." if whole or not finite.size else f"{v:.{PRECISION}f}"

    return show, max((len(show(v)) for v in flat), default=0)


def _show_complex(values: np.ndarray) -> Any:
    real, w1 = _formatter(np.real(values))
    imag, w2 = _formatter(np.imag(values))

    def show(v: Any) -> str:
        im = imag(v.imag)
        return f"{real(v.real):>{w1}}{'' if im.startswith('-') else '+'}{im}j"

    return show, w1 + w2 + 2


def _lines(values: np.ndarray, show: Any, width: int, indent: int, short: bool) -> str:
    if values.ndim == 0:
        return show(values[()])
    n = values.shape[0]
    picks: list[int | None] = list(range(n))
    if short and n > 2 * EDGE:
        picks = [*range(EDGE), None, *range(n - EDGE, n)]
    if values.ndim == 1:
        per_line = max(1, (WIDTH - indent) // max(1, width + 2))
        cells = [" ..." if i is None else f"{show(values[i]):>{width}}" for i in picks]
        rows = [", ".join(cells[i : i + per_line]) for i in range(0, len(cells), per_line)]
        return "[" + (",\n" + " " * (indent + 1)).join(rows) + "]"
    parts = ["..." if i is None else _lines(values[i], show, width, indent + 1, short) for i in picks]
    return "[" + ("," + "\n" * (values.ndim - 1) + " " * (indent + 1)).join(parts) + "]"


def format_tensor(self: Tensor) -> str:
    """PyTorch's `repr` of a tensor."""
    array = self._export()
    suffix = []
    if isinstance(array, Tracer):
        body = f"<traced {array.dtype.name}{list(array.shape)}>"
    else:
        values = np.asarray(array)
        wide = values.astype(np.float32) if values.dtype in dtypes.FLOATS and values.dtype.itemsize < 4 else values
        if values.size == 0:
            body = "[]"
            if values.ndim != 1:
                suffix.append(f"size={tuple(values.shape)}")
        else:
            short = values.size > THRESHOLD
            seen = wide
            if short:
                for axis, n in enumerate(wide.shape):
                    if n > 2 * EDGE:
                        seen = np.take(seen, [*range(EDGE), *range(n - EDGE, n)], axis=axis)
            show, width = _show_complex(seen) if wide.dtype.kind == "c" else _formatter(seen)
            body = _lines(wide, show, width, len("tensor("), short)
    device = self.device
    if device.type != "cpu" or device.index:
        suffix.append(f"device='{device.type}:{device.index}'")
    usual = (settings.default_dtype, dtypes.default_integer(), dtypes.bool, dtypes.complex_of(settings.default_dtype))
    if self.dtype not in usual or (0 in self.shape and self.dtype != settings.default_dtype):
        suffix.append(f"dtype=xgrad.{self.dtype.name}")
    node = self.grad_fn
    if node is not None:
        suffix.append(f"grad_fn=<{node.name()}>")
    elif self.requires_grad:
        suffix.append("requires_grad=True")
    if self._tangents:
        suffix.append("tangent=" + ", ".join(format_tensor(t) for t in self._tangents.values()))
    return "tensor(" + ", ".join([body, *suffix]) + ")"
