"""JAX's settings: a program is made for those under which it was traced; some run the function as it is."""

import jax
import numpy as np
import pytest

import xgrad


def step(x):
    return (x @ x).sum()


SETTINGS = {
    "jax_default_matmul_precision": "float32",
    "jax_numpy_dtype_promotion": "strict",
    "jax_numpy_rank_promotion": "raise",
    "jax_threefry_partitionable": False,
    "jax_softmax_custom_jvp": False,
    "jax_default_prng_impl": "rbg",
    "jax_enable_checks": True,
}


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", SETTINGS)
def test_another_setting_is_another_program(name):
    compiled, x = xgrad.compile(step), xgrad.ones(2, 2)
    before = getattr(jax.config, name)
    value = not before if isinstance(before, bool) else SETTINGS[name]
    compiled(x)
    try:
        jax.config.update(name, value)
        for _ in range(2):
            assert compiled(x).item() == 8
    finally:
        jax.config.update(name, before)
    compiled(x)
    assert compiled.metrics().traces == 2
    assert f"another mode: {name.removeprefix('jax_').removeprefix('enable_')}" in compiled.metrics().reasons[0]


def test_settings_of_context_managers_count():
    compiled, x = xgrad.compile(step), xgrad.ones(2, 2)
    compiled(x)
    for block in (jax.default_matmul_precision("highest"), jax.default_device(jax.devices()[1])):
        with block:
            assert compiled(x).item() == 8
    text = compiled.lower(x).as_text()
    with jax.default_matmul_precision("highest"):
        inside = compiled.lower(x).as_text()
    assert "HIGHEST" in inside
    assert "HIGHEST" not in text
    assert compiled.metrics().traces == 3


def test_without_jit_the_function_runs_as_it_is():
    seen = []

    def noting(x):
        seen.append(1)
        return x * 2

    compiled, x = xgrad.compile(step), xgrad.ones(2, 2)
    with jax.disable_jit():
        for _ in range(2):
            assert compiled(x).item() == 8
            assert xgrad.compile(noting)(x).tolist() == [[2.0, 2.0]] * 2
        with pytest.raises(RuntimeError, match=r"\(disable_jit, debug_nans, anomaly mode\) no program"):
            compiled.lower(x)
    assert len(seen) == 2
    assert compiled.metrics().traces == 0
    assert compiled(x).item() == 8
    assert compiled.metrics().traces == 1


@pytest.mark.eager("failures")
@pytest.mark.unverified("the eager run makes the kernels, and JAX looks at none that ran before the setting")
@pytest.mark.parametrize(("setting", "bad"), [("jax_debug_nans", -1.0), ("jax_debug_infs", 0.0)])
def test_debug_nans_names_the_operation_as_in_eager(setting, bad):
    def losing(x):
        return (x.log() * 2).sum()

    compiled, x = xgrad.compile(losing), xgrad.tensor([bad, 2.0])
    good = xgrad.tensor([1.0, 2.0])
    expected = compiled(good).item()
    jax.config.update(setting, True)
    try:
        for function in (losing, compiled):
            with pytest.raises(FloatingPointError, match="encountered in log"):
                function(x)
        np.testing.assert_allclose(compiled(good).item(), expected, rtol=1e-6)
    finally:
        jax.config.update(setting, False)
    assert not np.isfinite(compiled(x).item())


@pytest.mark.exhaustive
def test_the_default_dtype_is_xgrads():
    compiled = xgrad.compile(lambda: xgrad.ones(2))
    for dtype in (xgrad.float32, xgrad.float16, xgrad.float32):
        xgrad.set_default_dtype(dtype)
        try:
            assert compiled().dtype == dtype
        finally:
            xgrad.set_default_dtype(xgrad.float32)
    assert compiled.metrics().traces == 2


def test_anomaly_mode_looks_at_each_operation():
    w = xgrad.tensor([-1.0, 2.0], requires_grad=True)
    step = xgrad.compile(lambda: w.sqrt().sum().backward())
    step()
    with (
        pytest.warns(UserWarning, match="Anomaly|Error detected in SqrtBackward0"),
        xgrad.autograd.detect_anomaly(),
        pytest.raises(RuntimeError, match="'SqrtBackward0' returned nan"),
    ):
        step()
    assert step.metrics().calls == 1
