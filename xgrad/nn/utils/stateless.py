"""reparametrized: replaces a module's tensors within a block, for functional_call (torch/nn/utils/stateless.py)."""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from ..module import Module

_HOLDERS = ("_parameters", "_buffers")


def _places(module: Module) -> dict[str, tuple[dict, str, Any]]:
    """Return {dotted name: (its dictionary, its name there, the tensor)}, with each name of a shared tensor."""
    found = {}
    for path, inner in module.named_modules(remove_duplicate=False):
        for holder in _HOLDERS:
            table = inner.__dict__[holder]
            found.update({(f"{path}.{n}" if path else n): (table, n, t) for n, t in table.items()})
    return found


@contextlib.contextmanager
def reparametrized(
    module: Module, tensors: Mapping[str, Any], *, tie_weights: bool = True, strict: bool = False
) -> Iterator[dict[str, Any]]:
    """Context in which parameters and buffers of `module` are `tensors`, by their dotted names.

    Tensors that are not named stay.  `tie_weights`: a tensor that the module has under several names is replaced under
    all of them.  Yields a dictionary that has, once the context has ended, the tensors that were then under the names:
    a buffer that forward assigned is there.  Raises `RuntimeError` if `strict` and the names are not the module's,
    and `ValueError` if two names of a shared tensor come with different tensors.

    >>> import xgrad
    >>> from xgrad.nn.utils.stateless import reparametrized
    >>> linear = xgrad.nn.Linear(1, 1, bias=False)
    >>> with reparametrized(linear, {"weight": xgrad.full((1, 1), 3.0)}):
    ...     linear(xgrad.ones(1))
    tensor([3.])
    """
    places = _places(module)
    if strict:
        missing, unexpected = [n for n in places if n not in tensors], [n for n in tensors if n not in places]
        if missing or unexpected:
            raise RuntimeError(
                f"Error(s) in {type(module).__name__}: missing keys {missing}, unexpected keys {unexpected}"
            )
    new = {name: tensor for name, tensor in tensors.items() if name in places}
    if tie_weights:
        given = {id(places[name][2]): (name, tensor) for name, tensor in new.items() if places[name][2] is not None}
        for name, (_, _, old) in places.items():
            first, tensor = given.get(id(old), (name, None))
            if tensor is not None and new.setdefault(name, tensor) is not tensor:
                raise ValueError(f"the names {first} and {name} stand for one tensor: give both the same")
    after: dict[str, Any] = {}
    for name, tensor in new.items():
        table, inner, _ = places[name]
        table[inner] = tensor
    try:
        yield after
    finally:
        for name in new:
            table, inner, old = places[name]
            if name in tensors:
                after[name] = table.get(inner)
            table[inner] = old
