"""Node: one recorded operation, a vertex of the autograd graph, which operators record and the engine runs in backward.

A node's *inputs* in backward are the gradients of the operation's outputs, described by `avals`.  Its `next_edges`,
pairs (node, input number of that node), say where the gradients of the operation's inputs go; (None, 0) stands for an
input that needs no gradient (PyTorch: torch/csrc/autograd/function.h).

Invariant: no node refers to a tensor that it made, so a graph has no reference cycles.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ..config import state
from ..tensor import Tensor
from .arithmetic import ARRAYS, TENSORS, Arithmetic
from .hooks import NodeHooks, RemovableHandle, note_users_code, register
from .programs.formula import Formula

MAX_SEQUENCE_NR = 2**64 - 1  # of AccumulateGrad: a leaf is served as soon as its gradient is complete


class InputMetadata(NamedTuple):
    """The shape and dtype that a gradient must have when it arrives at an input of a node."""

    shape: tuple[Any, ...]
    dtype: np.dtype

    is_nested_tensor = is_cpp_nested_tensor = False


class Node:
    """One recorded operation.  Subclasses define `apply`."""

    next_edges: tuple[Any, ...] = ()
    avals: tuple[Any, ...] = ()  # of the operation's outputs: anything with shape and dtype
    sequence_nr: int = 0
    _hooks: NodeHooks | None = None
    _topological: int = -1
    _metadata: dict | None = None
    is_accumulator: bool = False
    static: Any = None  # shapes and dtypes that the formula asks for beyond the ones in `avals`

    def apply(self, grads: list[Any], needs: int, arithmetic: Arithmetic) -> Any:
        """Compute the gradients of the operation's inputs, one for each of `next_edges`, None for an undefined one.

        `grads` and the results are in the form of `arithmetic`.  Bit i of `needs` is set if the gradient of edge i is
        wanted.
        """
        raise NotImplementedError(f"{self.name()} has no apply")

    def formula(self, given: int, needs: int) -> Formula | None:
        """Return `apply` as a pure function, or None: then a compiled backward calls `apply`.

        Bit i of `given` is set if the gradient of result i is defined, bit i of `needs` if the gradient of edge i is
        wanted; -1: all are.
        """

    def operands(self, unpacking: "Callable[[Node], None]") -> list[Any]:
        """Check the versions of the saved values and return those that the formula takes besides gradients.

        `unpacking(node)` is called before an unpack hook of this node is.
        """
        return []

    def outline(self, facts: list[Any], operands: list[Any]) -> bool:
        """Append to `facts` all that chooses the programs of `apply`, and the values that it saved to `operands`.

        Facts are hashable; one list of them begins no other one.  Return False if `apply` depends on more: then each
        backward in a lazy block runs it.
        """
        return False

    def program_ahead(self, needs: int, grad: Any) -> tuple[Any, list[Any]] | None:
        """Return the program that `apply` will run, and its operands, for a single gradient like `grad`.

        grad: a `jax.ShapeDtypeStruct`.  None if the program is not known before the gradient arrives, or if there is
        none.
        """
        return None

    def unpack_misfit(self) -> str:
        """The error message on an unpack hook that returned another shape than was packed; empty if none did."""
        return ""

    def is_watched(self) -> bool:
        """Return whether a hook sees the gradients that arrive at this node or that it computes."""
        return self._hooks is not None and bool(self._hooks)

    def disposable(self) -> list[bool]:
        """Return for each operand whether a program may donate its memory, once the graph holds the only reference."""
        return []

    def tensor_hooks(self) -> Any:
        """The hooks of the leaf that an accumulator serves; None for any other node."""

    def misfit(self) -> None:
        """Called by the engine when it changed the shape or dtype of a result to the shape or dtype of the result's
        edge."""

    def takes_sparse(self) -> bool:
        """Return whether a sparse gradient may arrive, in a `SparseGradient`; for other nodes the engine makes it
        dense."""
        return False

    def release(self) -> None:
        """Drop what was saved for backward; a second backward then raises `FreedGraphError`."""

    def name(self) -> str:
        """PyTorch's name of the node: 'MulBackward0', or 'torch::autograd::CopySlices' for one of the engine's."""
        return type(self).__name__

    def __call__(self, *grads: Any) -> Any:
        """Compute the gradients of the operation's inputs from the gradients of its outputs, without hooks and checks.

        The computation is recorded if grad mode is on.
        """
        if len(grads) != len(self.avals):
            raise TypeError(f"expected {len(self.avals)} arguments, got {len(grads)} instead")
        for i, grad in enumerate(grads):
            if grad is not None and not isinstance(grad, Tensor):
                raise TypeError(f"argument {i} is not a Variable, but {type(grad).__name__}")
        arithmetic = TENSORS if state.grad_enabled else ARRAYS
        results = self.apply([arithmetic.from_tensor(grad) for grad in grads], -1, arithmetic)
        found = tuple([arithmetic.to_tensor(result) for result in results])
        return found[0] if len(found) == 1 else found

    @property
    def next_functions(self) -> tuple[Any, ...]:
        """The nodes that receive this node's results, with their input numbers."""
        return self.next_edges

    @property
    def requires_grad(self) -> bool:
        """Always True: an operation without arguments that require grad has no node."""
        return True

    @property
    def metadata(self) -> dict[Any, Any]:
        """A dictionary for the user's own notes on this node.

        If the node was made in anomaly mode it contains `traceback_`, the stack at that moment as a list of strings,
        and `parent_`, the node that was being evaluated at that moment, if any.
        """
        if self._metadata is None:
            number = self.sequence_nr
            self._metadata = {} if number.__class__ is int else number.metadata()  # pyright: ignore
        return self._metadata

    @property
    def _input_metadata(self) -> tuple[InputMetadata, ...]:
        return tuple(InputMetadata(a.shape, a.dtype) for a in self.avals)

    def hooks(self) -> NodeHooks:
        if self._hooks is None:
            self._hooks = NodeHooks()
        return self._hooks

    def register_hook(self, hook: Any) -> RemovableHandle:
        """Call `hook(grad_inputs, grad_outputs)` after each run of this node; it may return new grad_inputs."""
        return register(self.hooks().post, hook)

    def register_prehook(self, hook: Any) -> RemovableHandle:
        """Call `hook(grad_outputs)` before each run of this node; it may return new grad_outputs."""
        return register(self.hooks().pre, hook)

    def _sequence_nr(self) -> int:
        return self.sequence_nr

    def _set_sequence_nr(self, number: int) -> None:
        """Move this node in the order of backward: larger numbers run first among nodes that are ready.

        Raises `OverflowError` for a number that is negative or has more than 64 bits.
        """
        if not isinstance(number, int):
            raise TypeError(f"an integer is required, but got {type(number).__name__}")
        if not 0 <= number <= MAX_SEQUENCE_NR:
            raise OverflowError(f"can't convert negative int to unsigned, or int too big to convert: {number}")
        self.metadata  # noqa: B018 - in anomaly mode the metadata are an attribute of the old number
        self.sequence_nr = number

    def _topological_nr(self) -> int:
        """0 without edges, else 1 + the largest of its children's numbers: a path X→Y implies topo(X) > topo(Y).

        It is computed when it is asked for: the engine's exec_info is exact without it, and recording stays cheaper.
        """
        stack: list[Node] = [self]
        while stack:
            node = stack[-1]
            if node._topological >= 0:
                stack.pop()
                continue
            children = [n for n, _ in node.next_edges if n is not None]
            waiting = [n for n in children if n._topological < 0]
            if waiting:
                stack.extend(waiting)
            else:
                node._topological = 1 + max((n._topological for n in children), default=-1)
                stack.pop()
        return self._topological

    def __getattr__(self, name: str) -> Any:
        """`_saved_<name>`: a value that this node saved or derives; `_raw_saved_<name>`: its SavedVariable."""
        saved, raw = name.startswith("_saved_"), name.startswith("_raw_saved_")
        if saved or raw:
            try:
                return self._look_up(name[len("_raw_saved_" if raw else "_saved_") :], raw)
            except KeyError:
                pass
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    def __dir__(self) -> Any:
        return [*super().__dir__(), *self._attributes()]

    def _look_up(self, name: str, raw: bool) -> Any:
        """The value of `_saved_<name>`, or of `_raw_saved_<name>`.  Raises `KeyError` for an unknown name."""
        raise KeyError(name)

    def _attributes(self) -> list[str]:
        """The names of all `_saved_*` and `_raw_saved_*`, for `dir`."""
        return []

    def __repr__(self) -> str:
        return f"<{type(self).__name__} object at {id(self):#x}>"

    def __reduce__(self) -> Any:
        raise TypeError(f"cannot pickle '{type(self).__name__}' object: a graph belongs to its process")


class InternalNode(Node):
    """A node that the engine makes, not an operator.  PyTorch's `name()` is the name of its C++ class."""

    def name(self) -> str:
        return f"torch::autograd::{type(self).__name__}"


class TensorNode(Node):
    """A node that computes with Tensors in either arithmetic: it runs users' code, or is composed of operators."""

    def apply(self, grads: list[Any], needs: int, arithmetic: Arithmetic) -> list[Any]:
        note_users_code()
        results = self.apply_to_tensors([arithmetic.to_tensor(grad) for grad in grads], needs)
        return [arithmetic.from_tensor(result) for result in results]

    def apply_to_tensors(self, grads: list[Any], needs: int) -> Any:
        """Compute `apply` for gradients that are Tensors, and return Tensors."""
        raise NotImplementedError(f"{self.name()} has no apply")

    def takes_sparse(self) -> bool:
        return True


def wire(node: Any, edges: tuple[Any, ...], avals: tuple[Any, ...]) -> Any:
    """Set the edges, input metadata and sequence number of a new node, and return it.

    `edges` say where its results go, `avals` which shape and dtype its inputs have.  The number is the thread's next
    one.
    """
    node.next_edges, node.avals, node.sequence_nr = edges, avals, state.next_sequence_nr()
    return node
