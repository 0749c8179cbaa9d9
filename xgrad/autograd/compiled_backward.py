"""Compiled backward: `backward` and `grad` as a few XLA programs; hooks, order and errors are the eager engine's.

In `engine/programs/`: `run.py` cuts the graph into programs, `segment.py` finds them again.
PyTorch's counterpart is `torch._dynamo.compiled_autograd`, which refuses views that were written in place.
"""

from contextlib import ContextDecorator
from os import PathLike
from pathlib import Path
from typing import Any

from ..config import state
from ..engine.programs.run import Options
from ..engine.programs.segment import Program, clear, metrics, programs


class compiled_backward(ContextDecorator):
    """Within the block, and in this thread, backward runs as compiled programs; as a decorator, within the function.

    The first run with a new structure compiles: some 5 ms for each node on a CPU.  Graphs of the same operators find
    their programs again, whatever tensors they are of, and other shapes are traced anew.  Values, gradients, hooks and
    their order, errors and version checks are those of the eager engine; what it does not say is which node is
    running, while no hook does.  With `create_graph`, in forward mode, in a batch (`is_grads_batched`), in anomaly mode
    and under a profiler the eager engine runs.

    `segment`: how many nodes make a program, at least (it may be twice as many).  `dump`: a folder into which the
    optimized HLO of each new program is written, and the names of its nodes.  `enabled=False`: the eager engine, within
    a compiled block.  XGRAD_LOG=compile in the environment tells on stderr what is compiled, and why.

    >>> import xgrad
    >>> x = xgrad.ones(3, requires_grad=True)
    >>> with xgrad.autograd.compiled_backward():
    ...     (x * x).tanh().sum().backward()
    >>> x.grad
    tensor([0.8399, 0.8399, 0.8399])
    """

    def __init__(self, segment: int = 64, *, dump: str | PathLike | None = None, enabled: bool = True) -> None:
        if not isinstance(segment, int) or segment < 1:
            raise ValueError(f"compiled_backward: segment must be a positive number of nodes, but got {segment!r}")
        self._options = Options(segment, None if dump is None else Path(dump)) if enabled else None
        self._previous: list[Any] = []

    def _recreate_cm(self) -> "compiled_backward":
        return self

    def __enter__(self) -> "compiled_backward":
        self._previous.append(state.compiled)
        state.compiled = self._options
        return self

    def __exit__(self, *error: Any) -> None:
        state.compiled = self._previous[-1]  # before any call: an interrupt would leave the mode
        self._previous.pop()

    @staticmethod
    def metrics() -> dict[str, Any]:
        """What compiled backwards of this process did since `reset()`.

        `backwards`: how many; `nodes`, `segments`: what they ran as programs; `hits`: programs that were there;
        `misses`: for each new structure, in what it differs from the one most like it; `retraces`: programs made again
        for other shapes or dtypes; `fallbacks`: segments whose nodes ran by themselves, for their program failed;
        `borders`: how often each kind of node ended a segment; `programs`: how many structures are kept.
        """
        return metrics.as_dict()

    @staticmethod
    def reset() -> None:
        """Count from zero.  Programs stay."""
        metrics.reset()

    @staticmethod
    def programs() -> list[Program]:
        """The programs of all structures that are kept: `names` of the nodes, `as_text(optimized=False)`."""
        return programs()

    @staticmethod
    def clear() -> None:
        """Forget all programs: what follows compiles anew."""
        clear()


def use(compiled: bool | None) -> None:
    """Switch to what an argument `compiled=` asks for.  Who calls it puts `state.compiled` back."""
    if compiled is not None and bool(compiled) != (state.compiled is not None):
        state.compiled = compiled_backward()._options if compiled else None
