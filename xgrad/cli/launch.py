"""Several processes of one program on this machine, which know each other over the loopback address.

Invariant: when `launch` returns or raises, each process that it started has ended: by itself, or because another one
failed, the time was up, or somebody pressed Ctrl-C.  If the launcher itself is killed they end too: each holds the
other end of a pipe to it (`hold`).  A process that is left alone would wait in a collective for those that are gone.
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
TOLD = 4000  # characters of what a process that failed said last


class HostError(RuntimeError):
    """A process of several failed, or they took too long."""


def launch(
    command_of: Callable[[int, str], Sequence[str]],
    hosts: int,
    limit: float,
    environment: Mapping[str, str] | None = None,
) -> None:
    """Run `command_of(host, coordinator)` for each host, and wait for all; `coordinator` is an address to meet at.

    What the first one prints is printed; of the others, what they said last, if they fail.  `environment` is added to
    this process's.  Raises `HostError` if one exits with another code than 0, or if they need more than `limit`
    seconds; then, and on `KeyboardInterrupt`, all are ended first.
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
                    start_new_session=True,  # Ctrl-C is for the launcher, which then ends them all
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
    """What a process said last, if that was not printed."""
    if output is None:
        return ""
    size = output.seek(0, os.SEEK_END)
    output.seek(max(0, size - TOLD))
    said = output.read().decode(errors="replace").strip()
    return f":\n{said}" if said else ""


def _end(processes: list[subprocess.Popen]) -> None:
    """Kill those that still run, and wait for them.

    Nothing gentler: JAX takes SIGTERM for a notice of preemption, and a process in a collective hears nothing else.
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
    """An address of the loopback with a port that stays free for the coordinator, which shares it."""
    with socket.socket() as reserved:
        shared = sys.platform == "linux"  # gRPC listens with SO_REUSEPORT there; who asks for any port gets another
        if shared:
            reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        reserved.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{reserved.getsockname()[1]}"
        if not shared:
            reserved.close()
        yield address


@contextmanager
def _terminable() -> Iterator[None]:
    """Where SIGTERM is an exception, as Ctrl-C is, so that whoever is asked to end cleans up."""
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
    """In a process that was launched: end with the launcher, whatever ends that."""

    def wait() -> None:
        os.read(0, 1)  # nobody writes: it returns when the other end is closed
        os._exit(1)

    threading.Thread(target=wait, daemon=True, name="held by the launcher").start()


@contextmanager
def end_after(limit: float) -> Iterator[None]:
    """A block after which this process ends, wherever it hangs, if it is not through after so many seconds."""

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
