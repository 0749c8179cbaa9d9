"""Dtypes in a function's help: the call of its example is traced with each dtype, and nothing is computed.

JAX's 64-bit mode is on meanwhile: without it float64 would be float32.
"""

import contextlib
import inspect
import warnings
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from help_calls import Entry

import xgrad
from xgrad.tensor import from_array

CLASSES = {
    "bools": ("bool",), "integers": ("uint8", "int32", "int64"), "half precision": ("float16", "bfloat16"),
    "float32, float64": ("float32", "float64"), "complex numbers": ("complex64", "complex128"),
}  # fmt: skip
_64_BITS = {"int64": "int64 (int32 while JAX's 64-bit mode is off)"}


def tensors_in(value: Any) -> list[Any]:
    """The plain, dense tensors in arguments or results, in order."""
    if isinstance(value, xgrad.Tensor):
        return [value] if value.layout == "strided" else []
    if isinstance(value, list | tuple):
        return [t for v in value for t in tensors_in(v)]
    if isinstance(value, dict):
        return [t for v in value.values() for t in tensors_in(v)]
    return []


def replaced(value: Any, new: dict[int, Any]) -> Any:
    """Arguments with other tensors in the places of some, by `id`."""
    if isinstance(value, xgrad.Tensor):
        return new.get(id(value), value)
    if isinstance(value, list | tuple):
        found = [replaced(v, new) for v in value]
        return found if isinstance(value, list) else tuple(found)
    if isinstance(value, dict):
        return {k: replaced(v, new) for k, v in value.items()}
    return value


def varied(entry: Entry) -> list[Any]:
    """The tensors of the call whose dtype varies: the floating-point ones; where there are none, all integers."""
    if entry.typical is None:
        return []
    args, named = entry.typical
    found = tensors_in([args, {n: v for n, v in named.items() if n != "out"}])
    floating = [t for t in found if t.dtype.kind in "fcV"]
    return floating or [t for t in found if t.dtype.kind in "iub"]


def results(entry: Entry, dtypes: list[Any], run: Callable = jax.eval_shape) -> list[Any]:
    """The dtypes of the results, for these dtypes of the arguments that vary.  Raises what the function raises."""
    assert entry.typical is not None
    args, named = entry.typical
    vary = varied(entry)
    arrays = [_cast(np.asarray(t._read()), np.dtype(d)) for t, d in zip(vary, dtypes, strict=True)]

    def called(*arrays: Any) -> list:
        new = {id(t): from_array(jax.numpy.asarray(a)) for t, a in zip(vary, arrays, strict=True)}
        out = entry.function(*replaced(args, new), **replaced(named, new))
        return [t._read() for t in tensors_in(out)]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [a.dtype for a in run(called, *arrays)]


def _cast(array: np.ndarray, dtype: np.dtype) -> np.ndarray:
    return (array.real if array.dtype.kind == "c" and dtype.kind != "c" else array).astype(dtype)


def computed(function: Callable, *arrays: Any) -> Any:
    """`jax.eval_shape` of a function that reads values: it is computed."""
    return function(*arrays)


class Probe:
    """The outcomes of a call with each dtype: dtypes of the results, or the class of an error."""

    def __init__(self, entry: Entry) -> None:
        self.entry, self.count = entry, len(varied(entry))
        self.found: dict[str, Any] = {}
        self.refused: dict[str, str] = {}
        for run in (jax.eval_shape, computed) if self.count else ():
            self.run: Callable = run
            for name in [n for names in CLASSES.values() for n in names]:
                self._try(name)
            if self.found:
                return
            self.refused.clear()

    def _try(self, name: str) -> None:
        dtype = xgrad.dtypes.as_dtype(getattr(xgrad, name))
        try:
            self.found[name] = [d.name for d in results(self.entry, [dtype] * self.count, self.run)]
        except Exception as error:
            self.refused[name] = type(error).__name__

    def words(self) -> str:
        """The sentence on dtypes."""
        if not self.found:
            return self._made()
        accepted = _classes(set(self.found))
        text = "all" if len(accepted) == len(CLASSES) and not self.refused else _joined(_merged(accepted))
        return f"{text}; {self._results()}{self._mixed()}."

    def _made(self) -> str:
        """The words for a function that takes no tensor, or whose call can't be repeated."""
        out = tensors_in(self.entry.result)
        if not out:
            sparse = isinstance(self.entry.result, xgrad.Tensor)
            return "the result has the dtype of the values." if sparse else "no tensor is made."
        name = out[0].dtype.name
        kind = {"float32": "the default dtype", "int32": _64_BITS["int64"]}.get(name, name)
        return f"{kind}, or the one that `dtype=` names." if "dtype" in _parameters(self.entry) else f"{kind}."

    def _results(self) -> str:
        outs = list(zip(*self.found.values(), strict=False))
        if not outs:
            return "the result is no tensor"
        said = [_outcome(dict(zip(self.found, out, strict=True)), self.count) for out in outs]
        if len(set(said)) == 1:
            return f"{'the result' if len(said) == 1 else 'each result'} {said[0]}"
        fields = getattr(self.entry.result, "_fields", None) or [f"result {i}" for i in range(len(said))]
        return ", ".join(f"`{f}` {s}" for f, s in zip(fields, said, strict=False))

    def _mixed(self) -> str:
        """Whether dtypes are promoted."""
        if self.count < 2 or "float32" not in self.found or "float64" not in self.found:
            return ""
        mixed = _traced(lambda: results(self.entry, [np.float32, *[np.float64] * (self.count - 1)], self.run))
        return "; tensors of several dtypes are refused" if mixed is None else ""


def _parameters(entry: Entry) -> Any:
    return inspect.signature(entry.function).parameters


def _traced(run: Callable[[], Any]) -> Any:
    with contextlib.suppress(Exception):
        return run()
    return None


def _classes(names: set[str]) -> list[str]:
    """The classes of dtypes of which all are among `names`, and single dtypes of the others."""
    found = []
    for title, members in CLASSES.items():
        if names.issuperset(members):
            found.append(title)
        else:
            found += [m for m in members if m in names]
    return found


def _merged(classes: list[str]) -> list[str]:
    if "half precision" in classes and "float32, float64" in classes:
        i = classes.index("half precision")
        return [*classes[:i], "floating-point numbers", *classes[i + 2 :]]
    return classes


def _joined(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}" if words else "none"


def _shown(dtype: str) -> str:
    return _64_BITS.get(dtype, dtype)


_REAL = {"complex64": "float32", "complex128": "float64"}


def _outcome(table: dict[str, str], count: int) -> str:
    """What a result's dtype is, in words, by that of the argument."""
    same = "has the dtype of the argument" if count < 2 else "has the arguments' common dtype"
    if set(table.values()) == {"int64"}:
        return f"is {_shown('int64')}"
    if len(set(table.values())) == 1 and len(table) > 1:
        return f"is {_shown(next(iter(table.values())))}"
    others: dict[str, list[str]] = {}
    for given, made in table.items():
        if made == given:
            continue
        kind = "real" if _REAL.get(given) == made else _shown(made)
        others.setdefault(kind, []).append(given)
    if not others:
        return same
    said = []
    for kind, names in others.items():
        given = _joined(_merged(_classes(set(names))))
        if kind == "real":
            said.append("real for complex numbers")
        elif kind == "float32":
            said.append(f"float32 (the default dtype) for {given}")
        else:
            said.append(f"{kind} for {given}")
    rest = set(table) - {n for names in others.values() for n in names}
    return f"{same}, but is {_joined(said)}" if rest else f"is {_joined(said)}"
