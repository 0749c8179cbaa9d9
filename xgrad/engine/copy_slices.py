"""CopySlices: the autograd node that an in-place write through a view puts into the history of the view's base.

    before                              after  v.mul_(w)

    base ──► B                          base ──► CopySlices ─┬─► B
      ▲                                   ▲        fn: MulBackward0   (on the slice that v shows)
      │ select                            │                  └─► W
    v ──► SelectBackward0 ──► B         v ──► SelectBackward0 ──► CopySlices
    w ──► W

`apply`: view the base gradient, call `fn` on that part, write its result back into the base gradient, pass the others
through.  The view determines if the part is found by replaying view operations or by geometry (`relation_of`; PyTorch:
torch/csrc/autograd/functions/tensor.cpp).

The base gradient is updated in place, by donation, if the engine has the only reference to it: k writes into an
N-element buffer cost O(N + the views) backward, not O(kN) as a clone for each node does.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

from ..errors import FreedGraphError
from ..execution.programs.barriers import apart
from ..views.chain import ViewChain
from ..views.program import Program
from .arithmetic import Arithmetic
from .fit import fit
from .node import InternalNode, Node, wire
from .programs.formula import Formula


class CopySlices(InternalNode):
    """Edge 0 is the base's edge before the write, the others are the edges of `fn`."""

    def __init__(self, base_edge: tuple[Any, ...], base: Any, chain: ViewChain, fn: Node) -> None:
        self.fn: Node | None = fn
        self.chain = chain
        wire(self, (base_edge, *fn.next_edges[1:]), (base,))
        # The part of the base that was written is what fn's input 0 was: its gradient goes back into the base's.
        fn.next_edges = ((None, 0), *fn.next_edges[1:])

    def apply(self, grads: list[Any], needs: int, arithmetic: Arithmetic) -> Any:
        fn = self.fn
        if fn is None:
            raise FreedGraphError(
                "Trying to backward through the graph a second time: the CopySlices of an in-place operation on a view "
                "released what it saved when backward first ran. Specify retain_graph=True in the first call of "
                ".backward() or autograd.grad() if you need to go through the graph again."
            )
        if grads[0] is None:
            return [None] * len(self.next_edges)
        needs = self._wanted(needs)
        chain = self.chain
        part = [arithmetic.read(chain, grads[0])]
        whole = part[0] is grads[0]
        results = list(fn.apply(part, needs, arithmetic))
        del part
        results[0] = arithmetic.write(chain, grads, results[0], not whole) if needs & 1 else None
        return results

    def _wanted(self, needs: int) -> int:
        """The mask, where -1 is replaced by a bit for each edge that has a node."""
        if needs == -1:
            needs = 0
            for i, (node, _) in enumerate(self.next_edges):
                if node is not None:
                    needs |= 1 << i
        return needs

    def formula(self, given: int, needs: int) -> Formula | None:
        needs = self._wanted(needs)
        own = None if self.fn is None or self.chain.overlaps else self.fn.formula(1, needs)
        return None if own is None else _of_write(self.chain.program, own, needs & 1)

    def operands(self, unpacking: Callable[[Node], None]) -> list[Any]:
        assert self.fn is not None  # a node whose fn is None has no formula
        return [*self.chain.starts, *self.fn.operands(unpacking)]

    def outline(self, facts: list[Any], operands: list[Any]) -> bool:
        fn = self.fn
        if fn is None:
            return False
        facts.append(self.chain)
        operands += self.chain.starts
        return fn.outline(facts, operands)

    def unpack_misfit(self) -> str:
        return "" if self.fn is None else self.fn.unpack_misfit()

    def disposable(self) -> list[bool]:
        assert self.fn is not None
        return [*[False] * len(self.chain.starts), *self.fn.disposable()]

    @property
    def static(self) -> Any:
        return None if self.fn is None else self.fn.static

    def release(self) -> None:
        if self.fn is not None:
            self.fn.release()
            self.fn = None


@functools.lru_cache(maxsize=4096)
def _of_write(program: Program, fn: Formula, to_base: int) -> Formula:
    """The formula of a CopySlices over `fn`."""
    count = sum(program.counts)

    def run(grads: list, values: list, avals: tuple, static: Any) -> list:
        starts = values[:count]
        # Apart: the buffer is read before it is written.  XLA would read where the part is used, and copy the buffer.
        part = apart(program.trace_replay, grads[0], *starts)
        results = list(fn.run([part], values[count:], (part,), static))
        if to_base:
            new = jnp.zeros(()) if results[0] is None else fit(results[0], program.shape, program.dtype, "CopySlices")
            results[0] = program.trace_write(grads[0], new, *starts)
        else:
            results[0] = None
        return results

    return Formula(fn.defined & ~1 | to_base, run)
