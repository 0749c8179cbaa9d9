"""infer_schema: makes an operator's schema from a function's type hints (PyTorch: torch/_library/infer_schema.py)."""

import collections.abc
import inspect
import types
import typing
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

import numpy as np

from ..base.devices import device
from ..base.dtype_object import dtype
from ..tensor import Tensor
from .tags import Tag, tags_of

# Type hint → the schema's word, and the forms that PyTorch has of it.
_TYPES: tuple[tuple[Any, str, frozenset[str]], ...] = (
    (Tensor, "Tensor", frozenset({"", "?", "[]", "?[]"})),
    (int, "SymInt", frozenset({"", "?", "[]", "[]?"})),
    (float, "float", frozenset({"", "?", "[]", "[]?"})),
    (bool, "bool", frozenset({"", "?", "[]", "[]?"})),
    (str, "str", frozenset({"", "?"})),
    (int | float | bool, "Scalar", frozenset({"", "?", "[]"})),
    (int | float | complex | np.generic, "Scalar", frozenset({"", "?", "[]"})),  # xgrad.types.Number
    (dtype, "ScalarType", frozenset({"", "?"})),
    (device, "Device", frozenset({"", "?"})),
)
_LISTS = (list, collections.abc.Sequence)
_VALID = (
    "Tensor, int, float, bool, str, xgrad.types.Number, xgrad.dtype, xgrad.device, and as far as PyTorch has them "
    "`T | None`, `list[T]`, `Sequence[T]`, `list[T] | None`"
)
_RETURNS: dict[Any, str] = {Tensor: "Tensor", list[Tensor]: "Tensor[]", int: "SymInt", float: "float", bool: "bool"}


def infer_schema(
    prototype_function: Callable[..., Any],
    /,
    *,
    mutates_args: str | Iterable[str],
    op_name: str | None = None,
    tags: Any = (),
) -> str:
    """Return the schema of a function, from its type hints and defaults.

    mutates_args: the names of the tensors that the function writes, or "unknown" for all of them.
    op_name: the name in the schema; None leaves it out.  tags: with `Tag.inplace` or `Tag.out` the results
    are the arguments that are written.

    Raises `ValueError` for a parameter without a type hint, a type that no schema has, variadic and positional-only
    parameters, and a name in `mutates_args` that is not a tensor of the function.

    >>> import xgrad
    >>> def scaled(x: xgrad.Tensor, by: float = 2.0, *, dims: list[int] | None = None) -> xgrad.Tensor:
    ...     return x * by
    >>> xgrad.library.infer_schema(scaled, mutates_args=(), op_name="scaled")
    'scaled(Tensor x, float by=2.0, *, SymInt[]? dims=None) -> Tensor'

    Source: PyTorch's `torch.library.infer_schema`.
    """
    signature = inspect.signature(prototype_function)

    def refuse(why: str) -> NoReturn:
        raise ValueError(f"infer_schema(func): {why} Got func with signature {signature}")

    if isinstance(mutates_args, str) and mutates_args != "unknown":
        raise ValueError(
            "mutates_args must either be a sequence of the names of the arguments that are mutated or the string "
            f"'unknown', but got {mutates_args!r}"
        )
    mutated = None if isinstance(mutates_args, str) else {*mutates_args}
    names = getattr(inspect.unwrap(prototype_function), "__globals__", {})
    marks = tags_of(tags)
    parts: list[str] = []
    written: list[tuple[str, str, Any]] = []
    for place, parameter in enumerate(signature.parameters.values()):
        name = parameter.name
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            refuse("We do not support positional-only args, varargs, or varkwargs.")
        if parameter.kind is parameter.KEYWORD_ONLY and "*" not in parts:
            parts.append("*")
        if parameter.annotation is parameter.empty:
            refuse(f"Parameter {name} must have a type annotation.")
        kind = _of_parameter(_evaluated(parameter.annotation, names, refuse))
        if kind is None:
            hint = " Tuples are not supported: use a list." if "uple[" in str(parameter.annotation) else ""
            refuse(
                f"Parameter {name} has unsupported type {parameter.annotation}.{hint} The valid types are: {_VALID}."
            )
        if kind.startswith("Tensor") and (mutated is None or name in mutated):
            kind = f"Tensor(a{place}!){kind.removeprefix('Tensor')}"
            written.append((name, kind, parameter.kind))
        elif mutated is not None and name in mutated:
            refuse(f"Parameter {name} is in mutates_args but only Tensors or collections of Tensors can be mutated.")
        shown = "" if parameter.default is parameter.empty else f"={_default(parameter.default, name, refuse)}"
        parts.append(f"{kind} {name}{shown}")
    unknown = (mutated or set()) - {*signature.parameters}
    if unknown:
        refuse(f"{sorted(unknown)} in mutates_args were not found in the custom op's signature.")
    returned = _of_result(_evaluated(signature.return_annotation, names, refuse), refuse)
    if Tag.inplace in marks or Tag.out in marks:
        returned = _returned_arguments(Tag.inplace in marks, written, [*signature.parameters], returned, refuse)
    return f"{op_name or ''}({', '.join(parts)}) -> {returned}"


def _returned_arguments(
    inplace: bool,
    written: list[tuple[str, str, Any]],
    names: list[str],
    returned: str,
    refuse: Callable[[str], NoReturn],
) -> str:
    """Return the results of an operator that returns what it writes."""
    kinds = [kind for _, kind, _ in written]
    if inplace:
        if [name for name, _, _ in written] != names[:1] or not kinds[0].endswith("!)"):
            refuse(
                "torch.Tag.inplace requires mutates_args to contain exactly the first positional argument, a Tensor."
            )
        if returned != "Tensor":
            refuse("torch.Tag.inplace requires the return annotation to be a Tensor.")
        return kinds[0]
    if not written:
        refuse("torch.Tag.out requires at least one mutable keyword-only Tensor argument.")
    if any(kind is not inspect.Parameter.KEYWORD_ONLY for _, _, kind in written):
        refuse("torch.Tag.out requires mutable arguments to be keyword-only.")
    if any(not kind.endswith("!)") for kind in kinds):
        refuse("torch.Tag.out only supports mutable keyword-only Tensor arguments.")
    if returned != ("Tensor" if len(kinds) == 1 else f"({', '.join(['Tensor'] * len(kinds))})"):
        refuse("torch.Tag.out requires the return annotation to match the mutable keyword-only Tensor arguments.")
    return kinds[0] if len(kinds) == 1 else f"({', '.join(kinds)})"


def _evaluated(annotation: Any, names: dict[str, Any], refuse: Callable[[str], NoReturn]) -> Any:
    """Return the type that a hint stands for: hints may be strings, as a whole or inside."""
    if not isinstance(annotation, str):
        return annotation
    try:
        return eval(annotation, names)  # a type hint of the user's own function
    except Exception as error:
        refuse(
            f"Unsupported type annotation {annotation}. It is not a type ({type(error).__name__}: {error}). "
            "Hints that are strings need names of the function's module."
        )


def _of_parameter(hint: Any) -> str | None:
    """Return the schema's type for a hint, None if there is none."""
    base, form = _formed(hint)
    for known, word, forms in _TYPES:
        if base == known and form in forms:
            return word + form
    return None


def _formed(hint: Any) -> tuple[Any, str]:
    """Split a hint into its innermost type and a schema's form: `list[int] | None` is (int, "[]?")."""
    if any(hint == known for known, _, _ in _TYPES):
        return hint, ""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in _LISTS and len(inner) == 1:
        base, form = _formed(inner[0])
        return base, form + "[]"
    if origin in (typing.Union, types.UnionType) and type(None) in inner:
        rest = typing.Union[tuple(a for a in inner if a is not type(None))]  # noqa: UP007 - of a tuple
        base, form = _formed(rest)
        return base, form + "?"
    return hint, ""


def _default(value: Any, name: str, refuse: Callable[[str], NoReturn]) -> str:
    if value is None or isinstance(value, (int, float, bool)):
        return str(value)
    if isinstance(value, (str, device)):
        return f'"{value}"'
    if isinstance(value, dtype):
        return value.name
    refuse(f"Parameter {name} has an unsupported default value type {type(value)}.")


def _of_result(hint: Any, refuse: Callable[[str], NoReturn]) -> str:
    if hint is None:
        return "()"
    if hint is inspect.Signature.empty:
        refuse("No return type annotation was provided. Please add one.")
    several = typing.get_origin(hint) is tuple
    found = [_word_of_result(h) for h in (typing.get_args(hint) if several else (hint,))]
    if None in found:
        refuse(
            f"Return has unsupported type {hint}. The valid types are: Tensor, list[Tensor], int, float, bool, "
            "numbers, and tuples of them."
        )
    joined = ", ".join(map(str, found))
    if not several:
        return joined
    return f"(({joined}))" if len(found) == 1 else f"({joined})"


def _word_of_result(hint: Any) -> str | None:
    base, form = _formed(hint)
    if form == "[]":
        return "Tensor[]" if base is Tensor else None
    if form:
        return None
    return _RETURNS.get(base) or next((word for known, word, _ in _TYPES if word == "Scalar" and base == known), None)
