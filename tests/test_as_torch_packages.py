"""What packages do with torch beyond training: parameters by class, names of devices, trees, checks, files."""

from collections import OrderedDict, defaultdict, deque, namedtuple

import numpy as np
import pytest
import torch as real
from torch.utils import _pytree as real_pytree

import xgrad

Pair = namedtuple("Pair", "a b")


@pytest.fixture
def torch():
    with xgrad.as_torch(replace=True):
        import torch

        assert torch is not real
        yield torch


# -- parameters --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("requires_grad", [True, False])
def test_the_class_of_a_parameter_makes_parameters(torch, requires_grad):
    old = torch.nn.Parameter(torch.ones(3))
    new = type(old)(old.data * 2, requires_grad=requires_grad)
    assert isinstance(new, torch.nn.Parameter)
    assert new.is_leaf
    assert new.requires_grad is requires_grad
    assert new.tolist() == [2.0, 2.0, 2.0]
    module = torch.nn.Linear(3, 1)
    module.bias = new
    assert dict(module.named_parameters())["bias"] is new


def test_a_parameter_is_made_of_anothers_entries(torch):
    old = torch.nn.Parameter(torch.ones(3), requires_grad=False)
    entries = old.__dict__
    entries["requires_grad"] = old.requires_grad
    new = type(old)(old.to("meta"), **entries)
    assert isinstance(new, torch.nn.Parameter)
    assert (new.device.type, new.requires_grad) == ("meta", False)
    assert old.tolist() == [1.0, 1.0, 1.0]


def test_a_tensors_constructor_refuses_other_options(torch):
    with pytest.raises(TypeError, match="invalid combination"):
        torch.Tensor(torch.ones(2), requires_grad=True, colour=3)
    with pytest.raises(TypeError, match="invalid combination"):
        torch.Tensor([1.0], requires_grad=True)
    with pytest.raises(RuntimeError, match="floating"):
        torch.Tensor(torch.ones(2, dtype=torch.int32), requires_grad=True)


def test_assigning_a_module_does_not_ask_for_the_attribute(torch):
    class Wrapper(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inside = torch.nn.Linear(2, 2)
            self.switch = False

        def register_module(self, name, module):
            raise AssertionError("an assignment is not a call")

        def __getattr__(self, name):
            try:
                return super().__getattr__(name)
            except AttributeError:
                return getattr(self.inside, name) if self.switch else super().__getattr__(name)

    wrapper = Wrapper()
    assert [name for name, _ in wrapper.named_children()] == ["inside"]
    wrapper.switch = True
    assert wrapper.in_features == 2
    seen = []
    handle = torch.nn.modules.module.register_module_module_registration_hook(lambda m, name, new: seen.append(name))
    wrapper.inside = torch.nn.Linear(2, 2)
    handle.remove()
    assert seen == ["inside"]


# -- devices -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["mps", "xpu", "hpu", "mtia", "vulkan", "ipu"])
def test_pytorchs_other_devices_are_names(torch, name):
    device = torch.device(name)
    assert (device.type, device.index, str(device)) == (name, None, str(real.device(name)))
    assert device == torch.device(name)
    assert device != torch.device("cpu")
    assert torch.device(f"{name}:1").index == 1
    with pytest.raises(NotImplementedError, match=f"'{name}' is not available"):
        torch.ones(2, device=device)


def test_other_names_are_no_devices(torch):
    with pytest.raises(RuntimeError, match="Invalid device string: 'npu'"):
        torch.device("npu")


# -- trees -------------------------------------------------------------------------------------------------------------

TREES = [
    {"b": 1, "a": [2, (3, None)]},
    OrderedDict([("z", 1), ("c", {"y": 2, "x": 3})]),
    [Pair(1, [2]), deque([3, 4], maxlen=5)],
    defaultdict(list, {"q": [1], "p": [2, 3]}),
    {2: "two", "one": 1},
    (),
    5,
    None,
]


@pytest.mark.parametrize("tree", TREES, ids=str)
def test_trees_are_pytorchs(torch, tree):
    from torch.utils import _pytree

    leaves, spec = _pytree.tree_flatten(tree)
    known, structure = real_pytree.tree_flatten(tree)
    assert leaves == known
    assert (spec.num_leaves, spec.num_nodes, spec.num_children) == (
        structure.num_leaves, structure.num_nodes, structure.num_children,
    )  # fmt: skip
    assert spec.is_leaf() is structure.is_leaf()
    again = _pytree.tree_unflatten(leaves, spec)
    assert again == tree
    assert type(again) is type(tree)
    paths, _ = _pytree.tree_flatten_with_path(tree)
    known_paths, _ = real_pytree.tree_flatten_with_path(tree)
    assert [_pytree.keystr(path) for path, _ in paths] == [real_pytree.keystr(path) for path, _ in known_paths]
    double = _pytree.tree_map(lambda x, y: (x, y), tree, tree)
    assert double == real_pytree.tree_map(lambda x, y: (x, y), tree, tree)
    assert spec == _pytree.tree_structure(tree)
    assert hash(spec) == hash(_pytree.tree_structure(tree))
    assert spec != _pytree.tree_structure([tree])


def test_trees_of_another_structure_are_refused(torch):
    from torch.utils import _pytree

    add = lambda x, y: x + y  # noqa: E731
    assert _pytree.tree_map(add, {"a": 1, "b": 2}, {"b": 20, "a": 10}) == {"a": 11, "b": 22}
    for other in ([1], {"a": 1, "c": 2}, {"a": 1}, 3):
        with pytest.raises(ValueError, match="mismatch"):
            _pytree.tree_map(add, {"a": 1, "b": 2}, other)
    with pytest.raises(ValueError, match="holds 2 items"):
        _pytree.tree_unflatten([1], _pytree.tree_structure([1, 2]))


def test_registered_classes_are_nodes_of_both_kinds_of_trees(torch):
    import jax
    from torch.utils import _pytree

    class Box:
        def __init__(self, x):
            self.x = x

    _pytree.register_pytree_node(Box, lambda b: ([b.x], "note"), lambda values, context: Box(*values))
    assert _pytree.tree_map(lambda x: x + 1, [Box(1)])[0].x == 2
    assert Box in _pytree.SUPPORTED_NODES
    assert jax.tree.leaves(Box(3)) == [3]
    leaf = _pytree.tree_map_only(int, lambda x: -x, (1, "a", 2.0))
    assert leaf == (-1, "a", 2.0)
    assert _pytree.tree_map_only(lambda x: x == 1, lambda x: -x, (1, 2)) == (-1, 2)


# -- checks and other functions ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "call",
    [
        lambda t: t._check(True),
        lambda t: t._check(False, lambda: "why"),
        lambda t: t._check_index(False, lambda: 3),
        lambda t: t._check_value(False, lambda: "why"),
        lambda t: t._check_type(False, lambda: "why"),
        lambda t: t._check_not_implemented(False, lambda: "why"),
        lambda t: t._check_with(KeyError, False, lambda: "why"),
        lambda t: t._check(1),
        lambda t: t._check(False, "text"),
        lambda t: t._check_tensor_all(t.ones(2, dtype=t.bool)),
        lambda t: t._check_tensor_all(t.zeros(2, dtype=t.bool), lambda: "why"),
        lambda t: t._check_tensor_all_with(ValueError, t.zeros(2, dtype=t.bool), lambda: "why"),
        lambda t: t._check_tensor_all(t.ones(2)),
        lambda t: t._check_tensor_all(True),
    ],
)
def test_checks_raise_what_pytorchs_raise(call):
    def outcome(module):
        try:
            return call(module)
        except Exception as error:
            return type(error), str(error) if "why" in str(error) else None

    theirs = outcome(real)
    with xgrad.as_torch(replace=True):
        import torch

        assert outcome(torch) == theirs


def test_a_check_of_a_traced_value_is_taken_for_true(torch):
    def step(x):
        torch._check_tensor_all(x > 0)
        return x + 1

    assert torch.compile(step)(torch.ones(2)).tolist() == [2.0, 2.0]


@pytest.mark.parametrize(
    "call",
    [
        lambda t, parse: parse("cpu"),
        lambda t, parse: parse(t.float16),
        lambda t, parse: parse("meta", t.bfloat16, True),
        lambda t, parse: parse(dtype=t.float32, non_blocking=True),
        lambda t, parse: parse(t.ones(1, dtype=t.float16)),
    ],
)
def test_arguments_of_to_are_parsed(torch, call):
    def told(module):
        device, dtype, blocking, layout = call(module, module._C._nn._parse_to)
        return str(device), str(dtype).rpartition(".")[2], blocking, layout

    assert told(torch) == told(real)


@pytest.mark.parametrize(
    "call",
    [
        lambda t, a: a.slice.Tensor(t.arange(24.0).reshape(2, 3, 4), -1, 1, 2**62, 2),
        lambda t, a: a.index.Tensor(t.arange(12.0).reshape(3, 4), [None, t.tensor([0, 2])]),
        lambda t, a: a._to_copy.default(t.ones(2), dtype=t.float16),
        lambda t, a: a._unsafe_view.default(t.arange(6.0), [2, 3]),
        lambda t, a: a._local_scalar_dense.default(t.tensor(2.5)),
        lambda t, a: a.convolution.default(
            t.arange(32.0).reshape(1, 2, 4, 4), t.ones(3, 2, 2, 2), t.ones(3), [2, 1], [1, 0], [1, 1], False, [0, 0], 1
        ),
        lambda t, a: a.convolution.default(
            t.arange(8.0).reshape(1, 2, 4), t.ones(2, 3, 2), None, [2], [0], [1], True, [1], 1
        ),
    ],
)
def test_operators_of_traced_graphs(call):
    theirs = call(real, real.ops.aten)  # outside of the block: it imports more of PyTorch at its first call
    with xgrad.as_torch(replace=True):
        import torch

        ours = call(torch, torch.ops.aten)
    if isinstance(theirs, real.Tensor):
        assert str(ours.dtype).rpartition(".")[2] == str(theirs.dtype).rpartition(".")[2]
        ours, theirs = np.asarray(ours.tolist()), np.asarray(theirs.tolist())
    assert np.array_equal(ours, theirs)


def test_a_packet_has_overloads_and_no_other_names(torch):
    packet = torch.ops.aten.add
    assert packet.Tensor is packet.default is packet.Scalar_out is packet
    for name in ("nonsense", "_ops", "__wrapped__", "Tensor_", "schema"):
        assert not hasattr(packet, name)
    with pytest.raises(AttributeError, match=r"'aten\.add' has no overload name 'nonsense'"):
        packet.nonsense


def test_classes_of_pytorchs_machinery_are_named_and_not_called(torch):
    def read(reader: torch.PyTorchFileReader | None) -> torch._C.Graph: ...

    assert torch.ScriptModule is torch.jit.ScriptModule
    assert not isinstance(torch.nn.Linear(1, 1), torch.jit.ScriptModule)  # packages leave out what is scripted
    assert not hasattr(torch, "no_such_function")
    assert not hasattr(torch, "NoSuchClass")
    with pytest.raises(NotImplementedError, match="PyTorchFileReader"):
        torch.PyTorchFileReader("file")


def test_a_refused_decorator_may_stand_in_a_packages_own(torch):
    def needs_processes(function):
        return torch.distributed.rpc.api._require_initialized(function)

    @needs_processes
    def gather(): ...

    with pytest.raises(NotImplementedError, match="_require_initialized"):
        gather()
    with pytest.raises(NotImplementedError, match="_require_initialized"):
        needs_processes(needs_processes)


def test_what_reports_ask(torch):
    import multiprocessing

    from torch.utils.flop_counter import FlopCounterMode

    assert torch.multiprocessing.get_all_start_methods() == multiprocessing.get_all_start_methods()
    assert "xgrad" in torch.__config__.show()
    assert torch.profiler.kineto_available() is False
    assert torch._C._get_accelerator().type == "cpu"
    with FlopCounterMode(display=False) as counter:
        torch.ones(2, 3) @ torch.ones(3, 4)
    assert counter.get_flop_counts() == {"Global": {"aten.matmul": 48}}
    with torch._tensor_str.printoptions(precision=1):
        assert str(torch.tensor([1.26])) == "tensor([1.3])"
    assert str(torch.tensor([1.26])) == "tensor([1.2600])"
    assert torch._tensor_str._tensor_str(torch.ones(2), 0) == "[1., 1.]"
    from torch.utils.data.dataloader import _BaseDataLoaderIter

    loader = torch.utils.data.DataLoader([1, 2])
    assert isinstance(iter(loader), _BaseDataLoaderIter)


def test_safetensors_of_a_model_by_its_own_names(torch, tmp_path):
    import safetensors.torch as files

    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
    model[1].weight = model[0].weight
    path = tmp_path / "model.safetensors"
    files.save_model(model=model, filename=path, metadata={"format": "pt"}, force_contiguous=True)
    half = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)).to(torch.float16)
    half[1].weight = half[0].weight
    missing, unexpected = files.load_model(model=half, filename=path, strict=True, device="cpu")
    assert (missing, unexpected) == (set(), [])
    assert half[0].weight.dtype == torch.float16
    assert torch.equal(half[0].weight, model[0].weight.half())
    files.save_file(tensors={"x": torch.ones(2)}, filename=path)
    assert files.load_file(filename=path, device="cpu")["x"].tolist() == [1.0, 1.0]
    missing, unexpected = files.load_model(model, path, strict=False)
    assert unexpected == ["x"]
    assert "0.weight" in missing
