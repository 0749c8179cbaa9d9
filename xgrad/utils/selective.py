"""create_selective_checkpoint_contexts: makes a checkpoint save chosen operators' results, and recompute the others.

`logging_contexts` makes the contexts that log all operators for `checkpoint(debug=True)`.  Both use operator modes
(dispatch/operator_modes.py): pairs of contexts, one for the function's first run and one for its recomputation.  The
i-th call of an operator in the recomputation is the i-th of the first run; a saved result is recorded as if the kernel
had returned it.

PyTorch: torch/utils/checkpoint.py.
"""

import enum
import sys
import traceback
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import jax

from ..autograd.offload import from_host, to_host
from ..dispatch.operator import Operator
from ..dispatch.operator_modes import OperatorMode, given, named, public, public_name
from ..engine.anomaly import is_ours
from ..tensor import Tensor


class CheckpointPolicy(enum.Enum):
    """The treatment of an operator's result in a selective checkpoint.

    `*_SAVE` saves it for backward, `*_RECOMPUTE` computes it again there, `*_CPU_OFFLOAD` saves it in host memory.
    MUST and PREFER do the same here; PyTorch's compiler may override a preference.
    """

    MUST_SAVE = 0
    PREFER_SAVE = 1
    MUST_RECOMPUTE = 2
    PREFER_RECOMPUTE = 3
    MUST_CPU_OFFLOAD = 4
    PREFER_CPU_OFFLOAD = 5


class SelectiveCheckpointContext:
    """The first argument of a policy, in the first run: `op_output` is the operator's result."""

    def __init__(self, *, is_recompute: bool, op_output: Any = None) -> None:
        self.is_recompute = is_recompute
        self.op_output = op_output


_SAVE = (CheckpointPolicy.MUST_SAVE, CheckpointPolicy.PREFER_SAVE)
_OFFLOAD = (CheckpointPolicy.MUST_CPU_OFFLOAD, CheckpointPolicy.PREFER_CPU_OFFLOAD)
_RECOMPUTE, _CONSUMED = object(), object()

_MISMATCH = (
    "The function must call the same operators when it is recomputed: look for global state that changed between "
    "forward and backward."
)


def create_selective_checkpoint_contexts(
    policy_fn_or_list: Any, allow_cache_entry_mutation: bool = False
) -> tuple[Any, ...]:
    """Return two contexts, for `checkpoint(context_fn=...)`, that save the results of some operators.

    `policy_fn_or_list`: a list of operators to save, by their public functions (`[xgrad.mm, xgrad.softmax]`), or a
    function `policy(ctx, op, *args, **kwargs)` that returns a `CheckpointPolicy` (or True, to save).  `op` is the
    operator's public function, the same object as `xgrad.mm`; its name is `op.__name__`.  Python's operators are the
    functions of their names (`a @ b` is `xgrad.matmul`).  A function that is made of operators shows as these.  Views,
    which compute nothing, and in-place operators always run again.

    A saved result is immutable: writing over it in the function is allowed, for any `allow_cache_entry_mutation`
    (PyTorch raises an error without it).

    Raises `ValueError` for a list with an item that is not an operator, `TypeError` for neither function nor list; in
    backward `RuntimeError` for operators that the first run did not call, and for a second backward.

    >>> import functools, xgrad
    >>> from xgrad.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts
    >>> x = xgrad.ones(2, 2, requires_grad=True)
    >>> keep = functools.partial(create_selective_checkpoint_contexts, [xgrad.matmul])
    >>> y = checkpoint(lambda x: (x @ x).sin() @ x, x, use_reentrant=False, context_fn=keep)
    >>> y.sum().backward()
    """
    if isinstance(policy_fn_or_list, list):
        for function in policy_fn_or_list:
            if named(function) is None:
                raise ValueError(
                    f"Expected op in `op_list` to be an OpOverload but got: {function} of type {type(function)}. Name "
                    "operators by their functions (xgrad.mm); views, and functions made of operators, do not count."
                )
        names = {named(function) for function in policy_fn_or_list}
        return _contexts(None, names)
    if not callable(policy_fn_or_list):
        raise TypeError("policy_fn_or_list must be either a function or a list of ops.")
    return _contexts(policy_fn_or_list, set())


def _contexts(policy: Callable | None, names: set) -> tuple:
    storage: dict[str, list] = defaultdict(list)
    return _Caching(policy, names, storage), _Cached(storage)


class _Caching(OperatorMode):
    """The first run: save the results that the policy selects."""

    def __init__(self, policy: Callable[..., Any] | None, names: set[Any], storage: dict[str, list[Any]]) -> None:
        self.policy, self.names, self.storage = policy, names, storage

    def run(self, op: Operator, args: tuple[Any, ...], statics: tuple[Any, ...]) -> Any:
        out = super().run(op, args, statics)
        results = out if isinstance(out, tuple) else (out,)
        name = public_name(op)
        entry: Any = _RECOMPUTE
        if self.policy is None:
            policy = name in self.names
        else:
            ctx = SelectiveCheckpointContext(is_recompute=False, op_output=out)
            policy = self.policy(ctx, public(op), *args, **dict(zip(op.static_names, statics)))
        # Inside of vmap a result is more than an array.
        if all(r._level is None for r in results) and not any(isinstance(a, Tensor) and a._level for a in args):
            if policy is True or policy in _SAVE:
                entry = tuple(r._read() for r in results), isinstance(out, tuple)
            elif policy in _OFFLOAD:
                entry = tuple(_Offloaded(r._read()) for r in results), isinstance(out, tuple)
        self.storage[name].append(entry)
        return out


class _Offloaded:
    """An array in host memory, and its former sharding."""

    def __init__(self, array: Any) -> None:
        self.packed = to_host(array, pin=True)

    def back(self) -> Any:
        return from_host(self.packed)


class _Cached(OperatorMode):
    """The recomputation: return the saved results."""

    def __init__(self, storage: dict[str, list[Any]]) -> None:
        self.storage = storage
        self.counts: dict[str, int] = {}

    def __enter__(self) -> OperatorMode:
        self.counts = defaultdict(int)  # reset: a second backward then finds consumed results, and raises
        return super().__enter__()

    def run(self, op: Operator, args: tuple[Any, ...], statics: tuple[Any, ...]) -> Any:
        name = public_name(op)
        place = self.counts[name]
        self.counts[name] += 1
        entries = self.storage.get(name)
        if entries is None:
            raise RuntimeError(f"{name} encountered during backward but not found in storage. {_MISMATCH}")
        if place >= len(entries):
            raise RuntimeError(
                f"{name} invocation index {place} encountered during backward but not found in storage. {_MISMATCH}"
            )
        entry = entries[place]
        if entry is _RECOMPUTE:
            return super().run(op, args, statics)
        if entry is _CONSUMED:
            raise RuntimeError(
                "Trying to backward an extra time. You are only allowed to backward once on any region computed under "
                "selective activation checkpoint."
            )
        entries[place] = _CONSUMED
        arrays = tuple(a.back() if isinstance(a, _Offloaded) else a for a in entry[0])
        return given(op, args, statics, arrays if entry[1] else arrays[0])


class _Log(OperatorMode):
    """Records each operator with the place of its call."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str]] = []

    def __enter__(self) -> OperatorMode:
        self.lines.clear()
        return super().__enter__()

    def run(self, op: Operator, args: tuple[Any, ...], statics: tuple[Any, ...]) -> Any:
        out = super().run(op, args, statics)
        self._note(op, "", args, statics, out)
        return out

    def write(self, op: Operator, args: tuple[Any, ...], statics: tuple[Any, ...]) -> Any:
        out = super().write(op, args, statics)
        self._note(op, "_", args, statics, out)
        return out

    def _note(self, op: Operator, suffix: str, args: tuple, statics: tuple, out: Any) -> None:
        results = out if isinstance(out, tuple) else (out,)
        shown = [*map(_shown, args), *(f"{n}={v}" for n, v in zip(op.static_names, statics))]
        line = f"{', '.join(map(_shown, results))} = {public_name(op)}{suffix}({', '.join(shown)})"
        frames = [(frame, number) for frame, number in traceback.walk_stack(sys._getframe(1)) if not is_ours(frame)]
        calls = traceback.StackSummary.extract(iter(frames[11::-1]))
        self.lines.append((line, "".join(calls.format())))


def _shown(value: Any) -> str:
    return f"{value.dtype.name}{list(value.shape)}" if isinstance(value, (Tensor, jax.Array)) else repr(value)


def logging_contexts() -> tuple[_Log, _Log]:
    """Return the contexts of `debug=True`."""
    return _Log(), _Log()


def told(error: Exception, contexts: Any) -> str:
    """Return the message of `debug=True`: the operators of both runs, and where each was called."""
    parts = []
    for title, log in zip(("the original forward", "recomputation"), contexts):
        total = len(log.lines)
        traces = "\n".join(
            f"{line}   ({i + 1} of {total} in {title})\n{where}" for i, (line, where) in enumerate(log.lines)
        )
        parts.append(f"Stack traces of the operators that ran in {title}:\n\n{traces}")
    for title, log in zip(("the original forward", "recomputation"), contexts):
        parts.append(f"Operations executed during {title}:\n\n" + "\n".join(line for line, _ in log.lines))
    return (
        "An error happened while unpacking tensors; dumping logs of latest computation because you passed `debug=True` "
        "to `xgrad.utils.checkpoint.checkpoint()`: the operators that ran, twice.\n\n"
        + "\n\n".join(parts)
        + "\n\nERROR: Detected non-determinism while "
        f"running activation checkpointing\n\n{error}\n\nCompare both lists of operations (just above) to see where "
        "they part, and find there in the stack traces (further up) the line that did something else."
    )
