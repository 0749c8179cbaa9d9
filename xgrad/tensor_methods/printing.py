"""format_tensor: writes a tensor's `repr` as PyTorch does, with grad_fn, and dtype and device that are not the default.

If a tensor has more elements than `options.threshold` only the shown ones leave the device.  xgrad still owns the
buffer afterwards, so the next in-place write may donate it.  One process of several can print without the others:
values that are not all in this process are not shown.  (PyTorch: torch/_tensor_str.py.)
"""

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..base import dtypes
from ..base.devices import spread
from ..config import block, settings
from ..execution.pending import Pending, declared_of, only_shape
from ..tensor import Tensor
from ..views.storage import Tracer, of_ended_trace


class Options(NamedTuple):
    """The settings of printing, for this process."""

    precision: int = 4
    threshold: float = 1000
    edgeitems: int = 3
    linewidth: int = 80
    sci_mode: bool | None = None  # True: floats have exponents; None: if their sizes need them


_PROFILES = {"default": Options(), "short": Options(2, 1000, 2, 80), "full": Options(4, math.inf, 3, 80)}
options: Options = Options()


def set_printoptions(
    precision: int | None = None,
    threshold: float | None = None,
    edgeitems: int | None = None,
    linewidth: int | None = None,
    profile: str | None = None,
    sci_mode: bool | None = None,
) -> None:
    """Set how tensors print.

    `precision`: digits after the point.  `threshold`: tensors with more elements are shown by their edges, `edgeitems`
    at each end.  `linewidth`: columns.  `profile` ("default", "short" or "full") sets all of them; other arguments
    override it.  `sci_mode`: floats with (True) or without (False) exponents; None: as their sizes need.  Raises
    `ValueError` for an unknown profile.  (PyTorch: torch.set_printoptions.)

    >>> import xgrad
    >>> xgrad.set_printoptions(precision=2)
    >>> xgrad.tensor([1.23456])
    tensor([1.23])
    >>> xgrad.set_printoptions(profile="default")
    """
    global options
    if profile is not None and profile not in _PROFILES:
        raise ValueError(f"profile must be one of {', '.join(_PROFILES)}, but got {profile!r}")
    base = options if profile is None else _PROFILES[profile]
    given = {"precision": precision, "threshold": threshold, "edgeitems": edgeitems, "linewidth": linewidth}
    options = base._replace(**{k: v for k, v in given.items() if v is not None}, sci_mode=sci_mode)


@block
def printoptions(**given: Any) -> Iterator[None]:
    """Within the block tensors print with these options of `set_printoptions`."""
    global options
    before = options
    try:
        set_printoptions(**given)
        yield
    finally:
        options = before


@partial(jax.jit, static_argnums=1)
def _edges(array: Any, edge: int) -> Any:
    """The first and the last items along each dimension that is too long to be shown."""
    for axis, n in enumerate(array.shape):
        if n > 2 * edge:
            ends = [jax.lax.slice_in_dim(array, start, start + edge, axis=axis) for start in (0, n - edge)]
            array = jnp.concatenate(ends, axis)
    return array


def _shown(array: Any) -> np.ndarray:
    """The shown elements, on the host; floats in a dtype that NumPy and Python know."""
    where, of = declared_of(array), array
    if array.__class__ is Pending:
        array = array.evaluated("print")
    if array.size > options.threshold:
        if not array.is_fully_addressable:  # one process must not start a program of all
            array = array.addressable_data(0)
        with jax.ensure_compile_time_eval():  # now, and not as a part of a trace
            array = _edges(array, options.edgeitems)
    values = np.asarray(array if where is None else where.runtime.sent(array, "print", of))
    return values.astype(np.float64) if values.dtype in dtypes.FLOATS else values


def _repeats(self: Tensor) -> bool:
    """True for a view that shows elements of its storage many times: it is not made as a whole."""
    chain = self._chain
    return chain is not None and math.prod(chain.shape) > max(math.prod(chain.root_shape), options.threshold)


def _shown_of_view(root: Any, chain: Any, dim: int = 0) -> np.ndarray:
    """The elements that `_shown` returns, for a view: only its edges are made."""
    if dim == len(chain.shape):
        return _shown(chain.replay(root))
    n, edge = chain.shape[dim], options.edgeitems
    if n <= 2 * edge:
        return _shown_of_view(root, chain, dim + 1)
    ends = [_shown_of_view(root, chain.view("narrow", dim, start, edge), dim + 1) for start in (0, n - edge)]
    return np.concatenate(ends, dim)


def _formatter(values: np.ndarray) -> tuple[Callable[[Any], str], int]:
    """A function that formats one element like its neighbours, and the width to which all are padded."""
    if values.dtype.kind != "f":
        width = max((len(str(v)) for v in values.ravel().tolist()), default=1)
        return lambda v: str(v).rjust(width), width
    regular = values[np.isfinite(values) & (values != 0)]
    scientific, whole, width = False, True, 1
    if regular.size:
        low, high = np.abs(regular).min(), np.abs(regular).max()
        whole = bool((regular == np.ceil(regular)).all())
        with np.errstate(over="ignore"):
            scientific = bool(high / low > 1000.0 or high > 1.0e8 or low < 1.0e-4)
        scientific = scientific if options.sci_mode is None else options.sci_mode
    form = f".{options.precision}e" if scientific else ".0f" if whole else f".{options.precision}f"
    point = "." if whole and not scientific else ""
    width = max((len(f"{v:{form}}{point}") for v in regular.tolist()), default=1)
    return lambda v: f"{v:{form}}{point if math.isfinite(v) else ''}".rjust(width), width


def _complex_formatter(values: np.ndarray) -> tuple[Callable[[Any], str], int]:
    values = values.astype(np.complex128)
    (real, w1), (imag, w2) = _formatter(np.real(values)), _formatter(np.imag(values))

    def show(v: complex) -> str:
        part = imag(v.imag).lstrip()
        return f"{real(v.real)}{'' if part.startswith('-') else '+'}{part}j"

    return show, w1 + w2 + 1


def _lines(values: list, shape: tuple, show: Callable[[Any], str], width: int, indent: int, short: bool) -> str:
    """The nested lists `values` as text; they may be the edges of a tensor, whose whole shape is `shape`."""
    if not shape:
        return show(values)
    cut = short and shape[0] > 2 * options.edgeitems
    if len(shape) == 1:
        parts = [show(v) for v in values]
        if cut:
            parts.insert(options.edgeitems, " ...")
        per_line = max(1, (options.linewidth - indent) // (width + 2))
        rows = [", ".join(parts[i : i + per_line]) for i in range(0, len(parts), per_line)]
        return "[" + (",\n" + " " * (indent + 1)).join(rows) + "]"
    parts = [_lines(v, shape[1:], show, width, indent + 1, short) for v in values]
    if cut:
        parts.insert(options.edgeitems, "...")
    return "[" + ("," + "\n" * (len(shape) - 1) + " " * (indent + 1)).join(parts) + "]"


def _unseen(array: Any) -> bool:
    """Return True if this process has no values to show."""
    return spread(array) or only_shape(array)


def _body(array: Any, indent: int) -> str:
    if isinstance(array, Tracer):
        if (error := of_ended_trace(array)) is not None:
            raise error
        return f"<traced {array.dtype.name}{list(array.shape)}>"
    if array.size == 0:
        return "[]"
    if _unseen(array):
        return "..."
    return _text(_shown(array), array.shape, indent)


def contents(self: Tensor, indent: int) -> str:
    """Return what `repr` has between the brackets, but for the suffixes."""
    return _body(self._read(), indent)


def _text(values: np.ndarray, shape: tuple, indent: int) -> str:
    """The values of a tensor of this shape as text, all of them or the edges."""
    show, width = _complex_formatter(values) if values.dtype.kind == "c" else _formatter(values)
    return _lines(values.tolist(), shape, show, width, indent, math.prod(shape) > options.threshold)


def _suffixes(self: Tensor) -> list[str]:
    """The texts after the values: grad_fn, dtype, ..., each only if it is not the default."""
    suffixes = []
    empty = 0 in self.shape
    device = self.device
    if not device._only or device.type == "meta":
        suffixes.append(f"device='{device}'")
    held = None if self._sparse else self._held()
    apart = held is not None and not isinstance(held, Tracer)
    apart = apart and _unseen(held if _repeats(self) else self._read())
    if apart or (empty and self.ndim != 1 and not self._sparse):
        suffixes.append(f"size={tuple(self.shape)}")
    usual = (settings.default_dtype, dtypes.default_integer(), dtypes.bool, dtypes.complex_of(settings.default_dtype))
    if self._dtype not in usual or (
        (empty or device.type == "meta") and not self._sparse and self._dtype != settings.default_dtype
    ):
        suffixes.append(f"dtype=xgrad.{self._dtype.name}")
    try:
        node = self.grad_fn
    except RuntimeError:  # a view whose history cannot be regenerated: printing it is not an error
        suffixes.append("grad_fn=<Invalid>")
    else:
        if node is not None:
            suffixes.append(f"grad_fn=<{type(node).__name__}>")
        elif self.requires_grad:
            suffixes.append("requires_grad=True")
    if self._tangents:
        suffixes.append("tangent=" + ", ".join(format_tensor(t) for t in self._tangents.values()))
    return suffixes


def _with_suffixes(text: str, suffixes: list[str], indent: int, new_line: bool = False) -> str:
    """Append the suffixes, each on the last line if it fits there; the first on a new one if `new_line`."""
    last = options.linewidth if new_line else len(text) - text.rfind("\n") + 1
    for suffix in suffixes:
        if last + len(suffix) + 2 > options.linewidth:
            text += ",\n" + " " * indent + suffix
            last = indent + len(suffix)
        else:
            text += ", " + suffix
            last += len(suffix) + 2
    return text


def format_sparse(self: Any) -> str:
    """PyTorch's `repr` of a sparse tensor: its parts, then size, nnz and layout."""
    indent = len("tensor(")
    parts = []
    for name, part in self._parts():
        lead = f"{name}=tensor("
        body = _body(part._read(), indent + len(lead))
        if not part.numel():
            body += f", size={tuple(part.shape)}"
        parts.append(f"{lead}{body})")
    suffixes = _suffixes(self)
    whole = [f"size={tuple(self.shape)}", f"nnz={self._nnz()}"]
    first = 1 if suffixes and suffixes[0].startswith("device=") else 0
    dtype = first + 1 if len(suffixes) > first and suffixes[first].startswith("dtype=") else first
    suffixes = [*suffixes[:first], *whole, *suffixes[first:dtype], f"layout=xgrad.{self.layout}", *suffixes[dtype:]]
    return (
        _with_suffixes(
            "tensor(" + (",\n" + " " * indent).join(parts), suffixes, indent, new_line=self.layout == "sparse_coo"
        )
        + ")"
    )


def format_tensor(self: Tensor, *, tensor_contents: str | None = None) -> str:
    """PyTorch's `repr` of a tensor; `tensor_contents` replaces the values."""
    plain = self.__class__ is Tensor or type(self).__module__.startswith("xgrad.")
    prefix = "tensor(" if plain else f"{type(self).__name__}("
    indent = len(prefix)
    if tensor_contents is not None:
        text = prefix + tensor_contents
    elif _repeats(self) and not isinstance(root := self._held(), Tracer) and not _unseen(root):
        text = prefix + _text(_shown_of_view(root, self._chain), self.shape, indent)
    else:
        text = prefix + _body(self._read(), indent)
    text = _with_suffixes(text, _suffixes(self) if tensor_contents is None else [], indent)
    if not self._is_param:
        return text + ")"
    return f"Parameter containing:\n{text})" if plain else f"Parameter containing:\nParameter({text}))"
