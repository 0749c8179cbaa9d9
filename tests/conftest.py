"""What all tests share: 64-bit mode, eight fake CPU devices, and the two paths of view tracking."""

import gc
import importlib.abc
import importlib.util
import logging
import os
import signal
import sys
import zlib

from .flags import set_flags

os.environ.setdefault("JAX_ENABLE_X64", "1")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("XGRAD_COMPILE_CACHE", "0")  # each run compiles what it tests
set_flags()

import pytest

from .lanes import LAZY, QUICK, mark_exhaustive, skip_eager

if importlib.util.find_spec("torch") is None:

    class _Absent(importlib.abc.MetaPathFinder):
        """Leaves out the files that compare with PyTorch, which the lane of other Pythons lacks."""

        def find_spec(self, fullname, path, target=None):
            if fullname == "torch":
                pytest.skip("PyTorch is not installed", allow_module_level=True)

    sys.meta_path.append(_Absent())

LAST = pytest.StashKey()  # the file of the last test


@pytest.fixture(params=["replay", "geometry"])
def path(request):
    """Run the test with views tracked by replay, and again with views tracked by geometry."""
    from .oracle import tracking  # not above: it loads torch and JAX, which the process that starts others needs not

    with tracking(request.param):
        yield request.param


@pytest.fixture
def interruptible():
    """Interrupts arrive, also under nohup or in a shell's background job, which ignore SIGINT."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(autouse=True)
def verified(request, monkeypatch):
    """XGRAD_COMPILE=verify, but for tests that count how often a function runs in Python."""
    if request.node.get_closest_marker("unverified") is not None:
        monkeypatch.delenv("XGRAD_COMPILE", raising=False)


if LAZY:

    @pytest.fixture(autouse=True)
    def _evaluated():
        """Run what a test has noted and is alive at its end: an operator that fails does so in its own test."""
        yield
        import xgrad  # not above: the process that starts others needs it not

        xgrad.sync()


def pytest_configure(config):
    """A test that is named on the command line runs, exhaustive or not; programs run in the thread that calls them.

    xgrad chooses that thread before its first tensor.  A test's file may use JAX before.
    """
    if hasattr(config, "workerinput") or not getattr(config.option, "numprocesses", None):
        import xgrad  # the process that starts others needs it not

        xgrad.config.async_dispatch(False)
    if config.option.markexpr == QUICK and any("::" in argument for argument in config.args):
        config.option.markexpr = ""


@pytest.hookimpl(tryfirst=True)  # before -m selects
def pytest_collection_modifyitems(config, items):
    """Mark the exhaustive cases; keep part I of N of all tests, always the same, where XGRAD_TESTS=I/N asks for it."""
    mark_exhaustive(items)
    if LAZY:
        skip_eager(items)
    if part := os.environ.get("XGRAD_TESTS"):
        index, count = map(int, part.split("/"))
        left_out = [item for item in items if zlib.crc32(item.nodeid.encode()) % count != index]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if zlib.crc32(item.nodeid.encode()) % count == index]


def pytest_collection_finish():
    """Leave what is loaded by now to no later run of the garbage collector, which would walk over it each time.

    Have all loggers propagate: torch has 50 that do not, and pytest's plugin visits each of those six times in a test.
    """
    for logger in logging.root.manager.loggerDict.values():
        if isinstance(logger, logging.Logger):
            logger.propagate = True
    gc.freeze()


def pytest_runtest_setup(item):
    """Likewise what the tests of other files have loaded and compiled."""
    if item.config.stash.get(LAST, None) != item.path:
        item.config.stash[LAST] = item.path
        gc.collect()
        gc.freeze()
