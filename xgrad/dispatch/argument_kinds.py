"""Checks the types of operators' static arguments as PyTorch does: an int is not a float, and a bool not a number.

A kernel is found by its static arguments, and 2.0 == 2 and 1 == True are one key: a value of the wrong kind would find
the kernel of the value that it equals.  So the public function checks the kinds first (with `checked` only if a value
is not a plain int, bool or str).  A static argument whose default is a bool is a bool; `INTS` names the ints.
"""

import functools
import inspect
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from ..tensor import Tensor
from ..views.named.arguments import int_of, require_dims
from .public_code import called_as

_BOOL = np.dtype(bool)


def _named(text: str) -> frozenset[str]:
    return frozenset(text.split())


# PyTorch's names of arguments that are ints in every operator that has them; or None, if that is the default.
INTS = _named("""
    decimals dim1 dim2 divisor_override downscale_factor groups ignore_index k n n_fft num_classes num_groups offset
    upscale_factor
""")
# Arguments that are ints, or sequences of ints; `padding` may be a string.
SIZES = _named("kernel_size dilation output_padding normalized_shape output_size padding stride")
# Arguments that are bools, though their default is not a bool.
BOOLS = _named("align_corners upper")
# Arguments that are strings.
WORDS = _named("UPLO approximate")
# Composites that check their arguments themselves, because they pass none of them to an operator unchanged.
COMPOSITES = _named("""
    allclose alpha_dropout batch_norm bincount diag diagflat dropout dropout1d dropout2d dropout3d embedding
    feature_alpha_dropout feature_dropout grid_sample histogram histogramdd index_put index_put_ instance_norm
    interpolate linspace logspace multinomial nanquantile nonzero one_hot quantile scaled_dot_product_attention
    std std_mean tril_indices triu_indices unique unique_consecutive var var_mean bartlett_window blackman_window
    hamming_window hann_window kaiser_window
    combinations diff gradient histc linalg_norm matrix_power mvlgamma native_dropout norm norm_except_dim nuclear_norm
    polygamma qr repeat_interleave rrelu svd to to_dense vander
    cholesky_ex inv_ex ldl_factor_ex lu_factor_ex matrix_norm solve_ex to_sparse
""")
# Composites that have layouts beside the strided one, or an error of their own for those.
OTHER_LAYOUTS = _named("""
    sparse_compressed_tensor to_sparse bartlett_window blackman_window hamming_window hann_window kaiser_window
""")
_BY_ANNOTATION = {
    "int": "int", "bool": "bool", "int | None": "int", "bool | None": "bool", int: "int", bool: "bool",
    int | None: "int", bool | None: "bool",
}  # fmt: skip


# Operator -> kinds of its own arguments, which other operators do not share.
_OF_ONE = {
    "cov": {"correction": "int"}, "linalg_qr": {"mode": "str"}, "linalg_vander": {"N": "int"}, "mvlgamma": {"p": "int"},
    "renorm": {"dim": "int"},
}  # fmt: skip


def kinds_of(operator: str, names: tuple[str, ...], defaults: dict[str, Any]) -> dict[str, str]:
    """The known kinds of static arguments: "int", "ints", "bool" or "str"."""
    found = dict(_OF_ONE.get(operator, {}))
    for name in names:
        if isinstance(defaults.get(name), bool) or name in BOOLS:
            found[name] = "bool"
        elif name in INTS:
            found[name] = "int"
        elif name in SIZES:
            found[name] = "ints"
        elif name in WORDS:
            found[name] = "str"
    return found


def optional(kinds: dict[str, str], defaults: dict[str, Any], parameters: str) -> frozenset[str]:
    """Return the arguments that may be None, as they are by default; `parameters`: the public ones as source text."""
    nones = {name for name in kinds if f"{name}=None" in parameters}
    return frozenset(nones | {name for name in kinds if name in defaults and defaults[name] is None})


def guard(kinds: dict[str, str], optional: frozenset[str]) -> str:
    """Make source text that calls `checked` unless all arguments are plain values of their kind."""
    if not kinds:
        return ""
    tests = []
    for name, kind in kinds.items():
        test = f"{name}.__class__ is not {kind if kind in ('bool', 'str') else 'int'}"
        tests.append(f"({name} is not None and {test})" if name in optional else test)
    names = "".join(f"{name}, " for name in kinds)
    return f"if {' or '.join(tests)}: ({names}) = _checked(_me.__name__, _kinds, {set(optional)}, ({names}))\n    "


def checked(function: str, kinds: dict[str, str], optional: set[str], values: tuple[Any, ...]) -> list[Any]:
    """Check the kinds of static arguments; NumPy's numbers and 0-dim tensors become Python's numbers.

    Raises `TypeError` for any other value, and for None unless it is `optional`.
    """
    given = zip(kinds.items(), values, strict=True)
    return [_of_kind(function, name, kind, value, name in optional) for (name, kind), value in given]


def _of_kind(function: str, name: str, kind: str, value: Any, may_be_none: bool) -> Any:
    if (value is None and may_be_none) or (value.__class__ is int and kind not in ("bool", "str")):
        return value
    if kind == "str":
        if isinstance(value, str):
            return value
    elif kind == "bool":
        if isinstance(value, bool):
            return value
        if getattr(value, "dtype", None) == _BOOL and not getattr(value, "ndim", 0):
            return bool(value)
    elif kind == "ints" and isinstance(value, (tuple, list)):
        return tuple([_of_kind(function, name, "int", v, name == "output_size") for v in value])
    elif kind == "dims" and isinstance(value, (tuple, list)):
        require_dims(value)
        return value
    elif name == "padding" and isinstance(value, str):
        return value
    else:
        try:
            return int_of(value)
        except TypeError:
            pass
    wanted = {"ints": "tuple of ints", "dims": "tuple of ints"}.get(kind, kind)
    raise TypeError(f"{function}(): argument '{name}' must be {wanted}, not {type(value).__name__}")


def _require_strided(function: str, layout: Any, args: tuple[Any, ...]) -> None:
    """Raise `NotImplementedError` for a new tensor of another layout; one like a sparse tensor is the interpreter's."""
    if layout is None or layout == "strided" or (args and getattr(args[0], "layout", "strided") != "strided"):
        return
    raise NotImplementedError(
        f"{function}(): layout={layout} is not implemented: make the tensor without it, and convert it by to_sparse(), "
        "to_sparse_csr() and their like"
    )


def _may_be_none(name: str, annotation: Any) -> bool:
    return name == "pin_memory" or "None" in str(annotation)


def require_number(function: str, **numbers: Any) -> None:
    """Raise `TypeError` for a value that is not a number, nor a tensor or array of one."""
    for name, value in numbers.items():
        if value is None or isinstance(value, (str, bytes, list, tuple)):
            raise TypeError(f"{function}(): argument '{name}' must be Number, not {type(value).__name__}")


def require_int(function: str, **numbers: Any) -> None:
    """Raise `TypeError` for a value that is not an int, nor a NumPy integer or 0-dim tensor of one."""
    for name, value in numbers.items():
        _of_kind(function, name, "int", value, True)


def require_no_grad(function: str, **numbers: Any) -> None:
    """Raise `TypeError` if a number is given as a tensor that requires grad: the tensor would get no gradient."""
    for name, value in numbers.items():
        if isinstance(value, Tensor) and value.requires_grad:
            raise TypeError(
                f"{function}(): argument '{name}' must be Number, not Tensor, because this one requires grad and its "
                "gradient would be lost here. Hand in its detach(), or make the result of it by operators, "
                "such as number.expand(size) or number * ones(size)."
            )


def without_tensors(function: str, names: tuple[str, ...], statics: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """Static arguments with numbers for 0-dim tensors, whose kernel would be found after a write too; None for others.

    Raises `TypeError` for a tensor that requires grad.
    """
    if not any(isinstance(value, Tensor) for value in statics):
        return None
    require_no_grad(function, **dict(zip(names, statics, strict=True)))
    return tuple([value.item() if isinstance(value, Tensor) else value for value in statics])


_FORMATS = {"contiguous_format": None, "preserve_format": None, "channels_last": 4, "channels_last_3d": 5}


def require_format(function: str, value: Any, input: Any = None) -> None:
    """Raise `TypeError` for what is not a memory format, `RuntimeError` for one of another rank than a tensor's."""
    if value is None:
        return
    if not isinstance(value, str) or value not in _FORMATS:
        raise TypeError(f"{function}(): argument 'memory_format' must be a memory format, not {value!r}")
    if isinstance(input, Tensor) and _FORMATS[value] not in (None, input.ndim):
        raise RuntimeError(f"required rank {_FORMATS[value]} tensor to use {value} format, but it has {input.ndim}")


def checking(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Make a composite check ints, bools, dimensions and layouts; return one that needs no check as it is.

    Checked are `COMPOSITES`, and functions with an argument `pin_memory` or `memory_format`.
    """
    annotated = function.__annotations__
    if name not in COMPOSITES and "pin_memory" not in annotated and "memory_format" not in annotated:
        return function
    code = inspect.unwrap(function).__code__
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    known = [
        (i if i < code.co_argcount else sys.maxsize, n, _BY_ANNOTATION[annotated[n]], _may_be_none(n, annotated[n]))
        for i, n in enumerate(names)
        if annotated.get(n) in _BY_ANNOTATION
    ]
    dims = "dim" in names and annotated.get("dim") not in _BY_ANNOTATION
    strided = "layout" in names and name not in OTHER_LAYOUTS

    @functools.wraps(function)
    def checks(*args: Any, **kwargs: Any) -> Any:
        for place, parameter, kind, may_be_none in known:
            if place < len(args):
                _of_kind(name, parameter, kind, args[place], may_be_none)
            elif parameter in kwargs:
                _of_kind(name, parameter, kind, kwargs[parameter], may_be_none)
        if dims and "dim" in kwargs:  # another overload may have a bool at its position
            _of_kind(name, "dim", "dims", kwargs["dim"], True)
        if strided and "layout" in kwargs:
            _require_strided(name, kwargs["layout"], args)
        if "memory_format" in kwargs:
            require_format(name, kwargs["memory_format"], args[0] if args else None)
        return function(*args, **kwargs)

    return called_as(function, checks)
