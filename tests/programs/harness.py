"""What a program of this folder is, and its comparison with PyTorch.

A program is a function `program(torch, compile)` that returns numbers: losses, step by step.  `torch` is PyTorch or
xgrad, and the program knows no difference.  `compile` is applied to a function that makes one step: the identity, or
`xgrad.compile`.  Data and first weights come from NumPy, by seeds.
"""

import importlib
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch as theirs

import xgrad

PROGRAMS: dict[str, "Program"] = {}
MODES = ("eager", "lazy", "compiled")
FILES = ("supervised", "learning", "language", "generative", "science", "reinforcement", "meta")


def enter_all():
    """Import the files of programs, which fill PROGRAMS."""
    for name in FILES:
        importlib.import_module(f"{__package__}.{name}")


@dataclass(frozen=True)
class Program:
    """A program, how closely its numbers are PyTorch's, and whether it has a step for `compile`."""

    run: Any
    rtol: float = 2e-5
    atol: float = 2e-6
    compiled: bool = True


def program(run=None, **options):
    """Enter a program into PROGRAMS."""
    if run is None:
        return lambda run: program(run, **options)
    PROGRAMS[run.__name__] = Program(run, **options)
    return run


def numbers(*shape, seed=0, low=-1.0, high=1.0):
    """Uniform numbers as an array of float32."""
    return np.random.default_rng([seed, *shape]).uniform(low, high, shape).astype(np.float32)


def normal(*shape, seed=0):
    """Normal numbers as an array of float32."""
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def whole(high, *shape, seed=0):
    """Integers below `high` as an array of int64."""
    return np.random.default_rng([seed, high, *shape]).integers(0, high, shape)


def weighted(torch, module, seed=0):
    """Give a module's parameters numbers of NumPy's, through its state_dict; return the module."""
    state = module.state_dict()
    for i, (name, parameter) in enumerate(module.named_parameters()):
        shape = tuple(parameter.shape)
        fan = math.prod(shape[1:]) or 1
        value = numbers(*shape, seed=1000 * seed + i) / math.sqrt(fan)
        state[name] = torch.from_numpy(value + 1.0 if name.endswith("norm.weight") else value)
    module.load_state_dict(state)
    return module


def compare(name, mode):
    """Run a program with both libraries, xgrad in this mode; assert that the numbers agree, and return the gap."""
    entry = PROGRAMS[name]
    theirs.manual_seed(0)
    expected = np.array(entry.run(theirs, lambda step: step), np.float64)
    xgrad.manual_seed(0)
    if mode == "lazy":
        with xgrad.lazy():
            got = entry.run(xgrad, lambda step: step)
    else:
        got = entry.run(xgrad, xgrad.compile if mode == "compiled" else lambda step: step)
    np.testing.assert_allclose(np.array(got, np.float64), expected, entry.rtol, entry.atol, err_msg=f"{name}, {mode}")
    assert np.isfinite(expected).all()
    assert np.ptp(expected) > 1e-4 * abs(expected).max(), "the numbers do not change: nothing is learned"
    return (abs(np.array(got) - expected) / np.maximum(abs(expected), entry.atol / entry.rtol)).max()
