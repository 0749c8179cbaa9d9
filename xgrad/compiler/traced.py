"""Traced: holds the result of a trace of xgrad.compile; an `Entry`, a program with its guards, is built from it."""

from typing import Any, NamedTuple

from ..engine.node import InputMetadata
from .effects import Effects, Recipe
from .guards.match import Match
from .program import Program


class Target(NamedTuple):
    """A tensor from outside that gets a gradient."""

    reference: tuple[bool, int]  # as `Outputs.reference` gives it
    sources: int  # mask of the results that depend on the tensor


class Traced(NamedTuple):
    """The result of a trace, without tracers."""

    name: str
    match: Match
    inputs: list[tuple[str, Any]]  # of each root: ("tensor", number), ("array", leaf), ("key", generator or None)
    program: Program
    recipes: list[Recipe]
    effects: Effects
    puts: list[
        tuple[int | None, tuple[Any, ...], Any, tuple[Any, ...]]
    ]  # (place of the argument, path, key, `Outputs.plan` of the value)
    result: tuple[Any, ...]
    objects: list[tuple[int | None, tuple[Any, ...]]]  # (place of the argument, path): objects that a call returns
    metas: tuple[InputMetadata, ...]  # shape and dtype of the results with a history
    targets: tuple[Target, ...]  # the tensors that get their gradients
    failures: dict[int, Exception]  # by result: the error that a backward of it raises
    places: tuple[tuple[Any, ...] | None, list[Any] | None]  # shardings of the program's operands and results
    calls_back: bool  # True if the program calls a kernel of the user's on the host
    steps: list[tuple[Any, tuple[Any, ...], dict[str, Any]]]  # (function, its arguments): schedules' steps after a call
