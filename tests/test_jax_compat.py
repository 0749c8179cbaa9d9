"""What xgrad takes from JAX beyond its documentation: each part is as it was, and what follows if it is not."""

import pathlib
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import pytest

import xgrad
from xgrad.base import jax_compat
from xgrad.base.jax_compat import CANARIES, changed
from xgrad.cli import main
from xgrad.execution import donation
from xgrad.execution.donation import Writing, run_writing

ROOT = pathlib.Path(xgrad.__file__).parent


@pytest.mark.parametrize("what", CANARIES)
def test_jax_is_as_xgrad_takes_it(what):
    canary, _ = CANARIES[what]
    assert canary()
    assert canary()  # it leaves nothing behind


# {a name of jax_compat: another value, as after a change of JAX's; the canary that says so}
CHANGES = {
    "TRACED": ("/jax/traced", "JAX's events of compiling fire"),
    "LOWERED": ("/jax/lowered", "JAX's events of compiling fire"),
    "SOUGHT": ("/jax/sought", "JAX's events of compiling fire"),
    "COMPILED": ("/jax/compiled", "JAX's events of compiling fire"),
    "LEAST_TIME": ("jax_traceback_in_locations_limit", "JAX compares times of compiling"),
    "trace_state": (lambda: 0, "JAX's traces can be distinguished"),
    "user_context": (lambda value: Context(value), "JAX's caches know user contexts"),
    "_empty": (SimpleNamespace(trace=lambda: jax.jit(lambda: None).trace()), "JAX keeps a function's trace"),
    "INNER": ("program", "JAX's equations have their parameters"),
    "CUSTOM_INNER": ("program", "JAX's equations have their parameters"),
    "NAME": ("called", "JAX's equations have their parameters"),
    "NOT_INLINED": ({"kept": "true"}, "XLA keeps calls that are not to be inlined"),
}


class Context:
    """A context whose value JAX does not know of."""

    def __init__(self, value):
        self.value = value

    def __call__(self, value):
        self.value = value
        return self

    def __enter__(self):
        pass

    def __exit__(self, *error):
        pass


@pytest.mark.parametrize("name", CHANGES)
def test_doctor_says_what_is_no_longer_so_and_what_follows(name, monkeypatch, capsys):
    value, what = CHANGES[name]
    monkeypatch.setattr(jax_compat, name, value)
    assert [text for text, (canary, _) in CANARIES.items() if changed(canary)] == [what]
    if name in ("COMPILED", "INNER"):
        assert main(["doctor"]) == 0
        assert f"clash  {what}: no longer so; {CANARIES[what][1]}" in capsys.readouterr().out


def test_each_canary_has_a_change_that_it_sees():
    assert {what for _, what in CHANGES.values()} == set(CANARIES)


def _boxes(monkeypatch, count):
    """The array's box after a write that JAX neither traces nor compiles, where so many programs were compiled."""
    program = Writing(lambda array, other: array + other)
    for _ in range(2):
        box, out = [jnp.ones((3, 5))], []
        monkeypatch.setattr(donation.compiled, "count", count)
        run_writing(program, out, box, (jnp.ones((3, 5)),))
        assert out[0].tolist() == [[2.0] * 5] * 3
        monkeypatch.undo()
    return box


def test_a_write_copies_first_while_jax_has_not_said_that_it_compiles(monkeypatch):
    """The event of a compile has the copy made where Python could be interrupted; without it, each write has one."""
    assert len(_boxes(monkeypatch, 1)) == 1
    box = _boxes(monkeypatch, 0)
    assert len(box) == 2
    assert box[1].tolist() == [[1.0] * 5] * 3


def test_one_file_has_the_names():
    """`jax.core` is where JAX puts what it does not document."""
    names = (
        "jax.core import Tracer",
        "get_opaque_trace_state",
        "make_user_context",
        "/jax/c",
        "inlineable",
        "call_jaxpr",
    )
    for path in ROOT.rglob("*.py"):
        if path.name != "jax_compat.py":
            found = [name for name in names if name in path.read_text()]
            assert not found, (path, found)


def test_a_tracer_is_one():
    seen = []
    jax.jit(lambda x: seen.append(isinstance(x, jax_compat.Tracer)) or x)(1.0)
    assert seen == [True]
    assert not isinstance(jnp.ones(2), jax_compat.Tracer)
