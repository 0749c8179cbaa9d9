"""xgrad.target: compiles functions for a chip that this machine need not have, and returns a report on them."""

import importlib.util
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
from jax import export
from jax.sharding import AbstractMesh, NamedSharding, PartitionSpec

from ..base.platforms import tracing_for
from ..base.table import size
from ..cli.requirements import clashes, version_of
from ..config import state
from ..errors import TargetError
from ..execution.shapes_only import shapes_only
from ..random import default_generator
from .answers import Answer, key_of, remember, remembered
from .names import CHIPS, Chip, parsed
from .process import compiler_of
from .programs import asked
from .report import ChipReport

_LOCATION = re.compile(r'^#loc.*\n| loc\((?:#\w+|unknown|"[^"]*")\)', re.MULTILINE)
LIMIT = 600.0  # seconds for one program


@dataclass(frozen=True, repr=False)
class Target:
    """A chip, or a topology of chips, that programs are compiled for: `xgrad.target("tpu:v5e:2x2")`.

    `name`; `devices`: the number of JAX's devices; `memory`: the bytes of each that a program may have.
    """

    name: str
    axes: tuple[tuple[str, int], ...] = ()  # of the mesh over its devices
    shardings: tuple[tuple[str, Any], ...] = ()  # (pattern of names, spec)
    limit: float = LIMIT

    def __post_init__(self) -> None:
        _, known, sizes = parsed(self.name)
        object.__setattr__(self, "name", f"{known}:{'x'.join(map(str, sizes))}")
        if self.axes and (many := prod(dict(self.axes).values())) != self.devices:
            raise ValueError(f"{self.name} has {self.devices} devices, but the mesh {dict(self.axes)} {many}")
        if self.shardings and not self.axes:
            raise ValueError("shardings= name axes of a mesh: give mesh={'data': 4, 'model': 4} too")

    def __repr__(self) -> str:
        over = f", {dict(self.axes)}, {dict(self.shardings)}" if self.axes else ""
        return f"xgrad.target({self.name!r}{over})"

    @property
    def _chip(self) -> Chip:
        return parsed(self.name)[0]

    @property
    def devices(self) -> int:
        chip, _, sizes = parsed(self.name)
        return 1 if prod(sizes) == 1 else prod(sizes) * chip.devices  # one chip: its first device

    @property
    def memory(self) -> int:
        return self._chip.memory

    @property
    def mesh(self) -> AbstractMesh | None:
        """The mesh, for shardings of shapes; None if there is none."""
        return AbstractMesh(*zip(*((n, name) for name, n in self.axes))) if self.axes else None

    @property
    def platform(self) -> str:
        """The platform that programs are traced for: "tpu" or "gpu"."""
        return "gpu" if self._chip.platform == "cuda" else self._chip.platform

    @property
    def missing(self) -> str | None:
        """Say what has to be installed for this target; None if its compiler is installed."""
        return missing(self._chip.platform)

    @property
    def compiler(self) -> str:
        """The compiler's package and its version."""
        package = _PACKAGES[self._chip.platform][0]
        return f"{package} {version_of(package)}"

    def compile(self, function: Any, *args: Any, **kwargs: Any) -> ChipReport:
        """Compile a function of tensors for this target, and return what the compiler says of it.

        `function` is a plain function, a module, a function of `xgrad.compile` (a whole training step, with `backward`
        and an optimizer), or `xgrad.lazy`: its last program.  Arguments are tensors, or a `jax.ShapeDtypeStruct` in the
        place of one; tensors of `with xgrad.chips.shapes():` take no memory.  The function is traced anew, for the
        target's platform; it does not run, and no tensor, `.grad`, state or generator is changed.

        Raises `TargetError` if the target's compiler is not here, `PlacementError` for shardings that do not fit, and
        what the trace raises.
        """
        self.require()
        with tracing_for(self.platform):
            program = asked(function, args, kwargs, self.mesh, dict(self.shardings))
        answer = self.ask(
            program.function, *program.structs, donate=program.donate, results=program.results, options=program.options
        )
        return ChipReport(self, answer, program)

    def require(self) -> None:
        """Raise `TargetError` if the target's compiler is not here."""
        if (lacks := self.missing) is not None:
            raise TargetError(f"{self.name}: {lacks}")

    def ask(
        self,
        function: Callable[..., Any],
        *structs: Any,
        donate: Sequence[int] = (),
        results: Sequence[Any] | None = None,
        options: dict[str, Any] | None = None,
    ) -> Answer:
        """Compile a function of JAX arrays for this target, and return what the compiler says.

        `structs` are arrays or `jax.ShapeDtypeStruct`s, in pytrees if you like; `donate` has the places of those to be
        donated among all their leaves.  A struct with a `NamedSharding` over one of the target's meshes is sharded so;
        `results` are the `PartitionSpec`s of the results' leaves, None where the compiler chooses.  The trace is a new
        one, made for the target's platform.

        Raises `TargetError` if the target's compiler is not here, `NotImplementedError` for a program with a part that
        the host computes, and what the function raises.
        """
        self.require()
        leaves, tree = jax.tree.flatten(structs)

        def program(*operands: Any) -> list[Any]:
            return jax.tree.leaves(function(*tree.unflatten(operands)))

        program.__name__ = getattr(function, "__name__", "program")
        with tracing_for(self.platform):
            lowered = export.export(jax.jit(program), platforms=(self._chip.platform,))
            try:
                exported = lowered(*map(_struct, leaves))
            except ValueError as error:
                if "lowering platform" not in str(error):
                    raise
                raise NotImplementedError(
                    f"{self.name}: the host computes a part of this program (a callback, or linalg.eig on a TPU), "
                    "which JAX compiles only for a device that is here"
                ) from error
        found = {f.name: getattr(exported, f.name) for f in fields(exported)} | {"_get_vjp": None}
        mesh, specs = _shardings(leaves)
        if mesh is not None and mesh.size != self.devices:
            raise ValueError(f"{self.name} has {self.devices} devices, but an argument is on {mesh}")
        request = {
            "topology": (self._chip.platform, self._chip.kind, parsed(self.name)[2], self._chip.config),
            "mesh": None if mesh is None else (mesh.axis_sizes, mesh.axis_names),
            "specs": specs,
            "results": None if results is None else list(results),
            "donate": tuple(donate),
            "options": options,
        }
        versions = [version_of(package) for package in ("jax", "jaxlib", *_PACKAGES[self._chip.platform])]
        versions += [os.environ.get(flags) for flags in ("XLA_FLAGS", "LIBTPU_INIT_ARGS")]
        # Without locations, which another line of the caller would change; the lines that a report shows count.
        text = _LOCATION.sub("", exported.mlir_module())
        key = key_of(text, getattr(function, "lines", ()), request, versions)
        answer = remembered(key)
        if answer is None:
            said = compiler_of(self._chip.platform).ask(request | {"exported": found}, self.limit)
            answer = Answer(target=self.name, **said)
            if self._chip.config and answer.peak > self.memory:  # which the compilers of GPUs do not look at
                told = f"the program takes {size(answer.peak)}, and {self.name} has {size(self.memory)}"
                answer = replace(answer, state="does not fit", said=told)
            if answer.state != "slow":  # which says as much of this machine
                remember(key, answer)
        return answer


def target(
    name: str | Target,
    mesh: Mapping[str, int] | None = None,
    shardings: Mapping[str, Any] | None = None,
    limit: float = LIMIT,
) -> Target:
    """Return a chip, or a topology of chips, to compile for on a machine that has none.

    Names are `"tpu:v5e"`, `"tpu:v6e"`, `"tpu:v4"`, ..., with a topology `"tpu:v5e:4x4"`; `xgrad.chips.available()`
    lists those whose compiler is installed.  Nothing is loaded yet.

    On several chips a program is sharded over `mesh`, names and sizes of its axes, by `shardings`: patterns of names of
    tensors, each with a `PartitionSpec`.  The first that fits counts; the state of a parameter is where that is; what
    no pattern names is whole on each device.  Tensors that are on an `xgrad.mesh` of as many devices stay as they are.

    `limit`: seconds after which the compiler is stopped, for each program.

    Raises `ValueError` for an unknown name, which lists the known ones, and for a mesh of another size.

    >>> import xgrad
    >>> from jax.sharding import PartitionSpec as P
    >>> v5e = xgrad.target("tpu:v5e:4x4", {"data": 8, "model": 2}, {"inputs": P("data"), "*.qkv.weight": P("model")})
    >>> v5e.devices, v5e.name
    (16, 'tpu:v5e:4x4')
    """
    if isinstance(name, Target):
        return name
    return Target(name, tuple((mesh or {}).items()), tuple((shardings or {}).items()), limit)


def shapes() -> Any:
    """Return a block in which tensors have shapes and no values, and take no memory: models, optimizers, batches.

    They are for `compiled_for` and `target.compile`; what reads a value raises `RuntimeError`.  The random generator is
    as before at the end.

    >>> import xgrad
    >>> with xgrad.chips.shapes():
    ...     large = xgrad.nn.Linear(100_000, 100_000)
    >>> large.weight.shape
    xgrad.Size([100000, 100000])
    """
    return shapes_only(state.generator or default_generator)


def available() -> list[str]:
    """Return the names of the chips whose compiler is here; `xgrad.target(name).missing` says what another lacks."""
    return [name for name, chip in CHIPS.items() if missing(chip.platform) is None]


_PACKAGES = {"tpu": ("libtpu",), "cuda": ("jax-cuda12-plugin", "jax-cuda12-pjrt")}
_INSTALL = {
    "tpu": ("jax[tpu]", "137 MB to load, 684 MB on the disk, a minute"),
    "cuda": ("jax-cuda12-plugin=={} jax-cuda12-pjrt=={}", "182 MB to load; half a minute"),
}


def missing(platform: str) -> str | None:
    """Return in words what a platform's compiler lacks, with the command that mends it; None if it is here."""
    package, *_ = _PACKAGES[platform]
    if sys.platform != "linux":
        return f"the compiler is for Linux alone ({package} has no wheel for {sys.platform})"
    wanted, cost = _INSTALL[platform]
    version = version_of("jax")
    if version_of(package) is None or importlib.util.find_spec(package.replace("-", "_")) is None:
        extra = f'"{wanted}=={version}"' if platform == "tpu" else wanted.format(version, version)
        return f"its compiler is not installed: pip install {extra} ({cost})"
    for clash in clashes((package,)):
        if package in clash.what:
            return f"{clash.what}: {clash.command}"
    return None


def _struct(leaf: Any) -> Any:
    leaf = leaf if hasattr(leaf, "shape") else jnp.asarray(leaf)  # a number
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, weak_type=getattr(leaf, "weak_type", False))


def _shardings(leaves: list[Any]) -> tuple[Any, list[Any]]:
    """Return the mesh over which operands are sharded, or None, and the spec of each."""
    mesh, specs = None, []
    for leaf in leaves:
        where = getattr(leaf, "sharding", None)
        if not isinstance(where, NamedSharding) or not where.mesh.shape:  # of a jaxpr's variable: over no axes
            specs.append(PartitionSpec())
            continue
        if mesh is not None and mesh.shape != where.mesh.shape:
            raise ValueError(f"the arguments are on several meshes: {mesh} and {where.mesh}")
        mesh = where.mesh
        specs.append(where.spec)
    return mesh, specs
