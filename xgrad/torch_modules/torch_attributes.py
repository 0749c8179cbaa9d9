"""For `as_torch()`, defines PyTorch's names that packages import and xgrad does not need: TorchVersion, _ntuple, ..."""

import functools
import multiprocessing
import types
from collections.abc import Callable, Iterable
from typing import Any, Dict, List, Optional, Tuple, TypeVar, Union  # noqa: F401, UP035 - of torch.jit.annotations

import jax

from .. import overrides
from ..accelerator import current_accelerator
from ..autograd.grad_mode import no_grad, set_grad_enabled
from ..base.devices import device
from ..base.unsupported import refused
from ..dispatch.tables import FUNCTIONS
from ..nn.conversion import parsed
from ..nn.modules.utils import _ntuple, _pair, _quadruple, _single, _triple  # noqa: F401 - handed on
from ..tensor import Tensor


class TorchVersion(str):
    """A version as text that is compared as a version, with text and tuples too."""

    __slots__ = ()

    def _key(self) -> tuple[int, ...]:
        return tuple(int(part) for part in self.partition("+")[0].split(".")[:3])

    def __lt__(self, other: Any) -> bool:
        return self._key() < _version(other)

    def __eq__(self, other: Any) -> bool:
        return str.__eq__(self, other) is True or (not isinstance(other, str) and self._key() == _version(other))

    def __hash__(self) -> int:
        return str.__hash__(self)

    def __le__(self, other: Any) -> bool:
        return self._key() <= _version(other)

    def __gt__(self, other: Any) -> bool:
        return self._key() > _version(other)

    def __ge__(self, other: Any) -> bool:
        return self._key() >= _version(other)


def _version(other: Any) -> tuple[int, ...]:
    if isinstance(other, str):
        parts = []
        for part in other.partition("+")[0].split(".")[:3]:
            digits = "".join(c for c in part if c.isdigit())
            parts.append(int(digits or 0))
        return tuple(parts)
    release = getattr(other, "release", other)  # a packaging.version.Version
    return tuple(int(part) for part in release)


VERSION: TorchVersion = TorchVersion("2.13.0+xgrad")
BUILD = types.SimpleNamespace(show=lambda: f"xgrad, on JAX {jax.__version__}")  # of torch.__config__
_EXTRA_STATE_KEY_SUFFIX = "_extra_state"  # of torch.nn.modules.module

cuda = hip = rocm = xpu = None  # of torch.version
git_version, debug = "", False

_is_profiler_enabled = True  # of autograd.profiler: programs name their ranges then, for JAX's profiler too

_ASKED = "get_start_method get_all_start_methods get_context current_process parent_process active_children cpu_count"
globals().update({name: getattr(multiprocessing, name) for name in _ASKED.split()})  # of torch.multiprocessing

T = TypeVar("T")
TensorType = TensorBase = _TensorBase = TensorMeta = _TensorMeta = type(Tensor)
TensorBase = _TensorBase = Tensor


def identity(fn: Any = None, *args: Any, **options: Any) -> Any:
    """Return a function as it is: a decorator of PyTorch's that has no meaning here."""
    return fn if callable(fn) else identity


dynamo_config = types.SimpleNamespace(verbose=False, suppress_errors=False, cache_size_limit=8)  # takes any option
_disable_dynamo = _use_grad_for_differentiable_like = disable = allow_in_graph = identity
_overload = _overload_method = _copy_to_script_wrapper = _script_if_tracing = identity
BroadcastingList1 = BroadcastingList2 = BroadcastingList3 = BroadcastingList4 = BroadcastingList5 = list


def has_torch_function_variadic(*args: Any) -> bool:
    """Return True if one of the arguments' classes has an override."""
    return overrides.has_xgrad_function(args)


has_torch_function_unary = has_torch_function_variadic


def disabled_override(cls: Any, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
    """Run a function on plain tensors: `__torch_function__ = torch._C._disabled_torch_function_impl`."""
    with overrides.disable_overrides():
        return func(*args, **(kwargs or {}))


def assert_(condition: Any, message: str = "") -> None:
    """Raise `AssertionError` with the message unless the condition holds."""
    if not condition:
        raise AssertionError(message)


def _assert_async(condition: Any, message: str = "Expected Tensor with single nonzero value") -> None:
    """Raise `RuntimeError` unless a tensor's one element is true; it is waited for, unlike on PyTorch's GPUs."""
    if not condition:
        raise RuntimeError(message)


def _shape_as_tensor(input: Tensor) -> Tensor:
    """Return a tensor's shape as a vector."""
    return FUNCTIONS[""]["tensor"](tuple(input.shape))


def _parse_to(*args: Any, **options: Any) -> tuple[Any, Any, bool, Any]:
    """Return the device, the dtype, non_blocking and memory_format that arguments of `to` ask for."""
    where, dtype = parsed(args, options.get("device"), options.get("dtype"))
    blocking = bool(options.get("non_blocking")) or any(value is True for value in args)
    return None if where is None else device(where), dtype, blocking, options.get("memory_format")


def _get_accelerator(check: Any = None) -> device:
    """Return the device on which tensors are made, without its number."""
    return current_accelerator() or device("cpu")


def _is_all_true(input: Tensor) -> Tensor:
    """Return `input.all()`."""
    return FUNCTIONS[""]["all"](input)


def _is_any_true(input: Tensor) -> Tensor:
    """Return `input.any()`."""
    return FUNCTIONS[""]["any"](input)


def _get_tracing_state() -> None:
    """Return None: nothing is traced for TorchScript."""


def _log_api_usage_once(*args: Any, **options: Any) -> None: ...


_log_api_usage_metadata = set_logs = _log_api_usage_once
mark_dynamic = maybe_mark_dynamic = mark_static = mark_static_address = graph_break = _log_api_usage_once  # of _dynamo


def _is_tracing(*args: Any) -> bool:
    return False


def is_in_onnx_export() -> bool:
    """Return False: xgrad has no exporter."""
    return False


_cuda_isCurrentStreamCapturing = _is_tracing  # noqa: N816 - PyTorch's name


def is_compile_supported(device_type: str) -> bool:
    """Return True: functions are compiled for each device."""
    return True


def _flatten_dense_tensors(tensors: Iterable[Tensor]) -> Tensor:
    """Return all tensors' elements in one vector."""
    return FUNCTIONS[""]["cat"]([tensor.reshape(-1) for tensor in tensors])


def _unflatten_dense_tensors(flat: Tensor, tensors: Iterable[Tensor]) -> tuple[Tensor, ...]:
    """Return the parts of a vector in the shapes of `tensors`."""
    parts, start = [], 0
    for tensor in tensors:
        parts.append(flat[start : start + tensor.numel()].reshape(tensor.shape))
        start += tensor.numel()
    return tuple(parts)


def _group_tensors_by_device_and_dtype(tensorlistlist: Any, with_indices: bool = False) -> dict[Any, Any]:
    groups: dict[Any, Any] = {}
    for i, first in enumerate(tensorlistlist[0]):
        lists, indices = groups.setdefault((first.device, first.dtype), ([[] for _ in tensorlistlist], []))
        for part, whole in zip(lists, tensorlistlist, strict=True):
            part.append(whole[i] if whole else None)
        indices.append(i)
    return groups


def _default_to_fused_or_foreach(params: Any, differentiable: bool, use_fused: bool = False) -> tuple[bool, bool]:
    """Return (fused, foreach), the forms of an update that an optimizer takes by itself: on the CPU neither."""
    return False, not differentiable and all(p is None or p.device.type != "cpu" for p in params)


def _get_capturable_supported_devices(supports_xla: bool = True) -> list[str]:
    return ["cpu", "cuda", "tpu"]  # a step with capturable=True is an ordinary one here


def _use_grad_for_differentiable(func: Callable[..., Any]) -> Callable[..., Any]:
    """Return an optimizer's step that is recorded only if the option `differentiable` is on."""

    @functools.wraps(func)
    def step(self: Any, *args: Any, **kwargs: Any) -> Any:
        with set_grad_enabled(self.defaults["differentiable"]):
            return func(self, *args, **kwargs)

    return step


def _get_activation_fn(activation: str) -> Callable[..., Any]:
    """Return the function of nn.functional that a transformer's layer knows by name."""
    if activation not in ("relu", "gelu"):
        raise RuntimeError(f"activation should be relu/gelu, not {activation}")
    return FUNCTIONS["nn.functional"][activation]


def context_decorator(ctx: Any, func: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that calls `func` within `ctx()`."""

    @functools.wraps(func)
    def within(*args: Any, **kwargs: Any) -> Any:
        block: Any = ctx() if callable(ctx) else ctx
        with block:
            return func(*args, **kwargs)

    return within


class _NoParamDecoratorContextManager(no_grad): ...


_DecoratorContextManager = _NoParamDecoratorContextManager


_MODES = (
    "a function asks the classes of its arguments, and no mode",
    "Give a subclass of Tensor __torch_function__, or use xgrad.profiler, which sees every operator.",
)
DispatchKey = refused("_C", "DispatchKey", _MODES)
TorchFunctionMode = refused("overrides", "TorchFunctionMode", _MODES)
TorchDispatchMode = refused("utils._python_dispatch", "TorchDispatchMode", _MODES)


class DispatchKeySet:
    """A set of dispatch keys, which mean nothing here: packages join such sets when they are imported."""

    def __init__(self, *keys: Any) -> None: ...

    def __or__(self, other: Any) -> "DispatchKeySet":
        return self

    def __bool__(self) -> bool:
        return False


class required:
    """The mark of an optimizer's option without a default, in old packages."""


params_t = ParamsT = Any
_params_t = Any
_size = tuple  # of torch.types
_int, _float, _bool, _complex, _device, _dtype = int, float, bool, complex, Any, Any
_Number, _Device, _TensorOrTensors, _symint, FileLike, PySymType = (int, float, bool), Any, Any, int, Any, Any
