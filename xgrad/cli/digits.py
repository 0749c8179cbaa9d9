"""The network and data of `python -m xgrad demo`: a recurrent classifier of scikit-learn's handwritten digits."""

from collections.abc import Callable
from typing import Any

import xgrad

HIDDEN, BATCH, STEPS, CLASSES = 128, 128, 8, 10
EPOCHS, ACCURACY = 30, 0.95  # a training of at least EPOCHS epochs must have at least this test accuracy
DRIFT = 1e-3  # the largest relative difference of eager and compiled losses in the first epoch


def recur(x: Any, w_in: Any, w_state: Any, bias: Any) -> Any:
    """Return the last state of a recurrent layer over `x` [batch, steps, features].

    All states lie in one buffer, batch first as the images do, and are written through views of a view of it.  Each
    write makes `states` stale: the next `states[t]` makes its grad_fn anew.
    """
    batch, steps, _ = x.shape
    buffer = xgrad.zeros(batch, steps + 1, w_state.shape[0], dtype=x.dtype, device=x.device)
    states = buffer.transpose(0, 1)
    for t in range(steps):
        states[t + 1].copy_(xgrad.tanh(x[:, t] @ w_in + states[t] @ w_state + bias))
    return states[steps]


def loss_of(x: Any, labels: Any, w_in: Any, w_state: Any, bias: Any, w_out: Any, b_out: Any) -> Any:
    """Return the mean cross entropy of a batch."""
    logits = recur(x, w_in, w_state, bias) @ w_out + b_out
    return xgrad.nn.functional.cross_entropy(logits, labels)


def new_parameters(device: Any) -> list[Any]:
    """Return the input, state and output weights with their biases: leaf tensors that require grad."""
    shapes = [((STEPS, HIDDEN), STEPS), ((HIDDEN, HIDDEN), HIDDEN), ((HIDDEN,), 0)]
    shapes += [((HIDDEN, CLASSES), HIDDEN), ((CLASSES,), 0)]
    parameters = []
    for shape, inputs in shapes:
        values = xgrad.randn(*shape) / inputs**0.5 if inputs else xgrad.zeros(*shape)
        parameters.append(values.to(device).requires_grad_())
    return parameters


@xgrad.no_grad()
def accuracy_of(data: dict[str, Any], parameters: list[Any]) -> float:
    """Return the part of the test images that the parameters classify correctly."""
    w_in, w_state, bias, w_out, b_out = parameters
    logits = recur(data["test"], w_in, w_state, bias) @ w_out + b_out
    return (logits.argmax(1) == data["test_labels"]).sum().item() / len(data["test_labels"])


def update_of(parameters: list[Any], optimizer: Any) -> Callable[..., Any]:
    """Return a training step: a function of a batch and its labels that returns the loss."""

    def step(x: Any, labels: Any) -> Any:
        optimizer.zero_grad()
        # The states saved for backward lie in a buffer that later steps write: PyTorch's version check would raise.
        # Under this context manager nothing is cloned for that: a saved array is immutable.
        with xgrad.autograd.graph.allow_mutation_on_saved_tensors():
            loss = loss_of(x, labels, *parameters)
            loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def parts(seed: int) -> dict[str, Any]:
    """Return scikit-learn's digits as NumPy arrays; a fifth is the test set."""
    from sklearn.datasets import load_digits  # an optional library
    from sklearn.model_selection import train_test_split

    images, labels = load_digits(return_X_y=True)
    images = (images.reshape(-1, STEPS, 8) / 16).astype("float32")
    found = train_test_split(images, labels.astype("int32"), test_size=0.2, stratify=labels, random_state=seed)
    return dict(zip(("train", "test", "train_labels", "test_labels"), found))


def shortfall(epochs: int, accuracy: float) -> str | None:
    """Return the message of a failure if the training was long enough and its test accuracy is too low, else None."""
    if epochs < EPOCHS or accuracy >= ACCURACY:
        return None
    return f"FAILED: after {epochs} epochs the test accuracy should be at least {ACCURACY:.0%}"
