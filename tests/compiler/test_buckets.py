"""dynamic=: sizes that vary share programs, to whose sizes they are padded; no value depends on the padding."""

import gc
import warnings
import weakref

import numpy as np
import pytest

import xgrad

from ..oracle import values


def rows(n):
    return xgrad.tensor(values((n, 3), n))


def programs(step):
    """The number of programs that several sizes share."""
    return len(step._buckets._programs)


def test_results_are_those_of_the_exact_size_and_sizes_share_a_program():
    step = xgrad.compile(lambda x: (x * 2, x.sum(1)), dynamic={"x": 0})
    for n in (3, 4, 5, 7, 8, 3, 6, 0, 1):
        x = rows(n)
        double, sums = step(x)
        assert (double.shape, sums.shape) == ((n, 3), (n,))
        np.testing.assert_allclose(double.numpy(), 2 * x.numpy())
        np.testing.assert_allclose(sums.numpy(), x.numpy().sum(1))
    assert programs(step) == 2  # up to 4, up to 8
    assert step.metrics()[:2] == (9, 8)  # calls, traces


POSITIVE = np.array([[1.0, 2, 0.5], [3, 4, 0.5], [5, 6, 0.5]], np.float32)
PADDING_SHOWS = {  # in what padding with zeros would show, in one of these two: the first call's data may hide it
    "mean": lambda x: x.mean(),
    "variance": lambda x: x.var(0),
    "last row": lambda x: x[-1],
    "last row of a result": lambda x: (x * 2)[-1],
    "last rows": lambda x: x[-2:].sum(0),
    "differences": lambda x: x[1:] - x[:-1],
    "diff": lambda x: x.diff(dim=0),
    "flat": lambda x: x.reshape(-1),
    "flat result": lambda x: x.flatten() * 2,
    "columns, flat": lambda x: x.t().flatten() * 2,
    "every second": lambda x: x[::2] * 1,
    "joined": lambda x: xgrad.cat([x, x[:1]]),
    "padded": lambda x: xgrad.nn.functional.pad(x, (0, 0, 1, 1)),
    "convolved": lambda x: xgrad.nn.functional.conv1d(x.t()[:1], xgrad.ones(1, 1, 2, dtype=x.dtype)),
    "max": lambda x: x.max(0).values,
    "min": lambda x: x.amin(0),
    "argmax": lambda x: x.argmax(0),
    "any": lambda x: (x == 0).any(0),
    "top": lambda x: x.topk(1, 0).values,
    "sorted": lambda x: x.sort(0).values,
    "softmax": lambda x: x.softmax(0),
    "product": lambda x: x.t() @ x.exp(),
    "by its length": lambda x: x.sum() * (2 if len(x) > 3 else 1),
    "unrolled": lambda x: sum(row.sum() for row in x),
    "gathered": lambda x: x[xgrad.arange(len(x) - 1)],
    "scaled": lambda x: x / len(x) ** 0.5,
    "last row, by a list": lambda x: x[[-1]] * 2,
    "rows, by a list": lambda x: x[[0, -2, 1]] * 2,
    "by a tensor": lambda x: x[xgrad.tensor([1, -1])],
    "taken": lambda x: x.index_select(0, xgrad.tensor([0, 1])) + x.take_along_dim(xgrad.tensor([[1, 0, 1]]), 0),
}


@pytest.mark.filterwarnings("ignore:xgrad.compile. with dynamic=")
def test_one_row_is_repeated_as_at_its_own_size():
    table = xgrad.arange(24.0, dtype=xgrad.float64).reshape(8, 3)
    step = xgrad.compile(
        lambda x: (x + table[: max(len(x), 8)], table * x.sum(0), x.expand(8, 3).sum()), dynamic={"x": 0}, buckets=[8]
    )
    one = rows(1)
    for ours, theirs in zip(step(one), (one + table, table * one.sum(0), one.expand(8, 3).sum()), strict=True):
        np.testing.assert_allclose(ours.numpy(), theirs.numpy())


@pytest.mark.filterwarnings("ignore:xgrad.compile. with dynamic=")
@pytest.mark.one_in(2)
@pytest.mark.parametrize("dtype", [xgrad.float32, xgrad.bfloat16], ids=str)
@pytest.mark.parametrize("name", PADDING_SHOWS)
def test_no_value_depends_on_the_padding(name, dtype):
    function = PADDING_SHOWS[name]
    step = xgrad.compile(function, dynamic={"x": 0})
    for data in (POSITIVE, -POSITIVE, POSITIVE[:2], np.repeat(-POSITIVE, 2, 0)[:5]):
        x = xgrad.tensor(data).to(dtype)
        found, wanted = step(x), function(x)
        assert found.shape == wanted.shape
        np.testing.assert_allclose(
            found.float().numpy(), wanted.float().numpy(), rtol=1e-5 if dtype.itemsize > 2 else 2e-2
        )


def test_single_rows_of_a_padded_dimension_share_a_program():
    # As the last word of a GPT's text is read: x[:, [-1], :].
    @xgrad.compile(dynamic={"x": 1})
    def step(x):
        leaf = x.detach().requires_grad_()
        out = leaf[:, [-1], :].exp() + leaf[:, [0, -2], :].sum()
        out.sum().backward()
        return out.detach(), leaf.grad

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for n in (5, 6, 7, 8):
            x = xgrad.arange(2.0 * n * 3).reshape(2, n, 3) / 9
            leaf = x.clone().requires_grad_()
            out = leaf[:, [-1], :].exp() + leaf[:, [0, -2], :].sum()
            out.sum().backward()
            found, grad = step(x)
            np.testing.assert_allclose(found.numpy(), out.detach().numpy(), rtol=1e-5)
            np.testing.assert_allclose(grad.numpy(), leaf.grad.numpy(), rtol=1e-5)
    assert programs(step) == 1


@pytest.mark.parametrize("mode", ["fill", "clip", "promise_in_bounds", None])
def test_indices_beyond_the_true_size_are_treated_as_there(mode):
    @xgrad.from_jax
    def read(x, at):
        return x.at[at].get(mode=mode)

    @xgrad.from_jax
    def add(x, at):
        return (x * 0).at[at].add(1.0, mode=mode)

    step = xgrad.compile(lambda x, at: (read(x, at), add(x, at)), dynamic={"x": 0})
    at = xgrad.tensor([0, 2, 4, 6, 9], dtype=xgrad.uint8)
    for n in (5, 6, 3, 8, 255):
        x = xgrad.arange(float(n)) + 1
        for ours, theirs in zip(step(x, at), (read(x, at), add(x, at)), strict=True):
            np.testing.assert_array_equal(ours.numpy(), theirs.numpy())
    assert programs(step) == 3


def test_what_cannot_be_padded_is_told_once_unless_it_is_not_asked_for():
    def in_order(x):
        return x.sort(0).values * -1

    step = xgrad.compile(in_order, dynamic={"x": 0})
    with pytest.warns(UserWarning, match="in_order is compiled for each size: at size 3, padded to 4.*'sort' along"):
        step(rows(3))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        step(rows(5))
        xgrad.compile(in_order, dynamic={"x": 0}, check=False)(rows(3))


def test_a_function_that_refuses_the_padded_size_runs_at_its_own():
    def at_most_three(x):
        if len(x) > 3:
            raise ValueError("too long")
        return x.sum(0)

    step = xgrad.compile(at_most_three, dynamic={"x": 0})
    with pytest.warns(UserWarning, match="ValueError when padded: too long"):
        np.testing.assert_allclose(step(rows(3)).numpy(), rows(3).numpy().sum(0))
    with pytest.raises(ValueError, match="too long"):
        step(rows(5))


def test_the_argument_its_gradient_and_containers_are_written_as_by_the_function():
    kept, total, weight = {}, xgrad.zeros(3), xgrad.ones(3, requires_grad=True)

    @xgrad.compile(dynamic={"x": 0, "y": 0})
    def step(x, y):
        weight.grad = None
        (y * x.detach() * weight).exp().mean(0).sum().backward()
        kept["last"] = (x * 2)[-1]
        x.mul_(2)
        total.copy_((x + 1).sum(0))
        return x[1:]

    for n in (3, 5, 6):
        x, y = rows(n), rows(n).requires_grad_()
        before = x.clone()
        rest = step(x, y)
        wanted_y, wanted_w = rows(n).requires_grad_(), xgrad.ones(3, requires_grad=True)
        (wanted_y * before * wanted_w).exp().mean(0).sum().backward()
        np.testing.assert_allclose(y.grad.numpy(), wanted_y.grad.numpy(), rtol=1e-5)
        np.testing.assert_allclose(weight.grad.numpy(), wanted_w.grad.numpy(), rtol=1e-5)
        np.testing.assert_array_equal(x.numpy(), 2 * before.numpy())
        np.testing.assert_array_equal(kept["last"].numpy(), 2 * before[-1].numpy())
        np.testing.assert_allclose(total.numpy(), (2 * before + 1).sum(0).numpy(), rtol=1e-6)
        rest.add_(1)  # it is a view of x, not of a copy
        np.testing.assert_array_equal(x[1:].numpy(), 2 * before[1:].numpy() + 1)
    assert programs(step) == 2


def test_gradients_outside_have_the_true_size_and_share_a_program():
    layer = xgrad.nn.Linear(3, 2).double()
    step = xgrad.compile(lambda x: layer(x).softmax(0)[-1], dynamic={"x": 0})
    for n in (5, 6, 7):
        found = []
        for function in (step, lambda x: layer(x).softmax(0)[-1]):
            x = rows(n).requires_grad_()
            layer.zero_grad()
            function(x).exp().sum().backward()
            found.append([x.grad.numpy(), layer.weight.grad.numpy(), layer.bias.grad.numpy()])
        for ours, theirs in zip(*found):
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)


def trained_with_dropout(dynamic):
    xgrad.manual_seed(0)
    model = xgrad.nn.Sequential(xgrad.nn.Linear(3, 4), xgrad.nn.Dropout(0.5), xgrad.nn.Linear(4, 2)).double()
    optimizer = xgrad.optim.AdamW(model.parameters())

    @xgrad.compile(dynamic=dynamic)
    def step(x):
        optimizer.zero_grad()
        model(x).tanh().mean().backward()
        optimizer.step()

    for n in (5, 6, 7, 5):
        step(rows(n))
    return step, [p.detach().numpy() for p in model.parameters()]


def test_training_with_dropout_draws_the_numbers_of_the_true_size():
    step, found = trained_with_dropout({"x": 0})
    for ours, theirs in zip(found, trained_with_dropout(None)[1]):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5)
    assert programs(step) == 1


@pytest.mark.exhaustive
def test_what_is_valid_is_told_and_state_moves_on_once_a_call():
    weight = xgrad.ones(3, requires_grad=True)

    @xgrad.compile(dynamic={"x": 0})
    def step(x, valid):
        weight.grad = None
        mask = xgrad.arange(x.shape[0]) < valid
        loss = ((x * weight).sum(1) * mask).sum() / valid
        loss.backward()
        with xgrad.no_grad():
            weight.sub_(weight.grad, alpha=0.1)
        return loss.detach()

    expected = np.ones(3)
    for n in (3, 4, 5):
        x = rows(n)
        assert step(x).item() == pytest.approx(float((x.numpy() * expected).sum(1).mean()))
        expected = expected - 0.1 * x.numpy().mean(0)
        np.testing.assert_allclose(weight.detach().numpy(), expected)


def test_given_buckets_are_the_sizes_and_the_largest_is_the_limit():
    step = xgrad.compile(lambda x: x + 1, dynamic={"x": 0}, buckets=[5, 10])
    for n in (2, 5, 7, 10):
        assert step(rows(n)).shape == (n, 3)
    assert programs(step) == 2
    with pytest.raises(ValueError, match=r"a size of 11 is over the largest of buckets=\[5, 10\]"):
        step(rows(11))


def test_several_arguments_vary_together_and_the_others_stay():
    step = xgrad.compile(lambda x, y, z: (x @ z, y * 2), dynamic={"x": 0, "y": 1})
    x, y, z = rows(3), xgrad.tensor(values((2, 3), 1)), xgrad.tensor(values((3, 2), 2))
    product, double = step(x, y, z)
    np.testing.assert_allclose(product.numpy(), x.numpy() @ z.numpy(), rtol=1e-6)
    np.testing.assert_allclose(double.numpy(), 2 * y.numpy())
    with pytest.raises(ValueError, match=r"must have one size, but got \{'x': 3, 'y': 2\}"):
        step(x, y[:, :2], z)


def test_reset_forgets_all_programs_and_sizes():
    step = xgrad.compile(lambda x: (x * 2, x.sum(1)), dynamic={"x": 0})
    for n in (3, 5):
        step(rows(n))
    entries = [weakref.ref(function._entries[0]) for function in step._buckets.functions.values()]
    step.reset()
    gc.collect()
    assert [entry() for entry in entries] == [None, None]
    assert step.metrics().calls == programs(step) == 0
    assert step(rows(3))[1].shape == (3,)


def test_a_module_names_the_parameters_of_its_forward():
    layer = xgrad.nn.Linear(3, 2).double()
    step = xgrad.compile(layer, dynamic={"input": 0})
    for n in (5, 6):
        np.testing.assert_allclose(step(rows(n)).detach().numpy(), layer(rows(n)).detach().numpy())


def test_what_has_no_such_dimension_or_no_tensor():
    step = xgrad.compile(lambda d=None: 1 if d is None else d["x"] * d["s"], dynamic={"d": 0})
    assert step() == 1
    with pytest.raises(ValueError, match=r"dynamic= names dimension 0 of d, which has a tensor of shape \(\)"):
        step({"x": rows(3), "s": xgrad.tensor(2.0)})
    with pytest.raises(ValueError, match="must have one size, but got"):
        step({"x": rows(3), "s": rows(5)})


def test_many_sizes_are_no_many_traces():
    step = xgrad.compile(lambda x: x * 2, dynamic={"x": 0}, buckets=[*range(1, 13)])
    for n in range(1, 13):
        step(rows(n))  # a warning would be an error


def test_batch_norm_shares_a_program():
    norms = [xgrad.nn.BatchNorm1d(3).double() for _ in range(2)]
    step = xgrad.compile(lambda x: norms[0](x), dynamic={"x": 0})
    for n in (5, 6, 7):
        np.testing.assert_allclose(step(rows(n)).detach().numpy(), norms[1](rows(n)).detach().numpy(), rtol=1e-6)
    np.testing.assert_allclose(norms[0].running_var.numpy(), norms[1].running_var.numpy(), rtol=1e-12)
    assert programs(step) == 2  # forward and backward


@pytest.mark.exhaustive
@pytest.mark.parametrize("dim", [0, 1])
def test_a_language_model_of_which_batch_or_length_varies(dim):
    def losses(dynamic):
        xgrad.manual_seed(0)
        table = xgrad.nn.Embedding(11, 8)
        layer = xgrad.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        optimizer = xgrad.optim.SGD([*table.parameters(), *layer.parameters()], lr=0.1)

        @xgrad.compile(dynamic=dynamic)
        def step(words):
            optimizer.zero_grad()
            mask = xgrad.nn.Transformer.generate_square_subsequent_mask(words.shape[1])
            inside = xgrad.nn.functional.dropout(table(words), 0.1)
            logits = layer(inside, src_mask=mask, is_causal=True) @ table.weight.t()
            loss = xgrad.nn.functional.cross_entropy(logits.view(-1, 11), words.view(-1))
            loss.backward()
            optimizer.step()
            return loss.detach()

        sizes = [(n, 6) if dim == 0 else (3, n) for n in (5, 7, 5, 6)]
        return step, [step(xgrad.randint(0, 11, shape)).item() for shape in sizes]

    step, found = losses({"words": dim})
    np.testing.assert_allclose(found, losses(None)[1], rtol=1e-5)
    assert programs(step) == 1


def test_an_unknown_parameter_is_an_error_at_once():
    with pytest.raises(TypeError, match="dynamic= names no parameter of the function: 0"):
        xgrad.compile(lambda x: x, dynamic={0: 1})  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="dynamic= names no parameter of the function: y"):
        xgrad.compile(lambda x: x, dynamic={"y": 0})
