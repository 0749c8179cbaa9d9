"""Answer: holds a chip compiler's result for one program (bytes, seconds, errors); `remember` stores it in a folder.

It has methods of JAX's compiled programs (`as_text()`, `cost_analysis()`, `memory_analysis()`), so that code which
reads those reads answers too.
"""

import contextlib
import hashlib
import json
import os
import tempfile
import zlib
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ..compile_cache import used_folder

_known: dict[str, "Answer"] = {}  # of this process
_MOST_KNOWN = 256


@dataclass(frozen=True)
class Answer:
    """The compiler's answer: `state` is one of "compiles", "does not fit", "refused", "ends the compiler", "slow".

    `said`: the compiler's words, if the program does not compile.  `seconds`: how long it took to compile.
    """

    target: str
    state: str
    said: str = ""
    seconds: float = 0.0
    hlo: str = field(default="", repr=False)
    cost: dict[str, float] = field(default_factory=dict, repr=False)
    memory: dict[str, int] = field(default_factory=dict)

    @property
    def flops(self) -> float | None:
        """The compiler's count of floating-point operations; None without estimates, as from GPUs' compilers."""
        return self.cost.get("flops", 0.0 if self.cost else None)

    @property
    def bytes_accessed(self) -> float | None:
        """The compiler's count of bytes that are read and written; None if it gives no estimates."""
        return self.cost.get("bytes accessed")

    @property
    def estimated_seconds(self) -> float | None:
        """The compiler's estimate of a run's time; None if it has none.

        It counts each call of a function of its own (a sort, a factorization) as -1 s: those count as nothing here.
        """
        found = self.cost.get("optimal_seconds")
        if found is None:
            return None
        while found < 0:
            found += 1.0
        return found

    @property
    def peak(self) -> int:
        """The bytes of each device that the program takes; results that lie in donated arguments count once."""
        return sum(self.memory.values()) - 2 * self.memory.get("alias", 0)

    def as_text(self) -> str:
        """Return the optimized program."""
        return self.hlo

    def cost_analysis(self) -> dict[str, float]:
        """Return the compiler's estimates of the whole program."""
        return self.cost

    def memory_analysis(self) -> Any:
        """Return the bytes that the program takes, under JAX's names; None if the compiler does not say."""
        return SimpleNamespace(**{f"{k}_size_in_bytes": n for k, n in self.memory.items()}) if self.memory else None


def key_of(*parts: Any) -> str:
    """Return the key of a program: a hash of all that its answer depends on."""
    found = hashlib.sha256()
    for part in parts:
        found.update(repr(part).encode())
        found.update(b"\0")
    return found.hexdigest()


def remembered(key: str) -> Answer | None:
    """Return the answer to a program that was asked of before, by this process or another one."""
    if key in _known:
        return _known[key]
    with contextlib.suppress(OSError, ValueError, TypeError, zlib.error):  # no such file; a damaged one
        if (file := _file(key)) is not None:
            return _noted(key, Answer(**json.loads(zlib.decompress(file.read_bytes()))))
    return None


def remember(key: str, answer: Answer) -> None:
    """Keep an answer for this process and, if compiled programs are stored, for the next."""
    _noted(key, answer)
    file = _file(key)
    if file is None:
        return
    with contextlib.suppress(OSError):  # a full disk
        descriptor, name = tempfile.mkstemp(dir=file.parent)
        with os.fdopen(descriptor, "wb") as out:
            out.write(zlib.compress(json.dumps(asdict(answer)).encode()))
        os.replace(name, file)


def _noted(key: str, answer: Answer) -> Answer:
    while len(_known) >= _MOST_KNOWN:
        _known.pop(next(iter(_known)), None)
    _known[key] = answer
    return answer


def _file(key: str) -> Path | None:
    """Return the file of a program's answer, in the folder of compiled programs, with which it is trimmed."""
    folder = used_folder()  # its size, which takes a look at each file, is not asked
    return None if folder is None else folder / f"chip-{key}-cache"
