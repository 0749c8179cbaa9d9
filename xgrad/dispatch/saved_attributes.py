"""Computes the attributes `_saved_<name>` and `_raw_saved_<name>` of operators' autograd nodes, as PyTorch names them.

Values that an operator's formulas save are attributes under the names of its arguments and results, and so are its
static arguments.  PyTorch's formulas sometimes save something else: sizes, dims as tuples, enumerations as numbers.
`OPERATORS` has a rule for each such name, which computes it from what the node has; nothing is saved for it.  Names
whose value would have to be saved (an LU factorization, a mean) do not exist.  (For nodes of views see
engine/view_attributes.py.)

(PyTorch: tools/autograd/derivatives.yaml, gen_autograd_functions.py).
"""

from collections.abc import Callable, Iterator
from math import prod
from typing import Any

import jax.numpy as jnp

from ..engine.saved_variable import RELEASED, SavedVariable, check_version, freed_error
from ..tensor import Tensor, from_array

_REDUCTIONS = {"none": 0, "mean": 1, "sum": 2}
_MODES = {"sum": 0, "mean": 1, "max": 2}


# -- rules: functions of a node ----------------------------------------------------------------------------------------


def _shape(node: Any, i: int) -> tuple | None:
    """The shape of the operation's argument i, which its gradient has; None if it requires no gradient."""
    child, number = node.next_edges[i]
    if child is not None:
        return tuple(child.avals[number].shape)
    return tuple(node.avals[0].shape) if node.inplace and not i else None


def _sizes(i: int = 0) -> Callable:
    return lambda node: _shape(node, i)


def _strides(i: int) -> Callable:
    """The strides of an argument as if it were contiguous, as it is when it enters a program."""

    def strides(node: Any) -> tuple | None:
        shape = _shape(node, i)
        return None if shape is None else tuple(prod(max(n, 1) for n in shape[d + 1 :]) for d in range(len(shape)))

    return strides


def _size(i: int, dim: int) -> Callable:
    def size(node: Any) -> int | None:
        shape = _shape(node, i)
        return None if shape is None else shape[dim]

    return size


def _numel(node: Any) -> int | None:
    shape = _shape(node, 0)
    return None if shape is None else prod(shape)


def _static(name: str, change: Callable) -> Callable:
    """Make the rule for a static argument that PyTorch has in another form."""
    return lambda node: change(node.plan.kernel.statics[name])


def _dims(name: str = "dim") -> Callable:
    return _static(name, lambda dim: (dim,) if isinstance(dim, int) else dim if dim is None else tuple(dim))


def _is(value: Any) -> Callable:
    return lambda node: value


def _tensor(name: str) -> Callable:
    """Make the rule for a number that is a 0-dim tensor in PyTorch."""

    def value(node: Any) -> Any:
        found = _operator_value(node, name, False)
        return found if found is None or isinstance(found, Tensor) else from_array(jnp.asarray(found))

    return value


def _alpha(node: Any) -> Any:
    """`alpha`, which is 1 if the operator was called without it."""
    return _operator_value(node, "alpha", False) if "alpha" in node.plan.used else 1


def _count_dims(node: Any) -> int | None:
    shape = _shape(node, 2)
    return None if shape is None else len(shape)


def _indices(node: Any) -> tuple:
    """The index tensors and masks of the call, None for each whole dimension before the last of them."""
    found = _operator_value(node, "indices", False)
    if node.indices is not None:
        return node.indices
    places = node.plan.kernel.statics["places"]
    full: list = [None] * (places[-1] + 1 if places else 0)
    for place, index in zip(places, found, strict=True):
        full[place] = index
    return tuple(full)


_SELF = {"self_sym_sizes": _sizes()}
_REDUCTION = {"reduction": _static("reduction", _REDUCTIONS.get)}
_DIM = {"dim": _dims()}
_PRODUCT = {
    "self_sym_sizes": _sizes(0), "self_sym_strides": _strides(0), "mat2_sym_sizes": _sizes(1),
    "mat2_sym_strides": _strides(1),
}  # fmt: skip

# operator -> name -> rule
OPERATORS: dict[str, dict[str, Callable[..., Any]]] = {
    "add": {"alpha": _alpha},
    "addbmm": {
        "batch1_sym_argsize_0": _size(1, 0), "batch1_sym_argsize_1": _size(1, 1), "batch2_sym_argsize_2": _size(2, 2),
    },
    "addmm": {
        "mat1_sym_sizes": _sizes(1), "mat1_sym_strides": _strides(1), "mat2_sym_sizes": _sizes(2),
        "mat2_sym_strides": _strides(2),
    },
    "amax": _DIM,
    "amin": _DIM,
    "binary_cross_entropy": _REDUCTION,
    "binary_cross_entropy_with_logits": _REDUCTION,
    "div": {"other": _tensor("other")},
    "elu": {"scale": _is(1), "input_scale": _is(1)},
    "embedding": {"weight_sym_argsize_0": _size(0, 0)},
    "huber_loss": _REDUCTION,
    "index": {**_SELF, "indices": _indices},
    "index_put": {"indices": _indices},
    "index_add": {"source_dim": _count_dims},
    "index_copy": {"source_dim": _count_dims},
    "index_select": _SELF,
    "kthvalue": _SELF,
    "logsumexp": _DIM,
    "masked_scatter": {"source_sym_sizes": _sizes(2)},
    "max.dim": _SELF,
    "mean": {**_SELF, **_DIM, "self_sym_numel": _numel},
    "median.dim": _SELF,
    "min.dim": _SELF,
    "mm": _PRODUCT,
    "mode.dim": _SELF,
    "mse_loss": _REDUCTION,
    "mul": {"other": _tensor("other")},
    "multi_margin_loss": _REDUCTION,
    "multilabel_margin_loss": _REDUCTION,
    "nanmedian.dim": _SELF,
    "nansum": _DIM,
    "nll_loss": _REDUCTION,
    "repeat": _SELF,
    "smooth_l1_loss": _REDUCTION,
    "soft_margin_loss": _REDUCTION,
    "sort": _SELF,
    "std": _DIM,
    "std_mean": _DIM,
    "sub": {"alpha": _alpha},
    "sum": {**_SELF, **_DIM},
    "topk": _SELF,
    "trace": _SELF,
    "var": _DIM,
    "var_mean": _DIM,
    "linalg_vector_norm": _DIM,
    "embedding_bag": {"mode": _static("mode", _MODES.get), "weight_sym_argsize_0": _size(0, 0)},
    "square": {"exponent": _is(2)},
}  # fmt: skip

# Arguments that have another name in PyTorch's formulas.
ALIASES: dict[str, dict[str, str]] = {
    "linalg_matrix_exp": {"self": "A"},
    "linalg_matrix_norm": {"self": "A"},
    "linalg_pinv": {"self": "A"},
    "linalg_solve_triangular": {"self": "A"},
    "linalg_vector_norm": {"self": "x"},
}


# -- the saved values of operators' nodes -----------------------------------------------------------------------------


def kept_names(node: Any) -> list[str]:
    """The names of the saved values, in their order."""
    plan = node.plan
    names = [plan.used[i] for i in plan.saved]
    if plan.saves_result:
        many = len(node.avals) > 1
        names += list(plan.result_names) or ([f"result{i}" for i in range(len(node.avals))] if many else ["result"])
    return names


def _operator_value(node: Any, wanted: str, raw: bool) -> Any:
    """A saved value, or its SavedVariable.  Raises `KeyError` if there is none of that name."""
    plan = node.plan
    operator = plan.kernel.operator
    if wanted == operator.variadic:  # its arguments are numbered
        count = len(plan.used) - len(operator.parameters)
        return tuple(_operator_value(node, f"{wanted}[{i}]", raw) for i in range(count))
    names = kept_names(node)
    if wanted not in names:
        if wanted in _nameable(node):  # an argument whose value no wanted gradient needs
            return SavedVariable(None, False) if raw else None
        raise KeyError(wanted)
    place = names.index(wanted)
    if node.saved is RELEASED:
        if not raw:
            raise freed_error(node.name())
        released = SavedVariable(None, False)
        released.release()
        return released
    entry = node.saved[place]
    version = 0 if node.versions is None else node.versions[place]
    if isinstance(entry, Tensor):
        if not raw:
            check_version(entry, version)
            return entry
        entry = SavedVariable(entry, False)
        entry._version = version
        node.saved = (*node.saved[:place], entry, *node.saved[place + 1 :])
    if isinstance(entry, SavedVariable):
        return entry if raw else entry.unpack(node)
    if raw:  # a number has no SavedVariable
        raise KeyError(wanted)
    return entry


def _nameable(node: Any) -> set[str]:
    """The arguments that some gradient of this operator would save."""
    plan = node.plan
    operator, count = plan.kernel.operator, len(plan.used)
    mask = plan.needs
    for i, name in enumerate(plan.used):
        if name in operator.formulas or "all" in operator.formulas:
            mask |= 1 << i
    full = plan.kernel.plan(mask, count)
    return {plan.used[i] for i in full.saved}


def _operator_names(node: Any) -> Iterator[str]:
    operator = node.plan.kernel.operator
    found = dict.fromkeys((*kept_names(node), *_nameable(node)))
    if operator.variadic is not None and any("[" in name for name in found):
        yield operator.variadic
    yield from (name for name in found if "[" not in name)
    yield from (other for other, ours in ALIASES.get(operator.name, {}).items() if ours in found)


def _hidden(kernel: Any, wanted: str) -> bool:
    """Return True for arguments of another overload in PyTorch: sum() has no `dim`, unlike sum(0)."""
    over_all = kernel.operator.name in ("sum", "mean", "prod") and kernel.statics.get("dim") is None
    return over_all and wanted in ("dim", "keepdim")


def _has_raw(node: Any, name: str) -> bool:
    """Return True unless the value that is kept under a name is a number, which has no SavedVariable."""
    kept = kept_names(node)
    return (
        name not in kept or node.saved is RELEASED or isinstance(node.saved[kept.index(name)], (Tensor, SavedVariable))
    )


# -- the two functions for nodes --------------------------------------------------------------------------------------


def look_up(node: Any, wanted: str, raw: bool) -> Any:
    """The value of `_saved_<wanted>`, or of `_raw_saved_<wanted>`.  Raises `KeyError` for an unknown name."""
    kernel = node.plan.kernel
    wanted = ALIASES.get(kernel.operator.name, {}).get(wanted, wanted)
    if not raw:
        if _hidden(kernel, wanted):
            raise KeyError(wanted)
        rule = OPERATORS.get(kernel.operator.name, {}).get(wanted)
        if rule is not None:
            return rule(node)
        if wanted in kernel.statics:
            return kernel.statics[wanted]
    return _operator_value(node, wanted, raw)


def names(node: Any) -> list[str]:
    """All `_saved_*` and `_raw_saved_*` of a node, for `dir`."""
    kernel = node.plan.kernel
    values = list(_operator_names(node))
    told = {*values, *OPERATORS.get(kernel.operator.name, {}), *kernel.statics}
    shown = [f"_saved_{name}" for name in told if not _hidden(kernel, name)]
    return shown + [f"_raw_saved_{name}" for name in values if _has_raw(node, name)]
