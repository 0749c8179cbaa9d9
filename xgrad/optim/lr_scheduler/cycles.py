"""CyclicLR, OneCycleLR: move the learning rate up and down, and momentum against it (arxiv.org/abs/1506.01186)."""

import math
import types
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal

from ..optimizer import Optimizer
from .base import LRScheduler, each_group, require_optimizer, set_rate, warn_outside_of_step


def _check_momentum(optimizer: Optimizer) -> bool:
    """Return True if momentum is the first of `betas`.  Raises `ValueError` for an optimizer without momentum."""
    if "momentum" not in optimizer.defaults and "betas" not in optimizer.defaults:
        raise ValueError("optimizer must support momentum or beta1 with `cycle_momentum` option enabled")
    return "betas" in optimizer.defaults


def _set_momentum(group: dict[str, Any], momentum: Any, betas: bool) -> None:
    if betas:
        group["betas"] = (momentum, *group["betas"][1:])
    else:
        group["momentum"] = momentum


def _same(x: float) -> float:
    return 1.0


def _halved(x: float) -> float:
    return 1 / (2.0 ** (x - 1))


def _power(gamma: float, x: float) -> float:
    return gamma**x


class CyclicLR(LRScheduler):
    """Rates that rise from `base_lr` to `max_lr` in `step_size_up` steps and fall in `step_size_down`, again and again.

    mode: "triangular"; "triangular2", where each cycle is half as high; "exp_range", with the height times gamma^step.
    scale_fn, scale_mode: a function for the height in place of a mode, of the "cycle" or of the "iterations".
    cycle_momentum: momentum (or the first of `betas`) goes from `max_momentum` to `base_momentum` and back.

    Step it after each batch.  Raises `ValueError` for an unknown mode, and for an optimizer without momentum.
    """

    gamma: float

    _scale_fn_ref: Callable[[float], float]

    def __init__(
        self,
        optimizer: Optimizer,
        base_lr: float | Sequence[float],
        max_lr: float | Sequence[float],
        step_size_up: int = 2000,
        step_size_down: int | None = None,
        mode: Literal["triangular", "triangular2", "exp_range"] = "triangular",
        gamma: float = 1.0,
        scale_fn: Callable[[float], float] | None = None,
        scale_mode: Literal["cycle", "iterations"] = "cycle",
        cycle_momentum: bool = True,
        base_momentum: float | Sequence[float] = 0.8,
        max_momentum: float | Sequence[float] = 0.9,
        last_epoch: int = -1,
    ) -> None:
        require_optimizer(optimizer)
        self.optimizer = optimizer
        base_lrs = each_group("base_lr", optimizer, base_lr)
        if last_epoch == -1:
            for value, group in zip(base_lrs, optimizer.param_groups):
                set_rate(group, value)
        self.max_lrs: Any = each_group("max_lr", optimizer, max_lr)
        up = float(step_size_up)
        self.total_size: Any = up + (up if step_size_down is None else float(step_size_down))
        self.step_ratio: Any = up / self.total_size
        if mode not in ("triangular", "triangular2", "exp_range") and scale_fn is None:
            raise ValueError(f"mode is invalid and scale_fn is None: got mode={mode!r}")
        self.mode, self.gamma = mode, gamma
        self._scale_fn_custom = scale_fn
        self.scale_mode: str = scale_mode
        self._init_scale_fn()
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            self.use_beta1: Any = _check_momentum(optimizer)
            self.base_momentums: Any = each_group("base_momentum", optimizer, base_momentum)
            self.max_momentums: Any = each_group("max_momentum", optimizer, max_momentum)
            if last_epoch == -1:
                for most, least, group in zip(self.max_momentums, self.base_momentums, optimizer.param_groups):
                    _set_momentum(group, most, self.use_beta1)
                    group["max_momentum"], group["base_momentum"] = most, least
        super().__init__(optimizer, last_epoch)
        self.base_lrs = base_lrs

    def _init_scale_fn(self) -> None:
        if self._scale_fn_custom is not None:
            return
        known = {
            "triangular": (_same, "cycle"),
            "triangular2": (_halved, "cycle"),
            "exp_range": (partial(_power, self.gamma), "iterations"),
        }
        self._scale_fn_ref, self.scale_mode = known[self.mode]

    def scale_fn(self, x: float) -> float:
        """Return the height of a cycle or of a step, as a share of `max_lr - base_lr`."""
        return (self._scale_fn_ref if self._scale_fn_custom is None else self._scale_fn_custom)(x)

    def get_lr(self) -> list[Any]:
        """Return the rates at this step, and set the groups' momentum."""
        warn_outside_of_step(self)
        cycle = math.floor(1 + self.last_epoch / self.total_size)
        x = 1.0 + self.last_epoch / self.total_size - cycle
        share = x / self.step_ratio if x <= self.step_ratio else (x - 1) / (self.step_ratio - 1)
        scale = cycle if self.scale_mode == "cycle" else self.last_epoch
        if self.cycle_momentum:
            for group, least, most in zip(self.optimizer.param_groups, self.base_momentums, self.max_momentums):
                _set_momentum(group, most - (most - least) * share * self.scale_fn(scale), self.use_beta1)
        return [base + (most - base) * share * self.scale_fn(scale) for base, most in zip(self.base_lrs, self.max_lrs)]

    def state_dict(self) -> dict[str, Any]:
        """Return the schedule's attributes but the optimizer and functions; of a callable `scale_fn` its attributes."""
        found = super().state_dict()
        found.pop("_scale_fn_ref", None)
        function = found["_scale_fn_custom"]
        plain = function is None or isinstance(function, types.FunctionType)
        found["_scale_fn_custom"] = None if plain else vars(function).copy()
        return found

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Set the attributes from a result of `state_dict`."""
        state = dict(state_dict)
        attributes = state.pop("_scale_fn_custom")
        super().load_state_dict(state)
        if attributes is not None:
            vars(self._scale_fn_custom).update(attributes)
        self._init_scale_fn()


def _cosine(start: Any, end: Any, share: float) -> Any:
    return end + (start - end) / 2.0 * (math.cos(math.pi * share) + 1)


def _linear(start: Any, end: Any, share: float) -> Any:
    return (end - start) * share + start


_ANNEALING: dict[str, Callable[[Any, Any, float], Any]] = {"cos": _cosine, "linear": _linear}


class OneCycleLR(LRScheduler):
    """One cycle: from max_lr/div_factor up to `max_lr`, and down to the first rate over `final_div_factor`.

    total_steps: their number, or `epochs` times `steps_per_epoch`.  pct_start: the share of steps in which rates rise.
    three_phase: down to the first rate in as many steps, and then to the last one.  anneal_strategy: "cos" or "linear".
    cycle_momentum: momentum (or the first of `betas`) falls from `max_momentum` to `base_momentum` while rates rise.

    Step it after each batch; one step more than `total_steps` raises `ValueError`, as do wrong options.

    Source: Smith and Topin, "Super-Convergence", https://arxiv.org/abs/1708.07120, in PyTorch's form.

    >>> import xgrad
    >>> optimizer = xgrad.optim.SGD([xgrad.ones(1, requires_grad=True)], lr=0.1, momentum=0.9)
    >>> scheduler = xgrad.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1.0, total_steps=10)
    >>> rates = scheduler.get_last_lr()
    >>> for _ in range(9):
    ...     optimizer.step()
    ...     scheduler.step()
    ...     rates += scheduler.get_last_lr()
    >>> [f"{rate:.2g}" for rate in rates[:4]]
    ['0.04', '0.52', '1', '0.95']
    """

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: float | Sequence[float],
        total_steps: int | None = None,
        epochs: int | None = None,
        steps_per_epoch: int | None = None,
        pct_start: float = 0.3,
        anneal_strategy: Literal["cos", "linear"] = "cos",
        cycle_momentum: bool = True,
        base_momentum: float | Sequence[float] = 0.85,
        max_momentum: float | Sequence[float] = 0.95,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
        last_epoch: int = -1,
    ) -> None:
        require_optimizer(optimizer)
        self.optimizer = optimizer
        self.total_steps: int = _total(total_steps, epochs, steps_per_epoch)
        up = float(pct_start * self.total_steps) - 1
        rising = _phase(up, "initial_lr", "max_lr", "max_momentum", "base_momentum")
        if three_phase:
            falling = _phase(
                float(2 * pct_start * self.total_steps) - 2, "max_lr", "initial_lr", "base_momentum", "max_momentum"
            )
            last = _phase(self.total_steps - 1, "initial_lr", "min_lr", "max_momentum", "max_momentum")
            self._schedule_phases = [rising, falling, last]
        else:
            last = _phase(self.total_steps - 1, "max_lr", "min_lr", "base_momentum", "max_momentum")
            self._schedule_phases = [rising, last]
        if not isinstance(pct_start, float) or pct_start < 0 or pct_start > 1:
            raise ValueError(f"Expected float between 0 and 1 pct_start, but got {pct_start}")
        if anneal_strategy not in _ANNEALING:
            raise ValueError(f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}")
        self._anneal_func_type = anneal_strategy
        most = each_group("max_lr", optimizer, max_lr)
        if last_epoch == -1:
            for value, group in zip(most, optimizer.param_groups):
                group["initial_lr"], group["max_lr"] = value / div_factor, value
                group["min_lr"] = group["initial_lr"] / final_div_factor
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            self.use_beta1: Any = _check_momentum(optimizer)
            highest = each_group("max_momentum", optimizer, max_momentum)
            lowest = each_group("base_momentum", optimizer, base_momentum)
            if last_epoch == -1:
                for high, low, group in zip(highest, lowest, optimizer.param_groups):
                    _set_momentum(group, high, self.use_beta1)
                    group["max_momentum"], group["base_momentum"] = high, low
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        """Return the rates at this step, and set the groups' momentum."""
        warn_outside_of_step(self)
        step = self.last_epoch
        if step > self.total_steps:
            raise ValueError(f"Tried to step {step} times. The specified number of total steps is {self.total_steps}")
        phases, start = self._schedule_phases, 0.0
        which = next((i for i, phase in enumerate(phases) if step <= phase["end_step"]), len(phases) - 1)
        if which:
            start = phases[which - 1]["end_step"]
        phase = phases[which]
        share = (step - start) / (phase["end_step"] - start)
        anneal, found = _ANNEALING[self._anneal_func_type], []
        for group in self.optimizer.param_groups:
            found.append(anneal(group[phase["start_lr"]], group[phase["end_lr"]], share))
            if self.cycle_momentum:
                momentum = anneal(group[phase["start_momentum"]], group[phase["end_momentum"]], share)
                _set_momentum(group, momentum, self.use_beta1)
        return found


def _phase(end: float, start_lr: str, end_lr: str, start_momentum: str, end_momentum: str) -> dict[str, Any]:
    """Return a phase: its last step, and the options of a group between which it goes."""
    return {
        "end_step": end, "start_lr": start_lr, "end_lr": end_lr,
        "start_momentum": start_momentum, "end_momentum": end_momentum,
    }  # fmt: skip


def _total(total_steps: Any, epochs: Any, steps_per_epoch: Any) -> int:
    if total_steps is None and (epochs is None or steps_per_epoch is None):
        raise ValueError("You must define either total_steps OR (epochs AND steps_per_epoch)")
    given = {"epochs": epochs, "steps_per_epoch": steps_per_epoch} if total_steps is None else {
        "total_steps": total_steps
    }  # fmt: skip
    for name, value in given.items():
        if not isinstance(value, int) or value <= 0:
            raise ValueError(f"Expected positive integer {name}, but got {value}")
    return math.prod(given.values())
