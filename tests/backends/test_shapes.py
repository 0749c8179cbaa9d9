"""Programs of few sizes: a backend's operands are padded, values stay, and a report says what could not be padded."""

import copy
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import xgrad
import xgrad.nn.functional as F
from xgrad import nn
from xgrad.errors import CompiledMismatchError
from xgrad.execution.programs import mask_rules, masking

chip = xgrad.Backend("chip", shapes=[4, 8, 16, 32])
checking = chip.replace(verify_passes=True)


def trained(size, device, dtype=xgrad.float32):
    """Train a small network one step on `size` rows; return loss and gradients."""
    xgrad.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 12), nn.LayerNorm(12), nn.GELU(), nn.Linear(12, 10)).to(dtype).to(device)
    x = xgrad.randn(size, 5).to(dtype).to(device)
    loss = F.cross_entropy(model(x), (xgrad.arange(size) % 10).to(device))
    loss.backward()
    return [loss.detach().cpu().float().numpy(), *[p.grad.cpu().float().numpy() for p in model.parameters()]]


def compiled(run):
    """Return the lines of a report that say what was compiled while `run` ran, and the report."""
    with chip.report() as report:
        run()
    return report.as_dict()["programs"], report


@pytest.mark.one_in(3)
@pytest.mark.parametrize("dtype", [xgrad.float32, xgrad.bfloat16, xgrad.float16], ids=str)
def test_training_at_other_sizes_has_the_same_values_and_compiles_nothing(dtype):
    trained(17, chip, dtype)
    tolerance = 1e-5 if dtype == xgrad.float32 else 3e-2
    for size in (19, 23, 31, 19, 17):
        with chip.report() as report:
            found = trained(size, chip, dtype)
        assert report.as_dict()["programs"] == []
        assert report.as_dict()["padded to shared sizes"]["count"] > 8
        assert not any(f"size {size}," in each["why"] for each in report.as_dict()["not padded"])
        for ours, theirs in zip(found, trained(size, "cpu", dtype), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance)


def test_a_size_of_the_list_and_one_beyond_it_are_as_they_are():
    programs, report = compiled(lambda: xgrad.ones(32, 40, device=chip).sin())
    assert report.as_dict()["padded to shared sizes"]["count"] == 0
    assert any(line.startswith("sin for the first time") for line in programs)


HARMFUL = {  # zeros in place of the padding would change the value
    "sum of exp": lambda x: x.exp().sum(0),
    "mean": lambda x: x.mean(),
    "mean of a row": lambda x: x.mean(1),
    "var": lambda x: x.var(0),
    "var without correction": lambda x: x.var(correction=0),
    "std": lambda x: x.std(1),
    "amax of negatives": lambda x: (x - 100).amax(0),
    "amin of positives": lambda x: (x + 100).amin(1),
    "argmax of negatives": lambda x: (x - 100).argmax(0).float(),
    "argmin": lambda x: (x + 100).argmin().float(),
    "prod": lambda x: x.prod(0),
    "all": lambda x: (x > -100).all(0).float(),
    "any": lambda x: (x < -100).any(1).float(),
    "softmax": lambda x: x.softmax(0),
    "logsumexp": lambda x: (x - 100).logsumexp(1),
    "norm": lambda x: (x + 1).norm(),
    "cumsum": lambda x: x.cumsum(0),
    "cumprod": lambda x: x.cumprod(1),
    "logcumsumexp": lambda x: x.logcumsumexp(0),
    "product": lambda x: x.t() @ x.exp(),
    "batches of products": lambda x: xgrad.einsum("ij,ik->jk", x.exp(), x.cos()),
    "outer": lambda x: x[:, :1] * x[0],
    "log of zero": lambda x: x.abs().log().sum(1),
    "one over zero": lambda x: (1 / x).mean(0),
    "where": lambda x: xgrad.where(x > 0, x, x.exp()).sum(),
    "transposed": lambda x: x.t().contiguous().sin().sum(1),
    "median of a row": lambda x: x.median(1).values,
    "sort": lambda x: x.sort(0).values,
    "cat": lambda x: xgrad.cat([x, x], 0).mean(0),
    "flat": lambda x: x.reshape(-1).cumsum(0),
    "flip": lambda x: x.flip(0).sin(),
    "roll": lambda x: x.roll(1, 0) * 2,
    "topk": lambda x: x.topk(2, 0).values,
    "inverse": lambda x: xgrad.linalg.inv(x.t() @ x + xgrad.eye(x.shape[1], device=x.device)),
    "selected": lambda x: x.index_select(0, xgrad.tensor([1, 0, 2, 1, 1], device=x.device)),
    "gathered": lambda x: x.gather(1, xgrad.zeros(3, 2, dtype=xgrad.int32, device=x.device)),
}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", HARMFUL)
@pytest.mark.parametrize("shape", [(5, 3), (7, 6), (6, 6)], ids=str)
def test_values_and_gradients_do_not_depend_on_the_padding(name, shape):
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    found = []
    for device in (checking, "cpu"):
        a = xgrad.tensor(x, device=device, requires_grad=True)
        y = HARMFUL[name](a)
        if y.requires_grad:
            (y * xgrad.arange(float(y.numel()), device=device).reshape(y.shape)).sum().backward()
        found.append([y.detach().cpu().numpy(), None if a.grad is None else a.grad.cpu().numpy()])
    (y, grad), (wanted, wanted_grad) = found
    np.testing.assert_allclose(y, wanted, rtol=1e-4, atol=1e-5)
    if wanted_grad is not None:
        np.testing.assert_allclose(grad, wanted_grad, rtol=1e-4, atol=1e-4)


LAYERS = {
    "conv1d": lambda: (nn.Conv1d(3, 6, 3, padding=1), (5, 3, 9)),
    "conv2d": lambda: (nn.Sequential(nn.Conv2d(2, 4, 3), nn.ReLU(), nn.MaxPool2d(2)), (3, 2, 8, 8)),
    "grouped": lambda: (nn.Conv1d(4, 8, 3, groups=2), (5, 4, 8)),
    "batch norm": lambda: (nn.BatchNorm1d(6), (7, 6)),
    "embedding": lambda: (nn.Embedding(11, 6), (5, 3)),
    "gru": lambda: (nn.GRU(3, 6), (4, 5, 3)),
    "attention": lambda: (nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True), (3, 5, 8)),
}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", LAYERS)
def test_layers_have_the_cpus_values(name):
    found = []
    for device in (checking, "cpu"):
        xgrad.manual_seed(1)
        layer, shape = LAYERS[name]()
        layer = layer.to(device)
        x = xgrad.randint(0, 11, shape) if name == "embedding" else xgrad.randn(shape)
        x = x.to(device).requires_grad_(name != "embedding")
        y = layer(x)
        y = y[0] if isinstance(y, tuple) else y
        y.cos().sum().backward()
        leaves = [y, *[p.grad for p in layer.parameters()], *layer.buffers()] + ([x.grad] if x.requires_grad else [])
        found.append([leaf.detach().cpu().numpy() for leaf in leaves])
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


def test_derivatives_of_derivatives():
    def twice(device):
        x = xgrad.tensor([0.5, -1.0, 2.0, 3.0, 0.1], device=device, requires_grad=True)
        (first,) = xgrad.autograd.grad((x.sin() * x).mean(), x, create_graph=True)
        (second,) = xgrad.autograd.grad(first.pow(2).sum(), x)
        return second.cpu().numpy()

    np.testing.assert_allclose(twice(checking), twice("cpu"), rtol=1e-5)


def test_infinite_and_undefined_numbers_stay_where_they_are():
    for value in (np.inf, -np.inf, np.nan):
        x = np.asarray([1.0, value, 2.0, -1.0, 3.0], np.float32)
        for f in (lambda x: x.sum(), lambda x: x.amax(), lambda x: x.softmax(0), lambda x: x @ x, lambda x: x.argmax()):
            np.testing.assert_array_equal(f(xgrad.tensor(x, device=chip)).cpu().numpy(), f(xgrad.tensor(x)).numpy())


def test_sizes_of_one_bucket_are_told_apart():
    """Two dimensions of one padded size, equal or not: the masks are right in either order of calls."""
    for shapes in ([(5, 7), (7, 5)], [(6, 6), (5, 7)]):
        for shape in shapes:
            x = np.random.default_rng(1).normal(size=shape).astype(np.float32)
            ours = xgrad.tensor(x, device=chip)
            np.testing.assert_allclose(ours.exp().sum(0).cpu().numpy(), np.exp(x).sum(0), rtol=1e-5)
            np.testing.assert_allclose((ours.t() @ ours).cpu().numpy(), x.T @ x, rtol=1e-4, atol=1e-5)


def test_a_report_says_what_could_not_be_padded():
    with chip.report() as report:
        x = xgrad.ones(5, 3, device=chip)
        x.sort(0)
        x[1:].tanh()
        xgrad.nn.functional.layer_norm(x, (3,))
    told = {each["program"]: each["why"] for each in report.as_dict()["not padded"]}
    assert told["sort"] == "size 5, 'sort' along a padded dimension"  # 3 is
    assert "a view" in told.values()
    assert told["layer_norm"].startswith("size 3, RuntimeError when padded: Given normalized_shape=[3]")
    assert report.as_dict()["padded to shared sizes"]["count"] == 3
    text = str(report)
    assert "padded to shared sizes" in text
    assert "not padded: sort" in text


def test_writes_in_place_and_views_keep_their_sizes():
    def written(device):
        x = xgrad.zeros(5, 3, device=device)
        x[1:4].add_(2)
        x.t()[0].mul_(3)
        x[xgrad.tensor([0, 4], device=device)] = 7.0
        return x.cpu().numpy()

    np.testing.assert_array_equal(written(checking), written("cpu"))


def test_a_function_says_the_sizes():
    asked = []

    def of_eights(n):
        asked.append(n)
        return -(-n // 8) * 8

    own = xgrad.Backend("own", shapes=of_eights)
    with own.report() as report:
        for size in (9, 13, 16):
            assert xgrad.ones(size, device=own).sum().item() == size
    assert {*asked} == {9, 13, 16}
    lines = [line for line in report.as_dict()["programs"] if line.startswith("sum ")]
    assert len(lines) == 2  # one that is padded to 16, and one of 16

    for answer in (3, 5.0, True, None):
        with pytest.raises(ValueError, match="shapes returned"):
            xgrad.ones(5, device=xgrad.Backend("wrong", shapes=lambda n, answer=answer: answer)).sin()


@pytest.mark.parametrize("shapes", [[], [0], [True], [4.0], "4", 8])
def test_what_is_not_a_list_of_sizes_is_refused(shapes):
    with pytest.raises(ValueError, match="shapes is a list of sizes"):
        xgrad.Backend("chip", shapes=shapes)


def test_a_lazy_backend_refuses_it():
    with pytest.raises(ValueError, match="shapes is for execution='eager'"):
        xgrad.Backend("chip", execution="lazy", shapes=[8])


def test_it_is_part_of_the_declaration():
    assert chip.shapes == (4, 8, 16, 32)
    assert xgrad.Backend("chip", shapes=[8, 4, 8]).shapes == (4, 8)
    assert "shapes=(4, 8, 16, 32)" in repr(chip)
    assert pickle.loads(pickle.dumps(chip)).shapes == chip.shapes
    assert copy.deepcopy(chip) is chip


def test_a_wrong_mask_is_found(monkeypatch):
    monkeypatch.setitem(mask_rules.COMBINING, "reduce_sum", 1)
    wrong = xgrad.Backend("wrong", shapes=[8], verify_passes=True)
    with pytest.raises(CompiledMismatchError, match="'sum' gives other values"):
        xgrad.ones(5, device=wrong).sum()


def test_passes_and_products_see_the_padded_programs():
    seen = []

    def spy(closed):
        seen.extend(aval.shape for aval in closed.in_avals)
        return closed

    own = xgrad.Backend("own", shapes=[8], passes=[spy], products="bfloat16", accumulate="float32")
    x = xgrad.full((5, 8), 1.001, device=own)
    assert (x @ x.t())[0, 0].item() == 8.0
    assert (8, 8) in seen


def test_a_compiled_step_keeps_its_sizes():
    @xgrad.compile
    def step(x):
        return (x * 2).softmax(0).sum(1)

    x = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    for _ in range(2):
        np.testing.assert_allclose(
            step(xgrad.tensor(x, device=chip)).cpu().numpy(), step(xgrad.tensor(x)).numpy(), rtol=1e-6
        )


@pytest.mark.parametrize("dtype", [xgrad.float64, xgrad.int64, xgrad.complex128], ids=str)
def test_numbers_of_64_bits(dtype):
    x = xgrad.arange(5, device=checking).to(dtype)
    assert x.sum().item() == 10
    assert (x * x).cumsum(0)[-1].item() == 30


def of_both(function, sizes, *arrays, pad=np.nan):
    """Return the results of a function's masked program, on arrays that are padded by what does harm, and its own."""
    exact = jax.make_jaxpr(function)(*arrays)
    padded = [np.pad(x, [(0, sizes.get(n, n) - n) for n in x.shape], constant_values=pad) for x in arrays]
    masked = masking.masked(exact, jax.make_jaxpr(function)(*padded), {p: i for i, p in enumerate(sizes.items())})
    found = jax.jit(masked)(np.asarray([*sizes], np.int32), *padded)
    wanted = jax.tree.leaves(function(*arrays))
    return [np.asarray(x)[tuple(slice(n) for n in np.shape(y))] for x, y in zip(found, wanted, strict=True)], wanted


def newton(x):
    """Iterate until all elements have converged: a loop whose condition reads them all."""

    def goes_on(carry):
        return (jnp.abs(carry * carry - x) > 1e-5).any()

    return jax.lax.while_loop(goes_on, lambda y: (y + x / y) / 2, x + 1)


PROGRAMS = {
    "while": newton,
    "scan": lambda x: jax.lax.scan(lambda c, row: (c + row, (c * row).sum()), x[0], jnp.stack([x[0], x[1]])),
    "cond": lambda x: jax.lax.cond(x.sum() > 6, lambda x: x.max(0), lambda x: x.min(0), x),
    "reversed": lambda x: jax.lax.cumsum(x, 0, reverse=True),
    "number": lambda x: jnp.where(x > 0, x, x.size - 1) / (x.shape[0] - 1) * x.shape[1],
    "parts of numbers": lambda x: x * (1 / x.size) + x * (len(x) / (len(x) - 1)) - x / (x.size / (x.size - 1)),
    "number of a call": lambda x: jax.jit(lambda x, n: x / n)(x, x.shape[0]),
    "or of bits": lambda x: jax.lax.reduce_or_p.bind(x.astype(np.int32), axes=(0,), **OUT),
    "and of bits": lambda x: jax.lax.reduce_and_p.bind(x.astype(np.int32), axes=(0,), **OUT),
    "rows added": lambda x: jnp.zeros((4, x.shape[1])).at[(x[:, 0] > 1).astype(np.int32)].add(x),
    "rows read": lambda x: jnp.arange(8.0).reshape(4, 2)[(x[:, 0] > 1).astype(np.int32)],
    "windows": lambda x: jax.lax.reduce_window(
        jnp.stack([x] * 4), -jnp.inf, jax.lax.max, (2, 1, 1), (2, 1, 1), "VALID"
    ),
    "convolved": lambda x: jax.lax.conv(x[:, None, :2], jnp.ones((2, 1, 2), x.dtype), (1,), "SAME"),
    "rows joined": lambda x: x.reshape(-1).cumsum() / x.size,
    "columns joined": lambda x: x.T.reshape(-1).cumsum() * jnp.arange(x.size),
    "columns joined and parted": lambda x: jnp.exp(x.T[None].reshape(-1)).reshape(3, 1, len(x)).cumsum(2),
    "three dimensions": lambda x: jnp.stack([x.T, 2 * x.T]).reshape(-1, 1)[:, 0].reshape(3, -1).cumsum(1),
    "columns of two joined": lambda x: (jnp.stack([x.T, 2 * x.T]).reshape(6, -1) + 1).reshape(2, -1).T.cumsum(0),
    "rows joined and parted": lambda x: x.T[None].reshape(3, -1).T.reshape(-1, 1).max(0),
    "random numbers": lambda x: x * jax.random.normal(jax.random.key(0), x.shape),
    "random numbers in a row": lambda x: x * jax.random.uniform(jax.random.key(0), (x.size,)).reshape(x.shape),
    "last row": lambda x: jax.lax.dynamic_slice(x, (x.shape[0] - 1, 0), (1, x.shape[1])) * jnp.exp(x[:1]),
    "beyond the end": lambda x: jax.lax.dynamic_slice(x, (x.shape[0] - 1, 1), (3, 2)),
    "a row written": lambda x: jax.lax.dynamic_update_slice(x, x[:2] * 2, (x.sum().astype(int), 0)),
    "product of rows": lambda x: jax.lax.dot_general(x, x, (((0,), (0,)), ((1,), (1,)))),
}
OUT = {"out_sharding": None} if "out_sharding" in str(jax.make_jaxpr(jnp.all)(np.ones(2, bool))) else {}


ROWS = (
    "convolved",
    "rows read",
    "rows joined",
    "rows joined and parted",
    "columns joined",
    "columns joined and parted",
    "three dimensions",
    "columns of two joined",
    "random numbers",
    "random numbers in a row",
)


@pytest.mark.parametrize("name", PROGRAMS)
def test_rules_of_operations(name):
    x = np.random.default_rng(2).uniform(0.5, 3, size=(5, 3)).astype(np.float32)
    found, wanted = of_both(PROGRAMS[name], {5: 8, 3: 6} if name not in ROWS else {5: 8}, x)
    for ours, theirs in zip(found, wanted, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def test_one_element_is_repeated_as_at_its_own_size():
    x, y = np.ones((1, 3), np.float32), np.ones((5, 3), np.float32)
    for function in (
        lambda x, y: jax.lax.add_p.bind(x, y) if x.shape == y.shape else jnp.broadcast_to(x, y.shape) + y,
        lambda x, y: jnp.broadcast_to(x, y.shape) * 2,
    ):
        with pytest.raises(mask_rules.UnpaddedError):
            of_both(function, {1: 8, 5: 8}, x, y)


OTHER = {  # the same operations in each line, and another program at the padded size
    "the other operand": lambda x, z: jnp.where(x > 2, *((x, jnp.exp(x)) if len(x) < 6 else (jnp.exp(x), x))),
    "results exchanged": lambda x, z: (x, z) if len(x) < 6 else (z, x),
    "a number for an array": lambda x, z: jnp.sin(x) * 2.0 if len(x) < 6 else jnp.sin(x) * z,
    "the other direction": lambda x, z: jax.lax.scan(
        lambda c, z: (c * 0.5 + z, c), jnp.zeros((), x.dtype), jnp.arange(4.0).astype(x.dtype), reverse=len(x) < 6
    )[0] * x,
    "another dtype": lambda x, z: x.astype(jnp.float16 if len(x) < 6 else x.dtype).astype(x.dtype),
    "written in part": lambda x, z: jax.lax.scatter_add(
        jnp.zeros(8, x.dtype), jnp.zeros((1,), np.int32), jnp.exp(x),
        jax.lax.ScatterDimensionNumbers((0,), (), (0,)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", OTHER)
def test_another_program_at_the_padded_size_is_refused(name):
    x = np.arange(1, 6, dtype=np.float32)
    with pytest.raises(mask_rules.UnpaddedError):
        of_both(OTHER[name], {5: 8}, x, -x)


def test_results_that_are_numbers_are_those_of_the_true_size():
    found, wanted = of_both(
        lambda x: (x * 2, x.shape[0], jax.jit(lambda x: (x, x.shape[0]))(x)[1] * x), {5: 8}, np.ones(5)
    )
    for ours, theirs in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("dtype", [jnp.float8_e4m3fn, jnp.float8_e5m2fnuz, jnp.int8, jnp.bool_], ids=str)
def test_extremes_of_dtypes_without_infinity(dtype):
    x = (-np.arange(1, 6, dtype=np.float32)).astype(dtype)
    found, wanted = of_both(lambda x: (x.max(), x.min(), x.argmax(), x.argmin()), {5: 8}, x, pad=0)
    for ours, theirs in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(ours.astype(np.float32), np.asarray(theirs).astype(np.float32))


def test_functions_that_a_program_calls_are_told_apart():
    def scaled(by):
        def host(x):
            return np.asarray(x) * by

        return xgrad.from_jax(lambda x: jax.pure_callback(host, jax.ShapeDtypeStruct((), x.dtype), x.sum()) + x)

    x = xgrad.arange(5.0, device=chip)
    assert [scaled(by)(x)[0].item() for by in (2.0, 3.0)] == [20.0, 30.0]


def test_weak_types_stay():
    x = xgrad.arange(5.0, device=chip)
    weak = xgrad.from_jax(lambda x: jnp.where(x > 0, 1.0, 2.0))
    found = xgrad.from_jax(lambda a, b: a + b)(weak(x), x.to(xgrad.bfloat16))
    assert found.dtype == xgrad.bfloat16


def test_masks_are_not_made_of_what_a_chip_lacks():
    lacks = xgrad.Backend("lacks", shapes=[8], without_hlo=["iota"], fallback="error")
    with lacks.report() as report:
        assert xgrad.ones(5, device=lacks).sum().item() == 5
    assert not any("iota" in launch.lower().as_text() for launch, _ in report._events.launches.values())


def test_numbers_that_are_undefined_in_the_padding_alone_are_no_error():
    jax.config.update("jax_debug_nans", True)
    try:
        x = xgrad.arange(1.0, 6.0, device=chip)
        assert (x / x).tolist() == [1.0] * 5
    finally:
        jax.config.update("jax_debug_nans", False)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: jnp.concatenate([x, x]),
        lambda x: x[::-1],
        lambda x: x[1:],
        lambda x: jnp.pad(x, 1),
        lambda x: jnp.sort(x, 0),
        lambda x: jax.lax.scan(lambda c, row: (c + row, row), x[0], x)[0],
        lambda x: x * np.arange(15.0, dtype=np.float32).reshape(5, 3) if x.shape == (5, 3) else x * x,
        lambda x: jax.random.uniform(jax.random.key(0), x.T.shape),
        lambda x: jax.random.uniform(jax.random.key(0, impl="rbg"), x.shape),
    ],
)
def test_what_depends_on_the_padding_is_refused(function):
    with pytest.raises(mask_rules.UnpaddedError):
        of_both(function, {5: 8}, np.ones((5, 3), np.float32))
