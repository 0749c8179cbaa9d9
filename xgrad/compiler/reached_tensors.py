"""Trace: runs a function for `xgrad.compile` with tracers in place of arrays, and records the tensors that it uses.

The function runs in an overlay (overlay.py): the first touch of a tensor from outside makes a `Reached`, and gives
this thread a twin of its storage with a tracer as its array.  The differences at the end are the effects that the
compiled program has in each call (`effects.py`).

    x ──touch──► its storage ──► input 0 of the program          a tensor that the function makes is not an input
    └─ grad, base: likewise, when they are touched

Invariant: tracers are in twins and in tensors that the trace made, and nowhere else.
"""

from collections.abc import Callable
from typing import Any

import jax
from jax.extend.core import Primitive

from ..base.declared import DeclaredPlace
from ..base.jax_compat import ShapedArray
from ..config import state
from ..execution.pending import Pending, declared_of, quietly
from ..tensor import Tensor
from ..views.chain import ViewChain
from ..views.storage import Storage, Tracer
from .guards.hyperparameters import EscapedError
from .overlay import Inline, Overlay, Reached, _read, run_in

# The equation of an array from outside, until the trace is split into programs (program.py).
input_p: Primitive = Primitive("xgrad_input")
input_p.def_abstract_eval(lambda *, aval, number: aval)


class Again(BaseException):
    """A view that was traced as its value only is used as more than that: trace the function again."""


class Root:
    """One array from outside: a storage's, a generator's key, or a bare array among the arguments."""

    __slots__ = ("array", "aval", "number", "owner", "tracer")

    def __init__(self, number: int, owner: Any, array: Any) -> None:
        self.number: int = number
        self.owner: Any = owner
        self.array: Any = array
        self.aval: Any = array.aval if array.__class__ is not Pending else ShapedArray(array.shape, array.dtype)
        self.tracer: Any = input_p.bind(aval=self.aval, number=number)


class Trace(Overlay):
    """An overlay whose roots are inputs of the program."""

    def __init__(self, by_value: bool) -> None:
        super().__init__()
        self.by_value = by_value  # True if views that are only read may be traced as their values
        self.values: dict[int, Storage] = {}  # by id: the storages of these views
        self.roots: list[Root] = []
        self.numbers: dict[int, Any] = {}  # the optimizers' numbers that are operands (hyperparameters.py)
        # Reports a new item or attribute, which later calls will find there: the first state of an optimizer.
        self.adopt: Callable[[Any, Any, Any], None] = lambda owner, key, item: None
        self.steps: list[tuple[Any, Callable[..., Any], tuple[Any, ...], dict[str, Any]]] = []  # of schedules, deferred
        self.deferring = True  # False if schedules step in the trace,
        self.stepped = False  # and True then if one did
        self.calls_back = False  # True if the program calls a kernel of the user's on the host
        self.refused: Exception | None = None  # an operation that no program can do; the function may catch it

    def run(self, function: Callable[[], Any]) -> Any:
        """Call a function in this overlay."""
        state.trace = self  # `run_in` sets it to None
        return run_in(self, function)

    def defers(self, schedule: Any, step: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> bool:
        """Return True if a schedule's step is to follow each run of the program."""
        if not self.deferring or any(isinstance(value, Tensor) for value in (*args, *options.values())):
            self.stepped = True
            return False
        self.steps.append((schedule, step, args, options))
        return True

    def uses_rates(self, optimizer: Any) -> None:
        """Have the function traced again, without deferred steps, if the optimizer steps after its schedule."""
        if any(schedule.optimizer is optimizer for schedule, *_ in self.steps):
            raise EscapedError

    def allow(self, where: Any) -> None:
        """Raise `Inline` if the function puts a tensor on an `xgrad.Backend`, which runs operators itself."""
        if where.__class__ is DeclaredPlace:
            raise Inline

    def root(self, owner: Any, array: Any) -> Root:
        """Make a new input of the program."""
        if isinstance(array, Tracer) or declared_of(array) is not None:  # an `xgrad.Backend` runs operators itself
            raise Inline
        array = quietly(array)
        root = Root(len(self.roots), owner, array)
        self.roots.append(root)
        return root

    def place(self, reached: Reached, storage: Storage | None) -> None:
        now = reached.now
        reached.by_value = self.by_value and storage is not None and self._is_value(reached.tensor, now, storage)
        if storage is None:
            if declared_of(now["_array"]) is not None:
                raise Inline
            now["_array"] = quietly(now["_array"])
            self._alone(reached, now["_array"])
        elif reached.by_value:
            self._value(reached, storage)
        else:
            if id(storage) in self.values:
                raise Again
            reached.storage, reached.root = self.shared(storage)
            now["_storage"] = reached.storage
            now["_cache"], now["_cache_generation"] = None, -1

    def asked(self, reached: Reached, name: str) -> None:
        if reached.by_value and name in _OF_VIEWS:
            raise Again
        if name == "_grad":
            reached.grad_read = reached.grad_read or not reached.grad_written

    def _alone(self, reached: Reached, array: Any) -> None:
        """Give a tensor that owns its array a storage, in the trace."""
        now = reached.now
        reached.storage = storage = Storage(None, False, self.counter(now.get("_version_counter")))
        reached.root = self.root(storage, array)
        storage._array = reached.root.tracer
        now["_storage"], now["_chain"], now["_array"] = storage, ViewChain.root(array.shape, array.dtype), None

    def _is_value(self, tensor: Tensor, attributes: dict[str, Any], storage: Storage) -> bool:
        """Return True for a view like a minibatch: a contiguous block, with nothing but a value, of a larger tensor.

        The next minibatch, at another start, then runs the same program.
        """
        chain, view = attributes["_chain"], attributes.get("_view")
        if chain.is_root or id(storage) in self.storages or type(tensor) is not Tensor:
            return False
        if view is not None and (_read(view.base, "__dict__").get("_requires_grad") or id(view.base) in self.by_id):
            return False
        return is_plain(attributes) and chain.expressible and chain.geometry.is_contiguous()

    def _value(self, reached: Reached, storage: Storage) -> None:
        """Give a view that is traced as its value a storage of its own, in the trace."""
        root = storage.array
        if isinstance(root, Tracer) or declared_of(root) is not None:
            raise Inline
        with jax.ensure_compile_time_eval():
            array = reached.now["_chain"].replay(root)
        self.values[id(storage)] = storage
        reached.now.pop("_view", None)
        self._alone(reached, array)


def is_plain(attributes: dict[str, Any]) -> bool:
    """Return True if a tensor's attributes are nothing but a value: no history, no hooks, no modes."""
    # A gradient, which has no truth of its own, stays when its tensor is frozen.
    return attributes.get("_grad") is None and not any(map(attributes.get, _MORE_THAN_VALUES))


_MORE_THAN_VALUES = (
    "_requires_grad", "_grad_fn", "_hooks", "_post_accumulate_hooks", "_retains_grad", "_inference",
    "_grad_dtype", "_tangents", "_moved", "_is_param",
)  # fmt: skip
_OF_VIEWS = {"storage_offset", "storage_id", "data_ptr", "untyped_storage", "_base", "_is_view", "data", "is_set_to"}
