"""Checks of views for `xgrad conform`: each is read, written through and differentiated, in both `tracking` modes.

The reference is NumPy, whose views are views too.  With a cotangent c of the base, after `view(y).mul_(k)`:

    y        x, with view(x) * k put into its place
    dx       c, with view(c) * conj(k) put into its place
    dk       view(c) * conj(view(x))
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ..autograd.backward import grad
from ..base.dtypes import INEXACT
from ..dispatch.view import view
from ..tensor import Tensor
from ..views.rules import ViewRule
from ..views.tracking import PATHS, tracking
from .cases import like
from .execution import Place, alone, refusal, together
from .laws import checks
from .measure import compare
from .on_chip import compiled
from .records import Cell, Check, merged

View = Callable[[Any], Any]


def _assign(by_numpy: View, array: np.ndarray, new: Any) -> None:
    by_numpy(array)[...] = new


class Entry(NamedTuple):
    """A view as a function of tensors, and of NumPy arrays; `shape` of the base."""

    shape: tuple[int, ...]
    view: View
    by_numpy: View
    only: str = ""  # the kinds of dtypes that have it, if not all
    put: Callable[[np.ndarray, np.ndarray], None] | None = None  # where NumPy's is not a view
    overlaps: bool = False  # it may not be written
    exact: bool = False  # it has no derivative

    def write(self, array: np.ndarray, new: Any) -> np.ndarray:
        """Return a copy of the array with new values in the view's place."""
        array = array.copy()
        _assign(self.by_numpy, array, new) if self.put is None else self.put(array, new)
        return array


def _conjugated(array: np.ndarray, new: np.ndarray) -> None:
    array[...] = np.conj(new)


def _negated(array: np.ndarray, new: np.ndarray) -> None:
    array[...] = -new


def _windows(array: np.ndarray, sizes: tuple[int, ...], strides: tuple[int, ...], offset: int = 0) -> np.ndarray:
    """NumPy's `as_strided`, in elements."""
    rest = array.reshape(-1)[offset:]
    return np.lib.stride_tricks.as_strided(rest, sizes, tuple([s * array.itemsize for s in strides]))


_M = (2, 3)
VIEWS: dict[str, Entry] = {
    "select": Entry(_M, lambda x: x.select(1, 1), lambda a: a[:, 1]),
    "narrow": Entry(_M, lambda x: x.narrow(1, 1, 2), lambda a: a[:, 1:3]),
    "slice": Entry((7,), lambda x: x[1:6:2], lambda a: a[1:6:2]),
    "getitem": Entry((2, 3, 2), lambda x: x[1, ..., None, 1:], lambda a: a[1, ..., None, 1:]),
    "diagonal": Entry((3, 3), lambda x: x.diagonal(1), lambda a: _windows(a, (2,), (4,), 1)),
    "unfold": Entry((7,), lambda x: x.unfold(0, 3, 2), lambda a: _windows(a, (3, 3), (2, 1)), overlaps=True),
    "permute": Entry((2, 3, 2), lambda x: x.permute(2, 0, 1), lambda a: a.transpose(2, 0, 1)),
    "transpose": Entry((2, 3, 2), lambda x: x.transpose(0, 2), lambda a: a.swapaxes(0, 2)),
    "swapaxes": Entry(_M, lambda x: x.swapaxes(0, 1), lambda a: a.swapaxes(0, 1)),
    "swapdims": Entry(_M, lambda x: x.swapdims(0, 1), lambda a: a.swapaxes(0, 1)),
    "movedim": Entry((2, 3, 2), lambda x: x.movedim(0, 2), lambda a: np.moveaxis(a, 0, 2)),
    "moveaxis": Entry((2, 3, 2), lambda x: x.moveaxis(2, 0), lambda a: np.moveaxis(a, 2, 0)),
    "t": Entry(_M, lambda x: x.t(), lambda a: a.T),
    "T": Entry(_M, lambda x: x.T, lambda a: a.T),
    "mT": Entry((2, 3, 2), lambda x: x.mT, lambda a: a.swapaxes(1, 2)),
    "H": Entry(_M, lambda x: x.H, lambda a: a.conj().T, put=lambda a, new: _conjugated(a, new.T)),
    "mH": Entry(_M, lambda x: x.mH, lambda a: a.conj().T, put=lambda a, new: _conjugated(a, new.T)),
    "adjoint": Entry(_M, lambda x: x.adjoint(), lambda a: a.conj().T, put=lambda a, new: _conjugated(a, new.T)),
    "view": Entry((2, 6), lambda x: x.view(3, 4), lambda a: a.reshape(3, 4)),
    "reshape": Entry((2, 6), lambda x: x.reshape(4, -1), lambda a: a.reshape(4, 3)),
    "flatten": Entry((2, 3, 2), lambda x: x.flatten(1), lambda a: a.reshape(2, 6)),
    "unflatten": Entry((2, 6), lambda x: x.unflatten(1, (3, 2)), lambda a: a.reshape(2, 3, 2)),
    "squeeze": Entry((2, 1, 3), lambda x: x.squeeze(1), lambda a: a[:, 0]),
    "unsqueeze": Entry(_M, lambda x: x.unsqueeze(1), lambda a: a[:, None]),
    "expand": Entry((1, 3), lambda x: x.expand(2, 3), lambda a: _windows(a, (2, 3), (0, 1)), overlaps=True),
    "alias": Entry(_M, lambda x: x.view_as(x), lambda a: a[...]),
    "as_strided": Entry((12,), lambda x: x.as_strided((2, 2), (6, 2), 1), lambda a: _windows(a, (2, 2), (6, 2), 1)),
    "view_dtype": Entry(
        _M, lambda x: x.view(_BITS[x.dtype.itemsize]), lambda a: a.view(_BITS[a.itemsize]), only="fVi", exact=True
    ),
    "conj": Entry(_M, lambda x: x.conj(), np.conj, only="c", put=_conjugated),
    "neg_view": Entry(_M, lambda x: view(x, ("neg_view",), "NegViewBackward0"), np.negative, only="fVci", put=_negated),
    "real": Entry(_M, lambda x: x.real, lambda a: a.real, only="c"),
    "imag": Entry(_M, lambda x: x.imag, lambda a: a.imag, only="c"),
    "view_as_real": Entry(
        _M, lambda x: x.view_as_real(), lambda a: a.view(_PART[a.dtype.name]).reshape(2, 3, 2), only="c"
    ),
    "view_as_complex": Entry(
        (3, 2), lambda x: x.view_as_complex(), lambda a: a.view(_WHOLE[a.dtype.name])[:, 0], only="f"
    ),
    "a view of a view": Entry((3, 4), lambda x: x.t()[1:].select(1, 1), lambda a: a.T[1:][:, 1]),
}
_BITS = {n: np.dtype(f"uint{8 * n}") for n in (1, 2, 4, 8)}
_PART = {"complex64": "float32", "complex128": "float64"}
_WHOLE = {"float32": "complex64", "float64": "complex128"}


def fits(entry: Entry, dtype: np.dtype) -> bool:
    if entry.only == "f":
        return dtype.name in _WHOLE
    return not entry.only or dtype.kind in entry.only


def cell(name: str, dtype: np.dtype, place: Place) -> Cell | None:
    """Return what the checks of a view in a dtype find; None if the dtype does not have this view."""
    entry = VIEWS[name]
    if not fits(entry, dtype):
        return None
    rule = place.ruled.of(name) if place.ruled else None
    lawful = checks(name, rule, dtype, place) if isinstance(rule, ViewRule) else []
    base = _numbers(entry.shape, dtype, 0)
    seen = entry.by_numpy(base)
    moves = dtype in INEXACT and not entry.exact
    expected: dict[str, list[np.ndarray]] = {"read": [seen]}
    operands = {"read": [base]}
    new = _numbers(seen.shape, seen.dtype, 1)
    fixed = entry.overlaps or _copies(entry, base, place)
    if moves and fixed:
        whole = _summed(entry, new, base) if entry.overlaps else entry.write(np.zeros_like(base), new)
        expected["gradient"] = [whole]
        operands["gradient"] = [base, new]
    elif moves:
        cotangent = _numbers(entry.shape, dtype, 2)
        pulled = entry.by_numpy(cotangent)
        expected["write"] = [entry.write(base, seen * new), seen * new]
        expected["gradient"] = [entry.write(cotangent, pulled * np.conj(new)), pulled * np.conj(seen)]
        operands["write"] = [base, new, cotangent]
    elif not fixed:
        expected["write"] = [entry.write(base, new), new]
        operands["write"] = [base, new]
    if not fixed:
        other = _numbers(entry.shape, dtype, 3)
        expected["base written"] = [entry.by_numpy(other)]
        operands["base written"] = [base, other]
    tests = {"read": _read, "gradient": _pulled, "write": _scaled if moves else _copied, "base written": _refreshed}
    tasks = [
        (partial(_along, path, tests[check], entry), arrays, f"{check}, {path}")
        for path in PATHS
        for check, arrays in operands.items()
    ]
    if place.target is not None:
        return Cell(merged(compiled(place, [(label, task, arrays) for task, arrays, label in tasks])))
    compared: list[Check] = []
    try:
        if place.declared:
            raise NotImplementedError  # operator by operator
        found: Any = together(place, [(task, arrays) for task, arrays, _ in tasks])
    except Exception:
        found = [None] * len(tasks)
    for (task, arrays, label), results in zip(tasks, found, strict=True):
        path = label.rpartition(", ")[2]
        try:
            results = alone(place, task, arrays) if results is None else results
        except Exception as error:
            compared.append(refusal(label, error))
            continue
        compared += [compare(f"{check}, {path}", ours, expected[check], dtype) for check, ours in results.items()]
    return Cell(merged(compared + lawful))


def _copies(entry: Entry, base: np.ndarray, place: Place) -> bool:
    """Return True if an `xgrad.Backend` has a copy in place of the view."""
    if not place.ruled:
        return False
    (x,) = place.tensors([base])
    return entry.view(x)._storage is not x._storage


def _numbers(shape: tuple[int, ...], dtype: np.dtype, seed: int) -> np.ndarray:
    """Return an array whose elements differ, of small numbers that each dtype has."""
    if dtype in INEXACT:
        return like(np.empty(shape, dtype), seed)
    count = int(np.prod(shape))
    order = np.random.RandomState(seed).permutation(count).reshape(shape)
    return (order % 2 == 0) if dtype.kind == "b" else order.astype(dtype)


def _summed(entry: Entry, cotangent: np.ndarray, base: np.ndarray) -> np.ndarray:
    """Return the adjoint of a view that shows elements several times: it adds up."""
    total = np.zeros(base.size, np.complex128 if base.dtype.kind == "c" else np.float64)
    places = entry.by_numpy(np.arange(base.size).reshape(base.shape))
    np.add.at(total, places.ravel(), cotangent.ravel())
    return total.reshape(base.shape)


# ---------------------------------------------------------------- the checks


def _along(path: str, check: Callable, entry: Entry, tensors: list[Tensor]) -> dict[str, list[Tensor]]:
    with tracking(path):
        return check(entry.view, *tensors)


def _read(of: View, x: Tensor) -> dict[str, list[Tensor]]:
    return {"read": [of(x)]}


def _pulled(of: View, x: Tensor, cotangent: Tensor) -> dict[str, list[Tensor]]:
    x.requires_grad_()
    return {"gradient": list(grad(of(x), x, cotangent))}


def _scaled(of: View, x: Tensor, k: Tensor, cotangent: Tensor) -> dict[str, list[Tensor]]:
    """A recorded write through the view."""
    leaves = x.requires_grad_(), k.requires_grad_()
    y = x.clone()
    v = of(y)
    v.mul_(k)
    return {"write": [y, v], "gradient": list(grad(y, leaves, cotangent))}


def _copied(of: View, x: Tensor, new: Tensor) -> dict[str, list[Tensor]]:
    y = x.clone()
    v = of(y)
    v.copy_(new)
    return {"write": [y, v]}


def _refreshed(of: View, x: Tensor, other: Tensor) -> dict[str, list[Tensor]]:
    """A view that was made before its base was written."""
    y = x.clone()
    v = of(y)
    y.copy_(other)
    return {"base written": [v]}
