"""Kernel: an operator with its static arguments bound, and the programs made for it.

Invariant: no operator compiles twice for the same shapes, dtypes and static arguments.  Every program is a cached
`jax.jit` of a pure function over arrays: the forward (`run`), the in-place form, one backward for each set of wanted
gradients (`Plan.programs`), one forward-mode rule for each set of tangents.

`Kernel.run` is the one seam between semantics and execution: what dispatches at once today can record and run later.
"""

from collections.abc import Callable
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from .. import dtypes
from ..compile_cache.programs import jit_checked, jit_placed
from ..donation import Writing
from ..engine.fit import fit
from ..errors import ShapeMismatchError
from ..limits import checked
from ..tensor import Tensor
from .dependence import dependence
from .node_names import BY_NUMBERS, name_of
from .operator_node import node_class
from .promotion import conj

if TYPE_CHECKING:
    from .declare import Operator


def linear(*_: Any) -> Any:
    """Marks an argument in which the function is linear (or affine): its gradient needs every argument but itself.

    Nor does it need an optional argument of which the own gradient is made of `grad` alone, as a bias is.
    """
    raise NotImplementedError


class Kernel:
    """The programs of one operator with one choice of static arguments."""

    __slots__ = (
        "_jvps",
        "_writes",
        "batched",
        "differentiable",
        "function",
        "operator",
        "outputs",
        "plans",
        "program",
        "ran",
        "run",
        "statics",
    )

    def __init__(self, operator: "Operator", statics: tuple) -> None:
        self.operator = operator
        self.statics = dict(zip(operator.static_names, statics, strict=True))
        self.function = partial(operator.function, **self.statics) if statics else operator.function
        self.program: Callable = (
            jit_checked(self.function, self, converts=operator.converts)
            if operator.jit
            else checked(self.function, self)
        )
        self.run: Callable = self._first  # then `program` itself
        self.ran = False
        self.differentiable = operator.differentiable
        self.outputs = operator.outputs
        self.plans: dict[Any, Plan] = {}
        self._writes: dict[Any, Callable] = {}
        self._jvps: dict[tuple, Any] = {}
        self.batched: dict[tuple[bool, ...], Any] = {}  # its operators over a batch, for each choice of arguments

    def _first(self, *arrays: Any) -> Any:
        out = self.program(*arrays)
        self.run, self.ran = self.program, True
        return out

    def plan(self, needs: int, count: int) -> "Plan":
        """What to save and to run in backward when the arguments in the mask `needs` require grad."""
        # Of an operator that takes any number of arguments, only the mask and the number together tell plans apart.
        key = needs if self.operator.variadic is None else (needs, count)
        plan = self.plans.get(key)
        if plan is None:
            plan = self.plans[key] = Plan(self, needs, count)
        return plan

    def narrowed(self, needs: int, count: int) -> "Plan":
        """The plan for another mask, made at need."""
        return self.plans.get(needs) or self.plan(needs, count)

    def written(self, self_array: Any, *others: Any) -> Any:
        """The function, as an in-place operation: its result must fit into `self`, and is cast to its dtype."""
        result = self.function(self_array, *others)
        name = self.operator.name
        if result.shape != self_array.shape:
            raise ShapeMismatchError(
                f"output with shape {list(self_array.shape)} doesn't match the broadcast shape {list(result.shape)} "
                f"({name}_ cannot change the shape of the tensor that it writes)"
            )
        if dtypes.category(result.dtype) > dtypes.category(self_array.dtype):
            names = [dtypes.TORCH_NAMES.get(d, d.name) for d in (result.dtype, self_array.dtype)]
            raise RuntimeError(f"result type {names[0]} can't be cast to the desired output type {names[1]} ({name}_)")
        return result.astype(self_array.dtype)

    def write(self, donate: bool, where: Any = None) -> Callable:
        """The jitted in-place form, over arrays; with `donate` the result takes the first argument's memory.

        `where`: the sharding that the result is to have, for XLA may choose another.
        """
        key = donate if where is None else (donate, where)
        program = self._writes.get(key)
        if program is None:
            # It runs where the array is, also if it does not read it (zero_).
            if donate:
                program = Writing(self.written, self, where)
            elif where is None:
                program = jit_checked(self.written, self, keep_unused=True)
            else:
                program = jit_placed(self.written, where)
            self._writes[key] = program
        return program

    def jvp(self, tangents: tuple[bool, ...]) -> Any:
        """An operator over (*primals, *tangents) that gives the tangents of the inexact results."""
        found = self._jvps.get(tangents)
        if found is None:
            found = self._jvps[tangents] = self._make_jvp(tangents)
        return found

    def _make_jvp(self, given: tuple[bool, ...]) -> Any:
        from .declare import Operator

        n, function = len(given), self.function
        if name := self.operator.missing:
            raise NotImplementedError(
                f"Trying to use forward AD with {name} that does not support it because it has not been implemented. "
                "Take the primal of what goes in (unpack_dual), if no tangent is meant to pass."
            )

        def rule(*values: Any) -> Any:
            primals, tangents = values[:n], values[n:]
            moving = [i for i in range(n) if given[i]]

            def along(*moved: Any) -> Any:
                full = list(primals)
                for i, value in zip(moving, moved, strict=True):
                    full[i] = value
                return function(*full)

            at = [primals[i] for i in moving]
            fitted = [t.astype(p.dtype) for t, p in zip(tangents, at, strict=True)]
            out = jax.jvp(along, at, fitted)[1]
            if isinstance(out, tuple):
                return tuple(t if t.dtype in dtypes.INEXACT else jnp.zeros(()) for t in out)
            # A comparison, written in place over what has a tangent.
            return out if out.dtype in dtypes.INEXACT else jnp.zeros(out.shape, at[0].dtype)

        return Operator(f"{self.operator.name}_jvp", rule, node=f"{self.operator.node_name}Jvp", jit=self.operator.jit)


class Plan:
    """For one mask of arguments that require grad: what is saved, and the backward programs."""

    __slots__ = (
        "all",
        "alone",
        "fits",
        "formulas",
        "independent",
        "indices",
        "keeps_result",
        "kernel",
        "multilinear",
        "needs",
        "no_metas",
        "node_class",
        "operators",
        "overloads",
        "passes",
        "pick",
        "programs",
        "result_names",
        "results",
        "reuses",
        "saved",
        "saves_result",
        "simple",
        "static",
        "used",
    )  # fmt: skip

    has_formula = True  # whether a compiled backward may trace it

    def __init__(self, kernel: Kernel, needs: int, count: int) -> None:
        operator = kernel.operator
        self.kernel = kernel
        self.needs = needs
        self.indices = tuple(i for i in range(count) if needs >> i & 1)
        self.node_class = node_class(name_of(operator.name, kernel.statics, operator.node_name))
        # The node's class by the arguments that are numbers, as bits; None: always the same one.
        named = BY_NUMBERS.get(operator.name)
        self.overloads = None if named is None else {bits: node_class(name) for bits, name in named[1].items()}
        self.programs: dict[Any, Callable] = {}
        self.operators: dict[Any, Any] = {}
        self.formulas: dict[tuple[int, int], Any] = {}  # for a compiled backward, by (given, needs)
        self.independent: dict[Any, tuple[tuple[bool, ...], list[tuple[bool, ...]]]] = {}
        names = argument_names(operator, count)
        wanted: set[str] = set()
        for i in self.indices:
            formula = formula_of(operator, names[i])
            if formula is None:  # derived: jax.vjp of the function needs every input
                wanted.update(names)
            elif formula is linear:
                wanted.update(n for n in names if n != names[i] and not _is_addend(operator, n))
            else:
                wanted.update(_asks_for(formula))
        if operator.variadic is not None and operator.variadic in wanted:
            wanted.update(names[len(operator.parameters) :])
        self.used = names
        self.saved = tuple(i for i in range(count) if names[i] in wanted)
        self.pick = _picker(self.saved)
        self.fits: set[tuple] = set()  # shapes of results whose gradient had to be summed or cast for an argument
        self.simple: dict[int, Callable] = {}  # programs for one defined gradient and nothing to fit
        self.no_metas = (None,) * count
        formulas = [formula_of(operator, names[i]) for i in self.indices]
        self.multilinear = operator.multilinear or all(
            f is linear or (f is not None and not {names[i], "result", "results"} & {*f.__code__.co_varnames})
            for i, f in zip(self.indices, formulas, strict=True)
        )
        self.passes = all(f is not None and _is_identity(f) for f in formulas)  # add, sub's first, clone, ...
        self.reuses = operator.pointwise
        self.all = (1 << count) - 1 if count > 1 else -1
        self.alone = len(self.indices) == count
        # Which results are saved: all (None), or those that formulas name by their field ("indices").
        self.result_names: tuple[str, ...] = getattr(operator.outputs, "_fields", ())
        self.results: tuple[int, ...] | None = None
        if not wanted & {"result", "results"}:
            self.results = tuple(i for i, field in enumerate(self.result_names) if field in wanted - {*names})
            self.result_names = tuple(self.result_names[i] for i in self.results)
        self.saves_result = self.results is None or bool(self.results)
        # What is saved tells its shape; those of other arguments are noted, where a gradient is made for them.
        self.static = bool(wanted & {"shapes", "dtypes"}) or any(
            formula_of(operator, names[i]) is linear and i not in self.saved for i in self.indices
        )
        # Whether the one result is saved, and nothing else.
        self.keeps_result = self.saves_result and not self.static and self.pick is None and operator.outputs is None

    def class_for(self, args: tuple) -> type:
        """The node's class where it depends on which arguments are numbers."""
        assert self.overloads is not None
        numbers, bit = 0, 1
        for a in args:
            if a.__class__ is not Tensor and a is not None and not isinstance(a, Tensor):
                numbers |= bit
            bit += bit
        return self.overloads.get(numbers, self.node_class)

    def only(self, args: tuple) -> list:
        """The arguments that require grad, None in the places of the others."""
        chosen: list = [None] * len(args)
        for i in self.indices:
            chosen[i] = args[i]
        return chosen

    def program(self, key: tuple) -> Callable:
        """The jitted backward for (needs, defined gradients, shapes, target metadata, donate)."""
        program = self.programs.get(key)
        if program is None:
            *made_for, donate = key
            facts = self.kernel, made_for
            program = self.programs[key] = jit_checked(self.backward(*made_for), facts, donate=donate)
        return program

    def operator(self, key: tuple) -> Any:
        """The backward as an operator, so that it can itself be recorded and differentiated."""
        from .declare import Operator

        found = self.operators.get(key)
        if found is None:
            operator = self.kernel.operator
            name = operator.node_name.removesuffix("Backward0") + "BackwardBackward0"
            found = Operator(f"{operator.name}_backward", self.backward(*key[:-1]), node=name)
            found.multilinear, found.masked, found.first = self.multilinear, operator.masked, False
            found.in_backward = True
            self.operators[key] = found
        return found

    def dependence(self, key: tuple, values: list) -> tuple[tuple[bool, ...], list[tuple[bool, ...]]]:
        """Of the arguments of `operator(key)`, on which its results depend, and of each result, on which it does."""
        kinds = tuple([(v.shape, v.dtype) if isinstance(v, Tensor) else v.__class__ for v in values])
        found = self.independent.get((key, kinds))
        if found is None:
            given = [jax.ShapeDtypeStruct(v.shape, v.dtype) if isinstance(v, Tensor) else v for v in values]
            found = dependence(self.backward(*key[:-1]), given, self.kernel.operator.masked)
            self.independent[key, kinds] = found
        return found

    def backward(self, needs: int, defined: tuple, static: tuple | None, metas: tuple) -> Callable:
        """A pure function of (*defined gradients, *saved inputs, *saved results).

        Gives one array if one gradient is wanted, else a tuple of those wanted.  `defined` tells for each result
        whether its gradient is given (None stands for one that is not, with the shape and dtype of its zeros).
        """
        kernel, names, node = self.kernel, self.used, self.node_class.__name__
        operator, statics = kernel.operator, kernel.statics
        wanted = [i for i in range(len(names)) if needs >> i & 1]
        explicit = {i: f for i in wanted if (f := formula_of(operator, names[i])) is not None}
        derived = [i for i in wanted if i not in explicit]
        n_grads = sum(d is None for d in defined)
        many = len(defined) > 1

        def run(*values: Any) -> Any:
            given = iter(values[:n_grads])
            grads = tuple(next(given) if d is None else jnp.zeros(*d) for d in defined)
            inputs: list[Any] = [None] * len(names)
            for place, i in enumerate(self.saved):
                inputs[i] = values[n_grads + place]
            results = values[n_grads + len(self.saved) :]
            scope: dict[str, Any] = dict(statics)
            scope.update(zip(names, inputs, strict=True))
            if operator.variadic is not None:
                first = len(operator.parameters)
                scope[operator.variadic] = tuple(inputs[first:])
            scope.update(grad=grads[0], grads=grads, results=results, result=results[0] if results else None)
            scope.update(zip(self.result_names, results, strict=False))
            scope["defined"] = tuple(d is None for d in defined)
            scope["function"] = kernel.function
            if static is not None:
                scope["shapes"], scope["dtypes"] = static
            scope["needs"] = tuple(bool(needs >> i & 1) for i in range(len(names)))
            found: dict[int, Any] = {}
            joint = operator.formulas.get("all")
            for i, formula in explicit.items():
                if formula is linear:
                    at = list(inputs)
                    at[i] = jnp.zeros_like(inputs[i]) if static is None else jnp.zeros(static[0][i], static[1][i])
                    found.update(pulled_back(kernel.function, [i], at, grads if many else grads[0]))
                elif formula is joint:
                    if not found:
                        found = dict(enumerate(_apply(formula, scope)))
                else:
                    found[i] = _apply(formula, scope)
            if derived:
                found.update(pulled_back(kernel.function, derived, inputs, grads if many else grads[0]))
            out = [found[i] if metas[i] is None else fit(found[i], *metas[i], node=node, index=i) for i in wanted]
            return out[0] if len(out) == 1 else tuple(out)

        return run


def _is_identity(formula: Callable) -> bool:
    """Whether a formula hands the incoming gradient on as it is, so that no program is needed."""
    if _asks_for(formula) != ("grad",):
        return False
    probe = object()
    try:
        return formula(probe) is probe
    except Exception:  # it computes with the gradient
        return False


def _picker(places: tuple[int, ...]) -> Callable | None:
    """A function that takes the items at `places` out of a tuple, as a tuple."""
    if len(places) > 1:
        return itemgetter(*places)
    return itemgetter(slice(places[0], places[0] + 1)) if places else None


def _apply(formula: Callable, scope: dict[str, Any]) -> Any:
    code = formula.__code__
    return formula(*(scope[name] for name in code.co_varnames[: code.co_argcount]))


def argument_names(operator: "Operator", count: int) -> tuple[str, ...]:
    """The names of `count` array arguments; those of a sequence are numbered."""
    extra = count - len(operator.parameters)
    return operator.parameters + tuple(f"{operator.variadic}[{i}]" for i in range(extra))


def formula_of(operator: "Operator", name: str) -> Callable | None:
    """The explicit formula for an argument, or None if it is derived."""
    formulas = operator.formulas
    return formulas.get(name) or formulas.get("all")


def _is_addend(operator: "Operator", name: str) -> bool:
    """Whether the function can do without an argument, which is added to what it gives."""
    formula = operator.formulas.get(name)
    optional = name in operator.defaults and operator.defaults[name] is None
    return optional and formula is not None and _asks_for(formula) == ("grad",)


def _asks_for(formula: Callable) -> tuple[str, ...]:
    """The names of what a formula is given."""
    return formula.__code__.co_varnames[: formula.__code__.co_argcount]


def pulled_back(function: Callable, wanted: list[int], inputs: list, grads: Any) -> dict[int, Any]:
    """Gradients by `jax.vjp`.  JAX's product does not conjugate, PyTorch's does: conjugate on the way in and out."""

    def of_wanted(*values: Any) -> Any:
        full = list(inputs)
        for i, value in zip(wanted, values, strict=True):
            full[i] = value
        out = function(*full)
        if isinstance(out, (tuple, list)):
            return tuple(o for o in out if o.dtype in dtypes.INEXACT)
        return out

    out, pull = jax.vjp(of_wanted, *(inputs[i] for i in wanted))
    if isinstance(grads, tuple):
        inexact = [g for g in grads if g.dtype in dtypes.INEXACT]
        cotangent = tuple(_cotangent(g, o) for g, o in zip(inexact, out, strict=True))
    else:
        cotangent = _cotangent(grads, out)
    return {i: conj(g) for i, g in zip(wanted, pull(cotangent), strict=True)}


def _cotangent(grad: Any, out: Any) -> Any:
    return conj(fit(grad, grad.shape, out.dtype))
