"""Work: counts a compiled program's arithmetic and bytes by dtype, and its collectives, for `xgrad.Cost`'s estimates.

Totals are XLA's counts of the compiled program; `bytes_by` adds the padding of tiles, and copies that a device
without donation makes.  How totals divide among dtypes and operations is read from its StableHLO, only if a Cost asks.
"""

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, NamedTuple

import jax
import numpy as np

from ..execution.programs.cost import cost_of
from .collectives import Collective, collectives
from .events import Launch
from .tiles import tiled

_TENSOR = re.compile(r"tensor<((?:\d+x)*)([\w<>]+?)(?:, .*)?>$")
_CONTRACTED = re.compile(r"lhs_contracting_dimensions = \[([\d, ]*)\]")
_KERNEL = re.compile(r"x\[([^\]]*)\]->")
_PLAIN = re.compile(r"_\d+$")  # JAX tells functions of one name apart by numbers
_MOVE = frozenset(
    f"stablehlo.{name}" for name in (
        "bitcast_convert", "broadcast_in_dim", "case", "concatenate", "constant", "convert", "custom_call",
        "dynamic_slice", "dynamic_update_slice", "gather", "get_tuple_element", "if", "iota", "optimization_barrier",
        "pad", "reshape", "return", "reverse", "scatter", "slice", "transpose", "tuple", "while",
    )
)  # fmt: skip
_BODIES = ("stablehlo.case", "stablehlo.if", "stablehlo.while")


class Shaped(NamedTuple):
    """The shape of an array, and the name of its dtype."""

    shape: tuple[int, ...]
    dtype: str


class Operation(NamedTuple):
    """An operation of StableHLO (`stablehlo.sort`), or an operator (`matmul`), as a rule of a `Cost` sees it.

    `operands`, `results`: their shapes and dtypes; `flops`: floating-point operations; `inside`: what it is made of.
    """

    name: str
    operands: tuple[Shaped, ...]
    results: tuple[Shaped, ...]
    flops: float
    inside: tuple[Any, ...] = ()

    @property
    def bytes(self) -> int:
        """The bytes of operands and results."""
        return sum(tiled(*shaped, None) for shaped in (*self.operands, *self.results))


class Work:
    """The arithmetic and the bytes of one program."""

    def __init__(self, launch: Launch) -> None:
        with jax.ensure_compile_time_eval():
            self._lowered = launch.lower()
            compiled = self._lowered.compile()
        found = cost_of(compiled)
        self.name, self.parts, self.fused, self.spread = launch.name, launch.parts, launch.fused, launch.spread
        self._rounds = launch.rounds
        self.flops: float = found.flops or 0.0
        self.moved: float = found.bytes_accessed or 0.0
        given = launch.structs[1:] if launch.parts else launch.structs  # a queue's program has a unit, a number
        self.operands: list[Shaped] = _shapes(jax.tree.leaves(given))
        self.results: list[Shaped] = _shapes(jax.tree.leaves(self._lowered.out_info))
        # For want of donation: each is read and written once more.
        self.copies: list[Shaped] = _shapes(jax.tree.leaves([launch.structs[i] for i in launch.spared]))
        self.collectives: list[Collective] = collectives(compiled.as_text(), _devices(launch)) if launch.spread else []

    def bytes_by(self, tiles: Any) -> dict[str, float]:
        """Return the bytes that are read and written, by dtype, in whole tiles.

        XLA's count is divided among dtypes, and grows by the padding, as operands and results do.
        """
        plain: Counter[str] = Counter()
        padded: Counter[str] = Counter()
        for shaped in (*self.operands, *self.results):
            plain[shaped.dtype] += tiled(*shaped, None)
            padded[shaped.dtype] += tiled(*shaped, tiles)
        whole = plain.total()
        found = Counter(
            {name: self.moved * padded[name] / whole for name in plain} if whole else {"float32": self.moved}
        )
        for shaped in self.copies:
            found[shaped.dtype] += 2 * tiled(*shaped, tiles)
        return dict(found)

    @cached_property
    def operations(self) -> tuple[Operation, ...]:
        """The parts of the program: operators if it has several, else the operations of StableHLO in one."""
        functions = {f.attributes["sym_name"].value: f for f in self._lowered.compiler_ir("stablehlo").body.operations}
        inside = tuple(_operations(functions["main"].regions[0], functions, self._rounds))
        if not self.fused:
            return (Operation(self.name.rstrip("_"), (*self.operands,), (*self.results,), _flops(inside), inside),)
        calls = [n for n, each in enumerate(inside) if not each.name.startswith("stablehlo.")]
        if len(calls) == len(self.parts):  # else some are merged into others, and only the functions' names are known
            renamed = dict(zip(calls, self.parts))
            inside = tuple([each._replace(name=renamed.get(n, each.name).rstrip("_")) for n, each in enumerate(inside)])
        return inside

    def flops_by(self, rules: Mapping[str, Any]) -> tuple[dict[str, float], float]:
        """Return the operations by dtype, without those that have a rule, and the seconds that rules say."""
        kept, dropped, told = _Counted(), _Counted(), 0.0
        waiting = [(each, kept) for each in self.operations]
        while waiting:
            each, into = waiting.pop()
            rule = rules.get(each.name) if into is kept else None
            if rule is not None:
                seconds = rule(each) if callable(rule) else rule
                if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not seconds >= 0:
                    raise ValueError(f"Cost: the rule of {each.name!r} returned {seconds!r}, which is not a time")
                told, into = told + seconds, dropped
            if each.inside:
                waiting += [(part, into) for part in each.inside]
            elif each.flops:
                found = into.products if each.name in _PRODUCTS else into.others
                found[each.operands[0].dtype] += each.flops
        # XLA counts products as we do; of the rest it fuses and drops some.
        products = kept.products.total() + dropped.products.total()
        rest, whole = max(self.flops - products, 0.0), kept.others.total() + dropped.others.total()
        # Over several devices XLA counts for one, and StableHLO has the whole.
        share = min(1.0, self.flops / products) if self.spread and products else 1.0
        flops = Counter({name: count * share for name, count in kept.products.items()})
        for name, count in kept.others.items():
            flops[name] += rest * count / whole
        if not whole and not told:
            flops["float32"] += rest
        return dict(flops), told


class _Counted:
    """Floating-point operations by dtype."""

    def __init__(self) -> None:
        self.products: Any = Counter()  # its values are floats
        self.others: Any = Counter()


def _devices(launch: Launch) -> int:
    found = [s.sharding for s in jax.tree.leaves(launch.structs) if getattr(s, "sharding", None) is not None]
    return max([len(sharding.device_set) for sharding in found], default=1)


def _shapes(structs: Any) -> list[Shaped]:
    return [
        Shaped(tuple(s.shape), np.dtype(s.dtype).name) for s in structs
        if hasattr(s, "shape") and not jax.numpy.issubdtype(s.dtype, jax.dtypes.extended)
    ]  # fmt: skip


# -- StableHLO ---------------------------------------------------------------------------------------------------------

_NAMES = {
    "bf16": "bfloat16", "f16": "float16", "f32": "float32", "f64": "float64", "i1": "bool",
    "complex<f32>": "complex64", "complex<f64>": "complex128",
}  # fmt: skip


def _named(short: str) -> str:
    """Return the name of a dtype that MLIR calls so: "ui8" is uint8, "f8E4M3FN" is float8_e4m3fn."""
    if short in _NAMES:
        return _NAMES[short]
    if short.startswith("f8"):
        return f"float8_{short[2:].lower()}"
    return f"{'uint' if short.startswith('u') else 'int'}{short.lstrip('ui')}"


def _tensors(values: Any) -> tuple[Shaped, ...]:
    found = [_TENSOR.match(str(value.type)) for value in values]
    return tuple([Shaped(tuple(map(int, f[1].split("x")[:-1])), _named(f[2])) for f in found if f is not None])


def _operations(region: Any, functions: Mapping[str, Any], rounds: bool) -> Iterator[Operation]:
    """Yield the operations of a region; calls, and what has bodies, with what is inside.

    `rounds`: products have the operands that were rounded for them, before XLA's CPU compiler needs them wider.
    """
    for block in region.blocks:
        for each in block.operations:
            op = each.operation
            if op.name.endswith("return"):
                continue
            given = map(_narrow, op.operands) if rounds and op.name in _PRODUCTS else op.operands
            operands, results = _tensors(given), _tensors(op.results)
            name, inside = op.name, ()
            if name in ("func.call", "call"):
                callee = op.attributes["callee"].value
                name = _PLAIN.sub("", callee).strip("_")
                inside = tuple(_operations(functions[callee].regions[0], functions, rounds))
            elif name in _BODIES:
                inside = tuple([o for part in op.regions for o in _operations(part, functions, rounds)])
            count = _flops(inside) if inside else _flops_of(op, operands, results)
            yield Operation(name, operands, results, count, inside)


def _narrow(value: Any) -> Any:
    """Return what was cast to an operand, or the operand."""
    cast = getattr(value.owner, "name", "") == "stablehlo.convert"
    return value.owner.operands[0] if cast else value


def _flops(operations: tuple[Operation, ...]) -> float:
    return sum(each.flops for each in operations)


_PRODUCTS = ("stablehlo.dot_general", "stablehlo.convolution")


def _flops_of(op: Any, operands: tuple[Shaped, ...], results: tuple[Shaped, ...]) -> float:
    """Return the floating-point operations of an operation, as XLA counts them."""
    if op.name in _MOVE or not operands or not results:
        return 0.0
    size = math.prod(results[0].shape)
    if op.name == "stablehlo.dot_general":
        contracted = _CONTRACTED.search(str(op.attributes["dot_dimension_numbers"]))
        dims = [int(n) for n in contracted[1].split(",") if n.strip()] if contracted else []
        return 2.0 * size * math.prod([operands[0].shape[n] for n in dims])
    if op.name == "stablehlo.convolution":
        kernel = _KERNEL.search(str(op.attributes["dimension_numbers"]))
        outs = [n for n, name in enumerate(kernel[1].split(",")) if name.strip() == "o"] if kernel else []
        return 2.0 * size * math.prod(operands[1].shape) / math.prod([operands[1].shape[n] for n in outs])
    if op.name == "stablehlo.sort":
        return float(size) * math.ceil(math.log2(max(size, 2)))
    floats = _is_float(results[0].dtype)
    return float(max(size, math.prod(operands[0].shape)) if "reduce" in op.name else size) if floats else 0.0


def _is_float(name: str) -> bool:
    return name.startswith(("float", "bfloat", "complex"))
