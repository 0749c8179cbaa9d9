"""ParamGroup: a dict in the `param_groups` of interop.optax's Optimizer that reads and sets optax's hyperparameters."""

from collections.abc import Iterator, MutableMapping
from typing import Any

from ..tensor import Tensor
from ._optax_state import GroupState

_FIXED = ("params", "param_names", "tx")
_LR = ("lr", "learning_rate")


class ParamGroup(MutableMapping, dict):  # pyright: ignore[reportGeneralTypeIssues] - typeshed has it in dict
    """A dictionary with "params", "tx", the hyperparameters of `optax.inject_hyperparams`, and the user's own keys.

    Hyperparameters are read from the state and written to it: `group["learning_rate"] *= 0.1` counts from the next step
    on, in compiled functions too, without another trace.
    """

    __xgrad_guards__ = frozenset({"_structure"})  # the attributes that a compiled function guards

    def __init__(self, entries: dict[str, Any], state: GroupState) -> None:
        self._state = state
        self._structure = object()  # a new object whenever an entry changes that is not a hyperparameter
        dict.update(self, {key: value for key, value in entries.items() if key in _FIXED})
        self.take({key: self.prepare(key, value) for key, value in entries.items() if key not in _FIXED})

    def __getitem__(self, key: str) -> Any:
        if key in self._state.hyperparameters:
            return self._state.get(key)
        try:
            return dict.__getitem__(self, key)
        except KeyError:
            raise KeyError(self._missing(key)) from None

    def prepare(self, key: str, value: Any, scheduled: bool = False) -> Any:
        """Return the value to be stored.  Raises `KeyError`, `TypeError`, `ValueError` if the entry cannot be set."""
        if key in self._state.hyperparameters:
            return self._state.prepared(key, value, scheduled)
        if key in _FIXED:
            raise KeyError(
                f"{key!r} of a group cannot be changed: its state was made for it. Use add_param_group, or make a new "
                "optimizer"
            )
        if key in _LR or any(name.endswith(f".{key}") for name in self._state.hyperparameters):
            raise KeyError(self._missing(key))
        return value

    def take(self, prepared: dict[str, Any]) -> None:
        """Store values that `prepare` returned."""
        for key, value in prepared.items():
            if key in self._state.hyperparameters:
                self._state.put(key, value)
            else:
                dict.__setitem__(self, key, value)
                self._structure = object()

    def __setitem__(self, key: str, value: Any) -> None:
        self.take({key: self.prepare(key, value)})

    def __delitem__(self, key: str) -> None:
        if key in _FIXED or key in self._state.hyperparameters:
            raise KeyError(f"{key!r} of a group cannot be deleted")
        dict.__delitem__(self, key)
        self._structure = object()

    def __iter__(self) -> Iterator[str]:
        yield from dict.__iter__(self)
        yield from self._state.hyperparameters

    def __len__(self) -> int:
        return dict.__len__(self) + len(self._state.hyperparameters)

    def __contains__(self, key: object) -> bool:
        return dict.__contains__(self, key) or key in self._state.hyperparameters

    def __repr__(self) -> str:
        return repr(self.copy())

    def __reduce__(self) -> Any:
        return _regrouped, (dict(zip(dict.keys(self), dict.values(self))), self._state)

    def copy(self) -> dict[str, Any]:
        """Return the content as a plain dictionary."""
        return {key: self[key] for key in self}

    def _missing(self, key: str) -> str:
        alike = [n for n in self._state.hyperparameters if n == key or n.endswith(f".{key}")]
        if key in _LR:
            alike = [n for n in self._state.hyperparameters if n.rpartition(".")[2] == "learning_rate"] or alike
        if alike:
            return f"{key}: this group has {', '.join(map(repr, alike))}"
        if key in _LR:
            return (
                f"{key}: this group's transformation keeps no learning rate that could be read or set. Make it with "
                "optax.inject_hyperparams, as in optax.inject_hyperparams(optax.adamw)(learning_rate=1e-3)"
            )
        return key


def _regrouped(entries: dict[str, Any], state: GroupState) -> ParamGroup:
    group = ParamGroup({}, state)
    dict.update(group, entries)
    return group


def named_parameters(params: Any) -> tuple[list[Any], list[str] | None]:
    """Return the parameters of a group, and their names if it has (name, tensor) pairs."""
    if isinstance(params, Tensor):
        return [params], None
    if isinstance(params, (set, frozenset)):
        raise TypeError(
            "optimizer parameters need to be organized in ordered collections, but a set has another order in each "
            "run. Use a list instead."
        )
    found = list(params)
    pairs = [p for p in found if isinstance(p, tuple)]
    if not pairs:
        return found, None
    if len(pairs) < len(found):
        raise ValueError("all optimizer params should be with/without names. Some param names are missing")
    names = [name for name, _ in pairs]
    if len(set(names)) < len(names):
        raise ValueError(f"two parameters of a group have the same name: {names}")
    return [p for _, p in pairs], names
