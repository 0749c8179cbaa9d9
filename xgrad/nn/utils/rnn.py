"""PackedSequence, pad_sequence, ...: pack or pad sequences of different lengths (PyTorch: torch/nn/utils/rnn.py).

A packed batch has the elements of all sequences in one tensor, in the order of their time steps, so that nothing is
computed for padding:

    a b c        data         a x m b y c       the sequences from the longest to the shortest
    x y          batch_sizes  3 2 1             how many sequences go on at each time step
    m
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ...base import dtypes
from ...base.jax_compat import Tracer
from ...dispatch.on_device import beside, held_of
from ...dispatch.tables import FUNCTIONS
from ...tensor import Tensor, from_array

_x: dict[str, Any] = FUNCTIONS[""]


class PackedSequence_(NamedTuple):
    """The fields of a PackedSequence."""

    data: Tensor
    batch_sizes: Tensor
    sorted_indices: Tensor | None
    unsorted_indices: Tensor | None


class PackedSequence(PackedSequence_):
    """Sequences of different lengths in one tensor; `pack_sequence` and `pack_padded_sequence` make it.

    `data` has the elements of all sequences, time step by time step, `batch_sizes` the number of sequences of each time
    step.  `sorted_indices` orders the batch by length, `unsorted_indices` is its inverse; both are None if the batch
    came in that order.

    A compiled function that takes one is traced for each choice of lengths and order, which are numbers of its program:
    what it writes into them stays in the function.

    >>> import xgrad
    >>> from xgrad.nn.utils.rnn import pack_sequence
    >>> pack_sequence([xgrad.tensor([1, 2, 3]), xgrad.tensor([4])]).data
    tensor([1, 4, 2, 3])
    """

    def __new__(
        cls, data: Any, batch_sizes: Any = None, sorted_indices: Tensor | None = None,
        unsorted_indices: Tensor | None = None,
    ) -> "PackedSequence":  # fmt: skip
        if batch_sizes is None:  # PackedSequence((data, batch_sizes))
            if not (isinstance(data, (list, tuple)) and len(data) == 2):
                raise AssertionError("Expected data to be a list or tuple of length 2: (data, batch_sizes)")
            data, batch_sizes = data
        if unsorted_indices is None:
            unsorted_indices = invert_permutation(sorted_indices)
        return super().__new__(cls, data, batch_sizes, sorted_indices, unsorted_indices)

    def _with(self, change: Callable[[Tensor], Tensor], order: bool) -> "PackedSequence":
        """Return the sequence with other data; `order`: the indices move to its device."""
        data = change(self.data)
        if data is self.data:
            return self
        indices = [
            index.to(data.device) if order and index is not None else index
            for index in (self.sorted_indices, self.unsorted_indices)
        ]
        return type(self)(data, self.batch_sizes, *indices)

    def to(self, *args: Any, **kwargs: Any) -> "PackedSequence":
        """Move or cast the data as `Tensor.to` does; the same object if that changes nothing."""
        return self._with(lambda data: data.to(*args, **kwargs), True)

    def cuda(self, *args: Any, **kwargs: Any) -> "PackedSequence":
        """`to("cuda")`; the arguments are `Tensor.to`'s."""
        return self._to_device("cuda", args, kwargs)

    def cpu(self, *args: Any, **kwargs: Any) -> "PackedSequence":
        """`to("cpu")`; the arguments are `Tensor.to`'s."""
        return self._to_device("cpu", args, kwargs)

    def _to_device(self, device: str, args: Any, kwargs: Any) -> "PackedSequence":
        """Return the sequence on a device of this type, unless the arguments name one."""
        if self.data[:0].to(*args, **kwargs).device.type != device:
            kwargs["device"] = device
        return self.to(*args, **kwargs)

    def pin_memory(self) -> "PackedSequence":
        """Pin the memory of the data."""
        return self._with(lambda data: data.pin_memory(), False)

    def is_pinned(self) -> bool:
        """Return whether the data are in pinned memory."""
        return bool(self.data.is_pinned())

    @property
    def is_cuda(self) -> bool:
        """Return whether the data are on a GPU."""
        return bool(self.data.is_cuda)

    def double(self) -> "PackedSequence":
        """`to(float64)`."""
        return self.to(dtypes.float64)

    def float(self) -> "PackedSequence":
        """`to(float32)`."""
        return self.to(dtypes.float32)

    def half(self) -> "PackedSequence":
        """`to(float16)`."""
        return self.to(dtypes.float16)

    def long(self) -> "PackedSequence":
        """`to(int64)`."""
        return self.to(dtypes.int64)

    def int(self) -> "PackedSequence":
        """`to(int32)`."""
        return self.to(dtypes.int32)

    def short(self) -> "PackedSequence":
        """`to(int16)`."""
        return self.to(dtypes.int16)

    def char(self) -> "PackedSequence":
        """`to(int8)`."""
        return self.to(dtypes.int8)

    def byte(self) -> "PackedSequence":
        """`to(uint8)`."""
        return self.to(dtypes.uint8)


def _indices(values: np.ndarray, data: Tensor | None = None) -> Tensor:
    """Return a tensor of integers, which have values in a trace too: later functions read them.

    On the backend of `data`, if it is on a declared one.
    """
    values = values.astype(dtypes.default_integer())
    with jax.ensure_compile_time_eval():
        made = jnp.asarray(values)
    return from_array(made) if data is None else beside(data, made)


def _children(sequence: PackedSequence) -> tuple[tuple[Any, ...], tuple[Any, ...] | None]:
    """The data is the tree's leaf, the other fields are numbers of the tree: a compiled function reads them."""
    if any(isinstance(held_of(field), Tracer) for field in sequence[1:]):  # a compiled function computed them
        return tuple(sequence), None
    rest = (None if field is None else tuple(_as_lengths(field).tolist()) for field in sequence[1:])
    return (sequence.data,), tuple(rest)


def _sequence(rest: tuple[Any, ...] | None, children: Any) -> PackedSequence:
    if rest is None:
        return PackedSequence(*children)
    (data,), (sizes, *orders) = children, rest
    like = data if isinstance(data, Tensor) else None  # else a leaf that JAX puts there
    indices = [None if order is None else _indices(np.array(order), like) for order in orders]
    return PackedSequence(data, _indices(np.array(sizes)), *indices)


jax.tree_util.register_pytree_node(PackedSequence, _children, _sequence)


def invert_permutation(permutation: Tensor | None) -> Tensor | None:
    """Return the inverse of a permutation of 0 ... n-1, a 1-D tensor of integers; None for None.

    >>> import xgrad
    >>> xgrad.nn.utils.rnn.invert_permutation(xgrad.tensor([2, 0, 1]))
    tensor([1, 2, 0])
    """
    return None if permutation is None else permutation.argsort()


def _as_lengths(lengths: Any) -> np.ndarray:
    values = np.asarray(lengths.detach().numpy() if isinstance(lengths, Tensor) else lengths)
    return values.astype(np.int64)


def pack_padded_sequence(
    input: Tensor, lengths: Any, batch_first: bool = False, enforce_sorted: bool = True
) -> PackedSequence:
    """Pack sequences that were padded to one length: `input` (time, batch, ...), with `batch_first` (batch, time, ...).

    `lengths` (batch), a list or tensor of integers, are read: under `xgrad.compile` they have to be numbers.  With
    `enforce_sorted` they must not grow; without it the batch is sorted by length, and `pad_packed_sequence` undoes it.

    Raises `RuntimeError` for lengths that are not sorted, zero, or of another number than the batch, `IndexError` for
    one that is greater than the time.

    >>> import xgrad
    >>> from xgrad.nn.utils.rnn import pack_padded_sequence
    >>> packed = pack_padded_sequence(xgrad.tensor([[1, 2, 3], [4, 0, 0]]), [3, 1], batch_first=True)
    >>> packed.data, packed.batch_sizes
    (tensor([1, 4, 2, 3]), tensor([2, 1, 1]))
    """
    if input.ndim < 2:
        raise RuntimeError(f"pack_padded_sequence: the input needs a time and a batch, but has {input.ndim} dimensions")
    sizes = _as_lengths(lengths)
    batch, time = (input.shape[0], input.shape[1]) if batch_first else (input.shape[1], input.shape[0])
    if sizes.ndim != 1 or len(sizes) != batch:
        raise RuntimeError(
            f"Expected `len(lengths)` to be equal to batch_size, but got lengths of shape {list(sizes.shape)} "
            f"(batch_size={batch})"
        )
    if not batch:
        raise RuntimeError("Cannot pack empty tensors.")
    order = None
    if not enforce_sorted:
        order = np.argsort(-sizes, kind="stable")
        sizes = sizes[order]
    elif (np.diff(sizes) > 0).any():
        raise RuntimeError(
            f"`lengths` array must be sorted in decreasing order when `enforce_sorted` is True, but got "
            f"{sizes.tolist()}.  With enforce_sorted=False they are sorted here"
        )
    if sizes[-1] <= 0:
        raise RuntimeError(
            "Length of all samples has to be greater than 0, but found an element in 'lengths' that is <= 0"
        )
    if sizes[0] > time:
        raise IndexError(f"Expected lengths of {time} at most, the time of the input, but got {sizes[0]}")
    step, row = np.nonzero(np.arange(sizes[0])[:, None] < sizes)
    column = row if order is None else order[row]
    flat = step + column * time if batch_first else step * batch + column
    data = input.flatten(0, 1).index_select(0, _indices(flat, input))
    batch_sizes = _indices(np.bincount(step))
    if order is None:
        return PackedSequence(data, batch_sizes)
    return PackedSequence(data, batch_sizes, _indices(order, input), _indices(np.argsort(order), input))


def pad_packed_sequence(
    sequence: PackedSequence, batch_first: bool = False, padding_value: float = 0.0, total_length: int | None = None
) -> tuple[Tensor, Tensor]:
    """Unpack to (a tensor (time, batch, ...), with `batch_first` (batch, time, ...); the lengths (batch)).

    The batch has the order that it had before it was packed.  The time is the longest sequence's, or `total_length`.
    Raises `ValueError` if that is shorter.

    >>> import xgrad
    >>> from xgrad.nn.utils.rnn import pack_sequence, pad_packed_sequence
    >>> pad_packed_sequence(pack_sequence([xgrad.tensor([1, 2]), xgrad.tensor([3])]), batch_first=True)
    (tensor([[1, 2],
            [3, 0]]), tensor([2, 1]))
    """
    sizes = _as_lengths(sequence.batch_sizes)
    time = len(sizes)
    if total_length is not None:
        if total_length < time:
            raise ValueError(
                "Expected total_length to be at least the length of the longest sequence in input, but got "
                f"total_length={total_length} and max sequence length being {time}"
            )
        time = total_length
    batch = int(sizes[0])
    alive = np.zeros((time, batch), bool)
    alive[: len(sizes)] = np.arange(batch) < sizes[:, None]
    rows = np.zeros((time, batch), np.int64)
    rows[alive] = np.arange(len(sequence.data))
    lengths = alive.sum(0)
    if sequence.unsorted_indices is not None:
        order = _as_lengths(sequence.unsorted_indices)
        alive, rows, lengths = alive[:, order], rows[:, order], lengths[order]
    if batch_first:
        alive, rows = alive.T, rows.T
    padded = sequence.data.index_select(0, _indices(rows.reshape(-1), sequence.data)).unflatten(0, rows.shape)
    if not alive.all():
        ended = beside(padded, ~alive.reshape(*alive.shape, *(1,) * (padded.ndim - 2)))
        padded = padded.masked_fill(ended, padding_value)
    return padded, _indices(lengths)


def pad_sequence(
    sequences: Any, batch_first: bool = False, padding_value: float = 0.0, padding_side: str = "right"
) -> Tensor:
    """Pad tensors (length, ...) to the longest one: (time, batch, ...), with `batch_first` (batch, time, ...).

    `padding_side` is "right", the end, or "left".  Raises `RuntimeError` for another side, for no tensors, and for
    tensors whose other sizes differ.

    >>> import xgrad
    >>> xgrad.nn.utils.rnn.pad_sequence([xgrad.tensor([1, 2]), xgrad.tensor([3])], batch_first=True)
    tensor([[1, 2],
            [3, 0]])
    """
    if not isinstance(sequences, Iterable):
        raise RuntimeError(
            f"pad_sequence: Expected iterable for input sequences, but got arg of type: {type(sequences)}"
        )
    if padding_side not in ("left", "right"):
        raise RuntimeError(f"Expected padding_side to be one of left or right, but got {padding_side}.")
    listed: list[Any] = list(sequences)
    if not listed:
        raise RuntimeError("received an empty list of sequences")
    time, rest = max(len(s) for s in listed), listed[0].shape[1:]
    for i, s in enumerate(listed):
        if s.shape[1:] != rest:
            raise RuntimeError(
                f"The size of tensor {i}, {list(s.shape)}, must match the size of tensor 0, {list(listed[0].shape)}, "
                "in all dimensions but the first"
            )
    pad = FUNCTIONS["nn.functional"]["pad"]
    none = (0, 0) * len(rest)

    def padded(s: Tensor) -> Tensor:
        n = time - s.shape[0]
        return pad(s, (*none, *((n, 0) if padding_side == "left" else (0, n))), value=padding_value) if n else s

    return _x["stack"]([padded(s) for s in listed], 0 if batch_first else 1)


def unpad_sequence(padded_sequences: Tensor, lengths: Any, batch_first: bool = False) -> list[Tensor]:
    """Return the sequences without their padding, a list of tensors (length, ...).

    >>> import xgrad
    >>> xgrad.nn.utils.rnn.unpad_sequence(xgrad.tensor([[1, 2], [3, 0]]), [2, 1], batch_first=True)
    [tensor([1, 2]), tensor([3])]
    """
    if not batch_first:
        padded_sequences = padded_sequences.transpose(0, 1)
    sizes = _as_lengths(lengths).tolist()
    return [padded_sequences[i, :n] for i, n in zip(range(len(padded_sequences)), sizes, strict=True)]


def pack_sequence(sequences: Sequence[Tensor], enforce_sorted: bool = True) -> PackedSequence:
    """Pack tensors (length, ...), which come from the longest to the shortest unless `enforce_sorted=False`.

    >>> import xgrad
    >>> xgrad.nn.utils.rnn.pack_sequence([xgrad.tensor([1, 2]), xgrad.tensor([3])]).batch_sizes
    tensor([2, 1])
    """
    lengths = [len(s) for s in sequences]
    return pack_padded_sequence(pad_sequence(sequences), lengths, enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences: PackedSequence) -> list[Tensor]:
    """Return the sequences that were packed, a list of tensors (length, ...), in their order.

    >>> import xgrad
    >>> from xgrad.nn.utils.rnn import pack_sequence, unpack_sequence
    >>> unpack_sequence(pack_sequence([xgrad.tensor([1, 2]), xgrad.tensor([3])]))
    [tensor([1, 2]), tensor([3])]
    """
    padded, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(padded, lengths, batch_first=True)
