"""Rprop, ASGD: optimizers that step by gradients' signs, or average parameters (torch/optim/rprop.py, asgd.py)."""

from typing import Any, ClassVar

import jax.numpy as jnp

from ..tensor import Tensor
from .by_rule import ByRule, check_lr, require
from .optimizer import ParamsT
from .rule import Rule


def _count(h: Any, s: Any, o: Any) -> Any:
    return {**vars(h), "before": s["step"]}, {"step": s["step"] + 1}


def _rprop(p: Any, g: Any, s: Any, c: Any, o: Any) -> Any:
    same = g * s["prev"]
    size = jnp.where(c.before == 0, c.lr, s["step_size"])  # the state may have been made before the rate was changed
    size = size * jnp.where(same > 0, c.plus, jnp.where(same < 0, c.minus, 1))
    size = jnp.clip(size, c.smallest, c.largest)
    g = jnp.where(same < 0, 0, g)
    return p - jnp.where(jnp.isnan(g), 0, jnp.sign(g)) * size, {"prev": g, "step_size": size}


class Rprop(ByRule):
    r"""Rprop: each element moves by a step of its own against the sign of its gradient.

    lr: the first steps.  etas: the factors of a step after a change of the sign, and without one; after a change the
    element stays where it is.  step_sizes: the bounds of the steps.  maximize: along the sign.
    foreach, capturable: for PyTorch's programs; a step is one fused program in any case.
    differentiable: gradients flow through the step (which has none with respect to a sign).

    Raises `ValueError` unless 0 < etas[0] < 1 < etas[1].
    Source: Riedmiller and Braun, A direct adaptive method for faster backpropagation learning, 1993.

    >>> import xgrad
    >>> w = xgrad.tensor([1.0, -2.0], requires_grad=True)
    >>> optimizer = xgrad.optim.Rprop([w], lr=0.1)
    >>> (w * w).sum().backward()
    >>> optimizer.step()
    >>> w
    tensor([ 0.9000, -1.9000], requires_grad=True)
    """

    hyper: ClassVar[tuple[str, ...]] = ("lr",)
    tuples: ClassVar[dict[str, tuple[str, ...]]] = {"etas": ("minus", "plus"), "step_sizes": ("smallest", "largest")}
    rule: ClassVar[Rule] = Rule("rprop", ("step",), lambda h, log: vars(h), _count, _rprop)
    switches: ClassVar[tuple[str, ...]] = ()
    sparse = "Rprop does not support sparse gradients"
    later: ClassVar[dict[str, Any]] = {**ByRule.later, "capturable": False}

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-2,
        etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50),
        *,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_lr(lr)
        require(0.0 < etas[0] < 1.0 < etas[1], f"Invalid eta values: {etas[0]}, {etas[1]}")
        super().__init__(
            params, lr=lr, etas=etas, step_sizes=step_sizes, foreach=foreach, maximize=maximize,
            differentiable=differentiable, capturable=capturable,
        )  # fmt: skip

    def _arrays(self, group: dict[str, Any], p: Tensor) -> dict[str, float]:
        return {"prev": 0.0, "step_size": group["lr"]}


# ------------------------------------------------------------ ASGD


def _asgd_coefficients(h: Any, s: Any, o: Any) -> Any:
    step = s["step"] + 1
    eta = h.lr / (1 + h.lambd * h.lr * step) ** h.alpha
    counts = {"step": step, "eta": eta, "mu": 1 / jnp.maximum(1.0, step - h.t0)}
    # The state may have been made before the rate was changed.  It is rounded as the state is.
    now = jnp.where(s["step"] == 0, jnp.asarray(h.lr, s["eta"].dtype), s["eta"])
    return {**vars(h), "eta": now, "mu": s["mu"]}, counts


def _asgd(p: Any, g: Any, s: Any, c: Any, o: Any) -> Any:
    if o.weight_decay:
        g = g + c.weight_decay * p
    p = p * (1 - c.lambd * c.eta) - c.eta * g
    return p, {"ax": jnp.where(c.mu == 1, p, s["ax"] + (p - s["ax"]) * c.mu)}


class ASGD(ByRule):
    r"""Averaged stochastic gradient descent: `state[p]["ax"]` is the average of p over the steps after t0.

    lambd: p decays by lambd · eta in each step.  alpha: eta is lr / (1 + lambd · lr · step) ** alpha.
    weight_decay: g is g + weight_decay · p.  maximize: -g in place of g.
    foreach, capturable: for PyTorch's programs; a step is one fused program in any case.
    differentiable: gradients flow through the step.

    Raises `ValueError` for a learning rate or a weight_decay below zero.
    Source: Polyak and Juditsky, Acceleration of stochastic approximation by averaging, 1992.

    >>> import xgrad
    >>> w = xgrad.tensor([1.0, -2.0], requires_grad=True)
    >>> optimizer = xgrad.optim.ASGD([w], lr=0.1)
    >>> (w * w).sum().backward()
    >>> optimizer.step()
    >>> w
    tensor([ 0.8000, -1.6000], requires_grad=True)
    """

    rule: ClassVar[Rule] = Rule("asgd", ("step", "eta", "mu"), lambda h, log: vars(h), _asgd_coefficients, _asgd)
    hyper: ClassVar[tuple[str, ...]] = ("lr", "lambd", "alpha", "t0", "weight_decay")
    sparse = "ASGD does not support sparse gradients"
    later: ClassVar[dict[str, Any]] = {**ByRule.later, "capturable": False}

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-2,
        lambd: float = 1e-4,
        alpha: float = 0.75,
        t0: float = 1e6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        check_lr(lr)
        require(weight_decay >= 0.0, f"Invalid weight_decay value: {weight_decay}")
        super().__init__(
            params, lr=lr, lambd=lambd, alpha=alpha, t0=t0, weight_decay=weight_decay, foreach=foreach,
            maximize=maximize, differentiable=differentiable, capturable=capturable,
        )  # fmt: skip

    def _counts(self, group: dict[str, Any]) -> dict[str, Any]:
        return {"step": 0.0, "eta": group["lr"], "mu": 1.0}

    def _arrays(self, group: dict[str, Any], p: Tensor) -> dict[str, float]:
        return {"ax": 0.0}
