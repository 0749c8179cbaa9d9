"""Passes rewrite each program of a backend: operators, views, queues, compiled steps; and a wrong one is named."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import xgrad
from xgrad.backends import passes
from xgrad.base.jax_compat import jaxprs
from xgrad.errors import CompiledMismatchError

MODES = ["eager", "lazy"]


def step(device):
    """Train an embedding and a linear layer, with a write through a view; return loss and weights."""
    xgrad.manual_seed(0)
    table, layer = xgrad.nn.Embedding(11, 5).to(device), xgrad.nn.Linear(5, 3).to(device)
    optimizer = xgrad.optim.SGD([*table.parameters(), *layer.parameters()], lr=0.5)
    words = xgrad.tensor([[1, 2, 2], [0, 10, 1]]).to(device)
    for _ in range(2):
        optimizer.zero_grad()
        y = layer(table(words))
        y[0].mul_(2)
        loss = y.tanh().softmax(-1).pow(2).sum()
        loss.backward()
        optimizer.step()
    return [
        loss.detach().cpu().numpy(),
        *[p.detach().cpu().numpy() for p in (*table.parameters(), *layer.parameters())],
    ]


def spy(seen):
    def looked(closed):
        seen.append(str(closed.jaxpr))
        return closed

    return looked


@pytest.mark.one_in(2)
@pytest.mark.parametrize("execution", MODES)
@pytest.mark.parametrize("chosen", [[passes.scatter_as_product], [passes.tiles]], ids=["scatter", "tiles"])
def test_training_has_the_same_numbers(execution, chosen):
    seen = []
    chip = xgrad.Backend("chip", execution=execution, passes=[*chosen, spy(seen)], verify_passes=True)
    for ours, theirs in zip(step(chip), step("cpu"), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
    text = "\n".join(seen)
    if chosen == [passes.scatter_as_product]:
        assert "scatter" not in text
    else:
        assert "128" in text
    before = []
    step(xgrad.Backend("chip", execution=execution, passes=[spy(before)]))
    assert "scatter" in "\n".join(before)


def test_views_writes_and_compiled_functions_go_through_a_pass():
    seen = []
    chip = xgrad.Backend("chip", passes=[spy(seen)])

    def passed(work):
        seen.clear()
        work()
        return "\n".join(seen)

    x = xgrad.ones(4, 6, device=chip)
    assert "slice" in passed(lambda: x[1:, 2]._read())
    assert "mul" in passed(lambda: x.mul_(2))
    assert "dynamic_update_slice" in passed(lambda: x[1:, 2].add_(1))
    assert "tanh" in passed(lambda: xgrad.compile(lambda x: x.tanh() * 2)(x))
    assert x.tolist()[1] == [2, 2, 3, 2, 2, 2]


def louder(closed):
    return passes.rewrite(closed, {"tanh": lambda params, x: jnp.tanh(x) * 1.5})


@pytest.mark.parametrize("execution", MODES)
def test_a_pass_that_changes_values_is_named_with_operator_line_and_difference(execution):
    chip = xgrad.Backend("chip", execution=execution, passes=[passes.tiles, louder], verify_passes=True)
    x = xgrad.ones(3, device=chip)
    words = r"the pass 'louder' of the backend 'chip' changes the values of 'tanh', at test_passes.py:\d+: the largest "
    with pytest.raises(CompiledMismatchError, match=words + r"difference is 0\.381, 1\.14"):
        (x + 1 - 1).tanh().tolist()
    assert x.tolist() == [1] * 3
    assert xgrad.ones(3, device=chip.replace(verify_passes=False)).tanh().tolist() == pytest.approx(
        [1.5 * np.tanh(1)] * 3
    )


@pytest.mark.parametrize("execution", MODES)
def test_a_write_is_verified_before_it_has_the_memory(execution):
    chip = xgrad.Backend("chip", execution=execution, passes=[louder], verify_passes=True)
    x = xgrad.ones(2000, device=chip) * 1
    x.add_(0)
    with pytest.raises(CompiledMismatchError, match="louder"):
        x.tanh_().tolist()
    assert set(x.tolist()) == {1.0}


@pytest.mark.parametrize("execution", MODES)
def test_a_pass_keeps_shapes_and_dtypes(execution):
    def narrow(closed):
        return jax.make_jaxpr(lambda *a: [jnp.zeros(7, jnp.float32)])(
            *[jax.ShapeDtypeStruct(a.shape, a.dtype) for a in closed.in_avals]
        )

    def nothing(closed):
        return 3

    def fails(closed):
        raise KeyError("missing")

    for own, words in (
        (narrow, r"the pass 'narrow' of the backend 'chip' returns a program with the results float32\[7\], but"),
        (nothing, "the pass 'nothing' of the backend 'chip' returns int, but has to return a closed jaxpr"),
        (fails, "the pass 'fails' of the backend 'chip' raised KeyError: 'missing'"),
    ):
        with pytest.raises((TypeError, RuntimeError), match=words):
            xgrad.ones(3, device=xgrad.Backend("chip", execution=execution, passes=[own])).tolist()


@pytest.mark.parametrize("execution", MODES)
def test_a_pass_over_the_text_of_stablehlo(execution):
    @passes.stablehlo
    def exponential(text):
        return text.replace("stablehlo.tanh", "stablehlo.exponential")

    chip = xgrad.Backend("chip", execution=execution, passes=[exponential])
    assert xgrad.zeros(3, device=chip).tanh().tolist() == [1] * 3
    broken = chip.replace(passes=[passes.stablehlo(lambda text: 3)])
    with pytest.raises(TypeError, match="returns int, but has to return the text of a StableHLO module"):
        xgrad.zeros(3, device=broken).tolist()


def test_rewrite_goes_into_loops_and_branches():
    def function(x):
        def body(carry, _):
            return jnp.sin(carry), jax.lax.cond(carry.sum() > 0, jnp.sin, jnp.cos, carry)

        return jax.jit(jnp.sin)(x), jax.lax.scan(body, x, None, 3)

    closed = jax.make_jaxpr(function)(jnp.ones(2))
    new = passes.rewrite(closed, {"sin": lambda params, x: jnp.tanh(x)})
    assert " sin" not in str(new)
    assert str(new).count("tanh") == 3
    assert passes.rewrite(closed, {"sin": lambda params, x: None}).out_avals == closed.out_avals


@pytest.mark.parametrize(
    "function",
    [
        lambda x: jnp.einsum("bij,bkj->bik", x, x), lambda x: x[0] @ x[1].T, lambda x: x.max(1), lambda x: x.min(),
        lambda x: x.sum((0, 2)), lambda x: x.prod(2), lambda x: (x * 9).astype(int).max(2), lambda x: x[0, 0] @ x[1, 0],
        lambda x: jnp.einsum("bij,bik->ijk", x, x), lambda x: (-x).max(0),
    ],
)  # fmt: skip
def test_tiles_leave_values(function):
    x = jnp.asarray(np.random.default_rng(0).normal(size=(2, 3, 5)), jnp.float32)
    closed = passes.tiles(jax.make_jaxpr(function)(x))
    np.testing.assert_allclose(jax.jit(jax.extend.core.jaxpr_as_fun(closed))(x)[0], function(x), rtol=1e-5, atol=1e-5)
    assert "pad" in str(closed)


def test_passes_are_declared_as_functions():
    with pytest.raises(TypeError, match="passes is a list of functions"):
        xgrad.Backend("chip", passes=["tiles"])
    with pytest.raises(TypeError, match="verify_passes must be True or False"):
        xgrad.Backend("chip", verify_passes=1)


@pytest.mark.parametrize("execution", MODES)
def test_what_a_chip_lacks_is_looked_for_behind_the_passes(execution):
    chip = xgrad.Backend(
        "chip", execution=execution, without_hlo=["scatter"], fallback="error", passes=[passes.scatter_as_product]
    )
    table = xgrad.nn.Embedding(11, 5).to(chip)
    words = xgrad.tensor([1, 2, 2]).to(chip)
    table(words).sum().backward()
    assert table.weight.grad[:4, 0].tolist() == [0, 1, 2, 0]
    other = xgrad.nn.Embedding(11, 5).to(chip.replace(passes=[]))
    loss = other(xgrad.tensor([1, 2, 2]).to(other.weight.device)).sum()
    with pytest.raises(xgrad.errors.BackendError, match="scatter"):
        loss.backward()


# -- how a queue is cut -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fuse", "launches"), [("all", 1), (None, 1), ("operator", 5), (1, 5), (2, 3), (4, 2), (["exp"], 3), (["t*h"], 3)]
)
def test_a_queue_is_cut_as_declared(fuse, launches):
    chip = xgrad.Backend("chip", execution="lazy", fuse=fuse)
    x = xgrad.ones(3, device=chip)
    xgrad.sync()
    with chip.report() as report:
        unused = x.sin() * 2
        del unused  # is not computed
        y = ((x - 1).exp() * 2).tanh() - 1
        xgrad.sync()
    assert (report.launches, report.operators) == (launches, 7)
    np.testing.assert_allclose(y.tolist(), [np.tanh(2.0) - 1] * 3, rtol=1e-5)


@pytest.mark.parametrize("fuse", ["operator", 3, ["tanh"]])
def test_training_on_a_cut_queue_has_the_same_numbers(fuse):
    for ours, theirs in zip(step(xgrad.Backend("chip", execution="lazy", fuse=fuse)), step("cpu"), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def test_a_compiled_step_of_an_eager_backend_is_cut_too():
    chip = xgrad.Backend("chip", fuse=["exp"], cost=xgrad.Cost())
    x = xgrad.ones(3, device=chip)
    with chip.report() as report:
        xgrad.compile(lambda x: (x + 1).exp() * 2)(x)
    assert report.launches == 3
    assert report.estimate().launch == pytest.approx(3e-5)


def test_so_many_operations_wait_at_most():
    chip = xgrad.Backend("chip", execution="lazy", pending=2)
    with chip.report() as report:
        x = xgrad.ones(3, device=chip)
        for _ in range(5):
            x = x + 1
    assert report.launches == 2
    assert x.tolist() == [6] * 3


@pytest.mark.parametrize("given", [{"fuse": 0}, {"fuse": True}, {"fuse": "some"}, {"fuse": ["expp"]}, {"pending": 0}])
def test_what_cannot_be_declared_is_said(given):
    with pytest.raises(ValueError, match=f"{next(iter(given))}"):
        xgrad.Backend("chip", **given)


def test_a_padded_maximum_of_a_dtype_without_infinity_is_defined():
    x = jnp.asarray([-1.0, -2.0]).astype(jnp.float8_e4m3fn)
    closed = passes.tiles(jax.make_jaxpr(lambda x: x.max())(x))
    (found,) = jaxprs().jaxpr_as_fun(closed)(x)
    assert float(found) == -1.0
