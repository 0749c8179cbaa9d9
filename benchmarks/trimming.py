"""What it is worth that a gradient which nobody asks for is not computed.

The second derivative of a network's output with respect to its input, as in PyTorch's Hessian benchmark (6 hidden
layers, ReLU, batch 10,000): `grad(y, x, create_graph=True)`, and the gradient of that.  The weights require grad, too.

    trimmed     asks for the gradient of the input: the engine skips all gradients of weights
    untrimmed   asks for those of all inputs

Both are run in turns (A B A B ...); printed is the median of the ratios of process time, which is what to look at on a
machine that does other work, and of wall time.

    python benchmarks/trimming.py --batch 10000 --width 64
"""

import argparse
import itertools
import statistics
import time

import jax
import numpy as np

import xgrad


def network(layers: int, width: int, activation: str, batch: int):
    """(input, weights, function) of a multi-layer perceptron with one output, squared and summed."""
    random = np.random.default_rng(0)
    sizes = [width] * (layers + 1) + [1]
    weights = []
    for fan_in, fan_out in itertools.pairwise(sizes):
        scale = (2 / fan_in) ** 0.5
        weights.append(xgrad.tensor((random.standard_normal((fan_in, fan_out)) * scale).astype(np.float32)))
        weights.append(xgrad.zeros(fan_out))
    for w in weights:
        w.requires_grad_()
    x = xgrad.tensor(random.standard_normal((batch, width)).astype(np.float32), requires_grad=True)
    act = getattr(xgrad, activation)

    def function(x):
        for i in range(0, len(weights), 2):
            x = x @ weights[i] + weights[i + 1]
            if i < len(weights) - 2:
                x = act(x)
        return (x**2).sum()

    return x, weights, function


def timed(run, repeats: int) -> tuple[float, float]:
    """(process time, wall time) of one run."""
    cpu, wall = time.process_time(), time.perf_counter()
    for _ in range(repeats):
        result = run()
    jax.block_until_ready([jax.numpy.asarray(t.detach()) for t in result])
    return (time.process_time() - cpu) / repeats, (time.perf_counter() - wall) / repeats


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=6, help="hidden layers (default: %(default)s)")
    parser.add_argument("--width", type=int, default=64, help="units of a layer (default: %(default)s)")
    parser.add_argument("--batch", type=int, default=10_000, help="rows of the input (default: %(default)s)")
    parser.add_argument("--activation", default="relu", help="a pointwise function of xgrad (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=7, help="A B pairs (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=3, help="runs in each (default: %(default)s)")
    options = parser.parse_args()

    x, weights, function = network(options.layers, options.width, options.activation, options.batch)
    grad = xgrad.autograd.grad

    def first(inputs):
        return lambda: grad(function(x), inputs, create_graph=True)

    def second(inputs):
        return lambda: grad(grad(function(x), inputs, create_graph=True)[0].sum(), inputs, allow_unused=True)[:1]

    print(f"{options.layers} hidden layers of {options.width}, {options.activation}, batch {options.batch}; medians")
    print(f"{'':26}{'trimmed':>12}{'untrimmed':>12}{'ratio':>8}{'wall':>8}")
    for title, make in (("gradient, create_graph", first), ("and the gradient of it", second)):
        trimmed, untrimmed = make([x]), make([x, *weights])
        for run in (trimmed, untrimmed):  # compile
            timed(run, 2)
        pairs = [(timed(trimmed, options.repeats), timed(untrimmed, options.repeats)) for _ in range(options.rounds)]
        cpu = statistics.median(b[0] / a[0] for a, b in pairs)
        wall = statistics.median(b[1] / a[1] for a, b in pairs)
        a, b = (statistics.median(p[i][0] for p in pairs) * 1e3 for i in (0, 1))
        print(f"{title:26}{a:9.2f} ms{b:9.2f} ms{cpu:8.2f}{wall:8.2f}")


if __name__ == "__main__":
    main()
