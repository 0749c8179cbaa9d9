"""The compile cache: a second process compiles nothing and traces little; stale, broken, foreign files do no harm."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import xgrad
from xgrad import kept
from xgrad.cli import main
from xgrad.ops.registry import OPERATORS, Operator

STEP = """
import jax
counts = dict.fromkeys(["/xgrad/compile_cache/loaded"], 0)
counts |= dict.fromkeys(["/jax/compilation_cache/cache_hits", "/jax/compilation_cache/cache_misses"], 0)

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
GRADIENT = "[[0.0, 8.0, 16.0], [6.0, 8.0, 10.0]]"


def step(folder, package=None):
    """(loaded, hits, misses) of a process that uses the cache: executables of xgrad's, entries of JAX's."""
    environment = {**os.environ, "XGRAD_COMPILE_CACHE": str(folder)}
    if package is not None:
        environment["PYTHONPATH"] = str(package)
    done = subprocess.run(
        [sys.executable, "-c", STEP], env=environment, capture_output=True, text=True, check=True, cwd=folder.parent
    )
    gradient, _, counts = done.stdout.rpartition("] ")
    assert gradient + "]" == GRADIENT, done.stdout
    return tuple(int(n) for n in counts.split())


def test_a_second_process_compiles_nothing_and_broken_files_do_no_harm(tmp_path):
    cache = tmp_path / "cache"
    _, hits, misses = step(cache)
    assert hits < misses
    (folder,) = cache.iterdir()
    assert folder.name.startswith("jaxlib-")
    own, jaxs = sorted(folder.glob("*.program")), sorted(folder.glob("*-cache"))
    assert len(jaxs) == misses
    assert len(own) > misses / 2
    # What has no name, and what calls LAPACK, is JAX's to keep.
    assert step(cache) == (len(own), hits + misses - len(own), 0)
    for file in own[::3]:
        file.write_bytes(b"from elsewhere")
    for file in own[1::3]:
        file.write_bytes(file.read_bytes()[:-1])
    own[2].write_bytes(own[5].read_bytes())  # that of another program
    for file in jaxs[::2]:
        file.write_bytes(b"from elsewhere")
    loaded, *_ = step(cache)  # whatever JAX counts: the gradient is right
    assert 0 < loaded < len(own)


def test_other_sources_load_nothing_of_these(tmp_path):
    cache, package = tmp_path / "cache", tmp_path / "package"
    shutil.copytree(Path(xgrad.__file__).parent, package / "xgrad", ignore=shutil.ignore_patterns("__pycache__"))
    _, hits, misses = step(cache, package)
    with (package / "xgrad" / "errors.py").open("a") as file:
        file.write("\n# a line more\n")
    assert step(cache, package) == (0, hits + misses, 0)


@pytest.fixture
def _off():
    yield
    xgrad.disable_compile_cache()


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


# ---------------------------------------------------------------- names


def test_with_the_cache_off_a_program_is_what_jit_gives(monkeypatch):
    monkeypatch.setattr(OPERATORS["tanh"], "kernels", {})
    (xgrad.ones(2, 3) * 2.0).tanh()
    kinds = {type(kernel.program) for kernel in OPERATORS["tanh"].kernels.values()}
    assert kinds == {type(jax.jit(jnp.tanh))}


def test_texts_tell_values_apart():
    values = [
        1, 1.0, True, 0, -0.0, 0.0, None, "1", "None", (), ("",), (1,), (1, 1), ((1,), 1), [1], np.dtype("float32"),
        "float32", np.dtype("int32"), 1j, np.uint32(1), ("1, 1",), ("1", "1"),
    ]  # fmt: skip
    texts = [kept.told(value) for value in values]
    assert None not in texts
    assert len(set(texts)) == len(values)


def test_only_what_has_one_meaning_in_all_processes_is_told():
    chain = xgrad.ones(4, 6).t()[1]._chain
    assert kept.told(chain.program) != kept.told(xgrad.ones(4, 6)[1]._chain.program) is not None
    for value in (len, object(), (1, [object()]), {1: 2}, np.ones(3)):
        assert kept.told(value) is None
    ours = [op for op in OPERATORS.values() if op.function.__module__.startswith("xgrad.")]  # other tests declare some
    assert all(op.declared for op in ours)
    assert kept.told(OPERATORS["mul"].kernel(())) is not None
    assert kept.told(Operator("mul", lambda self, other: self + other).kernel(())) is None


# ---------------------------------------------------------------- calls


@pytest.fixture
def mul(tmp_path, monkeypatch):
    """A product with the cache on: called with True, its programs are those of a new process."""
    monkeypatch.setattr(OPERATORS["mul"], "kernels", {})
    folder = xgrad.enable_compile_cache(tmp_path)
    loaded = []

    def count(event, **_):
        loaded.append(event == kept.LOADED)

    jax.monitoring.register_event_listener(count)

    def kernel(anew=False):
        if anew:
            OPERATORS["mul"].kernels.clear()
        return OPERATORS["mul"].kernel(())

    kernel.files = lambda: len(list(folder.glob("*.program")))
    kernel.loaded = lambda: sum(loaded)
    yield kernel
    xgrad.disable_compile_cache()


def test_executables_differ_as_programs_of_jit_do(mul):
    f, i = jnp.ones((3, 41)), jnp.ones((3, 41), jnp.int32)
    there = jax.device_put(f, jax.devices()[1])
    calls = [(f, f), (f, f[:1]), (f, i), (i, i), (i, 2), (i, 2.0), (f, 2.0), (there, there), (there, f[0, 0])]
    calls += [(jax.device_put(f, jax.devices()[0]), f), (f, np.float32(2)), (f, np.ones((3, 41), "float32"))]
    for anew in (False, True):
        for call in calls:
            program, expected = mul(anew).program, jax.jit(lambda a, b: mul().function(a, b))(*call)
            assert isinstance(program, kept.Kept)
            for _ in range(2):
                result = program(*call)
                assert result.dtype == expected.dtype
                assert (result.weak_type, result.committed) == (expected.weak_type, expected.committed)
                assert result.devices() == expected.devices()
                assert (result == expected).all()
    assert mul.files() == mul.loaded() == 9  # not those of NumPy's, nor that of two devices


def test_settings_belong_to_a_program(mul):
    i = xgrad.as_tensor(np.ones((2, 43), "int32"))
    inf = xgrad.as_tensor(np.full((2, 43), np.inf, "float32"))
    for anew in (False, True):
        mul(anew)
        assert (i * 2.0).dtype == xgrad.float32
        xgrad.set_default_dtype(xgrad.bfloat16)
        try:
            assert (i * 2.0).dtype == xgrad.bfloat16
        finally:
            xgrad.set_default_dtype(xgrad.float32)
        with jax.debug_nans(True), pytest.raises(FloatingPointError):
            inf * 0.0
    assert mul.files() == mul.loaded() == 2


def test_in_a_trace_a_program_is_a_part_of_it(mul):
    x = jnp.ones((2, 47))
    mul().program(x, x)

    def traced(y):
        return mul().program(x, x) + y  # x is no tracer, and is traced all the same

    assert "mul" in str(jax.make_jaxpr(traced)(x))
    assert (jax.jit(jax.grad(lambda y: mul().program(y, x).sum()))(x) == 1).all()


def test_a_loaded_program_takes_the_memory_that_is_donated(mul):
    for anew in (False, True):
        write = mul(anew).write(True)
        x = jnp.ones((2, 53)) + 1
        assert (write(x, 2.0) == 4).all()
        assert x.is_deleted()
        with pytest.raises((RuntimeError, ValueError), match=r"deleted|donated"):
            write(x, 2.0)
    assert mul.files() == mul.loaded() == 1


class Interrupt(BaseException):
    pass


def test_a_write_that_is_interrupted_behind_its_program_has_its_value(mul, monkeypatch):
    """The call of an executable goes through Python when the memory has been taken."""
    call = kept.Kept.__call__

    def interrupted(self, *values):
        call(self, *values)
        raise Interrupt

    for anew in (False, True):
        mul(anew)
        x = xgrad.full((3, 1 << 18), 2.0)  # so large that it is noted what memory the program needs
        x.mul_(3)
        with monkeypatch.context() as patched:
            patched.setattr(kept.Kept, "__call__", interrupted)
            with pytest.raises(Interrupt):
                x.mul_(3)
        assert (x[0, 0].item(), x._version) == (18.0, 2)
        x.mul_(2)
        assert x[0, 0].item() == 36
    assert mul.loaded()


def test_errors_are_those_of_the_operator(mul):
    x, y = xgrad.as_tensor(np.ones((2, 59))), xgrad.as_tensor(np.ones((3, 59)))
    for anew in (False, True):
        mul(anew)
        with pytest.raises(RuntimeError, match="must match the size"):
            x * y
    assert mul.files() == 0


def test_after_many_calls_jit_takes_over(mul, monkeypatch):
    monkeypatch.setattr(kept, "CALLS", 3)
    program, x = mul().program, jnp.ones((2, 61))
    for _ in range(3):
        assert program.left > 0
        assert (program(x, x) == 1).all()
    monkeypatch.setattr(program, "jitted", lambda *_: "jitted")
    while program.left:
        program(x, x)
    assert program(x, x) == "jitted"


def test_nothing_is_kept_where_the_folder_is_gone(mul, tmp_path):
    shutil.rmtree(tmp_path)
    assert (mul().program(jnp.ones((2, 67)), 3.0) == 3).all()
