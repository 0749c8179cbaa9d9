"""Size: what its slices, sums and repetitions are, and what is none, as torch's."""

import copy
import pickle

import numpy as np
import pytest

import xgrad

from .oracle import as_torch, same_error

SIZES = {
    "slices": lambda S: [S([1, 2, 3])[1:], S([1, 2, 3])[::-1], S([1])[5:]],
    "sums": lambda S: [S([1]) + S([2]), S([1]) + (2,), (2,) + S([1]), () + S([1]), S([1]) + ()],
    "repetitions": lambda S: [S([1, 2]) * 2, 2 * S([1, 2]), S([1]) * 0, S([1]) * True],
    "from other numbers": lambda S: [S([True, np.int64(3)]), S(n for n in (2, 3)), S(S([4])), S()],
    "copies": lambda S: [copy.copy(S([1, 2])), copy.deepcopy(S([1, 2])), pickle.loads(pickle.dumps(S([1, 2])))],
}


@pytest.mark.parametrize("name", SIZES)
def test_result_is_a_size(name):
    def program(T):
        made = SIZES[name](T.Size)
        return [(isinstance(size, T.Size), tuple(map(int, size)), size.numel()) for size in made]

    as_torch(program)


def test_elements_are_ints_and_plain_tuples_are_equal():
    as_torch(lambda T: (T.Size([4, 5])[1], T.Size([1, 2]) == (1, 2), T.zeros(2, 3).shape[:1].numel()))
    assert {type(n) for n in xgrad.Size([True, np.int64(3), xgrad.tensor(2)])} == {int}


@pytest.mark.parametrize(
    ("program", "match"),
    [
        (lambda T: T.Size(["a"]), r"Size\(\) takes an iterable of 'int' \(item 0 is 'str'\)"),
        (lambda T: T.Size([1, 2.0]), r"item 1 is 'float'"),
        (lambda T: T.Size([T.tensor(3.0)]), r"item 0 is 'Tensor'"),
        (lambda T: T.Size(3), "not iterable"),
        (lambda T: T.Size([1]) + ("a",), r"item 1 is 'str'"),
        (lambda T: ("a",) + T.Size([1]), r"item 0 is 'str'"),
        (lambda T: T.Size([1]) + [2], "list"),
        (lambda T: [2] + T.Size([1]), "list"),
        (lambda T: T.Size([1]) * 1.5, "float"),
    ],
)
def test_what_is_no_size(program, match):
    same_error(program, match)


def test_arrays_compute_with_it():
    assert (xgrad.Size([2, 3]) * np.array([1, 2])).tolist() == [2, 6]
    assert (xgrad.Size([2, 3]) + np.array([1, 2])).tolist() == [3, 5]
