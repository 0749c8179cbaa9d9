"""The state of a module as a dictionary of tensors, and back (PyTorch: `Module.state_dict`, `load_state_dict`)."""

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from ..config import state
from ..size import Size
from ..tensor import Tensor
from .parameter import Parameter


class IncompatibleKeys(NamedTuple):
    """The keys that `load_state_dict` did not find, and the keys that the module does not have."""

    missing_keys: list[str]
    unexpected_keys: list[str]

    def __repr__(self) -> str:
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return f"_IncompatibleKeys(missing_keys={self.missing_keys}, unexpected_keys={self.unexpected_keys})"


def _state(module: Any, prefix: str) -> Iterator[tuple[str, Any, dict, str]]:
    """Yield (dotted name, tensor, its dictionary, its name there) of parameters and persistent buffers."""
    for holder in (module._parameters, module._buffers):
        for name, value in holder.items():
            if value is not None and name not in module._non_persistent_buffers_set:
                yield prefix + name, value, holder, name
    for name, inner in module._modules.items():
        if inner is not None:
            yield from _state(inner, f"{prefix}{name}.")


def state_dict(
    self: Any, *, destination: dict[str, Any] | None = None, prefix: str = "", keep_vars: bool = False
) -> dict[str, Any]:
    """Return an ordered dictionary from dotted names to parameters and persistent buffers, detached unless `keep_vars`.

    The tensors share their storage with the module: copy them (`copy.deepcopy`) to preserve a state.

    >>> import xgrad
    >>> list(xgrad.nn.Linear(2, 3).state_dict())
    ['weight', 'bias']
    """
    found = OrderedDict() if destination is None else destination
    for name, value, _, _ in _state(self, prefix):
        found[name] = value if keep_vars else value.detach()
    return found


def load_state_dict(
    self: Any, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
) -> IncompatibleKeys:
    """Copy tensors into parameters and buffers of the same names; with `assign`, put them in their place.

    Raises `RuntimeError` for shapes that differ and, if `strict`, for names that are missing or unexpected, all of
    which it lists; then nothing has been loaded (PyTorch loads what fits first).

    >>> import xgrad
    >>> one, other = xgrad.nn.Linear(2, 3), xgrad.nn.Linear(2, 3)
    >>> one.load_state_dict(other.state_dict())
    <All keys matched successfully>
    """
    if not isinstance(state_dict, Mapping):
        raise TypeError(f"Expected state_dict to be dict-like, got {type(state_dict)}.")
    own = list(_state(self, ""))
    known = {name for name, *_ in own}
    missing = [name for name, *_ in own if name not in state_dict]
    unexpected = [name for name in state_dict if name not in known]
    problems: list[str] = []
    for name, value, _, _ in own:
        given = state_dict.get(name, value)
        if not isinstance(given, Tensor):
            problems.append(
                f'While copying the parameter named "{name}", expected xgrad.Tensor or Tensor-like object from '
                f"checkpoint but received {type(given)}"
            )
        elif given.shape != value.shape:
            problems.append(size_mismatch(name, given.shape, value.shape))
    refuse(type(self).__name__, missing if strict else [], unexpected if strict else [], problems)
    for name, value, holder, inner in own:
        if name not in state_dict:
            continue
        given = state_dict[name]
        if assign:
            holder[inner] = Parameter(given, value.requires_grad) if isinstance(value, Parameter) else given
        else:
            enabled, state.grad_enabled = state.grad_enabled, False
            try:
                value.copy_(given)
            finally:
                state.grad_enabled = enabled
    return IncompatibleKeys(missing, unexpected)


def size_mismatch(name: str, given: tuple[Any, ...], present: tuple[Any, ...]) -> str:
    """Return the error text for a tensor whose shape differs from that of the module's tensor."""
    return (
        f"size mismatch for {name}: copying a param with shape {Size(given)} from checkpoint, the shape in current "
        f"model is {Size(present)}."
    )


def refuse(kind: str, missing: list[str], unexpected: list[str], problems: list[str]) -> None:
    """Raise a `RuntimeError` that lists all problems of a state for a `kind` of object, if there are any."""
    found = list(problems)
    if unexpected:
        found.insert(0, f"Unexpected key(s) in state_dict: {_listed(unexpected)}. ")
    if missing:
        found.insert(0, f"Missing key(s) in state_dict: {_listed(missing)}. ")
    if found:
        listed = "\n\t".join(found)
        raise RuntimeError(f"Error(s) in loading state_dict for {kind}:\n\t{listed}")


def _listed(names: list[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)
