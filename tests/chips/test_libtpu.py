"""The real compiler of TPUs, where it is installed (`pip install "jax[tpu]"`); elsewhere conftest.py leaves this out.

It runs no program: no value and no time is tested here.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

import xgrad
from xgrad import nn
from xgrad.chips.names import CHIPS

MATRIX = jax.ShapeDtypeStruct((128, 128), np.float32)
WIDTH = 128


@pytest.mark.parametrize("name", [name for name in CHIPS if name.startswith("tpu")])
def test_each_chip_compiles_and_has_the_memory_that_is_said(name):
    target = xgrad.target(name)
    assert target.ask(lambda x: x @ x, MATRIX).state == "compiles"
    answer = target.ask(lambda x: x + 1, jax.ShapeDtypeStruct((1 << 20, 1 << 20), np.float32))
    assert answer.state == "does not fit"
    assert f"exceeds available HBM ({target.memory / 2**30:.2f}G)" in answer.said


@pytest.mark.parametrize(
    ("name", "devices"),
    [
        ("tpu:v5e:2x2", 4),
        ("tpu:v5e:4x4", 16),
        ("tpu:v5e:16x16", 256),
        ("tpu:v4:2x2x1", 4),
        ("tpu:v6e:2x2", 4),
        ("tpu:v3:2x2", 8),
        ("tpu:v5p:2x2x1", 4),
        ("tpu:v7x:2x2x1", 8),
    ],
)
def test_topologies(name, devices):
    report = xgrad.target(name, {"data": devices}, {"x": P("data")}).compile(
        lambda x: x.square().sum(), jax.ShapeDtypeStruct((devices * 8, 128), np.float32)
    )
    assert report.fits, report
    assert report.answer.memory["argument"] == 8 * 128 * 4
    assert [(e.what, e.axes) for e in report.exchanges] == [("all-reduce", "data")]


@pytest.mark.parametrize("axes", [{"data": 64, "model": 4}, {"a": 2, "b": 8, "c": 16}, {"data": 256}])
def test_meshes_that_split_the_axes_of_a_topology(axes):
    target = xgrad.target("tpu:v5e:16x16", axes, {"x": P(tuple(axes))})
    report = target.compile(lambda x: x.square().sum(), jax.ShapeDtypeStruct((512, 128), np.float32))
    assert report.fits, report
    assert report.answer.memory["argument"] == 2 * 128 * 4


def training():
    with xgrad.chips.shapes():
        model = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.Tanh(), nn.Linear(4 * WIDTH, WIDTH))
        optimizer = xgrad.optim.AdamW(model.parameters(), lr=1e-3)

    @xgrad.compile
    def step(inputs):
        optimizer.zero_grad()
        loss = model(inputs).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step, jax.ShapeDtypeStruct((256, WIDTH), np.float32)


def test_a_step_is_written_in_place_and_each_part_has_a_line():
    step, x = training()
    report = step.compiled_for("tpu:v5e", x)
    assert report.fits, report
    assert report.undonated == []
    line = step._function.__code__.co_firstlineno
    lines = {p.line for p in report.parts}
    assert {f"test_libtpu.py:{line + offset}" for offset in (3, 4, 5)} <= lines
    assert report.answer.estimated_seconds > 0
    assert {b.name for b in report.alive} >= {"model.0.weight", "model.0.weight: exp_avg"}


def test_a_sharded_step_exchanges_along_both_axes():
    step, x = training()
    by = {"inputs": P("data"), "model.0.weight": P("model", None), "model.2.weight": P(None, "model")}
    report = step.compiled_for(xgrad.target("tpu:v5e:4x4", {"data": 4, "model": 4}, by), x)
    assert report.fits, report
    assert report.undonated == []
    assert {"data", "model"} <= {axis for e in report.exchanges for axis in e.axes.split(", ")}
    alone = step.compiled_for("tpu:v5e", x)
    assert report.answer.memory["argument"] < alone.answer.memory["argument"] / 3


def test_a_read_of_a_row_that_fetches_the_whole_is_told():
    def row(x, i):
        return jax.lax.dynamic_index_in_dim(x, i, keepdims=False)

    x, i = jax.ShapeDtypeStruct((1024, 1024), np.float32), jax.ShapeDtypeStruct((), np.int32)
    assert xgrad.target("tpu:v5e").ask(row, x, i).bytes_accessed > 1 << 24
    fixed = {"xla_max_cross_program_prefetches": "0"}
    assert xgrad.target("tpu:v5e").ask(row, x, i, options=fixed).bytes_accessed < 1 << 14


def test_a_failed_check_ends_a_child_and_nothing_else():
    number = jax.ShapeDtypeStruct((8, 8), np.complex128)
    answer = xgrad.target("tpu:v5e").ask(lambda x, y: x / y, number, number)
    assert answer.state == "ends the compiler"
    assert "Check failed" in answer.said
    assert xgrad.target("tpu:v5e").ask(lambda x: x * 7, MATRIX).state == "compiles"


def test_a_compiler_without_an_end_is_stopped():
    def write(x, v):
        return x.at[:, ::2].set(0) + jax.lax.pad(v, jnp.float32(0), ((0, 0, 0), (0, 1, 1)))

    x, v = jax.ShapeDtypeStruct((4096, 4096), np.float32), jax.ShapeDtypeStruct((4096, 2048), np.float32)
    answer = xgrad.target("tpu:v5e", limit=2).ask(write, x, v)
    assert (answer.state, answer.said) == ("slow", "the compiler took longer than 2 s")
