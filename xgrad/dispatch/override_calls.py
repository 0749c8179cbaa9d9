"""Lets arguments' classes override a function, by `__xgrad_function__`; puts the function's name in its errors.

An operator calls `__xgrad_function__` (PyTorch: `__torch_function__`) if an argument's class has one, and passes its
public function, with the arguments of the user's call.  Composites are Python functions over operators.
`replace_composites` wraps most of them:
* most that take tensors, in four tables (`_TABLES`), test their arguments first (0.15 µs) and name their errors;
* other functions, and methods, only name their errors.  Some methods accept NumPy's names of arguments too.
Composites that make one view are not wrapped, as `view.try_view` tests for them, nor are the commonest (`add`, ...).
"""

import functools
import inspect
from collections.abc import Callable
from typing import Any

from ..overrides import dispatch, overloaded
from ..tensor import Tensor
from .argument_names import accepting, aliases_of, translated
from .error_names import name_error, naming
from .operator import Operator
from .public_code import called_as
from .tables import FUNCTIONS, METHODS, OPERATORS
from .wrong_arguments import given, refuse

_USUAL = frozenset({Tensor, int, float, bool, complex, type(None), str})
_ONE_VIEW = frozenset({
    "select", "narrow", "permute", "transpose", "swapdims", "swapaxes", "t", "movedim", "moveaxis", "adjoint",
    "reshape", "ravel", "unflatten", "squeeze", "unsqueeze", "diagonal", "as_strided", "alias",
})  # fmt: skip
# Composites that are methods, and accept NumPy's names as in PyTorch.
_BY_NUMPY_NAMES = (
    "argsort", "chunk", "log_softmax", "max", "median", "min", "mode", "nanmedian", "nanquantile", "quantile",
    "softmax", "std", "std_mean", "take_along_dim", "tensor_split", "var", "var_mean",
)  # fmt: skip
# Composites that name their errors by themselves: the functions that use `arithmetic.run`, and the functions that make
# a view.
_COMMON = frozenset({"add", "sub", "subtract", "div", "divide", "true_divide", "pow", "view", "expand"})
_TABLES = ("", "nn.functional", "linalg", "special")


def ask(
    op: Operator, args: tuple[Any, ...], statics: tuple[Any, ...], call: Callable[..., Any], inplace: bool = False
) -> Any:
    """Let the arguments' overrides compute the result of an operator's call; `NotImplemented` if there is none.

    `call` runs the operator: an override gets it if the operator has no public function.
    """
    asked = overloaded(args)
    if not asked:
        return NotImplemented
    func = _public(op, inplace, call)
    return dispatch(func, asked, *_as_given(op, func, args, statics))


def ask_view(self: Any, key: tuple[Any, ...]) -> Any:
    """Let an override make the view of `self` that `key` = (PyTorch's name, *arguments) describes."""
    asked = overloaded((self,))
    func = FUNCTIONS[""].get(key[0]) or METHODS.get(key[0])
    if not asked or func is None:
        return NotImplemented
    if isinstance(func, property):
        func = func.__get__
    return dispatch(func, asked, (self, *key[1:]), {})


@functools.cache
def _public(op: Operator, inplace: bool, call: Callable) -> Callable:
    """Find the operator's public function; for an operator that only composites call, make a function that runs it."""
    name = op.name + "_" if inplace else op.name
    same = op.name in _SAME and OPERATORS.get(op.name) is op
    for table in (METHODS, *FUNCTIONS.values()):
        for known in (name, op.name.partition("_")[2] + "_" * inplace):
            found = table.get(known)
            own = getattr(found, "operator", None) is op or (same and known == name)
            if found is not None and own and _takes(found, op):
                return found
    if inplace and op.name == "copy":
        return METHODS["copy_"]

    def hidden(*args: Any, **statics: Any) -> Any:
        return call(op, args, tuple(statics[s] if s in statics else op.defaults[s] for s in op.static_names))

    hidden.__name__ = hidden.__qualname__ = name
    hidden.hidden = True  # pyright: ignore[reportFunctionMemberAccess]
    return hidden


# Composites that choose between operators, and pass their own arguments to the one with their name.
_SAME = frozenset({"add", "sub", "div", "pow", "relu", "softmax", "log_softmax"})
_PUBLIC_NAMES = {"self": "input"}


def _takes(func: Callable, op: Operator) -> bool:
    """Return whether a function takes all arguments of the operator, under the same names."""
    names = inspect.signature(func).parameters
    return all(_PUBLIC_NAMES.get(p, p) in names for p in (*op.parameters, *op.static_names))


def _as_given(op: Operator, func: Callable, args: tuple, statics: tuple) -> tuple[tuple, dict[str, Any]]:
    """(args, kwargs) with which a user would have called `func`, without those that are defaults."""
    if hasattr(func, "hidden"):
        return args, dict(zip(op.static_names, statics))
    if op.name == "copy":
        return args, {}
    count = len(op.parameters)
    given = {_PUBLIC_NAMES.get(p, p): a for p, a in zip(op.parameters, args)}
    given.update(zip(op.static_names, statics, strict=True))
    positional: list[Any] = []
    named: dict[str, Any] = {}
    omitted = False  # after an omitted argument the others are passed by name
    for p in inspect.signature(func).parameters.values():
        if p.name not in given and p.kind is _VAR:
            positional += args[count:]
        elif p.name not in given:
            if op.variadic and p.default is p.empty:  # the tensors of `cat`
                positional.append(list(args[count:]))
        elif p.kind is p.KEYWORD_ONLY or named or omitted:
            if not _is_default(given[p.name], p.default):
                named[p.name] = given[p.name]
        elif not _is_default(given[p.name], p.default):
            positional.append(given[p.name])
        elif p.default is not p.empty:
            omitted = True
    return tuple(positional), named


_VAR = inspect.Parameter.VAR_POSITIONAL


def _is_default(value: Any, default: Any) -> bool:
    return value is default or (type(value) is type(default) and not isinstance(value, Tensor) and value == default)


def _looking(function: Callable) -> Callable:
    table = aliases_of(function)

    @functools.wraps(function)
    def looks(*args: Any, **kwargs: Any) -> Any:
        for a in args:
            if a.__class__ not in _USUAL:
                break
        else:
            if not kwargs:
                try:
                    return function(*args)
                except BaseException as error:
                    refuse(looks, given(function, args, kwargs), error)
                    name_error(error, looks.__name__)
                    raise
        try:
            if kwargs:
                kwargs = translated(function, table, args, kwargs)
            asked = overloaded((*args, *kwargs.values()))
            return dispatch(looks, asked, args, kwargs) if asked else function(*args, **kwargs)
        except BaseException as error:
            refuse(looks, given(function, args, kwargs), error)
            name_error(error, looks.__name__)
            raise

    return called_as(function, looks)


def _takes_tensors(function: Callable) -> bool:
    names = getattr(function, "__annotations__", {})
    return any("Tensor" in str(kind) for name, kind in names.items() if name not in ("return", "out")) or any(
        name in names for name in ("tensors", "operands", "data", "mean")
    )


def replace_composites() -> None:
    """Wrap composites in the tables: functions of tensors test their arguments, and all name their errors.

    Called once, when all are declared.  Those that make one view, and the commonest binary ones, are not wrapped.
    """
    seen: dict[tuple[Any, str], Callable] = {}
    for name in _BY_NUMPY_NAMES:
        METHODS[name] = accepting(METHODS[name])
    for name in ("softmax", "log_softmax"):
        FUNCTIONS[""][name] = accepting(FUNCTIONS[""][name])
    for place, table in FUNCTIONS.items():
        for name, function in table.items():
            if not _names_itself(name, function):
                looks = place in _TABLES and not (name in _SAME and name in OPERATORS) and _takes_tensors(function)
                key = function, "" if looks else name
                if key not in seen:
                    seen[key] = _looking(function) if looks else naming(function, name)
                table[name] = seen[key]
    for name, function in METHODS.items():
        if not isinstance(function, property) and not name.startswith("__") and not _names_itself(name, function):
            METHODS[name] = naming(function, name)


def _names_itself(name: str, function: Any) -> bool:
    return hasattr(function, "operator") or name in _ONE_VIEW or name in _COMMON or not hasattr(function, "__code__")
