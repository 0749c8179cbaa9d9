"""Optimizer: wraps an optax transformation as a PyTorch optimizer, with `step()` and parameter groups (torch/optim).

A step is one program over all parameters, gradients and the state, which replaces parameters and state in their own
memory.  Invariants: other tensors on a parameter's storage (views, aliases, saved tensors with their version checks)
see a step as the in-place operation that it is in PyTorch; a parameter whose gradient is None is skipped, and its state
with it.
"""

import warnings
from collections.abc import Callable, Iterable
from typing import Any

try:
    import optax  # noqa: F401 - the files below need it
except ImportError as _error:
    raise ImportError('xgrad.interop.optax needs optax: pip install "xgrad[optax]"') from _error

from ..config import Recorded, Unrecorded, state
from ..optim.hooks import LOAD_POST, LOAD_PRE, SAVE_POST, SAVE_PRE, STEP_POST, STEP_PRE, HookedOptimizer
from ..tensor import Tensor
from ..tensor_methods import pytrees
from . import _optax_state_dict, _optax_traced
from ._optax_groups import ParamGroup, named_parameters
from ._optax_state import GroupState, checked, named_state
from ._optax_update import Part, Update

__all__ = ["Optimizer"]

_MOST = 16  # patterns of parameters with and without a gradient


class Optimizer(HookedOptimizer):
    """Steps of an optax transformation on tensors, in place, from their `.grad`.

    params: an iterable of tensors, of (name, tensor) pairs such as `module.named_parameters()`, or of dictionaries,
        each a group: {"params": ..., "tx": a transformation of its own, "learning_rate": 0.1, ...}.
    tx: the transformation of the groups that have none: `optax.adamw(1e-3)`, or any other of optax's, also chained,
        masked, partitioned, accumulated (`optax.MultiSteps`), with schedules.

    optax sees the parameters of a group as a list, or, if they have names, as a dictionary by these: masks and labels
    have that structure.  Each group has a state of its own, so that a global norm is the norm of one group.

    Hyperparameters that `optax.inject_hyperparams` makes part of the state are entries of the group, under optax's
    names: `optimizer.param_groups[0]["learning_rate"] = 0.01`.  Other ones are constants of the program.

    A parameter without a gradient is skipped, and its state with it, but a group's counts go on.  A sparse gradient is
    made dense.  A step can be part of a function under `xgrad.compile`; sharded parameters keep their sharding, and
    their state is sharded alike.

    Raises `ValueError` for no parameters, a tensor that is not a leaf, and one that is in several groups; `TypeError`
    for a parameter that is not a tensor and a `tx` that is not a transformation; warns of a tensor that is twice in a
    group.

    >>> import optax, xgrad
    >>> from xgrad.interop.optax import Optimizer
    >>> w = xgrad.tensor([1.0, -2.0], requires_grad=True)
    >>> tx = optax.chain(
    ...     optax.clip_by_global_norm(1.0), optax.inject_hyperparams(optax.sgd)(learning_rate=0.5)
    ... )
    >>> optimizer = Optimizer([w], tx)
    >>> for _ in range(2):
    ...     optimizer.zero_grad()
    ...     (w * w).sum().backward()
    ...     optimizer.step()
    >>> w
    tensor([ 0.5528, -1.1056], requires_grad=True)
    >>> optimizer.param_groups[0]["learning_rate"] *= 0.1
    >>> optimizer.param_groups[0]["learning_rate"]
    0.05

    Gradients of four steps, averaged; an exponential moving average; steps that skip gradients that are not finite:

    >>> tx = optax.MultiSteps(optax.adam(1e-3), every_k_schedule=4)
    >>> tx = optax.chain(optax.adam(1e-3), optax.ema(0.99))
    >>> tx = optax.apply_if_finite(optax.adam(optax.cosine_decay_schedule(1e-3, 100)), max_consecutive_errors=5)

    One transformation for weights and another one for biases, by their names:

    >>> layer = xgrad.nn.Linear(2, 3)
    >>> tx = optax.partition(
    ...     {"decayed": optax.adamw(1e-3), "plain": optax.adam(1e-3)}, {"weight": "decayed", "bias": "plain"}
    ... )
    >>> optimizer = Optimizer(layer.named_parameters(), tx)
    """

    # The attributes that a compiled function guards: other groups and hooks need another trace.
    __xgrad_guards__: frozenset[str] = frozenset({"_structure", STEP_PRE, STEP_POST})
    _unless: Any = None  # within a compiled step of a GradScaler: above zero if gradients are inf or NaN

    def __init__(self, params: Iterable[Any], tx: Any = None) -> None:
        if isinstance(params, Tensor):
            raise TypeError(
                "params argument given to the optimizer should be an iterable of Tensors or dicts, but got a Tensor"
            )
        if tx is None and (not isinstance(params, (list, tuple)) or not all(isinstance(p, dict) for p in params)):
            raise TypeError("Optimizer needs tx, a transformation of optax's such as optax.adamw(1e-3)")
        self.defaults: dict[str, Any] = {} if tx is None else {"tx": checked(tx)}
        self.param_groups: list[ParamGroup] = []
        self._states: list[GroupState] = []
        self._params: list[Tensor] = []  # of all groups
        self._structure = object()
        self._updates: dict[tuple[bool, ...], list[tuple[Update, list[int] | None]]] = {}
        self._make_hooks()
        groups = list(params)
        if not groups:
            raise ValueError("optimizer got an empty parameter list")
        for group in groups if isinstance(groups[0], dict) else [{"params": groups}]:
            self._add(group)

    def __repr__(self) -> str:
        lines = [f"{type(self).__name__} ("]
        for i, group in enumerate(self.param_groups):
            lines.append(f"Parameter Group {i}")
            lines += [f"    {key}: {group[key]}" for key in sorted(group) if key not in ("params", "tx")]
            lines.append(f"    params: {len(group['params'])} tensors")
        return "\n".join([*lines, ")"])

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_updates": {}}

    # ------------------------------------------------------------ groups

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group of parameters: {"params": ...}, with a "tx" of its own and hyperparameters if you like."""
        self._add(param_group)

    def _add(self, param_group: dict[str, Any]) -> None:
        if not isinstance(param_group, dict):
            raise TypeError(f"param_group must be a dict, but got {type(param_group).__name__}")
        group = dict(param_group)
        if "params" not in group:
            raise KeyError('a parameter group needs "params"')
        params, names = named_parameters(group["params"])
        for p in params:
            if not isinstance(p, Tensor):
                raise TypeError(f"optimizer can only optimize Tensors, but one of the params is a {type(p).__name__}")
            if p._sparse:
                raise TypeError("optimizer can only optimize dense Tensors, but one of the params is sparse")
            if not (p.is_leaf or p.retains_grad):
                raise ValueError("can't optimize a non-leaf Tensor")
        tx = group.get("tx") or self.defaults.get("tx")
        if tx is None:
            raise ValueError("parameter group didn't specify a value of required optimization parameter tx")
        if not params:
            raise ValueError("optimizer got an empty parameter list: a group needs parameters")
        if len(set(map(id, params))) < len(params):
            warnings.warn(
                "optimizer contains a parameter group with duplicate parameters: each step changes them as often as "
                "they are there",
                stacklevel=3,
            )
        if any(("param_names" in other) is (names is None) for other in self.param_groups):
            raise ValueError("all optimizer param groups should be with/without names")
        if not set(map(id, self._params)).isdisjoint(map(id, params)):
            raise ValueError("some parameters appear in more than one parameter group")
        if len({_devices(p) for p in params}) > 1:
            raise ValueError("a parameter group has parameters on different devices: make a group for each device")
        group.update(params=params, tx=checked(tx))
        if names is not None:
            group["param_names"] = names
        with Unrecorded():
            added = GroupState(group["tx"], params, names)
            self.param_groups.append(ParamGroup(group, added))
        self._states.append(added)
        self._params += params
        self._updates.clear()
        self._structure = object()

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Set the gradients of all parameters to None, or, with `set_to_none=False`, to zero in place."""
        if set_to_none:
            for p in self._params:
                p._grad = None
            return
        for p in self._params:
            grad = p._grad
            if grad is not None:
                if grad.grad_fn is not None:
                    grad.detach_()
                else:
                    grad.requires_grad_(False)
                grad.zero_()

    # ------------------------------------------------------------ a step

    def step(self, closure: Callable[[], Any] | None = None, **extra: Any) -> Any:
        """Change all parameters that have a gradient; return the result of `closure`, if there is one.

        closure: evaluates the model again, calls `backward()` and returns the loss, which is then `value` for
            transformations that need it; a line search (`optax.lbfgs`) may evaluate it several times more.
        extra: the transformation's arguments beside gradients: `value=loss` (polyak_sgd, reduce_on_plateau), tensors,
            arrays, numbers, or functions of JAX arrays, such as `value_fn`, which gets the parameters of a group.

        A function that the transformation really calls, such as a line search's, is traced in each step, and its
        program compiled again only if it computes something else; the closure's backward is not part of it.

        >>> import optax, xgrad
        >>> from xgrad.interop.optax import Optimizer
        >>> x = xgrad.tensor([3.0, -4.0], requires_grad=True)
        >>> optimizer = Optimizer([x], optax.polyak_sgd())
        >>> def closure():
        ...     optimizer.zero_grad()
        ...     loss = ((x - 1) ** 2).sum()
        ...     loss.backward()
        ...     return loss
        >>> optimizer.step(closure)
        tensor(29., grad_fn=<SumBackward0>)
        >>> x
        tensor([ 2.0000, -1.5000], requires_grad=True)
        """
        own, after = self.__dict__[STEP_PRE], self.__dict__[STEP_POST]
        if not own and not after:
            return self._step(closure, **extra)
        args: tuple = (self,) if closure is None else (self, closure)
        for hook in [*own.values()]:
            result = hook(self, args, extra)
            if result is not None:
                if not isinstance(result, tuple) or len(result) != 2:
                    raise RuntimeError(
                        "a step pre-hook must return None or a tuple of (new_args, new_kwargs), but this one returned "
                        f"{result!r}"
                    )
                args, extra = result
        out = type(self)._step(*args, **extra)
        for hook in [*after.values()]:
            hook(self, args, extra)
        return out

    def _step(self, closure: Callable[[], Any] | None = None, **extra: Any) -> Any:
        loss = None
        functions = {}
        if closure is not None:
            with Recorded():
                loss = closure()
            functions["value_of"] = self._value_of(closure)
            if loss is not None:
                extra.setdefault("value", loss)
        if extra:
            functions |= {name: _over_arrays(value) for name, value in extra.items() if callable(value)}
            extra = {name: pytrees.mapped(_array, value) for name, value in extra.items() if name not in functions}
        given: list[Any] = [p._grad for p in self._params]
        present = tuple([grad is not None for grad in given])
        if state.trace is not None:
            self._step_traced(given, present, extra, functions)
            return loss
        updates = self._updates.get(present)
        if updates is None or not all(update.holds() for update, _ in updates):
            updates = self._updates_for(present)
        for update, places in updates:
            grads = given if places is None else [given[i] for i in places]
            update.run([a if (a := g._array) is not None else _dense(g) for g in grads], extra, functions)
        return loss

    def _parts(self, present: tuple[bool, ...]) -> list[tuple[Part, list[int]]]:
        """Return the groups that take part in a step, each with the numbers of its parameters that do."""
        found, start = [], 0
        for i, group in enumerate(self._states):
            stop = start + len(group.layout.shapes)
            mine = present[start:stop]
            if any(mine):
                places = [start + k for k, here in enumerate(mine) if here]
                found.append((Part(group.layout, i, mine, len(places), *group.layout.masked(mine)), places))
            start = stop
        return found

    def _updates_for(self, present: tuple[bool, ...]) -> list[tuple[Update, list[int] | None]]:
        """Make an `Update` for steps with these gradients, for each set of devices."""
        by_devices: dict[Any, list[tuple[Part, list[int]]]] = {}
        for part, places in self._parts(present):
            group = self._states[part.number]
            if group.fresh:
                group.refresh([p._read() for p in self.param_groups[part.number]["params"]])
            by_devices.setdefault(_devices(self._params[places[0]]), []).append((part, places))
        updates = []
        for share in by_devices.values():
            parts = [part for part, _ in share]
            places = [i for _, own in share for i in own]
            update = Update(parts, [self._states[part.number] for part in parts], [self._params[i] for i in places])
            updates.append((update, None if len(places) == len(present) else places))
        if len(self._updates) >= _MOST:
            self._updates.clear()
        self._updates[present] = updates
        return updates

    def _unskippable(self) -> str:
        """Return why a compiled step can't be skipped by a value; "" if it can."""
        if self.__dict__[STEP_PRE] or self.__dict__[STEP_POST]:
            return "this Optimizer has step hooks, which Python runs"
        if type(self).step is not Optimizer.step or "step" in vars(self):
            return f"{type(self).__name__} has a step of your own, which Python runs"
        return ""

    def _step_unless(self, found: Tensor, *args: Any, **kwargs: Any) -> Any:
        """Step in a compiled function, but change nothing if `found` is above zero when the program runs."""
        self._unless, before = found._read(), self._unless
        try:
            return self.step(*args, **kwargs)
        finally:
            self._unless = before

    def _step_traced(self, given: list, present: tuple[bool, ...], extra: dict, functions: dict) -> None:
        share = self._parts(present)
        if share:
            places = [i for _, own in share for i in own]
            parts = [part for part, _ in share]
            _optax_traced.step(
                [self._states[part.number] for part in parts],
                parts,
                [self.param_groups[part.number]["params"] for part in parts],
                [self._params[i] for i in places],
                [_dense(given[i]) for i in places],
                extra,
                functions,
                self._unless,
            )

    def _value_of(self, closure: Callable[[], Any]) -> Callable:
        """Return the loss of `closure` as a function of the parameters of a part."""

        def value_of(part: Part, arrays: list) -> Any:
            params = [p for p, here in zip(self.param_groups[part.number]["params"], part.present) if here]
            before = [dict(p.__dict__) for p in self._params]
            try:
                for p, array in zip(params, arrays, strict=True):
                    p._array, p._storage, p._chain, p._cache = array, None, None, None
                with Recorded():
                    loss = closure()
                return _array(loss) if isinstance(loss, Tensor) else loss
            finally:
                for p, attributes in zip(self._params, before):
                    p.__dict__.clear()
                    p.__dict__.update(attributes)

        return value_of

    # ------------------------------------------------------------ the state

    @property
    def state(self) -> list[Any]:
        """The optax states, one for each group, with JAX arrays: for functions such as `optax.tree.get`.

        The next step does not change or donate these arrays.

        >>> import optax, xgrad
        >>> optimizer = xgrad.interop.optax.Optimizer([xgrad.ones(2, requires_grad=True)], optax.adam(0.1))
        >>> optax.tree.get(optimizer.state[0], "count").item()
        0
        """
        return [group.layout.tree.unflatten(group.lend()) for group in self._states]

    _named_state = named_state

    def state_dict(self) -> dict[str, Any]:
        """Return the state as plain nested dictionaries of tensors and numbers.

        "state": for each group, by its number, the transformation's state, under optax's names; "param_groups": the
        numbers of the parameters, their names if they have any, hyperparameters, and the user's own entries.  Later
        steps do not change these tensors.

        >>> import optax, xgrad
        >>> w = xgrad.ones(2, requires_grad=True)
        >>> tx = optax.inject_hyperparams(optax.sgd)(learning_rate=0.1, momentum=0.9)
        >>> xgrad.interop.optax.Optimizer([("w", w)], tx).state_dict()["param_groups"]
        [{'params': [0], 'param_names': ['w'], 'learning_rate': 0.1, 'momentum': 0.9}]
        """
        self._call_hooks(SAVE_PRE)
        return self._changed_by_hooks(SAVE_POST, _optax_state_dict.saved(self.param_groups, self._states))

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a result of `state_dict`, from an optimizer with the same groups.

        JAX's and NumPy's arrays may stand in the place of tensors; each is copied to the state's placement.  Raises
        `ValueError` for other groups, and `RuntimeError` for keys that are missing or unexpected and for shapes and
        dtypes that differ, and names all of them; nothing has been changed then.
        """
        state_dict = self._changed_by_hooks(LOAD_PRE, dict(state_dict))
        _optax_state_dict.load(self.param_groups, self._states, state_dict)
        self._call_hooks(LOAD_POST)


def _devices(param: Tensor) -> frozenset:
    placed = param._placed()
    return frozenset() if placed is None else frozenset(placed.device_set)


def _dense(grad: Tensor) -> Any:
    return (grad.to_dense() if grad._sparse else grad)._read()


def _array(leaf: Any) -> Any:
    return _dense(leaf) if isinstance(leaf, Tensor) else leaf


def _over_arrays(function: Callable) -> Callable:
    """Wrap a function of the user's that may return tensors, so that it returns arrays."""
    return lambda *args, **kwargs: pytrees.mapped(_array, function(*args, **kwargs))
