"""Findings: a result of `xgrad.compare`, with the outputs, gradients, nodes, programs and times of both tracking paths.

The paths, "replay" and "geometry", are the two ways of `xgrad.views.tracking` to record a view that was written.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..execution.programs.cost import Cost, cost_of, together
from ..views.chain import ViewChain
from .difference import Difference
from .timing import Times


@dataclass(frozen=True)
class ViewProgram:
    """A compiled program that backward runs for a view: `role` is "read", "write" or "adjoint"."""

    role: str
    chain: ViewChain
    nodes: int  # the number of nodes in the graph that run it
    cost: Cost
    on_chip: Any = None  # the `xgrad.chips.Answer` of the target's compiler, if there is a target

    @property
    def steps(self) -> str:
        """The program's view steps, e.g. "Slice, Reshape"; for an as_strided, the steps that it was lowered to."""
        names = [", ".join(type(step).__name__ for step in chain.steps) for chain in (self.chain, self.chain.lowered)]
        return names[0] if names[0] == names[1] else f"{names[0]} as {names[1] or 'nothing'}"


@dataclass
class PathReport:
    """The results of one path.  `nodes` counts the names in the graph; `outputs` and `gradients` are NumPy arrays.

    `whole` is the cost of the function and its gradients as one program, `hlo` its text; None if it cannot be traced,
    and then `untraceable` says why.  `on_chip` is the `xgrad.chips.Answer` to the same program of the compiler of a
    target, if one is named.  `times` are the seconds of each run (`Times`, with a median and a spread), of what was
    timed: "eager", "compiled" and "compile" (the whole program's), "compile views" (together).
    """

    name: str
    outputs: tuple[np.ndarray, ...]
    gradients: tuple[np.ndarray | None, ...]
    nodes: Counter[str]
    programs: list[ViewProgram] = field(default_factory=list)
    whole: Cost | None = None
    hlo: str | None = field(default=None, repr=False)
    on_chip: Any = None
    untraceable: str | None = None
    times: dict[str, Times] = field(default_factory=dict)

    @property
    def eager_seconds(self) -> float | None:
        """The median time of forward and backward, eagerly; None if it was not timed."""
        return self.times["eager"].median if "eager" in self.times else None

    @property
    def compiled_seconds(self) -> float | None:
        """The median time of forward and backward as one program; None if it was not timed."""
        return self.times["compiled"].median if "compiled" in self.times else None

    @property
    def views(self) -> Cost:
        """The cost of all view programs together, each as often as nodes run it; compiled once."""
        return together([(p.cost, p.nodes) for p in self.programs])

    @property
    def views_on_chip(self) -> Cost:
        """The same on the target's chip."""
        return together([(cost_of(p.on_chip, p.on_chip.seconds), p.nodes) for p in self.programs])


@dataclass
class Findings:
    """The replay path against the geometry path, without a presentation (report.py)."""

    name: str
    paths: dict[str, PathReport]
    differences: list[Difference]
    target: Any = None
    circumstances: dict[str, Any] = field(default_factory=dict)  # versions, device, date

    @property
    def equal(self) -> bool:
        """True if all outputs and gradients are equal, bit for bit."""
        return all(d.equal for d in self.differences)

    @property
    def within_rounding(self) -> bool:
        """True if all outputs and gradients are equal up to rounding."""
        return all(d.within_rounding for d in self.differences)

    @property
    def max_difference(self) -> float:
        """The largest absolute difference of any output or gradient; infinite if only one path has one."""
        return max((float("inf") if d.largest is None else d.largest for d in self.differences), default=0.0)
