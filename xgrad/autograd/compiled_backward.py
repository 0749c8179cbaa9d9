"""compiled_backward: a `with` block, for users, that runs backward as a few XLA programs in place of one for each node.

Hooks run in the same order as in an eager backward.
In `engine/programs/`: `run.py` cuts the graph into programs, `segment.py` finds them again.
PyTorch's counterpart is `torch._dynamo.compiled_autograd`, which refuses views that were written in place.
"""

from contextlib import ContextDecorator
from os import PathLike
from pathlib import Path
from typing import Any

from ..config import Block, state
from ..engine.programs.run import Options
from ..engine.programs.segment import Program, clear, metrics, programs


class compiled_backward(Block, ContextDecorator):
    """Within the block, and in this thread, backward runs as compiled programs; as a decorator, within the function.

    The first run with a new structure compiles: some 5 ms for each node on a CPU.  Graphs of the same operators use
    the same programs, for any tensors; other shapes are traced again.  Values, gradients, hooks and their order, errors
    and version checks are the same as in the eager engine; only the current node is unknown while no hook runs.  With
    `create_graph`, in forward mode, in a batch (`is_grads_batched`), in anomaly mode and under a profiler the eager
    engine runs.

    `segment`: the least number of nodes in a program (it may have twice as many).  `dump`: a folder into which the
    optimized HLO of each new program is written, and the names of its nodes.  `enabled=False`: the eager engine, within
    a compiled block.  XGRAD_LOG=compile in the environment logs each compilation and its reason on stderr.

    >>> import xgrad
    >>> x = xgrad.ones(3, requires_grad=True)
    >>> with xgrad.autograd.compiled_backward():
    ...     (x * x).tanh().sum().backward()
    >>> x.grad
    tensor([0.8399, 0.8399, 0.8399])
    """

    def __init__(self, segment: int = 64, *, dump: str | PathLike[Any] | None = None, enabled: bool = True) -> None:
        if not isinstance(segment, int) or segment < 1:
            raise ValueError(f"compiled_backward: segment must be a positive number of nodes, but got {segment!r}")
        self._options = Options(segment, None if dump is None else Path(dump)) if enabled else None

    def _recreate_cm(self) -> "compiled_backward":
        return self

    def __enter__(self) -> "compiled_backward":
        self._will_restore("compiled")
        state.compiled = self._options
        return self

    @staticmethod
    def metrics() -> dict[str, Any]:
        """Return the counts of this process's compiled backwards since `reset()`.

        `backwards`: their number; `nodes`, `segments`: the nodes and segments that ran as programs; `hits`: segments
        whose program existed; `misses`: for each new structure, its difference from the one most like it; `retraces`:
        programs made again for other shapes or dtypes; `fallbacks`: segments whose nodes ran one by one, because their
        program failed; `borders`: how often each kind of node ended a segment; `programs`: the number of structures
        with programs.
        """
        return metrics.as_dict()

    @staticmethod
    def reset() -> None:
        """Count from zero.  Programs stay."""
        metrics.reset()

    @staticmethod
    def programs() -> list[Program]:
        """Return the programs of all structures: `names` of the nodes, `as_text(optimized=False)`."""
        return programs()

    @staticmethod
    def clear() -> None:
        """Forget all programs: later backwards compile again."""
        clear()


def use(compiled: bool) -> None:
    """Switch to the engine that an argument `compiled=` asks for.  The caller restores `state.compiled`."""
    if bool(compiled) != (state.compiled is not None):
        state.compiled = compiled_backward()._options if compiled else None
