"""GradScaler: scales losses so that gradients of float16 do not vanish (PyTorch: torch/amp/grad_scaler.py).

    scale(loss)  ->  backward  ->  unscale_(optimizer)  ->  step(optimizer)  ->  update()

Between two calls of `update` an optimizer goes from READY to UNSCALED and STEPPED, or straight to STEPPED if it
unscales gradients itself, and not back.  The scale and the number of steps since it last changed are tensors, which
`update` writes, so that a compiled step carries them on.
"""

import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from enum import Enum
from typing import Any

import jax.numpy as jnp
import numpy as np

from ..autograd.grad_mode import no_grad
from ..base.dtypes import float16
from ..config import state
from ..execution.runner import runner
from ..optim.placing import outside_of_trace
from ..tensor import Tensor, from_array
from . import scaling
from .settings import kind_of, present


class OptState(Enum):
    """The stage of an optimizer since the last `update`."""

    READY = 0
    UNSCALED = 1
    STEPPED = 2


def _fresh() -> dict[str, Any]:
    return {"stage": OptState.READY, "found_inf_per_device": {}}


class GradScaler:
    """Scale losses before backward, unscale gradients after it, skip the steps whose gradients are not finite.

    device: the type of devices, "cuda" (or "gpu"), "cpu", "tpu", "xla".
    init_scale: the first factor by which `scale` multiplies.
    growth_factor, growth_interval: after so many steps in a row without inf and NaN the factor multiplies the scale.
    backoff_factor: after a step with inf or NaN this factor multiplies the scale.
    enabled: with False, `step` is the optimizer's own and all else does nothing.

    The optimizer is any object with `param_groups`, a list of {"params": tensors}, and `step()`.  In a function under
    `xgrad.compile` it is one of `xgrad.optim` or `xgrad.interop.optax`, without step hooks: the program itself keeps
    parameters and state as they were where a gradient is not finite.  Python runs or skips the steps of others, which a
    compiled function cannot.

    Warns, and does nothing, for "cuda" without a GPU.  Raises `AssertionError` for a growth factor of 1 or less and a
    backoff factor of 1 or more; `RuntimeError` for an unknown device type.

    Source: PyTorch's `torch.amp.GradScaler`.

    >>> import xgrad
    >>> class SGD:
    ...     def __init__(self, params):
    ...         self.param_groups = [{"params": list(params)}]
    ...     def step(self):
    ...         with xgrad.no_grad():
    ...             for p in self.param_groups[0]["params"]:
    ...                 p -= 0.5 * p.grad
    >>> w = xgrad.tensor([1.0, 2.0], requires_grad=True)
    >>> optimizer, scaler = SGD([w]), xgrad.amp.GradScaler("cpu", init_scale=1024.0)
    >>> scaler.scale((w * w).sum()).backward()
    >>> scaler.step(optimizer)
    >>> scaler.update()
    >>> w.grad, w
    (tensor([2., 4.]), tensor([0., 0.], requires_grad=True))
    """

    # The attributes that a compiled function guards, and may change.
    __xgrad_guards__: frozenset[str] = frozenset({
        "_enabled", "_init_scale", "_scale", "_growth_factor", "_backoff_factor", "_growth_interval",
        "_init_growth_tracker", "_growth_tracker", "_per_optimizer_states",
    })  # fmt: skip

    def __init__(
        self,
        device: str = "cuda",
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        self._device = kind_of(device, "GradScaler")
        self._enabled = enabled
        if enabled and self._device == "cuda" and not present("cuda"):
            warnings.warn("GradScaler is enabled, but CUDA is not available.  Disabling.", stacklevel=2)
            self._enabled = False
        if self._enabled:
            _require(growth_factor, backoff_factor)
            self._init_scale = init_scale
            self._scale: Tensor | None = None
            self._growth_factor = growth_factor
            self._backoff_factor = backoff_factor
            self._growth_interval = growth_interval
            self._init_growth_tracker = 0
            self._growth_tracker: Tensor | None = None
            self._per_optimizer_states: dict[int, dict[str, Any]] = defaultdict(_fresh)

    # ------------------------------------------------------------ the scale

    def _tensors(self, function: str) -> tuple[Tensor, Tensor]:
        if self._scale is None or self._growth_tracker is None:
            raise AssertionError(
                f"Attempted {function} but _scale is None.  This may indicate your script did not use "
                "scaler.scale(loss or outputs) earlier in the iteration."
            )
        return self._scale, self._growth_tracker

    def _begun(self) -> Tensor:
        """Return the scale; it is made at the first use."""
        if self._scale is None:
            with outside_of_trace() if state.trace is not None else nullcontext():
                made = {
                    "_growth_tracker": from_array(jnp.asarray(np.int32(self._init_growth_tracker))),
                    "_scale": from_array(jnp.asarray(np.float32(self._init_scale))),
                }
            for name, tensor in made.items():
                if state.trace is not None:
                    state.trace.adopt(self, name, tensor)
                setattr(self, name, tensor)
            return made["_scale"]
        return self._scale

    def scale(self, outputs: Any) -> Any:
        """Multiply a tensor, or each of an iterable of tensors, by the scale.

        Lists and tuples are returned as such, other iterables as an iterator.

        Raises `ValueError` for other arguments.
        """
        if not self._enabled:
            return outputs
        if isinstance(outputs, Tensor):
            return outputs * self._begun()
        if isinstance(outputs, Iterable) and not isinstance(outputs, (str, bytes)):
            scaled = map(self.scale, outputs)
            return type(outputs)(scaled) if isinstance(outputs, (list, tuple)) else scaled
        raise ValueError(f"outputs must be a Tensor or an iterable of Tensors, but got {type(outputs).__name__}")

    # ------------------------------------------------------------ an optimizer's step

    def _unscale_grads_(self, optimizer: Any, scale: Tensor, allow_fp16: bool) -> dict[Any, Tensor]:
        """Divide all gradients by `scale`, in place; return for each device 1.0 if one was not finite, else 0.0."""
        grads = []
        for group in optimizer.param_groups:
            for param in group["params"]:
                if not isinstance(param, Tensor):
                    raise AssertionError(f"expected param to be xgrad.Tensor, got {type(param).__name__}")
                grad = param.grad
                if grad is None:
                    continue
                if grad.dtype == float16 and not allow_fp16:
                    raise ValueError(
                        "Attempting to unscale FP16 gradients. Keep the parameters in float32, and let autocast cast "
                        "them."
                    )
                grads.append(grad)
        with no_grad():
            return scaling.found_in(grads, scale)

    def unscale_(self, optimizer: Any) -> None:
        """Divide the gradients of an optimizer's parameters by the scale, in place, and store whether all are finite.

        `step` does so by itself: call it where you look at gradients or clip them between backward and step.

        Raises `RuntimeError` if it was called for this optimizer since the last `update`, or after `step`;
        `ValueError` for gradients of float16; `AssertionError` if nothing was scaled before.
        """
        if not self._enabled:
            return
        scale, _ = self._tensors("unscale_")
        known = self._per_optimizer_states[id(optimizer)]
        if known["stage"] is OptState.UNSCALED:
            raise RuntimeError(
                "unscale_() has already been called on this optimizer since the last update(): it would divide the "
                "gradients twice. Call it once, after the last backward before step()."
            )
        if known["stage"] is OptState.STEPPED:
            raise RuntimeError("unscale_() is being called after step(). Call it before, or call update() in between.")
        known["found_inf_per_device"] = self._unscale_grads_(optimizer, scale, False)
        known["stage"] = OptState.UNSCALED

    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """Unscale the gradients, unless that was done; then call `optimizer.step`, unless one was not finite.

        Return the result of `optimizer.step(*args, **kwargs)`, None if it was skipped.  An optimizer that has a true
        attribute `_step_supports_amp_scaling` is always called, its gradients as they are, with the attributes
        `grad_scale` (None if they are unscaled) and `found_inf` set.

        Raises `RuntimeError` for a closure and for a second call before `update`; `AssertionError` if nothing was
        scaled before, and if no parameter has a gradient.
        """
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if "closure" in kwargs:
            raise RuntimeError(
                "Closure use is not currently supported if GradScaler is enabled. Call backward() before step()."
            )
        self._tensors("step")
        known = self._per_optimizer_states[id(optimizer)]
        if known["stage"] is OptState.STEPPED:
            raise RuntimeError("step() has already been called since the last update(). Call update() after it.")
        if getattr(optimizer, "_step_supports_amp_scaling", False):
            result = self._step_scaled(optimizer, known, args, kwargs)
        else:
            if known["stage"] is OptState.READY:
                self.unscale_(optimizer)
            if not known["found_inf_per_device"]:
                raise AssertionError("No inf checks were recorded for this optimizer: no parameter of it has a .grad.")
            result = self._step_if_finite(optimizer, known, args, kwargs)
        known["stage"] = OptState.STEPPED
        return result

    def _step_if_finite(self, optimizer: Any, known: dict, args: tuple, kwargs: dict) -> Any:
        found = list(known["found_inf_per_device"].values())
        unless = self._unless(optimizer, args, kwargs)
        if unless is None:
            return None if any(f.item() for f in found) else optimizer.step(*args, **kwargs)
        with no_grad():
            total = scaling.sum_of(found)
        return unless(total, *args, **kwargs)

    def _unless(self, optimizer: Any, args: tuple, kwargs: dict) -> Callable[..., Any] | None:
        """Return the step of an optimizer whose program can skip it; None where Python reads whether it is skipped.

        Raises `RuntimeError` in a trace for an optimizer that has none.
        """
        unless = getattr(optimizer, "_step_unless", None)
        if state.trace is not None:
            if unless is None:
                raise RuntimeError(_IN_PYTHON.format(f"Python runs the step of {type(optimizer).__name__}"))
            why = optimizer._unskippable()
            if why:
                raise RuntimeError(_IN_PYTHON.format(why))
            return unless
        begun = getattr(optimizer, "_begun", None)
        if begun is None or args or kwargs or (state.overlay is None and runner.queue() is None):
            return None
        # An overlay: verify= compares this call with the program's, which makes the state of a skipped step too.
        return unless if not optimizer._unskippable() and (state.overlay is not None or begun()) else None

    def _step_scaled(self, optimizer: Any, known: dict, args: tuple, kwargs: dict) -> Any:
        """Call the step of an optimizer that unscales by itself and skips by itself."""
        scale, _ = self._tensors("step")
        if known["stage"] is OptState.READY:
            self._check_inf_per_device(optimizer)
        found = list(known["found_inf_per_device"].values())
        outer = getattr(optimizer, "grad_scale", None)
        optimizer.grad_scale = None
        if known["stage"] is not OptState.UNSCALED:
            optimizer.grad_scale = scale.clone() if outer is None else scale * outer
        with no_grad():
            optimizer.found_inf = scaling.sum_of(found)
        try:
            return optimizer.step(*args, **kwargs)
        finally:
            del optimizer.grad_scale, optimizer.found_inf

    # ------------------------------------------------------------ after it

    def update(self, new_scale: Any = None) -> None:
        """Adapt the scale to the gradients of the steps since the last call, and make all optimizers ready again.

        new_scale: a number or a float32 tensor with one element, the new scale.

        Raises `AssertionError` if no optimizer's gradients were checked, and for another kind of `new_scale`.
        """
        if not self._enabled:
            return
        scale, tracker = self._tensors("update")
        if new_scale is not None:
            self._set(scale, new_scale)
        else:
            found = [f for known in self._per_optimizer_states.values() for f in known["found_inf_per_device"].values()]
            if not found:
                raise AssertionError("No inf checks were recorded prior to update. Call step(optimizer) before it.")
            with no_grad():
                scaling.update(scale, tracker, found, self._growth_factor, self._backoff_factor, self._growth_interval)
        self._per_optimizer_states.clear()

    def _set(self, scale: Tensor, new_scale: Any) -> None:
        if isinstance(new_scale, Tensor):
            if new_scale.dtype != scale.dtype or new_scale.numel() != 1 or new_scale.requires_grad:
                raise AssertionError(
                    "new_scale should be a float or a 1-element xgrad.FloatTensor with requires_grad=False, but got "
                    f"{new_scale.numel()} elements of {new_scale.dtype} with requires_grad={new_scale.requires_grad}."
                )
            new_scale = new_scale.reshape(())
        with no_grad():
            scale.copy_(new_scale) if isinstance(new_scale, Tensor) else scale.fill_(new_scale)

    # ------------------------------------------------------------ questions and settings

    def get_scale(self) -> float:
        """Return the scale as a Python number, 1.0 if it is not enabled."""
        if not self._enabled:
            return 1.0
        return float(self._init_scale) if self._scale is None else self._scale.item()

    def get_growth_factor(self) -> float:
        """Return the factor by which the scale grows."""
        return self._growth_factor

    def set_growth_factor(self, new_factor: float) -> None:
        """Set the factor by which the scale grows."""
        self._growth_factor = new_factor

    def get_backoff_factor(self) -> float:
        """Return the factor by which the scale shrinks."""
        return self._backoff_factor

    def set_backoff_factor(self, new_factor: float) -> None:
        """Set the factor by which the scale shrinks."""
        self._backoff_factor = new_factor

    def get_growth_interval(self) -> int:
        """Return the number of steps after which the scale grows."""
        return self._growth_interval

    def set_growth_interval(self, new_interval: int) -> None:
        """Set the number of steps after which the scale grows."""
        self._growth_interval = new_interval

    def _get_growth_tracker(self) -> int:
        """Return the number of steps since the scale last changed."""
        if not self._enabled:
            return 0
        return self._init_growth_tracker if self._growth_tracker is None else int(self._growth_tracker.item())

    def is_enabled(self) -> bool:
        """Return False if the scaler does nothing."""
        return self._enabled

    def _check_inf_per_device(self, optimizer: Any) -> dict:
        """Look for inf and NaN in an optimizer's gradients, without changing them."""
        self._tensors("_check_inf_per_device")
        grads = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        with no_grad():
            found = scaling.found_in(grads, None)
        self._per_optimizer_states[id(optimizer)]["found_inf_per_device"] = found
        return found

    def _found_inf_per_device(self, optimizer: Any) -> dict:
        return self._per_optimizer_states[id(optimizer)]["found_inf_per_device"]

    # ------------------------------------------------------------ files

    def state_dict(self) -> dict[str, Any]:
        """Return scale, factors, interval and the steps since the scale changed; empty if it is not enabled."""
        if not self._enabled:
            return {}
        return {
            "scale": self.get_scale(),
            "growth_factor": self._growth_factor,
            "backoff_factor": self._backoff_factor,
            "growth_interval": self._growth_interval,
            "_growth_tracker": self._get_growth_tracker(),
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a result of `state_dict`.

        Raises `RuntimeError` for an empty one, `KeyError` for one that lacks an entry; nothing is changed then.
        """
        if not self._enabled:
            return
        if len(state_dict) == 0:
            raise RuntimeError(
                "The source state dict is empty, possibly because it was saved from a disabled instance of GradScaler."
            )
        scale, tracker = state_dict["scale"], state_dict["_growth_tracker"]
        factors = state_dict["growth_factor"], state_dict["backoff_factor"], state_dict["growth_interval"]
        self._growth_factor, self._backoff_factor, self._growth_interval = factors
        self._init_scale, self._init_growth_tracker = scale, tracker
        if self._scale is not None and self._growth_tracker is not None:
            self._scale.fill_(scale)
            self._growth_tracker.fill_(tracker)

    def __getstate__(self) -> dict[str, Any]:
        found = self.__dict__.copy()
        if self._enabled:
            if self._per_optimizer_states:
                raise AssertionError(
                    "A GradScaler instance may only be pickled at the beginning of an iteration, or at the end after "
                    "scaler.update()."
                )
            found["_init_scale"] = self.get_scale()
            found["_init_growth_tracker"] = self._get_growth_tracker()
            found["_scale"] = found["_growth_tracker"] = None
        return found


_IN_PYTHON = (
    "GradScaler.step() inside of xgrad.compile: whether the optimizer steps depends on the gradients, which are known "
    "only when the program runs, and {}. Compile the part up to backward, and call scaler.step(optimizer) and "
    "scaler.update() outside; or use an optimizer of xgrad.optim or interop.optax as it is; or write a step that takes "
    "the tensor `self.found_inf` into account, with `_step_supports_amp_scaling = True` in its class."
)


def deprecated(device: str, name: str, instead: str = "{place}.{name}('{device}', args...)") -> None:
    """Warn of an older spelling, from the function that has it."""
    instead = instead.format(place="xgrad.amp", name=name, device=device)
    warnings.warn(
        f"`xgrad.{device}.amp.{name}(args...)` is deprecated. Please use `{instead}` instead.",
        FutureWarning,
        stacklevel=3,
    )


def _require(growth_factor: float, backoff_factor: float) -> None:
    if growth_factor <= 1.0:
        raise AssertionError(f"The growth factor must be > 1.0. Got {growth_factor}.")
    if backoff_factor >= 1.0:
        raise AssertionError(f"The backoff factor must be < 1.0. Got {backoff_factor}.")
