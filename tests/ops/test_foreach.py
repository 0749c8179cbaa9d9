"""`_foreach_` functions are PyTorch's: one program for a list where they can be, else an operator for each tensor."""

import numpy as np
import pytest
import torch

import xgrad
from xgrad.ops.foreach import BINARY, FOREACH, TERNARY, UNARY

VALUES = [[0.3, 0.6, 0.9], [[0.2, 0.5], [0.7, 0.4]]]


def lists(lib, dtype="float32", shift=0.0):
    return [lib.tensor((np.array(v) + shift).tolist(), dtype=getattr(lib, dtype)) for v in VALUES]


def others(lib, name, kind, dtype="float32"):
    if name in UNARY:
        return ()
    more = {"list": lists(lib, dtype, 0.5), "number": 0.7, "numbers": [0.7, 0.2]}[kind]
    if name in BINARY:
        return (more,)
    if name == "lerp":
        return (lists(lib, dtype, 0.5), more)
    tensors = lists(lib, dtype, 0.5), lists(lib, dtype, 1.5)
    return tensors if kind == "list" else (*tensors, more)


CASES = [(name, kind) for name in FOREACH if name != "_foreach_norm" for kind in ("list", "number", "numbers")]
CASES = [(n, k) for n, k in CASES if not (k != "list" and n.removeprefix("_foreach_").rstrip("_") in {*UNARY, "copy"})]


@pytest.mark.parametrize("case", CASES, ids="-".join)
@pytest.mark.one_in(6)
def test_values(case):
    name, kind = case
    bare = name.removeprefix("_foreach_").rstrip("_")
    found = []
    for lib in (xgrad, torch):
        tensors = lists(lib)
        out = getattr(lib, name)(tensors, *others(lib, bare, kind))
        assert out is tensors if name.endswith("_") else isinstance(out, tuple)
        found.append([t.numpy() for t in out])
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-6, atol=1e-7)


@pytest.mark.parametrize("name", ["add", "addcdiv", "lerp", "sqrt"])
def test_gradients_pass_where_they_are_asked_for(name):
    found = []
    for lib in (xgrad, torch):
        tensors = [t.requires_grad_() for t in lists(lib)]
        out = getattr(lib, f"_foreach_{name}")(tensors, *others(lib, name, "list" if name != "lerp" else "number"))
        sum(o.sum() for o in out).backward()
        found.append([t.grad.numpy() for t in tensors])
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)


def test_alpha_dtypes_and_norm():
    for lib in (xgrad, torch):
        a = lists(lib)
        lib._foreach_add_(a, lists(lib), alpha=2)
        np.testing.assert_allclose(a[0].numpy(), 3 * np.array(VALUES[0]), rtol=1e-6)
        ints = [lib.tensor([1, 2]), lib.tensor([3])]
        assert [t.tolist() for t in lib._foreach_mul(ints, 2)] == [[2, 4], [6]]
        mixed = lib._foreach_mul(lists(lib), lists(lib, "float64"))
        assert str(mixed[0].dtype).endswith("float64")
        np.testing.assert_allclose([float(n) for n in lib._foreach_norm(a)], [3 * 1.1224972, 3 * 0.9695360], rtol=1e-5)
        np.testing.assert_allclose(float(lib._foreach_norm(a, 1)[0]), 5.4, rtol=1e-6)


def test_views_aliases_and_the_same_tensor_twice_are_written_one_after_the_other():
    found = []
    for lib in (xgrad, torch):
        base = lib.tensor([1.0, 2.0, 3.0, 4.0])
        lib._foreach_mul_([base[:2], base[1:]], 2.0)
        lib._foreach_add_([base, base], 1.0)
        lib._foreach_sub_([base], [base])
        lib._foreach_add_([base[:2], base[2:]], [base[2:] + 1, base[:2] + 2])
        found.append(base.numpy())
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize("recording", [False, True])
def test_a_write_is_seen_by_the_next_where_tensors_share_a_storage(recording):
    found = []
    for lib in (xgrad, torch):
        with lib.set_grad_enabled(recording):
            a, b, c = lib.tensor([1.0, 2.0]), lib.tensor([5.0, 7.0]), lib.tensor([1.0, 2.0, 3.0])
            lib._foreach_mul_([a, a.detach()], 2.0)
            lib._foreach_mul_([c[:2], c[1:]], 3.0)
            lib._foreach_add_([a, b], [b.detach(), a.detach()])
            lib._foreach_add_([a, b], [a[:], a[:]])
        found.append([a.tolist(), b.tolist(), c.tolist()])
    assert found[0] == found[1]


@pytest.mark.parametrize("dtype", [xgrad.float32, xgrad.bfloat16], ids=str)
@pytest.mark.parametrize("name", ["log2", "log10", "cosh", "sinh", "div"])
def test_one_program_has_the_values_of_the_operator(name, dtype):
    x = xgrad.linspace(0.1, 80, 500).to(dtype)
    others = [3.0] if name == "div" else []
    (found,) = FOREACH[f"_foreach_{name}"]([x], *others)
    np.testing.assert_array_equal(found.float().numpy(), getattr(xgrad, name)(x, *others).float().numpy())


def test_a_copy_of_a_scalar_fills_the_tensor():
    found = []
    for lib in (xgrad, torch):
        t = lib.zeros(3)
        view = t[:2]
        lib._foreach_copy_([t], [lib.tensor(2.0)])
        found.append([t.tolist(), view.tolist()])
    assert found[0] == found[1]


def test_a_write_counts_as_one():
    p = xgrad.ones(2, requires_grad=True)
    y = (p * p).sum()
    version = p._version
    with xgrad.no_grad():
        xgrad._foreach_mul_([p], 3.0)
    assert p._version > version
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
        xgrad._foreach_mul_([p], 3.0)


def test_lists_that_do_not_fit_are_refused():
    for lib in (xgrad, torch):
        with pytest.raises(RuntimeError, match="Tensor list must have at least one tensor"):
            lib._foreach_add([], 1.0)
        with pytest.raises(RuntimeError, match="Tensor lists must have the same number of tensors, got 2 and 1"):
            lib._foreach_add(lists(lib), lists(lib)[:1])
    with pytest.raises(AttributeError):
        xgrad._foreach_everything


def test_in_a_lazy_block_and_in_a_compiled_function():
    def step(params, grads):
        xgrad._foreach_mul_(params, 0.9)
        xgrad._foreach_add_(params, grads, alpha=-0.1)
        return [t.sum() for t in xgrad._foreach_sqrt(params)]

    results = []
    for run in (step, xgrad.lazy()(step), xgrad.compile(step)):
        params, grads = lists(xgrad), lists(xgrad, shift=0.1)
        out = [t.item() for t in run(params, grads)]
        results.append([*out, *params[0].tolist()])
    np.testing.assert_allclose(results[1], results[0], rtol=1e-6)
    np.testing.assert_allclose(results[2], results[0], rtol=1e-6)


def test_ternary_names_are_pytorchs():
    assert all(hasattr(torch, name) for name in FOREACH), [name for name in FOREACH if not hasattr(torch, name)]
    assert set(TERNARY) == {"addcmul", "addcdiv", "lerp"}
