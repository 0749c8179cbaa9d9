"""Answers: they are remembered by what they depend on, and read as JAX's compiled programs are."""

import jax
import numpy as np
import pytest

import xgrad
from xgrad.chips import answers
from xgrad.execution.programs.cost import cost_of

STRUCT = jax.ShapeDtypeStruct((4, 4), np.float32)


@pytest.fixture
def asked(compiler, monkeypatch):
    """The requests that reach the compiler."""
    found = []
    ask = compiler.ask
    monkeypatch.setattr(compiler, "ask", lambda request, limit: found.append(request) or ask(request, limit))
    return found


def double(x):
    return x * 2


def test_a_program_is_compiled_once(asked):
    v5e = xgrad.target("tpu:v5e")
    assert v5e.ask(double, STRUCT) is v5e.ask(double, STRUCT)
    assert len(asked) == 1
    v5e.ask(double, STRUCT, donate=(0,))
    v5e.ask(double, jax.ShapeDtypeStruct((4, 5), np.float32))
    xgrad.target("tpu:v6e").ask(double, STRUCT)
    assert len(asked) == 4


def test_another_process_finds_it_in_the_folder(asked, tmp_path, monkeypatch):
    try:
        folder = xgrad.enable_compile_cache(tmp_path)
        first = xgrad.target("tpu:v5e").ask(double, STRUCT)
        monkeypatch.setattr(answers, "_known", {})
        assert xgrad.target("tpu:v5e").ask(double, STRUCT) == first
        assert len(asked) == 1
        (file,) = folder.glob("chip-*-cache")
        assert xgrad.compile_cache_info().programs >= 1  # it counts, and is trimmed, with the others
        file.write_bytes(b"damaged")
        monkeypatch.setattr(answers, "_known", {})
        assert xgrad.target("tpu:v5e").ask(double, STRUCT).memory == first.memory
        assert len(asked) == 2
    finally:
        xgrad.disable_compile_cache()


def test_a_program_that_was_stopped_is_tried_again(asked):
    for _ in range(2):
        assert xgrad.target("tpu:v3", limit=0.2).ask(double, STRUCT).state == "slow"
    assert len(asked) == 2


def test_calls_of_the_compilers_own_functions_count_as_nothing():
    """It gives each a second, with a minus."""
    answer = answers.Answer("tpu:v5e:1x1", "compiles", cost={"optimal_seconds": -2 + 3e-6})
    assert answer.estimated_seconds == pytest.approx(3e-6)
    assert answers.Answer("cuda:t4:1", "compiles").estimated_seconds is None


def test_what_reads_costs_of_programs_reads_answers(compiler):
    answer = xgrad.target("tpu:v5e").ask(double, STRUCT)
    cost = cost_of(answer)
    assert cost.bytes_accessed == answer.bytes_accessed > 0
    assert cost.temporary_bytes == answer.memory["temp"]
    assert cost.operations > 0
    assert "multiply" in xgrad.viz.program(answer).text() or "mul" in xgrad.viz.program(answer).text()
