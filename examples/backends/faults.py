"""A training loop on a device that fails, and the numbers of one that does not.

Taught: a checkpoint on the host is all that recovery needs; a lost device is replaced by another declaration.
"""

from dataclasses import replace

import xgrad

Faults = xgrad.backends.Faults
STEPS, EVERY = 12, 3


def begin(chip):
    """Return a model and its optimizer, of the same numbers each time."""
    xgrad.manual_seed(0)
    model = xgrad.nn.Linear(16, 8).to(chip)
    return model, xgrad.optim.Adam(model.parameters(), lr=0.1)


def on_host(state):
    """Return a copy of a state, a tree of dictionaries, lists and tensors, on the host."""
    if isinstance(state, xgrad.Tensor):
        return state.detach().to("cpu", copy=True)
    if isinstance(state, dict):
        return {key: on_host(value) for key, value in state.items()}
    return [on_host(value) for value in state] if isinstance(state, list) else state


def step(n, model, optimizer, chip):
    """Train on the n-th batch."""
    x = xgrad.randn(32, 16, generator=xgrad.Generator().manual_seed(n)).to(chip)
    optimizer.zero_grad()
    model(x).tanh().pow(2).mean().backward()
    optimizer.step()


def train(chip):
    """Train to the end; return the weights, and how often a checkpoint was loaded."""
    model, optimizer = begin("cpu")
    saved, done, recoveries = on_host([model.state_dict(), optimizer.state_dict()]), 0, 0
    model, n = None, 0
    while done < STEPS:
        try:
            if model is None:
                model, optimizer = begin(chip)
                model.load_state_dict(saved[0])
                optimizer.load_state_dict(saved[1])
                n = done
            step(n, model, optimizer, chip)
            n += 1
            if n % EVERY == 0:
                saved, done = on_host([model.state_dict(), optimizer.state_dict()]), n
        except RuntimeError as error:  # of JAX's, for want of memory, or because a value is lost
            print(f"step {n}: {type(error).__name__}: {str(error)[:60]} ...")
            if "is gone" in str(error):
                chip = chip.replace(
                    faults=replace(chip.faults, seed=chip.faults.seed + 1)
                )  # the same seed: the same end
            recoveries, model = recoveries + 1, None
    return saved[0]["weight"], recoveries


if __name__ == "__main__":
    quiet, _ = train(xgrad.Backend("chip"))
    chip = xgrad.Backend("chip", faults=Faults(seed=1, launch=0.01, memory=5e-3, link=0.01, lost_device=5e-3))
    weights, recoveries = train(chip)
    print(f"recovered {recoveries} times, to the same weights: {bool((weights == quiet).all())}")
