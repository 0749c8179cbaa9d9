"""The modes' context managers as decorators; what a thread of the engine takes over from its caller."""

import threading
import warnings

import numpy as np
import pytest
import torch

import xgrad

LIBRARIES = pytest.mark.parametrize("T", [xgrad, torch], ids=["xgrad", "torch"])


def steps(T, told):
    try:
        told.append(T.is_grad_enabled())
        got = yield 1
        told.append((got, T.is_grad_enabled()))
        try:
            yield 2
        except KeyError as error:
            told.append((str(error), T.is_grad_enabled()))
        yield 3
        told.append("not reached")
    finally:
        told.append(("closed", T.is_grad_enabled()))


def test_decorated_generator_is_sent_thrown_and_closed():
    def program(T):
        told = []
        generator = T.no_grad()(steps)(T, told)
        told.append(next(generator))
        told.append(T.is_grad_enabled())
        told.append(generator.send("sent"))
        told.append(generator.throw(KeyError("thrown")))
        generator.close()
        told.append(T.is_grad_enabled())
        return told

    ours = program(xgrad)
    with warnings.catch_warnings():  # torch throws in a way that Python 3.12 deprecates
        warnings.filterwarnings("ignore", "the .* signature of throw", DeprecationWarning)
        assert ours == program(torch)
    assert ("closed", False) in ours


@LIBRARIES
def test_decorated_generator_returns_and_raises(T):
    @T.no_grad()
    def returns():
        yield 1
        return "result"

    def outer():
        return (yield from returns())

    generator = outer()
    next(generator)
    with pytest.raises(StopIteration) as stop:
        next(generator)
    assert stop.value.value == "result"

    @T.no_grad()
    def raises():
        yield 1
        raise ValueError("from within")

    generator = raises()
    next(generator)
    with pytest.raises(ValueError, match="from within"):
        next(generator)
    assert T.is_grad_enabled()


def test_key_of_use_key_reaches_backwards_that_change_the_thread():
    """Every 24 nested backwards go on on a fresh thread: random numbers must come from the same key there."""

    class Nested(xgrad.autograd.Function):
        @staticmethod
        def forward(ctx, x, depth):
            ctx.depth = depth
            return x * 1

        @staticmethod
        def backward(ctx, grad):
            if ctx.depth:
                x = xgrad.ones(1, requires_grad=True)
                with xgrad.enable_grad():
                    Nested.apply(x, ctx.depth - 1).sum().backward()
            else:
                drawn.append(xgrad.rand(3).numpy())
            return grad, None

    drawn = []
    import jax

    for depth in (0, 30):
        with xgrad.random.use_key(jax.random.key(7)):
            Nested.apply(xgrad.ones(1, requires_grad=True), depth).sum().backward()
    np.testing.assert_array_equal(*drawn)


@LIBRARIES
def test_set_grad_enabled_at_once_as_block_and_as_decorator(T):
    try:
        mode = T.set_grad_enabled(False)
        assert not T.is_grad_enabled()
        assert repr(mode).endswith("autograd.grad_mode.set_grad_enabled(mode=False)")
        with mode:
            assert not T.is_grad_enabled()
        assert T.is_grad_enabled()
        decorated = T.set_grad_enabled(False)(T.is_grad_enabled)
        assert T.is_grad_enabled()
        assert not decorated()
        with T.no_grad(), T.set_grad_enabled(mode=True), T.autograd.no_grad(), T.autograd.enable_grad():
            assert T.is_grad_enabled()
        for wrong in (1, None, "on"):
            with pytest.raises(
                TypeError, match=r"set_grad_enabled\(\): argument 'enabled' \(position 1\) must be bool"
            ):
                T.set_grad_enabled(wrong)
        assert T.is_grad_enabled()
    finally:
        T.set_grad_enabled(True)


def test_one_object_entered_within_itself_gives_back_what_was():
    """PyTorch's no_grad would leave grad mode off."""
    for mode in (xgrad.no_grad(), xgrad.inference_mode()):
        with mode:
            with mode:
                assert not xgrad.is_grad_enabled()
            assert not xgrad.is_grad_enabled()
        assert xgrad.is_grad_enabled()
        assert not xgrad.is_inference_mode_enabled()


SETTINGS = {
    "set_multithreading_enabled": (lambda: torch._C._is_multithreading_enabled(), lambda s: s.multithreading),
    "enforce_grad_layout_policy": (lambda: torch._C._is_grad_layout_enforcement_enabled(), lambda s: s.grad_layout),
}


@pytest.mark.parametrize("name", SETTINGS)
@LIBRARIES
def test_settings_are_restored(T, name):
    from xgrad.config import state

    def asked():
        return SETTINGS[name][0]() if T is torch else SETTINGS[name][1](state)

    setting = getattr(T.autograd, name)
    assert asked()
    with pytest.raises(KeyError), setting(False):
        {}[asked()]
    assert asked()
    mode = setting(False)
    assert not asked()
    with mode:
        pass
    assert asked()
    with pytest.raises(TypeError, match="must be bool"):
        setting(1)
    if T is xgrad:  # PyTorch's set_multithreading_enabled stays off
        assert not setting(False)(asked)()
        assert asked()
    seen = []
    with setting(False):
        thread = threading.Thread(target=lambda: seen.append(asked()))
        thread.start()
        thread.join()
    if T is xgrad:
        assert seen == [True]


@LIBRARIES
def test_exceptions_leave_grad_mode_as_it_was(T):
    @T.no_grad()
    def fails():
        T.set_grad_enabled(True)
        raise KeyError

    for outer, expected in ((T.enable_grad(), True), (T.no_grad(), False)):
        with outer:
            with pytest.raises(KeyError):
                fails()
            assert T.is_grad_enabled() is expected


@LIBRARIES
def test_decorated_class_warns(T):
    with pytest.warns(FutureWarning, match="Decorating classes is deprecated"):

        @T.no_grad()
        class Made:
            def __init__(self):
                self.enabled = T.is_grad_enabled()

    assert not Made().enabled
    assert T.is_grad_enabled()


@LIBRARIES
def test_is_inference_takes_a_tensor(T):
    with T.inference_mode():
        x = T.ones(1)
    assert T.is_inference(x)
    assert not T.is_inference(x.clone())
    with pytest.raises(TypeError, match=r"is_inference\(\): argument 'input' \(position 1\) must be Tensor, not int"):
        T.is_inference(3)


@LIBRARIES
def test_inference_mode_entered_by_hand(T):
    mode = T.autograd.grad_mode._enter_inference_mode(True)
    assert T.is_inference_mode_enabled()
    T.autograd.grad_mode._exit_inference_mode(mode)
    assert not T.is_inference_mode_enabled()


def test_force_original_view_tracking_is_restored_by_decorators_and_errors():
    def tracked():
        return xgrad.ones(2, requires_grad=True).clone()[0]._view.tracking

    assert tracked() == "replay"
    assert xgrad.autograd._force_original_view_tracking(False)(tracked)() == "geometry"
    assert tracked() == "replay"
    with pytest.raises(KeyError), xgrad.autograd._force_original_view_tracking(False):
        {}[tracked()]
    assert tracked() == "replay"
    with pytest.raises(TypeError, match="must be bool"):
        xgrad.autograd._force_original_view_tracking("geometry")
