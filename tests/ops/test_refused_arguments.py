"""Losses and attention refuse what PyTorch does: dtypes, shapes, classes and weights that give another number."""

import numpy as np
import pytest
import torch

import xgrad

F32, INT, BOOL = np.float32([[0.5, 1.5, 1], [0, 1, 0.25]]), np.int64([[0, 1, 1], [1, 0, 2]]), np.eye(2, 3) > 0
CLASSES, WEIGHT = np.int64([0, 2]), np.float32([1, 2, 3])

WRONG = {
    "integers have no mean": ("l1_loss", INT, INT),
    "mse of integers": ("mse_loss", INT, INT),
    "smooth_l1 of integers": ("smooth_l1_loss", INT, BOOL),
    "huber's integer input": ("huber_loss", INT, F32),
    "bools are not subtracted": ("l1_loss", F32, BOOL),
    "nor by a hinge": ("hinge_embedding_loss", BOOL, F32),
    "nor by a ranking": ("margin_ranking_loss", BOOL, F32, F32),
    "nor by a triplet": ("triplet_margin_loss", F32, BOOL, F32),
    "nor by a distance": ("pairwise_distance", F32, BOOL),
    "kl_div's integer target": ("kl_div", F32, INT, None, None, "sum"),
    "a hinge without a target": ("hinge_embedding_loss", F32, None),
    "integer input of logits": ("binary_cross_entropy_with_logits", INT, F32),
    "integer target of logits": ("binary_cross_entropy_with_logits", F32, INT),
    "a weight that is too large": ("binary_cross_entropy_with_logits", F32, F32, F32[None]),
    "a weight that is too large, of probabilities": ("binary_cross_entropy", F32 / 2, F32 / 2, F32[None]),
    "a target that is too large": ("soft_margin_loss", F32[0], F32),
    "soft margin of integers": ("soft_margin_loss", INT, F32),
    "labels of a 0-d tensor": ("multilabel_soft_margin_loss", F32[0, 0], F32),
    "integer variance": ("gaussian_nll_loss", F32, F32, INT),
    "a distance over other dimensions": ("triplet_margin_with_distance_loss", F32[0], F32, F32),
    "a class out of range": ("multi_margin_loss", F32, CLASSES + 1),
    "a negative class": ("multi_margin_loss", F32, CLASSES - 1),
    "too few weights": ("multi_margin_loss", F32, CLASSES, 1, 1.0, WEIGHT[:2]),
    "weights of float64": ("multi_margin_loss", F32, CLASSES, 1, 1.0, WEIGHT.astype("float64")),
    "classes in a matrix": ("multi_margin_loss", F32, CLASSES[None]),
    "bools as classes": ("multi_margin_loss", F32, CLASSES > 0),
    "a label out of range": ("multilabel_margin_loss", F32, INT + 1),
    "a label below -1": ("multilabel_margin_loss", F32, INT - 2),
    "labels of an image": ("multilabel_margin_loss", F32[None], INT[None]),
    "float64 weights of classes": ("nll_loss", F32, CLASSES, WEIGHT.astype("float64")),
    "integer weights of classes": ("cross_entropy", F32, CLASSES, WEIGHT.astype("int64")),
    "a NaN width": ("smooth_l1_loss", F32, F32, None, None, "mean", float("nan")),
    "too many labels": ("ctc_loss", F32[:, None], INT[0], (2,), (1,)),
    "labels of another batch": ("ctc_loss", F32[:, None], INT, (2,), (1,)),
    "a mask of integers": ("scaled_dot_product_attention", F32, F32, F32, INT[:, :2]),
    "a mask of float64": ("scaled_dot_product_attention", F32, F32, F32, np.zeros((2, 2))),
    "a mask that is too large": ("scaled_dot_product_attention", F32, F32, F32, np.zeros((5, 2, 2), "float32")),
    "a mask of bools that is too large": ("scaled_dot_product_attention", F32[:1], F32, F32, np.ones((2, 2), bool)),
    "lengths that are not integers": ("ctc_loss", F32[:, None], INT[:1], np.float32([2]), (1,)),
}


@pytest.mark.parametrize("name", WRONG)
def test_refused_as_in_pytorch(name):
    function, *arguments = WRONG[name]
    for T in (torch, xgrad):
        given = [T.tensor(a) if isinstance(a, np.ndarray | np.generic) else a for a in arguments]
        with pytest.raises((RuntimeError, IndexError, TypeError)):
            getattr(T.nn.functional, function)(*given)


@pytest.mark.parametrize(
    ("function", "dtypes"),
    [
        ("huber_loss", ("float16", "float32")), ("softsign", ("int64",)), ("soft_margin_loss", ("bfloat16", "float64")),
        ("soft_margin_loss", ("float32", "bool")), ("poisson_nll_loss", ("int64", "bool")),
        ("pairwise_distance", ("int64", "int32")), ("triplet_margin_loss", ("int64", "int64", "int64")),
        ("margin_ranking_loss", ("int64", "int64", "int64")), ("multilabel_soft_margin_loss", ("float32", "int64")),
    ],
)  # fmt: skip
def test_result_dtype_of_mixed_arguments(function, dtypes):
    found = []
    for T in (torch, xgrad):
        given = [T.tensor(F32 * (i + 1)).to(getattr(T, dtype)) for i, dtype in enumerate(dtypes)]
        found.append(getattr(T.nn.functional, function)(*given))
    wanted, got = found
    assert str(got.dtype).split(".")[-1] == str(wanted.dtype).split(".")[-1]
    np.testing.assert_allclose(got.double().numpy(), wanted.double().numpy(), rtol=4e-3)


def test_mean_of_labels_divides_by_their_number():
    """The target may have a batch that the input lacks; the mean is over the input's last dimension, as in PyTorch."""
    for one, two in ((F32[0], F32), (F32, F32[None] + np.zeros((4, 1, 1), "float32"))):
        wanted, got = (
            T.nn.functional.multilabel_soft_margin_loss(T.tensor(one), T.tensor(two)) for T in (torch, xgrad)
        )
        np.testing.assert_allclose(got.numpy(), wanted.numpy(), rtol=1e-6)
