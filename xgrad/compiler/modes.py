"""Modes: what of the thread's and the process's state a trace depends on, JAX's settings among it.

Read in each call, so in the quickest way that is public: the properties of `jax.config`, which follow the context
managers (`jax.default_matmul_precision("float32")`) of this thread, 0.1 µs each.
"""

from collections.abc import Callable
from typing import Any

import jax

from ..config import INFERENCE_LEVEL, settings, state

# Names of JAX's settings that a program or its result depends on; a release may lack some.
_WANTED = (
    "jax_enable_x64", "jax_default_matmul_precision", "jax_numpy_dtype_promotion", "jax_numpy_rank_promotion",
    "jax_default_device", "jax_default_prng_impl", "jax_threefry_partitionable", "jax_random_seed_offset",
    "jax_softmax_custom_jvp", "jax_high_dynamic_range_gumbel", "jax_allow_f16_reductions", "jax_enable_checks",
    "jax_debug_key_reuse", "jax_check_static_indices", "jax_optimization_level", "jax_disable_most_optimizations",
    "jax_exec_time_optimization_effort", "jax_memory_fitting_effort",
)  # fmt: skip
# Those in which a compiled function runs as it is: there is to be no program, or each operation is to be looked at.
_EAGER = ("jax_disable_jit", "jax_debug_nans", "jax_debug_infs")

_config = jax.config
_SETTINGS = tuple(name for name in _WANTED if hasattr(_config, name))


def _reader(names: tuple[str, ...]) -> Callable[[Any], tuple]:
    """A function of `jax.config` that reads settings, as properties do it: half of what asking for the attribute takes.

    Its text calls one after the other, `(c0(config), c1(config), ...)`, which a loop would do in twice the time.
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
    "the mesh", "autocast", "the default dtype",
    *(name.removeprefix("jax_").removeprefix("enable_") for name in _SETTINGS + _EAGER),
)  # fmt: skip


def modes() -> tuple:
    """What of the thread's and the process's state a trace depends on, as in `NAMES`.

    Where `eager()`, they are not those of any trace.
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
        settings.default_dtype,
        *_read(_config),
    )


def eager() -> bool:
    """Whether JAX is asked not to compile (`disable_jit`), or each operation is looked at (`debug_nans`, anomalies)."""
    return state.anomaly or any(_read_eager(_config))


_OF_THREAD = (
    "grad_enabled", "inference", "tracking", "saved_hooks", "saved_hooks_disabled", "anomaly", "grad_layout",
    "compiled", "mutation_allowed", "generator", "mesh", "autocast",
)  # fmt: skip


def taken() -> tuple:
    """The modes in the order of `NAMES`, to be compared and put back (`left`)."""
    mine = [getattr(state, name) for name in _OF_THREAD]
    return (*mine, settings.default_dtype, *_read(_config))


def left(before: tuple) -> str | None:
    """Put the modes back as they were taken; the name of one that was left on."""
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
    """Whether a compiled function is part of something else here, and so runs as it is."""
    mine = state.__dict__
    return bool(
        mine["overlay"] is not None
        or mine["vmap_levels"]
        or mine["transforms"]
        or (mine["forward_level"] >= 0 and mine["forward_level"] != INFERENCE_LEVEL)
        or mine["operator_mode"] is not None
        or mine["recorder"] is not None
    )
