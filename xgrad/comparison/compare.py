"""compare: one function under both tracking paths, side by side: values, gradients, graphs, programs, time, memory.

Invariants: both paths run on fresh copies of the same inputs, with the same random numbers and the same cotangents;
timed runs are interleaved, A B A B, so that a machine that slows down slows both.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .. import dtypes
from ..autograd.backward import grad as gradients_of
from ..autograd.grad_mode import enable_grad
from ..engine.copy_slices import CopySlices
from ..engine.node import Node
from ..engine.view_nodes import ChainBackward
from ..random import use_key
from ..tensor import Tensor, from_array, from_foreign
from ..views.chain import ViewChain
from ..views.tracking import PATHS, tracking
from . import report
from .cost import compiled, cost_of
from .difference import difference
from .findings import Findings, PathReport, ViewProgram

_PATIENCE = 1.0  # seconds: after them, a measurement is repeated only as often as it must be
_copied = jax.jit(jnp.copy)


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

    def _repr_html_(self) -> str:
        return report.html(self)

    def plot(self, ax: Any = None) -> Any:
        """Draw the differences as bars, into matplotlib axes `ax` or a new figure; returns the axes.

        Raises `ImportError` if matplotlib is not installed.
        """
        return report.plot(self, ax)


# ---------------------------------------------------------------- running


def compare(
    fn: Callable[..., Any], *inputs: Any, repeats: int = 7, programs: bool = True, timing: bool = True
) -> Comparison:
    """Run `fn(*inputs)` and its gradients under both tracking paths, and report what is the same and what differs.

    `fn` returns a tensor or a tuple of tensors.  Each run gets fresh copies of the inputs, so it may write to them;
    beside them it should change nothing, for it runs often, and is traced.  Tensors that require grad are
    differentiated; arrays of NumPy and JAX become tensors; other arguments are passed as they are.  An output that is
    no real scalar is reduced by a fixed random cotangent.  Random numbers are the same in each run.

    `repeats`: the number of timed runs of each path.  `programs=False` compiles nothing beside the programs of eager
    runs, `timing=False` times nothing.
    Raises `TypeError` if `fn` returns something else, and the errors of `fn`, with a note that names the path.

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
    subject = _Subject(fn, inputs)
    paths: dict[str, PathReport] = {}
    chains: dict[str, Counter] = {}
    for path in PATHS:
        outputs, grads, roots = subject.run(path)
        graph = list(_graph(roots))
        paths[path] = PathReport(
            path,
            outputs=tuple(np.asarray(o) for o in outputs),
            gradients=tuple(None if g is None else np.asarray(g) for g in grads),
            nodes=Counter(type(node).__name__ for node in graph),
        )
        chains[path] = _programs_of(graph)
    if programs:
        _compile_views(paths, chains)
        _compile_whole(subject, paths, repeats if timing else 0)
    if timing:
        for path, times in _interleaved({path: subject.timed(path) for path in PATHS}, repeats).items():
            paths[path].eager_seconds = median(times)
    a, b = (paths[path] for path in PATHS)
    differences = [
        difference(f"output {i}" if len(a.outputs) > 1 else "output", x, y)
        for i, (x, y) in enumerate(zip(a.outputs, b.outputs, strict=True))
    ]
    differences += [
        difference(f"gradient of input {i}", x, y)
        for i, x, y in zip(subject.differentiated, a.gradients, b.gradients, strict=True)
        if not (x is None and y is None)
    ]
    return Comparison(getattr(fn, "__name__", type(fn).__name__), paths, differences)


class _Subject:
    """A function, its inputs, and the cotangents of its outputs."""

    def __init__(self, fn: Callable[..., Any], inputs: tuple[Any, ...]) -> None:
        self.fn = fn
        self.inputs = tuple(from_foreign(x) if isinstance(x, (np.ndarray, jax.Array)) else x for x in inputs)
        self.differentiated = [i for i, x in enumerate(self.inputs) if isinstance(x, Tensor) and x.requires_grad]
        self.cotangents: list[np.ndarray | None] | None = None
        self.key = jax.random.PRNGKey(0)

    def arrays(self) -> list[Any]:
        """Return a fresh copy of each tensor among the inputs."""
        return [_copied(x._read()) for x in self.inputs if isinstance(x, Tensor)]

    def run(self, path: str) -> tuple[list[Any], list[Any], list[Node]]:
        """Return outputs, gradients (None where there is none) and the roots of the graph."""
        return self.traced(path, self.key, self.arrays())

    def traced(self, path: str, key: Any, arrays: list[Any]) -> tuple[list[Any], list[Any], list[Node]]:
        """Run on `arrays`, which may be tracers; return outputs, gradients and the roots of the graph."""
        fresh = iter(arrays)
        copies: dict[int, Tensor] = {}  # an input that is passed twice is one tensor
        for x in self.inputs:
            if isinstance(x, Tensor):
                array = next(fresh)
                copies.setdefault(id(x), from_array(array).requires_grad_(x.requires_grad))
        given = tuple(copies.get(id(x), x) for x in self.inputs)
        try:
            with tracking(path), enable_grad(), use_key(key):
                outputs = self._outputs(self.fn(*given))
                roots = [(o, c) for o, c in zip(outputs, self._cotangents(outputs)) if o.requires_grad]
                nodes = [o.grad_fn for o, _ in roots if o.grad_fn is not None]
                wanted = [given[i] for i in self.differentiated]
                grads: Any = [None] * len(wanted)
                if roots and wanted:
                    tensors, cotangents = zip(*roots)
                    grads = gradients_of(tensors, wanted, cotangents, allow_unused=True)
        except Exception as error:
            error.add_note(f'under xgrad.views.tracking("{path}")')
            raise
        return [o._read() for o in outputs], [None if g is None else g._read() for g in grads], nodes

    def _outputs(self, returned: Any) -> list[Tensor]:
        outputs = list(returned) if isinstance(returned, (tuple, list)) else [returned]
        for o in outputs:
            if not isinstance(o, Tensor):
                raise TypeError(
                    f"compare(): the function must return a Tensor or a tuple of them, but got {type(o).__name__}"
                )
        return outputs

    def _cotangents(self, outputs: list[Tensor]) -> list[Tensor | None]:
        if self.cotangents is None:
            rng = np.random.default_rng(0)
            self.cotangents = [_cotangent(rng, o) for o in outputs]
        return [None if c is None else from_foreign(c) for c in self.cotangents]

    def whole(self, path: str) -> Callable[..., Any]:
        """Return values and gradients as a function of the key and the arrays, to be compiled as one program."""

        def value_and_grad(key: Any, *arrays: Any) -> Any:
            return self.traced(path, key, list(arrays))[:2]

        return value_and_grad

    def timed(self, path: str) -> Callable[[], float]:
        """Return a function that runs forward and backward and returns the seconds it took."""

        def once() -> float:
            arrays = self.arrays()
            jax.block_until_ready(arrays)
            start = time.perf_counter()
            outputs, grads, _ = self.traced(path, self.key, arrays)
            jax.block_until_ready([outputs, grads])
            return time.perf_counter() - start

        return once


def _cotangent(rng: np.random.Generator, output: Tensor) -> np.ndarray | None:
    """Return a random cotangent; None for a real scalar, which needs none."""
    shape, dtype = tuple(output.shape), output.dtype
    if dtype not in dtypes.INEXACT or (shape == () and dtype not in dtypes.COMPLEX):
        return None
    value = rng.standard_normal(shape)
    return (value + 1j * rng.standard_normal(shape) if dtype in dtypes.COMPLEX else value).astype(dtype)


# ---------------------------------------------------------------- the graph and its programs


def _graph(roots: list[Node]) -> Iterator[Node]:
    """Yield each node once, those of the last operations first."""
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


def _compile_views(paths: dict[str, PathReport], chains: dict[str, Counter]) -> None:
    """Compile each view program of both paths on its own, A B A B."""
    programs: dict[tuple, Any] = {}
    times: dict[tuple, list[float]] = {}
    start = time.perf_counter()
    for turn in range(3):
        if turn and time.perf_counter() - start > _PATIENCE:
            break
        for path in PATHS:
            for role, chain in chains[path]:
                program, seconds = _compile_view(role, chain)
                programs[path, role, chain] = program
                times.setdefault((path, role, chain), []).append(seconds)
    for path in PATHS:
        paths[path].programs = [
            ViewProgram(role, chain, n, cost_of(programs[path, role, chain], median(times[path, role, chain])))
            for (role, chain), n in chains[path].items()
        ]


def _compile_view(role: str, chain: ViewChain) -> tuple[Any, float]:
    root = jax.ShapeDtypeStruct(chain.root_shape, chain.root_dtype)
    part = jax.ShapeDtypeStruct(chain.shape, chain.dtype)
    program = chain.program
    if role == "read":
        return compiled(program.trace_replay, (root, *chain.starts))
    if role == "write":  # as the engine runs it if nothing else refers to the base's gradient: in place
        return compiled(program.trace_write, (root, part, *chain.starts), donate=(0,))
    return compiled(program.trace_adjoint, (part, *chain.starts))


def _compile_whole(subject: _Subject, paths: dict[str, PathReport], repeats: int) -> None:
    """Compile function and gradients as one program for each path, A B A B, and time it."""
    arrays = subject.arrays()
    programs: dict[str, Any] = {}
    times: dict[str, list[float]] = {path: [] for path in PATHS}
    start = time.perf_counter()
    for turn in range(3):
        if turn and time.perf_counter() - start > _PATIENCE:
            break
        for path in PATHS:
            try:
                programs[path], seconds = compiled(subject.whole(path), (subject.key, *arrays))
            except Exception as error:
                # It has run eagerly, but a function that asks for a value, say, is not one program.
                for path_report in paths.values():
                    path_report.untraceable = f"{type(error).__name__}: {str(error).splitlines()[0]}"
                return
            times[path].append(seconds)
    for path in PATHS:
        paths[path].whole = cost_of(programs[path], median(times[path]))

    def once(program: Any) -> float:
        start = time.perf_counter()
        jax.block_until_ready(program(subject.key, *arrays))
        return time.perf_counter() - start

    if repeats:
        runs = _interleaved({path: lambda p=programs[path]: once(p) for path in PATHS}, repeats)
        for path in PATHS:
            paths[path].compiled_seconds = median(runs[path])


def _interleaved(runs: dict[str, Callable[[], float]], repeats: int) -> dict[str, list[float]]:
    """Time each run `repeats` times, A B A B, after one untimed turn; fewer if they take long, but three."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    start = time.perf_counter()
    for turn in range(-1, repeats):
        if turn >= 3 and time.perf_counter() - start > 2 * _PATIENCE:
            break
        for name, run in runs.items():
            seconds = run()
            if turn >= 0:
                times[name].append(seconds)
    return times
