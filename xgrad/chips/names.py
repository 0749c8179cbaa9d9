"""The chips that can be compiled for, by name: `"tpu:v5e"`, `"tpu:v4:2x2x1"`, `"cuda:t4"`.

The sizes are what the compilers themselves say when a program does not fit, for one device of JAX's.
"""

from math import prod
from typing import NamedTuple


class Chip(NamedTuple):
    """A kind of chip: its name to the compiler, and how one stands among others."""

    platform: str  # "tpu" or "cuda"
    kind: str  # the compiler's name of it
    memory: int  # bytes of one device that programs may have
    devices: int  # of JAX's devices on one chip
    one: str  # the topology that is one chip


_GIB = 1 << 30
CHIPS = {
    "tpu:v2": Chip("tpu", "v2", int(7.48 * _GIB), 2, "1x1"),
    "tpu:v3": Chip("tpu", "v3", int(15.48 * _GIB), 2, "1x1"),
    "tpu:v4": Chip("tpu", "v4", int(30.75 * _GIB), 1, "1x1x1"),
    "tpu:v5e": Chip("tpu", "v5e", int(15.75 * _GIB), 1, "1x1"),
    "tpu:v5p": Chip("tpu", "v5p", int(95.74 * _GIB), 1, "1x1x1"),
    "tpu:v6e": Chip("tpu", "v6e", int(31.25 * _GIB), 1, "1x1"),
    "tpu:v7x": Chip("tpu", "tpu7x", int(94.75 * _GIB), 2, "1x1x1"),
    "cuda:t4": Chip("cuda", "t4", 15 * _GIB, 1, "1"),
    "cuda:h100": Chip("cuda", "h100", 79 * _GIB, 1, "1"),
}


def parsed(name: str) -> tuple[Chip, str, tuple[int, ...]]:
    """Return the chip of a name, its own name, and the topology as numbers.

    Raises `TypeError` if `name` is not a string, `ValueError` for a chip or a topology that is not known.

    >>> parsed("tpu:v5e:4x4")[1:]
    ('tpu:v5e', (4, 4))
    """
    if not isinstance(name, str):
        raise TypeError(f"a target is named by a string such as 'tpu:v5e', but got {name!r}")
    known = next((chip for chip in CHIPS if name == chip or name.startswith(chip + ":")), None)
    if known is None:
        raise ValueError(
            f"unknown target {name!r}; known are {', '.join(CHIPS)}, alone or with a topology: 'tpu:v5e:2x2'"
        )
    chip, text = CHIPS[known], name[len(known) + 1 :]
    sizes = tuple(int(n) if n.isdecimal() else 0 for n in (text or chip.one).split("x"))
    wanted = chip.one.count("x") + 1
    if name == known + ":" or len(sizes) != wanted or min(sizes) < 1:
        example = "x".join(["2"] * wanted) if chip.platform == "tpu" else "1"
        raise ValueError(
            f"target {name!r}: a topology of {known} is {wanted} sizes such as {known}:{example}, but got {text!r}"
        )
    if chip.platform != "tpu" and prod(sizes) > 1:
        raise ValueError(f"target {name!r}: programs for {known} are compiled for one device")
    return chip, known, sizes
