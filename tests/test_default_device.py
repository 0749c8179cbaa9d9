"""set_default_device, and `with device:`: where new tensors are made."""

import contextlib
import threading

import jax
import numpy as np
import pytest

import xgrad

SECOND = "cpu:1"


@pytest.fixture(autouse=True)
def restored():
    yield
    xgrad.set_default_device(None)


MAKERS = {
    "zeros": lambda: xgrad.zeros(2),
    "full": lambda: xgrad.full((2,), 3.0),
    "tensor": lambda: xgrad.tensor([1.0, 2.0]),
    "randn": lambda: xgrad.randn(2),
    "arange": lambda: xgrad.arange(2),
    "eye": lambda: xgrad.eye(2),
    "linspace": lambda: xgrad.linspace(0, 1, 2),
    "as_tensor": lambda: xgrad.as_tensor([1.0]),
}


@pytest.mark.parametrize("name", MAKERS)
def test_new_tensors_are_on_the_default_device(name):
    xgrad.set_default_device(SECOND)
    assert xgrad.get_default_device() == xgrad.device(SECOND)
    assert MAKERS[name]().device == xgrad.device(SECOND)
    xgrad.set_default_device(None)
    assert MAKERS[name]().device == xgrad.get_default_device() == xgrad.device("cpu")


def test_tensors_like_others_stay_where_those_are():
    x = xgrad.ones(2)
    with xgrad.device(SECOND):
        assert xgrad.ones_like(x).device == x.device
        assert (x * 2).device == x.device
        assert xgrad.from_numpy(np.ones(2, "float32")).device.index == 1  # a copy
        assert xgrad.ones(2, device="cpu:0").device == x.device


def test_blocks_nest_and_end():
    with xgrad.device(SECOND) as outer:
        assert outer == xgrad.device(SECOND)
        with contextlib.suppress(ZeroDivisionError), xgrad.device("cpu:2"):
            assert xgrad.ones(1).device.index == 2
            with outer:
                assert xgrad.ones(1).device.index == 1
            assert xgrad.ones(1).device.index == 2
            raise ZeroDivisionError
        assert xgrad.ones(1).device.index == 1
    assert xgrad.ones(1).device.index is None


def test_a_device_decorates():
    @xgrad.device(SECOND)
    def made(n):
        return xgrad.ones(n) if n < 2 else made(n - 1)

    assert made(3).device.index == 1
    assert xgrad.ones(1).device.index is None


def test_the_default_is_that_of_a_thread():
    found = []
    xgrad.set_default_device(SECOND)
    thread = threading.Thread(target=lambda: found.append(xgrad.ones(1).device.index))
    thread.start()
    thread.join()
    assert found == [None]


@pytest.mark.parametrize(("wrong", "error"), [("cpu:99", RuntimeError), ("nowhere", RuntimeError), (3.5, TypeError)])
def test_a_wrong_device_changes_nothing(wrong, error):
    xgrad.set_default_device(SECOND)
    with pytest.raises(error):
        xgrad.set_default_device(wrong)
    assert xgrad.ones(1).device.index == 1


def test_a_compiled_function_follows_the_default_device():
    made = xgrad.compile(lambda: xgrad.ones(2) * 2)
    chip = xgrad.Backend("chip")
    found = [made().device]
    for where in (SECOND, "cpu", chip, SECOND):
        with xgrad.device(where):
            found.append(made().device)
    found.append(made().device)
    assert [str(device) for device in found] == ["cpu", SECOND, "cpu", "chip:0", SECOND, "cpu"]


def test_a_declared_backend_may_be_the_default():
    chip = xgrad.Backend("chip")
    xgrad.set_default_device(chip)
    x = xgrad.ones(2, requires_grad=True)
    (x * xgrad.tensor([1.0, 2.0])).sum().backward()
    assert x.device == x.grad.device == chip.device == xgrad.get_default_device()
    assert x.grad.tolist() == [1, 2]


def test_jax_default_device_is_the_default_of_the_default():
    with jax.default_device(jax.devices("cpu")[1]):
        assert xgrad.get_default_device().index == 1


def test_the_device_of_a_sharded_tensor_may_be_the_default():
    with xgrad.mesh({"data": 2}):
        sharded = xgrad.ones(2, device=jax.sharding.PartitionSpec("data"))
    xgrad.set_default_device(sharded.device)
    assert xgrad.get_default_device() == xgrad.ones(4).device == sharded.device


def test_the_device_of_a_traced_tensor_may_be_the_default():
    @xgrad.compile
    def doubled(x):
        with x.device:
            assert xgrad.get_default_device() == x.device
            return x + xgrad.ones(2)

    assert doubled(xgrad.ones(2)).tolist() == [2, 2]
