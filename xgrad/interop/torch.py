"""from_torch, to_torch: convert torch's tensors and `state_dict`s to xgrad's and back, without a copy where DLPack can.

Invariants: xgrad never writes to torch's memory (the first write copies a foreign storage, and none is donated);
integers are narrowed only if every value survives it; and no graph ends unnoticed: a tensor with a `grad_fn` is an
error.
"""

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from ..base import dtypes
from ..base.devices import placement_of, same_placement, settled
from ..base.platforms import start
from ..errors import DtypeDisabledError
from ..execution.runner import transferred
from ..nn.parameter import Parameter
from ..tensor import Tensor, from_foreign
from ..utils.dlpack import untied
from ..views.storage import Tracer, value_needed
from ._trees import called, leaves, mapped

try:
    import torch
except ImportError as _error:
    raise ImportError("xgrad.interop.torch needs PyTorch: pip install torch") from _error

_ALIGNED = 64  # bytes: XLA's alignment of arrays on the CPU; JAX copies an array that begins elsewhere, with a warning


def from_torch(tree: Any, *, device: Any = None, copy: bool | None = None) -> Any:
    """Return tensors of torch, or those in nested dicts, lists and tuples, as tensors of xgrad; anything else stays.

    device: a device or a Sharding; by default tensors stay where they are.
    copy: False shares the memory or raises `ValueError`, True never shares, None shares where that is possible and
    no write is expected: a leaf that requires grad and the values of a `state_dict` (of a module or an
    optimizer), which training changes in place, are copied.

    With shared memory, xgrad takes it for constant, as JAX does.  It never writes to it: the first in-place
    operation on the tensor copies.  But if *torch* writes to it later, the tensor changes with it, and so do values
    that were saved of it for backward, without an error.  Memory can be shared if it is contiguous, starts at a
    multiple of 64 bytes, and is on a device that both know.

    A leaf's `requires_grad` is copied, a `Parameter` stays one; `.grad` and hooks are not converted.  Tensors over the
    same elements (tied weights) share a storage afterwards too.

    Raises `RuntimeError` for a tensor with a `grad_fn`, `OverflowError` for 64-bit integers that don't fit into 32 bits
    while JAX's 64-bit mode is off (those that do, and float64, become numbers of 32 bits, as in `xgrad.tensor`),
    `TypeError` for tensors that XLA has no arrays for (sparse, quantized, complex32).

    >>> import torch, xgrad
    >>> from xgrad.interop.torch import from_torch
    >>> from_torch({"x": torch.ones(2), "name": "a batch"})
    {'x': tensor([1., 1.]), 'name': 'a batch'}
    >>> from_torch(torch.ones(2, requires_grad=True))
    tensor([1., 1.], requires_grad=True)
    """
    _check_tree("from_torch", tree, torch.Tensor)
    where = None if device is None else placement_of(device)
    known: dict[Any, Tensor] = {}
    changing = {id(leaf) for state in _states(tree) for _, leaf in leaves(state)}
    found = [leaf for _, leaf in leaves(tree) if isinstance(leaf, torch.Tensor)]
    owned = {_elements(leaf) for leaf in found if copy is None and (leaf.requires_grad or id(leaf) in changing)}

    def convert(name: str, leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        own = copy is True or _elements(leaf) in owned
        return _from_torch(leaf, name, where, own, copy is False, known)

    return mapped(convert, tree)


def to_torch(tree: Any, *, copy: bool | None = None) -> Any:
    """Return tensors of xgrad, or those in nested dicts, lists and tuples, as tensors of torch; anything else stays.

    copy: False shares the memory or raises `ValueError`, True never shares, None shares where that is possible, but
    for a leaf that requires grad, which torch is expected to change in place.

    With shared memory: torch has no read-only tensors, so an in-place operation of *torch* on the result changes the
    tensor here, the values that were saved of it for backward, and JAX arrays that were made from it, without an error.
    Ask for a copy if there may be one.  In-place operations of *xgrad* never show there: the next one copies.

    A leaf's `requires_grad` is copied, a `Parameter` stays one; `.grad` and hooks are not converted.  Tensors on
    several devices are gathered, those on devices that torch does not have copied to the CPU.

    Raises `RuntimeError` for a tensor with a `grad_fn`, `TracedValueError` for one without a value, `TypeError` for a
    sparse one.

    >>> import torch, xgrad
    >>> from xgrad.interop.torch import to_torch
    >>> to_torch([xgrad.arange(3.0), 5])
    [tensor([0., 1., 2.]), 5]
    """
    _check_tree("to_torch", tree, Tensor)
    known: dict[Any, Any] = {}

    def convert(name: str, leaf: Any) -> Any:
        return _to_torch(leaf, name, copy, known) if isinstance(leaf, Tensor) else leaf

    return mapped(convert, tree)


def _check_tree(function: str, tree: Any, kind: type) -> None:
    if not isinstance(tree, (kind, dict, list, tuple)):
        hint = ": convert its state_dict()" if hasattr(tree, "state_dict") else ""
        raise TypeError(
            f"{function}() takes {kind.__module__.partition('.')[0]}.Tensor, or dicts, lists and tuples of them, but "
            f"got {type(tree).__module__}.{type(tree).__qualname__}{hint}"
        )


def _states(tree: Any) -> Iterator[dict]:
    """Yield the `state_dict`s of modules and optimizers in a tree."""
    if isinstance(tree, dict) and (hasattr(tree, "_metadata") or set(tree) == {"state", "param_groups"}):
        yield tree
    elif isinstance(tree, (dict, list, tuple)):
        for below in tree.values() if isinstance(tree, dict) else tree:
            yield from _states(below)


# -- from torch -------------------------------------------------------------------------------------------------------


def _from_torch(source: Any, name: str, where: Any, own: bool, must_share: bool, known: dict) -> Tensor:
    """Convert one tensor.  `own`: in memory of its own; `known`: this call's tensors, by object and by elements."""
    if id(source) in known:
        return known[id(source)]
    dtype = _dtype_of(source, name)
    if source.grad_fn is not None:
        raise RuntimeError(
            f"{called(name)}can't convert a torch tensor that requires grad and has a grad_fn "
            f"({type(source.grad_fn).__name__}): its graph would end here. Use tensor.detach()."
        )
    elements = _elements(source)
    tensor = known.get(elements) if source.numel() else None
    if tensor is None:
        tensor = known[elements] = from_foreign(_array_of(source, dtype, name, where, own, must_share))
    else:
        tensor = tensor.detach()
    if isinstance(source, torch.nn.Parameter):
        tensor = Parameter(tensor, source.requires_grad)
    elif source.requires_grad:
        tensor.requires_grad_()
    known[id(source)] = tensor
    return tensor


def _elements(source: Any) -> Any:
    """Return what two tensors over the same elements have in common; for other layouts, the tensor's id."""
    if source.layout != torch.strided or source.is_nested:
        return id(source)
    signs = (source.is_conj(), source.is_neg())  # the same memory, read as other values
    return source.device, source.data_ptr(), source.dtype, source.shape, source.stride(), signs


def _dtype_of(source: Any, name: str) -> np.dtype:
    """Return the dtype of a tensor that can become an array.  Raises `TypeError` for others."""
    unfit = (
        "a nested one: convert its unbind()" if source.is_nested
        else f"one of layout {source.layout}: convert its to_dense()" if source.layout != torch.strided
        else "a quantized one: convert its dequantize()" if source.is_quantized
        else "one on the meta device, which has no values" if source.is_meta
        else None
    )  # fmt: skip
    if unfit is not None:
        raise TypeError(f"{called(name)}xgrad makes dense tensors of torch's dense ones, but this is {unfit}")
    found = getattr(dtypes, str(source.dtype).partition(".")[2], None)
    if found is None:
        raise TypeError(f"{called(name)}XLA has no arrays of {source.dtype}: cast the tensor first")
    if found in dtypes.INEXACT:
        try:
            dtypes.as_dtype(found)
        except DtypeDisabledError as error:
            raise DtypeDisabledError(f"{called(name)}{error}") from None
    return found


def _array_of(source: Any, dtype: np.dtype, name: str, where: Any, own: bool, must_share: bool) -> jax.Array:
    tensor = source.detach().resolve_conj().resolve_neg().contiguous()
    known = _known_to_jax(tensor.device.type)
    narrows = dtype in dtypes.WIDE and not dtypes.x64_enabled()
    if not known:
        tensor = tensor.cpu()
    if tensor.device.type == "cpu" and tensor.data_ptr() % _ALIGNED:
        tensor = tensor.clone()
    shares = tensor.data_ptr() == source.data_ptr()
    if must_share and (narrows or not shares):
        why = (
            f"{dtype.name} becomes {dtypes.WIDE[dtype]} while JAX's 64-bit mode is off" if narrows
            else f"JAX does not know its device, {source.device}" if not known
            else "it is not contiguous" if not source.is_contiguous() or source.is_conj() or source.is_neg()
            else f"its first element is not at a multiple of {_ALIGNED} bytes"
        )  # fmt: skip
        raise ValueError(f"{called(name)}can't share the memory of this tensor, because {why}: leave copy out")
    if own and shares:
        tensor = tensor.clone()
    if narrows:
        tensor = _narrowed(tensor, dtype, name)
        dtype = np.dtype(dtypes.WIDE[dtype])
    if tensor.device.type == "cpu" and not _known_to_jax("cpu"):
        tensor = _host_view(tensor, dtype)
    else:
        array = jax.dlpack.from_dlpack(tensor)
        where = settled(where, array.shape)
        if where is None:
            return untied(array)
        if same_placement(where, array.sharding, array.ndim):
            return array
        if must_share:
            raise ValueError(f"{called(name)}can't share memory with another device, {where}: leave copy out")
        tensor = array
    return transferred(tensor, settled(where, tensor.shape))


def _narrowed(tensor: Any, dtype: np.dtype, name: str) -> Any:
    """Return numbers of 64 bits as numbers of 32, integers with the same values."""
    small = tensor.to(getattr(torch, dtypes.WIDE[dtype]))
    if dtype not in dtypes.INEXACT and not torch.equal(small.to(tensor.dtype), tensor):
        raise OverflowError(
            f"{called(name)}an integer of this {dtype.name} tensor does not fit into {dtypes.WIDE[dtype]}, and JAX's "
            "64-bit mode is off: enable it with jax.config.update('jax_enable_x64', True)"
        )
    return small


def _known_to_jax(kind: str) -> bool:
    """Return True if JAX has devices of torch's type cpu, cuda, ..."""
    start()
    try:
        return bool(jax.devices({"cuda": "gpu", "hip": "gpu"}.get(kind, kind)))
    except RuntimeError:
        return False


def _host_view(tensor: Any, dtype: np.dtype) -> np.ndarray:
    """Return the same memory as a NumPy array, of a dtype that torch's own `numpy()` may not know."""
    return tensor.reshape(-1).view(torch.uint8).numpy().view(dtype).reshape(tuple(tensor.shape))


def host_array(source: Any, name: str) -> np.ndarray | None:
    """Return a CPU tensor as a NumPy array, over the same memory if that is contiguous; None if it is elsewhere."""
    dtype = _dtype_of(source, name)
    if source.device.type != "cpu":
        return None
    if source.requires_grad:
        raise RuntimeError(f"{called(name)}this torch tensor requires grad: its graph would end here. Use detach().")
    return _host_view(source.resolve_conj().resolve_neg().contiguous(), dtype)


# -- to torch ---------------------------------------------------------------------------------------------------------


def _to_torch(source: Tensor, name: str, copy: bool | None, known: dict) -> Any:
    """Convert one tensor; `known`: this call's tensors, by object and by elements."""
    if id(source) in known:
        return known[id(source)]
    if source._sparse or source._level is not None:
        what = "a sparse one: convert its to_dense()" if source._sparse else "one inside of vmap"
        raise TypeError(f"{called(name)}torch gets dense tensors of xgrad's dense ones, but this is {what}")
    if source.requires_grad and not source.is_leaf:
        raise RuntimeError(
            f"{called(name)}can't convert a Tensor that requires grad and has a grad_fn ({source.grad_fn}): its graph "
            "would end here. Use tensor.detach()."
        )
    own = copy is True or (copy is None and source.requires_grad)
    elements = id(source) if source._storage is None else (id(source._storage), source._chain, own)
    tensor = known.get(elements)
    if tensor is None:
        array = source._read() if own else source._export()
        if isinstance(array, Tracer):
            raise value_needed(
                array,
                f"{called(name)}a tensor that is being traced (inside jax.jit, jax.vmap or jax.grad) has no value "
                "for torch. Return it, and convert it outside.",
            )
        tensor, shares = _exported(array, name)
        if copy is False and not shares:
            raise ValueError(
                f"{called(name)}can't share memory with torch, which has no tensor on {array.sharding}: leave copy out"
            )
        tensor = known[elements] = tensor.clone() if own and shares else tensor
    else:
        tensor = tensor.detach()
    if isinstance(source, Parameter):
        tensor = torch.nn.Parameter(tensor, source.requires_grad)
    elif source.requires_grad:
        tensor.requires_grad_()
    known[id(source)] = tensor
    return tensor


def _exported(array: jax.Array, name: str) -> tuple[Any, bool]:
    """Return an array as a tensor of torch, and True if they share memory."""
    if len(array.sharding.device_set) == 1:
        platform = next(iter(array.sharding.device_set)).platform
        if platform == "cpu" or (platform == "gpu" and torch.cuda.is_available()):
            return torch.from_dlpack(array), True
    if not array.is_fully_addressable:
        raise RuntimeError(
            f"{called(name)}this process sees a part of the tensor only ({array.sharding}): gather it first, with "
            "jax.experimental.multihost_utils.process_allgather"
        )
    host = np.array(array)
    dtype = getattr(torch, host.dtype.name)
    if not host.size:
        return torch.empty(host.shape, dtype=dtype), False
    return torch.frombuffer(host.reshape(-1).view(np.uint8), dtype=dtype).reshape(host.shape), False
