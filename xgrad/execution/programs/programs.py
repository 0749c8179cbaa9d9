"""Program: a jitted function that checks its arrays' sizes and dtypes; in a lazy block its calls are queued.

The checks are `limits.checked`.  JAX's cache finds a program by its text, which begins with the function's name.  So a
program has a name that is the same in each process: the name of the function, also for a partial function, which has
none (`checked`).
"""

from collections.abc import Callable, Iterable
from typing import Any

import jax

from ...base.jax_compat import Tracer, in_trace
from ...base.limits import checked
from ..runner import runner


class Program:
    """A jitted function of arrays and numbers.  In a lazy block a call queues it, and returns what is pending.

    `run` is `jax.jit`'s function, which runs at once; `function` is the same for a trace.
    """

    __slots__ = ("avals", "function", "into", "label", "operator", "own", "parts", "place", "role", "run", "starts")
    lazy = True  # False: it runs at once in a lazy block too
    reads = True  # False: its operands are not read
    options: dict[str, str] | None = None  # of the compiler; see PartRead
    function: Callable[..., Any]
    label: str
    own: bool  # True if it runs code of xgrad and JAX alone
    operator: str  # the name of the operator that it computes, or whose derivative it is; "" for the engine's own
    parts: Any  # of a write through a view: the view's programs, and the kernel of the new value (None: it is given)
    place: Any  # the declared backend on which a program without operands runs
    starts: slice | None  # the operands that are starts of slices

    def __init__(self, function: Callable[..., Any], own: bool = False, **options: Any) -> None:
        self.function, self.own = function, own
        self.run: Any = jax.jit(function, **options)
        # For a larger program: "read" or "write", of a part of the first operand; "adjoint", zero but in a part; "sum".
        self.role: str = ""
        # A write's function, or for an adjoint the function of (array, *operands) that adds it to an array; in both,
        # the first argument is applied to a part that is read before it is written.
        self.into: Callable[..., Any] | None = None
        self.label = self.operator = ""
        self.parts = self.place = self.starts = None
        self.avals: dict[Any, Any] = {}  # the results' avals by the operands' avals, for a queue

    def __call__(self, *operands: Any) -> Any:
        return self.run(*operands) if runner.plain else runner.run(self, operands)

    def alone_for(self, operands: Iterable[Any]) -> Any:
        """Return the function that runs these operands as a program of its own: `run` on most platforms."""
        return self.run

    @property
    def name(self) -> str:
        """The name by which lazy blocks and reports call it: its `label` or the function's, without underscores."""
        return (self.label or self.function.__name__).lstrip("_")

    @property
    def lower(self) -> Any:
        """`jax.jit`'s `lower`."""
        return self.run.lower

    @property
    def eval_shape(self) -> Any:
        """`jax.jit`'s `eval_shape`."""
        return self.run.eval_shape


class Immediate(Program):
    """A function that needs values, and so is not jitted."""

    parts: Any
    place: Any
    starts: Any

    __slots__ = ()
    lazy = False

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = self.run = function
        self.own: Any = False
        self.avals: Any = {}
        self.into: Any = None
        self.role: Any = ""
        self.label: Any = ""
        self.operator: Any = ""
        self.parts = self.place = self.starts = None


class Known(Immediate):
    """A function that returns a known result, and does not read its operands."""

    __slots__ = ()
    reads = False


class AtOnce(Program):
    """A program that runs at once in a lazy block too."""

    __slots__ = ()
    lazy = False


class PartRead(Program):
    """A program that reads a part, with the compiler's `options` where it is a program of its own on that platform.

    JAX refuses options for a program within another: there it is compiled without.  A lazy program that reads parts
    has the options (`fused.py`).
    """

    __slots__ = ("alone", "options", "platform")

    def __init__(self, function: Callable[..., Any], platform: str, options: dict[str, str]) -> None:
        super().__init__(function)
        self.platform, self.options = platform, options
        self.alone: Any = jax.jit(function, compiler_options=options)

    def __call__(self, *operands: Any) -> Any:
        if not runner.at_once():
            return runner.run(self, operands)
        traced = isinstance(operands[0], Tracer) or in_trace()
        return (self.run if traced else self.alone_for(operands))(*operands)

    def alone_for(self, operands: Iterable[Any]) -> Any:
        return self.alone if self.is_there(operands) else self.run

    def is_there(self, operands: Iterable[Any]) -> bool:
        """Return True if a program of these operands runs on the platform."""
        root = next((x for x in operands if isinstance(x, jax.Array)), None)
        return root is None or next(iter(root.devices())).platform == self.platform


def jit_checked(
    function: Callable[..., Any],
    facts: Any = (),
    *,
    donate: bool = False,
    keep_unused: bool = False,
    converts: bool = False,
    own: bool = True,
    lazy: bool = True,
) -> Program:
    """Return `function` as a program; with `donate` the result is in the first argument's memory.

    `facts`, `converts`, `own`: see `limits.checked`.  `lazy`: False if it runs at once in a lazy block too.
    """
    function = checked(function, facts, converts=converts, own=own)
    kind = Program if lazy else AtOnce
    return kind(function, own, donate_argnums=(0,) if donate else (), keep_unused=keep_unused)


def jit_placed(function: Callable[..., Any], where: Any) -> Program:
    """Return `function` as a program that runs on its first argument's devices; its result has the sharding `where`."""
    return AtOnce(checked(function), out_shardings=where, keep_unused=True)
