"""Where the results of a compiled program that writes are before its call returns to Python.

`jax.stages.Compiled` is called by a Python function: an interrupt behind the program, which has taken the memory of
its operands, would lose the results.  So the program gives a pytree that is an object of ours.
"""

from typing import Any, cast

import jax


class Results(list):
    """Where C puts what a program gives, before the call returns to Python: the last item is the list of its results.

    The program gives it as a pytree that is this very object; to make the tree is to add to it.
    """

    __slots__ = ()
    __hash__: Any = object.__hash__  # JAX asks these of a pytree's metadata
    __eq__ = object.__eq__
    __ne__ = object.__ne__

    def holding(self, values: list) -> "Results":
        """The pytree of these values."""
        self[:] = [values]
        return self


def _last(results: Results) -> tuple[list, Results]:
    return results[-1:], results


jax.tree_util.register_pytree_node(
    Results,
    cast("Any", _last),
    cast("Any", list.__iadd__),  # of (metadata, children); it gives the metadata back
)
