"""Random programs of views and in-place writes do on declared backends what they do on torch."""

import random
from contextlib import nullcontext

import jax.numpy as jnp
import pytest

import xgrad
from xgrad.execution.runner import together

from ..lanes import budget
from ..property import drawing, programs

# How many in the quick lane, and in the exhaustive one.  270 take 46 CPU seconds.
FEW = budget(1, 30)

DECLARED = {
    "eager": ({}, "replay"),
    "strides": ({"strides": True}, "geometry"),
    "lazy": ({"execution": "lazy"}, "replay"),
    "lazy copies": ({"execution": "lazy", "donation": False, "strides": True}, "geometry"),
    "copies": ({"donation": False}, "replay"),
    "without": ({"without": ["mul", "tanh", "sum", "index*"]}, "replay"),
    "dtypes": ({"dtypes": ["float32", "bool"]}, "replay"),  # the programs are of float64: all is computed on the host
    "lowerings": ({"lowerings": {"mul": lambda x, y: y * x, "tanh": jnp.tanh}}, "replay"),
    "memory": ({"memory": 1 << 24}, "replay"),
    "together": ({}, "replay"),  # as in a compiled function: noted, and run as one program
}


class OnBackend(programs.Places):
    """Within the block programs run on a backend of xgrad's, and whatever they make is there."""

    def __init__(self, backend):
        self.backend, self.place, self.first = backend, backend.__xgrad_place__(), {}

    def of(self, shape, seed):
        return self.place

    def check(self, tensors, where):
        for name, x in tensors.items():
            assert x.device == self.backend.device, f"{name} after {where}: {x.device}"
            self.checked["on a backend"] += 1


@pytest.mark.parametrize("name", DECLARED)
@FEW
def test_program_on_a_declared_backend_agrees_with_torch(name, budget):
    declaration, path = DECLARED[name]
    backend = xgrad.Backend(name.replace(" ", "_"), **declaration)
    programs.Places.checked.clear()
    flavours = list(drawing.FLAVOURS.values())
    for seed in range(7000, 7000 + budget):
        draw = drawing.Draw(random.Random(seed))
        program, theirs = drawing.generate(draw, flavours[seed % len(flavours)], 3 + draw.below(8))
        try:
            block = together("the end") if name == "together" else nullcontext()
            with OnBackend(backend), backend.activate(), block:
                programs.compare(program, theirs, [(path, 0)])
        except AssertionError as error:
            error.add_note(f"\nseed {seed}\n{program.source('torch')}")
            raise
    assert programs.Places.checked["on a backend"] > 5 * budget
