"""OpOverload: holds a user-registered operator's schema, kernels and derivative, and runs it, for `xgrad.library`.

    call ─► subclasses' overrides ─► autocast ─► bind ─┬─ no formula, not opaque: the kernel, recorded as any code
                                                       ├─ recording, vmap, tangents: a Function (formula.py) ─┐
                                                       └───────────────────────────────────────────────────── compute
    compute: the kernel of the device, unrecorded; its results and writes are checked

Invariant: an opaque operator's result has no history but its own node, so that a gradient is the registered formula's
or an error (PyTorch: torch/_library/custom_ops.py, aten/src/ATen/core/dispatch/Dispatcher.h).
"""

from collections.abc import Callable
from typing import Any

from .. import overrides
from ..amp.autocast_mode import autocast
from ..amp.custom import cast_tensors
from ..amp.settings import is_autocast_enabled
from ..autograd.version_counter import increment_version
from ..config import Unrecorded, state
from ..dispatch.tables import registered
from ..tensor import Tensor, from_foreign
from ..views.meta import check_inplace
from ..views.storage import Tracer
from .calls import shares, tensors_in
from .formula import apply, function_of
from .schema import Schema
from .tags import Tag
from .traced import compute_traced

_ALIASED = (
    "{} (with implementation in {}): The output of this custom operator (1) must not also be an input to this custom "
    "operator and (2) may not alias any inputs to this custom operator or other returns. Return a clone (return "
    "x.clone()), or do not return it."
)


class OpOverload:
    """A registered operator: `xgrad.ops.ns.name.default`.

    Called, it runs the kernel of its tensors' device.  Raises `RuntimeError` for arguments that its schema does not
    take, `NotImplementedError` for a device without a kernel.
    """

    def __init__(self, schema: Schema, opaque: bool, tags: tuple[Any, ...] = ()) -> None:
        self._schema = schema
        self.tags = tags
        self.namespace = schema.namespace
        self._qualname = schema.name + (f".{schema.overload_name}" if schema.overload_name else "")
        self.__name__ = f"{schema.op_name}.{schema.overload_name or 'default'}"
        self.__qualname__ = self.__name__
        self.__module__ = f"xgrad.ops.{schema.namespace}"
        self.opaque = opaque  # True: without a formula backward raises; False: the kernel's own operators are recorded
        self.kernels: dict[str | None, Callable[..., Any]] = {}  # by the device's type; None: all others
        self.registrations: dict[
            str | None, list[Any]
        ] = {}  # by device's type or attribute: each with the earlier ones
        self.disabled: set[str | None] = set()
        self.first: Callable[..., Any] | None = None  # what runs in the place of a disabled kernel
        self.composite: Callable[..., Any] | None = None
        self.fake: Callable[..., Any] | None = None
        self.formula: Callable[..., Any] | None = None
        self.setup_context: Callable[..., Any] | None = None
        self.vmap_rule: Callable[..., Any] | None = None
        self.casts: dict[str, Any] = {}  # type of devices → dtype of inputs under autocast
        self.rules: dict[type, Callable[..., Any]] = {}  # of subclasses of Tensor
        self.definition: Any = None  # the CustomOpDef
        self.warned = False
        self.function = function_of(self)

    def name(self) -> str:
        """Return the name with its namespace."""
        return self._qualname

    def __repr__(self) -> str:
        return f"{self.namespace}.{self.__name__}"

    def __reduce__(self) -> Any:
        return registered, (self.namespace, *self.__name__.split("."))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        given = [*tensors_in(args), *tensors_in(tuple(kwargs.values()))]
        if any(t.__class__ is not Tensor for t in given):
            ruled = self._ruled(given, args, kwargs)
            if ruled is not None:
                return ruled[0]
        if self.casts and state.autocast is not None:
            for kind, dtype in self.casts.items():
                if is_autocast_enabled(kind) and any(t.device.type == kind for t in given):
                    with autocast(kind, enabled=False):
                        return self(*cast_tensors(args, kind, dtype), **cast_tensors(kwargs, kind, dtype))
        values, named = self._schema.bind(args, kwargs)
        if self.composite is not None:
            return self.composite(*values, **named)
        if not self.opaque and self.formula is None and self.vmap_rule is None:
            return self._checked(self.kernel(values, named), values, named)
        recorded = state.grad_enabled and any(t.requires_grad for t in given)
        if recorded and Tag.out in self.tags:
            raise RuntimeError(
                f"{self._schema.op_name}(): functions with out=... arguments don't support automatic differentiation, "
                "but one of the arguments requires grad."
            )
        if recorded or state.forward_level >= 0 or (state.vmap_levels and any(t._level is not None for t in given)):
            if recorded and self._schema.mutated:
                self._check_writes(values, named)
            return apply(self, values, named)
        return self.compute(values, named)

    def _ruled(self, given: list[Tensor], args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any] | None:
        """Return the result of a subclass's rule, or of its override."""
        for t in given:
            for kind, rule in self.rules.items():
                if isinstance(t, kind):
                    return (rule(type(t), self, tuple({type(g) for g in given}), args, kwargs),)
        if overrides.has_xgrad_function(given):
            return (overrides.handle_xgrad_function(self, given, *args, **kwargs),)
        return None

    # ------------------------------------------------------------ running

    def compute(self, values: list[Any], named: dict[str, Any]) -> Any:
        """Run the kernel, unrecorded, and check its results."""
        with Unrecorded():
            if any(not t._sparse and isinstance(t._held(), Tracer) for t in tensors_in((values, named))):
                return compute_traced(self, values, named)
            return self.computed(values, named)

    def computed(self, values: list[Any], named: dict[str, Any], kind: str | None = None) -> Any:
        """Run the kernel, check its results, and raise the versions of tensors that it writes."""
        result = self._checked(self.kernel(values, named, kind), values, named)
        for tensor in self.mutated(values, named):
            if not tensor._inference:
                increment_version(tensor)
        return result

    def kernel(self, values: list[Any], named: dict[str, Any], kind: str | None = None) -> Any:
        """Run the kernel of a type of devices, or of the arguments' device."""
        kind = kind or self.device_kind(values, named)
        function = self.kernels.get(kind)
        if function is None:
            function = self.kernels.get(None)
        if function is None:
            known = ", ".join(str(k).upper() for k in self.kernels) or "none"
            raise NotImplementedError(
                f"Could not run '{self._qualname}' with arguments from the '{str(kind).upper()}' "
                f"backend: no kernel is registered for it (there are kernels for: {known}). Use register_kernel."
            )
        key = kind if kind in self.kernels else None
        if key in self.disabled and self.first is not None:
            function = self.first
        if not self._schema.mutated:
            return function(*values, **named)
        return _with_numpy(function, self.mutated(values, named), values, named)

    def faked(self, values: list[Any], named: dict[str, Any]) -> Any:
        """Run the fake kernel: tensors of the results' shapes and dtypes.  Raises `RuntimeError` if there is none."""
        if self.fake is None:
            if self.returns_written:
                return self.written_results(values, named)
            raise RuntimeError(
                f"There was no fake impl registered for {self}. This is necessary for xgrad.compile of a kernel that "
                "reads values. Please use register_fake to add one."
            )
        with Unrecorded():
            return self._checked(self.fake(*values, **named), values, named)

    @property
    def returns_written(self) -> bool:
        """Return True for an operator that writes, and returns nothing or what it writes."""
        return self._schema.is_mutable and all(r.alias for r in self._schema.returns)

    def written_results(self, values: list[Any], named: dict[str, Any]) -> Any:
        """Return the results of an operator whose `returns_written` is true: arguments, or None."""
        given = zip(self._schema.arguments, [*values, *named.values()], strict=True)
        by_alias = {a.type.alias: v for a, v in given if a.type.is_write}
        found = tuple(by_alias[r.alias] for r in self._schema.returns)
        return found if len(found) > 1 else found[0] if found else None

    def device_kind(self, values: list[Any], named: dict[str, Any]) -> str | None:
        """Return the type of the devices that the arguments are on, or that an argument names; None without any."""
        kinds = [t.device.type for t in tensors_in((values, named))]
        if kinds:
            return next((k for k in kinds if k != "cpu"), "cpu")
        for argument, value in zip(self._schema.arguments, [*values, *named.values()], strict=True):
            if argument.type.base == "Device" and value is not None:
                return value.type
        return None

    def mutated(self, values: list[Any], named: dict[str, Any]) -> list[Tensor]:
        """Return the tensors that the schema says are written, each once."""
        if not self._schema.mutated:
            return []
        places = zip(self._schema.arguments, [*values, *named.values()], strict=True)
        found = {id(t): t for a, v in places if a.type.is_write for t in tensors_in((v,))}
        return [*found.values()]

    def _check_writes(self, values: list[Any], named: dict[str, Any]) -> None:
        """Raise the error of a write that autograd cannot follow, before it is done."""
        mutated = self.mutated(values, named)
        for tensor in mutated:
            check_inplace(tensor)
            if tensor._view is not None and (
                len(mutated) > 1 or self._schema.returns or next(tensors_in((values, named))) is not tensor
            ):
                raise RuntimeError(
                    f"{self._qualname}() modifies inplace an input that is a view of another Tensor, while gradients "
                    "are recorded. Then it must be its first tensor argument and the only one that is written, and "
                    "nothing may be returned. Call it within no_grad(), or give it a clone() of the view."
                )

    def _checked(self, result: Any, values: list[Any], named: dict[str, Any]) -> Any:
        """Return a kernel's result in the schema's form.  Raises `RuntimeError` for another form, and for aliases."""
        returns = self._schema.returns
        if not returns:
            if result is not None:
                raise RuntimeError(
                    f"Expected {self._qualname} to return None but it returned a {type(result).__name__}"
                )
            return None
        several = len(returns) > 1
        if several and not (isinstance(result, (tuple, list)) and len(result) == len(returns)):
            what = f"{len(result)} values" if isinstance(result, (tuple, list)) else f"a {type(result).__name__}"
            raise RuntimeError(f"{self._qualname}() must return {len(returns)} values, but it returned {what}")
        if not several and isinstance(result, tuple) and len(result) == 1:
            result = result[0]
        found = [self._result(r, kind) for r, kind in zip(result if several else (result,), returns, strict=True)]
        self._check_aliases(found, values, named)
        return tuple(found) if several else found[0]

    def _result(self, value: Any, kind: Any) -> Any:
        if kind.form == "[]" and isinstance(value, (list, tuple)):
            return [self._result(v, kind._replace(form="")) for v in value]
        fits = {"Tensor": Tensor, "float": (float, int), "str": str}.get(kind.base, (bool, int, float, complex))
        if value is None or (isinstance(value, fits) and kind.form != "[]"):
            return value
        raise RuntimeError(f"{self._qualname}(): Unable to cast {type(value).__name__} to {kind}, which it must return")

    def _check_aliases(self, results: list[Any], values: list[Any], named: dict[str, Any]) -> None:
        written = dict(zip((a.name for a in self._schema.arguments), [*values, *named.values()], strict=True))
        by_alias = {a.type.alias: written[a.name] for a in self._schema.arguments if a.type.is_write}
        new: list[Tensor] = []
        for value, kind in zip(results, self._schema.returns, strict=True):
            if kind.alias:
                if value is not by_alias.get(kind.alias):
                    raise RuntimeError(
                        f"{self._qualname}() must return the argument that its schema says it returns: {self._schema}"
                    )
            else:
                new.extend(tensors_in((value,)))
        taken = [*tensors_in((values, named))]
        for tensor in new:
            if any(shares(tensor, other) for other in taken):
                function = self.kernels.get(None) or next(iter(self.kernels.values()), None)
                raise RuntimeError(_ALIASED.format(self._qualname, getattr(function, "__module__", None)))
            taken.append(tensor)


def _with_numpy(function: Any, mutated: list[Tensor], values: list[Any], named: dict[str, Any]) -> Any:
    """Call a kernel that may write to `t.numpy()` of the tensors that its schema says it writes.

    Raises `RuntimeError` for a tensor that is written in both ways; it has the tensor's own write then.
    """
    for t in mutated:
        t._lent = []
    try:
        result = function(*values, **named)
        for t in mutated:
            for array, before, version in t._lent:
                if array.tobytes() == before:
                    continue
                if t._version != version:
                    raise RuntimeError(
                        "a kernel wrote to x.numpy() and to x itself, which share no memory here: write in one way"
                    )
                t.copy_(from_foreign(array))
        return result
    finally:
        for t in mutated:
            del t._lent
