"""Adam, AdamW: optimizers that scale steps by moving averages of gradients and their squares (torch/optim/adam.py)."""

from typing import Any, ClassVar

import jax.numpy as jnp

from ..tensor import Tensor
from .by_rule import ByRule, check_adam, check_forms, require
from .optimizer import ParamsT
from .rule import Rule


def _derive(h: Any, log: Any) -> dict[str, Any]:
    return {
        "lr": h.lr, "beta1": h.beta1, "new1": 1 - h.beta1, "log1": log(h.beta1), "beta2": h.beta2, "new2": 1 - h.beta2,
        "log2": log(h.beta2), "eps": h.eps, "weight_decay": h.weight_decay,
    }  # fmt: skip


def _coefficients(h: Any, s: Any, o: Any) -> Any:
    step = s["step"] + 1
    scalars = {
        **vars(h),
        "step_size": h.lr / -jnp.expm1(step * h.log1),  # lr / (1 - beta1 ** step)
        "of_root": 1 / jnp.sqrt(-jnp.expm1(step * h.log2)),  # XLA would make a program of each parameter's division
    }
    return scalars, {"step": step}


def _update(p: Any, g: Any, s: Any, c: Any, o: Any) -> Any:
    if o.decoupled_weight_decay:
        p = p * (1 - c.lr * c.weight_decay)
    elif o.weight_decay:
        g = g + c.weight_decay * p
    average = c.beta1 * s["exp_avg"] + c.new1 * g
    square = c.beta2 * s["exp_avg_sq"] + c.new2 * g * g
    new, scale = {"exp_avg": average, "exp_avg_sq": square}, square
    if o.amsgrad:
        scale = new["max_exp_avg_sq"] = jnp.maximum(s["max_exp_avg_sq"], square)
    return p - c.step_size * average / (jnp.sqrt(scale) * c.of_root + c.eps), new


class Adam(ByRule):
    r"""Adam: p ← p - lr · m̂ / (√v̂ + eps), with moving averages m of g and v of g², both corrected for their start at 0.

    lr: the learning rate, a number or a tensor.  betas: the weights of the past in m and v, two numbers or two tensors.
    eps: added to the root.  weight_decay: g is g + weight_decay · p, or with decoupled_weight_decay p first becomes
    p - lr · weight_decay · p (AdamW).  amsgrad: the largest v so far in place of v.  maximize: -g in place of g.
    foreach, capturable, fused: for PyTorch's programs; a step is one fused program in any case.
    differentiable: gradients flow through the step.

    Raises `ValueError` for numbers out of range, `RuntimeError` for a sparse gradient.
    Source: Kingma and Ba, Adam: A method for stochastic optimization, 2015; Reddi et al., On the convergence of Adam
    and beyond, 2018.

    >>> import xgrad
    >>> w = xgrad.tensor([1.0, -2.0], requires_grad=True)
    >>> optimizer = xgrad.optim.Adam([w], lr=0.1)
    >>> (w * w).sum().backward()
    >>> optimizer.step()
    >>> w
    tensor([ 0.9000, -1.9000], requires_grad=True)
    >>> optimizer.state[w]["step"]
    tensor(1.)
    """

    rule: ClassVar[Rule] = Rule("adam", ("step",), _derive, _coefficients, _update)
    hyper: ClassVar[tuple[str, ...]] = ("lr", "eps", "weight_decay")
    tuples: ClassVar[dict[str, tuple[str, ...]]] = {"betas": ("beta1", "beta2")}
    options: ClassVar[tuple[str, ...]] = ("amsgrad", "decoupled_weight_decay")
    sparse = "Adam does not support sparse gradients, please consider SparseAdam instead"
    later: ClassVar[dict[str, Any]] = {
        **ByRule.later,
        "amsgrad": False,
        "capturable": False,
        "decoupled_weight_decay": False,
        "fused": None,
    }

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        betas: tuple[float | Tensor, float | Tensor] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        amsgrad: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
        decoupled_weight_decay: bool = False,
    ) -> None:
        check_adam(lr, betas, eps, weight_decay)
        tensors = [isinstance(beta, Tensor) for beta in betas]
        require(
            all(tensors) or (not any(tensors) and all(isinstance(beta, float) for beta in betas)),
            "betas must be either both floats or both Tensors",
        )
        for i, beta in enumerate(betas):
            require(not isinstance(beta, Tensor) or beta.numel() == 1, f"Tensor betas[{i}] must be 1-element")
        check_forms(foreach, fused, differentiable)
        super().__init__(
            params, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, amsgrad=amsgrad, maximize=maximize,
            foreach=foreach, capturable=capturable, differentiable=differentiable, fused=fused,
            decoupled_weight_decay=decoupled_weight_decay,
        )  # fmt: skip

    def _arrays(self, group: dict[str, Any], p: Tensor) -> dict[str, float]:
        return dict.fromkeys(("exp_avg", "exp_avg_sq", "max_exp_avg_sq")[: 2 + bool(group["amsgrad"])], 0.0)


class AdamW(Adam):
    r"""Adam with decoupled weight decay: p first becomes p - lr · weight_decay · p, and m and v do not see the decay.

    Arguments, errors and state are the same as in `Adam`.
    Source: Loshchilov and Hutter, Decoupled weight decay regularization, 2019.

    >>> import xgrad
    >>> w = xgrad.tensor([1.0, -2.0], requires_grad=True)
    >>> optimizer = xgrad.optim.AdamW([w], lr=0.1, weight_decay=0.5)
    >>> (w * w).sum().backward()
    >>> optimizer.step()
    >>> w
    tensor([ 0.8500, -1.8000], requires_grad=True)
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        betas: tuple[float | Tensor, float | Tensor] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        super().__init__(
            params, lr, betas, eps, weight_decay, amsgrad, foreach=foreach, maximize=maximize, capturable=capturable,
            differentiable=differentiable, fused=fused, decoupled_weight_decay=True,
        )  # fmt: skip

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            group["decoupled_weight_decay"] = True
