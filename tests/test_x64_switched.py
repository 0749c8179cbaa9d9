"""JAX's 64-bit mode is switched off under living tensors: what narrows them is refused, what reads them is exact."""

import contextlib
import copy
import itertools
import pickle
import warnings

import jax
import numpy as np
import pytest

import xgrad

WIDE = 1 + 2.0**-40


def without_x64():
    return jax.enable_x64(False) if hasattr(jax, "enable_x64") else jax.experimental.disable_x64()


@contextlib.contextmanager
def switched_off():
    jax.config.update("jax_enable_x64", False)
    try:
        yield
    finally:
        jax.config.update("jax_enable_x64", True)


USED = {
    "a number": lambda d, i, m: d * 1,
    "two tensors": lambda d, i, m: d + d,
    "with a narrow one": lambda d, i, m: xgrad.ones(2, dtype=xgrad.float32) * d,
    "in place": lambda d, i, m: i.add_(1),
    "in place, a view": lambda d, i, m: m[0].mul_(2),
    "assignment": lambda d, i, m: m.__setitem__(0, 5.0),
    "fill_": lambda d, i, m: m.t().fill_(1),
    "zero_": lambda d, i, m: d.zero_(),
    "copy_": lambda d, i, m: m.copy_(xgrad.ones(3)),
    "out=": lambda d, i, m: xgrad.add(xgrad.ones(2), 1, out=d),
    "comparison": lambda d, i, m: d == 1,
    "contains": lambda d, i, m: 1 in d,
    "clone": lambda d, i, m: d.clone(),
    "reduction": lambda d, i, m: m.sum(),
    "product": lambda d, i, m: m @ m.t(),
    "factorization": lambda d, i, m: xgrad.linalg.svd(m),
    "index": lambda d, i, m: xgrad.ones(3)[i * 0],
    "index of it": lambda d, i, m: m[xgrad.tensor([0])],
    "shape depends on values": lambda d, i, m: m.unique(),
    "nonzero": lambda d, i, m: m.nonzero(),
    "bincount": lambda d, i, m: i.bincount(),
    "zeros_like": lambda d, i, m: xgrad.zeros_like(d),
    "rand_like": lambda d, i, m: xgrad.rand_like(d),
    "normal_": lambda d, i, m: d.normal_(),
    "resize_": lambda d, i, m: d.resize_(5),
    "sparse": lambda d, i, m: m.to_sparse() * 2,
    "vmap": lambda d, i, m: xgrad.func.vmap(lambda x: x * 2)(d),
    "func.grad": lambda d, i, m: xgrad.func.grad(lambda x: (x * x).sum())(d),
    "to_jax": lambda d, i, m: jax.jit(xgrad.to_jax(lambda x: x * 2))(d._read()),
    "view of other bits": lambda d, i, m: xgrad.ones(2, dtype=xgrad.float32).view(xgrad.float64),
}


def tensors():
    d = xgrad.tensor([WIDE, 2.0**40], dtype=xgrad.float64)
    return d, xgrad.tensor([2**40]), xgrad.arange(6.0).double().reshape(2, 3)


@pytest.mark.parametrize(("name", "off"), [*zip(USED, itertools.cycle([without_x64, switched_off]), strict=False)])
def test_64_bit_tensor_is_refused_and_not_changed(name, off):
    given = d, i, m = *(t * 1 for t in tensors()[:2]), tensors()[2]
    before = [t.tolist() for t in given], [t._version for t in given]
    with off(), warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(xgrad.errors.DtypeDisabledError, match=r"64-bit mode is off.*jax_enable_x64"):
            USED[name](d, i, m)
        assert ([t.tolist() for t in given], [t._version for t in given]) == before
    assert (d + 1).dtype == xgrad.float64
    assert i.add_(1).tolist() == [2**40 + 1]


@pytest.mark.parametrize("off", [without_x64, switched_off])
def test_what_reads_a_64_bit_tensor_is_exact(off):
    d, i, m = tensors()
    big = xgrad.arange(2000.0, dtype=xgrad.float64).reshape(40, 50)
    z = xgrad.tensor([1 + 2j], dtype=xgrad.complex128)
    printed = str(big)
    with off():
        assert d[0].item() == WIDE
        assert i.item() == int(i) == 2**40
        assert float(d[0]) == WIDE
        assert d.numpy().tolist() == [WIDE, 2.0**40]
        assert i.tolist() == [2**40]
        assert next(iter(i)).item() == 2**40
        views = [m[0], m.t(), m.diagonal(), m[:, ::2], m.unfold(1, 2, 1), m.expand(2, 2, 3), m.detach(), m.data]
        whole = np.arange(6.0).reshape(2, 3)
        wanted = [whole[0], whole.T, np.diagonal(whole), whole[:, ::2]]
        for view, value in zip(views, wanted, strict=False):
            assert view.dtype == xgrad.float64
            assert view.tolist() == value.tolist()
        assert [v.dtype for v in views] == [xgrad.float64] * len(views)
        assert (z.imag.item(), z.conj().tolist()) == (2.0, [1 - 2j])
        assert str(big) == printed
        assert "float64" in str(d)
        assert "int64" in str(i)
        assert d.to(xgrad.float32).tolist() == [1.0, 2.0**40]
        assert i.float().tolist() == [2.0**40]
        assert d.to(xgrad.bfloat16).dtype == xgrad.bfloat16
        assert z.to(xgrad.complex64).tolist() == [1 + 2j]
        assert i.to(xgrad.int32).tolist() == [0]
        assert m[1].int().tolist() == [3, 4, 5]
        assert d.bool().tolist() == [True] * 2
        assert copy.deepcopy(d).tolist() == d.tolist()
        assert d.to("cpu").tolist() == d.tolist()
        assert d.double() is d.to(xgrad.float64) is d
        assert i.long() is i


@pytest.mark.parametrize("off", [without_x64, switched_off])
def test_64_bit_tensor_in_a_pickle_is_narrowed(off):
    d, i, _ = tensors()
    pickled = [pickle.dumps(t) for t in (d, i * 0 + 7, i)]
    with off(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        d, i = pickle.loads(pickled[0]), pickle.loads(pickled[1])
        with pytest.raises(OverflowError, match="does not fit into int32"):
            pickle.loads(pickled[2])
    assert (d.dtype, d.tolist()) == (xgrad.float32, [1.0, 2.0**40])
    assert (i.dtype, i.tolist()) == (xgrad.int32, [7])


@pytest.mark.eager("failures")
def test_graph_of_64_bits_is_refused_in_backward():
    for compiled in (False, True):
        w = xgrad.tensor([1.0, 2.0], dtype=xgrad.float64, requires_grad=True)
        narrow = w.to(xgrad.float32)
        for loss in ((w * w).sum(), (narrow * narrow).sum()):
            with without_x64(), pytest.raises(xgrad.errors.DtypeDisabledError, match="64-bit mode is off"):
                loss.backward(retain_graph=True, compiled=compiled)
            assert w.grad is None
            loss.backward(compiled=compiled)
            assert w.grad.dtype == xgrad.float64
            assert w.grad.tolist() == [2, 4]
            w.grad = None


@pytest.mark.eager("failures")
def test_compiled_step_and_optimizer_are_refused_and_change_nothing():
    optax, Optimizer = pytest.importorskip("optax"), pytest.importorskip("xgrad.interop.optax").Optimizer
    w = xgrad.tensor([1.0, 2.0], dtype=xgrad.float64, requires_grad=True)
    step = xgrad.compile(lambda x: x.mul_(2).sum())
    d = xgrad.tensor([WIDE], dtype=xgrad.float64) * 1
    step(d)
    optimizer = Optimizer([w], optax.sgd(0.5))
    for _ in range(2):
        (w * w).sum().backward()
        with without_x64():
            for call in (lambda: step(d), optimizer.step):
                with pytest.raises(xgrad.errors.DtypeDisabledError, match="64-bit mode is off"):
                    call()
            assert d.tolist() == [2 * WIDE]
            assert w.tolist() == [1, 2]
        w.grad = None
    assert step(d).item() == 4 * WIDE


@pytest.mark.eager("failures")
def test_tensor_made_within_a_block_of_64_bits_is_used_after_it():
    wide = jax.enable_x64 if hasattr(jax, "enable_x64") else jax.experimental.enable_x64
    with without_x64():
        with wide(True):
            d = xgrad.ones(2, dtype=xgrad.float64) * WIDE
        with pytest.raises(xgrad.errors.DtypeDisabledError):
            d + 1
        assert d.tolist() == [WIDE] * 2
        with wide(True):
            assert (d + 1).tolist() == [WIDE + 1] * 2
        narrow = xgrad.arange(3)
    assert narrow.dtype == xgrad.int32
    assert (narrow + 2**20).tolist() == [2**20, 2**20 + 1, 2**20 + 2]
