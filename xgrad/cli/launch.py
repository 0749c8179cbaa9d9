"""launch: starts several processes of one program on this machine, for `python -m xgrad demo --hosts`.

The processes meet at the loopback address.

Invariant: when `launch` returns or raises, each process that it started has ended: by itself, or because another one
failed, the time was up, or the user pressed Ctrl-C.  If the launcher itself is killed the processes end too: each one
reads a pipe from the launcher (`hold`).  Without that, a process would wait for ever in a collective for the others.
"""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

GRACE = 10.0  # seconds that a killed process may take to end
POLL = 0.05
TOLD = 4000  # characters of a failed process's last output that the error shows


class HostError(RuntimeError):
    """One of several processes failed, or they took too long."""


def launch(
    command_of: Callable[[int, str], Sequence[str]],
    hosts: int,
    limit: float,
    environment: Mapping[str, str] | None = None,
) -> None:
    """Run `command_of(host, coordinator)` for each host, and wait for all; `coordinator` is an address to meet at.

    The first process's output is printed; of another process that fails, the error shows its last output.
    `environment` is added to this process's.  Raises `HostError` if a process exits with another code than 0, or if
    they need more than `limit` seconds; then, and on `KeyboardInterrupt`, all processes are ended first.
    """
    with ExitStack() as ends:
        coordinator = ends.enter_context(_free_address())
        outputs = [None, *(ends.enter_context(tempfile.TemporaryFile()) for _ in range(hosts - 1))]
        ends.enter_context(_terminable())
        processes: list[subprocess.Popen] = []
        ends.callback(_end, processes)
        for host, output in enumerate(outputs):
            processes.append(
                subprocess.Popen(
                    command_of(host, coordinator),
                    stdin=subprocess.PIPE,  # see `hold`
                    stdout=output,
                    stderr=None if output is None else subprocess.STDOUT,
                    env={**os.environ, **(environment or {})},
                    start_new_session=True,  # Ctrl-C is for the launcher, which then ends all processes
                )
            )
        started = time.monotonic()
        while None in (codes := [process.poll() for process in processes]) and not any(codes):
            if time.monotonic() - started > limit:
                raise HostError(f"not done after {limit:g} s: ended {_told(codes)}")
            time.sleep(POLL)
        if any(codes):
            failed = next(host for host, code in enumerate(codes) if code)
            raise HostError(f"host {failed} of {hosts} {_ended(codes[failed])}{_last(outputs[failed])}")


def _told(codes: list) -> str:
    return "hosts " + ", ".join(str(host) for host, code in enumerate(codes) if code is None)


def _ended(code: int | None) -> str:
    if code is not None and code < 0:
        return f"was ended by {signal.Signals(-code).name}"
    return f"failed with exit code {code}"


def _last(output: Any) -> str:
    """Return the end of a process's output, or an empty string if that output was printed."""
    if output is None:
        return ""
    size = output.seek(0, os.SEEK_END)
    output.seek(max(0, size - TOLD))
    said = output.read().decode(errors="replace").strip()
    return f":\n{said}" if said else ""


def _end(processes: list[subprocess.Popen]) -> None:
    """Kill the processes that still run, and wait for them.

    SIGTERM would not do: JAX reads it as a notice of preemption, and a process in a collective ignores it.
    """
    for process in processes:
        if process.poll() is None:
            process.kill()
    for process in processes:
        try:
            process.wait(GRACE)
        finally:
            if process.stdin is not None:
                process.stdin.close()


@contextmanager
def _free_address() -> Iterator[str]:
    """Yield a loopback address with a port that stays free for the coordinator, which shares it."""
    with socket.socket() as reserved:
        shared = sys.platform == "linux"  # gRPC listens with SO_REUSEPORT there; a bind to port 0 gets another port
        if shared:
            reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        reserved.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{reserved.getsockname()[1]}"
        if not shared:
            reserved.close()
        yield address


@contextmanager
def _terminable() -> Iterator[None]:
    """Raise SystemExit at SIGTERM inside the block, as Ctrl-C raises KeyboardInterrupt, so that `launch` cleans up.

    Only the main thread can set this up: in another one the block runs unchanged.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, frame: Any) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def hold() -> None:
    """End this process, which `launch` started, when the launcher ends for any reason."""

    def wait() -> None:
        os.read(0, 1)  # the launcher writes nothing: the read returns when the launcher's end is closed
        os._exit(1)

    threading.Thread(target=wait, daemon=True, name="held by the launcher").start()


@contextmanager
def end_after(limit: float) -> Iterator[None]:
    """End this process with code 1 unless the block ends within `limit` seconds, even if the block hangs."""

    def end() -> None:
        print(f"not done after {limit:g} s", file=sys.stderr, flush=True)
        os._exit(1)

    timer = threading.Timer(limit, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
