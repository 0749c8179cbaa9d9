"""`__xgrad_function__`: lets a class define xgrad's functions on its instances (PyTorch: `__torch_function__`).

Subclasses of `Tensor`, and classes that only resemble it, are asked before a function runs:

    type(x).__xgrad_function__(func, types, args, kwargs)

Invariant: a plain `Tensor` never comes here.  The operators' paths test `a.__class__ is Tensor`, and `overloaded` looks
at values that fail the test.  The dictionary of a new subclass gets methods and properties that ask, in place of those
that it would inherit from `Tensor`, whose own stay as they are.  xgrad's own subclasses take no part in it.
(PyTorch: torch/overrides.py, torch/csrc/utils/python_arg_parser.cpp.)
"""

import functools
from collections.abc import Callable, Iterable
from typing import Any

from .base.missing import close_namespace as _close_namespace
from .config import Block, settings, state
from .tensor import Tensor

__all__ = ["disable_overrides", "handle_xgrad_function", "has_xgrad_function", "is_tensor_like"]

_PLAIN = frozenset({Tensor, int, float, bool, complex, type(None), str, slice, type(Ellipsis)})


class disable_overrides(Block):
    """Context in which subclasses of Tensor are plain tensors: their `__xgrad_function__` is not asked.

    An override runs the function on itself in it, as `Tensor.__xgrad_function__` does; the results are plain Tensors.
    Classes that are not Tensors are still asked.  (PyTorch: `torch._C.DisableTorchFunctionSubclass`.)

    >>> import xgrad
    >>> class Named(xgrad.Tensor): pass
    >>> x = xgrad.ones(2).as_subclass(Named)
    >>> with xgrad.overrides.disable_overrides():
    ...     type(x + 1)
    <class 'xgrad.tensor.Tensor'>
    """

    def __enter__(self) -> None:
        self._will_restore("overrides_disabled")
        state.overrides_disabled = True


def override_of(kind: Any) -> Any:
    """Return a class's override, None if it has none.  Within `as_torch()` PyTorch's name of it counts too."""
    found = getattr(kind, "__xgrad_function__", None)
    if found is None and settings.torch_names and not issubclass(kind, Tensor):
        return getattr(kind, "__torch_function__", None)
    return found


def overloaded(values: Iterable[Any]) -> list[Any]:
    """Return the values to be asked, one of each class: from left to right, but a subclass before its bases."""
    found: list = []
    for value in values:
        kind = type(value)
        if kind in _PLAIN:
            continue
        if kind is tuple or kind is list:
            inner = overloaded(value)
        elif override_of(kind) is None or (state.overrides_disabled and _is_tensor(kind)):
            continue
        else:
            inner = (value,)
        for x in inner:
            if not any(type(x) is type(other) for other in found):
                place = next((i for i, other in enumerate(found) if issubclass(type(x), type(other))), len(found))
                found.insert(place, x)
    return found


def _is_tensor(kind: type) -> bool:
    return issubclass(kind, Tensor)


def dispatch(func: Callable[..., Any], asked: list[Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the answer of the first of `asked` that knows `func`.  Raises `TypeError` if none does."""
    types = tuple(map(type, asked))
    for value in asked:
        ask = getattr(value, "__xgrad_function__", None) or value.__torch_function__
        result = ask(func, types, args, kwargs)
        if result is not NotImplemented:
            return result
    listed = "\n".join(f"  - {'tensor subclass' if _is_tensor(kind) else 'class'} {kind}" for kind in types)
    raise TypeError(
        f"Multiple dispatch failed for '{resolve_name(func)}'; all __xgrad_function__ handlers returned "
        f"NotImplemented:\n\n{listed}"
    )


def resolve_name(func: Callable[..., Any]) -> str:
    """Return a function's name as the user writes it, such as 'xgrad.add' or 'xgrad.Tensor.shape.__get__'."""
    prop = getattr(func, "__self__", None)
    if isinstance(prop, property):
        return f"xgrad.Tensor.{getattr(prop.fget, '__name__', '?')}.{func.__name__}"
    module = getattr(func, "__module__", None) or "xgrad"
    name = getattr(func, "__qualname__", None) or getattr(func, "__name__", repr(func))
    return f"xgrad.{name}" if module.startswith(("xgrad.tensor", "xgrad.ops", "xgrad.dispatch")) else f"{module}.{name}"


def has_xgrad_function(relevant_args: Iterable[Any]) -> bool:
    """Return True if one of the arguments (or of the items of a list among them) is to be asked."""
    return bool(overloaded(relevant_args))


def handle_xgrad_function(
    public_api: Callable[..., Any], relevant_args: Iterable[Any], *args: Any, **kwargs: Any
) -> Any:
    """Ask the overrides among `relevant_args` what `public_api(*args, **kwargs)` is: for functions of your own.

    Raises `TypeError` if all of them return `NotImplemented`.

    >>> import xgrad
    >>> def double(x):
    ...     if xgrad.overrides.has_xgrad_function((x,)):
    ...         return xgrad.overrides.handle_xgrad_function(double, (x,), x)
    ...     return x + x
    >>> class Loud:
    ...     @classmethod
    ...     def __xgrad_function__(cls, func, types, args=(), kwargs=None):
    ...         return func.__name__.upper()
    >>> double(Loud()), xgrad.exp(Loud()), xgrad.ones(1) + Loud()
    ('DOUBLE', 'EXP', 'ADD')
    """
    return dispatch(public_api, overloaded(relevant_args), args, kwargs)


def is_tensor_like(inp: Any) -> bool:
    """Return True for a Tensor, and for an instance of a class with `__xgrad_function__`."""
    return isinstance(inp, Tensor) or override_of(type(inp)) is not None


# -- subclasses of Tensor ----------------------------------------------------------------------------------------------


def default_xgrad_function(
    cls: type[Any],
    func: Callable[..., Any],
    types: tuple[Any, ...],
    args: tuple[Any, ...] = (),
    kwargs: dict[str, Any] | None = None,
) -> Any:
    """Run `func` as on plain tensors and give its results this class: the default of subclasses.

    Returns `NotImplemented` if a class is involved that is not a base of this one.  An override calls it by `super()`.

    >>> import xgrad
    >>> class Logged(xgrad.Tensor):
    ...     @classmethod
    ...     def __xgrad_function__(cls, func, types, args=(), kwargs=None):
    ...         print(func.__name__)
    ...         return super().__xgrad_function__(func, types, args, kwargs)
    >>> x = xgrad.ones(2).as_subclass(Logged)
    >>> y = (x * 2).exp()
    mul
    exp
    >>> type(y) is Logged
    True
    """
    if not all(issubclass(cls, kind) for kind in types):
        return NotImplemented
    before, state.overrides_disabled = state.overrides_disabled, True
    try:
        result = func(*args, **(kwargs or {}))
        return result if _getter_of(func) in _NOT_WRAPPED else _as_class(result, cls, args)
    finally:
        state.overrides_disabled = before


_NOT_WRAPPED = frozenset({"_base", "grad", "_grad", "grad_fn"})


def _getter_of(func: Any) -> str | None:
    prop = getattr(func, "__self__", None)
    return prop.fget.__name__ if isinstance(prop, property) and prop.fget is not None else None


def _as_class(result: Any, cls: type, args: tuple) -> Any:
    """Return `result` with its plain tensors as instances of `cls`."""
    if isinstance(result, Tensor):
        if type(result) is not Tensor or cls is Tensor:
            return result
        if any(result is a for a in args):  # an argument: `out=`, or an in-place operation on a plain tensor
            return as_subclass(result, cls)
        return taken_over(result, cls)
    if isinstance(result, tuple) and hasattr(result, "_fields"):  # a named tuple
        return type(result)(*(_as_class(r, cls, args) for r in result))
    if isinstance(result, (tuple, list)) and type(result) in (tuple, list):
        return type(result)(_as_class(r, cls, args) for r in result)
    return result


def taken_over(tensor: Tensor, cls: type[Any]) -> Any:
    """Return a tensor that was just made as an instance of `cls`, with its place in the graph.

    (PyTorch makes an alias of it, which puts an AliasBackward0 behind each operation.)
    """
    out = object.__new__(cls)
    out.__dict__ = tensor.__dict__
    return out


def as_subclass(self: Tensor, cls: type[Any]) -> Any:
    """Return this tensor as an instance of a subclass of `Tensor`: an alias, through which gradients flow.

    Raises `TypeError` for a class that is not a subclass of Tensor.
    """
    _check_class("as_subclass", cls)
    with disable_overrides():
        alias = self.alias()
    return alias if cls is Tensor or type(alias) is not Tensor else taken_over(alias, cls)


def make_subclass(cls: type[Any], data: Tensor, require_grad: bool = False) -> Any:
    """Return a leaf of the class `cls`, a subclass of Tensor, that shares the storage of `data`.

    Raises `TypeError` for a class that is not a subclass of Tensor.
    """
    _check_class("_make_subclass", cls)
    with disable_overrides():
        leaf = data.detach().requires_grad_(require_grad)
    return leaf if cls is Tensor or type(leaf) is not Tensor else taken_over(leaf, cls)


def _check_class(where: str, cls: Any) -> None:
    if not isinstance(cls, type) or not issubclass(cls, Tensor):
        raise TypeError(f"{where}: cls must be a type that is a subclass of Tensor, but got {cls!r}")


def _asking(method: Callable) -> Callable:
    @functools.wraps(method)
    def asks(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        if not state.overrides_disabled and (asked := overloaded((self, *args, *kwargs.values()))):
            return dispatch(method, asked, (self, *args), kwargs)
        return method(self, *args, **kwargs)

    return asks


def _asking_property(prop: property) -> property:
    def access(func: Callable) -> Callable:
        def asks(self: Tensor, *value: Any) -> Any:
            if not state.overrides_disabled and (asked := overloaded((self, *value))):
                return dispatch(func, asked, (self, *value), {})
            return func(self, *value)

        return asks

    return property(
        access(prop.__get__),
        prop.fset and access(prop.__set__),
        prop.fdel and access(prop.__delete__),
        prop.__doc__,
    )


# Names that do not ask: they make or identify objects, or are read before anything is decided.
_NOT_ASKED = frozenset({
    "__new__", "__init__", "__hash__", "__init_subclass__", "__class__", "__dict__", "__doc__", "__module__",
    "__weakref__", "__annotations__", "__xgrad_function__", "__torch_function__", "__reduce__", "as_subclass",
    "__getattribute__",
    "__array_ufunc__", "__array_priority__", "__slots__", "__dir__", "__static_attributes__", "__firstlineno__",
    "__iter__", "__annotate__", "__annotate_func__", "__annotations_cache__", "__annotate_fn__", "__class_getitem__",
})  # fmt: skip
_PRIVATE_ASKED = frozenset({"_base", "_version", "_is_view"})


@functools.cache
def _replacements() -> dict[str, Any]:
    """Return the methods and properties of Tensor in the form that asks; operators ask by themselves."""
    asking: dict[str, Any] = {}
    for name, value in vars(Tensor).items():
        private = name.startswith("_") and not (name.startswith("__") and name.endswith("__"))
        if name in _NOT_ASKED or (private and name not in _PRIVATE_ASKED):
            continue
        operator = getattr(value, "operator", None)
        if isinstance(value, property):
            asking[name] = _asking_property(value)
        elif callable(value) and not isinstance(value, (staticmethod, classmethod, type)):
            if getattr(value, "__name__", name) not in vars(Tensor):
                value.__name__ = name  # the name that an override sees; pickle finds `__qualname__`
            if operator is None or operator.check is not None:
                asking[name] = _asking(value)
    return asking


def prepare_subclass(cls: Any) -> None:
    """Let methods and properties that a new subclass inherits from Tensor ask it.

    An override under PyTorch's name is one: `__torch_function__`.
    """
    own = vars(cls)
    if "__torch_function__" in own and "__xgrad_function__" not in own:
        cls.__xgrad_function__ = own["__torch_function__"]
    lineage = cls.__mro__[: cls.__mro__.index(Tensor)]
    for name, value in _replacements().items():
        if not any(name in vars(base) for base in lineage):
            setattr(cls, name, value)


def attach(tensor: Any) -> None:
    """Give `Tensor` the default override, and the methods that make instances of its subclasses."""
    tensor.__xgrad_function__ = classmethod(default_xgrad_function)
    tensor.as_subclass = as_subclass
    tensor._make_subclass = staticmethod(make_subclass)


_close_namespace(__name__)
