"""clip_grad_norm_, clip_grad_value_: clip gradients in place (PyTorch: torch/nn/utils/clip_grad.py).

The norm of dense gradients on one device is one program, and so is their scaling if they have one dtype.  `foreach` is
accepted as PyTorch's choice between two ways of computing the same; here there is one.
"""

import types
import warnings
from collections.abc import Iterable
from typing import Any

from ...autograd.grad_mode import no_grad
from ...dispatch.call import call
from ...dispatch.tables import FUNCTIONS
from ...ops.foreach import FOREACH
from ...ops.reduce.norms import total_norm
from ...tensor import Tensor

Tensors = Tensor | Iterable[Tensor]


def _listed(tensors: Tensors) -> list[Tensor]:
    return [tensors] if isinstance(tensors, Tensor) else list(tensors)


@no_grad()
def get_total_norm(
    tensors: Tensors, norm_type: float = 2.0, error_if_nonfinite: bool = False, foreach: bool | None = None
) -> Tensor:
    """Return the `norm_type`-norm of all tensors as if they were one vector; 0 for no tensors.

    Raises `RuntimeError` if it is infinite or NaN and `error_if_nonfinite`, which waits for the value.

    >>> import xgrad
    >>> xgrad.nn.utils.get_total_norm([xgrad.tensor([3.0]), xgrad.tensor([[4.0]])])
    tensor(5.)
    """
    listed, norm_type = _listed(tensors), float(norm_type)
    if not listed:
        return FUNCTIONS[""]["tensor"](0.0)
    place = listed[0].device
    if any(t._sparse or t.device != place for t in listed):
        norm = FUNCTIONS["linalg"]["vector_norm"]
        found = norm(FUNCTIONS[""]["stack"]([norm(t, norm_type).to(place) for t in listed]), norm_type)
    else:
        found = call(total_norm.operator, tuple(listed), (norm_type,))
    if error_if_nonfinite and not bool(found.isfinite()):
        raise RuntimeError(
            f"The total norm of order {norm_type} for gradients from `parameters` is non-finite, so it cannot be "
            "clipped. With `error_if_nonfinite=False` the gradients are scaled by it all the same"
        )
    return found


@no_grad()
def clip_grads_with_norm_(
    parameters: Tensors, max_norm: float, total_norm: Tensor, foreach: bool | None = None
) -> None:
    """Multiply all gradients by max_norm / (total_norm + 1e-6), unless that is above 1, in place."""
    grads = [p.grad for p in _listed(parameters) if p.grad is not None]
    if not grads:
        return
    factor = (float(max_norm) / (total_norm + 1e-6)).clamp(max=1.0)
    alike: dict[Any, list[Tensor]] = {}
    for grad in grads:
        alike.setdefault((grad.dtype, grad.device), []).append(grad)
    for (_, place), some in alike.items():
        FOREACH["_foreach_mul_"](some, factor if factor.device == place else factor.to(place))


@no_grad()
def clip_grad_norm_(
    parameters: Tensors, max_norm: float, norm_type: float = 2.0, error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:  # fmt: skip
    """Scale the gradients in place so that their total norm is `max_norm` at most; return the norm before.

    The norm is the norm of all gradients as one vector, of order `norm_type`, which may be "inf".  Parameters without a
    gradient are skipped.  Raises `RuntimeError` for a norm that is infinite or NaN if `error_if_nonfinite`.

    >>> import xgrad
    >>> w = xgrad.zeros(2, requires_grad=True)
    >>> w.grad = xgrad.tensor([3.0, 4.0])
    >>> xgrad.nn.utils.clip_grad_norm_([w], 1.0)
    tensor(5.)
    >>> w.grad
    tensor([0.6000, 0.8000])
    """
    listed = _listed(parameters)
    if not listed and isinstance(parameters, types.GeneratorType):
        warnings.warn("`parameters` is an empty generator, no gradient clipping will occur.", stacklevel=3)
    total = get_total_norm([p.grad for p in listed if p.grad is not None], norm_type, error_if_nonfinite, foreach)
    clip_grads_with_norm_(listed, max_norm, total, foreach)
    return total


def clip_grad_norm(*args: Any, **kwargs: Any) -> Tensor:
    """Call `clip_grad_norm_`, which is the name to use."""
    warnings.warn(
        "`nn.utils.clip_grad_norm` is now deprecated in favor of `nn.utils.clip_grad_norm_`.",
        FutureWarning,
        stacklevel=2,
    )
    return clip_grad_norm_(*args, **kwargs)


@no_grad()
def clip_grad_value_(parameters: Tensors, clip_value: float, foreach: bool | None = None) -> None:
    """Clamp each element of the gradients to ±`clip_value`, in place.

    >>> import xgrad
    >>> w = xgrad.zeros(2, requires_grad=True)
    >>> w.grad = xgrad.tensor([3.0, -0.5])
    >>> xgrad.nn.utils.clip_grad_value_(w, 1)
    >>> w.grad
    tensor([ 1.0000, -0.5000])
    """
    bound = float(clip_value)
    for p in _listed(parameters):
        if p.grad is not None:
            p.grad.clamp_(-bound, bound)
