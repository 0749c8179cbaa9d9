"""BatchedTensor: stands for one entry of a batch inside of `func.vmap`, and runs operators on the whole batch.

    vmap(f)(x), x of shape (B, 3)               inside of f
    x ── Tensor (B, 3)                          x ── BatchedTensor (3) ──value──► Tensor (B, 3)

Two invariants, the same as in PyTorch's functorch (torch/_functorch/vmap.py, aten/src/ATen/functorch):

* A BatchedTensor has *one entry's* shape and a place of its own in the graph.  Its value is a tensor of the level below
  with the batch as first dimension, with a place in that level's graph.  An operator runs on the values, where it is
  recorded if they require grad, and is recorded once more for the entries if these do.  So a gradient inside of vmap is
  one for each entry, and one outside goes through vmap.
* Views share their base's value, and a write goes to the value: aliasing is the same as at the level below.

An operator with arguments of several levels runs at the innermost first; below, there may be more BatchedTensors.
"""

from collections.abc import Callable
from typing import Any

from ..base.dtypes import INEXACT
from ..config import state
from ..dispatch.call import call
from ..dispatch.forward_mode import forward
from ..dispatch.inplace import call_inplace, inplace_operands, run_inplace
from ..dispatch.interpreter import Interpreter, Rank
from ..dispatch.kernel import Kernel, kernel_of
from ..dispatch.operands import operand
from ..dispatch.operator import Operator
from ..dispatch.record import record_many
from ..dispatch.view import attach_view, move
from ..tensor import Tensor, blank
from ..views.chain import ViewChain
from .batched_kernel import batched_operator

_DATA_DEPENDENT = (
    "vmap: It looks like you're {what}. The entries of a batch have no one value: rewrite it with operators, for "
    "instance with xgrad.where, or map over fewer arguments."
)
_ITEM = "calling {} on a Tensor. We don't support vmap over calling {} on a Tensor"
_BRANCH = "attempting to use a Tensor in some data-dependent control flow. We don't support that yet"


class VmapLevel:
    """One running `vmap`: its depth, the size of its batch, its rule for random operators."""

    __slots__ = ("depth", "open", "randomness", "size")

    def __init__(self, depth: int, size: int, randomness: str) -> None:
        self.depth: int = depth
        self.size: int = size
        self.randomness: str = randomness
        self.open: bool = True


class _SharedValue:
    """The storage of BatchedTensors that share it: the value of their root."""

    __slots__ = ("_owned", "root")

    def __init__(self, root: Tensor) -> None:
        self.root, self._owned = root, False

    @property
    def id(self) -> int:
        return self.root.storage_id

    @property
    def array(self) -> Any:
        raise _no_value(_BRANCH)


def _no_value(what: str) -> RuntimeError:
    return RuntimeError(_DATA_DEPENDENT.format(what=what))


class _Vmap(Interpreter):
    """Runs an operator on the values of BatchedTensors, one level down, and records it for the entries."""

    rank = Rank.VMAP

    def call(self, op: Operator, args: tuple[Any, ...], statics: tuple[Any, ...]) -> Any:
        level = level_of(args)
        assert level is not None
        args = tuple([operand(op, a) for a in args])
        kernel = kernel_of(op, statics)
        out, batched = run_batched(kernel, statics, args, level)
        results = tuple(wrap(o, level, batched) for o in (out if isinstance(out, tuple) else (out,)))
        if state.forward_level >= 0:
            forward(kernel, args, results, call)
        needs = requiring(args, level)
        if needs and kernel.differentiable and state.grad_enabled:
            record_many(kernel, needs, args, results)
        if not isinstance(out, tuple):
            return results[0]
        return results if kernel.outputs is None else kernel.outputs(*results)

    def call_inplace(self, op: Operator, args: tuple[Any, ...], statics: tuple[Any, ...]) -> Tensor:
        level = level_of(args)
        assert level is not None
        args = inplace_operands(op, args)
        kernel = kernel_of(op, statics)
        recording = state.grad_enabled and kernel.differentiable and args[0].dtype in INEXACT
        needs = requiring(args, level) if recording else 0
        check_batched(op, args, level, needs > 0)
        return run_inplace(kernel, args, needs, lambda kernel, args: write_batched(kernel, statics, args, level))

    def lift(self, function: Callable[..., Any], *tensors: Tensor) -> Tensor:
        level = level_of(tensors)
        assert level is not None
        values, axes = values_of(tensors, level)
        if any(axes):
            return wrap(function(level.size, *batched_values(tensors, level)), level)
        return wrap(function(None, *values), level, False)


class BatchedTensor(Tensor):
    """An entry of a batch; made by `wrap`."""

    _interpreter = _Vmap()
    _level: VmapLevel
    _value: Tensor
    _batched: bool  # True: the value has the batch as first dimension; False: it is the same for all entries

    def _read(self) -> Any:
        if self._batched:
            raise _no_value(_BRANCH)
        return self._value._read()

    def _held(self) -> Any:
        return self._value._held()

    def _export(self, reason: str = "a function of JAX's") -> Any:
        if self._batched:
            raise _no_value(_BRANCH)
        return self._value._export(reason)

    def _share(self) -> Any:
        return self._storage

    def _bump(self, by: int = 1) -> None:
        self._value._bump(by)

    def _holding(self, value: Tensor) -> "BatchedTensor":
        """Make a tensor like this one, with another value of the same shape, outside of the graph of the entries."""
        return wrap(value, self._level, self._batched)

    def _with_batch(self, new: Tensor) -> Tensor:
        return batch_like(new, self)

    def _alias(self) -> "BatchedTensor":
        alias = blank(BatchedTensor)
        alias._level, alias._batched, alias._value = self._level, self._batched, self._value._alias()
        alias._storage, alias._chain, alias._version_counter = self._storage, self._chain, self._version_counter
        return alias

    def _blank_view(self, chain: ViewChain, relative: ViewChain, name: str) -> "BatchedTensor":
        view = blank(BatchedTensor)
        view._level, view._batched = self._level, self._batched
        source = self._value
        if self._chain.concat(relative) is not chain:  # as_strided: relative to the root
            assert isinstance(self._storage, _SharedValue)
            source = self._storage.root
        along = self._over_batch(relative)
        source._share()
        assert source._chain is not None
        view._value = attach_view(source, source._chain.concat(along), along, name)
        return view

    def _over_batch(self, chain: ViewChain) -> ViewChain:
        return chain.over_batch(self._level.size) if self._batched else chain

    def _move(self, relative: ViewChain, name: str) -> None:
        """Apply an in-place view operation to the value."""
        move(self._value, self._over_batch(relative), name)

    def _bits(self, relative: ViewChain) -> None:
        value = self._value
        value._share()
        alias = value._alias()
        alias._chain = value._chain.concat(self._over_batch(relative))
        alias._cache, alias._cache_generation = None, -1
        self._value = alias

    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        if requires_grad and not self._requires_grad:
            raise RuntimeError(
                "You are attempting to call Tensor.requires_grad_() (or perhaps using xgrad.autograd.functional) "
                "inside of a function being transformed by vmap. This is unsupported: use xgrad.func.grad or "
                "xgrad.func.vjp there, or call requires_grad_() outside."
            )
        return super().requires_grad_(requires_grad)

    def detach_(self) -> Tensor:
        super().detach_()
        self._value = self._value.detach()
        return self

    def __bool__(self) -> bool:
        if self._batched:
            raise _no_value(_BRANCH)
        return bool(self._value)

    def item(self) -> Any:
        if self._batched:
            raise _no_value(_ITEM.format(".item()", ".item()"))
        return self._value.item()

    def tolist(self) -> Any:
        if self._batched:
            raise _no_value(_ITEM.format(".tolist()", ".tolist()"))
        return self._value.tolist()

    def __repr__(self, **_: Any) -> str:
        value = repr(self._value).replace("\n", "\n    ")
        place = "0" if self._batched else "None"
        return f"BatchedTensor(lvl={self._level.depth}, bdim={place}, value=\n    {value}\n)"


def wrap(value: Tensor, level: VmapLevel, batched: bool = True) -> BatchedTensor:
    """Make an entry of the batch that is the first dimension of `value`; if not `batched`, `value` is every entry."""
    out = blank(BatchedTensor)
    out._level, out._value, out._batched = level, value, batched
    shape = tuple(value.shape)
    out._chain = ViewChain.root(shape[1:] if batched else shape, value._dtype)
    out._storage = _SharedValue(value)  # it has all attributes of a storage that are used here
    if value._version_counter is None:
        value._bump(0)
    out._version_counter = value._version_counter
    return out


def level_of(args: Any) -> VmapLevel | None:
    """The innermost level of the arguments, None if no BatchedTensor is among them."""
    top = None
    for a in args:
        level = a._level if isinstance(a, Tensor) else None
        if level is not None and (top is None or level.depth > top.depth):
            top = level
    if top is not None and not top.open:
        raise RuntimeError(
            "a tensor that was made inside of vmap is used after vmap has returned: return it from the function instead"
        )
    return top


def at_level(a: Any, level: VmapLevel) -> bool:
    return isinstance(a, Tensor) and a._level is level


def requiring(args: tuple[Any, ...], level: VmapLevel | None) -> int:
    """The mask of the arguments that require grad as tensors of this level (None: as plain ones)."""
    return sum(1 << i for i, a in enumerate(args) if isinstance(a, Tensor) and a._level is level and a.requires_grad)


def values_of(args: tuple[Any, ...], level: VmapLevel) -> tuple[tuple[Any, ...], tuple[bool, ...]]:
    """The arguments one level down, and a mask of those that have the batch."""
    values = tuple(a._value if at_level(a, level) else a for a in args)
    return values, tuple(at_level(a, level) and a._batched for a in args)


def batched_values(tensors: tuple[Any, ...], level: VmapLevel) -> list[Tensor]:
    """The tensors one level down, each with the batch."""
    values, axes = values_of(tensors, level)
    return [v if b else v.expand(level.size, *v.shape) for v, b in zip(values, axes, strict=True)]


def run_batched(kernel: Kernel, statics: tuple[Any, ...], args: tuple[Any, ...], level: VmapLevel) -> tuple[Any, bool]:
    """Run the operator one level down: its results, and True if they have the batch."""
    values, axes = values_of(args, level)
    if any(axes):
        return call(batched_operator(kernel, axes), values, ()), True
    return call(kernel.operator, values, statics), False


def check_batched(op: Operator, args: tuple[Any, ...], level: VmapLevel, recorded: bool) -> None:
    """Raise if a tensor that is the same for all entries would be written with a value that it cannot have.

    That is an entry of a batch; and, if the write is `recorded` for the entries, a value with a history below them too:
    a tensor of the level below has one place in one graph.
    """
    values, axes = values_of(args, level)
    if recorded and not at_level(args[0], level) and any(isinstance(v, Tensor) and v.requires_grad for v in values[1:]):
        raise RuntimeError(
            f"vmap: inplace arithmetic ({op.name}_) is not possible because `self` was made outside of the graph of "
            "the entries, while what is written requires grad both inside of vmap and outside: one of the two "
            "gradients would be lost. Use an out-of-place operator instead, or make `self` from a tensor that is "
            "mapped over: x.new_zeros(...), xgrad.zeros_like(x)."
        )
    if any(axes) and not axes[0]:
        raise RuntimeError(
            f"vmap: inplace arithmetic ({op.name}_) is not possible because there exists a Tensor `other` in "
            "extra_args that has more elements than `self`. This happened due to `other` being vmapped over but `self` "
            "not being vmapped over in a vmap. Please try to use out-of-place operators instead of inplace arithmetic, "
            "or make `self` from a tensor that is mapped over: x.new_zeros(...), xgrad.zeros_like(x)."
        )


def write_batched(kernel: Kernel, statics: tuple[Any, ...], args: tuple[Any, ...], level: VmapLevel) -> None:
    """Run the in-place form one level down."""
    values, axes = values_of(args, level)
    if any(axes):
        call_inplace(batched_operator(kernel, axes), values, ())
    else:
        call_inplace(kernel.operator, values, statics)


def batch_like(result: Tensor, input: Tensor) -> Tensor:
    """Give a new tensor a batch for each batch of `input`, as `zeros_like` and `new_zeros` need it inside of vmap."""
    level = input._level
    if level is None or result._level is not None:
        return result
    assert isinstance(input, BatchedTensor)
    if not input._batched:
        return wrap(batch_like(result, input._value), level, False)
    return wrap(batch_like(result.expand(level.size, *result.shape).clone(), input._value), level)


def inner_value(tensor: Tensor) -> Tensor:
    """The tensor below all levels."""
    while isinstance(tensor, BatchedTensor):
        tensor = tensor._value
    return tensor


def add_batch(tensor: Tensor, dim: int, level: VmapLevel) -> BatchedTensor:
    """Make an entry of a batch that is a dimension of `tensor`; both share the storage."""
    return wrap(tensor.movedim(dim, 0) if dim else tensor, level)


def remove_batch(tensor: Tensor, dim: int, level: VmapLevel) -> Tensor:
    """The whole batch that `tensor` is an entry of, with its dimension at `dim`."""
    if isinstance(tensor, BatchedTensor) and tensor._level is level:
        value = tensor._value
        if tensor._batched:
            return value.movedim(0, dim) if dim else value
        tensor = value
    whole = tensor.expand(level.size, *tensor.shape)
    return whole.movedim(0, dim) if dim else whole


def in_level(work: Callable[[VmapLevel], Any], size: int, randomness: str = "error") -> Any:
    """Run `work(level)` at a new innermost level, which ends after it."""
    before = state.vmap_levels
    level = VmapLevel(len(before) + 1, size, randomness)
    try:
        state.vmap_levels = (*before, level)
        return work(level)
    finally:  # without a call, which could be interrupted
        state.vmap_levels = before
        level.open = False
