"""`Tensor(...)`, `Tensor.new(...)`, `FloatTensor(...)`, ...: make tensors as PyTorch's old constructors do.

They interpret their arguments by PyTorch's rules (torch/csrc/utils/tensor_new.cpp): integers are sizes, a sequence is
data, a tensor is aliased, no argument makes an empty tensor.  Memory is never uninitialised here: sizes make zeros.
"""

import functools
import operator
import warnings
from typing import Any

import jax
import numpy as np

from ... import overrides
from ...base import dtypes
from ...base.devices import placement_of
from ...config import settings
from ...dispatch.declare import composite
from ...tensor import Size, Tensor
from ...tensor_methods.storages import UntypedStorage
from .factories import checked_sizes, zeros
from .from_data import is_sequence, tensor

_EXPECTED = (
    "but expected one of: nothing; sizes (2, 3 or size=(2, 3)); data, a sequence of numbers (data=[1, 2]); a Tensor of "
    "the same type; and a device. xgrad.tensor(data, dtype=..., requires_grad=...) takes the rest."
)


def construct(cls: type[Any], args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """Make the tensor of `Tensor(...)`, also for a subclass without a `__new__` of its own.

    `Tensor(x, requires_grad=...)` is `type(parameter)(x, ...)`, where PyTorch's class is Parameter's: it makes one.
    Beside it may stand the parameter's `__dict__`, which has no entries of its own there.
    """
    if "requires_grad" in options and cls is Tensor and len(args) == 1 and isinstance(args[0], Tensor):
        if options.keys() - vars(Tensor):
            raise _unfit(args, options)
        new = args[0].detach()
        new.requires_grad = options["requires_grad"]
        new._is_param = True
        return new
    if isinstance(other := _only(args, options), Tensor):  # of any dtype, because Tensor is every dtype's class
        return overrides.as_subclass(other, cls)
    made = _made(args, options, settings.default_dtype)
    return made if cls is Tensor else overrides.taken_over(made, cls)


def of_dtype(args: tuple[Any, ...], options: dict[str, Any], dtype: np.dtype, device: Any = None) -> Tensor:
    """Make the tensor of `FloatTensor(...)` and its like, on `device`, unless the options have another."""
    if isinstance(other := _only(args, options), Tensor):
        if other.dtype != dtype or other.layout != "strided":
            raise TypeError(
                f"expected a dense Tensor of dtype {dtype.name}, but got one of dtype {other.dtype.name} and layout "
                f"{other.layout}: convert it with .to(xgrad.{dtype.name})"
            )
        return other.alias()
    return _made(args, options, dtype, device)


def _only(args: tuple, options: dict[str, Any]) -> Any:
    """The argument, if there is exactly one."""
    named = [name for name in ("other", "data", "size") if name in options]
    if len(args) + len(named) == 1:
        return args[0] if args else options[named[0]]
    return None


def _made(args: tuple, options: dict[str, Any], dtype: np.dtype, device: Any = None) -> Tensor:
    """Make a new tensor from sizes or data."""
    named = [name for name in options if name != "device"]
    if len(named) > 1 or any(name not in ("data", "size") for name in named) or (named and args):
        raise _unfit(args, options)
    device = options.get("device", device)
    dtype = dtypes.as_dtype(dtype)
    if not args and not named:
        return zeros(0, dtype=dtype, device=device)
    given = _only(args, options)
    if "size" in options or isinstance(given, Size):
        return zeros(checked_sizes(given), dtype=dtype, device=device)
    if all(map(_is_size, args)) and not named:
        return zeros(checked_sizes([operator.index(n) for n in args]), dtype=dtype, device=device)
    if len(args) > 1:
        if not _is_size(args[0]):
            raise _unfit(args, options)
        place, wrong = next((i, n) for i, n in enumerate(args, 1) if not _is_size(n))
        raise TypeError(
            f"new(): argument 'size' failed to unpack the object at pos {place}: sizes must be integers, but got "
            f"{type(wrong).__name__}"
        )
    _check_data(given)
    return tensor(given, dtype=dtype, device=device)


def _is_size(value: Any) -> bool:
    """Return whether an argument is an integer: of Python, of NumPy, or a tensor of one."""
    if isinstance(value, (bool, np.bool_)):
        return False
    if isinstance(value, (Tensor, jax.Array, np.ndarray)):
        return value.ndim == 0 and value.dtype.kind in "iu"
    return hasattr(value, "__index__")


def _check_data(value: Any) -> None:
    kind = type(value).__name__
    if isinstance(value, (str, bytes)):
        raise TypeError(f"new(): invalid data type '{kind}'")
    if isinstance(value, UntypedStorage):
        raise NotImplementedError(
            "new(): a tensor can't be made over a storage: XLA's arrays have no memory that Python could lay another "
            "over. Use views of the tensor: x.view(dtype), x.as_strided(...), x.detach()."
        )
    arrays = hasattr(value, "__array__") or hasattr(value, "__jax_array__")
    if not (isinstance(value, (list, tuple, range)) or is_sequence(value) or (arrays and getattr(value, "ndim", 1))):
        raise TypeError(f"new(): data must be a sequence (got {kind})")


def _unfit(args: tuple, options: dict[str, Any]) -> TypeError:
    got = [type(a).__name__ for a in args] + [f"{name}={type(value).__name__}" for name, value in options.items()]
    return TypeError(f"new() received an invalid combination of arguments - got ({', '.join(got)}), {_EXPECTED}")


@composite(function=False)
def new(input: Tensor, *args: Any, **options: Any) -> Tensor:
    """A tensor of this one's dtype and device, by the rules of `Tensor(...)`: `x.new(2, 3)`, `x.new([1, 2])`.

    PyTorch's old way: prefer `new_tensor`, `new_zeros` and `new_empty`.  Raises `TypeError` for arguments that are
    neither sizes nor data.

    >>> import xgrad
    >>> xgrad.tensor([True]).new([3, 0])
    tensor([ True, False])
    """
    return of_dtype(args, options, input._dtype, input.device)


class tensortype(type):
    """The class of `FloatTensor` and its family: called, each makes tensors of its dtype.

    `isinstance(x, xgrad.FloatTensor)`: whether x is a dense tensor of that dtype, on any device.  Types of
    `xgrad.cuda` make tensors on a GPU; they raise `TypeError` where there is none.

    Source: PyTorch's `torch.tensortype`.

    >>> import xgrad
    >>> xgrad.IntTensor([1, 2])
    tensor([1, 2], dtype=xgrad.int32)
    >>> isinstance(xgrad.ones(1), xgrad.FloatTensor), isinstance(xgrad.ones(1), xgrad.IntTensor)
    (True, False)
    """

    dtype: np.dtype
    layout = "strided"
    is_cuda = is_sparse = False

    def __call__(cls, *data: Any, **options: Any) -> Any:
        if not cls.is_cuda:
            return of_dtype(data, options, cls.dtype)
        try:
            where = placement_of("cuda")
        except RuntimeError as error:
            raise TypeError(f"type {cls.__module__}.{cls.__name__} not available: {error}") from None
        return of_dtype(data, options, cls.dtype, where)

    def __instancecheck__(cls, instance: Any) -> bool:
        same = isinstance(instance, Tensor) and instance.dtype == cls.dtype and instance.layout == cls.layout
        return same and (instance.is_cuda or not cls.is_cuda)

    def __repr__(cls) -> str:
        return f"<class '{cls.__module__}.{cls.__name__}'>"


def _of(dtype: np.dtype) -> Any:
    """The constructor of one dtype."""
    name = f"{dtypes.torch_name(dtype)}Tensor"
    doc = (
        f"A tensor of dtype {dtype.name}: `{name}(2, 3)` of sizes (zeros), `{name}([1, 2])` of data, `{name}()` empty."
    )
    return tensortype(name, (), {"dtype": dtype, "__doc__": doc, "__module__": "xgrad", "__slots__": ()})


# One line each: the documentation's tool reads the source, and finds only such names.
FloatTensor: Any = _of(dtypes.float32)
DoubleTensor: Any = _of(dtypes.float64)
HalfTensor: Any = _of(dtypes.float16)
BFloat16Tensor: Any = _of(dtypes.bfloat16)
ByteTensor: Any = _of(dtypes.uint8)
CharTensor: Any = _of(dtypes.int8)
ShortTensor: Any = _of(dtypes.int16)
IntTensor: Any = _of(dtypes.int32)
LongTensor: Any = _of(dtypes.int64)
BoolTensor: Any = _of(dtypes.bool)


@functools.cache
def on_cuda(name: str) -> Any:
    """Return the type of a GPU's tensors that has the name of one of these."""
    known = {"dtype": globals()[name].dtype, "is_cuda": True, "__module__": "xgrad.cuda", "__slots__": ()}
    return tensortype(name, (), known)


def set_default_tensor_type(t: Any) -> None:
    """The dtype of `FloatTensor` or its like (or "xgrad.FloatTensor") becomes the default dtype.

    PyTorch's old way, warned about: `set_default_dtype` says what is meant.  Raises `TypeError` for a type that is not
    of floats, and for one of a device, such as "torch.cuda.FloatTensor".

    >>> import warnings, xgrad
    >>> with warnings.catch_warnings(action="ignore"):
    ...     xgrad.set_default_tensor_type(xgrad.FloatTensor)
    """
    kinds = {kind.__name__: kind for kind in (FloatTensor, DoubleTensor, HalfTensor, BFloat16Tensor)}
    whole = t if isinstance(t, str) else f"{getattr(t, '__module__', '')}.{getattr(t, '__name__', '')}"
    place, _, name = whole.rpartition(".")
    if place not in ("xgrad", "torch") or name not in kinds:
        raise TypeError(
            f"only floating-point types such as xgrad.FloatTensor are supported as the default type, but got {t!r}: "
            "the default device is what set_default_device() makes it"
        )
    warnings.warn(
        "set_default_tensor_type() is deprecated since PyTorch 2.1: use set_default_dtype(dtype).", stacklevel=2
    )
    dtypes.set_default_dtype(kinds[name].dtype)
