"""register_parametrization: makes a parameter a function of other tensors (PyTorch: torch/nn/utils/parametrize.py).

A parametrized module gets a class of its own, in which the name of the tensor is a property:

    module.weight          computes    module.parametrizations.weight()
    module.weight = value  stores      right_inverse(value) as the tensors `original` (or `original0`, ...) there
"""

import contextlib
import copy
import threading
from collections.abc import Iterator, Sequence
from typing import Any

from ...autograd.grad_mode import no_grad
from ...tensor import Tensor
from ..containers import ModuleDict, ModuleList
from ..module import Module
from ..parameter import Parameter


class _Cache(threading.local):
    """The values that were computed within `cached()` in this thread."""

    depth = 0

    def __init__(self) -> None:
        self.values: dict[tuple[int, str], Any] = {}


_cache = _Cache()


@contextlib.contextmanager
def cached() -> Iterator[None]:
    """Context in which each parametrized tensor is computed once, when it is first read.

    >>> import xgrad
    >>> from xgrad.nn.utils import parametrize
    >>> module = parametrize.register_parametrization(xgrad.nn.Linear(2, 2), "weight", xgrad.nn.Sequential())
    >>> with parametrize.cached():
    ...     module.weight is module.weight
    True
    """
    _cache.depth += 1
    try:
        yield
    finally:
        _cache.depth -= 1
        if not _cache.depth:
            _cache.values.clear()


def _set(destination: Tensor, source: Tensor) -> None:
    """Give a tensor other values and their shape; it stays the object that an optimizer knows."""
    destination.data = source.detach()


def _register(module: Module, name: str, tensor: Tensor) -> None:
    (module.register_parameter if isinstance(tensor, Parameter) else module.register_buffer)(name, tensor)


def _require_tensor(value: Any, what: str = "A parametrization must return a tensor.") -> None:
    if not isinstance(value, Tensor):
        raise ValueError(f"{what} Got {type(value).__name__}.")


def _require_same(old: Tensor, new: Tensor, what: str, maker: str) -> None:
    for kind in ("dtype", "shape"):
        if getattr(old, kind) != getattr(new, kind):
            raise ValueError(
                f"{what} {kind} of the tensor, unless the `unsafe` flag is enabled: it is {getattr(old, kind)}, and "
                f"{maker} has {getattr(new, kind)}"
            )


_CHANGES = "Registering a parametrization may not change the"


class ParametrizationList(ModuleList):
    """The parametrizations of one tensor, applied in order, and the tensors that they start from.

    These are `original`, or `original0`, `original1`, ... if the `right_inverse` of the first parametrization returns a
    sequence.  `register_parametrization` makes it; `unsafe`: shape and dtype may change, and nothing is checked.
    """

    original: Any
    unsafe: bool

    def __init__(self, modules: Sequence[Module], original: Any, unsafe: bool = False) -> None:
        if not modules:
            raise ValueError("ParametrizationList requires one or more modules.")
        super().__init__(modules)
        self.unsafe = unsafe
        shape, dtype = original.shape, original.dtype
        new: Any = original
        with no_grad():
            for module in reversed(list(self)):
                if hasattr(module, "right_inverse"):
                    with contextlib.suppress(NotImplementedError):
                        new = module.right_inverse(new)
        if not isinstance(new, (Tensor, Sequence)):
            raise ValueError(
                f"'right_inverse' must return a Tensor or a Sequence of tensors (list, tuple...). Got "
                f"{type(new).__name__}"
            )
        self.is_tensor: Any = isinstance(new, Tensor)
        self.ntensors: Any = 1 if self.is_tensor else len(new)
        if isinstance(new, Tensor):
            for kind in ("dtype", "device"):
                if getattr(original, kind) != getattr(new, kind):
                    raise ValueError(
                        f"When `right_inverse` outputs one tensor, it may not change the {kind}: it is "
                        f"{getattr(original, kind)}, and right_inverse(original) has {getattr(new, kind)}"
                    )
            if new is not original:
                _set(original, new)
            _register(self, "original", original)
        else:
            for i, tensor in enumerate(new):
                _require_tensor(tensor, f"'right_inverse' must return a Tensor or a Sequence of tensors, element {i}.")
                if isinstance(original, Parameter):
                    tensor = Parameter(tensor, original.requires_grad)
                _register(self, f"original{i}", tensor.requires_grad_(original.requires_grad))
        if not unsafe:
            result = self()
            _require_tensor(result)
            if result.dtype != dtype or result.shape != shape:
                what, old, found = (
                    ("dtype", dtype, result.dtype) if result.dtype != dtype else ("shape", shape, result.shape)
                )
                raise ValueError(
                    f"{_CHANGES} {what} of the tensor, unless `unsafe` flag is enabled.\nunparametrized {what}: {old}\n"
                    f"parametrized {what}: {found}"
                )

    def _originals(self) -> list[Any]:
        return [self.original] if self.is_tensor else [getattr(self, f"original{i}") for i in range(self.ntensors)]

    def right_inverse(self, value: Any) -> None:
        """Set the original tensors so that they stand for `value`, by the `right_inverse` of all, the last one first.

        Raises `RuntimeError` if a parametrization has none, `ValueError` if one returns another number of tensors or
        another dtype than when it was registered.
        """
        with no_grad():
            for module in reversed(list(self)):
                if not hasattr(module, "right_inverse"):
                    raise RuntimeError(f"parametrization {type(module).__name__} does not implement right_inverse.")
                value = module.right_inverse(value)
        if self.is_tensor:
            _require_tensor(value, "`right_inverse` should return a tensor.")
            value = [value]
        elif not isinstance(value, Sequence):
            raise ValueError(f"'right_inverse' must return a sequence of tensors. Got {type(value).__name__}.")
        if len(value) != self.ntensors:
            raise ValueError(
                f"'right_inverse' must return a sequence of tensors of length {self.ntensors}. Got a sequence of "
                f"length {len(value)}."
            )
        originals = self._originals()
        for i, (old, new) in enumerate(zip(originals, value, strict=True)):
            _require_tensor(new, f"'right_inverse' must return a sequence of tensors, element {i}.")
            if old.dtype != new.dtype:
                name = "" if self.is_tensor else f" {i}"
                raise ValueError(
                    f"The tensor{name} returned by `right_inverse` has dtype {new.dtype} while `original` has dtype "
                    f"{old.dtype}"
                )
        for old, new in zip(originals, value, strict=True):
            _set(old, new)

    def forward(self) -> Any:
        """Return the parametrized tensor."""
        first, *others = self
        result = first(*self._originals())
        for module in others:
            result = module(result)
        return result

    def __iter__(self) -> Iterator[Any]:
        return iter([module for name, module in self._modules.items() if name.isdigit()])

    def __len__(self) -> int:
        return sum(name.isdigit() for name in self._modules)


def _no_pickle(self: Any) -> Any:
    raise RuntimeError(
        "Serialization of parametrized modules is only supported through state_dict(): a pickle cannot name the class"
    )


def _deep_copy(self: Any, memo: dict[int, Any]) -> Any:
    found = memo.get(id(self))
    if found is None:
        found = memo[id(self)] = self.__new__(type(self))
        found.__dict__ = copy.deepcopy(self.__dict__, memo)
    return found


def _inject_new_class(module: Module) -> None:
    """Give the module a class of its own."""
    cls = type(module)
    methods: dict[str, Any] = {"__getstate__": _no_pickle}
    if not hasattr(cls, "__deepcopy__"):
        methods["__deepcopy__"] = _deep_copy
    module.__class__ = type(f"Parametrized{cls.__name__}", (cls,), methods)


def _inject_property(module: Module, name: str) -> None:
    """Make `name` a property of the module's own class."""

    def get(self: Any) -> Any:
        if not _cache.depth:
            return self.parametrizations[name]()
        key = (id(self), name)
        if key not in _cache.values:
            _cache.values[key] = self.parametrizations[name]()
        return _cache.values[key]

    def put(self: Any, value: Any) -> None:
        self.parametrizations[name].right_inverse(value)

    setattr(type(module), name, property(get, put))


def register_parametrization(module: Any, tensor_name: str, parametrization: Module, *, unsafe: bool = False) -> Any:
    """Make a parameter or buffer of a module the result of `parametrization`; return the module.

    From then on `module.<tensor_name>` computes it, and the module's parameters contain the original tensor.  Several
    parametrizations of a tensor follow each other.  If the parametrization has a `right_inverse`, the tensor can be
    assigned to; the originals start as its result on the tensor as it was.

    `unsafe` allows a result of another shape or dtype.  Raises `ValueError` for those without it, and if the module
    has no such tensor.

    >>> import xgrad
    >>> from xgrad.nn.utils import parametrize
    >>> class Symmetric(xgrad.nn.Module):
    ...     def forward(self, x):
    ...         return x.triu() + x.triu(1).T
    >>> module = parametrize.register_parametrization(xgrad.nn.Linear(3, 3), "weight", Symmetric())
    >>> bool((module.weight == module.weight.T).all())
    True
    """
    parametrization.train(module.training)
    if is_parametrized(module, tensor_name):
        if not unsafe:
            _check_next(module, tensor_name, parametrization)
        listed = module.parametrizations[tensor_name]
        listed.append(parametrization)
        listed.unsafe |= unsafe
    elif tensor_name in module._buffers or tensor_name in module._parameters:
        original = getattr(module, tensor_name)
        listed = ParametrizationList([parametrization], original, unsafe=unsafe)
        delattr(module, tensor_name)
        if not is_parametrized(module):
            _inject_new_class(module)
            module.parametrizations = ModuleDict()
        _inject_property(module, tensor_name)
        module.parametrizations[tensor_name] = listed
    else:
        raise ValueError(
            f"Module '{module}' does not have a parameter, a buffer, or a parametrized element with name "
            f"'{tensor_name}'"
        )
    return module


def _check_next(module: Any, name: str, parametrization: Any) -> None:
    """Raise `ValueError` if another parametrization of a tensor changes its shape or dtype, or its inverse does."""
    old = getattr(module, name)
    new = parametrization(old)
    _require_tensor(new)
    _require_same(old, new, _CHANGES, f"parametrization(module.{name})")
    if hasattr(parametrization, "right_inverse"):
        try:
            back = parametrization.right_inverse(new)
        except NotImplementedError:
            return
        _require_tensor(back, "parametrization.right_inverse must return a tensor.")
        _require_same(old, back, "parametrization.right_inverse may not change the", "its result")


def is_parametrized(module: Any, tensor_name: str | None = None) -> bool:
    """Return whether a module has a parametrization: of the tensor with that name, or of any."""
    found = getattr(module, "parametrizations", None)
    if not isinstance(found, ModuleDict):
        return False
    return len(found) > 0 if tensor_name is None else tensor_name in found


def remove_parametrizations(module: Any, tensor_name: str, leave_parametrized: bool = True) -> Any:
    """Make a parametrized tensor a parameter or buffer again; return the module.

    It gets the parametrized value or, without `leave_parametrized`, the value of the original tensor.  Raises
    `ValueError` if it is not parametrized, and if the original is asked for and there are several.
    """
    if not is_parametrized(module, tensor_name):
        raise ValueError(f"Module {module} does not have a parametrization on {tensor_name}")
    listed = module.parametrizations[tensor_name]
    if listed.is_tensor:
        original = listed.original
        if leave_parametrized:
            with no_grad():
                value = getattr(module, tensor_name)
            _set(original, value)
    elif leave_parametrized:
        value = getattr(module, tensor_name)
        original = Parameter(value) if value.requires_grad else value
    else:
        raise ValueError(
            "Cannot leave unparametrized (`leave_parametrized=False`) a tensor that is parametrized in terms of a "
            "sequence of tensors."
        )
    delattr(type(module), tensor_name)
    del module.parametrizations[tensor_name]
    _register(module, tensor_name, original)
    if not is_parametrized(module):
        delattr(module, "parametrizations")
        module.__class__ = type(module).__bases__[0]
    return module


def type_before_parametrizations(module: Any) -> type:
    """Return the class that the module had before it was parametrized."""
    return type(module).__bases__[0] if is_parametrized(module) else type(module)


def transfer_parametrizations_and_params(from_module: Any, to_module: Any, tensor_name: str | None = None) -> Any:
    """Give a module the parametrizations of another one, and the very same original tensors; return it.

    `tensor_name` names one tensor; without it, all.  A parameter that `to_module` lacks is made.
    """
    if is_parametrized(from_module):
        names = list(from_module.parametrizations) if tensor_name is None else [tensor_name]
        for name in names:
            if not hasattr(to_module, name):
                setattr(to_module, name, Parameter(getattr(from_module, name)))
            for parametrization in from_module.parametrizations[name]:
                register_parametrization(to_module, name, parametrization)
            mine, its = to_module.parametrizations[name], from_module.parametrizations[name]
            for original in ["original"] if its.is_tensor else [f"original{i}" for i in range(its.ntensors)]:
                setattr(mine, original, getattr(its, original))
    return to_module
