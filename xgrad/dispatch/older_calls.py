"""Accepts PyTorch's deprecated overloads with numbers by position: `add_(alpha, x)`, `addmm(beta, m, alpha, a, b)`.

    exp_avg.mul_(beta).add_(1 - beta, grad)        p.addcdiv_(-lr, exp_avg, denom)        xgrad.addmm(b, x, a, m1, m2)

PyTorch still takes them, with a warning, and older packages' optimizers call them so.  `argument_names.renamed` asks
`older` about calls with more positional arguments than the function has.
(PyTorch: tools/autograd/deprecated.yaml.)
"""

import warnings
from typing import Any

import numpy as np

from ..base.dtypes import users_frame
from ..config import settings
from ..tensor import Tensor
from .operands import NUMBERS

# "T": an argument of the function, in its order; a word: the name of the number that stands there.
_FACTOR = {name: (("T", factor, *"T" * count),) for names, factor, count in (
    ("add sub", "alpha", 1), ("addcmul addcdiv", "value", 2),
) for name in names.split()}  # fmt: skip
_METHOD = (("T", "beta", "alpha", "T", "T"), ("T", "beta", "T", "T"))
_FUNCTION = (("beta", "T", "alpha", "T", "T"), ("beta", "T", "T", "T"))
_PRODUCTS = ("addmm", "addmv", "addr", "baddbmm", "addbmm")
FORMS: dict[str, tuple[tuple[str, ...], ...]] = {
    **_FACTOR,
    **{f"{name}_": forms for name, forms in _FACTOR.items()},
    **dict.fromkeys(_PRODUCTS, _METHOD + _FUNCTION),
    **{f"{name}_": _METHOD for name in _PRODUCTS},
}
_BY_NAME = frozenset({"out", "alpha", "beta", "value"})
_said: set[str] = set()


def older(name: str, given: dict[str, Any], missing: Any) -> tuple[list[Any], dict[str, Any]] | None:
    """Return (args, kwargs) that say the same by names, or None for a call that does not have an older form.

    `given`: all arguments by the function's own names, NumPy's among them, which too many positional ones fill.
    """
    forms = FORMS.get(name)
    if forms is None:
        return None
    values = [value for key, value in given.items() if key not in _BY_NAME]
    while values and (values[-1] is None or values[-1] is missing):
        values.pop()
    for form in forms:
        if len(form) != len(values) or any(v is None or v is missing for v in values):
            continue
        pairs = list(zip(form, values, strict=True))
        if all(_is_number(value) if word != "T" else _is_array(value) for word, value in pairs):
            args = [value for word, value in pairs if word == "T"]
            factors = {word: value for word, value in pairs if word != "T"}
            _warn(name, form)
            return args, {"out": given["out"], **factors} if given.get("out") is not None else factors
    return None


def _is_number(value: Any) -> bool:
    """Return whether a value may be a factor: a number, or a 0-dim tensor that loses no gradient as one."""
    if isinstance(value, Tensor):
        return value.ndim == 0 and not value.requires_grad
    return value.__class__ in NUMBERS or isinstance(value, np.number)


def _is_array(value: Any) -> bool:
    return not isinstance(value, (str, bytes, list, tuple, dict))


def _warn(name: str, form: tuple[str, ...]) -> None:
    """Say once in a process which call it was, and how it is written now."""
    if name in _said and not settings.warn_always:
        return
    _said.add(name)
    was = ", ".join("tensor" if word == "T" else word for word in form)
    now = ", ".join([*("tensor" for word in form if word == "T"), *(f"{w}={w}" for w in form if w != "T")])
    warnings.warn(
        f"This overload of {name} is deprecated: {name}({was}). Numbers are passed by name: {name}({now}).",
        UserWarning,
        stacklevel=users_frame(),
    )
