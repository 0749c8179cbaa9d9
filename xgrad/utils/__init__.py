"""xgrad.utils: checkpoints of activations, counts of FLOPs, DLPack, data loading, TensorBoard (torch.utils)."""

import importlib
from typing import TYPE_CHECKING, Any

from ..base.missing import MissingNameError
from ..config import state
from ..execution.references import attribute_alone
from ..tensor import Tensor
from . import checkpoint, dlpack

if TYPE_CHECKING:
    from . import data as data
    from . import flop_counter as flop_counter
    from . import tensorboard as tensorboard

_MODULES = ("data", "flop_counter", "tensorboard")  # loaded at their first use

__all__ = ["checkpoint", "data", "dlpack", "flop_counter", "swap_tensors", "tensorboard"]


def swap_tensors(t1: Tensor, t2: Tensor) -> None:
    """Exchange two tensors: class, value, gradient and attributes; who refers to one finds the other.

    Raises `RuntimeError` for a tensor that has views, or is a leaf of a graph that is still there.

    >>> import xgrad
    >>> a, b = xgrad.zeros(2), xgrad.ones(3)
    >>> xgrad.utils.swap_tensors(a, b)
    >>> a
    tensor([1., 1., 1.])
    """
    for t in (t1, t2):
        leads = t._accumulator is not None and t._accumulator() is not None
        shared = t._view is not None or (t._storage is not None and not attribute_alone(t, "_storage"))
        if leads or shared or t._level is not None or state.trace is not None:
            raise RuntimeError(
                "swap_tensors(): cannot swap a tensor that a view, a graph, vmap or a trace refers to. Drop the views "
                "and the results that were computed from it, or write to it: t1.data = t2"
            )
    t1.__class__, t2.__class__ = t2.__class__, t1.__class__
    t1.__dict__, t2.__dict__ = t2.__dict__, t1.__dict__


def _found(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f".{name}", __name__)
    raise MissingNameError(__name__, name)


globals()["__getattr__"] = _found  # type checkers do not see it: a misspelt name is an error


def __dir__() -> list[str]:
    return sorted(__all__)
