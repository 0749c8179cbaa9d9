"""torch.ops.aten.add, torch.ops.aten.add.Tensor, ...: call xgrad's functions by names in ATen (torch/_ops.py)."""

from collections.abc import Callable, Mapping
from types import MappingProxyType, ModuleType
from typing import Any

from ..base.unsupported import refused
from ..dispatch.tables import FUNCTIONS, METHODS, NAMESPACES, UNLOADED
from ..ops import aten as _aten
from ..ops.foreach import FOREACH

# PyTorch joins these words to names of overloads.
_WORDS = """
Device Dict IntList KN L List Other OutScalar OutTensor Q Scalar ScalarAndTensor ScalarList ScalarOpt ScalarOther
ScalarSelf Self Sequence Storage Tensor TensorList U X a all alpha any array atol b beta bin bins bool ccol center
col comp complex correction crow ct data decimals default deprecated device dim dims dtype dx eigenvalues eigvals
enum float format from fullcoverage generator generic grad hacked idx index indexing indices input int intlist ints
inverse layout left legacy list low lr m mask max memory min mode msg n no ntonly offset or ord other out output p
padding periodic plain prim qparams quantized rcond reduce result right row rtol scalar scalararray scalarint
scalarrayarray scalarrayint scale sections self sign size sizes source sparse src stable start stats step storage
str sublist t tensor tensorarray tensorarrayint tensors to tol twin two unary using value values vec with x
"""
_OVERLOADS = frozenset(_WORDS.split())


class OpOverloadPacket:
    """torch.ops.aten.NAME: calls xgrad's function; `.default`, `.Tensor` and the other overloads are the same."""

    __name__: str

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self.__name__, self._function = name, function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._function(*args, **kwargs)

    def __getattr__(self, overload: str) -> Any:
        if not _OVERLOADS.issuperset(overload.split("_")):
            raise AttributeError(f"The underlying op of 'aten.{self.__name__}' has no overload name '{overload}'")
        setattr(self, overload, self)
        return self

    def __eq__(self, other: object) -> bool:
        return getattr(other, "_function", other) is self._function  # what a policy of checkpoints is given

    def __hash__(self) -> int:
        return hash(self._function)

    def overloads(self) -> list[str]:
        """Return the names of overloads: one, which takes all arguments."""
        return ["default"]

    def __repr__(self) -> str:
        return f"<OpOverloadPacket(op='aten.{self.__name__}')>"


class Namespace(ModuleType):
    """torch.ops.X: operators by name.  Raises `AttributeError` for a name that xgrad does not have."""

    def __init__(self, name: str, tables: tuple[Any, ...], spaces: Mapping[str, Any] = MappingProxyType({})) -> None:
        super().__init__(f"torch.ops.{name}".rstrip("."))
        self.__dict__["_tables"], self.__dict__["_spaces"] = tables, spaces
        self.__dict__["__path__"] = []

    def __getattr__(self, name: str) -> Any:
        for table in () if name.startswith("__") else self._tables:
            if callable(found := table.get(name)):
                made = self.__dict__[name] = OpOverloadPacket(name, found)
                return made
        if name in self._spaces:  # registered by the user: xgrad.library
            return self._spaces[name]
        if self._spaces is NAMESPACES and UNLOADED and not name.startswith("__"):
            return refused("ops", name, _CPP)
        raise AttributeError(f"{self.__name__!r} has no attribute {name!r}: xgrad has no operator of this name")


_CPP = (
    "it belongs to a library in C++, which needs PyTorch",
    'Write the operator in Python with xgrad.library.custom_op("namespace::name"), or with operators of xgrad.',
)


def load_library(path: Any) -> None:
    """Raise `OSError`: packages with operators in C++ do without them then, and a call of one is refused."""
    UNLOADED.append(str(path))
    raise OSError(
        f"{path} is a library of C++ operators, which need PyTorch: xgrad.library registers operators in Python"
    )


ATEN: Namespace = Namespace(
    "aten", (vars(_aten), FOREACH, *(FUNCTIONS[place] for place in ("", "nn.functional")), METHODS)
)
NOTHING: Namespace = Namespace("", ())
OPS: Namespace = Namespace("", (), NAMESPACES)
vars(OPS).update(aten=ATEN, higher_order=NOTHING, load_library=load_library)
