"""CompiledFunctionBackward: the `grad_fn` of a compiled function's results that require grad.

It runs the backward program on residuals from the forward program.  PyTorch's node is called
`CompiledFunctionBackward` too (torch/_functorch/_aot_autograd), and has no double backward either.
"""

from typing import Any

from ..config import state
from ..engine.arithmetic import Arithmetic
from ..engine.edges import gradient_edge
from ..engine.node import Node
from ..engine.saved_variable import check_version, freed_error
from ..tensor import Tensor
from .traced import Target, Traced


class CompiledFunctionBackward(Node):
    """The node of the results of one call of a compiled function."""

    _backward: Any = None
    _residuals: list | None = None
    _targets: tuple[Target, ...] = ()
    _inputs: tuple[Tensor, ...] = ()
    _versions: tuple[int, ...] = ()
    _freed = False

    def __init__(self, traced: Traced, tensors: list[Any]) -> None:
        self.avals: tuple[Any, ...] = traced.metas
        self.sequence_nr: int = state.next_sequence_nr()
        self._failures: dict[int, Exception] = traced.failures
        if traced.targets:
            self._backward, self._targets = traced.program.backward, traced.targets
            self.next_edges = tuple(
                (None, 0) if made else gradient_edge(tensors[number]) for (made, number), _ in traced.targets
            )
            # An input that the call writes is needed as it was before: an array that later writes do not change.
            written = {root for _, _, root in traced.effects.writes}
            owners = [traced.inputs[number] for number in self._backward.inputs if number not in written]
            self._inputs = tuple(tensors[which] for kind, which in owners if kind == "tensor")

    def take(self, values: list[Any]) -> None:
        """Store the inputs that backward needs."""
        self._residuals = [values[number] for number in self._backward.inputs]

    def keep(self, out: Any, made: list[Tensor]) -> None:
        """Store the residuals for backward: the last step of a call.

        From now on no input that backward needs may be changed in place.
        """
        if self._backward.residuals:
            assert self._residuals is not None
            # Written so that it may be repeated: an interrupted call is brought to its end.
            own = self._residuals[: len(self._backward.inputs)]
            self._residuals = [*own, *out[-self._backward.residuals :]]
        self._versions = tuple([t._version for t in self._inputs])
        edges = zip(self._targets, self.next_edges)
        self.next_edges: tuple[Any, ...] = tuple(
            gradient_edge(made[t.reference[1]]) if t.reference[0] else edge for t, edge in edges
        )

    def apply(self, grads: list[Any], needs: int, arithmetic: Arithmetic) -> Any:
        if self._freed:
            raise freed_error(self.name())
        for i, failure in self._failures.items():
            if grads[i] is not None:
                raise failure.with_traceback(None)
        if arithmetic.tensors:
            raise RuntimeError(
                "xgrad.compile does not support double backward: what a compiled function returns can be "
                "differentiated once. Compute the gradient inside of the function, with create_graph=True, or leave it "
                "uncompiled."
            )
        for tensor, version in zip(self._inputs, self._versions, strict=True):
            check_version(tensor, version)
        given = sum(1 << i for i, grad in enumerate(grads) if grad is not None)
        if not given or self._backward is None:
            return [None] * len(self._targets)
        assert self._residuals is not None
        results = self._backward.run(self._residuals, grads)
        return [
            result if target.sources & given and (needs == -1 or needs >> i & 1) else None
            for i, (target, result) in enumerate(zip(self._targets, results, strict=True))
        ]

    def release(self) -> None:
        self._freed, self._residuals, self._inputs, self._versions = True, None, (), ()
