"""The call path: what is recorded, what is saved, what compiles, and the forms that one declaration gives."""

import contextlib
import itertools

import jax
import numpy as np
import pytest
import torch

import xgrad
from xgrad.dispatch.operator import Operator
from xgrad.dispatch.tables import OPERATORS
from xgrad.tensor import from_array
from xgrad.views.program import scalar_of

FRESH = itertools.count(2**30)  # starts that no view has


@contextlib.contextmanager
def compilations():
    """Counts the programs that XLA compiles in the block."""
    seen = []
    enabled = [True]

    def listener(event, duration, **_):
        if enabled[0] and event.endswith("backend_compile_duration"):
            seen.append(event)

    scalar_of(next(FRESH))  # the program that makes starts is compiled, also after another test's jax.clear_caches()
    jax.monitoring.register_event_duration_secs_listener(listener)
    try:
        yield seen
    finally:
        enabled[0] = False


def leaf(shape=(2, 3), seed=0):
    return xgrad.tensor(np.random.RandomState(seed).randn(*shape), requires_grad=True)


def test_node_has_pytorchs_name_edges_and_saved_attributes():
    a, b = leaf(), leaf(seed=1)
    node = (a * b).grad_fn
    assert node.name() == "MulBackward0"
    assert [n.name() for n, _ in node.next_functions] == ["torch::autograd::AccumulateGrad"] * 2
    assert node._saved_self is a
    assert node._saved_other is b
    assert (a + b).grad_fn.name() == "AddBackward0"


def test_only_what_a_wanted_gradient_names_is_saved():
    a, c = leaf(), leaf(seed=1).detach()
    node = (a * c).grad_fn
    assert node._saved_self is None
    assert node._saved_other is c
    assert (a + c).grad_fn.saved == ()


def test_unknown_saved_attribute_is_an_attribute_error():
    with pytest.raises(AttributeError, match="_saved_nothing"):
        _ = (leaf() * 2).grad_fn._saved_nothing


def test_result_is_saved_without_a_cycle_to_its_node():
    y = leaf().tanh()
    saved = y.grad_fn._saved_result
    assert saved is not y
    assert saved.grad_fn is y.grad_fn
    assert np.array_equal(saved.detach().numpy(), y.detach().numpy())


def test_same_call_compiles_once_and_python_numbers_never_recompile():
    a = leaf()
    for _ in range(2):  # the second one adds to the first one's gradient
        (a * 2.0).sum().backward()
    with compilations() as seen:
        for k in range(5):
            (a * (3.5 + k)).sum().backward()
    assert seen == []


def test_buffer_loop_compiles_each_program_once():
    """Starts are operands: writing, reading and differentiating at a thousand places compiles once."""
    x = leaf((4,))

    def loop(n):
        buf = xgrad.zeros(1000, 4, dtype=xgrad.float64)
        total = 0.0
        for i in range(n):
            buf[i] = x * 2
            total = total + buf[i].sum()
        total.backward()

    loop(3)
    loop(3)  # which adds to the gradient that is there
    with compilations() as seen:
        loop(40)
    assert seen == []


def test_view_dispatches_nothing_until_it_is_read():
    x = leaf((6, 5)).clone()
    x.block_until_ready()
    with compilations() as seen:
        v = x.transpose(0, 1)[3].narrow(0, 1, 2).unsqueeze(0)
        assert v.shape == (1, 2)
    assert seen == []


def test_unwanted_gradient_is_never_computed():
    ran = []
    op = Operator("probe_mask", lambda self, other: self * other)
    op.derivative(self=lambda grad, other: grad * other, other=lambda grad, self: ran.append(1) or grad * self)
    a, b = leaf(), leaf(seed=1)
    from xgrad.dispatch.call import call

    y = call(op, (a, b), ())
    xgrad.autograd.grad(y.sum(), a, retain_graph=True)
    assert ran == []
    xgrad.autograd.grad(y.sum(), b)
    assert ran


def test_derived_backward_equals_the_written_one():
    from xgrad.dispatch.call import call

    derived = Operator("probe_derived", lambda self, other: jax.numpy.tanh(self) * other)
    a, b = leaf(), leaf((3,), seed=1)
    grads = xgrad.autograd.grad(call(derived, (a, b), ()).sum(), (a, b), create_graph=True)
    want = xgrad.autograd.grad((a.tanh() * b).sum(), (a, b), create_graph=True)
    for g, w in zip(grads, want, strict=True):
        np.testing.assert_allclose(g.detach().numpy(), w.detach().numpy(), rtol=1e-12)
    second = xgrad.autograd.grad(grads[0].sum(), (a, b))
    wanted = xgrad.autograd.grad(want[0].sum(), (a, b))
    for g, w in zip(second, wanted, strict=True):
        np.testing.assert_allclose(g.numpy(), w.numpy(), rtol=1e-12)


def test_broadcast_arguments_get_gradients_of_their_own_shape():
    a, b = leaf((2, 3)), leaf((3, 1, 3), seed=1)
    ta, tb = (torch.tensor(x.detach().numpy().copy(), requires_grad=True) for x in (a, b))
    for _ in range(2):  # the engine fits the first one, the program itself the second
        got = xgrad.autograd.grad((a * b).sum(), (a, b))
        want = torch.autograd.grad((ta * tb).sum(), (ta, tb))
        for g, w in zip(got, want, strict=True):
            assert tuple(g.shape) == tuple(w.shape)
            np.testing.assert_allclose(g.numpy(), w.numpy(), rtol=1e-12)


def test_cast_to_integers_is_not_recorded():
    assert not leaf().to(xgrad.int64).requires_grad
    assert leaf().to(xgrad.float32).requires_grad


def test_gradient_returns_in_the_dtype_of_its_argument():
    a = xgrad.tensor([1.0, 2.0], dtype=xgrad.float32, requires_grad=True)
    b = xgrad.tensor([3.0, 4.0], dtype=xgrad.float64, requires_grad=True)
    (a * b).sum().backward()
    assert (a.grad.dtype, b.grad.dtype) == (xgrad.float32, xgrad.float64)


def test_out_takes_the_result_and_refuses_what_requires_grad():
    a, b = leaf().detach(), leaf(seed=1).detach()
    out = xgrad.empty(2, 3, dtype=xgrad.float64)
    assert xgrad.mul(a, b, out=out) is out
    np.testing.assert_array_equal(out.numpy(), a.numpy() * b.numpy())
    with pytest.raises(RuntimeError, match="don't support automatic differentiation"):
        xgrad.mul(leaf(), b, out=out)
    integers = xgrad.zeros(2, 3, dtype=xgrad.int64)
    with pytest.raises(RuntimeError, match="can't be cast to the desired output type"):
        xgrad.mul(a, b, out=integers)
    assert not integers.any()


def test_out_of_another_shape_is_resized_with_a_warning():
    out = xgrad.zeros(5, dtype=xgrad.float64)
    with pytest.warns(UserWarning, match="was resized"):
        xgrad.mul(leaf().detach(), 2, out=out)
    assert out.shape == (2, 3)


def test_inplace_refuses_another_shape_or_category_and_changes_nothing():
    a = xgrad.ones(2, dtype=xgrad.int64)
    with pytest.raises(RuntimeError, match="can't be cast"):
        a.mul_(1.5)
    with pytest.raises(RuntimeError, match="doesn't match the broadcast shape"):
        a.add_(xgrad.ones(3, 2, dtype=xgrad.int64))
    assert a.tolist() == [1, 1]
    assert a._version == 0


def test_wrong_operand_is_a_type_error_and_foreign_objects_are_asked():
    class Other:
        def __rmul__(self, left):
            return "asked"

    assert leaf() * Other() == "asked"
    with pytest.raises(TypeError):
        leaf() + "text"
    assert (leaf() == None) is False  # noqa: E711 - the comparison itself is tested


def test_mismatched_shapes_name_both_sizes():
    with pytest.raises(RuntimeError, match=r"size of tensor a \(3\) must match the size of tensor b \(4\)"):
        leaf((2, 3)) * leaf((2, 4))


def test_forward_mode_is_the_derivative_of_the_function():
    x = leaf()
    tangent = leaf(seed=3).detach()
    import xgrad.autograd.forward_ad as fwAD

    with fwAD.dual_level():
        y = fwAD.make_dual(x, tangent).tanh() * 3
        got = fwAD.unpack_dual(y).tangent
    want = 3 * (1 - np.tanh(x.detach().numpy()) ** 2) * tangent.numpy()
    np.testing.assert_allclose(got.detach().numpy(), want, rtol=1e-12)
    assert got.requires_grad  # forward over reverse


def test_tangents_of_an_ended_level_are_gone():
    import xgrad.autograd.forward_ad as fwAD

    with fwAD.dual_level():
        dual = fwAD.make_dual(leaf(), leaf(seed=1).detach())
    with fwAD.dual_level():
        assert fwAD.unpack_dual(dual).tangent is None


@pytest.mark.exhaustive
def test_operators_work_inside_jax_transformations():
    def f(array):
        x = from_array(array)
        x.requires_grad_()
        b = x.clone()
        b[0].mul_(3.0)
        (b * b).sum().backward()
        return x.grad._read()

    array = jax.numpy.arange(6.0).reshape(2, 3)
    want = np.array([[18.0], [2.0]]) * np.asarray(array)
    np.testing.assert_allclose(jax.jit(f)(array), want)
    np.testing.assert_allclose(jax.vmap(f)(array[None]), want[None])


def test_every_operator_lists_its_arguments():
    for name, op in OPERATORS.items():
        assert op.parameters or op.variadic or op.static_names, name


def test_result_that_has_no_gradient_does_not_switch_others_off():
    value = xgrad.tensor(2.0, requires_grad=True)
    assert not xgrad.fill(xgrad.zeros(2, dtype=xgrad.int32), value).requires_grad
    out = xgrad.fill(xgrad.zeros(2), value)
    out.sum().backward()
    assert value.grad.item() == 2
    xgrad.zeros(2).fill_(value).sum().backward()
    assert value.grad.item() == 4
    assert not xgrad.fill(xgrad.zeros(2, dtype=xgrad.int32), value).requires_grad


@pytest.mark.parametrize("T", [xgrad, torch], ids=["xgrad", "torch"])
def test_integers_that_are_written_by_a_float_need_no_gradient(T):
    x = T.zeros(3, dtype=T.int32)
    x.copy_(T.ones(3, requires_grad=True))
    assert not x.requires_grad
    assert x.grad_fn is None


@pytest.mark.exhaustive
def test_wrong_static_argument_leaves_an_equal_right_one_alone():
    x = leaf((3, 5))
    for wrong, right in ((1.0, 1), (False, 0)):
        for name in ("amax", "logsumexp", "mean"):
            method = getattr(x, name)
            if not isinstance(wrong, bool):
                with pytest.raises(TypeError):
                    method(wrong)
            np.testing.assert_array_equal(method(right).detach().numpy(), getattr(x.detach(), name)(right - 2).numpy())


def test_kernels_of_an_operator_are_bounded():
    op = Operator("counted", lambda self, *, k: self + k)
    from xgrad.dispatch.kernel import MOST_KERNELS, kernel_of

    op.static_names = ("k",)
    for k in range(MOST_KERNELS + 10):
        kernel_of(op, (k,))
    assert len(op.kernels) == MOST_KERNELS
    assert (MOST_KERNELS + 9,) in op.kernels
    assert (0,) not in op.kernels


def test_inplace_operation_leaves_a_tensor_without_aliases_on_the_fast_path():
    x = leaf()
    with xgrad.no_grad():
        x.add_(1)
    assert x._storage is None  # which would cost every later read a look at its chain
    assert x._version == 1


@pytest.mark.one_in(5)
@pytest.mark.parametrize("inplace", [False, True])
@pytest.mark.parametrize(
    "line",
    [
        *(f"x.{name}{{0}}({value})" for name in ("pow", "remainder", "fmod", "copysign", "xlogy")
          for value in ("2", "0.5", "y", "z")),
        *(f"x.{name}{{0}}({value})" for name in ("clamp_min", "clamp_max", "clip") for value in ("0.5", "y", "z")),
        "x.clamp{0}(0.1, 0.9)", "x.clamp{0}(None, 0.9)", "x.clamp{0}(y, None)", "x.clamp{0}(y, z)",
        "x.lerp{0}(y, 0.5)", "x.lerp{0}(y, z)", "x.masked_fill{0}(x > 1, 0.5)", "x.masked_fill{0}(x > 1, z[0])",
        "x.index_fill{0}(0, T.tensor([0]), 0.5)", "x.index_fill{0}(0, T.tensor([0]), z[0])",
        "x.float_power(2)", "x.float_power(z)", "2 ** x", "y ** x", "x % 2", "x % y", "T.xlogy(2, x)",
    ],
)  # fmt: skip
def test_nodes_name_tells_numbers_from_tensors(line, inplace):
    def name(T):
        x, y, z = T.ones(2, requires_grad=True), T.ones(2), T.ones(2, requires_grad=True)
        x = x * 1  # which may be written
        return type(eval(line.format("_" if inplace else ""), {"T": T, "x": x, "y": y, "z": z}).grad_fn).__name__

    assert name(xgrad) == name(torch)
