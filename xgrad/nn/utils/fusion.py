"""Folds a batch norm in evaluation into the layer before it (PyTorch: torch/nn/utils/fusion.py)."""

import copy
from typing import Any

from ...dispatch.tables import FUNCTIONS
from ...tensor import Tensor
from ..parameter import Parameter


def _require_eval(layer: Any, bn: Any) -> None:
    if layer.training or bn.training:
        raise AssertionError("Fusion only for eval!")
    if bn.running_mean is None or bn.running_var is None:
        raise AssertionError("the batch norm has no running_mean and running_var: the means of a batch cannot be fused")


def _fused(
    weight: Tensor, bias: Tensor | None, mean: Tensor, var: Tensor, eps: float, bn_weight: Tensor | None,
    bn_bias: Tensor | None, shape: list[int],
) -> tuple[Any, Any]:  # fmt: skip
    """Return weight and bias of the layer that is followed by the batch norm; `shape` is the scale's in the weight."""
    dtype = weight.dtype if bias is None else bias.dtype
    before: Tensor = FUNCTIONS[""]["zeros_like"](mean) if bias is None else bias
    scale = (var + eps).rsqrt()
    if bn_weight is not None:
        scale = scale * bn_weight
    new = (before - mean) * scale
    if bn_bias is not None:
        new = new + bn_bias
    fused = (weight * scale.reshape(shape)).to(weight.dtype), new.to(dtype)
    return Parameter(fused[0], weight.requires_grad), Parameter(fused[1], before.requires_grad)


def fuse_conv_bn_weights(
    conv_w: Tensor, conv_b: Tensor | None, bn_rm: Tensor, bn_rv: Tensor, bn_eps: float, bn_w: Tensor | None,
    bn_b: Tensor | None, transpose: bool = False,
) -> tuple[Any, Any]:  # fmt: skip
    """Return weight and bias of the convolution that does what a convolution and a batch norm after it do.

    `transpose`: it is a transposed convolution, whose weight has the output channels in its second dimension.
    """
    shape = [1, -1] if transpose else [-1, 1]
    return _fused(conv_w, conv_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, shape + [1] * (conv_w.ndim - 2))


def fuse_linear_bn_weights(
    linear_w: Tensor, linear_b: Tensor | None, bn_rm: Tensor, bn_rv: Tensor, bn_eps: float, bn_w: Tensor, bn_b: Tensor
) -> tuple[Any, Any]:
    """Return weight and bias of the linear layer that does what one and a batch norm after it do."""
    return _fused(linear_w, linear_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, [-1, 1])


def fuse_conv_bn_eval(conv: Any, bn: Any, transpose: bool = False) -> Any:
    """Return a new convolution that does what `conv` and `bn` after it do in evaluation.

    Raises `AssertionError` unless both are in evaluation mode and `bn` has running means.
    """
    _require_eval(conv, bn)
    fused = copy.deepcopy(conv)
    fused.weight, fused.bias = fuse_conv_bn_weights(
        fused.weight, fused.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias, transpose
    )
    return fused


def fuse_linear_bn_eval(linear: Any, bn: Any) -> Any:
    """Return a new linear layer that does what `linear` and `bn` after it do in evaluation.

    Raises `AssertionError` unless both are in evaluation mode, `bn` has running means, and its number of features is
    the linear layer's number of outputs, or 1.
    """
    _require_eval(linear, bn)
    if bn.num_features not in (linear.out_features, 1):
        raise AssertionError(
            "To fuse, linear.out_features == bn.num_features or bn.num_features == 1, got linear.out_features="
            f"{linear.out_features} and bn.num_features={bn.num_features}"
        )
    fused = copy.deepcopy(linear)
    fused.weight, fused.bias = fuse_linear_bn_weights(
        fused.weight, fused.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias
    )
    return fused
