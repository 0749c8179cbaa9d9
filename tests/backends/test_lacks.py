"""What a backend lacks: operators and dtypes, computed on the host or refused by name; and its lowerings."""

import jax
import numpy as np
import pytest

import xgrad
from xgrad.errors import BackendError

VALUES = np.array([[3.0, 1.0, 2.0], [0.5, 4.0, 1.5]], np.float32)


def on(requires_grad=False, **declared):
    chip = xgrad.Backend("chip", **declared)
    return chip, xgrad.tensor(VALUES, device=chip, requires_grad=requires_grad)


def test_a_missing_operator_is_computed_on_the_host():
    chip, x = on(True, without=["sort", "linalg.*"])
    values, indices = x.sort()
    (values * values).sum().backward()
    assert {t.device for t in (values, indices, x.grad, xgrad.linalg.inv(x[:, :2].detach()))} == {chip.device}
    np.testing.assert_array_equal(values.detach().numpy(), np.sort(VALUES))
    np.testing.assert_array_equal(x.grad.numpy(), 2 * VALUES)


@pytest.mark.parametrize(
    ("without", "call", "operator"),
    [
        ("sort", lambda x: x.sort(), "sort"),
        ("linalg.*", lambda x: xgrad.linalg.qr(x), "linalg_qr"),
        ("linalg.inv", lambda x: xgrad.linalg.inv(x[:, :2]), "linalg_inv_ex"),
        ("max", lambda x: x.max(dim=1), "max.dim"),
        ("ad?", lambda x: x.add_(x), "add"),
        ("relu", lambda x: x[0].relu_(), "relu"),
    ],
)
def test_a_missing_operator_is_refused_by_name(without, call, operator):
    _, x = on(without=[without], fallback="error")
    before = x.tolist()
    words = (
        rf"The operator '{operator}' is not implemented for the backend 'chip', which lacks the operator '{operator}' "
        r"\(float32\[.*, at test_lacks.py:\d+\)\. Compute it on the host, x\.cpu\(\).*fallback='host'.*lowering"
    )
    with pytest.raises(BackendError, match=words):
        call(x)
    assert x.tolist() == before
    assert issubclass(BackendError, NotImplementedError)


def test_derivatives_of_a_missing_operator_are_missing_too():
    _, x = on(True, without=["tanh"], fallback="error")
    _, y = on(True)
    with pytest.raises(BackendError, match="'tanh'"):
        x.tanh()
    y.tanh().sum().backward()
    assert y.grad is not None


def test_dtypes_that_it_does_not_compute_in():
    chip, x = on(dtypes=["float32", "int32", "bool"])
    assert x.to(xgrad.float16).device == chip.device  # on the host
    assert (x > 1).dtype == xgrad.bool
    refusing = chip.replace(fallback="error")
    x = x.cpu().to(refusing)
    assert (x * 2).sum().device == refusing.device
    for refused in (lambda: x.to(xgrad.float16), lambda: xgrad.ones(2, dtype=xgrad.float16).to(refusing),
                    lambda: xgrad.zeros(2, dtype=xgrad.float16, device=refusing)):  # fmt: skip
        with pytest.raises(BackendError, match="backend 'chip', which lacks the dtype float16"):
            refused()


def test_complex_numbers_are_missing():
    _, x = on(without=["complex"], fallback="error")
    for refused in (lambda: x.to(xgrad.complex64), lambda: xgrad.complex(x, x), lambda: x * 1j):
        with pytest.raises(BackendError, match=r"lacks (complex numbers|the operator 'complex')"):
            refused()
    assert (x * 2).sum().item() == 24


@pytest.mark.parametrize(
    ("declared", "error", "words"),
    [
        (dict(without=["srot"]), ValueError, "without='srot' matches no operator. Near it: .*sort"),
        (dict(without=["dropout1d"]), ValueError, "made of other operators"),
        (dict(without="sort"), TypeError, "without is a list of operators' names, but got 'sort'"),
        (dict(without=[3]), TypeError, "without is a list"),
        (dict(dtypes=["floaty"]), TypeError, "dtypes has 'floaty', which is not a dtype"),
        (dict(dtypes="float32"), TypeError, "dtypes is a list of names"),
        (dict(fallback="cpu"), ValueError, "fallback is 'host' or 'error', not 'cpu'"),
        (dict(lowerings={"gleu": abs}), ValueError, "lowerings has 'gleu', which is not an operator. Near it: .*gelu"),
        (dict(lowerings={"gelu": 3}), TypeError, "lowerings is {operator: function}"),
        (dict(lowerings=[abs]), TypeError, "lowerings is {operator: function}"),
        (dict(memory=1.5), TypeError, "memory is a number of bytes, but got 1.5"),
        (dict(memory=0), ValueError, "positive number of bytes"),
        (dict(donation=1), TypeError, "donation must be True or False, but got 1"),
    ],
)
def test_bad_declarations_are_errors_at_once(declared, error, words):
    with pytest.raises(error, match=words):
        xgrad.Backend("chip", **declared)


def test_a_lowering_computes_the_operator_and_derivatives_stay():
    _, x = on(True, lowerings={"sin": lambda x: x * 2})
    y = x.sin()
    y.sum().backward()
    np.testing.assert_array_equal(y.detach().numpy(), 2 * VALUES)
    np.testing.assert_allclose(x.grad.numpy(), np.cos(VALUES), rtol=1e-6)
    np.testing.assert_array_equal(x.detach().clone().sin_().numpy(), 2 * VALUES)
    np.testing.assert_array_equal(xgrad.vmap(xgrad.sin)(x.detach()).numpy(), 2 * VALUES)
    np.testing.assert_allclose(x.detach().cpu().sin().numpy(), np.sin(VALUES), rtol=1e-6)


def test_a_lowering_brings_its_own_derivative():
    @jax.custom_vjp
    def doubled(x):
        return x * 2

    doubled.defvjp(lambda x: (x * 2, None), lambda _, g: (g * 7,))
    _, x = on(True, lowerings={"sin": doubled})
    x.sin().sum().backward()
    assert x.grad.tolist() == [[7.0] * 3] * 2


def test_a_lowering_is_asked_for_static_arguments_and_the_operators_kind_of_result():
    def gelu(x, approximate="none"):
        return x * 3 if approximate == "tanh" else x

    chip, x = on(lowerings={"gelu": gelu})
    np.testing.assert_array_equal(xgrad.nn.functional.gelu(x, approximate="tanh").numpy(), 3 * VALUES)
    np.testing.assert_array_equal(xgrad.nn.functional.gelu(x).numpy(), VALUES)
    y = x.cpu().to(chip.replace(lowerings={"gelu": lambda x: x}))
    with pytest.raises(TypeError, match="lowering of 'gelu' on the backend 'chip' takes no argument 'approximate'"):
        xgrad.nn.functional.gelu(y, approximate="tanh")
    z = x.cpu().to(chip.replace(lowerings={"sin": lambda x: x.sum()}))
    with pytest.raises(TypeError, match=r"returns float32\[\], but the operator gives float32\[2, 3\]"):
        z.sin()


def test_a_lowering_is_mapped_entry_by_entry():
    _, x = on(True, lowerings={"mul": lambda x, y: y * x, "sin": lambda x: x - x.sum()})
    y = xgrad.vmap(lambda row: row * row.sum())(x)
    np.testing.assert_allclose(y.detach().numpy(), VALUES * VALUES.sum(1, keepdims=True))
    y.sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), np.repeat(2 * VALUES.sum(1, keepdims=True), 3, 1))
    twice = xgrad.vmap(xgrad.vmap(xgrad.sin))(x.detach())
    np.testing.assert_array_equal(twice.numpy(), np.zeros_like(VALUES))


def test_a_lowering_is_not_for_operators_of_its_name_with_other_arguments():
    _, x = on(lowerings={"add": lambda x, y: x * y, "pow": lambda x, exponent: x - exponent})
    np.testing.assert_array_equal((x + x).numpy(), VALUES * VALUES)
    np.testing.assert_array_equal(x.add(x, alpha=2).numpy(), 3 * VALUES)
    np.testing.assert_array_equal(x.clone().add_(x, alpha=2).numpy(), 3 * VALUES)
    np.testing.assert_array_equal(x.pow(2).numpy(), VALUES - 2)
    np.testing.assert_array_equal(x.pow(x).numpy(), 0 * VALUES)


@pytest.mark.parametrize("execution", ["eager", "lazy"])
def test_random_numbers_need_no_dtype_of_keys(execution):
    chip, _ = on(execution=execution, dtypes=["float32", "bool", "int32"], fallback="error")
    dropout = xgrad.nn.functional.dropout
    with chip.activate():
        x = xgrad.ones(3, 4, requires_grad=True)
        xgrad.manual_seed(0)
        made = [xgrad.rand(4), xgrad.randn(4), dropout(x), x.detach().clone().uniform_(), xgrad.bernoulli(x * 0.5)]
        made += [xgrad.randperm(4, dtype=xgrad.int32), xgrad.compile(dropout)(x)]
        made += [xgrad.vmap(dropout, randomness="different")(x)]
        (made[2].sum() + made[-1].sum()).backward()
        xgrad.set_rng_state(xgrad.get_rng_state())
    assert {t.device for t in (*made, x.grad)} == {chip.device}
    assert made[-1][0].tolist() != made[-1][1].tolist() or made[-1][0].tolist() != made[-1][2].tolist()
    xgrad.manual_seed(0)
    assert xgrad.rand(4).tolist() == made[0].tolist()


def test_operators_on_a_tensor_that_a_jitted_function_closes_over_are_refused_too():
    _, x = on(without=["tanh", "mul"], dtypes=["float32"], fallback="error")

    def of(operator):
        return jax.jit(lambda a: operator(x, xgrad.as_tensor(a))._read())

    assert of(lambda x, a: x + a)(VALUES).tolist() == (2 * VALUES).tolist()
    with pytest.raises(BackendError, match="lacks the operator 'mul'"):
        of(lambda x, a: x * a)(VALUES)
    with pytest.raises(BackendError, match="lacks the dtype bool"):
        of(lambda x, a: x > a)(VALUES)
