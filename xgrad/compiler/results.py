"""Results: a list that gets the results of a compiled program that writes, before its call returns to Python.

A Python function calls `jax.stages.Compiled`: an interrupt between the program, which donated its operands, and the
return would lose the results.  So the program's result is a pytree whose metadata is an object of ours.
"""

from collections.abc import Callable
from typing import Any, cast

import jax


class Results(list[Any]):
    """A list to which C code appends a program's results before the call returns to Python: the last item has them.

    The object itself is the pytree's metadata, so that making the tree from its leaves extends this very object.
    """

    __slots__ = ()
    __hash__: Any = object.__hash__  # JAX asks these of a pytree's metadata
    __eq__: Callable[..., Any] = object.__eq__
    __ne__: Callable[..., Any] = object.__ne__

    def holding(self, values: list[Any]) -> "Results":
        """Return this object, as the pytree of `values`."""
        self[:] = [values]
        return self


def _last(results: Results) -> tuple[list, Results]:
    return results[-1:], results


jax.tree_util.register_pytree_node(
    Results,
    cast("Any", _last),
    cast("Any", list.__iadd__),  # called with (metadata, children); it returns the metadata
)
