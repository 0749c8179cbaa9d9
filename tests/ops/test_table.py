"""Every operator of the table, with the samples of its declaration, is held to its own function.

The gradient, which formulas make, against `jax.vjp` of the function; the tangent against `jax.jvp`; that one against
central differences, and second derivatives against differences of the gradient; a batch against a loop; `out=` and the
in-place form against the function; float32 and bfloat16 against float64; what is saved against what the formulas name.

Nothing is compiled: a check is traced, through the operator's call, its node and the engine, and NumPy evaluates the
program (by_numpy.py), an oracle of its own.  To run a row: `pytest -n0 tests/ops/test_table.py -k "[mul]"`.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import xgrad
from xgrad.autograd import forward_ad
from xgrad.conformance import phase as gauges
from xgrad.conformance.sample_arrays import FLOATING, arguments
from xgrad.dispatch.call import call
from xgrad.dispatch.inplace import call_inplace
from xgrad.dispatch.operator import Operator, asks_for, formula_of, linear
from xgrad.dispatch.out import call_out
from xgrad.dispatch.samples import COMPLEX, CONVENTION, FIRST_ORDER, SINGLE, STOPPED, Draw, Sample
from xgrad.dispatch.saved_attributes import kept_names
from xgrad.dispatch.tables import OPERATORS, VARIANTS
from xgrad.tensor import from_array

from . import by_numpy

H = 1e-3  # differences are extrapolated (Richardson): their error is of the order H**4


class Traced:
    """A function of arrays as a program that NumPy evaluates; it gives a list of arrays."""

    def __init__(self, function: Any, *arrays: Any) -> None:
        self.program = jax.make_jaxpr(function)(*arrays)

    def __call__(self, *arrays: Any) -> list:
        return by_numpy.evaluate(self.program, *arrays)

    def differences(self, arrays: list, along: list) -> list:
        """The derivative along a direction, by central differences."""

        def central(h: float) -> list:
            ahead = self(*[a + h * v for a, v in zip(arrays, along, strict=True)])
            behind = self(*[a - h * v for a, v in zip(arrays, along, strict=True)])
            return [(p - m) / (2 * h) for p, m in zip(ahead, behind, strict=True)]

        return [(4 * near - far) / 3 for near, far in zip(central(H), central(2 * H), strict=True)]


class Case:
    """An operator with one sample in one dtype."""

    def __init__(self, op: Operator, sample: Sample, dtype: Any = np.float64) -> None:
        self.op, self.sample, self.dtype = op, sample, np.dtype(dtype)
        self.arguments, self.moving, self.statics = arguments(op, sample, dtype)
        self.arrays = [self.arguments[i] for i in self.moving]
        self.pure = functools.partial(op.function, **dict(zip(op.static_names, self.statics, strict=True)))
        drawn = [*sample.arrays, *[None] * len(self.arguments)]
        self.kinds = [getattr(drawn[i], "kind", "real") for i in self.moving]

    @property
    def records(self) -> bool:
        """Whether the operator has a derivative."""
        return self.op.differentiable and not self.op.missing

    def filled(self, moving: Any, wrap: Any = lambda x: x) -> list:
        """All arguments, with these in the places of those that move."""
        full = [wrap(jnp.asarray(a)) if isinstance(a, np.ndarray) else a for a in self.arguments]
        for i, value in zip(self.moving, moving, strict=True):
            full[i] = value
        return full

    def function(self, *arrays: Any) -> list:
        """The operator's function, of arrays that move.  Numbers are weakly typed arrays, as in the kernel."""
        full = self.filled(arrays)
        return self.fixed(self.pure(*[jnp.asarray(a) if isinstance(a, int | float | complex) else a for a in full]))

    def fixed(self, out: Any) -> list:
        """The results, freed from a choice of phases."""
        return gauges.FIXED[self.op.name](*out) if self.op.name in gauges.FIXED else flat(out)

    def hermitian(self, arrays: list) -> list:
        """The Hermitian parts of directions and gradients of Hermitian arguments: their other parts mean nothing."""
        found = list(arrays)
        for i, kind in enumerate(self.kinds):
            if kind == "definite":
                found[i] = (found[i] + np.conj(np.swapaxes(found[i], -1, -2))) / 2
        return found

    @property
    def random(self) -> bool:
        return any(isinstance(a, Draw) and a.kind == "key" for a in self.sample.arrays)

    @functools.cached_property
    def program(self) -> Traced:
        return Traced(self.function, *self.arrays)

    def called(self, *tensors: Any) -> list:
        """The operator's call, of tensors that move."""
        return self.fixed(self.raw(*tensors))

    def raw(self, *tensors: Any) -> list:
        return flat(call(self.op, tuple(self.filled(tensors, from_array)), self.statics))

    def with_gradient(self, results: list) -> list:
        """Those of the results that have a gradient."""
        return [o for i, o in enumerate(results) if inexact(o) and i not in self.op.constant]

    def differentiable(self, *arrays: Any) -> list:
        return self.with_gradient(self.function(*arrays))

    @functools.cached_property
    def cotangents(self) -> list:
        return directions(jax.eval_shape(lambda *a: tuple(self.differentiable(*a)), *self.arrays), 50)

    def recorded(self, *arrays: Any, create_graph: bool = False) -> tuple[list, list, list]:
        """(results, arrays that move and gradients of the results, xgrad's gradients for the arrays), as tensors."""
        n = len(self.moving)
        leaves = [from_array(a).requires_grad_() for a in arrays[:n]]
        weights = [from_array(a).requires_grad_(create_graph) for a in arrays[n:]]
        results = self.called(*leaves)
        outs = [o for o in results if o.requires_grad]
        return results, [*leaves, *weights], gradient(outs, leaves, weights, create_graph)

    @functools.cached_property
    def along(self) -> list:
        """Directions of the arrays."""
        return self.hermitian(directions(self.arrays, 20))

    @functools.cached_property
    def pushed(self) -> list:
        """`jax.jvp` of the function."""
        n = len(self.arrays)
        program = Traced(
            lambda *a: list(jax.jvp(lambda *x: tuple(self.differentiable(*x)), a[:n], a[n:])[1]),
            *self.arrays,
            *self.along,
        )
        return program(*self.arrays, *self.along)

    @functools.cached_property
    def gradients(self) -> Traced:
        arrays = [*self.arrays, *self.cotangents]
        return Traced(lambda *a: read(self.recorded(*a)[2]), *arrays)


def flat(out: Any) -> list:
    return list(out) if isinstance(out, tuple | list) else [out]


def read(tensors: list) -> list:
    return [t._read() for t in tensors]


def inexact(a: Any) -> bool:
    return np.dtype(a.dtype).kind in "fcV"


def directions(arrays: Any, seed: int) -> list:
    """Numbers like each of some arrays."""
    return [like(a, seed + i) for i, a in enumerate(arrays)]


def gradient(outs: list, inputs: list, weights: list, create_graph: bool = False) -> list:
    """Gradients as tensors; zeros where there is none."""
    found: Any = [None] * len(inputs)
    if outs and inputs:
        found = xgrad.autograd.grad(outs, inputs, weights, create_graph=create_graph, allow_unused=True)
    return [xgrad.zeros_like(x) if g is None else g for g, x in zip(found, inputs, strict=True)]


def like(a: Any, seed: int) -> np.ndarray:
    """Numbers of the shape and dtype of an array."""
    draw = np.random.RandomState(seed)
    found = draw.uniform(0.5, 1.5, a.shape) * draw.choice([-1, 1], a.shape)
    if np.dtype(a.dtype).kind == "c":
        found = found + 1j * draw.uniform(-1, 1, a.shape)
    return np.asarray(found, a.dtype)


def inner(a: list, b: list) -> float:
    return float(sum(np.sum(np.real(np.conj(x) * y)) for x, y in zip(a, b, strict=True)))


def close(ours: Any, theirs: Any, rtol: float = 1e-9, atol: float = 1e-11) -> None:
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        a, b = np.asarray(a), np.asarray(b)
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        wide = np.complex128 if a.dtype.kind == "c" else np.float64 if a.dtype.kind in "fV" else a.dtype
        np.testing.assert_allclose(a.astype(wide), b.astype(wide), rtol, atol)


# -- the checks --------------------------------------------------------------------------------------------------------


def value(case: Case) -> None:
    if case.op.jit:
        ours = Traced(lambda *a: read(case.called(*map(from_array, a))), *case.arrays)(*case.arrays)
        close(ours, case.program(*case.arrays))
    else:  # the shape of the result depends on values, which a trace has not
        ours = read(case.called(*map(from_array, map(jnp.asarray, case.arrays))))
        close(ours, case.function(*map(jnp.asarray, case.arrays)))
    finite(ours)


def finite(results: list) -> None:
    for out in results:
        assert not inexact(out) or np.isfinite(np.asarray(out)).all(), "a sample's result should be finite"


def pulled(case: Case, *arrays: Any) -> tuple[Any, list]:
    """The function's results and its `jax.vjp`, whose product conjugates the other factor."""
    n = len(case.moving)

    def split(*a: Any) -> tuple[tuple, tuple]:
        found = case.function(*a)
        return tuple(case.with_gradient(found)), tuple(found)

    _, pull, results = jax.vjp(split, *arrays[:n], has_aux=True)
    return results, [jnp.conj(g) for g in pull(tuple([jnp.conj(g) for g in arrays[n:]]))]


def recorded(case: Case) -> None:
    """`value` and `formula` of a call that is recorded, in one program of each side: the quick lane's."""
    arrays = [*case.arrays, *case.cotangents]

    def both(found: tuple) -> list:
        return [*found[0], *found[-1]]

    def ours(*a: Any) -> list:
        results, _, gradients = case.recorded(*a)
        return read([*results, *gradients])

    n = len(case.moving)
    mine = Traced(ours, *arrays)(*arrays)
    theirs = Traced(lambda *a: both(pulled(case, *a)), *arrays)(*arrays)
    close(mine[:-n], theirs[:-n])
    close(case.hermitian(mine[-n:]), case.hermitian(theirs[-n:]))
    finite(mine[:-n])


def formula(case: Case) -> None:
    """The gradient against `jax.vjp` of the function."""
    arrays = [*case.arrays, *case.cotangents]
    exact = Traced(lambda *a: pulled(case, *a)[1], *arrays)(*arrays)
    close(case.hermitian(case.gradients(*arrays)), case.hermitian(exact))


def tangent(case: Case) -> None:
    """Forward mode against `jax.jvp`."""
    n = len(case.arrays)

    def forward(*arrays: Any) -> list:
        with forward_ad.dual_level():
            duals = [forward_ad.make_dual(from_array(a), from_array(v)) for a, v in zip(arrays[:n], arrays[n:])]
            found = [forward_ad.unpack_dual(o) for o in case.with_gradient(case.called(*duals))]
            return read([xgrad.zeros_like(f.primal) if f.tangent is None else f.tangent for f in found])

    along = case.along
    close(Traced(forward, *case.arrays, *along)(*case.arrays, *along), case.pushed)


def difference(case: Case) -> None:
    """`jax.jvp` of the function against central differences."""
    close(case.pushed, Traced(case.differentiable, *case.arrays).differences(case.arrays, case.along), 1e-6, 1e-7)


def second(case: Case) -> None:
    """The gradient's own gradient, with respect to arguments and cotangents, against differences of the gradient."""
    arrays = [*case.arrays, *case.cotangents]
    along, weights = case.hermitian(directions(arrays, 30)), case.hermitian(directions(case.arrays, 40))
    n = len(arrays)

    def twice(*given: Any) -> list:
        _, leaves, found = case.recorded(*given[:n], create_graph=True)
        kept = [(g, from_array(w)) for g, w in zip(found, given[n:], strict=True) if g.requires_grad]
        return read(gradient([g for g, _ in kept], leaves, [w for _, w in kept]))

    ours = Traced(twice, *arrays, *weights)(*arrays, *weights)
    moved = case.gradients.differences(arrays, along)
    np.testing.assert_allclose(inner(ours, along), inner(weights, moved), 1e-6, 1e-6)


def batch(case: Case) -> None:
    """A batch of two against a loop."""
    plain = [a.ndim > 0 and kind == "real" for a, kind in zip(case.arrays, case.kinds, strict=True)]
    others = [a[::-1].copy() if p else a * a.dtype.type(0.9) for a, p in zip(case.arrays, plain, strict=True)]
    stacked = [np.stack(pair) for pair in zip(case.arrays, others, strict=True)]
    batched = xgrad.func.vmap(lambda *t: tuple(case.called(*t)))
    ours = Traced(lambda *a: read(flat(batched(*map(from_array, a)))), *stacked)(*stacked)
    pairs = zip(case.program(*case.arrays), case.program(*others), strict=True)
    close(ours, [np.stack(pair) for pair in pairs])


def out(case: Case) -> None:
    """The `out=` form, into tensors that are resized and into ones that fit."""

    def written(*arrays: Any) -> list:
        args = tuple(case.filled(map(from_array, arrays), from_array))
        found = []
        for fits in (False, True):
            results = case.raw(*map(from_array, arrays))
            outs = [xgrad.zeros(r.shape if fits else (0,), dtype=r.dtype) for r in results]
            found += case.fixed(
                call_out(case.op, args, case.statics, outs[0] if case.op.outputs is None else tuple(outs))
            )
        return read(found)

    wanted = case.program(*case.arrays)
    close(Traced(written, *case.arrays)(*case.arrays), [*wanted, *wanted])


def in_place(case: Case) -> None:
    """The in-place form: its value, and its gradient, which is that of the function."""
    n = len(case.moving)
    recorded = case.records and 0 in case.moving

    def written(*arrays: Any) -> list:
        leaves = [from_array(a).requires_grad_(recorded) for a in arrays[:n]]
        args = case.filled(leaves, from_array)
        args[0] = args[0].clone()
        result = call_inplace(case.op, tuple(args), case.statics)
        assert result is args[0]
        grads = gradient([result], leaves, list(map(from_array, arrays[n:]))) if recorded else []
        return read([result, *grads])

    arrays = [*case.arrays, *(case.cotangents if recorded else ())]
    wanted = case.program(*case.arrays)[0].astype(case.arguments[0].dtype)
    grads = case.gradients(*arrays) if recorded else []
    close(Traced(written, *arrays)(*arrays), [wanted, *grads])


def saved(case: Case) -> None:
    """The node holds what the formulas of the arguments that move name, and nothing else."""
    op = case.op
    names = [*op.parameters, *(f"{op.variadic}[{i}]" for i in range(len(case.arguments) - len(op.parameters)))]
    wanted: set[str] = set()
    for i in case.moving:
        rule = formula_of(op, names[i])
        if rule is None or rule is linear:
            wanted.update(names if rule is None else [*names[:i], *names[i + 1 :]])
        else:
            wanted.update(asks_for(rule))
    if op.variadic in wanted:
        wanted.update(names[len(op.parameters) :])

    def look(*arrays: Any) -> list:
        leaves = [from_array(a).requires_grad_() for a in arrays]
        args = case.filled(leaves, from_array)
        results = flat(call(op, tuple(args), case.statics))
        node = next((r.grad_fn for r in results if r.grad_fn is not None), None)
        if node is None:
            assert not any(inexact(r) and i not in op.constant for i, r in enumerate(results))
            return []
        held = dict(zip(kept_names(node), node.saved, strict=True))
        named = {"result", *(f"result{i}" for i in range(len(results))), *node.plan.result_names}
        assert set(held) <= wanted | named
        assert bool(set(held) & named) <= bool(wanted & {"results", *named})
        for name in wanted & {*names}:
            argument = args[names.index(name)]
            linear_addend = name not in held and op.defaults.get(name, 0) is None
            assert linear_addend or held[name] is argument, f"{name} is not saved as it is"
        return read(leaves)

    Traced(look, *case.arrays)


def refused(case: Case) -> None:
    """A derivative that is missing is an error in backward and in forward mode."""

    # "unique_dim" is what PyTorch calls `_unique2` along a dimension.
    missing = f"{case.op.missing}|{case.op.name.strip('_')}_dim"

    def run(*arrays: Any) -> list:
        leaves = [from_array(a).requires_grad_() for a in arrays]
        out = next(o for o in case.called(*leaves) if o.requires_grad)
        with pytest.raises(NotImplementedError, match=missing):
            out.backward(xgrad.ones_like(out))
        with forward_ad.dual_level(), pytest.raises(NotImplementedError, match=missing):
            case.called(*[forward_ad.make_dual(from_array(a), from_array(a)) for a in arrays])
        return read(leaves)

    if case.op.jit:
        Traced(run, *case.arrays)
    else:
        run(*map(jnp.asarray, case.arrays))


def low(case: Case) -> None:
    """float32 and bfloat16: the values and gradients of float64 but for rounding."""
    for dtype in (np.float32, ml_dtypes.bfloat16):
        other = Case(case.op, case.sample, dtype)
        exact = Case(case.op, case.sample)
        exact.arrays = [a.astype(np.float64) for a in other.arrays]
        ours = Traced(lambda *a, other=other: read(other.called(*map(from_array, a))), *other.arrays)(*other.arrays)
        theirs = exact.program(*exact.arrays)
        if case.records and case.cotangents and all(np.dtype(a.dtype).kind != "c" for a in other.cotangents):
            ours += other.gradients(*other.arrays, *other.cotangents)
            theirs += exact.gradients(*exact.arrays, *[a.astype(np.float64) for a in other.cotangents])
        for a, b in zip(ours, theirs, strict=True):
            if inexact(b):
                kind = np.complex128 if b.dtype.kind == "c" else np.float64
                scale = max(1.0, float(np.abs(b).max(initial=0)))
                tolerance = 32 * float(ml_dtypes.finfo(dtype).eps) * scale
                np.testing.assert_allclose(np.asarray(a).astype(kind), b, atol=tolerance, rtol=0)


# -- the table ---------------------------------------------------------------------------------------------------------


def rows() -> dict[str, Operator]:
    found = dict(OPERATORS)
    for op in VARIANTS:
        found[f"{op.name} ({op.function.__name__.strip('_')})"] = op
    return found


ROWS = rows()
QUICK = (value, recorded, tangent)  # with the first sample that fits; a full test makes all others with all samples


def checks_of(op: Operator) -> list:
    """The checks that apply to an operator, by what its declaration says."""
    found = [value, batch] if op.jit else [value]
    if op.differentiable:
        own = CONVENTION[0] in op.samples
        found += [refused] if op.missing else [saved] if own else [recorded, formula, tangent, saved]
        if not op.missing and not own and STOPPED[0] not in op.samples:
            found.append(difference)
        if not op.missing and not own and FIRST_ORDER[0] not in op.samples:
            found.append(second)
    if SINGLE[0] not in op.samples and op.jit:
        found.append(low)
    return found + [out] * ("out" in op.forms) + [in_place] * ("inplace" in op.forms)


def applies(check: Any, case: Case) -> bool:
    """Whether a check says something about a case."""
    if check is value:
        return True
    if check is in_place:
        return fits_in_place(case)
    if check in (recorded, formula, tangent, difference, second, saved):
        return bool(case.moving and case.cotangents)
    if check is refused:
        return bool(case.moving)
    if check is low and case.op.name == "linalg_matrix_norm" and case.sample.statics["ord"] in ("nuc", 2, -2):
        return False  # `matrix_norm` refuses the half precisions, of which XLA has no singular values
    if check is low:  # random numbers are others in each dtype
        return bool(case.moving) and case.dtype == np.float64 and not case.random
    return check is out or bool(case.moving)


def fits_in_place(case: Case) -> bool:
    """Whether the result has the shape of the first argument, and a dtype that can be written into it."""
    first = case.arguments[0]
    if not isinstance(first, np.ndarray):
        return False
    found = jax.eval_shape(lambda *a: case.function(*a)[0], *case.arrays)
    return found.shape == first.shape and (found.dtype == first.dtype or found.dtype == bool)


def chosen(op: Operator, full: bool, dtype: Any = np.float64) -> list:
    """The checks of an operator that the test makes; the quick one makes no tangents of complex numbers."""
    found = checks_of(op)
    if full:
        return [c for c in found if c is not recorded]
    left_out = ({value} if recorded in found else set()) | ({tangent} if dtype is np.complex128 else set())
    return [c for c in found if c in QUICK and c not in left_out]


def prove(op: Operator, full: bool) -> set[str]:
    """Run the checks that apply; give the names of those that ran."""
    ran: set[str] = set()
    for sample in op.samples:
        for dtype in (np.float64, np.complex128):
            if not isinstance(sample, Sample) or (dtype is np.complex128 and COMPLEX[0] not in op.samples):
                continue
            names = {f"{check.__name__} {np.dtype(dtype).name}": check for check in chosen(op, full, dtype)}
            if not full and ran >= set(names):
                continue
            case = Case(op, sample, dtype)
            if dtype is np.complex128 and not case.moving:
                continue
            for name, check in names.items():
                if (full or name not in ran) and applies(check, case):
                    try:
                        check(case)
                    except Exception as error:
                        error.add_note(f"the check {name!r} of {sample}")
                        raise
                    ran.add(name)
    return ran


def wanted(op: Operator, full: bool) -> set[str]:
    """The names of the checks that must have run."""
    moves = any(
        isinstance(a, Draw) and a.kind in FLOATING for s in op.samples if isinstance(s, Sample) for a in s.arrays
    )
    found = {c.__name__ for c in chosen(op, full)}
    samples = [s for s in op.samples if isinstance(s, Sample)]
    if not moves:
        found -= {"batch", "low"}
    if all(Case(op, s).random for s in samples):
        found.discard("low")
    return found


@pytest.mark.parametrize("name", [n for n, op in ROWS.items() if op.samples])
def test_operator(name, record_property):
    """Values and first derivatives, of the first sample that has them."""
    _test_row(ROWS[name], False, record_property)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", [n for n, op in ROWS.items() if op.samples])
def test_operator_in_full(name, record_property):
    _test_row(ROWS[name], True, record_property)


def _test_row(op: Operator, full: bool, record_property: Any) -> None:
    ran = prove(op, full)
    record_property("checks", ", ".join(sorted(ran)))
    missed = wanted(op, full) - {name.split()[0] for name in ran}
    assert not missed, f"no sample of {op.name} is fit for the checks {sorted(missed)}"


@pytest.mark.parametrize("name", [n for n, op in ROWS.items() if op.samples and COMPLEX[0] not in op.samples])
def test_complex_numbers_are_refused_where_no_samples_are_complex(name):
    op = ROWS[name]
    sample = op.samples[0]
    case = Case(op, sample, np.complex128)
    if case.moving and case.op.jit and not case.random:
        with pytest.raises((NotImplementedError, RuntimeError, TypeError, ValueError)):
            Traced(lambda *a: read(case.called(*map(from_array, a))), *case.arrays)


def test_every_operator_has_samples():
    assert [name for name, op in ROWS.items() if not op.samples] == []
