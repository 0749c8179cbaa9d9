"""Makes the `state_dict` of interop.optax's Optimizer, of tensors and numbers, and loads one.

Invariant: a state is loaded as a whole or not at all: everything is checked, and every problem named, before anything
is changed.
"""

from typing import Any

from ._optax_groups import ParamGroup
from ._optax_state import GroupState

_OWN = ("params", "param_names", "tx")


def saved(groups: list[ParamGroup], states: list[GroupState]) -> dict[str, Any]:
    """Return {"state": ..., "param_groups": ...} of an optimizer."""
    described, start = [], 0
    for group in groups:
        count = len(group["params"])
        entry: dict[str, Any] = {"params": list(range(start, start + count))}
        if "param_names" in group:
            entry["param_names"] = list(group["param_names"])
        entry |= {key: value for key, value in group.items() if key not in _OWN}
        described.append(entry)
        start += count
    return {"state": {str(i): state.saved() for i, state in enumerate(states)}, "param_groups": described}


def load(groups: list[ParamGroup], states: list[GroupState], given: Any) -> None:
    """Load a result of `saved`.  Raises `ValueError` for other groups, `RuntimeError` for values that do not fit."""
    problems: list[str] = []
    for key in ("state", "param_groups"):
        if key not in given:
            problems.append(f'Missing key in state_dict: "{key}".')
    problems += [f'Unexpected key in state_dict: "{key}".' for key in given if key not in ("state", "param_groups")]
    _raise(problems)
    described, kept = given["param_groups"], given["state"]
    if len(described) != len(groups):
        raise ValueError(
            f"loaded state dict has a different number of parameter groups: {len(described)}, the optimizer has "
            f"{len(groups)}"
        )
    for i, (entry, group) in enumerate(zip(described, groups)):
        here = len(group["params"])
        there = len(entry["params"]) if "params" in entry else here
        if here != there:
            raise ValueError(
                "loaded state dict contains a parameter group that doesn't match the size of optimizer's group: group "
                f"{i} has {there} parameters, the optimizer's {here}"
            )
    arrays, entries = [], []
    for i, state in enumerate(states):
        if str(i) not in kept and i in kept:  # a format with numbers as keys
            kept = {str(key): value for key, value in kept.items()}
        arrays.append(state.loaded(kept.get(str(i), {}), f"state.{i}", problems))
    problems += [f'Unexpected key in state_dict: "state.{key}".' for key in kept if not _is_number(key, len(states))]
    for i, (entry, group, state) in enumerate(zip(described, groups, states)):
        entries.append(_prepared(entry, group, state, f"param_groups.{i}", problems))
    _raise(problems)
    for group, state, values, new in zip(groups, states, arrays, entries):
        state.load(values)
        group.take(new)


def _prepared(entry: dict, group: ParamGroup, state: GroupState, name: str, problems: list[str]) -> dict[str, Any]:
    """Return the entries of a group, prepared for storing."""
    found = {}
    for key, value in entry.items():
        if key in _OWN:
            continue
        try:
            found[key] = group.prepare(key, value, scheduled=True)
        except (KeyError, TypeError, ValueError) as error:
            problems.append(f"{name}.{key}: {error.args[0] if error.args else error}.")
    problems += [f'Missing key in state_dict: "{name}.{key}".' for key in state.hyperparameters if key not in entry]
    return found


def _is_number(key: Any, count: int) -> bool:
    return str(key).isdecimal() and int(key) < count


def _raise(problems: list[str]) -> None:
    if problems:
        raise RuntimeError("Error(s) in loading state_dict for Optimizer:\n\t" + "\n\t".join(problems))
