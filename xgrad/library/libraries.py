"""Library, define, impl, register_autograd, ...: let users register operators and their kernels (torch/library.py).

An operator that is defined this way is not a black box: without a registered derivative the operators that its kernel
calls are recorded, as PyTorch's dispatcher does.
"""

import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ..amp.settings import kind_of
from ..config import settings
from .custom_op import operator_of, register_casts, register_formula, register_rule
from .operator import OpOverload
from .registry import NAMESPACES, checked_name, find, put, remove
from .schema import Schema
from .tags import tags_of

_defining: dict[str, weakref.ref["Library"]] = {}  # namespaces that have a library of kind "DEF"
_COMPOSITE = "CompositeImplicitAutograd"
_ALL = ("CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional", "BackendSelect", "default", "")
_AUTOGRAD = ("Autograd", "AutogradCPU", "AutogradCUDA", "AutogradXLA", "AutogradOther")


class Library:
    """Operators of one namespace: `define` gives a schema, `impl` a kernel.

    kind: "DEF" for the one library that defines a namespace, "FRAGMENT" for more of them, "IMPL" for kernels only.
    dispatch_key: the default of `impl`: "CPU", "CUDA", "CompositeExplicitAutograd" (all devices), ...

    Raises `ValueError` for another kind, `RuntimeError` for a second "DEF" of a namespace.

    >>> import xgrad
    >>> lib = xgrad.library.Library("docs", "FRAGMENT")
    >>> lib.define("double(Tensor x) -> Tensor")
    'double'
    >>> lib.impl("double", lambda x: x * 2, "CompositeExplicitAutograd")
    >>> xgrad.ops.docs.double(xgrad.ones(2))
    tensor([2., 2.])

    Source: PyTorch's `torch.library.Library`.
    """

    def __init__(self, ns: str, kind: str, dispatch_key: str = "") -> None:
        if kind not in ("IMPL", "DEF", "FRAGMENT"):
            raise ValueError(f"Unsupported kind: {kind}")
        if ns in ("prim", "aten") and kind != "IMPL":
            raise ValueError(f"{ns} is a reserved namespace. Please try creating a library with another name.")
        if ns == "aten":
            raise NotImplementedError("xgrad.ops.aten cannot be overridden: use a subclass with __xgrad_function__")
        if kind == "DEF":
            if ns in _defining and _defining[ns]() is not None:
                raise RuntimeError(
                    f"Only a single TORCH_LIBRARY can be used to register the namespace {ns}: use the kind 'FRAGMENT' "
                    "for more definitions, 'IMPL' for kernels"
                )
            _defining[ns] = weakref.ref(self)
        self.ns, self.kind, self.dispatch_key = ns, kind, dispatch_key
        self._undo: list[Callable[[], None]] = []  # what ends with the library: its operators and its kernels
        weakref.finalize(self, _end, self._undo)

    def __repr__(self) -> str:
        return f"Library(kind={self.kind}, ns={self.ns}, dispatch_key={self.dispatch_key})"

    def define(self, schema: str, alias_analysis: str = "", *, tags: Any = ()) -> str:
        """Define an operator by its schema, e.g. "f(Tensor x, int k=1) -> Tensor"; return its name.

        It lives as long as the library.  Raises `RuntimeError` for a text that is not a schema, and for a name and
        overload that is defined already.
        """
        if self.kind == "IMPL":
            raise RuntimeError(f"define(): a library of kind 'IMPL' cannot define operators; got {schema!r}")
        if alias_analysis not in ("", "FROM_SCHEMA", "CONSERVATIVE"):
            raise RuntimeError(f"Invalid alias_analysis type {alias_analysis}")
        found = Schema(schema, self.ns)
        if found.namespace != self.ns:
            raise RuntimeError(f"define(): the library's namespace is {self.ns}, but the schema is {found}")
        name = found.op_name + (f".{found.overload_name}" if found.overload_name else "")
        if any(r.alias and not r.is_write for r in found.returns):
            raise NotImplementedError(f"define(): operators that return views cannot be registered: {found}")
        if find(f"{self.ns}::{name}") is not None:
            raise RuntimeError(
                f"Tried to register an operator ({found}) with the same name and overload name multiple times."
            )
        operator = OpOverload(found, False, tags_of(tags))
        self._undo.append(partial(remove, operator))
        put(operator)
        return name

    def impl(
        self, op_name: Any, fn: Callable[..., Any], dispatch_key: str = "", *, with_keyset: bool = False,
        allow_override: bool = False,
    ) -> None:  # fmt: skip
        """Register a kernel of an operator, for the devices that `dispatch_key` names.

        "CPU", "CUDA", "XLA" (and "cpu", "cuda", "tpu"): tensors on these; "CompositeExplicitAutograd": all devices;
        "CompositeImplicitAutograd": all, always recorded; "Meta": the fake kernel.
        A later kernel takes the place of an earlier one, until its library ends.  Raises `RuntimeError` for an operator
        that is not defined, or of another namespace.
        """
        if with_keyset:
            raise NotImplementedError("impl(): xgrad has no dispatch key sets: with_keyset must be False")
        if isinstance(op_name, OpOverload):
            op_name = op_name._qualname
        space, _, name = op_name.rpartition("::")
        if space not in ("", self.ns):
            raise RuntimeError(
                f"impl(): the namespace of {op_name} does not match the namespace of the library, {self.ns}: use a "
                f'library of that namespace, e.g. Library("{space}", "IMPL")'
            )
        put_kernel(operator_of(f"{self.ns}::{name}"), dispatch_key or self.dispatch_key, fn, self)

    def _register_fake(self, op_name: str, fn: Callable[..., Any], **options: Any) -> None:
        self.impl(op_name, fn, "Meta")

    def _destroy(self) -> None:
        _end(self._undo)
        known = _defining.get(self.ns)
        if known is not None and known() is self:
            del _defining[self.ns]


def _end(undo: list[Callable[[], None]]) -> None:
    while undo:
        undo.pop()()


def _place(operator: OpOverload, table: dict[Any, Any], name: Any, fn: Any, lib: Library | None) -> None:
    """Register `fn` as `table[name]`; when `lib` ends, what was registered there before it, or since, is in force."""
    stack = operator.registrations.setdefault(name, [(table.get(name),)])
    entry = (fn,)
    stack.append(entry)
    table[name] = fn
    settings.changed()

    def undo() -> None:
        stack[:] = [other for other in stack if other is not entry]
        if table.get(name) is fn:
            table[name] = stack[-1][0]
            if table is operator.kernels and table[name] is None:
                del table[name]
            settings.changed()

    if lib is not None:
        lib._undo.append(undo)


def put_kernel(operator: OpOverload, key: str, fn: Callable[..., Any], lib: Library | None = None) -> None:
    """Register a kernel under one of PyTorch's dispatch keys, or a device's type, for as long as `lib` lives."""
    if not callable(fn):
        raise TypeError(f"Input function is required to be a callable but found type {type(fn)}")
    if key in _AUTOGRAD:
        raise NotImplementedError(
            f"impl(): a kernel for {key} would call the dispatcher again, which does not exist here: use "
            "register_autograd, or CompositeImplicitAutograd for a kernel that is recorded as it runs"
        )
    if key in ("Meta", _COMPOSITE):
        _place(operator, vars(operator), "fake" if key == "Meta" else "composite", fn, lib)
    else:
        _place(operator, operator.kernels, None if key in _ALL else kind_of(key.lower(), "impl"), fn, lib)


_kept: dict[str, Library] = {}  # the libraries of operators that `define` made


def define(qualname: str, schema: str, *, lib: Library | None = None, tags: Any = ()) -> Any:
    """Define the operator "namespace::name" by the rest of its schema, e.g. "(Tensor x) -> Tensor".

    lib: the library with which it goes; None: it stays.  Raises `RuntimeError` if it is defined already.

    >>> import xgrad
    >>> xgrad.library.define("docs::triple", "(Tensor x) -> Tensor")
    >>> @xgrad.library.impl("docs::triple", "default")
    ... def triple(x):
    ...     return x * 3
    >>> xgrad.ops.docs.triple(xgrad.ones(2))
    tensor([3., 3.])

    Source: PyTorch's `torch.library.define`.
    """
    if isinstance(qualname, Library):  # the old form: define(lib, schema), a decorator
        name = qualname.define(schema)

        def decorate(fn: Callable[..., Any]) -> Callable[..., Any]:
            qualname.impl(name, fn)
            return fn

        return decorate
    space, op = checked_name(qualname)
    if lib is None:
        lib = _kept.setdefault(space, Library(space, "FRAGMENT"))
    lib.define(op + schema.strip(), tags=tags)
    return None


def impl(qualname: Any, types: Any, func: Any = None, *, lib: Library | None = None) -> Any:
    """Register a kernel for "namespace::name" on types of devices: "cpu", ("cpu", "cuda"), "default" for all.

    lib: the library with which it goes; None: it stays.
    Without `func` a decorator.  Raises `RuntimeError` for an operator that is not defined.

    Source: PyTorch's `torch.library.impl`.
    """
    if isinstance(qualname, Library):  # the old form: impl(lib, name, dispatch_key), a decorator
        library, name, key = qualname, types, func or ""

        def decorate(fn: Callable[..., Any]) -> Callable[..., Any]:
            library.impl(name, fn, key)
            return fn

        return decorate
    operator = operator_of(qualname)
    keys = [types] if isinstance(types, str) else [*types]

    def register(fn: Callable[..., Any]) -> Callable[..., Any]:
        for key in keys:
            if lib is None:
                put_kernel(operator, key, fn)
            else:
                lib.impl(operator, fn, key)
        return fn

    if func is None:
        return register
    register(func)
    return None


def register_kernel(
    op: Any, device_types: str | Sequence[str] | None, func: Callable[..., Any] | None = None, /, *,
    lib: Library | None = None,
) -> Any:  # fmt: skip
    """Register a kernel of an operator, or of its name, for types of devices; without `func` a decorator."""
    operator = operator_of(op)
    if operator.definition is not None:
        return operator.definition.register_kernel(device_types, func)
    kinds = (
        ["default"] if device_types is None else [device_types] if isinstance(device_types, str) else [*device_types]
    )
    return impl(operator._qualname, kinds, func, lib=lib)


def register_autograd(
    op: Any, backward: Callable[..., Any], /, *, setup_context: Callable[..., Any] | None = None,
    lib: Library | None = None,
) -> None:  # fmt: skip
    """Register the derivative of an operator, or of its name: see `CustomOpDef.register_autograd`."""
    register_formula(operator_of(op), backward, setup_context, op)


def register_fake(
    op: Any, func: Callable[..., Any] | None = None, /, *, lib: Library | None = None, allow_override: bool = True,
    _stacklevel: int = 1,
) -> Any:  # fmt: skip
    """Register what says the shapes and dtypes of an operator's results; without `func` a decorator."""
    operator = operator_of(op)

    def register(fn: Callable[..., Any]) -> Callable[..., Any]:
        if operator.fake is not None and not allow_override:
            raise RuntimeError(
                f"register_fake(...): the operator {operator._qualname} already has a fake impl registered"
            )
        put_kernel(operator, "Meta", fn, lib)
        return fn

    return register if func is None else register(func)


def register_vmap(op: Any, func: Callable[..., Any] | None = None, /, *, lib: Library | None = None) -> Any:
    """Register an operator's rule for a batch: see `CustomOpDef.register_vmap`.  Without `func` a decorator."""
    operator = operator_of(op)

    def register(fn: Callable[..., Any]) -> Callable[..., Any]:
        _place(operator, vars(operator), "vmap_rule", fn, lib)
        return fn

    return register if func is None else register(func)


def register_autocast(op: Any, device_type: str, cast_inputs: Any, /, *, lib: Library | None = None) -> None:
    """Have an operator's floating-point tensors cast to a dtype under autocast."""
    register_casts(operator_of(op), device_type, cast_inputs)


def register_torch_dispatch(
    op: Any, torch_dispatch_class: type, func: Callable[..., Any] | None = None, /, *, lib: Library | None = None
) -> Any:
    """Register what an operator does to a subclass of Tensor: see `CustomOpDef.register_torch_dispatch`."""
    return register_rule(operator_of(op), torch_dispatch_class, func)


def get_kernel(op: Any, dispatch_key: str) -> Callable[..., Any]:
    """Return an operator's kernel for a type of devices.  Raises `RuntimeError` if it has none."""
    operator = operator_of(op)
    kind = kind_of(dispatch_key.lower(), "get_kernel")
    found = operator.composite or operator.kernels.get(kind) or operator.kernels.get(None)
    if found is None:
        raise RuntimeError(f"no kernel of {operator._qualname} is registered for {dispatch_key}")
    return found


def is_registered(name: str) -> bool:
    """Return True if an operator "namespace::name" is registered."""
    return name.partition("::")[0] in NAMESPACES and find(name) is not None
