"""as_torch(): `import torch` is xgrad, in a block or from a call on; and what `import xgrad as torch` needs."""

import importlib
import importlib.metadata
import subprocess
import sys
from collections import namedtuple
from typing import ClassVar

import pytest
import torch as real

import xgrad


@pytest.fixture
def torch():
    with xgrad.as_torch(replace=True):
        import torch

        assert torch is not real
        yield torch


def run(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_modules_in_the_block_are_xgrads_and_outside_pytorchs(torch):
    import torch.nn.functional as F
    from torch import nn
    from torch.autograd import Function
    from torch.nn.modules.utils import _pair
    from torch.utils.checkpoint import checkpoint

    assert isinstance(F.relu(torch.ones(2)), xgrad.Tensor)
    assert nn.Linear is xgrad.nn.Linear
    assert nn.modules.linear.Linear is xgrad.nn.Linear
    assert Function is xgrad.autograd.Function
    assert checkpoint is xgrad.utils.checkpoint.checkpoint
    assert _pair(3) == (3, 3) == _pair([3, 3])
    assert sys.modules["torch.nn.functional"] is F is torch.nn.functional


def test_sys_modules_is_as_before_behind_the_block():
    before = {name: module for name, module in sys.modules.items() if name.startswith("torch")}
    with xgrad.as_torch(replace=True):
        import torch.nn

        assert torch is not real
        with xgrad.as_torch():  # nests
            pass
        assert sys.modules["torch"] is torch
    assert {name: module for name, module in sys.modules.items() if name.startswith("torch")} == before
    assert sys.modules["torch"] is real
    assert not hasattr(xgrad.Tensor, "__torch_function__")


def test_refused_where_pytorch_is_imported():
    with pytest.raises(RuntimeError, match=r"imported already.*replace=True"):
        xgrad.as_torch()
    assert sys.modules["torch"] is real


def test_from_a_call_on():
    code = """
import xgrad
xgrad.as_torch()
import torch, torch.nn as nn
x = torch.ones(2, requires_grad=True)
(x * 2).sum().backward()
print(torch.__name__, x.grad.tolist(), type(x) is xgrad.Tensor)
"""
    assert run(code) == "torch [2.0, 2.0] True\n"


def test_what_is_put_into_a_module_stays_there(torch):
    torch.nn.functional.mine = 3
    assert importlib.import_module("torch.nn.functional").mine == 3
    assert not hasattr(xgrad.nn.functional, "mine")
    del torch.nn.functional.mine


def test_version_compares(torch):
    assert torch.__version__ >= "2.0.1"
    assert torch.__version__ > (1, 9)
    assert not torch.__version__ < "2.4"
    assert torch.__version__ >= "2.13"
    assert torch.__version__.split("+")[0] == "2.13.0"
    assert importlib.metadata.version("torch") == torch.__version__ == torch.version.__version__
    assert torch.version.cuda is None


QUESTIONS = """
    cuda.is_available() cuda.is_initialized() backends.mps.is_available() mps.is_available() xpu.is_available()
    accelerator.is_available() distributed.is_available() distributed.is_initialized() jit.is_scripting()
    jit.is_tracing() compiler.is_compiling() _dynamo.is_compiling() backends.cudnn.is_available()
    backends.cuda.is_built() cuda.device_count() ones(1).is_cuda
"""


@pytest.mark.parametrize("question", QUESTIONS.split())
def test_questions_that_are_answered_no(torch, question):
    assert not eval(f"torch.{question}")


def test_switches_are_kept(torch):
    torch.backends.cudnn.benchmark = True
    from torch.backends import cudnn

    assert cudnn.benchmark
    with cudnn.flags(benchmark=False):
        assert not cudnn.benchmark
    assert cudnn.benchmark
    cudnn.benchmark = False
    torch.backends.cuda.matmul.allow_tf32 = True
    assert torch.backends.cuda.matmul.allow_tf32
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    assert torch.get_num_threads() == 3
    torch.set_num_threads(before)
    torch.set_float32_matmul_precision("highest")
    assert torch.get_float32_matmul_precision() == "highest"
    with pytest.raises(RuntimeError, match="precision is one of"):
        torch.set_float32_matmul_precision("low")


def test_decorators_of_torchscript_and_dynamo_leave_functions_alone(torch):
    def f(x):
        return x + 1

    assert torch.jit.script(f) is f
    assert torch.jit.trace(f, (torch.ones(1),)) is f
    assert torch.jit.ignore(f) is f
    assert torch.jit.ignore(drop=True)(f) is f
    assert torch.jit.unused(f) is f
    assert torch.compiler.disable(f) is f
    assert torch.compiler.disable(recursive=False)(f) is f
    assert torch._dynamo.allow_in_graph(f) is f
    compiled = torch.compile(f, mode="max-autotune", fullgraph=True, dynamic=False, backend="inductor")
    assert compiled(torch.ones(2)).tolist() == [2, 2]
    assert torch.compile(dynamic=True)(f)(torch.ones(2)).tolist() == [2, 2]


def test_options_of_pytorchs_compiler_and_files_of_distributions(torch):
    torch._dynamo.config.suppress_errors = True
    assert torch._dynamo.config.suppress_errors is True
    torch._dynamo.reset()
    weibull = importlib.import_module("torch.distributions.weibull")
    assert weibull.Weibull is xgrad.distributions.Weibull
    for name in ("wishart", "logistic_normal", "lkj_cholesky", "studentT", "von_mises", "negative_binomial"):
        importlib.import_module(f"torch.distributions.{name}")


def test_a_compiled_module_has_the_modules_attributes():
    model = xgrad.nn.Linear(2, 3)
    compiled = xgrad.compile(model, mode="default")
    assert [*compiled.parameters()] == [*model.parameters()]
    assert [*compiled.state_dict()] == ["_orig_mod.weight", "_orig_mod.bias"]
    assert compiled.eval() is compiled
    assert not model.training
    assert compiled(xgrad.ones(1, 2)).shape == (1, 3)
    with pytest.raises(AttributeError, match="nonsense"):
        compiled.nonsense
    with pytest.raises(AttributeError, match="nonsense"):
        xgrad.compile(xgrad.exp).nonsense


def test_what_is_not_there_can_be_imported_and_raises_at_use(torch):
    import torch.fx
    import torch.hub
    import torch.multiprocessing as mp
    import torch.nn.attention.flex_attention
    import torch.utils.benchmark
    import torch.utils.flop_counter
    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.fx import Tracer
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode

    class Mine(Tracer):
        pass

    class Mode(TorchFunctionMode):
        pass

    assert not isinstance(torch.ones(1), TorchDispatchMode)

    assert not isinstance(torch.ones(1), FullyShardedDataParallel)
    with pytest.raises(NotImplementedError, match="make_jaxpr"):
        Mine()
    with pytest.raises(NotImplementedError, match=r"xgrad.hub.load is not supported.*xgrad\.load"):
        torch.hub.load("a", "b")
    assert list(torch.hub.tqdm([1, 2], disable=True)) == [1, 2]
    with pytest.raises(NotImplementedError, match="multiprocessing"):
        mp.spawn(print)
    with pytest.raises(NotImplementedError, match="streams"):
        torch.cuda.Stream()
    with pytest.raises(NotImplementedError, match="from_local"):
        torch.distributed.all_reduce(torch.ones(1))
    with pytest.raises(NotImplementedError, match="timeit"):
        torch.utils.benchmark.Timer("x + 1")
    with pytest.raises(NotImplementedError, match="attn_mask"):
        torch.nn.attention.flex_attention.flex_attention(*[torch.ones(1, 1, 2, 2)] * 3)
    with pytest.raises(NotImplementedError, match=r"is not supported: a function asks the classes.*xgrad\.profiler"):
        Mode()
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("torch.nonsense")
    with pytest.raises(AttributeError, match="nonsense"):
        torch.nn.nonsense
    with pytest.raises(ImportError):
        importlib.import_module("torch.engine")


def test_names_that_packages_touch_when_they_are_imported(torch, monkeypatch):
    import torch._custom_ops
    import torch._dynamo.exc
    import torch.fx.experimental.symbolic_shapes
    from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex
    from torch._dynamo.utils import is_compile_supported
    from torch.ao.quantization import QuantStub
    from torch.autograd.gradcheck import gradcheck
    from torch.distributed import ProcessGroup
    from torch.hub import _get_torch_home, help
    from torch.jit.annotations import BroadcastingList2
    from torch.onnx.symbolic_helper import parse_args
    from torch.utils.model_zoo import tqdm

    def f(x: BroadcastingList2[int], *y: QuantStub | TransformGetItemToIndex | ProcessGroup | tqdm | None):
        return x

    monkeypatch.setenv("TORCH_HOME", "/home/models")
    assert _get_torch_home() == "/home/models"
    assert torch.jit._script_if_tracing(f) is torch.jit._overload_method(f) is parse_args("v")(f) is f
    assert torch.fx.wrap("f") == "f"
    assert torch.onnx.register_custom_op_symbolic("a::b", f, 11) is None
    assert is_compile_supported("cpu")
    assert not torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU) | torch._C.DispatchKeySet()
    assert callable(gradcheck)
    with pytest.raises(OSError, match=r"C\+\+"):
        torch.ops.load_library("lib.so")
    with pytest.raises(NotImplementedError, match="Download the weights yourself"):
        help("a/b", "c")
    errors = (torch.OutOfMemoryError, torch.cuda.OutOfMemoryError, torch._C._LinAlgError, torch._dynamo.exc.Unsupported)
    assert issubclass(errors[0], RuntimeError)
    assert all(issubclass(error, Exception) for error in errors)
    assert torch.sparse.FloatTensor is torch.FloatTensor
    torch._logging.set_logs(dynamo=10)
    torch._dynamo.mark_dynamic(torch.ones(1), 0)
    with torch.compiler.set_stance("force_eager"):
        assert torch.compiler.set_stance("default")(f)(2) == 2


@pytest.mark.parametrize("path", ["", "_C", "_utils", "cuda", "hub", "jit", "nn", "onnx", "utils", "utils._pytree"])
def test_what_dir_lists_is_there(torch, path):
    module = importlib.import_module(f"torch.{path}".rstrip("."))
    assert [name for name in dir(module) if not hasattr(module, name)] == []


def test_every_home_of_a_module_exists():
    from xgrad.torch_modules.tables import HOMES

    for home in {home for homes in HOMES.values() for home in homes if home}:
        importlib.import_module(f"xgrad.{home}")


def test_data_parallel_passes_the_call_on(torch):
    module = torch.nn.DataParallel(torch.nn.Linear(3, 1), device_ids=[0, 1])
    x = torch.ones(2, 3)
    assert torch.equal(module(x), module.module(x))
    assert list(module.state_dict()) == ["module.weight", "module.bias"]
    assert torch.equal(torch.nn.parallel.data_parallel(module.module, x), module(x))
    assert isinstance(module, torch.nn.parallel.DataParallel)
    with pytest.raises(NotImplementedError, match="from_local"):
        torch.nn.parallel.DistributedDataParallel(module)


def test_nothing_is_exported_to_onnx(torch):
    assert not torch.onnx.is_in_onnx_export()
    with pytest.raises(NotImplementedError, match=r"xgrad\.onnx\.export is not supported: xgrad has no exporter"):
        torch.onnx.export(torch.nn.Linear(1, 1), torch.ones(1, 1), "file")


def test_a_subclass_with_pytorchs_override(torch):
    class Logged(torch.Tensor):
        seen: ClassVar = []

        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            cls.seen.append(func.__name__)
            return super().__torch_function__(func, types, args, kwargs or {})

    x = torch.ones(2).as_subclass(Logged)
    y = torch.exp(x) * 2
    assert type(y) is Logged
    assert Logged.seen == ["exp", "mul"]


def test_a_class_that_is_no_tensor_with_pytorchs_override(torch):
    class Twice:
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return func, args

    x = torch.ones(2)
    twice = Twice()
    assert torch.add(x, twice) == (torch.add, (x, twice))
    assert (x + twice)[0].__name__ == "add"
    assert torch.matmul(twice, x)[0] is torch.matmul
    assert torch.overrides.has_torch_function((twice,))
    assert torch.overrides.is_tensor_like(twice)
    assert torch.overrides.handle_torch_function(run, (twice,), 3) == (run, (3,))


def test_out_of_the_block_pytorchs_override_means_nothing():
    class Twice:
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return 3

    with pytest.raises(TypeError, match="expected a Tensor or a number"):
        xgrad.add(xgrad.ones(2), Twice())


def test_operators_by_atens_names(torch):
    assert torch.ops.aten.add.Tensor(torch.ones(2), 1).tolist() == [2, 2]
    assert torch.ops.aten.view.default(torch.ones(2), [2, 1]).shape == (2, 1)
    with pytest.raises(AttributeError, match="no operator"):
        torch.ops.aten.nonsense


def both(program):
    theirs = program(real)
    with xgrad.as_torch(replace=True):
        import torch

        assert program(torch) == theirs


def test_the_running_backward_by_the_names_of_torch_c():
    def program(T):
        told, a = [], T._C._autograd
        x = T.ones(2, requires_grad=True)
        y = x * 2
        z, other = y.sum(), x.exp().grad_fn

        def look(grad):
            told.append(T._C._current_graph_task_id() >= 0)
            told.append([T._C._will_engine_execute_node(n) for n in (y.grad_fn, other)])
            told.append((a._get_current_graph_task_keep_graph(), T._C._is_key_in_tls("k"), T._C._get_obj_in_tls("k")))

        y.register_hook(look)
        T._C._stash_obj_in_tls("k", 3)
        T._C._stash_obj_in_tls("another", 4)
        with T.autograd.set_multithreading_enabled(False):
            z.backward()
        told += [T._C._is_key_in_tls("other"), T._C._current_graph_task_id(), T.autograd._is_checkpoint_valid()]
        return told

    both(program)


def test_the_running_backward_is_asked_for_within_it(torch):
    with pytest.raises(RuntimeError, match="should only be called during the backward pass"):
        torch._C._will_engine_execute_node(torch.ones(1, requires_grad=True).exp().grad_fn)
    with pytest.raises(RuntimeError, match="stashed"):
        torch._C._get_obj_in_tls("other")
    with pytest.raises(TypeError, match="incompatible function arguments"):
        torch._C._stash_obj_in_tls(1, 2)


def test_saved_tensors_and_versions_by_the_names_of_torch_c():
    def program(T):
        a = T._C._autograd
        told = [a._saved_tensors_hooks_is_enabled(), a._saved_tensors_hooks_get_disabled_error_message()]
        with T.autograd.graph.disable_saved_tensors_hooks("no"):
            told += [a._saved_tensors_hooks_is_enabled(), a._saved_tensors_hooks_get_disabled_error_message()]
        a._push_saved_tensors_default_hooks(lambda t: t, lambda t: t)
        told.append(a._top_saved_tensors_default_hooks(True) is None)
        a._pop_saved_tensors_default_hooks()
        x = T.ones(2)
        a._unsafe_set_version_counter((x,), (7,))
        told += [x._version, a._profiler_enabled(), a._saved_tensors_hooks_set_tracing(False)]
        told += [a._get_data_attr(x).tolist(), a._make_saved_tensor(x, False).data is x]
        with T.autograd.profiler.profile():
            told.append(T.autograd._profiler_enabled())
        return told

    both(program)


def test_nodes_of_torch_c():
    def program(T):
        f = T._C._functions
        x = T.ones(2, requires_grad=True)
        leaf = x.sum().grad_fn.next_functions[0][0]
        written = x.clone()
        written[0].mul_(2)
        copied = T.zeros(2).copy_(x)
        told = [
            isinstance(leaf, f.AccumulateGrad), isinstance(x[0].grad_fn, f.SelectBackward0),
            isinstance(x.exp().grad_fn, f.ExpBackward0), isinstance(x.exp().grad_fn, f.AccumulateGrad),
            isinstance(written.grad_fn, f.CopySlices), isinstance(copied.grad_fn, f.CopyBackwards),
        ]  # fmt: skip
        y = f.UndefinedGrad()(x)
        (y + x).sum().backward()
        told += [x.grad.tolist(), y.grad_fn.name()]
        late, plain = f.DelayedError("too late", 2)(x, T.ones(3))
        told += [late.requires_grad, plain.requires_grad, late.grad_fn.name(), late.tolist()]
        told.append(f.DelayedError("too late", 1)(T.ones(1)).requires_grad)
        try:
            late.sum().backward()
        except RuntimeError as error:
            told.append(str(error))
        return told

    both(program)


def test_what_belongs_to_other_machinery_says_so(torch):
    for call, phrase in (
        (torch._C._autograd._enable_profiler, "Kineto"),
        (torch._C._functorch.peek_interpreter_stack, "interpreters"),
        (torch.autograd.profiler.load_nvprof, "Kineto"),
    ):
        with pytest.raises(NotImplementedError, match=phrase):
            call()
    with pytest.raises(AttributeError, match=r"jagged is not supported.*padded tensor"):
        torch.jagged
    assert not hasattr(torch, "jagged")


def test_a_module_and_a_function_of_one_name(torch):
    from torch.autograd.gradcheck import GradcheckError, gradcheck

    assert torch.autograd.gradcheck is gradcheck is xgrad.autograd.gradcheck
    assert issubclass(GradcheckError, RuntimeError)


def test_policies_compare_operators_with_atens(torch):
    import functools

    from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

    aten, saved = torch.ops.aten, []
    wanted = {aten.sin.default, aten.mm.default}

    def policy(ctx, op, *args, **kwargs):
        saved.append(op in wanted)
        return CheckpointPolicy.MUST_SAVE if op == aten.sin.default else CheckpointPolicy.PREFER_RECOMPUTE

    for chosen in (policy, [aten.sin.default, aten.mm.default]):
        x = torch.ones(2, 2, requires_grad=True)
        context = functools.partial(create_selective_checkpoint_contexts, chosen)
        checkpoint(lambda x: x.sin().cos(), x, use_reentrant=False, context_fn=context).sum().backward()
        y = torch.ones(2, 2, requires_grad=True)
        y.sin().cos().sum().backward()
        assert torch.equal(x.grad, y.grad)
    assert saved == [True, False]
    assert aten.sin.default != aten.cos.default


def test_pytrees_with_paths(torch):
    from torch.utils import _pytree as pytree

    class Pair:
        def __init__(self, a, b):
            self.a, self.b = a, b

    pytree.register_pytree_node(
        Pair,
        lambda p: ([p.a, p.b], None),
        lambda values, context: Pair(*values),
        flatten_with_keys_fn=lambda p: ([(pytree.GetAttrKey("a"), p.a), (pytree.GetAttrKey("b"), p.b)], None),
    )
    found, _ = pytree.tree_flatten_with_path({"x": [1, 2], "y": Pair(3, None)})
    assert [(pytree.keystr(path), leaf) for path, leaf in found] == [
        ("['x'][0]", 1), ("['x'][1]", 2), ("['y'].a", 3), ("['y'].b", None),
    ]  # fmt: skip
    assert pytree.tree_map_with_path(lambda path, x: (path[0].idx, x), [5]) == [(0, 5)]

    Point = namedtuple("Point", "x y")
    tree = {"b": 1, "a": [2, {3: None, "c": 4}], 5: Point({"z": 6, "y": 7}, 8)}  # keys that cannot be sorted
    leaves, structure = pytree.tree_flatten(tree)
    assert leaves == [1, 2, None, 4, 6, 7, 8]
    again = pytree.tree_unflatten(leaves, structure)
    assert again == tree
    assert [*again] == [*tree]
    assert pytree.tree_map(lambda x, y: [x, y], {"b": 1, "a": 2}, {"b": 3, "a": 4}) == {"b": [1, 3], "a": [2, 4]}
    assert pytree.tree_leaves(tree, is_leaf=lambda x: isinstance(x, dict) and "z" in x)[4] == {"z": 6, "y": 7}
    assert [*pytree.tree_iter((1, [2]))] == [1, 2]
    values, context = pytree._dict_flatten({"b": 1, "a": 2})
    assert pytree._dict_unflatten(values, context) == {"b": 1, "a": 2}
    assert [key.key for key, _ in pytree._dict_flatten_with_keys({"b": 1, "a": 2})[0]] == ["b", "a"]


def test_pytrees(torch):
    from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

    tree = {"a": [torch.ones(1), None], "b": (3,)}
    leaves, spec = tree_flatten(tree)
    assert len(leaves) == 3
    assert tree_unflatten(leaves, spec)["b"] == (3,)
    assert tree_map(lambda x: x, tree)["a"][0] is tree["a"][0]


def test_constructors_and_classes(torch):
    assert torch.Tensor(2, 3).shape == (2, 3)
    assert torch.FloatTensor([1.0]).dtype == torch.float32
    assert isinstance(torch.ones(1), torch.Tensor)
    assert not isinstance(3, torch.SymInt)
    assert torch.sym_max(2, 3) == 3
    assert torch.types._size is tuple
    assert torch.torch is torch is torch.nn.functional.torch


def test_import_xgrad_as_torch_has_what_scripts_ask():
    torch = xgrad
    device = torch.device(
        "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    )
    torch.manual_seed(0)
    torch.backends.cudnn.deterministic = True
    torch.set_float32_matmul_precision("highest")
    torch.use_deterministic_algorithms(False)
    assert torch.zeros(1, device=device).device.type == "cpu"
    assert torch.jit.script(len) is len
    assert torch.amp.GradScaler is torch.GradScaler
    with pytest.raises(NotImplementedError, match="weights"):
        torch.hub.load("x", "y")


def test_modules_are_borrowed_from_an_installed_pytorch():
    code = """
import sys
import xgrad
xgrad.as_torch(borrow=True)
import torch
from torch.distributions import Normal, kl_divergence
from torch.nn.utils import prune
mu = torch.zeros(2, requires_grad=True)
kl_divergence(Normal(mu, torch.ones(2)), Normal(1.0, 1.0)).sum().backward()
print(mu.grad.tolist(), "torch._C._VariableFunctions" in sys.modules)
"""
    assert run(code) == "[-1.0, -1.0] False\n"


def test_safetensors_files_are_written_and_read(tmp_path):
    """Its own writer for torch reads memory at `data_ptr()`, which is not an address here."""
    safetensors = pytest.importorskip("safetensors")
    path = tmp_path / "x.safetensors"
    with xgrad.as_torch(replace=True):
        import torch
        from safetensors.torch import load_file, save_file, storage_ptr, storage_size

        x = torch.arange(6.0).reshape(2, 3)
        save_file({"x": x, "half": x.to(torch.bfloat16)}, path, metadata={"format": "pt"})
        assert load_file(path)["x"].tolist() == x.tolist()
        assert storage_ptr(x[1:]) == storage_ptr(x)
        assert storage_size(x) == 24
        with safetensors.safe_open(path, framework="pt") as file:
            assert file.get_tensor("x").tolist() == x.tolist()
            assert file.get_tensor("half").dtype == torch.bfloat16
        with pytest.raises(NotImplementedError, match="shared=True"):
            torch.UntypedStorage.from_file(path, shared=True)
    from safetensors.torch import save_file as theirs

    assert theirs is not save_file
    assert safetensors.torch.save_file is theirs
