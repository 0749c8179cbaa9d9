"""Recurrent layers and cells against PyTorch: values, gradients, second gradients, packed sequences, errors."""

import warnings

import jax
import numpy as np
import pytest
import torch

import xgrad

from .agreement import random

GATES = {"rnn_tanh": 1, "rnn_relu": 1, "gru": 3, "lstm": 4}
ONE_LAYER = (True, 1, 0.0, False, False, False)


def _arrays(kind, lead, batch, layers=1, directions=1, biases=True, projected=0):
    """input, states, weights: 3 features, a state of 4 elements."""
    gates, out = GATES[kind], projected or 4
    shapes = [(*lead, 3), (layers * directions, batch, out)]
    shapes += [(layers * directions, batch, 4)] if kind == "lstm" else []
    for i in range(layers * directions):
        shapes += [(gates * 4, 3 if i < directions else out * directions), (gates * 4, out)]
        shapes += [(gates * 4,)] * 2 if biases else []
        shapes += [(projected, 4)] if projected else []
    return [random(*shape, seed=i) / 2 for i, shape in enumerate(shapes)]


def _derivatives(library, function, arrays, order):
    tensors = [library.tensor(a, requires_grad=True) for a in arrays]
    found = out = list(function(library, *tensors))
    for _ in range(order):
        weights = [library.tensor(random(*o.shape, seed=100 + i)) for i, o in enumerate(out)]
        loss = sum((o * o * w).sum() for o, w in zip(out, weights))
        out = library.autograd.grad(loss, tensors, create_graph=True)
        found = found + list(out)
    return [t.detach().numpy() for t in found]


def _agree(function, arrays, order=1):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wanted = _derivatives(torch, function, arrays, order)
    for g, w in zip(_derivatives(xgrad, function, arrays, order), wanted, strict=True):
        assert g.dtype == w.dtype
        np.testing.assert_allclose(g, w, rtol=1e-6, atol=1e-9)


def _states(kind, tensors):
    return (list(tensors[:2]), list(tensors[2:])) if kind == "lstm" else (tensors[0], list(tensors[1:]))


@pytest.mark.exhaustive
@pytest.mark.one_in(4)
@pytest.mark.parametrize("kind", GATES)
def test_a_layer_and_its_second_derivatives(kind):
    def function(library, x, *tensors):
        return getattr(library, kind)(x, *_states(kind, tensors), *ONE_LAYER)

    _agree(function, _arrays(kind, (3, 2), 2), order=2)


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", ["gru", "lstm"])
def test_two_layers_in_both_directions_with_the_batch_first(kind):
    def function(library, x, *tensors):
        return getattr(library, kind)(x, *_states(kind, tensors), False, 2, 0.0, True, True, True)

    _agree(function, _arrays(kind, (2, 3), 2, layers=2, directions=2, biases=False))


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", ["rnn_tanh", "lstm"])
def test_packed_sequences_end_where_batch_sizes_say(kind):
    def function(library, data, *tensors):
        sizes = library.tensor([3, 2, 2, 1])
        return getattr(library, kind)(data, sizes, *_states(kind, tensors), True, 1, 0.0, True, True)

    _agree(function, _arrays(kind, (8,), 3, directions=2))


@pytest.mark.exhaustive
def test_lstm_with_projections():
    def function(library, x, *tensors):
        return library.lstm(x, *_states("lstm", tensors), *ONE_LAYER)

    _agree(function, _arrays("lstm", (3, 2), 2, projected=2))


@pytest.mark.exhaustive
@pytest.mark.one_in(4)
@pytest.mark.parametrize("kind", GATES)
@pytest.mark.parametrize("biases", [True, False])
def test_cells(kind, biases):
    def function(library, x, *tensors):
        hx, weights = _states(kind, tensors)
        out = getattr(library, f"{kind}_cell")(x, hx, *weights)
        return out if isinstance(out, tuple) else (out,)

    x, *rest = _arrays(kind, (2,), 2, biases=biases)
    _agree(function, [x, *(a[0] if a.ndim == 3 else a for a in rest)], order=2)


def test_relu_at_zero_has_no_slope():
    x, h = xgrad.zeros(1, 3, requires_grad=True), xgrad.zeros(1, 4)
    xgrad.rnn_relu_cell(x, h, xgrad.ones(4, 3), xgrad.ones(4, 4)).sum().backward()
    assert not x.grad.numpy().any()


def test_one_node_for_a_layer_of_any_length():
    def nodes(length):
        x = xgrad.ones(length, 2, 3, requires_grad=True)
        out = xgrad.rnn_tanh(x, xgrad.ones(1, 2, 4), [xgrad.ones(4, 3), xgrad.ones(4, 4)], False, *ONE_LAYER[1:])[0]
        seen, todo = set(), [out.grad_fn]
        while todo:
            node = todo.pop()
            if node is not None and node not in seen:
                seen.add(node)
                todo += [edge[0] for edge in node.next_functions]
        return len(seen)

    assert nodes(2) == nodes(50) == 3  # of x, of the layer, of the copy of its outputs


@pytest.mark.exhaustive
def test_dropout_is_between_layers_and_in_training_only():
    x, hx = xgrad.ones(2, 1, 3), xgrad.zeros(2, 1, 3)
    params = [xgrad.ones(3, 3)] * 4
    run = xgrad.rnn_tanh
    still = run(x, hx, params, False, 2, 1.0, False, False, False)[0]
    np.testing.assert_array_equal(still.numpy(), run(x, hx, params, False, 2, 0.0, True, False, False)[0].numpy())
    dropped = run(x, hx, params, False, 2, 1.0, True, False, False)[0]
    assert not dropped.numpy().any()  # the second layer has nothing but zeros to see


@pytest.mark.exhaustive
def test_forward_mode_and_vmap_and_jit():
    arrays = _arrays("gru", (3, 2), 2)
    x, h, *params = (xgrad.tensor(a) for a in arrays)

    def run(x):
        return xgrad.gru(x, h, params, *ONE_LAYER)[0]

    tangent = xgrad.ones(3, 2, 3, dtype=x.dtype)
    step = 1e-6
    out, moved = xgrad.func.jvp(run, (x,), (tangent,))
    np.testing.assert_allclose(((run(x + step) - run(x - step)) / (2 * step)).numpy(), moved.numpy(), atol=1e-7)
    many = xgrad.func.vmap(run)(xgrad.stack([x, x * 2]))
    np.testing.assert_allclose(many[1].numpy(), run(x * 2).numpy(), rtol=1e-9)
    jitted = jax.jit(lambda a: run(xgrad.as_tensor(a))._read())
    np.testing.assert_allclose(jitted(arrays[0]), out.numpy(), rtol=1e-9)


def test_half_precision_stays():
    x, h = xgrad.ones(3, 2, 3, dtype=xgrad.bfloat16), xgrad.zeros(1, 2, 4, dtype=xgrad.bfloat16)
    params = [xgrad.ones(12, 3, dtype=xgrad.bfloat16), xgrad.ones(12, 4, dtype=xgrad.bfloat16)]
    out, last = xgrad.gru(x, h, params, False, *ONE_LAYER[1:])
    assert out.dtype == last.dtype == xgrad.bfloat16


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"x": (5, 2, 7)}, "mat1 and mat2 shapes cannot be multiplied"),
        ({"h": (1, 2, 5)}, "mat1 and mat2 shapes cannot be multiplied"),
        ({"h": (1, 3, 4)}, "must match"),
        ({"h": (2, 2, 4)}, "hidden states in stacked_rnn"),
        ({"drop": 1}, "got an incorrect number of RNN parameters"),
        ({"drop": 4}, "Expected more weights in stacked_rnn"),
        ({"x": (0, 2, 3)}, "Expected sequence length to be larger than 0 in RNN"),
        ({"x": (2, 3)}, "input must have 3 dimensions, got 2"),
        ({"dtype": xgrad.float16}, "dtype"),
    ],
)
def test_layers_refuse_what_does_not_fit(change, text):
    x = xgrad.ones(*change.get("x", (5, 2, 3)), dtype=change.get("dtype", xgrad.float32))
    h, params = xgrad.ones(*change.get("h", (1, 2, 4))), [xgrad.ones(*s) for s in ((4, 3), (4, 4), (4,), (4,))]
    with pytest.raises(RuntimeError, match=text):
        xgrad.rnn_tanh(x, h, params[change.get("drop", 0) :], *ONE_LAYER)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda f: f(xgrad.ones(2, 5), xgrad.ones(2, 4)), RuntimeError, "inconsistent input_size: got 5 expected 3"),
        (lambda f: f(xgrad.ones(2, 3), xgrad.ones(2, 5)), RuntimeError, "hidden0 has inconsistent hidden_size: got 5"),
        (lambda f: f(xgrad.ones(2, 3), xgrad.ones(3, 4)), RuntimeError, "2 doesn't match hidden0 batch size 3"),
        (lambda f: f(xgrad.ones(3), xgrad.ones(4)), IndexError, "2-D"),
    ],
)
def test_cells_refuse_what_does_not_fit(call, error, text):
    with pytest.raises(error, match=text):
        call(lambda x, h: xgrad.gru_cell(x, h, xgrad.ones(12, 3), xgrad.ones(12, 4)))


def test_other_wrong_calls():
    x, h, weights = xgrad.ones(5, 2, 3), xgrad.ones(1, 2, 4), [xgrad.ones(16, 3), xgrad.ones(16, 4)]
    with pytest.raises(RuntimeError, match="lstm expects two hidden states"):
        xgrad.lstm(x, [h], weights, False, *ONE_LAYER[1:])
    with pytest.raises(RuntimeError, match="lstm_cell expects two hidden states"):
        xgrad.lstm_cell(x[0], [h[0]], *weights)
    with pytest.raises(TypeError, match="invalid combination of arguments"):
        xgrad.lstm(x, [h, h], weights)
    for sizes in ([2, 2, 2], [1, 2, 2], [2, 2]):
        with pytest.raises(RuntimeError, match="batch_sizes"):
            xgrad.rnn_tanh(x[:, 0], xgrad.tensor(sizes), h, [weights[0][:4], weights[1][:4]], False, *ONE_LAYER[1:-1])
