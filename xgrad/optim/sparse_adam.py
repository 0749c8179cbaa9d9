"""SparseAdam: Adam that updates only the rows that a sparse gradient has (PyTorch: torch/optim/sparse_adam.py)."""

import functools
from types import SimpleNamespace
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..base.jax_compat import Tracer
from ..config import state as modes
from ..dispatch.multi_write import MultiWrite
from ..execution.pending import Pending
from ..tensor import Tensor
from .by_rule import ByRule, check_lr, require
from .optimizer import ParamsT
from .rule import Rule, derived, of_another_shape, operands_of


def _derive(h: Any, log: Any) -> dict[str, Any]:
    return {
        "lr": h.lr, "eps": h.eps, "new1": 1 - h.beta1, "log1": log(h.beta1), "new2": 1 - h.beta2, "log2": log(h.beta2),
    }  # fmt: skip


def _coefficients(h: Any, s: Any, o: Any) -> Any:
    step = s["step"] + 1
    size = h.lr * jnp.sqrt(-jnp.expm1(step * h.log2)) / -jnp.expm1(step * h.log1)
    return {"size": size, "new1": h.new1, "new2": h.new2, "eps": h.eps}, {"step": step}


def _changes(p: Any, g: Any, s: Any, c: Any, o: Any) -> Any:
    """Return what is added to the rows of a parameter and of its averages."""
    average, square = c.new1 * (g - s["exp_avg"]), c.new2 * (g * g - s["exp_avg_sq"])
    update = -c.size * (s["exp_avg"] + average) / (jnp.sqrt(s["exp_avg_sq"] + square) + c.eps)
    return update, {"exp_avg": average, "exp_avg_sq": square}


class SparseAdam(ByRule):
    r"""Adam for sparse gradients: only the rows that a gradient has are changed, and their averages.

    lr, betas, eps, maximize: as in `Adam`.

    How many rows a gradient has is not known in a program (`xgrad.compile`): a step there costs as much as its entries
    would if all were of different rows.

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

    rule: ClassVar[Rule] = Rule("sparse_adam", ("step",), _derive, _coefficients, _changes)
    hyper: ClassVar[tuple[str, ...]] = ("lr", "eps")
    tuples: ClassVar[dict[str, tuple[str, ...]]] = {"betas": ("beta1", "beta2")}
    later: ClassVar[dict[str, Any]] = {"maximize": False}

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        maximize: bool = False,
    ) -> None:
        # Here, and not in the first step: within a trace an import makes numbers, such as lr, constants of the program.
        from ..sparse import gradients, operators  # noqa: F401

        check_lr(lr)
        require(bool(lr > 0.0), f"Invalid learning rate: {lr}")
        require(eps > 0.0, f"Invalid epsilon value: {eps}")
        for i, beta in enumerate(betas):
            require(0.0 <= beta < 1.0, f"Invalid beta parameter at index {i}: {beta}")
        super().__init__(params, lr=lr, betas=betas, eps=eps, maximize=maximize)
        places = [(i, k, p) for i, group in enumerate(self.param_groups) for k, p in enumerate(group["params"])]
        sparse = [[i, k] for i, k, p in places if p._sparse]
        require(not sparse, f"Sparse params at indices {sparse}: SparseAdam requires dense parameter tensors")
        wrong = [[i, k] for i, k, p in places if p.is_complex()]
        require(not wrong, f"Complex params at indices {wrong}: SparseAdam does not support complex parameters")

    def _step_group(self, group: dict[str, Any], unless: Tensor | None = None) -> None:
        _, group, given = self._numbers_in_trace(group)
        params = [p for p in group["params"] if p._grad is not None]
        if not all(p._grad._sparse for p in params):
            raise RuntimeError("SparseAdam does not support dense gradients, please consider Adam instead")
        if not params:
            return
        if modes.trace is None:
            states = [self._state_of(p, group) for p in params]
        else:
            states = self._states_in_trace(params, group, self._forms(params, group))
        operands, numbers, tensors = operands_of(self.rule, self._hyper(group, params[0]), given)
        if unless is not None:
            operands.append(unless)
        for p, state in zip(params, states):
            grad: Any = p._grad
            unknown = not grad._coalesced and isinstance(grad._index._read(), (Tracer, Pending))
            if unknown:
                parts = [grad._index, grad._entries]
            else:
                grad = grad.coalesce()
                parts = _padded(grad._index._read(), grad._entries._read(), p.shape)
            form = _Form(numbers, tensors, bool(group.get("maximize")), unknown, unless is not None)
            written = [p, state["step"], state["exp_avg"], state["exp_avg_sq"]]
            _program(form)(written, [*operands, *parts])

    def programs_ahead(self, leaves: set[int]) -> list[Any]:
        return []  # how many rows a gradient has is not known before

    def _arrays(self, group: dict[str, Any], p: Tensor) -> dict[str, float]:
        return {"exp_avg": 0.0, "exp_avg_sq": 0.0}


class _Form(NamedTuple):
    """The choices of a program beside shapes: hashable."""

    numbers: tuple[str, ...]  # what the first operand, a vector, has
    tensors: tuple[str, ...]  # hyperparameters that are tensors, the next operands
    maximize: bool
    coalesces: bool  # True if entries of the gradient may be at the same place
    skips: bool  # True if an operand says whether the step is skipped


def _padded(indices: Any, values: Any, shape: Any) -> tuple[Any, Any]:
    """Return indices and values padded to a power of two, so that few programs fit all gradients.

    The indices that are added are out of range: reads fill in zeros, and writes drop them.
    """
    if isinstance(indices, Tracer):  # in a program their number is known
        return indices, values
    count = indices.shape[1]
    more = (1 << max(count - 1, 0).bit_length()) - count
    out = np.broadcast_to(np.array([[n] for n in shape[: indices.shape[0]]], np.int32), (indices.shape[0], more))
    indices = np.concatenate([np.asarray(indices, np.int32), out], 1)
    return indices, jnp.pad(values, [(0, more)] + [(0, 0)] * (values.ndim - 1))


def _summed(indices: Any, values: Any, shape: Any) -> tuple[Any, Any]:
    """Return each place once, and the sum of its values: as many as there are entries, the last ones out of range."""
    count = indices.shape[1]
    if count < 2:
        return indices, values
    order = jnp.lexsort(indices[::-1])
    indices, values = indices[:, order], values[order]
    another = (indices[:, 1:] != indices[:, :-1]).any(0)
    number = jnp.pad(jnp.cumsum(another), (1, 0))
    out = jnp.broadcast_to(_outside(indices, shape), indices.shape)
    return out.at[:, number].set(indices), jax.ops.segment_sum(values, number, count, indices_are_sorted=True)


def _outside(indices: Any, shape: Any) -> Any:
    return jnp.array(shape[: indices.shape[0]], indices.dtype)[:, None]


@functools.lru_cache(maxsize=256)
def _program(form: _Form) -> MultiWrite:
    rule = SparseAdam.rule

    def sparse_adam_step(written: list[Any], read: list[Any]) -> list[Any]:
        p, step, average, square = written
        if not p.shape == average.shape == square.shape:
            raise of_another_shape(rule.name, p, {"exp_avg": average, "exp_avg_sq": square})
        *operands, indices, values = read
        indices = indices.astype(np.int32)
        if form.coalesces:
            indices, values = _summed(indices, values, p.shape)
        h, o = derived(rule, form.numbers, form.tensors, operands[: 1 + len(form.tensors)]), SimpleNamespace()
        scalars, counts = rule.coefficients(h, {"step": step}, o)
        new = counts["step"].astype(step.dtype)
        if form.skips:  # by rows that are dropped: a choice between old and new values would cost the whole table
            skip = operands[-1] > 0
            indices, new = jnp.where(skip, _outside(indices, p.shape), indices), jnp.where(skip, step, new)
        c = SimpleNamespace(**{name: value.astype(p.dtype) for name, value in scalars.items()})
        rows = tuple(indices)
        s = {"exp_avg": average, "exp_avg_sq": square}
        s = {name: a.at[rows].get(mode="fill", fill_value=0) for name, a in s.items()}
        g = values.astype(p.dtype)
        update, changes = rule.update(None, -g if form.maximize else g, s, c, o)
        changes = update, changes["exp_avg"], changes["exp_avg_sq"]
        arrays = [a.at[rows].add(change, mode="drop") for a, change in zip((p, average, square), changes)]
        return [arrays[0], new, *arrays[1:]]

    return MultiWrite(sparse_adam_step, "sparse_adam_step")
