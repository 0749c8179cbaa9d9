"""Names of a registered backend: methods, a module, autocast, GradScaler, kernels, generators, pickles; torch's too."""

import pickle

import pytest

import xgrad


@pytest.fixture
def npu():
    chip = xgrad.Backend("npu").register()
    yield chip
    chip.unregister()


def test_tensors_and_modules_go_there_by_its_name(npu):
    x = xgrad.ones(2, 3).npu()
    assert x.is_npu
    assert not x.cpu().is_npu
    assert x.npu("npu:0") is x.npu(0) is x
    layer = xgrad.nn.Linear(3, 2).npu()
    assert {p.device for p in layer.parameters()} == {npu.device}
    assert pickle.loads(pickle.dumps(x)).is_npu


def test_its_module_answers_as_that_of_cuda(npu):
    x = xgrad.ones(256, device="npu")
    assert (xgrad.npu.is_available(), xgrad.npu.device_count(), xgrad.npu.current_device()) == (True, 1, 0)
    assert xgrad.npu.memory_allocated() >= x.nbytes
    xgrad.npu.reset_peak_memory_stats()
    assert xgrad.npu.max_memory_allocated() == xgrad.npu.memory_allocated()
    with xgrad.npu.device(0):
        assert xgrad.ones(1).is_npu
    xgrad.npu.manual_seed(3)
    state = xgrad.npu.get_rng_state()
    first = xgrad.rand(2, device="npu")
    xgrad.npu.set_rng_state(state)
    assert xgrad.rand(2, device="npu").tolist() == first.tolist()
    assert xgrad.get_device_module("npu") is xgrad.npu


def test_autocast_and_a_grad_scaler_are_for_it(npu):
    layer = xgrad.nn.Linear(3, 2).npu()
    x = xgrad.ones(2, 3, device="npu")
    with xgrad.autocast("npu"):
        assert layer(x).dtype == xgrad.bfloat16
        assert (xgrad.ones(2, 2) @ xgrad.ones(2, 2)).dtype == xgrad.float32
    optimizer = xgrad.optim.SGD(layer.parameters(), lr=0.1)
    scaler = xgrad.amp.GradScaler("npu", init_scale=4.0)
    scaler.scale(layer(x).sum()).backward()
    scaler.step(optimizer)
    assert layer.weight.grad.tolist() == [[2, 2, 2], [2, 2, 2]]


def test_a_kernel_of_a_custom_operator_is_for_it(npu):
    @xgrad.library.custom_op("test_names::twice", mutates_args=())
    def twice(x: xgrad.Tensor) -> xgrad.Tensor:
        return x * 2

    twice.register_kernel("npu")(lambda x: x * 2 + 100)
    assert twice(xgrad.ones(1, device="npu")).tolist() == [102]
    assert twice(xgrad.ones(1)).tolist() == [2]
    assert xgrad.Generator(device="npu").device == npu.device


def test_torchs_names_have_it_too(npu):
    with xgrad.as_torch(replace=True):
        import torch

        x = torch.ones(2, 2, device="npu")
        assert x.is_npu
        assert torch.npu.is_available()
        assert torch.nn.Linear(2, 2).npu().weight.is_npu
        with torch.autocast("npu", dtype=torch.bfloat16):
            assert (x @ x).dtype == torch.bfloat16


def test_names_go_with_the_registration_and_replace_none_that_are_there():
    chip = xgrad.Backend("exp").register()
    assert xgrad.ones(1).exp().item() == pytest.approx(2.7182818)
    assert xgrad.ones(1, device="exp").is_exp
    chip.unregister()
    assert xgrad.ones(1).exp().item() == pytest.approx(2.7182818)
    chip = xgrad.Backend("npu").register()
    module = xgrad.npu
    chip.register()
    chip.unregister()
    assert not any(hasattr(owner, "npu") for owner in (xgrad, xgrad.Tensor, xgrad.nn.Module))
    assert not module.is_available()
    with pytest.raises(RuntimeError, match="as device type, but got 'npu'"):
        xgrad.autocast("npu")
