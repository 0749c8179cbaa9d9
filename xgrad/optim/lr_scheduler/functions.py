"""LambdaLR, MultiplicativeLR: schedules that multiply learning rates by factors from the user's functions."""

import types
from collections.abc import Callable, Sequence
from typing import Any

from ..optimizer import Optimizer
from .base import LRScheduler, rates, warn_outside_of_step


class FunctionLR(LRScheduler):
    """The base class of both schedules.  Functions are not saved; of callable objects the attributes are."""

    def __init__(
        self,
        optimizer: Optimizer,
        lr_lambda: Callable[[int], float] | Sequence[Callable[[int], float]],
        last_epoch: int = -1,
    ) -> None:
        self.optimizer = optimizer
        groups = len(optimizer.param_groups)
        given: Any = list(lr_lambda) if isinstance(lr_lambda, (list, tuple)) else [lr_lambda] * groups
        if len(given) != groups:
            raise ValueError(f"Expected {groups} lr_lambdas, but got {len(given)}")
        self.lr_lambdas: list[Callable[[int], float]] = given
        super().__init__(optimizer, last_epoch)

    def state_dict(self) -> dict[str, Any]:
        """Return the schedule's attributes but the optimizer; for functions None, for callable objects theirs."""
        found = super().state_dict()
        found["lr_lambdas"] = [
            None if isinstance(function, types.FunctionType) else vars(function).copy() for function in self.lr_lambdas
        ]
        return found

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Set the attributes, also of callable objects, from a result of `state_dict`."""
        vars(self).update((name, value) for name, value in state_dict.items() if name != "lr_lambdas")
        for function, attributes in zip(self.lr_lambdas, state_dict["lr_lambdas"]):
            if attributes is not None:
                vars(function).update(attributes)


class LambdaLR(FunctionLR):
    """Base rates times `lr_lambda(epoch)`; one function, or one for each group.

    >>> import xgrad
    >>> optimizer = xgrad.optim.SGD([xgrad.ones(1, requires_grad=True)], lr=0.5)
    >>> scheduler = xgrad.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 1 / (epoch + 1))
    >>> optimizer.step()
    >>> scheduler.step()
    >>> scheduler.get_last_lr()
    [0.25]
    """

    def get_lr(self) -> list[Any]:
        """Return the base rates times the functions' values."""
        warn_outside_of_step(self)
        return [base_lr * function(self.last_epoch) for function, base_lr in zip(self.lr_lambdas, self.base_lrs)]


class MultiplicativeLR(FunctionLR):
    """The present rates times `lr_lambda(epoch)`, from the second epoch on; one function, or one for each group."""

    def __init__(
        self,
        optimizer: Optimizer,
        lr_lambda: Callable[[int], float] | Sequence[Callable[[int], float]],
        last_epoch: int = -1,
    ) -> None:
        for function in lr_lambda if isinstance(lr_lambda, (list, tuple)) else [lr_lambda]:
            if not callable(function):
                raise TypeError(f"lr_lambda should be a function, but got {type(function).__name__}")
        super().__init__(optimizer, lr_lambda, last_epoch)

    def get_lr(self) -> list[Any]:
        """Return the present rates times the functions' values."""
        warn_outside_of_step(self)
        if self._is_initial:
            return rates(self.optimizer)
        groups = self.optimizer.param_groups
        return [group["lr"] * function(self.last_epoch) for function, group in zip(self.lr_lambdas, groups)]
