"""CSR, CSC, BSR and BSC tensors: parts, conversions, products and gradients against torch's; what is refused."""

import copy
import pickle

import jax
import numpy as np
import pytest
import torch

import xgrad
from tests import oracle
from tests.oracle import array
from tests.traced import as_torch

MATRIX = [[0.0, 1.0, 0.0, 2.0], [3.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0], [0.0, 4.0, 5.0, 6.0]]
LAYOUTS = {"sparse_csr": None, "sparse_csc": None, "sparse_bsr": (2, 2), "sparse_bsc": (1, 2)}
ROWS = ("sparse_csr", "sparse_bsr")

pytestmark = pytest.mark.filterwarnings("ignore:Sparse .*:UserWarning")  # torch's


def parts(x):
    """Everything of a tensor of either library, as nested lists."""
    if not isinstance(x, (torch.Tensor, xgrad.Tensor)):
        return x
    layout = str(x.layout).removeprefix("torch.")
    dtype = str(x.dtype).rpartition(".")[2]
    if layout == "strided":
        return dtype, array(x).tolist()
    if layout == "sparse_coo":
        x = x.coalesce()
        return layout, dtype, x.indices().tolist(), x.values().tolist(), tuple(x.shape)
    names = ("crow_indices", "col_indices") if layout in ROWS else ("ccol_indices", "row_indices")
    return layout, dtype, *(getattr(x, n)().tolist() for n in names), x.values().tolist(), tuple(x.shape), x._nnz()


def made(T, layout, **options):
    """A leaf of a layout."""
    source = T.tensor(MATRIX)
    kind, block = getattr(T, layout), LAYOUTS[layout]
    return source.to_sparse(layout=kind, **({} if block is None else {"blocksize": block})).requires_grad_()


USES = {
    "itself": lambda T, a, b, c: a,
    "to_dense": lambda T, a, b, c: a.to_dense(),
    "to_sparse": lambda T, a, b, c: a.to_sparse(),
    "matmul": lambda T, a, b, c: a @ b,
    "mm": lambda T, a, b, c: T.mm(a, b),
    "matmul of a vector": lambda T, a, b, c: a @ c,
    "mv": lambda T, a, b, c: T.mv(a, c),
    "sparse.mm": lambda T, a, b, c: T.sparse.mm(a, b),
    "addmm": lambda T, a, b, c: T.addmm(T.ones(4, 2), a, b, beta=2, alpha=3),
    "sparse.addmm": lambda T, a, b, c: T.sparse.addmm(T.ones(4, 2), a, b, beta=2.0, alpha=3.0),
    "from the left": lambda T, a, b, c: b.t() @ a,
    "t": lambda T, a, b, c: a.t(),
    "times": lambda T, a, b, c: a * 2,
    "neg": lambda T, a, b, c: -a,
    "double": lambda T, a, b, c: a.double() if T is torch else a.to(xgrad.float64),
    "clone": lambda T, a, b, c: a.detach().clone(),
    "csr": lambda T, a, b, c: a.to_sparse_csr(),
    "csc": lambda T, a, b, c: a.to_sparse_csc(),
    "bsr": lambda T, a, b, c: a.to_sparse_bsr((2, 2)),
    "bsc": lambda T, a, b, c: a.to_sparse_bsc((2, 2)),
    "sum": lambda T, a, b, c: a.sum(),
    "add": lambda T, a, b, c: a + a,
    "product": lambda T, a, b, c: a @ a,
    "abs": lambda T, a, b, c: a.abs(),
}


@pytest.mark.exhaustive
@pytest.mark.one_in(4)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_conversions_and_products_are_those_of_torch(layout):
    arguments = [(made(T, layout), T.tensor(MATRIX)[:, :2], T.ones(4)) for T in (xgrad, torch)]
    compared = 0
    for name, use in USES.items():
        try:
            theirs = parts(use(torch, *arguments[1]))
        except RuntimeError:  # not every product of every layout is there
            continue
        ours = parts(use(xgrad, *arguments[0]))
        assert repr(ours).replace("int32", "int64") == repr(theirs), name
        compared += 1
    assert compared >= 11
    a, b, c = arguments[0]
    dense = xgrad.tensor(MATRIX)
    for name in ("matmul", "sparse.mm", "mv", "addmm", "from the left"):
        assert USES[name](xgrad, a, b, c).tolist() == USES[name](xgrad, dense, b, c).tolist()
    coo = dense.to_sparse().to_sparse(layout=layout, blocksize=LAYOUTS[layout])
    assert parts(coo) == parts(a)


GRADIENTS = {
    "mm": lambda T, a, b: a @ b,
    "sparse.mm": lambda T, a, b: T.sparse.mm(a, b),
    "mv": lambda T, a, b: a @ b[:, 0],
    "addmm": lambda T, a, b: T.addmm(T.ones(4, 2), a, b, beta=2, alpha=3),
    "sparse.addmm": lambda T, a, b: T.sparse.addmm(T.ones(4, 2), a, b, alpha=3.0),
    "left": lambda T, a, b: b.t() @ a,
    "to_dense": lambda T, a, b: a.to_dense() @ b,
    "values": lambda T, a, b: a.values() * a.values(),
    "times 2": lambda T, a, b: (a * 2).to_dense() @ b,
    "csc": lambda T, a, b: a.to_sparse_csc().to_dense() @ b,
    "coo": lambda T, a, b: a.to_sparse().to_dense() @ b,
}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("case", GRADIENTS)
def test_gradients_have_torchs_layouts_and_values(case):
    def run(T):
        a, b = made(T, "sparse_csr"), T.tensor(MATRIX)[:, :2].clone().requires_grad_()
        (GRADIENTS[case](T, a, b) ** 2).sum().backward()
        return parts(a.grad), parts(b.grad)

    ours, theirs = run(xgrad), run(torch)
    assert repr(ours) == repr(theirs)


@pytest.mark.exhaustive
@pytest.mark.one_in(4)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_gradients_of_values_agree_with_differences(layout):
    a = made(xgrad, layout).detach()
    names = ("crow_indices", "col_indices") if layout in ROWS else ("ccol_indices", "row_indices")
    first, plain = (getattr(a, name)() for name in names)
    values = a.values().double().requires_grad_()
    b = xgrad.tensor(MATRIX, dtype=xgrad.float64)[:, :2].requires_grad_()

    def function(values, b):
        a = xgrad.sparse_compressed_tensor(first, plain, values, (4, 4), layout=layout)
        return xgrad.sparse.mm(a, b).sin()

    assert xgrad.autograd.gradcheck(function, (values, b))
    if layout == "sparse_csr":
        assert xgrad.autograd.gradgradcheck(function, (values, b))


def test_a_gradient_is_added_in_its_layout():
    a, b = made(xgrad, "sparse_csr"), xgrad.ones(4, 2)
    for _ in range(2):
        xgrad.sparse.mm(a, b).sum().backward()
    assert a.grad.layout == "sparse_csr"
    assert a.grad.values().tolist() == [4.0] * 6
    (grad,) = xgrad.autograd.grad(xgrad.sparse.mm(a, b).sum(), a)
    assert grad.layout == "sparse_csr"


@pytest.mark.exhaustive
def test_writes_in_place_keep_the_layout():
    def run(T):
        a = made(T, "sparse_csr").detach()
        b = a.t().to_sparse_csr()
        a.add_(b, alpha=2).mul_(3)
        c = made(T, "sparse_csr").clone()
        c.mul_(2)
        c.to_dense().sum().backward()
        return parts(a), parts(c.detach()), a._version

    ours, theirs = run(xgrad), run(torch)
    assert repr(ours[:2]) == repr(theirs[:2])
    a = made(xgrad, "sparse_csr").detach()
    a.zero_()
    assert (a.layout, a._nnz()) == ("sparse_csr", 0)
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
        made(xgrad, "sparse_csr").mul_(2)


def test_constructors_infer_sizes_and_print_as_torch_does():
    def run(T):
        blocks = T.arange(8.0).reshape(2, 2, 2)
        return [
            T.sparse_csr_tensor([0, 1, 3], [1, 0, 2], [1.0, 2.0, 3.0]),
            T.sparse_csc_tensor([0, 1, 3], [1, 0, 2], [1.0, 2.0, 3.0]),
            T.sparse_bsr_tensor([0, 1, 2], [1, 0], blocks),
            T.sparse_bsc_tensor([0, 1, 2], [1, 0], blocks),
            T.sparse_csr_tensor([0, 0, 0], [], [], (2, 3)),
            T.sparse_csr_tensor([0, 1], [0], T.tensor([1.0]), dtype=T.float64, requires_grad=True),
        ]  # fmt: skip

    for ours, theirs in zip(run(xgrad), run(torch), strict=True):
        shown = repr(theirs).replace("torch.", "xgrad.")
        assert repr(ours).replace(", dtype=xgrad.int32", "") == shown.replace(", dtype=xgrad.int64", "")


WRONG = [
    ([0, 1, 4], [1, 0, 2], [1.0, 2.0, 3.0], (2, 3)),
    ([1, 1, 3], [1, 0, 2], [1.0, 2.0, 3.0], (2, 3)),
    ([0, 1, 3], [1, 0, 3], [1.0, 2.0, 3.0], (2, 3)),
    ([0, 1, 3], [1, 0, -1], [1.0, 2.0, 3.0], (2, 3)),
    ([0, 1, 3], [1, 2, 0], [1.0, 2.0, 3.0], (2, 3)),
    ([0, 1, 3], [1, 0, 0], [1.0, 2.0, 3.0], (2, 3)),
    ([0, 1, 3], [1, 0, 2], [1.0, 2.0], (2, 3)),
    ([0, 1, 3], [1, 0, 2], [1.0, 2.0, 3.0], (3, 3)),
    ([0, 1, 3], [1, 0, 2], [1.0, 2.0, 3.0], (6,)),
    (0, [1, 0, 2], [1.0, 2.0, 3.0], (2, 3)),
    ([[0, 1, 3]], [1, 0, 2], [1.0, 2.0, 3.0], (2, 3)),
]


@pytest.mark.parametrize("given", WRONG, ids=str)
def test_invariants_are_checked_in_torchs_words(given):
    *rest, size = given
    with pytest.raises(RuntimeError) as theirs:
        torch.sparse_csr_tensor(*rest, size, check_invariants=True)
    with pytest.raises(RuntimeError) as ours:
        xgrad.sparse_csr_tensor(*rest, size, check_invariants=True)
    assert str(theirs.value).rstrip(".") in str(ours.value)


def test_what_leads_nowhere_is_refused_without_being_asked_and_disorder_is_not():
    with pytest.raises(RuntimeError, match="`0 <= col_indices < ncols` is not satisfied"):
        xgrad.sparse_csr_tensor([0, 1, 3], [1, 0, 3], [1.0, 2.0, 3.0], (2, 3))
    with pytest.raises(RuntimeError, match="use sparse_coo_tensor, which adds them up"):
        xgrad.sparse_csr_tensor([0, 1, 3], [1, 0, 0], [1.0, 2.0, 3.0], (2, 3))
    with pytest.raises(RuntimeError, match=r"shape\[1\] \(=5\) must be divisible with blocksize\[1\] \(=2\)"):
        xgrad.sparse_bsr_tensor([0, 1, 2], [1, 0], xgrad.ones(2, 2, 2), (4, 5))
    mixed = xgrad.sparse_csr_tensor([0, 1, 3], [1, 2, 0], [1.0, 2.0, 3.0], (2, 3))
    assert mixed.to_dense().tolist() == [[0.0, 1.0, 0.0], [3.0, 0.0, 2.0]]
    assert mixed.to_sparse().indices().tolist() == [[0, 1, 1], [1, 0, 2]]


CONVERSIONS = [
    lambda x, T: x.to_sparse(3),
    lambda x, T: x.to_sparse(0),
    lambda x, T: x.to_sparse(-1),
    lambda x, T: x.to_sparse(1, layout=T.sparse_csr),
    lambda x, T: x.to_sparse(layout=T.sparse_bsr),
    lambda x, T: x.to_sparse(layout=T.sparse_csr, blocksize=(1, 2)),
    lambda x, T: x.to_sparse(blocksize=(1, 2)),
    lambda x, T: x.to_sparse_bsr((3, 2)),
    lambda x, T: x.to_sparse_bsr((2, 2, 2)),
    lambda x, T: x.to_sparse_bsr((0, 2)),
    lambda x, T: x.crow_indices(),
    lambda x, T: x.to_sparse().crow_indices(),
    lambda x, T: x.to_sparse_csr().ccol_indices(),
    lambda x, T: x.to_sparse_csr().indices(),
    lambda x, T: x.to_sparse_csr().coalesce(),
    lambda x, T: x.to_sparse_csr().is_coalesced(),
    lambda x, T: x.to_sparse_csr().to_sparse(1),
    lambda x, T: x.to_sparse_csr().to_sparse(layout=T.sparse_bsr),
    lambda x, T: x.to_sparse_csr().numpy(),
    lambda x, T: T.sparse_compressed_tensor([0, 1], [0], [1.0]),
    lambda x, T: T.sparse_compressed_tensor([0, 1], [0], [1.0], layout=T.sparse_coo),
]


@pytest.mark.parametrize("number", range(len(CONVERSIONS)))
def test_wrong_conversions_are_torchs_errors(number):
    function = CONVERSIONS[number]
    with pytest.raises((RuntimeError, TypeError)) as theirs:
        function(torch.tensor(MATRIX), torch)
    with pytest.raises(type(theirs.value)) as ours:
        function(xgrad.tensor(MATRIX), xgrad)
    words = str(theirs.value).split(":")[-1].strip().rstrip(".")
    assert words in str(ours.value) or number == 3  # which overload torch looked at, is its own affair


@pytest.mark.parametrize(
    "use",
    [
        lambda a: a.exp(),
        lambda a: a[0],
        lambda a: a.sum(0),
        lambda a: a.sin_(),
        lambda a: a.reshape(2, 8),
        lambda a: xgrad.ones(2, 2, 2).to_sparse_csr(),
        lambda a: xgrad.ones(2, 2).to_sparse_csr(1),
        lambda a: xgrad.sparse_csr_tensor([[0, 1]], [[0]], [[1.0]]),
    ],
)
def test_the_rest_is_refused_with_what_to_use_instead(use):
    with pytest.raises(NotImplementedError, match=r"to_dense\(\)|sparse_coo"):
        use(made(xgrad, "sparse_csr").detach())


def test_copies_and_pickles_keep_the_layout():
    a = made(xgrad, "sparse_bsr")
    for twin in (copy.copy(a), copy.deepcopy(a), pickle.loads(pickle.dumps(a))):
        assert parts(twin) == parts(a)
        assert twin.requires_grad
    assert a.is_sparse_csr is False
    assert made(xgrad, "sparse_csr").is_sparse_csr


def test_values_are_needed_and_so_no_trace_goes_through():
    with pytest.raises(xgrad.errors.TracedValueError, match=r"to_sparse_csr\(\) needs the values"):
        jax.jit(lambda x: xgrad.as_tensor(x).to_sparse_csr().to_dense()._read())(np.eye(2, dtype=np.float32))
    a = made(xgrad, "sparse_csr").detach()
    product = jax.jit(lambda x: (a @ xgrad.as_tensor(x))._read())(np.ones((4, 1), np.float32))
    assert product.tolist() == [[3.0], [3.0], [0.0], [15.0]]


def test_all_invariants_are_looked_at_in_a_block_a_decorated_function_and_after_enable():
    def unordered(T, **options):
        return T.sparse_csr_tensor(T.tensor([0, 2]), T.tensor([1, 0]), T.tensor([1.0, 2.0]), (1, 2), **options)

    def enter_twice(block):
        with block, block:
            pass

    def program(T):
        checks = T.sparse.check_sparse_tensor_invariants
        seen = [checks.is_enabled()]

        def ask(make=unordered, **options):
            try:
                make(T, **options)
                seen.append(checks.is_enabled())
            except RuntimeError:
                seen.append("refused")

        with checks():
            ask()
            ask(check_invariants=False)
            with checks(False):
                ask()
            with checks() as _, pytest.raises(RuntimeError, match="This context manager instance is already activated"):
                enter_twice(checks())
            seen.append(checks.is_enabled())
        ask()
        ask(checks()(unordered))
        ask(check_invariants=True)
        checks.enable()
        ask()
        checks.disable()
        ask()
        return seen

    oracle.as_torch(program)  # errors are caught in it: none may be a tracer's


def test_is_sparse_says_sparse_coo():
    def program(T):
        dense = T.eye(2)
        made = [dense, dense.to_sparse(), dense.to_sparse_csr(), dense.to_sparse_csc(), dense.to_sparse_bsr((1, 1))]
        return [[x.is_sparse, x.is_sparse_csr] for x in made]

    as_torch(program)
