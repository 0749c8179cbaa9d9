"""manual_seed, get_rng_state, Generator, ...: PyTorch's random generators, over keys of `jax.random`.

Invariant: a generator's whole state is one key, an ordinary array of uint32.  Each random operation uses the next key
by one cached program that splits the state, so draws are as reproducible as the order of the calls; from several
threads each draw gets a key of its own.  The first keys are split on the host, with the same result: no program has to
be compiled for them.  A seed gives the same random bits on each of JAX's devices, with and without x64, and on
each of several processes: there a generator must be seeded, because with entropy each would go on with other
numbers.

A checkpoint runs a function twice and needs the same numbers both times: `random_log` stores the keys that generators
had when a block first used them, `draw_again` runs another block on twins that start from these keys.  The generators
themselves are not touched, so other threads may draw meanwhile.

Under a trace of JAX's (`jax.jit`, `vmap`, `lax.scan`, ...) a generator outlives the trace, so its key stays concrete:
seeds, states that are set and `fork_rng` act once, when the function is traced, and not in each call.
"""

import secrets
import threading
import warnings
from collections.abc import Iterator
from typing import Any, TypeGuard

import jax
import numpy as np

from .base import threefry
from .base.devices import device as device_of
from .base.jax_compat import Tracer, in_trace
from .base.missing import close_namespace as _close_namespace
from .base.platforms import start
from .config import block, state
from .errors import TracedValueError
from .execution.pending import Pending
from .execution.programs.programs import jit_checked
from .execution.runner import runner
from .tensor import Tensor, from_foreign
from .views.storage import traced

__all__ = [
    "Generator", "default_generator", "fork_rng", "get_rng_state", "initial_seed", "manual_seed", "next_key",
    "seed", "set_rng_state", "use_key",
]  # fmt: skip


@jit_checked
def _split(key: Any) -> tuple[Any, Any]:
    after, drawn = jax.random.split(key)
    return after, drawn


@jit_checked
def _key_of(low: Any, high: Any) -> Any:
    """Return the key of a 64-bit seed, in two words: JAX itself would drop the upper one while x64 is off."""
    key = jax.random.PRNGKey(low)
    return jax.numpy.where(high == 0, key, jax.random.fold_in(key, high))


_EARLY = 256  # keys of a generator that the host splits and sends, in 25 µs: a program needs 6, and 80 ms to compile


def _array_of(words: threefry.Words) -> Any:
    start()
    return jax.device_put(np.array(words, np.uint32))


_UNSEEDED = (
    "Random numbers without a seed, in one of several processes (jax.distributed): each would draw others, and what is "
    "meant to be one tensor would differ between them. Call xgrad.manual_seed(seed), or generator.manual_seed(seed), "
    "with the same seed in each process. (For numbers that are to differ, with seed + jax.process_index().)"
)


class Generator:
    """A source of random numbers with a state of its own (PyTorch: `torch.Generator`).

    `device` has no effect: numbers are made where the operation puts its result.

    >>> import xgrad
    >>> g = xgrad.Generator().manual_seed(0)
    >>> first = xgrad.rand(2, generator=g)
    >>> again = xgrad.rand(2, generator=g.manual_seed(0))
    >>> bool((first == again).all())
    True
    """

    def __init__(self, device: Any = "xla") -> None:
        self._device = device
        self._lock: Any = threading.RLock()  # a signal handler or a finalizer may draw in the middle of a draw
        self._seed = 0  # drawn with the first key
        # The key: an array, or its words while the host splits it.  The first draw makes it: importing must not start
        # a backend.
        self._array: Any = None
        self._words: threefry.Words | None = None
        self._early = _EARLY  # the number of keys that the host still splits

    @property
    def _key(self) -> Any:
        """The key as an array; None before the first draw."""
        words = self._words
        if self._array is not None or words is None:
            return self._array
        with jax.ensure_compile_time_eval():  # a tracer would outlive its trace here
            array = _array_of(words)
        if self._words is words:  # no draw of a signal handler has come between
            self._array = array
        return array

    @_key.setter
    def _key(self, key: Any) -> None:
        self._array, self._words = key, None

    @property
    def device(self) -> device_of:
        """The device that it was made for."""
        return device_of(self._device)

    def manual_seed(self, seed: int) -> "Generator":
        """Start again from `seed`, an integer of 64 bits (a negative one counts from 2**64), and return the generator.

        Raises `ValueError` if it does not fit.
        """
        seed = int(seed)
        if not -(1 << 63) <= seed < 1 << 64:
            raise ValueError(f"Overflow when unpacking long long: a seed has 64 bits, got {seed}")
        here = self._here()
        with here._lock:
            self._log(here)
            here._set(seed % (1 << 64))
        return self

    def _here(self) -> "Generator":
        """Return the generator that draws in this one's place: its twin in a trace or in `draw_again`, or itself."""
        overlay, again = state.overlay, state.random_again
        twin = None if again is None else again.get(self)  # as the log has it: itself, also in a trace
        if twin is not None:
            return twin
        return self if overlay is None else overlay.generator(self)

    def _log(self, here: "Generator") -> None:
        """Store the key of `here`, which draws in this one's place, at its first use in a block that may run again."""
        log = state.random_log
        if log is not None:
            log.setdefault(self, here._key)

    def _set(self, seed: int) -> None:
        if threefry.is_default():
            self._array, self._words = None, threefry.key_of(seed)
        else:
            with jax.ensure_compile_time_eval():  # a tracer would outlive its trace here
                self._key = _key_of(np.uint32(seed & 0xFFFFFFFF), np.uint32(seed >> 32))
        self._seed, self._early = seed, _EARLY

    def seed(self) -> int:
        """Start again from a seed of the operating system's entropy, and return it.

        With several processes each gets another one, and other numbers.  Raises `RuntimeError` inside of
        `xgrad.compile`.
        """
        if state.overlay is not None:
            raise RuntimeError(
                "seed() asks the operating system for a seed, and xgrad.compile would keep the first one. Call it "
                "outside of the compiled function, or manual_seed(number) inside."
            )
        self.manual_seed(secrets.randbits(64))
        return self.initial_seed()

    def initial_seed(self) -> int:
        """Return the seed that the generator was last started from."""
        here = self._here()
        with here._lock:
            here._seeded()
            self._log(here)
            return here._seed

    def _seeded(self) -> None:
        """Seed the generator if it was not."""
        if self._array is None and self._words is None:
            start()
            if jax.process_count() > 1:
                raise RuntimeError(_UNSEEDED)
            self._set(secrets.randbits(64))

    def _started(self) -> Any:
        """Return the key as an array; seed the generator if it was not."""
        self._seeded()
        return self._key

    def get_state(self) -> Tensor:
        """Return the state, a tensor of uint32 (PyTorch's is one of uint8)."""
        here = self._here()
        with here._lock:
            key = here._started()
            self._log(here)
            return from_foreign(key)

    def set_state(self, new_state: Tensor) -> None:
        """Go on from a state of `get_state`.  Raises `TypeError` or `RuntimeError` if it is not a state.

        `TracedValueError`, a RuntimeError, for a state that is an argument of `jax.jit` and its like.
        """
        if not isinstance(new_state, Tensor) or new_state.dtype != np.dtype("uint32"):
            raise TypeError("RNG state must be a tensor of uint32, as get_state() gives")
        key = new_state._export()
        here = self._here()
        with here._lock:
            present = here._started()
            if key.shape != present.shape:
                raise RuntimeError(
                    f"RNG state has the wrong size: got {list(key.shape)}, expected {list(present.shape)}"
                )
            if isinstance(key, Tracer):
                if state.trace is None and not isinstance(present, Tracer):
                    raise TracedValueError(
                        "A generator cannot go on from a state that is being traced (inside jax.jit, jax.vmap or "
                        "jax.grad), because it outlives the trace. Draw under `with xgrad.random.use_key(key):`, "
                        "whose key may be traced."
                    )
            else:
                # Through the host: a key that is committed to a device would tie every later draw to it.  Not within a
                # trace, which would give a tracer.
                with jax.ensure_compile_time_eval():
                    key = jax.device_put(np.array(key))
            self._log(here)
            here._key = key

    def clone_state(self) -> "Generator":
        """Return a generator of its own that goes on from this one's state."""
        here = self._here()
        with here._lock:
            key = here._started()
            self._log(here)
            return here._twin(key)

    def _twin(self, key: Any) -> "Generator":
        """Return a generator like this one with another key."""
        twin = Generator(self._device)
        twin._key, twin._seed = key, self._seed
        return twin

    def next_words(self) -> threefry.Words | None:
        """Return the words of the next key, and advance the state, if the host still splits the key; else None.

        A lazy block notes each split, so that the same block has the same program each time, and so does a trace.
        """
        if state.trace is not None or not runner.at_once():
            return None
        here = self._here()
        with here._lock:
            while True:
                here._seeded()
                words, _array = here._words, here._array  # the array's end may run a callback: not before the return
                if words is None or not here._early or not threefry.is_default() or in_trace():
                    return None
                self._log(here)
                after, drawn = threefry.split(words)
                if here._words is words:  # without a call up to the return, so that no draw comes between
                    here._array, here._words, here._early = None, after, here._early - 1
                    return drawn

    def next_key(self) -> Any:
        """Return the key for one draw, a raw uint32 array for `jax.random`, and advance the state."""
        words = self.next_words()
        if words is not None:
            return _array_of(words)
        here = self._here()
        with here._lock:
            while True:
                key = here._started()
                self._log(here)
                after, drawn = _split(key)
                constant = after.__class__ is Pending and traced()  # a lazy block's queue holds no tracers
                if isinstance(after, Tracer) and not isinstance(key, Tracer):
                    # Inside of a jax.jit.  The state must stay concrete: a tracer would outlive the trace.
                    with jax.ensure_compile_time_eval():
                        after, drawn = _split(key)
                    constant = True
                if constant and state.trace is None:  # in xgrad.compile it was seeded inside, and is so in each call
                    warnings.warn(
                        "Random numbers that are drawn under a JAX trace become constants of the compiled program: "
                        "each run of it uses the same ones. Pass a key into the program, and draw under "
                        "`with xgrad.random.use_key(key):`.",
                        stacklevel=4,
                    )
                if here._array is key:  # as above
                    here._array, here._words = after, None
                    return drawn


default_generator: Generator = Generator()


def _used(generator: Generator | None) -> Generator:
    if generator is None:
        return state.generator or default_generator
    if not isinstance(generator, Generator):
        raise TypeError(f"generator must be an xgrad.Generator, not {type(generator).__name__}")
    return generator


def next_key(generator: Generator | None = None) -> Any:
    """Return the next key of `generator` (or the default one): a raw uint32 array, to be an argument of a kernel."""
    return _used(generator).next_key()


def next_words(generator: Generator | None = None) -> threefry.Words | None:
    """Return the next key of `generator` (or the default one) as words, if the host still splits it; else None."""
    return _used(generator).next_words()


def manual_seed(seed: int) -> Generator:
    """Seed the default generator, and return it.  Raises `ValueError` for a seed of more than 64 bits.

    >>> import xgrad
    >>> _ = xgrad.manual_seed(0)
    >>> first = xgrad.randn(3)
    >>> _ = xgrad.manual_seed(0)
    >>> bool((xgrad.randn(3) == first).all())
    True
    """
    return default_generator.manual_seed(seed)


def seed() -> int:
    """Seed the default generator from the operating system's entropy, and return the seed."""
    return default_generator.seed()


def initial_seed() -> int:
    """Return the seed that the default generator was last started from."""
    return default_generator.initial_seed()


def get_rng_state() -> Tensor:
    """Return the state of the default generator."""
    return default_generator.get_state()


def set_rng_state(new_state: Tensor) -> None:
    """Let the default generator go on from a state of `get_rng_state`."""
    default_generator.set_state(new_state)


@block
def fork_rng(devices: Any = None, enabled: bool = True, *, device_type: str = "cuda") -> Iterator[None]:
    """Restore the default generator's state at the end of the block.

    One generator serves all devices, so it does not matter which are named.
    """
    if not enabled:
        yield
        return
    before = get_rng_state()
    try:
        yield
    finally:
        set_rng_state(before)


def is_key(value: Any) -> TypeGuard[jax.Array]:
    """Return True for an array of typed keys, as `jax.random.key` makes them."""
    return isinstance(value, jax.Array) and jax.numpy.issubdtype(value.dtype, jax.dtypes.prng_key)


@block
def use_key(key: Any) -> Iterator[Generator]:
    """Within the block this thread draws from `key`, a `jax.random` key or its data, which may be traced.

    >>> import jax, xgrad
    >>> def noise(key):
    ...     with xgrad.random.use_key(key):
    ...         return jax.numpy.asarray(xgrad.rand(2))
    >>> program = jax.jit(noise)
    >>> bool((program(jax.random.key(0)) == program(jax.random.key(1))).all())
    False
    """
    key = key._read() if isinstance(key, Tensor) else key
    inner = Generator()
    inner._seed = 0
    inner._key = jax.random.key_data(key) if is_key(key) else key
    outer, state.generator = state.generator, inner
    try:
        yield inner
    finally:
        state.generator = outer


# A checkpoint switches these for a block, and restores `state.random_log` and its like by assignments: the end of a
# `with` block may be interrupted before it begins.


def note_drawn(log: dict[Generator, Any]) -> None:
    """Add the generators in `log`, at the end of its block, to the log of an outer block that had not used them."""
    outer = state.random_log
    if outer is not None:  # the outer block found it in the same state
        for generator, key in log.items():
            outer.setdefault(generator, key)


def draw_again(log: dict[Generator, Any], generator: Generator | None) -> None:
    """Let this thread draw the numbers of the block that filled `log`; no generator advances.

    `generator` is the one that `use_key` had put in place of the default generator then.
    """
    state.random_again = {known: known._twin(key) for known, key in log.items()}
    state.random_log, state.generator = None, generator


_close_namespace(__name__)
