"""Target: a chip, or several, that programs are compiled for and that need not be here."""

import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from math import prod
from types import MappingProxyType
from typing import Any

import jax
from jax.sharding import AbstractMesh, NamedSharding, PartitionSpec

from ..cli.requirements import clashes, version_of
from ..config import state
from ..errors import TargetError
from ..execution.shapes_only import shapes_only
from ..immutable import Immutable, fixed
from ..platforms import tracing_for
from ..random import default_generator
from .answers import Answer, key_of, remember, remembered
from .names import CHIPS, Chip, parsed
from .process import compiler_of
from .programs import asked
from .report import ChipReport

LIMIT = 120.0  # seconds for one program


class Target(Immutable):
    """A chip, or a topology of chips, that programs are compiled for: `xgrad.target("tpu:v5e:2x2")`.

    `name`; `chip`: the kind of chip, "tpu:v5e"; `topology`: the sizes, (2, 2); `devices`: the number of JAX's devices;
    `memory`: the bytes of each that a program may have; `mesh`: over its devices, for shardings, or None.
    """

    __slots__ = ("_chip", "chip", "devices", "limit", "memory", "mesh", "name", "shardings", "topology")
    _chip: Chip
    chip: str
    devices: int
    limit: float
    memory: int
    mesh: AbstractMesh | None
    name: str
    shardings: Mapping[str, Any]
    topology: tuple[int, ...]

    def __init__(
        self, name: str, mesh: Mapping[str, int] | None, shardings: Mapping[str, Any] | None, limit: float
    ) -> None:
        chip, known, sizes = parsed(name)
        # A program for one chip with two devices is compiled for the first.
        devices = 1 if prod(sizes) == 1 else prod(sizes) * chip.devices
        if mesh is not None and prod(mesh.values()) != devices:
            raise ValueError(f"{name!r} has {devices} devices, but the mesh {dict(mesh)} has {prod(mesh.values())}")
        if shardings and mesh is None:
            raise ValueError("shardings= name axes of a mesh: give mesh={'data': 4, 'model': 4} too")
        fixed(self, "_chip", chip)
        fixed(self, "chip", known)
        fixed(self, "topology", sizes)
        fixed(self, "name", f"{known}:{'x'.join(map(str, sizes))}")
        fixed(self, "memory", chip.memory)
        fixed(self, "devices", devices)
        fixed(self, "mesh", None if mesh is None else AbstractMesh(tuple(mesh.values()), tuple(mesh)))
        fixed(self, "shardings", MappingProxyType(dict(shardings or {})))
        fixed(self, "limit", limit)

    def __repr__(self) -> str:
        over = "" if self.mesh is None else f", mesh={dict(self.mesh.shape)}, shardings={dict(self.shardings)}"
        return f"xgrad.target({self.name!r}{over})"

    def _key(self) -> tuple[Any, ...]:
        return self.name, self.mesh and tuple(self.mesh.shape.items()), tuple(self.shardings.items()), self.limit

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Target) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __reduce__(self) -> Any:
        mesh = None if self.mesh is None else dict(self.mesh.shape)
        return Target, (self.name, mesh, dict(self.shardings), self.limit)

    @property
    def platform(self) -> str:
        """The platform that programs are traced for: "tpu" or "gpu"."""
        return "gpu" if self._chip.platform == "cuda" else self._chip.platform

    @property
    def missing(self) -> str | None:
        """What has to be installed for this target, in words; None if its compiler is here."""
        return missing(self._chip.platform)

    def compile(self, function: Any, *args: Any, **kwargs: Any) -> ChipReport:
        """Compile a function of tensors for this target, and return what the compiler says of it.

        `function` is a plain function, a module, a function of `xgrad.compile` (a whole training step, with `backward`
        and an optimizer), or `xgrad.lazy`: its last program.  Arguments are tensors, or a `jax.ShapeDtypeStruct` in the
        place of one; tensors of `with xgrad.chips.shapes():` take no memory.  The function is traced anew, for the
        target's platform; it does not run, and no tensor, `.grad`, state or generator is changed.

        Raises `TargetError` if the target's compiler is not here, `PlacementError` for shardings that do not fit, and
        what the trace raises.
        """
        self._require()
        with tracing_for(self.platform):
            program = asked(function, args, kwargs, self.mesh, self.shardings)
        answer = self.ask(
            program.function, *program.structs, donate=program.donate, results=program.results, options=program.options
        )
        return ChipReport(self, answer, program)

    def _require(self) -> None:
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

        Raises `TargetError` if the target's compiler is not here, and what the function raises.
        """
        self._require()
        leaves, tree = jax.tree.flatten(structs)

        def program(*operands: Any) -> list[Any]:
            return jax.tree.leaves(function(*tree.unflatten(operands)))

        program.__name__ = getattr(function, "__name__", "program")
        lowered_for = (self._chip.platform,)
        with tracing_for(self.platform):
            exported = jax.export.export(jax.jit(program), platforms=lowered_for)(*map(_struct, leaves))
        found = {f.name: getattr(exported, f.name) for f in fields(exported)} | {"_get_vjp": None}
        mesh, specs = _shardings(leaves)
        if mesh is not None and mesh.size != self.devices:
            raise ValueError(f"{self.name} has {self.devices} devices, but an argument is on {mesh}")
        request = {
            "topology": (self._chip.platform, self._chip.kind, self.topology, None),
            "mesh": None if mesh is None else (mesh.axis_sizes, mesh.axis_names),
            "specs": specs,
            "results": None if results is None else list(results),
            "donate": tuple(donate),
            "options": options,
        }
        versions = [version_of(package) for package in ("jax", "jaxlib", *_PACKAGES[self._chip.platform])]
        key = key_of(exported.mlir_module_serialized, exported.in_avals, request, versions)
        answer = remembered(key)
        if answer is None:
            said = compiler_of(self._chip.platform).ask(request | {"exported": found}, self.limit)
            answer = Answer(target=self.name, **said)
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
    >>> v5e.devices, v5e.chip
    (16, 'tpu:v5e')
    """
    return name if isinstance(name, Target) else Target(name, mesh, shardings, limit)


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
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, weak_type=getattr(leaf, "weak_type", False))


def _shardings(leaves: list[Any]) -> tuple[Any, list[Any]]:
    """Return the mesh over which operands are sharded, or None, and the spec of each."""
    mesh, specs = None, []
    for leaf in leaves:
        where = getattr(leaf, "sharding", None)
        if not isinstance(where, NamedSharding) or not where.mesh.shape:  # of a jaxpr's variable: over no axes
            where = None
        else:
            if mesh is not None and (where.mesh.axis_sizes, where.mesh.axis_names) != (
                mesh.axis_sizes,
                mesh.axis_names,
            ):
                raise ValueError(f"the arguments are on several meshes: {mesh} and {where.mesh}")
            mesh = where.mesh
        specs.append(PartitionSpec() if where is None else where.spec)
    return mesh, specs
