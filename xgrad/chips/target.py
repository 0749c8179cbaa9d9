"""Target: a chip, or several, that programs are compiled for and that need not be here."""

import importlib.util
import sys
from collections.abc import Callable, Sequence
from dataclasses import fields
from math import prod
from typing import Any

import jax
from jax.sharding import AbstractMesh, NamedSharding, PartitionSpec

from ..cli.requirements import clashes, version_of
from ..errors import TargetError
from ..immutable import Immutable, fixed
from ..platforms import tracing_for
from .answers import Answer, key_of, remember, remembered
from .names import CHIPS, Chip, parsed
from .process import compiler_of

LIMIT = 120.0  # seconds for one program


class Target(Immutable):
    """A chip, or a topology of chips, that programs are compiled for: `xgrad.target("tpu:v5e:2x2")`.

    `name`; `chip`: the kind of chip, "tpu:v5e"; `topology`: the sizes, (2, 2); `devices`: the number of JAX's devices;
    `memory`: the bytes of each that a program may have.  Equal names are equal targets.
    """

    __slots__ = ("_chip", "chip", "devices", "memory", "name", "topology")
    _chip: Chip
    chip: str
    devices: int
    memory: int
    name: str
    topology: tuple[int, ...]

    def __init__(self, name: str) -> None:
        chip, known, sizes = parsed(name)
        fixed(self, "_chip", chip)
        fixed(self, "chip", known)
        fixed(self, "topology", sizes)
        fixed(self, "name", f"{known}:{'x'.join(map(str, sizes))}")
        fixed(self, "memory", chip.memory)
        # A program for one chip with two devices is compiled for the first.
        fixed(self, "devices", 1 if prod(sizes) == 1 else prod(sizes) * chip.devices)

    def __repr__(self) -> str:
        return f"xgrad.target({self.name!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Target) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)

    def __reduce__(self) -> Any:
        return Target, (self.name,)

    @property
    def platform(self) -> str:
        """The platform that programs are traced for: "tpu" or "gpu"."""
        return "gpu" if self._chip.platform == "cuda" else self._chip.platform

    @property
    def missing(self) -> str | None:
        """What has to be installed for this target, in words; None if its compiler is here."""
        return missing(self._chip.platform)

    def mesh(self, axes: dict[str, int]) -> AbstractMesh:
        """Return a mesh of the target's devices, for shardings of shapes.

        Raises `ValueError` if the axes have not as many devices as the target.

        >>> import xgrad
        >>> xgrad.target("tpu:v5e:4x4").mesh({"data": 4, "model": 4}).axis_names
        ('data', 'model')
        """
        if prod(axes.values()) != self.devices:
            raise ValueError(f"{self!r} has {self.devices} devices, but the mesh {axes} has {prod(axes.values())}")
        return AbstractMesh(tuple(axes.values()), tuple(axes))

    def ask(
        self,
        function: Callable[..., Any],
        *structs: Any,
        donate: Sequence[int] = (),
        results: Sequence[Any] | None = None,
        options: dict[str, Any] | None = None,
        limit: float = LIMIT,
    ) -> Answer:
        """Compile a function of JAX arrays for this target, and return what the compiler says.

        `structs` are arrays or `jax.ShapeDtypeStruct`s, in pytrees if you like; `donate` has the places of those to be
        donated among all their leaves.  A struct with a `NamedSharding` over one of the target's meshes is sharded so;
        `results` are the `PartitionSpec`s of the results' leaves, None where the compiler chooses.  The trace is a new
        one, made for the target's platform.  `limit`: seconds after which the compiler is stopped.

        Raises `TargetError` if the target's compiler is not here, and what the function raises.
        """
        if (lacks := self.missing) is not None:
            raise TargetError(f"{self!r}: {lacks}")
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
            raise ValueError(f"{self!r} has {self.devices} devices, but an argument is on {mesh}")
        asked = {
            "topology": (self._chip.platform, self._chip.kind, self.topology, None),
            "mesh": None if mesh is None else (mesh.axis_sizes, mesh.axis_names),
            "specs": specs,
            "results": None if results is None else list(results),
            "donate": tuple(donate),
            "options": options,
        }
        versions = [version_of(package) for package in ("jax", "jaxlib", *_PACKAGES[self._chip.platform])]
        key = key_of(exported.mlir_module_serialized, exported.in_avals, asked, versions)
        answer = remembered(key)
        if answer is None:
            said = compiler_of(self._chip.platform).ask(asked | {"exported": found}, limit)
            answer = Answer(target=self.name, **said)
            if answer.state != "slow":  # which says as much of this machine
                remember(key, answer)
        return answer


def target(name: str) -> Target:
    """Return a chip, or a topology of chips, to compile for on a machine that has none.

    Names are `"tpu:v5e"`, `"tpu:v6e"`, `"tpu:v4"`, ..., with a topology `"tpu:v5e:4x4"`; `available()` lists those
    whose compiler is installed.  Nothing is compiled or loaded yet.

    Raises `ValueError` for an unknown name, which lists the known ones.

    >>> import xgrad
    >>> v5e = xgrad.target("tpu:v5e:2x2")
    >>> v5e.devices, v5e.chip
    (4, 'tpu:v5e')
    """
    return name if isinstance(name, Target) else Target(name)


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
        if isinstance(where, NamedSharding):
            if mesh is not None and (where.mesh.axis_sizes, where.mesh.axis_names) != (
                mesh.axis_sizes,
                mesh.axis_names,
            ):
                raise ValueError(f"the arguments are on several meshes: {mesh} and {where.mesh}")
            mesh = where.mesh
        specs.append(where.spec if isinstance(where, NamedSharding) else PartitionSpec())
    return mesh, specs
