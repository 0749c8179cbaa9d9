"""The platform for which a program is traced: who asks for it, and that no trace serves another platform."""

import pathlib
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import xgrad
from xgrad.platforms import traced_for, tracing_for

ROOT = pathlib.Path(xgrad.__file__).parent
LOWERED = {"gpu": "cuda"}  # lowering tells NVIDIA from others


def test_only_one_file_asks_jax_for_its_default_platform():
    asking = {path.name for path in ROOT.rglob("*.py") if ".default_backend(" in path.read_text()}
    assert asking == {"platforms.py"}


def test_a_block_says_the_platform_in_its_thread_alone():
    here = traced_for()
    found = []
    with tracing_for("tpu"):
        thread = threading.Thread(target=lambda: found.append(traced_for()))
        thread.start()
        thread.join()
        with tracing_for("gpu"):
            found.append(traced_for())
        found.append(traced_for())
    assert [*found, traced_for()] == [here, "gpu", "tpu", here]


@pytest.mark.parametrize("first", ["cpu", "tpu"])
def test_no_trace_of_one_platform_serves_another(first):
    """xgrad's operators are jitted functions, whose traces JAX keeps: a quotient is another program for a TPU."""
    shape = jax.ShapeDtypeStruct((2, 3) if first == "cpu" else (3, 2), jnp.float32)

    def text(platform):
        function = jax.jit(lambda x: xgrad.exp(xgrad.tensor(x) / 3)._read())
        with tracing_for(platform):
            return function.trace(shape).lower(lowering_platforms=(LOWERED.get(platform, platform),)).as_text()

    texts = {platform: text(platform) for platform in (first, "cpu", "tpu", "gpu")}
    assert "optimization_barrier" in texts["cpu"]
    assert "optimization_barrier" not in texts["tpu"] + texts["gpu"]
    assert text("cpu") == texts["cpu"]
    xgrad.exp(xgrad.ones(shape.shape) / 3)  # a program of the CPU
    assert text("tpu") == texts["tpu"]


def products(dtype, **settings):
    """The precisions of a product and of a convolution, forward and backward, in a program for a TPU."""

    def step(x):
        t = xgrad.tensor(x, requires_grad=True)
        y = (t @ t).sum() + xgrad.nn.functional.conv1d(t[None], t[:, :, None]).sum()
        return xgrad.autograd.grad(y, t)[0]._read()

    shape = jax.ShapeDtypeStruct((5, 5), dtype)
    with tracing_for(settings.pop("platform", "tpu")):
        text = jax.jit(step).trace(shape).lower(lowering_platforms=("tpu",)).as_text()
    lines = [line for line in text.splitlines() if "dot_general" in line or "stablehlo.convolution" in line]
    assert len(lines) >= 4
    return {
        word for line in lines for word in ("HIGHEST", "HIGH", "DEFAULT") if f" {word}," in line or f" {word}]" in line
    }


def test_the_highest_precision_is_float32_on_a_tpu():
    assert products(jnp.float32) == {"HIGHEST"}


def test_other_precisions_and_the_setting_of_jax_count():
    try:
        xgrad.set_float32_matmul_precision("high")
        assert products(jnp.float32) == {"HIGH"}
        xgrad.set_float32_matmul_precision("medium")
        assert products(jnp.float32) <= {"DEFAULT"}
    finally:
        xgrad.set_float32_matmul_precision("highest")
    with jax.default_matmul_precision("bfloat16"):
        assert products(jnp.float32) <= {"DEFAULT"}


def test_a_program_of_the_cpu_names_no_precision():
    assert products(jnp.float32, platform="cpu") <= {"DEFAULT"}


@pytest.mark.parametrize("shape", [(3, 3), (2, 4, 4)])
def test_eigenvalues_of_a_tpu_are_the_hosts(shape):
    x = np.random.RandomState(0).randn(*shape).astype("float32")

    def step(a):
        t = xgrad.tensor(a, requires_grad=True)
        values, vectors = xgrad.linalg.eig(t)
        loss = (vectors @ (values[..., None] * vectors.mH)).abs().sum() + xgrad.linalg.eigvals(t).abs().sum()
        return values._read(), xgrad.autograd.grad(loss, t, create_graph=True)[0]._read()

    expected = step(x)
    with tracing_for("tpu"):
        program = jax.jit(step)
        found = program(x)
        assert "pure_callback" in str(jax.make_jaxpr(step)(x))
        spoiled = jax.vmap(lambda a: xgrad.linalg.eigvals(xgrad.tensor(a))._read())(np.stack([x, x * np.nan]))
    order = np.lexsort((expected[0].imag, expected[0].real)), np.lexsort((found[0].imag, found[0].real))
    np.testing.assert_allclose(
        np.take_along_axis(found[0], order[1], -1), np.take_along_axis(np.asarray(expected[0]), order[0], -1), 1e-5
    )
    np.testing.assert_allclose(found[1], expected[1], 1e-3, 1e-4)
    assert np.isfinite(spoiled[0]).all()
    assert np.isnan(spoiled[1]).all()


@pytest.mark.parametrize(
    ("function", "dtype", "instead"),
    [
        (lambda x: x[xgrad.tensor([0, 1])] * 2, "complex128", "complex64"),
        (lambda x: x @ x, "int64", "int32"),
        (xgrad.linalg.inv, "float64", "float32"),
    ],
)
def test_what_the_compiler_of_a_tpu_cannot_do_is_an_error_there_alone(function, dtype, instead):
    x = np.eye(3).astype(dtype)

    def program(x):
        return function(xgrad.tensor(x))._read()

    jax.eval_shape(program, x)
    with tracing_for("tpu"):
        with pytest.raises(NotImplementedError, match=f"not implemented for {dtype} on a TPU.*{instead}"):
            jax.eval_shape(program, x)
        jax.eval_shape(program, x.astype(instead))
