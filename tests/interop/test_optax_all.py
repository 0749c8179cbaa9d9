"""Every transformation of optax, by xgrad's Optimizer and by optax itself: the same parameters after some steps."""

import functools
import inspect
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import optax
import optax.contrib
import pytest

import xgrad
from xgrad.interop.optax import Optimizer

# With arguments that have no default, or that differ from it so that the transformation does something at once.
GIVEN = {
    "adaptive_grad_clip": lambda: optax.adaptive_grad_clip(0.1),
    "add_noise": lambda: optax.add_noise(0.1, 0.5, 3),
    "apply_if_finite": lambda: optax.apply_if_finite(optax.adam(0.1), 3),
    "clip": lambda: optax.clip(0.3),
    "clip_by_block_rms": lambda: optax.clip_by_block_rms(0.3),
    "clip_by_global_norm": lambda: optax.clip_by_global_norm(0.3),
    "conditionally_transform": lambda: optax.conditionally_transform(optax.scale(2.0), lambda step: step % 2 == 0),
    "ema": lambda: optax.ema(0.9),
    "flatten": lambda: optax.flatten(optax.adam(0.1)),
    "inject_hyperparams": lambda: optax.inject_hyperparams(optax.adamw)(optax.linear_schedule(0.1, 0.0, 4)),
    "noisy_sgd": lambda: optax.noisy_sgd(0.1, key=3),
    "masked": lambda: optax.masked(optax.scale(3.0), [True, False]),
    "multi_transform": lambda: optax.partition({"a": optax.adam(0.1), "b": optax.sgd(0.1)}, ["a", "b"]),
    "freeze": lambda: optax.transforms.freeze([True, False]),
    "scale": lambda: optax.scale(-0.1),
    "scale_by_schedule": lambda: optax.scale_by_schedule(optax.cosine_decay_schedule(0.1, 4)),
    "stateless": lambda: optax.stateless(lambda updates, params: jax.tree.map(jnp.sign, updates)),
    "trace": lambda: optax.trace(0.9, nesterov=True),
    "multi_steps": lambda: optax.MultiSteps(optax.adam(0.1), 2),
    "chain": lambda: optax.chain(optax.clip_by_global_norm(1.0), optax.adam(optax.linear_schedule(0.0, 0.1, 2))),
    "scale_by_muon": lambda: optax.contrib.scale_by_muon(
        weight_dimension_numbers=lambda params: jax.tree.map(lambda _: optax.contrib.MuonDimensionNumbers(), params)
    ),
    "mechanize": lambda: optax.contrib.mechanize(optax.sgd(0.1)),
    "schedule_free": lambda: optax.contrib.schedule_free(optax.sgd(0.1), 0.1),
    "sam": lambda: optax.contrib.sam(optax.sgd(0.1), optax.sgd(0.05), sync_period=2),
    "split_real_and_imaginary": lambda: optax.contrib.split_real_and_imaginary(optax.adam(0.1)),
    "dpsgd": None,  # gradients with a dimension more
}  # fmt: skip
# These take the value of the loss, or a function of it: tests/interop/test_optax_closure.py.
MORE = {
    "lbfgs", "polyak_sgd", "scale_by_polyak", "hutchinson_estimator_diag_hessian", "momo", "momo_adam", "sophia",
    "reduce_on_plateau",
}  # fmt: skip


def transformations():
    """(name, transformation) of all that optax makes without arguments, or with a learning rate alone."""
    for module in (optax, optax.contrib):
        for name, function in sorted(vars(module).items()):
            if not inspect.isfunction(function) or name in MORE or name in GIVEN or name.startswith("_"):
                continue
            needed = [
                p.name for p in inspect.signature(function).parameters.values()
                if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
            ]  # fmt: skip
            if needed in ([], ["learning_rate"]):
                with warnings.catch_warnings():
                    warnings.filterwarnings("ignore", "`optimistic_adam` is deprecated", DeprecationWarning)
                    tx = function(0.1) if needed else function()
                if isinstance(tx, optax.GradientTransformation):
                    yield name, tx
    yield from ((name, make()) for name, make in GIVEN.items() if make is not None)


@functools.cache
def every():
    return dict(transformations())


SHAPE = (4, 3)
PARTS = 8
PAIRS = {"masked", "multi_transform", "freeze"}  # which are made for two parameters


@pytest.fixture(autouse=True)
def _quickly_compiled():
    """It is about values, in programs of their own, and compiling is most of the time."""
    before = jax.config.values["jax_disable_most_optimizations"]
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", before)


def test_none_is_forgotten():
    assert len(every()) > 80
    assert {"adam", "adamw", "sgd", "muon", "prodigy", "scale_by_lbfgs", "schedule_free_adamw"} <= every().keys()


@pytest.mark.exhaustive
@pytest.mark.one_in(8)
@pytest.mark.parametrize("part", range(PARTS))
def test_steps_are_those_of_optax(part):
    """Several transformations at once, each on a group of its own: one program."""
    names = sorted(every())[part::PARTS]
    rng = np.random.default_rng(part)
    counts = [2 if name in PAIRS else 1 for name in names]
    values = [[rng.standard_normal(SHAPE) for _ in range(n)] for n in counts]
    params = [[xgrad.tensor(v, requires_grad=True) for v in pair] for pair in values]
    optimizer = Optimizer([{"params": p, "tx": every()[name]} for p, name in zip(params, names)])

    txs = [optax.with_extra_args_support(every()[name]) for name in names]
    arrays = [[jnp.asarray(v) for v in pair] for pair in values]
    states = [tx.init(a) for tx, a in zip(txs, arrays)]

    @jax.jit
    def update(grads, states, arrays):
        steps = [tx.update(g, s, a) for tx, g, s, a in zip(txs, grads, states, arrays)]
        return [optax.apply_updates(a, u) for a, (u, _) in zip(arrays, steps)], [s for _, s in steps]

    for _ in range(3):
        grads = [[rng.standard_normal(SHAPE) for _ in range(n)] for n in counts]
        for pair, own in zip(params, grads):
            for p, g in zip(pair, own):
                p.grad = xgrad.tensor(g)
        optimizer.step()
        arrays, states = update([[jnp.asarray(g) for g in own] for own in grads], states, arrays)
        for name, pair, own in zip(names, params, arrays):
            for p, a in zip(pair, own):
                np.testing.assert_allclose(p.detach().numpy(), a, rtol=1e-9, atol=1e-12, err_msg=name)
