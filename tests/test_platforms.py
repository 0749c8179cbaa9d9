"""The platform for which a program is traced: who asks for it, and that no trace serves another platform."""

import os
import pathlib
import subprocess
import sys
import threading

import jax
import jax.numpy as jnp
import pytest

import xgrad
from xgrad.base.platforms import traced_for, tracing_for

ROOT = pathlib.Path(xgrad.__file__).parent
LOWERED = {"gpu": "cuda"}  # lowering tells NVIDIA from others


def test_only_one_file_asks_jax_for_its_default_platform():
    asking = {path.name for path in ROOT.rglob("*.py") if ".default_backend(" in path.read_text()}
    assert asking == {"platforms.py"}


def test_a_block_says_the_platform_in_its_thread_alone():
    here = traced_for()
    found = []
    with tracing_for("tpu"):
        thread = threading.Thread(target=lambda: found.append(traced_for()))
        thread.start()
        thread.join()
        with tracing_for("gpu"):
            found.append(traced_for())
        found.append(traced_for())
    assert [*found, traced_for()] == [here, "gpu", "tpu", here]


@pytest.mark.parametrize("first", ["cpu", "tpu"])
def test_no_trace_of_one_platform_serves_another(first):
    """xgrad's operators are jitted functions, whose traces JAX keeps: a quotient is another program for a TPU."""
    shape = jax.ShapeDtypeStruct((2, 3) if first == "cpu" else (3, 2), jnp.float32)

    def text(platform):
        function = jax.jit(lambda x: xgrad.exp(xgrad.tensor(x) / 3)._read())
        with tracing_for(platform):
            return function.trace(shape).lower(lowering_platforms=(LOWERED.get(platform, platform),)).as_text()

    texts = {platform: text(platform) for platform in (first, "cpu", "tpu", "gpu")}
    assert "optimization_barrier" in texts["cpu"]
    assert "optimization_barrier" not in texts["tpu"] + texts["gpu"]
    assert text("cpu") == texts["cpu"]
    xgrad.exp(xgrad.ones(shape.shape) / 3)  # a program of the CPU
    assert text("tpu") == texts["tpu"]


def test_the_last_of_several_flags_counts_as_it_does_for_xla():
    code = "import jax, xgrad; xgrad.ones(1); print(len(jax.devices()))"
    read = "import os, xgrad.base.platforms as p; p.jax.devices = lambda: print(os.environ['PJRT_NPROC']); p.start()"
    flag = "--xla_force_host_platform_device_count="
    environment = {**os.environ, "XLA_FLAGS": f"{flag}1 {flag}2", "JAX_PLATFORMS": "cpu"}
    environment.pop("PJRT_NPROC", None)
    for program, wanted in ((code, "2"), (read, "64")):
        found = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
        assert found.stdout.strip() == wanted, found.stderr
