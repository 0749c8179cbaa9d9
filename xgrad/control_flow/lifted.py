"""Lifted: turns outside tensors that a function uses into its arguments, for the compiled `cond` and `while_loop`.

    w = ...                                    look(f, x): f runs once; it uses w
    f = lambda x: x * w          ──►           lifted: (x, w) ↦ f(x), with the argument in the place of w's value
                                               then jax.lax.cond over arrays of x and w, whose gradients are the tape's

The key of each random generator that the function draws from is an argument too, and its key afterwards is a result.

Invariant: after a call each tensor from outside has its own attributes again, and each generator its key.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from ..batching.trees import flatten, unflatten
from ..compiler.overlay import Touched
from ..config import state
from ..interop._by_tape import taped
from ..random import Generator, note_drawn
from ..tensor import Tensor, from_array
from ..views.storage import Tracer
from .checks import mutated, run


def is_traced(tensor: Any) -> bool:
    """Return True for a tensor without a value: inside of `xgrad.compile`, or of a trace of JAX's."""
    return isinstance(tensor, Tensor) and isinstance(tensor._held(), Tracer)


class Look(NamedTuple):
    """The findings of a run of a function."""

    result: Any
    outside: list[Tensor]  # the tensors from outside that it uses
    generators: list[Generator]  # those that it draws from


class _Drawn(dict[Any, Any]):
    """The log of a run: the key that each generator had at its first use, and its seed."""

    def __init__(self) -> None:
        self.seeds: dict[Any, tuple[Generator, int]] = {}  # the seeds of those that draw in the generators' places

    def setdefault(self, generator: Any, key: Any = None) -> Any:
        if isinstance(generator, Generator):
            here = generator._here()
            self.seeds.setdefault(generator, (here, here._seed))
        return super().setdefault(generator, key)

    def put_back(self) -> bool:
        """Give the generators their keys and seeds again; return True if there were other seeds."""
        seeded = any(here._seed != seed for here, seed in self.seeds.values())
        for generator, (here, seed) in self.seeds.items():
            here._key, here._seed = self[generator], seed
        return seeded


def look(where: str, function: Callable[..., Any], operands: Any) -> Look:
    """Run a function once, and return what it uses.

    Outside of `xgrad.compile` the tensors are not known; one that requires grad raises `RuntimeError`.
    Raises `NotImplementedError` for random numbers whose generator a program cannot advance.
    """
    leaves, structure = flatten(operands)
    stand_ins = [from_array(t._read()) if isinstance(t, Tensor) else t for t in leaves]
    given = [t for t in stand_ins if isinstance(t, Tensor)]
    overlay, touched, drawn, seeded = state.overlay, Touched(), _Drawn(), False
    log, casts = state.random_log, state.autocast_casts
    state.random_log, state.autocast_casts = drawn, None
    state.transforms += 1  # backward() is refused: it would add to gradients outside
    if overlay is not None:
        overlay.watching.append(touched)
    try:
        result = run(where, function, unflatten(structure, stand_ins), given)
    finally:
        state.random_log, state.autocast_casts = log, casts
        state.transforms -= 1
        if overlay is not None:
            overlay.watching.remove(touched)
        seeded = drawn.put_back()
    if seeded or len(drawn.seeds) < len(drawn) or not all(overlay or isinstance(k, Tracer) for k in drawn.values()):
        raise NotImplementedError(_DRAWS.format(where))
    if overlay is None and any(isinstance(t, Tensor) and t.requires_grad for t in flatten(result)[0]):
        raise RuntimeError(
            f"{where}: a function uses a tensor from outside that requires grad. Inside of a trace of JAX's give such "
            "tensors as operands; xgrad.compile finds them."
        )
    if touched.written():
        raise mutated(where, function)
    note_drawn(drawn)
    return Look(result, touched.outside(), [*drawn])


def keys_of(generators: Sequence[Generator]) -> list[Tensor]:
    """Return the generators' keys, as operands."""
    return [from_array(g._here()._key) for g in generators]


def move_on(generators: Sequence[Generator], keys: Iterable[Tensor]) -> None:
    """Give the generators the keys that a program has left."""
    for generator, key in zip(generators, keys, strict=True):
        generator._here()._key = key._read()


_DRAWS = (
    "{}: a function of a program may draw random numbers from a generator that goes on from call to call, but not seed "
    "one, make one, or draw within a module of another library. Inside of a trace of JAX's it draws under "
    "`with xgrad.random.use_key(key):`."
)
# The modes of the call.  A cached cast would be the cast of a tensor from outside, not of its replacement.
_MODES = (
    "autocast", "autocast_casts", "generator", "mesh", "place", "random_again", "random_log", "tracking",
)  # fmt: skip


class Lifted:
    """A function of the operands' tensors, those from outside and keys, over arrays; it returns a list of arrays.

    The results' arrays come first, then the new keys of the generators.
    """

    def __init__(
        self,
        where: str,
        function: Callable[..., Any],
        operands: Any,
        outside: list[Tensor],
        generators: Sequence[Generator] = (),
    ) -> None:
        self._where, self._function, self._outside, self._generators = where, function, outside, generators
        leaves, self._structure = flatten(operands)
        self._places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
        self._fixed = [None if isinstance(leaf, Tensor) else leaf for leaf in leaves]
        self._modes = {name: getattr(state, name) for name in _MODES}  # backward runs the function again, elsewhere
        self._before: list[tuple[Tensor, dict[str, Any]]] = []
        if state.overlay is not None:
            state.overlay.at_end.append(self._forget)

    def _forget(self) -> None:
        """Drop the function and its tensors: JAX's caches hold this object, and run it in the trace only."""
        self._function, self._outside, self._fixed, self._generators = _ended_with_its_trace, [], [], ()

    def __call__(self, *arrays: Any) -> list[Any]:
        return taped(self._flat, self._ended)(*arrays)

    def _flat(self, *tensors: Tensor) -> list[Any]:
        full = [*self._fixed]
        for place, tensor in zip(self._places, tensors, strict=False):
            full[place] = tensor
        given, others = tensors[: len(self._places)], tensors[len(self._places) :]
        keys = others[len(self._outside) :]
        for tensor, other in zip(self._outside, others, strict=False):
            self._enter(tensor, other)
        overlay = state.overlay
        known = 0 if overlay is None else len(overlay.generators)
        modes = {name: getattr(state, name) for name in _MODES}
        before: list[Tensor] = []
        try:
            self._switch({**self._modes, "autocast_casts": None, "random_log": None})
            before += keys_of(self._generators)
            move_on(self._generators, keys)
            result = run(self._where, self._function, unflatten(self._structure, full), [*given, *self._outside])
            new = keys_of(self._generators)
        finally:
            if before:
                move_on(self._generators, before)
            self._switch(modes)
        if overlay is not None and len(overlay.generators) > known:
            raise NotImplementedError(_DRAWS.format(self._where))
        return [*[t for t in flatten(result)[0] if isinstance(t, Tensor)], *new]

    @staticmethod
    def _switch(modes: dict[str, Any]) -> None:
        for name, value in modes.items():
            setattr(state, name, value)

    def _enter(self, tensor: Tensor, other: Tensor) -> None:
        """Give a tensor the value and history of another one, until backward ends: nodes save the tensor."""
        own = tensor.__dict__
        now = dict(other.__dict__)
        for name in ("_is_param", "_grad", "_trace"):
            if name in own:
                now[name] = own[name]
        if "_trace" not in own and state.overlay is not None:
            now["_trace"] = state.overlay
        self._before.append((tensor, own))
        tensor.__dict__ = now

    def _ended(self) -> None:
        while self._before:
            tensor, own = self._before.pop()
            tensor.__dict__ = own


def _ended_with_its_trace(*tensors: Any) -> Any:
    raise RuntimeError("a program ran a function of cond or while_loop after its trace: please report it")
