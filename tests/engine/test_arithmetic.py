"""The linear maps of backward: in either arithmetic the same values, and with TENSORS the right derivatives."""

import jax.numpy as jnp
import numpy as np
import pytest

import xgrad
from xgrad.engine.arithmetic import ARRAYS, TENSORS
from xgrad.engine.sparse_gradient import SparseGradient
from xgrad.views.chain import ViewChain

ROOT = ViewChain.root((3, 4), jnp.float64)
CHAINS = {
    "select": ROOT.view("select", 0, 1),
    "transpose of a part": ROOT.view("narrow", 1, 1, 2).view("transpose", 0, 1),
    "whole": ROOT,
}
WHOLE = np.arange(12.0).reshape(3, 4) + 1


def part_of(chain):
    return np.arange(np.prod(chain.shape)).reshape(chain.shape) - 2.0


MAPS = {
    "read": (lambda A, chain, whole, part: A.read(chain, whole)),
    "adjoint": (lambda A, chain, whole, part: A.adjoint(chain, part)),
    "write": (lambda A, chain, whole, part: A.write(chain, [whole], part)),
    "write zeros": (lambda A, chain, whole, part: A.write(chain, [whole], None)),
    "fit": (lambda A, chain, whole, part: A.fit(whole, (1, 4), jnp.dtype("float64"))),
    "move": (lambda A, chain, whole, part: A.move(whole, whole.sharding)),
    "constant": (lambda A, chain, whole, part: whole * A.constant(jnp.asarray(3.0))),
}


@pytest.mark.parametrize("chain", CHAINS.values(), ids=CHAINS)
@pytest.mark.parametrize("name", MAPS)
def test_arrays_and_tensors_give_the_same(name, chain):
    of_arrays = MAPS[name](ARRAYS, chain, jnp.asarray(WHOLE), jnp.asarray(part_of(chain)))
    of_tensors = MAPS[name](TENSORS, chain, xgrad.tensor(WHOLE), xgrad.tensor(part_of(chain)))
    np.testing.assert_array_equal(np.asarray(of_arrays), of_tensors.numpy())


@pytest.mark.one_in(3)
@pytest.mark.parametrize("chain", CHAINS.values(), ids=CHAINS)
@pytest.mark.parametrize("name", MAPS)
def test_tensors_are_recorded(name, chain):
    whole = xgrad.tensor(WHOLE, requires_grad=True)
    part = xgrad.tensor(part_of(chain), requires_grad=True)
    assert xgrad.autograd.gradcheck(lambda w, p: MAPS[name](TENSORS, chain, w * 2, p * 3), (whole, part))


def sparse():
    return xgrad.sparse_coo_tensor(xgrad.tensor([[0, 2]]), xgrad.tensor([5.0, 7.0], dtype=xgrad.float64), (3,))


@pytest.mark.parametrize("arithmetic", [ARRAYS, TENSORS], ids=["arrays", "tensors"])
@pytest.mark.parametrize("kinds", ["sd", "ds", "ss", "dd"])
def test_sums_with_sparse_gradients(arithmetic, kinds):
    """A sparse gradient travels in a box in either arithmetic; a sum is sparse only where all of it is."""
    make = {"s": sparse, "d": lambda: xgrad.tensor([1.0, 2.0, 3.0], dtype=xgrad.float64)}
    buffer, new = ([arithmetic.from_tensor(make[kind]())] for kind in kinds)
    arithmetic.add(buffer, 0, new)
    assert (buffer[0].__class__ is SparseGradient) is (kinds == "ss")
    total = arithmetic.to_tensor(buffer[0])
    expected = sum((make[kind]().to_dense() if kind == "s" else make[kind]()).numpy() for kind in kinds)
    np.testing.assert_array_equal((total.to_dense() if total.is_sparse else total).numpy(), expected)


@pytest.mark.parametrize("arithmetic", [ARRAYS, TENSORS], ids=["arrays", "tensors"])
def test_undefined_gradients_stay_undefined(arithmetic):
    assert arithmetic.from_tensor(None) is arithmetic.to_tensor(None) is arithmetic.into_tensor([None], 0) is None


def test_arrays_write_into_memory_that_the_list_alone_holds():
    chain = CHAINS["select"]
    held = jnp.asarray(WHOLE) + 0
    grads = [held]
    ARRAYS.write(chain, grads, jnp.asarray(part_of(chain)), ours=True)
    assert grads == [None]
    np.testing.assert_array_equal(np.asarray(held), WHOLE)  # somebody else held it
    alone = [jnp.asarray(WHOLE) + 0]
    out = ARRAYS.write(chain, alone, jnp.asarray(part_of(chain)), ours=True)
    np.testing.assert_array_equal(np.asarray(out)[1], part_of(chain))
