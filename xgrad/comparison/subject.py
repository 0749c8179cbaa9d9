"""Subject: the function that `xgrad.compare` runs, its inputs, and the cotangents of its outputs.

Invariant: each run has the same cotangents, and the same random numbers unless it is given a `key`.  `arrays()` makes
fresh copies of the input tensors, for one run; other inputs are passed as they are.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..autograd.backward import grad as gradients_of
from ..autograd.grad_mode import enable_grad
from ..base import dtypes
from ..engine.node import Node
from ..random import use_key
from ..tensor import Tensor, from_array, from_foreign

_copied = jax.jit(jnp.copy)


def _itself(tensor: Tensor) -> Tensor:
    return tensor


class Subject:
    """A function, its inputs, and the cotangents of its outputs."""

    def __init__(self, fn: Callable[..., Any], inputs: tuple[Any, ...]) -> None:
        self.fn = fn
        self.name: str = getattr(fn, "__name__", type(fn).__name__)
        self.inputs: Any = tuple(from_foreign(x) if isinstance(x, (np.ndarray, jax.Array)) else x for x in inputs)
        self.differentiated: Any = [i for i, x in enumerate(self.inputs) if isinstance(x, Tensor) and x.requires_grad]
        self.cotangents: list[np.ndarray | None] | None = None
        self.key: Any = jax.random.PRNGKey(0)

    def arrays(self) -> list[Any]:
        """Return a fresh copy of each tensor among the inputs."""
        return [_copied(x._read()) for x in self.inputs if isinstance(x, Tensor)]

    def run(
        self,
        block: AbstractContextManager[Any],
        note: str,
        read: Callable[[Tensor], Any],
        arrays: list[Any],
        *,
        key: Any = None,
        put: Callable[[Tensor], Tensor] = _itself,
    ) -> tuple[list[Any], list[Any], list[Node]]:
        """Run forward and backward in `block`; return outputs, gradients (None: there is none) and the graph's roots.

        `note` is added to an error.  `read` is applied to each result in the block, `put` to each tensor that goes in.
        """
        fresh = iter(arrays)
        copies: dict[int, Tensor] = {}  # an input that is passed twice is one tensor
        for x in self.inputs:
            if isinstance(x, Tensor):
                array = next(fresh)
                if id(x) not in copies:
                    copies[id(x)] = put(from_array(array)).requires_grad_(x.requires_grad)
        given = tuple(copies.get(id(x), x) for x in self.inputs)
        try:
            with block, enable_grad(), use_key(self.key if key is None else key):
                outputs = self._outputs(self.fn(*given))
                roots = [(o, c) for o, c in zip(outputs, self._cotangents(outputs, put)) if o.requires_grad]
                nodes = [o.grad_fn for o, _ in roots if o.grad_fn is not None]
                wanted = [given[i] for i in self.differentiated]
                grads: Any = [None] * len(wanted)
                if roots and wanted:
                    tensors, cotangents = zip(*roots)
                    grads = gradients_of(tensors, wanted, cotangents, allow_unused=True)
                return [read(o) for o in outputs], [None if g is None else read(g) for g in grads], nodes
        except Exception as error:
            error.add_note(note)
            raise

    def _outputs(self, returned: Any) -> list[Tensor]:
        outputs = list(returned) if isinstance(returned, (tuple, list)) else [returned]
        for o in outputs:
            if not isinstance(o, Tensor):
                raise TypeError(
                    f"compare(): the function must return a Tensor or a tuple of them, but got {type(o).__name__}"
                )
        return outputs

    def _cotangents(self, outputs: list[Tensor], put: Callable[[Tensor], Tensor]) -> list[Tensor | None]:
        if self.cotangents is None:
            rng = np.random.default_rng(0)
            self.cotangents = [_cotangent(rng, o) for o in outputs]
        return [None if c is None else put(from_foreign(c)) for c in self.cotangents]


def _cotangent(rng: np.random.Generator, output: Tensor) -> np.ndarray | None:
    """Return a random cotangent; None for a real scalar, which needs none."""
    shape, dtype = tuple(output.shape), output.dtype
    if dtype not in dtypes.INEXACT or (shape == () and dtype not in dtypes.COMPLEX):
        return None
    value = rng.standard_normal(shape)
    return (value + 1j * rng.standard_normal(shape) if dtype in dtypes.COMPLEX else value).astype(dtype)
