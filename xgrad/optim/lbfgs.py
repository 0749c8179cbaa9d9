"""LBFGS: a quasi-Newton optimizer, whose step needs a closure (PyTorch: torch/optim/lbfgs.py)."""

from collections.abc import Callable
from typing import Any

from ..autograd.grad_mode import enable_grad, no_grad
from ..dispatch.tables import FUNCTIONS
from ..tensor import Tensor
from .by_rule import check_lr, require
from .line_search import Point, strong_wolfe
from .optimizer import Optimizer, ParamsT

_cat, _as_real = FUNCTIONS[""]["cat"], FUNCTIONS[""]["view_as_real"]


class LBFGS(Optimizer):
    r"""L-BFGS, a quasi-Newton method: `step` needs a closure, which it evaluates several times.

    lr: the length of a step.  max_iter: the most steps along a direction in one call of `step`.  max_eval: the most
    evaluations in one call (1.25 · max_iter).  tolerance_grad: the largest element of the gradient at which it ends.
    tolerance_change: the change of loss or parameters at which it ends.  history_size: how many gradients are kept.
    line_search_fn: "strong_wolfe" looks for a good length, beginning with lr; None takes lr.

    There is one parameter group.  A step reads the loss and sums, so that no compiled function can contain it.
    Raises `ValueError` for a negative lr and for several groups, `RuntimeError` for another line search.
    Source: Nocedal, Updating quasi-Newton matrices with limited storage, 1980.

    >>> import xgrad
    >>> w = xgrad.tensor([3.0, -4.0], requires_grad=True)
    >>> optimizer = xgrad.optim.LBFGS([w], line_search_fn="strong_wolfe")
    >>> def closure():
    ...     optimizer.zero_grad()
    ...     loss = ((w - xgrad.tensor([1.0, 2.0])) ** 4).sum()
    ...     loss.backward()
    ...     return loss
    >>> optimizer.step(closure).item()
    1312.0
    >>> closure().item() < 1e-6
    True
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1,
        max_iter: int = 20,
        max_eval: int | None = None,
        tolerance_grad: float = 1e-7,
        tolerance_change: float = 1e-9,
        history_size: int = 100,
        line_search_fn: str | None = None,
    ) -> None:
        check_lr(lr)
        max_eval = max_iter * 5 // 4 if max_eval is None else max_eval
        super().__init__(
            params,
            {
                "lr": lr, "max_iter": max_iter, "max_eval": max_eval, "tolerance_grad": tolerance_grad,
                "tolerance_change": tolerance_change, "history_size": history_size, "line_search_fn": line_search_fn,
            },
        )  # fmt: skip
        require(len(self.param_groups) == 1, "LBFGS doesn't support per-parameter options (parameter groups)")

    @property
    def _params(self) -> list[Tensor]:
        return self.param_groups[0]["params"]

    def _flat_grad(self) -> Tensor:
        parts = []
        for p in self._params:
            grad = p.detach().new_zeros(p.shape) if p.grad is None else p.grad
            grad = grad.to_dense() if grad._sparse else grad
            parts.append((_as_real(grad) if grad.is_complex() else grad).reshape(-1))
        return _cat(parts)

    def _move(self, direction: Tensor, t: float) -> None:
        """Add t times the direction to the parameters."""
        start = 0
        for p in self._params:
            p = _as_real(p) if p.is_complex() else p
            p.add_(direction[start : start + p.numel()].view(p.shape), alpha=t)
            start += p.numel()

    @no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Do up to `max_iter` iterations, and return the loss before the first.

        closure: evaluates the model, calls `backward()` and returns the loss.
        """
        if closure is None:
            raise TypeError("LBFGS.step() needs a closure that evaluates the model and returns the loss")
        evaluated = enable_grad()(closure)
        group = self.param_groups[0]
        lr, search = float(group["lr"]), group["line_search_fn"]
        if search not in (None, "strong_wolfe"):
            raise RuntimeError(f"only 'strong_wolfe' is supported, not {search!r}")
        state = self.state[self._params[0]]  # of all parameters: so `load_state_dict` copies it to their device
        state.setdefault("func_evals", 0)
        state.setdefault("n_iter", 0)
        first = evaluated()
        loss, count = float(first), 1
        state["func_evals"] += 1
        grad = self._flat_grad()
        if bool(grad.abs().max() <= group["tolerance_grad"]):
            return first
        for n in range(1, group["max_iter"] + 1):
            state["n_iter"] += 1
            d = self._direction(state, grad, group["history_size"])
            before, state["prev_loss"] = loss, loss
            state["prev_flat_grad"] = grad.clone()
            t = min(1.0, 1.0 / float(grad.abs().sum())) * lr if state["n_iter"] == 1 else lr
            slope = float(grad.dot(d))
            state["d"], state["t"] = d, t
            if slope > -group["tolerance_change"]:
                break
            more = 0
            if search is not None:
                start = Point(0.0, loss, grad, slope)
                most = group["max_eval"] - count
                found, more = strong_wolfe(self._evaluation(evaluated, d), start, t, float(d.abs().max()), most)
                t, loss, grad = found.t, found.loss, found.grad
                self._move(d, t)
            else:
                self._move(d, t)
                if n < group["max_iter"]:
                    loss, grad, more = float(evaluated()), self._flat_grad(), 1
            state["t"] = t
            count += more
            state["func_evals"] += more
            if n == group["max_iter"] or count >= group["max_eval"]:
                break
            if bool(grad.abs().max() <= group["tolerance_grad"]):
                break
            if bool(d.mul(t).abs().max() <= group["tolerance_change"]):
                break
            if abs(loss - before) < group["tolerance_change"]:
                break
        return first

    def _evaluation(self, closure: Callable[[], Any], d: Tensor) -> Callable[[float], Point]:
        """Return a function that evaluates the loss at a place on the line; the parameters stay where they are."""
        here = [p.clone() for p in self._params]

        def evaluate(t: float) -> Point:
            self._move(d, t)
            try:
                loss = float(closure())
                grad = self._flat_grad()
            finally:
                for p, value in zip(self._params, here):
                    p.copy_(value)
            return Point(t, loss, grad, float(grad.dot(d)))

        return evaluate

    def _direction(self, state: dict[str, Any], grad: Tensor, most: int) -> Tensor:
        """Take the last step into the history, and return the next direction."""
        if state["n_iter"] == 1:
            state.update(old_dirs=[], old_stps=[], ro=[], H_diag=1)
            return grad.neg()
        ys, ss, ro = state["old_dirs"], state["old_stps"], state["ro"]
        y, s = grad.sub(state["prev_flat_grad"]), state["d"].mul(state["t"])
        curvature = float(y.dot(s))
        if curvature > 1e-10:
            if len(ys) == most:
                del ys[0], ss[0], ro[0]
            ys.append(y)
            ss.append(s)
            ro.append(1.0 / curvature)
            state["H_diag"] = curvature / float(y.dot(y))
        d, weights = grad.neg(), []
        for y, s, r in zip(reversed(ys), reversed(ss), reversed(ro)):
            weights.append(s.dot(d) * r)
            d.sub_(y * weights[-1])
        d.mul_(state["H_diag"])
        for y, s, r, weight in zip(ys, ss, ro, reversed(weights)):
            d.add_(s * (weight - y.dot(d) * r))
        return d
