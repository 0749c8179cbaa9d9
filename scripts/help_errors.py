"""Errors in a function's help: classes of errors that wrong calls raise, and the messages of its own checks.

A message is read from the `raise` statements of the function, of its check and of the functions of ops/ that these
call; "..." stands for what is computed.
"""

import ast
import inspect
import re
import textwrap
import warnings
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from help_calls import Entry
from help_dtypes import Probe, _classes, _joined, _merged, replaced, tensors_in

import xgrad
from xgrad.tensor import from_array

MOST = 4  # messages of one function
# General checks, which the words on dtypes and shapes say.
_GENERAL = {"wrap_dim", "wrap_dims", "int_of", "own_dim", "require_dims", "sizes_of", "variadic"}


def errors(entry: Entry, probe: Probe) -> str:
    """The sentence on errors."""
    said = [*_wrong_calls(entry), *_refused(probe)]
    if entry.inplace and _refuses_leaves(entry):
        said.append("`LeafInplaceError` for a leaf that requires grad")
    checks = list(dict.fromkeys(_messages(entry)))
    if checks:
        shown = [f"{kind}: {text}" for kind, text in checks[:MOST]]
        said.append("its own checks raise " + "; ".join(f"`{s}`" for s in shown))
    return "; ".join(said) + "." if said else "none of its own."


def _refuses_leaves(entry: Entry) -> bool:
    args, named = entry.call or ((), {})
    floating = [t for t in tensors_in(args)[:1] if t.dtype.kind in "fcV"]
    try:
        entry.function(*replaced(args, {id(t): t.detach().clone().requires_grad_() for t in floating}), **named)
    except xgrad.errors.LeafInplaceError:
        return True
    except Exception:
        return False
    return False


def _refused(probe: Probe) -> Iterator[str]:
    if not probe.found:
        return
    kinds: dict[str, list[str]] = {}
    for name, kind in probe.refused.items():
        kinds.setdefault(kind, []).append(name)
    for kind, names in kinds.items():
        yield f"`{kind}` for {_joined(_merged(_classes(set(names))))}"


def _wrong_calls(entry: Entry) -> Iterator[str]:
    """Errors that some wrong arguments raise: no tensor, a dimension that is out of range, shapes that do not fit."""
    if entry.typical is None:
        return
    args, named = entry.typical
    parameters = list(inspect.signature(entry.function).parameters)
    found = tensors_in(args)
    kind = None
    if args and isinstance(args[0], xgrad.Tensor) and entry.place != "Tensor":
        kind = _raised(entry, ("no tensor", *args[1:]), named)
    if kind is not None:
        number = _raised(entry, (2.0, *args[1:]), named) is None
        yield f"`{kind}` if `{parameters[0]}` is {'neither a tensor nor a number' if number else 'no tensor'}"
    if "dim" in parameters and "dim" in named:
        if (kind := _raised(entry, args, {**named, "dim": 99})) is not None:
            yield f"`{kind}` for a `dim` that the tensor does not have"
    elif "dim" in parameters and len(args) > parameters.index("dim"):
        i = parameters.index("dim")
        if (kind := _raised(entry, (*args[:i], 99, *args[i + 1 :]), named)) is not None:
            yield f"`{kind}` for a `dim` that the tensor does not have"
    elif "dim" in parameters and (kind := _raised(entry, args, {**named, "dim": 99})) is not None:
        yield f"`{kind}` for a `dim` that the tensor does not have"
    if len(found) > 1:
        other = found[1]
        wrong = from_array(jax.numpy.asarray(np.ones((7, 11, 5)).astype(other.dtype)))
        if (kind := _raised(entry, replaced(args, {id(other): wrong}), named)) is not None:
            yield f"`{kind}` for shapes that do not fit"


def _raised(entry: Entry, args: tuple, named: dict) -> str | None:
    """The class of the error of a call, which is traced; None if it is right."""
    vary = tensors_in([args, named])

    def called(*arrays: Any) -> list:
        new = {id(t): from_array(a) for t, a in zip(vary, arrays, strict=True)}
        return [t._read() for t in tensors_in(entry.function(*replaced(args, new), **replaced(named, new)))]

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            jax.eval_shape(called, *[np.asarray(t.detach()._read()) for t in vary])
    except Exception as error:
        if "TracedValue" in type(error).__name__ or isinstance(error, jax.errors.JAXTypeError):
            return None
        return type(error).__name__
    return None


# -- messages ----------------------------------------------------------------------------------------------------------


def _messages(entry: Entry) -> Iterator[tuple[str, str]]:
    """(class, message) of the `raise` statements of a function and of its helpers."""
    op = entry.operator
    starts = [op.check, op.function] if op else [inspect.unwrap(entry.function)]
    seen: set[Any] = set()
    for start in starts:
        if start is not None:
            yield from _messages_of(inspect.unwrap(getattr(start, "func", start)), entry.name.rstrip("_"), seen, 0)


def _messages_of(function: Any, name: str, seen: set, depth: int) -> Iterator[tuple[str, str]]:
    code = getattr(function, "__code__", None)
    if code is None or code in seen or not code.co_filename.endswith(".py") or "/ops/" not in code.co_filename:
        return
    seen.add(code)
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(code)))
    except (OSError, SyntaxError, IndentationError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and node.exc.args:
            text = _skeleton(node.exc.args[0], name)
            kind = node.exc.func
            if (
                len(re.sub(r"\W|" + name, "", text)) > 9
                and isinstance(kind, ast.Name)
                and "not implemented for" not in text
            ):
                yield kind.id, text if len(text) < 90 else text[:87] + "..."
    for node in ast.walk(tree) if depth < 2 else ():
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id not in _GENERAL:
            inner = _resolved(function, node.func.id)
            if callable(inner) and not isinstance(inner, type) and getattr(inner, "operator", None) is None:
                yield from _messages_of(inspect.unwrap(inner), name, seen, depth + 1)


def _resolved(function: Any, name: str) -> Any:
    closure = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    if name in closure:
        try:
            return closure[name].cell_contents
        except ValueError:
            return None
    return function.__globals__.get(name)


def _skeleton(node: ast.expr, name: str) -> str:
    """The text of a message, "..." for what it computes; "" if it is no text."""
    if isinstance(node, ast.Constant):
        text = node.value if isinstance(node.value, str) else ""
    elif isinstance(node, ast.JoinedStr):
        text = "".join(
            v.value if isinstance(v, ast.Constant)
            else name if isinstance(v, ast.FormattedValue) and isinstance(v.value, ast.Name) and v.value.id == "name"
            else "..."
            for v in node.values
        )  # fmt: skip
    else:
        return ""
    return " ".join(text.replace("`", "'").replace("\\", "").split())
