"""Conversions of dtype and device, and fills: values, identity, gradients and refusals are PyTorch's."""

import warnings

import jax
import numpy as np
import pytest
import torch

import xgrad
import xgrad.autograd.forward_ad

from ..oracle import array, data, leaf, outcome, same, same_error
from ..traced import as_torch
from .derivatives import agree, numbers
from .promotion import DTYPES

# Both libraries warn where a cast discards an imaginary part; torch's forward mode deprecates itself.
pytestmark = [
    pytest.mark.filterwarnings("ignore:Casting complex values to real"),
    pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning"),
]

INEXACT = ("float16", "bfloat16", "float32", "float64", "complex64", "complex128")
METHODS = {
    "float": "float32", "double": "float64", "half": "float16", "bfloat16": "bfloat16", "byte": "uint8",
    "char": "int8", "short": "int16", "int": "int32", "long": "int64", "bool": "bool", "cfloat": "complex64",
    "cdouble": "complex128",
}  # fmt: skip


def shown(x):
    """Values in a dtype that NumPy has, and the name of the dtype."""
    wide = x.double() if "float" in str(x.dtype) else x
    return wide, str(x.dtype).rpartition(".")[2]


def tensor(T, dtype, values=(0, 1, 2, 100)):
    return T.tensor(list(values)).to(getattr(T, dtype))


# -- values -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", DTYPES)
def test_every_dtype_to_every_dtype(source):
    as_torch(lambda T: [shown(tensor(T, source).to(getattr(T, d))) for d in DTYPES])


def test_fractions_are_cut_off_and_truth_is_what_is_not_zero():
    def program(T):
        x = T.tensor([2.7, -2.7, 0.4, -0.4, -0.0, 126.99])
        special = T.tensor([float("nan"), float("inf"), -float("inf"), -0.0])
        z = T.tensor([1.5 - 2j, 1j, 0])
        whole = [x.to(getattr(T, d)) for d in ("int8", "int16", "int32", "int64", "bool")]
        halves = [shown(special.to(getattr(T, d))) for d in ("float16", "bfloat16", "float64")]
        parts = [z.to(getattr(T, d)) for d in ("float64", "int32", "complex128", "bool")]
        return whole, special.bool(), halves, parts, T.tensor([300, -1]).to(T.uint8), T.tensor([2**40 + 7]).int()

    as_torch(program)


def test_numbers_round_to_the_nearest_of_a_narrower_dtype():
    x = np.random.default_rng(0).standard_normal(200) * 10.0 ** np.arange(-10, 10).repeat(10)
    as_torch(lambda T: [shown(T.tensor(x).to(getattr(T, d))) for d in ("float32", "float16", "bfloat16")])


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "int32"])
def test_numbers_beyond_an_integer_dtype_give_its_nearest_and_nan_0(dtype):
    """PyTorch leaves these undefined: on the CPU some wrap and others do not."""
    x, info = np.array([1e30, -1e30, np.inf, -np.inf, 70000.0, -1.0]), np.iinfo(dtype)
    assert xgrad.tensor(x).to(getattr(xgrad, dtype)).tolist() == [int(v) for v in np.clip(x, info.min, info.max)]
    assert xgrad.tensor([float("nan")]).to(getattr(xgrad, dtype)).item() == 0


def test_complex_to_real_warns_once_for_each_call():
    for T in (xgrad, torch):
        z = T.tensor([1 + 2j])
        torch.set_warn_always(True)
        try:
            for cast in (lambda z, T=T: z.to(T.float32), lambda z: z.double(), lambda z: z.int()):
                with pytest.warns(UserWarning, match="discards the imaginary part"):
                    cast(z)
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                z.to(T.complex128)
                z.bool()
        finally:
            torch.set_warn_always(False)


# -- the overloads of to ----------------------------------------------------------------------------------------------

OVERLOADS = {
    "nothing": lambda T, x: x.to(),
    "None": lambda T, x: x.to(None),
    "dtype": lambda T, x: x.to(T.float64),
    "dtype=": lambda T, x: x.to(dtype=T.int32),
    "dtype, non_blocking, copy": lambda T, x: x.to(T.float64, True, True),
    "dtype, copy=": lambda T, x: x.to(T.float32, copy=True),
    "device": lambda T, x: x.to("cpu"),
    "device, dtype": lambda T, x: x.to("cpu", T.float16).double(),
    "device=, dtype=": lambda T, x: x.to(device=T.device("cpu"), dtype=T.int8),
    "device, dtype, non_blocking, copy": lambda T, x: x.to("cpu", T.float32, False, True),
    "device, non_blocking": lambda T, x: x.to("cpu", non_blocking=True),
    "None, dtype": lambda T, x: x.to(None, T.float64),
    "other": lambda T, x: x.to(T.zeros(3, dtype=T.complex64)),
    "other, non_blocking, copy": lambda T, x: x.to(x, False, True),
    "memory_format": lambda T, x: x.to(T.float64, memory_format=T.preserve_format),
    "int": lambda T, x: x.to(int),
    "bool": lambda T, x: x.to(bool),
    "type(dtype)": lambda T, x: x.type(T.float64),
    "type(name)": lambda T, x: x.type(f"{T.__name__}.ShortTensor"),
    "type(same name)": lambda T, x: x.type(x.type()),
    "type_as": lambda T, x: x.type_as(T.zeros(1, dtype=T.int16)),
    "type_as itself": lambda T, x: x.type_as(x),
    "cpu": lambda T, x: x.cpu(),
    **{name: (lambda T, x, name=name: getattr(x, name)()) for name in METHODS if name not in ("half", "bfloat16")},
    "float(memory_format=)": lambda T, x: x.float(memory_format=T.preserve_format),
}


@pytest.mark.parametrize("name", OVERLOADS)
def test_overloads_of_to_and_when_they_give_the_tensor_itself(name):
    def program(T):
        x = data(T, (3, 4)).float()
        y = OVERLOADS[name](T, x)
        return y, y is x

    as_torch(program, rtol=1e-6)


def test_names_of_types():
    as_torch(lambda T: [T.zeros(1, dtype=getattr(T, d)).type().replace("torch", "xgrad") for d in DTYPES])
    as_torch(lambda T: [shown(getattr(tensor(T, "int8"), name)()) for name in METHODS])


def test_a_copy_shares_nothing_and_no_copy_everything():
    def program(T):
        x = T.tensor([1.0, 2.0])
        copied, same_one, wide = x.to(x.dtype, copy=True), x.to(x.dtype), x.double()
        x.mul_(10)
        copied.add_(1)
        wide.sub_(1)
        return x, copied, same_one, wide

    as_torch(program)


def test_views_are_cast_as_they_are():
    def program(T):
        x = data(T, (3, 4))
        views = [x.t(), x[1:, ::2], x.diagonal(), x[0].expand(2, 4), x[None].flatten()]
        return [v.float() for v in views], [v.to(T.complex64) for v in views]

    as_torch(program)


# -- gradients --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", INEXACT)
def test_gradients_return_in_the_dtype_of_the_source(source):
    def program(T):
        found = []
        for dtype in INEXACT:
            x = tensor(T, source, (0.5, -2, 3)).requires_grad_()
            y = x.to(getattr(T, dtype))
            (grad,) = T.autograd.grad(y, x, T.tensor([1.0, 2.0, -3.0]).to(y.dtype) * (1j if y.is_complex() else 1))
            found += [*shown(grad), y.requires_grad, y is x or type(y.grad_fn).__name__]
        return found

    as_torch(program)


def test_gradients_through_named_casts_and_chains_of_them():
    agree(lambda T, x: (x * x).float().double() * x + x.half().double() * 0, numbers(3, 4), order=1, forward=False)
    agree(lambda T, x: x.cdouble() * x + x.to(T.complex128) ** 2, numbers(3, 4))
    agree(lambda T, z: z.to(T.complex64).to(T.complex128), np.array([1 + 2j, 3 - 1j]), order=1)


def test_gradients_are_summed_in_the_dtype_of_the_variable():
    def program(T):
        x = tensor(T, "float32", (1.0, 2.0)).requires_grad_()
        (x.double() * 3 + x.half().double() + x * 2).sum().backward()
        return x.grad

    as_torch(program)


def test_tangents_are_cast_too():
    def program(T):
        fw = T.autograd.forward_ad
        with fw.dual_level():
            x = fw.make_dual(data(T, (3,)), data(T, (3,), 1))
            return [fw.unpack_dual(y).tangent for y in (x.float(), x.to(T.complex64), x.double())]

    as_torch(program)
    with xgrad.autograd.forward_ad.dual_level():
        dual = xgrad.autograd.forward_ad.make_dual(xgrad.ones(2), xgrad.ones(2))
        assert xgrad.autograd.forward_ad.unpack_dual(dual.int()).tangent is None


def test_what_a_cast_makes_of_requires_grad():
    def program(T):
        x, i = leaf(T, 3), T.tensor([1, 2])
        with T.no_grad():
            unrecorded = x.float()
        casts = [
            x.long(),
            x.bool(),
            x.float(),
            x.to(T.complex64),
            i.float(),
            x.detach().float(),
            unrecorded,
            x.double(),
        ]
        return [(y.requires_grad, y.is_leaf) for y in casts]

    as_torch(program)


def test_a_cast_saves_nothing():
    x = leaf(xgrad, 3)
    node = x.float().grad_fn
    assert node.name() == "ToCopyBackward0"
    assert node.saved == ()


def test_in_place_after_a_cast_differentiates():
    def program(T):
        x, y = leaf(T, 3, 4), tensor(T, "float32", (1, 2, 3, 4)).requires_grad_()
        z = x.float()
        z.mul_(y)
        z[0].add_(y)
        (z * z).sum().backward()
        return z, x.grad, y.grad

    as_torch(program, rtol=1e-5)


# -- devices ----------------------------------------------------------------------------------------------------------


def test_device_and_dtype_at_once():
    if len(jax.devices()) < 2:
        pytest.skip("needs two devices")
    first, second = jax.devices()[:2]
    x = leaf(xgrad, 3)
    there = xgrad.zeros(1, dtype=xgrad.float32, device=second)
    for y in (x.to(second, xgrad.float32), x.to(there), x.to(device=second, dtype=xgrad.float32), x.type_as(there)):
        assert (y.dtype, y._read().devices()) == (xgrad.float32, {second})
        (grad,) = xgrad.autograd.grad((y * y).sum(), x)
        assert (grad.dtype, grad._read().devices()) == (xgrad.float64, {first})
        np.testing.assert_allclose(array(grad), 2 * array(x), rtol=1e-6)
    y = x.to(second)
    assert y.to(second) is y
    assert y.to(second, copy=True) is not y
    assert y.cpu()._read().devices() == {first}


def test_an_absent_device_is_an_error_before_anything_is_done():
    x = leaf(xgrad, 3)
    for move in (lambda: x.cuda(), lambda: x.to("cuda:7", xgrad.float32), lambda: x.to(99)):
        with pytest.raises(RuntimeError, match="not available"):
            move()


# -- fills ------------------------------------------------------------------------------------------------------------


def test_fills_write_through_views():
    def program(T):
        x, v = leaf(T, 3, 4), leaf(T, seed=1)
        base = x * 1
        base[1].fill_(2)
        base.t()[0].zero_()
        base.diagonal()[1:].fill_(v)
        (base * base).sum().backward()
        return base, x.grad, v.grad, T.fill(x, 3), T.fill(x, v), T.zero_(T.ones(2)), T.fill_(T.ones(2), True)

    as_torch(program)


def test_a_fill_casts_its_value():
    def program(T):
        fills = [(T.int32, 2.7), (T.bool, 3), (T.bool, 0.0), (T.complex64, 2), (T.uint8, 255), (T.int8, -128)]
        fills += [(T.float32, float("inf")), (T.float32, T.tensor(3)), (T.int64, T.tensor(2.7)), (T.uint8, True)]
        return [T.zeros(2, dtype=d).fill_(v) for d, v in fills]

    as_torch(program)


@pytest.mark.parametrize(("dtype", "value"), [("uint8", 300), ("int8", -129), ("int32", 2**31), ("int64", 1e30)])
def test_a_number_that_does_not_fit_is_refused(dtype, value):
    """torch's type is RuntimeError; ours is the one of every number that does not fit."""
    writes = {
        "fill_": lambda T, x: x.fill_(value),
        "assignment": lambda T, x: x.__setitem__(0, value),
        "masked_fill_": lambda T, x: x.masked_fill_(T.tensor([True, False]), value),
        "masked assignment": lambda T, x: x.__setitem__(T.tensor([True, False]), value),
    }
    for name, write in writes.items():
        theirs = outcome(lambda T, w=write: w(T, T.zeros(2, dtype=getattr(T, dtype))), torch)
        assert "without overflow" in str(theirs), (name, theirs)
        x = xgrad.zeros(2, dtype=getattr(xgrad, dtype))
        with pytest.raises(OverflowError, match="without overflow"):
            write(xgrad, x)
        assert (x.tolist(), x._version) == ([0, 0], 0)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1j])
def test_a_number_without_an_integer_is_refused(value):
    same_error(lambda T: T.zeros(2, dtype=T.int32).fill_(value), "without overflow")
    same_error(lambda T: T.zeros(2, dtype=T.int32).__setitem__(0, value), "without overflow")


# -- refusals ---------------------------------------------------------------------------------------------------------


def test_without_x64_a_wide_dtype_is_narrowed():
    narrow = jax.enable_x64(False) if hasattr(jax, "enable_x64") else jax.experimental.disable_x64()
    with narrow:
        x = xgrad.tensor([1.5, 2.0], dtype=xgrad.float32)
        casts = [x.double, x.long, x.cdouble, lambda: x.to(xgrad.float64), lambda: x.type(xgrad.int64)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = [
                cast().dtype for cast in [*casts, lambda: xgrad.float_power(x, 2), lambda: x.to("cpu", xgrad.float64)]
            ]
        assert found == [xgrad.float32, xgrad.int32, xgrad.complex64, xgrad.float32, xgrad.int32, *[xgrad.float32] * 2]
        assert x.to(int).dtype == xgrad.int32
        assert (x.int() + 2**20).dtype == xgrad.int32
        assert (x.int() / 2).dtype == (x * 1.5).dtype == xgrad.float32
        with pytest.raises(OverflowError, match="fit into int32"):
            x.int() + 2**40


ERRORS = {
    "Invalid device string": lambda T: T.ones(1).to("float64"),
    "takes at most|takes from": lambda T: T.ones(1).to("cpu", T.float64, False, True, 1),
    "unexpected keyword argument|invalid combination of arguments": lambda T: T.ones(1).to(other=T.ones(1)),
    "expected a dtype|invalid combination of arguments": lambda T: T.ones(1).to([1]),
    "only supports 0-dimension value tensor but got tensor with 1 dimensions": lambda T: T.ones(2).fill_(T.ones(1)),
    "expected a Tensor or a number|invalid combination of arguments": lambda T: T.ones(2).fill_("a"),
    "got NoneType|invalid combination of arguments": lambda T: T.ones(2).fill_(None),
    "a leaf Variable that requires grad": lambda T: leaf(T, 2).zero_(),
}


@pytest.mark.parametrize("match", ERRORS)
def test_errors(match):
    same_error(ERRORS[match], match)


def test_numbers_from_tensors():
    as_torch(
        lambda T: [
            int(T.tensor(-2.7)),
            float(T.tensor(3)),
            bool(T.tensor(0.5)),
            complex(T.tensor(2)),
            [5, 6][T.tensor(1)],
        ]
    )
    same_error(lambda T: float(T.tensor(1j)), "without overflow")
    same_error(lambda T: [1][T.tensor(0.0)], "only integer tensors of a single element")
    same(xgrad.tensor([1, 2]).float().numpy(), torch.tensor([1, 2]).float().numpy())


def test_python_types_are_dtypes_as_wide_as_pythons():
    def program(T):
        x = T.ones(2, dtype=T.float64)
        made = [x.to(kind) for kind in (float, int, bool, complex)] + [
            T.zeros(2, dtype=float),
            T.zeros(2, dtype=complex),
        ]
        made += [T.tensor([1.0]), T.tensor(1.0), T.tensor([1j]), T.tensor([]), T.scalar_tensor(1)]
        return [str(m.dtype).split(".")[-1] for m in made]

    assert program(xgrad) == program(torch)


TWICE = {
    "a dtype": (lambda T, x: x.to(T.float32, dtype=T.int32)),
    "another tensor's dtype": (lambda T, x: x.to(x, dtype=T.int32)),
    "another tensor's device": (lambda T, x: x.to(x, device="cpu")),
    "a device": (lambda T, x: x.to("cpu", device="cpu")),
    "a dtype after a device": (lambda T, x: x.to("cpu", T.float32, dtype=T.int32)),
    "no device, and a dtype": (lambda T, x: x.to(None, dtype=T.int32)),
    "a device, and a dtype": (lambda T, x: x.to("cpu", dtype=T.int32)),
}


@pytest.mark.parametrize("name", TWICE)
def test_what_is_given_twice_is_an_error(name):
    found = []
    for T in (torch, xgrad):
        try:
            found.append(str(TWICE[name](T, T.ones(1)).dtype).partition(".")[2])
        except TypeError:
            found.append("TypeError")
    assert found[1] == found[0]
