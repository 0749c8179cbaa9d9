"""Injected faults are raised as a device's are, by the numbers that the seed draws, and nothing else changes."""

import importlib.util
import itertools
import pathlib

import jax
import numpy as np
import pytest

import xgrad
from xgrad.backends import Faults
from xgrad.errors import LostValueError, OutOfMemoryError

from ..property import interrupts

Failure = jax.errors.JaxRuntimeError
EXAMPLE = pathlib.Path(__file__).parents[2] / "examples" / "backends" / "faults.py"


def backend(execution="eager", **faults):
    return xgrad.Backend("chip", execution=execution, faults=Faults(**faults))


@pytest.mark.parametrize("execution", ["eager", "lazy"])
@pytest.mark.parametrize("kind", ["launch", "memory"])
def test_a_launch_fails_by_its_number_and_the_rest_has_its_values(execution, kind):
    chip = backend(execution, **{kind: [2]})
    x = xgrad.ones(3, device=chip)
    xgrad.sync()
    error = Failure if kind == "launch" else OutOfMemoryError
    with chip.report() as report, pytest.raises(error, match=rf"launch 2 failed, of .*injected it \({kind}=\[2\]"):
        (x + 1).tolist()
    assert [(f["kind"], f["number"]) for f in report.as_dict()["faults"]] == [(kind, 2)]
    assert "faults injected" in str(report)
    assert (x.tolist(), (x + 1).tolist()) == ([1] * 3, [2] * 3)


def test_an_error_names_operator_and_line():
    x = xgrad.ones(3, device=backend(launch=[2]))
    with pytest.raises(Failure, match=r"INTERNAL: chip: launch 2 failed, of 'exp' at test_faults.py:\d+"):
        x.exp()


@pytest.mark.parametrize("link", [[1], [2], [3], [4]])
def test_a_transfer_fails(link):
    chip = xgrad.Backend("chip", without=["sort"], faults=Faults(link=link))
    with pytest.raises(Failure, match=rf"UNAVAILABLE: chip: transfer {link[0]} failed"):
        xgrad.tensor([2.0, 1.0]).to(chip).sort().values.tolist()  # there, to the host and back, and here


def test_printing_is_a_transfer():
    chip = backend(link=[2])
    x = xgrad.ones(2).to(chip)
    with pytest.raises(Failure, match="transfer 2"):
        repr(x)
    assert "1., 1." in repr(x)


def outcome(faults):
    """Return the faults of a program that goes on after each."""
    chip = xgrad.Backend("chip", faults=faults)
    with chip.report() as report:
        for n in range(60):
            try:
                x = xgrad.full((4,), n, device=chip)
                x.mul_(2).numpy()
            except RuntimeError:
                pass
    return [(f["kind"], f["number"], f["operator"], f["detail"]) for f in report.as_dict()["faults"]]


def test_the_same_seed_has_the_same_faults():
    faults = Faults(seed=3, launch=0.05, memory=0.05, link=0.05, bitflip=0.05)
    found = outcome(faults)
    assert found == outcome(faults)
    assert found != outcome(Faults(4, 0.05, 0.05, 0.05, 0.05))
    assert {kind for kind, *_ in found} == {"launch", "memory", "link", "bitflip"}
    assert 8 < len(found) < 40
    assert outcome(Faults()) == []


@pytest.mark.parametrize("execution", ["eager", "lazy"])
def test_one_bit_of_a_result_is_flipped_and_the_report_says_where(execution):
    chip = backend(execution, bitflip=[2])
    x = xgrad.ones(2, 3, device=chip)
    xgrad.sync()
    with chip.report() as report:
        y = x * 3
        xgrad.sync()
    bits = y.numpy().view(np.uint32) ^ np.float32(3).view(np.uint32)
    assert bin(int(bits.sum())).count("1") == 1
    (fault,) = report.as_dict()["faults"]
    place = [int(i[0]) for i in np.nonzero(bits)]
    assert fault["detail"].startswith(f"bit {int(bits.sum()).bit_length() - 1} at {place}: 3.0 became ")
    assert (x * 3).tolist() == [[3] * 3] * 2


def test_a_write_and_a_bool_have_bits_too():
    chip = backend(bitflip=[2, 4])
    x = xgrad.ones(3, device=chip)
    x.add_(1)
    assert sum(v != 2 for v in x.tolist()) == 1
    masks = xgrad.ones(3, device=chip) > 0
    assert sorted(masks.tolist()) == [False, True, True]


@pytest.mark.parametrize("execution", ["eager", "lazy"])
def test_a_lost_device_stays_lost_and_another_one_takes_the_checkpoint(execution):
    chip = backend(execution, lost_device=[2])
    x = xgrad.ones(3, device=chip)
    saved = x.cpu()
    for work in (lambda: (x + 1).tolist(), x.tolist, lambda: x.add_(1).tolist(), lambda: saved.to(chip), x.__repr__):
        with pytest.raises(Failure, match=r"UNAVAILABLE: the device chip is gone: it was lost at launch 2, of "):
            work()
    other = chip.replace(faults=None)
    assert (saved.to(other) + 1).tolist() == [2] * 3


@pytest.mark.parametrize("execution", ["eager", "lazy"])
def test_a_write_that_took_its_memory_loses_its_value_alone(execution):
    chip = backend(execution, launch=[3], taken=1.0)
    model = xgrad.nn.Linear(64, 64).to(chip)
    saved = {name: value.cpu() for name, value in model.state_dict().items()}
    weight, bias = model.weight.detach(), model.bias.detach()

    def write(*written):
        for each in written:
            each.mul_(1)
        xgrad.sync()

    for _ in range(2 if execution == "lazy" else 1):  # what comes from the host is copied by its first write
        write(bias, weight)
    with pytest.raises(LostValueError, match="failed after it had taken the memory") as caught:
        write(*(([bias] if execution == "lazy" else []) + [weight]))
    assert "failed, of" in str(caught.value.__cause__)
    with pytest.raises(LostValueError, match="has no value"):
        weight.tolist()
    assert (weight.shape, weight.device) == ((64, 64), chip.device)
    np.testing.assert_array_equal(bias.cpu().numpy(), saved["bias"].numpy())
    model.load_state_dict(saved)
    np.testing.assert_array_equal(model.weight.detach().cpu().numpy(), saved["weight"].numpy())


KINDS = ("eager", "recorded", "view", "recorded view", "filled", "accumulation", "compiled step", "several tensors")


def attacked(name, execution, faults, aliasing="write_through"):
    """Work with one fault; return how it ended."""
    kind = interrupts.KINDS[name]()
    chip = xgrad.Backend("chip", execution=execution, faults=faults, aliasing=aliasing)
    ended, made = "done", False
    with chip.activate():
        try:
            kind.make()
            made = True
            for _ in range(2):
                kind.work()
                xgrad.sync()
        except LostValueError:
            ended = "lost"
        except (Failure, OutOfMemoryError):
            ended = "failed"
        if made and ended != "done":  # else the launch that fails may be one of the check's
            try:
                kind.check()
            except LostValueError:
                assert ended == "lost"
    interrupts.usable()
    return ended


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("name", "execution", "aliasing"),
    [(name, execution, "write_through") for name in KINDS for execution in ("eager", "lazy")]
    + [(name, "eager", how) for name in ("view", "recorded view") for how in ("regenerate", "copy_on_write")],
)
def test_whichever_launch_fails_values_are_the_old_or_the_new_ones_or_reported_as_lost(
    name, execution, aliasing, monkeypatch
):
    monkeypatch.setattr(interrupts, "N", 3000)
    for fault in (lambda n: Faults(launch=[n], taken=0.0), lambda n: Faults(launch=[n], taken=1.0)):
        seen = []
        for n in itertools.count(1):
            seen.append(attacked(name, execution, fault(n), aliasing))
            if seen[-1] == "done":
                break
        assert "failed" in seen
        if not fault(1).taken:
            assert "lost" not in seen


@pytest.mark.parametrize("first", range(2, 9))
@pytest.mark.parametrize(
    "declared",
    [{"execution": "lazy", "pending": 2}, {"aliasing": "regenerate", "pending": 2}, {"aliasing": "regenerate"}],
)
def test_a_write_in_which_earlier_ones_fail_leaves_what_was_there_before_them(declared, first):
    chip = xgrad.Backend("chip", faults=Faults(launch=[*range(first, first + 4)], taken=0.0), **declared)
    x, errors = xgrad.zeros(3, device=chip), 0
    try:
        for i in range(8):
            x[min(i % 3, 1)].add_(1)
        xgrad.sync()
    except Failure:
        errors += 1
    while True:
        try:
            found = x.tolist()
            break
        except Failure:
            errors += 1
    if not errors:
        assert found == [3, 5, 0]
    assert errors < 6
    assert x._version <= 8
    for value, most in zip(found, (3, 5, 0), strict=True):
        assert value in range(most + 1)


@pytest.mark.parametrize("run", ["compiled", "lazy"])
def test_state_that_a_failed_first_step_was_making_is_made_by_the_next(run):
    def trained(chip):
        w, x = xgrad.ones(4, device=chip, requires_grad=True), xgrad.ones(4, device=chip)
        optimizer, errors, found = xgrad.optim.SGD([w], lr=0.1, momentum=0.9), 0, []
        xgrad.sync()

        def step():
            optimizer.zero_grad()
            w.exp().backward(x)  # the step needs each operator's result
            optimizer.step()

        stepping = xgrad.compile(lambda x: step()) if run == "compiled" else lambda x: step()
        while len(found) < 5:
            try:
                stepping(x)
                found.append(w[0].item())
            except Failure:
                errors += 1
        return errors, found

    quiet = backend("lazy" if run == "lazy" else "eager")
    first = {"lazy": 2, "compiled": 3}[run]  # the launch of the first step
    failing = quiet.replace(faults=Faults(launch=[*range(first, first + 7)], taken=0.0))
    errors, found = trained(failing)
    assert errors > 1
    # The program of the last failure may have failed, but each of its operators run: then its step was done.
    right = trained(quiet)[1]
    steps = [int(np.argmin(np.abs(np.array(right) - value))) for value in found[:3]]
    assert steps in ([0, 1, 2], [1, 2, 3])
    np.testing.assert_allclose(found[:3], [right[k] for k in steps], rtol=1e-5)


@pytest.mark.parametrize("execution", ["eager", "lazy"])
def test_training_recovers_by_its_checkpoint_to_the_same_numbers(execution, capsys):
    spec = importlib.util.spec_from_file_location("faults_example", EXAMPLE)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    quiet, none = example.train(xgrad.Backend("chip", execution=execution))
    faults = Faults(seed=5, launch=0.01, memory=0.01, link=0.01, lost_device=[100 if execution == "eager" else 9])
    weights, recoveries = example.train(xgrad.Backend("chip", execution=execution, faults=faults))
    assert none == 0 < recoveries
    assert "is gone" in capsys.readouterr().out
    np.testing.assert_array_equal(weights.numpy(), quiet.numpy())


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ({"launch": 2}, ValueError, r"launch is a probability, from 0 to 1, but got 2; a list, \[2\], has"),
        ({"memory": "often"}, TypeError, "memory must be a probability, or a list of numbers, but got 'often'"),
        ({"link": [0]}, ValueError, "link has numbers of events, the first is 1, but got 0"),
        ({"taken": [1]}, TypeError, r"taken must be a probability, but got \[1\]"),
        ({"seed": 0.5}, TypeError, "seed must be an int"),
        ({"bitflip": True}, TypeError, "bitflip must be a probability"),
    ],
)
def test_what_cannot_be_declared_is_said(given, error, words):
    with pytest.raises(error, match=words):
        Faults(**given)


def test_a_backend_takes_faults_and_nothing_else_for_them():
    with pytest.raises(TypeError, match=r"faults is an xgrad\.backends\.Faults, but got 0\.1"):
        xgrad.Backend("chip", faults=0.1)
    assert "seed=3" in repr(xgrad.Backend("chip", faults=Faults(3)))
