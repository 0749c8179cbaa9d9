"""Geometries against torch: strides of views, overlap, and reading and writing through strides."""

import itertools
import os

os.environ.setdefault("JAX_ENABLE_X64", "1")

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import xgrad
from tests.lanes import budget
from tests.traced import evaluated
from xgrad.views.geometry import TensorGeometry
from xgrad.views.strided import (
    as_strided_scatter,
    read_strided,
    strided_plan,
    write_strided,
)

sizes_and_strides = st.integers(0, 4).flatmap(
    lambda n: st.tuples(
        st.lists(st.integers(1, 4), min_size=n, max_size=n).map(tuple),
        st.lists(st.integers(0, 9), min_size=n, max_size=n).map(tuple),
    )
)


@budget(60, 300)
def test_overlap_is_exact(budget):
    settings(max_examples=budget, deadline=None, derandomize=True)(given(sizes_and_strides)(overlap_is_exact))()


def overlap_is_exact(case):
    sizes, strides = case
    reached = [sum(i * s for i, s in zip(index, strides)) for index in itertools.product(*map(range, sizes))]
    assert TensorGeometry(sizes, strides).overlaps() == (len(set(reached)) < len(reached))


@pytest.mark.parametrize(
    ("sizes", "strides"),
    [((3, 4), (0, 2)), ((4, 2), (1, 1)), ((2, 2), (3, 1)), ((3, 2, 3), (4, 0, 1)), ((3, 3), (2, 1)), ((1, 5), (7, 0)),
     ((2, 3, 4), (1, 2, 4)), ((0, 3), (1, 0)), ((3, 4), (3, 2))],
)  # fmt: skip
def test_distinct_shows_the_same_elements_once(sizes, strides):
    reached = [2 + sum(i * s for i, s in zip(index, strides)) for index in np.ndindex(sizes)]
    found = TensorGeometry(sizes, strides, 2).distinct()
    if found is None:
        assert (sizes, strides) == ((3, 4), (3, 2))
        return
    shown = [found.offset + sum(i * s for i, s in zip(index, found.strides)) for index in np.ndindex(found.sizes)]
    assert sorted(shown) == sorted(set(reached))


def test_overlap_of_large_views_is_decided_at_once():
    assert not TensorGeometry((10**6, 10**6), (10**6, 1)).overlaps()
    assert TensorGeometry((10**6, 10**6), (10**6 - 1, 1)).overlaps()
    assert not TensorGeometry((3, 10**9), (2, 6)).overlaps()
    assert TensorGeometry((4, 3), (2, 3)).overlaps()
    assert not TensorGeometry((3, 2), (2, 3)).overlaps()
    assert not TensorGeometry((0, 3), (0, 0)).overlaps()


@budget(60, 300)
def test_view_strides_and_contiguity_are_those_of_torch(budget):
    settings(max_examples=budget, deadline=None, derandomize=True)(
        given(sizes_and_strides, st.data())(strides_are_torchs)
    )()


def strides_are_torchs(case, data):
    sizes, strides = case
    geometry = TensorGeometry(sizes, strides, 2)
    x = torch.zeros(200).as_strided(sizes, strides, 2)
    assert geometry.is_contiguous() == x.is_contiguous()
    assert geometry.numel == x.numel()
    factors = [n for n in sizes for n in ((2, 2) if n == 4 else (n,))]
    new, run = [], 1
    for n in factors:
        run *= n
        if data.draw(st.booleans()):
            new.append(run)
            run = 1
    new.append(run)
    try:
        theirs = x.view(new).stride()
    except RuntimeError:
        theirs = None
    assert geometry.view_strides(new) == theirs


def test_view_strides_of_empty_and_scalar():
    for shape, new in [((0, 3), (5, 0)), ((2, 0, 3), (3, 0, 2)), ((), (1, 1)), ((1,), ())]:
        assert TensorGeometry.contiguous(shape).view_strides(new) == torch.zeros(shape).view(new).stride()


def test_span():
    assert TensorGeometry((2, 3), (6, 2), 1).span() == (1, 11)
    assert TensorGeometry((0, 3), (3, 1), 4).span() == (4, 3)


# The first five are slices and transposes; the last four take a gather.
ROOT = (4, 6)
GEOMETRIES = [
    TensorGeometry((4,), (6,), 2),
    TensorGeometry((2, 3), (12, 2), 1),
    TensorGeometry((6, 2), (1, 6), 6),
    TensorGeometry((2, 3, 2), (12, 4, 1), 1),
    TensorGeometry((3, 2, 5), (0, 6, 1), 1),
    TensorGeometry((3,), (7,), 1),
    TensorGeometry((5, 3), (4, 1), 2),
    TensorGeometry((4, 3), (2, 1), 2),
    TensorGeometry((0, 3), (3, 1), 2),
]


def flat(x):
    return x.detach().numpy()


@pytest.mark.parametrize("geometry", GEOMETRIES, ids=str)
def test_strided_read_and_write_equal_torch(geometry):
    def run(function, root, *new):
        return evaluated(lambda root, *new: function(root, geometry, *new), root, *new)

    args = geometry.sizes, geometry.strides, geometry.offset
    x = torch.arange(24.0, dtype=torch.float64).reshape(ROOT)
    a = jnp.array(x.numpy())
    view = x.as_strided(*args)
    np.testing.assert_array_equal(run(read_strided, a), view)
    assert (strided_plan(ROOT, geometry) is not None) == (GEOMETRIES.index(geometry) < 5)
    new = torch.arange(1.0, view.numel() + 1, dtype=torch.float64).reshape(view.shape)
    if geometry.overlaps():
        with pytest.raises(RuntimeError, match="more than one element of the written-to tensor"):
            write_strided(a, geometry, jnp.array(new.numpy()))
    else:
        y = x.clone()
        y.as_strided(*args).copy_(new)
        np.testing.assert_array_equal(run(write_strided, a, jnp.array(new.numpy())), y)


def test_slices_and_transposes_lower_without_gather():
    for geometry in GEOMETRIES[:5]:
        text = jax.jit(read_strided, static_argnums=1).lower(jnp.zeros(ROOT), geometry).as_text()
        assert "gather" not in text


def test_reading_outside_of_the_root_raises():
    for use in (lambda a, g: read_strided(a, g), lambda a, g: write_strided(a, g, jnp.zeros(3))):
        with pytest.raises(RuntimeError, match=r"setStorage: sizes \[3\], .* out of bounds for storage of size 192"):
            use(jnp.zeros(ROOT), TensorGeometry((3,), (1,), 22))


def test_as_strided_scatter_replaces_what_both_share():
    base = torch.arange(12.0, dtype=torch.float64).reshape(3, 4)
    inner, outer = ((4, 3), (1, 4), 0), ((2, 2), (4, 2), 1)
    storage = base.clone()
    storage.as_strided(*outer).fill_(-1)
    ours = as_strided_scatter(
        jnp.array(base.as_strided(*inner).numpy()), TensorGeometry(*inner), TensorGeometry(*outer), -jnp.ones((2, 2))
    )
    np.testing.assert_array_equal(ours, storage.as_strided(*inner))


@pytest.mark.parametrize(
    "shape", [(2, 3, 4, 5), (2, 1, 4, 5), (2, 3, 1, 1), (0, 3, 4, 5), (2, 3), (2, 3, 4, 5, 6), (1, 1, 2, 3, 1)]
)
def test_contiguous_in_a_memory_format(shape):
    """It said yes to any of them."""

    def program(T):
        x = T.zeros(shape)
        seen = [x, x.permute(0, *range(2, len(shape)), 1) if len(shape) > 2 else x, x.transpose(0, -1)]
        if len(shape) > 2:  # channels that are last in memory
            last = T.zeros(shape[0], *shape[2:], shape[1])
            seen.append(last.permute(0, len(shape) - 1, *range(1, len(shape) - 1)))
        formats = ("contiguous_format", "channels_last", "channels_last_3d")
        return [y.is_contiguous(memory_format=getattr(T, name)) for y in seen for name in formats]

    assert program(xgrad) == program(torch)
