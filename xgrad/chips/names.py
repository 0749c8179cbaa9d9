"""Parses chips' names ("tpu:v5e", "tpu:v4:2x2x1") for `xgrad.target`; its table CHIPS has their memory and devices."""

from math import prod
from typing import NamedTuple


class Chip(NamedTuple):
    """A kind of chip: its name to the compiler, and how one stands among others."""

    platform: str  # "tpu" or "cuda"
    kind: str  # the compiler's name of it
    memory: int  # bytes of one device that programs may have
    devices: int  # of JAX's devices on one chip
    one: str  # the topology that is one chip
    config: str | None = None  # of a GPU: what its compiler has to know


def _tpu(kind: str, gib: float, devices: int, one: str) -> Chip:
    """Return a TPU; `gib` is what its compiler reports when a program does not fit."""
    return Chip("tpu", kind, int(gib * 2**30), devices, one)


_GPU = """gpu_device_info {{
  cuda_compute_capability {{ major: {capability[0]} minor: {capability[1]} }}
  core_count: {cores} fpus_per_core: {units} threads_per_core_limit: {threads} clock_rate_ghz: {clock}
  threads_per_block_limit: 1024 threads_per_warp: 32 registers_per_core_limit: 65536 registers_per_block_limit: 65536
  shared_memory_per_block: 49152 shared_memory_per_core: {shared} shared_memory_per_block_optin: {optin}
  block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
  device_memory_size: {memory} memory_bandwidth: {bandwidth} l2_cache_size: {cache}
}}
platform_name: "CUDA" device_description_str: "{kind}" dnn_version_info {{ major: 9 minor: 8 }}
"""


def _gpu(kind: str, memory: int, **figures: object) -> Chip:
    """Return a GPU of these figures, its maker's."""
    return Chip("cuda", kind, memory, 1, "1", _GPU.format(kind=kind, memory=memory, **figures))


CHIPS = {
    "tpu:v2": _tpu("v2", 7.48, 2, "1x1"),
    "tpu:v3": _tpu("v3", 15.48, 2, "1x1"),
    "tpu:v4": _tpu("v4", 30.75, 1, "1x1x1"),
    "tpu:v5e": _tpu("v5e", 15.75, 1, "1x1"),
    "tpu:v5p": _tpu("v5p", 95.74, 1, "1x1x1"),
    "tpu:v6e": _tpu("v6e", 31.25, 1, "1x1"),
    "tpu:v7x": _tpu("tpu7x", 94.75, 2, "1x1x1"),
    "cuda:t4": _gpu(
        "Tesla T4", 15_642_329_088, capability=(7, 5), cores=40, units=64, threads=1024, clock=1.59, shared=65_536,
        optin=65_536, bandwidth=320_000_000_000, cache=4_194_304,
    ),
    "cuda:h100": _gpu(
        "NVIDIA H100 80GB HBM3", 84_942_979_072, capability=(9, 0), cores=132, units=128, threads=2048, clock=1.98,
        shared=233_472, optin=232_448, bandwidth=3_352_320_000_000, cache=52_428_800,
    ),
}  # fmt: skip


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
