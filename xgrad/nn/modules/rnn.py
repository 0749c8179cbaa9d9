"""RNN, LSTM and GRU layers, and their cells (PyTorch: torch/nn/modules/rnn.py).

A layer in one direction is one operator, a scan over time (`xgrad/ops/nn/recurrent.py`).
"""

import math
import warnings
from collections.abc import Iterable
from typing import Any, ClassVar

import numpy as np

from ...config import state
from ...dispatch.tables import FUNCTIONS
from ...tensor import Tensor
from .. import init
from ..module import Module
from ..parameter import Parameter
from ..utils.rnn import PackedSequence

_x: dict[str, Any] = FUNCTIONS[""]
_GATES = {"RNN_TANH": 1, "RNN_RELU": 1, "GRU": 3, "LSTM": 4}


def _draw(parameters: Iterable[Tensor], hidden_size: int) -> None:
    """Draw all parameters uniformly from ±1/√hidden_size."""
    bound = 1 / math.sqrt(hidden_size) if hidden_size > 0 else 0.0
    for parameter in parameters:
        init.uniform_(parameter, -bound, bound)


def _ordered(x: Tensor, order: Tensor | None) -> Tensor:
    """Return states with their batch in another order."""
    return x if order is None else x.index_select(1, order)


def _check_arguments(given: dict[str, Any]) -> None:
    dropout, layers = given["dropout"], given["num_layers"]
    if isinstance(dropout, bool) or not isinstance(dropout, (int, float)) or not 0 <= dropout <= 1:
        raise ValueError(
            "dropout should be a number in range [0, 1] representing the probability of an element being zeroed"
        )
    if dropout > 0 and layers == 1:
        warnings.warn(
            "dropout option adds dropout after all but last recurrent layer, so non-zero dropout expects num_layers "
            f"greater than 1, but got dropout={dropout} and num_layers={layers}",
            stacklevel=4,
        )
    for name, kind in (("bias", bool), ("batch_first", bool), ("input_size", int), ("hidden_size", int)):
        if not isinstance(given[name], kind):
            raise TypeError(f"{name} should be of type {kind.__name__}, got: {type(given[name]).__name__}")
    for name in ("input_size", "hidden_size", "num_layers"):
        if given[name] <= 0:
            raise ValueError(f"{name} must be greater than zero")
    if given["proj_size"] < 0:
        raise ValueError("proj_size should be a positive integer or zero to disable projections")
    if given["proj_size"] >= given["hidden_size"]:
        raise ValueError("proj_size has to be smaller than hidden_size")


class RNNBase(Module):
    """The common part of RNN, LSTM and GRU: parameters, checks, and the forward over all layers and directions.

    `mode` is "RNN_TANH", "RNN_RELU", "LSTM" or "GRU".
    """

    __constants__: ClassVar[tuple[str, ...]] = (
        "mode", "input_size", "hidden_size", "num_layers", "bias", "batch_first", "dropout", "bidirectional",
        "proj_size",
    )  # fmt: skip
    mode: str
    input_size: int
    hidden_size: int
    num_layers: int
    bias: bool
    batch_first: bool
    dropout: float
    bidirectional: bool
    proj_size: int

    def __init__(
        self, mode: str, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True,
        batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, proj_size: int = 0,
        device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        _check_arguments(locals())
        if mode not in _GATES:
            raise ValueError(f"Unrecognized RNN mode: {mode}")
        self.mode, self.input_size, self.hidden_size, self.num_layers = mode, input_size, hidden_size, num_layers
        self.bias, self.batch_first, self.dropout = bias, batch_first, float(dropout)
        self.bidirectional, self.proj_size = bidirectional, proj_size
        out, rows = proj_size or hidden_size, _GATES[mode] * hidden_size
        directions = ("", "_reverse") if bidirectional else ("",)
        self._all_weights: list[list[str]] = []
        for layer in range(num_layers):
            features = input_size if layer == 0 else out * len(directions)
            shapes: dict[str, tuple[int, ...]] = {"weight_ih": (rows, features), "weight_hh": (rows, out)}
            if bias:
                shapes |= {"bias_ih": (rows,), "bias_hh": (rows,)}
            if proj_size:
                shapes["weight_hr"] = (proj_size, hidden_size)
            for direction in directions:
                names = {f"{kind}_l{layer}{direction}": shape for kind, shape in shapes.items()}
                for name, shape in names.items():
                    self.register_parameter(name, Parameter(_x["empty"](shape, device=device, dtype=dtype)))
                self._all_weights.append(list(names))
        self.reset_parameters()

    @property
    def _flat_weights_names(self) -> list[str]:
        return [name for names in self._all_weights for name in names]

    @property
    def _flat_weights(self) -> list[Any]:
        return [getattr(self, name, None) for name in self._flat_weights_names]

    @property
    def all_weights(self) -> list[list[Any]]:
        """The parameters of each layer and direction."""
        return [[getattr(self, name) for name in names] for names in self._all_weights]

    def flatten_parameters(self) -> None:
        """Do nothing: PyTorch lays the parameters out for cuDNN here, XLA does so in the program."""

    def reset_parameters(self) -> None:
        """Draw new values of all parameters, uniformly from ±1/√hidden_size."""
        _draw(self.parameters(), self.hidden_size)

    def check_input(self, input: Tensor, batch_sizes: Tensor | None) -> None:
        """Raise `ValueError` for the dtype and `RuntimeError` for the shape of an input that does not fit."""
        dtype = self._flat_weights[0].dtype
        if input.dtype != dtype and state.autocast is None:
            raise ValueError(
                f"RNN input dtype ({input.dtype}) does not match weight dtype ({dtype}): convert the input, "
                f"input.to({dtype}), or the model, model.to({input.dtype})"
            )
        expected = 3 if batch_sizes is None else 2
        if input.ndim != expected:
            raise RuntimeError(f"input must have {expected} dimensions, got {input.ndim}")
        if self.input_size != input.shape[-1]:
            raise RuntimeError(
                f"input.size(-1) must be equal to input_size. Expected {self.input_size}, got {input.shape[-1]}"
            )

    def _state_shapes(self, batch: int) -> list[tuple[int, int, int]]:
        """Return the shapes of the states: of h, and of an lstm's c."""
        count = self.num_layers * (2 if self.bidirectional else 1)
        shapes = [(count, batch, self.proj_size or self.hidden_size)]
        return [*shapes, (count, batch, self.hidden_size)] if self.mode == "LSTM" else shapes

    def get_expected_hidden_size(self, input: Tensor, batch_sizes: Tensor | None) -> tuple[int, int, int]:
        """Return the shape of the hidden state that fits an input."""
        return self._state_shapes(self._batch(input, batch_sizes))[0]

    def _batch(self, input: Tensor, batch_sizes: Tensor | None) -> int:
        if batch_sizes is not None:
            return int(np.asarray(batch_sizes.detach())[0])  # no operator, which a trace would stage
        return input.shape[0 if self.batch_first else 1]

    def _check_states(self, input: Tensor, batched: bool, states: list[Any]) -> list[Any]:
        """Return states of three dimensions.  Raises `RuntimeError` unless they have one less for a single sequence."""
        wanted = 3 if batched else 2
        kind = "batched 3-D" if batched else "unbatched 2-D"
        if any(s.ndim != wanted for s in states):
            found = ", ".join(f"{s.ndim}-D" for s in states)
            names, found = ("hx and cx", f"({found}) tensors") if len(states) > 1 else ("hx", f"{found} tensor")
            raise RuntimeError(f"For {kind} input, {names} should also be {wanted}-D but got {found}")
        return states if batched else [s.unsqueeze(1) for s in states]

    def forward(self, input: Any, hx: Any = None) -> tuple[Any, Any]:
        """Return (the outputs of the last layer, the last states).

        `input`: (time, batch, input_size), with `batch_first` (batch, time, input_size), without a batch
        (time, input_size), or a PackedSequence.  `hx`: (layers * directions, batch, hidden_size), for an LSTM a pair
        (h, c); zeros by default.  The outputs have directions * hidden_size features.

        Raises `ValueError` and `RuntimeError` for dtypes and shapes that do not fit.
        """
        sizes = order = back = None
        batched = True
        x: Any = input
        if isinstance(input, PackedSequence):
            x, sizes, order, back = input
        elif x.ndim not in (2, 3):
            raise ValueError(f"{self._get_name()}: Expected input to be 2D or 3D, got {x.ndim}D tensor instead")
        elif x.ndim == 2:
            x, batched = x.unsqueeze(0 if self.batch_first else 1), False
        states = None if hx is None else list(hx) if self.mode == "LSTM" else [hx]
        if states is not None and sizes is None:
            states = self._check_states(x, batched, states)
        self.check_input(x, sizes)
        shapes = self._state_shapes(self._batch(x, sizes))
        if states is None:
            states = [_x["zeros"](shape, dtype=x.dtype, device=x.device) for shape in shapes]
        for i, (s, shape) in enumerate(zip(states, shapes, strict=True)):
            if tuple(s.shape) != shape:
                name = f"hidden[{i}]" if self.mode == "LSTM" else "hidden"
                raise RuntimeError(f"Expected {name} size {shape}, got {list(s.shape)}")
        states = [_ordered(s, order) for s in states]
        run = _x[self.mode.lower()]
        given = tuple(states) if self.mode == "LSTM" else states[0]
        how = (self._flat_weights, self.bias, self.num_layers, self.dropout, self.training, self.bidirectional)
        out, *ends = run(x, given, *how, self.batch_first) if sizes is None else run(x, sizes, given, *how)
        if not batched:
            out, ends = out.squeeze(0 if self.batch_first else 1), [s.squeeze(1) for s in ends]
        ends = [_ordered(s, back) for s in ends]
        if sizes is not None:
            out = PackedSequence(out, sizes, order, back)
        return out, tuple(ends) if self.mode == "LSTM" else ends[0]

    def extra_repr(self) -> str:
        """Return the sizes, and the options that are not the default."""
        defaults = {
            "proj_size": 0, "num_layers": 1, "bias": True, "batch_first": False, "dropout": 0, "bidirectional": False,
        }  # fmt: skip
        options = [f"{name}={getattr(self, name)}" for name, value in defaults.items() if getattr(self, name) != value]
        return ", ".join([str(self.input_size), str(self.hidden_size), *options])


class RNN(RNNBase):
    """A recurrent network: h' = tanh(W_ih x + b_ih + W_hh h + b_hh), or relu by `nonlinearity`, over a sequence.

    `num_layers` layers follow each other, with `dropout` between them in training.  `bidirectional`: each has another
    one that goes back in time, and the features of both are joined.  `batch_first`: input and output are (batch, time,
    features).  All parameters are drawn uniformly from ±1/√hidden_size.

    >>> import xgrad
    >>> out, h = xgrad.nn.RNN(3, 4, num_layers=2)(xgrad.ones(5, 2, 3))
    >>> out.shape, h.shape
    (xgrad.Size([5, 2, 4]), xgrad.Size([2, 2, 4]))
    """

    nonlinearity: str

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, nonlinearity: str = "tanh", bias: bool = True,
        batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, device: Any = None,
        dtype: Any = None, **unknown: Any,
    ) -> None:  # fmt: skip
        _refuse_projection(unknown)
        if nonlinearity not in ("tanh", "relu"):
            raise ValueError(f"Unknown nonlinearity '{nonlinearity}'. Select from 'tanh' or 'relu'.")
        super().__init__(
            f"RNN_{nonlinearity.upper()}", input_size, hidden_size, num_layers, bias, batch_first, dropout,
            bidirectional, device=device, dtype=dtype, **unknown,
        )  # fmt: skip
        self.nonlinearity = nonlinearity


def _refuse_projection(arguments: dict[str, Any]) -> None:
    if "proj_size" in arguments:
        raise ValueError("proj_size argument is only supported for LSTM, not RNN or GRU")


class LSTM(RNNBase):
    """A network of long short-term memory, over a sequence: the gates i, f, o and the values g of a cell c.

    c' = σ(f) c + σ(i) tanh(g), h' = σ(o) tanh(c').  `proj_size`: h is projected to that size by a weight_hr.  The other
    arguments are RNN's.

    >>> import xgrad
    >>> out, (h, c) = xgrad.nn.LSTM(3, 4, bidirectional=True, batch_first=True)(xgrad.ones(2, 5, 3))
    >>> out.shape, h.shape, c.shape
    (xgrad.Size([2, 5, 8]), xgrad.Size([2, 2, 4]), xgrad.Size([2, 2, 4]))
    """

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True, batch_first: bool = False,
        dropout: float = 0.0, bidirectional: bool = False, proj_size: int = 0, device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(
            "LSTM", input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, proj_size, device,
            dtype,
        )  # fmt: skip


class GRU(RNNBase):
    """A network of gated recurrent units, over a sequence: h' = (1 - z) n + z h, with a reset gate inside of n.

    The arguments are RNN's, without `nonlinearity`.

    >>> import xgrad
    >>> out, h = xgrad.nn.GRU(3, 4)(xgrad.ones(5, 3))
    >>> out.shape, h.shape
    (xgrad.Size([5, 4]), xgrad.Size([1, 4]))
    """

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True, batch_first: bool = False,
        dropout: float = 0.0, bidirectional: bool = False, device: Any = None, dtype: Any = None, **unknown: Any,
    ) -> None:  # fmt: skip
        _refuse_projection(unknown)
        super().__init__(
            "GRU", input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, device=device,
            dtype=dtype, **unknown,
        )  # fmt: skip


# -- cells -------------------------------------------------------------------------------------------------------------


class RNNCellBase(Module):
    """The common part of the cells: parameters of `num_chunks` gates, and one step."""

    __constants__: ClassVar[tuple[str, ...]] = ("input_size", "hidden_size", "bias")
    input_size: int
    hidden_size: int
    bias: bool
    weight_ih: Any
    weight_hh: Any

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool, num_chunks: int, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__()
        self.input_size, self.hidden_size, self.bias = input_size, hidden_size, bias
        rows = num_chunks * hidden_size
        empty = _x["empty"]
        self.weight_ih = Parameter(empty(rows, input_size, device=device, dtype=dtype))
        self.weight_hh = Parameter(empty(rows, hidden_size, device=device, dtype=dtype))
        for name in ("bias_ih", "bias_hh"):
            self.register_parameter(name, Parameter(empty(rows, device=device, dtype=dtype)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new values of all parameters, uniformly from ±1/√hidden_size."""
        _draw(self.parameters(), self.hidden_size)

    def _step(self, function: str, input: Tensor, states: list[Any] | None, n_states: int) -> list[Any]:
        """Return the next states, as many as `n_states`, without a batch if the input has none."""
        name = self._get_name()
        if input.ndim not in (1, 2):
            raise ValueError(f"{name}: Expected input to be 1D or 2D, got {input.ndim}D instead")
        batched = input.ndim == 2
        x = input if batched else input.unsqueeze(0)
        if states is None:
            shape = (x.shape[0], self.hidden_size)
            states = [_x["zeros"](shape, dtype=x.dtype, device=x.device)] * n_states
        else:
            for i, s in enumerate(states):
                if s.ndim not in (1, 2):
                    which = "hidden" if n_states == 1 else f"hx[{i}]"
                    raise ValueError(f"{name}: Expected {which} to be 1D or 2D, got {s.ndim}D instead")
            states = [s if batched else s.unsqueeze(0) for s in states]
        given: Any = states[0] if n_states == 1 else tuple(states)
        found = _x[function](x, given, self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)
        found = [found] if n_states == 1 else list(found)
        return found if batched else [s.squeeze(0) for s in found]

    def extra_repr(self) -> str:
        """Return the sizes, and the options that are not the default."""
        options = [] if self.bias else ["bias=False"]
        if getattr(self, "nonlinearity", "tanh") != "tanh":
            options.append(f"nonlinearity={self.nonlinearity}")
        return ", ".join([str(self.input_size), str(self.hidden_size), *options])


class RNNCell(RNNCellBase):
    """One step of an RNN: h' = tanh(W_ih x + b_ih + W_hh h + b_hh), or relu by `nonlinearity`.

    `input` (batch, input_size) and `hx` (batch, hidden_size), or both without a batch; `hx` is zero by default.

    >>> import xgrad
    >>> xgrad.nn.RNNCell(3, 4)(xgrad.ones(2, 3)).shape
    xgrad.Size([2, 4])
    """

    nonlinearity: str

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, nonlinearity: str = "tanh", device: Any = None,
        dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(input_size, hidden_size, bias, 1, device, dtype)
        self.nonlinearity = nonlinearity

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        """Return the next state.  Raises `RuntimeError` for an unknown nonlinearity, and for sizes that do not fit."""
        if self.nonlinearity not in ("tanh", "relu"):
            raise RuntimeError(f"Unknown nonlinearity: {self.nonlinearity}")
        return self._step(f"rnn_{self.nonlinearity}_cell", input, None if hx is None else [hx], 1)[0]


class LSTMCell(RNNCellBase):
    """One step of an LSTM, from (h, c) to (h', c').

    `input` (batch, input_size), h and c (batch, hidden_size), or all without a batch; they are zero by default.

    >>> import xgrad
    >>> h, c = xgrad.nn.LSTMCell(3, 4)(xgrad.ones(2, 3))
    >>> h.shape
    xgrad.Size([2, 4])
    """

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 4, device, dtype)

    def forward(self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        """Return the next (h, c)."""
        h, c = self._step("lstm_cell", input, None if hx is None else list(hx), 2)
        return h, c


class GRUCell(RNNCellBase):
    """One step of a GRU: h' = (1 - z) n + z h.

    `input` (batch, input_size) and `hx` (batch, hidden_size), or both without a batch; `hx` is zero by default.

    >>> import xgrad
    >>> xgrad.nn.GRUCell(3, 4)(xgrad.ones(3)).shape
    xgrad.Size([4])
    """

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 3, device, dtype)

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        """Return the next state."""
        return self._step("gru_cell", input, None if hx is None else [hx], 1)[0]
