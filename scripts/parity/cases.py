"""The inputs of an entry, and the procedures: what a check looks at.

A procedure is written once, for both libraries.  It returns a list of tensors and other values; compare.py reads them.
"""

import random
import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch

from .libraries import TORCH, dtype_name, leaves, mapped

GAUGE = {"linalg.eig", "linalg.eigh", "linalg.svd", "svd", "svd_lowrank", "pca_lowrank"}  # up to a phase or a basis
SCENARIOS = ("view", "base", "unrecorded", "saved")


class NotApplicableError(Exception):
    """torch does not have what the check is about."""


def name_of(info: Any) -> str:
    return f"{info.name}.{info.variant_test_name}" if info.variant_test_name else info.name


def noise(shape: tuple, dtype: Any, *key: Any) -> torch.Tensor:
    """Return the normal numbers that belong to a key."""
    rng = np.random.default_rng(zlib.crc32(repr((shape, key)).encode()))
    real, imaginary = rng.standard_normal((2, *shape))
    name = dtype_name(dtype)
    return torch.as_tensor(real + 1j * imaginary if "complex" in name else real).to(getattr(torch, name))


def parts(sample: Any) -> list:
    return leaves([sample.input, list(sample.args), sample.kwargs])


def features(sample: Any) -> set:
    """Return what tells a sample from others: shapes, dtypes and options."""
    found = set()
    for i, leaf in enumerate(parts(sample)):
        is_tensor = isinstance(leaf, torch.Tensor)
        found |= {(i, tuple(leaf.shape)), (i, leaf.dtype)} if is_tensor else {(i, repr(leaf))}
    return found | set(sample.kwargs)


def drawn(info: Any, dtype: torch.dtype) -> list:
    """Return the inputs of an entry, as cases; the same each time."""
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)  # the database draws from all three
    differentiated = bool(info.supports_autograd) and (dtype.is_floating_point or dtype.is_complex)
    cases = [Case(info, i, s) for i, s in enumerate(info.sample_inputs("cpu", dtype, requires_grad=differentiated))]
    return [case for case in cases if all(t.layout == torch.strided for t in case.tensors)]


def varied(cases: list, count: int) -> list:
    """Return the `count` cases that together show the most; one of them may have an empty tensor."""
    waiting = {i: features(case.sample) for i, case in enumerate(cases)}
    empty = {i for i, case in enumerate(cases) if any(t.numel() == 0 for t in case.tensors)}
    chosen: list = []
    seen: set = set()
    while waiting and len(chosen) < count:
        wanted = [i for i in waiting if (i in empty) == (0 < len(chosen) == count - 1)] or list(waiting)
        best = max(wanted, key=lambda i: len(waiting[i] - seen))
        seen |= waiting.pop(best)
        chosen.append(cases[best])
    return chosen


class Arguments(NamedTuple):
    """The arguments of one call, and those among them that are differentiated."""

    input: Any
    args: Any
    kwargs: Any
    inputs: list


class Case:
    """One input of an entry."""

    def __init__(self, info: Any, index: int, sample: Any) -> None:
        self.info, self.index, self.sample, self.name = info, index, sample, name_of(info)
        self.tensors = [leaf for leaf in parts(sample) if isinstance(leaf, torch.Tensor)]
        self.random = False

    def arguments(self, library: Any, prepare: Callable | None = None) -> Arguments:
        """Return new arguments; `prepare` takes the tensors that are differentiated."""
        inputs: list = []

        def one(value: Any) -> Any:
            if not isinstance(value, torch.Tensor):
                return library.constant(value)
            tensor = library.tensor(value)
            if not value.requires_grad or prepare is None:
                return tensor
            inputs.append(tensor)
            inputs[-1] = prepare(tensor, len(inputs))
            return inputs[-1]

        sample = self.sample
        return Arguments(*mapped(one, [sample.input, list(sample.args), sample.kwargs]), inputs)

    def noise(self, library: Any, tensor: Any, *key: Any) -> Any:
        return library.tensor(noise(tuple(tensor.shape), tensor.dtype, self.name, self.index, *key))

    def call(self, library: Any, given: Arguments) -> Any:
        function = library.function(self.info, bool(self.tensors))
        return function(given.input, *given.args, **given.kwargs)

    def processed(self, output: Any) -> Any:
        """Return what the database calls well defined of an output."""
        return self.sample.output_process_fn_grad(output)

    def smooth(self, library: Any, given: Arguments) -> list:
        """Return the results that the database differentiates."""
        function = library.function(self.info)
        output = self.info.gradcheck_wrapper(function, given.input, *given.args, **given.kwargs)
        found = [t for t in leaves(self.processed(output)) if isinstance(t, library.Tensor)]
        return [t for t in found if "float" in dtype_name(t.dtype) or "complex" in dtype_name(t.dtype)]


# -- procedures: what is looked at -----------------------------------------------------------------------------------


def tracked(tensor: Any, index: int) -> Any:
    return tensor.requires_grad_()


def gradients(library: Any, case: Case, outputs: list, inputs: list, *key: Any, **options: Any) -> tuple[list, list]:
    """Return the cotangents of outputs, and the gradients of inputs for them."""
    cotangents = [case.noise(library, t, i, *key) for i, t in enumerate(outputs)]
    if options.get("create_graph"):
        cotangents = [c.requires_grad_() for c in cotangents]
    if not outputs or not inputs:
        return cotangents, [None] * len(inputs)
    return cotangents, list(library.module.autograd.grad(outputs, inputs, cotangents, allow_unused=True, **options))


def forward(library: Any, case: Case) -> list:
    output = case.call(library, case.arguments(library))
    if case.name in GAUGE:
        return [*(tuple(t.shape) for t in leaves(output)), *leaves(case.processed(output))]
    return leaves(output)


def grad(library: Any, case: Case) -> list:
    given = case.arguments(library, tracked)
    outputs = case.smooth(library, given)
    recorded = [t for t in outputs if t.requires_grad]
    return [[t.requires_grad for t in outputs], *gradients(library, case, recorded, given.inputs)[1]]


def gradgrad(library: Any, case: Case) -> list:
    given = case.arguments(library, tracked)
    recorded = [t for t in case.smooth(library, given) if t.requires_grad]
    cotangents, first = gradients(library, case, recorded, given.inputs, create_graph=True)
    again = [g for g in first if g is not None and g.requires_grad]
    return gradients(library, case, again, [*given.inputs, *cotangents], "second")[1]


def jvp(library: Any, case: Case) -> list:
    forward_ad = library.module.autograd.forward_ad
    with forward_ad.dual_level():
        given = case.arguments(library, lambda t, i: forward_ad.make_dual(t, case.noise(library, t, "tangent", i)))
        return [forward_ad.unpack_dual(t).tangent for t in case.smooth(library, given)]


def inplace(library: Any, case: Case) -> list:
    if case.info.inplace_variant is None:
        raise NotApplicableError
    given = case.arguments(library, tracked if case.info.supports_inplace_autograd else None)
    tensor = given.input.clone()
    result = library.form(case.info.inplace_variant)(tensor, *given.args, **given.kwargs)
    found = gradients(library, case, [tensor], given.inputs)[1] if tensor.requires_grad else []
    return [result is tensor, tensor.requires_grad, tensor, *found]


def method(library: Any, case: Case) -> list:
    given = case.arguments(library)
    info = case.info
    found: list = []
    if info.method_variant is not None and isinstance(given.input, library.Tensor):
        output = library.form(info.method_variant)(given.input, *given.args, **given.kwargs)
        found += leaves(case.processed(output) if case.name in GAUGE else output)
    if info.operator_variant is not None and len(given.args) == 1 and not given.kwargs:
        found += leaves(info.operator_variant(given.input, *given.args))
    if not found:
        raise NotApplicableError
    return found


def view(library: Any, case: Case, scenario: str) -> list:
    """Write to a view or to its base, and look at both and at their gradients."""
    given = case.arguments(library, tracked)
    if not isinstance(given.input, library.Tensor):
        raise NotApplicableError
    base = given.input.clone()
    product = base * base
    with library.module.set_grad_enabled(scenario != "unrecorded"):
        taken = leaves(case.call(library, given._replace(input=base)))
        if library is TORCH:
            is_view(taken[-1], base, scenario)
    written = taken[-1]
    if scenario == "view":
        written.mul_(2)
    elif scenario == "base":
        base.mul_(3)
    elif scenario == "unrecorded":
        with library.module.no_grad():
            for i, t in enumerate(taken):
                t.mul_(i + 2)
            base.add_(1)
    elif scenario == "saved":
        with library.module.no_grad():
            written.mul_(2)
        return gradients(library, case, [product], given.inputs)[1] if product.requires_grad else []
    found = [base, *taken]
    for i, t in enumerate((base, written)):
        if t.requires_grad:
            found += gradients(library, case, [t], given.inputs, i, retain_graph=True)[1]
    return found


def is_view(tensor: Any, base: torch.Tensor, scenario: str) -> None:
    """Raise NotApplicableError unless torch's tensor is a view of the base, of a kind that may be written."""
    shared = isinstance(tensor, torch.Tensor) and tensor.numel() and tensor is not base
    if not shared or tensor.untyped_storage().data_ptr() != base.untyped_storage().data_ptr():
        raise NotApplicableError
    places = torch.zeros((), dtype=torch.int64)
    for size, stride in zip(tensor.shape, tensor.stride()):
        places = places[..., None] + stride * torch.arange(size)
    overlaps = places.unique().numel() < tensor.numel() and 0 not in tensor.stride()
    if overlaps and scenario != "base":  # torch writes such a view, without a promise
        raise NotApplicableError


PROCEDURES: dict[str, Callable] = {f.__name__: f for f in (forward, grad, gradgrad, jvp, inplace, method)}
