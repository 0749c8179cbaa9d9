"""The workloads of `python -m xgrad bench`: products, views, writes and training steps.  They need only jax.

Functions with an argument `T` are written for xgrad's names, which are torch's: the repository's benchmarks run the
very same lines with torch.  JAX's own form stands beside each.
"""

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import xgrad
from xgrad.utils.checkpoint import checkpoint

from .ratios import Timed, clock, wait_for

WIDE, SMALL = ((784, 512, 512, 10), 128), ((64, 64, 64, 10), 32)  # perceptrons: their layers, the batch


def normal(*shape: int, scale: float = 1.0) -> np.ndarray:
    """Return random numbers, the same for a shape in each run."""
    return (scale * np.random.default_rng(shape).standard_normal(shape)).astype(np.float32)


def arrays(values: list[np.ndarray]) -> list[jax.Array]:
    return [jnp.asarray(value) for value in values]


def leaves(values: list[np.ndarray], T: Any = xgrad) -> list[Any]:
    """Return tensors that require grad."""
    return [T.tensor(value, requires_grad=True) for value in values]


# ---------------------------------------------------------------- operators, views and writes, one by one


def product(recorded: bool) -> Timed:
    a, b = normal(4, 4), normal(4, 4)
    x, y = (xgrad.tensor(value, requires_grad=recorded) for value in (a, b))
    c, d = arrays([a, b])
    if recorded:
        kernel = jax.jit(lambda a, b: a * b)
        return Timed(lambda: x * y, lambda: kernel(c, d))
    return Timed(lambda: x * y, lambda: c * d)


def view(of: Callable[[Any], Any], eager: Callable[[Any], Any], read: bool = False) -> Timed:
    """Compare a view of a (64, 64) leaf, made as PyTorch makes it, with jax.numpy's, which copies."""
    value = normal(64, 64)
    (x,) = leaves([value])
    array = jnp.asarray(value)
    return Timed(lambda: of(x)._read() if read else of(x), lambda: eager(array))


def written(n: int) -> Callable[[], Any]:
    """Return a function that makes 100 writes of 16 elements each, at different places of a base of `n`."""
    base, new = xgrad.zeros(n), xgrad.ones(16)

    def write() -> Any:
        for start in range(0, n - 16, n // 100):
            base.narrow(0, start, 16).copy_(new)
        return base

    return write


def written_by_jax(n: int) -> Callable[[], Any]:
    base, new = jnp.zeros(n, "float32"), jnp.ones(16, "float32")

    def write() -> Any:
        result = base
        for start in range(0, n - 16, n // 100):
            result = result.at[start : start + 16].set(new)
        return result

    return write


def first_gradient(jitted: bool) -> Timed:
    values = normal(4, 4), normal(4, 4)
    x, w = leaves([*values])
    derivative = jax.grad(lambda x, w: (x * w).sum(), 1)
    gradient = jax.jit(derivative) if jitted else derivative
    both = arrays([*values])
    return Timed(lambda: xgrad.autograd.grad((x * w).sum(), w)[0], lambda: gradient(*both))


# ---------------------------------------------------------------- a long chain of tiny operations


def chain_values(*shape: int) -> list[np.ndarray]:
    return [normal(*shape), 1 + normal(*shape, scale=0.01), normal(*shape, scale=0.01)]


def chain(T: Any, nodes: int, x: Any, w: Any, c: Any) -> Any:
    for _ in range(nodes // 4):
        x = T.tanh(x * w + c) - c
    return x.sum()


def chain_gradient(T: Any, nodes: int, *shape: int) -> Callable[[], Any]:
    """Return a function that records a chain, and returns its value and two gradients."""
    x, w, c = leaves(chain_values(*shape), T)
    c = c.detach()

    def gradient() -> Any:
        loss = chain(T, nodes, x, w, c)
        return (loss.detach(), *T.autograd.grad(loss, (x, w)))

    return gradient


def first_backward(nodes: int) -> Callable[[], float]:
    """Return a function that returns the seconds of a chain's compiled backward when no program is compiled yet."""
    x, w, c = leaves(chain_values(4, 4))

    def seconds() -> float:
        loss = chain(xgrad, nodes, x, w, c)
        xgrad.autograd.compiled_backward.clear()
        start = clock()
        wait_for(xgrad.autograd.grad(loss, (x, w), compiled=True))
        return clock() - start

    return seconds


# ---------------------------------------------------------------- writes through views, and backward

BASE, WRITES = 1_000_000, 64
STARTS = range(0, BASE - 16, (BASE - 16) // WRITES)[:WRITES]


def view_writes_values() -> list[np.ndarray]:
    return [normal(BASE), normal(16)]


def view_writes(T: Any, x: Any, w: Any) -> tuple[Any, ...]:
    y = x.clone()
    for start in STARTS:
        y.narrow(0, start, 16).mul_(w)
    loss = y.sum()
    return (loss.detach(), *T.autograd.grad(loss, (x, w)))


def written_through_views(T: Any) -> Callable[[], Any]:
    tensors = leaves(view_writes_values(), T)
    return lambda: view_writes(T, *tensors)


def view_writes_by_hand(x: Any, w: Any) -> tuple[Any, ...]:
    """Compute the results of `view_writes` as a JAX program that knows its gradients: the slices do not overlap."""
    places = jnp.asarray(STARTS)[:, None] + jnp.arange(16)
    old = x[places]
    return x.sum() + (old * (w - 1)).sum(), jnp.ones_like(x).at[places].set(w), old.sum(0)


def compiled_view_writes() -> Timed:
    values = view_writes_values()
    ours, tensors = xgrad.compile(partial(view_writes, xgrad)), leaves(values)
    theirs, inputs = jax.jit(view_writes_by_hand), arrays(values)
    return Timed(lambda: ours(*tensors), lambda: theirs(*inputs), tolerance=1e-3)


# ---------------------------------------------------------------- a perceptron's training step


def mlp_values(layers: tuple[int, ...], batch: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Return weights and biases in turns; then inputs and one-hot targets."""
    weights = []
    for fan_in, fan_out in itertools.pairwise(layers):
        weights += [normal(fan_in, fan_out, scale=fan_in**-0.5), normal(fan_out, scale=0.01)]
    targets = np.eye(layers[-1], dtype=np.float32)[np.arange(batch) % layers[-1]]
    return weights, [normal(batch, layers[0]), targets]


def mlp_step(T: Any, *tensors: Any) -> list[Any]:
    """Run forward, backward, and a step of gradient descent in place."""
    *weights, x, targets = tensors
    for i in range(0, len(weights), 2):
        x = x @ weights[i] + weights[i + 1]
        if i < len(weights) - 2:
            x = T.relu(x)
    loss = -(targets * T.log_softmax(x, -1)).sum() / len(targets)
    loss.backward()
    with T.no_grad():
        for w in weights:
            w.sub_(w.grad, alpha=0.01)
            w.grad = None
    return [loss.detach(), *weights]


def mlp_step_by_jax() -> Callable[..., list[jax.Array]]:
    def loss_of(weights: list, x: Any, targets: Any) -> Any:
        for i in range(0, len(weights), 2):
            x = x @ weights[i] + weights[i + 1]
            if i < len(weights) - 2:
                x = jax.nn.relu(x)
        return -(targets * jax.nn.log_softmax(x)).sum() / len(targets)

    @partial(jax.jit, donate_argnums=0)
    def step(weights: list, x: Any, targets: Any) -> list:
        loss, gradients = jax.value_and_grad(loss_of)(weights, x, targets)
        return [loss, *(w - 0.01 * g for w, g in zip(weights, gradients))]

    return step


def mlp(
    T: Any, size: tuple[Any, ...], wrap: Callable[[Callable[..., Any]], Callable[..., Any]] = lambda step: step
) -> Callable[[], Any]:
    """Return a step that starts with the weights that the step before left."""
    values, rest = mlp_values(*size)
    step = wrap(partial(mlp_step, T))
    tensors = leaves(values, T) + [T.tensor(value) for value in rest]
    return lambda: step(*tensors)


def mlp_by_jax(size: tuple[Any, ...]) -> Callable[[], Any]:
    values, rest = mlp_values(*size)
    step, weights, batch = mlp_step_by_jax(), arrays(values), arrays(rest)

    def once() -> Any:
        nonlocal weights
        result = step(weights, *batch)
        weights = result[1:]
        return result

    return once


def compiled_mlp(size: tuple[Any, ...]) -> Timed:
    return Timed(mlp(xgrad, size, xgrad.compile), mlp_by_jax(size), tolerance=1e-3)


def traces() -> int:
    """Return how often `xgrad.compile` runs the step's own lines, over 5 batch sizes, twice each."""
    count = 0

    def step(*tensors: Any) -> Any:
        nonlocal count
        count += 1
        return mlp_step(xgrad, *tensors)

    weights = leaves(mlp_values(*SMALL)[0])
    compiled = xgrad.compile(step)
    for batch in (8, 16, 24, 32, 40) * 2:
        compiled(*weights, *map(xgrad.tensor, mlp_values(SMALL[0], batch)[1]))
    return count


def backward_programs() -> int:
    """Return how many programs compiled backward makes, over 5 batch sizes, twice each."""
    weights = leaves(mlp_values(*SMALL)[0])
    backward = xgrad.autograd.compiled_backward
    backward.clear()
    backward.reset()
    with backward():
        for batch in (8, 16, 24, 32, 40) * 2:
            mlp_step(xgrad, *weights, *map(xgrad.tensor, mlp_values(SMALL[0], batch)[1]))
    metrics = backward.metrics()
    return len(metrics["misses"]) + metrics["retraces"]


# ---------------------------------------------------------------- a transformer block

WIDTH, HEADS = 256, 4


def block_values() -> list[np.ndarray]:
    """Return gain and shift of the norm and two layers, first of attention, then of the perceptron; then the input."""
    values = []
    for wide, back in ((3 * WIDTH, WIDTH), (4 * WIDTH, 4 * WIDTH)):
        values += [1 + normal(WIDTH, scale=0.1), normal(WIDTH, scale=0.1)]
        values += [normal(WIDTH, wide, scale=WIDTH**-0.5), normal(wide, scale=0.01)]
        values += [normal(back, WIDTH, scale=back**-0.5), normal(WIDTH, scale=0.01)]
    return [*values, normal(8, 128, WIDTH)]


def heads(x: Any) -> Any:
    return x.reshape(*x.shape[:2], HEADS, WIDTH // HEADS).swapaxes(1, 2)


def block(
    x: Any, norm: Callable[..., Any], softmax: Callable[..., Any], gelu: Callable[..., Any], weights: tuple[Any, ...]
) -> Any:
    """Return the loss of the block, in the words that xgrad and jax.numpy share."""
    gain1, shift1, to_qkv, qkv_bias, out, out_bias, gain2, shift2, up, up_bias, down, down_bias = weights
    qkv = norm(x, gain1, shift1) @ to_qkv + qkv_bias
    q, k, v = (heads(qkv[:, :, i * WIDTH : (i + 1) * WIDTH]) for i in range(3))
    attended = softmax(q @ k.swapaxes(-1, -2) * (WIDTH // HEADS) ** -0.5) @ v
    x = x + attended.swapaxes(1, 2).reshape(x.shape) @ out + out_bias
    x = x + gelu(norm(x, gain2, shift2) @ up + up_bias) @ down + down_bias
    return (x * x).mean()


def block_step(*tensors: Any) -> tuple[Any, ...]:
    functional = xgrad.nn.functional
    loss = block(
        tensors[-1],
        lambda x, gain, shift: functional.layer_norm(x, (WIDTH,), gain, shift),
        lambda x: xgrad.softmax(x, -1),
        lambda x: functional.gelu(x, approximate="tanh"),
        tensors[:-1],
    )
    return (loss.detach(), *xgrad.autograd.grad(loss, tensors[:-1]))


def block_by_jax(*values: Any) -> tuple[Any, ...]:
    def norm(x: Any, gain: Any, shift: Any) -> Any:
        centred = x - x.mean(-1, keepdims=True)
        return centred * jax.lax.rsqrt((centred * centred).mean(-1, keepdims=True) + 1e-5) * gain + shift

    loss, gradients = jax.value_and_grad(lambda weights: block(values[-1], norm, jax.nn.softmax, jax.nn.gelu, weights))(
        values[:-1]
    )
    return (loss, *gradients)


def whole_block(wrap: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Timed:
    """Compare the block's loss and gradients with JAX's; `wrap` makes one program of ours."""
    values = block_values()
    step, tensors = wrap(block_step), [*leaves(values[:-1]), xgrad.tensor(values[-1])]
    theirs, inputs = jax.jit(block_by_jax), arrays(values)
    return Timed(lambda: step(*tensors), lambda: theirs(*inputs), tolerance=1e-3)


# ---------------------------------------------------------------- second derivatives


def hessian_values() -> list[np.ndarray]:
    """Return the input, and weights of 6 hidden layers of 64."""
    weights, _ = mlp_values((64,) * 7 + (1,), 1)
    return [normal(1000, 64), *weights]


def squares(activation: Callable[..., Any], x: Any, *weights: Any) -> Any:
    for i in range(0, len(weights), 2):
        x = x @ weights[i] + weights[i + 1]
        if i < len(weights) - 2:
            x = activation(x)
    return (x**2).sum()


def compiled_hessian(activation: str) -> Timed:
    """Compare the derivative, by the input, of the sum of the derivative by the input: two calls of `grad`."""
    values = hessian_values()
    act, their_act = getattr(xgrad, activation), {"tanh": jnp.tanh, "relu": jax.nn.relu}[activation]
    grad: Any = xgrad.autograd.grad  # its declared results may be None

    def twice(x: Any, *weights: Any) -> Any:
        (first,) = grad(squares(act, x, *weights), x, create_graph=True)
        return grad(first.sum(), x)[0]

    derivative = jax.grad(partial(squares, their_act))
    theirs = jax.jit(jax.grad(lambda x, *weights: derivative(x, *weights).sum()))
    ours, tensors, inputs = xgrad.compile(twice), leaves(values), arrays(values)
    return Timed(lambda: ours(*tensors), lambda: theirs(*inputs), tolerance=1e-3)


# ---------------------------------------------------------------- memory of a deep network


def temporaries(checkpointed: bool) -> float:
    """Return the MB of temporaries of a step of 24 ReLU layers; `checkpointed`: a checkpoint after each 6 layers."""
    width, layers, each = 512, 24, 6

    def part(x: Any, *weights: Any) -> Any:
        for i in range(0, len(weights), 2):
            x = xgrad.relu(x @ weights[i] + weights[i + 1])
        return x

    def step(*tensors: Any) -> tuple:
        *weights, x = tensors
        for i in range(0, len(weights), 2 * each):
            some = weights[i : i + 2 * each]
            x = checkpoint(part, x, *some, use_reentrant=False) if checkpointed else part(x, *some)
        return tuple(xgrad.autograd.grad((x * x).mean(), weights))

    weights, (x, _) = mlp_values((width,) * (layers + 1), 2048)
    return xgrad.compile(step).memory_analysis(*leaves(weights), xgrad.tensor(x)).temp_size_in_bytes / 1e6
