"""A CPU that plays several devices runs more programs than it has processors."""

import subprocess
import sys

import pytest

CODE = """
import jax, xgrad
from jax.sharding import PartitionSpec as P
with xgrad.mesh({"x": 8}):
    a = xgrad.ones(128, 8, 64, device=P())
    up, down = xgrad.ones(64, 256, device=P(None, "x")), xgrad.ones(256, 64, device=P("x"))
for _ in range(100):
    h = (a @ up) @ down  # ends with a sum over the devices
    a = xgrad.tanh(h) + h.mean(-1, keepdim=True) / 1e6
assert a.isfinite().all()
"""


@pytest.mark.exhaustive
def test_programs_that_wait_for_each_other_end(monkeypatch):
    """Without threads for all of them XLA gives up after 40 s, and the process with it."""
    monkeypatch.setenv("XLA_FLAGS", "--xla_force_host_platform_device_count=8")
    monkeypatch.delenv("PJRT_NPROC", raising=False)
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
