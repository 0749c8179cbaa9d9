"""Trace: one run of a function on tensors that have no values, and whatever it touches on the way.

The function sees the very tensors that it will be called with, so that identity, `.grad`, hooks and views mean what
they always do.  While it runs, the first touch of a tensor from outside, in whatever way, *reaches* it: what it is now
is noted, and its storage gets a tracer for its array.  At the end all is put back; what differed is what the compiled
program has to do in each call (`effects.py`).

    x ──reach──► its storage ──► input 0 of the program          a tensor that is made meanwhile is not reached
    └─ grad, base: reached when they are touched

Invariants: after a trace, failed or not, every reached tensor is as it was; tracers live in tensors that were made in
the trace and nowhere else; backward stops at tensors that were computed outside (`Outside`).
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jax
from jax.extend.core import Primitive

from ..config import state
from ..engine.node import InputMetadata, Node
from ..tensor import Tensor
from ..views.chain import ViewChain
from ..views.storage import Storage, Tracer

# Stands in the traced program for an array from outside, until the program is taken apart (program.py).
input_p = Primitive("xgrad_input")
input_p.def_abstract_eval(lambda *, aval, number: aval)

HOOKS = ("_hooks", "_post_accumulate_hooks")
_read: Any = object.__getattribute__
_lock = threading.RLock()  # held while a function is traced: the class below is patched


class Inline(BaseException):
    """The function uses values of another trace, and is to run as it is.  No `except` of the user's takes it."""


class Again(BaseException):
    """A view that was taken for its value alone is more than that: the function is to be traced again."""


class Outside(Node):
    """The history of a tensor that was computed outside: a gradient that gets here is the caller's to take on."""

    def __init__(self, meta: InputMetadata) -> None:
        self.avals = (meta,)
        self.sequence_nr = state.next_sequence_nr()

    def apply(self, grads: list, needs: int) -> tuple:
        raise RuntimeError(
            "backward inside of xgrad.compile has reached a tensor (shape "
            f"{list(self.avals[0].shape)}) that was computed outside of the compiled function. Compute it inside, give "
            "the function a detach() of it, or call backward() outside, on what the function returns."
        )


class Root:
    """One array from outside: that of a storage, the key of a generator, or a bare array among the arguments."""

    __slots__ = ("array", "aval", "number", "owner", "tracer")

    def __init__(self, number: int, owner: Any, array: Any) -> None:
        self.number, self.owner, self.array, self.aval = number, owner, array, array.aval
        self.tracer = input_p.bind(aval=array.aval, number=number)


class Reached:
    """One tensor from outside, as it was when the function first touched it."""

    __slots__ = (
        "before", "by_value", "grad_read", "grad_written", "hooks", "number", "outside", "root", "storage", "tensor",
    )  # fmt: skip

    def __init__(self, number: int, tensor: Tensor, before: dict[str, Any], storage: Storage, root: Root) -> None:
        self.number, self.tensor, self.before, self.storage, self.root = number, tensor, before, storage, root
        self.hooks = {name: dict(before[name]) for name in HOOKS if before.get(name)}  # they are registered in place
        self.by_value = False  # a view of which the program gets the value, and not the root
        self.outside: Outside | None = None  # stands for its history
        self.grad_read = False  # before it was written
        self.grad_written = False

    @property
    def now(self) -> dict[str, Any]:
        """Its attributes."""
        return _read(self.tensor, "__dict__")


class Trace:
    """What a function reaches while it runs."""

    def __init__(self, by_value: bool) -> None:
        self.by_value = by_value  # whether views that are only read may be taken so
        self.values: dict[int, Storage] = {}  # what these are views of
        self.reached: list[Reached] = []  # in the order in which they were touched
        self.by_id: dict[int, Reached] = {}
        self.owners: dict[int, Reached] = {}  # by the id of their storage or of their version counter
        self.roots: list[Root] = []
        self.storages: dict[int, tuple[Storage, Root, bool, int]] = {}
        self.counters: dict[int, tuple[Any, dict]] = {}
        self.views: list[tuple[Any, int]] = []  # (meta, its attr_version)
        self.generators: list[tuple[Any, Root, int]] = []

    def root(self, owner: Any, array: Any) -> Root:
        """A new input of the program."""
        if isinstance(array, Tracer):
            raise Inline
        root = Root(len(self.roots), owner, array)
        self.roots.append(root)
        return root

    def reach(self, tensor: Tensor) -> None:
        """Note a tensor that is touched for the first time."""
        attributes = _read(tensor, "__dict__")
        storage = attributes.get("_storage")
        if storage is None and attributes.get("_array") is None:
            if type(tensor).is_sparse is True and attributes:
                raise NotImplementedError("xgrad.compile takes no sparse tensors: give it to_dense() of them")
            attributes["_trace"] = self  # it is being made
            return
        if attributes.get("_level") is not None or attributes.get("_tangents"):
            raise Inline
        before = dict(attributes)
        before.pop("_trace", None)
        by_value = self.by_value and storage is not None and self._is_value(tensor, attributes, storage)
        if storage is None:
            root = self._alone(attributes)
        elif by_value:
            root = self._value(attributes, storage)
        else:
            root = self._shared(storage)
            attributes["_cache"], attributes["_cache_generation"] = None, -1
        attributes["_trace"] = self
        counter, view = before.get("_version_counter"), attributes.get("_view")
        if counter is not None:
            self.counters.setdefault(id(counter), (counter, dict(counter.__dict__)))
        reached = Reached(len(self.reached), tensor, before, attributes["_storage"], root)
        reached.by_value = by_value
        self.reached.append(reached)
        self.by_id[id(tensor)] = reached
        self.owners.setdefault(id(reached.storage), reached)
        if counter is not None:
            self.owners.setdefault(id(counter), reached)
        if view is not None:
            self.views.append((view, view.attr_version))
            view.base._requires_grad  # noqa: B018 - reaches it
            if view.attr_version != tensor._version:
                return  # its grad_fn is made anew, from what its base has now
        if attributes.get("_grad_fn") is not None:
            reached.outside = attributes["_grad_fn"] = Outside(InputMetadata(tensor.shape, tensor.dtype))
            attributes["_output_nr"] = 0

    def _alone(self, attributes: dict[str, Any]) -> Root:
        """Of a tensor that is its array: it gets a storage for the time of the trace."""
        array = attributes["_array"]
        storage = Storage(None, False, attributes.get("_version_counter"))
        root = self.root(storage, array)
        storage._array = root.tracer
        attributes["_storage"], attributes["_chain"] = storage, ViewChain.root(array.shape, array.dtype)
        attributes["_array"] = None
        return root

    def _is_value(self, tensor: Tensor, attributes: dict[str, Any], storage: Storage) -> bool:
        """Whether a tensor is a view like a minibatch: a block of something that nothing is asked of but its value.

        Then the next one, at another start, runs the same program.
        """
        chain, view = attributes["_chain"], attributes.get("_view")
        if chain.is_root or id(storage) in self.storages or type(tensor) is not Tensor:
            return False
        if view is not None and (_read(view.base, "__dict__").get("_requires_grad") or id(view.base) in self.by_id):
            return False
        return is_plain(attributes) and chain.expressible and chain.geometry.is_contiguous()

    def _value(self, attributes: dict[str, Any], storage: Storage) -> Root:
        """Of a view that is taken by its value: it gets a storage of its own for the time of the trace."""
        if isinstance(storage.array, Tracer):
            raise Inline
        with jax.ensure_compile_time_eval():
            array = attributes["_chain"].replay(storage.array)
        self.values[id(storage)] = storage
        attributes.pop("_view", None)
        attributes["_array"] = array
        return self._alone(attributes)

    def _shared(self, storage: Storage) -> Root:
        if id(storage) in self.values:
            raise Again
        known = self.storages.get(id(storage))
        if known is None:
            root = self.root(storage, storage.array)
            self.storages[id(storage)] = known = (storage, root, storage.owned, storage.generation)
            storage._array = root.tracer
        return known[1]

    def generator(self, generator: Any) -> None:
        """Note a generator that is used: its key is an input, and what it moves on to an output."""
        if not any(known is generator for known, *_ in self.generators):
            root = self.root(generator, generator._started())
            self.generators.append((generator, root, generator._seed))
            generator._key = root.tracer

    def restore(self) -> None:
        """Put everything back."""
        for reached in self.reached:
            now = reached.now
            now.clear()
            now.update(reached.before)
            for name, hooks in reached.hooks.items():
                now[name].clear()
                now[name].update(hooks)
        for storage, root, owned, generation in self.storages.values():
            storage._array, storage.owned, storage.generation = root.array, owned, generation
        for counter, before in self.counters.values():
            counter.__dict__.clear()
            counter.__dict__.update(before)
        for view, version in self.views:
            view.attr_version = version
        for generator, root, seed in self.generators:
            generator._key, generator._seed = root.array, seed


def is_plain(attributes: dict[str, Any]) -> bool:
    """Whether a tensor, by its attributes, has nothing but a value: no history, no hooks, no modes."""
    return not any(map(attributes.get, _MORE_THAN_VALUES))


_MORE_THAN_VALUES = (
    "_requires_grad", "_grad_fn", "_grad", "_hooks", "_post_accumulate_hooks", "_retains_grad", "_inference",
    "_grad_dtype", "_tangents", "_moved", "_is_param",
)  # fmt: skip
_OF_VIEWS = {"storage_offset", "storage_id", "data_ptr", "untyped_storage", "_base", "_is_view", "data", "is_set_to"}


def _get(tensor: Tensor, name: str) -> Any:
    trace = state.trace
    if trace is not None:
        if _read(tensor, "__dict__").get("_trace") is not trace and name != "__dict__":
            trace.reach(tensor)
        if name in _OF_VIEWS and (reached := trace.by_id.get(id(tensor))) is not None and reached.by_value:
            raise Again
        if name == "_grad" and (reached := trace.by_id.get(id(tensor))) is not None:
            reached.grad_read = reached.grad_read or not reached.grad_written
    return _read(tensor, name)


def _set(tensor: Tensor, name: str, value: Any) -> None:
    trace = state.trace
    if trace is not None and _read(tensor, "__dict__").get("_trace") is not trace:
        trace.reach(tensor)
    object.__setattr__(tensor, name, value)
    if name == "_grad" and trace is not None and (reached := trace.by_id.get(id(tensor))) is not None:
        reached.grad_written = True


@contextmanager
def watching(trace: Trace) -> Iterator[None]:
    """A block in which this thread's touches of tensors are seen, and after which everything is as it was.

    By way of the class, so that outside of such a block nobody is asked, however short the question.
    """
    with _lock:
        Tensor.__getattribute__ = _get
        Tensor.__setattr__ = _set
        state.trace = trace
        try:
            yield
        finally:
            state.trace = None
            del Tensor.__getattribute__, Tensor.__setattr__
            trace.restore()
