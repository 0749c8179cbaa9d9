"""viz.program: draws the operations that `xgrad.lazy` has queued, or a program as XLA has compiled it."""

from typing import Any

from ..base.table import size
from ..compiler.function import CompiledFunction
from ..execution.codes import flat
from ..execution.fused import programs
from ..execution.lazily import lazy, queues
from ..execution.pending import Pending
from ..execution.source import lines as source_lines
from ..nn.module import OptimizedModule
from .drawing import Drawing
from .fold import folded
from .hlo import scene_of_hlo
from .names import Names, names_for
from .saved import nbytes_of, shape_of
from .scene import Box, Edge, Scene
from .text_width import shortened


def program(f: Any = lazy, *args: Any, fold: bool | None = None, direction: str = "down", **kwargs: Any) -> Drawing:
    """Draw a program: its operators, or the fusions that XLA made of them, with the bytes that each reads and writes.

    `f` is one of

    - `xgrad.lazy` (the default): the queue of this thread, if operations are pending in a lazy block or on a lazy
      backend (of several, the newest), else the lazy program that ran last;
    - a function of `xgrad.compile`, with the arguments of a call, or without if it has run: its newest program;
    - a `jax.stages.Lowered` or `Compiled`, or the text of an optimized HLO program.

    Nothing that is pending runs.  Equal blocks are folded as in `graph`.

    Raises `RuntimeError` if it has no program yet, `TypeError` for other objects.

    >>> import xgrad
    >>> with xgrad.lazy():
    ...     y = (xgrad.ones(3) * 2).tanh()
    ...     drawing = xgrad.viz.program()
    >>> [box.title for box in drawing.scene.boxes]
    ['constant', 'mul', 'tanh']
    """
    pending = [queue for queue in queues() if queue.entries] if f is lazy else []
    if pending:
        scene = _of_queue(pending[-1], names_for(None, 1))
    else:
        scene = scene_of_hlo(*_compiled(f, args, kwargs))
    scene = folded(scene, fold)
    scene.turn(direction)
    return Drawing(scene)


def _compiled(f: Any, args: tuple, kwargs: dict) -> tuple[str, Any, str]:
    """Return a program's text, cost and title."""
    if f is lazy:
        if programs.latest is None:
            raise RuntimeError("viz.program(): no operation is pending, and no lazy program has run yet")
        return *_of_stage(programs.latest.lowered().compile()), "the last lazy program"
    if isinstance(f, OptimizedModule):
        f = f.forward
    if isinstance(f, CompiledFunction):
        if args or kwargs or not f._entries:
            if not args and not kwargs and not f._entries:
                raise RuntimeError(f"viz.program(): {f.name()} has not run: call it, or give the arguments of a call")
            return f.as_text(*args, **kwargs), f.cost_analysis(*args, **kwargs), f.name()
        executable = f._entries[0]._executable
        if executable is None:
            raise RuntimeError(f"viz.program(): give the arguments of a call of {f.name()}")
        return *_of_stage(executable), f.name()
    if isinstance(f, str):
        return f, None, ""
    if hasattr(f, "as_text") and hasattr(f, "cost_analysis"):
        return *_of_stage(f.compile() if hasattr(f, "compile") else f), ""
    raise TypeError(
        "viz.program() draws xgrad.lazy, a function of xgrad.compile, a jax.stages.Lowered or Compiled, or the text of "
        f"an HLO program, but got {type(f).__name__}"
    )


def _of_stage(compiled: Any) -> tuple[str, Any]:
    cost = compiled.cost_analysis()
    return compiled.as_text(), cost[0] if isinstance(cost, list) else cost


# -- a queue -----------------------------------------------------------------------------------------------------------


def _of_queue(queue: Any, names: Names) -> Scene:
    scene = Scene("pending operations")
    known = {id(array): name for name, tensor in names.tensors() if (array := _array(tensor)) is not None}
    inputs: dict[int, int] = {}
    place: list[int] = []
    with queue.lock:
        entries, values = list(queue.entries), list(queue.inputs)
    written = 0
    for called, codes, _, results, line in entries:
        outs = results if results.__class__ is tuple else (results,)
        total = sum(p.nbytes for p in outs)
        written += total
        numbers: list[str] = []
        sources: list[tuple[int, str]] = []
        for code in flat(codes):
            if code >= 0:
                sources.append((place[code >> 8], _shape(_result(entries[code >> 8], code & 255))))
                continue
            value = values[-code - 1]
            if isinstance(value, (bool, int, float, complex)) or not hasattr(value, "shape"):
                numbers.append(f"{value:g}" if isinstance(value, float) else str(value))
                continue
            if code not in inputs:
                inputs[code] = scene.add(_input(value, known, -code))
            sources.append((inputs[code], _shape(value)))
        lines = [(f"writes {size(total)}", "saved"), (source_lines(line), "note")]
        if numbers:
            lines.insert(0, (shortened(f"with {', '.join(numbers)}"), "plain"))
        name = ", ".join(known[id(p)] for p in outs if id(p) in known)
        key = (called.name, tuple(repr(p.aval) for p in outs))
        place.append(scene.add(Box(called.name.lstrip("_"), "operator", shortened(name), lines, key=key)))
        scene.edges += [Edge(source, place[-1], label) for source, label in sources]
    many = f"{len(entries)} operations are" if len(entries) != 1 else "1 operation is"
    scene.foot = [f"{many} pending; one by one they would write {size(written)}"]
    return scene


def _input(value: Any, known: dict[int, str], number: int) -> Box:
    name = known.get(id(value), f"input {number}")
    return Box("", "leaf", shortened(name), [(f"{_shape(value)}  {size(nbytes_of(value))}", "plain")],
               key=("input", _shape(value)))  # fmt: skip


def _array(tensor: Any) -> Any:
    return tensor._array if tensor._storage is None else tensor._storage._array


def _result(entry: tuple, number: int) -> Pending:
    results = entry[3]
    return results[number] if results.__class__ is tuple else results


def _shape(value: Any) -> str:
    return shape_of(value.shape, value.dtype)
