"""All that xgrad takes from JAX beyond its documentation, in one place, so that one file is read when JAX changes.

Each part has a canary, a test and a line of `python -m xgrad doctor`, which fails the day JAX changes it.  What depends
on it is right without it, and slower.
"""

import sys
from math import inf

# JAX's event before it looks for a program in its compile cache, in the thread that compiles.
SOUGHT = "/jax/compilation_cache/compile_requests_use_cache"
_BETWEEN = {"jax", "jaxlib", "contextlib", "functools"}  # packages whose frames are between a compile and its caller


def xgrad_compiles() -> bool:
    """Return True if xgrad called the program that JAX compiles, seeks or stores now in this thread.

    A program that another package calls is that package's, also if it computes with xgrad (`jax.jit(to_jax(f))`).
    """
    frame, in_jax = sys._getframe(1), False
    while frame is not None:
        package = frame.f_globals.get("__name__", "").partition(".")[0]
        if package in _BETWEEN:
            in_jax = True
        elif in_jax:
            return package == "xgrad"
        frame = frame.f_back
    return False


class OwnPrograms(float):
    """JAX's setting "store programs that took so many seconds to compile": 0 for xgrad's programs, never for others.

    JAX has one compile cache for a process, and compares this number where it has compiled a program.  Printed, and for
    a JAX that does otherwise, it is the number that was set before.
    """

    __slots__ = ()

    def __gt__(self, seconds: float) -> bool:
        return _least() > seconds

    def __ge__(self, seconds: float) -> bool:
        return _least() >= seconds

    def __lt__(self, seconds: float) -> bool:
        return _least() < seconds

    def __le__(self, seconds: float) -> bool:
        return _least() <= seconds


def _least() -> float:
    return 0.0 if xgrad_compiles() else inf
