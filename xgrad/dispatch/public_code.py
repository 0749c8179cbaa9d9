"""Patches code objects of public functions (`xgrad.mul`), so that tracebacks and `??` show the operator's declaration.

A public function is made from text (declare.py), or is a wrapper of a composite.  Its code gets the declaration's file
and first line (the decorator's), and the line of the `def` for all that it does.  So `??` and `inspect.getsource`
show the declaration, a traceback says `File ".../arithmetic.py", line N, in mul` above `def mul(self, other):`, and
a profiler says `arithmetic.py:N(mul)`.

Many operators come from one function that declares a row of a table.  Their code stands in line 1 of a file of its
own, `.../unary.py:N`: the row of line N, and the function inside of the one that declares it.  (In unary.py itself
`inspect` would look for a `def` above the row.)
"""

import functools
import inspect
import linecache
import re
import sys
import textwrap
import tokenize
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any

Place = tuple[str, int]  # file, first line

_DEFINITION = re.compile(r"\s*def\s")
_MOST_DECORATED = 20  # lines of decorators above a `def`


def place_of(function: Callable[..., Any], name: str) -> Place:
    """Return the file and line of an operator's declaration: of its first decorator, or of the row that names it."""
    code = inspect.unwrap(function).__code__
    if "<locals>" in code.co_qualname:
        frame = sys._getframe(1)
        while frame is not None and frame.f_code.co_name != "<module>":
            frame = frame.f_back
        if frame is not None and frame.f_code.co_filename == code.co_filename and name in frame.f_code.co_consts:
            return _Row(code, frame.f_lineno).place()
    return code.co_filename, code.co_firstlineno


class _Row:
    """A row of a table, as a loader of source: `linecache` asks it for the row's text when something shows it."""

    def __init__(self, function: CodeType, line: int) -> None:
        self.function, self.file, self.line = function, function.co_filename, line

    def place(self) -> Place:
        own = f"{self.file}:{self.line}"
        linecache.lazycache(own, {"__name__": own, "__loader__": self})
        return own, 1

    def get_source(self, name: str) -> str:
        """Return the statement that begins in the row's line, and below it the function that the row declares."""
        lines = linecache.getlines(self.file)[self.line - 1 :]
        tokens = tokenize.generate_tokens(iter(lines).__next__)
        last = next((token.end[0] for token in tokens if token.type == tokenize.NEWLINE), 1)
        # `inspect.getsource` would look through all modules for the file's, which takes 0.2 s.
        body = inspect.getblock(linecache.getlines(self.file)[self.function.co_firstlineno - 1 :])
        return "".join(lines[:last]) + "\n" + textwrap.dedent("".join(body))


def put(code: CodeType, name: str, place: Place, below: int = 0) -> CodeType:
    """Return code under a name, its first line at a place and all that it does in one line, `below` that one."""
    file, line = place
    return code.replace(
        co_filename=file,
        co_firstlineno=line,
        co_name=name,
        co_qualname=name,
        co_linetable=_one_line(len(code.co_code) // 2, below),
    )


@functools.cache  # few lengths: a tenth of what importing xgrad would take otherwise
def _one_line(units: int, below: int) -> bytes:
    """Return the table of lines of so many code units that stand in one line, `below` the first one.

    An entry has a byte for its kind (13: no columns) and its number of code units, at most 8, and a byte for twice the
    number of lines that it is below the entry before.  (CPython: Objects/locations.md.)
    """
    counts = [8] * (units // 8) + [units % 8] * (units % 8 > 0)
    deltas = [2 * below] + [0] * len(counts)
    return bytes(byte for count, delta in zip(counts, deltas) for byte in (0x80 | 13 << 3 | count - 1, delta))


def lines_to_def(place: Place) -> int:
    """Return the number of lines from the first decorator at a place to its `def`; 0 if the first line is not a
    decorator."""
    file, line = place
    lines = linecache.getlines(file)[line - 1 : line - 1 + _MOST_DECORATED]
    if not lines or not lines[0].lstrip().startswith("@"):
        return 0
    return next((i for i, text in enumerate(lines) if _DEFINITION.match(text)), 0)


def first_call(*args: Any, **kwargs: Any) -> Any:
    """Compile the public function's own code, at its first call, and call it.

    Compiling all of them is a fifth of what importing xgrad would take.
    """
    try:
        return _write(_me)(*args, **kwargs)  # pyright: ignore[reportUndefinedVariable]  # noqa: F821 - of its scope
    except BaseException as error:
        error.__traceback__ = getattr(error.__traceback__, "tb_next", None)  # the frame of that code says the same
        raise


def unwritten(name: str, place: Place, scope: dict[str, Any]) -> Any:
    """Return a public function whose globals are `scope`: `_write` of that compiles its code at its first call."""
    return FunctionType(put(first_call.__code__, name, place), scope, name)


def compiled(text: str, name: str, place: Place, scope: dict[str, Any]) -> Any:
    """Return the function `name` that `text` defines, its code at a place and its globals in `scope`."""
    made: dict[str, Any] = {}
    exec(compile(text, place[0], "exec"), scope, made)
    function = made[name]
    function.__code__ = put(function.__code__, name, place, lines_to_def(place))
    return function


def called_as(function: Any, wrapper: Any, name: str = "") -> Any:
    """Return a function's wrapper, its code where the function's stands (if that is Python's), under its name."""
    own, name = getattr(inspect.unwrap(function), "__code__", None), name or function.__name__
    code = wrapper.__code__
    wrapper.__code__ = (
        put(code, name, (own.co_filename, own.co_firstlineno))
        if isinstance(own, CodeType)
        else code.replace(co_name=name, co_qualname=name)
    )
    return wrapper
