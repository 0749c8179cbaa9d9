"""Losses: values and derivatives for each reduction, classes and their options, corners, errors."""

import numpy as np
import pytest
import torch

import xgrad
import xgrad.nn.functional as F

from .agreement import agree, random

REDUCTIONS = ["mean", "sum", "none"]
X, Y = random(3, 4), random(3, 4, seed=1)
PROBABILITIES = 1 / (1 + np.exp(-X)), 1 / (1 + np.exp(-Y))
SIGNS = np.where(Y > 0, 1, -1)

PAIRS = {
    "mse_loss": (X, Y, {}),
    "l1_loss": (X, Y, {}),
    "smooth_l1_loss": (X, Y, {"beta": 0.5}),
    "huber_loss": (X, Y, {"delta": 0.5}),
    "kl_div": (X, PROBABILITIES[1], {}),
    "binary_cross_entropy": (*PROBABILITIES, {}),
    "binary_cross_entropy_with_logits": (X, PROBABILITIES[1], {}),
    "soft_margin_loss": (X, SIGNS, {}),
    "hinge_embedding_loss": (X, SIGNS, {"margin": 0.5}),
    "poisson_nll_loss": (X, Y**2, {"full": True}),
    "multilabel_soft_margin_loss": (X, PROBABILITIES[1], {}),
}


@pytest.mark.one_in(10)
@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_of_input_and_target(name, reduction):
    x, y, options = PAIRS[name]
    agree(
        lambda f, x, y: getattr(f, name)(x, y, reduction=reduction, **options),
        x,
        y,
        order=2 if reduction == "mean" else 1,
    )


def test_of_several_inputs():
    a, b, c = random(3, 4, seed=2), random(3, 4, seed=3), random(3, 4, seed=4)
    agree(lambda f, a, b, c: f.triplet_margin_loss(a, b, c, swap=True), a, b, c)
    agree(lambda f, a, b, c: f.triplet_margin_with_distance_loss(a, b, c, swap=True), a, b, c)
    agree(lambda f, a, b, y: f.cosine_embedding_loss(a, b, y, margin=-0.2), a, b, SIGNS[:, 0].copy())
    agree(lambda f, a, b, y: f.margin_ranking_loss(a, b, y, margin=0.3), a, b, SIGNS)
    agree(lambda f, x, y, v: f.gaussian_nll_loss(x, y, v, full=True), a, b, c**2)


def test_weights():
    w, p = random(3, 4, seed=5) ** 2, random(4, seed=6) ** 2

    def with_logits(f, x, y):
        T = torch if f is torch.nn.functional else xgrad
        return f.binary_cross_entropy_with_logits(x, y, T.tensor(w), pos_weight=T.tensor(p))

    agree(with_logits, X, PROBABILITIES[0])
    agree(lambda f, x, y, w: f.mse_loss(x, y, weight=w), X, Y, w)
    agree(lambda f, x, y, w: f.huber_loss(x, y, weight=w), X, Y, w)


def test_equal_inputs_have_subgradient_zero():
    for name in ("l1_loss", "smooth_l1_loss", "huber_loss"):
        agree(lambda f, x, y, name=name: getattr(f, name)(x, y), X, X.copy(), order=1)
    agree(lambda f, x, y: f.smooth_l1_loss(x, y, beta=0.0), X, X.copy(), order=1)


def test_certain_probabilities_cost_a_hundred():
    x, y = np.array([0.0, 1.0, 0.0]), np.array([1.0, 0.0, 0.0])
    agree(lambda f, x: f.binary_cross_entropy(x, f.relu(x) * 0 + (1 - x)), x, order=0)
    for T in (torch, xgrad):
        p = T.tensor(x).requires_grad_()
        loss = T.nn.functional.binary_cross_entropy(p, T.tensor(y), reduction="sum")
        loss.backward()
        assert float(loss.detach()) == 200
        np.testing.assert_allclose(p.grad.numpy(), [-1e12, 1e12, 0])


# -- classes ----------------------------------------------------------------------------------------------------------

CLASSES = np.array([2, -100, 0])
WEIGHT = random(4, seed=7) ** 2


@pytest.mark.one_in(2)
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("smoothing", [0.0, 0.3])
@pytest.mark.parametrize("weighted", [True, False])
def test_cross_entropy_of_classes(reduction, smoothing, weighted):
    # PyTorch's class weights take no gradient.
    weights = {"weight": WEIGHT} if weighted else {}

    def function(f, x, y):
        T = torch if f is torch.nn.functional else xgrad
        given = {k: T.tensor(v) for k, v in weights.items()}
        return f.cross_entropy(x, y, **given, reduction=reduction, label_smoothing=smoothing)

    agree(function, X, CLASSES)


def test_cross_entropy_of_probabilities_and_of_images():
    p = np.exp(Y) / np.exp(Y).sum(1, keepdims=True)
    agree(lambda f, x, y: f.cross_entropy(x, y, label_smoothing=0.1), X, p)
    agree(lambda f, x, y: f.cross_entropy(x, y, ignore_index=1), random(2, 4, 3), np.array([[0, 1, 3], [1, 2, 2]]))
    agree(lambda f, x, y: f.cross_entropy(x, y), random(4), np.array(1))


def test_nll_loss_with_weight_and_ignored_index():
    agree(lambda f, x, y: f.nll_loss(x, y, ignore_index=-100), X, CLASSES)
    agree(lambda f, x, y: f.nll_loss(x, y, reduction="none"), random(2, 4, 3), np.array([[0, 1, 3], [1, 2, 2]]))


def test_cross_entropy_of_large_logits_stays_exact():
    x = xgrad.tensor(np.array([[1e7, 1e7 + 1]], np.float32))
    np.testing.assert_allclose(F.cross_entropy(x, xgrad.tensor([0])).numpy(), np.log1p(np.e), rtol=1e-6)


def test_multi_class_margins():
    agree(lambda f, x, y: f.multi_margin_loss(x, y, p=2, margin=0.8), X, np.array([3, 0, 1]), order=1)
    agree(
        lambda f, x, y: f.multilabel_margin_loss(x, y),
        X,
        np.array([[3, 0, -1, 1], [-1, 0, 0, 0], [0, 1, 2, 3]]),
        order=1,
    )


@pytest.mark.exhaustive
def test_ctc():
    log_p = random(5, 2, 4)
    lengths = (5, 4), (2, 3)
    targets = np.array([[1, 1, 0], [2, 3, 2]])

    def function(f, x, y):
        return f.ctc_loss(f.log_softmax(x, 2), y, *lengths, reduction="none")

    agree(function, log_p, targets, order=1)
    impossible = F.ctc_loss(xgrad.tensor(log_p[:2]), xgrad.tensor(targets), (2, 2), (2, 3), zero_infinity=True)
    assert float(impossible) == 0


@pytest.mark.parametrize("together", [False, True], ids=["rows", "one after another"])
def test_ctc_in_a_compiled_function_is_that_of_torch(together):
    x, lengths = random(5, 3, 4), ([5, 4, 3], [2, 3, 0])
    targets = [1, 1, 2, 3, 2] if together else [[1, 1, -1], [2, 3, 2], [-1, -1, -1]]

    def program(T, compiled):
        logits = T.tensor(x, requires_grad=True)

        def step(targets, inputs, wanted):
            log_p = T.nn.functional.log_softmax(logits, 2)
            loss = T.nn.functional.ctc_loss(log_p, targets, inputs, wanted, zero_infinity=True)
            loss.backward()
            return loss.detach()

        given = [T.tensor(given) for given in (targets, *lengths)]
        return (xgrad.compile(step) if compiled else step)(*given), logits.grad

    wanted = program(torch, False)
    with xgrad.lazy():
        lazily = program(xgrad, False)
    for found in (program(xgrad, True), program(xgrad, False), lazily):
        for ours, theirs in zip(found, wanted, strict=True):
            np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda x: F.cross_entropy(x, xgrad.tensor([0, 4, 1])), IndexError, "Target 4 is out of bounds"),
        (lambda x: F.cross_entropy(x, xgrad.tensor([0, -1, 1])), IndexError, "Target -1 is out of bounds"),
        (
            lambda x: F.cross_entropy(x, xgrad.tensor([0, 1])),
            ValueError,
            r"batch_size \(3\) to match target batch_size \(2\)",
        ),
        (lambda x: F.cross_entropy(x, xgrad.tensor([0.0, 1.0, 1.0])), RuntimeError, "expected scalar type Long"),
        (
            lambda x: F.cross_entropy(x, xgrad.tensor([0, 1, 1]), xgrad.ones(3)),
            RuntimeError,
            "all 4 classes or no classes",
        ),
        (lambda x: F.cross_entropy(x, x, label_smoothing=2.0), RuntimeError, "between 0.0 and 1.0. Got: 2.0"),
        (lambda x: F.mse_loss(x, x, reduction="all"), ValueError, "all is not a valid value for reduction"),
        (lambda x: F.binary_cross_entropy(x, xgrad.ones(3)), ValueError, "different to the input size"),
        (lambda x: F.binary_cross_entropy_with_logits(x, xgrad.ones(3)), ValueError, "must be the same as input size"),
        (lambda x: F.huber_loss(x, x, delta=0.0), RuntimeError, "non-positive values for delta"),
    ],
)
def test_wrong_calls_say_what_is_wrong(call, error, text):
    with pytest.raises(error, match=text):
        call(xgrad.ones(3, 4))


@pytest.mark.eager("failures")
@pytest.mark.parametrize("x", [1.5, -0.5, float("nan")])
@pytest.mark.parametrize("wrong", ["input", "target"])
def test_binary_cross_entropy_refuses_what_is_no_probability(wrong, x):
    for T in (torch, xgrad):
        probabilities = {"input": T.tensor([0.5, 0.25]), "target": T.tensor([1.0, 0.0])}
        probabilities[wrong] = T.tensor([0.5, x])
        with pytest.raises(RuntimeError, match=f"all elements of {wrong} should be between 0 and 1"):
            T.nn.functional.binary_cross_entropy(**probabilities)


@pytest.mark.parametrize("dtype", ["int64", "bool", "float16"])
def test_binary_cross_entropy_wants_one_dtype(dtype):
    for T in (torch, xgrad):
        with pytest.raises(RuntimeError, match=r"Found dtype (Long|Bool|Half) but expected Float"):
            T.nn.functional.binary_cross_entropy(T.tensor([0.5]), T.ones(1, dtype=getattr(T, dtype)))


def test_broadcasting_a_target_warns():
    with pytest.warns(UserWarning, match="that is different to the input size"):
        F.mse_loss(xgrad.ones(2, 3), xgrad.ones(3))
