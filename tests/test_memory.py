"""Where memory runs out, what was to be written in place keeps its value: in a process that is allowed little.

The limit is on addresses: large arrays that nobody touches cost nothing, and what cannot be had fails as it does on a
device that is full. What must fail asks for several times what is left: compilers and threads of the process give
addresses back at any time.
"""

import subprocess
import sys

import pytest

from xgrad.execution import references

pytestmark = [
    pytest.mark.skipif(not references.COUNTED, reason="on a free-threaded Python nothing is donated"),
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits addresses as Linux does"),
]

PRELUDE = """
import gc, resource, time
import jax, numpy as np, xgrad

MB = 1 << 20

def leave(mb):
    jax.block_until_ready(jax.live_arrays())  # a program that still runs gives back what it works in
    gc.collect()
    seen = []
    while len(seen) < 4 or len(set(seen[-4:])) > 1:  # until what was used before has been given back
        used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        seen.append(used)
        time.sleep(0.2)
    resource.setrlimit(resource.RLIMIT_AS, (used + mb * MB, resource.RLIM_INFINITY))

def free():
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))

def fails(work):
    try:
        work()
    except Exception as error:
        kinds = MemoryError, xgrad.errors.OutOfMemoryError
        said = str(error)
        assert "RESOURCE_EXHAUSTED" in said or ": Out of memory " in said or isinstance(error, kinds), error
        assert not isinstance(error, xgrad.errors.LostValueError), error
        return True
    return False
"""


def run(code):
    done = subprocess.run([sys.executable, "-c", PRELUDE + code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.eager("failures")
@pytest.mark.exhaustive
def test_write_that_needs_memory_fails_and_loses_nothing():
    run("""
for warm in (False, True):
    x = xgrad.ones(64 * MB)  # 256 MB
    if warm:
        x.cumsum_(0)
        x.fill_(1)
    view = x[5:]
    leave(50)
    assert fails(lambda: x.cumsum_(0))
    free()
    assert x._version == (2 if warm else 0)
    assert x[-1].item() == 1 == view[-1].item()
    x.cumsum_(0)  # and when there is memory again, it works
    assert x[-1].item() == 64 * MB == view[-1].item()
    del x, view
""")


@pytest.mark.exhaustive
def test_write_that_needs_none_works_where_there_is_none():
    run("""
x, y = xgrad.ones(16 * MB), xgrad.ones(16 * MB)
before = x._array.unsafe_buffer_pointer()
leave(50)
x.add_(y)  # its first call, and no room for a copy
x.add_(y)
x[3:9].mul_(2)
free()
assert x[1].item() == 3 and x[4].item() == 6
assert x._storage.array.unsafe_buffer_pointer() == before
""")


@pytest.mark.exhaustive
def test_write_of_several_tensors_that_fits_no_longer_keeps_them():
    run("""
import jax.numpy as jnp
from xgrad.dispatch.multi_write import MultiWrite

def moved(written, read):
    x = read[0]
    return [w + jnp.cumsum(x @ w, axis=0)[-1] * 1e-9 for w in written]  # 768 MB besides

v, w, x = xgrad.ones(8, 8), xgrad.ones(8, 8), xgrad.ones(8 * MB, 8)
view = w[0]
write = MultiWrite(moved, "moved")
for _ in range(2):
    write([v, w], [x])
kept, versions = [v.numpy().copy(), w.numpy().copy()], (v._version, w._version)
v.mul_(1), w.mul_(1)  # else NumPy has the arrays, and they are copied
for _ in range(2):
    leave(50)
    assert fails(lambda: write([v, w], [x]))
    free()
    assert (v._version, w._version) == (versions[0] + 1, versions[1] + 1)
    np.testing.assert_array_equal(v.numpy().copy(), kept[0])
    np.testing.assert_array_equal(view.numpy(), kept[1][0])
    v.mul_(1), w.mul_(1)
    versions = versions[0] + 1, versions[1] + 1
write([v, w], [x])
assert not (v.numpy() == kept[0]).any()
""")


@pytest.mark.exhaustive
def test_compiled_step_that_does_not_fit_keeps_weights_and_momentum():
    """Catch it, and halve the batch."""
    run("""
w, momentum = xgrad.ones(8, 8, requires_grad=True), xgrad.zeros(8, 8)

@xgrad.compile
def step(x):
    w.grad = None
    ((x @ w).tanh() @ w).sum().backward()
    with xgrad.no_grad():
        momentum.mul_(0.9).add_(w.grad)
        w.sub_(momentum, alpha=1e-9)

small, large = xgrad.ones(64, 8), xgrad.ones(8 * MB, 8)  # 256 MB, and as much again several times
step(small)
kept = [t.detach().numpy().copy() for t in (w, momentum)]
versions = w._version, momentum._version
for _ in range(2):
    leave(100)
    assert fails(lambda: step(large))
    free()
    assert (w._version, momentum._version) == versions
    for tensor, value in zip((w, momentum), kept):
        np.testing.assert_array_equal(tensor.detach().numpy(), value)
step(small)
step(large)  # now it fits
step(large)
kept = [t.detach().numpy().copy() for t in (w, momentum)]
leave(100)
assert fails(lambda: step(large))  # and then no more
free()
for tensor, value in zip((w, momentum), kept):
    np.testing.assert_array_equal(tensor.detach().numpy(), value)
step(small)
""")


@pytest.mark.exhaustive
def test_step_that_runs_out_while_its_batch_is_on_its_way_keeps_what_it_writes():
    """A CPU runs a program after its call then, and the failure is in the results."""
    run("""
w = xgrad.ones(8, 8)

@xgrad.compile
def step(x):
    w.sub_((x @ w).cumsum(0)[-1], alpha=1e-9)

batch = np.ones((8 * MB, 8), np.float32)
x = xgrad.ones(8 * MB, 8)
step(x), step(x)
kept = w.numpy().copy()
for _ in range(2):
    del x
    leave(600)
    x = xgrad.from_numpy(batch)
    assert fails(lambda: step(x))
    free()
    np.testing.assert_array_equal(w.numpy().copy(), kept)
""")


@pytest.mark.exhaustive
def test_lazy_step_that_no_longer_fits_keeps_weights_and_momentum():
    run("""
w, momentum = xgrad.ones(64, 64, requires_grad=True), xgrad.zeros(64, 64)  # large enough to be donated

def step(x):
    with xgrad.lazy():
        w.grad = None
        ((x @ w).tanh() @ w).sum().backward()
        with xgrad.no_grad():
            momentum.add_(w.grad)
            w.sub_(momentum, alpha=1e-9)
        xgrad.sync()

large = xgrad.ones(MB, 64)  # 256 MB
for _ in range(2):
    step(large)
kept = [t.detach().numpy().copy() for t in (w, momentum)]
for _ in range(2):
    with xgrad.no_grad():
        w.mul_(1), momentum.mul_(1)  # NumPy has their arrays, and these would be copied
    leave(100)
    assert fails(lambda: step(large))
    free()
    for tensor, value in zip((w, momentum), kept):
        np.testing.assert_array_equal(tensor.detach().numpy().copy(), value)
step(large)
""")
