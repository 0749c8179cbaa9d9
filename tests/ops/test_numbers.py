"""Numbers are operands: another value never compiles anew, has no gradient and leaves the dtype as it is."""

import pytest

import xgrad

from ..oracle import as_torch, leaf
from .test_call import compilations

# An operator as a function of (namespace, its functional module, a (4, 5) tensor, a number); two of the numbers.
NUMBERS = {
    "leaky_relu": (lambda T, F, x, k: F.leaky_relu(x, k), 0.1, 0.3),
    "threshold": (lambda T, F, x, k: F.threshold(x, k, 7.0), 0.1, 0.3),
    "threshold's value": (lambda T, F, x, k: F.threshold(x, 0.1, k), 0.1, 0.3),
    "hardtanh": (lambda T, F, x, k: F.hardtanh(x, -k, k), 0.1, 0.3),
    "hardshrink": (lambda T, F, x, k: F.hardshrink(x, k), 0.1, 0.3),
    "softshrink": (lambda T, F, x, k: F.softshrink(x, k), 0.1, 0.3),
    "elu": (lambda T, F, x, k: F.elu(x, k), 0.1, 0.3),
    "celu": (lambda T, F, x, k: F.celu(x, k), 0.5, 0.25),
    "softplus": (lambda T, F, x, k: F.softplus(x, k), 0.5, 2.0),
    "softplus' threshold": (lambda T, F, x, k: F.softplus(x, 1.0, k), 0.5, 0.2),
    "rrelu": (lambda T, F, x, k: F.rrelu(x, k, 2 * k), 0.1, 0.3),
    "dropout": (lambda T, F, x, k: F.dropout(x, k), 0.1, 0.3),
    "dropout2d": (lambda T, F, x, k: F.dropout2d(x.reshape(1, 4, 1, 5), k), 0.1, 0.3),
    "alpha_dropout": (lambda T, F, x, k: F.alpha_dropout(x, k, True), 0.1, 0.3),
    "pad": (lambda T, F, x, k: F.pad(x, (1, 2), value=k), 0.1, 0.3),
    "normalize": (lambda T, F, x, k: F.normalize(x, eps=k), 0.1, 2.0),
    "cosine_similarity": (lambda T, F, x, k: F.cosine_similarity(x, x + 1, eps=k), 0.1, 5.0),
    "pairwise_distance": (lambda T, F, x, k: F.pairwise_distance(x, x * x, eps=k), 0.1, 0.3),
    "attention's scale": (lambda T, F, x, k: F.scaled_dot_product_attention(x, x, x, scale=k), 0.1, 0.3),
    "attention's dropout": (lambda T, F, x, k: F.scaled_dot_product_attention(x, x, x, None, k), 0.1, 0.3),
    "smooth_l1_loss": (lambda T, F, x, k: F.smooth_l1_loss(x, x * x, beta=k), 0.0, 0.3),
    "huber_loss": (lambda T, F, x, k: F.huber_loss(x, x * x, delta=k), 0.1, 0.3),
    "poisson_nll_loss": (lambda T, F, x, k: F.poisson_nll_loss(x * x, x, False, eps=k), 0.1, 0.3),
    "gaussian_nll_loss": (lambda T, F, x, k: F.gaussian_nll_loss(x, x, x * x, eps=k), 0.1, 0.3),
    "hinge_embedding_loss": (lambda T, F, x, k: F.hinge_embedding_loss(x, x.detach().sign(), k), 0.1, 0.3),
    "margin_ranking_loss": (lambda T, F, x, k: F.margin_ranking_loss(x, x * x, x.detach().sign(), k), 0.1, 0.3),
    "cosine_embedding_loss": (lambda T, F, x, k: F.cosine_embedding_loss(x, x * x, -classes(T) // 9, k), 0.1, 0.3),
    "triplet_margin_loss": (lambda T, F, x, k: F.triplet_margin_loss(x, x * x, x + 1, k), 0.1, 3.0),
    "triplet_margin_loss's eps": (lambda T, F, x, k: F.triplet_margin_loss(x, x * x, x + 1, 3.0, 2, k), 0.1, 0.3),
    "triplet with distance": (
        lambda T, F, x, k: F.triplet_margin_with_distance_loss(x, x * x, x + 1, margin=k),
        0.1,
        3.0,
    ),
    "cross_entropy": (lambda T, F, x, k: F.cross_entropy(x, classes(T), label_smoothing=k), 0.1, 0.3),
    "cross_entropy of probabilities": (
        lambda T, F, x, k: F.cross_entropy(x, x.detach().softmax(1), label_smoothing=k),
        0.1,
        0.3,
    ),
    "multi_margin_loss": (lambda T, F, x, k: F.multi_margin_loss(x, classes(T), margin=k), 0.1, 0.3),
    "layer_norm": (lambda T, F, x, k: F.layer_norm(x, (5,), eps=k), 0.1, 0.3),
    "rms_norm": (lambda T, F, x, k: F.rms_norm(x, (5,), eps=k), 0.1, 0.3),
    "group_norm": (lambda T, F, x, k: F.group_norm(x.reshape(2, 2, 5), 2, eps=k), 0.1, 0.3),
    "batch_norm": (lambda T, F, x, k: F.batch_norm(x, None, None, training=True, eps=k), 0.1, 0.3),
    "batch_norm's momentum": (lambda T, F, x, k: running(T, x, k), 0.1, 0.3),
    "batch_norm by running": (lambda T, F, x, k: F.batch_norm(x, x.detach()[0], x.detach()[1] ** 2, eps=k), 0.1, 0.3),
    "instance_norm": (lambda T, F, x, k: F.instance_norm(x.reshape(2, 2, 5), eps=k), 0.1, 0.3),
    "local_response_norm": (lambda T, F, x, k: F.local_response_norm(x.reshape(2, 2, 5), 2, k, k, k), 0.1, 0.3),
    "embedding": (lambda T, F, x, k: F.embedding(classes(T) % 4, x.detach().clone(), max_norm=k), 0.1, 0.3),
    "var": (lambda T, F, x, k: x.var(0, correction=k), 0, 2),
    "std": (lambda T, F, x, k: x.std(1, correction=k), 0.5, 2.5),
    "var_mean": (lambda T, F, x, k: T.var_mean(x, correction=k)[0], 0, 2),
    "std_mean": (lambda T, F, x, k: T.std_mean(x, 1, correction=k)[0], 0, 3),
    "roll": (lambda T, F, x, k: x.roll(k), 1, -7),
    "roll along": (lambda T, F, x, k: x.roll((k, -k), (0, 1)), 1, 19),
    "nan_to_num": (lambda T, F, x, k: T.nan_to_num(x.log(), nan=k), 0.1, 0.3),
    "nan_to_num's infinities": (lambda T, F, x, k: (x / (x * 0).abs()).nan_to_num(0.0, k, -k), 0.1, 0.3),
    "logit": (lambda T, F, x, k: x.logit(k), 0.1, 0.3),
    "nonzero_static": (lambda T, F, x, k: T.nonzero_static(x, size=25, fill_value=k).to(x.dtype), 7, -3),
    "tril": (lambda T, F, x, k: x.tril(k), 1, -2),
    "triu": (lambda T, F, x, k: T.triu(x, k), 1, -2),
}
RANDOM = ["dropout", "dropout2d", "alpha_dropout", "attention's dropout", "rrelu training"]


def classes(T):
    return T.tensor([0, 4, 2, 1])


def running(T, x, momentum):
    mean, var = T.zeros(5, dtype=x.dtype), T.ones(5, dtype=x.dtype)
    out = T.nn.functional.batch_norm(x, mean, var, training=True, momentum=momentum)
    return out * mean + var


def value_and_gradient(T, function, number):
    x = leaf(T, 4, 5)
    y = function(T, T.nn.functional, x * 1, number)
    return y, *(T.autograd.grad((y * y).sum(), x) if y.requires_grad else ())


@pytest.mark.one_in(24)
@pytest.mark.parametrize("name", NUMBERS)
def test_two_numbers_are_one_program(name):
    function, *numbers = NUMBERS[name]
    value_and_gradient(xgrad, function, numbers[0])
    with compilations() as seen:
        value_and_gradient(xgrad, function, numbers[1])
    assert seen == []


@pytest.mark.one_in(16)
@pytest.mark.parametrize("name", [name for name in NUMBERS if name not in RANDOM])
def test_number_gives_what_torch_gives(name):
    function, *numbers = NUMBERS[name]
    for number in numbers:
        as_torch(value_and_gradient, function, number)


@pytest.mark.one_in(16)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("name", NUMBERS)
def test_number_leaves_the_dtype_as_it_is(name, dtype):
    function, *numbers = NUMBERS[name]
    x = leaf(xgrad, 4, 5).to(getattr(xgrad, dtype))
    for number in numbers:
        assert function(xgrad, xgrad.nn.functional, x, number).dtype == x.dtype


@pytest.mark.parametrize(
    ("node", "names"),
    [
        (lambda T, F, x: F.leaky_relu(x, 0.2), {"negative_slope": 0.2}),
        (lambda T, F, x: F.threshold(x, 0.1, 0.2), {"threshold": 0.1}),
        (lambda T, F, x: F.hardtanh(x, -0.1, 0.2), {"min_val": -0.1, "max_val": 0.2}),
        (lambda T, F, x: F.hardshrink(x, 0.1), {"lambd": 0.1}),
        (lambda T, F, x: F.softshrink(x, 0.1), {"lambd": 0.1}),
        (lambda T, F, x: F.elu(x, 0.1), {"alpha": 0.1}),
        (lambda T, F, x: F.celu(x, 0.1), {"alpha": 0.1}),
        (lambda T, F, x: F.softplus(x, 0.1, 0.2), {"beta": 0.1, "threshold": 0.2}),
        (lambda T, F, x: F.smooth_l1_loss(x, x.detach(), beta=0.1), {"beta": 0.1}),
        (lambda T, F, x: F.huber_loss(x, x.detach(), delta=0.1), {"delta": 0.1}),
        (lambda T, F, x: x.var(correction=2), {"correction": 2}),
        (lambda T, F, x: x.tril(2), {"diagonal": 2}),
        (lambda T, F, x: x.roll((2, 1), (0, 1)), {"shifts": (2, 1), "dims": (0, 1)}),
        (lambda T, F, x: x.logit(0.1), {"eps": 0.1}),
    ],
)
def test_node_saves_numbers_under_torchs_names(node, names):
    def program(T):
        fn = node(T, T.nn.functional, leaf(T, 4, 5)).grad_fn
        return {name: getattr(fn, f"_saved_{name}") for name in names}

    assert program(xgrad) == names
    as_torch(program)


F = xgrad.nn.functional


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("call", "right", "wrong", "error", "text"),
    [
        (F.leaky_relu, 0.1, None, TypeError, "'negative_slope' must be a number, not None"),
        (F.leaky_relu, 0.1, xgrad.ones(4, 5), TypeError, r"must be a number, not a tensor with 2 dim"),
        (F.leaky_relu, 0.1, "0.1", TypeError, "a number .* but got str"),
        (F.elu, 0.1, 1j, RuntimeError, "cannot be converted to type Double .* is complex"),
        (F.celu, 0.1, 0, RuntimeError, "alpha cannot be 0"),
        (F.softshrink, 0.5, -0.5, RuntimeError, "found to be -0.5"),
        (lambda x, k: F.hardtanh(x, k, 1), 0, 2, ValueError, r"min_val \(2\) must be less"),
        (F.dropout, 0.5, 1.5, ValueError, "has to be between 0 and 1, but got 1.5"),
        (lambda x, k: F.scaled_dot_product_attention(x, x, x, dropout_p=k), 0.5, -0.5, RuntimeError, "got -0.5"),
        (lambda x, k: F.smooth_l1_loss(x, x, beta=k), 1, -1, RuntimeError, "negative values for beta"),
        (lambda x, k: F.huber_loss(x, x, delta=k), 1, 0, RuntimeError, "non-positive values for delta"),
        (lambda x, k: F.triplet_margin_loss(x, x, x, k), 1, 0, ValueError, "greater than 0, got 0"),
        (lambda x, k: F.cross_entropy(x, x, label_smoothing=k), 1, 2, RuntimeError, "between 0.0 and 1.0"),
        (xgrad.tril, 1, 1.5, TypeError, "'diagonal' must be int"),
        (xgrad.roll, 1, 1.5, TypeError, "must be ints"),
    ],
)
def test_what_is_no_number_or_a_wrong_one_is_an_error(call, right, wrong, error, text):
    """Also where a program for numbers of that type exists already."""
    x = leaf(xgrad, 4, 5)
    call(x, right)
    with pytest.raises(error, match=text):
        call(x, wrong)


def test_shift_beyond_an_int():
    as_torch(lambda T: leaf(T, 4, 5).roll((10**12, -(10**12) + 1), (0, 1)))


@pytest.mark.exhaustive
@pytest.mark.parametrize("p", [0, 1, 1.0])
@pytest.mark.parametrize("name", ["dropout", "alpha_dropout", "feature_alpha_dropout"])
def test_dropout_of_nothing_and_of_everything(name, p):
    def program(T):
        x = leaf(T, 4, 5)
        y = getattr(T.nn.functional, name)(x, p, training=True)
        return y, T.autograd.grad(y.sum(), x)

    as_torch(program)
