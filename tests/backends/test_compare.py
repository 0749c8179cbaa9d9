"""xgrad.compare(f, ..., backends=[...]): values, refusals, where values first differ, counts, forms."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import xgrad

chip = xgrad.Backend("chip", cost=xgrad.Cost(launch=1e-5, bandwidth=1e9, flops=1e9, compile=0.1, host_link=1e9))


def sorted_rows(x, w):
    y = (x * w).tanh().clone()
    y[0].mul_(2)
    return y.sort(1).values


@pytest.fixture
def inputs():
    return (
        xgrad.tensor([[0.5, -1.0], [2.0, 0.25]], requires_grad=True),
        xgrad.tensor([[1.0, 3.0], [-0.5, 0.75]], requires_grad=True),
    )


@pytest.fixture(scope="module")
def result():
    x = xgrad.tensor([[0.5, -1.0], [2.0, 0.25]], requires_grad=True)
    w = xgrad.tensor([[1.0, 3.0], [-0.5, 0.75]], requires_grad=True)
    wrong = chip.replace(lowerings={"tanh": lambda x: jnp.tanh(x) * 1.5})
    backends = [
        chip, chip.replace(strides=True), chip.replace(execution="lazy"), "cpu", wrong,
        chip.replace(without=["sort"]), chip.replace(without=["sort"], fallback="error"),
    ]  # fmt: skip
    return xgrad.compare(sorted_rows, x, w, backends=backends, repeats=1)


def test_backends_are_told_apart_by_what_they_declare(result):
    assert list(result.runs) == [
        "chip", "chip, strides=True", "chip, execution=lazy", "cpu", "chip, lowerings=tanh", "chip, without=sort",
        "chip, without=sort, fallback=error",
    ]  # fmt: skip


def test_values_and_gradients_are_those_of_a_plain_run(result, inputs):
    x, w = inputs
    y = sorted_rows(x, w)
    for name in ("chip", "chip, strides=True", "chip, execution=lazy", "cpu", "chip, without=sort"):
        run = result.runs[name]
        np.testing.assert_allclose(run.outputs[0], y.numpy(force=True), rtol=1e-6)
        assert all(g is not None for g in run.gradients)
        if name != "chip":
            assert all(d.within_rounding for d in result.differences[name])


def test_the_first_operator_at_which_values_part_is_named_with_both_values(result):
    assert not result.equal
    assert not result.within_rounding
    part = result.parts["chip, lowerings=tanh"]
    assert part.operator == "tanh"
    assert part.number == 1
    assert part.line.startswith("test_compare.py:")
    np.testing.assert_allclose(part.other, 1.5 * part.first, rtol=1e-6)
    assert "values first differ at operator 1, tanh, at test_compare.py:" in str(result)


def test_a_backend_that_lacks_something_is_refused_and_the_others_are_compared(result):
    assert list(result.refused) == ["chip, without=sort, fallback=error"]
    assert "not implemented for the backend 'chip'" in str(result)
    assert result.runs["chip, without=sort, fallback=error"].outputs == ()
    assert sum(f["count"] for f in result.as_dict()["chip, without=sort"]["report"]["fallbacks"]) == 2


def test_counts_and_times(result):
    found = result.as_dict()
    assert found["chip, execution=lazy"]["report"]["launches"] < found["chip"]["report"]["launches"]
    assert found["cpu"]["report"] is None
    assert found["chip"]["seconds"] > 0
    assert found["chip, without=sort, fallback=error"]["seconds"] is None
    assert len(found["cpu"]["times"]) == 1
    assert found["cpu"]["circumstances"]["jax"] == jax.__version__
    for form in (str(result), result._repr_html_()):
        assert f"jax {jax.__version__}" in form
        assert "time here: measured too seldom to say which takes longer, chip or " in form
    json.dumps(found)


def test_it_prints_as_an_aligned_table(result):
    lines = str(result).splitlines()
    rule = next(i for i, line in enumerate(lines) if set(line) == {"-"})
    count = len(result.rows())
    assert {len(line) for line in lines[rule - 1 : rule + 1 + count]} == {len(lines[rule])}


def test_it_shows_as_html_without_unescaped_text(result):
    html = result._repr_html_()
    assert "<function" not in html
    assert html.count("<tr>") == 1 + len(result.rows())


def test_rich_prints_the_same_numbers(result, capsys, monkeypatch):
    pytest.importorskip("rich")
    monkeypatch.setenv("COLUMNS", "80")
    result.print(rich=True)
    assert "refused" in capsys.readouterr().out


def test_a_plot_has_a_bar_for_each_backend_and_leaves_compiling_out(result, inputs):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    axes = result.plot()
    assert [label.get_text() for label in axes.get_yticklabels()] == [
        name for name in result.runs if name not in result.refused
    ]
    parts = {text.get_text() for text in axes.get_legend().get_texts()}
    assert {"launch", "memory", "measured here"} <= parts
    assert "compile" not in parts
    assert "to compile" in str(result)
    untold = xgrad.compare(xgrad.tanh, inputs[0], backends=["cpu", "cpu"], timing=False)
    with pytest.raises(ValueError, match="nothing to draw"):
        untold.plot()


def test_gradients_may_part_alone(inputs):
    @jax.custom_vjp
    def tanh(x):
        return jnp.tanh(x)

    tanh.defvjp(lambda x: (jnp.tanh(x), jnp.tanh(x)), lambda y, g: (g * (1 - y),))
    wrong = chip.replace(lowerings={"tanh": tanh})
    found = xgrad.compare(xgrad.tanh, inputs[0], backends=[chip, wrong], timing=False)
    assert "the values of all operators are equal, and the gradients differ" in str(found)
    assert found.max_difference > 0.01
    x = inputs[0]
    rounds = wrong.replace(lowerings={"tanh": tanh, "exp": lambda x: jnp.exp(x) * (1 + 2**-22)})
    found = xgrad.compare(lambda x: x.exp().tanh(), x, backends=[chip, rounds], timing=False)
    assert "the values of all operators are equal within rounding, and the gradients differ" in str(found)


def test_operators_that_one_backend_runs_alone_are_named(inputs):
    def more(x):
        return x.sin().cos() if x.device.type == "chip" else x.sin()

    found = xgrad.compare(more, inputs[0], backends=["cpu", chip], timing=False)
    assert "other operators run from number 1 on: none, and cos" in str(found)


def test_the_users_inputs_stay_as_they_are(inputs):
    x, _ = inputs
    before = x.tolist()
    found = xgrad.compare(lambda x, k: x.clone().mul_(k), x, 2, backends=["cpu", chip], timing=False)
    assert found.equal
    assert x.tolist() == before
    assert x.grad is None


def test_random_numbers_are_the_same():
    x = xgrad.ones(5, requires_grad=True)
    found = xgrad.compare(lambda x: x * xgrad.rand(5, device=x.device), x, backends=["cpu", chip], timing=False)
    assert found.equal


@pytest.mark.parametrize("wrong", [[], ["cpu"], "cpu", 3])
def test_fewer_than_two_backends_are_refused(wrong, inputs):
    with pytest.raises(ValueError, match="two backends or more"):
        xgrad.compare(sorted_rows, *inputs, backends=wrong)


def test_an_error_says_on_which_backend_it_came(inputs):
    def fails(x):
        if x.device == chip.device:
            raise ArithmeticError("here")
        return x

    with pytest.raises(ArithmeticError) as caught:
        xgrad.compare(fails, inputs[0], backends=["cpu", chip], timing=False)
    assert "on the backend chip" in caught.value.__notes__


def test_a_function_without_tensors_names_the_device_behind_the_backend_of_its_block():
    with xgrad.device(chip):
        found = xgrad.compare(lambda: xgrad.ones(2) * 3, programs=False, timing=False)
    assert found.circumstances["device"] == xgrad.compare(lambda: xgrad.ones(2), timing=False).circumstances["device"]
