"""Where the time of first runs goes, by program, and the line that a terminal shows while XLA works."""

import contextlib
import io
import os
import pty
import re
import subprocess
import sys
import threading
import time

import jax
import numpy as np
import pytest

import xgrad
from xgrad.base.jax_compat import COMPILED, LOWERED, SAVED, TRACED
from xgrad.execution.programs import compiles
from xgrad.execution.programs.ahead import compile_ahead
from xgrad.execution.programs.compiles import Compile, CompileMetrics, Recorder, recorder
from xgrad.execution.programs.programs import jit_checked

SCRIPT = """
import xgrad

def step():
    x = xgrad.arange(6.0).reshape(2, 3).requires_grad_()
    (x.tanh() @ xgrad.ones(3, 2)).sum().backward()

step()
print(tuple(xgrad.compile_cache.metrics()))
print(xgrad.compile_cache.metrics())
"""


def first_run(folder):
    """The metrics of a process that runs the script, and what it printed."""
    script = folder / "script.py"
    script.write_text(SCRIPT)
    kept = {**os.environ, "XGRAD_COMPILE_CACHE": str(folder), "XGRAD_LAZY": "0"}  # it counts single operators
    done = subprocess.run([sys.executable, script], env=kept, capture_output=True, text=True, check=True)
    values, _, printed = done.stdout.partition("\n")
    return CompileMetrics(*eval(values, {"Compile": Compile})), printed


def test_a_process_knows_what_it_compiled_and_the_next_one_what_the_cache_gave(tmp_path):
    cold, printed = first_run(tmp_path)
    assert cold.programs > 3
    assert cold.found == cold.loading == cold.saved == 0
    assert min(cold.tracing, cold.lowering, cold.compiling) > 0
    assert len(cold.slowest) == min(cold.programs, 10)
    assert [c.seconds for c in cold.slowest] == sorted([c.seconds for c in cold.slowest], reverse=True)
    assert {"script.py:6", "matmul"} <= {c.line for c in cold.slowest} | {c.program for c in cold.slowest}
    assert {c.line for c in cold.slowest} <= {"script.py:5", "script.py:6"}
    assert f"{cold.programs} programs, 0 of them from the compile cache, which saved 0.0 s\nseconds: tracing" in printed
    assert re.search(r"\d\.\d\d s, matmul at script.py:6\n", printed)
    warm, printed = first_run(tmp_path)
    assert warm.programs == warm.found == cold.programs
    assert warm.compiling == 0 < warm.loading
    assert " s, matmul at script.py:6, from the cache\n" in printed


def test_a_phase_within_another_is_counted_once():
    counted = Recorder()
    counted.begin("/jax/another", 0.0)
    counted.begin(TRACED, 0.0)
    counted.begin(TRACED, 0.0)
    counted.begin(COMPILED, 0.0)
    counted.end("/jax/another", 9.0)
    counted.end(SAVED, 5.0)
    counted.end(COMPILED, 4.0, fun_name="jit(_inner)")
    counted.end(TRACED, 6.0)
    counted.end(TRACED, 7.0)
    counted.begin(LOWERED, 0.0)
    counted.end(LOWERED, 8.0)
    counted.end(LOWERED, 1.0)  # it had begun before anybody listened
    assert counted.counts == {
        "programs": 1, "found": 1, "tracing": 3, "lowering": 9, "compiling": 0, "loading": 4, "saved": 5,
    }  # fmt: skip
    (slowest,) = counted.slowest
    assert (slowest.program, slowest.seconds, slowest.found) == ("inner", 4.0, True)
    assert not counted.active


def test_what_fails_to_compile_or_is_interrupted_is_over(monkeypatch):
    before = xgrad.compile_cache.metrics()

    def failing(x):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        jax.jit(failing)(1.0)
    assert recorder.thread.inner == []
    assert not recorder.active
    assert xgrad.compile_cache.metrics().programs == before.programs


def test_threads_that_compile_for_a_line_know_it(monkeypatch):
    monkeypatch.setattr(recorder, "slowest", [])
    programs = [jit_checked(lambda x, n=n: x * 3 + n) for n in range(3)]
    compile_ahead([(program, [np.ones(7, np.float32)]) for program in programs])
    assert len(recorder.slowest) == 3
    assert {c.line.partition(":")[0] for c in recorder.slowest} == {"test_compiles.py"}
    assert recorder.batch is None


# -- the line ----------------------------------------------------------------------------------------------------------


class Terminal:
    """A terminal, which is the process's standard error in a block: pytest has its own until a test begins."""

    def __init__(self):
        self.ours, theirs = pty.openpty()
        self.text = ""
        self.file = open(theirs, "w")  # noqa: SIM115 - closed at the end of the block
        self.thread = threading.Thread(target=self._read, daemon=True)

    def __enter__(self):
        self.before, sys.stderr = sys.stderr, self.file
        self.thread.start()
        return self

    def __exit__(self, *error):
        ends = time.monotonic() + 10
        while recorder.watched and time.monotonic() < ends:
            time.sleep(0.05)
        sys.stderr = self.before
        self.file.close()
        self.thread.join(5)
        os.close(self.ours)

    def _read(self):
        with contextlib.suppress(OSError):  # closed
            while True:
                self.text += os.read(self.ours, 1024).decode()

    def shown(self):
        """What stands in its last line."""
        line = ""
        for part in self.text.rpartition("\n")[2].split("\r"):
            line = part + line[len(part) :]
        return line.rstrip()

    def is_blank(self):
        """True as soon as nothing stands there; False after 5 seconds."""
        ends = time.monotonic() + 5
        while self.shown() and time.monotonic() < ends:
            time.sleep(0.02)
        return not self.shown()


@pytest.fixture
def terminal(monkeypatch):
    monkeypatch.setattr(compiles, "WAIT", -1.0)
    monkeypatch.setattr(compiles, "PAUSE", 0.1)
    return Terminal()


def slow_to_compile(number):
    """Compile a program of the size `number`, which no test has, and which takes XLA a while."""
    x = xgrad.ones(number)
    with xgrad.lazy():
        for i in range(40):
            x = (x * 2).sin() @ xgrad.ones(number, number) + i
    return x.sum().item()


def test_a_terminal_shows_the_line_while_xla_compiles_and_nothing_afterwards(terminal):
    with terminal:
        slow_to_compile(5)
        assert terminal.is_blank()
    line = r"xgrad: compiling (program \d+|\d+ of \d+ programs), \d+ s, slow_to_compile at test_compiles.py:\d+"
    assert re.search(line, terminal.text), terminal.text
    assert max(map(len, re.split("[\r\n]", terminal.text))) < 80


def test_the_thread_that_compiles_last_erases_the_line(terminal):
    shown = Recorder()
    with terminal:
        for _ in range(2):
            shown.begin(COMPILED, 0.0)
        shown.active["another"] = shown.active[threading.get_ident()]
        shown._write("xgrad: compiling")
        shown.end(COMPILED, 1.0)
        assert shown.shown == 16
        shown.active.clear()
        shown.end(COMPILED, 1.0)
        assert shown.shown == 0
        assert terminal.is_blank()
    assert terminal.text.count("xgrad: compiling") == 1


def test_a_notebook_shows_it_too(terminal):
    class OutStream(io.StringIO):
        __module__ = "ipykernel.iostream"

    with terminal:
        sys.stderr = stream = OutStream()
        slow_to_compile(7)
        ends = time.monotonic() + 5
        while stream.getvalue().rpartition("\r")[2] and time.monotonic() < ends:
            time.sleep(0.02)
    assert "\rxgrad: compiling" in stream.getvalue()
    assert stream.getvalue().endswith("\r")
    assert terminal.text == ""


@pytest.mark.parametrize("why", ["switched off", "soon over", "no terminal", "closed", "none"])
def test_nothing_is_shown_otherwise(terminal, monkeypatch, why, tmp_path):
    with terminal:
        if why == "switched off":
            monkeypatch.setenv("XGRAD_PROGRESS", "0")
        elif why == "soon over":
            monkeypatch.setattr(compiles, "WAIT", 1000.0)
        else:
            log = open(tmp_path / "log", "w")  # noqa: SIM115 - closed below
            sys.stderr = None if why == "none" else log
            if why != "no terminal":
                log.close()
        slow_to_compile(10 * len(why))
    assert terminal.text == ""
    if why == "no terminal":
        log.close()
        assert (tmp_path / "log").read_text() == ""


def test_what_another_package_compiles_is_not_shown(terminal):
    with terminal:
        jax.jit(lambda x: jax.numpy.sort(x * 3.25) @ x)(np.ones(11, np.float32))
        assert not recorder.watched
    assert terminal.text == ""
