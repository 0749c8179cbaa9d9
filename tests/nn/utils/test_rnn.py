"""Padded and packed sequences against torch's."""

import importlib

import numpy as np
import pytest

from ...oracle import as_torch, data, same_error


def of(T):
    return importlib.import_module(f"{T.__name__}.nn.utils.rnn")


def sequences(T, lengths=(3, 2, 1), requires_grad=False):
    return [data(T, (n, 2), n, requires_grad) for n in lengths]


def fields(packed):
    return [None if x is None else x for x in packed]


def gradients(T, packed, leaves):
    (packed.data * data(T, tuple(packed.data.shape), 9)).sum().backward()
    return [x.grad for x in leaves]


def packed(T, lengths=(3, 2, 1), **kwargs):
    leaves = sequences(T, lengths, True)
    made = of(T).pack_sequence(leaves, **kwargs)
    return fields(made), gradients(T, made, leaves)


def of_padded(T, lengths, batch_first=False, sort=True):
    x = data(T, (3, 3, 2), 4, True)
    made = of(T).pack_padded_sequence(x, lengths, batch_first, sort)
    return fields(made), gradients(T, made, [x])


def round_trip(T, lengths=(2, 3, 1), **kwargs):
    leaves = sequences(T, lengths, True)
    made = of(T).pack_sequence(leaves, enforce_sorted=False)
    padded, found = of(T).pad_packed_sequence(made, **kwargs)
    (padded * data(T, tuple(padded.shape), 9)).sum().backward()
    return padded, found, [x.grad for x in leaves], of(T).unpack_sequence(made)


def padded(T, lengths=(2, 3, 1), **kwargs):
    leaves = sequences(T, lengths, True)
    made = of(T).pad_sequence(leaves, **kwargs)
    (made * made).sum().backward()
    return made, [x.grad for x in leaves]


def casts(s, T):
    return [s.float(), s.double(), s.to(T.float32), s.half(), s.int()]


PROGRAMS = {
    "packed": packed,
    "unsorted": lambda T: packed(T, (2, 3, 1), enforce_sorted=False),
    "padded and packed": lambda T: of_padded(T, [3, 2, 1]),
    "by a tensor": lambda T: of_padded(T, T.tensor([3, 2, 1])),
    "equal": lambda T: of_padded(T, [2, 2, 2], True),
    "batch first": lambda T: of_padded(T, [3, 1, 1], True),
    "unsorted ones": lambda T: of_padded(T, [1, 3, 2], False, False),
    "unsorted batch first": lambda T: of_padded(T, T.tensor([1, 3, 2]), True, False),
    "round trip": round_trip,
    "round trip batch first": lambda T: round_trip(T, batch_first=True, padding_value=-1.0, total_length=5),
    "of integers": lambda T: of(T).pad_packed_sequence(
        of(T).pack_sequence([T.tensor([1, 2]), T.tensor([3])]), padding_value=-1
    ),
    "padded": padded,
    "padded batch first": lambda T: padded(T, batch_first=True, padding_value=0.5),
    "padded on the left": lambda T: padded(T, padding_side="left"),
    "padded tensor": lambda T: of(T).pad_sequence(data(T, (2, 3))),
    "padded scalars": lambda T: of(T).pad_sequence([T.tensor([1, 2]), T.tensor([3])]),
    "unpadded": lambda T: of(T).unpad_sequence(data(T, (3, 2, 2)), T.tensor([3, 1])),
    "cast": lambda T: [str(p.data.dtype)[-2:] for p in casts(of(T).pack_sequence(sequences(T)), T)],
    "cpu with a dtype": lambda T: [
        str(of(T).pack_sequence(sequences(T)).cpu(*given, **named).data.dtype)[-2:]
        for given, named in (((T.float16,), {}), ((), {"dtype": T.float16}), (("cpu",), {}), ((), {"device": "cpu"}))
    ],
    "moved to itself": lambda T: (s := of(T).pack_sequence(sequences(T))).to(T.float64) is s,
    "of two": lambda T: fields(of(T).PackedSequence((T.ones(2), T.tensor([1, 1])))),
    "inverted": lambda T: of(T).invert_permutation(T.tensor([2, 0, 1])),
    "repr": lambda T: repr(of(T).pack_sequence([T.tensor([1, 2]), T.tensor([3])], enforce_sorted=False)),
}  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_sequences_are_packed_and_padded_as_in_torch(program):
    as_torch(program)


ERRORS = {
    "not sorted": (lambda T: of_padded(T, [1, 2, 3]), "must be sorted in decreasing order"),
    "zero": (lambda T: of_padded(T, [2, 1, 0]), "Length of all samples has to be greater than 0"),
    "count": (lambda T: of_padded(T, [2, 1]), "to be equal to batch_size"),
    "too long": (lambda T: of_padded(T, [4, 2, 1]), "[Ll]ength"),
    "total length": (lambda T: round_trip(T, total_length=1), "Expected total_length to be at least"),
    "no iterable": (lambda T: of(T).pad_sequence(3), "Expected iterable for input sequences"),
    "no sequences": (lambda T: of(T).pad_sequence([]), "received an empty list of sequences"),
    "side": (lambda T: of(T).pad_sequence([T.ones(1)], padding_side="top"), "Expected padding_side to be one of"),
    "sizes": (lambda T: of(T).pad_sequence([T.ones(1, 2), T.ones(1, 3)]), "size of tensor .* must match"),
}


@pytest.mark.parametrize(("program", "match"), ERRORS.values(), ids=ERRORS)
def test_errors_say_what_torch_says(program, match):
    same_error(program, match)


def test_random_lengths_survive_a_round_trip():
    rng = np.random.default_rng(0)
    for _ in range(5):
        lengths = [3, *rng.integers(1, 4, 2).tolist()]
        as_torch(lambda T, lengths=lengths: of_padded(T, lengths, sort=False))
