"""torch and xgrad behind one interface: make tensors, find functions, read values.

An entry of the database whose function is one of torch's is called by its name in xgrad.  The others are functions over
torch's namespace (`lambda x: torch.polygamma(x, n=2)`): `__torch_function__` hands the calls that they make to xgrad.
"""

import dataclasses
import operator
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import torch
from torch.overrides import resolve_name
from torch.testing._internal import common_methods_invocations as database  # needs the package expecttest

import xgrad


class MissingError(Exception):
    """xgrad does not have the operator, or the form."""


def mapped(function: Callable, value: Any) -> Any:
    """Apply a function to what tuples, lists, dictionaries and slices hold."""
    if isinstance(value, torch.Size):
        return tuple(value)
    if type(value) in (tuple, list):
        return type(value)([mapped(function, v) for v in value])
    if isinstance(value, dict):
        return {k: mapped(function, v) for k, v in value.items()}
    if isinstance(value, slice):
        return slice(*(mapped(function, v) for v in (value.start, value.stop, value.step)))
    return function(value)


def leaves(value: Any) -> list:
    """Return what tuples, lists and dictionaries hold, in order."""
    if isinstance(value, dict):
        value = list(value.values())
    return [leaf for v in value for leaf in leaves(v)] if isinstance(value, (tuple, list)) else [value]


def dtype_name(dtype: Any) -> str:
    return str(dtype).rpartition(".")[2]


class Torch:
    """torch: the functions are the database's own."""

    module: Any = torch
    Tensor: Any = torch.Tensor

    def tensor(self, value: torch.Tensor) -> Any:
        return value.detach().resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format)

    def constant(self, value: Any) -> Any:
        return value

    def function(self, info: Any, takes_tensors: bool = True) -> Callable:
        return info.op

    def form(self, function: Callable) -> Callable:
        return function

    def numbers(self, tensor: Any) -> np.ndarray:
        plain = tensor.detach().resolve_conj().resolve_neg().clone()  # a copy: of torch's symbolic zeros too
        return (plain.float() if plain.dtype == torch.bfloat16 else plain).numpy()


class Xgrad:
    """xgrad: functions are found by their names."""

    module: Any = xgrad
    Tensor: Any = xgrad.Tensor

    def tensor(self, value: torch.Tensor) -> Any:
        return xgrad.tensor(TORCH.numbers(value), dtype=getattr(xgrad, dtype_name(value.dtype)))

    def constant(self, value: Any) -> Any:
        """Return xgrad's tensor, dtype, layout, memory format or options for torch's."""
        if isinstance(value, torch.Tensor):
            return self.tensor(value)
        if isinstance(value, (torch.dtype, torch.layout, torch.memory_format)):
            return getattr(xgrad, str(value).removeprefix("torch."))
        if dataclasses.is_dataclass(value) and not isinstance(value, type):  # the options of a layer
            options = {field.name: self.constant(getattr(value, field.name)) for field in dataclasses.fields(value)}
            return getattr(xgrad.nn, type(value).__name__)(**options)
        return str(value) if isinstance(value, torch.device) else value

    def function(self, info: Any, takes_tensors: bool = True) -> Callable:
        """Return the function of an entry: the database's own if it would come to xgrad through a tensor."""
        if takes_tensors and str(getattr(info.op, "__module__", "")).startswith("torch.testing."):
            return info.op
        if info.name == "slice":  # an operator of torch's that has no function: x[start:end:step] calls it
            return slice_of
        for name in (info.name, *(alias.name for alias in info.aliases)):
            with suppress(MissingError):
                return find(name.removeprefix("torch."))
        raise MissingError(info.name)

    def form(self, function: Callable) -> Callable:
        """Return the method that has the name of a method of torch's."""
        name = getattr(function, "__name__", "")
        return find(f"Tensor.{name}") if getattr(torch.Tensor, name, None) is function else function

    def numbers(self, tensor: Any) -> np.ndarray:
        return np.array(tensor.detach().to(xgrad.float32) if tensor.dtype == xgrad.bfloat16 else tensor.detach())


TORCH, XGRAD = Torch(), Xgrad()


def slice_of(x: Any, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Any:
    return x[(slice(None),) * (dim % x.ndim) + (slice(start, end, step),)]


def find(path: str) -> Callable:
    """Return xgrad's function of a name, or internal operator; a method only if torch has no function either."""
    theirs: Any = None
    with suppress(AttributeError):
        theirs = operator.attrgetter(path)(torch)
    for start in ("", "ops.aten.") if callable(theirs) else ("", "Tensor.", "ops.aten."):
        with suppress(AttributeError):
            found = operator.attrgetter(start + path)(xgrad)
            if callable(found) and not isinstance(found, np.dtype):
                return found
    raise MissingError(path)


def called_by_torch(cls: type, function: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
    """Call xgrad's function in place of torch's, which has xgrad's tensors as arguments."""
    return namesake(function)(*mapped(XGRAD.constant, args), **mapped(XGRAD.constant, kwargs or {}))


def namesake(function: Any) -> Callable:
    """Return xgrad's function that has the name of one of torch's."""
    name = str(function) if "aten." in str(function) else resolve_name(function) or function.__name__
    path = name.removeprefix("aten.").removeprefix("torch.").removesuffix(".default")
    return find(path.removeprefix("functional."))  # where torch has the code of einsum and others


def by_torch(helper: Callable) -> Callable:
    """Let torch evaluate a helper that is no operator: which elements a mask leaves."""

    def plain(value: Any) -> Any:
        return torch.as_tensor(XGRAD.numbers(value)) if isinstance(value, xgrad.Tensor) else value

    def evaluate(*args: Any, **kwargs: Any) -> Any:
        found = helper(*mapped(plain, args), **mapped(plain, kwargs))
        ours = any(isinstance(leaf, xgrad.Tensor) for leaf in leaves([args, kwargs]))
        return XGRAD.tensor(found) if ours else found

    return evaluate


def draw(function: Callable, *args: Any, **kwargs: Any) -> Any:
    """Call a random function of the database, without the one seed that it sets: what is random has to be seen."""
    ours = any(isinstance(leaf, xgrad.Tensor) for leaf in leaves([args, kwargs]))
    return (namesake(function) if ours else function)(*args, **kwargs)


def join() -> None:
    """Make torch's functions take xgrad's tensors, in this process."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    setattr(xgrad.Tensor, "__torch_function__", classmethod(called_by_torch))  # noqa: B010  the type has no such name
    setattr(database, "wrapper_set_seed", draw)  # noqa: B010
    for name in ("_output_mask", "_input_mask"):
        setattr(torch.masked, name, by_torch(getattr(torch.masked, name)))
