"""Backend: a frozen dataclass by which users declare an imaginary device, whose tensors a JAX device computes.

It is `xgrad.Backend`, for tests and estimates.  A declaration changes nothing global.  A tensor may be put on the
object itself (`device=chip`); from `register()` on, its name is a device string too.
"""

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import jax

from ..base import declared
from ..base.devices import device, placement_of
from ..chips import target as chip
from ..execution.queue import MOST
from ..views.rules import rules_named
from . import names
from .active import Active
from .aliasing import POLICIES
from .bits import random_named
from .cost import Cost
from .faults import Faults
from .padding import sizes_named
from .products import formats_named
from .report import Report
from .runtime import Runtime
from .without import DTYPES, dtypes_left, dtypes_named, lacking, named
from .without_hlo import operations_named

_TAKEN = ("cpu", "cuda", "gpu", "tpu", "xla", "meta")


@dataclass(frozen=True, repr=False)
class Backend:
    """A device that is declared, and whose computing JAX's device `on` does: tensors live on `name:0`.

    `on`: one of JAX's devices, or a list of those: then the backend has as many, `name:0`, `name:1`, and so on.  A
    tensor is on the first, or sharded over several (`xgrad.mesh(..., devices=backend)`).
    `strides`: True if views are differentiated as sizes, strides and offset in the base (`as_strided`), False if their
    chains are replayed, as on XLA's devices.

    `execution`: "eager", or "lazy": operators are noted, and run together as one XLA program when a value is read, by
    `xgrad.sync()`, and after 2,000 operations.
    `dtypes`: those that it computes in, None for all; others it stores, if it falls back.
    `stores`: dtypes that it stores, casts and moves, and does not compute in; of others than these and `dtypes` no
    tensor can be on it.  None: it stores all, if it falls back, else `dtypes` only.
    `without`: operators that it lacks, as names with * for any characters ("sort", "linalg.*"); their derivatives are
    lacking too.  "complex" is all operators on complex numbers, "sorting" sort, topk and others made of a sort;
    a dtype's name ("float64") is all operators with that dtype.  What has a lowering is not lacking.
    `without_hlo`: operations of StableHLO that it lacks ("scatter", "sort", "while"): each program is looked through
    before it runs.
    `fallback`: "host", what it lacks is computed on the host, and the result is on the backend; "error", it is refused
    by `xgrad.errors.BackendError`, with its name and the line.
    `lowerings`: {operator: JAX function} in place of the operator's own, `function(*arrays, **static arguments)`.  The
    derivatives stay; a `jax.custom_vjp` brings its own.
    `views`: {view operation: rule}.  A rule is "replay", "geometry", "free" (reading it costs nothing), "copy" (it has
    a memory of its own), "refuse", or an `xgrad.ViewRule` with the backend's own functions; "*" is all other views.
    `runtime_starts`: False if the starts of slices are constants of their programs: each choice is a program.
    `donation`: False if a write in place copies the storage.
    `aliasing`: when a write through a view reaches the other tensors of its storage.  "write_through", at once, in the
    storage's memory; "regenerate", when one of them is read (functionalization: what is written waits until then);
    "copy_on_write", at once, in new memory if other tensors share the storage.  Values are the same.
    `memory`: a number of bytes, for each device.  What is alive counts, exactly; more is
    `xgrad.errors.OutOfMemoryError`, and nothing is lost.
    `cost`: an `xgrad.Cost`, for the estimated time of a report.
    `target`: a chip that is not here, `"tpu:v5e"` or an `xgrad.target`: its own compiler says in a report how long
    programs take, what they move, and whether they fit, where it is installed (`backend.target.missing`).  `memory` is
    the chip's unless it is given.  With a topology, `on` has as many devices.

    `faults`: an `xgrad.backends.Faults`: launches, memory, transfers, bits that fail, and a device that is lost.
    `passes`: functions from a closed jaxpr (`jax.make_jaxpr`) to another one, through which each program goes before it
    is lowered: an operator's, a view's, a queue's, a compiled step's.  `xgrad.backends.passes` has two, and what makes
    them short.  `verify_passes`: True if each program also runs without them, and other values are an error.
    `products`: the number format to which operands of products are rounded ("bfloat16", "float8_e4m3fn", "tf32"), and
    `accumulate`: the one in which they are summed ("float32", "float16"); in gradients too.  None: as they are.
    `random`: where random bits come from: "threefry" and "rbg" are JAX's; or a function of (key, shape, bits) over JAX
    arrays, that returns unsigned integers of so many bits.
    `fuse`: how what was noted is cut into programs: "all", one; "operator", one for each; n, at most n operators in
    one; a list of operators, as in `without`: these are programs of their own.
    `pending`: a lazy backend's operations that wait at most, before they run.
    `shapes`: a list of sizes: an eager backend pads dimensions of more than 1 to the next size; beyond the last they
    stay.  Or a function from a size to a size.  Programs mask what is padded, and run at their own sizes where their
    values would depend on it: a report says why.

    A Backend is a device wherever one goes.  `register()` makes its name a device string; `activate()` is a block in
    which new tensors are made on it.

    Raises `TypeError` and `ValueError` for what cannot be declared, `RuntimeError` for an absent device `on`.

    >>> import xgrad
    >>> chip = xgrad.Backend("chip")
    >>> x = xgrad.ones(2, device=chip, requires_grad=True)
    >>> (x * 3).sum().backward()
    >>> x.grad
    tensor([3., 3.], device='chip:0')
    """

    name: str
    on: Any = "cpu"
    strides: bool = False
    execution: str = "eager"
    dtypes: Sequence[Any] | None = None
    stores: Sequence[Any] | None = None
    without: Sequence[str] = ()
    without_hlo: Sequence[str] = ()
    fallback: str = "host"
    lowerings: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    views: Mapping[str, Any] = field(default_factory=dict)
    runtime_starts: bool = True
    donation: bool = True
    aliasing: str = "write_through"
    memory: int | None = None
    cost: Cost | None = None
    target: Any = None
    faults: Faults | None = None
    passes: Sequence[Callable[[Any], Any]] = ()
    verify_passes: bool = False
    products: str | None = None
    accumulate: str | None = None
    random: str | Callable[..., Any] | None = None
    fuse: int | str | Sequence[str] | None = None
    pending: int = MOST
    shapes: Sequence[int] | Callable[[int], int] | None = None
    _runtime: Any = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise TypeError(f"Backend: the name must be a str, but got {type(self.name).__name__}")
        if not re.fullmatch(r"[A-Za-z_]\w*", self.name) or self.name in _TAKEN:
            raise ValueError(
                f"Backend: the name is an identifier and none of {', '.join(_TAKEN)}, but got {self.name!r}"
            )
        for name in ("strides", "runtime_starts", "donation", "verify_passes"):
            if not isinstance(value := getattr(self, name), bool):
                raise TypeError(f"Backend '{self.name}': {name} must be True or False, but got {value!r}")
        if self.execution not in ("eager", "lazy"):
            raise ValueError(f"Backend '{self.name}': execution is 'eager' or 'lazy', not {self.execution!r}")
        if self.fallback not in ("host", "error"):
            raise ValueError(f"Backend '{self.name}': fallback is 'host' or 'error', not {self.fallback!r}")
        if self.aliasing not in POLICIES:
            raise ValueError(
                f"Backend '{self.name}': aliasing is one of {', '.join(map(repr, POLICIES))}, not {self.aliasing!r}"
            )
        if self.memory is not None and (isinstance(self.memory, bool) or not isinstance(self.memory, int)):
            raise TypeError(f"Backend '{self.name}': memory is a number of bytes, but got {self.memory!r}")
        if self.memory is not None and self.memory <= 0:
            raise ValueError(f"Backend '{self.name}': memory is a positive number of bytes, but got {self.memory}")
        if self.cost is not None and not isinstance(self.cost, Cost):
            raise TypeError(f"Backend '{self.name}': cost is an xgrad.Cost, but got {self.cost!r}")
        if isinstance(self.without, str) or not all(isinstance(pattern, str) for pattern in self.without):
            raise TypeError(f"Backend '{self.name}': without is a list of operators' names, but got {self.without!r}")
        if not isinstance(self.lowerings, Mapping) or not all(map(callable, self.lowerings.values())):
            raise TypeError(f"Backend '{self.name}': lowerings is {{operator: function}}, but got {self.lowerings!r}")
        if self.faults is not None and not isinstance(self.faults, Faults):
            raise TypeError(f"Backend '{self.name}': faults is an xgrad.backends.Faults, but got {self.faults!r}")
        if not isinstance(self.passes, Sequence) or not all(map(callable, self.passes)):
            raise TypeError(
                f"Backend '{self.name}': passes is a list of functions, each from a closed jaxpr to another one, but "
                f"got {self.passes!r}"
            )
        if isinstance(self.pending, bool) or not isinstance(self.pending, int) or self.pending < 1:
            raise ValueError(f"Backend '{self.name}': pending is a number of operations, but got {self.pending!r}")
        object.__setattr__(self, "shapes", sizes_named(self.name, self.shapes))
        if self.shapes is not None and self.execution == "lazy":
            raise ValueError(
                f"Backend '{self.name}': shapes is for execution='eager'; what a lazy backend notes is one program, of "
                "the sizes that were noted (xgrad.compile(dynamic=..., buckets=...) pads a function's arguments)"
            )
        formats_named(self.name, self.products, self.accumulate)
        random_named(self.name, self.random)
        object.__setattr__(self, "fuse", self._fuse())
        object.__setattr__(self, "passes", (*self.passes,))
        given = {named(self.name, name): function for name, function in self.lowerings.items()}
        dtypes = None if self.dtypes is None else dtypes_named(self.name, self.dtypes)
        stores = None if self.stores is None else dtypes_named(self.name, self.stores, "stores")
        for name, value in (
            ("lowerings", MappingProxyType(given)),
            ("views", MappingProxyType(rules_named(self.name, self.views))),
            ("without", tuple(self.without)),
            ("without_hlo", operations_named(self.name, self.without_hlo)),
            ("dtypes", None if dtypes is None else tuple(sorted(dtype.name for dtype in dtypes))),
            ("stores", None if stores is None else tuple(sorted(dtype.name for dtype in stores))),
        ):
            object.__setattr__(self, name, value)
        if stores and dtypes is None:
            dtypes = DTYPES - stores
        on = self._devices()
        if self.target is not None:
            self._aim(len(on))
        missing = lacking(self.name, self.without) - given.keys()
        object.__setattr__(self, "_runtime", Runtime(self, on, missing, dtypes_left(dtypes, self.without), stores))

    def _fuse(self) -> int | tuple[str, ...] | None:
        """Return `fuse` in one form: a number, names, or None.  Raises `ValueError` for any other value."""
        fuse: Any = self.fuse
        if fuse is None or fuse == "all":
            return None
        if fuse == "operator":
            return 1
        if isinstance(fuse, int) and not isinstance(fuse, bool) and fuse > 0:
            return fuse
        if isinstance(fuse, Sequence) and not isinstance(fuse, str) and all(isinstance(name, str) for name in fuse):
            return (*fuse,)
        raise ValueError(
            f"Backend '{self.name}': fuse is 'all', 'operator', a number of operators, or a list of operators that are "
            f"programs of their own, but got {fuse!r}"
        )

    def _aim(self, devices: int) -> None:
        """Take a target, and its memory.  Raises `TypeError` and `ValueError` for what cannot be one."""
        aim = chip(self.target)
        if aim.axes:
            raise ValueError(
                f"Backend '{self.name}': tensors have their own mesh and shardings: give a target without mesh="
            )
        if aim.devices != devices:
            raise ValueError(
                f"Backend '{self.name}': {aim.name} has {aim.devices} device{'s' * (aim.devices > 1)}, and `on` "
                f"{devices}: give one of JAX's devices for each"
            )
        object.__setattr__(self, "target", aim)
        object.__setattr__(self, "memory", aim.memory if self.memory is None else self.memory)

    def _devices(self) -> tuple[Any, ...]:
        """Return JAX's devices that compute.  Raises `TypeError` and `ValueError` for what cannot be `on`."""
        several = isinstance(self.on, (list, tuple))
        on = tuple([placement_of(d) for d in (self.on if several else (self.on,))])
        if not on or not all(isinstance(d, jax.Device) for d in on):
            raise TypeError(
                f"Backend '{self.name}': `on` is one of JAX's devices ('cpu', 'gpu:0'), or a list of such, but got "
                f"{self.on!r}"
            )
        if len({*on}) < len(on) or len({d.platform for d in on}) > 1:
            raise ValueError(
                f"Backend '{self.name}': the devices of `on` are different ones of one platform, but got {self.on!r}"
            )
        if several:
            object.__setattr__(self, "on", (*self.on,))
        return on

    def __repr__(self) -> str:
        """Return the declaration: what differs from the defaults."""
        text = f"Backend({self.name!r}"
        for f in dataclasses.fields(self)[1:]:
            value = getattr(self, f.name)
            if f.repr and value != (f.default if f.default_factory is dataclasses.MISSING else f.default_factory()):
                text += f", {f.name}={dict(value) if isinstance(value, Mapping) else value!r}"
        return f"{text})"

    def __hash__(self) -> int:
        return hash((type(self), self.name))

    def __reduce__(self) -> Any:
        fields = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.init}
        fields |= {"lowerings": dict(self.lowerings), "views": dict(self.views)}
        return _made, (fields,)

    def __deepcopy__(self, memo: Any) -> "Backend":
        return self  # it is immutable, and tensors are on this one

    def __xgrad_place__(self) -> declared.DeclaredPlace:
        return self._runtime.start()

    @property
    def device(self) -> device:
        """The device on which its tensors are.

        >>> import xgrad
        >>> xgrad.Backend("chip").device
        device(type='chip', index=0)
        """
        return device(self)

    def replace(self, **changes: Any) -> "Backend":
        """Return another backend, of another declaration: tensors of the one are not on the other.

        Raises `TypeError` for a property that there is not.

        >>> import xgrad
        >>> xgrad.Backend("chip").replace(strides=True).strides
        True
        """
        names = [f.name for f in dataclasses.fields(self) if f.init]
        if unknown := changes.keys() - {*names}:
            raise TypeError(
                f"Backend '{self.name}': replace() got {', '.join(sorted(unknown))}, but what is declared is "
                f"{', '.join(names)}"
            )
        if self.target is not None and "target" in changes and self.memory == self.target.memory:
            changes = {"memory": None} | changes  # another chip has its own
        return dataclasses.replace(self, **changes)

    def register(self) -> "Backend":
        """Make the name a device string, and return the backend.  Raises `RuntimeError` if another one has the name.

        The name is also a method of tensors and modules (`x.chip()`, `x.is_chip`), a module (`xgrad.chip`, as
        `xgrad.cuda`), and a type of devices of `autocast`, `GradScaler` and `library.custom_op`.  What has that name
        already stays as it is.

        >>> import xgrad
        >>> chip = xgrad.Backend("chip").register()
        >>> xgrad.zeros(2, device="chip").device
        device(type='chip', index=0)
        >>> chip.unregister()
        """
        declared.register(self._runtime.start())
        names.give(self, self._runtime.place)
        return self

    def unregister(self) -> None:
        """Take the name back.  Its tensors stay where they are.  Raises `RuntimeError` if it is not registered."""
        declared.unregister(self._runtime.place)
        names.take(self._runtime.place)

    def activate(self) -> Active:
        """Return a block, or a decorator, in which new tensors are made on this backend; for this thread.

        >>> import xgrad
        >>> with xgrad.Backend("chip").activate():
        ...     x = xgrad.ones(2)
        >>> x.device
        device(type='chip', index=0)
        """
        return Active(self)

    def report(self) -> Report:
        """Return a block that notes what the backend does, and says it afterwards.

        >>> import xgrad
        >>> chip = xgrad.Backend("chip")
        >>> with chip.report() as report:
        ...     x = xgrad.ones(2, device=chip) * 3
        >>> report.launches
        2
        """
        return Report(self._runtime)


def _made(fields: dict[str, Any]) -> Backend:
    return Backend(**fields)
