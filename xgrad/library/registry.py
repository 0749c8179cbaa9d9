"""Stores the operators that users register by `xgrad.library`, and shows them in `xgrad.ops` (torch/_ops.py)."""

from typing import TYPE_CHECKING, Any

from .. import ops
from ..config import settings
from ..dispatch.tables import NAMESPACES, registered

if TYPE_CHECKING:
    from .operator import OpOverload


_MODULES: dict[str, Any] = {}  # files and folders of `xgrad.ops` whose names are taken by a user's namespace


class OpNamespace:
    """`xgrad.ops.ns`: the registered operators of a namespace.  Raises `AttributeError` for others."""

    def __init__(self, name: str) -> None:
        self.__name__ = f"xgrad.ops.{name}"
        self._name = name
        self._packets: dict[str, OpOverloadPacket] = {}

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("__") and name in vars(self).get("_packets", ()):  # a copy in the making has none
            return self._packets[name]
        raise AttributeError(f"'_OpNamespace' '{self._name}' object has no attribute '{name}'", name=name, obj=self)

    def __dir__(self) -> list[str]:
        return sorted(self._packets)

    def __repr__(self) -> str:
        return f"<namespace '{self.__name__}'>"

    def __reduce__(self) -> Any:
        return registered, (self._name,)


class OpOverloadPacket:
    """`xgrad.ops.ns.name`: an operator with all its overloads; called, it runs the first whose schema fits."""

    def __init__(self, namespace: str, name: str) -> None:
        self.__name__ = name
        self._qualified_op_name = f"{namespace}::{name}"
        self._shown = f"{namespace}.{name}"
        self._overloads: dict[str, OpOverload] = {}

    def __getattr__(self, overload: str) -> Any:
        if not overload.startswith("__") and overload in vars(self).get("_overloads", ()):
            return self._overloads[overload]
        raise AttributeError(
            f"The underlying op of '{self._shown}' has no overload name '{overload}'", name=overload, obj=self
        )

    def overloads(self) -> list[str]:
        """Return the names of its overloads; the overload without a name is called "default"."""
        return [*self._overloads]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        overloads = [*self._overloads.values()]
        for overload in overloads[:-1]:
            try:
                overload._schema.bind(args, kwargs)
            except RuntimeError:
                continue
            return overload(*args, **kwargs)
        return overloads[-1](*args, **kwargs)

    def __repr__(self) -> str:
        return self._shown

    def __reduce__(self) -> Any:
        return registered, (*self._qualified_op_name.split("::"),)

    def __dir__(self) -> list[str]:
        return sorted([*self._overloads, "overloads"])


def put(operator: "OpOverload") -> None:
    """Register an operator under its name, in place of another one of this name."""
    schema = operator._schema
    space = NAMESPACES.get(schema.namespace)
    if space is None:
        space = NAMESPACES[schema.namespace] = OpNamespace(schema.namespace)
        if schema.namespace != "aten" and schema.namespace in vars(ops):
            _MODULES[schema.namespace] = vars(ops)[schema.namespace]
            setattr(ops, schema.namespace, space)
    packet = space._packets.get(schema.op_name)
    if packet is None:
        packet = space._packets[schema.op_name] = OpOverloadPacket(schema.namespace, schema.op_name)
    packet._overloads[schema.overload_name or "default"] = operator
    settings.changed()


def remove(operator: "OpOverload") -> None:
    """Forget an operator, unless another one has taken its name."""
    schema = operator._schema
    space = NAMESPACES.get(schema.namespace)
    packet = None if space is None else space._packets.get(schema.op_name)
    overload = schema.overload_name or "default"
    if space is None or packet is None or packet._overloads.get(overload) is not operator:
        return
    del packet._overloads[overload]
    settings.changed()
    if not packet._overloads:
        del space._packets[schema.op_name]
    if not space._packets:
        del NAMESPACES[schema.namespace]
        if schema.namespace in _MODULES:
            setattr(ops, schema.namespace, _MODULES.pop(schema.namespace))


def find(name: str) -> "OpOverload | None":
    """Return the operator that "ns::name" or "ns::name.overload" names, None if there is none."""
    space, _, rest = name.partition("::")
    op, _, overload = rest.partition(".")
    found = NAMESPACES.get(space)
    packet = None if found is None else found._packets.get(op)
    return None if packet is None else packet._overloads.get(overload or "default")


def checked_name(name: str) -> tuple[str, str]:
    """Return (namespace, name) of "ns::name".  Raises `ValueError` for another form."""
    if not isinstance(name, str) or name.count("::") != 1 or not all(name.split("::")):
        raise ValueError(f"expected the operator's name in the form 'namespace::name', but got {name!r}")
    space, _, op = name.partition("::")
    return space, op
