"""Implements `Module.state_dict` and `Module.load_state_dict`: saves a module's state as a dictionary, and loads it.

Each module of the tree saves and loads its own part (`_save_to_state_dict`, `_load_from_state_dict`), which a class may
override; `state_dict._metadata` has its `_version`, so that it knows how old a state is.
"""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from ..base.size import Size
from ..config import state
from ..dispatch.tables import FUNCTIONS
from ..errors import LostValueError
from ..tensor import Tensor
from .parameter import Parameter, is_lazy

_EXTRA = "_extra_state"


class IncompatibleKeys(NamedTuple):
    """The keys that `load_state_dict` did not find, and the keys that the module does not have."""

    missing_keys: list[str]
    unexpected_keys: list[str]

    def __repr__(self) -> str:
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return f"_IncompatibleKeys(missing_keys={self.missing_keys}, unexpected_keys={self.unexpected_keys})"


def _own_state(module: Any) -> dict[str, Any]:
    """Return the module's own parameters and persistent buffers by their names, without those that are None."""
    left_out = module._non_persistent_buffers_set
    buffers = {name: value for name, value in module._buffers.items() if name not in left_out}
    return {name: value for name, value in (*module._parameters.items(), *buffers.items()) if value is not None}


def _has_extra_state(module: Any, method: str) -> bool:
    return not getattr(getattr(type(module), method), "_refuses_extra_state", False)


# -- saving ------------------------------------------------------------------------------------------------------------


def state_dict(
    self: Any, *args: Any, destination: dict[str, Any] | None = None, prefix: str = "", keep_vars: bool = False
) -> dict[str, Any]:
    """Return an ordered dictionary from dotted names to parameters and persistent buffers, detached unless `keep_vars`.

    The tensors share their storage with the module: copy them (`copy.deepcopy`) to preserve a state.

    >>> import xgrad
    >>> list(xgrad.nn.Linear(2, 3).state_dict())
    ['weight', 'bias']
    """
    given = dict(zip(("destination", "prefix", "keep_vars"), args))
    destination = given.get("destination", destination)
    prefix, keep_vars = given.get("prefix", prefix), given.get("keep_vars", keep_vars)
    found: Any = destination
    if found is None:
        found = OrderedDict()
        found._metadata = OrderedDict()
    about: dict[str, Any] = {"version": self._version}
    if hasattr(found, "_metadata"):
        found._metadata[prefix[:-1]] = about
    for hook in [*self._state_dict_pre_hooks.values()]:
        hook(self, prefix, keep_vars)
    self._save_to_state_dict(found, prefix, keep_vars)
    for name, module in self._modules.items():
        if module is not None:
            module.state_dict(destination=found, prefix=f"{prefix}{name}.", keep_vars=keep_vars)
    for hook in [*self._state_dict_hooks.values()]:
        result = hook(self, found, prefix, about)
        if result is None:
            continue
        if getattr(hook, "_from_public_api", False):
            raise RuntimeError("state_dict post-hook must return None: it changes the dictionary in place")
        found = result
    return found


def save_own_state(self: Any, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
    """Put the module's own parameters and buffers, not the ones of modules inside, into `destination`."""
    for name, value in _own_state(self).items():
        destination[prefix + name] = value if keep_vars else value.detach()
    if _has_extra_state(self, "get_extra_state"):
        destination[prefix + _EXTRA] = self.get_extra_state()


def get_extra_state(self: Any) -> Any:
    """Return a value that `state_dict` has beside the tensors; subclasses define it, with `set_extra_state`."""
    raise RuntimeError("get_extra_state is for subclasses that have state beside parameters and buffers")


def set_extra_state(self: Any, state: Any) -> None:
    """Take up what `get_extra_state` returned, in `load_state_dict`; subclasses define it."""
    raise RuntimeError("set_extra_state is for subclasses that have state beside parameters and buffers")


for _method in (get_extra_state, set_extra_state):
    vars(_method)["_refuses_extra_state"] = True


# -- loading -----------------------------------------------------------------------------------------------------------


def load_state_dict(
    self: Any, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
) -> IncompatibleKeys:
    """Copy tensors into parameters and buffers of the same names; with `assign`, put them in their place.

    The tensors may be PyTorch's own: `model.load_state_dict(torch_model.state_dict())`.

    Raises `RuntimeError` for shapes that differ and, if `strict`, for names that are missing or unexpected, and lists
    all of them; as in PyTorch the tensors that fit have then been loaded.

    >>> import xgrad
    >>> one, other = xgrad.nn.Linear(2, 3), xgrad.nn.Linear(2, 3)
    >>> one.load_state_dict(other.state_dict())
    <All keys matched successfully>
    """
    if not isinstance(state_dict, Mapping):
        raise TypeError(f"Expected state_dict to be dict-like, got {type(state_dict)}.")
    metadata = getattr(state_dict, "_metadata", None)
    given: Any = OrderedDict(state_dict)
    if metadata is not None:
        given._metadata = metadata
    found = IncompatibleKeys([], [])
    problems: list[str] = []

    def load(module: Any, part: Any, prefix: str) -> None:
        about = {} if metadata is None else metadata.get(prefix[:-1], {})
        if assign:
            about["assign_to_params_buffers"] = assign
        module._load_from_state_dict(part, prefix, about, True, *found, problems)
        for name, inner in module._modules.items():
            if inner is not None:
                below = f"{prefix}{name}."
                load(inner, {key: value for key, value in part.items() if key.startswith(below)}, below)
        for hook in [*module._load_state_dict_post_hooks.values()]:
            if hook(module, found) is not None:
                raise AssertionError(
                    "Hooks registered with ``register_load_state_dict_post_hook`` are not expected to return new "
                    "values: change incompatible_keys in place"
                )

    load(self, given, "")
    refuse(type(self).__name__, found.missing_keys if strict else [], found.unexpected_keys if strict else [], problems)
    return found


def load_own_state(
    self: Any, state_dict: dict[str, Any], prefix: str, local_metadata: dict[str, Any], strict: bool,
    missing_keys: list[str], unexpected_keys: list[str], error_msgs: list[str],
) -> None:  # fmt: skip
    """Load the module's own parameters and buffers from the keys that begin with `prefix`.

    Keys that are not there go into `missing_keys`, others into `unexpected_keys`, and what does not fit into
    `error_msgs`; nothing is raised.  `local_metadata` has the `version` of the module that was saved.
    """
    for hook in [*self._load_state_dict_pre_hooks.values()]:
        hook(state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)
    own = _own_state(self)
    for name, value in own.items():
        key = prefix + name
        if key in state_dict:
            problem = _loaded(self, name, value, key, state_dict[key], local_metadata)
            if problem is not None:
                error_msgs.append(problem)
        elif strict:
            missing_keys.append(key)
    extra = prefix + _EXTRA
    if _has_extra_state(self, "set_extra_state"):
        if extra in state_dict:
            self.set_extra_state(state_dict[extra])
        elif strict:
            missing_keys.append(extra)
    elif strict and extra in state_dict:
        unexpected_keys.append(extra)
    if strict:
        for key in state_dict:
            if key.startswith(prefix) and key != extra:
                name, dot, _ = key[len(prefix) :].partition(".")
                if name not in (self._modules if dot else own):
                    unexpected_keys.append(key)


def _loaded(module: Any, name: str, value: Any, key: str, given: Any, about: dict[str, Any]) -> str | None:
    """Load one tensor; return what is wrong with it, if anything is."""
    if not isinstance(given, Tensor) and hasattr(given, "__dlpack__") and hasattr(given, "detach"):
        array = np.array(jax.dlpack.from_dlpack(given.detach().cpu().contiguous()))  # a tensor of PyTorch's
        given = FUNCTIONS[""]["as_tensor"](array)
    if not isinstance(given, Tensor):
        return (
            f'While copying the parameter named "{key}", expected xgrad.Tensor or Tensor-like object from checkpoint '
            f"but received {type(given)}"
        )
    if is_lazy(value) and is_lazy(given):
        return None
    if value.ndim == 0 and tuple(given.shape) == (1,):  # as states of old versions of PyTorch have them
        given = given[0]
    if given.shape != value.shape:
        return size_mismatch(key, given.shape, value.shape)
    enabled, state.grad_enabled = state.grad_enabled, False
    try:
        if not about.get("assign_to_params_buffers", False):
            try:
                value.copy_(given)
            except LostValueError:  # there is nothing to write into
                value.data = given.to(value.device, value.dtype, copy=True)
        elif not isinstance(value, Parameter):
            setattr(module, name, given)
        elif isinstance(given, Parameter):
            setattr(module, name, given.requires_grad_(value.requires_grad))
        else:
            setattr(module, name, Parameter(given, value.requires_grad))
    except Exception as error:
        return (
            f'While copying the parameter named "{key}", whose dimensions in the model are {value.shape} and whose '
            f"dimensions in the checkpoint are {given.shape}, an exception occurred : {error.args}."
        )
    finally:
        state.grad_enabled = enabled
    return None


def size_mismatch(name: str, given: tuple[Any, ...], present: tuple[Any, ...]) -> str:
    """Return the error text for a tensor whose shape differs from the shape of the module's tensor."""
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
