"""SparseAdam: Adam of the rows that a sparse gradient has (PyTorch: torch/optim/sparse_adam.py)."""

import functools
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np

from ..dispatch.together import Together
from ..dtypes import x64_enabled
from ..tensor import Tensor
from .adam import Adam
from .by_rule import ByRule, check_lr, require
from .optimizer import ParamsT
from .rule import log, of_another_shape, vector


class SparseAdam(ByRule):
    r"""Adam for sparse gradients: only the rows that a gradient has are changed, and their averages.

    lr, betas, eps, maximize: those of `Adam`.

    Raises `ValueError` for numbers out of range and for parameters that are sparse or complex, `RuntimeError` for a
    dense gradient.
    Source: PyTorch's `torch.optim.SparseAdam`.

    >>> import xgrad
    >>> table = xgrad.ones(3, 2, requires_grad=True)
    >>> optimizer = xgrad.optim.SparseAdam([table], lr=0.1)
    >>> xgrad.nn.functional.embedding(xgrad.tensor([2]), table, sparse=True).sum().backward()
    >>> optimizer.step()
    >>> table
    tensor([[1.0000, 1.0000],
            [1.0000, 1.0000],
            [0.9000, 0.9000]], requires_grad=True)
    """

    rule: ClassVar[Any] = Adam.rule
    later: ClassVar[dict[str, Any]] = {"maximize": False}

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        maximize: bool = False,
    ) -> None:
        check_lr(lr)
        require(bool(lr > 0.0), f"Invalid learning rate: {lr}")
        require(eps > 0.0, f"Invalid epsilon value: {eps}")
        for i, beta in enumerate(betas):
            require(0.0 <= beta < 1.0, f"Invalid beta parameter at index {i}: {beta}")
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "maximize": maximize})
        places = [(i, k, p) for i, group in enumerate(self.param_groups) for k, p in enumerate(group["params"])]
        sparse = [[i, k] for i, k, p in places if p._sparse]
        require(not sparse, f"Sparse params at indices {sparse}: SparseAdam requires dense parameter tensors")
        wrong = [[i, k] for i, k, p in places if p.is_complex()]
        require(not wrong, f"Complex params at indices {wrong}: SparseAdam does not support complex parameters")

    def _unskippable(self) -> str:
        return "SparseAdam runs a program for the rows that a gradient has, which Python reads"

    def _step_group(self, group: dict[str, Any], unless: Tensor | None = None) -> None:
        beta1, beta2 = group["betas"]
        numbers = (float(group["lr"]), log(beta1), 1 - beta1, log(beta2), 1 - beta2, group["eps"])
        for p in group["params"]:
            if p._grad is None:
                continue
            if not p._grad._sparse:
                raise RuntimeError("SparseAdam does not support dense gradients, please consider Adam instead")
            state = self._state_of(p, group)
            grad = p._grad.coalesce()
            indices, values = _padded(grad._indices()._read(), grad._values()._read(), p.shape)
            written = [p, state["step"], state["exp_avg"], state["exp_avg_sq"]]
            _program(bool(group.get("maximize")))(written, [vector(numbers, x64_enabled()), indices, values])

    def _arrays(self, group: dict[str, Any], p: Tensor) -> dict[str, float]:
        return {"exp_avg": 0.0, "exp_avg_sq": 0.0}


def _padded(indices: Any, values: Any, shape: Any) -> tuple[Any, Any]:
    """Return indices and values of which there are a power of two, so that few programs fit all gradients.

    The indices that are added are out of range: reads fill in zeros, and writes drop them.
    """
    count = indices.shape[1]
    more = (1 << max(count - 1, 0).bit_length()) - count
    out = np.broadcast_to(np.array([[n] for n in shape[: indices.shape[0]]], np.int32), (indices.shape[0], more))
    indices = np.concatenate([np.asarray(indices, np.int32), out], 1)
    return indices, jnp.pad(values, [(0, more)] + [(0, 0)] * (values.ndim - 1))


@functools.cache
def _program(maximize: bool) -> Together:
    def sparse_adam_step(written: list[Any], read: list[Any]) -> list[Any]:
        p, step, average, square = written
        if not p.shape == average.shape == square.shape:
            raise of_another_shape("sparse_adam", p, {"exp_avg": average, "exp_avg_sq": square})
        h, indices, values = read
        rows, step = tuple(indices), step + 1
        g = -values if maximize else values
        lr, log1, new1, log2, new2, eps = h
        size = (lr * jnp.sqrt(-jnp.expm1(step * log2)) / -jnp.expm1(step * log1)).astype(p.dtype)
        new1, new2, eps = (a.astype(p.dtype) for a in (new1, new2, eps))
        old1, old2 = (a.at[rows].get(mode="fill", fill_value=0) for a in (average, square))
        change1, change2 = new1 * (g - old1), new2 * (g * g - old2)
        update = -size * (old1 + change1) / (jnp.sqrt(old2 + change2) + eps)
        return [
            p.at[rows].add(update, mode="drop"), step, average.at[rows].add(change1, mode="drop"),
            square.at[rows].add(change2, mode="drop"),
        ]  # fmt: skip

    return Together(sparse_adam_step, "sparse_adam_step")
