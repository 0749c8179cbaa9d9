"""What all tests share: 64-bit mode, eight fake CPU devices, and the two paths of view tracking."""

import os
import zlib

os.environ.setdefault("JAX_ENABLE_X64", "1")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
if "host_platform_device_count" not in os.environ.get("XLA_FLAGS", ""):
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8".strip()

import pytest

from .oracle import PATHS, tracking


@pytest.fixture(params=PATHS)
def path(request):
    """Run the test with views tracked by replay, and again with views tracked by geometry."""
    with tracking(request.param):
        yield request.param


@pytest.fixture(autouse=True)
def verified(request, monkeypatch):
    """XGRAD_COMPILE=verify, but for tests that count how often a function runs in Python."""
    if request.node.get_closest_marker("unverified") is not None:
        monkeypatch.delenv("XGRAD_COMPILE", raising=False)


def pytest_collection_modifyitems(config, items):
    """Run part I of N of the tests where XGRAD_TESTS=I/N asks for it; a test is always in the same part."""
    if part := os.environ.get("XGRAD_TESTS"):
        index, count = map(int, part.split("/"))
        left_out = [item for item in items if zlib.crc32(item.nodeid.encode()) % count != index]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if zlib.crc32(item.nodeid.encode()) % count == index]
