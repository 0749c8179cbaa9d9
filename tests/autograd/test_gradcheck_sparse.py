"""gradcheck of functions of sparse tensors: what is masked, and sparse gradients; against torch."""

import pytest
import torch

import xgrad
from xgrad.autograd import gradcheck
from xgrad.autograd.gradcheck import GradcheckError

from ..oracle import family, leaf, outcome, same, same_error

pytestmark = pytest.mark.filterwarnings("ignore:Sparse:UserWarning")


def sparse(T, coalesced=True):
    indices, values = T.tensor([[0, 1, 1], [2, 0, 2]]), T.tensor([1.0, 2.0, 3.0], dtype=T.float64)
    made = T.sparse_coo_tensor(indices, values, (2, 3))
    return (made.coalesce() if coalesced else made).requires_grad_()


def twice(T):
    """Two entries at one place."""
    values = T.tensor([1.0, 2.0], dtype=T.float64)
    return T.sparse_coo_tensor(T.tensor([[0, 0], [2, 2]]), values, (2, 3)).requires_grad_()


def hybrid(T):
    values = T.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=T.float64)
    return T.sparse_coo_tensor(T.tensor([[0, 2]]), values, (3, 2)).coalesce().requires_grad_()


def complex_(T):
    values = T.tensor([1.0 + 2j, 3.0 - 1j], dtype=T.complex128)
    return T.sparse_coo_tensor(T.tensor([[0, 1], [2, 0]]), values, (2, 3)).coalesce().requires_grad_()


FUNCTIONS = {
    "to_dense": (lambda T: lambda s: s.to_dense(), lambda T: sparse(T)),
    "to_dense, masked": (lambda T: lambda s: s.to_dense(masked_grad=True), lambda T: sparse(T)),
    "to_dense, not masked": (lambda T: lambda s: s.to_dense(masked_grad=False), lambda T: sparse(T)),
    "not coalesced": (lambda T: lambda s: s.to_dense(), lambda T: sparse(T, False)),
    "hybrid": (lambda T: lambda s: s.to_dense() * 2, hybrid),
    "complex": (lambda T: lambda s: s.to_dense().abs(), complex_),
    "number": (lambda T: lambda s: (s * 3).to_dense(), lambda T: sparse(T)),
    "matrix product": (lambda T: lambda s, x: T.sparse.mm(s, x), lambda T: (sparse(T), leaf(T, 3, 2))),
    "sum": (lambda T: lambda s: T.sparse.sum(s), lambda T: sparse(T)),
    "added to a dense one": (lambda T: lambda x, s: x + s, lambda T: (leaf(T, 2, 3), sparse(T))),
    "of a dense input": (lambda T: lambda x: x.to_sparse().to_dense(), lambda T: leaf(T, 2, 2)),
}


@pytest.mark.exhaustive
@pytest.mark.one_in(6)
@pytest.mark.parametrize("masked", [False, True, None])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_sparse_inputs_are_checked_as_by_torch(name, masked):
    function, inputs = FUNCTIONS[name]
    theirs = outcome(lambda T: T.autograd.gradcheck(function(T), inputs(T), masked=masked), torch)
    ours = outcome(lambda T: T.autograd.gradcheck(function(T), inputs(T), masked=masked), xgrad)
    if isinstance(theirs, Exception):
        assert isinstance(ours, family(theirs)), f"xgrad {ours!r}; torch {theirs!r}"
        assert str(ours).splitlines()[0] == str(theirs).splitlines()[0]
    else:
        assert ours is theirs is True


def test_masked_counts_entries_at_one_place_once():
    assert gradcheck(lambda s: s.to_dense() ** 2, twice(xgrad), masked=True)
    assert gradcheck(lambda s: s.to_dense() ** 2, twice(xgrad), masked=True, fast_mode=True)


def test_fast_mode_finds_what_slow_mode_finds():
    """torch's takes its random vectors of the specified entries alone, and passes what is not masked."""
    function = lambda s, x: xgrad.sparse.mm(s, x)  # noqa: E731
    assert gradcheck(function, (sparse(xgrad), leaf(xgrad, 3, 2)), masked=True, fast_mode=True)
    with pytest.raises(GradcheckError, match="Jacobian mismatch for output 0 with respect to input 0"):
        gradcheck(function, (sparse(xgrad), leaf(xgrad, 3, 2)), fast_mode=True)


def test_sparse_gradient_of_a_dense_input_is_no_good():
    def program(T):
        w, places = leaf(T, 3, 2), T.tensor([0, 2, 0])
        return T.autograd.gradcheck(lambda w: T.nn.functional.embedding(places, w, sparse=True), w)

    same_error(program, "grad is incorrect layout")


def test_sparse_outputs_are_refused():
    same_error(
        lambda T: T.autograd.gradcheck(lambda s: s * 3, sparse(T)), "Sparse output is not supported at gradcheck"
    )


def test_sparse_inputs_are_as_they_were():
    s = sparse(xgrad)
    before, version = s._values().clone(), s._version
    gradcheck(lambda s: (s * 3).to_dense(), s, masked=True)
    assert s._values().tolist() == before.tolist()
    assert s._version == version


COMPRESSED = {
    "sparse_csr": {},
    "sparse_csc": {},
    "sparse_bsr": {"blocksize": (1, 1)},
    "sparse_bsc": {"blocksize": (1, 1)},
}


@pytest.mark.parametrize("layout", COMPRESSED)
def test_compressed_inputs_are_checked_as_by_torch(layout):
    def program(T, function, masked, fast):
        dense = T.tensor([[1.0, 0, 2], [0, 3, 0]], dtype=T.float64)
        x = dense.to_sparse(layout=getattr(T, layout), **COMPRESSED[layout]).requires_grad_()
        return T.autograd.gradcheck(function, (x,), masked=masked, fast_mode=fast)

    for fast in (False, True):
        same(*(program(T, lambda s: s.to_dense(), True, fast) for T in (xgrad, torch)))
    same_error(lambda T: program(T, lambda s: s.to_dense(), False, False), "Jacobian mismatch")
    with pytest.raises(GradcheckError, match="Jacobian mismatch"):
        program(xgrad, lambda s: s.to_dense() + (s.to_dense().detach()), True, False)
