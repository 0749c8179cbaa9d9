"""The compile cache: a second process compiles nothing; broken and foreign files do no harm."""

import os
import subprocess
import sys

import jax
import pytest

import xgrad
from xgrad.cli import main

STEP = """
import jax
counts = dict.fromkeys(["/jax/compilation_cache/cache_hits", "/jax/compilation_cache/cache_misses"], 0)

def count(event, **kwargs):
    if event in counts:
        counts[event] += 1

jax.monitoring.register_event_listener(count)
import xgrad
x = xgrad.arange(6.0).reshape(2, 3).requires_grad_()
y = x.clone()
y[0].mul_(2)
(y * y).sum().backward()
gradient = x.grad.tolist()
x.grad = None
(x.clone() * x).sum().backward(compiled=True)
xgrad.linalg.inv(xgrad.eye(2))
print(gradient, *counts.values())
"""
SETTINGS = [
    "jax_compilation_cache_dir",
    "jax_persistent_cache_min_compile_time_secs",
    "jax_persistent_cache_min_entry_size_bytes",
]
GRADIENT = "[[0.0, 8.0, 16.0], [6.0, 8.0, 10.0]]"


def step(folder):
    """(hits, misses) of a process that uses the cache."""
    environment = {**os.environ, "XGRAD_COMPILE_CACHE": str(folder)}
    done = subprocess.run(
        [sys.executable, "-c", STEP], env=environment, capture_output=True, text=True, check=True, cwd=folder.parent
    )
    gradient, _, counts = done.stdout.rpartition("] ")
    assert gradient + "]" == GRADIENT, done.stdout
    return tuple(int(n) for n in counts.split())


@pytest.mark.exhaustive
def test_a_second_process_compiles_nothing_and_broken_files_do_no_harm(tmp_path):
    cache = tmp_path / "cache"
    hits, misses = step(cache)
    assert hits < misses
    (folder,) = cache.iterdir()
    assert folder.name.startswith("jaxlib-")
    entries = sorted(folder.glob("*-cache"))
    assert len(entries) == misses
    assert step(cache) == (hits + misses, 0)
    for file in entries[::2]:
        file.write_bytes(b"from elsewhere")
    step(cache)  # whatever JAX counts: the gradient is right


@pytest.fixture
def _off():
    """No folder before the test, and afterwards the one that the environment gave."""
    before = {name: getattr(jax.config, name) for name in SETTINGS}
    xgrad.disable_compile_cache()
    yield
    xgrad.disable_compile_cache()
    for name, value in before.items():
        jax.config.update(name, value)


@pytest.mark.eager("launches")
@pytest.mark.usefixtures("_off")
def test_it_is_turned_on_and_off_in_a_process(tmp_path, capsys):
    assert xgrad.compile_cache_info() is None
    folder = xgrad.enable_compile_cache(tmp_path / "new")
    assert folder.parent == tmp_path / "new"
    (xgrad.ones(3, 5, 7) * 1.5).tanh()
    info = xgrad.compile_cache_info()
    assert info.folder == folder
    assert info.programs > 0
    assert info.bytes > 0
    assert main(["doctor"]) == 0
    assert f"compile cache: {folder}" in capsys.readouterr().out
    xgrad.disable_compile_cache()
    assert xgrad.compile_cache_info() is None
    assert main(["doctor"]) == 0
    assert "compile cache: off" in capsys.readouterr().out


@pytest.mark.usefixtures("_off")
@pytest.mark.skipif(not hasattr(os, "getuid"), reason="no owners here")
def test_a_folder_that_others_may_write_to_is_refused(tmp_path):
    tmp_path.chmod(0o777)
    with pytest.raises(PermissionError, match="only you can write to"):
        xgrad.enable_compile_cache(tmp_path)
    assert xgrad.compile_cache_info() is None
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(OSError, match=str(file)):
        xgrad.enable_compile_cache(file)
