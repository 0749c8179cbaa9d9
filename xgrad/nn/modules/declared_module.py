"""face: a decorator that writes an nn module's constructor and, from a function's name (`@face("elu")`), its forward.

`forward` calls the function of that name in nn.functional.  The class body is the row of a table: its annotated names
are the constructor's arguments, in their order and with their defaults, and the attributes that `forward` passes on by
name.  Type checkers read it as a dataclass, `inspect` sees the signature.  It is not a dataclass, because a module
compares by identity and has no fields that others may walk over.  (PyTorch writes each of these modules out:
torch/nn/modules/activation.py, pooling.py, padding.py, loss.py.)
"""

import inspect
import linecache
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, TypeVar, dataclass_transform, get_origin

from .. import functional as F
from ..module import Module

_Class = TypeVar("_Class", bound=type)
_POSITIONAL = inspect.Parameter.POSITIONAL_OR_KEYWORD
_SELF = inspect.Parameter("self", _POSITIONAL)


class Face(Module):
    """Base class of the modules that `face` writes."""

    _declared: ClassVar[dict[str, inspect.Parameter]] = {}  # the constructor's arguments
    _passed: ClassVar[Sequence[str]] = ()  # the attributes that the function gets
    _withheld: ClassVar[tuple[str, ...]] = ()  # the arguments that it does not get, and that are not attributes
    _dimensions: ClassVar[int] = 0
    _shown: ClassVar[str | None] = None  # the format of extra_repr, if the usual one does not fit

    def _keep(self, values: dict[str, Any]) -> None:
        """Set the constructor's arguments as attributes; a class with other state overrides it."""
        for name, value in values.items():
            setattr(self, name, value)

    def extra_repr(self) -> str:
        """Return the arguments as text, `inplace` only if it is set."""
        if self._shown is not None:
            return self._shown.format(self=self)
        shown = [f"{name}={getattr(self, name)}" for name in self._declared if name != "inplace"]
        return ", ".join(shown + ["inplace=True"] * bool(getattr(self, "inplace", False)))


@dataclass_transform(eq_default=False)
def face(
    function: str = "", *, tensors: str = "input", shown: str | None = None, passed: str | None = None,
    kw_only: bool = False, dims: int = 0,
) -> Callable[[_Class], _Class]:  # fmt: skip
    """Make a class of its annotations: the constructor, and `forward` if there is a `function` for it.

    `tensors`: the names of forward's arguments.  `shown`: the format of `extra_repr`.  `passed`: the attributes that
    the function gets, by default all arguments of the constructor, which are keywords if `kw_only`.  `dims`: the number
    of dimensions that the module moves over, its `_dimensions`.
    """

    def decorate(cls: Any) -> Any:
        own = _taken(cls, inspect.Parameter.KEYWORD_ONLY if kw_only else _POSITIONAL)
        cls._declared = {**cls._declared, **own}
        if own:
            cls.__init__ = _constructor(cls)
        if shown is not None:
            cls._shown = shown
        if dims:
            cls._dimensions = dims
        if passed is not None or own:
            cls._passed = [n for n in cls._declared if n not in cls._withheld] if passed is None else passed.split()
        if function:
            cls.forward = _forward(cls, function, tensors.split())
        return cls

    return decorate


def _taken(cls: type, kind: Any) -> dict[str, inspect.Parameter]:
    """Return the arguments that a class body declares, and take their defaults out of it.

    An attribute of the class would hide a buffer of that name.
    """
    found = {}
    for name, annotation in inspect.get_annotations(cls).items():
        if get_origin(annotation) is ClassVar:
            continue
        default = vars(cls).get(name, inspect.Parameter.empty)
        if default is not inspect.Parameter.empty:
            delattr(cls, name)
        found[name] = inspect.Parameter(name, kind, default=default, annotation=annotation)
    return found


def _constructor(cls: Any) -> Callable[..., None]:
    signature = inspect.Signature([_SELF, *cls._declared.values()], return_annotation=None)

    def constructor(self: Any, *args: Any, **kwargs: Any) -> None:
        try:
            bound = signature.bind(self, *args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{cls.__name__}.__init__() {error}") from None
        bound.apply_defaults()
        values = bound.arguments
        del values["self"]
        Module.__init__(self)
        self._keep(values)

    constructor.__signature__ = signature
    constructor.__name__ = "__init__"
    return _named(constructor, cls, "Take the arguments that the class declares.")


def _forward(cls: Any, function: str, tensors: list[str]) -> Callable[..., Any]:
    """Write `forward` out, as in a class by hand: collecting arguments would cost a fifth of a ReLU.

    The function is looked up at each call, because users replace functions of F.
    """
    names = [name if default == "" else f"{name}={name}" for name, _, default in (t.partition("=") for t in tensors)]
    given = ", ".join([*names, *(f"{name}=self.{name}" for name in cls._passed)])
    source = f"def forward(self, {', '.join(tensors)}):\n    return F.{function}({given})"
    namespace: dict[str, Any] = {"F": F, "__name__": cls.__module__}
    file = f"<forward of {cls.__name__}>"
    linecache.cache[file] = len(source), None, source.splitlines(True), file  # for tracebacks and `inspect`
    exec(compile(source, file, "exec"), namespace)
    return _named(namespace["forward"], cls, f"Return `nn.functional.{function}` of the input.")


def _named(method: Any, cls: Any, doc: str) -> Any:
    method.__qualname__, method.__module__, method.__doc__ = f"{cls.__name__}.{method.__name__}", cls.__module__, doc
    return method
