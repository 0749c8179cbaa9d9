"""Number formats of products: operands and sums have them, forward and backward, and all else is as it was."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import xgrad
from xgrad.backends.products import Products

MODES = ["eager", "lazy", "compiled"]
X = np.random.default_rng(0).normal(size=(4, 2, 8, 8)).astype(np.float32)
Y = np.array([0, 2, 1, 2])
LR = 0.25


# -- the same network twice: by xgrad on a chip, and by hand in JAX ----------------------------------------------------


def weights():
    draw = np.random.default_rng(1).normal
    shapes = {"conv": (3, 2, 3, 3), "q": (12, 12), "k": (12, 12), "v": (12, 12), "out": (3, 36)}
    return {name: (draw(size=shape) * 0.3).astype(np.float32) for name, shape in shapes.items()}


def network(w, x, conv, matmul, relu, softmax, shaped):
    """A convolution, attention over its channels, a linear layer."""
    x = relu(conv(x, w["conv"]))  # (4, 3, 6, 6)
    x = shaped(x[:, :, ::3, ::2], (4, 3, 6))
    x = shaped(matmul(x, w["q"][:6]), (4, 3, 12))
    q, k, v = (matmul(x, w[name]) for name in "qkv")
    x = matmul(softmax(matmul(q, shaped(k, None)) * 0.3), v)
    return matmul(shaped(x, (4, 36)), shaped(w["out"], None))


def trained_by_xgrad(device, mode, steps=3):
    w = {name: xgrad.tensor(value, device=device, requires_grad=True) for name, value in weights().items()}
    x, y = xgrad.tensor(X, device=device), xgrad.tensor(Y, device=device)
    optimizer = xgrad.optim.SGD(w.values(), lr=LR)

    def step():
        optimizer.zero_grad()
        logits = network(
            w, x, xgrad.nn.functional.conv2d, xgrad.matmul, xgrad.relu, lambda s: s.softmax(-1),
            lambda t, shape: t.mT if shape is None else t.reshape(shape),
        )  # fmt: skip
        loss = xgrad.nn.functional.cross_entropy(logits, y)
        loss.backward()
        optimizer.step()
        return loss

    run = xgrad.compile(step) if mode == "compiled" else step
    losses = [run().item() for _ in range(steps)]
    return losses, {name: p.detach().cpu().numpy() for name, p in w.items()}


def trained_by_hand(products, steps=3):
    """The network in JAX, where each product, of gradients too, has its operands rounded."""

    def rounded(x):
        return x.astype(products).astype(jnp.float32)

    @jax.custom_vjp
    def matmul(a, b):
        return jnp.matmul(rounded(a), rounded(b), precision="highest")

    def matmul_backward(saved, g):
        a, b, g = map(rounded, (*saved, g))
        if b.ndim == 2:
            return jnp.matmul(g, b.T, precision="highest"), jnp.einsum("...i,...j->ij", a, g, precision="highest")
        return jnp.matmul(g, b.mT, precision="highest"), jnp.matmul(a.mT, g, precision="highest")

    matmul.defvjp(lambda a, b: (matmul(a, b), (a, b)), matmul_backward)

    def plainly(x, k):
        return lax.conv_general_dilated(x, k, (1, 1), "VALID", precision="highest")

    @jax.custom_vjp
    def conv(x, k):
        return plainly(rounded(x), rounded(k))

    conv.defvjp(
        lambda x, k: (conv(x, k), (x, k)),
        lambda saved, g: jax.vjp(plainly, *map(rounded, saved))[1](rounded(g)),
    )

    def loss_of(w):
        logits = network(
            w, X, conv, matmul, jax.nn.relu, lambda s: jax.nn.softmax(s, -1),
            lambda t, shape: t.mT if shape is None else t.reshape(shape),
        )  # fmt: skip
        return -jnp.mean(jax.nn.log_softmax(logits)[jnp.arange(4), Y])

    w, losses = weights(), []
    for _ in range(steps):
        loss, grads = jax.jit(jax.value_and_grad(loss_of))(w)
        w = jax.tree.map(lambda p, g: p - LR * g, w, grads)
        losses.append(float(loss))
    return losses, w


def apart(ours, theirs):
    return max(float(np.abs(ours[name] - theirs[name]).max()) for name in theirs)


@pytest.mark.parametrize("mode", MODES)
def test_training_is_that_of_a_program_with_the_same_roundings(mode):
    chip = xgrad.Backend(
        "chip", products="bfloat16", accumulate="float32", execution="lazy" if mode == "lazy" else "eager"
    )
    losses, ours = trained_by_xgrad(chip, mode)
    expected, theirs = trained_by_hand("bfloat16")
    unrounded = apart(trained_by_hand("float32")[1], theirs)
    np.testing.assert_allclose(losses, expected, rtol=2e-4)
    # An intermediate value that XLA computes in another order may round to the other neighbour, rarely.
    assert apart(ours, theirs) < unrounded / 20


# -- each format ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["bfloat16", "float16", "float8_e4m3fn", "float8_e5m2", "tf32", "float32"])
@pytest.mark.parametrize("execution", ["eager", "lazy"])
def test_operands_are_rounded_and_sums_are_not(name, execution):
    a, b = (np.random.default_rng(i).normal(size=(5, 5)).astype(np.float32) for i in range(2))
    chip = xgrad.Backend("chip", products=name, execution=execution)
    x = xgrad.tensor(a, device=chip, requires_grad=True)
    out = x @ xgrad.tensor(b, device=chip)
    out.backward(xgrad.tensor(b, device=chip))

    def rounded(v):
        return np.asarray(lax.reduce_precision(v, 8, 10) if name == "tf32" else v.astype(jnp.dtype(name)), np.float64)

    np.testing.assert_allclose(out.detach().cpu().numpy(), rounded(a) @ rounded(b), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(x.grad.cpu().numpy(), rounded(b) @ rounded(b).T, rtol=1e-6, atol=1e-6)
    assert (x + 1).tolist() == (xgrad.tensor(a) + 1).tolist()  # not a product


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "complex64", "int32"])
def test_dtypes_of_results_stay(dtype):
    a = np.random.default_rng(0).normal(size=(3, 3)) * 3
    chip = xgrad.Backend("chip", products="float8_e5m2")
    x = xgrad.tensor(a + (1j * a.T if dtype == "complex64" else 0)).to(getattr(xgrad, dtype))
    ours, theirs = x.to(chip) @ x.to(chip), (x @ x).to(xgrad.complex64)
    assert ours.dtype == x.dtype
    error = (ours.cpu().to(xgrad.complex64) - theirs).abs().max().item() / theirs.abs().max().item()
    assert error == 0 if dtype == "int32" else 1e-3 < error < 0.3


def test_narrow_sums_are_rounded_term_by_term():
    for accumulate, found in (("bfloat16", 256), ("float16", 1000), ("float32", 1000)):
        x = xgrad.ones(1, 1000, device=xgrad.Backend("chip", accumulate=accumulate))
        assert (x @ x.T).item() == found
    image = xgrad.ones(1, 8, 9, 9, device=xgrad.Backend("chip", accumulate="bfloat16"))
    assert xgrad.nn.functional.conv2d(image, image).item() == 256


CONVOLUTIONS = [
    {}, {"feature_group_count": 2}, {"batch_group_count": 2},
    {"rhs_dilation": (2, 1), "lhs_dilation": (1, 2)}, {"dimension_numbers": ("NHWC", "OIHW", "NHWC")},
]  # fmt: skip


@pytest.mark.parametrize("options", CONVOLUTIONS, ids=str)
def test_a_convolution_of_patches_is_a_convolution(options):
    draw = np.random.default_rng(0).normal
    groups = options.get("feature_group_count", 1)
    x = draw(size=(2, 8, 7, 4) if "dimension_numbers" in options else (2, 4, 8, 7)).astype(np.float32)
    kernel = draw(size=(6, 4 // groups, 3, 2)).astype(np.float32)

    def convolved(x, kernel):
        return lax.conv_general_dilated(x, kernel, (2, 1), ((1, 2), (0, 1)), **options)

    closed = Products(None, "float16")(jax.make_jaxpr(convolved)(x, kernel))
    (found,) = jax.jit(jax.extend.core.jaxpr_as_fun(closed))(x, kernel)
    np.testing.assert_allclose(found, convolved(x, kernel), atol=0.05)


def test_passes_of_the_user_come_first_and_are_compared_without_the_roundings():
    chip = xgrad.Backend("chip", products="bfloat16", passes=[xgrad.backends.passes.tiles], verify_passes=True)
    x = xgrad.tensor(X[0, 0], device=chip)
    rounded = X[0, 0].astype(jnp.bfloat16).astype(np.float32)
    np.testing.assert_allclose((x @ x).cpu().numpy(), rounded @ rounded, rtol=1e-5, atol=1e-5)


def test_conform_allows_products_their_roundings_and_nothing_else():
    chip = xgrad.Backend("chip", products="bfloat16", lowerings={"exp": lambda x: jnp.exp(x) * (1 + 1e-3)})
    mv, exp = xgrad.conformance.run(chip, operators="mv,exp", dtypes=["float32"]).rows
    assert (mv.name, mv.cells["float32"].state, exp.cells["float32"].state) == ("mv", "right", "wrong")
    assert max(check.error for check in mv.cells["float32"].checks) > 1000


@pytest.mark.parametrize("given", [{"products": "int8"}, {"products": 3}, {"accumulate": "tf32"}])
def test_what_cannot_be_declared_is_said(given):
    with pytest.raises(ValueError, match=f"{next(iter(given))} is the name of a number format, one of float32"):
        xgrad.Backend("chip", **given)


def test_float64_sums_need_the_mode():
    chip = xgrad.Backend("chip", accumulate="float64")
    narrow = jax.enable_x64(False) if hasattr(jax, "enable_x64") else jax.experimental.disable_x64()
    with narrow, pytest.raises(xgrad.errors.DtypeDisabledError, match="accumulate='float64' needs"):
        xgrad.ones(2, 2, device=chip) @ xgrad.ones(2, 2, device=chip)
