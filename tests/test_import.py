"""`import xgrad` changes nothing of JAX, the environment and the garbage collector; what the first tensor changes."""

import os
import subprocess
import sys

import pytest


def run(code, **environment):
    """Run `code` in a process of its own; None takes a name out of the environment."""
    merged = {**os.environ, "JAX_CPU_ENABLE_ASYNC_DISPATCH": None, **environment}
    kept = {name: value for name, value in merged.items() if value is not None}
    done = subprocess.run([sys.executable, "-c", code], env=kept, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


UNCHANGED = """
import gc, os, sys
import jax
from jax.experimental.compilation_cache import compilation_cache

def now():
    collector = gc.isenabled(), gc.get_threshold(), gc.get_freeze_count(), gc.get_debug(), len(gc.callbacks)
    return dict(jax.config.values), dict(os.environ), collector, sys.getswitchinterval(), sys.getrecursionlimit()

def stop(*arguments, **named):
    raise AssertionError("the import resets JAX's cache")

compilation_cache.reset_cache = stop
before = now()
import xgrad
import xgrad.backends, xgrad.compiler, xgrad.distributed, xgrad.func, xgrad.interop.torch, xgrad.optim, xgrad.viz
after = now()
for one, other in zip(before, after):
    assert one == other, (one, other)
"""


@pytest.mark.parametrize("cache", [None, "1", "0"])
def test_import_changes_nothing_of_jax_the_environment_and_the_collector(cache, tmp_path):
    """Also where the CPU represents several devices."""
    flags = "--xla_force_host_platform_device_count=8"
    run(UNCHANGED, XGRAD_COMPILE_CACHE=cache, XDG_CACHE_HOME=str(tmp_path), XLA_FLAGS=flags, PJRT_NPROC=None)


def test_a_collector_that_is_off_stays_off_and_one_that_is_on_is_on_after_a_failed_import():
    """The import waits with collections."""
    run(f"import gc; gc.disable()\n{UNCHANGED}")
    broken = "import gc, sys; sys.modules['xgrad.attach'] = None\n"
    run(broken + "try: import xgrad\nexcept ImportError: assert gc.isenabled()\nelse: raise AssertionError")


# A process for each expression, forked before JAX has started: then a program ends before its call returns.
FIRST = """
import os, sys
import jax, jax.numpy as jnp
import numpy as np
import torch
import xgrad
for expression in EXPRESSIONS:
    child = os.fork()
    if child:
        assert os.waitpid(child, 0)[1] == 0, expression
        continue
    try:
        exec(expression)
        product = jax.jit(lambda x: x @ x)
        x = jnp.ones((900, 900), "float32")
        product(x).block_until_ready()
        assert all(product(x).is_ready() for _ in range(5)), expression
        assert not jax.config.values["jax_cpu_enable_async_dispatch"]
    except BaseException as error:
        print(repr(error), file=sys.stderr, flush=True)
        os._exit(1)
    os._exit(0)
"""
EXPRESSIONS = (
    "xgrad.tensor([1.0, 2.0])",
    "xgrad.ones(3)",
    "xgrad.arange(3)",
    "xgrad.randn(3)",
    "xgrad.manual_seed(3); xgrad.rand(2)",
    "xgrad.default_generator.get_state()",
    "xgrad.from_numpy(np.ones(3))",
    "xgrad.from_dlpack(np.ones(3, np.float32))",
    "xgrad.interop.torch.from_torch(torch.ones(3))",
    "xgrad.device('cpu')",
    "xgrad.device('xla')",
    "xgrad.devices()",
    "xgrad.get_default_device()",
    "xgrad.mesh({'x': 1})",
    "xgrad.cuda.is_available()",
    "xgrad.accelerator.current_device_index()",
    "xgrad.distributed.get_rank()",
    "xgrad.lazy().__enter__(); xgrad.ones(3)",
    "xgrad.compile(lambda: xgrad.ones(3))()",
    "xgrad.vmap(lambda x: x + 1)(xgrad.ones(3))",
    "jax.jit(xgrad.to_jax(xgrad.sin))(2.0)",
    "jax.eval_shape(xgrad.to_jax(lambda: xgrad.ones(3)))",
)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_programs_of_the_cpu_run_in_the_thread_that_calls_them():
    """An operator's result is there when the operator returns, as PyTorch's is, whatever xgrad is asked first."""
    run(FIRST.replace("EXPRESSIONS", repr(EXPRESSIONS)))


@pytest.mark.parametrize("how", ["the environment", "xgrad", "JAX"])
def test_who_chose_the_thread_of_the_cpus_programs_keeps_it(how):
    lines = {
        "the environment": "import xgrad",
        "xgrad": "import xgrad; xgrad.config.async_dispatch(True)",
        "JAX": "import xgrad; xgrad.config.async_dispatch(False); xgrad.config.async_dispatch(True)",
    }
    asked = {"JAX_CPU_ENABLE_ASYNC_DISPATCH": "1"} if how == "the environment" else {}
    run(lines[how] + "; xgrad.ones(3); import jax; assert jax.config.values['jax_cpu_enable_async_dispatch']", **asked)


def test_the_environment_is_the_same_after_the_first_tensor_on_several_devices():
    code = """
import os
import jax
before = dict(os.environ)
import xgrad
assert len(xgrad.devices()) == 8
assert len(os.listdir("/proc/self/task")) > 256 or not os.path.exists("/proc/self/task")
assert before == dict(os.environ)
"""
    run(code, XLA_FLAGS="--xla_force_host_platform_device_count=8", PJRT_NPROC=None)


@pytest.mark.parametrize("module", ["cpu", "accelerator"])
def test_synchronizing_the_cpu_waits_for_programs_in_a_thread_of_jaxs(module):
    code = f"""
import xgrad
xgrad.config.async_dispatch(True)
x = y = xgrad.ones(700, 700)
for _ in range(30):
    y = y @ x
xgrad.{module}.synchronize()
assert y._read().is_ready()
"""
    run(code)
