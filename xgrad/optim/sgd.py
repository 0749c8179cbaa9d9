"""SGD: stochastic gradient descent, with momentum (PyTorch: torch/optim/sgd.py).

`_update` is the step of one parameter: `p`, `g` and `s` are its value, gradient and state; `c` has the numbers that
`_derive` computes of the hyperparameters, `o` the options that choose a program (rule.py).
"""

from typing import Any, ClassVar

from ..config import state as modes
from ..tensor import Tensor
from .by_rule import ByRule, check_forms, check_lr, require, require_not_negative
from .optimizer import ParamsT
from .rule import Rule


def _derive(h: Any, log: Any) -> dict[str, Any]:
    return {
        "lr": h.lr, "momentum": h.momentum, "new": 1 - h.dampening, "weight_decay": h.weight_decay,
    }  # fmt: skip


def _coefficients(h: Any, s: Any, o: Any) -> Any:
    return vars(h), s


def _update(p: Any, g: Any, s: Any, c: Any, o: Any) -> Any:
    if o.weight_decay:
        g = g + c.weight_decay * p
    if o.momentum:
        buffer = g if o.first else c.momentum * s["momentum_buffer"] + c.new * g
        s = {"momentum_buffer": buffer}
        g = g + c.momentum * buffer if o.nesterov else buffer
    return p - c.lr * g, s


class SGD(ByRule):
    r"""Stochastic gradient descent: p ← p - lr · g.

    With momentum p ← p - lr · b, where b ← momentum · b + (1 - dampening) · g.

    lr: the learning rate, a number or a tensor.  momentum, dampening: the first b is g.  weight_decay: g is
    g + weight_decay · p.  nesterov: g + momentum · b in place of b.  maximize: -g in place of g.
    foreach, fused: for PyTorch's programs; a step is one fused program in any case.
    differentiable: gradients flow through the step; the first b counts too, which PyTorch detaches.

    Raises `ValueError` for numbers below zero, and for `nesterov` without momentum or with dampening.
    Source: Sutskever et al., On the importance of initialization and momentum in deep learning, 2013.

    >>> import xgrad
    >>> w = xgrad.tensor([1.0, -2.0], requires_grad=True)
    >>> optimizer = xgrad.optim.SGD([w], lr=0.1, momentum=0.9)
    >>> for _ in range(2):
    ...     optimizer.zero_grad()
    ...     (w * w).sum().backward()
    ...     optimizer.step()
    >>> w
    tensor([ 0.4600, -0.9200], requires_grad=True)
    """

    rule: ClassVar[Rule] = Rule("sgd", (), _derive, _coefficients, _update)
    hyper: ClassVar[tuple[str, ...]] = ("lr", "momentum", "dampening", "weight_decay")
    options: ClassVar[tuple[str, ...]] = ("nesterov",)
    switches: ClassVar[tuple[str, ...]] = ("weight_decay", "momentum")
    later: ClassVar[dict[str, Any]] = {**ByRule.later, "nesterov": False, "fused": False}

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: float | Tensor = 0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        check_lr(lr)
        require_not_negative(momentum=momentum, weight_decay=weight_decay)
        require(
            not nesterov or (momentum > 0 and dampening == 0),
            "Nesterov momentum requires a momentum and zero dampening",
        )
        check_forms(foreach, fused, differentiable)
        super().__init__(
            params, lr=lr, momentum=momentum, dampening=dampening, weight_decay=weight_decay, nesterov=nesterov,
            maximize=maximize, foreach=foreach, differentiable=differentiable, fused=fused,
        )  # fmt: skip

    def _arrays(self, group: dict[str, Any], p: Tensor) -> dict[str, float]:
        return {"momentum_buffer": 0.0} if group["momentum"] != 0 else {}

    def _are_alike(self, group: dict[str, Any]) -> bool:
        return not group["dampening"] and super()._are_alike(group)

    def _varying(self, group: dict[str, Any], p: Tensor) -> dict[str, Any]:
        # Without dampening the first buffer follows from a zero one by the same formula.
        known = not group["dampening"] or self.state.get(p, {}).get("momentum_buffer") is not None
        return {"first": group["momentum"] != 0 and not known}  # a step that can't be skipped: by_rule.py

    def _step_group(self, group: dict[str, Any], unless: Tensor | None = None) -> None:
        first = []
        if modes.trace is None and group["dampening"]:
            first = [p for p in group["params"] if self._varying(group, p)["first"]]
        try:
            super()._step_group(group, unless)
        except BaseException:  # the next step is still the first of the buffers that were made and not written
            for p in first:
                buffer = self.state.get(p, {}).get("momentum_buffer")
                if buffer is not None and not buffer._version:
                    del self.state[p]["momentum_buffer"]
            raise
