"""Static arguments of a wrong kind: refused where torch refuses them, also if an equal value has a kernel already."""

import numpy as np
import pytest
import torch

import xgrad
from xgrad.dispatch.tables import OPERATORS

from ..oracle import as_torch, outcome, same_error, values

CALLS = """
x.std(unbiased=1.5)
x.std(unbiased=1)
x.std(0, 1)
T.var_mean(x, unbiased=1)
x.diag(1.0)
x.diag(True)
T.nn.functional.one_hot(T.tensor([1]), 1.5)
T.nn.functional.one_hot(T.tensor([1]), num_classes=True)
x.topk(2.0)
x.topk(True)
x.kthvalue(1.0)
x.sort(descending=1.5)
x.sort(descending=1)
x.argsort(0, "x")
x.sum(0, keepdim=1)
x.sum(0, 1)
x.amax(0, 1)
x.median(0, 1)
x.quantile(0.5, keepdim=1)
x.round(decimals=1.5)
x.tril(1.5)
x.triu(True)
x.rot90(1.0)
x.matrix_power(2.0)
x.gather(0, T.tensor([[0]]), sparse_grad=1)
x.index_put((T.tensor([0]),), x[0], accumulate=1)
T.tril_indices(2, 2, 1.5)
T.linspace(0, 1, 2.0)
T.multinomial(x.abs(), 2.0)
T.multinomial(x.abs(), 2, 1)
T.allclose(x, x, equal_nan=1)
T.isclose(x, x, equal_nan=1)
T.unique(x, sorted=1)
T.unique(x, return_inverse=1.5)
T.tensor([1, 2]).bincount(minlength=1.5)
T.searchsorted(x[0], x[0], right=1)
T.cov(x, correction=1.5)
T.hann_window(3, 1)
T.nonzero(x, as_tuple=1)
T.zeros(2, requires_grad=1)
T.tensor([1.0], requires_grad=1)
T.linalg.pinv(x, hermitian=1)
T.linalg.solve_triangular(x, x, upper=1)
T.cholesky_solve(x, x, upper=1)
T.nn.functional.dropout(x, 0.5, 1)
T.nn.functional.layer_norm(x, (4.0,))
T.nn.functional.embedding(T.tensor([1]), x, padding_idx=1.0)
T.nn.functional.embedding(T.tensor([1]), x, sparse=1)
T.nn.functional.pixel_shuffle(x.reshape(1, 4, 2, 2), 2.0)
T.nn.functional.group_norm(x[None], 1.0)
T.nn.functional.max_pool2d(x[None], 2.0)
T.nn.functional.avg_pool2d(x[None], 2, count_include_pad=1)
T.nn.functional.conv2d(x[None, None], x[None, None], groups=1.0)
T.nn.functional.conv2d(x[None, None], x[None, None], stride=1.5)
T.nn.functional.conv2d(x[None, None], x[None, None], padding=1.5)
T.nn.functional.fold(x[None], (2.0, 2), 1)
T.nn.functional.kl_div(x, x, log_target=1)
T.nn.functional.batch_norm(x, None, None, training=1)
T.nn.functional.scaled_dot_product_attention(x, x, x, is_causal=1)
T.linalg.eigh(x, UPLO=1)
T.linalg.qr(x, mode=1)
T.nn.functional.gelu(x, approximate=1)
T.histc(x, min="x")
T.cdist(x, x, p="x")
""".strip().splitlines()


def run(line, T):
    return outcome(lambda T: eval(line, {"T": T, "x": T.from_numpy(values((4, 4)))}), T)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("line", CALLS)
def test_an_argument_of_a_wrong_kind_is_refused(line):
    theirs, ours = run(line, torch), run(line, xgrad)
    assert isinstance(theirs, TypeError), theirs
    assert isinstance(ours, TypeError), ours
    assert "must be" in str(ours), ours
    assert "argument '" in str(ours), ours


@pytest.mark.parametrize("line", [
    "x.repeat_interleave(1.5)", "T.randint(3.0, (2,))", "T.randint(0, 3.0, (2,))", "T.randint_like(x, 3.0)",
    "x.random_(3.0)", "T.nn.functional.interpolate(x[None, None], size=2.0)", "T.cartesian_prod(1)",
    "T.nn.functional.interpolate(x[None, None], size=(2, 2.0))",
])  # fmt: skip
def test_an_argument_that_a_composite_reads_is_refused_if_its_kind_is_wrong(line):
    theirs, ours = run(line, torch), run(line, xgrad)
    assert isinstance(theirs, TypeError), theirs
    assert isinstance(ours, TypeError), ours
    assert "expected Tensor" in str(ours) or "must be int, not float" in str(ours)


def test_the_message_names_function_argument_and_kinds():
    with pytest.raises(TypeError, match=r"^one_hot\(\): argument 'num_classes' must be int, not float$"):
        xgrad.nn.functional.one_hot(xgrad.tensor([1]), num_classes=1.5)
    with pytest.raises(TypeError, match=r"^topk\(\): argument 'k' must be int, not float$"):
        xgrad.ones(3).topk(2.0)
    with pytest.raises(TypeError, match=r"^sort\(\): argument 'descending' must be bool, not float$"):
        xgrad.ones(3).sort(descending=1.5)


def test_a_number_that_equals_a_good_one_does_not_find_its_kernel():
    x = xgrad.from_numpy(values((4, 4)))
    for good, bad in ((2, 2.0), (1, True)):
        x.topk(good)
        with pytest.raises(TypeError, match="'k' must be int"):
            x.topk(bad)
    x.sum(0, keepdim=True)
    with pytest.raises(TypeError, match="'keepdim' must be bool, not int"):
        x.sum(0, keepdim=1)
    assert not any(isinstance(k, float) for key in OPERATORS["topk"].kernels for k in key)


def test_numbers_of_numpy_and_tensors_without_dimensions_stand_for_ints():
    x = xgrad.from_numpy(values((4, 4)))
    wanted = x.topk(2).values.tolist()
    assert x.topk(np.int32(2)).values.tolist() == wanted
    assert x.topk(xgrad.tensor(2)).values.tolist() == wanted
    assert x.sum(0, keepdim=np.True_).shape == (1, 4)


@pytest.mark.parametrize("p", [0, -1, 0.0])
def test_renorm_takes_norms_above_zero(p):
    for T in (torch, xgrad):
        with pytest.raises(RuntimeError, match="renorm: non-positive-norm not supported"):
            T.ones(2, 2).renorm(p, 0, 1.0)
    with pytest.raises(TypeError, match=r"renorm\(\): argument 'p' must be Number, not str"):
        xgrad.ones(2, 2).renorm("x", 0, 1.0)


LOSES = """
T.full((2,), n)
T.full_like(x, n)
x.new_full((2,), n)
T.scalar_tensor(n)
T.arange(n)
T.arange(0, n, n)
x.norm(n)
T.linalg.vector_norm(x, n)
T.histc(x, min=n, max=3)
x.clone().uniform_(0, n)
x.clone().exponential_(n)
T.randint(n, (2,))
T.nn.functional.dropout(x, n)
""".strip().splitlines()


@pytest.mark.parametrize("line", LOSES)
def test_number_that_requires_grad_is_refused_where_its_gradient_would_be_lost(line):
    def run(T):
        given = {"T": T, "x": T.ones(2), "n": T.tensor(1.0, requires_grad=True)}
        return eval(line, given)

    with pytest.raises(TypeError):
        run(torch)
    with pytest.raises(TypeError, match=r"argument '\w+' must be Number, not Tensor, because this one requires grad"):
        run(xgrad)


@pytest.mark.parametrize("line", ["T.full((2,), n)", "T.full_like(x, n)", "T.scalar_tensor(n)", "T.arange(n)"])
def test_number_of_a_tensor_without_grad_is_taken(line):
    results = [eval(line, {"T": T, "x": T.ones(2), "n": T.tensor(2.0)}) for T in (xgrad, torch)]
    assert results[0].tolist() == results[1].tolist()
    assert results[0].dtype.name in str(results[1].dtype)


def test_order_of_a_norm_given_as_a_tensor_is_read_at_each_call():
    x, order = xgrad.tensor([1.0, 2.0, 3.0]), xgrad.tensor(2.0)
    assert x.norm(order).item() == pytest.approx(14**0.5)
    order.fill_(1.0)
    assert x.norm(order).item() == 6.0


@pytest.mark.parametrize("line", """
x.sum(0, keepdim=None)
x.topk(1, largest=None)
x.sort(descending=None)
x.median(0, keepdim=None)
T.linalg.cholesky(T.eye(2), upper=None)
T.nn.functional.avg_pool2d(x[None], 2, ceil_mode=None)
T.nn.functional.adaptive_avg_pool1d(x, None)
x.cumsum(dim=np.float64(1))
x.cumsum(dim=np.True_)
x.amin(dim=[True])
x.std(dim=[True])
x.std(dim=True)
T.linalg.norm(x, dim=[1.0])
T.linalg.norm(x, dim=True)
T.combinations(x[0], with_replacement=1)
T.svd(x, some=1)
T.qr(x, some=None)
T.vander(x[0], increasing=1)
T.linalg.vander(x[0], N=True)
T.linalg.inv_ex(x, check_errors=1)
T.linalg.lu_factor_ex(x, check_errors="a")
T.nn.functional.rrelu(x, training=1)
x.to(T.float32, copy=1)
x.to_dense(masked_grad=1)
x.mvlgamma(2.0)
x.diff(n=True)
T.polygamma(True, x)
T.gradient(x, edge_order=True)
T.histc(x, bins=True)
x.repeat_interleave(2, output_size=2.0)
T.matrix_power(x, True)
T.zeros(2, pin_memory=1)
T.ones_like(x, pin_memory="a")
T.tensor([1.0], pin_memory=1)
T.rand(2, 3, 4, 5, pin_memory=1)
T.full((2,), 1.0, pin_memory=1)
""".strip().splitlines())  # fmt: skip
def test_none_and_numpys_numbers_are_no_bools_and_dims(line):
    def program(T):
        x = T.from_numpy(values((4, 4)))
        x.cumsum(1), x.amin([1])  # whose kernels the wrong ones would find
        return eval(line, {"T": T, "x": x, "np": np})

    theirs, ours = outcome(program, torch), outcome(program, xgrad)
    assert isinstance(theirs, TypeError), theirs
    assert isinstance(ours, TypeError), ours


@pytest.mark.one_in(3)
@pytest.mark.parametrize("line", """
T.zeros(2, pin_memory=None)
T.zeros(2, 3, 1, 2, 1, 2, 1, 2, pin_memory=False)
T.matrix_power(x, np.int64(2))
T.matrix_power(x, T.tensor(2))
T.combinations(x[0], T.tensor(2))
T.nn.functional.adaptive_avg_pool2d(x[None], (None, 2))
x.var(dim=(0, -1))
x.var(0, True)
T.var_mean(x, True)
x.norm(dim=None)
T.triu_indices(0, 2**31)
T.tril_indices(2**31, 0)
T.triu_indices(3, 4, -2**40)
T.tril_indices(3, 4, 2**40)
T.triu_indices(4, 3, 1)
T.tril_indices(4, 6, -2)
T.tril_indices(5, 2, 1)
T.triu_indices(2, 5, -1)
""".strip().splitlines())  # fmt: skip
def test_what_torch_accepts_is_accepted(line):
    as_torch(lambda T: eval(line, {"T": T, "x": T.from_numpy(values((4, 4))), "np": np}))


def test_windows_that_no_int_counts_are_refused():
    def program(T):
        return T.nn.functional.avg_pool2d(T.ones(1, 4, 4), 2, 2**33)

    same_error(program, "value cannot be converted to type int without overflow")
