"""names_for: finds the tensors' names for a picture of `xgrad.viz`: those in `params`, else the caller's variables."""

import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ..nn.module import Module
from ..tensor import Tensor

_MOST = 4096  # tensors in lists and dictionaries of the caller


class Names:
    """The names of tensors, and of the outputs of nodes that they are."""

    def __init__(self, found: dict[int, tuple[str, Tensor]]) -> None:
        self._tensors = found
        self._outputs: dict[tuple[int, int], str] = {}
        for name, tensor in found.values():
            node = tensor._grad_fn
            if node is not None:
                self._outputs.setdefault((id(node), tensor._output_nr), name)

    def of(self, tensor: Any) -> str:
        """Return a tensor's name, or an empty text."""
        return self._tensors.get(id(tensor), ("", None))[0]

    def of_output(self, node: Any, count: int) -> str:
        """Return the names of a node's outputs."""
        names = [self._outputs.get((id(node), i), "") for i in range(count)]
        return ", ".join(name for name in names if name)

    def tensors(self) -> list[tuple[str, Tensor]]:
        """Return all named tensors with their names."""
        return list(self._tensors.values())


def names_for(params: Any, depth: int) -> Names:
    """Return names from `params`, a dictionary or a Module, and from the variables `depth` frames further out.

    Raises `TypeError` for other `params`.
    """
    found: dict[int, tuple[str, Tensor]] = {}
    if isinstance(params, Module):
        _take(found, _of_module(params, ""))
    elif isinstance(params, Mapping):
        _take(found, ((str(name), value) for name, value in params.items()))
    elif params is not None:
        raise TypeError(f"params are a dictionary of tensors or a Module, but got a {type(params).__name__}")
    frame = sys._getframe(depth + 1)
    scopes = [frame.f_locals] if frame.f_locals is frame.f_globals else [frame.f_globals, frame.f_locals]
    return Names(_of_scopes(scopes) | found)


def names_of(scope: Mapping[str, Any]) -> Names:
    """Return names from variables."""
    return Names(_of_scopes([scope]))


def _of_scopes(scopes: Iterable[Mapping[str, Any]]) -> dict[int, tuple[str, Tensor]]:
    variables: dict[int, tuple[str, Tensor]] = {}
    for scope in scopes:
        own: dict[int, tuple[str, Tensor]] = {}
        _take_variables(own, dict(scope))
        variables |= own
    return variables


def _take(found: dict[int, tuple[str, Tensor]], pairs: Any) -> None:
    for name, value in pairs:
        if isinstance(value, Tensor):
            found.setdefault(id(value), (name, value))


def _take_group(found: dict[int, tuple[str, Tensor]], pairs: Any) -> None:
    """Name the tensors of a list or a module.  The last ones may be a loop's variables, which are not good names."""
    pairs = [(name, value) for name, value in pairs if isinstance(value, Tensor)]
    named = sum(id(value) in found for _, value in pairs)
    if 2 * named < len(pairs):
        for _, value in reversed(pairs):
            if found.pop(id(value), None) is None:
                break
    _take(found, pairs)


def _take_variables(found: dict[int, tuple[str, Tensor]], scope: dict[str, Any]) -> None:
    """Name tensors, then those in modules, lists and dictionaries.  A notebook's `_12` is not a name."""
    values = {name: value for name, value in scope.items() if name.isidentifier() and not name.startswith("_")}
    _take(found, values.items())
    for name, value in values.items():
        if isinstance(value, Module):
            _take_group(found, _of_module(value, f"{name}."))
    for name, value in values.items():
        if isinstance(value, (list, tuple)) and len(value) <= _MOST:
            _take_group(found, _of_list(name, value))
        elif isinstance(value, dict) and len(value) <= _MOST:
            pairs = [(f"{name}[{key!r}]", entry) for key, entry in value.items() if isinstance(key, (str, int))]
            _take_group(found, pairs)


def _of_list(name: str, values: Any) -> Iterator[tuple[str, Any]]:
    for i, entry in enumerate(values):
        if isinstance(entry, Module):
            yield from _of_module(entry, f"{name}[{i}].")
        elif isinstance(entry, (list, tuple)):
            yield from ((f"{name}[{i}][{k}]", part) for k, part in enumerate(entry[:_MOST]))
        else:
            yield f"{name}[{i}]", entry


def _of_module(module: Module, prefix: str) -> Iterator[tuple[str, Any]]:
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        yield f"{prefix}{name}", tensor
