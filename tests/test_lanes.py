"""The quick lane has each value of each axis of a matrix, and all cases that are no combinations."""

import itertools
import types

import pytest

from .lanes import DIFFERENCES, axes, budget, covering, mark_exhaustive, skip_eager


def case(name, markers=(), **params):
    """A test's case as pytest collects it; a parameter is (index, value)."""
    made = types.SimpleNamespace(nodeid=f"test.py::test_x[{name}]", markers={mark.name: mark for mark in markers})
    made.callspec = types.SimpleNamespace(
        params={key: value for key, (_, value) in params.items()},
        indices={key: index for key, (index, _) in params.items()},
    )
    made.get_closest_marker = made.markers.get
    made.add_marker = lambda mark: made.markers.setdefault(mark.name, mark)
    return made


def quick(items):
    mark_exhaustive(items)
    return [item for item in items if "exhaustive" not in item.markers]


def stacked(markers=()):
    product = itertools.product(enumerate("abcdef"), enumerate(("replay", "geometry")))
    return [case(f"{x[1]}-{path[1]}", markers, x=x, path=path) for x, path in product]


def test_each_value_comes_once_and_the_values_of_two_axes_are_mixed():
    cases = {f"{a}{b}{c}": {"a": a, "b": b, "c": c} for a, b, c in itertools.product(range(2), range(4), range(6))}
    chosen = covering(cases)
    assert len(chosen) == 6
    for axis, count in (("a", 2), ("b", 4), ("c", 6)):
        assert {cases[name][axis] for name in chosen} == set(range(count))
    assert chosen == covering(dict(reversed(cases.items())))


def test_of_decorators_that_are_stacked_few_combinations_are_quick():
    chosen = quick(stacked())
    assert len(chosen) == 6
    assert {item.callspec.params["path"] for item in chosen} == {"replay", "geometry"}


def test_one_decorator_with_all_combinations_is_a_matrix_and_a_list_of_cases_is_none():
    product = enumerate(itertools.product("abcd", (1, 2)))
    assert len(quick([case(str(i), x=(i, x), y=(i, y)) for i, (x, y) in product])) == 4
    rows = [("a", 1), ("b", 1), ("c", 2), ("d", 2), ("e", 1), ("f", 1), ("g", 3), ("h", 3)]
    items = [case(str(i), x=(i, x), y=(i, y)) for i, (x, y) in enumerate(rows)]
    assert len(axes(items)) == len(quick(items)) == 8


def test_one_in_n_leaves_both_paths():
    chosen = quick(stacked([pytest.mark.one_in(3).mark]))
    assert len(chosen) == 2
    assert {item.callspec.params["path"] for item in chosen} == {"replay", "geometry"}


def test_a_large_budget_is_exhaustive():
    values = budget(2, 50).mark.args[1]
    assert values[0] == 2
    assert [mark.name for mark in values[1].marks] == ["exhaustive"]
    items = [case("2", n=(0, 2)), case("50", [pytest.mark.exhaustive.mark], n=(1, 50))]
    assert quick(items) == items[:1]


def test_what_asserts_eagers_side_is_skipped_with_the_difference():
    item, other = case("a", [pytest.mark.eager("lifetimes").mark]), case("b")
    for made in (item, other):
        made.iter_markers = lambda name, made=made: [made.markers[name]] if name in made.markers else []
    skip_eager([item, other])
    assert DIFFERENCES["lifetimes"] in item.markers["skip"].mark.kwargs["reason"]
    assert other.markers == {}
    item.markers["eager"] = pytest.mark.eager("a reason of its own").mark
    with pytest.raises(KeyError):
        skip_eager([item])
