"""xgrad.compare: runs a function with views tracked as operations and as strides; compares values, programs, time.

The two ways are the replay path and the geometry path (views/tracking.py).  Invariants: both run on fresh copies of the
same inputs, with the same random numbers and the same cotangents; timed runs and compiles take turns, A B B A, so that
a machine that slows down slows both; compiles find no cache.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

import jax
import numpy as np

from ..backends.on_target import answered
from ..chips import target as chip
from ..engine.copy_slices import CopySlices
from ..engine.node import Node
from ..engine.view_nodes import ChainBackward
from ..execution.programs.cost import compiled, cost_of
from ..tensor import Tensor
from ..views.chain import ViewChain
from ..views.tracking import PATHS, tracking
from . import report, timing
from .circumstances import circumstances
from .difference import differences
from .findings import Findings, PathReport, ViewProgram
from .on_backends import on_backends
from .subject import Subject
from .timing import Times, interleaved

# ---------------------------------------------------------------- the report


class Comparison(Findings):
    """The replay path against the geometry path.  Prints as a table, also in a notebook; `plot()` draws it."""

    def __str__(self) -> str:
        return report.text(self)

    __repr__ = __str__

    def print(self, rich: bool = False) -> None:
        """Print the table; with `rich=True` by the package rich, in colours."""
        if rich:
            report.print_rich(self)
        else:
            print(self)

    def as_dict(self) -> dict[str, Any]:
        """Return all but the values, as numbers, strings, lists and dictionaries."""
        return report.as_dict(self)

    def as_text(self) -> str:
        """Return the optimized programs of both paths: the CPU's, and the chip's if there is a target."""
        return report.programs(self)

    def _repr_html_(self) -> str:
        return report.html(self)

    def plot(self, ax: Any = None) -> Any:
        """Draw the differences as bars, into matplotlib axes `ax` or a new figure; returns the axes.

        Raises `ImportError` if matplotlib is not installed.
        """
        return report.plot(self, ax)


# ---------------------------------------------------------------- running


def compare(
    fn: Callable[..., Any],
    *inputs: Any,
    backends: Any = None,
    target: Any = None,
    repeats: int = 8,
    programs: bool = True,
    timing: bool = True,
) -> Any:
    """Run `fn(*inputs)` and its gradients under both tracking paths, and report what is the same and what differs.

    With `backends`, a list of declared backends and of devices, run it on each of them: see `BackendComparison`.
    With `target`, a chip that is not here (`"tpu:v5e"`, `xgrad.target`), its compiler is asked too: estimated time,
    cycles, bytes and temporary memory of both paths there stand beside the CPU's, and `as_text()` has all programs.

    `fn` returns a tensor or a tuple of tensors.  Each run gets fresh copies of the inputs, so it may write to them;
    beside them it should change nothing, because it runs often, and is traced.  Tensors that require grad are
    differentiated; arrays of NumPy and JAX become tensors; other arguments are passed as they are.  An output that is
    not a real scalar is reduced by a fixed random cotangent.  Random numbers are the same in each run.

    `repeats`: the number of timed runs of each path, and of compiles, in turns, A B B A; fewer of what takes long.
    Compile times are without any cache.  Times are medians, with half the distance of the quartiles (±); below the
    table stands which path takes longer, where chance does not explain it.  `programs=False` compiles nothing beside
    the programs of eager runs, `timing=False` times nothing.
    Raises `TypeError` if `fn` returns something else, `ValueError` for fewer than two backends and for `backends`
    beside `target`, `TargetError` if the target's compiler is not here, and the errors of `fn`, with a note that names
    the path or the backend.

    >>> import xgrad
    >>> def double_a_row(x):
    ...     x = x.clone()
    ...     x[0].mul_(2)
    ...     return x
    >>> result = xgrad.compare(double_a_row, xgrad.ones(2, 3, requires_grad=True), timing=False)
    >>> result.equal, result.max_difference
    (True, 0.0)
    >>> result.paths["geometry"].nodes["CopySlices"]
    1
    """
    if repeats < 1:
        raise ValueError(f"compare(): repeats must be at least 1, but got {repeats}")
    if backends is not None and target is not None:
        raise ValueError("compare(): each backend has its own target, xgrad.Backend('v5e', target='tpu:v5e')")
    if backends is not None:
        return on_backends(Subject(fn, inputs), backends, repeats if timing else 0)
    aim = None if target is None else chip(target)
    if aim is not None:
        aim.require()
    subject = Subject(fn, inputs)
    paths: dict[str, PathReport] = {}
    chains: dict[str, Counter] = {}
    for path in PATHS:
        outputs, grads, roots = _run(subject, path, subject.arrays())
        graph = list(_graph(roots))
        paths[path] = PathReport(
            path,
            outputs=tuple(np.asarray(o) for o in outputs),
            gradients=tuple(None if g is None else np.asarray(g) for g in grads),
            nodes=Counter(type(node).__name__ for node in graph),
        )
        chains[path] = _programs_of(graph)
    if programs:
        _compile_views(paths, chains, repeats if timing else 0, aim)
        _compile_whole(subject, paths, repeats if timing else 0, aim)
    if timing:
        _keep(paths, "eager", interleaved({path: _timed(subject, path) for path in PATHS}, repeats))
    a, b = (paths[path] for path in PATHS)
    return Comparison(
        subject.name, paths, differences(subject.differentiated, a, b), aim, circumstances(subject.arrays(), aim)
    )


def _keep(paths: dict[str, PathReport], what: str, times: dict[str, Times]) -> None:
    for path, found in times.items():
        paths[path].times[what] = found


def _array(tensor: Tensor) -> Any:
    return tensor._read()


def _run(subject: Subject, path: str, arrays: list[Any], key: Any = None) -> tuple[list[Any], list[Any], list[Node]]:
    """Run along a path on `arrays`, which may be tracers; return outputs and gradients as arrays, and the roots."""
    return subject.run(tracking(path), f'under xgrad.views.tracking("{path}")', _array, arrays, key=key)


def _timed(subject: Subject, path: str) -> Callable[[], float]:
    """Return a function that runs forward and backward and returns the seconds it took."""

    def once() -> float:
        arrays = subject.arrays()
        jax.block_until_ready(arrays)
        start = timing.clock()
        outputs, grads, _ = _run(subject, path, arrays)
        jax.block_until_ready([outputs, grads])
        return timing.clock() - start

    return once


# ---------------------------------------------------------------- the graph and its programs


def _graph(roots: list[Node]) -> Iterator[Node]:
    """Yield each node once, the nodes of the last operations first."""
    seen, stack = set(roots), list(dict.fromkeys(roots))
    while stack:
        node = stack.pop()
        yield node
        for child, _ in node.next_edges:
            if child is not None and child not in seen:
                seen.add(child)
                stack.append(child)


def _programs_of(graph: list[Node]) -> Counter:
    """Count for each (role, chain) the view nodes of a graph that run its program.

    Chains that differ in their starts share a program: the first of them represents all.
    """
    first: dict[tuple, ViewChain] = {}
    counts: Counter = Counter()
    for node in graph:
        if isinstance(node, CopySlices):
            roles: tuple[str, ...] = ("read", "write")
        elif isinstance(node, ChainBackward):
            roles = ("adjoint",)
        else:
            continue
        if not node.chain.is_root:
            for role in roles:
                counts[role, first.setdefault((role, node.chain.program_key), node.chain)] += 1
    return counts


def _compile_views(paths: dict[str, PathReport], chains: dict[str, Counter], repeats: int, aim: Any) -> None:
    """Compile each view program of both paths on its own, in turns; and for the target `aim`, if there is one."""
    programs: dict[tuple, Any] = {}
    times: dict[tuple, list[float]] = {}

    def all_of(path: str) -> float:
        for role, chain in chains[path]:
            key = path, role, chain
            programs[key], taken = compiled(*_view(role, chain), clock=timing.clock)
            times.setdefault(key, []).append(taken)
        return sum(times[path, role, chain][-1] for role, chain in chains[path])

    found = interleaved({path: lambda p=path: all_of(p) for path in PATHS}, max(repeats, 1), least=2, untimed=False)
    if repeats and any(chains.values()):
        _keep(paths, "compile views", found)
    for path in PATHS:
        for (role, chain), n in chains[path].items():
            key = path, role, chain
            cost = cost_of(programs[key], median(times[key]) if repeats else None)
            there = None if aim is None else answered(aim, *_view(role, chain), reads=role == "read")
            paths[path].programs.append(ViewProgram(role, chain, n, cost, there))


def _view(role: str, chain: ViewChain) -> tuple[Any, Any, tuple[int, ...]]:
    """Return the program of a view: the function, shapes of its arguments, those that are donated."""
    root = jax.ShapeDtypeStruct(chain.root_shape, chain.root_dtype)
    part = jax.ShapeDtypeStruct(chain.shape, chain.dtype)
    program = chain.program
    if role == "read":
        return program.trace_replay, (root, *chain.starts), ()
    if role == "write":  # as the engine runs it if nothing else refers to the base's gradient: in place
        return program.trace_write, (root, part, *chain.starts), (0,)
    return program.trace_adjoint, (part, *chain.starts), ()


def _compile_whole(subject: Subject, paths: dict[str, PathReport], repeats: int, aim: Any) -> None:
    """Compile function and gradients as one program for each path, in turns, and time it; and for the target `aim`."""
    arrays = subject.arrays()

    def whole(path: str) -> Callable[..., Any]:
        return lambda key, *given: _run(subject, path, list(given), key)[:2]

    programs: dict[str, Any] = {}

    def compile_it(path: str) -> float:
        programs[path], taken = compiled(whole(path), (subject.key, *arrays), clock=timing.clock)
        return taken

    try:
        for path in PATHS:  # what xgrad itself keeps of a first trace, it has for both
            jax.eval_shape(whole(path), subject.key, *arrays)
        compiles = {path: lambda p=path: compile_it(p) for path in PATHS}
        found = interleaved(compiles, max(repeats, 1), least=2, patience=1.0, untimed=False)
    except Exception as error:
        # It has run eagerly, but a function that asks for a value, say, is not one program.
        for path_report in paths.values():
            path_report.untraceable = f"{type(error).__name__}: {str(error).splitlines()[0]}"
        return
    if repeats:
        _keep(paths, "compile", found)
    for path in PATHS:
        paths[path].whole = cost_of(programs[path], found[path].median if repeats else None)
        paths[path].hlo = programs[path].as_text()
        if aim is not None:
            paths[path].on_chip = answered(aim, whole(path), (subject.key, *arrays))

    def once(program: Any) -> float:
        start = timing.clock()
        jax.block_until_ready(program(subject.key, *arrays))
        return timing.clock() - start

    if repeats:
        _keep(paths, "compiled", interleaved({path: lambda p=programs[path]: once(p) for path in PATHS}, repeats))
