"""`allow_mutation_on_saved_tensors`: writing over a tensor that backward needs (PyTorch: torch/autograd/graph.py)."""

from typing import Any

from ..config import state
from ..tensor import Tensor, from_foreign
from .saved_hooks import saved_tensors_hooks


class _MutationContext:
    """What `allow_mutation_on_saved_tensors` yields."""

    def __init__(self) -> None:
        self.open = True

    def clear(self) -> None:
        """PyTorch drops its clones here; there are none."""


class allow_mutation_on_saved_tensors:
    """Within the block, a tensor that was saved may be changed in place: backward sees it as it was saved.

    PyTorch clones before such a write.  JAX arrays are immutable: the saved array is kept, and nothing is cloned.
    Backward has to run inside of the block.

    >>> import xgrad
    >>> leaf = xgrad.ones(2, requires_grad=True)
    >>> with xgrad.autograd.graph.allow_mutation_on_saved_tensors():
    ...     x = leaf.clone()
    ...     y = (x * x).sum()
    ...     _ = x.zero_()
    ...     xgrad.autograd.grad(y, leaf)
    (tensor([2., 2.]),)
    """

    def __enter__(self) -> _MutationContext:
        if state.mutation_allowed is not None:
            raise RuntimeError("allow_mutation_on_saved_tensors contexts cannot be nested")
        context = _MutationContext()

        def pack(tensor: Tensor) -> Any:
            return tensor._read()

        def unpack(array: Any) -> Tensor:
            if not context.open:
                raise RuntimeError(
                    "Trying to backward outside of the 'allow_mutation_on_saved_tensors' context in which the graph "
                    "was originally recorded."
                )
            return from_foreign(array)

        self.hooks = saved_tensors_hooks(pack, unpack)
        self.hooks.__enter__()
        state.mutation_allowed = self.context = context
        return context

    def __exit__(self, *error: Any) -> None:
        self.context.open = False
        state.mutation_allowed = None
        self.hooks.__exit__(*error)
