"""asked: turns a user's function, or the last lazy program, into a program for a chip's compiler (`xgrad.target`).

Each is traced anew, for the target's platform, because the programs of a step that has run have the forms and shardings
of the devices here.  Nothing is run, and no tensor, gradient, state or generator is changed.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatchcase
from math import prod
from typing import Any, NamedTuple

import jax
from jax.extend.core import ClosedJaxpr
from jax.sharding import AbstractMesh, NamedSharding, PartitionSpec

from ..base.devices import misfit
from ..compiler import compile
from ..compiler.dry_run import Keeping
from ..compiler.function import CompiledFunction
from ..compiler.guards import modes
from ..compiler.shardings import put_in
from ..compiler.trace_lock import turns
from ..config import block
from ..errors import PlacementError
from ..execution.fused import programs
from ..execution.lazily import lazy
from ..execution.programs.parts import in_parts
from ..execution.runner import suspended
from ..execution.scalars import one
from ..execution.shapes_only import array_of
from ..execution.source import line_of_trace, lines
from ..nn.module import Module, OptimizedModule
from ..tensor import Tensor, from_array
from ..tensor_methods import pytrees
from ..views.platforms import forms
from ..viz.names import names_of


class Asked(NamedTuple):
    """A program to compile: a function of JAX arrays, and shapes, names and shardings of its operands."""

    name: str
    function: Callable[..., Any]
    structs: list[Any]
    donate: tuple[int, ...] = ()
    results: list[Any] | None = None  # a `PartitionSpec` of each result, None where the compiler chooses
    names: tuple[str, ...] = ()  # of the operands
    undonated: tuple[tuple[int, str], ...] = ()  # operands that are written and not donated, and why
    options: dict[str, Any] | None = None
    mesh: tuple[tuple[str, int], ...] = ()  # names and sizes of its axes

    def operands(self) -> list[tuple[str, int]]:
        """Return name and bytes on each device of the operands, the largest first."""
        sizes = [prod(s.sharding.shard_shape(s.shape) if s.sharding else s.shape) for s in self.structs]
        found = [(name, n * s.dtype.itemsize) for name, n, s in zip(self.names, sizes, self.structs)]
        return sorted(found, key=lambda operand: -operand[1])


def asked(what: Any, args: tuple, kwargs: dict, mesh: Any, shardings: Mapping[str, Any]) -> Asked:
    """Return the program of a function with these arguments, or of `xgrad.lazy`: the one that ran last."""
    if what is lazy:
        return _of_lazy()
    if not callable(what):
        raise TypeError(f"a function, a compiled one or xgrad.lazy can be compiled, but got {type(what).__name__}")
    step = what if isinstance(what, (CompiledFunction, OptimizedModule)) else compile(what)
    step = step.forward if isinstance(step, OptimizedModule) else step
    args, kwargs = jax.tree.map(_given, (args, kwargs), is_leaf=pytrees.is_tensor)
    with suspended("a compiled function"):
        return _of_step(step, args, kwargs, mesh, shardings)


def _given(leaf: Any) -> Any:
    """Return an argument; of a shape a tensor that has no value."""
    return from_array(array_of(leaf.shape, leaf.dtype)) if isinstance(leaf, jax.ShapeDtypeStruct) else leaf


def _of_lazy() -> Asked:
    fused = programs.latest
    if fused is None or fused.structs is None:
        raise RuntimeError("no lazy program has run yet, or the last one ran on several devices")
    told = [lines(place) for place in fused.lines]
    program = fused.function(fused.live, told=told)
    vars(program)["lines"] = told
    options = forms().options if fused.reads else None
    donate = tuple(i + 1 for i in fused.donated)
    return Asked("the last lazy program", program, [one(), *fused.structs], donate, options=options)


@block
def _traced(step: CompiledFunction, args: tuple, kwargs: dict) -> Iterator[tuple[Any, list[Any]]]:
    """Within the block there is an entry for a call, traced now and not kept, with the call's leaves."""
    if step._in is not None:
        args, kwargs, _ = put_in(step._in, args, kwargs)
    leaves, tree = pytrees.flatten((args, kwargs))
    keeping, made = Keeping(step._function, args, kwargs), None
    try:
        if not modes.inlined() and not modes.eager():
            new = CompiledFunction(step._function, *step._given)
            made = turns.take(new._traced, args, kwargs, leaves, tree, modes.modes())
        if made is None:
            raise RuntimeError("inside of another trace, or where JAX is not to compile, no program can be made")
        yield made[0], leaves
    finally:
        if made is not None:
            made[1].disown()
        keeping.restore()


def _of_step(step: CompiledFunction, args: tuple, kwargs: dict, mesh: Any, shardings: Any) -> Asked:
    with _traced(step, args, kwargs) as (entry, leaves):
        traced, program = entry._traced, entry._traced.program
        names = _names(step._function, args, kwargs, traced, traced.match.tensors(leaves))
    known = {
        "tensor": lambda i: (names[i], traced.match.expected[i].sharding),
        "array": lambda i: ("an array", getattr(leaves[i], "sharding", None)),
        "key": lambda _: ("the random generator's key", None),
    }
    sources = [traced.inputs[number] for number in program.inputs]
    operands = [known[kind](which) for kind, which in sources]
    avals = [variable.aval for variable in program.closed.jaxpr.invars]
    operands += [("a constant of the trace", None)] * (len(avals) - len(operands))
    places, mesh = _places([(*operand, aval) for operand, aval in zip(operands, avals)], mesh, shardings)
    donate = {*entry.places}
    why = "a backward outside of the step reads it" if step._given[0] else "donate=False keeps it"
    written = {root for _, _, root in traced.effects.writes}
    undonated = [(i, why) for i, root in enumerate(program.inputs) if root in written and i not in donate]
    return Asked(
        step.name(),
        _with_lines(program.closed),
        [jax.ShapeDtypeStruct(a.shape, a.dtype, weak_type=a.weak_type, sharding=p) for a, p in zip(avals, places)],
        tuple(sorted(donate)),
        None if mesh is None else _results(traced, places),
        tuple(name for name, _ in operands),
        tuple(undonated),
        step._given[1],
        () if mesh is None else tuple(mesh.shape.items()),
    )


def _with_lines(closed: ClosedJaxpr) -> Callable[..., list[Any]]:
    """Return a trace as a function whose equations carry the user's line in their names.

    Compilers join the locations of operators' programs with the locations of their calls only by name.
    """
    parts: list[tuple[str, list]] = []
    for eqn in closed.jaxpr.eqns:
        line = line_of_trace(eqn.source_info.traceback)
        if not parts or parts[-1][0] != line:
            parts.append((line, []))
        parts[-1][1].append(eqn)

    def under(line: str, part: Callable[..., list[Any]], operands: list[Any]) -> list[Any]:
        with jax.named_scope(line):
            return part(*operands)

    program = in_parts(closed, parts, under)
    vars(program)["lines"] = [line for line, _ in parts]  # on which the text of an answer depends
    return program


# -- names ------------------------------------------------------------------------------------------------------------


def _names(function: Any, args: tuple, kwargs: dict, traced: Any, tensors: list[Any]) -> list[str]:
    """Return the name of each tensor from outside: of a variable of the function, or of what has it."""
    function = function.forward if isinstance(function, Module) else function
    around = inspect.getclosurevars(inspect.unwrap(function)) if hasattr(inspect.unwrap(function), "__code__") else None
    scope = {} if around is None else {**around.globals, **around.nonlocals}
    try:
        scope |= inspect.signature(function).bind(*args, **kwargs).arguments
    except (TypeError, ValueError):
        scope |= {f"args[{i}]": arg for i, arg in enumerate(args)} | kwargs
    if hasattr(function, "__self__"):
        scope["self"] = function.__self__
    names = names_of(scope)
    found = {id(t): name for t in tensors if (name := names.of(t))}
    for value in scope.values():
        named = getattr(type(value), "_named_state", None)  # an optimizer's
        for parameter, key, item in () if named is None else named(value):
            found.setdefault(id(item), f"{names.of(parameter) or 'the optimizer'}: {key}")
    # The state that the step makes when it is called first.
    for _, _, key, plan in traced.puts:
        for name, item in plan[1].items() if isinstance(key, Tensor) and plan and plan[0] == "dict" else ():
            if item[0] == "given":
                found[id(tensors[item[1]])] = f"{names.of(key) or 'a parameter'}: {name}"
    return [found.get(id(t)) or f"a tensor {list(e.aval.shape)}" for t, e in zip(tensors, traced.match.expected)]


# -- shardings --------------------------------------------------------------------------------------------------------


def _places(operands: list[tuple], mesh: Any, shardings: Mapping[str, Any]) -> tuple[list[Any], Any]:
    """Return the sharding of each operand over a mesh of the target, and the mesh; Nones if there isn't a mesh.

    A tensor that is on a mesh stays so; `shardings` has the others' by patterns of names, and the state of a parameter
    is where it is.  What nothing is said of is whole on each device.
    """
    there = [where for _, where, _ in operands if isinstance(where, NamedSharding) and len(where.device_set) > 1]
    if mesh is None and there:
        mesh = AbstractMesh(there[0].mesh.axis_sizes, there[0].mesh.axis_names)
    if mesh is None:
        return [None] * len(operands), None
    unused, places = dict.fromkeys(shardings), []
    for name, where, aval in operands:
        parameter, _, state = name.partition(": ")
        spec = where.spec if where in there else PartitionSpec()
        for pattern, given in shardings.items():
            if fnmatchcase(name, pattern) or (state and aval.shape and fnmatchcase(parameter, pattern)):
                unused.pop(pattern, None)
                spec = given
                break
        try:
            places.append(NamedSharding(mesh, spec))
            wrong = misfit(places[-1], aval.shape)
        except ValueError as error:  # it has no such axis
            wrong = error
        if wrong is not None:
            raise PlacementError(f"{name}: {wrong}")
    if unused:
        known = ", ".join(name for name, *_ in operands[:12])
        raise PlacementError(f"shardings: no operand is named {', '.join(unused)}; there are {known}, ...")
    return places, mesh


def _results(traced: Any, places: list[Any]) -> list[Any]:
    """Return the specs of the results: a storage that is written, and a gradient, stay where the tensor is."""
    of_root = dict(zip(traced.program.inputs, (p.spec for p in places)))
    found: list[Any] = [None] * len(traced.program.closed.jaxpr.outvars)
    for _, array, root in traced.effects.writes:
        found[array] = of_root.get(root)
    of_tensor = {which: of_root.get(n) for n, (kind, which) in enumerate(traced.inputs) if kind == "tensor"}
    for i, reference in traced.effects.grads:
        if reference is not None and reference[0] and traced.recipes[reference[1]].root >= 0:
            found[traced.recipes[reference[1]].root] = of_tensor.get(i)
    return found
