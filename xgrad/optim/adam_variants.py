"""NAdam, RAdam, Adamax: optimizers that are variants of Adam (PyTorch: torch/optim/nadam.py, radam.py, adamax.py)."""

from typing import Any, ClassVar

import jax.numpy as jnp

from ..tensor import Tensor
from .by_rule import ByRule, check_adam, require
from .optimizer import ParamsT
from .rule import Rule


class _Moments(ByRule):
    """Base class: `betas`, two averages in a parameter's state, and a weight decay that may be decoupled."""

    hyper = ("lr", "eps", "weight_decay")
    tuples: ClassVar[dict[str, tuple[str, ...]]] = {"betas": ("beta1", "beta2")}
    options = ("decoupled_weight_decay",)
    later: ClassVar[dict[str, Any]] = {**ByRule.later, "capturable": False, "decoupled_weight_decay": False}

    def _arrays(self, group: dict[str, Any], p: Tensor) -> dict[str, float]:
        return {"exp_avg": 0.0, "exp_avg_sq": 0.0}


def _derive(h: Any, log: Any) -> dict[str, Any]:
    return {**vars(h), "new1": 1 - h.beta1, "log1": log(h.beta1), "new2": 1 - h.beta2, "log2": log(h.beta2)}


def _moments(p: Any, g: Any, s: Any, c: Any, o: Any) -> Any:
    """Return the decayed parameter, and the averages."""
    if o.weight_decay and o.decoupled_weight_decay:
        p = p * (1 - c.lr * c.weight_decay)
    elif o.weight_decay:
        g = g + c.weight_decay * p
    return p, g, c.beta1 * s["exp_avg"] + c.new1 * g, c.beta2 * s["exp_avg_sq"] + c.new2 * g * g


# ------------------------------------------------------------ NAdam


def _nadam_coefficients(h: Any, s: Any, o: Any) -> Any:
    step = s["step"] + 1
    mu = h.beta1 * (1 - 0.5 * jnp.exp(step * h.momentum_decay * h.log96))
    mu_next = h.beta1 * (1 - 0.5 * jnp.exp((step + 1) * h.momentum_decay * h.log96))
    product = s["mu_product"] * mu
    scalars = {
        **vars(h),
        "of_square": -1 / jnp.expm1(step * h.log2),
        "of_grad": h.lr * (1 - mu) / (1 - product),
        "of_average": h.lr * mu_next / (1 - product * mu_next),
    }
    return scalars, {"step": step, "mu_product": product}


def _nadam(p: Any, g: Any, s: Any, c: Any, o: Any) -> Any:
    p, g, average, square = _moments(p, g, s, c, o)
    root = jnp.sqrt(square * c.of_square) + c.eps
    return p - c.of_grad * g / root - c.of_average * average / root, {"exp_avg": average, "exp_avg_sq": square}


class NAdam(_Moments):
    r"""Adam with Nesterov's momentum, whose weight grows by a schedule that momentum_decay sets.

    Other arguments mean the same as in `Adam`, which has more.  Raises `ValueError` for numbers out of range.
    Source: Dozat, Incorporating Nesterov momentum into Adam, 2016.

    >>> import xgrad
    >>> w = xgrad.tensor([1.0, -2.0], requires_grad=True)
    >>> optimizer = xgrad.optim.NAdam([w], lr=0.1)
    >>> (w * w).sum().backward()
    >>> optimizer.step()
    >>> w
    tensor([ 0.8944, -1.8944], requires_grad=True)
    """

    rule: ClassVar[Rule] = Rule(
        "nadam", ("step", "mu_product"), lambda h, log: {**_derive(h, log), "log96": log(0.96)}, _nadam_coefficients,
        _nadam,
    )  # fmt: skip
    hyper: ClassVar[tuple[str, ...]] = ("lr", "eps", "weight_decay", "momentum_decay")
    sparse = "NAdam does not support sparse gradients"

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum_decay: float = 4e-3,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_adam(lr, betas, eps, weight_decay)
        require(momentum_decay >= 0.0, f"Invalid momentum_decay value: {momentum_decay}")
        super().__init__(
            params, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, momentum_decay=momentum_decay,
            decoupled_weight_decay=decoupled_weight_decay, maximize=maximize, foreach=foreach, capturable=capturable,
            differentiable=differentiable,
        )  # fmt: skip

    def _counts(self, group: dict[str, Any]) -> dict[str, Any]:
        return {"step": 0.0, "mu_product": 1.0}


# ------------------------------------------------------------ RAdam


def _radam_derive(h: Any, log: Any) -> dict[str, Any]:
    scale = -2 / log(h.beta2)
    return {**_derive(h, log), "offset": 2 / (1 - h.beta2) - 1 - scale, "scale": scale}


def _radam_coefficients(h: Any, s: Any, o: Any) -> Any:
    step = s["step"] + 1
    correction2 = -jnp.expm1(step * h.log2)
    longest = 2 / h.new2 - 1
    # longest - 2 * step * beta2**step / (1 - beta2**step), whose terms are thousands, and the difference a few: with
    # x = -step * log(beta2) it is offset + scale * (1 - x / (e**x - 1)).
    x = jnp.minimum(-step * h.log2, 80.0)
    small = x / 2 - x**2 / 12 + x**4 / 720 - x**6 / 30240
    length = h.offset + h.scale * jnp.where(x < 0.5, small, 1 - x / jnp.expm1(jnp.maximum(x, 0.5)))
    some = jnp.maximum(length, 5.0)  # no root of a negative number where it is not used
    rectified = jnp.sqrt((some - 4) * (some - 2) * longest / ((longest - 4) * (longest - 2) * some))
    scalars = {
        **vars(h),
        "step_size": h.lr / -jnp.expm1(step * h.log1),
        "scale": rectified * jnp.sqrt(correction2),
        "adaptive": length > 5.0,
    }
    return scalars, {"step": step}


def _radam(p: Any, g: Any, s: Any, c: Any, o: Any) -> Any:
    p, g, average, square = _moments(p, g, s, c, o)
    scale = jnp.where(c.adaptive > 0, c.scale / (jnp.sqrt(square) + c.eps), 1)
    return p - c.step_size * average * scale, {"exp_avg": average, "exp_avg_sq": square}


class RAdam(_Moments):
    r"""Adam that goes by the average gradient alone in its first steps, while the variance is not known.

    Its arguments mean the same as in `Adam`, which has more.  Raises `ValueError` for numbers out of range.
    Source: Liu et al., On the variance of the adaptive learning rate and beyond, 2020.

    >>> import xgrad
    >>> w = xgrad.tensor([1.0, -2.0], requires_grad=True)
    >>> optimizer = xgrad.optim.RAdam([w], lr=0.1)
    >>> (w * w).sum().backward()
    >>> optimizer.step()
    >>> w
    tensor([ 0.8000, -1.6000], requires_grad=True)
    """

    rule: ClassVar[Rule] = Rule("radam", ("step",), _radam_derive, _radam_coefficients, _radam)
    sparse = "RAdam does not support sparse gradients"

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_adam(lr, betas, eps, weight_decay)
        super().__init__(
            params, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, maximize=maximize, foreach=foreach,
            capturable=capturable, decoupled_weight_decay=decoupled_weight_decay, differentiable=differentiable,
        )  # fmt: skip


# ------------------------------------------------------------ Adamax


def _adamax_coefficients(h: Any, s: Any, o: Any) -> Any:
    step = s["step"] + 1
    return {**vars(h), "step_size": h.lr / -jnp.expm1(step * h.log1)}, {"step": step}


def _adamax(p: Any, g: Any, s: Any, c: Any, o: Any) -> Any:
    if o.weight_decay:
        g = g + c.weight_decay * p
    average = c.beta1 * s["exp_avg"] + c.new1 * g
    largest = jnp.maximum(c.beta2 * s["exp_inf"], jnp.abs(g) + c.eps)
    return p - c.step_size * average / largest, {"exp_avg": average, "exp_inf": largest}


class Adamax(_Moments):
    r"""Adam with the largest of the gradients so far, which decays by betas[1], in place of the root of their squares.

    Its arguments mean the same as in `Adam`, which has more.  Raises `ValueError` for numbers out of range.
    Source: Kingma and Ba, Adam: A method for stochastic optimization, 2015.

    >>> import xgrad
    >>> w = xgrad.tensor([1.0, -2.0], requires_grad=True)
    >>> optimizer = xgrad.optim.Adamax([w], lr=0.1)
    >>> (w * w).sum().backward()
    >>> optimizer.step()
    >>> w
    tensor([ 0.9000, -1.9000], requires_grad=True)
    """

    rule: ClassVar[Rule] = Rule("adamax", ("step",), _derive, _adamax_coefficients, _adamax)
    options: ClassVar[tuple[str, ...]] = ()
    later: ClassVar[dict[str, Any]] = {**ByRule.later, "capturable": False}
    sparse = "Adamax does not support sparse gradients"

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        check_adam(lr, betas, eps, weight_decay)
        super().__init__(
            params, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, foreach=foreach, maximize=maximize,
            differentiable=differentiable, capturable=capturable,
        )  # fmt: skip

    def _arrays(self, group: dict[str, Any], p: Tensor) -> dict[str, float]:
        return {"exp_avg": 0.0, "exp_inf": 0.0}
