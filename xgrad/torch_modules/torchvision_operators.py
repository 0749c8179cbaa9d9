"""The operators of torchvision's library in C++, for `as_torch()`: `nms`, `deform_conv2d`, schemas of the others.

Invariant: `nms` keeps what torchvision's kernel for the CPU keeps, in its order, for ties and NaN too
(torchvision/csrc/ops/cpu/nms_kernel.cpp).  An operator without a kernel refuses a call, and a user can register one.
"""

import itertools
from functools import partial
from typing import Any

import numpy as np

from ..dispatch.tables import FUNCTIONS
from ..library import Library

_x = FUNCTIONS[""]

_OPERATORS = """
nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor
qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor
roi_pool(Tensor input, Tensor rois, float spatial_scale, int pooled_height, int pooled_width) -> (Tensor, Tensor)
ps_roi_align(Tensor input, Tensor rois, float spatial_scale, int pooled_height, int pooled_width, int sampling_ratio) \
-> (Tensor, Tensor)
ps_roi_pool(Tensor input, Tensor rois, float spatial_scale, int pooled_height, int pooled_width) -> (Tensor, Tensor)
deform_conv2d(Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, int stride_h, int stride_w, \
int pad_h, int pad_w, int dilation_h, int dilation_w, int groups, int offset_groups, bool use_mask) -> Tensor
box_iou_rotated(Tensor boxes1, Tensor boxes2) -> Tensor
"""


def nms(dets: Any, scores: Any, iou_threshold: float) -> Any:
    """Return the indices of the boxes that overlap no box of a higher score by more than `iou_threshold`, best first.

    dets: (n, 4), each (x1, y1, x2, y2).  scores: (n,).  The number of results depends on the values, so that they are
    found on the host.  Halves are compared in float32.

    Source: https://docs.pytorch.org/vision/stable/generated/torchvision.ops.nms.html
    """
    if dets.dim() != 2:
        raise RuntimeError(f"boxes should be a 2d tensor, got {dets.dim()}D")
    if dets.shape[1] != 4:
        raise RuntimeError(f"boxes should have 4 elements in dimension 1, got {dets.shape[1]}")
    if scores.dim() != 1:
        raise RuntimeError(f"scores should be a 1d tensor, got {scores.dim()}D")
    if len(dets) != len(scores):
        raise RuntimeError(
            f"boxes and scores should have same number of elements in dimension 0, got {len(dets)} and {len(scores)}"
        )
    if dets.dtype != scores.dtype:
        raise RuntimeError(f"dets should have the same type as scores, got {dets.dtype} and {scores.dtype}")
    if not dets.is_floating_point():
        raise NotImplementedError(f'"nms_kernel" not implemented for {dets.dtype}: boxes are floating-point numbers')
    boxes, keys = ((t.float() if t.element_size() < 4 else t).detach().numpy(force=True) for t in (dets, scores))
    with np.errstate(all="ignore"):
        return dets.new_tensor(_kept(boxes, keys, iou_threshold), dtype=np.int64)


def _kept(boxes: np.ndarray, scores: np.ndarray, iou_threshold: float) -> list[int]:
    order = np.lexsort((-scores, ~np.isnan(scores)))  # stable, and NaN is the highest score
    x1, y1, x2, y2 = boxes[order].T
    area = (x2 - x1) * (y2 - y1)
    kept = []
    left = np.arange(len(order))  # places in `order`
    while left.size:
        best, left = left[0], left[1:]
        kept.append(order[best])
        # As C++'s max(a, b) and min(a, b), which give a if b is NaN.
        width = np.where(x2[left] < x2[best], x2[left], x2[best]) - np.where(x1[left] > x1[best], x1[left], x1[best])
        height = np.where(y2[left] < y2[best], y2[left], y2[best]) - np.where(y1[left] > y1[best], y1[left], y1[best])
        common = np.where(width > 0, width, 0) * np.where(height > 0, height, 0)
        overlap = common / (area[best] + area[left] - common)
        left = left[~(overlap.astype(np.float64) > iou_threshold)]  # NaN suppresses nothing
    return kept


def deform_conv2d(
    input: Any, weight: Any, offset: Any, mask: Any, bias: Any, stride_h: int, stride_w: int, pad_h: int, pad_w: int,
    dilation_h: int, dilation_w: int, groups: int, offset_groups: int, use_mask: bool,
) -> Any:  # fmt: skip
    """A convolution whose elements of the kernel are moved by `offset`, and multiplied by `mask`; recorded as it runs.

    input: (n, c, h, w).  weight: (out, c / groups, kh, kw).  offset: (n, offset_groups * kh * kw * 2, oh, ow), y before
    x.  mask: (n, offset_groups * kh * kw, oh, ow).  Between pixels it is bilinear, beyond the border 0.  Raises
    `RuntimeError` for offsets or a mask of another shape.

    Source: https://docs.pytorch.org/vision/stable/generated/torchvision.ops.deform_conv2d.html
    """
    (n, c, h, w), (out, _, kh, kw), (oh, ow) = input.shape, weight.shape, offset.shape[-2:]
    axes = (h, pad_h, dilation_h, kh, stride_h), (w, pad_w, dilation_w, kw, stride_w)
    size = [(length + 2 * pad - dilation * (k - 1) - 1) // stride + 1 for length, pad, dilation, k, stride in axes]
    for name, moves, numbers in (("offset", offset, 2), ("mask", mask, 1))[: 1 + use_mask]:
        wanted = (n, offset_groups * numbers * kh * kw, *size)
        if tuple(moves.shape) != wanted:
            raise RuntimeError(f"{name}.shape is not valid: got: {tuple(moves.shape)} expected: {wanted}")
    arange = partial(_x["arange"], dtype=input.dtype, device=input.device)
    moved = offset.reshape(n, offset_groups, kh, kw, 2, oh, ow)
    y = moved[..., 0, :, :] + (arange(kh) * dilation_h - pad_h).reshape(-1, 1, 1, 1) + (arange(oh) * stride_h)[:, None]
    x = moved[..., 1, :, :] + (arange(kw) * dilation_w - pad_w).reshape(-1, 1, 1) + arange(ow) * stride_w
    reached = (y > -1) & (y < h) & (x > -1) & (x < w)
    y, x = (_x["where"](reached, at, 0) for at in (y, x))  # infinite places leave no NaN
    low_y, low_x = y.detach().floor(), x.detach().floor()
    pixels = input.reshape(n, offset_groups, c // offset_groups, h * w)
    found: Any = 0
    for down, right in itertools.product((0, 1), (0, 1)):  # the four pixels around
        at_y, at_x = low_y + down, low_x + right
        inside = reached & (at_y >= 0) & (at_y < h) & (at_x >= 0) & (at_x < w)
        share = (y - low_y if down else 1 - (y - low_y)) * (x - low_x if right else 1 - (x - low_x))
        row, column = (_x["where"](inside, at, 0).long() for at in (at_y, at_x))
        index = (row * w + column).reshape(n, offset_groups, 1, -1)
        values = pixels.gather(-1, index.expand(-1, -1, c // offset_groups, -1))
        inside, share = (t.reshape(n, offset_groups, 1, -1) for t in (inside, share))
        found = found + _x["where"](inside, values, 0) * _x["where"](inside, share, 0)
    if use_mask:
        found = found * mask.reshape(n, offset_groups, 1, -1)
    columns = found.reshape(n, groups, c // groups, kh, kw, oh, ow)
    kernels = weight.reshape(groups, out // groups, c // groups, kh, kw)
    result = _x["einsum"]("ngcijyx,gocij->ngoyx", columns, kernels).reshape(n, out, oh, ow)
    return result + bias.reshape(-1, 1, 1)


_library = Library("torchvision", "FRAGMENT")
for _schema in _OPERATORS.strip().splitlines():
    _library.define(_schema)
_library.impl("nms", nms, "CompositeExplicitAutograd")
_library.impl("deform_conv2d", deform_conv2d, "CompositeImplicitAutograd")
