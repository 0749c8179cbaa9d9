"""Schema: parses an operator's schema, and binds a call's arguments to it, for operators registered by name.

    ns::name.overload(Tensor x, Tensor(a!) out, int[2] size=[1, 1], *, float eps=0.1) -> (Tensor, Tensor[])

Invariant: `bind` returns a value for each argument, converted to the type that the schema names, or raises
(PyTorch: torch/csrc/jit/frontend/function_schema_parser.cpp).
"""

import ast
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..base.devices import device
from ..base.dtype_object import dtype
from ..tensor import Tensor

BASES = frozenset({"Tensor", "int", "SymInt", "float", "bool", "str", "Scalar", "ScalarType", "Device"})
_IGNORED = frozenset({"Layout", "MemoryFormat", "Generator", "Dimname", "complex", "Any"})  # passed on unchanged
_NAME = re.compile(r"^(?:(?P<space>[\w.]+)::)?(?P<name>\w+)(?:\.(?P<overload>\w+))?$")
_TYPE = re.compile(
    r"^(?P<base>\w+)(?:\((?P<alias>[\w|* ]+)(?P<write>!)?(?: *-> *[\w|* ]+)?\))?(?P<form>(?:\[\d*\]|\?)*)$"
)
_WORDS = {"None": None, "True": True, "False": False, "true": True, "false": False}


class Type(NamedTuple):
    """A type of a schema: its base, and a form, one of "", "?", "[]", "?[]", "[]?"; size: 2 for int[2]."""

    base: str
    form: str = ""
    size: int = 0
    alias: str = ""
    is_write: bool = False

    def __str__(self) -> str:
        alias = f"({self.alias}{'!' * self.is_write})" if self.alias else ""
        form = self.form.replace("[]", f"[{self.size}]", 1) if self.size else self.form
        return f"{self.base}{alias}{form}"

    @property
    def has_tensors(self) -> bool:
        """Return True for a tensor, an optional one, and lists of them."""
        return self.base == "Tensor"


class Argument(NamedTuple):
    """An argument of a schema.  `default` is `REQUIRED` if it has none."""

    name: str
    type: Type
    default: Any
    kwarg_only: bool
    shown: str = ""

    def __str__(self) -> str:
        return f"{self.type} {self.name}" + (f"={self.shown}" if self.shown else "")


class _Required:
    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED: Any = _Required()


class Schema:
    """An operator's schema.

    Raises `RuntimeError` for a text that is not a schema.

    >>> schema = Schema("f(Tensor x, float k=2.0, *, int[] dims=[0]) -> (Tensor, Tensor[])", "mine")
    >>> print(schema)
    mine::f(Tensor x, float k=2.0, *, int[] dims=[0]) -> (Tensor, Tensor[])
    >>> schema.bind((3,), {"k": 1})
    Traceback (most recent call last):
    RuntimeError: mine::f() Expected a value of type 'Tensor' for argument 'x' but instead found type 'int'. ...
    """

    def __init__(self, text: str, namespace: str = "") -> None:
        opened = text.find("(")
        closed = _closing(text, opened)
        arrow = text.find("->", closed)
        found = _NAME.match(text[:opened].strip()) if opened >= 0 else None
        if found is None or arrow < 0 or text[closed + 1 : arrow].strip():
            raise RuntimeError(
                f"cannot read the operator schema {text!r}: expected NAME(TYPE NAME, ...) -> RETURNS, e.g. "
                "f(Tensor x, float k=1.0) -> Tensor"
            )
        self.namespace: str = found["space"] or namespace
        self.op_name: str = found["name"]
        self.overload_name: str = found["overload"] or ""
        self.arguments: tuple[Argument, ...] = tuple(_arguments(text[opened + 1 : closed], text))
        self.returns: tuple[Type, ...] = tuple(_returns(text[arrow + 2 :].strip(), text))
        names = [a.name for a in self.arguments]
        if len({*names}) < len(names):
            raise RuntimeError(f"the operator schema {text!r} has two arguments of one name")
        self.positional: tuple[Argument, ...] = tuple(a for a in self.arguments if not a.kwarg_only)
        self.mutated: tuple[str, ...] = tuple(a.name for a in self.arguments if a.type.is_write)

    @property
    def name(self) -> str:
        """The operator's name with its namespace."""
        return f"{self.namespace}::{self.op_name}"

    @property
    def is_mutable(self) -> bool:
        """Return True if the operator writes to an argument."""
        return bool(self.mutated)

    def __str__(self) -> str:
        parts = [str(a) for a in self.arguments]
        if len(self.positional) < len(parts):
            parts.insert(len(self.positional), "*")
        returned = ", ".join(map(str, self.returns))
        overload = f".{self.overload_name}" if self.overload_name else ""
        if len(self.returns) != 1:
            returned = f"({returned})"
        return f"{self.name}{overload}({', '.join(parts)}) -> {returned}"

    __repr__ = __str__

    def bind(self, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Return the positional arguments and the keyword-only ones, with defaults, converted.

        Raises `RuntimeError` for a missing argument, an unknown one, and a value of another type.
        """
        if len(args) > len(self.positional):
            most = len(self.positional)
            raise RuntimeError(
                f"{self.name}() expected at most {most} positional argument(s) but received {len(args)} argument(s). "
                f"Declaration: {self}"
            )
        left = dict(kwargs)
        found: list[Any] = []
        for place, argument in enumerate(self.arguments):
            if place < len(args):
                if argument.name in left:
                    raise RuntimeError(
                        f"{self.name}() got two values for argument '{argument.name}'. Declaration: {self}"
                    )
                value = args[place]
            elif argument.name in left:
                value = left.pop(argument.name)
            elif argument.default is REQUIRED:
                raise RuntimeError(
                    f"{self.name}() is missing value for argument '{argument.name}'. Declaration: {self}"
                )
            else:
                found.append(list(argument.default) if isinstance(argument.default, list) else argument.default)
                continue
            found.append(self._converted(argument, value, place))
        if left:
            raise RuntimeError(
                f"Unknown keyword argument '{next(iter(left))}' for operator '{self.name}'. Schema: {self}"
            )
        n = len(self.positional)
        return found[:n], {a.name: v for a, v in zip(self.arguments[n:], found[n:], strict=True)}

    def _converted(self, argument: Argument, value: Any, place: int) -> Any:
        try:
            return converted(argument.type, value)
        except TypeError:
            raise RuntimeError(
                f"{self.name}() Expected a value of type '{argument.type}' for argument '{argument.name}' but instead "
                f"found type '{type(value).__name__}'. Position: {place}. Value: {_short(value)}. Declaration: {self}"
            ) from None


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def converted(kind: Type, value: Any) -> Any:
    """Return the value as a type's; raise `TypeError` if it is of another type."""
    form = kind.form
    if form.endswith("?"):
        return None if value is None else converted(kind._replace(form=form[:-1]), value)
    if form.endswith("[]"):
        item = kind._replace(form=form[:-2], size=0)
        if kind.size and not isinstance(value, (list, tuple)):
            return [converted(item, value)] * kind.size
        if isinstance(value, (list, tuple)):
            return [converted(item, v) for v in value]
        raise TypeError
    return _BY_BASE.get(kind.base, _unchanged)(value)


def _unchanged(value: Any) -> Any:
    return value


def _instance_of(*kinds: type) -> Callable[[Any], Any]:
    def checked(value: Any) -> Any:
        if not isinstance(value, kinds):
            raise TypeError
        return value

    return checked


def _integer(value: Any) -> int:
    if isinstance(value, Tensor) and value.ndim == 0 and value.dtype.kind in "iu":
        return int(value)
    if isinstance(value, (int, np.integer)):  # a bool is one
        return int(value)
    raise TypeError


def _float(value: Any) -> float:
    if isinstance(value, (int, float, np.integer, np.floating)):
        return float(value)
    if isinstance(value, Tensor) and value.ndim == 0 and value.dtype.kind != "c" and not value.requires_grad:
        return float(value)
    raise TypeError


def _boolean(value: Any) -> bool:
    if isinstance(value, (bool, int, np.bool_)):
        return bool(value)
    raise TypeError


def _scalar(value: Any) -> Any:
    if isinstance(value, (int, float, complex)):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Tensor) and value.ndim == 0 and not value.requires_grad:
        return value.item()
    raise TypeError


def _device(value: Any) -> Any:
    try:
        return device(value)
    except (RuntimeError, ValueError):
        raise TypeError from None


_BY_BASE = {
    "Tensor": _instance_of(Tensor), "str": _instance_of(str), "ScalarType": _instance_of(dtype, np.dtype),
    "int": _integer, "SymInt": _integer, "float": _float, "bool": _boolean, "Scalar": _scalar, "Device": _device,
}  # fmt: skip


# -- reading a text ---------------------------------------------------------------------------------------------------


def _closing(text: str, opened: int) -> int:
    depth = 0
    for i in range(max(opened, 0), len(text)):
        depth += (text[i] == "(") - (text[i] == ")")
        if depth == 0:
            return i
    return len(text)


def _parts(text: str) -> list[str]:
    """Split a text at its outermost commas."""
    parts, depth, quoted = [""], 0, ""
    for c in text:
        if quoted:
            quoted = "" if c == quoted else quoted
        elif c in "\"'":
            quoted = c
        depth += 0 if quoted else (c in "([") - (c in ")]")
        if c == "," and depth == 0 and not quoted:
            parts.append("")
        else:
            parts[-1] += c
    return [p.strip() for p in parts if p.strip()]


def _arguments(text: str, whole: str) -> Any:
    only = False
    for part in _parts(text):
        if part == "*":
            only = True
            continue
        left, equal, default = part.partition("=")
        kind, _, name = left.strip().rpartition(" ")
        if not name.isidentifier() or not kind:
            raise RuntimeError(
                f"cannot read {part!r} of the operator schema {whole!r}: expected TYPE NAME or TYPE NAME=DEFAULT"
            )
        found = _type(kind.strip(), whole)
        value = _default(default.strip(), found, whole) if equal else REQUIRED
        yield Argument(name, found, value, only, default.strip())


def _type(text: str, whole: str) -> Type:
    found = _TYPE.match(text)
    if found is None or found["base"] not in BASES | _IGNORED:
        raise RuntimeError(
            f"cannot read the type {text!r} of the operator schema {whole!r}: known are {', '.join(sorted(BASES))}"
        )
    size = re.search(r"\[(\d+)\]", found["form"])
    form = re.sub(r"\[\d+\]", "[]", found["form"])
    return Type(found["base"], form, int(size[1]) if size else 0, found["alias"] or "", found["write"] is not None)


def _default(text: str, kind: Type, whole: str) -> Any:
    if text in _WORDS:
        return _WORDS[text]
    if kind.base == "Device":
        return device(text.strip("\"'"))
    if kind.base == "ScalarType":
        try:
            return dtype(text)
        except TypeError:
            pass
    try:
        value = ast.literal_eval(text)
        return converted(kind, value)
    except (ValueError, SyntaxError, TypeError):
        raise RuntimeError(f"cannot read the default {text!r} of the operator schema {whole!r}") from None


def _returns(text: str, whole: str) -> Any:
    if text.startswith("(") and text.endswith(")"):
        text = text[1:-1]
    for part in _parts(text):
        if part.startswith("(") and part.endswith(")"):  # (()): a tuple of one
            part = part[1:-1]
        yield _type(part.split(" ")[0] if " " in part else part, whole)
