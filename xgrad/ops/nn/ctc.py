"""ctc_loss: computes the loss of connectionist temporal classification (Graves et al. 2006; PyTorch: LossCTC.cpp)."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...base import dtypes
from ...dispatch.call import call
from ...dispatch.declare import composite, operator
from ...dispatch.on_device import beside
from ...dispatch.promotion import require_real_floating
from ...dispatch.samples import CONVENTION, real, sample, whole
from ...dispatch.tables import FUNCTIONS
from ...tensor import Tensor
from ..index.index_checks import valueless
from .loss import reduction_of

hidden: Any = partial(operator, function=False, method=False)


def _nll(log_p: Any, labels: Any, input_lengths: Any, target_lengths: Any, blank: int) -> Any:
    """Minus the log-likelihood of each labelling, over all alignments: log_p (time, batch, classes), labels (batch, S).

    The states are the labels with a blank before, between and after them; alpha[s] is the log-probability of all paths
    that end in state s.  A large negative number stands for minus infinity, whose gradients would be NaN.
    """
    never = jnp.asarray(-1e30, log_p.dtype)
    batch, length = labels.shape
    states = jnp.full((batch, 2 * length + 1), blank, labels.dtype).at[:, 1::2].set(labels)
    emitted = jnp.take_along_axis(log_p, jnp.broadcast_to(states, (log_p.shape[0], *states.shape)), axis=2)
    emitted = jnp.maximum(emitted, never)
    number = jnp.arange(2 * length + 1)
    # A label may follow the one before it without a blank, unless they are equal.
    skips = (number >= 2) & (states != blank) & (states != jnp.roll(states, 2, axis=1))
    alpha = jnp.where((number < 2) & (number <= 2 * target_lengths[:, None]), emitted[0], never)

    def step(alpha: Any, at: Any) -> tuple[Any, None]:
        t, here = at
        before = [alpha]
        for k in (1, 2):
            moved = jnp.concatenate([jnp.full((batch, k), never), alpha], axis=1)[:, : alpha.shape[1]]
            before.append(moved if k == 1 else jnp.where(skips, moved, never))
        new = jnp.maximum(jax.nn.logsumexp(jnp.stack(before), axis=0) + here, never)
        return jnp.where((t < input_lengths)[:, None], new, alpha), None

    alpha = jax.lax.scan(step, alpha, (jnp.arange(1, log_p.shape[0]), emitted[1:]))[0]
    last = 2 * target_lengths[:, None]
    ends = jnp.concatenate([jnp.take_along_axis(alpha, jnp.maximum(last - k, 0), axis=1) for k in (0, 1)], axis=1)
    ends = jnp.where(jnp.stack([last[:, 0] >= 0, last[:, 0] >= 1], axis=1), ends, never)
    loss = -jax.nn.logsumexp(ends, axis=1)
    return jnp.where(loss > 1e29, jnp.inf, loss)


_LABELS, _LONG, _SHORT = whole(1, 3, 2, 2), whole(4, 5, 2), whole(1, 3, 2)
_SAMPLES = (
    sample(real(4, 2, 3), _LABELS, _LONG, _SHORT, blank=0, zero_infinity=False),
    sample(real(4, 2, 3), _LABELS, whole(3, 5, 2), _SHORT, blank=0, zero_infinity=True),
    *CONVENTION,
)


@hidden("ctc_loss", samples=_SAMPLES)
def _ctc(self, labels, input_lengths, target_lengths, *, blank, zero_infinity):
    require_real_floating(self, "ctc_loss")
    loss = _nll(self, labels, input_lengths, target_lengths, blank)
    return jnp.where(jnp.isinf(loss), 0, loss) if zero_infinity else loss


def _ctc_gradient(grad, self, labels, input_lengths, target_lengths, blank, zero_infinity):
    # As in PyTorch this is the gradient of the logits before log_softmax: each row of it sums to 0.
    loss, pull = jax.vjp(lambda x: _nll(x, labels, input_lengths, target_lengths, blank), self)
    possible = ~jnp.isinf(loss)
    found = pull(jnp.where(possible, grad, 0))[0]
    used = jnp.arange(self.shape[0])[:, None, None] < input_lengths[:, None]
    found = found + jnp.where(used, jnp.exp(self) * grad[:, None], 0)
    return jnp.where(possible[:, None], found, 0 if zero_infinity else jnp.nan)


_ctc.derivative(self=_ctc_gradient)


def _lengths(given: Any, batch: int, name: str) -> np.ndarray:
    found = np.asarray(given)
    if found.size and found.dtype.kind not in "iu":
        raise RuntimeError(f"{name} must be integral")
    found = found.astype(np.int64).reshape(-1)
    if found.shape != (batch,):
        raise RuntimeError(f"{name} must be of size batch_size: {batch}, but got {list(found.shape)}")
    return found


def _read(
    targets: Any, input_lengths: Any, target_lengths: Any, time: int, batch: int, classes: int, blank: int
) -> Any:
    """Return the arguments as arrays of NumPy, checked: the labels of each element in a row, and both lengths."""
    inputs, wanted = _lengths(input_lengths, batch, "input_lengths"), _lengths(target_lengths, batch, "target_lengths")
    if (inputs > time).any() or (inputs < 0).any() or (wanted < 0).any():
        raise RuntimeError(f"Expected input_lengths to have values between 0 and {time}, but got {inputs.max()}")
    labels = np.asarray(targets)
    longest = int(wanted.max(initial=0))
    padded = np.full((batch, longest), blank, labels.dtype)
    if (labels.ndim != 1 or labels.size != wanted.sum()) and (
        labels.ndim != 2 or labels.shape[0] != batch or labels.shape[1] < longest
    ):
        raise RuntimeError(f"Expected targets to have {wanted.sum()} labels, but got the shape {list(labels.shape)}")
    starts = np.cumsum(wanted) - wanted
    for row, (start, n) in enumerate(zip(starts, wanted, strict=True)):
        padded[row, :n] = labels[start : start + n] if labels.ndim == 1 else labels[row, :n]
    if padded.size and (padded.min() < 0 or padded.max() >= classes):
        raise RuntimeError(
            f"ctc_loss: labels must be between 0 and {classes - 1}, but got {padded.min()} to {padded.max()}"
        )
    return padded, inputs, wanted


def _unread(targets: Any, input_lengths: Any, target_lengths: Any, batch: int, blank: int) -> Any:
    """Return what `_read` does, without values: a row is as long as any could be, and nothing is checked."""
    targets, *lengths = (FUNCTIONS[""]["as_tensor"](x) for x in (targets, input_lengths, target_lengths))
    for length, name in zip(lengths, ("input_lengths", "target_lengths"), strict=True):
        if length.numel() != batch:
            raise RuntimeError(f"{name} must be of size batch_size: {batch}, but got {list(length.shape)}")
    inputs, wanted = (length.reshape(-1) for length in lengths)
    place = FUNCTIONS[""]["arange"](targets.shape[-1], device=targets.device)
    if targets.ndim == 1 and targets.numel():
        starts = (wanted.cumsum(0) - wanted).unsqueeze(1)
        targets = targets[(starts + place).clamp(max=targets.numel() - 1)]
    return targets.expand(batch, -1).masked_fill(place >= wanted.unsqueeze(1), blank), inputs, wanted


@composite(method=False, namespace=("nn.functional", ""))
def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """Minus the log-likelihood of label sequences under `log_probs` (time, batch, classes), without an alignment.

    `targets`: (batch, length), or all one after another.  "mean" divides each loss by its target's length first.
    Labels and lengths out of range are errors, unless a compiled function or a lazy block has no values of them.
    """
    reduction = reduction_of(None, None, reduction)
    if log_probs.dtype not in dtypes.FLOATS or log_probs.ndim not in (2, 3):
        raise RuntimeError(f"ctc_loss: log_probs must be (time, batch, classes) of floats, got {list(log_probs.shape)}")
    single = log_probs.ndim == 2
    x = log_probs.unsqueeze(1) if single else log_probs
    time, batch, classes = tuple(x.shape)
    if not 0 <= blank < classes:
        raise RuntimeError(f"blank must be in label range: {blank} is not, of {classes} classes")
    given = targets, input_lengths, target_lengths
    if any(map(valueless, given)):
        labels, inputs, wanted = _unread(*given, batch, blank)
    else:
        read = _read(*given, time, batch, classes, blank)
        labels, inputs, wanted = (beside(log_probs, a) for a in read)
    loss = call(_ctc.operator, (x, labels, inputs, wanted), (blank, zero_infinity))
    if reduction == "mean":
        return (loss / wanted.clamp(min=1).to(loss.dtype)).mean()
    return loss.sum() if reduction == "sum" else loss.squeeze(0) if single else loss
