"""Names that users type: constants, finfo and iinfo, questions about dtypes and modes."""

import math

import numpy as np
import pytest
import torch

import xgrad
from tests.oracle import as_torch, outcome, same_error

FLOATS = (
    "float16 bfloat16 float32 float64 float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz complex64 complex128"
)
INTEGERS = "int8 int16 int32 int64 uint8 uint16 uint32 uint64"


def test_constants():
    assert (xgrad.inf, xgrad.pi, xgrad.e, xgrad.newaxis) == (torch.inf, torch.pi, torch.e, torch.newaxis)
    assert math.isnan(xgrad.nan)
    assert xgrad.ones(2, 3)[:, xgrad.newaxis].shape == (2, 1, 3)


@pytest.mark.parametrize("name", FLOATS.split())
def test_finfo(name):
    ours, theirs = xgrad.finfo(getattr(xgrad, name)), torch.finfo(getattr(torch, name))
    # torch says 0.125 for float8_e5m2fnuz, whose mantissa has two bits: the number after 1 is 1.25.
    attributes = ["bits", "min", "max", "tiny", "smallest_normal", "resolution", "dtype"]
    attributes += ["eps"] * (name != "float8_e5m2fnuz")
    for attribute in attributes:
        assert getattr(ours, attribute) == getattr(theirs, attribute), attribute
    assert (repr(ours) == repr(theirs)) == (name != "float8_e5m2fnuz")
    assert 1.0 + ours.eps == float(np.nextafter(ours._dtype.type(1), ours._dtype.type(2))) or ours._dtype.kind == "V"


@pytest.mark.parametrize("name", INTEGERS.split())
def test_iinfo(name):
    ours, theirs = xgrad.iinfo(getattr(xgrad, name)), torch.iinfo(getattr(torch, name))
    for attribute in ("bits", "min", "max", "dtype"):
        assert getattr(ours, attribute) == getattr(theirs, attribute), attribute


def test_finfo_of_the_default_dtype_and_of_float_and_by_name():
    as_torch(lambda T: [T.finfo().bits, T.finfo(float).bits, T.finfo(type=T.float16).bits, T.iinfo(type=T.int8).max])


def test_finfo_equality():
    def program(T):
        a, b = T.finfo(T.float32), T.finfo(T.complex64)
        return a == T.finfo(), a == b, a == T.finfo(T.float64), a != T.finfo(T.float64), a == 3, T.iinfo(T.int8) == a

    as_torch(program)


def test_finfo_and_iinfo_refuse_each_others_dtypes():
    same_error(
        lambda T: T.finfo(T.int32), r"requires a floating point input type. Use xgrad.iinfo to handle 'xgrad.int32'"
    )
    same_error(lambda T: T.iinfo(T.float32), r"requires an integer input type. Use xgrad.finfo")
    same_error(lambda T: T.iinfo(T.bool), "bool is not supported")
    same_error(lambda T: T.iinfo(), "missing 1 required positional argument")
    same_error(lambda T: T.finfo([1]), "must be a dtype")


@pytest.mark.parametrize(
    "name", ["bool", "uint8", "int32", "float16", "bfloat16", "float8_e5m2", "float32", "complex64"]
)
def test_questions_about_a_dtype_are_answered_by_functions(name):
    ours, theirs = getattr(xgrad, name), getattr(torch, name)
    x = xgrad.zeros(1, dtype=ours)
    for value in (x, ours):
        assert xgrad.is_floating_point(value) == theirs.is_floating_point
        assert xgrad.is_complex(value) == theirs.is_complex
        assert xgrad.is_signed(value) == theirs.is_signed
    assert (x.is_floating_point(), x.is_complex(), x.is_signed()) == (
        theirs.is_floating_point, theirs.is_complex, theirs.is_signed,
    )  # fmt: skip
    assert ours.itemsize == theirs.itemsize


def test_questions_about_something_else_are_type_errors():
    same_error(lambda T: T.is_floating_point(3), "must be Tensor or a dtype, not int")
    same_error(lambda T: T.is_complex(None), "must be Tensor")


def test_set_warn_always():
    def program(T):
        before = T.is_warn_always_enabled()
        T.set_warn_always(True)
        try:
            return before, T.is_warn_always_enabled()
        finally:
            T.set_warn_always(False)

    as_torch(program)
    same_error(lambda T: T.set_warn_always(1), "expects a bool, but got int")


def test_what_is_warned_of_once_is_warned_of_each_time_if_asked_for():
    def backward():
        x = xgrad.ones(1, requires_grad=True)
        (x * x).backward(create_graph=True)
        x.grad = None

    backward()
    xgrad.set_warn_always(True)
    try:
        for _ in range(2):
            with pytest.warns(UserWarning, match="create_graph=True"):
                backward()
    finally:
        xgrad.set_warn_always(False)


def test_questions_about_modes():
    def program(T):
        A = T.autograd
        found = [A.is_multithreading_enabled(), A.is_view_replay_enabled()]
        with A.set_multithreading_enabled(False):
            found.append(A.is_multithreading_enabled())
        with (
            T.autograd.grad_mode._force_original_view_tracking(True)
            if T is torch
            else A._force_original_view_tracking(True)
        ):
            found.append(A.is_view_replay_enabled())
        return [*found, A.is_multithreading_enabled(), A.is_view_replay_enabled()]

    as_torch(program)
    with xgrad.views.tracking("geometry"):
        assert not xgrad.autograd.is_view_replay_enabled()


def test_saved_tensor_is_the_class_of_raw_saved_values():
    def program(T):
        saved = T.ones(2, requires_grad=True).exp().grad_fn._raw_saved_result
        return isinstance(saved, T.autograd.SavedTensor), isinstance(T.ones(1), T.autograd.SavedTensor)

    as_torch(program)


def test_what_programs_ask_of_gpus_before_they_choose_a_device():
    def program(T):
        T.cuda.empty_cache()
        assert T.cuda.is_bf16_supported(including_emulation=False) == T.cuda.is_available()
        asked = T.cuda.is_available(), T.cuda.device_count(), T.cuda.memory_allocated(), T.cuda.max_memory_allocated()
        return asked, T.device("cuda" if T.cuda.is_available() else "cpu").type

    if not torch.cuda.is_available() and not xgrad.cuda.is_available():
        as_torch(program)
        for call in (
            lambda T: T.cuda.current_device(),
            lambda T: T.cuda.synchronize(),
            lambda T: T.cuda.get_device_name(),
        ):
            assert isinstance(outcome(call, torch), (RuntimeError, AssertionError))
            with pytest.raises(RuntimeError, match=r"JAX has no GPU.*is_available"):
                call(xgrad)
        with pytest.raises(ValueError, match="Expected a cuda device, but got: cpu"):
            xgrad.cuda.get_device_name("cpu")
    xgrad.cuda.manual_seed_all(3)
    first = xgrad.rand(2)
    xgrad.manual_seed(3)
    assert (xgrad.rand(2) == first).all()


def test_layouts_and_memory_formats_have_types():
    def program(T):
        return (
            isinstance(T.ones(1).layout, T.layout),
            isinstance(T.channels_last, T.memory_format),
            T.strided == T.ones(1).layout,
        )

    as_torch(program)
