"""Overlay: gives tensors attributes that one thread alone sees, while xgrad.compile traces a function or verifies it.

The function gets the very tensors that later calls will get, so that identity, `.grad`, hooks and views mean what they
always mean.  The first touch of a tensor from outside, of any kind, adds it to the overlay: it makes a `Reached`, with
attributes that this thread reads and writes from then on.  All other threads go on with the tensor itself.

    tensor.__dict__ ────► what all other threads see              nothing of it changes
       └─ reached.now ──► what the thread of the overlay sees     ends with the overlay
          └─ storage, version counter, view, hooks: twins, one for each of the real ones

Invariants: a tensor from outside, its storage and its version counter are never written, so nothing has to be restored
however the block ends, and no other thread sees the overlay's values; backward stops at tensors that were computed
outside (`Outside`).
"""

import copy
import threading
from collections.abc import Callable
from typing import Any
from weakref import WeakSet

from ..config import state
from ..engine.arithmetic import Arithmetic
from ..engine.node import InputMetadata, Node, wire
from ..execution.runner import runner
from ..tensor import Tensor
from ..views.storage import UNTRACKED, Storage, VersionCounter, writing

HOOKS = ("_hooks", "_post_accumulate_hooks")
_read: Any = object.__getattribute__


_SPARSE = (
    "xgrad.compile takes no sparse tensors: give it to_dense() of them. If it is a .grad from an earlier call, have "
    "the function set it to None before backward() (optimizer.zero_grad()), or accumulate within one call."
)


class Inline(BaseException):
    """The function uses values of another trace, and must run uncompiled.  No `except Exception` catches it."""


class Outside(Node):
    """The node of a tensor that was computed outside: gradients go on from here outside of the trace."""

    def __init__(self, meta: InputMetadata) -> None:
        wire(self, (), (meta,))

    def apply(self, grads: list[Any], needs: int, arithmetic: Arithmetic) -> tuple[Any, ...]:
        error = RuntimeError(
            "backward inside of xgrad.compile has reached a tensor (shape "
            f"{list(self.avals[0].shape)}) that was computed outside of the compiled function. Compute it inside, give "
            "the function a detach() of it, or call backward() outside, on what the function returns."
        )
        if state.trace is not None:
            state.trace.refused = error
        raise error


class Reached:
    """One tensor from outside: its attributes at the first touch, and those that the overlay's thread sees."""

    __slots__ = (
        "before", "by_value", "grad_read", "grad_written", "hooks", "now", "number", "outside", "root", "storage",
        "tensor",
    )  # fmt: skip

    def __init__(self, number: int, tensor: Tensor, before: dict[str, Any]) -> None:
        self.number: int = number
        self.tensor: Tensor = tensor
        self.before: dict[str, Any] = before
        self.now: dict[str, Any] = dict(before)  # the attributes that the overlay's thread sees
        self.storage: Any = None  # the twin of its storage
        self.root: Any = None
        self.hooks: dict[str, dict[Any, Any]] = {
            name: dict(before[name]) for name in HOOKS if before.get(name)
        }  # registration is in place
        self.by_value: bool = False  # True for a view whose value, not its root, is the program's input
        self.outside: Outside | None = None  # the node that replaces its history
        self.grad_read: bool = False  # before it was written
        self.grad_written: bool = False

    def stays(self) -> bool:
        """Return True if the tensor itself is as it was, except its value.  Another thread may have changed it."""
        attributes, before = _read(self.tensor, "__dict__"), self.before
        return (
            attributes.get("_requires_grad", False) is before.get("_requires_grad", False)
            and (attributes.get("_grad_fn") is None) is (before.get("_grad_fn") is None)
            and (not self.grad_read or (attributes.get("_grad") is None) is (before.get("_grad") is None))
            and _chain(attributes) == _chain(before)
            and all((attributes.get(name) or {}) == self.hooks.get(name, {}) for name in HOOKS)
        )


def _chain(attributes: dict[str, Any]) -> Any:
    chain = attributes.get("_chain")
    return None if chain is None or chain.is_root else chain


class Touched:
    """The tensors that code uses and those that it makes, while the object is in an overlay's `watching`."""

    def __init__(self) -> None:
        self.used: dict[int, Tensor] = {}
        self.versions: dict[int, int] = {}  # at the first use
        self.made: dict[int, Tensor] = {}

    def use(self, tensor: Tensor, attributes: dict[str, Any]) -> None:
        """Record the use of a tensor."""
        if id(tensor) not in self.used:
            counter = attributes.get("_version_counter")
            self.versions[id(tensor)] = 0 if counter is None else counter.value
            self.used[id(tensor)] = tensor

    def outside(self) -> list[Tensor]:
        """Return the tensors that the code used and did not make."""
        return [tensor for key, tensor in self.used.items() if key not in self.made]

    def written(self) -> bool:
        """Return True if the code wrote one of these."""
        return any(t._version != self.versions[id(t)] for t in self.outside() if not t._inference)


class Overlay:
    """The tensors and generators from outside that a function uses while it runs, and their twins."""

    def __init__(self) -> None:
        self.reached: list[Reached] = []  # in the order in which they were touched
        self.by_id: dict[int, Reached] = {}
        self.owners: dict[int, Reached] = {}  # by the id of a twin of a storage or of a version counter
        self.storages: dict[int, tuple[Storage, Storage, Any]] = {}  # by a storage's id: it, its twin, its root
        # By a twin's id: the twin, its state at first.
        self.counters: dict[int, tuple[VersionCounter, dict[Any, Any]]] = {}
        self._counters: dict[int, tuple[VersionCounter, VersionCounter]] = {}  # by a counter's id: it, its twin
        self.generators: list[tuple[Any, Any, Any]] = []  # (generator, its root, its twin)
        self.watching: list[Touched] = []  # of the branches of `cond` that are being looked at
        self.at_end: list[Callable[[], None]] = []

    # ------------------------------------------------------------ each kind of overlay overrides these

    def root(self, owner: Any, array: Any) -> Any:
        """Return the root of an array from outside; the function gets its `tracer`."""
        raise NotImplementedError

    def place(self, reached: Reached, storage: Storage | None) -> None:
        """Give a new `Reached` its value: its root, its storage, its base."""
        raise NotImplementedError

    def asked(self, reached: Reached, name: str) -> None:
        """Called before an attribute of a tensor from outside is read."""

    # ------------------------------------------------------------ reaching

    def reach(self, tensor: Tensor) -> Reached | None:
        """Record a tensor at its first touch; None if the tensor is being made."""
        attributes = _read(tensor, "__dict__")
        with writing:  # a donating write may hold the array meanwhile
            before = dict(attributes)
        storage = before.get("_storage")
        if storage is None and before.get("_array") is None:
            if type(tensor)._sparse is True and before:
                raise NotImplementedError(_SPARSE)
            attributes["_trace"] = self  # it is being made
            for touched in self.watching:
                touched.made[id(tensor)] = tensor
            return None
        if before.get("_level") is not None or before.get("_tangents"):
            raise Inline
        before.pop("_trace", None)
        view = before.get("_view")
        if view is not None:
            before["_view"] = view = copy.copy(view)
        reached = Reached(len(self.reached), tensor, before)
        now = reached.now
        now["_trace"] = self  # for objects that share the dictionary
        for name in reached.hooks:
            now[name] = copy.copy(before[name])
        self.place(reached, storage)
        counter = now["_version_counter"] = self.counter(before.get("_version_counter"))
        self.reached.append(reached)
        self.by_id[id(tensor)] = reached
        if reached.storage is not None:
            self.owners.setdefault(id(reached.storage), reached)
        if counter is not None:
            self.owners.setdefault(id(counter), reached)
        if now.get("_view") is not None:
            assert view is not None
            view.base._requires_grad  # noqa: B018 - adds it to the overlay
            if view.attr_version != tensor._version:
                return reached  # its grad_fn will be made from its base's
        if now.get("_grad_fn") is not None:
            reached.outside = now["_grad_fn"] = Outside(InputMetadata(tensor.shape, tensor._dtype))
            now["_output_nr"] = 0
        return reached

    def counter(self, real: VersionCounter | None) -> VersionCounter | None:
        """Return the twin of a version counter."""
        if real is None or real is UNTRACKED:
            return real
        known = self._counters.get(id(real))
        if known is None:
            twin = object.__new__(type(real))
            twin.__dict__.update(real.__dict__)
            known = self._counters[id(real)] = real, twin
            self.counters[id(twin)] = twin, dict(twin.__dict__)
        return known[1]

    def shared(self, storage: Storage) -> tuple[Storage, Any]:
        """Return the twin of a storage, and its root."""
        known = self.storages.get(id(storage))
        if known is None:
            root = self.root(storage, storage.array)
            twin = Storage(root.tracer, False, self.counter(storage.counter))
            twin.id = storage.id
            known = self.storages[id(storage)] = storage, twin, root
        return known[1], known[2]

    def generator(self, generator: Any) -> Any:
        """Return the twin of a generator."""
        for known, _, twin in self.generators:
            if known is generator or twin is generator:
                return twin
        with generator._lock:
            key = generator._started()
        root = self.root(generator, key)
        twin = generator._twin(root.tracer)
        self.generators.append((generator, root, twin))
        return twin

    def hooks_stayed(self, reached: Reached) -> bool:
        """Return True if the tensor's own hooks are as they were: a handle from outside can remove one."""
        return all((reached.before[name] or {}) == hooks for name, hooks in reached.hooks.items())

    def end(self) -> None:
        """Restore hooks that a handle from outside removed, and forget this thread's attributes."""
        while self.at_end:
            self.at_end.pop()()
        for reached in self.reached:
            reached.now = {}
            if not self.hooks_stayed(reached):
                for name, hooks in reached.hooks.items():
                    reached.before[name].clear()
                    reached.before[name].update(hooks)


# ---------------------------------------------------------------- attributes of tensors


def _reached(overlay: Overlay, tensor: Tensor) -> Reached | None:
    """Return the overlay's `Reached` of a tensor; None for a tensor that was made in it."""
    reached = overlay.by_id.get(id(tensor))
    if reached is None and _read(tensor, "__dict__").get("_trace") is not overlay:
        reached = overlay.reach(tensor)
    for touched in overlay.watching:
        touched.use(tensor, _read(tensor, "__dict__") if reached is None else reached.now)
    return reached


def _get(tensor: Tensor, name: str) -> Any:
    overlay = state.overlay
    if overlay is None or (reached := _reached(overlay, tensor)) is None:
        return _read(tensor, name)
    now = reached.now
    if name == "__dict__":
        return now
    overlay.asked(reached, name)
    if name in now:
        return now[name]
    return _of_class(tensor, name) if name in _read(tensor, "__dict__") else _read(tensor, name)


def _of_class(tensor: Tensor, name: str) -> Any:
    """Return the class's attribute, where the tensor itself has one that the overlay deleted."""
    kind = type(tensor)
    for base in kind.__mro__:
        if name in vars(base):
            found = vars(base)[name]
            bind = getattr(type(found), "__get__", None)
            return found if bind is None else bind(found, tensor, kind)
    raise AttributeError(f"{kind.__name__!r} object has no attribute {name!r}", name=name, obj=tensor)


def _set(tensor: Tensor, name: str, value: Any) -> None:
    overlay = state.overlay
    reached = None if overlay is None else _reached(overlay, tensor)
    if reached is None or hasattr(type(getattr(type(tensor), name, None)), "__set__"):
        object.__setattr__(tensor, name, value)  # a property's setter calls `_set` again
    elif name == "__dict__":
        reached.now = value
    else:
        reached.now[name] = value
        if name == "_grad":
            reached.grad_written = True


def _delete(tensor: Tensor, name: str) -> None:
    overlay = state.overlay
    reached = None if overlay is None else _reached(overlay, tensor)
    if reached is None or hasattr(type(getattr(type(tensor), name, None)), "__delete__"):
        object.__delattr__(tensor, name)
    elif name in reached.now:
        del reached.now[name]
    else:
        raise AttributeError(f"{type(tensor).__name__!r} object has no attribute {name!r}", name=name, obj=tensor)


_PATCHES = {"__getattribute__": _get, "__setattr__": _set, "__delattr__": _delete}
_patching = threading.RLock()  # a signal handler may trace in the middle of it
_open: WeakSet = WeakSet()  # weak: an overlay that an interrupt left here goes with its last reference


def run_in(overlay: Overlay, function: Callable[[], Any]) -> Any:
    """Call a function; this thread's accesses to tensors' attributes go to the overlay.

    Patches the class, so that outside of any overlay an access costs nothing more.
    """
    casts, state.autocast_casts = state.autocast_casts, None  # its casts are of the tensors outside
    try:
        with _patching:
            _open.add(overlay)
            runner.trace(True)
            for name, patch in _PATCHES.items():
                setattr(Tensor, name, patch)
        state.overlay = overlay
        return function()
    finally:
        state.autocast_casts, state.overlay, state.trace = casts, None, None  # first: calls may be interrupted
        try:
            leave(overlay)
        except BaseException:
            leave(overlay)
            raise


def leave(overlay: Overlay) -> None:
    """End an overlay's block.  A second call, after an interrupt in the first, finishes it."""
    state.overlay = state.trace = None
    with _patching:
        _open.discard(overlay)
        if not _open:
            runner.trace(False)
            for name in _PATCHES:
                if name in vars(Tensor):
                    delattr(Tensor, name)
    overlay.end()


def ends(node: Node | None) -> list[Node]:
    """Return the nodes at which a graph ends: accumulators of leaves, and tensors that were computed outside."""
    found, seen, stack = [], set(), [node]
    while stack:
        node = stack.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if node.is_accumulator or isinstance(node, Outside):
            found.append(node)
        stack += [child for child, _ in node.next_edges]
    return found
