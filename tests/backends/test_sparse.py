"""Sparse tensors on a declared backend: their values are there; results and gradients are the CPU's."""

import pickle

import pytest

import xgrad

BACKENDS = [
    xgrad.Backend("eager"), xgrad.Backend("lazy", execution="lazy"), xgrad.Backend("strided", strides=True),
    xgrad.Backend("lacking", without=["mul", "add", "sum"]), xgrad.Backend("copies", donation=False),
]  # fmt: skip


class Inputs:
    """A sparse matrix, a dense one with the same entries, another one, and rows of an embedding."""

    def __init__(self, device):
        self.device = device
        self.sparse = xgrad.sparse_coo_tensor([[0, 1], [1, 0]], [1.0, 2.0], (2, 2), device=device)
        self.dense = xgrad.tensor([[0.0, 2.0], [3.0, 0.0]], device=device, requires_grad=True)
        self.other = xgrad.tensor([[1.0, 2.0], [3.0, 4.0]], device=device, requires_grad=True)


def gradient_of_values(of):
    values = xgrad.tensor([1.0, 2.0], device=of.device, requires_grad=True)
    matrix = xgrad.sparse_coo_tensor(xgrad.tensor([[0, 1], [1, 0]], device=of.device), values, (2, 2))
    (matrix @ of.other).sum().backward()
    return values.grad + of.other.grad[0]


def embedded(of):
    weight = xgrad.ones(3, 2, device=of.device, requires_grad=True)
    rows = xgrad.tensor([0, 1, 1], device=of.device)
    xgrad.nn.functional.embedding(rows, weight, sparse=True).sum().backward()
    assert weight.grad.is_sparse
    with xgrad.no_grad():
        weight.add_(weight.grad, alpha=-1.0)
    return weight


def there_and_back(of):
    x = of.dense.detach().clone().requires_grad_()
    (x.to_sparse().to_dense() * of.other).sum().backward()
    return x.grad


CALLS = {
    "to_sparse": lambda of: of.dense.to_sparse(),
    "to_sparse_csr": lambda of: of.dense.detach().to_sparse_csr(),
    "matmul": lambda of: of.sparse @ of.other,
    "addmm": lambda of: xgrad.sparse.addmm(of.other, of.sparse, of.other),
    "add": lambda of: of.sparse + of.sparse,
    "add to dense": lambda of: of.other + of.sparse,
    "mul": lambda of: (of.sparse * 2) * of.sparse,
    "coalesce": lambda of: of.sparse.coalesce().values(),
    "indices": lambda of: of.sparse.coalesce().indices(),
    "sum": lambda of: xgrad.sparse.sum(of.sparse, 0),
    "mask": lambda of: of.other.detach().sparse_mask(of.sparse.coalesce()),
    "from the host": lambda of: of.sparse.to("cpu").to(of.device),
    "gradient of values": gradient_of_values,
    "embedding": embedded,
    "there and back": there_and_back,
}


@pytest.mark.parametrize(
    "backend",
    [BACKENDS[0], *(pytest.param(backend, marks=pytest.mark.exhaustive) for backend in BACKENDS[1:])],
    ids=lambda backend: backend.name,
)
def test_values_are_those_of_the_cpu(backend):
    for name, call in CALLS.items():
        ours, theirs = call(Inputs(backend)), call(Inputs("cpu"))
        assert (name, ours.device, ours.layout) == (name, backend.device, theirs.layout)
        ours, theirs = (x if x.layout is xgrad.strided else x.to_dense() for x in (ours, theirs))
        assert (name, ours.tolist()) == (name, theirs.tolist())


def test_it_prints_and_pickles():
    x = Inputs(BACKENDS[0]).sparse
    assert "device='eager:0'" in repr(x)
    BACKENDS[0].register()
    try:
        again = pickle.loads(pickle.dumps(x))
    finally:
        BACKENDS[0].unregister()
    assert again.device == x.device
    assert again.to_dense().tolist() == x.to_dense().tolist()


def test_a_factor_elsewhere_is_pytorchs_error():
    of = Inputs(BACKENDS[0])
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        xgrad.sparse.mm(of.sparse.to("cpu"), of.other)
