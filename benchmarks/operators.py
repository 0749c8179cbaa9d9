"""Large operators, forward and backward, against torch: time and peak memory.

Both libraries run the same lines on one thread, in turns (A B A B ...); printed is the median of the ratios of process
time.  Peak memory is that of one forward and backward beyond inputs and outputs that exist anyway, each in a process of
its own (Linux only).

    python benchmarks/operators.py
    python benchmarks/operators.py --only softmax,sort --rounds 11
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_cpu_multi_thread_eigen=false"
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import numpy as np


def normal(*shape):
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


# name -> (arrays that require grad, function of the library and of them as tensors)
CASES = {
    "conv2d": (
        lambda: (normal(8, 32, 64, 64), normal(64, 32, 3, 3), normal(64)),
        lambda T, x, w, b: T.nn.functional.conv2d(x, w, b, padding=1),
    ),
    "matmul": (lambda: (normal(1024, 1024), normal(1024, 1024)), lambda T, x, y: x @ y),
    "softmax": (lambda: (normal(4096, 4096),), lambda T, x: T.softmax(x, -1)),
    "layer_norm": (
        lambda: (normal(4096, 1024), normal(1024), normal(1024)),
        lambda T, x, w, b: T.nn.functional.layer_norm(x, (1024,), w, b),
    ),
    "sort": (lambda: (normal(1_000_000),), lambda T, x: T.sort(x)[0]),
    "cumsum": (lambda: (normal(10_000_000),), lambda T, x: T.cumsum(x, 0)),
    "gelu": (lambda: (normal(4096, 4096),), lambda T, x: T.nn.functional.gelu(x)),
    "max_pool2d": (lambda: (normal(8, 32, 64, 64),), lambda T, x: T.nn.functional.max_pool2d(x, 2)),
    "gather": (lambda: (normal(4096, 1024),), lambda T, x: T.gather(x, 1, T.argsort(x.detach(), 1))),
}


def prepare(library: str, case: str):
    """A function that runs forward and backward and gives the gradients, when they are there."""
    make, function = CASES[case]
    if library == "torch":
        import torch as T

        T.set_num_threads(1)
        inputs = [T.from_numpy(a).requires_grad_() for a in make()]

        def wait(grads):
            return grads
    else:
        import jax

        import xgrad as T

        inputs = [T.tensor(a, requires_grad=True) for a in make()]

        def wait(grads):
            jax.block_until_ready([g.__jax_array__() for g in grads])
            return grads

    cotangent = T.ones_like(function(T, *inputs).detach())

    def run():
        return wait(T.autograd.grad(function(T, *inputs), inputs, cotangent))

    return run


def timed(run, repeats: int) -> float:
    start = time.process_time()
    for _ in range(repeats):
        run()
    return (time.process_time() - start) / repeats


def peak(library: str, case: str) -> int:
    """The most bytes that forward and backward hold beyond what was there before."""

    def status(what: str) -> int:
        with open("/proc/self/status") as file:
            return next(int(line.split()[1]) * 1024 for line in file if line.startswith(what))

    run = prepare(library, case)
    run()
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # the peak starts anew
    before = status("VmRSS")
    grads = run()
    del grads
    return status("VmHWM") - before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(CASES), help="cases, separated by commas (default: all)")
    parser.add_argument("--rounds", type=int, default=7, help="A B pairs (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=3, help="runs in each (default: %(default)s)")
    parser.add_argument("--peak", metavar="LIBRARY", help=argparse.SUPPRESS)
    options = parser.parse_args()
    cases = options.only.split(",")
    if options.peak:
        print(json.dumps(peak(options.peak, cases[0])))
        return
    print(f"{'':12}{'xgrad':>12}{'torch':>12}{'ratio':>8}{'peak':>12}{'torch':>12}")
    for case in cases:
        runs = [prepare(library, case) for library in ("xgrad", "torch")]
        for got, expected in zip(*(run() for run in runs)):
            np.testing.assert_allclose(got.numpy(), expected.numpy(), rtol=1e-3, atol=1e-3)
        pairs = [[timed(run, options.repeats) for run in runs] for _ in range(options.rounds)]
        ratio = statistics.median(ours / theirs for ours, theirs in pairs)
        ours, theirs = (statistics.median(pair[i] for pair in pairs) * 1e3 for i in (0, 1))
        del runs
        peaks = [
            json.loads(subprocess.check_output([sys.executable, __file__, "--peak", library, "--only", case]))
            for library in ("xgrad", "torch")
        ]
        shown = "".join(f"{p / 1e6:9.1f} MB" for p in peaks)
        print(f"{case:12}{ours:9.2f} ms{theirs:9.2f} ms{ratio:8.2f}{shown}", flush=True)


if __name__ == "__main__":
    main()
