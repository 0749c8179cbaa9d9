"""Tensor(...), Tensor.new(...), FloatTensor(...) and its family, Variable(...): against torch."""

import pathlib
import re
from collections import deque

import numpy as np
import pytest
import torch

import xgrad
from tests.oracle import same_error
from tests.traced import as_torch

# What torch leaves uninitialised may be NaN, of which `* 0` is NaN: it is filled with zeros.
MADE = {
    "nothing": lambda T, C: C(),
    "a list": lambda T, C: C([1, 0]),
    "nested lists": lambda T, C: C([[1, 2], [3, 4]]),
    "an empty list": lambda T, C: C([]),
    "a tuple": lambda T, C: C((1, 2)),
    "a range": lambda T, C: C(range(3)),
    "a deque": lambda T, C: C(deque([1, 2])),
    "bools": lambda T, C: C([True, False]),
    "fractions": lambda T, C: C([1.75, 2.0]),
    "numpy": lambda T, C: C(np.array([1, 2])),
    "named data": lambda T, C: C(data=[1, 2]),
    "a device": lambda T, C: C([1, 2], device="cpu"),
    "a device alone": lambda T, C: C(device="cpu"),
    "tensors of one element": lambda T, C: C([T.tensor(1), T.tensor(2)]),
    "sizes": lambda T, C: C(2, 3).zero_(),
    "one size": lambda T, C: C(2).zero_(),
    "no size": lambda T, C: C(0),
    "a Size": lambda T, C: C(T.Size([2, 3])).zero_(),
    "named sizes": lambda T, C: C(size=(2, 3)).zero_(),
    "an integer of NumPy": lambda T, C: C(np.int64(2)).zero_(),
    "tensors as sizes": lambda T, C: C(T.tensor(2), T.tensor(3)).zero_(),
}
REFUSED = {
    "a float": (lambda T, C: C(2.5), r"new\(\): data must be a sequence \(got float\)"),
    "a bool": (lambda T, C: C(True), r"data must be a sequence \(got bool\)"),
    "None": (lambda T, C: C(None), "data must be a sequence"),
    "a dict": (lambda T, C: C({1: 2}), "data must be a sequence"),
    "an iterator": (lambda T, C: C(iter([1])), "data must be a sequence"),
    "text": (lambda T, C: C("abc"), "invalid data type 'str'"),
    "words": (lambda T, C: C(["abc"]), "too many dimensions 'str'"),
    "lists of several lengths": (lambda T, C: C([[1, 2], [3]]), "expected sequence of"),
    "a negative size": (lambda T, C: C(-1), "negative dimension -1"),
    "a broken size": (lambda T, C: C(2, 2.5), r"argument 'size' failed to unpack the object at pos 2"),
    "two lists": (lambda T, C: C([1], [2]), r"invalid combination of arguments - got \(list, list\).*xgrad\.tensor\("),
    "a dtype": (lambda T, C: C(2, dtype=T.float32), "invalid combination of arguments"),
    "requires_grad": (lambda T, C: C([1], requires_grad=True), "got \\(list, requires_grad=bool\\)"),
    "an unknown name": (lambda T, C: C(dat=[1]), "invalid combination"),
    "data and sizes": (lambda T, C: C([1], size=(2,)), "invalid combination"),
}
CONSTRUCTORS = {
    "Tensor": lambda T: T.Tensor,
    "FloatTensor": lambda T: T.FloatTensor,
    "IntTensor": lambda T: T.IntTensor,
    "BoolTensor": lambda T: T.BoolTensor,
    "new": lambda T: T.ones(1, dtype=T.int16).new,
}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("constructor", CONSTRUCTORS)
def test_arguments_make_what_they_make_in_torch(constructor):
    for case, make in MADE.items():
        found = [make(T, CONSTRUCTORS[constructor](T)) for T in (xgrad, torch)]
        assert found[0].tolist() == found[1].tolist(), case
        assert str(found[0].dtype.name) == str(found[1].dtype).split(".")[1], case
        assert tuple(found[0].shape) == tuple(found[1].shape), case
        assert not found[0].requires_grad


@pytest.mark.parametrize("constructor", ["Tensor", "FloatTensor", "new"])
@pytest.mark.parametrize("case", REFUSED)
def test_arguments_that_make_nothing_say_so(case, constructor):
    make, match = REFUSED[case]
    same_error(lambda T: make(T, CONSTRUCTORS[constructor](T)), match)


def test_a_tensor_is_aliased():
    def program(T):
        x, i = T.tensor([1.0, 2.0]), T.tensor([1, 2], dtype=T.int32)
        same = [T.Tensor(x), T.FloatTensor(x), x.new(x), T.Tensor(other=x)]
        y = T.Tensor(i)
        T.Tensor(x).add_(1)
        return x.tolist(), [s.data_ptr() == x.data_ptr() for s in same], y.tolist(), y.data_ptr() == i.data_ptr()

    as_torch(program)


def test_an_alias_has_the_history_of_its_tensor():
    def program(T):
        x = T.tensor([1.0, 2.0], requires_grad=True)
        y = T.Tensor(x)
        (y * y).sum().backward()
        return type(y.grad_fn).__name__, x.grad.tolist()

    as_torch(program)


@pytest.mark.parametrize("make", [lambda T, x: T.IntTensor(x), lambda T, x: T.ones(1, dtype=T.int32).new(x)])
def test_a_tensor_of_another_dtype_is_refused(make):
    same_error(lambda T: make(T, T.ones(2)), "expected .*int32.*float32|expected TensorOptions")
    with pytest.raises(TypeError, match=r"\.to\(xgrad\.int32\)"):
        make(xgrad, xgrad.ones(2))


def test_numbers_that_do_not_fit():
    same_error(lambda T: T.ByteTensor([1, 300]), "without overflow")
    same_error(lambda T: T.Tensor([1j]), "real number, not")
    as_torch(lambda T: (T.Tensor([1e40]).tolist(), T.ByteTensor([-1]).tolist()))


def test_the_family():
    names = "Float Double Half BFloat16 Int Long Short Char Byte Bool"
    for name in names.split():
        ours, theirs = getattr(xgrad, name + "Tensor"), getattr(torch, name + "Tensor")
        assert ours.__name__ == theirs.__name__
        assert repr(ours) == repr(theirs).replace("torch", "xgrad")
        assert ours.dtype.name == str(theirs.dtype).split(".")[1]
        assert not ours.is_cuda
        assert not ours.is_sparse
        assert isinstance(xgrad.ones(1, dtype=ours.dtype), ours)
        assert xgrad.ones(1, dtype=ours.dtype).type() == f"xgrad.{name}Tensor"


def test_isinstance_asks_dtype_and_layout():
    def program(T):
        class Mine(T.Tensor):
            pass

        x = T.ones(2)
        values = [x, x.to_sparse(), T.nn.Parameter(x), x.as_subclass(Mine), x.int(), 1, None]
        return [[isinstance(v, kind) for v in values] for kind in (T.FloatTensor, T.IntTensor, T.Tensor)]

    as_torch(program)


def test_type_takes_them():
    def program(T):
        x = T.tensor([1.5, 0.0])
        return [x.type(kind).tolist() for kind in (T.IntTensor, T.BoolTensor, T.FloatTensor)], x.type(
            T.FloatTensor
        ) is x

    as_torch(program)


def test_subclasses_are_made_of_the_same_arguments():
    def program(T):
        class Mine(T.Tensor):
            pass

        x = T.tensor([1.0, 2.0], requires_grad=True)
        made = [
            Mine(),
            Mine([1, 2]),
            Mine(2, 3).zero_(),
            Mine(x),
            Mine(T.tensor([1, 2], dtype=T.int32)),
            Mine(size=(2,)).zero_(),
        ]
        found = [(type(m) is Mine, m.tolist(), str(m.dtype).split(".")[-1], m.requires_grad) for m in made]
        made[3].sum().backward()
        return found, x.grad.tolist()

    as_torch(program)


def test_a_subclass_may_have_a_new_of_its_own():
    def program(T):
        class Mine(T.Tensor):
            def __new__(cls, values, unit):
                made = super().__new__(cls, values)
                made.unit = unit
                return made

            def __init__(self, values, unit):
                self.seen = unit

        m = Mine([1.0], "m")
        return type(m) is Mine, m.tolist(), m.unit, m.seen

    as_torch(program)


@pytest.mark.exhaustive
def test_the_default_dtype_is_that_of_tensor():
    def program(T):
        T.set_default_dtype(T.bfloat16)
        try:
            return str(T.Tensor([1]).dtype).split(".")[-1]
        finally:
            T.set_default_dtype(T.float32)

    as_torch(program)


def test_set_default_tensor_type():
    with pytest.warns(UserWarning, match="set_default_dtype"):
        xgrad.set_default_tensor_type("torch.HalfTensor")
    try:
        assert xgrad.Tensor([1]).dtype == xgrad.float16
    finally:
        xgrad.set_default_dtype(xgrad.float32)
    for wrong in ("torch.cuda.FloatTensor", xgrad.IntTensor, "HalfTensor", 3):
        with pytest.raises(TypeError, match=r"default type.*set_default_device"):
            xgrad.set_default_tensor_type(wrong)


def test_no_module_makes_a_tensor_by_its_constructor_that_was_to_be_blank():
    """`Tensor()` is an empty tensor; who fills one in takes `blank(Tensor)`, which is faster too."""
    root = pathlib.Path(xgrad.__file__).parent
    found = [
        f"{path.name}: {line.strip()}"
        for path in root.rglob("*.py")
        for line in path.read_text().splitlines()
        if re.search(r"(?<![\w`\".])(Batched|Sparse)?Tensor\(\)", line) and "data = Tensor()" not in line
    ]
    assert not found


# -- Variable ---------------------------------------------------------------------------------------------------------


def test_variable():
    def program(T):
        V = T.autograd.Variable
        x = T.tensor([1.0, 2.0])
        r = T.tensor([1.0, 2.0], requires_grad=True)
        made = [
            V(x),
            V(x, requires_grad=True),
            V(x, True),
            V(data=x),
            V(r),
            V(r * 2),
            V(),
            V(None),
            V(T.nn.Parameter(x)),
        ]
        V(x).add_(1)
        y = V(r)
        return (
            [(m.tolist(), m.requires_grad, m.is_leaf, isinstance(m, T.nn.Parameter)) for m in made],
            x.tolist(), isinstance(x, V), isinstance(1, V), V(x).data_ptr() == x.data_ptr(), y is r,
            V(x)._version == x._version,
        )  # fmt: skip

    as_torch(program)


def test_variable_refuses():
    same_error(lambda T: T.autograd.Variable([1, 2]), "Variable data has to be a tensor, but got list")
    same_error(lambda T: T.autograd.Variable(T.tensor([1]), requires_grad=True), "can require gradients")
    for T in (xgrad, torch):
        with (
            pytest.warns(UserWarning, match="volatile was removed"),
            pytest.raises(ValueError, match="can't be volatile and require_grad"),
        ):
            T.autograd.Variable(T.ones(1), True, True)
        x = T.ones(1)
        with pytest.warns(UserWarning, match="volatile was removed"):
            x.volatile = True
        with pytest.warns(UserWarning, match="volatile was removed"):
            assert x.volatile is False
        with pytest.warns(UserWarning, match="volatile was removed"):
            assert T.autograd.Variable(T.ones(1), volatile=True).tolist() == [1.0]


def test_types_of_gpus_tensors_make_none_elsewhere():
    if xgrad.cuda.is_available():
        assert xgrad.cuda.FloatTensor([1.0]).is_cuda
        return
    with pytest.raises(TypeError, match="not available"):
        xgrad.cuda.FloatTensor(2, 2)
    for kind in (xgrad.cuda.IntTensor, "torch.cuda.IntTensor"):
        with pytest.raises(RuntimeError, match="cuda"):
            xgrad.ones(2).type(kind)
    assert not isinstance(xgrad.ones(2), xgrad.cuda.FloatTensor)
    assert xgrad.cuda.FloatTensor.is_cuda
    with pytest.raises(TypeError, match="default type"):
        xgrad.set_default_tensor_type(xgrad.cuda.FloatTensor)
