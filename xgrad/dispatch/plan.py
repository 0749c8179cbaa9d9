"""Plan: decides what an operator's forward saves, and makes its backward program, for one set of needed gradients."""

from collections.abc import Callable
from operator import itemgetter
from typing import Any, Protocol

import jax
import jax.numpy as jnp

from ..base import dtypes
from ..engine.fit import fit
from ..execution.programs.half import in_single, is_half, widen
from ..execution.programs.programs import jit_checked
from ..tensor import Tensor
from .dependence import dependence
from .operator import Operator, argument_names, asks_for, formula_of, is_addend, linear
from .promotion import conj


class Bound(Protocol):
    """The interface of a kernel (kernel.py) that its plans use: an operator with its static arguments bound."""

    statics: dict[str, Any]
    reference: Callable[..., Any]
    node_class: type[Any]
    own: bool

    @property
    def operator(self) -> Operator: ...

    def plan(self, needs: int, count: int) -> "Plan":
        """The plan of this kernel for another choice of arguments."""
        ...


class Plan:
    """The saved values and the backward programs for one mask of arguments that require grad."""

    __slots__ = (
        "all",
        "alone",
        "fits",
        "formulas",
        "general",
        "independent",
        "indices",
        "keeps_result",
        "kernel",
        "multilinear",
        "needs",
        "no_metas",
        "operators",
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

    has_formula = True  # True if a compiled backward may trace it

    def __init__(self, kernel: Bound, needs: int, count: int) -> None:
        operator = kernel.operator
        self.kernel: Bound = kernel
        self.needs: int = needs
        self.indices: tuple[int, ...] = tuple(i for i in range(count) if needs >> i & 1)
        self.programs: dict[Any, Callable[..., Any]] = {}
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
                wanted.update(n for n in names if n != names[i] and not is_addend(operator, n))
            else:
                wanted.update(asks_for(formula))
        if operator.variadic is not None and operator.variadic in wanted:
            wanted.update(names[len(operator.parameters) :])
        self.used: tuple[str, ...] = names
        self.saved: tuple[int, ...] = tuple(i for i in range(count) if names[i] in wanted)
        self.pick: Any = _picker(self.saved)
        # Shapes of results whose gradient had to be summed or cast for an argument.
        self.fits: set[tuple[Any, ...]] = set()
        self.simple: dict[int, Callable[..., Any]] = {}  # programs for one defined gradient and nothing to fit
        self.no_metas: tuple[None, ...] = (None,) * count
        formulas = [formula_of(operator, names[i]) for i in self.indices]
        self.multilinear: bool = operator.multilinear or all(
            f is linear or (f is not None and not {names[i], "result", "results"} & {*f.__code__.co_varnames})
            for i, f in zip(self.indices, formulas, strict=True)
        )
        self.passes: bool = all(f is not None and _is_identity(f) for f in formulas)  # add, sub's first, clone, ...
        self.reuses: bool = operator.pointwise
        self.all: int = (1 << count) - 1 if count > 1 else -1
        self.alone: bool = len(self.indices) == count
        # The saved results: all (None), or those that formulas name by their field ("indices").
        self.result_names: tuple[str, ...] = getattr(operator.outputs, "_fields", ())
        self.results: tuple[int, ...] | None = None
        if not wanted & {"result", "results"}:
            self.results = tuple(i for i, field in enumerate(self.result_names) if field in wanted - {*names})
            self.result_names = tuple(self.result_names[i] for i in self.results)
        self.saves_result: bool = self.results is None or bool(self.results)
        # A saved value has its shape; shapes of other arguments are stored if these get a gradient.
        self.static: bool = bool(wanted & {"shapes", "dtypes"}) or any(
            formula_of(operator, names[i]) is linear and i not in self.saved for i in self.indices
        )
        self.general: bool = self.static  # True: no backward takes the short way of `OperatorNode.apply`
        # True if only the one result is saved.
        self.keeps_result: bool = (
            self.saves_result and not self.static and self.pick is None and operator.outputs is None
        )

    def only(self, args: tuple[Any, ...]) -> list[Any]:
        """The arguments that require grad, None in the places of the others."""
        chosen: list = [None] * len(args)
        for i in self.indices:
            chosen[i] = args[i]
        return chosen

    def program(self, key: tuple[Any, ...]) -> Callable[..., Any]:
        """The jitted backward for (needs, defined gradients, shapes, target metadata, donate)."""
        program = self.programs.get(key)
        if program is None:
            *made_for, donate = key
            facts = self.kernel, made_for
            program = self.programs[key] = jit_checked(
                self.backward(*made_for), facts, donate=donate, own=self.kernel.own
            )
            program.label, program.operator = self.kernel.node_class.__name__, self.kernel.operator.name
        return program

    def operator(self, key: tuple[Any, ...]) -> Any:
        """The backward as an operator, so that it can itself be recorded and differentiated."""
        found = self.operators.get(key)
        if found is None:
            operator = self.kernel.operator
            name = operator.node_name.removesuffix("Backward0") + "BackwardBackward0"
            wide = False, operator.wide_gradients  # `backward` is wide itself
            found = Operator(f"{operator.name}_backward", self.backward(*key[:-1]), node=name, wide=wide)
            found.multilinear, found.masked, found.first = self.multilinear, operator.masked, False
            found.in_backward = True
            self.operators[key] = found
        return found

    def dependence(self, key: tuple[Any, ...], values: list[Any]) -> tuple[tuple[bool, ...], list[tuple[bool, ...]]]:
        """Return for each argument of `operator(key)` whether its results depend on it: any of them, and each
        one."""
        kinds = tuple([(v.shape, v._dtype) if isinstance(v, Tensor) else v.__class__ for v in values])
        found = self.independent.get((key, kinds))
        if found is None:
            given = [jax.ShapeDtypeStruct(v.shape, v._dtype) if isinstance(v, Tensor) else v for v in values]
            found = dependence(self.backward(*key[:-1]), given, self.kernel.operator.masked)
            self.independent[key, kinds] = found
        return found

    def backward(
        self, needs: int, defined: tuple[Any, ...], static: tuple[Any, ...] | None, metas: tuple[Any, ...]
    ) -> Callable[..., Any]:
        """Make a pure function of (*defined gradients, *saved inputs, *saved results).

        It returns one array if one gradient is wanted, else a tuple of the wanted ones.  `defined` has an item for each
        result: None for a result with a gradient, else the shape and dtype of its zeros.
        """
        kernel, names, node = self.kernel, self.used, self.kernel.node_class.__name__
        operator, statics = kernel.operator, kernel.statics
        wanted = [i for i in range(len(names)) if needs >> i & 1]
        explicit = {i: f for i in wanted if (f := formula_of(operator, names[i])) is not None}
        derived = [i for i in wanted if i not in explicit]
        n_grads = sum(d is None for d in defined)
        many = len(defined) > 1

        def run(*values: Any) -> Any:
            given = iter(values[:n_grads])
            # Without a half among the values they may be float32 copies of halves: see `in_single`.
            zeros = jnp.zeros if any(map(is_half, values)) else lambda *made: widen(jnp.zeros(*made))
            grads = tuple(next(given) if d is None else zeros(*d) for d in defined)
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
            scope["function"] = kernel.reference
            if static is not None:
                scope["shapes"], scope["dtypes"] = static
            scope["needs"] = tuple(bool(needs >> i & 1) for i in range(len(names)))
            found: dict[int, Any] = {}
            joint = operator.formulas.get("all")
            for i, formula in explicit.items():
                if formula is linear:
                    at = list(inputs)
                    at[i] = jnp.zeros_like(inputs[i]) if static is None else zeros(static[0][i], static[1][i])
                    found.update(pulled_back(kernel.reference, [i], at, grads if many else grads[0]))
                elif formula is joint:
                    if not found:
                        found = dict(enumerate(_apply(formula, scope)))
                else:
                    found[i] = _apply(formula, scope)
            if derived:
                found.update(pulled_back(kernel.reference, derived, inputs, grads if many else grads[0]))
            out = [found[i] if metas[i] is None else fit(found[i], *metas[i], node=node, index=i) for i in wanted]
            return out[0] if len(out) == 1 else tuple(out)

        return in_single(run) if operator.wide_gradients else run


def _is_identity(formula: Callable) -> bool:
    """Return whether a formula returns the incoming gradient itself, so that no program is needed."""
    if asks_for(formula) != ("grad",):
        return False
    probe = object()
    try:
        return formula(probe) is probe
    except Exception:  # it computes with the gradient
        return False


def _picker(places: tuple[int, ...]) -> Callable | None:
    """Make a function that returns the items of a tuple at `places`, as a tuple."""
    if len(places) > 1:
        return itemgetter(*places)
    return itemgetter(slice(places[0], places[0] + 1)) if places else None


def _apply(formula: Callable, scope: dict[str, Any]) -> Any:
    code = formula.__code__
    return formula(*(scope[name] for name in code.co_varnames[: code.co_argcount]))


def pulled_back(function: Callable[..., Any], wanted: list[int], inputs: list[Any], grads: Any) -> dict[int, Any]:
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
