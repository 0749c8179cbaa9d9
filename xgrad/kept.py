"""Programs: `jax.jit`, and while the compile cache is on, executables that the next process loads without a trace.

JAX's cache spares the next process the compilation, but not the 8 ms of tracing and lowering without which its key is
not known.  Here a program has a *name* that is the same in each process (the operator, its static arguments, the mask
of wanted gradients), and name, arguments and settings tell which executable is meant: it is loaded in 1 ms.

Invariants: with the cache off, a program is what `jax.jit` gives, and no call is slower.  With it on, an executable
runs only what it was made for: arguments that `jax.jit` would not tell apart, the same settings, device and sources of
xgrad, and no trace around.  All else is left to `jax.jit`.  A name stands for one function; what has none is not kept.
"""

import dataclasses
import hashlib
import os
import pickle
import tempfile
import threading
from collections.abc import Callable
from operator import attrgetter
from pathlib import Path
from typing import Any

import jax
import jax.extend
import numpy as np
from jax.experimental.serialize_executable import deserialize_and_load, serialize

from . import programs
from .config import settings

# After so many calls `jax.jit` takes over.  Telling arguments apart in Python takes 4 µs a call, a trace 8 ms: by then
# the one has cost as much as the other, and from then on a long training is as fast as with the cache off.
CALLS = 2048

SUFFIX = ".program"
LOADED = "/xgrad/compile_cache/loaded"  # the event that jax.monitoring is told of


def keep_in(folder: Path | None) -> None:
    """Keep the executables of named programs that are made from now on in this folder; None: load and keep no more."""
    global _folder, _made_by
    if programs.keep is None:
        jax.monitoring.register_event_listener(_listen)
        _made_by = _sources()
    _folder, programs.keep = folder, _kept


def _kept(jitted: Any, name: Any, results: Any) -> Callable:
    text = told(name)
    return Kept(jitted, text, results) if text and _folder and _made_by else jitted


def told(value: Any) -> str | None:
    """A text that is the same in each process, and that no other value has; None for what has none."""
    kind = value.__class__
    if kind in _PLAIN or kind is str:
        return repr(value)
    if isinstance(value, (tuple, list)):
        parts = [told(part) for part in value]
    elif isinstance(value, np.dtype):
        parts = [value.name]
    elif dataclasses.is_dataclass(value) and kind is not type:
        parts = [told(getattr(value, field.name)) for field in dataclasses.fields(value)]
    else:
        name = getattr(value, "name_in_cache", None)
        parts = [None if name is None else told(name)]
    return None if None in parts else f"{kind.__module__}.{kind.__qualname__}({', '.join(map(str, parts))})"


# ---------------------------------------------------------------- what tells calls apart

_PLAIN = (bool, int, float, complex, None.__class__, np.uint32)  # arguments that their class tells (a seed is uint32)

_kinds: dict[type, Callable] = dict.fromkeys(_PLAIN, type)  # and JAX's class of arrays, which has no public name
_kinds[tuple] = lambda values: (*[_kinds[v.__class__](v) for v in values],)
_known = len(_kinds)
_kind_of_array = attrgetter("aval", "committed", "sharding")

# Under the first of these a call is more than running a program on what is given; the others change what is traced.
_UNUSUAL = 4
_settings = attrgetter(
    "jax_disable_jit", "jax_debug_nans", "jax_debug_infs", "jax_default_device", "jax_enable_x64",
    "jax_default_matmul_precision", "jax_numpy_dtype_promotion", "jax_default_prng_impl", "jax_threefry_partitionable",
)  # fmt: skip

# jax 0.7 has it in jax.core.
_trace_state: Any = getattr(jax.extend.core, "get_opaque_trace_state", None) or jax.core.get_opaque_trace_state  # pyright: ignore[reportAttributeAccessIssue]
_no_trace = _trace_state(convention="nnx")


class Kept:
    """A program whose executables are kept; called as `jax.jit(function)` is.

    `results`: the `programs.Results` that it gives, if it writes.
    """

    __slots__ = ("found", "jitted", "left", "results", "text")

    def __init__(self, jitted: Any, text: str, results: Any = None) -> None:
        self.jitted, self.text, self.results = jitted, text, results
        self.found: dict[Any, Callable] = {}  # by what tells calls apart, and by file
        self.left = 1  # calls until `jax.jit` takes over; each kind of call brings its own

    def __call__(self, *values: Any) -> Any:
        if self.left <= 0:
            return self.jitted(*values)
        try:
            kinds = [_kinds[v.__class__](v) for v in values]
        except KeyError:  # a tracer, say, or the first array of all
            return self(*values) if _learned_arrays() else self.jitted(*values)
        if _trace_state(convention="nnx") != _no_trace:
            return self.jitted(*values)
        key = (_settings(jax.config), settings.default_dtype, jax.sharding.get_abstract_mesh(), *kinds)
        run = self.found.get(key)
        if run is None:
            run = self.found[key] = self._executable(values) or self.jitted
            self.left += CALLS
        self.left -= 1
        return run(*values)

    def _executable(self, values: tuple) -> Callable | None:
        """Loaded, or compiled and then kept; None where `jax.jit` has to do it."""
        leaves, tree = jax.tree.flatten(values)
        folder, device = _folder, _device_of(leaves)
        if folder is None or device is None:
            return None
        of_arrays = [
            v.__class__ if v.__class__ in _PLAIN else
            (v.shape, v.dtype.name, v.weak_type, v.committed, v.sharding.memory_kind) for v in leaves
        ]  # fmt: skip
        of_process = [_made_by, _settings(jax.config), settings.default_dtype, sorted(jax.config.values.items())]
        of_device = [device, device.device_kind, device.client.platform_version, *map(os.environ.get, _FLAGS)]
        text = repr([self.text, str(tree), of_arrays, of_process, of_device])
        path = folder / (hashlib.sha256(text.encode()).hexdigest() + SUFFIX)
        # What jax 0.7 loads gives arrays of another sharding than what it compiles, though of the same text.
        found = self.found.get(path) or _load(path, device, self._tree())
        if found is None:
            before = _compiled.count
            lowered = self.jitted.lower(*values)
            found = lowered.compile()
            # XLA cannot write again what it has read from JAX's cache: such an executable lacks functions.  And what
            # calls LAPACK, say, crashes where nothing was lowered before, for that is when JAX registers it.
            if _compiled.count > before and "custom_call" not in lowered.as_text():
                _keep(path, found, self.results is None)
        if self.results is not None:
            self.results.clear()  # of tracers
            if programs.besides(found) > programs.SPARE:
                return None  # `run_writing` sees to it that there is memory
        self.found[path] = found
        return found

    def _tree(self) -> Any:
        """The structure of what a program gives that writes, None of others: files have it."""
        if self.results is None:
            return None
        tree = jax.tree.structure(self.results.holding(0))
        self.results.clear()
        return tree


def _learned_arrays() -> bool:
    """Whether JAX's class of arrays was not known until now."""
    if len(_kinds) > _known:
        return False
    with jax.ensure_compile_time_eval():
        _kinds[jax.device_put(np.int8(0)).__class__] = _kind_of_array
    return True


def _device_of(leaves: list) -> Any:
    """The device on which all arguments lie; None where JAX has more to decide than that."""
    if any(_settings(jax.config)[:_UNUSUAL]) or jax.process_count() > 1 or not jax.sharding.get_abstract_mesh().empty:
        return None
    first = jax.local_devices()[0]
    arrays = [v for v in leaves if v.__class__ not in _PLAIN]
    devices = set().union(*(a.devices() for a in arrays)) or {first}
    if len(devices) > 1 or (devices != {first} and not all(a.committed for a in arrays)):
        return None
    device = devices.pop()
    return device if device.platform == "cpu" else None  # on no other platform this was ever tried


# ---------------------------------------------------------------- files

_FLAGS = ("XLA_FLAGS", "LIBTPU_INIT_ARGS")

_folder: Path | None = None
_made_by = ""


def _sources() -> str:
    """What tells sources of xgrad apart, and releases of jax, which makes programs of them; "" if there are none."""
    package = Path(__file__).parent
    files = sorted(package.rglob("*.py"))
    found = hashlib.sha256(jax.__version__.encode())
    for file in files:
        content = file.read_bytes()
        found.update(f"{file.relative_to(package)} {len(content)}\n".encode() + content)
    return found.hexdigest() if files else ""


class _Compiled(threading.local):
    count = 0  # programs that this thread has compiled, and not found in JAX's cache


_compiled = _Compiled()


def _listen(event: str, **_: Any) -> None:
    _compiled.count += event == "/jax/compilation_cache/cache_misses"


def _mark(path: Path, data: bytes) -> bytes:
    """What a file begins with, so that it is whole, and not another one under its name."""
    return hashlib.sha256(path.name.encode() + data).digest()


def _load(path: Path, device: Any, tree: Any) -> Callable | None:
    """The executable in a file; None if there is none, or anything else."""
    try:
        data = path.read_bytes()
    except OSError:
        return None
    mark, data = data[:32], data[32:]
    if mark != _mark(path, data):
        return None
    try:
        program, given, gives = pickle.loads(data)  # the folder is private: compile_cache.py sees to that
        found = deserialize_and_load(program, given, tree or gives, backend=device.client, execution_devices=[device])
    except Exception:  # of XLA's: compiled code that it does not take here is compiled anew
        return None
    jax.monitoring.record_event(LOADED)
    return found


def _keep(path: Path, executable: Any, whole: bool) -> None:
    """Write an executable, at once or not at all; not every one can be written.

    `whole`: with the structure of what it gives.
    """
    try:
        program, given, gives = serialize(executable)
        data = pickle.dumps((program, given, gives if whole else None))
    except Exception:  # one with a callback to the host, say, or with large constants
        return
    try:
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            file.write(_mark(path, data) + data)
        os.replace(file.name, path)
    except OSError:  # the disk is full, or the folder gone: as JAX's cache, it is no reason to fail
        pass
