"""Modes: what of the thread's and the process's state a trace depends on, JAX's settings among it.

Read in each call, so in the quickest way that is public: the properties of `jax.config`, which follow the context
managers (`jax.default_matmul_precision("float32")`) of this thread, 0.1 µs each.
"""

from collections.abc import Callable
from typing import Any

import jax

from ..config import settings, state

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


def _getters(names: tuple[str, ...]) -> list[Callable[[Any], Any]]:
    """What reads settings, as properties do it: half of what asking for the attribute takes."""
    kind = type(_config)
    found = [getattr(vars(kind).get(name), "fget", None) for name in names]
    return [get or (lambda config, name=name: getattr(config, name)) for get, name in zip(found, names, strict=True)]


_getters_of_settings, _getters_of_eager = _getters(_SETTINGS), _getters(_EAGER)

NAMES = (
    "grad mode", "inference mode", "the view tracking", "the saved-tensor hooks", "saved-tensor hooks disabled",
    "anomaly mode", "the layout policy", "compiled_backward", "mutation of saved tensors", "use_key",
    "the mesh", "autocast", "the default dtype",
    *(name.removeprefix("jax_").removeprefix("enable_") for name in _SETTINGS),
)  # fmt: skip


def modes() -> tuple:
    """What of the thread's and the process's state a trace depends on, as in `NAMES`."""
    return (
        state.grad_enabled,
        state.inference,
        state.tracking,
        state.saved_hooks,
        state.saved_hooks_disabled,
        state.anomaly,
        state.grad_layout,
        state.compiled,
        state.mutation_allowed,
        state.generator is None,
        state.mesh,
        state.autocast,
        settings.default_dtype,
        *[get(_config) for get in _getters_of_settings],
    )


def eager() -> bool:
    """Whether JAX is asked not to compile (`disable_jit`), or each operation is looked at (`debug_nans`, anomalies)."""
    return state.anomaly or any(get(_config) for get in _getters_of_eager)


_OF_THREAD = (
    "grad_enabled", "inference", "tracking", "saved_hooks", "saved_hooks_disabled", "anomaly", "grad_layout",
    "compiled", "mutation_allowed", "generator", "mesh", "autocast",
)  # fmt: skip


def taken() -> tuple:
    """The modes of the thread, and the default dtype, to be compared and put back (`left`)."""
    return (*[getattr(state, name) for name in _OF_THREAD], settings.default_dtype)


def left(before: tuple) -> str | None:
    """Put the modes back as they were taken; the name of one that was left on."""
    names = [name for name, a, b in zip(NAMES, before, taken(), strict=False) if a is not b and a != b]
    if not names:
        return None
    for name, value in zip(_OF_THREAD, before, strict=False):
        setattr(state, name, value)
    settings.default_dtype = before[-1]
    return names[0]
