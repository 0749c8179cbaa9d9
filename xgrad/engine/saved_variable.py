"""SavedVariable: a value that an autograd node saved for backward, with its version check, hooks and release.

JAX arrays are immutable: a saved array can't be corrupted, and the version counter is a *diagnosis* that PyTorch's
users rely on, not a protection (torch/csrc/autograd/saved_variable.cpp).

Life: save → unpack (any number of times) → release.  Of an input the tensor itself is saved, so its identity survives;
of an output the value and the version counter, because the tensor would close a cycle.  On the hot path a node stores
an input as the bare Tensor in `node.saved`, beside its version.  A SavedVariable is made where there is more to store,
or when `_raw_saved_*` is read.
"""

from collections.abc import Callable
from typing import Any

from ..config import forward_levels, state
from ..errors import FreedGraphError, VersionError
from ..tensor import Tensor, blank, from_array
from ..views.storage import VersionCounter
from .edges import attach_edge, gradient_edge
from .hooks import note_users_code

RELEASED: Any = ("released",)

_FREED = (
    "Trying to backward through the graph a second time (or directly access saved tensors after they have already "
    "been freed): {name} released its saved values when backward first ran. Specify retain_graph=True in the first "
    "call of .backward() or autograd.grad() if you need to go through the graph again."
)


def snapshot(tensor: Tensor, recorded: bool | None = None) -> Tensor:
    """Copy a tensor as it is now, with its place in the graph and its tangents; later writes do not change the copy.

    `recorded`: whether the copy has a place in the graph, by default grad mode.  If not, a stale view stays stale.
    """
    recorded = state.grad_enabled if recorded is None else recorded
    old = from_array(tensor._read()) if tensor._level is None else tensor._holding(snapshot(tensor._value, recorded))
    if recorded and ((edge := gradient_edge(tensor))[0] is not None or tensor.requires_grad):
        old._requires_grad = True
        if edge[0] is not None and edge[0].is_accumulator:
            old._accumulator = tensor._accumulator
            old._leads_to = edge[0]  # perhaps the only strong reference: without it `old` would make another one
        else:
            old._grad_fn, old._output_nr = edge
    if state.forward_level >= 0:
        for level in forward_levels():
            tensor._tangent_at(level)  # a view adopts the tangents that its base has got since
    if tensor._tangents:
        for level, tangent in tensor._tangents.items():
            old._set_tangent(level, snapshot(tangent, recorded))
    old._owned = False  # another tensor may have the same array
    return old


def outside(tensor: Tensor) -> Tensor:
    """Take a new tensor out of the graph, with its tangents."""
    tensor._grad_fn, tensor._output_nr, tensor._requires_grad, tensor._accumulator = None, 0, False, None
    return tensor


def plain_entry(tensor: Tensor) -> Tensor:
    """Copy an entry of a vmap as it is now, outside of its graph.  Levels below it stay recorded in every mode."""
    return outside(snapshot(tensor, True))


def freed_error(name: str) -> FreedGraphError:
    return FreedGraphError(_FREED.format(name=name))


_HIDDEN = (
    "To find the operation that failed to compute its gradient, enable anomaly detection, with "
    "xgrad.autograd.set_detect_anomaly(True, check_nan=False)."
)
_SHOWN = (
    "The backtrace further above shows the operation that failed to compute its gradient: the value was changed there "
    "or anywhere later."
)


def version_error(shape: tuple[Any, ...], dtype: Any, producer: str | None, saved: int, now: int) -> VersionError:
    made = f", which is {producer}," if producer else ""
    return VersionError(
        "one of the variables needed for gradient computation has been modified by an inplace operation: "
        f"[{dtype.name} {list(shape)}]{made} is at version {now}; expected version {saved} instead. "
        "Hint: the value was needed by the operation that saved it; do the in-place write before that operation, or to "
        "a clone(). " + (_SHOWN if state.anomaly else _HIDDEN)
    )


def _producer(tensor: Any) -> str | None:
    node = tensor._grad_fn
    return None if node is None else f"output {tensor._output_nr} of {node.name()}"


def detached_error(name: str) -> RuntimeError:
    return RuntimeError(
        "Trying to use a saved tensor that has been detached in-place, i.e. with .detach_(): "
        f"{name} needs its history for a second derivative. Please use out-of-place `.detach()` instead."
    )


_NO_EDGE: tuple = (False, None)
_new: Any = object.__new__


class Stopped(BaseException):
    """A checkpoint has recomputed all values that backward needs.  No `except Exception` of the user's catches it."""


class SavedVariable:
    """A saved value: an input tensor, or an output's value, or the object that a pack hook made of either; or None.

    A node's `_raw_saved_*` return it; `register_hooks(pack, unpack)` may replace its value, once.
    """

    # Defaults in the class: an attribute that is not set costs nothing when a result is saved, 0.25 of 9 µs.
    released = False
    _unpack: Callable | None = None
    _packed: Any = None
    _shape: Any = None  # of the packed tensor
    _misshapen: Any = None  # the shape of the tensor that the unpack hook returned, if it differs
    _edge = _NO_EDGE  # of a packed input: requires_grad, and its gradient's edge
    _weak_grad_fn: Any = None
    _tensor: Any = None
    _array: Any = None
    _twin: Any = None
    _tangents: Any = None  # of the packed tensor: hooks see values only
    _counter: Any = None
    _version = _output_nr = 0
    _is_leaf = False

    _is_output = True

    def __init__(self, tensor: Any = None, is_output: bool | None = None, weak_grad_fn: Any = None) -> None:
        if is_output is None:
            raise RuntimeError(
                "Trying to create a SavedTensor object from Python is forbidden. A node's _raw_saved_* attributes give "
                "the SavedTensors of what it saved."
            )
        self._is_output = is_output
        if weak_grad_fn is not None:
            self._weak_grad_fn = weak_grad_fn
        counter = None
        if tensor is None:
            self._is_leaf = True
        else:
            counter = tensor._version_counter
            if counter is not None:
                self._version = counter.value  # raises for an inference tensor
            self._output_nr = tensor._output_nr
            self._is_leaf = tensor._grad_fn is None
        if is_output:
            assert tensor is not None
            if counter is None:
                counter = tensor._version_counter = VersionCounter()
            self._counter = counter
            if tensor._tangents is None and tensor._level is None:
                array = tensor._array
                self._array = tensor._read() if array is None else array
            else:  # tangents or batches, which an array does not have
                self._twin = outside(snapshot(tensor))
        else:
            self._tensor = tensor

    @classmethod
    def of_result(cls, array: Any, counter: VersionCounter) -> "SavedVariable":
        """Save the only result of a recorded operation.  As it is new, this takes a third of `__init__`'s time."""
        saved = _new(cls)
        saved._array, saved._counter = array, counter
        return saved

    @classmethod
    def packed(cls, tensor: Any, is_output: bool, weak_grad_fn: Any = None) -> "SavedVariable":
        """Save a tensor under the innermost pair of default hooks, if there is one."""
        saved = cls(tensor, is_output, weak_grad_fn)
        if state.saved_hooks:
            # The hook gets an input itself, as PyTorch's does; an output without its graph, which would close a cycle.
            saved._pack(*state.saved_hooks[-1], saved._value_tensor() if is_output else tensor)
        return saved

    def _pack(self, pack: Callable, unpack: Callable, plain: Tensor) -> None:
        version = plain._version
        enabled, state.grad_enabled = state.grad_enabled, False
        try:
            packed = pack(plain)
        finally:
            state.grad_enabled = enabled
        if plain._version != version:
            raise RuntimeError(
                "A saved tensor pack hook is modifying its input in place. Tensors provided as input to pack hook can "
                "not be modified by in-place operations as this can lead to unexpected side-effects. Please open an "
                "issue if you need to perform in-place operations on the input to a pack hook."
            )
        self._packed, self._unpack, self._shape = packed, unpack, plain.shape
        if state.forward_level >= 0 and plain._moves():
            self._tangents = {level: snapshot(tangent) for level, tangent in plain._tangents.items()}
        if self._tensor is not None:  # save where the input's gradient goes, and drop the value
            self._edge = (self._tensor.requires_grad, gradient_edge(self._tensor))
        self._tensor = self._array = self._twin = None

    def _value_tensor(self) -> Tensor:
        """The saved value as a tensor outside of the graph (for an input: an alias without history)."""
        if self._tensor is not None:
            return self._tensor.detach()
        plain = self._rebuilt()
        plain._version_counter = self._counter
        return plain

    def _rebuilt(self) -> Tensor:
        """Make a new tensor from the value of a saved output."""
        rebuilt = blank(Tensor)
        if self._twin is None:
            rebuilt._array = self._array
        else:
            rebuilt = blank(type(self._twin))
            rebuilt.__dict__.update(self._twin.__dict__)
        return rebuilt

    def register_hooks(self, *hooks: Callable[..., Any]) -> None:
        """`register_hooks(pack, unpack)`: replace the saved value by `pack(value)`; backward restores it with `unpack`.

        Raises `RuntimeError` after release, if hooks are registered already and if None was saved, `TypeError` for
        anything but two callables.
        """
        if len(hooks) != 2 or not all(map(callable, hooks)):
            raise TypeError(
                "register_hooks(): incompatible function arguments: it takes two callables, pack_hook and unpack_hook, "
                f"but got ({', '.join(type(hook).__name__ for hook in hooks)})"
            )
        if self.released:
            raise RuntimeError(
                "Calling register_hooks on a saved tensor after it has been freed. Specify retain_graph=True in the "
                "first call of .backward() or autograd.grad() if you need what it saved afterwards."
            )
        if self._unpack is not None:
            raise RuntimeError(
                "Calling register_hooks on a saved tensor whose hooks have already been set. Hint: only one pair of "
                "hooks is allowed at a time."
            )
        if self._is_none():
            raise RuntimeError("Calling register_hooks on a saved tensor with value None is forbidden")
        self._pack(*hooks, self._value_tensor())

    def unpack_hook_data(self) -> tuple[Callable[..., Any], Any] | None:
        """The unpack hook and the packed value, for a compiled backward to unpack later; None without a hook."""
        return None if self._unpack is None else (self._unpack, self._packed)

    def _is_none(self) -> bool:
        return self._unpack is None and self._tensor is None and self._counter is None

    @property
    def data(self) -> Any:
        """The saved tensor, or the object that the pack hook made of it; None after release."""
        if self._unpack is not None:
            return self._packed
        if self.released or self._is_none():
            return None
        return self._rebuilt() if self._tensor is None else self._tensor

    @property
    def unpack_hook(self) -> Callable[..., Any] | None:
        """The unpack hook, if there is one."""
        return self._unpack

    def __reduce__(self) -> Any:
        raise TypeError("cannot pickle 'SavedVariable' object: it belongs to a graph, and so to its process")

    def release(self) -> None:
        self.released: bool = True
        self._tensor = self._array = self._twin = self._packed = self._unpack = self._tangents = None

    def is_ours(self) -> bool:
        """Return whether one of xgrad's kernels made the array, and no user has got a reference to it."""
        return self._array is not None and not self._counter.exported

    def array(self, owner: Any) -> Any:
        """The saved value as an array, for a formula that records nothing."""
        if self._unpack is None and self._array is not None:
            self._check(owner)
            return self._array
        return self.unpack(owner)._read()

    def unpack(self, owner: Any = None) -> Any:
        """The saved value as a tensor in the graph: an input itself, an output rebuilt with `owner` as its grad_fn.

        Raises `FreedGraphError` after release, `VersionError` if the tensor was changed in place since, and
        `RuntimeError` for an output without an owner.
        """
        if self.released:
            raise freed_error("its node" if owner is None else owner.name())
        if self._unpack is not None:
            return self._rebuild(self._unhook(), owner)
        if self._is_none():
            return None
        self._check(owner)
        if self._tensor is not None:
            if not self._is_leaf and self._tensor._grad_fn is None:
                raise detached_error("its node" if owner is None else owner.name())
            return self._tensor
        rebuilt = self._rebuilt()
        rebuilt._version_counter = self._counter
        return self._attach(rebuilt, owner)

    def _unhook(self) -> Tensor:
        assert self._unpack is not None
        note_users_code()
        value = self._unpack(self._packed)
        if not isinstance(value, Tensor):
            raise TypeError(
                "Output of saved tensor unpack_hook expected to be a Tensor but got result of type "
                f"{type(value).__name__}"
            )
        if value.shape != self._shape:
            self._misshapen = value.shape
        return value

    def misfit(self) -> str:
        """The error message on an unpack hook that returned another shape than was packed; empty if it did not."""
        if self._misshapen is None:
            return ""
        return (
            f"The size of the tensor that a saved tensor unpack_hook returned, {list(self._misshapen)}, must match "
            f"the size of the tensor that was packed, {list(self._shape)}"
        )

    def _rebuild(self, value: Tensor, owner: Any) -> Tensor:
        """Put an unpack hook's result in the graph; return it as it is if it and the saved value are outside."""
        if not (self._is_output or self._edge[0] or self._tangents or value.requires_grad):
            return value
        rebuilt = value.detach() if value._level is None else plain_entry(value)
        for level, tangent in (self._tangents or {}).items():
            rebuilt._set_tangent(level, tangent)
        if self._is_output:
            return self._attach(rebuilt, owner)
        requires_grad, edge = self._edge
        rebuilt._requires_grad = requires_grad
        if requires_grad:
            attach_edge(rebuilt, edge)
        return rebuilt

    def _attach(self, rebuilt: Tensor, owner: Any) -> Tensor:
        node = owner
        if node is None:
            raise RuntimeError("a saved result belongs to the node that made it: give that node to unpack()")
        if self._weak_grad_fn is not None:
            node = self._weak_grad_fn()
            if node is None:
                raise RuntimeError(
                    "No grad_fn for a saved tensor that is a view changed in place: the view died before backward"
                )
        rebuilt._grad_fn, rebuilt._output_nr, rebuilt._requires_grad = node, self._output_nr, True
        return rebuilt

    def _check(self, owner: Any) -> None:
        if self.released:
            raise freed_error(owner.name())
        tensor = self._tensor
        now = self._counter.value if tensor is None else tensor._version
        if now != self._version:
            value = tensor if tensor is not None else self._array if self._twin is None else self._twin
            producer = (
                _producer(tensor) if tensor is not None else owner and f"output {self._output_nr} of {owner.name()}"
            )
            raise version_error(tuple(value.shape), value.dtype, producer, self._version, now)


def check_version(tensor: Any, saved: int) -> None:
    """Raise `VersionError` if a tensor was changed in place since its version was `saved`."""
    counter = tensor._version_counter
    if counter is not None and counter.value != saved:
        raise version_error(tuple(tensor.shape), tensor.dtype, _producer(tensor), saved, counter.value)
