"""Each program eager, lazy and compiled: PyTorch's losses."""

import pytest

from . import generative, language, learning, meta, reinforcement, science, supervised  # noqa: F401 - they enter programs
from .harness import PROGRAMS, compare

QUICK = {"cnn", "gpt", "wgan_gp", "maml"}  # a few of different kinds


def cases():
    for name, entry in PROGRAMS.items():
        for mode in ("eager", "lazy", "compiled"):
            if mode != "compiled" or entry.compiled:
                quick = name in QUICK and mode == "eager"
                yield pytest.param(name, mode, marks=() if quick else pytest.mark.exhaustive)


@pytest.mark.parametrize(("name", "mode"), cases())
@pytest.mark.unverified("the programs are compared with PyTorch")
def test_losses_are_pytorchs(name, mode):
    compare(name, mode)
