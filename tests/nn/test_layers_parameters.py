"""Layers with parameters, and pooling, against torch with the same state: one row a layer."""

import numpy as np
import pytest
import torch

import xgrad

from .layers import agree, pair, refused, row

WIDE = (2, 4, 6)
IMAGE = (2, 4, 5, 6)
VOLUME = (1, 4, 3, 4, 5)
INDICES = np.array([[1, 2, 0, 2], [4, 3, 2, 4]])
OFFSETS = np.array([0, 3, 3])

CONVOLUTIONS = [
    row("Conv1d", 4, 6, 3, inputs=WIDE),
    row("Conv1d", 4, 6, 3, padding="same", dilation=2, groups=2, inputs=(4, 6)),
    row("Conv2d", 4, 6, 3, inputs=IMAGE),
    row("Conv2d", 4, 6, (3, 2), (2, 1), (1, 0), (1, 2), 2, False, inputs=IMAGE),
    row("Conv2d", 4, 4, 2, padding="same", inputs=IMAGE),
    row("Conv2d", 4, 4, 2, padding="valid", groups=4, inputs=IMAGE),
    *(row("Conv2d", 4, 2, (2, 3), padding="same", padding_mode=mode, inputs=IMAGE) for mode in ("reflect", "circular")),
    row("Conv2d", 4, 2, 3, padding=(1, 2), padding_mode="replicate", inputs=IMAGE),
    row("Conv1d", 4, 2, 3, padding=2, padding_mode="circular", inputs=WIDE),
    row("Conv3d", 4, 2, 2, inputs=VOLUME),
    row("Conv3d", 4, 2, (1, 2, 3), stride=2, padding=(0, 1, 2), padding_mode="circular", inputs=VOLUME),
    row("ConvTranspose1d", 4, 2, 3, inputs=WIDE),
    row("ConvTranspose2d", 4, 2, 3, inputs=IMAGE),
    row("ConvTranspose2d", 4, 6, (3, 2), 2, 1, (1, 0), 2, False, 2, inputs=IMAGE),
    row("ConvTranspose2d", 4, 2, 3, stride=2, inputs=[IMAGE, (12, 14)][:1]),
    row("ConvTranspose3d", 4, 2, 2, stride=(1, 2, 1), inputs=VOLUME),
]
NORMALIZATION = [
    row("BatchNorm1d", 4, inputs=WIDE),
    row("BatchNorm1d", 4, inputs=(5, 4)),
    row("BatchNorm2d", 4, inputs=IMAGE),
    row("BatchNorm2d", 4, 1e-2, None, inputs=IMAGE),
    row("BatchNorm2d", 4, momentum=0.3, affine=False, inputs=IMAGE),
    row("BatchNorm2d", 4, track_running_stats=False, inputs=IMAGE),
    row("BatchNorm2d", 4, bias=False, inputs=IMAGE),
    row("BatchNorm3d", 4, inputs=VOLUME),
    row("SyncBatchNorm", 4, inputs=WIDE),
    row("InstanceNorm1d", 4, inputs=WIDE),
    row("InstanceNorm1d", 4, affine=True, track_running_stats=True, inputs=(4, 6)),
    row("InstanceNorm2d", 4, 1e-2, 0.3, True, True, inputs=IMAGE),
    row("InstanceNorm2d", 3, inputs=IMAGE),
    row("InstanceNorm2d", 4, affine=True, bias=False, inputs=IMAGE),
    row("InstanceNorm3d", 4, inputs=VOLUME),
    row("LayerNorm", 6, inputs=WIDE),
    row("LayerNorm", (4, 6), 1e-2, inputs=WIDE),
    row("LayerNorm", [6], elementwise_affine=False, inputs=WIDE),
    row("LayerNorm", 6, bias=False, inputs=WIDE),
    row("RMSNorm", 6, inputs=WIDE),
    row("RMSNorm", (4, 6), 1e-2, False, inputs=WIDE),
    row("GroupNorm", 2, 4, inputs=IMAGE),
    row("GroupNorm", 4, 4, 1e-2, False, inputs=WIDE),
    row("GroupNorm", 1, 4, bias=False, inputs=(5, 4)),
    row("LocalResponseNorm", 2, inputs=IMAGE),
    row("LocalResponseNorm", 3, 0.5, 0.25, 2.0, inputs=WIDE),
]
TABLES = [
    row("Embedding", 5, 3, inputs=[INDICES]),
    row("Embedding", 5, 3, padding_idx=2, inputs=[INDICES]),
    row("Embedding", 5, 3, -1, 1.0, 1.0, True, inputs=[INDICES]),
    row("EmbeddingBag", 5, 3, inputs=[INDICES]),
    row("EmbeddingBag", 5, 3, mode="sum", padding_idx=2, inputs=[INDICES]),
    row("EmbeddingBag", 5, 3, mode="max", max_norm=1.0, inputs=[INDICES[0], OFFSETS]),
    row("EmbeddingBag", 5, 3, scale_grad_by_freq=True, norm_type=1.0, inputs=[INDICES[0], OFFSETS]),
    row("EmbeddingBag", 5, 3, include_last_offset=True, inputs=[INDICES[0], np.array([0, 1, 4])]),
    row("Linear", 6, 3, inputs=WIDE),
    row("Linear", 6, 3, False, inputs=(6,)),
    row("Bilinear", 6, 4, 3, inputs=[(2, 6), (2, 4)]),
    row("Bilinear", 6, 4, 3, False, inputs=[(2, 6), (2, 4)]),
    row("AdaptiveLogSoftmaxWithLoss", 8, 7, [2, 4], 2.0, inputs=[(5, 8), np.array([0, 6, 3, 2, 1])]),
    row("AdaptiveLogSoftmaxWithLoss", 8, 7, [3], head_bias=True, inputs=[(8,), np.array(4)]),
]
POOLING = [
    row("MaxPool1d", 2, inputs=WIDE),
    row("MaxPool2d", 2, inputs=IMAGE),
    row("MaxPool2d", (3, 2), (2, 1), (1, 0), (1, 2), True, True, inputs=IMAGE),
    row("MaxPool3d", 2, stride=1, inputs=VOLUME),
    row("AvgPool1d", 3, 2, 1, True, False, inputs=WIDE),
    row("AvgPool2d", 2, inputs=IMAGE),
    row("AvgPool2d", (3, 2), 2, 1, count_include_pad=False, inputs=IMAGE),
    row("AvgPool2d", 2, divisor_override=3, inputs=IMAGE),
    row("AvgPool3d", 2, ceil_mode=True, inputs=VOLUME),
    row("LPPool1d", 2, 3, inputs=WIDE),
    row("LPPool2d", 3.0, (2, 3), 1, inputs=IMAGE),
    row("LPPool3d", 2, 2, ceil_mode=True, inputs=VOLUME),
    row("AdaptiveMaxPool1d", 3, inputs=WIDE),
    row("AdaptiveMaxPool2d", (2, None), True, inputs=IMAGE),
    row("AdaptiveMaxPool3d", 2, inputs=VOLUME),
    row("AdaptiveAvgPool1d", 4, inputs=WIDE),
    row("AdaptiveAvgPool2d", 1, inputs=IMAGE),
    row("AdaptiveAvgPool2d", (None, 4), inputs=IMAGE),
    row("AdaptiveAvgPool3d", (1, 2, 3), inputs=VOLUME),
    row("FractionalMaxPool2d", 2, (3, 4), _random_samples=np.full((2, 4, 2), 0.3), inputs=IMAGE),
    row("FractionalMaxPool3d", 2, output_ratio=0.5, _random_samples=np.full((1, 4, 3), 0.3), inputs=VOLUME),
    row("MaxUnpool1d", 2, inputs=[(1, 2, 3), np.array([[[0, 2, 5], [1, 3, 4]]])]),
    row("MaxUnpool2d", 2, 2, inputs=[(1, 1, 2, 2), np.array([[[[0, 3], [8, 15]]]])]),
    row("MaxUnpool2d", 2, inputs=[(1, 1, 2, 2), np.array([[[[0, 3], [8, 15]]]]), (5, 5)][:2]),
    row("MaxUnpool3d", 1, inputs=[(1, 1, 1, 2, 2), np.array([[[[[0, 3], [1, 2]]]]])]),
]


@pytest.mark.parametrize("case", CONVOLUTIONS + NORMALIZATION + TABLES + POOLING, ids=str)
def test_layer_is_pytorchs(case):
    agree(case)


@pytest.mark.parametrize("case", [CONVOLUTIONS[2], NORMALIZATION[2], NORMALIZATION[15], TABLES[0], POOLING[1]], ids=str)
def test_layer_is_pytorchs_in_float32_too(case):
    agree(case, "float32", 2e-5)


ERRORS = [
    row("Conv2d", 4, 6, 3, groups=3, inputs=IMAGE),
    row("Conv2d", 4, 6, 3, groups=0, inputs=IMAGE),
    row("Conv2d", 4, 6, 3, padding="some", inputs=IMAGE),
    row("Conv2d", 4, 6, 3, 2, padding="same", inputs=IMAGE),
    row("Conv2d", 4, 6, 3, padding_mode="mirror", inputs=IMAGE),
    row("Conv2d", 3, 6, 3, inputs=IMAGE),
    row("Conv2d", 4, 6, 3, inputs=(4, 6)),
    row("Conv2d", 4, 6, 7, inputs=IMAGE),
    row("ConvTranspose2d", 4, 6, 3, padding_mode="reflect", inputs=IMAGE),
    row("ConvTranspose2d", 3, 6, 3, inputs=IMAGE),
    row("ConvTranspose2d", 4, 6, 3, inputs=[IMAGE, np.array([1, 1])]),
    row("BatchNorm1d", 4, inputs=IMAGE),
    row("BatchNorm2d", 4, inputs=WIDE),
    row("BatchNorm2d", 3, inputs=IMAGE),
    row("BatchNorm1d", 4, inputs=(1, 4)),
    row("InstanceNorm2d", 3, affine=True, inputs=IMAGE),
    row("InstanceNorm2d", 4, inputs=(4, 6)),
    row("LayerNorm", 5, inputs=WIDE),
    row("GroupNorm", 3, 4, inputs=IMAGE),
    row("Linear", 5, 3, inputs=WIDE),
    row("Bilinear", 0, 4, 3, inputs=[(2, 6), (2, 4)]),
    row("Embedding", 5, 3, 5, inputs=[INDICES]),
    row("Embedding", 5, 3, inputs=WIDE),
    row("Embedding", 4, 3, inputs=[INDICES]),
    row("MaxPool2d", 2, padding=2, inputs=IMAGE),
    row("MaxPool2d", 7, inputs=IMAGE),
    row("MaxPool2d", inputs=IMAGE),
    row("FractionalMaxPool2d", 2, inputs=IMAGE),
    row("FractionalMaxPool2d", 2, 2, 0.5, inputs=IMAGE),
    row("AdaptiveLogSoftmaxWithLoss", 8, 7, [], inputs=[(5, 8), np.array([0, 6, 3, 2, 1])]),
    row("AdaptiveLogSoftmaxWithLoss", 8, 7, [4, 2], inputs=[(5, 8), np.array([0, 6, 3, 2, 1])]),
    row("AdaptiveLogSoftmaxWithLoss", 8, 7, [2], inputs=[(5, 8), np.array([0, 7, 3, 2, 1])]),
    row("AdaptiveLogSoftmaxWithLoss", 8, 7, [2], inputs=[(8,), np.array([0, 7, 3, 2, 1])]),
]


@pytest.mark.parametrize("case", ERRORS, ids=str)
def test_wrong_arguments_and_shapes_are_refused(case):
    refused(case)


def test_output_size_chooses_among_the_sizes_of_a_transposed_convolution():
    case = row("ConvTranspose2d", 4, 2, 3, stride=2, padding=1, inputs=IMAGE)
    theirs, ours = pair(case)
    x = np.random.RandomState(0).randn(*IMAGE)
    for size in ((9, 11), (10, 12), (2, 2, 10, 11)):
        wanted = theirs(torch.tensor(x), output_size=size)
        np.testing.assert_allclose(ours(xgrad.tensor(x), size).detach().numpy(), wanted.detach().numpy(), atol=1e-9)
        given = size, [2, 2], [1, 1], [3, 3], 2, [1, 1]  # as packages call it
        assert list(ours._output_padding(xgrad.tensor(x), *given)) == theirs._output_padding(torch.tensor(x), *given)
    with pytest.raises(ValueError, match=r"an output size of \(8, 11\), but valid sizes range from \(9, 11\)"):
        ours(xgrad.tensor(x), (8, 11))
    with pytest.raises(ValueError, match=r"ConvTranspose2D: for 4D input, output_size must have 2 or 4 elements"):
        ours(xgrad.tensor(x), (8,))


def test_batches_are_counted_and_averaged_without_a_momentum():
    case = row("BatchNorm1d", 3, momentum=None, inputs=(4, 3))
    theirs, ours = pair(case)
    for seed in range(3):
        x = np.random.RandomState(seed).randn(4, 3)
        theirs(torch.tensor(x))
        ours(xgrad.tensor(x))
    assert ours.num_batches_tracked.item() == 3
    np.testing.assert_allclose(ours.running_var.numpy(), theirs.running_var.numpy(), rtol=1e-9)
    ours.reset_running_stats()
    assert ours.num_batches_tracked.item() == 0
    assert (ours.running_var == 1).all()


def test_sync_batch_norm_replaces_batch_norms_and_takes_their_tensors():
    model = xgrad.nn.Sequential(xgrad.nn.Linear(3, 4), xgrad.nn.BatchNorm1d(4)).eval()
    weight = model[1].weight
    model = xgrad.nn.SyncBatchNorm.convert_sync_batchnorm(model)
    assert type(model[1]) is xgrad.nn.SyncBatchNorm
    assert model[1].weight is weight
    assert not model[1].training


def test_embedding_of_given_vectors_is_frozen():
    vectors = xgrad.tensor([[1.0, 2.0], [3.0, 4.0]])
    table = xgrad.nn.Embedding.from_pretrained(vectors, padding_idx=0)
    assert not table.weight.requires_grad
    assert table.weight.tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert xgrad.nn.EmbeddingBag.from_pretrained(vectors, freeze=False).weight.requires_grad
    assert xgrad.nn.Embedding(3, 2, padding_idx=-1).weight[2].tolist() == [0.0, 0.0]


def test_sparse_embedding_has_a_sparse_gradient():
    table = xgrad.nn.Embedding(5, 3, sparse=True)
    table(xgrad.tensor([1, 2, 1])).sum().backward()
    assert table.weight.grad.is_sparse
    assert table.weight.grad.to_dense()[1].tolist() == [2.0] * 3


@pytest.mark.parametrize("size", [2, 3, 4, 5])
def test_cross_map_normalization_is_pytorchs(size):
    """Its value: the gradient that PyTorch has for it is of another function."""
    theirs, ours = pair(row("CrossMapLRN2d", size, 0.5, inputs=IMAGE))
    x = np.random.RandomState(0).randn(*IMAGE)
    np.testing.assert_allclose(ours(xgrad.tensor(x)).numpy(), theirs(torch.tensor(x)).numpy(), rtol=1e-9)


def test_adaptive_softmax_predicts_what_pytorchs_does():
    case = row("AdaptiveLogSoftmaxWithLoss", 8, 7, [2, 4], 2.0, inputs=(20, 8))
    theirs, ours = pair(case)
    x = 3 * np.random.RandomState(1).randn(20, 8)
    np.testing.assert_array_equal(ours.predict(xgrad.tensor(x)).numpy(), theirs.predict(torch.tensor(x)).numpy())
    np.testing.assert_allclose(
        ours.log_prob(xgrad.tensor(x)).detach().numpy(), theirs.log_prob(torch.tensor(x)).detach().numpy(), atol=1e-9
    )
