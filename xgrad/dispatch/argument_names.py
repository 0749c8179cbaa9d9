"""Accepts NumPy's names of arguments, as PyTorch's argument parser does: `axis`, `keepdims`, `x`, `x1`, `x2`.

    xgrad.sum(a=x, axis=0, keepdims=True)        x.add(x2=y)

Invariant: a call that uses none of them pays almost nothing.  In the generated functions they are parameters after the
positional ones, with None as default: to fill these in costs 1 ns each, to catch `**named` 35.  `inspect` and `help`
show the signature without them.  (PyTorch: numpy_compatibility_arg_names in torch/csrc/utils/python_arg_parser.cpp.)
"""

import functools
import inspect
import re
from collections.abc import Callable
from typing import Any

from .older_calls import FORMS, older
from .public_code import called_as

ALIASES: Any = {"dim": ("axis",), "keepdim": ("keepdims",), "input": ("x", "a", "x1"), "other": ("x2",)}
NAMES: Any = {alias: name for name, aliases in ALIASES.items() for alias in aliases}

_COMMA = re.compile(r",\s*(?![^()]*\))")  # outside of parentheses


def split(parameters: str) -> list[str]:
    """The parameters in the text of a signature."""
    plain = "(" not in parameters  # the quick test: true for nearly all, hundreds at import
    return [p for p in (map(str.lstrip, parameters.split(",")) if plain else _COMMA.split(parameters)) if p]


class Missing:
    """The default of an argument that must be passed."""

    def __repr__(self) -> str:
        return "<required>"


MISSING = Missing()


@functools.cache
def widened(parameters: str) -> tuple[str, str]:
    """(parameters with NumPy's names, a test if a call uses one of these), as source text."""
    parts = split(parameters)
    names = [p.partition("=")[0].strip() for p in parts]
    count = next((i for i, name in enumerate(names) if name.startswith("*")), len(names))
    extra = [alias for name in names for alias in ALIASES.get(name, ()) if alias not in names]
    if not extra or (count < len(names) and names[count] != "*"):
        return parameters, ""
    required = [name for name, p in zip(names[:count], parts) if "=" not in p]
    positional = [p if "=" in p else f"{p}=_MISSING" for p in parts[:count]]
    test = " or ".join([*(f"{name} is _MISSING" for name in required[-1:]), *(f"{e} is not None" for e in extra)])
    return ", ".join([*positional, *(f"{e}=None" for e in extra), *parts[count:]]), test


def renamed(function: Callable[..., Any], given: dict[str, Any]) -> Any:
    """Call a function again, with PyTorch's names in the place of NumPy's, and with names for older calls' numbers.

    Raises `TypeError`, as PyTorch does, for an argument that is passed twice or not at all.
    """
    name = function.__name__
    if name in FORMS and (found := older(name, given, MISSING)) is not None:
        return function(*found[0], **found[1])
    known = inspect.signature(function).parameters
    call = {key: value for key, value in given.items() if key in known}
    for alias, value in given.items():
        if alias in known or value is None:
            continue
        proper = NAMES[alias]
        if call[proper] is not MISSING and call[proper] is not known[proper].default:
            raise TypeError(
                f"{name}() got an unexpected keyword argument '{alias}', which is NumPy's name of '{proper}', beside "
                f"that one; or it got more positional arguments than it takes"
            )
        call[proper] = value
    absent = [repr(key) for key, value in call.items() if value is MISSING]
    if absent:
        plural = "s" if len(absent) > 1 else ""
        raise TypeError(f"{name}() missing {len(absent)} required positional argument{plural}: {' and '.join(absent)}")
    return function(**call)


def without_numpys(function: Callable[..., Any]) -> inspect.Signature:
    """Return the signature of a handwritten function that has NumPy's names as parameters, without these."""
    own = inspect.signature(function)
    shown = [p.replace(default=p.empty if p.default is MISSING else p.default) for p in own.parameters.values()]
    return own.replace(parameters=[p for p in shown if p.name not in NAMES])


class Shown(inspect.Signature):
    """The signature without NumPy's names, computed when it is first read."""

    __slots__ = ("_found", "_text", "_values")

    _return_annotation: Any = inspect.Signature.empty

    def __init__(self, text: str, values: dict[str, Any]) -> None:
        self._text, self._values = text, values

    @property
    def _parameters(self) -> Any:
        try:
            return self._found
        except AttributeError:
            self._found = inspect.signature(eval(f"lambda {self._text}: 0", {"_defaults": self._values})).parameters
            return self._found

    def replace(self, **changes: Any) -> inspect.Signature:
        return inspect.Signature(list(self._parameters.values())).replace(**changes)


def aliases_of(function: Callable[..., Any]) -> dict[str, str]:
    """The table {NumPy's name: PyTorch's name} for the parameters of a handwritten function."""
    code = inspect.unwrap(function).__code__
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    return {alias: name for name in names for alias in ALIASES.get(name, ()) if alias not in names}


def translated(
    function: Callable[..., Any], table: dict[str, str], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> dict[str, Any]:
    """Rename keyword arguments to PyTorch's names.  Raises `TypeError` for an argument under both names."""
    if table.keys().isdisjoint(kwargs):
        return kwargs
    before = inspect.unwrap(function).__code__.co_varnames[: len(args)]
    found: dict[str, Any] = {}
    for key, value in kwargs.items():
        name = table.get(key, key)
        if name != key and (name in kwargs or name in before):
            raise TypeError(
                f"{function.__name__}() got an unexpected keyword argument '{key}', which is NumPy's name of '{name}', "
                "beside that one"
            )
        found[name] = value
    return found


def accepting(method: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a handwritten method so that it accepts `axis` and `keepdims` too, if it has such parameters."""
    table = {alias: name for alias, name in aliases_of(method).items() if name in ("dim", "keepdim")}
    if not table:
        return method

    @functools.wraps(method)
    def accepts(*args: Any, **kwargs: Any) -> Any:
        return method(*args, **(translated(method, table, args, kwargs) if kwargs else kwargs))

    return called_as(method, accepts)
