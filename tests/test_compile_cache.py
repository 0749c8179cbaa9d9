"""The compile cache: a second process compiles nothing; broken and foreign files do no harm."""

import contextlib
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
    "jax_persistent_cache_enable_xla_caches",
]
HALF_WRITTEN = "Error reading persistent compilation cache entry"
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


def told(process, allowed=""):
    """Wait for a process; return what it printed.  It may warn of nothing but what is allowed."""
    out, errors = process.communicate()
    assert process.returncode == 0, errors
    warned = [line for line in errors.splitlines() if "Warning: " in line]
    assert all(allowed and allowed in line for line in warned), errors
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
    """JAX writes a file in place: a process that reads it meanwhile warns, and compiles the program."""
    with contextlib.ExitStack() as stack:  # waits for all, also if one fails
        processes = [stack.enter_context(run(STEP, HOME=tmp_path)) for _ in range(3)]
        outs = [told(process, HALF_WRITTEN) for process in processes]
    assert {out.rpartition("] ")[0] + "]" for out in outs} == {GRADIENT}
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
    assert before == {name: getattr(jax.config, name) for name in SETTINGS}


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


OTHERS = """
import os, threading
import jax, jax.numpy as jnp
import numpy as np
import xgrad

def names(folder=None):
    folder = folder or xgrad.compile_cache_info().folder
    return [f.rpartition("-")[0].rpartition("-")[0] for f in os.listdir(folder) if f.endswith("-cache")]
"""


@pytest.mark.eager("launches")
def test_it_holds_the_programs_that_xgrad_calls_and_no_others(tmp_path):
    """Those of a thread that compiles while xgrad does, and those that are made of xgrad's operators, too."""
    code = (
        OTHERS
        + """
def others(n):
    def theirs(x):
        return x * n
    for i in range(1, 9):
        jax.jit(theirs)(np.ones(i, np.float32)).block_until_ready()

threads = [threading.Thread(target=others, args=(n,)) for n in (2, 3)]
[thread.start() for thread in threads]
x = xgrad.ones(3, 5).requires_grad_()
x.tanh().sum().backward()
def mine(x):
    return xgrad.to_jax(xgrad.sin)(x)
jax.jit(mine)(np.ones(3, np.float32))
@xgrad.compile
def step(x):
    return x.cos()
step(xgrad.ones(3, 5))
with xgrad.lazy():
    xgrad.ones(3, 5).exp().add_(1).tolist()
optimizer = xgrad.optim.Adam([x])
optimizer.step()  # programs that are compiled ahead, in threads
others(4)
[thread.join() for thread in threads]
found = names()
assert not {"jit_theirs", "jit_mine", "jit_multiply"} & {*found}, found
print(len(found))
"""
    )
    stored = int(told(run(code, HOME=tmp_path)))
    missed = """
counts = dict.fromkeys(["/jax/compilation_cache/cache_hits", "/jax/compilation_cache/compile_requests_use_cache"], 0)
def count(event, **kwargs):
    if event in counts:
        counts[event] += 1
jax.monitoring.register_event_listener(count)
"""
    code = code.replace("import xgrad\n", "import xgrad\n" + missed, 1) + "print(*counts.values())"
    again, hits, sought = map(int, told(run(code, HOME=tmp_path)).split())
    assert again == stored
    assert hits >= stored > 5
    assert sought - hits <= 25 + 1  # 24 of `theirs`, and `mine`


def test_a_folder_that_jax_is_told_later_is_its_own(tmp_path):
    """As if xgrad had not been there: it holds others' programs, and from the first one on."""
    code = (
        OTHERS
        + """
xgrad.ones(3).tanh().tolist()
before = names()
assert before and jax.config.values["jax_compilation_cache_dir"]
jax.config.update("jax_compilation_cache_dir", os.environ["THEIRS"])
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
def theirs(x):
    return x * 3
jax.jit(theirs)(np.ones(3, np.float32))
assert names(os.environ["THEIRS"]) == ["jit_theirs"]
"""
    )
    told(run(code, HOME=tmp_path / "home", THEIRS=tmp_path / "theirs"))


def test_the_least_time_of_compiling_is_the_users_where_jax_has_a_folder_later(tmp_path):
    code = (
        OTHERS
        + """
jax.config.update("jax_persistent_cache_min_compile_time_secs", 7.5)
xgrad.ones(3).tanh().tolist()
name = "jax_persistent_cache_min_compile_time_secs"
assert names() and jax.config.values[name] == 7.5 and type(jax.config.values[name]) is not float
jax.config.update("jax_compilation_cache_dir", os.environ["THEIRS"])
jax.jit(lambda x: x * 3)(np.ones(3, np.float32))
assert jax.config.values[name] == 7.5 and type(jax.config.values[name]) is float
"""
    )
    told(run(code, HOME=tmp_path / "home", THEIRS=tmp_path / "theirs"))
