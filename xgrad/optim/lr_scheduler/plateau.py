"""ReduceLROnPlateau: lowers the learning rates when a measure, such as the loss, stops improving."""

import math
import warnings
from collections.abc import Sequence
from typing import Any, Literal, SupportsFloat

from ..optimizer import Optimizer
from .base import EPOCH_GIVEN, LRScheduler, deferred, rates, require_optimizer, set_rate


class ReduceLROnPlateau(LRScheduler):
    """Rates times `factor` after more than `patience` epochs in which the measure did not improve.

    mode: "min" for a loss, "max" for an accuracy.  threshold, threshold_mode: the improvement that counts, relative
    ("rel") or absolute ("abs").  cooldown: the epochs after a reduction that don't count.  min_lr: the least rate, or
    one for each group.  eps: a smaller change of a rate is not made.

    Raises `ValueError` for a factor of 1 or more, and for unknown modes.

    >>> import xgrad
    >>> optimizer = xgrad.optim.SGD([xgrad.ones(1, requires_grad=True)], lr=0.5)
    >>> scheduler = xgrad.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=1)
    >>> for loss in (1.0, 1.0, 1.0, 0.5):
    ...     scheduler.step(loss)
    ...     print(scheduler.get_last_lr())
    [0.5]
    [0.5]
    [0.25]
    [0.25]
    """

    cooldown: int
    eps: float
    patience: int
    threshold: float

    def __init__(
        self,
        optimizer: Optimizer,
        mode: Literal["min", "max"] = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: Literal["rel", "abs"] = "rel",
        cooldown: int = 0,
        min_lr: Sequence[float] | float = 0,
        eps: float = 1e-8,
    ) -> None:
        if factor >= 1.0:
            raise ValueError(f"Factor should be < 1.0, but is {factor}.")
        require_optimizer(optimizer)
        self.factor = factor
        self.optimizer = optimizer
        groups = len(optimizer.param_groups)
        self.default_min_lr: float | None = None
        if not isinstance(min_lr, Sequence):
            self.default_min_lr = min_lr
            self.min_lrs: list[float] = [min_lr] * groups
        elif len(min_lr) != groups:
            raise ValueError(f"expected {groups} min_lrs, got {len(min_lr)}")
        else:
            self.min_lrs = list(min_lr)
        self.patience, self.cooldown, self.eps = patience, cooldown, eps
        self.last_epoch: Any = 0
        self._last_lr = rates(optimizer)
        self._init_is_better(mode, threshold, threshold_mode)
        self._reset()

    def _init_is_better(self, mode: str, threshold: float, threshold_mode: str) -> None:
        if mode not in ("min", "max"):
            raise ValueError(f"mode {mode} is unknown!")
        if threshold_mode not in ("rel", "abs"):
            raise ValueError(f"threshold mode {threshold_mode} is unknown!")
        self.mode, self.threshold, self.threshold_mode = mode, threshold, threshold_mode
        self.mode_worse: Any = math.inf if mode == "min" else -math.inf

    def _reset(self) -> None:
        """Forget the best value and the bad epochs."""
        self.best: Any = self.mode_worse
        self.cooldown_counter = self.num_bad_epochs = 0

    @deferred
    def step(self, metrics: SupportsFloat, epoch: int | None = None) -> None:
        """Take the measure of an epoch, and lower the rates if it is time."""
        current = float(metrics)
        if epoch is not None:
            warnings.warn(EPOCH_GIVEN, UserWarning, stacklevel=3)
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        if self._is_better(current, self.best):
            self.best = current
            self.num_bad_epochs: Any = 0
        else:
            self.num_bad_epochs += 1
        if self.in_cooldown:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            self._reduce_lr()
            self.cooldown_counter: Any = self.cooldown
            self.num_bad_epochs = 0
        self._last_lr = rates(self.optimizer)

    def _reduce_lr(self) -> None:
        groups = self.optimizer.param_groups
        if len(groups) != len(self.min_lrs):
            if self.default_min_lr is None:
                raise RuntimeError(
                    f"The number of param groups in the `optimizer` ({len(groups)}) differs from when "
                    f"`ReduceLROnPlateau` was initialized ({len(self.min_lrs)}). Please modify the `min_lrs` field to "
                    "match the length of the `optimizer` param groups."
                )
            self.min_lrs = [self.default_min_lr] * len(groups)
        for group, least in zip(groups, self.min_lrs):
            old = float(group["lr"])
            new = max(old * self.factor, least)
            if old - new > self.eps:
                set_rate(group, new)

    @property
    def in_cooldown(self) -> bool:
        """True in the epochs after a reduction that don't count."""
        return self.cooldown_counter > 0

    def _is_better(self, value: float, best: float) -> bool:
        sign = 1 if self.mode == "max" else -1
        if self.threshold_mode == "abs":
            return value > best + self.threshold if sign == 1 else value < best - self.threshold
        bound = best * (1.0 + sign * self.threshold)
        return value > bound if sign == 1 else value < bound

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Set the attributes from a result of `state_dict`."""
        vars(self).update(state_dict)
        self._init_is_better(self.mode, self.threshold, self.threshold_mode)
