"""Wrapped: the base of nn.Modules that hold a Flax or Equinox module's arrays as tensors, and run it as a JAX function.

    net(x) ──► forward:  [parameters, buffers], x ──from_jax──► results, new values of buffers
                             ▲                                       │
    _parameters, _buffers ───┘ ◄─────────────────────────────────────┘  (`Cell.put`)

Invariants:

* Each tensor is in the table of its part, as in any `nn.Module`, and nowhere else: the next call uses the tensors that
  `load_state_dict(assign=True)`, `to()` or `functional_call` put there.
* Parameters are operands as they are.  A buffer's array is the operand, in a tensor of the call's own: `backward` must
  see the value that the call saw (a batch statistic, the count of a stream of random numbers), and the buffer has been
  written since.
* A checkpoint runs the same call twice.  The buffers' values are stored like the states of random generators
  (xgrad/random.py): the second run starts from them, and does not write the buffers.
"""

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

import jax
import numpy as np

from ..config import Unrecorded, state
from ..nn.module import Module
from ..nn.parameter import Parameter
from ..random import is_key
from ..tensor import Tensor, blank, from_foreign
from ..tensor_methods import pytrees
from .jax import from_jax

everything = jax.checkpoint_policies.everything_saveable

_NOT_CALLED = (
    "'{name}' is a part of the wrapped {kind}, which runs as one JAX function: {what}. Wrap that part by itself "
    "(xgrad.interop wraps share their parameters where they share the module's), or hook the parameters."
)


class Cell:
    """A place in a module's table of parameters or buffers; programs read and write the module's tensors through cells.

    `impl`: the implementation of a typed key of `jax.random`, whose tensor is the uint32 array of its data.
    """

    __slots__ = ("__weakref__", "impl", "key", "owner", "table")

    def __init__(self, table: dict[str, Any], key: str, impl: Any = None) -> None:
        self.table, self.key, self.impl = table, key, impl
        self.owner: Any = None  # the id of the part of the library's module that has the table

    def tensor(self) -> Tensor:
        """Return the tensor in the table."""
        return self.table[self.key]

    def array(self) -> Any:
        """Return the value for other code to keep: the next write to the tensor copies it."""
        return self.value(self.table[self.key]._export())

    def value(self, array: Any) -> Any:
        """Return the library's value for the tensor's array: a typed key, or the array."""
        return array if self.impl is None else jax.random.wrap_key_data(array, impl=self.impl)

    def assign(self, value: Any) -> None:
        """Give the tensor a value that the library or the user made."""
        tensor = from_foreign(raw(value))
        self.impl = implementation(value)
        self.table[self.key].data = tensor

    def taken(self) -> Tensor:
        """Return the tensor that a call uses."""
        tensor = self.table[self.key]
        if tensor._is_param or tensor.__class__ is not Tensor or tensor._tangents or tensor.requires_grad:
            return tensor
        again = state.random_again
        twin = None if again is None else again.get(self)
        if twin is None:
            array = tensor._read()
            if state.random_log is not None:
                state.random_log.setdefault(self, array)
        else:
            array = twin.array
        alone = blank(Tensor)
        alone._array, alone._owned = array, False
        return alone

    def put(self, new: Tensor) -> None:
        """Store a buffer's new value from a call."""
        twin = None if state.random_again is None else state.random_again.get(self)
        if twin is not None:
            twin.array = new._read()
            return
        tensor = self.table[self.key]
        if new.shape != tensor.shape or new.dtype != tensor.dtype:
            tensor.data = new.detach()
            return
        if tensor.__class__ is Tensor and tensor._level is None and new._level is None and not tensor.requires_grad:
            array = new._read()
            if tensor._placed() == new._placed():
                tensor._write(array)
                return
        with Unrecorded():
            tensor.copy_(new.detach())

    def _twin(self, array: Any) -> "_Replayed":
        return _Replayed(array)


class _Replayed:
    """The value of a cell in the second run of a checkpoint."""

    __slots__ = ("array",)

    def __init__(self, array: Any) -> None:
        self.array = array


def implementation(value: Any) -> Any:
    """Return the implementation of a typed key, None for other values."""
    return jax.random.key_impl(value) if is_key(value) else None


def raw(value: Any) -> Any:
    """Return the array that a tensor has for a value of the library's module."""
    if is_key(value):
        return jax.random.key_data(value)
    return value if isinstance(value, (jax.Array, np.ndarray)) else np.asarray(value)


def is_array(value: Any) -> bool:
    """Return True if a value of the library's module can be a tensor."""
    return isinstance(value, (jax.Array, np.ndarray, np.generic))


# ---------------------------------------------------------------- the tree of parts


class Part(Module):
    """A module inside of a wrapped one: a name, parameters and buffers.  It is not called by itself."""

    def __init__(self, kind: str = "Part") -> None:
        super().__init__()
        object.__setattr__(self, "_kind", kind)

    def _get_name(self) -> str:
        return self._kind

    def extra_repr(self) -> str:
        """Return the shapes of the parameters and buffers here."""
        tables = [*self._parameters.items(), *self._buffers.items()]
        return ", ".join(f"{name}: {list(tensor.shape)}" for name, tensor in tables if tensor is not None)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Raise `NotImplementedError`: a part has no call of its own."""
        raise NotImplementedError(self._refusal("it has no call of its own"))

    def _refusal(self, what: str) -> str:
        return _NOT_CALLED.format(name=self._kind, kind="module", what=what)

    def _no_hooks(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError(self._refusal("hooks of a part would never be called"))

    register_forward_pre_hook: Any
    register_forward_hook = register_forward_pre_hook = _no_hooks
    register_full_backward_pre_hook: Any
    register_full_backward_hook = register_full_backward_pre_hook = _no_hooks


class Wrapped(Part):
    """A module of another library, as an `nn.Module`; made by that library's `wrap`."""

    register_forward_hook: Any = Module.register_forward_hook
    register_forward_pre_hook: Any = Module.register_forward_pre_hook
    register_full_backward_hook: Any = Module.register_full_backward_hook
    register_full_backward_pre_hook: Any = Module.register_full_backward_pre_hook

    def _again(self) -> Any:
        """Wrap the library's module again, with the same options."""
        raise NotImplementedError

    def __deepcopy__(self, memo: dict) -> Any:
        new = memo[id(self)] = self._again()
        for mine, its in zip(self.modules(), new.modules(), strict=True):
            its.training = mine.training
        for mine, its in zip(self.parameters(), new.parameters(), strict=True):
            its.requires_grad = mine.requires_grad
        with Unrecorded():
            for mine, its in zip(self.buffers(), new.buffers(), strict=True):
                its.data = mine.detach().clone()
        for name, hooks in self.__dict__.items():
            if name.startswith(("_forward_", "_backward_")):
                getattr(new, name).update(hooks)
        new._is_full_backward_hook = self._is_full_backward_hook
        return new

    def __reduce__(self) -> Any:
        raise TypeError(
            f"a wrapped {self._kind} cannot be pickled, because it holds compiled programs: save its state_dict() "
            "(xgrad.interop has safetensors and orbax), and wrap the module again"
        )


def part_at(root: Module, path: tuple, kind_of: Callable[[tuple], str] | None = None) -> Module:
    """Return the part with a path; make it, and the parts above it, if they do not exist."""
    part = root
    for depth, key in enumerate(path):
        inner = part._modules.get(str(key))
        if inner is None:
            inner = Part("Part" if kind_of is None else kind_of(path[: depth + 1]))
            part._modules[str(key)] = inner  # not set as an attribute: the path may have a name that Module has too
        part = inner
    return part


def add(part: Module, key: str, value: Any, trainable: bool) -> Cell:
    """Give a part a tensor for a value of the library's module: a parameter, or a buffer."""
    tensor = from_foreign(raw(value))
    if trainable:
        part._parameters[key] = Parameter(tensor, requires_grad=np.dtype(tensor.dtype).kind in "fcV")
        return Cell(part._parameters, key)
    part._buffers[key] = tensor
    return Cell(part._buffers, key, implementation(value))


def named(path: tuple) -> tuple[str, ...]:
    """Return the names of a path of `jax.tree_util`, without the `value` of boxes around arrays."""
    names = []
    for entry in path:
        name = next(getattr(entry, a) for a in ("key", "name", "idx") if hasattr(entry, a))
        if not (isinstance(entry, jax.tree_util.GetAttrKey) and name == "value"):
            names.append(str(name))
    return tuple(names)


def as_names(names: str | Iterable[str]) -> tuple[str, ...]:
    """Return one name or several as a tuple."""
    return (names,) if isinstance(names, str) else tuple(names)


def described(value: Any) -> str:
    """Return an error's words for a value that is not a module."""
    if isinstance(value, type):
        return f"the class {value.__name__}: make one of it first"
    return f"{type(value).__module__}.{type(value).__qualname__}"


def checked(module: Module, what: Any) -> None:
    """Raise `ValueError` for a wrapped module without parameters."""
    if next(module.parameters(), None) is None:
        raise ValueError(
            f"wrap: {type(what).__name__} has no parameters, so there is nothing to train: call it as a function "
            "(xgrad.from_jax), or wrap the module that it is a part of"
        )


# ---------------------------------------------------------------- calls


@dataclasses.dataclass(frozen=True)
class Constant:
    """An argument that is part of the program: `from_jax` traces numbers, but a flag's value must be known."""

    kind: type
    value: Any


class Key:
    """A typed key of `jax.random` among the arguments, as the array of its data."""

    __slots__ = ("data", "impl")

    def __init__(self, data: Any, impl: Any) -> None:
        self.data, self.impl = data, impl


jax.tree_util.register_pytree_node(Key, lambda key: ((key.data,), key.impl), lambda impl, data: Key(*data, impl))


def sent(args: tuple, kwargs: dict, static: Iterable[str] = ()) -> tuple[tuple, dict]:
    """Prepare arguments for `from_jax`: flags, and those that `static` names, become constants; keys become data."""
    names = frozenset(static)
    return tuple([_sent(a, False) for a in args]), {name: _sent(a, name in names) for name, a in kwargs.items()}


def _sent(value: Any, static: bool) -> Any:
    if static or value.__class__ is bool:
        return Constant(value.__class__, value)
    if value.__class__ is Tensor:
        return value
    if value.__class__ in (dict, list, tuple) or is_key(value):
        return pytrees.mapped(_key, value)
    return value


def _key(leaf: Any) -> Any:
    return Key(jax.random.key_data(leaf), implementation(leaf)) if is_key(leaf) else leaf


def arrived(args: tuple, kwargs: dict) -> tuple[tuple, dict]:
    """Undo `sent`: return the arguments with keys and flags as the caller passed them."""
    args, kwargs = jax.tree_util.tree_map(
        lambda node: jax.random.wrap_key_data(node.data, impl=node.impl) if isinstance(node, Key) else node,
        (args, kwargs),
        is_leaf=lambda node: isinstance(node, Key),
    )
    return tuple([_constant(a) for a in args]), {name: _constant(a) for name, a in kwargs.items()}


def _constant(value: Any) -> Any:
    return value.value if isinstance(value, Constant) else value


def function_over(pure: Callable, name: str, policy: Callable | None) -> Callable:
    """Make `pure` an operator of the tape, under the name of the module."""
    pure.__name__ = name
    return from_jax(pure, policy=policy)
