"""Backends with a target: the CPU computes, and in a report the target's compiler is asked."""

import copy
import pickle

import jax
import jax.numpy as jnp
import pytest

import xgrad
from xgrad.base.platforms import traced_for
from xgrad.chips import targets

V5E = xgrad.Backend("v5e", target="tpu:v5e")
MIB = 1 << 20


def test_memory_is_the_chips_unless_it_is_given():
    assert V5E.memory == xgrad.target("tpu:v5e").memory
    assert V5E.replace(target="tpu:v6e").memory == xgrad.target("tpu:v6e").memory
    assert V5E.replace(memory=MIB).memory == V5E.replace(memory=MIB, target="tpu:v6e").memory == MIB
    assert xgrad.Backend("plain").memory is None


def test_an_error_of_memory_is_the_chips():
    with pytest.raises(xgrad.errors.OutOfMemoryError, match=r"v5e:0 on tpu:v5e:1x1 out of memory.* of 16911433728 "):
        xgrad.zeros(1 << 17, 1 << 17, device=V5E)


def test_a_backend_with_a_target_is_a_value():
    assert pickle.loads(pickle.dumps(V5E)) == V5E
    assert copy.deepcopy(V5E) is V5E
    assert V5E.replace(target="tpu:v6e") != V5E
    assert V5E.target == xgrad.target("tpu:v5e")


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"target": 5}, TypeError, "a target is named by a string"),
        ({"target": "tpu:v99"}, ValueError, "unknown target 'tpu:v99'"),
        ({"target": "tpu:v5e:2x2"}, ValueError, "tpu:v5e:2x2 has 4 devices, and `on` 1"),
        ({"target": "tpu:v5e", "on": ["cpu:0", "cpu:1"]}, ValueError, "tpu:v5e:1x1 has 1 device, and `on` 2"),
        (
            {"target": xgrad.target("tpu:v5e:1x1", {"data": 1})},
            ValueError,
            "tensors have their own mesh and shardings: give a target without mesh=",
        ),
    ],
)
def test_targets_that_cannot_be_declared(options, error, words):
    with pytest.raises(error, match=words):
        xgrad.Backend("v5e", **options)


@pytest.mark.eager("launches")
def test_each_program_is_asked_of_the_targets_compiler(compiler):
    with V5E.report() as report:
        x = xgrad.ones(8, 8, device=V5E)
        for _ in range(3):
            y = (x @ x).exp()
    assert y[0, 0].item() == pytest.approx(jnp.exp(8.0))
    chip = report.on_target()
    assert {p.name: p.runs for p in chip.programs} == {"constant": 1, "matmul": 3, "exp": 3}
    assert chip.failures == []
    assert chip.bytes_accessed == sum(p.runs * p.answer.bytes_accessed for p in chip.programs) > 9 * 256
    assert chip.programs[0].answer.hlo.startswith("HloModule")
    assert report.as_dict()["target"]["bytes accessed"] == chip.bytes_accessed
    assert "on tpu:v5e:1x1" in str(report)
    assert "bytes accessed" in report._repr_html_()


def test_programs_are_traced_for_the_targets_platform(compiler):
    seen = []

    def exp(x):
        seen.append(traced_for())
        return jnp.exp(x)

    chip = V5E.replace(lowerings={"exp": exp})
    with chip.report() as report:
        xgrad.ones(8, device=chip).exp()
    seen.clear()
    report.on_target()
    assert {*seen} == {"tpu"}  # 64 bits: it is looked through once more before


@pytest.mark.eager("launches")
def test_a_write_is_donated_on_the_chip_as_it_is_here(compiler):
    def writes(chip):
        x = xgrad.ones(8, 8, device=chip)
        with chip.report() as report:
            x.mul_(2)
        (program,) = report.on_target().programs
        return program.answer.memory["alias"]

    assert writes(V5E) == 256
    assert writes(V5E.replace(donation=False)) == 0


def test_a_lazy_backends_program_is_one(compiler):
    chip = V5E.replace(execution="lazy")
    with chip.report() as report:
        x = xgrad.ones(8, 8, device=chip)
        x[3].mul_(2)
        assert (x + 1).sum().item() == 136
    (program,) = report.on_target().programs
    assert (program.runs, program.answer.state) == (1, "compiles")


def told(monkeypatch, **cost):
    """Have all programs take a second on the chip."""
    monkeypatch.setattr(xgrad.chips.Answer, "estimated_seconds", 1.0)
    chip = V5E.replace(**cost)
    with chip.report() as report:
        x = xgrad.ones(8, device=chip)
        x.exp()
        x.exp()
    return report


@pytest.mark.eager("launches")
def test_the_compilers_time_stands_in_place_of_the_roofline(compiler, monkeypatch):
    estimate = told(monkeypatch).estimate()
    assert (estimate.chip, estimate.run) == (3.0, 3.0)
    assert estimate.compile > 0
    report = told(monkeypatch, cost=xgrad.Cost(launch=0.5))
    estimate = report.estimate()
    assert (estimate.chip, estimate.launch, estimate.compute, estimate.memory) == (3.0, 1.5, 0.0, 0.0)
    assert report.as_dict()["estimate"]["chip"] == 3.0
    roofline = report.estimate(xgrad.Cost(launch=0.5))  # other numbers are asked for
    assert (roofline.chip, roofline.memory > 0) == (0.0, True)


def test_without_the_compiler_the_report_says_so_and_has_the_roofline(monkeypatch):
    monkeypatch.setattr(targets, "missing", lambda platform: "its compiler is not installed: pip install X")
    chip = V5E.replace(cost=xgrad.Cost())
    for backend in (V5E, chip):
        with backend.report() as report:
            xgrad.ones(8, device=backend).exp()
        assert "not asked: its compiler is not installed: pip install X" in str(report)
    assert report.estimate().memory > 0
    assert report.estimate().chip == 0
    assert report.as_dict()["target"]["missing"] == "its compiler is not installed: pip install X"
    with V5E.report() as report:
        xgrad.ones(8, device=V5E)
    with pytest.raises(ValueError, match=r"no cost is declared \(tpu:v5e:1x1: its compiler is not installed"):
        report.estimate()


def test_a_program_that_ends_the_compiler_is_a_row(compiler):
    chip = V5E.replace(target="tpu:v2")
    with chip.report() as report:
        xgrad.ones(8, device=chip)
    assert [p.answer.state for p in report.on_target().failures] == ["ends the compiler"]
    assert "ends the compiler: F0101" in str(report)
    assert report.as_dict()["estimate"] is None


def test_what_cannot_be_traced_for_the_chip_is_a_row(compiler):
    def exp(x):
        if traced_for() == "tpu":
            raise NotImplementedError("not on this platform")
        return jnp.exp(x)

    chip = V5E.replace(lowerings={"exp": exp})
    with chip.report() as report:
        xgrad.ones(8, device=chip).exp()
    (failed,) = report.on_target().failures
    assert (failed.name, failed.answer.state) == ("exp", "refused")
    assert "not on this platform" in str(report)


def test_temporary_memory_is_the_chips(compiler):
    with V5E.report() as report:
        x = xgrad.ones(8, 8, device=V5E)
        (x @ x).exp()
    assert report.temporaries() == report.on_target().temporary_bytes


def test_a_backend_of_several_devices_is_a_topology(compiler):
    pod = xgrad.Backend("pod", on=jax.devices()[:4], target="tpu:v5e:2x2")
    with xgrad.mesh({"data": 4}, devices=pod):
        x = xgrad.ones(8, 4, device=jax.sharding.PartitionSpec("data"))
        with pod.report() as report:
            x.sum()
    (program,) = report.on_target().programs
    assert program.answer.memory["argument"] == 8 * 4 * 4 // 4
    assert "all-reduce" in program.answer.hlo
