"""Adagrad, Adadelta, RMSprop: optimizers that scale steps by squares of gradients (PyTorch: torch/optim)."""

from typing import Any, ClassVar

import jax.numpy as jnp

from ..tensor import Tensor
from .by_rule import ByRule, check_forms, check_lr, require, require_not_negative
from .optimizer import ParamsT
from .rule import Rule


def _step(h: Any, s: Any, o: Any) -> Any:
    return vars(h), {"step": s["step"] + 1}


# ------------------------------------------------------------ Adagrad


def _adagrad_coefficients(h: Any, s: Any, o: Any) -> Any:
    step = s["step"] + 1
    return {**vars(h), "step_size": h.lr / (1 + (step - 1) * h.lr_decay)}, {"step": step}


def _adagrad(p: Any, g: Any, s: Any, c: Any, o: Any) -> Any:
    if o.weight_decay:
        g = g + c.weight_decay * p
    total = s["sum"] + g * g
    return p - c.step_size * g / (jnp.sqrt(total) + c.eps), {"sum": total}


class Adagrad(ByRule):
    r"""Adagrad: p ← p - lr · g / (√G + eps), where G is the sum of all g² so far.

    lr_decay: lr is lr / (1 + step · lr_decay).  weight_decay: g is g + weight_decay · p.
    initial_accumulator_value: what G begins with.  maximize: -g in place of g.
    foreach, fused: for PyTorch's programs; a step is one fused program in any case.
    differentiable: gradients flow through the step.

    Raises `ValueError` for numbers out of range, `RuntimeError` for a weight decay with a sparse gradient.
    Source: Duchi et al., Adaptive subgradient methods for online learning and stochastic optimization, 2011.

    >>> import xgrad
    >>> w = xgrad.tensor([1.0, -2.0], requires_grad=True)
    >>> optimizer = xgrad.optim.Adagrad([w], lr=0.1)
    >>> (w * w).sum().backward()
    >>> optimizer.step()
    >>> w
    tensor([ 0.9000, -1.9000], requires_grad=True)
    """

    rule: ClassVar[Rule] = Rule("adagrad", ("step",), lambda h, log: vars(h), _adagrad_coefficients, _adagrad)
    hyper: ClassVar[tuple[str, ...]] = ("lr", "lr_decay", "weight_decay", "eps")
    later: ClassVar[dict[str, Any]] = {**ByRule.later, "fused": None}

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-2,
        lr_decay: float = 0,
        weight_decay: float = 0,
        initial_accumulator_value: float = 0,
        eps: float = 1e-10,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        check_lr(lr)
        require_not_negative(
            lr_decay=lr_decay, weight_decay=weight_decay, initial_accumulator_value=initial_accumulator_value,
            epsilon=eps,
        )  # fmt: skip
        check_forms(foreach, fused, differentiable)
        super().__init__(
            params, lr=lr, lr_decay=lr_decay, eps=eps, weight_decay=weight_decay,
            initial_accumulator_value=initial_accumulator_value, foreach=foreach, maximize=maximize,
            differentiable=differentiable, fused=fused,
        )  # fmt: skip
        for group in self.param_groups:
            for p in group["params"]:
                self._state_of(p, {**group, "initial_accumulator_value": initial_accumulator_value})

    def share_memory(self) -> None:
        """Do nothing: arrays of XLA are not shared between processes."""

    def _arrays(self, group: dict[str, Any], p: Tensor) -> dict[str, float]:
        return {"sum": group["initial_accumulator_value"]}

    def _dense(self, grad: Any, group: dict[str, Any]) -> Tensor:
        if group["weight_decay"] != 0:
            raise RuntimeError("weight_decay option is not compatible with sparse gradients")
        return grad.to_dense()


# ------------------------------------------------------------ Adadelta


def _adadelta(p: Any, g: Any, s: Any, c: Any, o: Any) -> Any:
    if o.weight_decay:
        g = g + c.weight_decay * p
    square = c.rho * s["square_avg"] + c.new * g * g
    delta = jnp.sqrt(s["acc_delta"] + c.eps) / jnp.sqrt(square + c.eps) * g
    return p - c.lr * delta, {"square_avg": square, "acc_delta": c.rho * s["acc_delta"] + c.new * delta * delta}


class Adadelta(ByRule):
    r"""Adadelta: p ← p - lr · g · √(D + eps) / √(V + eps), where V and D are moving averages of g² and of these steps².

    rho: the weight of the past in the averages.  weight_decay: g is g + weight_decay · p.  maximize: -g in place of g.
    foreach, capturable: for PyTorch's programs; a step is one fused program in any case.
    differentiable: gradients flow through the step.

    Raises `ValueError` for numbers out of range.
    Source: Zeiler, ADADELTA: An adaptive learning rate method, 2012.

    >>> import xgrad
    >>> w = xgrad.tensor([1.0, -2.0], requires_grad=True)
    >>> optimizer = xgrad.optim.Adadelta([w])
    >>> (w * w).sum().backward()
    >>> optimizer.step()
    >>> w
    tensor([ 0.9968, -1.9968], requires_grad=True)
    """

    rule: ClassVar[Rule] = Rule("adadelta", ("step",), lambda h, log: {**vars(h), "new": 1 - h.rho}, _step, _adadelta)
    hyper: ClassVar[tuple[str, ...]] = ("lr", "rho", "eps", "weight_decay")
    sparse = "Adadelta does not support sparse gradients"
    later: ClassVar[dict[str, Any]] = {**ByRule.later, "capturable": False}

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        capturable: bool = False,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_lr(lr)
        require(0.0 <= rho <= 1.0, f"Invalid rho value: {rho}")
        require_not_negative(epsilon=eps, weight_decay=weight_decay)
        super().__init__(
            params, lr=lr, rho=rho, eps=eps, weight_decay=weight_decay, maximize=maximize, capturable=capturable,
            foreach=foreach, differentiable=differentiable,
        )  # fmt: skip

    def _arrays(self, group: dict[str, Any], p: Tensor) -> dict[str, float]:
        return {"square_avg": 0.0, "acc_delta": 0.0}


# ------------------------------------------------------------ RMSprop


def _rmsprop(p: Any, g: Any, s: Any, c: Any, o: Any) -> Any:
    if o.weight_decay:
        g = g + c.weight_decay * p
    square = c.alpha * s["square_avg"] + c.new * g * g
    new, variance = {"square_avg": square}, square
    if o.centered:
        average = new["grad_avg"] = s["grad_avg"] + c.new * (g - s["grad_avg"])
        variance = square - average * average
    g = g / (jnp.sqrt(variance) + c.eps)
    if o.momentum:
        g = new["momentum_buffer"] = c.momentum * s["momentum_buffer"] + g
    return p - c.lr * g, new


class RMSprop(ByRule):
    r"""RMSprop: p ← p - lr · g / (√v + eps), where v is a moving average of g².

    alpha: the weight of the past in v.  momentum: the step is a sum of those quotients, where earlier ones decay.
    centered: v without the square of the average g.  weight_decay: g is g + weight_decay · p.
    maximize: -g in place of g.
    foreach, capturable: for PyTorch's programs; a step is one fused program in any case.
    differentiable: gradients flow through the step.

    Raises `ValueError` for numbers below zero.
    Source: Hinton, Lecture 6 of Neural networks for machine learning, 2012; Graves, Generating sequences with recurrent
    neural networks, 2013.

    >>> import xgrad
    >>> w = xgrad.tensor([1.0, -2.0], requires_grad=True)
    >>> optimizer = xgrad.optim.RMSprop([w], lr=0.01)
    >>> (w * w).sum().backward()
    >>> optimizer.step()
    >>> w
    tensor([ 0.9000, -1.9000], requires_grad=True)
    """

    rule: ClassVar[Rule] = Rule("rmsprop", ("step",), lambda h, log: {**vars(h), "new": 1 - h.alpha}, _step, _rmsprop)
    hyper: ClassVar[tuple[str, ...]] = ("lr", "alpha", "eps", "weight_decay", "momentum")
    options: ClassVar[tuple[str, ...]] = ("centered",)
    switches: ClassVar[tuple[str, ...]] = ("weight_decay", "momentum")
    sparse = "RMSprop does not support sparse gradients"
    later: ClassVar[dict[str, Any]] = {**ByRule.later, "momentum": 0, "centered": False, "capturable": False}

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum: float = 0,
        centered: bool = False,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_lr(lr)
        require_not_negative(epsilon=eps, momentum=momentum, weight_decay=weight_decay, alpha=alpha)
        super().__init__(
            params, lr=lr, momentum=momentum, alpha=alpha, eps=eps, centered=centered, weight_decay=weight_decay,
            capturable=capturable, foreach=foreach, maximize=maximize, differentiable=differentiable,
        )  # fmt: skip

    def _arrays(self, group: dict[str, Any], p: Tensor) -> dict[str, float]:
        there = {"square_avg": True, "momentum_buffer": group["momentum"] > 0, "grad_avg": group["centered"]}
        return {name: 0.0 for name, is_there in there.items() if is_there}
