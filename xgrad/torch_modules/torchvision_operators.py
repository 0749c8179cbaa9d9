"""The operators of torchvision's library in C++, for `as_torch()`: `nms` in NumPy, and schemas of the others.

Invariant: `nms` keeps what torchvision's kernel for the CPU keeps, in its order, for ties and NaN too
(torchvision/csrc/ops/cpu/nms_kernel.cpp).  An operator without a kernel refuses a call, and a user can register one.
"""

from typing import Any

import numpy as np

from ..library import Library

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


_library = Library("torchvision", "FRAGMENT")
for _schema in _OPERATORS.strip().splitlines():
    _library.define(_schema)
_library.impl("nms", nms, "CompositeExplicitAutograd")
