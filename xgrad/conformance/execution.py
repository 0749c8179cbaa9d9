"""Runs conformance checks on a device (`Place`): an operator's checks in one dtype as one program, or each by itself.

Compiling is what takes the time, so all checks of an operator in one dtype are one program, as a compiled step is
(`together`).  If that fails, operator_rows.py and views.py run each by itself (`alone`), which says which one the
device refuses; and so they do where checks cannot be traced: on an `xgrad.Backend`, and where a result's shape depends
on values.
"""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import jax
import numpy as np

from ..backends import Backend
from ..backends.products import multiplies
from ..base.declared import DeclaredPlace
from ..base.devices import device as device_of
from ..base.devices import placement_of
from ..errors import DtypeDisabledError
from ..ops.create.from_data import tensor
from ..tensor import Tensor, from_array
from .cases import read
from .measure import coarser
from .records import FAILED, REFUSED, Check

Task = Callable[[list[Tensor]], dict[str, list[Tensor]]]
_UNIMPLEMENTED = ("unimplemented", "not implemented", "not supported", "unsupported")


class Place:
    """The device that is checked: any value that `device=` takes; or a chip that is not here, a `target`.

    Then tensors are on an `xgrad.Backend`, whose computing the CPU does, and the chip's compiler is asked.
    """

    def __init__(self, device: Any = None, target: Any = None) -> None:
        self.target = target
        given = device if target is None else Backend("target", target=target)
        self.given: Any = "xla" if given is None else given
        placement_of(self.given)  # raises for a device that JAX does not see
        where = device_of(self.given)
        self.name: Any = str(where) if target is None else target.name
        self.jax_device: Any = where.placement if isinstance(where.placement, jax.Device) else None
        # Of an `xgrad.Backend`, its declaration: one that is declared otherwise is another device.
        self.kind: str = repr(self.given) if self.jax_device is None else self.jax_device.device_kind
        if target is not None:
            self.kind = f"compiled by {target.compiler}"

    @property
    def declared(self) -> bool:
        """True for a backend that is declared, whose tensors a trace of JAX's knows nothing of, and for a sharding."""
        return self.jax_device is None

    @property
    def runtime(self) -> Any:
        """The runtime of an `xgrad.Backend`; None for any other device."""
        where = device_of(self.given).placement
        return where.runtime if isinstance(where, DeclaredPlace) else None

    @property
    def ruled(self) -> Any:
        """The rules of views of an `xgrad.Backend`; None for any other device, and for none."""
        views = self.runtime and self.runtime.views
        return None if views is None else views.rules

    @property
    def random(self) -> Any:
        """The generator of an `xgrad.Backend`, if it has another one than the CPU."""
        random = self.runtime and self.runtime.backend.random
        return None if random == "threefry" else random

    @property
    def products(self) -> dict[str, Any]:
        """The formats of an `xgrad.Backend`'s products and of their sums, if it declares any, for the report."""
        backend = self.runtime and self.runtime.backend
        formats = (None, None) if backend is None else (backend.products, backend.accumulate)
        return {} if formats == (None, None) else {"products": [*formats]}

    def factor(self, dtype: Any, function: Any = None, arrays: Any = ()) -> float:
        """Return the factor of the tolerance for what a function of tensors computes; None: for what has products."""
        backend = self.runtime and self.runtime.backend
        if backend is None or backend.products is backend.accumulate is None:
            return 1.0
        if function is not None and not multiplies(one_program([function]), [arrays]):
            return 1.0
        return coarser(dtype, backend.products, backend.accumulate)

    def report(self) -> Any:
        """Return the block that counts what an `xgrad.Backend` does; of another device, one that gives None."""
        return nullcontext() if self.runtime is None else self.runtime.backend.report()

    def tensors(self, arrays: list[np.ndarray]) -> list[Tensor]:
        return [tensor(a, device=self.given) for a in arrays]


def values(tensors: list[Tensor]) -> list[np.ndarray]:
    """Return the values of tensors, on the host."""
    return [t.numpy(force=True) for t in tensors]


def together(place: Place, tasks: list[tuple[Task, list[np.ndarray]]]) -> list[dict[str, list[np.ndarray]]]:
    """Run tasks as one program of the device; each has its own arrays."""
    operands = jax.device_put([arrays for _, arrays in tasks], place.jax_device)
    return jax.device_get(jax.jit(one_program([task for task, _ in tasks]))(operands))


def one_program(tasks: list[Task]) -> Callable[..., Any]:
    """Return tasks as one function of lists of arrays, one for each."""

    def program(operands: list[list[Any]]) -> list[dict[str, list[Any]]]:
        return [
            {name: read(found) for name, found in task([from_array(a) for a in arrays]).items()}
            for task, arrays in zip(tasks, operands, strict=True)
        ]

    return program


def alone(place: Place, task: Task, arrays: list[np.ndarray]) -> dict[str, list[np.ndarray]]:
    """Run one task operator by operator."""
    return {name: values(found) for name, found in task(place.tensors(arrays)).items()}


def refusal(name: str, error: Exception) -> Check:
    """Return the check that an error ended: refused if the error says that the thing does not exist, else failed."""
    text = (str(error).strip().splitlines() or [""])[0]
    said = f"{type(error).__name__}: {text}"[:300]
    refused = isinstance(error, (NotImplementedError, DtypeDisabledError))
    if isinstance(error, jax.errors.JaxRuntimeError):
        refused = any(word in str(error).lower() for word in _UNIMPLEMENTED)
    return Check(name, REFUSED if refused else FAILED, None, f"{name}: {said}")
