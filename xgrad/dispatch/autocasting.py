"""Autocast: casts the arguments of some operators to a lower precision, and of others to float32, before they run.

    x ──┐                       x ──ToCopyBackward0──┐
        mm ──►    becomes                            mm ──►   in bfloat16
    w ──┘                       w ──ToCopyBackward0──┘

The rules are tables of operators: one for CPUs, one for all other devices, as PyTorch has them for CPUs and CUDA.  An
operator in no table runs in its arguments' dtype.  In-place forms and calls with `out=` are never cast.

Invariants: casts are recorded, so that a float32 weight has a float32 gradient; float64, integers and tensors on other
devices stay as they are; the operators inside a cast operator are not cast again.  Until the first block is entered
operators have no test for autocast: `install` adds one to those in the tables, and to no others.
(PyTorch: aten/src/ATen/autocast_mode.h and .cpp.)
"""

import functools
import inspect
import threading
import weakref
from collections.abc import Callable, Iterator
from itertools import combinations
from typing import Any, NamedTuple

from ..base.dtypes import FLOATS, bfloat16, float16, float32, float64
from ..base.jax_compat import Tracer
from ..config import state
from ..overrides import overloaded
from ..tensor import Tensor
from .argument_names import split
from .public_code import called_as, unwritten

LOWER, FLOAT32, RESULT, WIDEST, REFUSED = "lower", "float32", "result", "widest", "refused"

# On a CPU.
_CPU = {
    LOWER: """
        conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d conv_transpose3d
        mm bmm baddbmm addmm addbmm linear matmul linalg_vecdot inner einsum tensordot linalg_multi_dot rnn_tanh_cell
        rnn_relu_cell prelu scaled_dot_product_attention""",
    FLOAT32: """
        avg_pool3d max_pool3d adaptive_avg_pool3d adaptive_max_pool3d fractional_max_pool2d fractional_max_pool3d
        max_unpool2d max_unpool3d grid_sample pad trace prod polar view_as_complex quantile nanquantile stft cdist
        fft_fft fft_ifft fft_fft2 fft_ifft2 fft_fftn fft_ifftn fft_rfft fft_irfft fft_rfft2 fft_irfft2 fft_rfftn
        fft_irfftn fft_hfft fft_ihfft
        cholesky cholesky_inverse cholesky_solve inverse lu_solve lu geqrf ormqr qr svd triangular_solve linalg_pinv
        linalg_cond linalg_matrix_rank linalg_solve linalg_cholesky linalg_cholesky_ex linalg_svd linalg_svdvals
        linalg_eig linalg_eigvals linalg_eigh linalg_eigvalsh linalg_inv linalg_inv_ex linalg_householder_product
        linalg_tensorinv linalg_tensorsolve linalg_qr linalg_lstsq
        mse_loss l1_loss smooth_l1_loss huber_loss nll_loss cross_entropy binary_cross_entropy
        binary_cross_entropy_with_logits kl_div ctc_loss cosine_embedding_loss hinge_embedding_loss poisson_nll_loss
        margin_ranking_loss soft_margin_loss triplet_margin_loss multi_margin_loss multilabel_margin_loss""",
    WIDEST: "stack cat index_copy",
}  # fmt: skip

# On GPUs and TPUs.
_ACCELERATOR = {
    LOWER: """
        conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d conv_transpose3d
        mm mv bmm baddbmm addmm addmv addr addbmm linear matmul einsum linalg_vecdot linalg_multi_dot
        prelu scaled_dot_product_attention lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell""",
    FLOAT32: """
        acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan pow __pow__ __rpow__ square
        softplus layer_norm rms_norm group_norm local_response_norm normalize nuclear_norm cosine_similarity
        pairwise_distance dist pdist cdist renorm logsumexp interpolate
        poisson_nll_loss cosine_embedding_loss nll_loss hinge_embedding_loss kl_div l1_loss smooth_l1_loss huber_loss
        mse_loss margin_ranking_loss multilabel_margin_loss soft_margin_loss triplet_margin_loss multi_margin_loss
        multilabel_soft_margin_loss gaussian_nll_loss cross_entropy binary_cross_entropy_with_logits""",
    RESULT: """
        prod sum softmax log_softmax softmin cumprod cumsum linalg_vector_norm linalg_matrix_norm norm""",
    WIDEST: """
        addcdiv addcmul atan2 bilinear cross linalg_cross dot vdot inner grid_sample index_put tensordot
        scatter_add""",
    REFUSED: "binary_cross_entropy",
}  # fmt: skip


def _table(rules: dict[str, str]) -> dict[str, str]:
    return {name: rule for rule, names in rules.items() for name in names.split()}


_TABLES = {True: _table(_CPU), False: _table(_ACCELERATOR)}  # True: the table for CPUs


def _contracts(equation: str) -> bool:
    """Return whether an einsum sums a product: two operands have an index in common that the result lacks."""
    terms, _, output = equation.replace("...", "").partition("->")
    operands = [set(term) for term in terms.split(",")]
    shared = set().union(*(a & b for a, b in combinations(operands, 2)))
    return bool(shared - set(output))


# Rules that hold only for some arguments, as PyTorch composes the operator of others: by operator and "is it a CPU".
_ONLY_IF: dict[tuple[str, bool], Callable[[dict[str, Any]], bool]] = {
    ("einsum", True): lambda named: _contracts(named["equation"]),
    ("inner", True): lambda named: named["input"].ndim + named["other"].ndim > 2,
    ("interpolate", False): lambda named: named.get("mode") != "area",
    ("pad", True): lambda named: named.get("mode") in ("reflect", "replicate"),
}
_LISTED = frozenset().union(*_TABLES.values())


class Settings(NamedTuple):
    """Autocast in one thread; immutable, so a change replaces it.  `state.autocast` is None for the defaults."""

    enabled: tuple[str, ...] = ()  # types of devices
    dtypes: tuple[tuple[str, Any], ...] = ()  # (type of devices, its lower precision), unless that is the default
    cache: bool = True

    def lower(self, kind: str) -> Any:
        """The lower precision of a type of devices."""
        return dict(self.dtypes).get(kind) or default_dtype(kind)

    @property
    def off(self) -> "Settings | None":
        """The same settings with nothing enabled."""
        return settled(self._replace(enabled=()))


def default_dtype(kind: str) -> Any:
    """The lower precision of a type of devices, unless it is set: float16 on GPUs, bfloat16 anywhere else."""
    return float16 if kind == "cuda" else bfloat16


def settled(settings: Settings) -> Settings | None:
    """Settings in the form of `state.autocast`: None if all are defaults."""
    return None if settings == _DEFAULT else settings


_DEFAULT = Settings()


# -- casts before an operator -----------------------------------------------------------------------------------------


def cast_first(name: str, plain: Callable[..., Any], named: dict[str, Any]) -> Any:
    """Run `plain(**named)`, with its arguments cast by the tables' rule for the operator `name`."""
    here = state.autocast
    values = tuple(named.values())
    if not here.enabled or overloaded(values):  # an override of functions calls this one again
        return plain(**named)
    kind = next((k for t in _tensors(values) if (k := _kind(t)) in here.enabled), None)
    rule = None if kind is None else _TABLES[kind == "cpu"].get(name)
    only_if = _ONLY_IF.get((name, kind == "cpu"))
    if rule is None or (only_if is not None and not only_if(named)):
        return plain(**named)
    state.autocast = here.off
    try:
        if named.get("out") is not None:
            return plain(**named)
        return plain(**_as_ruled(name, rule, named, kind, here))
    finally:
        state.autocast = here


def _as_ruled(name: str, rule: str, named: dict[str, Any], kind: Any, here: Settings) -> dict[str, Any]:
    """Cast the arguments by a rule."""
    if rule is REFUSED:
        raise RuntimeError(
            f"{name} is unsafe to autocast: its gradient near 0 and 1 has no place in {here.lower(kind).name}. Give "
            "binary_cross_entropy_with_logits what goes into the sigmoid, or call this one within "
            f'xgrad.autocast("{kind}", enabled=False) with float32 arguments.'
        )
    if rule is RESULT:
        first = next(iter(_tensors(named.values())), None)
        if first is not None and named.get("dtype") is None and _eligible(first, kind):
            return named | {"dtype": float32}
        return named
    to = float32 if rule is FLOAT32 else here.lower(kind)
    if rule is WIDEST:
        to = _widest(name, [t.dtype for t in _tensors(named.values()) if _eligible(t, kind)], to)
    return {key: _cast(value, to, kind, here) for key, value in named.items()}


def _tensors(values: Any) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif value.__class__ is list or value.__class__ is tuple:
            yield from _tensors(value)


def _kind(tensor: Tensor) -> str:
    return tensor.device.type


def _eligible(tensor: Tensor, kind: str) -> bool:
    return tensor.dtype in _CAST and _kind(tensor) == kind


_CAST = FLOATS - {float64}


def _widest(name: str, found: list, lower: Any) -> Any:
    """The common dtype of operands: float32 if one of them has it, else the lower precision."""
    if float32 in found:
        return float32
    other = next((dtype for dtype in found if dtype != lower), None)
    if other is not None:
        raise RuntimeError(
            f"Unexpected floating ScalarType in autocast: {name}() got a tensor of dtype {other.name} where autocast "
            f"runs in {lower.name}. Convert it, x.to(xgrad.{lower.name}), or autocast to {other.name}."
        )
    return lower


def _cast(value: Any, to: Any, kind: str, here: Settings) -> Any:
    """Cast the floating-point tensors in an argument to `to`."""
    if isinstance(value, Tensor):
        if not _eligible(value, kind) or value.dtype == to:
            return value
        weight = value.dtype == float32 and to == here.lower(kind) and value._requires_grad and value._grad_fn is None
        return _cast_of_weight(value, to) if weight and here.cache and state.autocast_nesting else value.to(to)
    if value.__class__ is list or value.__class__ is tuple:
        return value.__class__([_cast(v, to, kind, here) for v in value])
    return value


def _cast_of_weight(weight: Tensor, to: Any) -> Tensor:
    """Cast a leaf that requires grad, once for all its uses in the outermost block.

    A write to the leaf, a write through its `.data`, and another grad mode (a cast made under `no_grad` has no history)
    each need a new cast; PyTorch goes on with the old.  Casts of tensors that a transformation traces are not stored.
    """
    usual = weight._view is None and weight._level is None and not weight._tangents and not state.transforms
    if not usual or (isinstance(weight._held(), Tracer) and state.trace is None):
        return weight.to(to)
    if state.autocast_casts is None:
        state.autocast_casts = {}
    key = (id(weight), to, state.grad_enabled, state.inference)
    storage = weight._storage
    now = (storage, 0 if storage is None else storage.generation, weight._version)
    known = state.autocast_casts.get(key)
    if known is not None and known[0]() is weight and known[1] == now:
        return known[2]
    cast = weight.to(to)
    storage = weight._storage
    now = (storage, 0 if storage is None else storage.generation, weight._version)
    state.autocast_casts[key] = (weakref.ref(weight), now, cast)
    return cast


def use_casts(settings: Settings | None) -> None:
    """Switch to these settings, with an empty store of casts; both runs of a checkpoint start with one.

    The caller restores `state.autocast`, `autocast_casts` and `autocast_nesting`.
    """
    state.autocast, state.autocast_casts, state.autocast_nesting = settings, None, state.autocast_nesting + 1


# -- adding the test to functions -------------------------------------------------------------------------------------


def asking(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a composite so that it tests for autocast, if it is in the tables; else return the function itself."""
    code = function.__code__
    if name not in _LISTED or code.co_flags & inspect.CO_VARARGS:
        return function
    parameters = code.co_varnames[: code.co_argcount]

    @functools.wraps(function)
    def asks(*args: Any, **kwargs: Any) -> Any:
        if state.autocast is None:
            return function(*args, **kwargs)
        if len(args) > len(parameters) or not kwargs.keys().isdisjoint(parameters[: len(args)]):
            return function(*args, **kwargs)  # which raises
        return cast_first(name, function, {**dict(zip(parameters, args)), **kwargs})

    return called_as(function, asks)


_lock = threading.RLock()
_installed: list[bool] = []


def install(scopes: list[dict[str, Any]]) -> None:
    """Add the test for autocast to the public functions of the tables' operators; once, before the first block.

    `scopes`: the globals of these functions (declare.py).
    """
    with _lock:
        if _installed:
            return
        for scope in tuple(scopes):
            function = scope["_me"]
            name = _listed_as(scope["_op"].name, function.__name__)
            if name is not None:
                _install(name, function, scope, scopes)
        _installed.append(True)  # last: after an interrupt the next block goes on


def _listed_as(operator: str, public: str) -> str | None:
    """The name of a public function in the tables; in-place forms have none."""
    if public.startswith("__"):
        return {"__rtruediv__": "reciprocal"}.get(public, operator if operator in _LISTED else None)
    return operator if operator in _LISTED and not public.endswith("_") else None


def _install(name: str, function: Any, scope: dict[str, Any], scopes: list) -> None:
    if "_plain" not in scope:
        _change(name, function, scope, scopes)
    if not scope["_waits"]:
        scope["_write"](function)


def _change(name: str, function: Any, scope: dict[str, Any], scopes: list) -> None:
    plain_scope = {**scope, "_waits": True, "_plain": None}
    plain = unwritten(function.__name__, scope["_place"], plain_scope)
    plain.__dict__.update(function.__dict__)
    plain_scope["_me"] = plain
    scopes.append(plain_scope)
    parameters = [p.partition("=")[0].strip() for p in split(scope["_parameters"])]
    several = [p for p in parameters if p.startswith("*") and p != "*"]
    body = f"if _state.autocast is not None: return _cast_first({name!r}, _plain, locals())\n    {scope['_body']}"
    called = _spread(plain, parameters, several[0]) if several else plain
    scope.update({"_plain": called, "_state": state, "_cast_first": cast_first, "_body": body})


def _spread(plain: Callable, parameters: list[str], several: str) -> Callable:
    """Make a function with `*operands` callable by names, with the operands as a tuple."""
    before, operands = parameters[: parameters.index(several)], several.lstrip("*")

    def called(**named: Any) -> Any:
        return plain(*(named.pop(p) for p in before), *named.pop(operands), **named)

    return called
