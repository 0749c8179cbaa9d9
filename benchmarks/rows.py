"""The rows of `python -m xgrad bench`, with their bounds and aims; they need only jax."""

import xgrad

from .lazy_workloads import lazily, lazy_and_eager, lazy_launches, lazy_programs
from .ratios import Counted, Row, Timed
from .workloads import (
    SMALL,
    WIDE,
    backward_programs,
    chain_gradient,
    compiled_hessian,
    compiled_mlp,
    compiled_view_writes,
    first_backward,
    first_gradient,
    mlp,
    product,
    temporaries,
    traces,
    view,
    whole_block,
    written,
    written_by_jax,
    written_through_views,
)

EAGER, COMPILED, LAZY = "eager", "compiled", "lazy"
KERNEL, JNP, JIT, THE_SAME = "the bare jitted kernel", "eager jax.numpy", "jax.jit of the same", "the same, eager"

ROWS = [
    Row("product", EAGER, "4×4 product, recorded", KERNEL, lambda: product(True), 1.7, 1.4),
    Row("product_unrecorded", EAGER, "4×4 product, not recorded", JNP, lambda: product(False), 1.05, 0.9),
    Row(
        "view_index", EAGER, "x[3], recorded", JNP,
        lambda: view(lambda x: x[3], lambda a: a[3]), 0.15, 0.1,
    ),
    Row(
        "view_reshape", EAGER, "x.reshape(16, 256), recorded", JNP,
        lambda: view(lambda x: x.reshape(16, 256), lambda a: a.reshape(16, 256)), 0.4, 0.25,
    ),
    Row(
        "view_narrow", EAGER, "x.narrow(1, 8, 16), recorded", JNP,
        lambda: view(lambda x: x.narrow(1, 8, 16), lambda a: a[:, 8:24]), 0.25, 0.15,
    ),
    Row(
        "view_read", EAGER, "x[3], recorded and read", JNP,
        lambda: view(lambda x: x[3], lambda a: a[3], read=True),
    ),
    Row(
        "write_1e8", EAGER, "16 elements written into 1e8", "the same into 1e4",
        lambda: Timed(written(10**8), written(10**4), tolerance=None), 1.5, 1.1,
    ),
    Row(
        "write_eager", EAGER, "16 elements written into 1e6", "eager .at[].set",
        lambda: Timed(written(10**6), written_by_jax(10**6)),
    ),
    Row("gradient", EAGER, "product, sum and gradient", "jax.grad, eager", lambda: first_gradient(False)),
    Row("gradient_jitted", EAGER, "product, sum and gradient", "jax.grad, jitted", lambda: first_gradient(True)),
    Row(
        "first_backward", COMPILED, "first backward of 10,000 tiny nodes", "of 1000",
        lambda: Counted(first_backward(10_000), first_backward(1000), "s", varies=True), 1.5, 1.1,
    ),
    Row(
        "programs_backward", COMPILED, "programs of backward, 5 batch shapes", "5",
        lambda: Counted(backward_programs, lambda: 5, "programs"), 1, 1,
    ),
    Row(
        "programs", COMPILED, "traces of a step, 5 batch shapes", "5",
        lambda: Counted(traces, lambda: 5, "programs"), 1, 1,
    ),
    Row(
        "view_writes", COMPILED, "64 view writes and backward", "a JAX program by hand",
        compiled_view_writes, 1.5, 1.1,
    ),
    Row("mlp_step", COMPILED, "MLP step", JIT, lambda: compiled_mlp(WIDE), 1.05, 1.0),
    Row("mlp_small", COMPILED, "small MLP step", JIT, lambda: compiled_mlp(SMALL), 1.5, 1.2),
    Row("block", COMPILED, "transformer block", JIT, lambda: whole_block(xgrad.compile), 1.05, 1.0),
    Row("hessian_tanh", COMPILED, "Hessian, tanh", JIT, lambda: compiled_hessian("tanh"), 1.05, 1.0),
    Row("hessian_relu", COMPILED, "Hessian, relu", JIT, lambda: compiled_hessian("relu"), 1.05, 1.0),
    Row(
        "checkpoint_bytes", COMPILED, "temporaries of 24 layers, checkpointed", "plain",
        lambda: Counted(lambda: temporaries(True), lambda: temporaries(False), "MB"), 0.55, 0.4,
    ),
    # Last: from a process's first lazy block on, each call of a program asks whether its thread is lazy.
    Row(
        "lazy_chain", LAZY, "100 tiny operators and backward, lazy", THE_SAME,
        lambda: lazy_and_eager(chain_gradient(xgrad, 100, 4, 4)),
    ),
    Row(
        "lazy_view_writes", LAZY, "64 view writes and backward, lazy", THE_SAME,
        lambda: lazy_and_eager(written_through_views(xgrad)), 0.8, 0.4,
    ),
    Row(
        "lazy_mlp_small", LAZY, "small MLP step, lazy", THE_SAME,
        lambda: lazy_and_eager(mlp(xgrad, SMALL), mlp(xgrad, SMALL)),
    ),
    Row(
        "lazy_mlp_step", LAZY, "MLP step, lazy", THE_SAME,
        lambda: lazy_and_eager(mlp(xgrad, WIDE), mlp(xgrad, WIDE)),
    ),
    Row("lazy_block", LAZY, "transformer block, lazy", JIT, lambda: whole_block(lazily), 1.1, 1.0),
    Row(
        "lazy_launches", LAZY, "launches of 10 lazy steps", "10",
        lambda: Counted(lazy_launches, lambda: 10, "launches"), 1, 1,
    ),
    Row(
        "lazy_programs", LAZY, "programs of a lazy step, 5 batch shapes", "5",
        lambda: Counted(lazy_programs, lambda: 5, "programs"), 1, 1,
    ),
]  # fmt: skip
