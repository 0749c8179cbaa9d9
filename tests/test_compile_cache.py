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


def run(code, **environment):
    """Run `code` with the process's environment and this one, where None takes a name away; return the process."""
    merged = {**os.environ, "XGRAD_COMPILE_CACHE": None, "XDG_CACHE_HOME": None, **environment}
    kept = {name: str(value) for name, value in merged.items() if value is not None}
    return subprocess.Popen(
        [sys.executable, "-c", code], env=kept, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def told(process):
    """Wait for a process; return what it printed."""
    out, errors = process.communicate()
    assert process.returncode == 0, errors
    assert "arning" not in errors
    return out.strip()


WHERE = (
    "import xgrad; xgrad.ones(3).tanh().tolist(); i = xgrad.compile_cache_info(); print(i and (i.folder, i.programs))"
)


def test_it_is_on_by_default_in_a_private_folder_and_0_turns_it_off(tmp_path):
    first = told(run(WHERE, HOME=tmp_path))
    parent = tmp_path / ".cache" / "xgrad"
    (folder,) = parent.iterdir()
    count = len(list(folder.glob("*-cache")))
    assert count > 0
    assert first == str((folder, count))
    assert {place.stat().st_mode & 0o777 for place in (parent, folder)} == {0o700}
    assert told(run(WHERE, HOME=tmp_path, XGRAD_COMPILE_CACHE="0")) == "None"


@pytest.mark.exhaustive
@pytest.mark.parametrize("home", ["/proc/self/none", "writable by others", "a file"])
def test_a_home_that_cannot_hold_it_leaves_it_off_without_a_word(tmp_path, home):
    """As on a machine whose home is read-only; `doctor` says why."""
    place = tmp_path / home
    if home == "writable by others":
        (place / ".cache" / "xgrad").mkdir(parents=True)
        (place / ".cache" / "xgrad").chmod(0o777)
    elif home != "/proc/self/none":
        place.write_text("")
    assert told(run(WHERE, HOME=place)) == "None"
    assert "compile cache: off (" in run("import xgrad.cli as c; c.main(['doctor'])", HOME=place).communicate()[0]


@pytest.mark.exhaustive
def test_a_folder_that_the_program_gave_jax_stays(tmp_path):
    assert told(run("import jax\n" + WHERE, JAX_COMPILATION_CACHE_DIR=tmp_path)).startswith(f"({tmp_path!r}"[:20])
    code = f"import jax; jax.config.update('jax_compilation_cache_dir', {str(tmp_path)!r})\n"
    assert repr(tmp_path) in told(run(code + WHERE, HOME=tmp_path / "home"))
    assert not (tmp_path / "home").exists()


@pytest.mark.exhaustive
def test_processes_that_start_together_share_it(tmp_path):
    processes = [run(STEP, HOME=tmp_path) for _ in range(3)]
    assert {told(process).rpartition("] ")[0] + "]" for process in processes} == {GRADIENT}
    assert told(run(STEP, HOME=tmp_path)).endswith(" 0")  # none is compiled again


@pytest.mark.usefixtures("_off")
def test_programs_beyond_the_bound_are_deleted_the_oldest_first_once_a_day(tmp_path):
    folder = xgrad.enable_compile_cache(tmp_path)
    for age in range(4):
        file = folder / f"program{age}-cache"
        file.write_bytes(b"x" * 100)
        os.utime(file, (1e9 - age, 1e9 - age))
    xgrad.enable_compile_cache(tmp_path, most_bytes=250)
    assert xgrad.compile_cache_info().programs == 4  # it was looked at a moment ago
    (folder / "trimmed").unlink()
    xgrad.enable_compile_cache(tmp_path, most_bytes=250)
    assert sorted(file.name for file in folder.glob("*-cache")) == ["program0-cache", "program1-cache"]
    with pytest.raises(ValueError, match="must not be negative"):
        xgrad.enable_compile_cache(tmp_path, most_bytes=-1)


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
