"""The laws of views: a backend's right rule keeps them, and a wrong one is named with its smallest counterexample."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import xgrad
from tests.backends.test_views import DIAGONAL, adjoint, read, write
from xgrad.conformance import laws
from xgrad.conformance.execution import Place

FLOAT = np.dtype("float32")


def broken(rule, name="diagonal"):
    place = Place(xgrad.Backend("npu", views={name: rule}))
    return {check.name: check.why for check in laws.checks(name, rule, FLOAT, place) if check.state == "wrong"}


def test_a_right_rule_keeps_all_laws():
    place = Place(xgrad.Backend("npu", views={"diagonal": DIAGONAL}))
    found = laws.checks("diagonal", DIAGONAL, FLOAT, place)
    assert [(check.name, check.state) for check in found] == [(law, "right") for law in laws.LAWS]


def test_a_write_of_another_value_breaks_three_laws_on_two_elements():
    found = broken(xgrad.ViewRule(read, lambda root, new, *args: write(root, 2 * new, *args), adjoint))
    assert {"a read gives what was written", "writing what is there", "the rest stays"} <= found.keys()
    assert (
        "diagonal(1, 0, 1) of root [[1.0, 2.0]], new [10.0] gives [20.0], but must give [10.0]"
        in (found["a read gives what was written"])
    )


@pytest.mark.parametrize(
    ("rule", "law"),
    [
        (xgrad.ViewRule(write=lambda root, new, *a: write(jnp.zeros_like(root), new, *a)), "writing what is there"),
        (xgrad.ViewRule(write=lambda root, new, *a: root + adjoint(new, root, *a)), "the last write wins"),
        (xgrad.ViewRule(adjoint=lambda grad, root, *a: adjoint(2 * grad, root, *a)), "the adjoint transposes the read"),
        (
            xgrad.ViewRule(write=lambda root, new, *a: write(root, jax.lax.stop_gradient(new), *a)),
            "the gradient of a write",
        ),
        (xgrad.ViewRule(read=lambda root, *a: read(root, *a)[..., ::-1]), "read shows the view"),
    ],
)
def test_a_wrong_rule_is_named_by_its_law(rule, law):
    assert "diagonal(" in broken(rule)[law]


def swapped(root, dim0, dim1):
    return root.swapaxes(dim0, dim1)


def swapped_write(root, new, dim0, dim1):
    return new.swapaxes(dim0, dim1)


@pytest.mark.parametrize(
    "adjoint",
    [
        lambda grad, root, *args: swapped(grad.astype(jnp.bfloat16).astype(grad.dtype), *args),
        lambda grad, root, *args: swapped(grad, *args) * (0.5 if root.shape[0] > 16 else 1),
        lambda grad, root, *args: swapped(grad, *args) * (0.5 if root.shape[0] > 256 else 1),
    ],
    ids=["rounds", "wrong from 17 rows", "wrong from 257 rows"],
)
def test_an_adjoint_that_is_right_for_small_whole_numbers_alone_is_found(adjoint):
    found = broken(xgrad.ViewRule(swapped, swapped_write, adjoint), "transpose")
    assert [*found] == ["the adjoint transposes the read"]
    assert len(found["the adjoint transposes the read"]) < 3000


def test_a_part_that_the_rest_spoils_is_found():
    def ones_at(root, dim, index):
        return (jnp.arange(root.shape[dim]) == index % root.shape[dim]).astype(root.dtype)

    def select(root, dim, index):
        return jnp.tensordot(jnp.moveaxis(root, dim, -1), ones_at(root, dim, index), 1, precision="highest")

    def put(root, new, dim, index):
        at = ones_at(root, dim, index)
        return jnp.moveaxis(jnp.moveaxis(root, dim, -1) * (1 - at) + new[..., None] * at, -1, dim)

    assert [*broken(xgrad.ViewRule(read=select), "select")] == ["the rest does not matter"]
    assert [*broken(xgrad.ViewRule(write=put), "select")] == ["the rest does not matter"]


def test_negative_starts_are_among_the_arguments():
    def read(root, dim, start, length):
        return jax.lax.dynamic_slice_in_dim(root, max(start, 0), length, axis=dim % root.ndim)

    assert "narrow(" in broken(xgrad.ViewRule(read=read), "narrow")["read shows the view"]
    for name in ("narrow", "slice", "select", "diagonal", "permute", "unsqueeze"):
        assert any(number < 0 for _, args, _ in laws.cases(name, FLOAT) for number in np.ravel(args) if number), name


def test_a_rule_that_raises_is_wrong():
    assert "TypeError" in broken(xgrad.ViewRule(read=lambda root: root))["laws"]


def test_conform_tries_the_laws_of_own_rules_and_what_copies_and_refusals_leave():
    rule = xgrad.ViewRule(adjoint=lambda grad, root, *a: adjoint(-grad, root, *a))
    chip = xgrad.Backend("npu", views={"diagonal": rule, "t": "copy", "select": "refuse"})
    report = xgrad.conformance.run(chip, operators="diagonal,t,select,permute", dtypes=["float32"])
    cells = {row.name: row.cells["float32"] for row in report.rows if row.group == "views"}
    assert {name: cell.state for name, cell in cells.items()} == {
        "diagonal": "wrong", "t": "right", "select": "refused", "permute": "right",
    }  # fmt: skip
    assert "the adjoint transposes the read" in cells["diagonal"].why
    assert [c.name for c in cells["t"].checks][:2] == ["read, replay", "gradient, replay"]


VIEWS = (
    "select", "narrow", "slice", "diagonal", "unfold", "permute", "transpose", "movedim", "view", "reshape",
    "unflatten", "squeeze", "unsqueeze", "expand", "neg_view",
)  # fmt: skip


@pytest.mark.parametrize("name", VIEWS)
def test_random_cases_of_each_view_begin_with_the_smallest(name):
    sizes = [np.prod(shape) for shape, _, _ in laws.cases(name, FLOAT)]
    assert len(sizes) > 2
    assert sizes == sorted(sizes)
