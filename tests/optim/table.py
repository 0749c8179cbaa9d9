"""The optimizers with each of their options, and a run of one of them under either library."""

import numpy as np

SHAPES = (3,), (4, 3)

# {class: options of a case}; the first case of each is in the quick lane.  A rate at which the parameters jump about
# their targets would make 1e-16 grow to 1e-8 in a hundred steps.
OPTIONS = {
    "SGD": (
        {"lr": 0.01, "momentum": 0.9, "weight_decay": 0.1}, {"lr": 0.01},
        {"lr": 0.01, "momentum": 0.9, "dampening": 0.3},
        {"lr": 0.01, "momentum": 0.9, "nesterov": True}, {"lr": 0.01, "maximize": True, "weight_decay": 0.1},
        {"lr": 0.01, "momentum": 0.5, "dampening": 0.5, "weight_decay": 0.1, "maximize": True}, {"foreach": True},
        {"fused": True},
    ),
    "Adam": (
        {"lr": 0.1, "weight_decay": 0.1}, {}, {"lr": 0.1, "amsgrad": True}, {"lr": 0.1, "maximize": True},
        {"lr": 0.01, "betas": (0.5, 0.7), "eps": 1e-3}, {"lr": 0.01, "betas": (0.0, 0.9)},
        {"lr": 0.1, "weight_decay": 0.1, "decoupled_weight_decay": True, "amsgrad": True}, {"foreach": True},
        {"fused": True, "lr": 0.1},
    ),
    "AdamW": (
        {"lr": 0.1, "weight_decay": 0.3}, {}, {"lr": 0.1, "amsgrad": True, "weight_decay": 0.0},
        {"lr": 0.1, "maximize": True}, {"lr": 0.01, "betas": (0.5, 0.7), "eps": 1e-3},
    ),
    "NAdam": (
        {"lr": 0.1, "weight_decay": 0.1}, {}, {"lr": 0.1, "weight_decay": 0.1, "decoupled_weight_decay": True},
        {"lr": 0.1, "momentum_decay": 0.1, "maximize": True}, {"lr": 0.01, "betas": (0.5, 0.7), "eps": 1e-3},
    ),
    "RAdam": (
        {"lr": 0.1, "weight_decay": 0.1}, {}, {"lr": 0.1, "weight_decay": 0.1, "decoupled_weight_decay": True},
        {"lr": 0.1, "maximize": True}, {"lr": 0.01, "betas": (0.5, 0.7), "eps": 1e-3},
    ),
    "Adamax": (
        {"lr": 0.1, "weight_decay": 0.1}, {}, {"lr": 0.1, "maximize": True},
        {"lr": 0.01, "betas": (0.5, 0.7), "eps": 1e-3},
    ),
    "Adagrad": (
        {"lr": 0.1, "weight_decay": 0.1}, {}, {"lr": 0.1, "lr_decay": 0.1}, {"lr": 0.1, "maximize": True},
        {"lr": 0.1, "initial_accumulator_value": 0.3, "eps": 1e-3}, {"fused": True},
    ),
    "Adadelta": (
        {"weight_decay": 0.1}, {}, {"lr": 0.3, "rho": 0.5, "eps": 1e-3}, {"maximize": True},
    ),
    "RMSprop": (
        {"weight_decay": 0.1, "momentum": 0.5}, {}, {"centered": True}, {"centered": True, "momentum": 0.9},
        {"alpha": 0.5, "eps": 1e-3}, {"maximize": True},
    ),
    "Rprop": (
        {"lr": 0.1}, {}, {"lr": 0.1, "etas": (0.3, 1.5), "step_sizes": (1e-3, 0.3)}, {"maximize": True},
    ),
    "ASGD": (
        {"weight_decay": 0.1, "t0": 50.0}, {}, {"lambd": 0.1, "alpha": 0.5}, {"maximize": True},
    ),
    "Adafactor": (
        {"weight_decay": 0.1}, {}, {"lr": 0.1, "beta2_decay": -0.5, "eps": (1e-3, 1e-2), "d": 2.0},
        {"maximize": True, "lr": 0.05},
    ),
}  # fmt: skip
CASES = [(name, options) for name, all_options in OPTIONS.items() for options in all_options]
FIRST = [(name, all_options[0]) for name, all_options in OPTIONS.items()]


def told(case):
    name, options = case
    return "-".join([name, *(f"{key}={value}" for key, value in options.items())])


def parameters(lib, dtype="float32", shapes=SHAPES, seed=0):
    """Return (parameters, targets) with the same numbers in each library."""
    rng = np.random.RandomState(seed)

    def tensor(shape):
        values = rng.randn(*shape) + (1j * rng.randn(*shape) if dtype.startswith("complex") else 0)
        return lib.tensor(values.tolist(), dtype=getattr(lib, dtype))

    return [tensor(s).requires_grad_() for s in shapes], [tensor(s) for s in shapes]


def loss_of(params, targets):
    """Return a loss whose gradients neither vanish nor stay the same."""
    loss = 0
    for p, t in zip(params, targets):
        d = (p - t).abs() if p.is_complex() else p - t
        loss = loss + (d * d).sum() + d.sin().sum()
    return loss


def trained(lib, case, steps=100, dtype="float32", change=None, shapes=SHAPES):
    """Return the parameters after so many steps, and the optimizer."""
    name, options = case
    params, targets = parameters(lib, dtype, shapes)
    optimizer = getattr(lib.optim, name)(params, **options)
    for i in range(steps):
        if change is not None:
            change(i, optimizer)
        optimizer.zero_grad()
        loss = loss_of(params, targets)
        loss.backward()
        optimizer.step()
        loss.item()
    return params, optimizer


def numbers(params):
    return [p.detach().numpy() for p in params]


def same(ours, theirs, rtol):
    """Parameters, and what the optimizers know of them, are equal."""
    for a, b in zip(numbers(ours[0]), numbers(theirs[0]), strict=True):
        np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol)
    state, other = ours[1].state_dict()["state"], theirs[1].state_dict()["state"]
    assert state.keys() == other.keys()
    for key, entries in other.items():
        assert list(state[key]) == list(entries)
        for name, value in entries.items():
            mine = state[key][name]
            assert hasattr(mine, "dtype") == hasattr(value, "dtype"), name
            if hasattr(value, "dtype"):
                assert str(mine.dtype).rpartition(".")[2] == str(value.dtype).rpartition(".")[2], name
                assert mine.shape == tuple(value.shape)
                np.testing.assert_allclose(
                    mine.detach().numpy(), value.detach().numpy(), rtol=10 * rtol, atol=10 * rtol
                )
