"""ByRule: the base class of SGD, Adam, ... (all but LBFGS); runs the update rule that a subclass declares (rule.py)."""

import functools
from collections.abc import Callable
from contextlib import nullcontext
from operator import attrgetter, itemgetter
from typing import Any, ClassVar

import jax

from ..base.dtypes import get_default_dtype
from ..base.limits import unseen
from ..config import Recorded
from ..config import state as modes
from ..execution.programs.ahead import expected
from ..tensor import Tensor
from . import rule as rules
from .optimizer import Optimizer, ParamsT
from .placing import filled, outside_of_trace, shapes_ahead


class ByRule(Optimizer):
    """An optimizer whose step is a `Rule`.  A class says which, and which of a group's entries are what."""

    rule: ClassVar[rules.Rule]
    hyper: ClassVar[tuple[str, ...]]  # entries of a group that are operands of the program
    tuples: ClassVar[dict[str, tuple[str, ...]]] = {}  # entries that are tuples of such operands, and the rule's names
    options: ClassVar[tuple[str, ...]] = ()  # entries that are part of the program
    switches: ClassVar[tuple[str, ...]] = ("weight_decay",)  # hyperparameters for which zero is another program
    sparse: ClassVar[str] = ""  # the error for a sparse gradient; "": it is made dense
    # Entries that a checkpoint of an earlier PyTorch may lack.
    later: ClassVar[dict[str, Any]] = {"maximize": False, "foreach": None, "differentiable": False}

    def __init__(self, params: ParamsT, **defaults: Any) -> None:
        super().__init__(params, defaults)
        if not defaults.get("differentiable"):
            expected[id(self)] = self

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            for name, value in self.later.items():
                group.setdefault(name, value)
            for p in group["params"]:
                for name in self.rule.counts:
                    found = self.state.get(p, {}).get(name)
                    if found is not None and not isinstance(found, Tensor):
                        self.state[p][name] = filled(p, float(found), (), _count_dtype())

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Change the parameters that have a gradient, once.

        closure: evaluates the model again, calls `backward()` and returns the loss, which `step` then returns.
        """
        loss = None
        if closure is not None:
            with Recorded():
                loss = closure()
        self._step_groups(None)
        return loss

    def _step_groups(self, unless: Tensor | None) -> None:
        expected.pop(id(self), None)
        enabled = modes.grad_enabled
        modes.grad_enabled = bool(self.defaults.get("differentiable")) and enabled
        try:
            for group in self.param_groups:
                self._step_group(group, unless)
        finally:
            modes.grad_enabled = enabled

    def _step_unless(self, found: Tensor, closure: Callable[[], Any] | None = None) -> None:
        """Step, but change nothing if `found` is above zero when the program runs (amp/grad_scaler.py)."""
        if closure is not None:
            raise RuntimeError("a step that a GradScaler may skip takes no closure: call backward() before it")
        if hasattr(self.step, "_wrapped_by_lr_sched"):
            self._opt_called = True
        self._step_groups(found)

    def _unskippable(self) -> str:
        """Return why a program can't decide by itself whether a step is skipped; "" if it can."""
        kind = type(self)
        if "step" in vars(self) and not hasattr(self.step, "_wrapped_by_lr_sched"):
            return f"the step of this {kind.__name__} was replaced by a function of your own"
        if not _is_ours(kind, _OURS):
            return f"{kind.__name__} has methods of your own, which Python runs"
        if self._has_step_hooks():
            return f"this {kind.__name__} has step hooks, which Python runs"
        return ""

    def _begun(self) -> bool:
        """Return True if all parameters that a step will change have their state."""
        return all(
            p._grad is None or set(self.rule.counts).union(self._arrays(group, p)) <= self.state.get(p, {}).keys()
            for group in self.param_groups
            for p in group["params"]
        )

    def _step_group(self, group: dict[str, Any], unless: Tensor | None = None) -> None:
        numbers, group, given = self._numbers_in_trace(group)
        params, grads = self._with_gradients(group)
        if not params:
            return
        options = self._options(group)
        alike = self._are_alike(group)
        forms = self._forms(params[:1], group) * len(params) if alike else self._forms(params, group)
        kinds = {forms[0]: [*range(len(params))]} if alike else _places(forms)
        if modes.trace is None:
            states = self._states_of(params, group, self.rule.counts + forms[0][0] if alike else ())
        else:
            states = self._states_in_trace(params, group, forms)
        for (arrays, varying), mine in kinds.items():
            if unless is not None and ("first", True) in varying:
                raise RuntimeError(UNSKIPPABLE_FIRST)
            hyper = self._hyper(group, params[mine[0]])
            if numbers is not None and given is not None and hyper != self._hyper(group, group["params"][0]):
                numbers.escaped, given = True, None
            rules.apply(
                self.rule, [params[i] for i in mine], [grads[i] for i in mine], [states[i] for i in mine], arrays,
                hyper, {**options, **dict(varying)}, given, unless,
            )  # fmt: skip

    def _options(self, group: dict[str, Any]) -> dict[str, Any]:
        """Return what the group's entries choose among programs."""
        options = {name: group[name] for name in self.options}
        options |= {name: isinstance(group[name], Tensor) or group[name] != 0 for name in self.switches}
        options["maximize"] = group.get("maximize", False)
        return options

    def programs_ahead(self, leaves: set[int]) -> list[rules.Ahead]:
        """Return the programs of the first step, after a backward to the tensors of these ids, where they are known."""
        calls: list[rules.Ahead] = []
        for group in self.param_groups:
            params = [p for p in group["params"] if id(p) in leaves and not p._sparse]
            if not params or not self._are_alike(group):
                continue
            ((arrays, varying),) = self._forms(params[:1], group)
            rows = [shapes_ahead(p, [self._shape(name, p) for name in arrays]) for p in params]
            if not all(rows) or len({row[0].sharding for row in rows}) > 1:
                continue
            count = [jax.ShapeDtypeStruct((), _count_dtype(), sharding=rows[0][0].sharding)] * len(self.rule.counts)
            written = [[row[0], *count, *row[1:]] for row in rows]
            options = {**self._options(group), **dict(varying)}
            hyper = self._hyper(group, params[0])
            calls += rules.ahead(self.rule, written, [row[0] for row in rows], arrays, hyper, options)
        return calls

    def _with_gradients(self, group: dict[str, Any]) -> tuple[list[Tensor], list[Tensor]]:
        """Return the parameters that have a gradient, and these."""
        params, grads = [*group["params"]], [*map(_GRAD, group["params"])]
        if {*map(type, grads)} != {Tensor}:  # a loop in C: for a thousand small parameters Python's count
            given = [(p, grad) for p, grad in zip(params, grads) if grad is not None]
            params = [p for p, _ in given]
            grads = [self._dense(grad, group) if grad._sparse else grad for _, grad in given]
        return params, grads

    def _are_alike(self, group: dict[str, Any]) -> bool:
        """Return True if the program depends on the group's options, and not on a parameter."""
        return _has_our_forms(type(self))

    def _states_of(self, params: list[Tensor], group: dict[str, Any], names: tuple[str, ...]) -> list[dict[str, Any]]:
        """Return the states of parameters, with new entries where some are missing.

        names: the names of each state's entries; () if they differ among the parameters.
        """
        states: list[Any] = [*map(self.state.get, params)]
        if names and None not in states:
            try:
                if all({*map(type, map(itemgetter(name), states))} == {Tensor} for name in names):
                    return states
            except KeyError:
                pass
        return [self._state_of(p, group) for p in params]

    @staticmethod
    def _numbers_in_trace(group: dict[str, Any]) -> tuple[Any, dict[str, Any], Tensor | None]:
        """Return what a trace knows of a group's numbers, the group with its numbers, and the tensor of them."""
        if modes.trace is None:
            return None, group, None
        numbers = modes.trace.numbers.get(id(group))
        found = None if numbers is None else numbers.numbers_for_step(group)
        group, given = (group, None) if found is None else found
        return numbers, group, given

    def _forms(self, params: list[Tensor], group: dict[str, Any]) -> list[tuple[Any, ...]]:
        """Return what the program depends on for each parameter: its arrays, and the options that vary."""
        return [(tuple(self._arrays(group, p)), tuple(self._varying(group, p).items())) for p in params]

    def _states_in_trace(self, params: list[Tensor], group: dict[str, Any], forms: list[Any]) -> list[dict[str, Any]]:
        """Return the states; those that are made now the program takes as if they had been there before."""
        own = self._are_alike(group) and rules.is_own(self.rule, params)
        with unseen() if own else nullcontext(), outside_of_trace():
            before = [dict(self.state.get(p, ())) if p in self.state else None for p in params]
            states = [self._state_of(p, group) for p in params]
            same = self._forms(params, group) == forms
        for p, old, state in zip(params, before, states) if same else ():
            if old is None and state:
                modes.trace.adopt(self.state, p, state)
            elif old is not None:
                for name in state.keys() - old.keys():
                    modes.trace.adopt(state, name, state[name])
        return states

    def __xgrad_numbers__(self) -> list[tuple[Any, ...]]:
        """Return what a compiled function needs to make groups' numbers operands (compiler/guards/hyperparameters.py).

        For each group: it, names of its entries, those whose sign a program depends on, a function to a vector.
        """
        kind = type(self)
        names = ("lr", *[name for name in (*getattr(kind, "hyper", ()), *kind.tuples) if name != "lr"])
        if not _is_ours(kind, _OURS) or "hyper" not in dir(kind):
            return []
        fixed = frozenset(names) - {"lr"}
        asked: Any = object.__new__(kind)  # without state, so that a guard keeps none

        def array(group: dict[str, Any]) -> Any:
            return rules.numbers(kind.rule, asked._hyper(group, group["params"][0]))

        usable = [g for g in self.param_groups if g["params"] and all(name in g for name in names)]
        return [(group, names, fixed, array) for group in usable]

    def _hyper(self, group: dict[str, Any], p: Tensor) -> dict[str, Any]:
        """Return the hyperparameters of a group by the names that the rule has for them."""
        found = {name: group[name] for name in self.hyper}
        for name, parts in self.tuples.items():
            found.update(zip(parts, group[name], strict=True))
        return found

    def _varying(self, group: dict[str, Any], p: Tensor) -> dict[str, Any]:
        """Return options that are a parameter's own: parameters with other ones are updated by another program."""
        return {}

    def _counts(self, group: dict[str, Any]) -> dict[str, Any]:
        """Return the numbers that the rule's counts begin with."""
        return dict.fromkeys(self.rule.counts, 0.0)

    def _arrays(self, group: dict[str, Any], p: Tensor) -> dict[str, float]:
        """Return the arrays of a parameter's state, {name: the number that they begin with}."""
        return {}

    def _shape(self, name: str, p: Tensor) -> Any:
        """Return the shape of an array of the state."""
        return p.shape

    def _state_of(self, p: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        """Return a parameter's state; add what is missing."""
        arrays = self._arrays(group, p)
        if not arrays and not self.rule.counts:
            return {}
        state = self.state[p]
        for name, value in self._counts(group).items():
            if name not in state:
                state[name] = filled(p, float(value), (), _count_dtype())
        for name, value in arrays.items():
            if state.get(name) is None:
                value = complex(value, value) if p.is_complex() else value
                state[name] = filled(p, value, self._shape(name, p))
        return state

    def _dense(self, grad: Any, group: dict[str, Any]) -> Tensor:
        if self.sparse:
            raise RuntimeError(self.sparse)
        return grad.to_dense()


UNSKIPPABLE_FIRST = (
    "GradScaler.step() inside of xgrad.compile: the first step of SGD with momentum and dampening is another program "
    "than the later ones, so the compiled program can't skip it. Do one step outside of the compiled function before."
)

# Methods in which a subclass of the user's may read other numbers.
_OURS = ("step", "_arrays", "_counts", "_dense", "_hyper", "_shape", "_state_of", "_step_group", "_varying")
_PACKAGE = __name__.rpartition(".")[0]
_GRAD = attrgetter("_grad")


def _places(forms: list[tuple[Any, ...]]) -> dict[tuple[Any, ...], list[int]]:
    """Return the numbers of the parameters of each form."""
    found: dict[tuple[Any, ...], list[int]] = {}
    for i, form in enumerate(forms):
        found.setdefault(form, []).append(i)
    return found


@functools.cache
def _has_our_forms(kind: type[Any]) -> bool:
    """Return True if a class has the methods of this package that make a program's form and a parameter's state."""
    return _is_ours(kind, ("_arrays", "_counts", "_forms", "_shape", "_state_of", "_varying"))


def _is_ours(kind: type[Any], names: tuple[str, ...]) -> bool:
    """Return True if a class's methods of these names are this package's."""
    return all(getattr(getattr(kind, name), "__module__", "").startswith(_PACKAGE) for name in names)


def _count_dtype() -> Any:
    return "float64" if get_default_dtype() == "float64" else "float32"


def require(good: bool, text: str) -> None:
    """Raise `ValueError` for an argument that is out of its range."""
    if not good:
        raise ValueError(text)


def require_not_negative(**values: Any) -> None:
    """Raise `ValueError` for the first of the named values that is below zero."""
    for name, value in values.items():
        require(value >= 0.0, f"Invalid {name} value: {value}")


def check_lr(lr: Any, text: str = "Invalid learning rate") -> None:
    """Raise `ValueError` for a learning rate below zero, or a tensor with several."""
    if isinstance(lr, Tensor):
        require(lr.numel() == 1, "Tensor lr must be 1-element")
    require(bool(lr >= 0.0), f"{text}: {lr}")


def check_forms(foreach: Any, fused: Any, differentiable: bool) -> None:
    """Raise `RuntimeError` where two ways of running exclude each other.

    All steps are fused programs over all parameters here, whatever is asked for.
    """
    if fused and differentiable:
        raise RuntimeError("`fused` does not support `differentiable`")
    if fused and foreach:
        raise RuntimeError("`fused` and `foreach` cannot be `True` together.")


def check_adam(lr: Any, betas: tuple[Any, Any], eps: float, weight_decay: float) -> None:
    """Raise `ValueError` for hyperparameters out of range, of the optimizers with two moving averages."""
    check_lr(lr)
    require(eps >= 0.0, f"Invalid epsilon value: {eps}")
    for i, beta in enumerate(betas):
        require(0.0 <= beta < 1.0, f"Invalid beta parameter at index {i}: {beta}")
    require(weight_decay >= 0.0, f"Invalid weight_decay value: {weight_decay}")
