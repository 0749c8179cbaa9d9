"""embedding, embedding_bag: read rows of a weight, or reduce them in bags; one_hot makes one-hot vectors of classes.

(PyTorch: Embedding.cpp, EmbeddingBag.cpp.)
"""

import warnings
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...base import dtypes
from ...config import state
from ...dispatch.call import call
from ...dispatch.declare import composite, operator
from ...dispatch.inplace import call_inplace
from ...dispatch.on_device import beside
from ...dispatch.promotion import refuse_complex
from ...dispatch.samples import COMPLEX, real, sample, whole
from ...tensor import Tensor
from ..index.index_checks import check_range, on_host
from ..reduce.norms import p_norm

functional: Any = partial(operator, method=False, out=False)


def _rows(weight: Any, indices: Any) -> Any:
    """The rows of `weight`; NaN for a number out of range on an accelerator, where it is not checked."""
    if weight.ndim != 2:
        raise RuntimeError(f"'weight' must be 2-D, but got {list(weight.shape)}")
    if indices.dtype in dtypes.INEXACT or indices.dtype == bool:
        raise RuntimeError(
            "Expected tensor for argument 'indices' to have one of the following scalar types: Long, Int; but got "
            f"{dtypes.torch_name(indices.dtype)} instead"
        )
    # For JAX -1 would be the last row.
    beyond = jnp.where(indices < 0, weight.shape[0], indices)
    return jnp.take(weight, beyond, axis=0, mode="fill", fill_value=jnp.nan)


@functional(
    "embedding",
    signature="weight, indices, padding_idx=-1, scale_grad_by_freq=False",
    function=False,
    samples=(
        sample(real(3, 2), whole(0, 3, 4)), sample(real(3, 2), whole(0, 2, 4), padding_idx=2),
        sample(real(3, 2), whole(0, 3, 3), scale_grad_by_freq=True), sample(real(3, 2), whole(0, 3)),
        sample(real(3, 2), whole(0, 3, 0)), *COMPLEX,
    ),
)  # fmt: skip
def embedding(weight, indices, *, padding_idx=-1, scale_grad_by_freq=False):
    """The rows of `weight` (number, size) that `indices` name; row `padding_idx` gets no gradient."""
    rows = _rows(weight, indices)
    if padding_idx < 0 and not scale_grad_by_freq:
        return rows
    share = jnp.where(indices == padding_idx, 0, 1)
    if scale_grad_by_freq:
        flat = indices.reshape(-1)
        share = share / jnp.zeros(weight.shape[0], jnp.int32).at[flat].add(1)[indices]
    return _scaling_tangents(rows, share[..., None].astype(rows.dtype))


@jax.custom_jvp
def _scaling_tangents(x: Any, factor: Any) -> Any:
    return x


@_scaling_tangents.defjvp
def _scaled_tangent(primals: tuple, tangents: tuple) -> tuple:
    x, factor = primals
    return _scaling_tangents(x, factor), tangents[0] * factor


def _embedding_gradient(grad, indices, shapes, padding_idx, scale_grad_by_freq):
    flat, rows = indices.reshape(-1), grad.reshape((-1, grad.shape[-1]))
    number = shapes[0][0]
    if padding_idx >= 0:
        rows = jnp.where((flat == padding_idx)[:, None], 0, rows)
    if scale_grad_by_freq:
        counts = jnp.zeros(number, jnp.int32).at[flat].add(1)
        rows = rows / counts[flat][:, None].astype(rows.dtype)
    return jnp.zeros(shapes[0], grad.dtype).at[flat].add(rows)


embedding.derivative(weight=_embedding_gradient)


@operator(
    "embedding_renorm",
    function=False,
    method=False,
    differentiable=False,
    samples=(sample(real(3, 2), whole(0, 3, 2), 1.0, norm_type=2.0), sample(real(3, 2), whole(0, 3), 1.0, norm_type=1))
    + COMPLEX,
)
def _renorm(self, indices, max_norm, *, norm_type):
    norms = p_norm(self, norm_type, (1,), True)
    used = jnp.zeros((self.shape[0], 1), bool).at[indices.reshape(-1)].set(True)
    return jnp.where(used & (norms > max_norm), self * (max_norm / (norms + 1e-7)), self)


def _renorm_used(weight: Tensor, indices: Tensor, max_norm: float, norm_type: float) -> None:
    enabled, state.grad_enabled = state.grad_enabled, False
    try:
        call_inplace(_renorm.operator, (weight, indices, max_norm), (norm_type,))
    finally:
        state.grad_enabled = enabled


def _padding(padding_idx: int | None, number: int) -> int:
    if padding_idx is None:
        return -1
    if not -number <= padding_idx < number:
        raise AssertionError(f"Padding_idx must be within num_embeddings: {padding_idx} is not, of {number}")
    return padding_idx % number


def _refuse_frequency(sparse: bool, scale_grad_by_freq: bool) -> None:
    if sparse and scale_grad_by_freq:
        raise RuntimeError("embedding_backward: scale_grad_by_freq not supported with sparse gradients")


@composite("embedding", method=False)
def _table(
    weight: Tensor, indices: Tensor, padding_idx: int = -1, scale_grad_by_freq: bool = False, sparse: bool = False
) -> Tensor:
    """The rows of `weight` (number, size) that `indices` name; row `padding_idx` gets no gradient (-1: none)."""
    check_range(indices, weight.shape[0], 0)
    return _looked_up(weight, indices, padding_idx, scale_grad_by_freq, sparse)


def _looked_up(weight: Tensor, indices: Tensor, padding_idx: int, scale_grad_by_freq: bool, sparse: bool) -> Tensor:
    if not sparse or weight._level is not None or indices._level is not None:  # inside of vmap: a dense gradient
        return embedding.function(weight, indices, padding_idx, scale_grad_by_freq)
    _refuse_frequency(sparse, scale_grad_by_freq)
    from ...sparse.gradients import embedding as with_sparse_gradient  # with jax.experimental.sparse: few need it

    return with_sparse_gradient(weight, indices, padding_idx, lambda: embedding.function(weight, indices, padding_idx))


@composite("embedding", method=False, namespace="nn.functional")
def _embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """The rows of `weight` (number, size) that the integers in `input` name: (*input.shape, size).

    Row `padding_idx` gets no gradient.  With `max_norm` the rows used are first shortened to it, in place.  A number
    out of range is an error (on accelerators NaN).  With `sparse` the gradient of `weight` is a sparse tensor, with an
    entry for each number in `input`; not together with `scale_grad_by_freq`.

    >>> import xgrad
    >>> xgrad.nn.functional.embedding(xgrad.tensor([1, 0]), xgrad.tensor([[1.0, 2.0], [3.0, 4.0]]))
    tensor([[3., 4.],
            [1., 2.]])
    """
    _refuse_frequency(sparse, scale_grad_by_freq)
    padding = _padding(padding_idx, weight.shape[0])
    check_range(input, weight.shape[0], 0)
    if max_norm is not None:
        _renorm_used(weight, input, max_norm, norm_type)
    return _looked_up(weight, input, padding, scale_grad_by_freq, sparse)


# -- bags -------------------------------------------------------------------------------------------------------------


_OFFSETS = whole(0, 1, 2)  # an empty bag, and one of all rows


def _bags(mode: str, *others: Any, padding: int = -1, last: int = 0) -> Any:
    return sample(real(3, 2), whole(0, 3, 4), _OFFSETS, *others, mode=mode, padding_idx=padding, last=last)


_BAGS = (
    _bags("sum", None), _bags("sum", real(4), padding=1), _bags("mean", None, padding=0), _bags("max", None),
    _bags("mean", None, last=1),
)  # fmt: skip


@functional("embedding_bag", function=False, samples=_BAGS)
def _bag(weight, indices, offsets, per_sample_weights, *, mode, padding_idx, last):
    """Reduce the rows of each bag to their sum, mean or maximum; a bag's rows are adjacent, from its offset on."""
    refuse_complex(weight, "embedding_bag")
    bags = offsets.shape[0] - last
    number = indices.shape[0]
    bag = jnp.searchsorted(offsets, jnp.arange(number), side="right") - 1
    counted = (indices != padding_idx) & (bag < bags)
    bag = jnp.where(counted, bag, bags)  # a bag beyond the last one, which is dropped
    rows = _rows(weight, indices)
    if per_sample_weights is not None:
        rows = rows * per_sample_weights[:, None]
    if mode == "max":
        places, filled = _largest(rows, bag, bags)
        return jnp.where(filled, jnp.take_along_axis(rows, places, 0), 0)
    total = jax.ops.segment_sum(rows, bag, bags + 1)[:bags]
    if mode == "sum":
        return total
    count = jax.ops.segment_sum(counted.astype(rows.dtype), bag, bags + 1)[:bags, None]
    return total / jnp.maximum(count, 1)


def _largest(rows: Any, bag: Any, bags: int) -> tuple[Any, Any]:
    """Return the place of the first maximum of each bag and column, and True for bags that have rows.

    A NaN is the maximum if it is the bag's first row, and else is passed over, as in PyTorch.
    """
    numbers = jnp.arange(rows.shape[0])
    first = jax.ops.segment_min(numbers, bag, bags + 1)
    lead = numbers[:, None] == first[bag][:, None]
    order = jnp.where(jnp.isnan(rows), jnp.where(lead, jnp.inf, -jnp.inf), rows).astype(rows.dtype)
    largest = jax.ops.segment_max(order, bag, bags + 1)[bag]
    places = jnp.where(order == largest, numbers[:, None], rows.shape[0])
    places = jax.ops.segment_min(places, bag, bags + 1)[:bags]
    return jnp.clip(places, 0, rows.shape[0] - 1), (first[:bags] < rows.shape[0])[:, None]


def _check_offsets(offsets: Tensor, length: int) -> None:
    """Check that offsets ascend from 0 to at most the length; offsets on an accelerator are not checked."""
    values = on_host(offsets)
    if values is None or not values.size:
        return
    if values[0] != 0:
        raise RuntimeError(
            "offsets[0] has to be 0, i.e., the first sequence in the mini-batch has to start from position 0. However, "
            f"got {values[0]}"
        )
    if (np.diff(values) < 0).any():
        raise RuntimeError(f"embedding_bag: offsets have to go up, but got {values.tolist()}")
    if values[-1] > length:
        raise RuntimeError(
            f"offsets[-1] can not be greater than input's length {length} but got offsets[-1] of {values[-1]}"
        )


def _without(padding: int, input: Tensor, offsets: Tensor, weights: Tensor | None) -> tuple:
    """Drop the numbers equal to `padding`: the others, the offsets of their bags, and their weights."""
    host = np.asarray(input.detach())
    kept = host != padding
    before = np.concatenate([[0], np.cumsum(kept)])  # for each place, the number of the remaining ones before it
    places = beside(input, np.flatnonzero(kept))
    starts = beside(input, before[np.asarray(offsets.detach())].astype(offsets.dtype))
    return input[places], starts, None if weights is None else weights[places]


@composite(method=False, namespace="nn.functional")
def embedding_bag(
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Tensor:
    """The "sum", "mean" or "max" of the rows of `weight` that each bag of `input` names.

    The bags are the rows of a 2-D `input`, or start at `offsets` of a 1-D one.  `per_sample_weights` only with "sum".
    Not for "max": `sparse` makes the gradient of `weight` a sparse tensor, `scale_grad_by_freq` divides the gradient of
    each row by how often it was named.  `embedding_bag(weight, input)`, the order before PyTorch 0.4, is warned about.
    """
    if weight.dtype == dtypes.default_integer() and input.is_floating_point():
        warnings.warn(
            "Argument order of nn.functional.embedding_bag was changed. Usage `embedding_bag(weight, input, ...)` is "
            "deprecated, and should now be `embedding_bag(input, weight, ...)`.",
            stacklevel=2,
        )
        weight, input = input, weight
    _refuse_frequency(sparse, scale_grad_by_freq)
    if mode not in ("sum", "mean", "max"):
        raise ValueError(f"mode has to be one of sum, mean or max, but got {mode!r}")
    if sparse and mode == "max":
        raise ValueError("max mode does not support sparse weights")
    if scale_grad_by_freq and mode == "max":
        raise ValueError("max mode does not support scaling the gradient by the frequency")
    if per_sample_weights is not None and mode != "sum":
        raise NotImplementedError(
            f"embedding_bag: per_sample_weights is only supported for mode='sum' (got mode='{mode}')"
        )
    if per_sample_weights is not None and per_sample_weights.shape != input.shape:
        raise ValueError(
            f"embedding_bag: per_sample_weights of shape {list(per_sample_weights.shape)} must have the same shape as "
            f"the input ({list(input.shape)})"
        )
    padding = _padding(padding_idx, weight.shape[0])
    check_range(input, weight.shape[0], 0)
    if input.ndim == 2:
        if offsets is not None:
            raise ValueError("if input is 2D, then offsets has to be None, as input is treated as bags of fixed length")
        bags, length = tuple(input.shape)
        offsets = beside(input, jnp.arange(bags) * length)
        input = input.reshape(-1)
        per_sample_weights = None if per_sample_weights is None else per_sample_weights.reshape(-1)
        include_last_offset = False
    elif input.ndim != 1:
        raise ValueError(f"input has to be 1D or 2D Tensor, but got Tensor of dimension {input.ndim}")
    elif offsets is None or offsets.ndim != 1:
        raise ValueError(
            f"offsets has to be a 1D Tensor but got {'None' if offsets is None else f'{offsets.ndim} dimensions'}: "
            "it says where each bag of a 1D input starts"
        )
    else:
        _check_offsets(offsets, input.shape[0])
    if per_sample_weights is not None and per_sample_weights.dtype != weight.dtype:
        raise RuntimeError(
            f"Expected tensor for argument 'weight' to have the same type as 'per_sample_weights'; but got "
            f"{dtypes.torch_name(weight._dtype)} and {dtypes.torch_name(per_sample_weights._dtype)}"
        )
    if max_norm is not None:
        _renorm_used(weight, input, max_norm, norm_type)
    if sparse and state.grad_enabled and weight.requires_grad and weight._level is None and input._level is None:
        if padding >= 0:
            input, offsets, per_sample_weights = _without(padding, input, offsets, per_sample_weights)
        # The rows themselves are the table of the bags, so each index is its own row.
        weight, padding = _looked_up(weight, input, -1, False, True), -1
        input = beside(input, jnp.arange(input.shape[0]))
    elif scale_grad_by_freq:
        if padding >= 0:
            input, offsets, per_sample_weights = _without(padding, input, offsets, per_sample_weights)
        weight, padding = embedding.function(weight, input, -1, True), -1
        input = beside(input, jnp.arange(input.shape[0]))
    return call(_bag.operator, (weight, input, offsets, per_sample_weights), (mode, padding, int(include_last_offset)))


@functional(
    "embedding_bag_indices",
    function=False,
    differentiable=False,
    samples=(_bags("max"), _bags("mean", padding=1), _bags("sum")),
)
def _bag_indices(weight, indices, offsets, *, mode, padding_idx, last):
    """(the bag of each index, the sizes of the bags, the row of each maximum): PyTorch saves them for backward."""
    refuse_complex(weight, "embedding_bag")
    bags = offsets.shape[0] - last
    places = jnp.arange(indices.shape[0])
    bag = jnp.searchsorted(offsets, places, side="right") - 1
    counted = (indices != padding_idx) & (bag < bags)
    dropped = jnp.where(counted, bag, bags)
    sizes = jax.ops.segment_sum(counted.astype(indices.dtype), dropped, bags + 1)[:bags]
    rows = sizes
    if mode == "max" and places.size:
        first, filled = _largest(_rows(weight, indices), dropped, bags)
        rows = jnp.where(filled, indices[first], 0)
    if mode == "sum":
        sizes = rows = jnp.zeros_like(sizes)
    return bag.astype(indices.dtype), sizes, rows


@composite("embedding_bag", method=False)
def _bags_and_indices(
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """`nn.functional.embedding_bag` of 1-D `indices`, for `mode` 0 (sum), 1 (mean) or 2 (max), and three index tensors.

    They are the bag of each index, the sizes of the bags (zeros for a sum), and the row of each maximum.
    """
    if mode not in (0, 1, 2):
        raise RuntimeError(f"embedding_bag: mode has to be 0 (sum), 1 (mean) or 2 (max), but got {mode}")
    if indices.ndim != 1:
        raise RuntimeError(f"embedding_bag: input has to be a 1D Tensor, but got Tensor of dimension {indices.ndim}")
    name = ("sum", "mean", "max")[mode]
    found = embedding_bag(
        indices, weight, offsets, None, 2.0, scale_grad_by_freq, name, sparse, per_sample_weights,
        include_last_offset, padding_idx,
    )  # fmt: skip
    statics = (name, _padding(padding_idx, weight.shape[0]), int(include_last_offset))
    return found, *call(_bag_indices.operator, (weight.detach(), indices, offsets), statics)


# -- one_hot ----------------------------------------------------------------------------------------------------------


@functional(
    "one_hot_of",
    function=False,
    differentiable=False,
    samples=(sample(whole(0, 3, 4), num_classes=3), sample(whole(0, 3), num_classes=3)),
)
def _one_hot(self, *, num_classes):
    return (self[..., None] == jnp.arange(num_classes)).astype(self.dtype)


@composite(method=False, namespace="nn.functional")
def one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
    """A last dimension of `num_classes` zeros with a 1 at the class: (*tensor.shape, num_classes), of integers.

    With `num_classes=-1` there are as many as the largest class needs.  Classes out of range are an error.

    >>> import xgrad
    >>> xgrad.nn.functional.one_hot(xgrad.tensor([0, 2]))
    tensor([[1, 0, 0],
            [0, 0, 1]])
    """
    if tensor.dtype != dtypes.default_integer():
        raise RuntimeError(
            f"one_hot is only applicable to index tensor of type LongTensor, but got {tensor.dtype.name}: convert "
            "it to "
            f"{dtypes.default_integer().name}"
        )
    values = on_host(tensor)
    if values is None and num_classes == -1:
        values = np.asarray(tensor)  # the number of classes is part of the shape: it is read now
    if values is not None and values.size:
        if values.min() < 0:
            raise RuntimeError("Class values must be non-negative.")
        if num_classes == -1:
            num_classes = int(values.max()) + 1
        if values.max() >= num_classes > 0:
            raise RuntimeError(
                f"Class values must be smaller than num_classes: {values.max()} is not, of {num_classes}."
            )
    elif num_classes == -1:
        raise RuntimeError("Can not infer total number of classes from empty tensor.")
    if num_classes < 1:
        raise RuntimeError("num_classes should be positive")
    return call(_one_hot.operator, (tensor,), (num_classes,))
