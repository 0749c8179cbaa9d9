"""The forms of view programs for a TPU give what the usual ones give: XLA:CPU runs them as well."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import xgrad
from xgrad.base.platforms import tracing_for
from xgrad.execution.fused import Fused
from xgrad.execution.programs.programs import PartRead, jit_checked
from xgrad.execution.runner import runner
from xgrad.views.chain import ViewChain

VIEWS = [
    ((64,), "unfold", 0, 8, 4),
    ((64,), "unfold", 0, 8, 3),
    ((70,), "unfold", 0, 20, 9),
    ((64,), "unfold", 0, 5, 16),
    ((12, 20), "unfold", 1, 8, 4),
    ((20, 6), "unfold", 0, 10, 9),
    ((20, 6), "unfold", 0, 9, 9),
    ((20, 6), "unfold", 0, 1, 3),
    ((200,), "as_strided", (10, 40), (16, 1), 3),
    ((200,), "as_strided", (10,), (7,), 2),
    ((200,), "as_strided", (5, 3, 4, 2), (13, 0, 1, 17), 2),
    ((12, 12), "as_strided", (10, 10, 3, 3), (12, 1, 12, 1), 0),
    ((200,), "as_strided", (3, 5), (1, 11), 4),
    ((12, 20), "slice", 1, 1, 20, 3),
    ((20,), "slice", 0, 1, 20, 2),
    ((12, 20), "slice", 0, 1, 11, 2),
    ((5000,), "slice", 0, 1, 4990, 3),
    ((12, 20), "select", 0, 3),
    ((12, 20), "select", 1, 3),
]


def usual_and_tpu(function, *operands):
    usual = jax.jit(lambda *given: function(*given))(*operands)
    with tracing_for("tpu"):
        return usual, jax.jit(lambda *given: function(*given))(*operands)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int32"])
@pytest.mark.parametrize("case", VIEWS, ids=str)
def test_programs_for_a_tpu_give_the_usual_values(case, dtype):
    shape, *view = case
    chain = ViewChain.root(shape, np.dtype(jnp.dtype(dtype))).view(*view)
    numbers = np.random.default_rng(0)
    root, part = (jnp.asarray(numbers.integers(-9, 9, s), dtype) for s in (shape, chain.shape))
    programs = [(chain.trace_replay, (root,)), (chain.trace_adjoint, (part,))]
    if not chain.overlaps:
        programs.append((chain.trace_write_back, (root, part)))
    for program, operands in programs:
        usual, tpu = usual_and_tpu(program, *operands, chain.starts)
        assert (usual.dtype, usual.shape) == (tpu.dtype, tpu.shape)
        assert np.array_equal(usual, tpu), program.__name__


@pytest.mark.parametrize("view", ["unfold", "as_strided", "column", "steps"])
def test_first_and_second_derivatives_are_the_usual_ones(view):
    views = {
        "unfold": lambda x: x.unfold(1, 8, 4),
        "as_strided": lambda x: x.as_strided((10, 40), (16, 1), 3),
        "column": lambda x: x[:, 3],
        "steps": lambda x: x[:, ::3],
    }

    def derivatives(array):
        x = xgrad.tensor(array).requires_grad_()
        y = x * 1
        part = views[view](y)
        if view in ("column", "steps"):
            part.mul_(part.detach() + 2)
        first = xgrad.autograd.grad(views[view](y).pow(3).sum(), x, create_graph=True)[0]
        return first._read(), xgrad.autograd.grad(first.pow(2).sum(), x)[0]._read()

    array = jnp.asarray(np.random.default_rng(1).normal(size=(12, 20)), "float32")
    for usual, tpu in zip(*usual_and_tpu(derivatives, array)):
        np.testing.assert_allclose(usual, tpu, rtol=1e-5)


def test_no_gather_is_left_where_slices_are_few():
    chain = ViewChain.root((1000,), np.dtype("float32")).view("unfold", 0, 64, 16)
    root, part = jnp.zeros(1000), jnp.zeros(chain.shape)
    for program, operand in ((chain.trace_replay, root), (chain.trace_adjoint, part)):
        assert "gather" in (usual := jax.jit(lambda x, p=program: p(x)).lower(operand).as_text()) or "scatter" in usual
        with tracing_for("tpu"):
            text = jax.jit(lambda x, p=program: p(x)).lower(operand).as_text()
        assert "gather" not in text
        assert "scatter" not in text


def test_a_part_is_read_with_options_only_where_it_is_a_program_of_its_own(monkeypatch):
    monkeypatch.setattr(runner, "plain", True)  # no thread is lazy, and no backend declared
    read = PartRead(lambda array, start: jax.lax.dynamic_slice(array, (start,), (2,)), "cpu", {})
    calls = []
    run = read.run
    read.alone, read.run = lambda *given: calls.append("alone") or run(*given), lambda *g: calls.append("in") or run(*g)
    array, start = jnp.arange(5.0), np.int32(2)
    assert read(array, start).tolist() == [2, 3]
    assert jax.jit(lambda *given: read(*given))(array, start).tolist() == [2, 3]
    assert jax.vmap(lambda a: read(a, start))(array[None]).tolist() == [[2, 3]]
    read.platform = "tpu"
    assert read(array, start).tolist() == [2, 3]
    assert calls == ["alone", "in", "in", "in"]


def test_a_lazy_program_has_the_options_of_its_reads_on_their_platform():
    read = PartRead(lambda array, start: jax.lax.dynamic_slice(array, (start,), (2,)), "tpu", {"no such option": "1"})
    twice = jit_checked(lambda array: array * 2)
    operands = [jnp.arange(5.0), np.int32(2)]
    plain, reading = Fused((twice,), ((-1,),), (0,), ()), Fused((read, twice), ((-1, -2), (0,)), (256,), ())
    for fused, values in ((plain, operands[:1]), (reading, operands)):
        fused.run(values, out := [], [])
        assert out[1][0].tolist() == [2 * n for n in ([2, 3] if fused is reading else range(5))]
    assert plain.lowered().as_text()
    read.platform = "cpu"
    with pytest.raises(Exception, match="no such option"):
        reading.run(operands, [], [])


@pytest.mark.parametrize("shape", [(8,), (2048,), (3, 4), (2, 3, 8)])
@pytest.mark.parametrize(("dtype", "to"), [("float32", "int16"), ("int32", "uint8"), ("float16", "int8")])
def test_parts_of_elements_are_the_usual_ones(shape, dtype, to):
    numbers = np.random.default_rng(0).integers(0, 256, (*shape, np.dtype(dtype).itemsize), dtype=np.uint8)
    array = jnp.asarray(numbers.view(dtype)[..., 0])
    chain = ViewChain.root(shape, array.dtype).view("view", getattr(xgrad, to))
    for ours in usual_and_tpu(chain.replay, array):
        assert np.asarray(ours).tobytes() == numbers.tobytes()


@pytest.mark.parametrize("platform", ["cpu", "tpu", "gpu"])
def test_a_read_before_a_write_is_computed_where_it_stands(platform):
    """By a barrier; the CPU's compiler, which removes barriers, does not repeat a division."""

    def step(base):
        part = base[1:3]
        base[1:3].mul_(2)
        return part.clone(), base.sum()

    with tracing_for(platform):
        text = xgrad.compile(step).lower(xgrad.ones(4)).as_text()
    assert ("stablehlo.divide" if platform == "cpu" else "optimization_barrier") in text
    assert ("stablehlo.divide" in text) == (platform == "cpu")
