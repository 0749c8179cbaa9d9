"""AveragedModel, SWALR, update_bn: train with averages of the weights, SWA or EMA (PyTorch: torch/optim/swa_utils.py).

Sources: Izmailov et al., "Averaging Weights Leads to Wider Optima" (SWA), https://arxiv.org/abs/1803.05407; Polyak
averaging with a decay (EMA).
"""

import copy
import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, TypeAlias

import jax.numpy as jnp

from ..config import Unrecorded, state
from ..dispatch.multi_write import MultiWrite
from ..dispatch.tables import FUNCTIONS
from ..nn.module import Module
from ..tensor import Tensor
from .lr_scheduler.base import LRScheduler, each_group, warn_outside_of_step
from .optimizer import Optimizer

__all__ = [
    "SWALR", "AveragedModel", "get_ema_avg_fn", "get_ema_multi_avg_fn", "get_swa_avg_fn", "get_swa_multi_avg_fn",
    "update_bn",
]  # fmt: skip

Averaging: TypeAlias = Callable[[Tensor, Tensor, Any], Tensor]
ManyAveraging: TypeAlias = Callable[[Sequence[Tensor], Sequence[Tensor], Any], None]


def _without_grad(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any) -> Any:
        with Unrecorded():
            return function(*args)

    return call


def _check_decay(decay: float) -> None:
    if decay < 0.0 or decay > 1.0:
        raise ValueError(f"Invalid decay value {decay} provided. Please provide a value in [0,1] range.")


def _moved(averaged: list[Any], read: list[Any]) -> list[Any]:
    """Return averages that are moved towards the present values: (1 - weight)·average + weight·present."""
    *present, weight = read
    found = []
    for average, new in zip(averaged, present):
        if jnp.issubdtype(average.dtype, jnp.inexact):
            w = jnp.asarray(weight).astype(jnp.finfo(average.dtype).dtype)
            # As torch.lerp: from the nearer end, so that a weight of 1 gives the present value.
            found.append(jnp.where(w < 0.5, average + w * (new - average), new - (new - average) * (1 - w)))
        else:
            found.append((average + (new - average) * weight).astype(average.dtype))
    return found


_move_together = MultiWrite(_moved, "average")


def _move(averaged: Sequence[Tensor], present: Sequence[Tensor], weight: Any) -> None:
    _move_together(averaged, [*present, weight])


def get_ema_multi_avg_fn(decay: float = 0.999) -> ManyAveraging:
    """Return a `multi_avg_fn` for `AveragedModel`: average = decay·average + (1 - decay)·present, in place.

    Raises `ValueError` for a decay outside of [0, 1].

    >>> import xgrad
    >>> from xgrad.optim.swa_utils import get_ema_multi_avg_fn
    >>> average = xgrad.zeros(2)
    >>> get_ema_multi_avg_fn(0.5)([average], [xgrad.tensor([1.0, 2.0])], 1)
    >>> average
    tensor([0.5000, 1.0000])
    """
    _check_decay(decay)

    def ema_update(averaged: Sequence[Tensor], present: Sequence[Tensor], num_averaged: Any) -> None:
        _move(averaged, present, 1 - decay)

    return _without_grad(ema_update)


def get_swa_multi_avg_fn() -> ManyAveraging:
    """Return a `multi_avg_fn` for `AveragedModel`: the mean of all weights so far, in place."""

    def swa_update(averaged: Sequence[Tensor], present: Sequence[Tensor], num_averaged: Any) -> None:
        _move(averaged, present, 1 / (num_averaged + 1))

    return _without_grad(swa_update)


def get_ema_avg_fn(decay: float = 0.999) -> Averaging:
    """Return an `avg_fn` for `AveragedModel`: decay·average + (1 - decay)·present."""
    _check_decay(decay)

    def ema_update(averaged: Tensor, present: Tensor, num_averaged: Any) -> Tensor:
        return decay * averaged + (1 - decay) * present

    return _without_grad(ema_update)


def get_swa_avg_fn() -> Averaging:
    """Return an `avg_fn` for `AveragedModel`: the mean of all weights so far."""

    def swa_update(averaged: Tensor, present: Tensor, num_averaged: Any) -> Tensor:
        return averaged + (present - averaged) / (num_averaged + 1)

    return _without_grad(swa_update)


class AveragedModel(Module):
    """A copy of a model, `module`, whose parameters are averages of the model's.

    avg_fn: the function (average, present, number of models so far) of each parameter; by default their mean.
    multi_avg_fn: the same of lists of parameters of one dtype, in place.  use_buffers: average buffers too; otherwise
    they are copied.  `update_parameters(model)` takes the model's present weights in.

    Raises `AssertionError` if both functions are given.

    >>> import xgrad
    >>> from xgrad.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
    >>> model = xgrad.nn.Linear(1, 1)
    >>> averaged = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    >>> averaged.update_parameters(model)
    >>> averaged.n_averaged, sorted(averaged.state_dict())
    (tensor(1), ['module.bias', 'module.weight', 'n_averaged'])
    """

    avg_fn: Averaging | None
    multi_avg_fn: ManyAveraging | None
    use_buffers: bool

    n_averaged: Tensor

    def __init__(
        self,
        model: Module,
        device: Any = None,
        avg_fn: Averaging | None = None,
        multi_avg_fn: ManyAveraging | None = None,
        use_buffers: bool = False,
    ) -> None:
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            raise AssertionError("Only one of avg_fn and multi_avg_fn should be provided")
        self.module: Module = copy.deepcopy(model)
        if device is not None:
            self.module = self.module.to(device)
        self.register_buffer("n_averaged", FUNCTIONS[""]["tensor"](0, device=device))
        self.avg_fn, self.multi_avg_fn, self.use_buffers = avg_fn, multi_avg_fn, use_buffers
        self._begun: Any = None  # `n_averaged` and its writes, once it is known not to be 0

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Return what the averaged model returns."""
        return self.module(*args, **kwargs)

    def update_parameters(self, model: Module) -> None:
        """Take the present weights of a model into the averages; the first time they are copied."""
        _without_grad(self._update)(model)

    def _update(self, model: Module) -> None:
        n = self.n_averaged
        averages = [*self._averaged(self.module)]
        pairs = [(average, _beside(new, average)) for average, new in zip(averages, self._averaged(model))]
        # Its value is read as rarely as can be: reading waits for the device.  A compiled step can't read it.
        known = self._begun
        begun = known is not None and known[0] is n and known[1] == _writes(n)
        asked = not begun and state.trace is not None
        if not begun and not asked and not bool(n):
            for average, new in pairs:
                average.copy_(new)
        elif self.avg_fn is not None:
            for average, new in pairs:
                average.copy_(self.avg_fn(average.detach(), new, n.to(average.device)))
        else:
            average_many = self.multi_avg_fn or get_swa_multi_avg_fn()
            groups: dict[Any, list[tuple[Tensor, Tensor]]] = {}
            for average, new in pairs:
                groups.setdefault((average.device, average.dtype), []).append((average, new))
            for (device, _), group in groups.items():
                averaged, present = zip(*group)
                average_many(list(averaged), list(present), n.to(device))
        if asked:
            for average, new in pairs:
                average.copy_(FUNCTIONS[""]["where"](n.to(average.device) == 0, new, average))
        if not self.use_buffers:
            for average, new in zip(self.module.buffers(), model.buffers(), strict=True):
                average.copy_(_beside(new, average))
        n.add_(1)
        self._begun = n, _writes(n)

    def _load_from_state_dict(self, *args: Any, **options: Any) -> None:
        self._begun = None
        super()._load_from_state_dict(*args, **options)

    def _averaged(self, model: Module) -> Iterable[Tensor]:
        return itertools.chain(model.parameters(), model.buffers()) if self.use_buffers else model.parameters()


def _writes(n: Tensor) -> tuple[Any, ...]:
    """A key that differs after a write, also one that PyTorch's version does not count, through `data`."""
    storage = n._storage
    return storage, 0 if storage is None else storage.generation, n._version


def _beside(new: Tensor, average: Tensor) -> Tensor:
    """Return a value on the device of its average."""
    return new.detach().to(average.device)


def update_bn(loader: Iterable[Any], model: Module, device: Any = None) -> None:
    """Compute the running statistics of a model's batch normalizations anew, from one pass over the data.

    loader: batches, or tuples and lists whose first item is the batch.  Averaged weights need it before evaluation.

    >>> import xgrad
    >>> from xgrad.optim.swa_utils import update_bn
    >>> model = xgrad.nn.BatchNorm1d(1)
    >>> update_bn([xgrad.tensor([[0.0], [2.0]]), xgrad.tensor([[4.0], [6.0]])], model)
    >>> model.running_mean
    tensor([3.])
    """
    _without_grad(_update_bn)(loader, model, device)


def _update_bn(loader: Iterable[Any], model: Module, device: Any) -> None:
    from ..nn.modules.batchnorm import _BatchNorm  # layers are loaded by who uses them

    momenta: dict[Any, Any] = {}
    for module in model.modules():
        if isinstance(module, _BatchNorm):
            module.reset_running_stats()
            momenta[module] = module.momentum
    if not momenta:
        return
    training = model.training
    model.train()
    for module in momenta:
        module.momentum = None  # a mean over all batches
    for batch in loader:
        input = batch[0] if isinstance(batch, (list, tuple)) else batch
        model(input if device is None else input.to(device))
    for module, momentum in momenta.items():
        module.momentum = momentum
    model.train(training)


def _cosine(t: float) -> float:
    return (1 - math.cos(math.pi * t)) / 2


def _linear(t: float) -> float:
    return t


_ANNEALING: dict[str, Callable[[float], float]] = {"cos": _cosine, "linear": _linear}


class SWALR(LRScheduler):
    """Rates that go from the present ones to `swa_lr` in `anneal_epochs` epochs, and stay there.

    swa_lr: a rate, or one for each group.  anneal_strategy: "cos" or "linear".  Raises `ValueError` for others, and for
    a number of epochs that is negative or no integer.

    >>> import xgrad
    >>> from xgrad.optim.swa_utils import SWALR
    >>> optimizer = xgrad.optim.SGD([xgrad.ones(1, requires_grad=True)], lr=0.5)
    >>> scheduler = SWALR(optimizer, swa_lr=0.1, anneal_epochs=2, anneal_strategy="linear")
    >>> for _ in range(3):
    ...     optimizer.step()
    ...     scheduler.step()
    ...     print(f"{scheduler.get_last_lr()[0]:.2f}")
    0.30
    0.10
    0.10
    """

    anneal_func: Callable[[float], float]

    def __init__(
        self,
        optimizer: Optimizer,
        swa_lr: float | Sequence[float],
        anneal_epochs: int = 10,
        anneal_strategy: Literal["cos", "linear"] = "cos",
        last_epoch: int = -1,
    ) -> None:
        for value, group in zip(each_group("swa_lr", optimizer, swa_lr), optimizer.param_groups):
            group["swa_lr"] = value
        if anneal_strategy not in _ANNEALING:
            raise ValueError(f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}")
        self._set_anneal_func(anneal_strategy)
        if not isinstance(anneal_epochs, int) or anneal_epochs < 0:
            raise ValueError(f"anneal_epochs must be equal or greater than 0, got {anneal_epochs}")
        self.anneal_epochs = anneal_epochs
        super().__init__(optimizer, last_epoch)

    def _set_anneal_func(self, anneal_strategy: str) -> None:
        self._anneal_strategy = anneal_strategy
        self.anneal_func = _ANNEALING[anneal_strategy]

    def get_lr(self) -> list[Any]:
        """Return the rates at this epoch, from the rates at the last one."""
        warn_outside_of_step(self)
        step, epochs = self._step_count - 1, max(1, self.anneal_epochs)
        if self.anneal_epochs == 0:
            step = max(1, step)
        before, now = (self.anneal_func(max(0, min(1, e / epochs))) for e in (step - 1, step))
        found = []
        for group in self.optimizer.param_groups:
            rate, last = group["lr"], group["swa_lr"]
            first = last if before == 1 else (rate - before * last) / (1 - before)
            found.append(last * now + first * (1 - now))
        return found

    def state_dict(self) -> dict[str, Any]:
        """Return the schedule's attributes but the optimizer and the function."""
        return {name: value for name, value in super().state_dict().items() if name != "anneal_func"}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Set the attributes from a result of `state_dict`."""
        super().load_state_dict(state_dict)
        self._set_anneal_func(self._anneal_strategy)
