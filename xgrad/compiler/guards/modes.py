"""Reads the settings (of the thread, of xgrad, of JAX) that a trace of `xgrad.compile` depends on, for its guards.

`left` restores those that a traced function changed.  Each call of a compiled function reads the settings, so `modes`
reads them in the quickest public way: through the properties of `jax.config`, 0.1 µs each, which follow this thread's
context managers (`jax.default_matmul_precision("float32")`).
"""

from collections.abc import Callable
from typing import Any

import jax

from ...config import INFERENCE_LEVEL, settings, state
from ...engine.hooks import EVERYWHERE

# Names of JAX's settings that a program or its result depends on; a release may lack some.
_WANTED = (
    "jax_enable_x64", "jax_default_matmul_precision", "jax_numpy_dtype_promotion", "jax_numpy_rank_promotion",
    "jax_default_device", "jax_default_prng_impl", "jax_threefry_partitionable", "jax_random_seed_offset",
    "jax_softmax_custom_jvp", "jax_high_dynamic_range_gumbel", "jax_allow_f16_reductions", "jax_enable_checks",
    "jax_debug_key_reuse", "jax_check_static_indices", "jax_optimization_level", "jax_disable_most_optimizations",
    "jax_exec_time_optimization_effort", "jax_memory_fitting_effort",
)  # fmt: skip
# Settings with which a compiled function runs uncompiled: they switch compilation off, or inspect each operation.
_EAGER = ("jax_disable_jit", "jax_debug_nans", "jax_debug_infs")

_config = jax.config
_SETTINGS = tuple(name for name in _WANTED if hasattr(_config, name))


def _reader(names: tuple[str, ...]) -> Callable[[Any], tuple]:
    """Return a function of `jax.config` that reads settings by their properties' getters: half of an attribute's time.

    Its text calls one getter after the other, `(c0(config), c1(config), ...)`; a loop would take twice the time.
    """
    kind = type(_config)
    getters: dict[str, Any] = {}
    for i, name in enumerate(names):
        getter = getattr(vars(kind).get(name), "fget", None)
        getters[f"c{i}"] = getter or (lambda config, name=name: getattr(config, name))
    return eval(f"lambda config: ({' '.join(f'{c}(config),' for c in getters)})", getters)


_read = _reader(_SETTINGS + _EAGER)
_read_eager = _reader(_EAGER)

NAMES = (
    "grad mode", "inference mode", "the view tracking", "the saved-tensor hooks", "saved-tensor hooks disabled",
    "anomaly mode", "the layout policy", "compiled_backward", "mutation of saved tensors", "use_key",
    "the mesh", "autocast", "the default device", "the default dtype",
    *(name.removeprefix("jax_").removeprefix("enable_") for name in _SETTINGS + _EAGER),
    "the registered operators (xgrad.library), divergences and transforms, or switches of the process",
    "the hooks of all modules and optimizers",
)  # fmt: skip


def modes() -> tuple[Any, ...]:
    """Return the modes of this thread, of the process and of JAX, in the order of `NAMES`.

    With `eager()` they equal the modes outside of any trace.
    """
    mine = state.__dict__
    return (
        mine["grad_enabled"],
        mine["inference"],
        mine["tracking"],
        mine["saved_hooks"],
        mine["saved_hooks_disabled"],
        mine["anomaly"],
        mine["grad_layout"],
        mine["compiled"],
        mine["mutation_allowed"],
        mine["generator"] is None,
        mine["mesh"],
        mine["autocast"],
        mine["place"],
        settings.default_dtype,
        *_read(_config),
        settings.registrations,
        (*EVERYWHERE,),
    )


def eager() -> bool:
    """Return True if JAX is asked not to compile (`disable_jit`), or to check each operation (`debug_nans`, say)."""
    return state.anomaly or any(_read_eager(_config))


_OF_THREAD = (
    "grad_enabled", "inference", "tracking", "saved_hooks", "saved_hooks_disabled", "anomaly", "grad_layout",
    "compiled", "mutation_allowed", "generator", "mesh", "autocast", "place",
)  # fmt: skip


def taken() -> tuple[Any, ...]:
    """Return the modes in the order of `NAMES`, for `left` to compare and restore."""
    mine = [getattr(state, name) for name in _OF_THREAD]
    return (*mine, settings.default_dtype, *_read(_config))


def left(before: tuple[Any, ...]) -> str | None:
    """Restore the modes that differ from `before`; return the name of the first of them, or None."""
    changed = [i for i, (a, b) in enumerate(zip(before, taken(), strict=True)) if a is not b and a != b]
    for i in changed:
        if i < len(_OF_THREAD):
            setattr(state, _OF_THREAD[i], before[i])
        elif i == len(_OF_THREAD):
            settings.default_dtype = before[i]
        else:
            _config.update((_SETTINGS + _EAGER)[i - len(_OF_THREAD) - 1], before[i])
    return NAMES[changed[0]] if changed else None


def inlined() -> bool:
    """Return True if a compiled function is called inside of a trace, a transform or a mode, and so runs uncompiled."""
    mine = state.__dict__
    return bool(
        mine["overlay"] is not None
        or mine["vmap_levels"]
        or mine["transforms"]
        or (mine["forward_level"] >= 0 and mine["forward_level"] != INFERENCE_LEVEL)
        or mine["operator_mode"] is not None
        or mine["recorder"] is not None
    )
