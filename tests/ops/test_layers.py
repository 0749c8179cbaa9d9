"""linear, bilinear, attention, embedding, dropout, padding and resampling against PyTorch."""

import numpy as np
import pytest
import torch

import xgrad
import xgrad.nn.functional as F
from xgrad.dispatch.saved_attributes import kept_names

from .agreement import agree, random


def test_linear_and_bilinear():
    agree(lambda f, x, w, b: f.linear(x, w, b), random(2, 3, 4), random(5, 4, seed=1), random(5, seed=2))
    agree(lambda f, x, w: f.linear(x, w), random(3, 4), random(4, seed=1))
    agree(lambda f, x, y, w: f.bilinear(x, y, w), random(2, 3), random(2, 4, seed=1), random(5, 3, 4, seed=2))


# -- attention --------------------------------------------------------------------------------------------------------


@pytest.mark.one_in(2)
@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"scale": 0.3}])
def test_attention(options):
    arrays = [random(2, 3, 4, seed=s) for s in range(3)]
    agree(lambda f, q, k, v: f.scaled_dot_product_attention(q, k, v, **options), *arrays)


def test_attention_masks_and_shared_heads():
    q, k, v = random(1, 4, 3, 2), random(1, 2, 5, 2, seed=1), random(1, 2, 5, 2, seed=2)
    mask = random(3, 5) > 0
    mask[1] = False  # this query may attend to nothing
    agree(lambda f, q, k, v, m: f.scaled_dot_product_attention(q, k, v, m, enable_gqa=True), q, k, v, mask, order=1)
    agree(lambda f, q, k, v, m: f.scaled_dot_product_attention(q, k, v, m), q[:, :2], k, v, random(3, 5), order=1)


# -- embedding --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"padding_idx": -3}, {"scale_grad_by_freq": True}])
def test_embedding(options):
    rows = np.array([[1, 1], [0, 3]])
    agree(lambda f, w: f.embedding(_like(f, rows), w, **options), random(4, 3), order=2 if not options else 1)


def _like(f, array):
    return (torch if f is torch.nn.functional else xgrad).tensor(array)


def test_embedding_saves_the_indices_and_not_the_table():
    table = xgrad.ones(3, 2, requires_grad=True)
    assert kept_names(F.embedding(xgrad.tensor([0]), table).grad_fn) == ["indices"]


def test_max_norm_shortens_the_rows_used_in_place():
    weight, rows = random(4, 3) * 3, np.array([0, 2])
    ours, theirs = xgrad.tensor(weight), torch.tensor(weight)
    F.embedding(xgrad.tensor(rows), ours, max_norm=1.0)
    torch.nn.functional.embedding(torch.tensor(rows), theirs, max_norm=1.0)
    np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-6)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_embedding_bag(mode):
    rows, offsets = np.array([1, 2, 0, 2, 3]), np.array([0, 2, 2])

    def function(f, w):
        return f.embedding_bag(_like(f, rows), w, _like(f, offsets), mode=mode, padding_idx=2)

    agree(function, random(4, 3), order=1)


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("weight", "rows"),
    [
        ([[1, 2], [1, 2]], [0, 1]), ([[NAN, 2], [1, NAN]], [0, 1]), ([[NAN, 2], [1, NAN]], [1, 0]),
        ([[-INF, 2], [-INF, 4]], [0, 1]),
    ],
)  # fmt: skip
def test_the_first_of_equal_maxima_of_a_bag_has_the_gradient(weight, rows):
    found = []
    for T in (torch, xgrad):
        w = T.tensor(weight, dtype=T.float32, requires_grad=True)
        bags = T.nn.functional.embedding_bag(T.tensor(rows), w, T.tensor([0]), mode="max")
        bags.sum().backward()
        indices = T.embedding_bag(w, T.tensor(rows), T.tensor([0]), mode=2)[3]
        found.append([x.detach().numpy().tolist() for x in (bags, w.grad, indices)])
    np.testing.assert_equal(found[1], found[0])


def test_rows_out_of_range_are_errors_in_the_short_form_too():
    weight = xgrad.ones(2, 3)
    for index in (2, -1):
        with pytest.raises(IndexError, match="out of bounds"):
            xgrad.embedding(weight, xgrad.tensor([index]))


@pytest.mark.exhaustive
@pytest.mark.one_in(3)
@pytest.mark.parametrize("mode", [0, 1, 2])
@pytest.mark.parametrize("padding", [None, -2])
def test_embedding_bag_with_its_indices(mode, padding):
    weight, rows, offsets = random(4, 3), np.array([1, 2, 0, 2, 3, 2]), np.array([0, 2, 2, 6])
    found = []
    for library in (torch, xgrad):
        args = (library.tensor(a) for a in (weight, rows, offsets))
        found.append(library.embedding_bag(*args, False, mode, False, None, True, padding))
    for i, (theirs, ours) in enumerate(zip(*found, strict=True)):
        if i != 1 or theirs.numel():  # a sum needs no bags
            if i == 2 or (mode < 2 and i == 3):  # PyTorch may count a bag more, behind the last offset
                theirs = theirs[:3]
            np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-9)


@pytest.mark.exhaustive
def test_embedding_bag_scales_gradients_by_how_often_a_row_is_named():
    """PyTorch's CPU divides by the counts of other rows here; `embedding` does not."""
    rows, weight = np.array([[1, 2, 0], [2, 3, 2]]), random(4, 3)
    options = {"scale_grad_by_freq": True}

    index = xgrad.tensor(rows)

    def gradient(function):
        w = xgrad.tensor(weight, requires_grad=True)
        (function(w) * xgrad.tensor(random(2, 3, seed=1))).sum().backward()
        return w.grad.numpy()

    def by_rows(w):
        return F.embedding(index, w, padding_idx=0, **options).sum(1)

    counted = xgrad.tensor([[2.0], [3.0]], dtype=xgrad.float64)  # without the padding
    for mode, function in (("sum", by_rows), ("mean", lambda w: by_rows(w) / counted)):
        bags = gradient(lambda w, mode=mode: F.embedding_bag(index, w, mode=mode, padding_idx=0, **options))
        np.testing.assert_allclose(bags, gradient(function), rtol=1e-9)


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"offsets": [1, 2]}, RuntimeError, r"offsets\[0\] has to be 0"),
        ({"offsets": [0, 9]}, RuntimeError, "can not be greater than input's length 3"),
        ({"offsets": None}, ValueError, "offsets has to be a 1D Tensor"),
        ({"mode": "max", "scale_grad_by_freq": True}, ValueError, "does not support scaling the gradient"),
        ({"mode": "max", "sparse": True}, ValueError, "max mode does not support sparse weights"),
        ({"per_sample_weights": [1.0] * 3}, NotImplementedError, "only supported for mode='sum'"),
        ({"mode": "sum", "per_sample_weights": [1.0] * 2}, ValueError, "must have the same shape as the input"),
        ({"mode": "median"}, ValueError, "mode has to be one of sum, mean or max"),
    ],
)
def test_embedding_bag_refuses_what_makes_no_bags(options, error, text):
    for library in (torch, xgrad):
        given = {"offsets": [0, 2], **options}
        tensors = {k: library.tensor(v) if isinstance(v, list) else v for k, v in given.items()}
        with pytest.raises(error, match=text):
            library.nn.functional.embedding_bag(library.tensor([1, 0, 1]), library.ones(2, 3), **tensors)
    with pytest.raises(RuntimeError, match="offsets have to go up"):
        F.embedding_bag(xgrad.tensor([1, 0, 1]), xgrad.ones(2, 3), xgrad.tensor([0, 2, 1]))


def test_one_hot():
    x = np.array([[0, 2], [1, 1]])
    for n in (-1, 5):
        wanted = torch.nn.functional.one_hot(torch.tensor(x), n)
        np.testing.assert_array_equal(F.one_hot(xgrad.tensor(x), n).numpy(), wanted.numpy())


# -- dropout ----------------------------------------------------------------------------------------------------------


def test_dropout_scales_what_it_keeps_and_its_gradient_has_the_same_mask():
    x = xgrad.ones(4000, requires_grad=True)
    out = F.dropout(x, 0.25)
    kept = out.detach().numpy()
    assert set(np.unique(kept)) == {np.float32(0), np.float32(1 / 0.75)}
    assert 0.7 < (kept > 0).mean() < 0.8
    out.sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), kept)


def test_dropout_keeps_a_key_and_no_mask():
    node = F.dropout(xgrad.ones(100, requires_grad=True)).grad_fn
    assert kept_names(node) == ["key", "p"]
    assert node._saved_key.shape == (2,)


def test_dropout_is_reproducible_and_each_call_draws_anew():
    x = xgrad.ones(50)
    xgrad.random.manual_seed(1)
    first, second = F.dropout(x).numpy(), F.dropout(x).numpy()
    assert (first != second).any()
    xgrad.random.manual_seed(1)
    np.testing.assert_array_equal(F.dropout(x).numpy(), first)


def test_inplace_dropout_backpropagates():
    x = xgrad.ones(100, requires_grad=True)
    y = x * 1
    assert F.dropout(y, 0.5, inplace=True) is y
    y.sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), y.detach().numpy())


@pytest.mark.parametrize(
    ("name", "shape"), [("dropout1d", (20, 6, 5)), ("dropout2d", (20, 6, 2, 3)), ("dropout3d", (20, 6, 2, 2, 2))]
)
def test_channel_dropout_drops_whole_channels(name, shape):
    out = getattr(F, name)(xgrad.ones(*shape), 0.5).numpy().reshape(120, -1)
    assert (out == out[:, :1]).all()
    assert 0 < (out[:, 0] == 0).mean() < 1


def test_alpha_dropout_keeps_mean_and_variance():
    x = xgrad.tensor(random(20000))
    out = F.alpha_dropout(x, 0.3, training=True).numpy()
    assert abs(out.mean()) < 0.05
    assert abs(out.var() - 1) < 0.05
    assert F.alpha_dropout(x, 0.3) is x
    assert not F.alpha_dropout(x, 1.0, training=True).numpy().any()


# -- padding and resampling -------------------------------------------------------------------------------------------


@pytest.mark.one_in(2)
@pytest.mark.parametrize("mode", ["constant", "reflect", "replicate", "circular"])
@pytest.mark.parametrize("sides", [(2, 1), (1, 1, 0, 2), (-1, 2)])
def test_pad(mode, sides):
    x = random(*(2, 2, 4) if len(sides) == 2 else (1, 2, 3, 4))
    agree(lambda f, x: f.pad(x, sides, mode), x, order=1)


def test_pad_with_a_value():
    agree(lambda f, x: f.pad(x, (1, -1), value=3.5), random(2, 3))


@pytest.mark.one_in(5)
@pytest.mark.parametrize(
    ("mode", "shape", "options"),
    [
        ("nearest", (1, 2, 3, 4), {"scale_factor": 2}),
        ("nearest", (1, 2, 5), {"size": 3}),
        ("nearest-exact", (1, 1, 5, 4), {"size": (7, 3)}),
        ("linear", (1, 2, 5), {"scale_factor": 1.7}),
        ("bilinear", (1, 2, 4, 5), {"size": (7, 3)}),
        ("bilinear", (1, 2, 4, 5), {"size": (7, 3), "align_corners": True}),
        ("bilinear", (1, 2, 6, 5), {"size": (3, 8), "antialias": True}),
        ("bicubic", (1, 2, 4, 5), {"scale_factor": (1.5, 0.7)}),
        ("bicubic", (1, 1, 7, 5), {"size": (3, 8), "antialias": True}),
        ("trilinear", (1, 1, 3, 2, 4), {"scale_factor": 2.0, "recompute_scale_factor": True}),
        ("area", (1, 2, 5, 4), {"size": (3, 2)}),
    ],
)
def test_interpolate(mode, shape, options):
    agree(lambda f, x: f.interpolate(x, mode=mode, **options), random(*shape), order=1)


@pytest.mark.parametrize("size", [(9, 7), (21, 4)])
@pytest.mark.parametrize(
    ("mode", "options"),
    [
        ("nearest", {}),
        ("nearest-exact", {}),
        ("bilinear", {"antialias": True}),
        ("bilinear", {"align_corners": True}),
        ("bicubic", {}),
        ("bicubic", {"antialias": True}),
    ],
)
def test_interpolate_of_an_image_of_bytes(mode, options, size):
    image = np.random.RandomState(0).randint(0, 256, (1, 3, 13, 16)).astype("uint8")
    agree(lambda f, x: f.interpolate(x, size, mode=mode, **options), image, order=0)


@pytest.mark.parametrize(
    ("mode", "shape"), [("area", (1, 1, 4, 4)), ("linear", (1, 1, 4)), ("trilinear", (1, 1, 4, 4, 4))]
)
def test_interpolate_refuses_other_whole_numbers(mode, shape):
    with pytest.raises(NotImplementedError, match="not implemented for 'Byte'"):
        F.interpolate(xgrad.zeros(shape, dtype=xgrad.uint8), 2, mode=mode)
    with pytest.raises(NotImplementedError, match="not implemented for 'Int'"):
        F.interpolate(xgrad.zeros(1, 1, 4, 4, dtype=xgrad.int32), 2)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("padding_mode", ["zeros", "border", "reflection"])
@pytest.mark.parametrize(
    ("mode", "align"), [("bilinear", False), ("bilinear", True), ("nearest", False), ("bicubic", True)]
)
def test_grid_sample(mode, padding_mode, align):
    options = {"mode": mode, "padding_mode": padding_mode, "align_corners": align}
    agree(lambda f, x, g: f.grid_sample(x, g, **options), random(1, 2, 3, 4), random(1, 3, 2, 2, seed=1), order=1)


@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
@pytest.mark.parametrize("padding_mode", ["border", "reflection"])
def test_grid_sample_takes_a_place_that_is_not_finite_for_the_first(mode, padding_mode):
    grid = np.array([[[[np.nan, 0.3], [0.3, np.nan], [-np.inf, np.inf]]]])
    options = {"mode": mode, "padding_mode": padding_mode, "align_corners": False}
    found = [
        T.nn.functional.grid_sample(T.tensor(random(1, 2, 3, 4)), T.tensor(grid), **options) for T in (xgrad, torch)
    ]
    np.testing.assert_allclose(*(x.numpy() for x in found))
    assert F.grid_sample(xgrad.ones(1, 0, 3, 4), xgrad.zeros(1, 2, 2, 2), **options).shape == (1, 0, 2, 2)


def test_affine_grid():
    agree(lambda f, t: f.affine_grid(t, (1, 1, 2, 3), align_corners=False), random(1, 2, 3))


def test_unfold_and_fold_are_transposes():
    agree(lambda f, x: f.unfold(x, (2, 3), dilation=(2, 1), padding=1, stride=2), random(2, 3, 5, 6), order=1)
    agree(lambda f, x: f.fold(x, (4, 5), 2, padding=1, stride=2), random(2, 8, 9), order=1)


def test_rearranging_channels():
    agree(lambda f, x: f.pixel_shuffle(x, 2), random(2, 8, 2, 3), order=1)
    agree(lambda f, x: f.pixel_unshuffle(x, 2), random(2, 4, 6), order=1)
    agree(lambda f, x: f.channel_shuffle(x, 2), random(2, 6, 2), order=1)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: F.linear(xgrad.ones(2, 3), xgrad.ones(4, 5)), RuntimeError, r"cannot be multiplied \(2x3 and 5x4\)"),
        (lambda: F.dropout(xgrad.ones(1), 1.5), ValueError, "between 0 and 1, but got 1.5"),
        (lambda: F.embedding(xgrad.tensor([3]), xgrad.ones(3, 2)), IndexError, "index 3 is out of bounds"),
        (lambda: F.embedding(xgrad.tensor([0]), xgrad.ones(3, 2), 3), AssertionError, "within num_embeddings"),
        (lambda: F.one_hot(xgrad.tensor([-1])), RuntimeError, "Class values must be non-negative"),
        (lambda: F.one_hot(xgrad.tensor([5]), 3), RuntimeError, "Class values must be smaller than num_classes"),
        (lambda: F.pad(xgrad.ones(3), (1,)), RuntimeError, "Length of pad must be even but instead it equals 1"),
        (
            lambda: F.pad(xgrad.ones(1, 3), (3, 0), "reflect"),
            RuntimeError,
            "should be less than the corresponding input",
        ),
        (lambda: F.pad(xgrad.ones(1, 3), (3, 0), "mirror"), NotImplementedError, "Unrecognised padding mode mirror"),
        (lambda: F.interpolate(xgrad.ones(1, 1, 3)), ValueError, "only one of size or scale_factor should be defined"),
        (
            lambda: F.interpolate(xgrad.ones(1, 1, 3), 4, mode="bilinear"),
            NotImplementedError,
            "Got 3D input, but bilinear",
        ),
        (lambda: F.pixel_shuffle(xgrad.ones(3, 2, 2), 2), RuntimeError, "divisible by the square of upscale_factor"),
    ],
)
def test_wrong_calls_say_what_is_wrong(call, error, text):
    with pytest.raises(error, match=text):
        call()


def test_attention_refuses_a_mask_beside_is_causal():
    q = xgrad.ones(1, 2, 3)
    with pytest.raises(RuntimeError, match="attn_mask should not be set when is_causal=True"):
        F.scaled_dot_product_attention(q, q, q, xgrad.ones(2, 2), is_causal=True)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("name", ["alpha_dropout", "feature_alpha_dropout"])
def test_alpha_dropout_leaves_nothing_of_what_is_not_finite_unseen(name, value):
    """A dropped NaN became a number."""
    for p in (0.5, 1.0):
        found = []
        for T in (xgrad, torch):
            T.manual_seed(0)
            x = T.full((64, 2), value)
            found.append({*map(str, getattr(T.nn.functional, name)(x, p, training=True).flatten().tolist())})
        assert found[0] == found[1]
