"""name_of: gives autograd nodes PyTorch's names (`SumBackward1`), where these depend on the call's arguments.

PyTorch numbers the overloads of an operator (tools/autograd/derivatives.yaml); here some overloads are static
arguments, or arguments that are numbers.  Other names follow from the operator's, or stand in its declaration
(`node=`): PyTorch composes some operators of others, and the node then has the inner operator's name.
"""

from collections.abc import Callable
from typing import Any


def _over_dims(name: str) -> Callable[[dict], str]:
    """Make the name of a reduction's node: overload 1 is the one with `dim`."""
    return lambda statics: f"{name}Backward{int(statics.get('dim') is not None)}"


def _upsample(statics: dict) -> str:
    kind = {"nearest": "Nearest", "nearest-exact": "NearestExact", "linear": "Linear", "bilinear": "Bilinear",
            "bicubic": "Bicubic", "trilinear": "Trilinear"}.get(statics["mode"], "")  # fmt: skip
    smooth = "Aa" if statics.get("antialias") else ""
    return f"Upsample{kind}{len(statics['size'])}D{smooth}Backward0"


def _padding(statics: dict) -> str:
    kind = {"reflect": "Reflection", "replicate": "Replication"}.get(statics["mode"])
    return "PadNdBackward0" if kind is None else f"{kind}Pad{len(statics['pad']) // 2}DBackward0"


# operator -> its node's name, given its static arguments
BY_STATICS: dict[str, Callable[[dict[Any, Any]], str]] = {
    "mean": _over_dims("Mean"),
    "pad_nd": _padding,
    "pow": lambda statics: "PowBackward0" if statics else "PowBackward1",  # a short exponent is static
    "prod": _over_dims("Prod"),
    "sort": lambda statics: f"SortBackward{int(bool(statics.get('stable')))}",
    "sum": _over_dims("Sum"),
    "_unique": lambda statics: "Unique2Backward0" if statics.get("dim") is None else "UniqueDimBackward0",
    "upsample": _upsample,
}

# operator -> (its node's name where all arguments are tensors, {arguments that are numbers, as bits: its name})
BY_NUMBERS: dict[str, tuple[str, dict[int, str]]] = {
    "clamp": ("ClampBackward0", dict.fromkeys((0b10, 0b100, 0b110), "ClampBackward1")),
    "clamp_max": ("ClampMaxBackward1", {0b10: "ClampMaxBackward0"}),
    "clamp_min": ("ClampMinBackward1", {0b10: "ClampMinBackward0"}),
    "copysign": ("CopysignBackward0", {0b10: "CopysignBackward1"}),
    "float_power": ("PowBackward1", {0b1: "PowBackward2", 0b10: "PowBackward0"}),
    "fmod": ("FmodBackward1", {0b10: "FmodBackward0"}),
    "index_fill": ("IndexFillBackward1", {0b100: "IndexFillBackward0"}),
    "lerp": ("LerpBackward1", {0b100: "LerpBackward0"}),
    "masked_fill": ("MaskedFillBackward1", {0b100: "MaskedFillBackward0"}),
    "pow": ("PowBackward1", {0b1: "PowBackward2", 0b10: "PowBackward0"}),
    "remainder": ("RemainderBackward1", {0b10: "RemainderBackward0"}),
    "xlogy": ("XlogyBackward0", {0b1: "XlogyBackward1", 0b10: "XlogyBackward2"}),
}


def name_of(operator: str, statics: dict[Any, Any], usual: str) -> str:
    """The name of the node of an operator with these static arguments."""
    rule = BY_STATICS.get(operator)
    if rule is None:
        return BY_NUMBERS[operator][0] if operator in BY_NUMBERS else usual
    try:
        return rule(statics)
    except (KeyError, TypeError):  # a form of the operator that has other static arguments
        return usual
