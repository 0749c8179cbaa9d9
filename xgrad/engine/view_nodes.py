"""The autograd nodes of views (SelectBackward0, ...): they put a view's gradient at its place in the base's shape.

A node has the view's `ViewChain`, the steps from the base to the view, and its backward is the chain's adjoint.  Each
of PyTorch's names has a subclass.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

from ..execution.programs.programs import Program as Jitted
from ..execution.programs.programs import jit_checked
from ..views.chain import ViewChain
from ..views.program import Program
from .arithmetic import Arithmetic
from .node import Node, wire
from .placement import beside
from .programs.formula import Formula
from .view_attributes import of_view, of_views


class ChainBackward(Node):
    """The backward of a view: `chain.adjoint` of the incoming gradient.  Linear, so its own backward is `replay`.

    There is one subclass for each name (SelectBackward0, TransposeBackward0, ...).  The chain of a regenerated
    `grad_fn` leads from the base.
    """

    chain: ViewChain
    key: tuple[Any, ...] | None = None  # PyTorch's name of the view operation and its arguments, for `_saved_*`

    def apply(self, grads: list[Any], needs: int, arithmetic: Arithmetic) -> Any:
        grad = grads[0]
        if grad is None or not needs & 1:
            return (None,)
        return (arithmetic.adjoint(self.chain, grad),)

    def formula(self, given: int, needs: int) -> Formula | None:
        return _of_adjoint(self.chain.program)

    def operands(self, unpacking: Callable[[Node], None]) -> list[Any]:
        return list(self.chain.starts)

    def outline(self, facts: list[Any], operands: list[Any]) -> bool:
        facts.append(self.chain)
        operands += self.chain.starts
        return True

    def _look_up(self, name: str, raw: bool) -> Any:
        if raw:
            raise KeyError(name)
        return of_view(type(self).__name__, self.chain, self.key)[name]

    def _attributes(self) -> list[str]:
        return [f"_saved_{name}" for name in of_view(type(self).__name__, self.chain, self.key)]


class ChainsBackward(Node):
    """The backward of one operation that returns several views, which share no element of its input (split, unbind).

    Its inputs are the views' gradients.  They are written into one buffer, so k views of N elements cost O(N + k).
    """

    chains: tuple[ViewChain, ...]
    key: tuple[Any, ...] | None = None  # as in ChainBackward, one for each view

    def apply(self, grads: list[Any], needs: int, arithmetic: Arithmetic) -> Any:
        given = [(chain, grad) for chain, grad in zip(self.chains, grads, strict=True) if grad is not None]
        if not given or not needs & 1:
            return (None,)
        chain, grad = given[0]
        total = [arithmetic.adjoint(chain, grad)]
        ours = not chain.is_root  # a root chain's adjoint is the incoming gradient itself
        for chain, grad in given[1:]:
            total.append(arithmetic.write(chain, total, grad, ours))
            del total[0]
        return total

    def formula(self, given: int, needs: int) -> Formula | None:
        return _of_adjoints(tuple(chain.program for chain in self.chains))

    def operands(self, unpacking: Callable[[Node], None]) -> list[Any]:
        return [start for chain in self.chains for start in chain.starts]

    def outline(self, facts: list[Any], operands: list[Any]) -> bool:
        facts.append(self.chains)
        for chain in self.chains:
            operands += chain.starts
        return True

    def _look_up(self, name: str, raw: bool) -> Any:
        if raw:
            raise KeyError(name)
        return of_views(type(self).__name__, self.chains[0], self.key)[name]

    def _attributes(self) -> list[str]:
        return [f"_saved_{name}" for name in of_views(type(self).__name__, self.chains[0], self.key)]


class RestridedBackward(Node):
    """The backward of `as_strided` of a view whose base has no gradient: the view gets the gradient of its own
    elements.

    `own` leads from the base to the view, `chain` to the result of `as_strided`.  If the view shows an element in
    several places, each place gets an equal part of its gradient, as in PyTorch.
    """

    own: ViewChain
    chain: ViewChain

    def apply(self, grads: list[Any], needs: int, arithmetic: Arithmetic) -> Any:
        grad = grads[0]
        if grad is None or not needs & 1:
            return (None,)
        whole = arithmetic.adjoint(self.chain, grad)
        if self.own.overlaps:
            share = 1 / jnp.maximum(self.own.adjoint(jnp.ones(self.own.shape, self.own.dtype)).real, 1)
            whole = (
                whole * arithmetic.constant(beside(share, whole._held()))
                if arithmetic.tensors
                else _times(whole, share)
            )
        return (arithmetic.read(self.own, whole),)

    def formula(self, given: int, needs: int) -> Formula | None:
        if self.own.overlaps:
            return None
        return _of_restrided(self.own.program, self.chain.program)

    def operands(self, unpacking: Callable[[Node], None]) -> list[Any]:
        return [*self.own.starts, *self.chain.starts]


# -- the same backwards as pure functions; their operands are the chains' starts ---------------------------------------


@functools.lru_cache(maxsize=4096)
def _of_adjoint(program: Program) -> Formula:
    return Formula(1, lambda grads, values, avals, static: [program.trace_adjoint(grads[0], *values)])


@functools.lru_cache(maxsize=4096)
def _of_adjoints(programs: tuple[Program, ...]) -> Formula:
    def run(grads: list, values: list, avals: tuple, static: Any) -> list:
        total, first = None, 0
        for program, grad in zip(programs, grads, strict=True):
            starts = values[first : first + sum(program.counts)]
            first += len(starts)
            if grad is None:
                continue
            if total is None:
                total = program.trace_adjoint(grad, *starts)
            else:
                total = program.trace_write(total, grad, *starts)
        return [total]

    return Formula(1, run)


@functools.lru_cache(maxsize=4096)
def _of_restrided(own: Program, program: Program) -> Formula:
    count = sum(own.counts)

    def run(grads: list, values: list, avals: tuple, static: Any) -> list:
        return [own.trace_replay(program.trace_adjoint(grads[0], *values[count:]), *values[:count])]

    return Formula(1, run)


# -- making nodes ------------------------------------------------------------------------------------------------------

_classes: dict[tuple[str, type], type] = {}


def _share(whole: Any, share: Any) -> Any:
    return whole * share


_times: Jitted = jit_checked(_share)


def _class(name: str, base: type) -> type:
    found = _classes.get((name, base))
    if found is None:
        found = _classes[name, base] = type(name, (base,), {"__module__": __name__})
    return found


def chains_node(name: str, chains: tuple[ViewChain, ...], edge: tuple[Any, ...]) -> Node:
    """Make a node called `name` with one input for each of `chains`."""
    node = _class(name, ChainsBackward)()
    node.chains = chains
    return wire(node, (edge,), chains)


def restrided_node(name: str, own: ViewChain, chain: ViewChain, edge: tuple[Any, ...]) -> Node:
    """Make a `RestridedBackward` called `name`."""
    node = _class(name, RestridedBackward)()
    node.own, node.chain = own, chain
    return wire(node, (edge,), (chain,))


def chain_node(name: str, chain: ViewChain, edge: tuple[Any, ...]) -> Node:
    """Make a node called `name` whose backward is the adjoint of `chain`."""
    node = (_classes.get((name, ChainBackward)) or _class(name, ChainBackward))()
    node.chain = chain
    return wire(node, (edge,), (chain,))  # a chain has the shape and dtype of its view
