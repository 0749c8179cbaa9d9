"""autocast: gradients, casts of weights, nesting, and what else is entered within a block."""

import gc
import threading
import weakref

import jax
import numpy as np
import pytest
import torch

import xgrad
from tests.oracle import same
from xgrad.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

BF16 = xgrad.bfloat16


def numbers(T, *shape, seed=0, requires_grad=False):
    x = T.from_numpy(np.random.default_rng(seed).uniform(-1, 1, shape).astype(np.float32))
    return x.requires_grad_() if requires_grad else x


def step(T):
    """A small network under autocast: what is computed, in which dtypes, and the gradients."""
    F = T.nn.functional
    x, target = numbers(T, 4, 3), T.tensor([0, 1, 1, 0])
    weights = [numbers(T, 5, 3, seed=1, requires_grad=True), numbers(T, 2, 5, seed=2, requires_grad=True)]
    bias = numbers(T, 5, seed=3, requires_grad=True)
    with T.autocast("cpu"):
        hidden = F.gelu(F.linear(x, weights[0], bias))
        hidden = F.layer_norm(hidden, (5,)) + hidden @ weights[1].t() @ weights[1]
        logits = F.linear(hidden, weights[1])
        loss = F.cross_entropy(logits, target)
    loss.backward()
    return [str(t.dtype).rpartition(".")[2] for t in (hidden, logits, loss)], loss, [
        w.grad for w in (*weights, bias)
    ]  # fmt: skip


@pytest.mark.exhaustive
def test_a_training_step_is_that_of_torch():
    ours, theirs = step(xgrad), step(torch)
    assert ours[0] == theirs[0] == ["bfloat16", "bfloat16", "float32"]
    same(ours[1:], theirs[1:], rtol=0.05, atol=0.02)


def test_a_float32_weight_gets_a_float32_gradient_through_the_cast():
    x, w = xgrad.ones(2, 2), xgrad.ones(2, 2, requires_grad=True)
    with xgrad.autocast("cpu"):
        y = x @ w
    assert y.dtype == BF16
    assert y.grad_fn.next_functions[1][0].name() == "ToCopyBackward0"
    y.sum().backward()
    assert w.grad.dtype == xgrad.float32


def edge_of(y):
    return y.grad_fn.next_functions[1][0]


def test_a_weight_is_cast_once_in_the_outermost_block():
    x, w = xgrad.ones(2, 2), xgrad.ones(2, 2, requires_grad=True)
    with xgrad.autocast("cpu"):
        first = x @ w
        with xgrad.autocast("cpu", enabled=False):
            assert (x @ w).dtype == xgrad.float32
        with xgrad.autocast("cpu"):
            second = x @ w
        third = x @ w
        xgrad.clear_autocast_cache()
        fourth = x @ w
    with xgrad.autocast("cpu", cache_enabled=False):
        apart = [edge_of(x @ w), edge_of(x @ w)]
        assert not xgrad.is_autocast_cache_enabled()
    assert edge_of(first) is edge_of(second) is edge_of(third)
    assert edge_of(fourth) is not edge_of(first)
    assert apart[0] is not apart[1]
    assert xgrad.is_autocast_cache_enabled()


def test_casts_of_weights_end_with_the_block():
    x, w = xgrad.ones(2, 2), xgrad.ones(2, 2, requires_grad=True)
    gc.disable()
    try:
        with xgrad.autocast("cpu"):
            cast = weakref.ref(edge_of(x @ w))
            assert cast() is not None
        assert cast() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("how", ["no_grad", "data", "set_data", "alias"])
def test_a_weight_that_is_written_in_the_block_is_cast_again(how):
    """PyTorch goes on with the old cast."""
    x, w = xgrad.ones(2, 2), xgrad.ones(2, 2, requires_grad=True)
    alias = w.detach()
    with xgrad.autocast("cpu"):
        x @ w
        if how == "no_grad":
            with xgrad.no_grad():
                w.mul_(3)
        elif how == "data":
            w.data.mul_(3)
        elif how == "alias":
            alias.mul_(3)
        else:
            w.data = xgrad.full((2, 2), 3.0)
        y = x @ w
        assert y[0, 0].item() == 6
    y.sum().backward()
    assert w.grad[0, 0].item() == 2


def test_a_cast_made_without_grad_does_not_cut_off_the_weight():
    x, w = xgrad.ones(2, 2), xgrad.ones(2, 2, requires_grad=True)
    with xgrad.autocast("cpu"):
        with xgrad.no_grad():
            assert not (x @ w).requires_grad
        with xgrad.inference_mode():
            assert (x @ w).is_inference()
        (x @ w).sum().backward()
    assert w.grad[0, 0].item() == 2


def test_blocks_nest_with_other_dtypes_and_end_by_errors_too():
    x, w = xgrad.ones(2, 2), xgrad.ones(2, 2, requires_grad=True)
    block = xgrad.autocast("cpu")
    with block:
        assert (x @ w).dtype == BF16
        with xgrad.autocast("cpu", dtype=xgrad.float16):
            assert (x @ w).dtype == xgrad.float16  # PyTorch takes the cast to bfloat16
            assert xgrad.get_autocast_dtype("cpu") == xgrad.float16
        with pytest.raises(ZeroDivisionError), block, xgrad.autocast("cpu", enabled=False):
            1 / xgrad.is_autocast_enabled("cpu")
        assert (x @ w).dtype == BF16
    assert (x @ w).dtype == xgrad.float32
    assert xgrad.config.state.autocast is None


def test_it_decorates_functions():
    @xgrad.autocast("cpu")
    def power(x, n):
        return x @ x if n == 1 else power(x @ x, n - 1)

    assert power.__name__ == "power"
    assert power(xgrad.ones(2, 2), 3).dtype == BF16
    assert not xgrad.is_autocast_enabled("cpu")
    with pytest.raises(TypeError, match="requires a callable, but got int"):
        xgrad.autocast("cpu")(3)


def test_it_belongs_to_its_thread():
    found = []

    def look():
        found.append((xgrad.is_autocast_enabled("cpu"), (xgrad.ones(1, 1) @ xgrad.ones(1, 1)).dtype))

    with xgrad.autocast("cpu"):
        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
    assert found == [(False, xgrad.float32)]


def test_float64_integers_in_place_and_out_are_not_touched():
    x = xgrad.ones(2, 2)
    with xgrad.autocast("cpu"):
        assert (x.double() @ x.double()).dtype == xgrad.float64
        assert x.clone().addmm_(x, x).dtype == xgrad.float32
        assert xgrad.mm(x, x, out=xgrad.empty(2, 2)).dtype == xgrad.float32
        half = xgrad.ones(2, 2, dtype=BF16)
        with pytest.raises(RuntimeError, match="dtype"):
            xgrad.mm(x, half, out=xgrad.empty(2, 2))
        assert x.mul_(half).dtype == xgrad.float32
        with pytest.raises(RuntimeError, match="Unexpected floating ScalarType in autocast: stack"):
            xgrad.stack([half, x.half()])


def test_transformations_run_in_it():
    x, w = xgrad.ones(2, 2), xgrad.ones(2, 2, requires_grad=True)
    with xgrad.autocast("cpu"):
        assert xgrad.vmap(lambda row: row @ w)(x).dtype == BF16
        assert xgrad.func.grad(lambda w: (x @ w).sum())(w).dtype == xgrad.float32
        value, tangent = xgrad.func.jvp(lambda w: x @ w, (x,), (x,))
        assert (value.dtype, tangent.dtype) == (BF16, BF16)
        with xgrad.autograd.forward_ad.dual_level():
            dual = xgrad.autograd.forward_ad.make_dual(x, x)
            assert xgrad.autograd.forward_ad.unpack_dual(dual @ w).tangent.dtype == BF16
        traced = jax.jit(lambda a: (a @ w)._read())(x)
        assert traced.dtype == BF16
        assert (x @ w)._read().dtype == BF16  # no tracer was kept


def test_a_subclass_is_asked_before_anything_is_cast():
    seen = []

    class Logged(xgrad.Tensor):
        @classmethod
        def __xgrad_function__(cls, func, types, args=(), kwargs=None):
            seen.append((func.__name__, xgrad.is_autocast_enabled("cpu")))
            return super().__xgrad_function__(func, types, args, kwargs)

    x = xgrad.ones(2, 2).as_subclass(Logged)
    with xgrad.autocast("cpu"):
        y = xgrad.mm(x, x)
    assert seen == [("mm", True)]
    assert y.dtype == BF16
    assert type(y) is Logged


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_checkpoint_recomputes_under_the_autocast_of_its_first_run(reentrant):
    def run(use):
        w, x = numbers(xgrad, 3, 3, requires_grad=True), numbers(xgrad, 3, 3, seed=1, requires_grad=True)
        seen = []

        def block(x):
            seen.append(xgrad.is_autocast_enabled("cpu"))
            return (x @ w).exp() @ w

        with xgrad.autocast("cpu"):
            first = x @ w
            y = use(block, first)
        y.float().sum().backward()
        return seen, x.grad, w.grad

    kept = run(lambda f, x: f(x))
    again = run(lambda f, x: checkpoint(f, x, use_reentrant=reentrant))
    assert again[0] == [True, True]
    same(again[1:], kept[1:], rtol=0.05, atol=0.05)
    assert again[1].dtype == again[2].dtype == xgrad.float32


def test_selective_checkpoints_see_the_same_operators_twice():
    x, w = xgrad.ones(2, 2, requires_grad=True), xgrad.ones(2, 2, requires_grad=True)

    def policy(ctx, op, *args, **kwargs):
        return True

    with xgrad.autocast("cpu"):
        first = x @ w  # casts w outside of the checkpoint
        y = checkpoint(
            lambda a: (a @ w).sin() @ w, first, use_reentrant=False,
            context_fn=lambda: create_selective_checkpoint_contexts(policy),
        )  # fmt: skip
    y.sum().backward()
    assert w.grad.dtype == xgrad.float32


def test_a_compiled_function_depends_on_it():
    w = xgrad.ones(2, 2, requires_grad=True)
    x = xgrad.ones(2, 2)

    @xgrad.compile
    def product(x):
        return x @ w

    @xgrad.compile
    def inside(x):
        with xgrad.autocast("cpu"):
            y = x @ w @ w
        y.sum().backward()
        return y

    assert product(x).dtype == xgrad.float32
    with xgrad.autocast("cpu"):
        eager = x @ w
        assert product(x).dtype == BF16
        with xgrad.no_grad():
            w.mul_(2)
        assert product(x)[0, 0].item() == 4
        assert (x @ w)[0, 0].item() == 4
        with xgrad.autocast("cpu", dtype=xgrad.float16):
            assert product(x).dtype == xgrad.float16
    del eager
    assert product(x).dtype == xgrad.float32
    assert "autocast" in product.metrics().reasons[0]
    assert inside(x).dtype == BF16
    assert w.grad.dtype == xgrad.float32
    w.grad = None
    assert inside(x)[0, 0].item() == 16
    assert inside.metrics().traces == 1


def test_compiled_backward_gives_the_eager_gradients():
    def run(compiled):
        w, x = numbers(xgrad, 3, 3, requires_grad=True), numbers(xgrad, 3, 3, seed=1)
        with xgrad.autocast("cpu"):
            loss = xgrad.nn.functional.mse_loss((x @ w).exp() @ w, x)
            loss.backward(compiled=compiled)
        return w.grad

    same(run(True), run(False), rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("cast", [True, False])
def test_custom_functions_say_how_they_run(cast):
    def run(T):
        seen = []

        class Product(T.autograd.Function):
            @staticmethod
            @T.amp.custom_fwd(device_type="cpu", cast_inputs=T.float32 if cast else None)
            def forward(ctx, x, w):
                ctx.save_for_backward(x, w)
                seen.append((T.is_autocast_enabled("cpu"), str(x.dtype)[-7:]))
                return x @ w

            @staticmethod
            @T.amp.custom_bwd(device_type="cpu")
            def backward(ctx, grad):
                x, w = ctx.saved_tensors
                seen.append((T.is_autocast_enabled("cpu"), str(grad.dtype)[-7:]))
                return grad @ w.t(), x.t() @ grad

        x, w = T.ones(2, 2, requires_grad=True), T.ones(2, 2, requires_grad=True)
        with T.autocast("cpu"):
            y = Product.apply(x.bfloat16(), w)
        y.sum().backward()
        seen.append((str(y.dtype)[-7:], str(x.grad.dtype)[-7:]))
        Product.apply(x, w).sum().backward()
        with pytest.raises(ValueError, match="`device_type` of type `str`"):
            T.amp.custom_fwd(device_type=3)
        return seen, x.grad, w.grad

    ours, theirs = run(xgrad), run(torch)
    assert ours[0] == theirs[0]
    same(ours[1:], theirs[1:])


def test_wrong_arguments_are_refused():
    with pytest.raises(RuntimeError, match=r"Expected one of .* as device type, but got 'toaster'"):
        xgrad.autocast("toaster")
    with pytest.raises(RuntimeError, match="unsupported autocast device_type 'mps'"):
        xgrad.autocast("mps")
    with pytest.raises(ValueError, match="Expected `device_type` of type `str`"):
        xgrad.autocast(xgrad.float16)
    with pytest.raises(TypeError, match="floating-point dtype, not int32"):
        xgrad.autocast("cpu", dtype=xgrad.int32)
    with pytest.raises(TypeError, match=r"argument 'enabled' \(position 2\) must be bool, not int"):
        xgrad.set_autocast_enabled("cpu", 1)
    with pytest.warns(UserWarning, match="In CPU autocast, but the target dtype float32 is not supported"):
        block = xgrad.autocast("cpu", dtype=xgrad.float32)
    with block:
        assert not xgrad.is_autocast_enabled("cpu")
    if jax.default_backend() == "cpu":
        with pytest.warns(UserWarning, match="no device of type 'cuda'. Disabling autocast"):
            xgrad.autocast("cuda")
        with xgrad.autocast("xla"):  # what JAX runs on
            assert xgrad.is_autocast_enabled("cpu")


def test_the_settings_are_torchs():
    def run(T):
        found = [T.is_autocast_enabled(), T.is_autocast_enabled("cpu"), T.is_autocast_cache_enabled()]
        found += [T.amp.is_autocast_available(kind) for kind in ("cpu", "cuda", "meta")]
        found += [str(T.get_autocast_dtype(kind)).rpartition(".")[2] for kind in ("cpu", "cuda", "xla")]
        T.set_autocast_enabled("cpu", True)
        T.set_autocast_dtype("cpu", T.float16)
        found += [T.is_autocast_enabled("cpu"), str(T.get_autocast_dtype("cpu")).rpartition(".")[2]]
        found += [str((T.ones(1, 1) @ T.ones(1, 1)).dtype).rpartition(".")[2]]
        T.set_autocast_dtype("cpu", T.bfloat16)
        T.set_autocast_enabled("cpu", False)
        found += [T.autocast_increment_nesting(), T.autocast_decrement_nesting()]
        T.set_autocast_enabled(True)
        found += [T.is_autocast_enabled("cuda")]
        T.set_autocast_enabled(False)
        return found

    assert run(xgrad) == run(torch)
    assert xgrad.config.state.autocast is None


def test_binary_cross_entropy_is_refused_on_accelerators(monkeypatch):
    from xgrad.dispatch import autocasting

    monkeypatch.setattr(autocasting, "_kind", lambda tensor: "cuda")
    monkeypatch.setattr(xgrad.amp.settings, "present", lambda kind: True)
    p = xgrad.full((2,), 0.5)
    with (
        xgrad.autocast("cuda"),
        pytest.raises(RuntimeError, match=r"unsafe to autocast.*cross_entropy_with_logits"),
    ):
        xgrad.nn.functional.binary_cross_entropy(p, p)
