"""100 steps of each optimizer, with each option on, are PyTorch's: parameters and states."""

import pytest
import torch

import xgrad

from .table import CASES, FIRST, same, told, trained


@pytest.mark.parametrize("case", FIRST, ids=told)
def test_a_hundred_steps_in_float32(case):
    same(trained(xgrad, case), trained(torch, case), 1e-5)


@pytest.mark.parametrize("case", CASES, ids=told)
@pytest.mark.one_in(8)
def test_a_hundred_steps_in_float64(case):
    same(trained(xgrad, case, dtype="float64"), trained(torch, case, dtype="float64"), 1e-10)


@pytest.mark.parametrize("case", CASES, ids=told)
@pytest.mark.one_in(20)
def test_a_few_steps_in_float32(case):
    same(trained(xgrad, case, 10), trained(torch, case, 10), 1e-5)


@pytest.mark.parametrize(
    "options", [{"lr": 0.1}, {"lr": 0.1, "nesterov": False}, {"lr": 0.1, "adjust_lr_fn": "match_rms_adamw"}], ids=str
)
def test_muon_until_its_bfloat16_rounds_otherwise(options):
    case, shapes = ("Muon", options), ((4, 3), (3, 4))
    same(trained(xgrad, case, 10, shapes=shapes), trained(torch, case, 10, shapes=shapes), 1e-5)


@pytest.mark.parametrize("case", [case for case in FIRST if case[0] != "Adafactor"], ids=told)
@pytest.mark.one_in(4)
def test_complex_parameters_are_pairs_of_real_ones(case):
    same(trained(xgrad, case, 10, "complex64"), trained(torch, case, 10, "complex64"), 1e-5)


@pytest.mark.parametrize("case", FIRST, ids=told)
@pytest.mark.one_in(4)
def test_half_precision_is_pytorchs_up_to_its_rounding(case):
    ours, optimizer = trained(xgrad, case, 10, "bfloat16")
    theirs, _ = trained(torch, case, 10, "bfloat16")
    for p, q in zip(ours, theirs):
        assert p.dtype == xgrad.bfloat16
        assert abs(p.float().detach().numpy() - q.float().detach().numpy()).max() < 0.1
        assert all(s.dtype in (xgrad.bfloat16, xgrad.float32) for s in optimizer.state[p].values())
