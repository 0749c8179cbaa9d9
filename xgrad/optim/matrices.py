"""Adafactor and Muon: optimizers whose step uses a matrix as a whole (PyTorch: torch/optim/_adafactor.py, _muon.py)."""

import math
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np

from ..execution.programs.half import precision_of
from ..tensor import Tensor
from .by_rule import ByRule, check_lr, require
from .optimizer import ParamsT
from .rule import Rule

# ------------------------------------------------------------ Adafactor


def _adafactor_coefficients(h: Any, s: Any, o: Any) -> Any:
    step = s["step"] + 1
    scalars = {**vars(h), "new": step**h.beta2_decay, "rho": jnp.minimum(h.lr, 1 / jnp.sqrt(step))}
    return scalars, {"step": step}


def _rms(x: Any) -> Any:
    return jnp.sqrt((x * x).sum()) / math.sqrt(x.size)


def _adafactor(p: Any, g: Any, s: Any, c: Any, o: Any) -> Any:
    size = jnp.maximum(c.eps2, _rms(p)) * c.rho
    if o.weight_decay:
        p = p * (1 - c.lr * c.weight_decay)
    if g.ndim > 1:
        square = g * g
        row = s["row_var"] + c.new * (square.mean(-1, keepdims=True) - s["row_var"])
        column = s["col_var"] + c.new * (square.mean(-2, keepdims=True) - s["col_var"])
        variance = row * column / jnp.maximum(row.mean(-2, keepdims=True), c.eps1)
        s = {"row_var": row, "col_var": column}
    else:
        variance = s["variance"] + c.new * (g * g - s["variance"])
        s = {"variance": variance}
    update = g / jnp.sqrt(jnp.maximum(variance, c.eps1 * c.eps1))
    return p - size / jnp.maximum(1.0, _rms(update) / c.d) * update, s


class Adafactor(ByRule):
    r"""Adafactor: steps relative to the parameter's size, by second moments, kept only for rows and for columns.

    lr: the largest relative step; it is 1 / √step if that is less.  beta2_decay: the weight of a new g² is
    step ** beta2_decay.  eps: the least root of the second moment (None: the dtype's epsilon), and the least size of a
    parameter.  d: the largest size of an update before it is scaled.  weight_decay: p first becomes
    p - lr · weight_decay · p.  maximize: -g in place of g.
    foreach: for PyTorch's programs; a step is one fused program in any case.

    Raises `ValueError` for numbers out of range, `RuntimeError` for a complex parameter or a sparse gradient.
    Source: Shazeer and Stern, Adafactor: Adaptive learning rates with sublinear memory cost, 2018.

    >>> import xgrad
    >>> w = xgrad.tensor([1.0, -2.0], requires_grad=True)
    >>> optimizer = xgrad.optim.Adafactor([w], lr=0.1)
    >>> (w * w).sum().backward()
    >>> optimizer.step()
    >>> w
    tensor([ 0.8419, -1.8419], requires_grad=True)
    """

    rule: ClassVar[Rule] = Rule("adafactor", ("step",), lambda h, log: vars(h), _adafactor_coefficients, _adafactor)
    hyper: ClassVar[tuple[str, ...]] = ("lr", "beta2_decay", "d", "weight_decay")
    tuples: ClassVar[dict[str, tuple[str, ...]]] = {"eps": ("eps1", "eps2")}
    sparse = "Adafactor does not support sparse gradients"
    later: ClassVar[dict[str, Any]] = {"foreach": None, "maximize": False}

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-2,
        beta2_decay: float = -0.8,
        eps: tuple[float | None, float] = (None, 1e-3),
        d: float = 1.0,
        weight_decay: float = 0.0,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
    ) -> None:
        check_lr(lr, "Learning rate should be >= 0 but is")
        require(beta2_decay <= 0.0, f"beta2_decay should be <= 0 but is: {beta2_decay}")
        require(eps[0] is None or eps[0] >= 0.0, f"epsilon1 should be >= 0 but is: {eps[0]}")
        require(eps[1] >= 0.0, f"epsilon2 should be >= 0 but is: {eps[1]}")
        require(d >= 1.0, f"Clipping threshold d should be >= 1 but is: {d}")
        require(weight_decay >= 0.0, f"weight_decay should be >= 0 but is: {weight_decay}")
        super().__init__(
            params, lr=lr, beta2_decay=beta2_decay, eps=eps, d=d, weight_decay=weight_decay, foreach=foreach,
            maximize=maximize,
        )  # fmt: skip

    def _hyper(self, group: dict[str, Any], p: Tensor) -> dict[str, Any]:
        found = super()._hyper(group, p)
        return {**found, "eps1": float(jnp.finfo(p.dtype).eps)} if found["eps1"] is None else found

    def _are_alike(self, group: dict[str, Any]) -> bool:
        return False

    def _varying(self, group: dict[str, Any], p: Tensor) -> dict[str, Any]:
        if p.is_complex():
            raise RuntimeError("Adafactor does not support complex parameters")
        return {"dtype": p.dtype.name}

    def _arrays(self, group: dict[str, Any], p: Tensor) -> dict[str, float]:
        return {"row_var": 0.0, "col_var": 0.0} if p.ndim > 1 else {"variance": 0.0}

    def _shape(self, name: str, p: Tensor) -> Any:
        summed = {"row_var": p.ndim - 1, "col_var": p.ndim - 2}.get(name)
        return [1 if i == summed else n for i, n in enumerate(p.shape)]


# ------------------------------------------------------------ Muon


def _orthogonal(g: Any, o: Any, eps: Any) -> Any:
    """Return nearly the orthogonal factor of a matrix, by Newton and Schulz's iteration in bfloat16."""
    a, b, c = o.ns_coefficients
    half = jnp.bfloat16

    def product(x: Any, y: Any) -> Any:  # PyTorch's, too, sums in float32 and rounds once
        return jnp.matmul(x, y, precision=precision_of(x, y), preferred_element_type=jnp.float32)

    x = g.astype(half).T if g.shape[0] > g.shape[1] else g.astype(half)
    norm = jnp.sqrt((x.astype(jnp.float32) ** 2).sum()).astype(half)
    x = (x.astype(jnp.float32) / jnp.maximum(norm, eps.astype(half)).astype(jnp.float32)).astype(half)
    for _ in range(o.ns_steps):
        gram = product(x, x.T).astype(half)
        update = (b * gram.astype(jnp.float32) + c * product(gram, gram)).astype(half)
        x = (a * x.astype(jnp.float32) + product(update, x)).astype(half)
    return x.T if g.shape[0] > g.shape[1] else x


def _muon(p: Any, g: Any, s: Any, c: Any, o: Any) -> Any:
    buffer = s["momentum_buffer"] + c.new * (g - s["momentum_buffer"])
    g = g + c.momentum * (buffer - g) if o.nesterov else buffer
    rows, columns = p.shape
    scale = 0.2 * math.sqrt(max(rows, columns)) if o.adjust_lr_fn == "match_rms_adamw" else math.sqrt(
        max(1, rows / columns)
    )  # fmt: skip
    update = _orthogonal(g, o, c.eps).astype(p.dtype)
    return p * (1 - c.lr * c.weight_decay) - c.lr * scale * update, {"momentum_buffer": buffer}


class Muon(ByRule):
    r"""Muon: p ← p - lr · O, where O is nearly the orthogonal matrix that is nearest to the averaged gradient.

    params: matrices; biases and embeddings are better off with AdamW.  momentum: the weight of the past in the average.
    nesterov: the average of that average and the gradient.  weight_decay: p first becomes p - lr · weight_decay · p.
    ns_coefficients, ns_steps, eps: of Newton and Schulz's iteration, which runs in bfloat16.  adjust_lr_fn: "original"
    (None) scales lr by √max(1, rows / columns), "match_rms_adamw" by 0.2 · √max(rows, columns).

    Raises `ValueError` for numbers out of range and for parameters that are not matrices.
    Source: Jordan, Muon: An optimizer for hidden layers in neural networks, 2024.

    >>> import xgrad
    >>> w = xgrad.eye(2).requires_grad_()
    >>> optimizer = xgrad.optim.Muon([w], lr=0.1)
    >>> w.sum().backward()
    >>> optimizer.step()
    >>> w.shape
    xgrad.Size([2, 2])
    """

    rule: ClassVar[Rule] = Rule(
        "muon", (), lambda h, log: {**vars(h), "new": 1 - h.momentum}, lambda h, s, o: (vars(h), s), _muon
    )
    hyper: ClassVar[tuple[str, ...]] = ("lr", "weight_decay", "momentum", "eps")
    options: ClassVar[tuple[str, ...]] = ("nesterov", "ns_steps", "adjust_lr_fn")
    switches: ClassVar[tuple[str, ...]] = ()
    sparse = "Muon does not support sparse gradients"
    later: ClassVar[dict[str, Any]] = {}

    def __init__(
        self,
        params: ParamsT,
        lr: float = 1e-3,
        weight_decay: float = 0.1,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_coefficients: tuple[float, float, float] = (3.4445, -4.7750, 2.0315),
        eps: float = 1e-7,
        ns_steps: int = 5,
        adjust_lr_fn: str | None = None,
    ) -> None:
        check_lr(lr, "Learning rate should be >= 0 but is")
        require(momentum >= 0.0, f"momentum should be >= 0 but is: {momentum}")
        require(weight_decay >= 0.0, f"weight decay should be >= 0 but is: {weight_decay}")
        require(
            adjust_lr_fn in (None, "original", "match_rms_adamw"),
            f"Adjust learning rate function {adjust_lr_fn} is not supported",
        )
        super().__init__(
            params, lr=lr, weight_decay=weight_decay, momentum=momentum, nesterov=nesterov,
            ns_coefficients=ns_coefficients, eps=eps, ns_steps=ns_steps, adjust_lr_fn=adjust_lr_fn,
        )  # fmt: skip
        for group in self.param_groups:
            for p in group["params"]:
                require(
                    p.ndim == 2, f"Muon only supports 2D parameters whereas we found a parameter with size: {p.size()}"
                )

    def _are_alike(self, group: dict[str, Any]) -> bool:
        return False

    def _varying(self, group: dict[str, Any], p: Tensor) -> dict[str, Any]:
        if p.is_complex():
            raise RuntimeError("Muon does not support complex parameters")
        require(group["ns_steps"] < 100, "Number of steps must be less than 100 for computational efficiency")
        require(len(group["ns_coefficients"]) == 3, "Coefficients must be a tuple of exactly 3 values")
        return {"ns_coefficients": tuple(map(float, np.asarray(group["ns_coefficients"])))}

    def _arrays(self, group: dict[str, Any], p: Tensor) -> dict[str, float]:
        return {"momentum_buffer": 0.0}
