"""Half precision accumulates in float32: values, gradients and second derivatives of every operator of the table.

Of each operator's program no sum, product or scan may have a half as its result: a half that sums to 5000 ones is 256
or 2048.  That is checked in the traced programs, of the samples that the table has.
"""

from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax.extend.core import ClosedJaxpr, Jaxpr

import xgrad
import xgrad.nn.functional as F
from xgrad.autograd import forward_ad
from xgrad.dispatch.operator import Operator
from xgrad.dispatch.samples import FIRST_ORDER, SINGLE, Sample
from xgrad.tensor import from_array

from .test_table import Case, directions, gradient, read, rows

HALVES = (np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16))
PROGRAMS = ClosedJaxpr | Jaxpr
ACCUMULATING = {
    "reduce_sum", "reduce_prod", "dot_general", "conv_general_dilated", "cumsum", "cumprod", "cumlogsumexp",
    "reduce_window_sum", "scatter-add", "scatter_add", "scatter-mul", "scatter_mul", "select_and_scatter_add",
}  # fmt: skip


def in_halves(program: Any) -> set[str]:
    """The names of what accumulates to a half in a program and in those that it calls."""
    found = set()
    for equation in program.eqns:
        if equation.primitive.name in ACCUMULATING and equation.outvars[0].aval.dtype in HALVES:
            found.add(equation.primitive.name)
        for value in jax.tree.leaves(list(equation.params.values()), is_leaf=lambda v: isinstance(v, PROGRAMS)):
            if isinstance(value, PROGRAMS):
                found |= in_halves(getattr(value, "jaxpr", value))
    return found


def value(case: Case) -> set[str]:
    return in_halves(jax.make_jaxpr(lambda *a: read(case.called(*map(from_array, a))))(*case.arrays))


def first(case: Case) -> set[str]:
    return in_halves(case.gradients.program)


def second(case: Case) -> set[str]:
    arrays, weights = [*case.arrays, *case.cotangents], directions(case.arrays, 40)
    n = len(arrays)

    def twice(*given: Any) -> list:
        _, leaves, found = case.recorded(*given[:n], create_graph=True)
        kept = [(g, from_array(w)) for g, w in zip(found, given[n:], strict=True) if g.requires_grad]
        return read(gradient([g for g, _ in kept], leaves, [w for _, w in kept]))

    return in_halves(jax.make_jaxpr(twice)(*arrays, *weights))


def tangent(case: Case) -> set[str]:
    n = len(case.arrays)

    def forward(*arrays: Any) -> list:
        with forward_ad.dual_level():
            duals = [forward_ad.make_dual(from_array(a), from_array(v)) for a, v in zip(arrays[:n], arrays[n:])]
            found = [forward_ad.unpack_dual(o) for o in case.with_gradient(case.called(*duals))]
            return read([f.primal if f.tangent is None else f.tangent for f in found])

    return in_halves(jax.make_jaxpr(forward)(*case.arrays, *case.along))


CHECKS = (value, first, second, tangent)
TABLE = {name: op for name, op in rows().items() if op.jit and SINGLE[0] not in op.samples}


def accumulated(op: Operator, samples: list[Sample], dtypes: Any = HALVES, checks: Any = CHECKS) -> None:
    for sample in samples:
        for dtype in dtypes:
            case = Case(op, sample, dtype)
            with np.errstate(over="ignore"):  # this runs the bare function in the half
                moves = case.records and case.moving and case.cotangents
            for check in checks:
                if (check is not value and not moves) or (check is second and FIRST_ORDER[0] in op.samples):
                    continue
                assert not check(case), f"{check.__name__} of {sample} accumulates in {dtype}"


def samples_of(op: Operator) -> list[Sample]:
    return [s for s in op.samples if isinstance(s, Sample)]


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", TABLE)
def test_no_operator_accumulates_in_a_half(name):
    accumulated(TABLE[name], samples_of(TABLE[name]))


@pytest.mark.parametrize(
    "name",
    ["sum", "mul", "linear", "conv2d", "embedding", "scatter_add", "cumsum", "avg_pool2d", "atan2", "index_select"],
)
def test_operators_of_each_kind_accumulate_in_float32(name):
    accumulated(TABLE[name], samples_of(TABLE[name])[:1], HALVES[1:], (value, first, second))


# -- numbers, as XLA computes them -------------------------------------------------------------------------------------


def ones(*shape: int) -> Any:
    return np.ones(shape, np.float32)


def _zeros_of(n: int) -> Any:
    return xgrad.zeros(n, dtype=xgrad.int32)


# What sums n numbers of one size: a function of tensors and n, and their shapes by n.  All sums are of ones.
SUMS: dict[str, tuple[Any, Any]] = {
    "sum": (lambda n, x: x.sum(0), lambda n: [(n, 3)]),
    "sum of rows": (lambda n, x: x.sum(1), lambda n: [(3, n)]),
    "sum of two": (lambda n, x: x.sum((0, 1)), lambda n: [(n // 50, 50, 3)]),
    "sum to a dtype": (lambda n, x: x.float().sum(0, dtype=x.dtype), lambda n: [(n, 3)]),
    "mean": (lambda n, x: x.mean(0), lambda n: [(n, 3)]),
    "norm": (lambda n, x: x.norm(), lambda n: [(n,)]),
    "std": (lambda n, x: (x + x.cumsum(1)).std(), lambda n: [(n, 2)]),
    "cumsum": (lambda n, x: x.cumsum(0)[-1], lambda n: [(n,)]),
    "a bias": (lambda n, x, b: x + b, lambda n: [(n // 50, 50, 3), (3,)]),
    "a derived gradient": (lambda n, x, b: xgrad.atan2(b, x), lambda n: [(n, 3), (3,)]),
    "expand": (lambda n, x: x.expand(n, 3), lambda n: [(3,)]),
    "repeat": (lambda n, x: x.repeat(n, 1), lambda n: [(3,)]),
    "a write": (lambda n, x: xgrad.zeros(n, 3, dtype=x.dtype).copy_(x), lambda n: [(3,)]),
    "linear": (lambda n, x, w, b: F.linear(x, w, b), lambda n: [(n, 3), (2, 3), (2,)]),
    "matmul": (lambda n, x, y: x @ y, lambda n: [(3, n), (n, 2)]),
    "addmm": (lambda n, b, x, y: xgrad.addmm(b, x, y), lambda n: [(2,), (3, n), (n, 2)]),
    "conv": (lambda n, x, w, b: F.conv1d(x, w, b), lambda n: [(1, 2, n), (3, 2, 3), (3,)]),
    "layer_norm": (lambda n, x, w, b: F.layer_norm(x.cumsum(1), (3,), w, b), lambda n: [(n, 3), (3,), (3,)]),
    "mse_loss": (lambda n, x, y: F.mse_loss(x, 3 * y, reduction="sum"), lambda n: [(n,), (n,)]),
    "embedding": (lambda n, w: F.embedding(_zeros_of(n), w), lambda n: [(2, 3)]),
    "index_add": (lambda n, x, y: x.index_add(0, _zeros_of(n), y), lambda n: [(2, 3), (n, 3)]),
    "index_put": (lambda n, x, y: x.index_put((_zeros_of(n),), y, accumulate=True), lambda n: [(2,), (n,)]),
    "scatter": (lambda n, x, y: x.scatter(0, _zeros_of(n), y, reduce="add"), lambda n: [(2,), (n,)]),
    "gather": (lambda n, x: x.gather(0, _zeros_of(n)), lambda n: [(2,)]),
}  # fmt: skip


def computed(name: str, n: int, dtype: Any, mode: str = "eager") -> list[np.ndarray]:
    """The value and the gradients of a sum."""
    function, shapes = SUMS[name]
    tensors = [xgrad.tensor(ones(*s)).to(dtype).requires_grad_() for s in shapes(n)]

    def both() -> list:
        value = function(n, *tensors)
        return [value, *xgrad.autograd.grad(value, tensors, xgrad.ones_like(value))]

    if mode == "compile":
        found = xgrad.compile(both)()
    elif mode == "lazy":
        with xgrad.lazy():
            found = both()
    else:
        found = both()
    return [t.detach().float().numpy() for t in found]


def agree(name: str, n: int, dtype: Any, mode: str) -> None:
    eps = float(xgrad.finfo(dtype).eps)
    for ours, exact in zip(computed(name, n, dtype, mode), computed(name, n, xgrad.float32), strict=True):
        within = np.abs(exact) < xgrad.finfo(dtype).max
        size = np.abs(exact[within]).max(initial=eps)  # where all is 0, float32 has its own rounding, by its program
        np.testing.assert_allclose(ours[within], exact[within], 2 * eps, 2 * eps * size)


@pytest.mark.one_in(12)
@pytest.mark.parametrize("mode", ["eager", "lazy", "compile"])
@pytest.mark.parametrize("dtype", [xgrad.bfloat16, xgrad.float16], ids=["bfloat16", "float16"])
@pytest.mark.parametrize("name", SUMS)
def test_sums_of_halves_are_those_of_float32_rounded(name, dtype, mode):
    agree(name, 5000, dtype, mode)


@pytest.mark.exhaustive
@pytest.mark.parametrize("dtype", [xgrad.bfloat16, xgrad.float16], ids=["bfloat16", "float16"])
@pytest.mark.parametrize("name", SUMS)
def test_long_sums_of_halves_are_those_of_float32_rounded(name, dtype):
    agree(name, 70000, dtype, "eager")


@pytest.mark.parametrize("dtype", [xgrad.bfloat16, xgrad.float16], ids=["bfloat16", "float16"])
@pytest.mark.parametrize("tracking", ["replay", "geometry"])
def test_elements_that_overlap_gather_their_gradients_in_float32(tracking, dtype):
    for view in (
        lambda x: x.unfold(0, 500, 1),
        lambda x: x.as_strided((600, 500), (1, 1)),
        lambda x: x.expand(600, 1099),
    ):
        x = xgrad.ones(1099, dtype=dtype, requires_grad=True)
        with xgrad.views.tracking(tracking):
            view(x).sum().backward()
        assert abs(x.grad[550].item() - (600 if view(x).shape[1] == 1099 else 500)) <= 2


def test_sparse_tensors_add_halves_in_float32():
    twice = xgrad.sparse_coo_tensor(
        xgrad.zeros(1, 5000, dtype=xgrad.int32), xgrad.ones(5000, dtype=xgrad.float16), (2,)
    )
    row = xgrad.ones(2, 5000, dtype=xgrad.float16)
    assert twice.to_dense()[0].item() == 5000
    assert twice.coalesce().values().item() == 5000
    assert (xgrad.zeros(2, dtype=xgrad.float16) + twice)[0].item() == 5000
    assert (row.to_sparse() @ row.T)[0, 0].item() == 5000


def test_squares_beyond_float16_have_norms():
    x = xgrad.full((4,), 300.0, dtype=xgrad.float16)
    parameter = xgrad.nn.Parameter(x.clone())
    parameter.grad = x.clone()
    assert xgrad.nn.utils.clip_grad_norm_([parameter], 1.0).item() == 600
    assert parameter.grad.tolist() == [0.5] * 4
    assert F.normalize(x, dim=0).tolist() == [0.5] * 4
    assert xgrad.dist(x, -x).item() == 1200
    assert xgrad.tensor([6e4, 6e4, -6e4], dtype=xgrad.float16).cumsum(0).tolist()[-1] == 60000


def test_products_keep_halves_as_operands_and_sum_in_float32():
    x = jnp.ones((3, 4), jnp.bfloat16)

    def program(*arrays: Any) -> list:
        a, b = [from_array(a).requires_grad_() for a in arrays]
        value = a @ b
        return read([value, *xgrad.autograd.grad(value, (a, b), xgrad.ones_like(value))])

    text = jax.jit(program).lower(x, x.T).as_text()
    products = [line.split(" : ")[-1] for line in text.split("\n") if "stablehlo.dot_general" in line]
    assert len(products) == 3
    for types in products:
        operands, result = types.split(" -> ")
        assert operands.count("xbf16>") == 2
        assert result.endswith("xf32>")


def test_a_loop_adds_the_gradients_of_its_steps_in_float32():
    w = xgrad.ones(1, dtype=xgrad.bfloat16, requires_grad=True)

    @xgrad.compile
    def run(x):
        found = xgrad.while_loop(lambda i, x: i < 300, lambda i, x: (i + 1, x + w), (xgrad.tensor(0), x))[1]
        return xgrad.autograd.grad(found.sum(), w)[0]

    assert run(xgrad.zeros(1, dtype=xgrad.bfloat16)).item() == 300
