"""xgrad.cuda and xgrad.accelerator with several GPUs: the CPU's devices stand in for them."""

import threading
from types import SimpleNamespace

import jax
import pytest

import xgrad
from xgrad.base import devices

CPUS = jax.devices("cpu")

pytestmark = pytest.mark.skipif(len(CPUS) < 3, reason="needs three devices")


@pytest.fixture(autouse=True)
def gpus(monkeypatch):
    monkeypatch.setitem(devices._PLATFORM, "cuda", "cpu")
    monkeypatch.setattr(xgrad.cuda, "_local_devices", lambda platform: CPUS)
    monkeypatch.setattr(xgrad.cuda, "_device", lambda found: SimpleNamespace(type="cuda"))
    yield
    xgrad.set_default_device(None)


def test_current_device_is_what_set_device_set():
    assert xgrad.cuda.current_device() == 0
    for given, number in ((1, 1), ("cuda:2", 2), (None, 2), (-1, 2), (0, 0), (CPUS[1], 1)):
        xgrad.cuda.set_device(given)
        assert xgrad.cuda.current_device() == number
        assert xgrad.cuda._gpu(None) == xgrad.ones(1).device.placement == CPUS[number]


def test_a_device_without_a_number_is_the_current_one():
    layer, x = xgrad.nn.Linear(2, 2), xgrad.ones(2)
    for number in (2, 0, 1):
        xgrad.cuda.set_device(number)
        assert x.to("cuda").device.placement == xgrad.ones(2, device="cuda").device.placement == CPUS[number]
        assert layer.cuda().weight.device.placement == x.cuda().device.placement == CPUS[number]
        assert x.to("cuda:0").device.placement == x.to("cpu").device.placement == CPUS[0]


def test_functions_without_an_argument_ask_the_current_device(monkeypatch):
    asked, put = [], jax.device_put
    monkeypatch.setattr(jax, "device_put", lambda value, device: (asked.append(device), put(value, device))[1])
    for number in (1, 0):
        xgrad.cuda.set_device(number)
        xgrad.cuda.synchronize()
    assert asked == [CPUS[1], CPUS[0]]


def test_current_device_follows_the_default_device():
    with xgrad.device("cpu:2"):
        assert xgrad.cuda.current_device() == 2
    with jax.default_device(CPUS[1]):
        assert xgrad.cuda.current_device() == 1
        xgrad.cuda.set_device(2)
        assert xgrad.cuda.current_device() == 2
    with xgrad.Backend("chip").activate():
        assert xgrad.cuda.current_device() == 0
    xgrad.set_default_device(None)
    assert xgrad.cuda.current_device() == 0


def test_current_device_is_that_of_a_thread():
    found = []
    xgrad.cuda.set_device(1)
    thread = threading.Thread(target=lambda: found.append(xgrad.cuda.current_device()))
    thread.start()
    thread.join()
    assert (found, xgrad.cuda.current_device()) == ([0], 1)


def test_the_accelerators_index_is_what_set_device_set():
    assert xgrad.accelerator.current_device_index() == 0
    xgrad.cuda.set_device(2)
    assert xgrad.accelerator.current_device_index() == xgrad.accelerator.current_device_idx() == 2
