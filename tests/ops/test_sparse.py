"""Sparse tensors: what they are made of, what operators make of them, their gradients, what is refused."""

import copy
import pickle

import numpy as np
import pytest
import torch

import xgrad
import xgrad.nn.functional

from ..oracle import array, as_torch, data, family, outcome, same, same_error

torch.sparse.check_sparse_tensor_invariants.disable()  # as it is, and without a word about it
pytestmark = pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")  # a product of two


def parts(x):
    """A sparse tensor of either library as what can be compared; anything else itself."""
    if isinstance(x, (torch.Tensor, xgrad.Tensor)) and x.is_sparse:
        fn = x.grad_fn
        name = None if fn is None else fn.name()
        return {"indices": x._indices(), "values": x._values(), "size": tuple(x.shape), "grad_fn": name,
                "requires_grad": x.requires_grad, "coalesced": x.is_coalesced()}  # fmt: skip
    if isinstance(x, (tuple, list)):
        return [parts(y) for y in x]
    return x


def as_torch_parts(program):
    as_torch(lambda T: parts(program(T)))


def as_dense(program):
    """The same as torch, where the two may hold the entries in another order or number."""

    def dense(x):
        if isinstance(x, (tuple, list)):
            return [dense(y) for y in x]
        return x.to_dense() if isinstance(x, (torch.Tensor, xgrad.Tensor)) and x.is_sparse else x

    as_torch(lambda T: dense(program(T)))


INDICES = {"sorted": [[0, 1, 1], [2, 0, 2]], "repeated": [[0, 1, 0], [2, 0, 2]]}


def sparse(T, kind="sorted", requires_grad=False, dtype=None):
    values = T.tensor([3.0, 4.0, 5.0], dtype=dtype or T.float64)
    return T.sparse_coo_tensor(T.tensor(INDICES[kind]), values, (2, 3), requires_grad=requires_grad)


def hybrid(T, requires_grad=False):
    """One sparse and one dense dimension, with a row named twice."""
    return T.sparse_coo_tensor(T.tensor([[3, 1, 3]]), data(T, (3, 2)), (5, 2), requires_grad=requires_grad)


def weights(T, *shape):
    return data(T, shape, seed=7)


def whether_coalesced(T, x):
    made = [x + x, x * 2, -x, x + sparse(T), T.ones(2, 3).sparse_mask(x), x.clone(), x.detach(), x.t()]
    return [y.is_coalesced() for y in made]


FORWARD = {
    "made": lambda T: sparse(T),
    "of lists": lambda T: T.sparse_coo_tensor([[0, 1], [2, 0]], [1.0, 2.0], (2, 3), dtype=T.float64),
    "size found": lambda T: T.sparse_coo_tensor([[0, 1], [2, 0]], [[1.0], [2.0]], dtype=T.float64),
    "floats as indices": lambda T: T.sparse_coo_tensor([[0.0, 1]], [1.0, 2.0], (3,)),
    "of integers": lambda T: T.sparse_coo_tensor([[0, 1]], [1, 2], (3,)),
    "empty": lambda T: T.sparse_coo_tensor(T.zeros(1, 0, dtype=T.int64), T.zeros(0), (3,)).to_dense(),
    "nothing but a size": lambda T: T.sparse_coo_tensor((2, 3)),
    "to_dense": lambda T: [sparse(T, k).to_dense() for k in INDICES] + [hybrid(T).to_dense()],
    "to_dense of bools": lambda T: T.isnan(sparse(T)).to_dense(),
    "coalesce": lambda T: [sparse(T, k).coalesce() for k in INDICES] + [hybrid(T).coalesce()],
    "parts": lambda T: [sparse(T, "repeated").coalesce().indices(), sparse(T, "repeated").coalesce().values()],
    "numbers": lambda T: [
        (x._nnz(), x.sparse_dim(), x.dense_dim(), x.dim(), x.numel(), len(x), x.is_leaf, x._version)
        for x in (sparse(T), hybrid(T))
    ],
    "numbers of a dense one": lambda T: [T.ones(2, 3).sparse_dim(), T.ones(2, 3).dense_dim(), T.ones(2, 3).to_dense()],
    "to_sparse": lambda T: [T.arange(6.0).reshape(2, 3).to_sparse(), T.arange(6.0).reshape(3, 2).to_sparse(1)],
    "to_sparse of itself": lambda T: (lambda x: x.to_sparse() is x)(sparse(T)),
    "sparse_mask": lambda T: [weights(T, 2, 3).sparse_mask(sparse(T, k)) for k in INDICES],
    "sparse_mask of a sparse one": lambda T: sparse(T).sparse_mask(sparse(T, "repeated").coalesce()),
    "product": lambda T: [
        sparse(T) @ weights(T, 3, 2),
        T.mm(sparse(T, "repeated"), weights(T, 3, 2)),
        T.sparse.mm(sparse(T), weights(T, 3, 2)),
        sparse(T) @ weights(T, 3),
        weights(T, 4, 2) @ sparse(T),
    ],
    "product of two": lambda T: T.sparse.mm(sparse(T), sparse(T).t()).to_dense(),
    "sum": lambda T: [sparse(T).sum(), T.sparse.sum(sparse(T, "repeated")), T.sparse.sum(hybrid(T))],
    "sum over dims": lambda T: [
        T.sparse.sum(sparse(T, "repeated"), 0),
        T.sparse.sum(sparse(T), (0, 1)),
        T.sparse.sum(hybrid(T), 0),
        T.sparse.sum(hybrid(T), 1),
    ],
    "sum as another dtype": lambda T: T.sparse.sum(sparse(T, dtype=T.float32), 1, dtype=T.float64),
    "dense + sparse": lambda T: [
        weights(T, 2, 3) + sparse(T),
        weights(T, 5, 2) + hybrid(T),
        weights(T, 2, 3) - sparse(T),
    ],
    "alpha": lambda T: [
        T.add(weights(T, 2, 3), sparse(T), alpha=3),
        T.sub(weights(T, 2, 3), sparse(T, "repeated"), alpha=0.5),
    ],
    "numbers times": lambda T: [
        sparse(T) * 2,
        2 * sparse(T, "repeated"),
        sparse(T) / 4,
        -sparse(T),
        sparse(T) * T.tensor(3.0),
    ],
    "sparse * dense": lambda T: [sparse(T) * weights(T, 2, 3), weights(T, 2, 3) * sparse(T)],
    "promotion": lambda T: [
        sparse(T, dtype=T.float32) * 2,
        T.ones(2, 3, dtype=T.float32) + sparse(T),
        T.sparse_coo_tensor([[0]], [1], (2,)) * 1.5,
        T.sparse_coo_tensor([[0]], [1], (2,)) / 2,
    ],
    "casts": lambda T: [sparse(T).float(), sparse(T).int(), sparse(T).to(T.complex128), sparse(T).double()],
    "t": lambda T: [sparse(T).t(), sparse(T, "repeated").t()],
    "clone": lambda T: [sparse(T, "repeated").clone(), sparse(T).coalesce().detach(), sparse(T).data],
    "zeros kept": lambda T: [f(sparse(T, "repeated")) for f in (T.sin, T.abs, T.sqrt, T.relu, T.isnan)],
    "in place": lambda T: [
        sparse(T).mul_(2),
        sparse(T).div_(2),
        sparse(T).neg_(),
        sparse(T).zero_(),
        sparse(T).copy_(sparse(T)),
    ],
    "in place on dense": lambda T: [
        weights(T, 2, 3).add_(sparse(T)),
        weights(T, 2, 3).sub_(sparse(T, "repeated"), alpha=2),
        weights(T, 5, 2).add_(hybrid(T)),
    ],
    "without sparse dimensions": lambda T: [
        T.tensor(3.0).to_sparse(),
        T.tensor(0.0).to_sparse(),
        T.tensor(2.0).to_sparse().to_dense(),
    ],
    "copy": lambda T: copy.copy(sparse(T)),
    "pickle": lambda T: pickle.loads(pickle.dumps(sparse(T, "repeated"))),
    "deepcopy": lambda T: copy.deepcopy(sparse(T, requires_grad=True)),
    "layouts": lambda T: [
        sparse(T).is_sparse,
        T.ones(2).is_sparse,
        sparse(T).layout == T.sparse_coo,
        T.ones(2).layout == T.strided,
    ],
    "whether coalesced": lambda T: whether_coalesced(T, sparse(T).coalesce()),
}


@pytest.mark.one_in(8)
@pytest.mark.parametrize("program", FORWARD.values(), ids=FORWARD)
def test_values_and_structure_are_torchs(program):
    as_torch_parts(program)


SUMS = {
    "sparse + sparse": lambda T: [sparse(T) + sparse(T, "repeated"), sparse(T) - sparse(T), hybrid(T) + hybrid(T)],
    "alpha": lambda T: T.add(sparse(T), sparse(T, "repeated"), alpha=2),
    "in place": lambda T: [sparse(T).add_(sparse(T)), sparse(T).coalesce().sub_(sparse(T), alpha=2)],
    "with an empty one": lambda T: [sparse(T) + sparse(T).zero_(), sparse(T).zero_() + sparse(T)],
    "sparse * sparse": lambda T: [sparse(T) * sparse(T), sparse(T, "repeated") * sparse(T)],
    "coalesced": lambda T: (lambda x: [x + x, x + sparse(T, "repeated").coalesce()])(sparse(T).coalesce()),
}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("program", SUMS.values(), ids=SUMS)
def test_sums_of_sparse_tensors_have_torchs_values(program):
    as_dense(program)


def grads(T, output, inputs, seed=9):
    return T.autograd.grad(output, inputs, data(T, tuple(output.shape), seed))


def leaves(T):
    return sparse(T, "repeated", True), weights(T, 2, 3).requires_grad_(), weights(T, 3, 2).requires_grad_()


def given_values(T, v):
    return grads(T, T.sparse_coo_tensor(T.tensor(INDICES["repeated"]), v, (2, 3)).to_dense(), v)


def by_itself(T, s, c):
    return grads(T, (s * c / c / c).to_dense(), (s, c))


GRADIENTS = {
    "to_dense": lambda T, s, d, m: grads(T, s.to_dense(), s),
    "to_dense, unmasked": lambda T, s, d, m: grads(T, s.to_dense(masked_grad=False), s),
    "sparse.mm": lambda T, s, d, m: grads(T, T.sparse.mm(s, m), (s, m)),
    "mm": lambda T, s, d, m: grads(T, T.mm(s, m), (s, m)),
    "mv": lambda T, s, d, m: grads(T, s @ m[:, 0], s),
    "dense @ sparse": lambda T, s, d, m: grads(T, m @ s, (s, m)),
    "sum": lambda T, s, d, m: grads(T, T.sparse.sum(s), s),
    "sum over a dim": lambda T, s, d, m: grads(T, T.sparse.sum(s, 0).to_dense(), s),
    "sum over both": lambda T, s, d, m: grads(T, T.sparse.sum(s, (0, 1)), s),
    "dense + sparse": lambda T, s, d, m: grads(T, d + s, (d, s)),
    "dense - 2 sparse": lambda T, s, d, m: grads(T, T.sub(d, s, alpha=2), (d, s)),
    "only dense": lambda T, s, d, m: grads(T, d + s.detach(), d),
    "number": lambda T, s, d, m: grads(T, (-s * 2 / 4).to_dense(), s),
    "0-dim factor": lambda T, s, d, m: by_itself(T, s, data(T, (), 2, True)),
    "t": lambda T, s, d, m: grads(T, s.t().to_dense(), s),
    "clone": lambda T, s, d, m: grads(T, s.clone().to_dense(), s),
    "coalesce": lambda T, s, d, m: grads(T, s.coalesce().to_dense(), s),
    "values": lambda T, s, d, m: grads(T, s.coalesce().values(), s),
    "values given": lambda T, s, d, m: given_values(T, data(T, (3,), 2, True)),
    "to_sparse": lambda T, s, d, m: grads(T, d.to_sparse().values(), d),
    "to_sparse(1)": lambda T, s, d, m: grads(T, d.to_sparse(1).to_dense(), d),
    "sparse_mask": lambda T, s, d, m: grads(T, d.sparse_mask(s.detach()).to_dense(), d),
    "sparse_mask, values": lambda T, s, d, m: grads(T, d.sparse_mask(s.detach().coalesce()).values(), d),
    "cast": lambda T, s, d, m: grads(T, s.float().to_dense().double(), s),
    "of a hybrid": lambda T, s, d, m: (lambda h: grads(T, h.to_dense(), h))(hybrid(T, True)),
    "sum of a hybrid": lambda T, s, d, m: (lambda h: grads(T, T.sparse.sum(h, 0), h))(hybrid(T, True)),
    "row sums of a hybrid": lambda T, s, d, m: (lambda h: grads(T, T.sparse.sum(h, 1).to_dense(), h))(hybrid(T, True)),
    "in place": lambda T, s, d, m: (lambda y: [y.mul_(3).grad_fn.name(), *grads(T, y.to_dense(), s)])(s * 2),
    "in place, dense": lambda T, s, d, m: (lambda y: [y.add_(s, alpha=2).grad_fn.name(), *grads(T, y, (d, s))])(d * 2),
    "in place, a view": lambda T, s, d, m: (lambda y: (y[:2].add_(s), grads(T, y, (m, s)))[1])(m.t().repeat(2, 1) * 2),
}


@pytest.mark.exhaustive
@pytest.mark.one_in(16)
@pytest.mark.parametrize("program", GRADIENTS.values(), ids=GRADIENTS)
def test_gradients_are_torchs(program):
    as_torch(lambda T: [_bare(g) for g in program(T, *leaves(T))])


def _bare(x):
    """Indices and values; whether torch says that they are coalesced depends on how it came by them."""
    if isinstance(x, (torch.Tensor, xgrad.Tensor)) and x.is_sparse:
        return [x._indices(), x._values(), tuple(x.shape), x.requires_grad]
    return x


DENSE_FORMS = {
    "sparse.mm": lambda T, s, d, m, mm: mm(s, m),
    "mm": lambda T, s, d, m, mm: s @ m,
    "sum": lambda T, s, d, m, mm: s.sum() ** 2,
    "product": lambda T, s, d, m, mm: (s * d).sum(),
    "to_dense": lambda T, s, d, m, mm: s.to_dense() ** 3,
    "sparse * sparse": lambda T, s, d, m, mm: (s * s).to_dense(),
    "factor": lambda T, s, d, m, mm: (s * d.sum() / m.sum()).to_dense(),
    "difference": lambda T, s, d, m, mm: (d - s) ** 2,
}


@pytest.mark.exhaustive
@pytest.mark.one_in(4)
@pytest.mark.parametrize("form", DENSE_FORMS.values(), ids=DENSE_FORMS)
def test_first_and_second_derivatives_are_those_of_the_dense_form(form):
    def run(is_sparse):
        T = xgrad
        v, d, m = (x.requires_grad_() for x in (data(T, (2,)), weights(T, 2, 3), weights(T, 3, 2)))
        s = T.sparse_coo_tensor([[0, 1], [2, 0]], v, (2, 3))
        mm = T.sparse.mm if is_sparse else T.mm
        if not is_sparse:
            s = s.to_dense(masked_grad=False).clone()
        out = form(T, s, d, m, mm)
        first = T.autograd.grad(
            (out * data(T, tuple(out.shape), 3)).sum(), (v, d, m), create_graph=True, allow_unused=True
        )
        loss = sum((g * g * g).sum() for g in first if g is not None)
        second = T.autograd.grad(loss, (v, d, m), allow_unused=True, materialize_grads=True)
        return [out, *first, *second]

    same(*([None if x is None else array(x.to_dense()) for x in run(kind)] for kind in (True, False)))


def test_complex_product_has_conjugated_gradients():
    def program(T):
        s = T.sparse_coo_tensor([[0, 1], [2, 0]], [1 + 2j, 3 - 1j], (2, 3), dtype=T.complex128, requires_grad=True)
        m = (weights(T, 3, 2) * (1 + 3j)).requires_grad_()
        out = T.sparse.mm(s * 2j, m)
        return [out, *(_bare(g) for g in T.autograd.grad(out, (s, m), out.detach() * 1j))]

    as_torch(program)


def test_prints_as_torch_does():
    def program(T):
        x = sparse(T, dtype=T.float32)
        shown = [
            x,
            x.double().requires_grad_(),
            -x.requires_grad_(),
            x.detach().zero_(),
            hybrid(T),
            T.isnan(x.detach()),
        ]
        return [repr(y).replace("torch.", "xgrad.") for y in shown]

    as_torch(program)


def give_dense_grad(T, s):
    s.grad = T.ones(2, 3, dtype=T.float64)


def change_what_is_saved(T):
    s, m = sparse(T, requires_grad=True) * 1, weights(T, 3, 2).requires_grad_()
    out = T.sparse.mm(s, m)
    s.mul_(2)
    out.sum().backward()


REFUSED = {
    "indices of an uncoalesced one": (lambda T: sparse(T).indices(), "Cannot get indices on an uncoalesced tensor"),
    "values of an uncoalesced one": (lambda T: sparse(T).values(), "Cannot get values on an uncoalesced tensor"),
    "coalesce of a dense one": (
        lambda T: T.ones(2).coalesce(),
        "coalesce expected sparse coordinate tensor layout but got Strided",
    ),
    "is_coalesced": (
        lambda T: T.ones(2).is_coalesced(),
        "is_coalesced expected sparse coordinate tensor layout but got Strided",
    ),
    "indices of a dense one": (
        lambda T: T.ones(2).indices(),
        "indices expected sparse coordinate tensor layout but got Strided",
    ),
    "values of a dense one": (lambda T: T.ones(2).values(), "values expected sparse tensor layout but got Strided"),
    "_nnz of a dense one": (lambda T: T.ones(2)._nnz(), "Could not run '.*_nnz'"),
    "dense mask": (lambda T: T.ones(2).sparse_mask(T.ones(2)), "Could not run '.*sparse_mask'"),
    "mask of another size": (
        lambda T: T.ones(3, 2).sparse_mask(sparse(T)),
        r"incompatible sizes; self has size \[3, 2\] but mask has size \[2, 3\]",
    ),
    "sparse_dim too large": (
        lambda T: T.ones(2, 3).to_sparse(3),
        r"sparse_dim argument must be in \[0,2\] range, but 3 is given",
    ),
    "sparse_dim 0": (lambda T: T.ones(2, 3).to_sparse(0), "sparse_dim argument must be in >0 when self.dim\\(\\)>0"),
    "sparse + dense": (
        lambda T: sparse(T) + T.ones(2, 3),
        r"add\(sparse, dense\) is not supported. Use add\(dense, sparse\) instead",
    ),
    "sparse + number": (lambda T: sparse(T) + 1, r"add\(sparse, dense\) is not supported"),
    "dense into sparse": (lambda T: sparse(T).add_(T.ones(2, 3)), r"add\(sparse, dense\) is not supported"),
    "sizes": (lambda T: T.ones(3) + sparse(T), r"same size, but self has size \[3\] while other has size \[2, 3\]"),
    "divided by a matrix": (
        lambda T: sparse(T) / T.ones(2, 3),
        r"requires a scalar or zero-dim dense tensor divisor \(got shape \[2, 3\]",
    ),
    "shapes of mm": (lambda T: T.sparse.mm(sparse(T), T.ones(2, 2)), "Expected dim 0 size 3, got 2"),
    "dense.copy_(sparse)": (
        lambda T: T.ones(2, 3).copy_(sparse(T)),
        r"copy_\(\) between dense and sparse Tensors is not implemented! Found self type = ",
    ),
    "sparse.copy_(dense)": (
        lambda T: sparse(T).copy_(T.ones(2, 3)),
        r"copy_\(\) between dense and sparse Tensors is not implemented",
    ),
    "exp": (lambda T: sparse(T).exp(), "Could not run '.*exp'"),
    "eq": (lambda T: sparse(T) == sparse(T), "Could not run '.*eq"),
    "mean": (lambda T: sparse(T).mean(), "Could not run '.*mean"),
    "view": (lambda T: sparse(T).view(3, 2), "Could not run '.*view'"),
    "reshape": (lambda T: sparse(T).reshape(3, 2), "reshape is not implemented for sparse tensors"),
    "numpy": (lambda T: sparse(T).numpy(), "can't convert Sparse layout tensor to numpy. Use Tensor.to_dense"),
    "tolist": (lambda T: sparse(T).tolist(), "Cannot access data pointer of Tensor that doesn't have storage"),
    "item": (lambda T: sparse(T).item(), "a Tensor with 6 elements cannot be converted to Scalar"),
    "bool": (lambda T: bool(sparse(T)), "Boolean value of Tensor with more than one value is ambiguous"),
    "t of a hybrid": (
        lambda T: hybrid(T).t(),
        "expects a tensor with <= 2 sparse and 0 dense dimensions, but got 1 sparse and 1 dense",
    ),
    "nnz": (
        lambda T: T.sparse_coo_tensor([[0, 1, 2]], [1.0, 2.0], (3,)),
        "must have same nnz, but got nnz from indices: 3, nnz from values: 2",
    ),
    "number of sizes": (
        lambda T: T.sparse_coo_tensor([[0, 1]], [1.0, 2.0], (3, 4)),
        r"'len\(size\) == sparse_dim \+ dense_dim' is not satisfied",
    ),
    "index": (
        lambda T: T.sparse_coo_tensor([[0, 5]], [1.0, 2.0], (3,), check_invariants=True),
        "for dim 0, size is 3 but found index 5",
    ),
    "negative index": (
        lambda T: T.sparse_coo_tensor([[0, -5]], [1.0, 2.0], (3,), check_invariants=True),
        "found negative index -5 for dim 0",
    ),
    "not coalesced": (
        lambda T: T.sparse_coo_tensor([[0, 0]], [1.0, 2.0], (3,), is_coalesced=True, check_invariants=True),
        "cannot set is_coalesced to true",
    ),
    "integers that require grad": (
        lambda T: T.sparse_coo_tensor([[0]], [1], (3,), requires_grad=True),
        "nly Tensors of floating point",
    ),
    "a leaf in place": (
        lambda T: sparse(T, requires_grad=True).mul_(2),
        "a leaf Variable that requires grad is being used in an in-place operation",
    ),
    "dense .grad": (
        lambda T: give_dense_grad(T, sparse(T, requires_grad=True)),
        "assign a gradient to a tensor that has data of a different type",
    ),
    "saved and changed": (lambda T: change_what_is_saved(T), "modified by an inplace operation"),
}


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("program", "match"), REFUSED.values(), ids=REFUSED)
def test_refused_as_by_torch(program, match):
    same_error(program, match)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda x: x[0], "getitem"),
        (lambda x: x.exp(), "exp"),
        (lambda x: xgrad.exp(x), "exp"),
        (lambda x: xgrad.cat([x, x]), "cat"),
        (lambda x: x.exp_(), "exp"),
        (lambda x: xgrad.nn.functional.softmax(x, 0), "softmax"),
        (lambda x: x.unsqueeze(0), "unsqueeze"),
        (lambda x: x.mT, "mT"),
        (lambda x: xgrad.equal(x, x), "equal"),
        (lambda x: xgrad.zeros_like(x), "zeros_like"),
        (lambda x: xgrad.cross(x, x), "cross"),
        (lambda x: x.mul_(xgrad.ones(2, 3)).expand(2, 2, 3), "expand"),
    ],
)
def test_refusal_names_the_operator_and_the_way_out(call, name):
    with pytest.raises(NotImplementedError, match=rf"{name}.*to_dense\(\)"):
        call(sparse(xgrad))


def test_index_out_of_range_is_refused_without_being_asked():
    with pytest.raises(RuntimeError, match="for dim 0, size is 3 but found index 5"):
        xgrad.sparse_coo_tensor([[0, 5]], [1.0, 2.0], (3,))


def test_version_and_aliases():
    def program(T):
        x = sparse(T)
        alias = x.detach()
        alias.mul_(2)  # the value of the alias alone: both count the write
        versions = [x._version, alias._version]
        x._values().mul_(10)  # this one is shared
        return [*versions, x._version, x._values(), alias._values()]

    as_torch(program)


def test_values_of_a_saved_tensor_changed_in_place_are_found_out():
    s = sparse(xgrad).detach()
    m = weights(xgrad, 3, 2).requires_grad_()
    out = xgrad.sparse.mm(s, m).sum()
    s._values().mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.backward()


def test_parts_that_were_given_are_not_changed():
    v = xgrad.ones(3)
    x = xgrad.sparse_coo_tensor(INDICES["sorted"], v, (2, 3))
    x._values().mul_(5)
    assert v.tolist() == [1, 1, 1]
    v.mul_(7)
    assert x._values().tolist() == [5, 5, 5]


def test_graph_without_cycles_is_released():
    import gc
    import weakref

    gc.disable()
    try:
        s, m = sparse(xgrad, requires_grad=True), weights(xgrad, 3, 2).requires_grad_()
        node = weakref.ref(out := xgrad.sparse.mm(s * 2, m).sum()).__call__().grad_fn
        seen = weakref.ref(node)
        del node, out
        assert seen() is None
    finally:
        gc.enable()


def test_second_backward_needs_retain_graph():
    def program(T):
        s, m = sparse(T, requires_grad=True), weights(T, 3, 2).requires_grad_()
        out = T.sparse.mm(s, m).sum()
        out.backward()
        out.backward()

    same_error(program, "backward through the graph a second time")


def test_saved_tensors_hooks_see_sparse_tensors():
    def program(T):
        seen = []
        s, m = sparse(T, requires_grad=True), weights(T, 3, 2).requires_grad_()
        with T.autograd.graph.saved_tensors_hooks(lambda t: (seen.append(t.is_sparse), t)[1], lambda t: t):
            out = T.sparse.mm(s, m)
        return [sorted(seen), *(_bare(g) for g in T.autograd.grad(out.sum(), (s, m)))]

    as_torch(program)


def test_forward_mode_is_refused_rather_than_wrong():
    with xgrad.autograd.forward_ad.dual_level():
        v = xgrad.autograd.forward_ad.make_dual(xgrad.ones(3), xgrad.ones(3))
        with pytest.raises(NotImplementedError, match=r"Trying to use forward AD with .*forward-mode"):
            xgrad.sparse_coo_tensor(INDICES["sorted"], v, (2, 3))


VMAPPED = {
    "+": lambda x, s: x + s,
    "mm": lambda x, s: xgrad.sparse.mm(s, x.t()),
    "mask": lambda x, s: x.sparse_mask(s),
    "values": lambda x, s: xgrad.sparse_coo_tensor(INDICES["sorted"], x[0], (2, 3)),
}


@pytest.mark.parametrize("program", VMAPPED.values(), ids=VMAPPED)
def test_vmap_is_refused_rather_than_wrong(program):
    s = sparse(xgrad)
    with pytest.raises(NotImplementedError, match="vmap"):
        xgrad.func.vmap(lambda x: program(x, s))(weights(xgrad, 4, 2, 3))


def test_copies_of_a_leaf_require_grad():
    """PyTorch forgets it when it copies or pickles a sparse leaf, and remembers it of a dense one."""
    x = sparse(xgrad, requires_grad=True)
    assert all(y.requires_grad and y.is_leaf for y in (copy.copy(x), copy.deepcopy(x), pickle.loads(pickle.dumps(x))))


def test_jax_functions_refuse_it():
    import jax

    with pytest.raises(TypeError, match=r"Use Tensor.to_dense"):
        jax.numpy.asarray(sparse(xgrad))
    with pytest.raises(TypeError, match="not a valid JAX type"):
        jax.jit(lambda a: a)(sparse(xgrad))


@pytest.mark.exhaustive
def test_jax_sparse_arrays_there_and_back():
    x = sparse(xgrad, "repeated")
    made = xgrad.sparse.to_bcoo(x)
    assert made.nse == 3
    np.testing.assert_array_equal(made.todense(), array(x.to_dense()))
    back = xgrad.sparse.from_bcoo(made, requires_grad=True)
    assert back.requires_grad
    assert not back.is_coalesced()
    assert xgrad.sparse.from_bcoo(xgrad.sparse.to_bcoo(x.coalesce())).is_coalesced()
    with pytest.raises(ValueError, match="but found index"):
        xgrad.sparse.from_bcoo(made.sum_duplicates(nse=5))


def test_second_device():
    import jax

    second = jax.devices("cpu")[1]
    x = sparse(xgrad, requires_grad=True).to(second)
    assert x.device == x._values().device == x._indices().device == xgrad.device(second)
    leaf = sparse(xgrad, requires_grad=True)
    leaf.to(second).to_dense().sum().backward()
    assert leaf.grad.device == leaf.device


def test_importing_xgrad_does_not_load_jax_sparse():
    import subprocess
    import sys

    code = "import sys, xgrad; assert not [m for m in sys.modules if 'experimental.sparse' in m]; xgrad.sparse.mm"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_oracle_agrees_on_error_families():
    """The helper that the refusals rest on: a NotImplementedError is not taken for any RuntimeError."""
    theirs = outcome(lambda T: sparse(T).exp(), torch)
    assert family(theirs) is NotImplementedError


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
def test_saved_attributes_of_a_product():
    def program(T):
        x = T.sparse_coo_tensor(T.tensor([[1, 1]]), T.tensor([1.0, 2.0]), (2,), requires_grad=True)
        with T.autograd.graph.save_on_cpu():
            y = x * x
        node = (x * x).grad_fn
        left = T.eye(2).to_sparse().requires_grad_()
        product = T.sparse.mm(left, T.ones(2, 2)).grad_fn
        return (
            [s.to_dense() for s in (y.grad_fn._saved_self, y.grad_fn._saved_other)],
            y.grad_fn._saved_self.is_sparse, node._saved_self is x, node._saved_other is x,
            node._raw_saved_self is not None, product._saved_mat1 is left, product._saved_mat2,
        )  # fmt: skip

    as_torch(program)


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
def test_gradients_of_complex_products():
    def program(T):
        index = T.tensor([[0, 1], [1, 0]])
        x = T.sparse_coo_tensor(index, T.tensor([1 + 2j, 3 - 1j]), (2, 2)).requires_grad_()
        y = T.tensor([[1j, 2], [3, 4j]]).requires_grad_()
        seed = T.tensor([[1j, 2 + 1j], [3, 4j]])
        found = []
        for product in (x * y, T.sparse.mm(x, y), x * (x + 1j * x)):
            x.grad = y.grad = None
            (product if not product.is_sparse else product.to_dense()).backward(seed)
            found += [x.grad.to_dense(), None if y.grad is None else y.grad.to_dense()]
        return found

    as_torch(program)
