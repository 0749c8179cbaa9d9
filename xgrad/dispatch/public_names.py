"""Gives each public function the `__module__` and `__qualname__` where users find it, for `help` and `pickle`.

A function stands in ops/, under a name of its file or of the function that made it, and it is often wrapped.  Here it
gets the module and name under which `xgrad`, a namespace or `Tensor` has it, so `pickle` finds this object again.
"""

from typing import Any

from .tables import FUNCTIONS, METHODS


def name_functions() -> None:
    """Name the functions of the tables; once, when all are declared and wrapped.

    Of several names a function gets the one under which it was declared, else the first.
    """
    names: dict[Any, tuple[str, str]] = {}
    for place, table in FUNCTIONS.items():
        module = f"xgrad.{place}" if place else "xgrad"
        for name, function in table.items():
            declared = function.__module__ == module and function.__name__ in (name, f"{place}_{name}")
            if declared or function not in names:
                names[function] = module, name
    for name, method in METHODS.items():
        if method not in names and not isinstance(method, property):
            names[method] = "xgrad", f"Tensor.{name}"
    for function, (module, name) in names.items():
        function.__module__, function.__qualname__ = module, name
        function.__name__ = name.rpartition(".")[2]
