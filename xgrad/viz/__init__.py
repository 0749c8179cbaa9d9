"""xgrad.viz: draws graphs, storages, backward passes and programs, for notebooks, papers and terminals.

    viz.graph(y)        the graph behind a tensor
    viz.storage(x)      the tensors that share a storage
    viz.backward(loss)  backward as steps to click through
    viz.program(f)      a lazy queue, or a compiled program

Nothing but jax and numpy is needed: the layout is our own (layout.py), the pictures are SVG.
"""

from .backward import backward
from .drawing import Drawing
from .graph import graph
from .program import program
from .storage import storage

__all__ = ["Drawing", "backward", "graph", "program", "storage"]


def __dir__() -> list[str]:
    return sorted(__all__)
