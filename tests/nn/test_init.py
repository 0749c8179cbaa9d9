"""nn.init: PyTorch's distributions, in place, not recorded."""

import math

import numpy as np
import pytest
import scipy.stats
import torch

import xgrad
from xgrad.nn import init

SHAPE = (40, 25, 5)
FAN_IN, FAN_OUT = 125, 200
UNIFORM = scipy.stats.uniform
LEAKY = math.sqrt(2 / (1 + 0.2**2))


def _uniform(bound):
    return UNIFORM(-bound, 2 * bound)


# the function, its arguments, the distribution that its numbers have
DISTRIBUTIONS = [
    ("uniform_", (-1.0, 3.0), UNIFORM(-1, 4)),
    ("uniform_", (), UNIFORM(0, 1)),
    ("normal_", (2.0, 0.5), scipy.stats.norm(2, 0.5)),
    ("trunc_normal_", (), scipy.stats.truncnorm(-2, 2)),
    ("trunc_normal_", (0.0, 0.02, -0.04, 0.01), scipy.stats.truncnorm(-2, 0.5, 0, 0.02)),
    ("trunc_normal_", (0.0, 1.0, 3.0, 5.0), scipy.stats.truncnorm(3, 5)),
    ("trunc_normal_", (0.0, 1.0, -9.0, -6.0), scipy.stats.truncnorm(-9, -6)),
    ("xavier_uniform_", (2.0,), _uniform(2 * math.sqrt(6 / (FAN_IN + FAN_OUT)))),
    ("xavier_normal_", (), scipy.stats.norm(0, math.sqrt(2 / (FAN_IN + FAN_OUT)))),
    ("kaiming_uniform_", (), _uniform(math.sqrt(6 / FAN_IN))),
    ("kaiming_uniform_", (0.2, "fan_out"), _uniform(LEAKY * math.sqrt(3 / FAN_OUT))),
    ("kaiming_normal_", (0, "fan_in", "relu"), scipy.stats.norm(0, math.sqrt(2 / FAN_IN))),
    ("kaiming_normal_", (0, "fan_out", "tanh"), scipy.stats.norm(0, 5 / 3 / math.sqrt(FAN_OUT))),
]


@pytest.mark.filterwarnings("ignore:mean is more than 2 std")
@pytest.mark.parametrize(("name", "args", "distribution"), DISTRIBUTIONS, ids=lambda value: str(value)[:30])
def test_numbers_are_distributed_as_they_should_be(name, args, distribution):
    xgrad.manual_seed(0)
    w = xgrad.nn.Parameter(xgrad.empty(SHAPE))
    assert getattr(init, name)(w, *args) is w
    assert w.grad_fn is None
    assert w.requires_grad
    assert scipy.stats.kstest(w.detach().numpy().ravel(), distribution.cdf).pvalue > 1e-3


@pytest.mark.parametrize("name", ["uniform_", "normal_", "trunc_normal_", "xavier_normal_", "orthogonal_", "sparse_"])
def test_a_generator_gives_the_same_numbers_again(name):
    args = (0.5,) if name == "sparse_" else ()
    drawn = [
        getattr(init, name)(xgrad.empty(6, 4), *args, generator=xgrad.Generator().manual_seed(3)) for _ in range(2)
    ]
    assert (drawn[0] == drawn[1]).all()


EXACT = [
    ("constant_", (3, 2), (0.5,)),
    ("ones_", (3,), ()),
    ("zeros_", (3,), ()),
    ("eye_", (3, 4), ()),
    ("dirac_", (4, 3, 3), ()),
    ("dirac_", (6, 2, 3, 4), (2,)),
    ("dirac_", (2, 4, 3, 2, 1), ()),
]


@pytest.mark.parametrize(("name", "shape", "args"), EXACT)
def test_fixed_values_are_pytorchs(name, shape, args):
    ours = getattr(init, name)(xgrad.nn.Parameter(xgrad.full(shape, 7.0)), *args)
    theirs = getattr(torch.nn.init, name)(torch.full(shape, 7.0), *args)
    np.testing.assert_array_equal(ours.detach().numpy(), theirs.numpy())


@pytest.mark.parametrize("shape", [(3, 5), (5, 3), (4, 2, 3)])
def test_orthogonal_matrices_are_orthogonal(shape):
    w = init.orthogonal_(xgrad.nn.Parameter(xgrad.empty(shape)), 2.0)
    flat = w.detach().numpy().reshape(shape[0], -1)
    small = flat @ flat.T if flat.shape[0] < flat.shape[1] else flat.T @ flat
    np.testing.assert_allclose(small, 4 * np.eye(len(small)), atol=1e-5)


def test_sparse_columns_have_as_many_zeros_as_pytorchs():
    for sparsity in (0.1, 0.5, 0.85):
        w = init.sparse_(xgrad.empty(10, 30), sparsity)
        theirs = torch.nn.init.sparse_(torch.empty(10, 30), sparsity)
        np.testing.assert_array_equal((w == 0).sum(0).numpy(), (theirs == 0).sum(0).numpy())
    assert len(np.unique((w != 0).float().argmax(0).numpy())) > 3


@pytest.mark.parametrize(
    ("nonlinearity", "param"),
    [(name, None) for name in "linear conv2d conv_transpose3d sigmoid tanh relu leaky_relu selu".split()]  # noqa: SIM905
    + [("leaky_relu", 0.2), ("leaky_relu", 1), ("leaky_relu", True), ("leaky_relu", "a"), ("gelu", None)],
)
def test_gains_are_pytorchs(nonlinearity, param):
    def gain(library):
        try:
            return library.nn.init.calculate_gain(nonlinearity, param)
        except ValueError:
            return "refused"

    assert gain(xgrad) == gain(torch)


@pytest.mark.parametrize(
    ("name", "shape", "args"),
    [
        ("xavier_uniform_", (3,), ()),
        ("kaiming_normal_", (3,), ()),
        ("kaiming_uniform_", (3, 2), (0, "fan")),
        ("eye_", (3,), ()),
        ("dirac_", (3, 2), ()),
        ("dirac_", (3, 2, 2), (2,)),
        ("orthogonal_", (3,), ()),
        ("sparse_", (3,), (0.5,)),
    ],
)
def test_wrong_shapes_are_refused(name, shape, args):
    for library in (torch, xgrad):
        with pytest.raises(ValueError, match=r"\w"):
            getattr(library.nn.init, name)(library.empty(shape), *args)


def test_warnings_name_the_line_of_the_caller():
    with pytest.warns(FutureWarning, match=r"`nn.init.normal` is now deprecated in favor of `nn.init.normal_`") as seen:
        init.normal(xgrad.empty(2))
    with pytest.warns(UserWarning, match="mean is more than 2 std") as far:
        init.trunc_normal_(xgrad.empty(2), 0.0, 1.0, 3.0, 4.0)
    with pytest.warns(UserWarning, match="no-op") as empty:
        init.kaiming_normal_(xgrad.empty(0, 2))
    assert {w.filename for w in (*seen, *far, *empty)} == {__file__}


def test_half_precision_is_drawn_too():
    w = init.trunc_normal_(xgrad.empty(1000, dtype=xgrad.bfloat16), std=0.02, a=-0.04, b=0.04)
    assert w.dtype == xgrad.bfloat16
    assert 0.015 < w.float().std() < 0.02
    assert init.dirac_(xgrad.empty(2, 2, 1, dtype=xgrad.float16)).dtype == xgrad.float16


def test_all_names_are_pytorchs():
    assert set(torch.nn.init.__all__) == set(init.__all__)
