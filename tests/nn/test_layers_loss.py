"""Losses against torch: one row a loss."""

import numpy as np
import pytest
import torch

import xgrad

from .layers import agree, refused, row

X = (4, 5)
CLASSES = np.array([1, 0, 4, 2])
SIGNS = np.array([1.0, -1.0, -1.0, 1.0])
MANY = np.array([[1, 0, -1, 2, 3], [0, -1, 1, 1, 1], [4, 3, 2, 1, 0], [-1, 0, 0, 0, 0]])
RNG = np.random.RandomState(0)
POSITIVE = RNG.rand(4, 5) + 0.1
PROBABILITIES = POSITIVE / POSITIVE.sum(1, keepdims=True)
BITS = (RNG.rand(4, 5) > 0.5).astype(float)
WEIGHT = np.arange(1.0, 6.0)
IN01 = 0.9 * RNG.rand(4, 5) + 0.05
T, N, C, S = 6, 2, 4, 2
LOG_PROBS = np.log(np.full((T, N, C), 1 / C) + 0.01 * RNG.rand(T, N, C))

ROWS = [
    *(row(name, inputs=[X, X]) for name in ["L1Loss", "MSELoss", "SmoothL1Loss", "HuberLoss"]),
    *(row("MSELoss", reduction=how, inputs=[X, X]) for how in ("sum", "none")),
    row("L1Loss", False, inputs=[X, X]),
    row("L1Loss", reduce=False, inputs=[X, X]),
    row("SmoothL1Loss", beta=0.5, reduction="sum", inputs=[X, X]),
    row("HuberLoss", "sum", 0.5, inputs=[X, X]),
    row("CrossEntropyLoss", inputs=[X, CLASSES]),
    row("CrossEntropyLoss", WEIGHT, label_smoothing=0.1, ignore_index=4, inputs=[X, CLASSES]),
    row("CrossEntropyLoss", reduction="none", inputs=[X, PROBABILITIES]),
    row("CrossEntropyLoss", inputs=[(2, 5, 2), CLASSES.reshape(2, 2)]),
    row("NLLLoss", inputs=[X, CLASSES]),
    row("NLLLoss", WEIGHT, ignore_index=2, reduction="sum", inputs=[X, CLASSES]),
    row("NLLLoss2d", inputs=[(2, 5, 1, 2), CLASSES.reshape(2, 1, 2)]),
    row("PoissonNLLLoss", inputs=[X, POSITIVE]),
    row("PoissonNLLLoss", False, True, eps=1e-3, inputs=[POSITIVE, 3 * POSITIVE]),
    row("GaussianNLLLoss", inputs=[X, X, POSITIVE]),
    row("GaussianNLLLoss", full=True, eps=0.5, reduction="none", inputs=[X, X, POSITIVE]),
    row("KLDivLoss", reduction="batchmean", inputs=[X, PROBABILITIES]),
    row("KLDivLoss", log_target=True, inputs=[X, X]),
    row("BCELoss", inputs=[IN01, BITS]),
    row("BCELoss", WEIGHT, reduction="sum", inputs=[IN01, BITS]),
    row("BCEWithLogitsLoss", inputs=[X, BITS]),
    row("BCEWithLogitsLoss", WEIGHT, pos_weight=2 * WEIGHT, reduction="none", inputs=[X, BITS]),
    row("CTCLoss", inputs=[LOG_PROBS, np.array([[1, 2], [3, 3]]), np.array([6, 5]), np.array([2, 2])]),
    row("CTCLoss", 3, "sum", True, inputs=[LOG_PROBS, np.array([[1, 2], [0, 0]]), np.array([6, 2]), np.array([2, 2])]),
    row("MarginRankingLoss", inputs=[(4,), (4,), SIGNS]),
    row("MarginRankingLoss", 0.5, reduction="sum", inputs=[(4,), (4,), SIGNS]),
    row("HingeEmbeddingLoss", inputs=[(4,), SIGNS]),
    row("HingeEmbeddingLoss", margin=0.5, reduction="none", inputs=[(4,), SIGNS]),
    row("CosineEmbeddingLoss", inputs=[X, X, SIGNS]),
    row("CosineEmbeddingLoss", 0.25, reduction="none", inputs=[X, X, SIGNS]),
    row("SoftMarginLoss", inputs=[X, 2 * BITS - 1]),
    row("MultiLabelMarginLoss", inputs=[X, MANY]),
    row("MultiLabelSoftMarginLoss", inputs=[X, BITS]),
    row("MultiLabelSoftMarginLoss", WEIGHT, reduction="none", inputs=[X, BITS]),
    row("MultiMarginLoss", inputs=[X, CLASSES]),
    row("MultiMarginLoss", 2, 0.5, WEIGHT, inputs=[X, CLASSES]),
    row("TripletMarginLoss", inputs=[X, X, POSITIVE]),
    row("TripletMarginLoss", 2.0, 1.0, 1e-3, True, reduction="none", inputs=[X, POSITIVE, BITS]),
    row("TripletMarginWithDistanceLoss", inputs=[X, POSITIVE, BITS]),
    row("TripletMarginWithDistanceLoss", margin=3.0, swap=True, reduction="sum", inputs=[X, POSITIVE, BITS]),
    row("LinearCrossEntropyLoss", 5, 6, inputs=[X, CLASSES]),
    row("LinearCrossEntropyLoss", 5, 6, bias=True, label_smoothing=0.1, ignore_index=2, inputs=[X, CLASSES]),
]


@pytest.mark.parametrize("case", ROWS, ids=str)
def test_loss_is_pytorchs(case):
    agree(case)


ERRORS = [
    row("MSELoss", reduction="average", inputs=[X, X]),
    row("CrossEntropyLoss", inputs=[X, CLASSES[:3]]),
    row("CrossEntropyLoss", inputs=[X, CLASSES + 1]),
    row("CrossEntropyLoss", inputs=[X, X, CLASSES]),
    row("NLLLoss", inputs=[X, (4, 5)]),
    row("BCELoss", inputs=[IN01, BITS[:3]]),
    row("BCEWithLogitsLoss", inputs=[X, BITS[:3]]),
    row("MultiMarginLoss", 3, inputs=[X, CLASSES]),
    row("TripletMarginLoss", 0.0, inputs=[X, X, X]),
    row("TripletMarginWithDistanceLoss", margin=-1.0, inputs=[X, X, X]),
    row("TripletMarginWithDistanceLoss", None, inputs=[X, X, X]),
    row("GaussianNLLLoss", inputs=[X, X, POSITIVE[:, :2]]),
    row("LinearCrossEntropyLoss", 5, 6, label_smoothing=2.0, inputs=[X, CLASSES]),
    row("CosineEmbeddingLoss", inputs=[X, X, SIGNS[:3]]),
]


@pytest.mark.parametrize("case", ERRORS, ids=str)
def test_wrong_arguments_and_shapes_are_refused(case):
    refused(case)


def test_weights_are_buffers_and_old_names_warn():
    loss = xgrad.nn.CrossEntropyLoss(xgrad.ones(3))
    assert list(loss.state_dict()) == ["weight"]
    with pytest.warns(UserWarning, match="size_average and reduce args will be deprecated, please use reduction='sum'"):
        assert xgrad.nn.MSELoss(size_average=False).reduction == "sum"
    with pytest.warns(FutureWarning, match="Please use NLLLoss instead"):
        xgrad.nn.NLLLoss2d()


def test_a_distance_function_of_ones_own():
    arrays = [np.random.RandomState(i).randn(3, 2) for i in range(3)]
    losses = []
    for library in (torch, xgrad):
        loss = library.nn.TripletMarginWithDistanceLoss(distance_function=lambda x, y: (x - y).abs().sum(-1))
        losses.append(loss(*map(library.tensor, arrays)).item())
    assert losses[0] == pytest.approx(losses[1])
