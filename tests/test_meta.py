"""The device "meta": shapes and dtypes without values, as PyTorch's."""

import contextlib
import copy
import subprocess
import sys

import pytest
import torch

import xgrad

PROGRAMS = {
    "made": lambda T: T.ones(2, 3, device="meta"),
    "moved": lambda T: T.ones(2).to("meta"),
    "like": lambda T: T.zeros_like(T.ones(2, device="meta")),
    "data": lambda T: T.tensor([1, 2], device="meta"),
    "add": lambda T: T.ones(2, 3, device="meta") + 1,
    "number on the CPU": lambda T: T.ones(2, device="meta") + T.tensor(2.0),
    "product": lambda T: T.ones(2, 3, device="meta") @ T.ones(3, 4, device="meta"),
    "view": lambda T: T.ones(2, 3, device="meta").view(6)[1:],
    "in place": lambda T: T.ones(2, 3, device="meta").add_(1),
    "bool": lambda T: T.ones(2, device="meta") > 0,
    "sum": lambda T: T.ones(2, device="meta").sum(),
    "random": lambda T: T.randn(2, 3, device="meta"),
    "several": lambda T: T.ones(2, 3, device="meta").max(1)[1],
    "conv": lambda T: T.nn.Conv2d(1, 2, 3, device="meta")(T.ones(1, 1, 5, 5, device="meta")).detach(),
    "copied": lambda T: copy.deepcopy(T.ones(2, device="meta")),
    "written": lambda T: T.ones(2, device="meta").copy_(T.ones(2)),
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("how", ["eager", "lazy"])
def test_operators_give_shapes_as_pytorchs(name, how):
    expected = PROGRAMS[name](torch)
    with xgrad.lazy() if how == "lazy" else contextlib.nullcontext():
        found = PROGRAMS[name](xgrad)
    assert (found.is_meta, found.is_xla) == (True, False)
    assert (found.shape, str(found.device)) == (tuple(expected.shape), "meta")
    if expected.dtype in (torch.float32, torch.bool):
        assert repr(found).replace("xgrad", "torch") == repr(expected)


ERRORS = {
    "item": (lambda x: x.sum().item(), "cannot be called on meta tensors"),
    "bool": (lambda x: bool(x.sum()), "cannot be called on meta tensors"),
    "cpu": (lambda x: x.cpu(), "Cannot copy out of meta tensor; no data!"),
    "tolist": (lambda x: x.tolist(), "Cannot copy out of meta tensor; no data!"),
    "numpy": (lambda x: x.numpy(), "can't convert meta device type tensor to numpy"),
    "shapes": (lambda x: x + type(x).new_ones(x, 4), "must match|broadcast"),
    "product": (lambda x: x @ x, "multiplied|must have same reduction dim"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_are_pytorchs(name):
    use, match = ERRORS[name]
    kinds = []
    for T in (torch, xgrad):
        with pytest.raises((RuntimeError, TypeError), match=match) as caught:
            use(T.ones(2, 3, device="meta"))
        kinds.append(caught.type)
    assert issubclass(kinds[1], kinds[0])


def test_two_devices_do_not_mix_and_nothing_of_meta_is_copied_out():
    x, y = xgrad.ones(2, device="meta"), xgrad.zeros(2)
    with pytest.raises(RuntimeError, match="same device"):
        x + y
    with pytest.raises(NotImplementedError, match="no data"):
        y.copy_(x)
    assert y.tolist() == [0.0, 0.0]


def test_a_module_is_made_trained_and_filled():
    with xgrad.device("meta"):
        module = xgrad.nn.Sequential(xgrad.nn.Linear(3, 4), xgrad.nn.ReLU(), xgrad.nn.Linear(4, 1))
    assert all(p.is_meta for p in module.parameters())
    optimizer = xgrad.optim.AdamW(module.parameters())
    module(xgrad.ones(5, 3, device="meta")).sum().backward()
    assert module[0].weight.grad.is_meta
    optimizer.step()
    with pytest.raises(NotImplementedError, match=r"to_empty"):
        module.to("cpu")
    state = {name: xgrad.full(p.shape, 0.5) for name, p in module.named_parameters()}
    again = copy.deepcopy(module)
    again.load_state_dict(state, assign=True)
    filled = module.to_empty(device="cpu")
    filled.load_state_dict(state)
    for m in (again, filled):
        assert m(xgrad.ones(1, 3)).tolist() == [[4.5]]


def test_an_ensemble_by_functional_call():
    models = [xgrad.nn.Linear(3, 2) for _ in range(4)]
    params, buffers = xgrad.func.stack_module_state(models)
    base = copy.deepcopy(models[0]).to("meta")
    x = xgrad.randn(5, 3)
    found = xgrad.vmap(lambda p, b: xgrad.func.functional_call(base, (p, b), (x,)))(params, buffers)
    xgrad.testing.assert_close(found, xgrad.stack([m(x) for m in models]))


def test_a_large_model_takes_no_memory():
    code = """
import resource, xgrad
from xgrad import nn
xgrad.ones(2, device="meta")
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
with xgrad.device("meta"):
    model = nn.ModuleList([nn.TransformerEncoderLayer(8192, 64, 28672) for _ in range(95)])
print(sum(p.numel() for p in model.parameters()) > 70e9, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    large, kilobytes = done.stdout.split()
    assert large == "True"
    assert int(kilobytes) < 100_000


def test_the_device_is_the_only_one_of_its_name():
    assert xgrad.ones(2, device="meta:0").device == xgrad.device("meta:0") == xgrad.device("meta")
    with pytest.raises(RuntimeError, match="Invalid device string: 'meta:1'"):
        xgrad.ones(2, device="meta:1")
