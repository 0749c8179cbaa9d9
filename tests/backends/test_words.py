"""What a declared backend says of lowerings that fail, of two backends of one name, of dtypes, of names."""

import jax.numpy as jnp
import numpy as np
import pytest

import xgrad
from xgrad.errors import BackendError

VALUES = np.array([3.0, 1.0, 2.0], np.float32)


def on(**declared):
    return xgrad.tensor(VALUES, device=xgrad.Backend("chip", **declared))


@pytest.mark.parametrize("execution", ["eager", "lazy"])
@pytest.mark.parametrize(
    ("function", "error", "words"),
    [
        (lambda x, y: x, TypeError, "takes other arguments than the operator's 1 arrays: missing .* 'y'"),
        (lambda x: 1 / 0, RuntimeError, "raised ZeroDivisionError: division by zero"),
        (lambda x: np.exp(x), RuntimeError, "raised TracerArrayConversionError: .*NumPy's functions"),
        (lambda x: x if x[0] > 0 else -x, RuntimeError, "raised TracerBoolConversionError"),
        (lambda x: None, TypeError, "returns NoneType, but the operator gives an array"),
        (lambda x: x[:2], TypeError, r"returns float32\[2\], but the operator gives float32\[3\]: cast the result"),
    ],
)
def test_a_lowering_that_fails_is_named(function, error, words, execution):
    x = on(lowerings={"exp": function}, execution=execution)
    with pytest.raises(error, match=f"the lowering of 'exp' on the backend 'chip' {words}"):
        x.exp()
    assert (x + 1).tolist() == [4.0, 2.0, 3.0]


def test_a_lowering_that_lacks_a_result_is_told_so():
    with pytest.raises(TypeError, match=r"'sort'.* returns float32\[3\].*: return all results, in a tuple"):
        on(lowerings={"sort": lambda x, **_: jnp.sort(x)}).sort()


def test_two_backends_of_one_name_say_what_they_differ_in():
    with pytest.raises(RuntimeError, match=r"chip:0 and chip:0!.* of one name, which differ in strides, donation: "):
        on() + on(strides=True, donation=False)
    with pytest.raises(RuntimeError, match="which are declared alike: each declaration, and each replace"):
        on() + on()
    with pytest.raises(RuntimeError, match=r"\(\)\)\. Move one"):
        on() + xgrad.ones(3)


def test_a_dtype_that_is_lacking_is_no_operators_fault():
    x = on(dtypes=["float32"], fallback="error")
    with pytest.raises(
        BackendError, match=r"A tensor of float16 cannot be on the backend 'chip', which lacks the"
    ) as e:
        xgrad.zeros(2, dtype=xgrad.float16).to(x.device)
    assert "lowering" not in str(e.value)
    with pytest.raises(BackendError, match=r"'argsort'.* lacks the dtype int\d+, which its result has") as e:
        x.argsort()
    assert "lowering" not in str(e.value)


@pytest.mark.parametrize(
    ("declare", "error", "words"),
    [
        (lambda: xgrad.Backend("chip", lowerings={"median": jnp.median}), ValueError,
         "'median' is several operators: median.all, median.dim"),
        (lambda: xgrad.Backend("chip", without=["relu_"]), ValueError,
         "in-place form of the operator 'relu': name that"),
        (lambda: xgrad.Backend("chip", lowerings={"narrow": jnp.exp}), ValueError,
         "'narrow' is a view operation: declare views={'narrow': 'refuse'}, or an xgrad.ViewRule for it"),
        (lambda: xgrad.Backend("chip", without=["view_as*"]), ValueError,
         "View operations are view_as_complex, view_as_real: declare views={'view_as_complex': 'refuse'}"),
        (lambda: xgrad.Backend("chip", lowerings={"nn.Linear": jnp.matmul}), ValueError,
         "'nn.Linear' is a module that is made of other operators: name those, which a report lists, such as linear"),
        (lambda: xgrad.Backend("chip", without=["cross_entropy"]), ValueError,
         "'cross_entropy' is a function that .* which a report lists, such as cross_entropy_loss"),
        (lambda: xgrad.Backend("chip").replace(speed=3), TypeError,
         r"Backend 'chip': replace\(\) got speed, but what is declared is name, on, strides"),
    ],
)  # fmt: skip
def test_names_that_are_wrong(declare, error, words):
    with pytest.raises(error, match=words):
        declare()
