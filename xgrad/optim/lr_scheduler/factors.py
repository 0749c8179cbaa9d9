"""StepLR, MultiStepLR, ConstantLR, LinearLR, ExponentialLR, PolynomialLR: multiply all learning rates by one factor."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable
from typing import Any

from ..optimizer import Optimizer
from .base import LRScheduler, rates, warn_outside_of_step


class FactorLR(LRScheduler):
    """The base class of schedules whose rates all get one factor."""

    def _factor(self) -> float | None:
        """Return the factor from the last epoch to this one; None if the rates stay as they are."""
        raise NotImplementedError

    def _whole_factor(self) -> float:
        """Return the factor from the base rates to this epoch."""
        raise NotImplementedError

    def get_lr(self) -> list[Any]:
        """Return the present rates times the factor of this epoch."""
        warn_outside_of_step(self)
        factor = self._factor()
        if factor is None:
            return rates(self.optimizer)
        return [group["lr"] * factor for group in self.optimizer.param_groups]

    def _get_closed_form_lr(self) -> list[Any]:
        factor = self._whole_factor()
        return [base_lr * factor for base_lr in self.base_lrs]


class StepLR(FactorLR):
    """Rates times `gamma` after every `step_size` epochs.

    >>> import xgrad
    >>> optimizer = xgrad.optim.SGD([xgrad.ones(1, requires_grad=True)], lr=0.5)
    >>> scheduler = xgrad.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)
    >>> for _ in range(4):
    ...     optimizer.step()
    ...     scheduler.step()
    ...     print(scheduler.get_last_lr())
    [0.5]
    [0.25]
    [0.25]
    [0.125]
    """

    gamma: float
    step_size: int

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1) -> None:
        self.step_size, self.gamma = step_size, gamma
        super().__init__(optimizer, last_epoch)

    def _factor(self) -> float | None:
        return None if self.last_epoch == 0 or self.last_epoch % self.step_size else self.gamma

    def _whole_factor(self) -> float:
        return self.gamma ** (self.last_epoch // self.step_size)


class MultiStepLR(FactorLR):
    """Rates times `gamma` at each of the milestones, which are numbers of epochs."""

    gamma: float
    milestones: Any

    def __init__(
        self, optimizer: Optimizer, milestones: Iterable[int], gamma: float = 0.1, last_epoch: int = -1
    ) -> None:
        self.milestones, self.gamma = Counter(milestones), gamma
        super().__init__(optimizer, last_epoch)

    def _factor(self) -> float | None:
        times = self.milestones.get(self.last_epoch)
        return None if times is None else self.gamma**times

    def _whole_factor(self) -> float:
        return self.gamma ** bisect_right(sorted(self.milestones.elements()), self.last_epoch)


class ConstantLR(FactorLR):
    """Rates times `factor` during the first `total_iters` epochs.  Raises `ValueError` for a factor outside [0, 1]."""

    factor: float
    total_iters: int

    def __init__(
        self, optimizer: Optimizer, factor: float = 1.0 / 3, total_iters: int = 5, last_epoch: int = -1
    ) -> None:
        if factor > 1.0 or factor < 0:
            raise ValueError(f"Constant multiplicative factor expected to be between 0 and 1, but got {factor}.")
        self.factor, self.total_iters = factor, total_iters
        super().__init__(optimizer, last_epoch)

    def _factor(self) -> float | None:
        if self.last_epoch == 0:
            return self.factor
        return None if self.last_epoch != self.total_iters else 1.0 / self.factor

    def _whole_factor(self) -> float:
        return self.factor + (self.last_epoch >= self.total_iters) * (1 - self.factor)


class LinearLR(FactorLR):
    """Rates times a factor that goes from `start_factor` to `end_factor` during `total_iters` epochs: a warm-up.

    Raises `ValueError` for factors outside of [0, 1], and for a `start_factor` of 0.
    """

    end_factor: float
    start_factor: float
    total_iters: int

    def __init__(
        self,
        optimizer: Optimizer,
        start_factor: float = 1.0 / 3,
        end_factor: float = 1.0,
        total_iters: int = 5,
        last_epoch: int = -1,
    ) -> None:
        if start_factor > 1.0 or start_factor <= 0:
            raise ValueError(
                "Starting multiplicative factor expected to be greater than 0 and less or equal to 1, but got "
                f"{start_factor}."
            )
        if end_factor > 1.0 or end_factor < 0:
            raise ValueError(f"Ending multiplicative factor expected to be between 0 and 1, but got {end_factor}.")
        self.start_factor, self.end_factor, self.total_iters = start_factor, end_factor, total_iters
        super().__init__(optimizer, last_epoch)

    def _factor(self) -> float | None:
        if self.last_epoch == 0:
            return self.start_factor
        if self._is_initial or self.last_epoch > self.total_iters:
            return None
        rise = self.end_factor - self.start_factor
        return 1.0 + rise / (self.total_iters * self.start_factor + (self.last_epoch - 1) * rise)

    def _whole_factor(self) -> float:
        rise = self.end_factor - self.start_factor
        return self.start_factor + rise * min(self.total_iters, self.last_epoch) / self.total_iters


class ExponentialLR(FactorLR):
    """Rates times `gamma` in each epoch."""

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1) -> None:
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def _factor(self) -> float | None:
        return None if self._is_initial else self.gamma

    def _whole_factor(self) -> float:
        return self.gamma**self.last_epoch


class PolynomialLR(FactorLR):
    """Rates times (1 - epoch/total_iters)^power, which is 0 from the epoch `total_iters` on."""

    power: float
    total_iters: int

    def __init__(self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0, last_epoch: int = -1) -> None:
        self.total_iters, self.power = total_iters, power
        super().__init__(optimizer, last_epoch)

    def _factor(self) -> float | None:
        if self._is_initial or self.last_epoch > self.total_iters:
            return None
        now, before = (1.0 - epoch / self.total_iters for epoch in (self.last_epoch, self.last_epoch - 1))
        return (now / before) ** self.power

    def _whole_factor(self) -> float:
        return (1.0 - min(self.total_iters, self.last_epoch) / self.total_iters) ** self.power
