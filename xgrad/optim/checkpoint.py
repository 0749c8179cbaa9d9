"""Makes an optimizer's `state_dict` in PyTorch's layout, and reads one, for optimizer.py (PyTorch: optimizer.py)."""

import copy
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from ..tensor import Tensor, from_foreign
from .placing import copy_for, host_array, is_foreign


def packed(state: dict[Any, Any], groups: list[dict[str, Any]]) -> dict[str, Any]:
    """Return state and groups with numbers in place of parameters, counted through all groups."""
    numbers: dict[int, int] = {}
    shown, start = [], 0
    for group in groups:
        for i, p in enumerate(group["params"], start):
            numbers.setdefault(id(p), i)
        start += len(group["params"])
        entries = {key: value for key, value in group.items() if key != "params"}
        shown.append({**entries, "params": [numbers[id(p)] for p in group["params"]]})
    return {
        "state": {(numbers[id(key)] if isinstance(key, Tensor) else key): value for key, value in state.items()},
        "param_groups": shown,
    }


def unpacked(groups: list[dict[str, Any]], state_dict: dict[str, Any]) -> dict[str, Any]:
    """Return new {"state": ..., "param_groups": ...} for an optimizer with these groups.  Raises `ValueError`."""
    saved = [_copied_group(group) for group in state_dict["param_groups"]]
    if len(groups) != len(saved):
        raise ValueError(
            f"loaded state dict has a different number of parameter groups: {len(saved)}, and the optimizer has "
            f"{len(groups)}"
        )
    for i, (mine, theirs) in enumerate(zip(groups, saved)):
        if len(mine["params"]) != len(theirs["params"]):
            raise ValueError(
                "loaded state dict contains a parameter group that doesn't match the size of optimizer's group: group "
                f"{i} has {len(theirs['params'])} parameters, and the optimizer's {len(mine['params'])}"
            )
    params = {number: p for mine, theirs in zip(groups, saved) for number, p in zip(theirs["params"], mine["params"])}
    state: defaultdict[Any, Any] = defaultdict(dict)
    for key, value in state_dict["state"].items():
        if key in params:
            state[params[key]] = _fitted(params[key], value, None)
        else:  # of no parameter
            state[key] = value
    for mine, theirs in zip(groups, saved):
        theirs["params"] = mine["params"]
        if "param_names" in mine:
            theirs.setdefault("param_names", mine["param_names"])
    return {"state": state, "param_groups": saved}


def _copied_group(group: dict[str, Any]) -> dict[str, Any]:
    return {
        key: from_foreign(host_array(value)) if is_foreign(value) else copy.deepcopy(value)
        for key, value in group.items()
    }


def _fitted(param: Tensor, value: Any, key: Any) -> Any:
    """Return a copy of a part of a parameter's state."""
    if isinstance(value, Tensor) or is_foreign(value):
        return copy_for(param, value, keep_dtype=key == "step")
    if isinstance(value, dict):
        return {k: _fitted(param, v, k) for k, v in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, (str, bytes)):
        kind: Any = type(value)
        return kind(_fitted(param, v, None) for v in value)
    return value
