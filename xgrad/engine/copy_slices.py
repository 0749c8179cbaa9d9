"""CopySlices: the history that an in-place write through a view gives to the view's base.

    before                              after  v.mul_(w)

    base ──► B                          base ──► CopySlices ─┬─► B
      ▲                                   ▲        fn: MulBackward0   (on the slice that v shows)
      │ select                            │                  └─► W
    v ──► SelectBackward0 ──► B         v ──► SelectBackward0 ──► CopySlices
    w ──► W

`apply`: view the base gradient, call `fn` on that part, write its result back into the base gradient, pass the others
through.  Whether the part is found by replaying view operations or by geometry is in the chain alone
(`relation_of`; PyTorch: torch/csrc/autograd/functions/tensor.cpp).

The base gradient is updated in place, by donation, when nobody else holds it: k writes into an N-element buffer cost
O(N + the views) backward, not O(kN) as a clone for each node does.
"""

import functools
import weakref
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

from ..errors import FreedGraphError
from ..tensor import Tensor
from ..views.chain import ViewChain
from ..views.program import Program
from .arithmetic import Arithmetic
from .edges import gradient_edge
from .fit import fit
from .hooks import move_retained_hook
from .node import InputMetadata, InternalNode, Node, wire
from .programs.formula import Formula
from .programs.unfused import apart
from .view_attributes import of_view, of_views


class CopySlices(InternalNode):
    """Edge 0 is the base's edge before the write, the others are those of `fn`."""

    fn: Node | None

    def __init__(self, base_edge: tuple, base: Any, chain: ViewChain, fn: Node) -> None:
        self.fn = fn
        self.chain = chain
        wire(self, (base_edge, *fn.next_edges[1:]), (base,))
        # The part of the base that was written is what fn's input 0 was: its gradient goes back into the base's.
        fn.next_edges = ((None, 0), *fn.next_edges[1:])

    def apply(self, grads: list, needs: int, arithmetic: Arithmetic) -> Any:
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
        """The mask, with all that there are in the place of -1."""
        return needs if needs != -1 else sum(1 << i for i, (node, _) in enumerate(self.next_edges) if node is not None)

    def formula(self, given: int, needs: int) -> Formula | None:
        needs = self._wanted(needs)
        own = None if self.fn is None or self.chain.overlaps else self.fn.formula(1, needs)
        return None if own is None else _of_write(self.chain.program, own, needs & 1)

    def operands(self, unpacking: Callable[[Node], None]) -> list:
        assert self.fn is not None  # or there would be no formula
        return [*self.chain.starts, *self.fn.operands(unpacking)]

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


class ChainBackward(Node):
    """The backward of a view: `chain.adjoint` of the incoming gradient.  Linear, so its own backward is `replay`.

    One subclass for each name (SelectBackward0, TransposeBackward0, ...); a regenerated `grad_fn` is one of these over
    the whole chain from the base.
    """

    chain: ViewChain
    key: tuple | None = None  # PyTorch's name of the view operation and its arguments, for `_saved_*`

    def apply(self, grads: list, needs: int, arithmetic: Arithmetic) -> Any:
        grad = grads[0]
        if grad is None or not needs & 1:
            return (None,)
        return (arithmetic.adjoint(self.chain, grad),)

    def formula(self, given: int, needs: int) -> Formula | None:
        return _of_adjoint(self.chain.program)

    def operands(self, unpacking: Callable[[Node], None]) -> list:
        return list(self.chain.starts)

    def _look_up(self, name: str, raw: bool) -> Any:
        if raw:
            raise KeyError(name)
        return of_view(type(self).__name__, self.chain, self.key)[name]

    def _attributes(self) -> list[str]:
        return [f"_saved_{name}" for name in of_view(type(self).__name__, self.chain, self.key)]


class ChainsBackward(Node):
    """The backward of one operation that gives several views, which share no element (split, unbind).

    Its inputs are the views' gradients.  They are written into one buffer, so k views of N elements cost O(N + k).
    """

    chains: tuple[ViewChain, ...]
    key: tuple | None = None  # as of ChainBackward, for each of the views

    def apply(self, grads: list, needs: int, arithmetic: Arithmetic) -> Any:
        given = [(chain, grad) for chain, grad in zip(self.chains, grads, strict=True) if grad is not None]
        if not given or not needs & 1:
            return (None,)
        chain, grad = given[0]
        total = [arithmetic.adjoint(chain, grad)]
        ours = not chain.is_root  # else it is the incoming gradient
        for chain, grad in given[1:]:
            total.append(arithmetic.write(chain, total, grad, ours))
            del total[0]
        return total

    def formula(self, given: int, needs: int) -> Formula | None:
        return _of_adjoints(tuple(chain.program for chain in self.chains))

    def operands(self, unpacking: Callable[[Node], None]) -> list:
        return [start for chain in self.chains for start in chain.starts]

    def _look_up(self, name: str, raw: bool) -> Any:
        if raw:
            raise KeyError(name)
        return of_views(type(self).__name__, self.chains[0], self.key)[name]

    def _attributes(self) -> list[str]:
        return [f"_saved_{name}" for name in of_views(type(self).__name__, self.chains[0], self.key)]


class RestridedBackward(Node):
    """The backward of `as_strided` of a view whose base has no gradient: what falls into the view is the view's.

    `own` and `chain` lead from the base to the view, and to what was made of it.  Of an element that the view shows in
    several places each gets an equal part, as in PyTorch.
    """

    own: ViewChain
    chain: ViewChain

    def apply(self, grads: list, needs: int, arithmetic: Arithmetic) -> Any:
        grad = grads[0]
        if grad is None or not needs & 1:
            return (None,)
        whole = arithmetic.adjoint(self.chain, grad)
        if self.own.overlaps:
            share = 1 / jnp.maximum(self.own.adjoint(jnp.ones(self.own.shape, self.own.dtype)).real, 1)
            whole = whole * arithmetic.constant(share)
        return (arithmetic.read(self.own, whole),)

    def formula(self, given: int, needs: int) -> Formula | None:
        if self.own.overlaps:
            return None
        return _of_restrided(self.own.program, self.chain.program)

    def operands(self, unpacking: Callable[[Node], None]) -> list:
        return [*self.own.starts, *self.chain.starts]


# -- the same as pure functions, of which starts are operands ----------------------------------------------------------


@functools.lru_cache(maxsize=4096)
def _of_write(program: Program, fn: Formula, to_base: int) -> Formula:
    """Of a CopySlices over `fn`."""
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


# -- how the nodes come to be ------------------------------------------------------------------------------------------

_classes: dict[tuple[str, type], type] = {}


def _class(name: str, base: type) -> type:
    found = _classes.get((name, base))
    if found is None:
        found = _classes[name, base] = type(name, (base,), {"__module__": __name__})
    return found


def chains_node(name: str, chains: tuple[ViewChain, ...], edge: tuple) -> Node:
    """A node called `name` with one input for each of `chains`, whose views share no element."""
    node = _class(name, ChainsBackward)()
    node.chains = chains
    return wire(node, (edge,), chains)


def restrided_node(name: str, own: ViewChain, chain: ViewChain, edge: tuple) -> Node:
    """A `RestridedBackward` called `name`."""
    node = _class(name, RestridedBackward)()
    node.own, node.chain = own, chain
    return wire(node, (edge,), (chain,))


def chain_node(name: str, chain: ViewChain, edge: tuple) -> Node:
    """A node called `name` whose backward is the adjoint of `chain`."""
    node = (_classes.get((name, ChainBackward)) or _class(name, ChainBackward))()
    node.chain = chain
    return wire(node, (edge,), (chain,))  # a chain has the shape and dtype of what it shows


def regenerate(name: str, chain: ViewChain, base: Tensor) -> Node:
    """The grad_fn of a view, made anew from its base's present history."""
    return chain_node(name, chain, gradient_edge(base))


def rebase_history(self: Tensor, node: Node, relation: Any) -> None:
    """Make `node` the history of a tensor that was written in place.

    Tensor hooks stay with the old node, for they observe the tensor as it was; a retain-grad hook moves to the new.
    """
    meta = self._view
    if meta is None:
        move_retained_hook(self, node)
        self._grad_fn, self._output_nr, self._requires_grad = node, 0, True
        return
    base = meta.base
    chain, _ = relation(self)
    edge = gradient_edge(base)
    copy_slices = CopySlices(edge, InputMetadata(chain.root_shape, chain.root_dtype), chain, node)
    move_retained_hook(base, copy_slices)
    base._grad_fn, base._output_nr, base._requires_grad = copy_slices, 0, True
    # The view's own grad_fn is made anew when it is next asked for: its version is old now.  If it retains its
    # gradient, the hook has to be on the new node before backward runs.
    self._requires_grad = True
    if self._retains_grad:
        self.grad_fn  # noqa: B018


def history_of_view(self: Tensor, base: Tensor) -> Any:
    """A function that gives the grad_fn of a view that was just written, held weakly.

    If the view has died since, it is made anew from that of `base`, the CopySlices that runs the node which asks.
    """
    view_fn, base_fn = weakref.ref(self.grad_fn), weakref.ref(base._grad_fn)

    def grad_fn() -> Any:
        node, owner = view_fn(), base_fn()
        if node is None and isinstance(owner, CopySlices):
            node = chain_node("AsStridedBackward0", owner.chain, (owner, 0))
        return node

    return grad_fn
