"""HloFilter: finds in a program, before it runs, StableHLO operations that `xgrad.Backend(without_hlo=[...])` lacks."""

import difflib
import re
from collections.abc import Iterable
from typing import Any

from ..execution.programs.programs import Program
from ..execution.shapes import structs_of

_OPERATION = re.compile(r"\b(?:stablehlo|chlo)\.(\w+)")
_MARKS = re.compile(r"custom_call @(?:Sharding|SPMD\w+|annotate_\w+)")  # notes to the compiler, and no work
_MADE_OF = {"top_k": "sort"}  # by XLA
_ALL = """
    abs add after_all all_gather all_reduce all_to_all and atan2 batch_norm_grad batch_norm_inference
    batch_norm_training bitcast_convert broadcast_in_dim case cbrt ceil cholesky clamp collective_broadcast
    collective_permute compare complex concatenate constant convert convolution cosine count_leading_zeros
    custom_call divide dot_general dynamic_slice dynamic_update_slice erf erf_inv exponential
    exponential_minus_one fft floor gather if imag infeed iota is_finite log log_plus_one logistic lgamma
    digamma maximum minimum multiply negate not optimization_barrier or outfeed pad partition_id popcnt power
    real recv reduce reduce_precision reduce_scatter reduce_window remainder replica_id reshape reverse rng
    rng_bit_generator round_nearest_afz round_nearest_even rsqrt scatter select select_and_scatter send
    shift_left shift_right_arithmetic shift_right_logical sign sine slice sort sqrt subtract tan tanh top_k
    transpose triangular_solve while xor
"""
OPERATIONS = frozenset(_ALL.split())


def operations_named(backend: str, given: Any) -> tuple[str, ...]:
    """Return the checked operations of a declaration.  Raises `TypeError` and `ValueError` for others."""
    given = (given,) if isinstance(given, str) or not isinstance(given, Iterable) else tuple(given)
    if not all(isinstance(name, str) for name in given):
        raise TypeError(f"Backend '{backend}': without_hlo is a list of StableHLO's operations, but got {given!r}")
    names = tuple([name.removeprefix("stablehlo.") for name in given])
    for name in names:
        if name not in OPERATIONS:
            near = difflib.get_close_matches(name, OPERATIONS, 3)
            raise ValueError(
                f"Backend '{backend}': without_hlo has {name!r}, which is not an operation of StableHLO. "
                f"Near it: {', '.join(near) or 'none'}"
            )
    return names


class HloFilter:
    """Finds the StableHLO operations in programs that a backend lacks; lowers a program once for each set of shapes."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self._names = names
        self._known: dict[Any, str] = {}

    def lack(self, program: Program, key: tuple[Any, ...], passes: Any = None) -> str:
        """Return what the backend lacks to run a program on operands of these avals, in words; "" if it has all.

        The first of `key` is JAX's x64 mode; `passes`: through which the program goes.
        """
        found = self._known.get((program, key))
        if found is None:
            jitted: Any = program if passes is None else passes.jitted(program)
            text = _MARKS.sub("", jitted.lower(*map(structs_of, key[1:])).as_text())
            used = {*_OPERATION.findall(text)}
            used |= {_MADE_OF[name] for name in used & _MADE_OF.keys()}
            lacking = [name for name in self._names if name in used]
            plural = "s" * (len(lacking) > 1)
            found = f"the StableHLO operation{plural} {', '.join(map(repr, lacking))}" if lacking else ""
            self._known[program, key] = found
        return found
