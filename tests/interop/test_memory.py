"""Memory that is shared with NumPy and by DLPack: who sees whose writes, and what is never donated."""

import gc

import jax
import numpy as np
import pytest
import torch

import xgrad
from xgrad.utils.dlpack import from_dlpack, to_dlpack

from .test_torch import address, narrow

N = 1000


def aligned(n=N):
    """NumPy's own memory begins anywhere."""
    return torch.arange(n, dtype=torch.float32).numpy()


HANDED_OUT = {
    "numpy": lambda x: x.numpy(),
    "asarray": np.asarray,
    "__dlpack__ to numpy": np.from_dlpack,
    "__dlpack__ to torch": lambda x: torch.from_dlpack(x).numpy(),
    "__dlpack__ to jax": lambda x: jax.dlpack.from_dlpack(x),
    "a capsule": lambda x: torch.from_dlpack(to_dlpack(x)).numpy(),
    "__jax_array__": lambda x: jax.numpy.asarray(x),
}


@pytest.mark.one_in(12)
@pytest.mark.parametrize("hand_out", HANDED_OUT.values(), ids=HANDED_OUT)
def test_what_was_handed_out_keeps_its_values_and_is_never_donated(hand_out):
    for make in (lambda: xgrad.ones(N), lambda: xgrad.ones(2, N)[1], lambda: xgrad.ones(1, N).t()[:, 0]):
        x = make()
        x.mul_(2)  # the buffer is ours
        out = hand_out(x)
        if x._chain is None or x._chain.is_root:
            assert address(x) == np.asarray(out).ctypes.data  # without a copy
        for _ in range(3):
            x.mul_(3)
        x.zero_()
        assert np.asarray(out).tolist() == [2.0] * N
        del x
        gc.collect()
        junk = [xgrad.full((N,), 7.0) for _ in range(20)]
        assert np.asarray(out).tolist() == [2.0] * N
        del junk


def test_a_gradient_that_was_handed_out_is_not_added_to_in_place():
    x = xgrad.ones(N, requires_grad=True)
    (x * 2).sum().backward()
    seen = x.grad.numpy()
    (x * 2).sum().backward()
    assert seen.tolist() == [2.0] * N
    assert x.grad.tolist() == [4.0] * N


def test_numpy_can_not_write_to_a_tensor():
    out = xgrad.ones(3).numpy()
    with pytest.raises(ValueError, match="read-only"):
        out[0] = 5


def test_array_protocol_says_whether_it_copies():
    x = xgrad.ones(N)
    assert np.array(x, copy=False).ctypes.data == address(x)
    assert np.array(x).ctypes.data != address(x)
    assert np.asarray(x, np.float64).dtype == np.float64
    with pytest.raises(ValueError, match="Unable to avoid copy"):
        np.array(x, np.float64, copy=False)


def test_from_numpy_copies_and_from_dlpack_shares():
    for take, shares in ((xgrad.from_numpy, False), (xgrad.asarray, False), (xgrad.from_dlpack, True)):
        array = aligned()
        x = take(array)
        assert (address(x) == array.ctypes.data) is shares
        array[0] = 5
        assert float(x[0]) == (5 if shares else 0)
        x.add_(1)
        x.add_(1)
        assert array[:3].tolist() == [5, 1, 2]


def test_shared_memory_lives_as_long_as_the_tensor():
    x = xgrad.from_dlpack(aligned())
    gc.collect()
    junk = [aligned() * 0 for _ in range(20)]
    assert x.tolist() == list(range(N))
    del junk


@pytest.mark.eager("addresses")
def test_copy_means_what_it_says():
    array = aligned()
    own = from_dlpack(array, copy=True)
    array[0] = 5
    assert float(own[0]) == 0
    before = address(own)
    own.mul_(2)
    assert address(own) == before  # it is ours
    assert address(from_dlpack(array, copy=False)) == array.ctypes.data
    assert from_dlpack(array[1:]).tolist() == array[1:].tolist()
    with pytest.raises(ValueError, match="because it does not begin at a multiple of 64 bytes"):
        from_dlpack(array[1:], copy=False)
    with pytest.raises(ValueError, match="another device"):
        from_dlpack(array, device="cpu:1", copy=False)
    assert from_dlpack(array, device="cpu:1").device == xgrad.device("cpu:1")


SOURCES = {
    "bfloat16": lambda: torch.ones(3, dtype=torch.bfloat16),
    "bool": lambda: torch.ones(3, dtype=torch.bool),
    "complex": lambda: torch.ones(3, dtype=torch.complex128),
    "int64": lambda: torch.arange(3),
    "no dimension": lambda: torch.tensor(1.5),
    "empty": lambda: torch.zeros(0, 3),
    "empty and transposed": lambda: torch.zeros(3, 0).t(),
    "sizes of one": lambda: torch.ones(3, 1).t(),
}


@pytest.mark.parametrize("make", SOURCES.values(), ids=SOURCES)
def test_kinds_of_arrays(make):
    there = make()
    for x in (from_dlpack(there), from_dlpack(torch.utils.dlpack.to_dlpack(there))):
        assert torch.from_dlpack(x).equal(there)


def test_what_is_refused():
    with pytest.raises(ValueError, match="memory that is contiguous"):
        from_dlpack(torch.ones(3, 4).t())
    with pytest.raises(ValueError, match="memory that is contiguous"):
        from_dlpack(np.ones((4, 4), np.float32)[:, ::2])
    with pytest.raises(BufferError, match="require gradient"):
        from_dlpack(torch.ones(3, requires_grad=True))
    with pytest.raises(BufferError, match="require gradient, use tensor"):
        to_dlpack(xgrad.ones(3, requires_grad=True))
    with pytest.raises(TypeError, match="__dlpack__, but got int"):
        from_dlpack(3)
    capsule = to_dlpack(xgrad.ones(3))
    from_dlpack(capsule)
    with pytest.raises(RuntimeError, match="can be consumed only once"):
        from_dlpack(capsule)
    with narrow():
        for there in (np.ones(3), np.arange(3), np.ones(3, np.complex128)):
            with pytest.raises(ValueError, match="64-bit numbers become 32-bit numbers"):
                from_dlpack(there, copy=False)
            here = from_dlpack(there)
            assert here.dtype.itemsize * 2 == there.itemsize
            assert here.tolist() == there.tolist()
        assert from_dlpack(torch.arange(3).__dlpack__()).tolist() == [0, 1, 2]
        with pytest.raises(OverflowError, match="does not fit into int32"):
            from_dlpack(np.array([1 << 40]))
