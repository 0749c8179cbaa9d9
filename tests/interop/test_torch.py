"""Tensors cross between torch and xgrad with their bits, their flags and their sharing, and no graph ends unseen."""

import contextlib
from collections import OrderedDict, namedtuple

import jax
import numpy as np
import pytest
import torch

import xgrad
from xgrad.config import settings
from xgrad.interop.torch import from_torch, to_torch

DTYPES = [
    "float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz",
    "complex64", "complex128", "bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64",
]  # fmt: skip


@contextlib.contextmanager
def narrow():
    """JAX without its 64-bit mode; the warning that belongs to it has been given."""
    jax.config.update("jax_enable_x64", False)
    settings.narrowing_said = True
    try:
        yield
    finally:
        jax.config.update("jax_enable_x64", True)
        settings.narrowing_said = False


@contextlib.contextmanager
def refused():
    """`xgrad.config.narrow` is "error"."""
    xgrad.config.narrow = "error"
    try:
        yield
    finally:
        xgrad.config.narrow = "warn"


def address(tensor):
    return tensor._read().unsafe_buffer_pointer()


def equal(ours, theirs):
    return torch.equal(to_torch(ours.detach(), copy=True), theirs.detach())


@pytest.mark.parametrize("name", DTYPES)
def test_dtypes_cross_both_ways_without_a_copy(name):
    there = torch.tensor([[0, 1, 2], [1, 0, 3]]).to(getattr(torch, name))
    here = from_torch(there)
    assert here.dtype == getattr(xgrad, name)
    assert address(here) == there.data_ptr()
    back = to_torch(here)
    assert back.dtype == there.dtype
    assert back.data_ptr() == there.data_ptr()
    assert back.view(torch.uint8).equal(there.view(torch.uint8))


AWKWARD = {
    "transposed": lambda: torch.rand(3, 4).t(),
    "strided": lambda: torch.rand(4, 6)[:, ::2],
    "expanded": lambda: torch.rand(4, 1).expand(4, 5),
    "conj": lambda: torch.rand(3, dtype=torch.complex64).conj(),
    "neg": lambda: torch.rand(3, dtype=torch.complex64).conj().imag,
    "unaligned": lambda: torch.rand(50)[1:],
}


@pytest.mark.parametrize("make", AWKWARD.values(), ids=AWKWARD)
def test_what_jax_cannot_share_is_copied_or_refused(make):
    there = make()
    assert equal(from_torch(there), there.resolve_conj().resolve_neg())
    with pytest.raises(ValueError, match="can't share the memory of this tensor, because it"):
        from_torch(there, copy=False)


@pytest.mark.parametrize("there", [torch.tensor(2.5), torch.zeros(0, 3), torch.zeros(3, 0).t()], ids=str)
def test_no_dimensions_and_no_elements(there):
    for copy in (None, True, False):
        assert equal(from_torch(there, copy=copy), there)
        assert to_torch(from_torch(there), copy=copy).equal(there)


@pytest.mark.eager("addresses")
def test_a_write_of_xgrad_never_reaches_torch():
    there = torch.ones(4, 4)
    here = from_torch(there)
    here[0].add_(1)
    here.mul_(2)
    assert there.equal(torch.ones(4, 4))
    ours = xgrad.ones(4, 4)
    shared = to_torch(ours)
    assert not ours._owned  # the next write copies; JAX would see to that too, on a CPU
    ours[0].add_(1)
    ours.mul_(3)
    assert shared.equal(torch.ones(4, 4))
    before = address(ours)
    ours.mul_(2)  # now it is alone again
    assert address(ours) == before


def test_a_write_of_torch_shows_where_memory_is_shared_and_nowhere_else():
    there = torch.ones(16)
    shared, own = from_torch(there), from_torch(there, copy=True)
    there.add_(1)
    assert shared.tolist() == [2.0] * 16
    assert own.tolist() == [1.0] * 16
    ours = xgrad.ones(16)
    to_torch(ours, copy=True).add_(1)
    assert ours.tolist() == [1.0] * 16
    to_torch(ours).add_(1)
    assert ours.tolist() == [2.0] * 16


def test_memory_outlives_the_one_who_gave_it():
    here = from_torch(torch.arange(1000.0))
    there = to_torch(xgrad.arange(1000.0))
    junk = [torch.zeros(1000) for _ in range(50)] + [xgrad.zeros(1000) for _ in range(50)]
    assert float(here[-1]) == float(there[-1]) == 999
    del junk


def test_leaves_keep_their_flag_and_get_memory_of_their_own():
    for there in (torch.ones(3, requires_grad=True), torch.nn.Parameter(torch.ones(3))):
        here = from_torch(there)
        assert here.requires_grad
        assert here.is_leaf
        assert isinstance(here, xgrad.nn.Parameter) is isinstance(there, torch.nn.Parameter)
        with torch.no_grad():
            there.add_(1)
        assert here.tolist() == [1.0] * 3
        assert address(from_torch(there, copy=False)) == there.data_ptr()
        back = to_torch(here)
        assert back.requires_grad
        assert isinstance(back, torch.nn.Parameter) is isinstance(there, torch.nn.Parameter)
        assert back.data_ptr() != address(here)
    frozen = from_torch(torch.nn.Parameter(torch.ones(3), requires_grad=False))
    assert isinstance(frozen, xgrad.nn.Parameter)
    assert not frozen.requires_grad


def test_a_graph_does_not_end_in_silence():
    with pytest.raises(RuntimeError, match=r"'a\.1': can't convert .* grad_fn \(MulBackward0\).* tensor.detach\(\)"):
        from_torch({"a": [1, torch.ones(2, requires_grad=True) * 2]})
    with pytest.raises(RuntimeError, match=r"'a\.1': can't convert .* grad_fn .*MulBackward0.* tensor.detach\(\)"):
        to_torch({"a": [1, xgrad.ones(2, requires_grad=True) * 2]})
    with pytest.raises(RuntimeError, match="detach"):  # a view of a leaf has a history too
        to_torch(xgrad.ones(2, requires_grad=True)[0])


def test_trees_keep_their_kinds_their_order_and_what_is_no_tensor():
    Pair = namedtuple("Pair", "left right")
    tree = OrderedDict(z=Pair(torch.ones(1), "text"), a=[None, (3, {"k": torch.zeros(2)})], size=torch.Size([2, 3]))
    here = from_torch(tree)
    assert list(here) == ["z", "a", "size"]
    assert isinstance(here, OrderedDict)
    assert type(here["z"]) is Pair
    assert here["z"].right == "text"
    assert here["a"][0] is None
    assert here["a"][1][0] == 3
    assert here["size"] is tree["size"]
    assert isinstance(here["a"][1][1]["k"], xgrad.Tensor)
    assert to_torch(here)["z"].left.equal(torch.ones(1))
    assert isinstance(tree["z"].left, torch.Tensor)


def model():
    return torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3))


def test_state_dict_of_a_module_goes_there_and_back():
    one, other = model(), model()
    state = from_torch(one.state_dict())
    assert state._metadata == one.state_dict()._metadata
    with torch.no_grad():
        kept = one[0].weight.clone()
        one[0].weight.zero_()  # an optimizer's step: the state was copied
    assert equal(state["0.weight"], kept)
    other.load_state_dict(to_torch(state))
    assert other[0].weight.equal(kept)
    ours = xgrad.nn.Linear(3, 3)
    ours.load_state_dict({"weight": state["0.weight"], "bias": state["0.bias"]})
    assert equal(ours.weight, kept)
    assert to_torch(ours.state_dict())["weight"].equal(kept)


def test_state_dict_of_an_optimizer_is_copied():
    module = model()
    optimizer = torch.optim.Adam(module.parameters())
    for _ in range(2):
        module(torch.rand(4, 3)).sum().backward()
        optimizer.step()
        state = from_torch({"optimizer": optimizer.state_dict()})["optimizer"]
        first = state["state"][0]["exp_avg"]
        assert address(first) != optimizer.state_dict()["state"][0]["exp_avg"].data_ptr()
    optimizer.load_state_dict(to_torch(state))


def test_tied_tensors_stay_tied():
    weight = torch.rand(2, 2)
    for copy in (None, True):
        here = from_torch({"a": weight, "b": weight.detach(), "c": weight, "row": weight[0]}, copy=copy)
        assert here["a"] is here["c"]
        assert here["a"].storage_id == here["b"].storage_id != here["row"].storage_id
        here["a"].zero_()
        assert here["b"].tolist() == [[0, 0], [0, 0]]
        there = to_torch(here, copy=copy)
        assert there["a"] is there["c"]
        assert there["a"].data_ptr() == there["b"].data_ptr()


def test_without_64_bits_floats_are_narrowed_and_integers_if_they_fit():
    with narrow():
        for dtype, wanted in ((torch.float64, xgrad.float32), (torch.complex128, xgrad.complex64)):
            assert from_torch(torch.full((2,), 1 / 3, dtype=dtype)).dtype == wanted
        with refused(), pytest.raises(xgrad.errors.DtypeDisabledError, match=r"'w': .*jax_enable_x64"):
            from_torch({"w": torch.ones(2, dtype=torch.float64)})
        labels = from_torch(torch.tensor([3, -1]))
        assert labels.dtype == np.int32
        assert labels.tolist() == [3, -1]
        with pytest.raises(OverflowError, match=r"'y': an integer of this int64 tensor does not fit into int32"):
            from_torch({"y": torch.tensor([1 << 31])})
        with pytest.raises(ValueError, match="int64 becomes int32"):
            from_torch(torch.tensor([3]), copy=False)
        assert from_torch(torch.tensor([7], dtype=torch.uint64)).dtype == np.uint32


UNFIT = {
    "sparse": (lambda: torch.eye(2).to_sparse(), "to_dense"),
    "quantized": (lambda: torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8), "dequantize"),
    "meta": (lambda: torch.empty(2, device="meta"), "no values"),
    "a dtype of torch's alone": (lambda: torch.ones(2).to(torch.float8_e8m0fnu), "float8_e8m0fnu"),
}


@pytest.mark.filterwarnings("ignore:.*quantization:DeprecationWarning", "ignore:.*quantize:UserWarning")
@pytest.mark.parametrize(("make", "told"), UNFIT.values(), ids=UNFIT)
def test_what_no_array_holds_is_named(make, told):
    with pytest.raises(TypeError, match=f"'deep.0': .*{told}"):
        from_torch({"deep": [make()]})


def test_what_torch_does_not_hold_is_named():
    with pytest.raises(TypeError, match="to_dense"):
        to_torch(xgrad.eye(2).to_sparse())
    with pytest.raises(TypeError, match="vmap"):
        xgrad.vmap(to_torch)(xgrad.ones(2, 2))
    with pytest.raises(xgrad.errors.TracedValueError, match=r"'x': .*traced"):
        jax.jit(lambda a: to_torch({"x": xgrad.as_tensor(a)}))(np.ones(2))
    for convert, wrong in ((from_torch, model()), (to_torch, xgrad.nn.Linear(2, 2)), (from_torch, xgrad.ones(1))):
        with pytest.raises(TypeError, match=convert.__name__):
            convert(wrong)


def test_placements():
    there = torch.arange(4.0)
    second = from_torch(there, device="cpu:1")
    assert second.device == xgrad.device("cpu:1")
    assert to_torch(second).equal(there)
    with pytest.raises(ValueError, match="another device"):
        from_torch(there, device="cpu:1", copy=False)
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:2]), ("x",))
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x"))
    for dtype in (torch.float32, torch.bfloat16, torch.bool):
        spread = from_torch(there.to(dtype), device=sharding)
        assert spread.sharding == sharding
        assert to_torch(spread).equal(there.to(dtype))  # gathered
        with pytest.raises(ValueError, match="can't share memory with torch"):
            to_torch(spread, copy=False)


def test_the_same_memory_read_with_another_sign_is_another_tensor():
    z = torch.tensor([1 + 2j, 3 - 4j])
    part, negative = from_torch([z.imag, z.conj().imag])
    assert (part.tolist(), negative.tolist()) == ([2, -4], [-2, 4])
    whole, conjugate = from_torch([z, z.conj()])
    assert (whole.tolist(), conjugate.tolist()) == ([1 + 2j, 3 - 4j], [1 - 2j, 3 + 4j])


@pytest.mark.parametrize("order", [1, -1])
def test_a_leaf_and_its_detached_tensor_share_a_storage(order):
    p = torch.nn.Parameter(torch.ones(3))
    first, second = from_torch([p, p.detach()][::order])
    assert first.storage_id == second.storage_id
    first.detach().zero_()
    assert second.tolist() == [0, 0, 0]
    assert p.tolist() == [1, 1, 1]
