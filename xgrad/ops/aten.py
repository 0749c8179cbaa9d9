"""PyTorch's internal operators (native_layer_norm, _to_copy, convolution), as `torch.ops.aten` names them.

They are composed of operators, and differentiate through them; arguments are in the order of PyTorch's schemas
(native_functions.yaml).  Imported when `xgrad.ops.aten` is first used.

>>> import xgrad
>>> xgrad.ops.aten._chunk_cat([xgrad.ones(3, 1), xgrad.zeros(2, 1)], 0, 2)
tensor([[1., 1., 0.],
        [1., 0., 0.]])
"""

import builtins
from collections.abc import Callable, Sequence
from typing import Any

from ..base import dtypes
from ..dispatch.call import call
from ..dispatch.tables import FUNCTIONS
from ..tensor import Tensor
from .nn.normalization import batch_normalized
from .nn.pooling import max_pool2d_backward
from .nn.resampling import _resample

_x: dict[str, Any] = FUNCTIONS[""]
_nn: dict[str, Any] = FUNCTIONS["nn.functional"]


# -- normalization: the layer's result, and the mean and 1 / deviation that PyTorch saves for backward -----------------


def _statistics(x: Tensor, dim: Any, eps: float, keepdim: bool, dtype: Any) -> tuple[Tensor, Tensor]:
    wide = x.to(dtypes.float32) if x.dtype in (dtypes.float16, dtypes.bfloat16) else x
    mean = wide.mean(dim, keepdim=keepdim)
    deviation = (wide.var(dim, unbiased=False, keepdim=keepdim) + eps).rsqrt()
    return mean.to(dtype), deviation.to(dtype)


def native_layer_norm(
    input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """(layer_norm(input, ...), mean, 1 / standard deviation); the statistics have no gradient."""
    out = _nn["layer_norm"](input, normalized_shape, weight, bias, eps)
    dims = tuple(range(-len(normalized_shape), 0))
    return out, *_statistics(input.detach(), dims, eps, True, (input if weight is None else weight).dtype)


def native_group_norm(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, N: int, C: int, HxW: int, group: int, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """(group_norm(input, ...), mean, 1 / standard deviation) of each group of each example."""
    out = _nn["group_norm"](input, group, weight, bias, eps)
    grouped = input.reshape(N, group, C // group * HxW)
    return out, *_statistics(grouped, 2, eps, False, (input if weight is None else weight).dtype)


def native_batch_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """(batch_norm(input, ...), mean, 1 / standard deviation); the statistics have no gradient.

    Unless in training the statistics are empty.  In training the running statistics are updated in place.
    """
    out = batch_normalized(input, running_mean, running_var, weight, bias, training, momentum, eps)
    given = [x for x in (weight, running_mean) if x is not None]
    dtype = dtypes.float32 if input.dtype in (dtypes.float16, dtypes.bfloat16) else (*given, input)[0].dtype
    if not training:
        return out, _x["empty"](0, dtype=dtype), _x["empty"](0, dtype=dtype)
    return out, *_statistics(input.detach(), (0, *range(2, input.ndim)), eps, False, dtype)


def _native_batch_norm_legit(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, *rest: Any, **named: Any
) -> Any:
    """`native_batch_norm`, also without running statistics: (input, weight, bias, training, momentum, eps)."""
    bare = isinstance(rest[0], bool) if rest else "running_mean" not in named
    none: Any = (None, None) if bare and rest else ()
    if bare and not rest:
        named = {"running_mean": None, "running_var": None, **named}
    return native_batch_norm(input, weight, bias, *none, *rest, **named)


def _batch_norm_with_update(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor,
    running_var: Tensor,
    momentum: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """`native_batch_norm` in training, and an empty reserve."""
    found = native_batch_norm(input, weight, bias, running_mean, running_var, True, momentum, eps)
    return *found, _x["empty"](0, dtype=dtypes.uint8)


# -- dropout and softmax ----------------------------------------------------------------------------------------------


def native_dropout(input: Tensor, p: float, train: bool | None) -> tuple[Tensor, Tensor]:
    """(dropout(input, p), the mask of elements that stayed)."""
    if train is False or p == 0:
        return input.clone(), _x["ones_like"](input, dtype=dtypes.bool)
    mask = _x["bernoulli"](_x["full_like"](input.detach(), 1 - p)).to(dtypes.bool)
    return native_dropout_backward(input, mask, 0 if p == 1 else 1 / (1 - p)), mask


def native_dropout_backward(grad_output: Tensor, mask: Tensor, scale: float) -> Tensor:
    """The gradient of dropout: the elements that stayed get theirs times `scale`, the others 0."""
    return grad_output * (mask.to(grad_output.dtype) * scale)


def _softmax_backward_data(grad_output: Tensor, output: Tensor, dim: int, input_dtype: Any) -> Tensor:
    """The gradient of softmax, from its result."""
    weighed = grad_output * output
    return (weighed - output * weighed.sum(dim, keepdim=True)).to(input_dtype)


def _log_softmax_backward_data(grad_output: Tensor, output: Tensor, dim: int, input_dtype: Any) -> Tensor:
    """The gradient of log_softmax, from its result."""
    return (grad_output - output.exp() * grad_output.sum(dim, keepdim=True)).to(input_dtype)


def _safe_softmax(self: Tensor, dim: int, dtype: Any = None) -> Tensor:
    """softmax; a row of -inf alone gives zeros, with a gradient of 0."""
    x = self if dtype is None else self.to(dtype)
    nothing = (x == -float("inf")).all(dim, keepdim=True)
    return _x["softmax"](x.masked_fill(nothing, 0.0), dim).masked_fill(nothing, 0.0)


# -- indexing and joining ---------------------------------------------------------------------------------------------


def _clamped(self: Tensor, mask: Tensor, indices: Sequence[Tensor | None], name: str) -> tuple:
    """Clamp the index into the range of its dimension."""
    if mask.dtype != dtypes.bool:
        raise RuntimeError(f"{name}: tensors used as masks must be bool tensors, but got {mask.dtype.name}")
    for index in indices:
        if index is not None and index.dtype not in (dtypes.int64, dtypes.int32):
            raise RuntimeError(
                f"{name} found unexpected index type {dtypes.torch_name(index._dtype)}: tensors used as indices must "
                "be long or int tensors"
            )
    sizes = self.shape
    return tuple(
        builtins.slice(None) if index is None else index.clamp(-sizes[i], sizes[i] - 1)
        for i, index in enumerate(indices)
    )


def _unsafe_masked_index(self: Tensor, mask: Tensor, indices: Sequence[Tensor | None], fill: Any) -> Tensor:
    """self[indices] where `mask` is true; elsewhere, where indices may be out of range, `fill`."""
    index = _clamped(self, mask, indices, "_unsafe_masked_index")
    if not self.numel():
        shape = _x["zeros"](tuple(max(n, 1) for n in self.shape))[_zeroed(index)].shape
        return self.new_full(shape, fill)
    return self[index].masked_fill(~mask, fill)


def _zeroed(index: tuple) -> tuple:
    return tuple(i * 0 if isinstance(i, Tensor) else i for i in index)


def _unsafe_masked_index_put_accumulate(
    self: Tensor, mask: Tensor, indices: Sequence[Tensor | None], values: Tensor
) -> Tensor:
    """A copy of `self` with `values` added at `indices` where `mask` is true."""
    index = _clamped(self, mask, indices, "_unsafe_masked_index_put_accumulate")
    if not self.numel():
        return self.clone()
    places = tuple(None if isinstance(i, builtins.slice) else i for i in index)
    return self.index_put(places, values.masked_fill(~mask, 0), accumulate=True)


def _chunk_cat(tensors: Sequence[Tensor], dim: int, num_chunks: int, *, out: Tensor | None = None) -> Tensor:
    """Each tensor in `num_chunks` chunks along `dim`, padded with zeros and flattened, joined chunk by chunk."""
    if not tensors:
        raise RuntimeError("_chunk_cat expects a non-empty input tensor list")
    if num_chunks < 1:
        raise RuntimeError("_chunk_cat expects positive num_chunks")
    first = tensors[0]
    if not -first.ndim <= dim < first.ndim:
        raise IndexError(
            f"Dimension out of range (expected to be in range of [{-first.ndim}, {first.ndim - 1}], but got {dim})"
        )
    if dim < 0 and any(t.ndim != first.ndim for t in tensors):
        raise RuntimeError("_chunk_cat expects non-negative dim when input tensors have different ndims")
    dim %= first.ndim
    chunks = []
    for t in tensors:
        if t.dtype != first.dtype:
            raise RuntimeError("_chunk_cat expects all input tensors with the same dtype")
        if not t.numel():
            raise RuntimeError("_chunk_cat expects non-empty tensor")
        if t.shape[:dim] != first.shape[:dim] or t.ndim <= dim:
            raise RuntimeError("_chunk_cat expects same sizes of 0,...,dim-1 dimensions for all tensors")
        missing = -t.shape[dim] % num_chunks
        padded = _nn["pad"](t, (0, 0) * (t.ndim - dim - 1) + (0, missing)) if missing else t
        chunks.append(padded.reshape(*t.shape[:dim], num_chunks, -1))
    return _x["cat"](chunks, dim + 1) if out is None else _x["cat"](chunks, dim + 1, out=out)


# -- sampling ---------------------------------------------------------------------------------------------------------

_MODES, _PADDINGS = ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection")


def grid_sampler(
    input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Tensor:
    """`nn.functional.grid_sample`, its modes by number: bilinear, nearest, bicubic; zeros, border, reflection."""
    if not 0 <= interpolation_mode < 3 or not 0 <= padding_mode < 3:
        raise RuntimeError(
            f"grid_sampler(): interpolation_mode and padding_mode are 0, 1 or 2, but got {interpolation_mode} and "
            f"{padding_mode}"
        )
    return _nn["grid_sample"](input, grid, _MODES[interpolation_mode], _PADDINGS[padding_mode], bool(align_corners))


grid_sampler_3d: Callable[..., Any]
grid_sampler_2d = grid_sampler_3d = grid_sampler


# -- pooling -----------------------------------------------------------------------------------------------------------


def max_pool2d_with_indices_backward(
    grad_output: Tensor, self: Tensor, kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool,
    indices: Tensor,
) -> Tensor:  # fmt: skip
    """The gradient of the input of `max_pool2d_with_indices`: each element of `grad_output` at its index."""
    return max_pool2d_backward.function(grad_output, self, indices)


# -- resampling --------------------------------------------------------------------------------------------------------


def _smoothed(mode: str, self: Tensor, output_size: Any, align_corners: bool, scales: tuple) -> Tensor:
    factors: Any = scales[0] if len(scales) == 1 else scales
    factors = tuple(factors) if factors is not None else (None, None)
    if output_size is None:
        output_size = [int(n * f) for n, f in zip(self.shape[2:], factors, strict=True)]
    size = tuple(int(n) for n in output_size)
    return call(_resample.operator, (self,), (size, factors, mode, bool(align_corners), True))


def _upsample_bilinear2d_aa(
    self: Tensor, output_size: Sequence[int] | None, align_corners: bool, *scales: Any, **named: Any
) -> Tensor:
    """`nn.functional.interpolate(mode="bilinear", antialias=True)`; `scales`: (scales_h, scales_w) or scale_factors."""
    return _smoothed("bilinear", self, output_size, align_corners, _scales(scales, named))


def _upsample_bicubic2d_aa(
    self: Tensor, output_size: Sequence[int] | None, align_corners: bool, *scales: Any, **named: Any
) -> Tensor:
    """`nn.functional.interpolate(mode="bicubic", antialias=True)`; `scales`: (scales_h, scales_w) or scale_factors."""
    return _smoothed("bicubic", self, output_size, align_corners, _scales(scales, named))


def _scales(given: tuple, named: dict) -> tuple:
    if "scale_factors" in named:
        return (named["scale_factors"],)
    if len(given) == 1 and not named and (given[0] is None or isinstance(given[0], (tuple, list))):
        return given
    h, w = (*given, None, None)[:2]
    return named.get("scales_h", h), named.get("scales_w", w)


# -- copies, views and convolutions under the names that a traced graph has for them -----------------------------------


def _to_copy(self: Tensor, *, dtype: Any = None, device: Any = None, **layout: Any) -> Tensor:
    """`self.to(device, dtype, copy=True)`."""
    return self.to(device=device, dtype=dtype, copy=True)


def _unsafe_view(self: Tensor, size: Sequence[int]) -> Tensor:
    """`self.reshape(size)`."""
    return self.reshape(tuple(size))


def slice(self: Tensor, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Tensor:
    """`self[start:end:step]` along `dim`."""
    place = dim + self.ndim if dim < 0 else dim
    return self[(builtins.slice(None),) * place + (builtins.slice(start, end, step),)]


def index(self: Tensor, indices: Sequence[Any]) -> Tensor:
    """`self[indices]`, where None takes all of its dimension."""
    return self[tuple(builtins.slice(None) if i is None else i for i in indices)]


def convolution(
    input: Tensor, weight: Tensor, bias: Tensor | None, stride: Sequence[int], padding: Sequence[int],
    dilation: Sequence[int], transposed: bool, output_padding: Sequence[int], groups: int,
) -> Tensor:  # fmt: skip
    """`nn.functional.conv1d`, `conv2d`, `conv3d`, or the transposed ones."""
    whole = f"{weight.ndim - 2}d"
    if transposed:
        return _nn[f"conv_transpose{whole}"](input, weight, bias, stride, padding, output_padding, groups, dilation)
    return _nn[f"conv{whole}"](input, weight, bias, stride, padding, dilation, groups)


def _sparse_addmm(self: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """`sparse.addmm(self, mat1, mat2)`."""
    return _x["addmm"](self, mat1, mat2, beta=beta, alpha=alpha)


def _local_scalar_dense(self: Tensor) -> Any:
    """`self.item()`."""
    return self.item()


def _pin_memory(self: Tensor, device: Any = None) -> Tensor:
    """`self`: XLA moves its arrays by itself."""
    return self


for _function in [f for f in globals().values() if getattr(f, "__module__", None) == __name__]:
    _function.default = _function  # PyTorch's name of the overload without a name
