"""A stand-in for the chips' compilers; with libtpu, which few environments have, its tests too."""

import sys
from pathlib import Path

import pytest

import xgrad
from xgrad.chips import answers
from xgrad.chips.process import Compiler

if xgrad.target("tpu:v5e").missing is not None:
    collect_ignore_glob = ["test_libtpu*.py"]


@pytest.fixture(scope="session")
def process():
    """The process of the stand-in, for all tests."""
    compiler = Compiler()
    compiler.command = (sys.executable, str(Path(__file__).with_name("stand_in.py")))
    yield compiler
    compiler.stop()


@pytest.fixture
def compiler(process, monkeypatch):
    """Ask the stand-in in place of a chip's compiler; no answer is known yet."""
    monkeypatch.setattr("xgrad.chips.targets.compiler_of", lambda platform: process)
    monkeypatch.setattr("xgrad.chips.targets.missing", lambda platform: None)
    monkeypatch.setattr(answers, "_known", {})
    return process
