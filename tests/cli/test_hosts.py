"""`python -m xgrad demo --hosts`, and what launches its processes."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from xgrad.cli import main
from xgrad.cli.launch import HostError, end_after, launch


def start(code, hosts=2, limit=30.0):
    """Launch processes that run `code`, with their number and the coordinator as arguments."""
    launch(lambda host, coordinator: [sys.executable, "-c", code, str(host), coordinator], hosts, limit)


ENDLESS = (
    "import os, pathlib, sys, time; pathlib.Path(sys.argv[1] + '.pid').write_text(str(os.getpid())); time.sleep(100)"
)


def runs(pid):
    try:
        return bool(Path(f"/proc/{pid}/cmdline").read_bytes())
    except OSError:
        return False


def ended(pids):
    """Whether all are gone, within some seconds."""
    pids = list(pids)
    until = time.monotonic() + 20
    while time.monotonic() < until:
        # A process whose parent is gone may stay as a zombie, where nobody reaps it.
        if not any(map(runs, pids)):
            return True
        time.sleep(0.05)
    return False


def pids(folder, n=2):
    until = time.monotonic() + 20
    while time.monotonic() < until:
        found = [file.read_text() for file in folder.glob("*.pid")]
        if len(found) == n and all(found):
            return found
        time.sleep(0.05)
    raise AssertionError("they did not start")


def test_launched_processes_get_numbers_and_one_free_address_and_only_the_first_prints(capfd):
    start("import sys, socket; s = socket.socket(); print(sys.argv[1:])", 3)
    host, address = capfd.readouterr().out.strip("[]\n").split(", ")
    assert host == "'0'"
    assert address.startswith("'127.0.0.1:")


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("import sys; sys.argv[1] == '1' and sys.exit('no luck'); ", "host 1 of 2 failed with exit code 1:\nno luck"),
        ("import os, sys; sys.argv[1] == '0' and os.kill(os.getpid(), 9); ", "host 0 of 2 was ended by SIGKILL"),
        ("", "not done after 2 s: ended hosts 0, 1"),
    ],
    ids=["fails", "dies", "hangs"],
)  # fmt: skip
def test_if_one_fails_or_the_time_is_up_all_end(code, told, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(HostError) as error:
        start(code + ENDLESS, limit=2.0)
    assert str(error.value) == told
    assert ended(file.read_text() for file in tmp_path.glob("*.pid"))


@pytest.mark.exhaustive
@pytest.mark.one_in(2)
@pytest.mark.parametrize("how", ["SIGINT", "SIGTERM", "SIGKILL"])
def test_when_the_launcher_ends_its_processes_end(how, tmp_path):
    """By Ctrl-C, when it is asked to, and when it is killed."""
    held = "from xgrad.cli.launch import hold; hold(); " if how == "SIGKILL" else ""
    program = (
        # A background job of a shell ignores SIGINT, and so does what it starts.
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
        "from xgrad.cli.launch import launch; "
        f"launch(lambda h, c: [sys.executable, '-c', {held + ENDLESS!r}, str(h)], 2, 60)"
    )
    launcher = subprocess.Popen([sys.executable, "-c", program], cwd=tmp_path, stderr=subprocess.PIPE)
    try:
        started = pids(tmp_path)
        launcher.send_signal(getattr(signal, how))
        assert launcher.wait(20) != 0
        assert ended(started)
    finally:
        launcher.kill()
        launcher.communicate()


@pytest.mark.exhaustive
def test_a_process_that_takes_too_long_ends_itself():
    code = "import time; from xgrad.cli.launch import end_after\nwith end_after(0.2): time.sleep(60)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=50)
    assert (done.returncode, done.stderr) == (1, "not done after 0.2 s\n")
    with end_after(0.01):
        pass
    time.sleep(0.05)  # in time


@pytest.mark.exhaustive
def test_demo_over_two_processes(capfd, monkeypatch):
    """One epoch; the loss of each step is that of a process alone, and parameters are equal."""
    monkeypatch.setenv("XLA_FLAGS", "")  # a device each
    assert main(["demo", "--hosts", "2", "--epochs", "1", "--compiled", "--limit", "200"]) == 0
    out, _ = capfd.readouterr()
    assert "on 2 hosts with 2 devices (cpu): each makes 64 of a batch's images" in out
    assert "parameters are equal on all hosts" in out
    assert "Gloo" not in out
    drift = float(out.split("first epoch: ")[1].split(" of it")[0])
    assert drift < 1e-5


@pytest.mark.exhaustive
@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--hosts", "0"], "must be at least 1"),
        (["--hosts", "many"], "'many' is not an integer"),
        (["--hosts", "2", "--host", "0"], "--host and --coordinator belong together"),
        (["--hosts", "2", "--host", "2", "--coordinator", "127.0.0.1:1"], "2 of 2 hosts"),
        (["--hosts", "auto", "--host", "0", "--coordinator", "127.0.0.1:1"], "not with --hosts auto"),
        (["--hosts", "2", "--device", "cpu"], "not together with --hosts"),
    ],
)
def test_wrong_arguments_are_told(arguments, told, capsys):
    with pytest.raises(SystemExit) as exit:
        main(["demo", *arguments])
    assert exit.value.code == 2
    assert told in capsys.readouterr().err
