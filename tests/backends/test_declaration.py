"""A declaration is a frozen value and a device wherever one goes; bad ones are refused by name."""

import copy
import pickle
import subprocess
import sys

import pytest

import xgrad


@pytest.fixture
def chip():
    return xgrad.Backend("chip")


def test_a_declaration_is_a_value(chip):
    assert chip == xgrad.Backend("chip")
    assert hash(chip) == hash(xgrad.Backend("chip"))
    strided = chip.replace(strides=True)
    assert (strided.strides, chip.strides, strided == chip) == (True, False, False)
    with pytest.raises(AttributeError, match="cannot assign to field 'strides'"):
        chip.strides = True
    assert pickle.loads(pickle.dumps(strided)) == strided
    assert copy.deepcopy(chip) is chip
    assert repr(strided) == "Backend('chip', strides=True)"


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        (dict(name=3), TypeError, "the name must be a str, but got int"),
        (dict(name="my chip"), ValueError, "the name is an identifier and none of cpu, .*'my chip'"),
        (dict(name="cuda"), ValueError, "none of cpu, cuda"),
        (dict(name="chip", strides=1), TypeError, "'chip': strides must be True or False, but got 1"),
        (dict(name="chip", execution="later"), ValueError, "execution is 'eager' or 'lazy', not 'later'"),
        (dict(name="chip", on="abacus"), RuntimeError, "Invalid device string: 'abacus'"),
        (dict(name="chip", on=3), TypeError, "expected a device such as"),
        (dict(name="chip", stride=True), TypeError, "stride"),
    ],
)
def test_bad_declarations_are_errors_at_once(given, error, words):
    with pytest.raises(error, match=words):
        xgrad.Backend(**given)


def test_a_device_wherever_one_goes(chip):
    where = chip.device
    assert (where.type, where.index, str(where), repr(where)) == ("chip", 0, "chip:0", "device(type='chip', index=0)")
    x = xgrad.ones(2, 3)
    made = [
        xgrad.ones(2, 3, device=chip), xgrad.rand(2, 3, device=chip), xgrad.tensor([1.0, 2.0], device=where),
        xgrad.tensor(3, device=chip), xgrad.full((2,), 1.5, device=chip), xgrad.arange(3, device=chip),
        x.to(chip), x.to(device=chip), x.to(where), x.to(chip, xgrad.float16), xgrad.as_tensor([1, 2], device=chip),
    ]  # fmt: skip
    made += [xgrad.zeros_like(made[0]), made[0].new_ones(4), made[0].clone(), made[0].detach(), x.to(made[0])]
    made += [xgrad.tensor(made[0].detach().clone().tolist(), device=made[0].device), xgrad.zeros_like(x, device=chip)]
    assert [t.device for t in made] == [where] * len(made)
    assert x.to(chip).to("cpu").device == x.device == made[0].cpu().device
    assert made[0].to(chip) is made[0]
    model = xgrad.nn.Linear(3, 2).to(chip)
    assert model.weight.device == model.to(device=chip).bias.device == where
    assert model.cpu().weight.device == x.device


def test_a_name_is_a_device_string_while_it_is_registered(chip):
    with pytest.raises(RuntimeError, match=r"Invalid device string: 'chip'.*Backend.register"):
        xgrad.ones(2, device="chip")
    assert chip.register() is chip
    try:
        assert xgrad.ones(2, device="chip").device == xgrad.device("chip:0") == chip.device
        assert xgrad.ones(2, device=chip).sum().device == chip.device
        with pytest.raises(RuntimeError, match="the backend 'chip' has one device"):
            xgrad.device("chip:1")
        with pytest.raises(RuntimeError, match=r"another backend is registered as 'chip'.*unregister"):
            chip.replace(strides=True).register()
        assert chip.register() is chip
    finally:
        chip.unregister()
    with pytest.raises(RuntimeError, match="'chip' is not registered"):
        chip.unregister()
    with pytest.raises(RuntimeError, match="Invalid device string"):
        xgrad.device("chip")


def test_equal_declarations_are_devices_of_their_own(chip):
    other = xgrad.Backend("chip")
    assert chip.device != other.device
    with pytest.raises(RuntimeError, match=r"Expected all tensors to be on the same device.*chip:0 and chip:0"):
        xgrad.ones(2, device=chip) + xgrad.ones(2, device=other)


def test_activate_is_a_block_and_a_decorator(chip):
    other = xgrad.Backend("other")
    with chip.activate() as active:
        assert active is chip
        x = xgrad.ones(2)
        with other.activate():
            y, z = xgrad.tensor([1.0]), xgrad.zeros_like(x)
        data = xgrad.tensor(2.0)
        host = xgrad.ones(2, device="cpu")
    assert [str(t.device) for t in (x, y, z, data, host, xgrad.ones(2))] == [
        "chip:0", "other:0", "chip:0", "chip:0", "cpu", "cpu",
    ]  # fmt: skip

    @chip.activate()
    def made(depth):
        return xgrad.ones(2) if not depth else made(depth - 1)

    assert made(2).device == chip.device
    with pytest.raises(ZeroDivisionError), chip.activate():
        _ = 1 / 0
    assert xgrad.ones(2).device == host.device


def test_pickles_and_copies_stay_on_the_backend(chip):
    x = xgrad.tensor([1.0, 2.0, 3.0], device=chip, requires_grad=True)
    view = x.detach()[1:]
    assert copy.deepcopy(x).device == copy.copy(x).device == chip.device
    stored = pickle.dumps((x, view, xgrad.nn.Parameter(xgrad.ones(2, device=chip))))
    with pytest.raises(RuntimeError, match=r"declared backend 'chip', which is not registered here.*register"):
        pickle.loads(stored)
    other = chip.replace(strides=True).register()
    try:
        x2, view2, parameter = pickle.loads(stored)
    finally:
        other.unregister()
    assert [t.device for t in (x2, view2, parameter)] == [other.device] * 3
    assert (x2.tolist(), view2.tolist(), x2.requires_grad) == ([1, 2, 3], [2, 3], True)


def test_save_and_load(chip, tmp_path):
    x = xgrad.tensor([1.0, 2.0], device=chip)
    xgrad.save({"x": x}, tmp_path / "x.pt")
    assert xgrad.load(tmp_path / "x.pt", map_location="cpu")["x"].tolist() == [1, 2]
    with pytest.raises(RuntimeError, match="chip"):
        xgrad.load(tmp_path / "x.pt")
    chip.register()
    try:
        assert xgrad.load(tmp_path / "x.pt")["x"].device == chip.device
    finally:
        chip.unregister()


def test_printing_names_the_device(chip):
    assert repr(xgrad.tensor([1.0, 2.0], device=chip)) == "tensor([1., 2.], device='chip:0')"


@pytest.mark.exhaustive
def test_who_declares_nothing_pays_nothing():
    code = """
import sys
import xgrad
from xgrad.execution.runner import runner
y = (xgrad.ones(2, requires_grad=True) * 2).sum()
y.backward()
assert runner.plain and "xgrad.backends" not in sys.modules
chip = xgrad.Backend("chip")
assert runner.plain
xgrad.ones(2, device=chip)
assert runner.backends and not runner.plain
"""
    subprocess.run([sys.executable, "-c", code], check=True)
