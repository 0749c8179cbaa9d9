"""Results: a list that JAX's C code fills with a compiled program's results, so that an interrupt cannot lose them.

Python code of JAX's calls the program, which takes the memory of operands that it writes: an interrupt before that
code returns would lose their values.  So the program's result is a pytree, and this list is the tree's metadata.
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
