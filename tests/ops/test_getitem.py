"""x[index] and x[index] = value, as torch's: shapes, views, node names, gradients, errors; random indices."""

import enum
import random
import warnings

import jax
import numpy as np
import pytest
import torch

import xgrad

from ..oracle import family, leaf, same_error
from ..traced import as_torch

X = (3, 4, 2)
INDICES = {
    "int": lambda T: 1,
    "negative": lambda T: -1,
    "slice": lambda T: slice(1, 3),
    "step": lambda T: slice(None, None, 2),
    "none": lambda T: None,
    "ellipsis": lambda T: Ellipsis,
    "empty": lambda T: (),
    "ints": lambda T: (0, -1, 1),
    "mixed": lambda T: (slice(None), None, 2, Ellipsis),
    "beyond": lambda T: slice(1, 99),
    "none_left": lambda T: slice(5, 2),
    "whole": lambda T: (slice(None), slice(0, None, 1)),
    "last_int": lambda T: (slice(0, 2), 1),
    "numpy_int": lambda T: np.int64(2),
    "tensor_int": lambda T: T.tensor(1),
    "list": lambda T: [0, 2, 2],
    "tensor": lambda T: T.tensor([[0, 1], [2, 2]]),
    "array": lambda T: np.array([1, 0]),
    "range": lambda T: range(2),
    "no_index": lambda T: [],
    "true": lambda T: True,
    "false": lambda T: (0, False),
    "mask": lambda T: T.tensor([True, False, True]),
    "list_mask": lambda T: [True, False, True],
    "mask_2d": lambda T: T.ones(3, 4) > 0,
    "mask_last": lambda T: (Ellipsis, T.tensor([False, True])),
    "adjacent": lambda T: (slice(None), T.tensor([0, 3]), T.tensor([1, 0])),
    "apart": lambda T: (T.tensor([0, 1]), slice(1, 3), [1, 0]),
    "int_and_tensor": lambda T: (0, slice(None), T.tensor([1, 0, 1])),
    "none_between": lambda T: ([0, 1], None, [1, 2]),
    "broadcast": lambda T: (T.tensor([[0], [2]]), T.tensor([1, 3])),
    "mask_and_tensor": lambda T: (T.tensor([True, False, True]), [1, 1]),
}


@pytest.mark.one_in(5)
@pytest.mark.parametrize("name", INDICES)
def test_read(name, path):
    def program(T):
        x = leaf(T, *X)
        y = (x * 1)[INDICES[name](T)]
        (y * y).sum().backward()
        return y, x.grad, y._is_view(), y.grad_fn.name().removeprefix("torch::autograd::")

    as_torch(program)


DUPLICATES = {"list", "tensor"}


BROADCAST = ("int", "mixed", "mask", "apart", "broadcast")


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("name", "value"),
    [(n, v) for n in INDICES if n not in DUPLICATES for v in ("number", "tensor")]
    + [(n, "broadcast") for n in BROADCAST],
)
def test_write(name, value):
    def program(T):
        x, index = leaf(T, *X), INDICES[name](T)
        y = x * 1
        shape = tuple(y[index].shape)
        v = {
            "number": lambda: 2.5,
            "tensor": lambda: leaf(T, *shape, seed=3),
            "broadcast": lambda: leaf(T, 1, 1, 1, *shape[-1:]),
        }[value]()
        y[index] = v
        (y * y).sum().backward()
        return y, x.grad, None if value == "number" else v.grad

    as_torch(program)


def some_index(rng):
    """A random index of a (3, 3, 3) tensor, as a function of the namespace."""
    entries, dim = [], 0
    for _ in range(rng.randint(1, 5)):
        kind = rng.choice(["int", "slice", "none", "ellipsis", "tensor", "tensor", "mask", "bool"])
        if kind == "none":
            entries.append(lambda T: None)
        elif kind == "ellipsis" and "ellipsis" not in [getattr(e, "kind", "") for e in entries]:
            entry = lambda T: Ellipsis  # noqa: E731
            entry.kind = "ellipsis"
            entries.append(entry)
        elif kind == "bool" and rng.random() < 0.3:
            entries.append(lambda T: True)
        elif dim < 3 and kind not in ("ellipsis", "bool"):
            n, start, step = rng.randint(-3, 2), rng.choice([None, 0, 1, -2, 5]), rng.choice([None, 1, 2])
            values = [rng.randint(-3, 2) for _ in range(2)]
            truth = [rng.random() < 0.6 for _ in range(3)]
            dim += 1
            entries.append({
                "int": lambda T, n=n: n, "slice": lambda T, a=start, s=step: slice(a, None, s),
                "tensor": lambda T, v=values: T.tensor(v), "mask": lambda T, t=truth: T.tensor(t),
            }[kind])  # fmt: skip
    return lambda T: tuple(e(T) for e in entries)


@pytest.mark.one_in(6)
@pytest.mark.parametrize("seed", range(24))
def test_random_index(seed):
    index = some_index(random.Random(seed))

    def program(T):
        x = leaf(T, 3, 3, 3)
        y = x * 1
        try:
            part = y[index(T)]
        except IndexError as error:  # masks and tensors that do not broadcast together
            return type(error).__name__
        y[index(T)] = 2.0
        (y.sum() + (part * part).sum()).backward()
        return part, part._is_view(), y, x.grad

    as_torch(program)


SEQUENCES = {
    "lists": lambda T: [[0, 1], [1, 2]],
    "tuples": lambda T: [(0, 1), (1, 2)],
    "one list": lambda T: [[0, 1]],
    "list and int": lambda T: [[0, 1], 0],
    "tensors": lambda T: [T.tensor([0, 1]), T.tensor([1, 2])],
    "0-dim tensor": lambda T: [T.tensor(0), 1],
    "arrays": lambda T: [np.array([0, 1]), np.array([1, 0])],
    "ranges": lambda T: [range(2), range(2)],
    "slice": lambda T: [slice(None), 0],
    "None": lambda T: [0, None],
    "ellipsis": lambda T: [Ellipsis, 0],
    "bools in a list": lambda T: [[True, False, True]],
    "nested": lambda T: [[[0, 1], [1, 0]], [0, 1]],
    "empty": lambda T: [[], []],
    "fractions": lambda T: [[0], [1.5]],
    "31 lists": lambda T: [[0, 1]] * 31,  # too many indices
    "letters": lambda T: "ab",
    "letters in a list": lambda T: ["a", 0],
}
ARRAYS = {
    "ints": lambda T: [0, 2],
    "32 lists": lambda T: [[0, 1]] * 32,
    "in a tuple": lambda T: ([[0, 1], [1, 0]], 0),
    "array": lambda T: np.array([[0, 1], [1, 0]]),
    "fraction": lambda T: [1.5],
    "numbers of NumPy": lambda T: [np.int64(0), np.int64(2)],
    "letter": lambda T: (0, "a"),
    "bytes": lambda T: b"a",
    "bool of NumPy": lambda T: np.bool_(True),
    "float of NumPy": lambda T: np.float64(1),
    "dict": lambda T: {},
}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", [*SEQUENCES, *ARRAYS])
@pytest.mark.parametrize("write", [False, True])
def test_sequence_is_read_as_a_tuple_with_a_warning_where_torch_does(name, write):
    def program(T):
        x = leaf(T, *X)
        y = x * 1
        index = (SEQUENCES | ARRAYS)[name](T)
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            try:
                if write:
                    y[index] = 2.0
                else:
                    y = y[index]
            except Exception as error:
                return family(error).__name__, str(error).partition(" (got")[0]
            finally:
                advice = [(w.category.__name__, str(w.message)[:70], w.filename) for w in seen]
                assert len(advice) == (name in SEQUENCES)
        (y * y).sum().backward()
        return y, x.grad, y._version, advice

    as_torch(program)


def test_assignment_at_false_does_nothing():
    def program(T):
        x, v = leaf(T, 3), leaf(T, 3, seed=1)
        y = x * 1
        y[False] = v
        before = y._version
        y[(False,)] = 2.0
        y.sum().backward()
        return y, x.grad, v.grad, before, y._version

    as_torch(program)


def test_what_is_assigned_at_false_has_to_be_a_value():
    same_error(lambda T: T.ones(3).__setitem__(False, "anything"), "can't assign a str to a")


def test_duplicates_accumulate_in_the_gradient_and_its_gradient():
    def program(T):
        x = leaf(T, 3)
        (g,) = T.autograd.grad((x[[0, 0, 2]] ** 3).sum(), x, create_graph=True)
        return g, T.autograd.grad((g * g).sum(), x)

    as_torch(program)


@pytest.mark.parametrize(
    ("index", "match"),
    [
        (5, "index 5 is out of bounds for dimension 0 with size 3"),
        ((0, 0, 0, 0), "too many indices for tensor of dimension 3"),
        (slice(None, None, -1), "step must be greater than zero"),
        (slice(0, 1, 0), "slice step cannot be zero"),
        (1.5, "only integers, slices"),
        (lambda T: T.tensor([0.5]), "tensors used as indices must be long, int, byte or bool"),
        (lambda T: T.tensor([3]), "index 3 is out of bounds for dimension 0 with size 3"),
        (lambda T: (slice(None), T.tensor([-5])), "index -5 is out of bounds for dimension 1 with size 4"),
        (lambda T: T.tensor([True, False]), r"The shape of the mask \[2\] at index 0 does not match the shape"),
        (lambda T: (T.tensor([0, 1]), T.tensor([0, 1, 2])), "shape mismatch: indexing tensors could not be broadcast"),
        (lambda T: (0, 0, 0, T.tensor([0])), "too many indices"),
    ],
)  # fmt: skip
def test_wrong_index(index, match):
    same_error(lambda T: T.ones(*X)[index(T) if callable(index) else index], match)


@pytest.mark.parametrize(
    ("index", "value", "match"),
    [
        (0, lambda T: T.ones(3), "must match"),
        (lambda T: T.tensor([0]), lambda T: T.ones(3), "cannot be broadcast to indexing result"),
        (lambda T: T.tensor([0]), lambda T: T.tensor(1), "source and destination dtypes match"),
        (0, lambda T: [1, 2], "can't assign a list"),
    ],
)
def test_wrong_value(index, value, match):
    def program(T):
        x = T.ones(*X)
        x[index(T) if callable(index) else index] = value(T)

    same_error(program, match)


def test_in_a_trace_a_mask_takes_a_number_but_gives_no_tensor():
    def filled(a):
        x = xgrad.as_tensor(a) * 1
        x[x > 1] = 0.0
        return x._read()

    assert jax.jit(filled)(np.arange(4.0)).tolist() == [0, 1, 0, 0]
    with pytest.raises(RuntimeError, match=r"boolean mask.*xgrad.where"):
        jax.jit(lambda a: xgrad.as_tensor(a)[xgrad.as_tensor(a) > 1]._read())(np.arange(4.0))
    row = jax.jit(lambda a, i: xgrad.as_tensor(a)[xgrad.as_tensor(i)]._read())
    assert row(np.arange(4.0), np.int64(2)) == 2


def test_a_write_into_a_leaf_that_requires_grad_is_refused_and_changes_nothing():
    same_error(lambda T: leaf(T, 3).__setitem__(0, 1.0), "leaf")
    x = leaf(xgrad, 3)
    with pytest.raises(RuntimeError, match="leaf"):
        x[[0, 1]] = 1.0
    assert x._version == 0
    with xgrad.no_grad():
        x[0] = 1.0
    assert x[0].item() == 1 == torch.tensor(1.0).item()


def test_more_ellipses_stand_for_no_dimensions():
    for index in ((..., ...), (..., 0, ...), (..., 0, ..., slice(None)), (None, ..., ...)):
        found = [np.asarray(T.arange(24).reshape(X)[index]).tolist() for T in (torch, xgrad)]
        assert found[1] == found[0], index


def test_members_of_enumerations_are_indices():
    class Place(enum.IntEnum):
        FIRST = 0
        SECOND = 1

    for T in (torch, xgrad):
        x = T.arange(6).reshape(2, 3)
        x[Place.SECOND, Place.FIRST] = 9
        found = [x[Place.SECOND], x[:, Place.SECOND], x[..., Place.FIRST], x[Place.FIRST :, 0]]
        assert [f.tolist() for f in found] == [[9, 4, 5], [1, 4], [0, 9], [0, 9]]
