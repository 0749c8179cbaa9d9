"""CosineAnnealingLR, CosineAnnealingWarmRestarts: learning rates along a cosine (SGDR, https://arxiv.org/abs/1608.03983)."""

import math
from typing import Any

from ..optimizer import Optimizer
from .base import LRScheduler, deferred, rates, set_rate, warn_outside_of_step, within_step


class CosineAnnealingLR(LRScheduler):
    """Rates along half a cosine, from the base rate at epoch 0 to `eta_min` at epoch `T_max`, and back.

    >>> import xgrad
    >>> optimizer = xgrad.optim.SGD([xgrad.ones(1, requires_grad=True)], lr=0.5)
    >>> scheduler = xgrad.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=2)
    >>> for _ in range(2):
    ...     optimizer.step()
    ...     scheduler.step()
    ...     print(f"{scheduler.get_last_lr()[0]:.2f}")
    0.25
    0.00
    """

    T_max: int
    eta_min: float

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1) -> None:
        self.T_max, self.eta_min = T_max, eta_min
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        """Return the present rates, moved along the cosine by an epoch."""
        warn_outside_of_step(self)
        groups, epoch, last, least = self.optimizer.param_groups, self.last_epoch, self.T_max, self.eta_min
        if self._is_initial:
            return rates(self.optimizer)
        if self._step_count == 1 and epoch > 0:
            return [least + (base - least) * (1 + math.cos(epoch * math.pi / last)) / 2 for base in self.base_lrs]
        if (epoch - 1 - last) % (2 * last) == 0:  # the first epoch after the least rate: a quotient would be 0/0
            rise = 1 - math.cos(math.pi / last)
            return [group["lr"] + (base - least) * rise / 2 for base, group in zip(self.base_lrs, groups)]
        now, before = (1 + math.cos(math.pi * e / last) for e in (epoch, epoch - 1))
        return [now / before * (group["lr"] - least) + least for group in groups]

    def _get_closed_form_lr(self) -> list[Any]:
        least, height = self.eta_min, 1 + math.cos(math.pi * self.last_epoch / self.T_max)
        return [least + (base - least) * height / 2 for base in self.base_lrs]


class CosineAnnealingWarmRestarts(LRScheduler):
    """Half cosines from the base rate to `eta_min`, one after the other: `T_0` epochs, then `T_mult` times as many.

    `step(epoch)` takes fractions of epochs: `step(epoch + i / batches)` after each batch.  Raises `ValueError` for
    other values than integers from 1 on.
    """

    T_mult: int
    eta_min: float

    def __init__(
        self, optimizer: Optimizer, T_0: int, T_mult: int = 1, eta_min: float = 0.0, last_epoch: int = -1
    ) -> None:
        if not isinstance(T_0, int) or T_0 <= 0:
            raise ValueError(f"Expected positive integer T_0, but got {T_0}")
        if not isinstance(T_mult, int) or T_mult < 1:
            raise ValueError(f"Expected integer T_mult >= 1, but got {T_mult}")
        if not isinstance(eta_min, (float, int)):
            raise ValueError(f"Expected float or int eta_min, but got {eta_min} of type {type(eta_min)}")
        self.T_0, self.T_mult, self.eta_min = T_0, T_mult, eta_min
        self.T_i: int = T_0  # the epochs of the present cosine; T_cur of them have passed
        self.T_cur: float = last_epoch
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        """Return the rates at this place of the cosine."""
        warn_outside_of_step(self)
        least, height = self.eta_min, 1 + math.cos(math.pi * self.T_cur / self.T_i)
        return [least + (base - least) * height / 2 for base in self.base_lrs]

    @deferred
    def step(self, epoch: float | None = None) -> None:
        """Set the rates of the next epoch, or of a given one, which may be a fraction."""
        if epoch is None and self.last_epoch < 0:
            epoch = 0
        if epoch is None:
            epoch = self.last_epoch + 1
            self.T_cur += 1
            if self.T_cur >= self.T_i:
                self.T_cur %= self.T_i
                self.T_i *= self.T_mult
        else:
            self._place(epoch)
        self.last_epoch = math.floor(epoch)
        with within_step(self):
            values = self.get_lr()
        for group, value in zip(self.optimizer.param_groups, values, strict=True):
            set_rate(group, value)
        self._last_lr = rates(self.optimizer)

    def _place(self, epoch: float) -> None:
        """Find the cosine of an epoch, and the place in it."""
        if epoch < 0:
            raise ValueError(f"Expected non-negative epoch, but got {epoch}")
        first, times = self.T_0, self.T_mult
        if epoch < first:
            self.T_i, self.T_cur = first, epoch
        elif times == 1:
            self.T_cur = epoch % first
        else:
            n = int(math.log(epoch / first * (times - 1) + 1, times))
            self.T_cur = epoch - first * (times**n - 1) / (times - 1)
            self.T_i = first * times**n
