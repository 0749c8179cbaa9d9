"""View chains against torch: values, strides, write-back and gradients of every view; normal forms; shared programs."""

import copy
import itertools
import os
import pickle

os.environ.setdefault("JAX_ENABLE_X64", "1")

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.lanes import budget
from tests.traced import evaluated
from xgrad.execution.runner import runner
from xgrad.views import chain as chain_module
from xgrad.views import program
from xgrad.views.chain import ViewChain
from xgrad.views.program import scalar_of
from xgrad.views.view_ops import AsStrided, Permute, Reshape, Slice

FRESH = itertools.count(2**30 + 2**20)  # starts that no view has

F64, C128 = np.dtype("float64"), np.dtype("complex128")


def root_of(x: torch.Tensor) -> ViewChain:
    return ViewChain.root(tuple(x.shape), x.numpy().dtype)


def filled(shape, dtype=torch.float64):
    n = int(np.prod(shape))
    x = torch.arange(1, n + 1, dtype=torch.float64).reshape(shape)
    return torch.complex(x, -x / 8) if dtype == torch.complex128 else x.to(dtype)


def array(x: torch.Tensor) -> jax.Array:
    # jnp.array copies, which asarray need not: torch changes x in place later.
    return jnp.array(x.detach().resolve_conj().resolve_neg().numpy())


def same(ours, theirs):
    theirs = theirs.detach().resolve_conj().resolve_neg().numpy()
    assert ours.dtype == theirs.dtype
    np.testing.assert_array_equal(np.asarray(ours), theirs)


def same_geometry(chain, view):
    """Strides of dimensions of size 1, and of empty views, are arbitrary."""
    seen = chain.geometry
    assert seen.sizes == tuple(view.shape)
    assert seen.is_contiguous() == view.is_contiguous()
    if view.numel():
        assert seen.offset == view.storage_offset()
        for n, ours, theirs in zip(seen.sizes, seen.strides, view.stride()):
            assert n == 1 or ours == theirs


def same_as_torch(x, chain, take, differentiable=True, donate=True):
    """The chain does on a root what the function `take` does in torch: value, strides, write-back, gradient.

    XLA compiles the write that donates its root; the rest is traced and evaluated by NumPy (tests/traced.py).
    """
    view = take(x)
    assert chain.shape == tuple(view.shape)
    same(evaluated(chain.replay, array(x)), view)
    same_geometry(chain, view)

    new = torch.flip(filled(view.shape), [0] if view.ndim else []).to(torch.float64)
    new = torch.complex(new, 2 * new) if view.is_complex() else new.to(view.dtype)
    if chain.overlaps:
        with pytest.raises(RuntimeError, match="more than one element of the written-to tensor"):
            chain.write_back(array(x), array(new))
    else:
        y = x.clone()
        take(y).copy_(new)
        same(evaluated(chain.write_back, array(x), array(new)), y)
        if donate:
            same(chain.write_back(array(x), array(new), donate=True), y)
    if differentiable:
        y = x.clone().requires_grad_()
        take(y).backward(new)
        same(evaluated(chain.adjoint, array(new)), y.grad)


M, V, B, S = (4, 6), (12,), (2, 3, 4), ()
NAMED = [
    ("select", (0, 1), [M, V, B]),
    ("select", (-1, -2), [M, V, B]),
    ("narrow", (0, 1, 1), [M, V, B]),
    ("narrow", (-1, -3, 2), [M, V, B]),
    ("narrow", (0, 2, 0), [M, V, B]),
    ("permute", ((1, 0),), [M]),
    ("permute", (2, -3, 1), [B]),
    ("transpose", (0, -1), [M, B, S]),
    ("swapaxes", (0, 1), [M, B]),
    ("swapdims", (0, 1), [M, B]),
    ("t", (), [M, V, S]),
    ("movedim", (0, -1), [M, B]),
    ("moveaxis", ((0, 1), (1, 2)), [B]),
    ("view", (-1,), [M, V, B, S]),
    ("view", (2, -1, 3), [M, V, B]),
    ("view", ((3, 4, 2),), [M, B]),
    ("reshape", (2, -1), [M, V, B]),
    ("flatten", (), [M, V, B, S]),
    ("flatten", (1, 2), [B]),
    ("unflatten", (0, (2, -1)), [M, V, B]),
    ("squeeze", (), [M, (1, 3, 1)]),
    ("squeeze", (0,), [M, (1, 3, 1)]),
    ("squeeze", ((0, -1),), [M, (1, 3, 1)]),
    ("unsqueeze", (0,), [M, V, S]),
    ("unsqueeze", (-1,), [M, V, S]),
    ("expand", (2, -1, 6), [M]),
    ("expand", ((5, 3, 4),), [(1, 3, 1)]),
    ("expand", (0, 3, 1), [(1, 3, 1)]),
    ("diagonal", (), [M, B]),
    ("diagonal", (1, 0, -1), [M, B]),
    ("diagonal", (-1, 2, 0), [B]),
    ("diagonal", (9,), [M]),
    ("unfold", (0, 2, 1), [M, V, B, (7,)]),
    ("unfold", (-1, 3, 3), [M, V, B]),
    ("unfold", (1, 2, 3), [M, B]),
    ("as_strided", ((2, 3), (6, 2), 1), [M, V, B]),
    ("as_strided", ((2, 3), (1, 2)), [M, B]),
    ("as_strided", ((3,), (5,), 1), [M, V, B]),
    ("as_strided", ((4, 3), (2, 1), 2), [M, V, B]),
    ("as_strided", ((3, 2), (0, 1), 2), [M]),
    ("as_strided", ((0, 2), (3, 1), 99), [M]),
    ("conj", (), [M]),
]


@pytest.mark.parametrize(("name", "args", "shape"), [(n, a, s) for n, a, shapes in NAMED for s in shapes])
def test_named_view_equals_torch(name, args, shape):
    x = filled(shape)
    same_as_torch(x, root_of(x).view(name, *args), lambda x: getattr(x, name)(*args))


@pytest.mark.parametrize("args", [(0, 1, 3, 1), (1, 1, None, 2), (1, -5, -1, 3), (0, 3, 1, 1), (1, None, 99, 4)])
@pytest.mark.parametrize("shape", [M, B])
def test_slice_equals_torch(args, shape):
    x = filled(shape)
    same_as_torch(x, root_of(x).view("slice", *args), lambda x: torch.ops.aten.slice.Tensor(x, *args))


def as_key(index):
    index = index if isinstance(index, tuple) else (index,)
    return tuple(("slice", i.start, i.stop, i.step) if isinstance(i, slice) else i for i in index)


@pytest.mark.parametrize(
    "index",
    [
        np.s_[1], np.s_[-1, 2], np.s_[1:], np.s_[:, ::2], np.s_[..., 1], np.s_[None, 1:3, None], np.s_[...],
        np.s_[1:1], np.s_[::3, 1:5:2], np.s_[1, ..., None, 1:2], np.s_[()], np.s_[9:, 0],
    ],
)  # fmt: skip
def test_getitem_equals_torch(index):
    x = filled(M)
    same_as_torch(x, root_of(x).view("getitem", as_key(index)), lambda x: x[index])


COMPLEX = {
    "view_as_real": torch.view_as_real,
    "real": torch.real,
    "imag": torch.imag,
    "conj": torch.conj,
    "neg_view": torch._neg_view,
    "mH": lambda x: x.mH,
    "H": lambda x: x.H,
    "adjoint": torch.adjoint,
}


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", COMPLEX)
def test_complex_view_equals_torch(name):
    x = filled(M, torch.complex128)
    same_as_torch(x, root_of(x).view(name), COMPLEX[name])
    row = root_of(x).view("select", 0, 1).view("unsqueeze", 0)
    same_as_torch(x, row.view(name), lambda x: COMPLEX[name](x[1][None]))


def test_view_as_complex_equals_torch():
    x = filled((3, 4, 2))
    same_as_torch(x, root_of(x).view("view_as_complex"), torch.view_as_complex)
    x = filled(M)
    same_as_torch(
        x, root_of(x).view("slice", 1, 2, 4).view("view_as_complex"), lambda x: torch.view_as_complex(x[:, 2:4])
    )


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    ("old", "new"),
    [("float32", "int32"), ("float32", "int16"), ("int16", "float64"), ("complex64", "float64"), ("bool", "uint8"),
     ("float64", "complex128"), ("complex64", "int32"), ("float64", "complex64")],
)  # fmt: skip
def test_view_dtype_equals_torch(old, new):
    x = torch.from_numpy((np.arange(32).reshape(4, 8) % 3).astype(old))
    chain, dtype = root_of(x).view("narrow", 0, 1, 2).view("view", np.dtype(new)), getattr(torch, new)
    assert chain.dtype == np.dtype(new)
    same_as_torch(x, chain, lambda x: x[1:3].view(dtype), differentiable=False)
    with pytest.raises(RuntimeError, match="no gradient"):
        chain.adjoint(jnp.zeros(chain.shape, chain.dtype))


def test_as_strided_of_a_changed_value_counts_in_its_own_elements():
    x = filled(M, torch.complex128)
    take = ((3, 2), (2, 1), 3)
    for name in ("real", "view_as_real", "conj"):
        chain = root_of(x).view(name).view("as_strided", *take)
        # Of elements that are not its input's own, torch loses the gradient.
        same_as_torch(x, chain, lambda x, name=name: COMPLEX[name](x).as_strided(*take), differentiable=False)
        assert not chain.expressible


# ---------------------------------------------------------------- any chain of views


@st.composite
def view_of(draw, x: torch.Tensor):
    """One more view of x: a name of ours, its arguments, and torch's function."""
    ndim = x.ndim
    kinds = ["unsqueeze", "view", "conj_neg"]
    if ndim:
        kinds += ["select", "slice", "slice", "permute", "squeeze", "unfold", "flatten"]
    if ndim > 1:
        kinds += ["diagonal", "transpose"]
    if 1 in x.shape:
        kinds.append("expand")
    if x.is_complex():
        kinds += ["conj", "real", "imag"]
        if not x.is_conj():
            kinds.append("view_as_real")
    elif ndim and x.shape[-1] == 2 and x.stride(-1) == 1 and x.storage_offset() % 2 == 0:
        kinds.append("view_as_complex")
    kind = draw(st.sampled_from(kinds))
    dims = st.integers(-ndim, ndim - 1)
    if kind == "unsqueeze":
        args = (draw(st.integers(-ndim - 1, ndim)),)
    elif kind == "select":
        d = draw(dims)
        assume(x.shape[d])
        args = (d, draw(st.integers(-x.shape[d], x.shape[d] - 1)))
    elif kind == "slice":
        d = draw(dims)
        start = draw(st.integers(0, max(x.shape[d] - 1, 0)))
        args = (d, start, draw(st.integers(start + 1, x.shape[d] + 1)), draw(st.integers(1, 3)))
        return "slice", args, lambda x: torch.ops.aten.slice.Tensor(x, *args)
    elif kind == "permute":
        args = (tuple(draw(st.permutations(range(ndim)))),)
    elif kind == "transpose":
        args = (draw(dims), draw(dims))
    elif kind == "squeeze":
        args = (draw(dims),)
    elif kind == "unfold":
        d = draw(dims)
        args = (d, draw(st.integers(1, max(x.shape[d], 1))), draw(st.integers(1, 3)))
        assume(x.shape[d])
    elif kind == "flatten":
        start = draw(st.integers(0, ndim - 1))
        args = (start, draw(st.integers(start, ndim - 1)))
    elif kind == "diagonal":
        one, two = draw(st.permutations(range(ndim)))[:2]
        args = (draw(st.integers(-1, 1)), one, two)
    elif kind == "expand":
        args = (tuple(draw(st.integers(2, 3)) if n == 1 and draw(st.booleans()) else n for n in x.shape),)
    elif kind == "view":
        args = (draw(st.sampled_from([(-1,), (2, -1), (-1, 2), (-1, 3), (2, -1, 3), (1, -1)])),)
    elif kind == "conj_neg":
        return "neg_view", (), torch._neg_view
    else:
        return kind, (), COMPLEX.get(kind, getattr(torch, kind))
    return kind, args, lambda x: getattr(x, kind)(*args)


@budget(10, 60)
def test_any_chain_of_views_equals_torch(budget):
    roots = [((4, 6), torch.float64), ((2, 3, 4), torch.complex128), ((2, 6, 2), torch.float64)]
    settings(max_examples=budget, deadline=None, derandomize=True)(
        given(st.data(), st.sampled_from(roots))(any_chain_of_views)
    )()


def any_chain_of_views(data, root):
    x = filled(*root)
    chain, takes, view = root_of(x), [], x
    for _ in range(data.draw(st.integers(1, 6))):
        name, args, take = data.draw(view_of(view))
        try:
            view = take(view)
        except RuntimeError as error:
            key = "view size is not compatible" if "not compatible" in str(error) else "invalid for input of size"
            if name in ("view", "flatten"):
                with pytest.raises(RuntimeError, match=key):
                    chain.view("view", *args)
                continue
            raise
        grown = chain.view(name, *args)
        if grown is None:  # a flatten that copies
            assert view.untyped_storage().data_ptr() != x.untyped_storage().data_ptr()
            break
        chain = grown
        takes.append(take)

    def take_all(x):
        for take in takes:
            x = take(x)
        return x

    same_as_torch(x, chain, take_all, donate=False)
    # The geometry path, which shares the program where it is lowered to the same steps.
    if chain.expressible:
        seen = chain.geometry
        strided = ViewChain.root(chain.root_shape, chain.root_dtype).view(
            "as_strided", seen.sizes, seen.strides, seen.offset
        )
        if strided.program_key != chain.program_key:
            same_as_torch(x, strided, take_all, donate=False)


# ---------------------------------------------------------------- normal forms


def base(shape=M, dtype=F64):
    return ViewChain.root(shape, dtype)


def kinds(chain):
    return [type(step).__name__ for step in chain.steps]


def test_a_thousand_slices_are_one_step():
    chain = base((1500,))
    for _ in range(1000):
        chain = chain.view("slice", 0, 1, None, 1)
    assert chain.steps == (Slice((1000,), (500,), (1,)),)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ([("t",), ("slice", 0, 1, 3)], ["Slice", "Permute"]),
        ([("unsqueeze", 0), ("select", 1, 2)], ["Slice"]),
        ([("select", 0, 1), ("select", 0, 1)], ["Slice", "Reshape"]),
        ([("view", 2, 2, 6), ("select", 0, 1)], ["Slice"]),
        ([("view", 2, 2, 6), ("select", 0, 1), ("slice", 0, 1, 2)], ["Slice"]),
        ([("view", 24), ("slice", 0, 6, 18)], ["Slice", "Reshape"]),
        ([("view", 24), ("slice", 0, 7, 11)], ["Slice", "Reshape"]),
        ([("unsqueeze", 1), ("expand", 4, 5, 6), ("select", 1, 3)], []),
        ([("neg_view",), ("t",), ("select", 0, 1), ("neg_view",)], ["Slice", "Reshape"]),
        ([("unfold", 0, 2, 2), ("select", 0, 1)], ["Slice", "Unfold", "Reshape"]),
        ([("view", 2, 12), ("view", 24), ("view", 4, 6)], []),
        ([("t",), ("t",)], []),
        ([("squeeze",), ("slice", 0, 0, 9)], []),
        ([("as_strided", (4, 6), (6, 1), 0)], []),
        ([("as_strided", (6, 4), (1, 6), 0), ("select", 0, 2)], ["AsStrided"]),
    ],
)
def test_chains_are_in_normal_form(names, expected):
    chain = base()
    for name in names:
        chain = chain.view(*name)
    assert kinds(chain) == expected
    assert chain.is_root == (not expected)
    if not expected:
        assert chain is base()


def test_value_steps_go_last_and_cancel():
    chain = base(M, C128).view("conj").view("neg_view").view("conj").view("t").view("slice", 1, 2, 3)
    assert kinds(chain) == ["Slice", "Reshape", "Neg"]
    assert base(M, C128).view("view_as_real").view("view_as_complex").is_root
    real = base(M, C128).view("view_as_real").view("select", 0, 1)
    assert kinds(real) == ["Slice", "ViewAsReal", "Reshape"]


def test_equal_views_are_one_object():
    row = base().view("select", 0, 1)
    assert row is base().view("select", -2, -3)
    assert row is base().view("getitem", (1,))
    assert row is base().view("t").view("select", 1, 1)
    box = base((2, 3, 4))
    assert box.view("select", 0, 1).view("t") is box.view("permute", 2, 1, 0).view("select", 2, 1)
    assert box.view("unsqueeze", 0).view("permute", 0, 3, 2, 1) is box.view("T").view("unsqueeze", 0)
    assert copy.deepcopy(row) is row
    assert pickle.loads(pickle.dumps(row)) is row


def test_concat_replays_one_after_the_other():
    x = array(filled(M))
    first, second = base().view("t"), base((6, 4)).view("slice", 0, 1, 5).view("diagonal", 1)
    np.testing.assert_array_equal(first.concat(second).replay(x), second.replay(first.replay(x)))
    strided = base((6, 4)).view("as_strided", (3, 2), (5, 1), 2)
    both = first.concat(strided)
    np.testing.assert_array_equal(both.replay(x), strided.replay(first.replay(x)))
    assert not both.overlaps
    with pytest.raises(RuntimeError, match="cannot follow"):
        base().concat(base((3,)))


def test_inverse_undoes_a_bijection():
    x = array(filled((2, 3, 4), torch.complex128))
    chain = base((2, 3, 4), C128).view("permute", 2, 0, 1).view("conj").view("unsqueeze", 1)
    back = chain.inverse()
    np.testing.assert_array_equal(back.replay(chain.replay(x)), x)
    assert chain.concat(back).is_root
    assert base().view("select", 0, 0).inverse() is None
    assert base().inverse() is base()


# ---------------------------------------------------------------- programs


@pytest.fixture
def compilations():
    """Counts backend compilations, by jax's public monitoring events."""
    found, active = [], [True]

    def listen(event, duration, **kwargs):
        if active[0] and event == "/jax/core/compile/backend_compile_duration":
            found.append(event)

    scalar_of(next(FRESH))  # the program that makes starts is compiled
    jax.monitoring.register_event_duration_secs_listener(listen)
    yield found
    active[0] = False


@pytest.mark.eager("launches")
def test_programs_are_shared_by_chains_that_differ_in_starts(compilations):
    x, new = jnp.zeros((9, 5)), jnp.ones(5)
    root = base((9, 5))
    chains = [root.view("select", 0, i) for i in range(9)]
    for chain in chains:
        chain.starts  # moving a start to the device compiles nothing, but may be cached or not
    compilations.clear()
    for chain in chains:
        chain.replay(x)
        x = chain.write_back(x, new, donate=True)
        chain.adjoint(new)
    assert len(compilations) == 3
    assert float(x.sum()) == 45


@pytest.mark.parametrize("shape", [(5, 3), (5,), (1, 3), (5, 0), (5, 1, 2)])
def test_rows_are_the_views_that_select_makes(shape):
    root = ViewChain.root(shape, np.dtype("float32"))
    values = np.arange(np.prod(shape), dtype="float32").reshape(shape)
    n = shape[0]
    for i in [0, *range(-n, n)]:
        row, same = root.view("getitem", (i,)), root.view("select", 0, i)
        assert row is same
        assert row.shape == shape[1:]
        assert np.array_equal(row.replay(jnp.asarray(values)), values[i])
        assert row.geometry.offset == (i % n) * root.geometry.strides[0]
        assert row.program is root.view("getitem", (0,)).program
        assert np.array_equal(row.write_back(jnp.asarray(values), 7.0)[i], np.full(shape[1:], 7))
        if n > 1:
            assert row.parent.steps == row.steps[:1]
            assert row.parent.parent is root
    for i in (n, -n - 1):
        with pytest.raises(IndexError, match="out of bounds"):
            root.view("getitem", (i,))


def test_a_row_of_a_view_is_a_view_of_the_root():
    root = ViewChain.root((4, 6), np.dtype("float32"))
    values = np.arange(24, dtype="float32").reshape(4, 6)
    for i in range(6):
        assert np.array_equal(root.view("t").view("getitem", (i,)).replay(jnp.asarray(values)), values.T[i])


def test_the_first_reads_put_no_start_on_the_device(monkeypatch):
    put = []
    monkeypatch.setattr(runner, "plain", True)  # False once a test has declared a backend
    monkeypatch.setattr(program, "_scalars", {})
    monkeypatch.setattr(program, "_on_device", lambda value: put.append(int(value)) or jnp.int32(value))
    root, array = ViewChain.root((97, 3), np.dtype("float32")), jnp.arange(291, dtype=np.float32).reshape(97, 3)
    for i in range(20, 60):
        assert np.array_equal(root.view("getitem", (i,)).replay(array), array[i])
        assert np.array_equal(root.view("slice", 0, i, i + 2).replay(array), array[i : i + 2])
    assert put in ([], [20])  # the first row's, whose program the others share
    for _ in range(20):
        assert np.array_equal(root.view("getitem", (30,)).replay(array), array[30])
    assert 30 in put


def test_geometry_path_shares_the_programs_of_the_replay_path():
    rows = [base().view("select", 0, i) for i in range(4)]
    strided = [base().view("as_strided", (6,), (1,), 6 * i) for i in range(4)]
    assert len({chain.program_key for chain in rows + strided}) == 1
    assert len({chain.start_values for chain in rows + strided}) == 4


def test_gather_of_as_strided_has_its_offset_as_operand():
    chains = [base().view("as_strided", (3,), (5,), i) for i in range(4)]
    assert len({chain.program_key for chain in chains}) == 1
    x = filled(M)
    for i, chain in enumerate(chains):
        same_as_torch(x, chain, lambda x, i=i: x.as_strided((3,), (5,), i))


def test_update_reads_and_writes_through_the_chain():
    x = filled(M)
    chain = root_of(x).view("t").view("slice", 0, 1, None, 2)
    program = chain.update(lambda view, other: view * other, "mul", donate=True)
    assert program is chain.update(lambda view, other: view * other, "mul", donate=True)
    y = x.clone()
    y.t()[1::2].mul_(3)
    same(program(array(x), chain.starts, jnp.asarray(3.0)), y)


def test_write_back_broadcasts_and_casts():
    x = filled(M)
    chain = root_of(x).view("slice", 0, 1, 3)
    y = x.clone()
    y[1:3] = torch.arange(6)
    same(chain.write_back(array(x), jnp.arange(6)), y)
    root = root_of(x)
    donated = array(x)
    same(root.write_back(donated, 2, donate=True), torch.full_like(x, 2))


@pytest.mark.eager("arrays")
@pytest.mark.one_in(2)
@pytest.mark.parametrize("names", [[("select", 0, 1)], [("t",), ("diagonal",)], [("as_strided", (3,), (5,), 2)]])
def test_chains_take_tracers(names):
    x, chain = filled(M), base()
    for name in names:
        chain = chain.view(*name)
    a = array(x)
    expected = chain.replay(a)
    np.testing.assert_array_equal(jax.jit(chain.replay)(a), expected)
    np.testing.assert_array_equal(jax.vmap(chain.replay)(jnp.stack([a, 2 * a]))[1], 2 * expected)
    _, tangent = jax.jvp(chain.replay, (a,), (3 * a,))
    np.testing.assert_array_equal(tangent, 3 * expected)
    _, pull = jax.vjp(chain.replay, a)
    np.testing.assert_array_equal(pull(expected)[0], jax.jit(chain.adjoint)(expected))
    written = jax.vmap(chain.write_back)(jnp.stack([a, a]), jnp.stack([expected, 0 * expected]))
    np.testing.assert_array_equal(written[0], a)


def test_starts_made_inside_a_trace_are_no_tracers():
    chain = base((137, 3)).view("select", 0, 131)
    jax.jit(lambda x: x + chain.replay(jnp.zeros((137, 3)))[0])(1.0)
    assert not any(isinstance(s, jax.core.Tracer) for s in chain.starts)


def test_a_loop_over_many_views_forgets_them(monkeypatch):
    monkeypatch.setattr(chain_module, "_INTERNED", 200)
    monkeypatch.setattr(chain_module, "_limit", 200)
    held = base((5000,)).view("select", 0, 7)
    before = len(chain_module._chains)  # what others hold
    for i in range(3000):
        base((5000,)).view("select", 0, i)
    assert len(chain_module._chains) < 2 * before + 1000
    assert base((5000,)).view("select", 0, 7) is held


# ---------------------------------------------------------------- errors


ERRORS = [
    ("select", (2, 0), IndexError, r"Dimension out of range \(expected to be in range of \[-2, 1\], but got 2\)"),
    ("select", (0, 5), IndexError, r"select\(\): index 5 out of range for tensor of size \[4, 6\] at dimension 0"),
    ("narrow", (0, 3, 5), RuntimeError, r"start \(3\) \+ length \(5\) exceeds dimension size \(4\)"),
    ("narrow", (0, 0, -1), RuntimeError, r"narrow\(\): length must be non-negative."),
    ("narrow", (0, 5, 0), IndexError, r"start out of range \(expected to be in range of \[-4, 4\], but got 5\)"),
    ("permute", (0, 0), RuntimeError, "duplicate dims are not allowed"),
    ("permute", (0,), RuntimeError, r"input.dim\(\) = 2 is not equal to len\(dims\) = 1"),
    ("movedim", ((0, 0), (1, 0)), RuntimeError, r"movedim: repeated dim in `source`"),
    ("movedim", ((0, 1), (1,)), RuntimeError, "Invalid source or destination dims"),
    ("view", (5,), RuntimeError, r"shape '\[5\]' is invalid for input of size 24"),
    ("view", (-1, -1), RuntimeError, "only one dimension can be inferred"),
    ("view", (-2, 3), RuntimeError, "invalid shape dimension -2"),
    ("flatten", (1, 0), RuntimeError, "start_dim cannot come after end_dim"),
    ("unflatten", (0, (2, 3)), RuntimeError, "don't multiply up to the size of dim 0"),
    ("unflatten", (0, ()), RuntimeError, "sizes must be non-empty"),
    ("squeeze", ((0, 0),), RuntimeError, "dim 0 appears multiple times in the list of dims"),
    ("unsqueeze", (3,), IndexError, r"expected to be in range of \[-3, 2\], but got 3"),
    ("expand", (6,), RuntimeError, r"the number of sizes provided \(1\) must be greater or equal"),
    ("expand", (4, 5), RuntimeError, r"expanded size of the tensor \(5\) must match the existing size \(6\)"),
    ("expand", (-1, 4, 6), RuntimeError, "isn't allowed in a leading, non-existing dimension 0"),
    ("diagonal", (0, 0, 0), RuntimeError, "diagonal dimensions cannot be identical 0, 0"),
    ("unfold", (0, 5, 1), RuntimeError, "maximum size for tensor at dimension 0 is 4 but size is 5"),
    ("unfold", (0, 2, 0), RuntimeError, "step is 0 but must be > 0"),
    ("as_strided", ((3,), (1,), 30), RuntimeError, "are out of bounds for storage of size"),
    ("as_strided", ((3,), (1, 2)), RuntimeError, "mismatch in length of strides and shape"),
    ("as_strided", ((3,), (-1,), 2), RuntimeError, "Negative strides are not supported"),
    ("as_strided", ((3,), (1,), -1), RuntimeError, "invalid storage offset -1"),
]


@pytest.mark.parametrize(("name", "args", "kind", "text"), ERRORS)
def test_errors_are_those_of_torch(name, args, kind, text):
    x = filled(M)
    with pytest.raises(kind, match=text):
        root_of(x).view(name, *args)
    with pytest.raises(kind, match=text):
        getattr(x, name)(*args)


@pytest.mark.parametrize(
    ("index", "kind", "text"),
    [
        (np.s_[4], IndexError, "index 4 is out of bounds for dimension 0 with size 4"),
        (np.s_[0, 0, 0], IndexError, "too many indices for tensor of dimension 2"),
        (np.s_[::-1], ValueError, "step must be greater than zero"),
        (np.s_[::0], ValueError, "slice step cannot be zero"),
    ],
)
def test_getitem_errors_are_those_of_torch(index, kind, text):
    x = filled(M)
    with pytest.raises(kind, match=text):
        root_of(x).view("getitem", as_key(index))
    with pytest.raises(kind, match=text):
        x[index]


def test_other_errors():
    t = base().view("t")
    with pytest.raises(RuntimeError, match="at least one dimension spans across two contiguous subspaces"):
        t.view("view", 24)
    assert t.view("reshape", 24) is None
    with pytest.raises(RuntimeError, match=r"t\(\) expects a tensor with <= 2 dimensions, but self is 3D"):
        base((2, 3, 4)).view("t")
    with pytest.raises(RuntimeError, match="imag is not implemented for tensors with non-complex dtypes"):
        base().view("imag")
    with pytest.raises(RuntimeError, match="only supported for complex tensors"):
        base().view("view_as_real")
    with pytest.raises(RuntimeError, match="storage_offset divisible by 2"):
        base().view("slice", 1, 1, 3).view("view_as_complex")
    with pytest.raises(RuntimeError, match=r"self.size\(-1\) must be divisible by 2"):
        base((4, 5), np.dtype("float32")).view("view", F64)
    with pytest.raises(RuntimeError, match=r"self.dim\(\) cannot be 0"):
        base((), np.dtype("float32")).view("view", F64)
    with pytest.raises(RuntimeError, match="conjugate or negative"):
        base(M, C128).view("conj").view("view", F64)
    with pytest.raises(IndexError, match="cannot be applied to a 0-dim tensor"):
        base(()).view("select", 0, 0)
    with pytest.raises(ValueError, match="unknown view operation"):
        base().view("no_such_view")


def test_canonical_steps_compare_by_value():
    assert Slice((0,), (2,), (1,)) == Slice((0,), (2,), (1,)) != Permute((0,))
    assert hash(Reshape((2, 3))) == hash(Reshape((2, 3)))
    assert AsStrided((2,), (1,), 5).program_key() == AsStrided((2,), (1,), 7).program_key()


def test_the_first_starts_compile_nothing(monkeypatch):
    made = []
    monkeypatch.setattr(program, "_scalars", {})
    monkeypatch.setattr(program, "_compiled", lambda start: made.append(start) or jnp.asarray(start))
    values = [int(scalar_of(i)) for i in range(300)]
    assert values == [*range(300)]
    assert made == [*range(256, 300)]
    assert scalar_of(3).dtype == np.int32
    assert not scalar_of(3).committed
