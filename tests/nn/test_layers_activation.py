"""Activations, dropout, shapes and distances against torch: one row a layer."""

import numpy as np
import pytest

import xgrad

from .layers import agree, refused, row

X = (2, 4, 3)
IMAGE = (1, 4, 2, 6)
IN_PLACE = ["ReLU", "ReLU6", "Hardsigmoid", "SiLU", "Mish", "Hardswish", "ELU", "CELU", "SELU", "Hardtanh", "LeakyReLU"]
SIMPLE = [*IN_PLACE, "Sigmoid", "Tanh", "GELU", "Hardshrink", "LogSigmoid", "Softplus", "Softshrink", "Softsign"]
SIMPLE += ["Tanhshrink", "PReLU", "Identity", "Softmax2d"]

ROWS = [
    *(
        row(name, inputs=X)
        for name in [
            "ReLU",
            "ReLU6",
            "Sigmoid",
            "Tanh",
            "Hardsigmoid",
            "SiLU",
            "Mish",
            "Hardswish",
            "ELU",
            "CELU",
            "SELU",
            "GELU",
            "Hardtanh",
            "Hardshrink",
            "LeakyReLU",
            "LogSigmoid",
            "Softplus",
            "Softshrink",
            "Softsign",
            "Tanhshrink",
            "PReLU",
            "Identity",
            "Softmax2d",
        ]
    ),
    *(
        row(name, inplace=True, inputs=X)
        for name in [
            "ReLU",
            "ReLU6",
            "Hardsigmoid",
            "SiLU",
            "Mish",
            "Hardswish",
            "ELU",
            "CELU",
            "SELU",
            "Hardtanh",
            "LeakyReLU",
        ]
    ),
    row("ELU", 0.5, True, inputs=X),
    row("CELU", alpha=2.0, inputs=X),
    row("GELU", "tanh", inputs=X),
    row("GLU", 1, inputs=X),
    row("Hardtanh", -0.5, 0.25, inputs=X),
    row("Hardtanh", min_value=-0.5, max_value=0.25, inputs=X),
    row("Hardshrink", 0.25, inputs=X),
    row("LeakyReLU", 0.5, inputs=X),
    row("PReLU", 4, 0.5, inputs=X),
    row("Softplus", 2.0, 1.0, inputs=X),
    row("Softshrink", 0.25, inputs=X),
    row("Threshold", 0.1, 20.0, inputs=X),
    row("Threshold", 0.1, 20, inplace=True, inputs=X),
    row("Softmax", 1, inputs=X),
    row("Softmax", dim=-1, inputs=X),
    row("Softmin", 1, inputs=X),
    row("LogSoftmax", 2, inputs=X),
    row("Softmax2d", inputs=IMAGE),
    row("RReLU", 0.25, 0.25, inputs=X),
    row("Dropout", 0.0, inputs=X),
    row("Dropout1d", 0.0, inputs=X),
    row("Dropout2d", 1.0, inputs=IMAGE),
    row("Dropout3d", 0.0, True, inputs=X),
    row("AlphaDropout", 0.0, inputs=X),
    row("FeatureAlphaDropout", 0.0, inputs=X),
    row("Flatten", inputs=X),
    row("Flatten", 0, 1, inputs=X),
    row("Unflatten", 1, (2, 2), inputs=X),
    row("Unflatten", -2, (2, -1), inputs=X),
    row("CosineSimilarity", inputs=[X, X]),
    row("CosineSimilarity", 2, 1e-3, inputs=[X, X]),
    row("PairwiseDistance", inputs=[X, X]),
    row("PairwiseDistance", 1.0, 0.1, True, inputs=[X, X]),
    row("PixelShuffle", 2, inputs=IMAGE),
    row("PixelUnshuffle", 2, inputs=IMAGE),
    row("ChannelShuffle", 2, inputs=IMAGE),
    row("Fold", (3, 4), 2, inputs=(1, 8, 6)),
    row("Fold", 4, (2, 1), dilation=2, padding=1, stride=2, inputs=(1, 4, 6)),
    row("Unfold", 2, inputs=IMAGE),
    row("Unfold", (2, 3), 1, 1, 2, inputs=IMAGE),
    row("Upsample", scale_factor=2, inputs=IMAGE),
    row("Upsample", 5, mode="linear", inputs=X),
    row("Upsample", (3, 5), mode="bicubic", align_corners=True, inputs=IMAGE),
    row("Upsample", scale_factor=(2, 1.5), mode="bilinear", recompute_scale_factor=True, inputs=IMAGE),
    row("UpsamplingNearest2d", 4, inputs=IMAGE),
    row("UpsamplingBilinear2d", scale_factor=2, inputs=IMAGE),
    *(row(f"CircularPad{n}d", 1, inputs=(1, 2, *[2, 3, 4][:n])) for n in (1, 2, 3)),
    *(row(f"ReflectionPad{n}d", 1, inputs=(1, 2, *[2, 3, 4][:n])) for n in (1, 2, 3)),
    *(row(f"ReplicationPad{n}d", 1, inputs=(1, 2, *[2, 3, 4][:n])) for n in (1, 2, 3)),
    *(row(f"ZeroPad{n}d", 1, inputs=(1, 2, *[2, 3, 4][:n])) for n in (1, 2, 3)),
    *(row(f"ConstantPad{n}d", 1, 3.5, inputs=(1, 2, *[2, 3, 4][:n])) for n in (1, 2, 3)),
    row("ZeroPad2d", (1, 0, 2, -1), inputs=IMAGE),
    row("CircularPad1d", (1, 2), inputs=(2, 3)),
]


@pytest.mark.parametrize("case", ROWS, ids=str)
def test_layer_is_pytorchs(case):
    agree(case)


ERRORS = [
    row("Hardtanh", 1.0, -1.0, inputs=X),
    row("Dropout", 1.5, inputs=X),
    row("Threshold", inputs=X),
    row("ReLU", False, 3, inputs=X),
    row("Softmax2d", inputs=(2, 3)),
    row("GLU", 2, inputs=X),
    row("Unflatten", 1, 4, inputs=X),
    row("Unflatten", 1, (2, 2.0), inputs=X),
    row("CircularPad2d", 1, inputs=(2, 3)),
    row("CircularPad1d", 5, inputs=(1, 2, 3)),
    row("ReflectionPad1d", 5, inputs=(1, 2, 3)),
    row("PixelShuffle", 3, inputs=IMAGE),
    row("PairwiseDistance", inputs=[X, (3, 2)]),
    row("Fold", 4, 3, inputs=(1, 8, 6)),
    row("Upsample", inputs=IMAGE),
]


@pytest.mark.parametrize("case", ERRORS, ids=str)
def test_wrong_arguments_and_shapes_are_refused(case):
    refused(case)


def test_dropout_scales_what_it_keeps_and_is_off_in_evaluation():
    x = xgrad.ones(200, 5, requires_grad=True)
    for name, groups in (("Dropout", 1000), ("AlphaDropout", 1000)):
        layer = getattr(xgrad.nn, name)(0.25)
        y = layer(x)
        values = np.unique(y.detach().numpy().round(4))
        assert len(values) == 2, groups
        assert (layer.eval()(x) == x).all()
    y = xgrad.nn.Dropout(0.25)(x)
    assert set(np.unique(y.detach().numpy()).round(4).tolist()) == {0.0, np.float32(1 / 0.75).round(4).item()}
    y.sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), y.detach().numpy())
    channels = xgrad.nn.Dropout2d(0.5)(xgrad.ones(50, 4, 3, 3)).numpy().reshape(200, 9)
    assert (channels == channels[:, :1]).all()


def test_rrelu_draws_slopes_in_training_only():
    x = -xgrad.ones(100)
    layer = xgrad.nn.RReLU(0.1, 0.3)
    y = -layer(x).numpy()
    assert y.min() >= 0.1
    assert y.max() <= 0.3
    assert len(np.unique(y)) > 50
    np.testing.assert_allclose(layer.eval()(x).numpy(), -0.2, rtol=1e-6)
