"""evaluate: runs a group of autograd nodes as one XLA program, cached by their structure, for `compiled_backward`.

    structure   for each node its formula and, for each of its inputs, where the gradients come from that are summed
                there: n > 0 is the n-th last value so far, 0 the next argument, None no gradient;
                then the same for each gradient that is a result of the segment
    metas       shapes and dtypes: of the gradients, of the results, and those that formulas ask for; each tuple of them
                has a trace of its own

Invariant: structure and metas together determine a trace, except for shapes and dtypes of the arguments, which
`jax.jit` distinguishes itself.
"""

import itertools
import logging
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax

from ...base.limits import checked
from ...errors import DtypeDisabledError
from ...execution.pending import quietly
from ...execution.references import deleted
from ..fit import fit

MOST = 1024  # structures that are cached

log: Any = logging.getLogger("xgrad.compile")
_programs: dict[tuple, "Program"] = {}


class Program:
    """The programs of one structure: one for each `metas`, compiled by `jax.jit` for the shapes it is called with."""

    nodes: Any
    leaving: Any

    def __init__(self, structure: tuple[Any, ...], names: tuple[str, ...]) -> None:
        self.nodes, self.leaving = structure
        self.names = names  # of the nodes
        self.number: int = next(_numbers)
        self.traces: dict[tuple[Any, ...], Callable[..., Any]] = {}
        self._latest: Any = None  # the latest trace, with the shapes and dtypes of its arguments

    def traced(self, metas: tuple[Any, ...], donated: tuple[Any, ...], args: list[Any]) -> Callable[..., Any]:
        """Make a new trace, whose results may use the memory of the arguments `donated`."""
        function = self.traces[metas, donated] = jax.jit(checked(self.function(metas), metas), donate_argnums=donated)
        self._latest = function, [jax.typeof(a) if isinstance(a, jax.Array) else a for a in args]
        return function

    def function(self, metas: tuple[Any, ...]) -> Callable[..., Any]:
        """Make the function from the segment's arguments to its results, which are gradients."""
        nodes, leaving, names = self.nodes, self.leaving, self.names

        def backward(*args: Any) -> tuple:
            given, facts = iter(args), iter(metas)
            values: list[Any] = []
            makers: list[tuple[str, int]] = []  # for each value its node and the number of the edge

            def gradient(parts: Any, meta: Any) -> Any:
                total = None
                for part in parts if parts.__class__ is tuple else (parts,):
                    if part is not None:
                        if part:
                            grad = fit(values[-part], tuple(meta.shape), meta.dtype, *makers[-part])
                        else:
                            grad = fit(next(given), tuple(meta.shape), meta.dtype)
                        total = grad if total is None else total + grad
                return total

            for name, (formula, inputs, count) in zip(names, nodes, strict=True):
                avals, static = next(facts), next(facts)
                grads = [gradient(parts, meta) for parts, meta in zip(inputs, avals, strict=True)]
                found = formula.run(grads, [next(given) for _ in range(count)], avals, static)
                values += found
                makers += [(name, i) for i in range(len(found))]
            return tuple([gradient(parts, next(facts)) for parts in leaving])

        return backward

    def as_text(self, optimized: bool = False) -> str:
        """The latest program, as StableHLO, or as the HLO that XLA made of it."""
        function, arguments = self._latest
        lowered = function.lower(*arguments)
        return lowered.compile().as_text() if optimized else lowered.as_text()

    def __repr__(self) -> str:
        return f"<segment {self.number}: {len(self.nodes)} nodes, {len(self.traces)} programs>"


class Metrics:
    """Counts of compiled backwards, segments, nodes, hits and misses since the last reset."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.backwards = self.segments = self.nodes = self.hits = self.retraces = self.fallbacks = 0
        self.misses: list[str] = []
        self.borders: Counter[str] = Counter()

    def as_dict(self) -> dict[str, Any]:
        return {**vars(self), "misses": list(self.misses), "borders": dict(self.borders), "programs": len(_programs)}


metrics: Metrics = Metrics()
_numbers = itertools.count()


def programs() -> list[Program]:
    """All cached programs, the oldest first."""
    return list(_programs.values())


def clear() -> None:
    """Forget all programs: each structure is traced and compiled again."""
    _programs.clear()


def evaluate(
    structure: tuple[Any, ...],
    metas: tuple[Any, ...],
    donated: tuple[Any, ...],
    args: list[Any],
    names: list[type[Any]],
    dump: Path | None,
) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Run a segment; return its program and its gradients."""
    program = _programs.get(structure)
    new = program is None
    if new:
        program = _make(structure, tuple(name.__name__ for name in names))
    function = program.traces.get((metas, donated))
    if function is None:
        if not new:
            metrics.retraces += 1
            _tell(f"segment {program.number}: traced again, for other shapes, dtypes or donations")
        function = program.traced(metas, donated, args)
        if dump is not None:
            dump.mkdir(parents=True, exist_ok=True)
            name = f"segment_{program.number:04}_{len(program.traces)}"
            (dump / f"{name}.txt").write_text("\n".join(program.names) + "\n")
            (dump / f"{name}.hlo").write_text(program.as_text(optimized=True))
    else:
        metrics.hits += 1
    metrics.segments += 1
    try:
        return function, function(*args)
    except Exception as error:
        if isinstance(error, DtypeDisabledError) or deleted(args):
            raise  # 64 bits are off, also for single operations; or the arguments had been donated before it failed
        # Operations one by one may do more than a program can, or raise a clearer error.
        _tell(f"segment {program.number}: its program failed, its operations run by themselves: {error!r}")
        metrics.fallbacks += 1
        operations = program.function(metas)

        def one_by_one(*args: Any) -> tuple[Any, ...]:
            return operations(*map(quietly, args))  # JAX's derivatives take arrays, and no Pendings

        program.traces[metas, donated] = one_by_one
        return one_by_one, one_by_one(*args)


def _make(structure: tuple, names: tuple[str, ...]) -> Program:
    why = _why(structure, names)
    if len(_programs) >= MOST:
        _programs.pop(next(iter(_programs)), None)
    program = _programs[structure] = Program(structure, names)
    metrics.misses.append(why)
    _tell(f"segment {program.number}, {len(names)} nodes: {why}")
    return program


def _why(structure: tuple, names: tuple[str, ...]) -> str:
    """Say how a structure differs from the cached one that begins most like it."""
    if not _programs:
        return "the first segment"
    nodes, leaving = structure
    best, common = None, -1
    for program in programs():  # a copy: other threads may add to them
        same = 0
        for mine, theirs in zip(nodes, program.nodes):
            if mine != theirs:
                break
            same += 1
        if same > common:
            best, common = program, same
    assert best is not None
    like = f"unlike segment {best.number}"
    if common == len(nodes) == len(best.nodes):
        return f"{like}, other gradients leave it ({len(leaving)}, not {len(best.leaving)})"
    if common == len(nodes) or common == len(best.nodes):
        return f"{like}, it has {len(nodes)} nodes, not {len(best.nodes)}"
    if nodes[common][0] is best.nodes[common][0]:
        return f"{like}, other gradients arrive at node {common} ({names[common]})"
    if names[common] == best.names[common]:
        return (
            f"{like}, node {common} ({names[common]}) has other static arguments, or other gradients are wanted of it"
        )
    return f"{like}, node {common} is {names[common]}, not {best.names[common]}"


def _tell(text: str) -> None:
    log.info("compiled backward: %s", text)


if "compile" in os.environ.get("XGRAD_LOG", "").split(","):
    log.addHandler(logging.StreamHandler())
    log.setLevel(logging.INFO)
