"""Dtypes that a chip stores, casts and moves, and does not compute in."""

import numpy as np
import pytest

import xgrad
from xgrad.errors import BackendError

CHIP = xgrad.Backend("npu", stores=["int8", "float8_e4m3fn"], fallback="error")
MODES = ["eager", "lazy"]
INT8 = xgrad.tensor([[1, -2, 3], [4, 5, -6]], dtype=xgrad.int8)


@pytest.mark.parametrize("execution", MODES)
def test_weights_are_stored_as_int8_and_computed_with_as_float32(execution):
    chip = CHIP.replace(execution=execution)
    with chip.report() as report:
        weight = INT8.to(chip)
        x = xgrad.ones(3, device=chip, requires_grad=True)
        y = (weight.to(xgrad.float32) * 0.5) @ x
        y.sum().backward()
        quantized = (y / 0.5).round().to(xgrad.int8)
    assert quantized.tolist() == [2, 3]
    assert x.grad.tolist() == [2.5, 1.5, -1.5]
    assert report.as_dict()["fallbacks"] == []
    assert weight.cpu().nbytes == 6


@pytest.mark.parametrize("execution", MODES)
def test_what_moves_numbers_runs_on_the_chip(execution):
    chip = CHIP.replace(execution=execution)
    with chip.report() as report:
        w = INT8.to(chip)
        cache = xgrad.zeros(4, 3, dtype=xgrad.int8, device=chip)
        cache[1:3] = w
        cache[0].copy_(w[1, [2, 1, 0]])
        cache[3].fill_(7)
        rows = xgrad.cat([cache.t().clone().t(), xgrad.stack([w[0], w[1]])])
        found = rows.index_select(0, xgrad.tensor([0, 1, 3, 5], device=chip)).tolist()
    assert found == [[-6, 5, 4], [1, -2, 3], [7, 7, 7], [4, 5, -6]]
    assert report.as_dict()["fallbacks"] == []


@pytest.mark.parametrize(
    "compute",
    [lambda w: w + 1, lambda w: w[0].add_(1), lambda w: w.sum(), lambda w: w == w, lambda w: w * 0.5],
)
def test_computing_with_it_is_refused_or_the_hosts(compute):
    w = INT8.to(CHIP)
    with pytest.raises(BackendError, match=r"lacks the dtype int8, and which it stores only .*at test_stores"):
        compute(w)
    assert w.tolist() == INT8.tolist()
    falling = CHIP.replace(fallback="host")
    with falling.report() as report:
        ours = compute(INT8.to(falling))
    assert ours.tolist() == compute(INT8.clone()).tolist()
    assert [fallback["count"] for fallback in report.as_dict()["fallbacks"]] == [1]


def test_a_gradient_in_a_dtype_that_is_stored_is_cast_and_not_added():
    z = xgrad.tensor([0.3, 2.0], device=CHIP, requires_grad=True)
    z.to(xgrad.float8_e4m3fn).to(xgrad.float32).sum().backward()
    assert z.grad.tolist() == [1, 1]
    x = xgrad.tensor([0.5, 2.0]).to(xgrad.float8_e4m3fn).to(CHIP).requires_grad_()
    (x.to(xgrad.float32) ** 2).sum().backward()
    assert x.grad.to(xgrad.float32).tolist() == [1, 4]
    with pytest.raises(BackendError, match="float8_e4m3fn"):
        (x.to(xgrad.float32) ** 2).sum().backward()
    assert x.grad.to(xgrad.float32).tolist() == [1, 4]


@pytest.mark.parametrize("fallback", ["host", "error"])
def test_a_dtype_that_is_neither_cannot_be_on_the_chip(fallback):
    chip = CHIP.replace(dtypes=["float32", "int64", "int32", "bool"], fallback=fallback)
    words = r"(cannot be on the backend 'npu'|backend 'npu', which) lacks the dtype float16"
    for made in (
        lambda: xgrad.ones(2, dtype=xgrad.float16).to(chip),
        lambda: xgrad.ones(2, device=chip).to(xgrad.float16),
        lambda: xgrad.zeros(2, dtype=xgrad.float16, device=chip),
    ):
        with pytest.raises(BackendError, match=words.replace(" lacks", ",? ?(which )?lacks")):
            made()
    assert xgrad.ones(2, device=chip).to(xgrad.int8).tolist() == [1, 1]


def test_what_is_not_declared_is_stored_by_a_chip_that_falls_back():
    chip = xgrad.Backend("npu", dtypes=["float32"])
    assert INT8.to(chip).tolist() == INT8.tolist()
    with pytest.raises(BackendError, match=r"or declare stores=\['int8'\]"):
        INT8.to(chip.replace(fallback="error"))
    with pytest.raises(TypeError, match="stores has 'int9', which is not a dtype"):
        chip.replace(stores=["int9"])
    assert np.dtype("int8") in chip.replace(stores=["int8"])._runtime.stores
