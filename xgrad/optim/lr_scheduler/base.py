"""LRScheduler: the base class of learning rate schedules (PyTorch: torch/optim/lr_scheduler.py, LRScheduler).

Invariant: `_last_lr` and `base_lrs` share no memory with the groups' rates, which may be tensors that are written.
"""

import functools
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from ...config import block, state
from ...tensor import Tensor
from ..optimizer import Optimizer

EPOCH_GIVEN = (
    "The epoch parameter in `scheduler.step()` was not necessary and is being deprecated where possible. Please use "
    "`scheduler.step()` to step the scheduler. With an epoch the rate is computed from the first one, by the closed "
    "form, where the schedule has one."
)
_ORDER = "https://pytorch.org/docs/stable/optim.html#how-to-adjust-learning-rate"


def require_optimizer(optimizer: Any) -> None:
    """Raise `TypeError` for other objects."""
    if not isinstance(optimizer, Optimizer):
        raise TypeError(f"{type(optimizer).__name__} is not an Optimizer")


def copied(value: Any) -> Any:
    """Return a number itself, of a tensor a copy."""
    return value.clone() if isinstance(value, Tensor) else value


def each_group(name: str, optimizer: Optimizer, given: Any) -> list[Any]:
    """Return an option of a schedule as a list, one for each group.  Raises `ValueError` for another number of them."""
    groups = len(optimizer.param_groups)
    if not isinstance(given, (list, tuple)):
        return [copied(given) for _ in range(groups)]
    if len(given) != groups:
        raise ValueError(
            f"{name} must have the same length as optimizer.param_groups. {name} has {len(given)} values, "
            f"param_groups has {groups}."
        )
    return [copied(value) for value in given]


def rates(optimizer: Optimizer, key: str = "lr") -> list[Any]:
    """Return an option of each group; tensors are copied."""
    return [copied(group[key]) for group in optimizer.param_groups]


def set_rate(group: dict[str, Any], value: Any) -> None:
    """Set a group's learning rate; a tensor is written in place."""
    if isinstance(group["lr"], Tensor):
        group["lr"].fill_(value.squeeze() if isinstance(value, Tensor) else value)
    else:
        group["lr"] = value


def deferred(step: Callable[..., Any]) -> Callable[..., Any]:
    """Have a compiled function make a schedule's step after each run of its program, where that is the same."""

    @functools.wraps(step)
    def call(
        *args: Any, **options: Any
    ) -> Any:  # no `self`, on which the program would depend (compiler/guards/frames.py)
        trace = state.trace
        if trace is not None and not args[0]._is_initial and trace.defers(args[0], step, args, options):
            return None
        return step(*args, **options)

    return call


class LRScheduler:
    """The base class of schedules: a subclass has `get_lr()`, the list of the groups' rates at `self.last_epoch`.

    last_epoch: -1 to begin; the number of the last epoch when training is resumed without `load_state_dict`, and then
    each group has an `initial_lr`, or `KeyError` is raised.  Raises `TypeError` for other objects than an optimizer.

    Call `optimizer.step()` before `scheduler.step()`: a warning is given if it is the other way round.

    >>> import xgrad
    >>> class Halved(xgrad.optim.lr_scheduler.LRScheduler):
    ...     def get_lr(self):
    ...         return [base_lr * 0.5**self.last_epoch for base_lr in self.base_lrs]
    >>> optimizer = xgrad.optim.SGD([xgrad.ones(1, requires_grad=True)], lr=0.1)
    >>> scheduler = Halved(optimizer)
    >>> for _ in range(2):
    ...     optimizer.step()
    ...     scheduler.step()
    >>> scheduler.get_last_lr()
    [0.025]
    """

    _get_lr_called_within_step: bool = False
    _is_initial: bool = False
    _last_lr: list[Any]

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        require_optimizer(optimizer)
        self.optimizer = optimizer
        for i, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", copied(group["lr"]))
            elif "initial_lr" not in group:
                raise KeyError(
                    f"param 'initial_lr' is not specified in param_groups[{i}] when resuming scheduler with "
                    "last_epoch >= 0: load the optimizer's state first, or begin with last_epoch=-1"
                )
        self.base_lrs: list[Any] = rates(optimizer, "initial_lr")
        self.last_epoch: int = last_epoch
        _note_steps(optimizer)
        self._initial_step()

    def _initial_step(self) -> None:
        self._step_count = 0
        self._is_initial = True
        try:
            self.step()
        finally:
            self._is_initial = False

    def state_dict(self) -> dict[str, Any]:
        """Return the schedule's attributes, all but the optimizer."""
        return {name: value for name, value in vars(self).items() if name != "optimizer"}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Set the attributes from a result of `state_dict`, of xgrad's or of PyTorch's schedule."""
        vars(self).update(state_dict)

    def get_last_lr(self) -> list[Any]:
        """Return the groups' rates as the last step left them."""
        return self._last_lr

    def get_lr(self) -> list[Any]:
        """Return the groups' rates at `self.last_epoch`; for `step` to call."""
        raise NotImplementedError

    @deferred
    def step(self, epoch: int | None = None) -> None:
        """Set the rates of the next epoch; of a given one, with a warning, by the closed form if there is one."""
        if self._step_count == 1:
            self._warn_of_order()
        self._step_count += 1
        if epoch is not None:
            warnings.warn(EPOCH_GIVEN, UserWarning, stacklevel=3)
        self._update_lr(epoch)

    def _warn_of_order(self) -> None:
        if not hasattr(self.optimizer.step, "_wrapped_by_lr_sched"):
            warnings.warn(
                "Seems like `optimizer.step()` has been overridden after learning rate scheduler initialization. "
                f"Please, make sure to call `optimizer.step()` before `lr_scheduler.step()`. See {_ORDER}",
                UserWarning,
                stacklevel=4,
            )
        elif not getattr(self.optimizer, "_opt_called", False):
            warnings.warn(
                "Detected call of `lr_scheduler.step()` before `optimizer.step()`. Call them in the opposite order: "
                f"otherwise the first value of the schedule is skipped. See {_ORDER}",
                UserWarning,
                stacklevel=4,
            )

    def _update_lr(self, epoch: int | None = None) -> None:
        with within_step(self):
            self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
            closed = None if epoch is None else getattr(self, "_get_closed_form_lr", None)
            values = self.get_lr() if closed is None else closed()
        for group, value in zip(self.optimizer.param_groups, values, strict=True):
            set_rate(group, value)
        self._last_lr = rates(self.optimizer)


class _LRScheduler(LRScheduler):
    """The old name of LRScheduler, from which many programs derive."""


@block
def within_step(scheduler: LRScheduler) -> Iterator[None]:
    """Allow `get_lr` without a warning."""
    scheduler._get_lr_called_within_step = True
    try:
        yield
    finally:
        scheduler._get_lr_called_within_step = False


def warn_outside_of_step(scheduler: LRScheduler) -> None:
    """Warn a caller of `get_lr()` who means `get_last_lr()`."""
    if not scheduler._get_lr_called_within_step:
        warnings.warn(
            "To get the last learning rate computed by the scheduler, please use `get_last_lr()`.",
            UserWarning,
            stacklevel=3,
        )


def _note_steps(optimizer: Any) -> None:
    """Have the optimizer note, as `_opt_called`, that it made a step."""
    method = optimizer.step
    if hasattr(method, "_wrapped_by_lr_sched"):
        return
    known = weakref.ref(optimizer)  # no circle: the optimizer lives as long as before
    function = getattr(method, "__func__", None) or (lambda own, *args, **options: method(*args, **options))

    @functools.wraps(function)
    def step(*args: Any, **options: Any) -> Any:
        own: Any = known()
        own._opt_called = True
        return function(own, *args, **options)

    vars(step)["_wrapped_by_lr_sched"] = True
    optimizer.step = step
