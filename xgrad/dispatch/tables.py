"""FUNCTIONS, METHODS, OPERATORS, ...: tables of xgrad's functions, methods and operators by name.

Declarations (declare.py), custom operators (library/) and modules of ops/ fill them; `xgrad`, `Tensor` and the
namespaces (xgrad.linalg, ...) have their functions from here.
"""

from typing import Any

from .operator import Operator

FUNCTIONS: dict[str, dict[str, Any]] = {"": {}}  # namespace ("", "nn.functional", "linalg", ...) -> name -> function
METHODS: dict[str, Any] = {}
OPERATORS: dict[str, Operator] = {}
VARIANTS: list[Operator] = []  # operators that share the name of one of OPERATORS: add with alpha, say
NAMESPACES: dict[str, Any] = {}  # of operators that users registered (library/registry.py): xgrad.ops.NAME
UNLOADED: list[str] = []  # libraries of operators in C++, which torch.ops.load_library refused


def registered(space: str, *names: str) -> Any:
    """Return the namespace, operator or overload of this name: copies and pickles have the name alone."""
    found: Any = NAMESPACES[space]
    for name in names:
        found = getattr(found, name)
    return found
