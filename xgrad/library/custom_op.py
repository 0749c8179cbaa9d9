"""custom_op: makes a user's Python function an operator opaque to autograd (PyTorch: torch/_library/custom_ops.py)."""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from ..amp.settings import is_autocast_available, kind_of
from ..config import block, settings
from ..dispatch.tables import UNLOADED
from ..tensor import Tensor
from .infer_schema import infer_schema
from .operator import OpOverload
from .registry import checked_name, find, put
from .schema import Schema
from .tags import Tag, tags_of

_log = logging.getLogger(__name__)


def custom_op(
    name: str,
    fn: Callable[..., Any] | None = None,
    /,
    *,
    mutates_args: str | Iterable[str],
    device_types: str | Sequence[str] | None = None,
    schema: str | None = None,
    tags: Any = None,
) -> Any:
    """Make a Python function an operator "namespace::name", which `xgrad.ops.namespace.name` finds too.

    fn: the function, which may do anything, read values with NumPy too; without it, a decorator.  It runs unrecorded.
    mutates_args: the names of the arguments that it writes in place, or "unknown" for all tensors.
    device_types: the devices that it is for, e.g. "cpu" or ("cuda", "tpu"); None: all.
    schema: in place of the one that `infer_schema` reads from the type hints, e.g. "(Tensor x, int k=1) -> Tensor".
    tags: `xgrad.Tag`s: with `inplace` or `out` it returns the arguments that it writes.

    Returns a `CustomOpDef`, which is called like the function, and with which formulas are registered.  Results must
    be new tensors: returning an argument, or a view of one, raises `RuntimeError`.  Without `register_autograd`
    backward raises `RuntimeError`.  A later operator of the same name takes the place of this one.

    Under `xgrad.compile` the function is traced; if it reads values, `register_fake` must say what it returns, and
    the program calls it back on the host.  Raises `ValueError` for a name without "::", type hints that no schema has,
    and a schema that writes other arguments than `mutates_args`; `NotImplementedError` for tensors among the
    keyword-only parameters, unless it has the tag `out`.

    >>> import numpy as np, xgrad
    >>> @xgrad.library.custom_op("docs::sine", mutates_args=())
    ... def sine(x: xgrad.Tensor) -> xgrad.Tensor:
    ...     return xgrad.from_numpy(np.sin(x.numpy()))
    >>> def setup_context(ctx, inputs, output):
    ...     ctx.save_for_backward(inputs[0])
    >>> def backward(ctx, grad):
    ...     return grad * ctx.saved_tensors[0].cos()
    >>> sine.register_autograd(backward, setup_context=setup_context)
    >>> x = xgrad.tensor([0.0, 1.0], requires_grad=True)
    >>> sine(x).sum().backward()
    >>> x.grad
    tensor([1.0000, 0.5403])

    Source: PyTorch's `torch.library.custom_op`.
    """
    names = mutates_args if isinstance(mutates_args, str) else tuple(mutates_args)

    def define(function: Callable[..., Any]) -> CustomOpDef:
        space, op = checked_name(name)
        text = infer_schema(function, mutates_args=names, tags=tags) if schema is None else schema
        found = Schema(op + text.strip(), space)
        if schema is not None and names != "unknown" and {*found.mutated} != {*names}:
            raise ValueError(
                f"custom_op: mutates_args={names!r} and schema={schema!r} must say the same, but the schema writes "
                f"{found.mutated}"
            )
        keyword = [a.name for a in found.arguments if a.kwarg_only and a.type.has_tensors]
        if keyword and Tag.out not in tags_of(tags):
            raise NotImplementedError(
                f"custom_op with kwarg-only Tensor args ({', '.join(keyword)}). Please make your tensors not "
                f"kwarg-only. Got: {found}"
            )
        made = CustomOpDef(found, function, tags)
        made.register_kernel(device_types, function)
        put(made._opoverload)
        return made

    return define if fn is None else define(fn)


class CustomOpDef:
    """An operator that `custom_op` made: called like its function; `register_...` say more about it."""

    def __init__(self, schema: Schema, fn: Callable[..., Any], tags: Any = None) -> None:
        self._opoverload = OpOverload(schema, True, tags_of(tags))
        self._opoverload.first = fn
        self._opoverload.definition = self
        self._init_fn = fn
        self._namespace, self._name, self._qualname = schema.namespace, schema.op_name, schema.name
        self.__name__ = getattr(fn, "__name__", schema.op_name)
        self.__doc__ = fn.__doc__
        self.__wrapped__ = fn

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._opoverload(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<CustomOpDef({self._qualname})>"

    def register_autograd(
        self, backward: Callable[..., Any], /, *, setup_context: Callable[..., Any] | None = None
    ) -> None:
        """Register the derivative: `backward(ctx, *grads)` returns the gradient of each positional argument, or None.

        A list of tensors has a list of gradients.  `setup_context(ctx, inputs, output)` saves what backward needs, with
        `ctx.save_for_backward` and as attributes of `ctx`; with keyword-only arguments it is called as
        `setup_context(ctx=, inputs=, keyword_only_inputs=, output=)`.  If backward is made of operators, it can be
        differentiated again.  Raises `RuntimeError` for an operator that writes its arguments.
        """
        register_formula(self._opoverload, backward, setup_context, self)

    def register_fake(self, fn: Callable[..., Any], /) -> Callable[..., Any]:
        """Register what says the shapes and dtypes of the results: it gets the arguments, and returns empty tensors.

        `xgrad.compile` asks it if the operator's function reads values.  Returns `fn`: also a decorator.
        """
        self._opoverload.fake = fn
        settings.changed()
        return fn

    def register_kernel(
        self, device_types: str | Sequence[str] | None, fn: Callable[..., Any] | None = None, /
    ) -> Callable[..., Any]:
        """Register a function for tensors on devices of these types ("cpu", "cuda", "tpu"); without `fn` a decorator.

        Raises `ValueError` for an operator without tensors and without an argument `device: xgrad.device`.
        """
        schema = self._opoverload._schema
        if device_types is not None and not any(
            a.type.has_tensors or a.type.base == "Device" for a in schema.arguments
        ):
            raise ValueError("Functions without tensor inputs are required to have a `device: torch.device` argument")
        kinds = [device_types] if device_types is None or isinstance(device_types, str) else [*device_types]

        def register(function: Callable[..., Any]) -> Callable[..., Any]:
            for kind in kinds:
                self._opoverload.kernels[None if kind is None else kind_of(kind, "register_kernel")] = function
            settings.changed()
            return function

        return register if fn is None else register(fn)

    def register_vmap(self, func: Callable[..., Any] | None = None) -> Callable[..., Any]:
        """Register the rule for a batch: `func(info, in_dims, *args, **kwargs)` returns (output, out_dims).

        in_dims: for each argument the dimension of its batch, None without one.  info: its `batch_size` and
        `randomness`.  Without a rule `xgrad.vmap` runs the operator for each entry, with a warning.
        """

        def register(function: Callable[..., Any]) -> Callable[..., Any]:
            self._opoverload.vmap_rule = function
            settings.changed()
            return function

        return register if func is None else register(func)

    def register_autocast(self, device_type: str, cast_inputs: Any) -> None:
        """Have floating-point tensors cast to a dtype while autocast is on; the operator then runs with autocast off.

        Raises `ValueError` for a device type without autocast.
        """
        register_casts(self._opoverload, device_type, cast_inputs)

    def register_torch_dispatch(self, torch_dispatch_class: type, fn: Callable[..., Any] | None = None, /) -> Any:
        """Register what the operator does to a subclass of Tensor: `fn(cls, func, types, args, kwargs)`.

        Raises `NotImplementedError` for a class that is not a subclass of Tensor: xgrad has no dispatch modes.
        """
        return register_rule(self._opoverload, torch_dispatch_class, fn)

    @block
    def set_kernel_enabled(self, device_type: str, enabled: bool = True) -> Iterator[None]:
        """Within the block, have the first function run in the place of a device's kernel, or not any more."""
        disabled, before = self._opoverload.disabled, device_type in self._opoverload.disabled
        if device_type not in self._opoverload.kernels:
            _log.warning("no kernel of %s was registered for device type %s", self, device_type)
        elif before is not enabled:
            _log.warning("the kernel of %s for %s is so already", self, device_type)
        (disabled.discard if enabled else disabled.add)(device_type)
        settings.changed()
        try:
            yield
        finally:
            settings.registrations += 1
            (disabled.add if before else disabled.discard)(device_type)


# -- what the functions of xgrad.library share with the methods ------------------------------------------------------


def register_formula(operator: OpOverload, backward: Any, setup_context: Any, shown: Any) -> None:
    """Register a derivative.  Raises `RuntimeError` for an operator that is not functional."""
    schema = operator._schema
    if schema.is_mutable or any(r.alias for r in schema.returns):
        raise RuntimeError(
            f"Cannot register autograd formula for non-functional operator {shown} with schema {schema}. Please create "
            "a functional operator and register an autograd formula for that."
        )
    if operator.composite is not None:
        raise RuntimeError(f"{shown} has a kernel that is recorded as it runs (CompositeImplicitAutograd)")
    operator.setup_context, operator.formula = setup_context, backward
    settings.changed()


def register_casts(operator: OpOverload, device_type: Any, cast_inputs: Any) -> None:
    """Register the dtype of inputs under autocast."""
    if not isinstance(device_type, str):
        raise ValueError(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")
    try:
        available = is_autocast_available(device_type)
    except RuntimeError:
        available = False
    if not available:
        raise ValueError(f"Device type '{device_type}' does not support autocast.")
    operator.casts[kind_of(device_type, "register_autocast")] = cast_inputs
    settings.changed()


def register_rule(operator: OpOverload, kind: type, fn: Callable[..., Any] | None) -> Any:
    """Register what an operator does to a subclass of Tensor."""
    if not (isinstance(kind, type) and issubclass(kind, Tensor) and kind is not Tensor):
        raise NotImplementedError(
            f"register_torch_dispatch: xgrad has rules for subclasses of Tensor only, and no dispatch modes; got {kind}"
        )

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        operator.rules[kind] = function
        settings.changed()
        return function

    return register if fn is None else register(fn)


def operator_of(op: Any) -> OpOverload:
    """Return the operator that a name, a `CustomOpDef` or an operator stands for.

    After a library in C++ was refused, an unknown name may be an operator of it: what a package registers for such an
    operator is kept by nobody.  Else `RuntimeError` for a name that nobody registered, `TypeError` for another object.
    """
    if isinstance(op, CustomOpDef):
        return op._opoverload
    if isinstance(op, OpOverload):
        return op
    if isinstance(op, str):
        space, name = checked_name(op)
        found = find(op)
        if found is None and UNLOADED:
            return OpOverload(Schema(f"{name}() -> ()", space), False, ())
        if found is None:
            raise RuntimeError(f"operator {op} does not exist: define it with xgrad.library.custom_op or define")
        return found
    default = getattr(op, "default", None)
    if isinstance(default, OpOverload):
        return default
    raise TypeError(f"expected an operator or its name 'namespace::name', but got {type(op).__name__}")
