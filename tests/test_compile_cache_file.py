"""compile_cache.save and load: the compile cache as one file, which is code, and treated so."""

import os
import shutil
import subprocess
import sys
import zipfile

import pytest

import xgrad
from xgrad import compile_cache
from xgrad.execution.programs import archive

STEP = """
import os, xgrad
if "FILE" in os.environ:
    print(xgrad.compile_cache.load(os.environ["FILE"]))
x = xgrad.arange(6.0).reshape(2, 3).requires_grad_()
(x.tanh() @ xgrad.ones(3, 2)).sum().backward()
metrics = xgrad.compile_cache.metrics()
print(x.grad.tolist(), metrics.programs)
print(metrics.found)
if "SAVE" in os.environ:
    print(xgrad.compile_cache.save(os.environ["SAVE"]))
"""


def run(folder, **environment):
    kept = {**os.environ, "XGRAD_COMPILE_CACHE": str(folder), **environment}
    done = subprocess.run([sys.executable, "-c", STEP], env=kept, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "arning" not in done.stderr
    return done.stdout.splitlines()


def test_one_file_brings_the_programs_to_another_folder(tmp_path):
    file, new = tmp_path / "mine.zip", tmp_path / "new"
    result, found, saved = run(tmp_path / "old", SAVE=str(file))
    assert found == "0"
    assert file.stat().st_mode & 0o777 == 0o600
    loaded, again, found = run(new, FILE=str(file))
    assert again == result
    assert loaded == saved == found == result.rpartition(" ")[2]
    (folder,) = new.iterdir()
    assert {f.stat().st_mode & 0o777 for f in folder.glob("*-cache")} == {0o600}


@pytest.fixture
def folder(tmp_path):
    """The folder of this process's compile cache, with two programs."""
    used = xgrad.enable_compile_cache(tmp_path / "cache")
    for name in ("jit_one-1a-cache", "jit_two-2b-cache"):
        (used / name).write_bytes(name.encode() * 100)
    yield used
    xgrad.disable_compile_cache()


def listed(folder):
    return sorted(f.name for f in folder.iterdir() if f.name != "trimmed")


def test_programs_that_are_there_stay_and_the_others_are_added(folder, tmp_path):
    file = folder / "mine.zip"  # in the folder itself, which it is not part of
    assert compile_cache.save(file) == 2
    os.rename(file, tmp_path / "mine.zip")
    (folder / "jit_one-1a-cache").unlink()
    (folder / "jit_two-2b-cache").write_bytes(b"newer")
    assert compile_cache.load(tmp_path / "mine.zip") == 1
    assert (folder / "jit_one-1a-cache").read_bytes() == b"jit_one-1a-cache" * 100
    assert (folder / "jit_two-2b-cache").read_bytes() == b"newer"
    assert compile_cache.load(str(tmp_path / "mine.zip")) == 0
    assert listed(folder) == ["jit_one-1a-cache", "jit_two-2b-cache"]


def test_a_file_that_others_could_have_written_is_refused(folder, tmp_path, monkeypatch):
    file = tmp_path / "mine.zip"
    compile_cache.save(file)
    (folder / "jit_one-1a-cache").unlink()
    for mode in (0o620, 0o602):
        file.chmod(mode)
        with pytest.raises(
            PermissionError, match=r"others may write to .*mine.zip: load a file that only you can write"
        ):
            compile_cache.load(file)
    file.chmod(0o600)
    monkeypatch.setattr(os, "getuid", lambda: file.stat().st_uid + 1)
    if file.stat().st_uid != 0:  # root's files are as good as one's own
        with pytest.raises(PermissionError):
            compile_cache.load(file)
    assert listed(folder) == ["jit_two-2b-cache"]


@pytest.mark.parametrize("damage", ["truncated", "changed", "empty", "text"])
def test_a_damaged_file_is_refused_and_leaves_no_damaged_program(folder, tmp_path, damage):
    file = tmp_path / "mine.zip"
    compile_cache.save(file)
    whole = file.read_bytes()
    place = whole.index(b"jit_one-1a-cache" * 2)
    changed = whole[:place] + b"?" + whole[place + 1 :]
    file.write_bytes({"truncated": whole[:-90], "changed": changed, "empty": b"", "text": b"no zip " * 9}[damage])
    for name in listed(folder):
        (folder / name).unlink()
    with pytest.raises(ValueError, match=r"mine.zip is damaged, or compile_cache.save\(\) did not write it"):
        compile_cache.load(file)
    assert set(listed(folder)) <= {"jit_two-2b-cache"}


def test_a_file_writes_nothing_beside_the_folder(folder, tmp_path):
    file = tmp_path / "odd.zip"
    outside = tmp_path / "x-cache"
    with zipfile.ZipFile(file, "w") as zipped:
        for name in (
            "../up-cache",
            f"{outside}",
            "a/b-cache",
            "..\\c-cache",
            "odd.py",
            "-cache\n",
            "a\n-cache",
            "c:d-cache",
        ):
            zipped.writestr(f"{folder.name}/{name}", b"")
        zipped.writestr("another-machine/x-cache", b"")
        zipped.writestr(str(outside), b"")
    file.chmod(0o600)
    before = listed(folder)
    assert compile_cache.load(file) == 0
    assert listed(folder) == before
    assert listed(tmp_path) == ["cache", "odd.zip"]


def test_a_file_of_more_than_the_cache_holds_is_refused(folder, tmp_path, monkeypatch):
    compile_cache.save(tmp_path / "mine.zip")
    monkeypatch.setattr(archive, "MOST_BYTES", 1000)
    with pytest.raises(ValueError, match="more than 1000 bytes"):
        compile_cache.load(tmp_path / "mine.zip")


def test_an_interrupt_or_a_full_disk_leaves_what_was_there(folder, tmp_path, monkeypatch):
    file = tmp_path / "mine.zip"
    compile_cache.save(file)
    before = file.read_bytes()
    (folder / "jit_one-1a-cache").unlink()

    def broken_off(error):
        def copy(*_):
            raise error

        return copy

    for error in (KeyboardInterrupt(), OSError(28, "No space left on device")):
        monkeypatch.setattr(shutil, "copyfileobj", broken_off(error))
        for call in (compile_cache.load, compile_cache.save):
            with pytest.raises(type(error)):
                call(file)
        assert file.read_bytes() == before
        assert listed(folder) == ["jit_two-2b-cache"]
        assert listed(tmp_path) == ["cache", "mine.zip"]


@pytest.mark.parametrize("call", [compile_cache.save, compile_cache.load])
def test_without_a_compile_cache_it_is_an_error(call, tmp_path):
    xgrad.disable_compile_cache()
    with pytest.raises(RuntimeError, match=rf"compile_cache.{call.__name__}\(\): xgrad's compile cache is off"):
        call(tmp_path / "mine.zip")
    assert listed(tmp_path) == []
