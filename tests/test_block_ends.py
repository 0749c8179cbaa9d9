"""An interrupt at the end of a `with` block leaves no mode on: C code ends it, which no signal can interrupt."""

import _thread
import ast
import contextlib
import importlib
import pathlib
import pkgutil
import signal
import threading
import warnings

import pytest

import xgrad
from xgrad.config import Block, Recorded, Unrecorded, block, narrowing_refused, settings, state
from xgrad.dispatch.operator_modes import OperatorMode
from xgrad.execution.runner import runner, suspended, together
from xgrad.nn.module_hooks import ANY
from xgrad.optim.placing import outside_of_trace
from xgrad.utils import checkpoint, flop_counter

ROOT = pathlib.Path(xgrad.__file__).parent
graph, forward_ad, profiler = xgrad.autograd.graph, xgrad.autograd.forward_ad, xgrad.autograd.profiler

BLOCKS = {
    "lazy": xgrad.lazy,
    "no_grad": xgrad.no_grad,
    "enable_grad": xgrad.enable_grad,
    "set_grad_enabled": lambda: xgrad.set_grad_enabled(False),
    "inference_mode": xgrad.inference_mode,
    "set_multithreading_enabled": lambda: xgrad.autograd.set_multithreading_enabled(False),
    "enforce_grad_layout_policy": lambda: xgrad.autograd.enforce_grad_layout_policy(False),
    "_force_original_view_tracking": lambda: xgrad.autograd._force_original_view_tracking(False),
    "compiled_backward": xgrad.autograd.compiled_backward,
    "tracking": lambda: xgrad.views.tracking("geometry"),
    "autocast": lambda: xgrad.autocast("cpu"),
    "device": lambda: xgrad.device("cpu"),
    "mesh": lambda: xgrad.mesh({"data": 1}),
    "saved_tensors_hooks": lambda: graph.saved_tensors_hooks(lambda x: x, lambda x: x),
    "save_on_cpu": graph.save_on_cpu,
    "disable_saved_tensors_hooks": lambda: graph.disable_saved_tensors_hooks("no hooks"),
    "allow_mutation_on_saved_tensors": graph.allow_mutation_on_saved_tensors,
    "dual_level": forward_ad.dual_level,
    "_set_fwd_grad_enabled": lambda: forward_ad._set_fwd_grad_enabled(False),
    "detect_anomaly": xgrad.autograd.detect_anomaly,
    "set_detect_anomaly": lambda: xgrad.autograd.set_detect_anomaly(True),
    "disable_overrides": xgrad.overrides.disable_overrides,
    "OperatorMode": OperatorMode,
    "profile": profiler.profile,
    "emit_nvtx": profiler.emit_nvtx,
    "FlopCounterMode": lambda: flop_counter.FlopCounterMode(display=False),
    "GraphExecGroup": checkpoint.GraphExecGroup,
    "set_checkpoint_early_stop": lambda: checkpoint.set_checkpoint_early_stop(False),
    "set_checkpoint_debug_enabled": lambda: checkpoint.set_checkpoint_debug_enabled(True),
    "check_sparse_tensor_invariants": xgrad.sparse.check_sparse_tensor_invariants,
    "use_key": lambda: xgrad.random.use_key(xgrad.default_generator._key),
    "suspended": lambda: suspended("a test"),
    "together": lambda: together("a test"),
    "outside_of_trace": outside_of_trace,
    "narrowing_refused": narrowing_refused,
    "Unrecorded": Unrecorded,
    "Recorded": Recorded,
    "Stream": lambda: xgrad.Stream(xgrad.Backend("streams", cost=xgrad.Cost())),
}

# Classes whose `__exit__` is of Python: what an interrupt leaves there is no mode that changes results.
OF_PYTHON = {
    "_unsafe_preserve_version_counter": "a version that stays raised makes an error",
    "record_function": "JAX's own blocks, and the length of a range in a profile",
    "Report": "it counts on",
    "as_torch": "it takes hundreds of modules out of sys.modules",
    "Manager": "files that stay open",
}
# Generator functions that contextlib ends.
OF_CONTEXTLIB = {
    "cli/launch.py", "cli/conform.py", "execution/programs/archive.py", "interop/orbax.py",
    "autograd/profiler/__init__.py", "utils/flop_counter.py",
}  # fmt: skip


def modes():
    """All that blocks switch."""
    others = checkpoint._Overrides.early_stop, checkpoint._Overrides.debug, settings.check_sparse, settings.narrow
    others += (list(ANY),)
    return {name: value for name, value in vars(state).items() if getattr(type(state), name, None) is not value}, others


class Stop(BaseException):
    pass


class Signal:
    """`Signal()[number]`: a signal that arrives now, and is seen where Python looks next: not in this expression."""

    __getitem__ = _thread.interrupt_main


@pytest.fixture
def interrupts():
    if threading.current_thread() is not threading.main_thread():
        pytest.skip("signals arrive in the main thread")

    def stop(*_):
        raise Stop

    before = signal.signal(signal.SIGALRM, stop)
    yield Signal()
    signal.signal(signal.SIGALRM, before)


@pytest.fixture(autouse=True)
def whole():
    before = dict(vars(state))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        yield
    vars(state).clear()
    vars(state).update(before)


@pytest.mark.parametrize("name", BLOCKS)
def test_an_interrupt_at_its_end_leaves_no_mode_on(name, interrupts):
    with BLOCKS[name]():  # some note that they were used
        pass
    before = modes()
    with pytest.raises(Stop), BLOCKS[name]():
        interrupts[signal.SIGALRM]
    assert modes() == before


@pytest.mark.parametrize("name", BLOCKS)
def test_an_interrupt_at_its_end_by_an_error_leaves_no_mode_on(name, interrupts):
    with BLOCKS[name]():
        pass
    before = modes()
    with pytest.raises(Stop):  # noqa: PT012 - its own end is of Python, so the signal has to be seen within
        try:
            with BLOCKS[name]():
                interrupts[signal.SIGALRM]
                raise ValueError
        except ValueError:
            modes()
    assert modes() == before


def test_all_blocks_are_ended_by_c():
    of_python, of_contextlib = set(), set()
    for path in ROOT.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                of_python |= {node.name for f in node.body if isinstance(f, ast.FunctionDef) and f.name == "__exit__"}
            elif isinstance(node, ast.FunctionDef) and "contextmanager" in map(ast.unparse, node.decorator_list):
                of_contextlib.add(str(path.relative_to(ROOT)))
    assert of_python == set(OF_PYTHON)
    assert of_contextlib == OF_CONTEXTLIB


def test_the_table_above_has_all_classes_of_blocks():
    for module in pkgutil.iter_modules(xgrad.autograd.__path__, "xgrad.autograd."):
        importlib.import_module(module.name)
    kinds, known = [Block], {*BLOCKS, *OF_PYTHON, "Active", "profile"}
    for kind in kinds:
        kinds += kind.__subclasses__()
    found = {kind.__name__ for kind in kinds if kind.__module__.startswith("xgrad.") and not kind.__subclasses__()}
    assert {name for name in found if not name.startswith("_")} <= known


def test_a_generated_block_nests_decorates_and_passes_its_error_on():
    log = []

    @block
    def noted(name):
        log.append(name)
        try:
            yield name
        finally:
            log.append(f"end of {name}")

    a = noted("a")
    with a as first, a, noted("b"):
        assert first == "a"
    assert log == ["a", "a", "b", "end of b", "end of a", "end of a"]
    log.clear()

    @noted("c")
    def fails():
        raise ValueError("of the body")

    with pytest.raises(ValueError, match="of the body"):
        fails()
    assert log == ["c", "end of c"]
    with contextlib.ExitStack() as stack:
        stack.enter_context(noted("d"))
    assert log[2:] == ["d", "end of d"]


def test_an_interrupt_leaves_no_backend_active(interrupts):
    with pytest.raises(Stop), xgrad.Backend("chip").activate():
        interrupts[signal.SIGALRM]
    assert state.place is None


def test_a_handle_that_is_a_block_removes_its_hook_in_c(interrupts):
    x = xgrad.ones(2, requires_grad=True)
    with pytest.raises(Stop), x.register_hook(lambda grad: grad * 2):
        interrupts[signal.SIGALRM]
    with pytest.raises(Stop), graph.register_multi_grad_hook((x,), lambda grads: 1 / 0):
        interrupts[signal.SIGALRM]
    x.sum().backward()
    assert x.grad.tolist() == [1, 1]


def test_a_profile_whose_end_was_interrupted_has_its_events(interrupts):
    with pytest.raises(Stop), profiler.profile() as found:  # noqa: PT012
        xgrad.ones(2) + 1
        interrupts[signal.SIGALRM]
    assert [event.name for event in found.events()][-1] == "aten::add"


def test_an_error_in_a_lazy_block_leaves_pending_what_was_noted():
    with pytest.raises(ValueError, match="of the body"), xgrad.lazy():  # noqa: PT012
        x = xgrad.ones(3) * 2
        raise ValueError("of the body")
    assert x._array.value is None or runner.always_lazy
    try:
        raise KeyError
    except KeyError:
        with xgrad.lazy():  # within a handler, which is no error of the block's
            y = xgrad.ones(3) * 2
    assert y._array.value is not None or runner.always_lazy
    assert x.tolist() == y.tolist() == [2, 2, 2]


@pytest.mark.parametrize("make", [forward_ad.dual_level, xgrad.sparse.check_sparse_tensor_invariants])
def test_a_block_that_refuses_to_be_entered_twice_ends_all_the_same(make):
    before, entered = modes(), make()
    with entered, pytest.raises(RuntimeError, match=r"Nested|already activated"), entered:
        raise AssertionError("it was entered twice")
    assert modes() == before
