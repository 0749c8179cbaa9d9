"""Compiler: starts the process (child.py) that compiles programs for a chip that is not here, and sends it programs.

The chip's compiler may crash its process, or take too long: both are answers here, and the next program gets a new
process.

Invariant: no process stays behind: an interrupt kills the one that works, the end of this process ends all.
"""

import atexit
import contextlib
import os
import pickle
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from ..errors import TargetError

START = 120.0  # seconds for JAX and the compiler to be loaded
_LIMIT_OF_WORDS = 4000
# The compiler asks the network for the machine's chips unless it is given some.
_ENVIRONMENT = {
    "JAX_PLATFORMS": "cpu",
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-4",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
}


class Compiler:
    """Starts and restarts the process of one platform's compiler ("tpu", ...); `ask` sends it a program."""

    command: tuple[str, ...] = (sys.executable, "-P", str(Path(__file__).with_name("child.py")))

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._process: Any = None
        self._channel: Any = None
        self._words: Any = None

    def ask(self, request: dict[str, Any], limit: float) -> dict[str, Any]:
        """Return what the compiler says of the program in `request`, or that it took longer than `limit` seconds."""
        with self._lock:
            try:
                self._started()
                self._channel.send_bytes(pickle.dumps(request))
                if self._channel.poll(limit):
                    return self._channel.recv()
                self.stop()
                said = f"the compiler took longer than {limit:g} s"
                return {"state": "slow", "said": said, "seconds": limit}
            except (EOFError, ConnectionError, BrokenPipeError):
                return self._end()
            except BaseException:  # an interrupt: what it works on now is of no use to anyone
                self.stop()
                raise

    def stop(self) -> None:
        """Kill the process, if there is one."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            self._channel.close()
            self._words.close()

    def forget(self) -> None:
        """Leave the process to the one that forked this one."""
        self._lock = threading.RLock()
        if self._process is not None:
            self._process.returncode = 0  # not ours to kill, or to wait for
            self.stop()

    def _started(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._words.seek(0)
            self._words.truncate()
            return
        self.stop()
        ours, theirs = socket.socketpair()
        self._channel = Connection(ours.detach())
        with theirs:
            self._words = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the process
            own = ("JAX_COMPILATION_CACHE_DIR", "JAX_ENABLE_X64", "JAX_DISABLE_JIT")
            self._process = subprocess.Popen(
                [*self.command, str(theirs.fileno())],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=self._words,
                stderr=self._words,
                env={name: value for name, value in os.environ.items() if name not in own} | _ENVIRONMENT,
                start_new_session=True,  # an interrupt from the keyboard is ours to handle
            )
        try:
            if not self._channel.poll(START):
                raise EOFError
            self._channel.recv()
        except EOFError:
            raise TargetError(f"the compiler's process does not start: {self._end()['said']}") from None

    def _end(self) -> dict[str, Any]:
        """Return how the process ended: with the failed check, or the last lines that it wrote."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(5.0)
        self._words.seek(0)
        lines, code = self._words.read().decode(errors="replace").splitlines(), self._process.returncode
        self.stop()
        if code == -signal.SIGKILL:  # which says nothing of the program
            said = "the system has killed the compiler's process, perhaps because memory was short"
            return {"state": "slow", "said": said, "seconds": 0.0}
        checks = [line for line in lines if "Check failed" in line or re.match(r"F\d|\*\*\* SIG", line)]
        told = checks[:1] or [line for line in lines if line.strip()][-3:]
        said = "\n".join([*told, f"(exit code {code})"])[-_LIMIT_OF_WORDS:]
        return {"state": "ends the compiler", "said": said, "seconds": 0.0}


_compilers: dict[str, Compiler] = {}


def compiler_of(platform: str) -> Compiler:
    """Return the `Compiler` of a platform; its process may not run yet."""
    if platform not in _compilers:
        compiler = _compilers.setdefault(platform, Compiler())
        atexit.register(compiler.stop)
        os.register_at_fork(after_in_child=compiler.forget)
    return _compilers[platform]
