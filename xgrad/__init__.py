"""xgrad: PyTorch's eager API and autograd on JAX arrays, which have no strides.

core    autograd itself: base, execution (programs, lazy queues, donated writes), views, tensor, overrides, engine,
        random, dispatch, batching, tensor_methods, ops, sparse, autograd
shell   PyTorch's names on the core: nn, optim, func, compiler (`xgrad.compile`), amp, fft, linalg, cuda, ...
tools   viz, comparison, conformance, backends, chips, cli, interop, serialization, torch_modules, ...

Read the core in this order: tensor.py, views/, engine/, dispatch/, ops/, autograd/.  It imports nothing of the shell.
docs/inside.md says more.
"""

__version__ = "0.1.0"

import gc as _gc
import importlib as _importlib
import os as _os
import sys as _sys
from math import e as e
from math import inf as inf
from math import nan as nan
from math import pi as pi
from typing import Any as _Any

try:
    _collects = _gc.isenabled()
    _gc.disable()  # a collection within the import walks over all objects of JAX: a quarter of the import's time
    from .compile_cache import enable_as_asked as _enable_as_asked

    _enable_as_asked()  # before there are programs
    from . import attach as attach
    from . import ops as ops
except Exception as _error:  # JAX is not installed, is too old, or does not fit its jaxlib or numpy
    from .cli.requirements import clashes as _clashes

    for _clash in _clashes():
        _error.add_note(f"{_clash.what}: {_clash.command}")
    raise
finally:
    if _collects:  # pyright: ignore[reportPossiblyUnboundVariable]
        _gc.enable()
from . import autograd as autograd
from . import linalg as linalg
from . import nn as nn
from . import overrides as overrides
from . import random as random
from . import special as special
from .autograd.anomaly_mode import is_anomaly_check_nan_enabled as is_anomaly_check_nan_enabled
from .autograd.anomaly_mode import is_anomaly_enabled as is_anomaly_enabled
from .autograd.anomaly_mode import set_anomaly_enabled as set_anomaly_enabled
from .autograd.grad_mode import enable_grad as enable_grad
from .autograd.grad_mode import inference_mode as inference_mode
from .autograd.grad_mode import is_grad_enabled as is_grad_enabled
from .autograd.grad_mode import is_inference as is_inference
from .autograd.grad_mode import is_inference_mode_enabled as is_inference_mode_enabled
from .autograd.grad_mode import no_grad as no_grad
from .autograd.grad_mode import set_grad_enabled as set_grad_enabled
from .base import dtypes as dtypes
from .base.devices import device as device
from .base.devices import devices as devices
from .base.devices import get_default_device as get_default_device
from .base.devices import set_default_device as set_default_device
from .base.dtype_info import finfo as finfo
from .base.dtype_info import iinfo as iinfo
from .base.dtype_object import dtype as _dtype
from .base.dtype_object import get_default_dtype as get_default_dtype
from .base.dtype_object import of as _dtype_of
from .base.dtype_object import promote_types as promote_types
from .base.dtypes import *  # noqa: F403
from .base.dtypes import set_default_dtype as set_default_dtype
from .base.meshes import mesh as mesh
from .base.missing import without as _without
from .base.warn_always import is_warn_always_enabled as is_warn_always_enabled
from .base.warn_always import set_warn_always as set_warn_always
from .dispatch.tables import FUNCTIONS as _FUNCTIONS
from .execution import meta as _meta  # noqa: F401 - from now on the device "meta" is known
from .execution.lazily import lazy as lazy
from .execution.lazily import sync as sync
from .ops.create.constructors import BFloat16Tensor as BFloat16Tensor
from .ops.create.constructors import BoolTensor as BoolTensor
from .ops.create.constructors import ByteTensor as ByteTensor
from .ops.create.constructors import CharTensor as CharTensor
from .ops.create.constructors import DoubleTensor as DoubleTensor
from .ops.create.constructors import FloatTensor as FloatTensor
from .ops.create.constructors import HalfTensor as HalfTensor
from .ops.create.constructors import IntTensor as IntTensor
from .ops.create.constructors import LongTensor as LongTensor
from .ops.create.constructors import ShortTensor as ShortTensor
from .ops.create.constructors import set_default_tensor_type as set_default_tensor_type
from .ops.create.constructors import tensortype as tensortype
from .random import Generator as Generator
from .random import default_generator as default_generator
from .random import fork_rng as fork_rng
from .random import get_rng_state as get_rng_state
from .random import initial_seed as initial_seed
from .random import manual_seed as manual_seed
from .random import seed as seed
from .random import set_rng_state as set_rng_state
from .tensor import Size as Size
from .tensor import Tensor as Tensor
from .tensor_methods.storages import TypedStorage as TypedStorage
from .tensor_methods.storages import UntypedStorage as UntypedStorage

newaxis = None  # x[:, newaxis] has one dimension more

for _name in ("devices", "dtype_info", "dtype_object", "meshes", "size"):  # pickles of version 0.1 name these modules
    _sys.modules[f"xgrad.{_name}"] = _importlib.import_module(f"xgrad.base.{_name}")

globals().update(_FUNCTIONS[""])
globals().update({name: _dtype_of(getattr(dtypes, name)) for name in dtypes.__all__ if name != "dtype"})
globals()["dtype"] = _dtype  # `from .base.dtypes import *` has NumPy's

# Layouts and memory formats, accepted where PyTorch accepts them: every dense array here is row-major.
strided: str = "strided"
sparse_coo: str = "sparse_coo"
sparse_csr: str = "sparse_csr"
sparse_csc: str = "sparse_csc"
sparse_bsr: str = "sparse_bsr"
sparse_bsc: str = "sparse_bsc"
contiguous_format: str = "contiguous_format"
preserve_format: str = "preserve_format"
channels_last: str = "channels_last"
channels_last_3d: str = "channels_last_3d"
layout = memory_format = str  # the types of these: isinstance(x.layout, xgrad.layout)


# Names that are loaded at their first use, by the module that has them ("": modules themselves).  Together they would
# add a fifth to xgrad's own import.
_LATER = {name: home for home, names in {
    "": """
        accelerator amp backends chips compiler conformance cpu cuda distributed distributions fft func
        interop jit library masked optim profiler serialization signal sparse testing types utils version viz""",
    "accelerator": "get_device_module mps mtia xpu",
    "amp.autocast_mode": "autocast",
    "amp.grad_scaler": "GradScaler",
    "amp.settings": """
        autocast_decrement_nesting autocast_increment_nesting clear_autocast_cache get_autocast_cpu_dtype
        get_autocast_dtype get_autocast_gpu_dtype is_autocast_cache_enabled is_autocast_cpu_enabled
        is_autocast_enabled set_autocast_cache_enabled set_autocast_cpu_dtype set_autocast_cpu_enabled
        set_autocast_dtype set_autocast_enabled set_autocast_gpu_dtype""",
    "backends": "Backend Cost Event Stream ViewRule",
    "base.sizes": "SymBool SymFloat SymInt sym_float sym_int sym_max sym_min sym_not sym_sqrt sym_sum",
    "base.switches": """
        are_deterministic_algorithms_enabled get_deterministic_debug_mode get_float32_matmul_precision
        get_num_interop_threads get_num_threads is_deterministic_algorithms_warn_only_enabled
        set_deterministic_debug_mode set_float32_matmul_precision set_flush_denormal set_num_interop_threads
        set_num_threads use_deterministic_algorithms""",
    "chips": "target",
    "comparison.compare": "compare",
    "compile_cache": "compile_cache_info disable_compile_cache enable_compile_cache",
    "compiler": "compile",
    "control_flow": "cond while_loop",
    "func": "vmap",
    "interop.jax": "from_jax to_jax",
    "library.tags": "Tag",
    "ops.aten": """
        grid_sampler grid_sampler_2d grid_sampler_3d native_batch_norm native_dropout native_group_norm
        native_layer_norm""",
    "serialization": "load save",
    "torch_modules": "as_torch",
    "utils.dlpack": "from_dlpack",
}.items() for name in names.split()}  # fmt: skip


def _found(name: str) -> _Any:
    home = _LATER.get(name)
    if home == "":
        return _importlib.import_module(f"xgrad.{name}")
    if home is not None:
        found = globals()[name] = getattr(_importlib.import_module(f"xgrad.{home}"), name)
        return found
    if name.startswith("_foreach_"):  # packages ask for these by name, and few programs do
        functions = _importlib.import_module("xgrad.ops.foreach").FOREACH
        if name in functions:
            return functions[name]
    return _without(__name__, name)


globals()["__getattr__"] = _found  # type checkers do not see it: a misspelt name is an error


# Modules for users that are loaded already.  Python puts the others that are imported into this one's globals too.
_PUBLIC = {"autograd", "config", "errors", "linalg", "nn", "overrides", "random", "return_types", "special", "views"}


def __dir__() -> list[str]:
    """Return the names that users may use, which `__all__` has too."""
    modules = {name for name, value in globals().items() if isinstance(value, type(_os))}
    shown = {"__version__"} | {name for name in globals() if not name.startswith("_")}
    return sorted((shown - modules) | _PUBLIC | _LATER.keys())


globals()["__all__"] = __dir__()  # made at run time, which type checkers do not follow: they see the imports above
