"""What reaches a target's compiler is the program that JAX would compile on it."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import xgrad
from xgrad.base.platforms import traced_for
from xgrad.chips import targets
from xgrad.execution.programs.cost import cost_of, operations_of

MATRIX = jax.ShapeDtypeStruct((8, 8), np.float32)


def step(w, m, x):
    g = jax.grad(lambda w: jnp.sum(jnp.tanh(x @ w) ** 2))(w)
    m = 0.9 * m + g
    return w - 0.1 * m, m


def test_the_program_is_the_one_that_is_compiled_directly(compiler):
    answer = xgrad.target("tpu:v5e").ask(step, MATRIX, MATRIX, MATRIX, donate=(0, 1))
    direct = jax.jit(step, donate_argnums=(0, 1)).lower(MATRIX, MATRIX, MATRIX).compile()
    assert operations_of(answer.hlo) == operations_of(direct.as_text())
    assert answer.bytes_accessed == cost_of(direct).bytes_accessed
    assert answer.memory["alias"] == direct.memory_analysis().alias_size_in_bytes == 2 * 8 * 8 * 4


def test_a_program_over_a_mesh_is_the_one_that_is_compiled_directly(compiler):
    target = xgrad.target("tpu:v5e:2x2", {"data": 2, "model": 2})
    specs = P(None, "model"), P(None, "model"), P("data")

    def on(mesh):
        return [jax.ShapeDtypeStruct((8, 8), np.float32, sharding=NamedSharding(mesh, spec)) for spec in specs]

    mesh = jax.make_mesh((2, 2), ("data", "model"), devices=jax.devices()[:4])
    answer = target.ask(step, *on(target.mesh), donate=(0, 1), results=specs[:2])
    outs = tuple(NamedSharding(mesh, spec) for spec in specs[:2])
    direct = jax.jit(step, donate_argnums=(0, 1), out_shardings=outs).lower(*on(mesh)).compile()
    assert operations_of(answer.hlo) == operations_of(direct.as_text())
    assert answer.memory["argument"] == direct.memory_analysis().argument_size_in_bytes
    assert operations_of(answer.hlo)["all-reduce"] > 0


def test_arguments_are_trees(compiler):
    answer = xgrad.target("tpu:v5e").ask(lambda tree, y: {"sum": tree["a"] + y}, {"a": MATRIX, "b": MATRIX}, MATRIX)
    assert answer.state == "compiles"


def test_it_is_traced_for_the_platform(compiler):
    seen = []

    def traced(x):
        seen.append(traced_for())
        return x

    xgrad.target("tpu:v5e").ask(traced, MATRIX)
    xgrad.target("cuda:t4").ask(traced, MATRIX)
    jax.jit(traced)(jnp.ones(3))
    assert seen == ["tpu", "gpu", "cpu"]


def test_a_program_with_a_part_that_the_host_computes_says_so(compiler):
    with pytest.raises(NotImplementedError, match=r"^tpu:v5e:1x1: the host computes a part of this program"):
        xgrad.target("tpu:v5e").compile(xgrad.linalg.eigvals, xgrad.eye(2))


def test_64_bit_types_reach_the_compiler(compiler):
    answer = xgrad.target("tpu:v5e").ask(lambda x: x + 1, jax.ShapeDtypeStruct((4,), np.float64))
    assert re.search(r"f64\[4\]", answer.hlo)


def test_an_argument_on_another_mesh(compiler):
    small = xgrad.target("tpu:v5e:2x2", {"data": 4})
    struct = jax.ShapeDtypeStruct((8,), np.float32, sharding=NamedSharding(small.mesh, P("data")))
    with pytest.raises(ValueError, match="tpu:v5e:4x4 has 16 devices, but an argument is on"):
        xgrad.target("tpu:v5e:4x4").ask(lambda x: x, struct)


def test_a_compiler_that_is_not_here_says_what_to_install(monkeypatch):
    monkeypatch.setattr(targets.sys, "platform", "linux")
    monkeypatch.setattr(targets, "version_of", lambda package: "0.10.2" if package == "jax" else None)
    v5e, t4 = xgrad.target("tpu:v5e"), xgrad.target("cuda:t4")
    assert 'pip install "jax[tpu]==0.10.2"' in v5e.missing
    assert "684 MB" in v5e.missing
    assert "pip install jax-cuda12-plugin==0.10.2 jax-cuda12-pjrt==0.10.2" in t4.missing
    assert xgrad.chips.available() == []
    with pytest.raises(xgrad.errors.TargetError, match=r"tpu:v5e:1x1: its compiler is not installed"):
        v5e.ask(lambda x: x, MATRIX)
    monkeypatch.setattr(targets.sys, "platform", "darwin")
    assert "for Linux alone" in v5e.missing


def test_a_compiler_of_another_jax_says_what_mends_it(monkeypatch):
    clash = targets.clashes.__globals__["Clash"](
        "libtpu is 0.0.1, and jax needs libtpu==0.0.42.*", "pip install X", False
    )
    monkeypatch.setattr(targets, "version_of", lambda package: "1")
    monkeypatch.setattr(targets.importlib.util, "find_spec", lambda name: name)
    monkeypatch.setattr(targets, "clashes", lambda packages: iter([clash]))
    assert xgrad.target("tpu:v5e").missing == "libtpu is 0.0.1, and jax needs libtpu==0.0.42.*: pip install X"
