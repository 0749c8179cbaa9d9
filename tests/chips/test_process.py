"""The compiler's process: it may end, take for ever or be interrupted, and nothing stays behind."""

import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import jax
import numpy as np
import pytest

import xgrad

_numbers = itertools.count(2)
STRUCT = jax.ShapeDtypeStruct((4, 4), np.float32)


def gone(pid):
    """True once a process has ended."""
    for _ in range(100):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return True
        if state == "Z":
            return True
        time.sleep(0.05)
    return False


def works(compiler):
    """True if a program that is not known compiles."""
    number = next(_numbers)
    answer = xgrad.target("tpu:v5e").ask(lambda x: x * number, STRUCT)
    return answer.state == "compiles" and compiler._process.poll() is None


def test_a_compiler_that_ends_its_process_is_an_answer(compiler):
    answer = xgrad.target("tpu:v2").ask(lambda x: x + 1, STRUCT)
    assert answer.state == "ends the compiler"
    assert "Check failed: rank == 2" in answer.said
    assert "some words before" not in answer.said
    assert works(compiler)


def test_a_compiler_that_takes_too_long_is_stopped(compiler):
    assert works(compiler)
    pid = compiler._process.pid
    start = time.monotonic()
    answer = xgrad.target("tpu:v3", limit=0.5).ask(lambda x: x + 1, STRUCT)
    assert (answer.state, answer.said) == ("slow", "the compiler took longer than 0.5 s")
    assert time.monotonic() - start < 10
    assert gone(pid)
    assert works(compiler)


def test_an_interrupt_kills_what_the_compiler_works_on(compiler, interruptible):
    assert works(compiler)
    pid = compiler._process.pid
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        xgrad.target("tpu:v3").ask(lambda x: x + 1, STRUCT)
    assert gone(pid)
    assert works(compiler)


def test_a_compiler_that_the_system_kills_says_nothing_of_the_program(compiler):
    """Because memory was short, say: to ask again may succeed."""
    assert works(compiler)
    threading.Timer(0.5, os.kill, (compiler._process.pid, signal.SIGKILL)).start()
    answer = xgrad.target("tpu:v3").ask(lambda x: x + 2, STRUCT)
    assert answer.state == "slow"
    assert answer.said == "the system has killed the compiler's process, perhaps because memory was short"
    assert works(compiler)


def test_a_process_that_does_not_start_is_an_error_and_no_answer(compiler, monkeypatch):
    compiler.stop()
    with monkeypatch.context() as other:
        other.setattr(compiler, "command", (sys.executable, "-c", "raise ImportError('no jax here')"))
        with pytest.raises(xgrad.errors.TargetError, match=r"does not start: [\s\S]*no jax here"):
            xgrad.target("tpu:v5e").ask(lambda x: x + 5, STRUCT)
    assert xgrad.target("tpu:v5e").ask(lambda x: x + 5, STRUCT).state == "compiles"


def test_an_error_of_the_compiler_is_an_answer(compiler):
    answer = xgrad.target("tpu:v5e").ask(lambda x: x * 3, STRUCT, options={"no_such_option": True})
    assert answer.state == "refused"
    assert "no_such_option" in answer.said


def test_the_process_ends_with_the_one_that_started_it():
    code = """
import os, sys, threading, time
import jax, numpy as np
from xgrad.chips import process, targets
import xgrad
compiler = process.Compiler()
compiler.command = (sys.executable, sys.argv[1])
targets.compiler_of, targets.missing = lambda platform: compiler, lambda platform: None
struct = jax.ShapeDtypeStruct((4, 4), np.float32)
threading.Thread(target=xgrad.target("tpu:v3").ask, args=(lambda x: x, struct), daemon=True).start()
while compiler._process is None:
    time.sleep(0.05)
print(compiler._process.pid, flush=True)
time.sleep(0.5)
os.kill(os.getpid(), 9)
"""
    stand_in = str(Path(__file__).with_name("stand_in.py"))
    done = subprocess.run([sys.executable, "-c", code, stand_in], capture_output=True, text=True, timeout=120)
    assert gone(int(done.stdout))


def test_a_forked_process_starts_its_own(compiler):
    assert works(compiler)
    compiler.forget()
    assert compiler._process is None
    assert works(compiler)
