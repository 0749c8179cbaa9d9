"""Makes the errors for names that a module of xgrad does not have: they show close matches, or what to use instead.

`torch_names.txt` has PyTorch's public names (scripts/make_torch_names.py writes it), `_ADVICE` what takes their place.
It is all looked up when the error is shown, so that `hasattr`, which asks for many such names, costs nothing.
"""

import difflib
import sys
from functools import cache, partial
from pathlib import Path
from typing import Any

from .unsupported import unsupported

_MEMORY = "Ask JAX: jax.local_devices()[0].memory_stats()."
_DEVICES = "The devices are those that JAX sees: xgrad.devices() lists them, x.to('cuda') or x.to('tpu') names one."
_RNG = "One generator serves all devices: xgrad.manual_seed, get_rng_state, set_rng_state and fork_rng."
_MESH = "One process drives many devices: xgrad.mesh, x.to(PartitionSpec(...)), xgrad.distributed.from_local."
_STORAGES = "A storage is what x.untyped_storage() describes; xgrad.tensor makes tensors."
_NARROW = "XLA has no arrays of it: the smallest are int8, uint8, float8_e4m3fn and float8_e5m2."
_SYMBOLIC = "Sizes are Python's integers here: use math, max, min, int."
_QUANTIZED = "XLA has no quantized tensors: keep integers and their scale."

# {namespace: {names, or "*" for all of the namespace and for itself: what to use}}
_ADVICE: dict[str, dict[str, str]] = {
    "": {
        """BoolStorage ByteStorage CharStorage DoubleStorage FloatStorage IntStorage LongStorage ShortStorage
        HalfStorage BFloat16Storage ComplexFloatStorage ComplexDoubleStorage Storage storage""": _STORAGES,
        """int1 int2 int3 int4 int5 int6 int7 uint1 uint2 uint3 uint4 uint5 uint6 uint7 bit bits8 bits16 bits1x8 bits2x4
        bits4x2 float4_e2m1fn_x2 float8_e8m0fnu""": _NARROW,
        "qscheme per_tensor_symmetric per_channel_symmetric quint4x2 quint2x4": _QUANTIZED,
        "sym_ite": _SYMBOLIC,
        "OutOfMemoryError": "Catch xgrad.errors.OutOfMemoryError.",
        "eig": "Use xgrad.linalg.eig.",
        "symeig": "Use xgrad.linalg.eigh.",
        "lstsq": "Use xgrad.linalg.lstsq.",
        "solve": "Use xgrad.linalg.solve.",
        "matrix_rank": "Use xgrad.linalg.matrix_rank.",
        "from_file": "Use xgrad.from_numpy(numpy.memmap(path, dtype)).",
    },
    "cuda": {
        """memory_stats memory_stats_as_nested_dict memory_summary memory_snapshot memory_cached memory
        max_memory_cached mem_get_info memory_usage device_memory_used host_memory_stats reset_max_memory_cached
        reset_accumulated_memory_stats list_gpu_processes set_per_process_memory_fraction
        get_per_process_memory_fraction MemPool use_mem_pool""": _MEMORY,
        "seed seed_all initial_seed random": _RNG,
        """device device_of get_device_capability get_arch_list
        can_device_access_peer""": _DEVICES,
        "nccl": _MESH,
        "profiler nvtx": "Use jax.profiler.trace, or xgrad.profiler.",
        "cudart jiterator tunable": "It is CUDA's own; leave it out.",
    },
    "distributed": {"*": _MESH},
    "cpu": {"*": _DEVICES},
    "mps": {"*": _DEVICES},
    "xpu": {"*": _DEVICES},
    "mtia": {"*": _DEVICES},
    "accelerator": {"*": _DEVICES},
    "compiler": {"*": "xgrad.compile makes programs of a function or a training step."},
    "overrides": {"*": "Classes override operators by __xgrad_function__ (xgrad.overrides)."},
}


class MissingNameError(AttributeError):
    """A namespace has no such name.  The text is made when it is asked for."""

    def __init__(self, module: str, name: str) -> None:
        # Without a `name`, Python adds no guess of its own to the text: with neither, it would note both.
        super().__init__(module, name, obj=sys.modules.get(module))
        self._module, self._asked = module, name

    def __str__(self) -> str:
        return _text(self._module, self._asked)


def close_namespace(module: str) -> None:
    """Have `dir()` of a module show its `__all__`, where it has one, and `without` answer for the names that it lacks.

    Type checkers do not see this `__getattr__`: a misspelt name is an error to them.
    """
    namespace = vars(sys.modules[module])
    namespace["__getattr__"] = partial(without, module)
    if "__all__" in namespace:
        namespace["__dir__"] = lambda: sorted(namespace["__all__"])


def without(module: str, name: str) -> Any:
    """Return what stands for a name that a module does not support, and raise `MissingNameError` for any other one.

    >>> import xgrad
    >>> xgrad.linalg.svdd
    Traceback (most recent call last):
    xgrad.base.missing.MissingNameError: module 'xgrad.linalg' has no attribute 'svdd'. Did you mean svd?
    """
    if (found := unsupported(module.partition(".")[2], name)) is not None:
        return found
    raise MissingNameError(module, name)


@cache
def _torch_names() -> dict[str, frozenset[str]]:
    lines = Path(__file__).with_name("torch_names.txt").read_text().splitlines()
    return {space: frozenset(names.split()) for space, _, names in (line.partition(":") for line in lines)}


def public_names(place: str) -> frozenset[str]:
    """Return the public names of PyTorch's module `place` ("", "nn", ...)."""
    return _torch_names().get(place, frozenset())


def _text(module: str, name: str) -> str:
    text = f"module {module!r} has no attribute {name!r}"
    place = module.partition(".")[2]
    whole = f"{place}.{name}".lstrip(".")
    if whole in _torch_names() or whole in _ADVICE:
        hint = _ADVICE.get(whole, {}).get("*", "")
    elif name in _torch_names().get(place, ()):
        hint = hint_of(place, name) or _ADVICE.get(place, {}).get("*", "")
    else:
        return f"{text}. {hint_of(place, name) or _close(module, name)}".rstrip(". ")
    return f"{text}: PyTorch has torch.{whole}, xgrad has not. {hint}".rstrip()


def hint_of(place: str, name: str) -> str:
    """Return what to use in place of a name that PyTorch's module `place` has or had; "" if nothing is known."""
    module = f"xgrad.{place}".rstrip(".")
    for names, use in _ADVICE.get(place, {}).items():
        if name in names.split():
            return use
    for space, names in _torch_names().items():
        home = f"xgrad.{space}".rstrip(".")
        if name in names and home != module and home in sys.modules and name in dir(sys.modules[home]):
            return f"Use {home}.{name}."
    return ""


def _close(module: str, name: str) -> str:
    known = dir(sys.modules[module]) if module in sys.modules else []
    near = [n for n in known if n.lower() == name.lower()] or difflib.get_close_matches(name, known, 2, 0.75)
    return f"Did you mean {' or '.join(near)}?" if near else ""


def __dir__() -> list[str]:
    return []
