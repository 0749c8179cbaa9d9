"""Operators that run recurrent layers and their cells: rnn_tanh, rnn_relu, gru, lstm (PyTorch: RNN.cpp).

A layer in one direction is one operator, a `lax.scan` over the time steps: neither the graph nor the compile time grows
with the sequence.  The products of the inputs with their weight don't depend on the state, and are computed for all
steps at once.  Packed sequences are unpacked to (time, batch, features); a sequence that has ended does not change its
state.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...base import dtypes
from ...dispatch.call import call
from ...dispatch.declare import composite, operator
from ...dispatch.on_device import beside
from ...dispatch.promotion import conj, refuse_complex, require_same_dtype
from ...dispatch.samples import COMPLEX, between, real, sample, truth
from ...dispatch.tables import FUNCTIONS
from ...tensor import Tensor

hidden: Any = partial(operator, function=False, method=False, out=False)


# -- one step ---------------------------------------------------------------------------------------------------------


def _product(x: Any, weight: Any, bias: Any) -> Any:
    out = jnp.matmul(x, weight.T)
    return out if bias is None else out + bias


def _joined(kind: str, x: Any, product: Any) -> Any:
    """The gates, from the products of the input and of the state: their sum, but a gru needs both parts of its n."""
    if kind != "gru":
        return x + product
    size = x.shape[-1] // 3 * 2
    return jnp.concatenate([x[..., :size] + product[..., :size], x[..., size:], product[..., size:]], -1)


def _apart(kind: str, grad: Any) -> tuple[Any, Any]:
    """The transpose of `_joined`."""
    if kind != "gru":
        return grad, grad
    size = grad.shape[-1] // 4
    return grad[..., : 3 * size], jnp.concatenate([grad[..., : 2 * size], grad[..., 3 * size :]], -1)


# Each takes the gates, h and c, and returns the next h, before a projection, and c.


def _simple(activation: Callable) -> Callable:
    return lambda gates, h, c: (activation(gates), None)


def _gru(gates: Any, h: Any, c: Any) -> tuple[Any, Any]:
    r, z, x, product = jnp.split(gates, 4, axis=-1)
    new = jnp.tanh(x + jax.lax.logistic(r) * product)
    return new + jax.lax.logistic(z) * (h - new), None


def _lstm(gates: Any, h: Any, c: Any) -> tuple[Any, Any]:
    i, f, g, o = jnp.split(gates, 4, axis=-1)
    c = jax.lax.logistic(f) * c + jax.lax.logistic(i) * jnp.tanh(g)
    return jax.lax.logistic(o) * jnp.tanh(c), c


# The derivative of PyTorch's relu at 0 is 0, the derivative of jnp.maximum 1/2.
_STEPS = {"rnn_tanh": _simple(jnp.tanh), "rnn_relu": _simple(jax.nn.relu), "gru": _gru, "lstm": _lstm}
_GATES = {"rnn_tanh": 1, "rnn_relu": 1, "gru": 3, "lstm": 4}


# -- cells ------------------------------------------------------------------------------------------------------------


def _check_cell(x: Any, states: Sequence[Any], w_ih: Any, w_hh: Any, gates: int, name: str) -> None:
    for what, a in (("input", x), *((f"hidden{i}", h) for i, h in enumerate(states))):
        if a.ndim != 2:
            raise (IndexError if a.ndim < 2 else RuntimeError)(
                f"{name}: {what} has to be 2-D (batch, size), but has the shape {list(a.shape)}"
            )
        require_same_dtype(a, w_ih, name)
    if x.shape[1] != w_ih.shape[1]:
        raise RuntimeError(f"input has inconsistent input_size: got {x.shape[1]} expected {w_ih.shape[1]}")
    for i, h in enumerate(states):
        if h.shape[0] != x.shape[0]:
            raise RuntimeError(f"Input batch size {x.shape[0]} doesn't match hidden{i} batch size {h.shape[0]}")
        if h.shape[1] != w_hh.shape[1]:
            raise RuntimeError(f"hidden{i} has inconsistent hidden_size: got {h.shape[1]}, expected {w_hh.shape[1]}")
    if w_ih.shape[0] != gates * w_hh.shape[1] or w_hh.shape[0] != w_ih.shape[0]:
        raise RuntimeError(
            f"{name}: weights {list(w_ih.shape)} and {list(w_hh.shape)} do not fit together: both need "
            f"{gates} * hidden_size rows"
        )


def _declare_cell(kind: str) -> None:
    name = f"{kind}_cell"
    step, parts = _STEPS[kind], _GATES[kind]

    def cell(input, hx, w_ih, w_hh, b_ih=None, b_hh=None):
        _check_cell(input, (hx,), w_ih, w_hh, parts, name)
        if kind == "rnn_relu":
            refuse_complex(input, name)
        gates = _joined(kind, _product(input, w_ih, b_ih), _product(hx, w_hh, b_hh))
        return step(gates, hx, None)[0]

    cell.__doc__ = f"One step of `{kind}`: the next state (batch, hidden), from `input` (batch, features) and `hx`."
    x, h, w_ih, w_hh = real(2, 3), real(2, 2), real(2 * parts, 3), real(2 * parts, 2)
    samples = (sample(x, h, w_ih, w_hh, real(2 * parts), real(2 * parts)), sample(x, h, w_ih, w_hh))
    operator(name, method=False, out=False, samples=samples if kind == "rnn_relu" else samples + COMPLEX)(cell)


for _kind in ("rnn_tanh", "rnn_relu", "gru"):
    _declare_cell(_kind)


_STATE = real(2, 2)


@hidden(
    "lstm_cell",
    samples=(
        sample(real(2, 3), _STATE, _STATE, real(8, 3), real(8, 2), real(8), real(8)),
        sample(real(2, 3), _STATE, _STATE, real(8, 3), real(8, 2)), *COMPLEX,
    ),
)  # fmt: skip
def _lstm_cell(input, h, c, w_ih, w_hh, b_ih=None, b_hh=None):
    _check_cell(input, (h, c), w_ih, w_hh, 4, "lstm_cell")
    return _lstm(_product(input, w_ih, b_ih) + _product(h, w_hh, b_hh), h, c)


@composite(method=False)
def lstm_cell(
    input: Tensor, hx: Sequence[Tensor], w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None,
    b_hh: Tensor | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """One step of `lstm`: the next (state, cell), each (batch, hidden), from `input` (batch, features) and `hx`."""
    if len(hx) != 2:
        raise RuntimeError("lstm_cell expects two hidden states")
    return call(_lstm_cell.operator, (input, *hx, w_ih, w_hh, b_ih, b_hh), ())


# -- layers -----------------------------------------------------------------------------------------------------------


def _small(*shape: int) -> Any:
    return between(-0.7, 0.7, *shape)  # for large complex numbers tanh has poles


def _layer_sample(kind: str, *rest: Any, biased: bool = True, cell: Any = None, reverse: bool = False) -> Any:
    rows = 2 * _GATES[kind]
    biases = (_small(rows), _small(rows)) if biased else (None, None)
    arrays = (_small(2, 2, 1), _small(2, 2), cell, _small(rows, 1), _small(rows, 2), *biases)
    return sample(*arrays, *rest, kind=kind, reverse=reverse)


_LAYERS = (
    _layer_sample("rnn_tanh", None, None), _layer_sample("gru", None, truth(2, 2), biased=False),
    _layer_sample("lstm", None, None, cell=_small(2, 2), reverse=True), *COMPLEX,
)  # fmt: skip


def _next(kind: str, w_hr: Any, alive: Any, gates: Any, h: Any, c: Any) -> tuple[Any, Any]:
    """The state after one step: projected, and unchanged where a sequence has ended."""
    new, cell = _STEPS[kind](gates, h, c)
    if w_hr is not None:
        new = jnp.matmul(new, w_hr.T)
    if alive is None:
        return new, cell
    return jax.tree.map(lambda n, old: jnp.where(alive[:, None], n, old), (new, cell), (h, c))


@hidden("recurrent_layer", samples=_LAYERS)
def _layer(input, h, c, w_ih, w_hh, b_ih, b_hh, w_hr, alive, *, kind, reverse):
    """One direction of one layer: (outputs (time, batch, hidden), last state, last cell of an lstm)."""

    def along(state: tuple, at: tuple) -> tuple[tuple, Any]:
        x, goes_on = at
        gates = _joined(kind, x, _product(state[0], w_hh, b_hh))
        new = _next(kind, w_hr, goes_on, gates, *state)
        return new, new[0]

    (h, c), out = jax.lax.scan(along, (h, c), (_product(input, w_ih, b_ih), alive), reverse=reverse)
    return (out, h) if c is None else (out, h, c)


def _layer_backward(input, h, c, w_ih, w_hh, b_ih, b_hh, w_hr, alive, result, grads, kind, reverse):
    """Gradients of a layer: one product in each step of its loop, of the state's gradient.

    The outputs are the states.  So the products of forward's loop are one product of all steps here, as are the
    gradients of the weights; the cells of an lstm are not saved, but need no product.
    """
    before = jnp.concatenate([result[1:], h[None]] if reverse else [h[None], result[:-1]])
    gates = _joined(kind, _product(input, w_ih, b_ih), _product(before, w_hh, b_hh))

    def cell(c: Any, at: tuple) -> tuple[Any, Any]:
        goes_on, gates, h = at
        return _next(kind, w_hr, goes_on, gates, h, c)[1], c

    _, cells = jax.lax.scan(cell, c, (alive, gates, before), reverse=reverse)
    grad, *last = map(conj, grads)

    def back(after: tuple, at: tuple) -> tuple[tuple, Any]:
        (grad_h, grad_c, grad_w), (grad, goes_on, *values) = after, at
        _, pull = jax.vjp(lambda w_hr, *values: _next(kind, w_hr, goes_on, *values), w_hr, *values)
        own, gates, h, c = pull((grad_h + grad, grad_c))
        h = h + jnp.matmul(_apart(kind, gates)[1], w_hh)
        return (h, c, jax.tree.map(jnp.add, grad_w, own)), gates

    start = (*last, None)[:2] + (jax.tree.map(jnp.zeros_like, w_hr),)
    (h, c, w_hr), gates = jax.lax.scan(back, start, (grad, alive, gates, before, cells), reverse=not reverse)
    x, product = _apart(kind, gates)
    weights = [jnp.tensordot(g, factor, ((0, 1), (0, 1))) for g, factor in ((x, input), (product, before))]
    found = jnp.matmul(x, w_ih), h, c, *weights, x.sum((0, 1)), product.sum((0, 1)), w_hr
    return [*map(conj, found), None]


_layer.derivative(all=_layer_backward)


def _check_layer(kind: str, x: Tensor, h: Tensor, c: Tensor | None, weights: tuple) -> None:
    """Check shapes and dtypes of one layer in one direction; the program assumes them."""
    w_ih, w_hh, b_ih, b_hh, w_hr = weights
    gates, features, batch = _GATES[kind], x.shape[-1], x.shape[1]
    size = w_hh.shape[0] // gates
    out = size if w_hr is None else w_hr.shape[0]
    if features != w_ih.shape[-1]:
        raise RuntimeError(
            f"{kind}: mat1 and mat2 shapes cannot be multiplied ({x.shape[0] * batch}x{features} and "
            f"{w_ih.shape[-1]}x{w_ih.shape[0]}): the input has {features} features, its weight takes {w_ih.shape[-1]}"
        )
    if h.shape[-1] != w_hh.shape[-1]:
        raise RuntimeError(
            f"{kind}: mat1 and mat2 shapes cannot be multiplied ({h.shape[0]}x{h.shape[-1]} and "
            f"{w_hh.shape[-1]}x{w_hh.shape[0]}): the state has {h.shape[-1]} elements, its weight takes "
            f"{w_hh.shape[-1]}"
        )
    wanted = [
        (w_ih, (gates * size, features)), (w_hh, (gates * size, out)), (b_ih, (gates * size,)),
        (b_hh, (gates * size,)), (w_hr, (out, size)), (h, (batch, out)), (c, (batch, size)),
    ]  # fmt: skip
    names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr", "hx", "cx")
    for name, (a, shape) in zip(names, wanted, strict=True):
        if a is None:
            continue
        if tuple(a.shape) != shape:
            raise RuntimeError(
                f"{kind}: the size of tensor {name} must match: expected {list(shape)} (input {list(x.shape)}), but "
                f"got {list(a.shape)}"
            )
        require_same_dtype(x, a, kind)


def _layers(
    kind: str, x: Tensor, alive: Tensor | None, states: Sequence[Tensor], params: Sequence[Tensor], biases: bool,
    num_layers: int, dropout: float, train: bool, bidirectional: bool,
) -> tuple:  # fmt: skip
    """Run all layers: (outputs (time, batch, directions * hidden), the last states)."""
    directions = 2 if bidirectional else 1
    if x.ndim != 3:
        raise RuntimeError(f"{kind}: input must have 3 dimensions, got {x.ndim}: (time, batch, features)")
    for s in states:
        if s.ndim != 3:
            raise RuntimeError(f"{kind}: hx must have 3 dimensions, got {s.ndim}: (layers, batch, hidden)")
    projected = kind == "lstm" and states[0].shape[-1] != states[1].shape[-1]
    each = (4 if biases else 2) + projected
    if len(params) % each:
        raise RuntimeError(f"got an incorrect number of RNN parameters: {len(params)}, not a multiple of {each}")
    count = num_layers * directions
    if any(s.shape[0] != count for s in states):
        more = any(s.shape[0] < count for s in states)
        raise RuntimeError(
            f"Expected {'more' if more else 'fewer'} hidden states in stacked_rnn: {count} for {num_layers} layer(s) "
            f"and {directions} direction(s), but got {[s.shape[0] for s in states]}"
        )
    if len(params) != each * count:
        raise RuntimeError(f"Expected more weights in stacked_rnn: {each * count}, but got {len(params)} for {count}")
    if not x.shape[0]:
        raise RuntimeError("Expected sequence length to be larger than 0 in RNN")
    given = [s.unbind(0) for s in states]
    last: list[tuple] = []
    for layer in range(num_layers):
        outs = []
        for direction in range(directions):
            i = layer * directions + direction
            own = tuple(params[i * each : (i + 1) * each])
            weights = (*own[:2], *(own[2:4] if biases else (None, None)), own[-1] if projected else None)
            h, c = given[0][i], given[1][i] if len(given) > 1 else None
            _check_layer(kind, x, h, c, weights)
            out, *end = call(_layer.operator, (x, h, c, *weights, alive), (kind, direction == 1))
            outs.append(out)
            last.append(tuple(end))
        x = outs[0] if directions == 1 else FUNCTIONS[""]["cat"](outs, -1)
        if dropout and train and layer < num_layers - 1:
            x = FUNCTIONS["nn.functional"]["dropout"](x, dropout, True)
    if x.requires_grad and directions == 1:
        x = x.clone()  # backward of the layer needs the outputs, and the caller may write into them, as PyTorch's may
    return x, *(FUNCTIONS[""]["stack"](list(ends)) for ends in zip(*last, strict=True))


# -- packed sequences -------------------------------------------------------------------------------------------------


def _places(data: Tensor, batch_sizes: Tensor, kind: str) -> tuple[np.ndarray, np.ndarray]:
    """(alive (time, batch), the row of `data` at each place); `batch_sizes`: the number of sequences alive."""
    sizes = np.asarray(batch_sizes.detach()).astype(np.int64)
    if sizes.ndim != 1 or not sizes.size:
        raise RuntimeError(f"{kind}: batch_sizes has to be a 1-D tensor with a size for each time step")
    if (np.diff(sizes) > 0).any() or sizes[-1] < 1 or sizes.sum() != data.shape[0]:
        raise RuntimeError(
            f"{kind}: batch_sizes has to be positive and not to grow, and its sum to be the length of the data; but "
            f"got {sizes.tolist()}, of sum {sizes.sum()}, for a length of {data.shape[0]}: it exceeds dimension size "
            f"({data.shape[0]}), or leaves rows out"
        )
    alive = np.arange(sizes[0]) < sizes[:, None]
    rows = np.where(alive, (np.cumsum(sizes) - sizes)[:, None] + np.arange(sizes[0]), 0)
    return alive, rows


# -- the public functions ---------------------------------------------------------------------------------------------

_SHARED = ("hx", "params", "has_biases", "num_layers", "dropout", "train", "bidirectional")
_PADDED = ("input", *_SHARED, "batch_first")
_PACKED = ("data", "batch_sizes", *_SHARED)


def _bound(kind: str, args: tuple, named: dict[str, Any]) -> dict[str, Any]:
    """Bind the arguments to names; a list as the fourth argument, or a name, marks packed sequences."""
    packed = {"data", "batch_sizes"} & set(named) or (len(args) > 3 and isinstance(args[3], (list, tuple)))
    names = _PACKED if packed else _PADDED
    found = dict(zip(names, args), **{k: v for k, v in named.items() if k not in names[: len(args)]})
    if len(args) > len(names) or set(found) != set(names) or len(found) != len(args) + len(named):
        raise TypeError(
            f"{kind}() received an invalid combination of arguments: it takes ({', '.join(_PADDED)}) or "
            f"({', '.join(_PACKED)})"
        )
    return found


def _declare(kind: str) -> None:
    def run(*tensors: Any, **named: Any) -> tuple:
        given = _bound(kind, tensors, named)
        states = list(given["hx"]) if kind == "lstm" else [given["hx"]]
        if kind == "lstm" and len(states) != 2:
            raise RuntimeError("lstm expects two hidden states")
        how: Any = (states, list(given["params"]), *(given[name] for name in _SHARED[2:]))
        if "data" not in given:
            x, first = given["input"], given["batch_first"]
            if first and x.ndim == 3:
                x = x.transpose(0, 1)
            out, *ends = _layers(kind, x, None, *how)
            return (out.transpose(0, 1) if first else out, *ends)
        data = given["data"]
        alive, rows = _places(data, given["batch_sizes"], kind)
        x = data[beside(data, rows.astype(dtypes.default_integer()))]
        out, *ends = _layers(kind, x, beside(data, alive), *how)
        kept = np.flatnonzero(alive).astype(dtypes.default_integer())
        return (out.flatten(0, 1)[beside(data, kept)], *ends)

    run.__name__ = run.__qualname__ = kind
    states = "hx = (h, c)" if kind == "lstm" else "hx"
    run.__doc__ = f"""A recurrent network over time: `{kind}({", ".join(_PADDED)})`.

    `input` (time, batch, features), with `batch_first` (batch, time, features); {states}, each (num_layers *
    directions, batch, hidden); `params`: weight_ih, weight_hh and, with `has_biases`, bias_ih and bias_hh of each layer
    and direction.  Gives the outputs of the last layer (time, batch, directions * hidden), and the last states.
    `dropout` is between layers, in training.  Packed sequences: `{kind}({", ".join(_PACKED)})`.

    Raises `RuntimeError` for a wrong number of states or weights, and for shapes that do not fit together.
    """
    composite(kind, method=False)(run)


for _kind in _STEPS:
    _declare(_kind)
