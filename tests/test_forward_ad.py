"""Forward mode: what carries a tangent, and what does not."""

import pytest
import torch
import torch.autograd.forward_ad as torch_fw

import xgrad
import xgrad.autograd.forward_ad as xgrad_fw

from .oracle import as_torch, data, leaf, same_error

# torch compiles its own forward-mode rules when the first level is entered.
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")

FW = {xgrad: xgrad_fw, torch: torch_fw}


def tangents(T, program):
    """The tangents of what `program(dual)` returns, -1 for one without."""
    fw = FW[T]
    with fw.dual_level():
        dual = fw.make_dual(data(T, (3,)), data(T, (3,), 1))
        found = [fw.unpack_dual(out).tangent for out in program(dual)]
    return [-1 if t is None else t for t in found]


def test_detach_drops_the_tangent():
    def program(dual):
        dropped = dual * 1
        dropped.detach_()
        return [dual.detach() * dual, dual.detach(), dropped, dropped * dual, dual * dual, dual[1:].detach()]

    as_torch(lambda T: tangents(T, program))


def test_outside_of_a_level_nothing_has_a_tangent():
    def program(T):
        fw = FW[T]
        x = leaf(T, 3)
        with fw.dual_level():
            dual = fw.make_dual(x, data(T, (3,), 1))
        primal, tangent = fw.unpack_dual(dual)
        return [tangent, primal.detach()]

    as_torch(program)
    same_error(lambda T: FW[T].make_dual(data(T, (3,)), data(T, (3,))), "dual level|level")


def test_names_of_duals():
    def program(T):
        fw = FW[T]
        x = leaf(T, 3)
        with fw.dual_level():
            dual = fw.make_dual(x, data(T, (3,)))
            return [dual.grad_fn.name(), dual._base is x, fw.unpack_dual(dual).primal._base is x]

    as_torch(program)


@pytest.mark.parametrize("enabled", [True, False])
def test_tangents_can_be_switched_off(enabled):
    def program(T):
        fw = FW[T]
        with fw.dual_level():
            dual = fw.make_dual(data(T, (3,)), data(T, (3,), 1))
            with fw._set_fwd_grad_enabled(enabled):
                out = dual * dual
            return [fw.unpack_dual(out).tangent, fw.unpack_dual(dual * 2).tangent]

    as_torch(program)


def test_tangent_of_as_strided_of_a_view():
    def program(T):
        fw = FW[T]
        with fw.dual_level():
            dual = fw.make_dual(data(T, (3, 4)), data(T, (3, 4), 1))
            views = [dual.as_strided((2,), (5,), 1), dual[1:].as_strided((2,), (5,), 1)]
            views.append(dual[1:].t().as_strided((2, 2), (1, 4), 5))
            views[1].mul_(2)  # shows in the tangents of all
            return [fw.unpack_dual(v).tangent for v in [*views, dual]]

    as_torch(program)


def test_as_strided_of_a_dual_whose_tangent_is_laid_out_otherwise_is_refused():
    with xgrad_fw.dual_level():
        dual = xgrad_fw.make_dual(data(xgrad, (3, 4))[1:], data(xgrad, (2, 4), 1))
        with pytest.raises(RuntimeError, match="tangent is laid out in another way"):
            dual.as_strided((2,), (1,), 4)
