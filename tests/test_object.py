"""A tensor as a Python object: copies, pickles, iteration, conversion, the checks of its attributes; against torch."""

import copy
import gc
import io
import pickle
import warnings
import weakref
from collections import OrderedDict

import jax
import numpy as np
import pytest
import torch

import xgrad

from .oracle import as_torch, same_error


class Sub(xgrad.Tensor):
    """At module level, for pickle."""


def leaf(T):
    return T.tensor([1.0, 2.0, 3.0], requires_grad=True)


def traits(x):
    return x.tolist(), x.requires_grad, x.is_leaf, str(x.dtype).rpartition(".")[2], x.grad_fn is None


MAKE = {
    "a leaf": leaf,
    "no gradient": lambda T: T.ones(2, 3),
    "a view": lambda T: T.arange(6.0).reshape(2, 3).t(),
    "a part": lambda T: T.arange(6.0)[2:5],
    "expanded": lambda T: T.ones(2, 1).expand(2, 3),
    "a leaf that is a view": lambda T: T.arange(6.0).reshape(2, 3)[1].requires_grad_(),
    "after a write": lambda T: T.arange(4.0).add_(1),
    "conjugated": lambda T: T.tensor([1 + 2j, 3j]).conj(),
    "empty": lambda T: T.zeros(0, 3),
    "0-dim": lambda T: T.tensor(3.0),
    "bfloat16": lambda T: T.ones(2, dtype=T.bfloat16),
    "float16": lambda T: T.ones(2, dtype=T.float16),
    "int8": lambda T: T.ones(2, dtype=T.int8),
    "bool": lambda T: T.ones(2, dtype=T.bool),
    "complex64": lambda T: T.ones(2, dtype=T.complex64),
}
WAYS = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    **{f"pickle {p}": lambda x, p=p: pickle.loads(pickle.dumps(x, p)) for p in range(6)},
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("make", MAKE.values(), ids=MAKE)
def test_a_duplicate_equals_its_original(make, way):
    def program(T):
        x = make(T)
        y = way(x)
        return traits(y), traits(y) == traits(x), y is x, y.shape == x.shape, y.stride() == x.stride(), y._is_view()

    assert program(xgrad) == program(torch)


def test_a_shallow_copy_shares_storage_and_attributes():
    def program(T):
        x = leaf(T)
        x.tag = [1]
        y = copy.copy(x)
        with T.no_grad():
            y.add_(1)
        return x.tolist(), y.tolist(), x._version, y.tag is x.tag, y.grad

    assert program(xgrad) == program(torch)


@pytest.mark.parametrize("way", [copy.copy, WAYS["pickle 5"]])
def test_a_duplicate_of_a_non_leaf_is_a_leaf(way):
    as_torch(lambda T: (lambda y: [y.detach(), y.is_leaf, y.requires_grad])(way(leaf(T) * 2)))


def test_deep_copies_are_independent_and_share_among_themselves():
    def program(T):
        base = T.zeros(2, 3)
        both = {"base": base, "row": base[0], "turned": base.t(), "again": base, "detached": base.detach()}
        copies = copy.deepcopy(both)
        copies["row"].add_(1)
        copies["turned"][2].mul_(5)
        assert copies["again"] is copies["base"]
        return *(x.clone() for x in copies.values()), base, copies["row"]._base is None

    as_torch(program)


def test_a_deep_copy_of_a_parameter_shares_its_storage_with_no_other_copy():
    def program(T):
        layer = T.nn.Linear(3, 2, bias=False)
        layer.weight.data = T.ones(2, 3)
        layer.part, layer.row = T.nn.Parameter(layer.weight.detach()[1:]), layer.weight.detach()[0]
        twin = copy.deepcopy(layer)
        with T.no_grad():
            twin.weight.fill_(7)
            twin.part.mul_(2)
        return twin.weight, twin.part, twin.row, layer.weight, layer.part

    as_torch(program)


def test_a_deep_copy_has_a_copied_gradient_and_attributes_and_no_hooks():
    def program(T):
        x = leaf(T)
        x.tag, x.other = [1], T.ones(1)
        told = []
        x.register_hook(lambda g: told.append(1))
        x.register_post_accumulate_grad_hook(lambda p: told.append(2))
        (x * x).sum().backward()
        y = copy.deepcopy(x)
        x.grad.zero_()
        before = y.grad.clone()
        (y * y).sum().backward()
        return before, y.grad, x.grad, told, y.tag, y.tag is x.tag, y.other is x.other

    as_torch(program)


def test_a_deep_copy_of_a_non_leaf_is_an_error():
    same_error(lambda T: copy.deepcopy(leaf(T) * 2), "Only Tensors created explicitly by the user")
    same_error(lambda T: copy.deepcopy([leaf(T)[0]]), "graph leaves")


def test_an_attribute_that_refers_to_its_tensor_is_copied_once():
    x = leaf(xgrad)
    x.me = x
    y = copy.deepcopy(x)
    assert y.me is y
    assert x.me is x
    z = pickle.loads(pickle.dumps(x))
    assert z.me is z


def test_writes_after_a_deep_copy_reach_one_of_the_two():
    x = xgrad.arange(4.0) + 0  # made by a kernel: its buffer may be donated
    y = copy.deepcopy(x)
    x.add_(1)
    y.mul_(10)
    x[0].add_(5)
    assert (x.tolist(), y.tolist()) == ([6.0, 2.0, 3.0, 4.0], [0.0, 10.0, 20.0, 30.0])
    del x
    y.add_(1)
    assert y.tolist() == [1.0, 11.0, 21.0, 31.0]


def test_pickled_tensors_share_what_they_shared():
    base = xgrad.zeros(2, 3)
    loaded = pickle.loads(pickle.dumps(OrderedDict(base=base, row=base[0], again=base)))
    loaded["row"].add_(1)
    assert loaded["base"].tolist() == [[1.0] * 3, [0.0] * 3]
    assert loaded["again"] is loaded["base"]
    assert base.tolist() == [[0.0] * 3] * 2


class Strict(pickle.Unpickler):
    def find_class(self, module, name):
        assert module.partition(".")[0] in ("xgrad", "numpy"), f"{module}.{name}"
        return super().find_class(module, name)


@pytest.mark.parametrize("make", MAKE.values(), ids=MAKE)
def test_loading_a_pickle_runs_xgrad_and_numpy_alone(make):
    assert isinstance(Strict(io.BytesIO(pickle.dumps(make(xgrad)))).load(), xgrad.Tensor)


def test_hooks_are_not_pickled_and_a_warning_says_so():
    def hook(grad):
        return grad

    x = leaf(xgrad)
    handle = x.register_hook(hook)
    with pytest.warns(UserWarning, match="backward hook .* on tensor will not be serialized"):
        y = pickle.loads(pickle.dumps(x))
    assert y._backward_hooks is None
    assert list(x._backward_hooks.values()) == [hook]
    hook.__xgrad_unserializable__ = True
    pickle.dumps(x)
    handle.remove()
    assert pickle.loads(pickle.dumps(x)).grad is None


def test_a_traced_tensor_cannot_be_pickled():
    def traced(value):
        with pytest.raises(pickle.PicklingError, match="being traced"):
            pickle.dumps(xgrad.as_tensor(value))
        return copy.deepcopy(xgrad.as_tensor(value))._read()

    assert jax.jit(traced)(1.0) == 1.0


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_a_subclass_and_its_attributes_are_kept(way):
    x = xgrad.Tensor._make_subclass(Sub, xgrad.ones(2), True)
    x.tag = "mine"
    y = way(x)
    assert (type(y), y.tag, y.requires_grad, y.tolist()) == (Sub, "mine", True, [1.0, 1.0])
    assert type(y * 2) is Sub


def test_long_chains_copy_and_pickle_without_recursion():
    x = leaf(xgrad)
    y = x
    for _ in range(3000):
        y = y + 1
    assert copy.copy(y).is_leaf
    assert pickle.loads(pickle.dumps(y)).requires_grad
    many = [x.detach()[i % 3] for i in range(3000)]
    assert len(copy.deepcopy(many)) == len(pickle.loads(pickle.dumps(many))) == 3000


def test_setstate_is_for_leaves():
    same_error(lambda T: (leaf(T) * 2).__setstate__((1, 2, 3)), "can be only called on leaf Tensors")
    same_error(lambda T: leaf(T).__setstate__((1,)), "expected")


PROTOCOLS = {
    "iteration": lambda T: list(leaf(T).detach()),
    "nodes of iteration": lambda T: [v.grad_fn.name() for v in leaf(T)],
    "iteration of nothing": lambda T: list(T.zeros(0, 2)),
    "reversed": lambda T: reversed(T.arange(4.0).reshape(2, 2)),
    "reversed of a number": lambda T: reversed(T.tensor(1.0)),
    "contains": lambda T: [1 in T.arange(3.0), 5 in T.arange(3.0), T.tensor(2.0) in T.arange(3.0)],
    "equal to None": lambda T: [T.ones(2) == None, T.ones(2) != None],  # noqa: E711
    "equal to a string": lambda T: [T.ones(2) == "a", T.ones(2) != "a"],
    "format": lambda T: [f"{T.tensor(1.5):.2f}", f"{T.tensor(3):d}", f"{T.ones(2)}", f"{T.tensor(1.5)}"],
    "bool": lambda T: [bool(T.ones(1)), bool(T.zeros(1, 1)), bool(T.tensor(1j))],
    "numbers": lambda T: [int(T.tensor(2.7)), float(T.tensor(2)), complex(T.tensor(2)), [1, 2, 3][T.tensor(1)]],
    "signs": lambda T: [abs(T.tensor(-2.0)), +T.ones(1), -T.ones(1)],
    "hash": lambda T: len({T.ones(1), T.ones(1)}),
    "attributes": lambda T: (lambda x: [setattr(x, "tag", 3), x.tag, "tag" in dir(x), "add" in dir(x)])(T.ones(1)),
    "own gradient is none": lambda T: (lambda x: [x.__delattr__("grad"), x.grad])(leaf(T)),
    "numpy's functions": lambda T: np.sin(T.zeros(2)),
    "numpy's arrays": lambda T: np.stack([np.asarray(T.ones(2)), T.ones(2)]),
    "numpy's comparison": lambda T: np.greater(T.zeros(2), T.ones(2)),
    "contents": lambda T: T.ones(2).__repr__(tensor_contents="here"),
    "data after data": lambda T: (lambda x: [setattr(x, "data", T.ones(2)), x.detach(), x.is_leaf])(leaf(T)),
    "retains_grad": lambda T: (lambda y: [y.retains_grad, y.retain_grad(), y.retains_grad])(leaf(T) * 2),
    "output numbers": lambda T: [leaf(T).unbind()[1].output_nr, leaf(T).split(1)[2].output_nr, leaf(T).output_nr],
}


@pytest.mark.filterwarnings("ignore:__array_wrap__:DeprecationWarning")
@pytest.mark.parametrize("program", PROTOCOLS.values(), ids=PROTOCOLS)
def test_protocols_do_what_torch_does(program):
    as_torch(program)


def test_numpy_arrays_on_the_left_and_functions_of_numpy_give_tensors():
    a, x = np.ones(2, np.float32), xgrad.ones(2)
    for result in (a * x, np.float32(2) * x, np.sin(x), np.add(x, a), a @ x):
        assert type(result) is xgrad.Tensor
    with pytest.raises(RuntimeError, match="requires grad"):
        np.sin(leaf(xgrad))


# name: (what is done, what the error says)
ERRORS = {
    "grad of a type": (lambda T: setattr(leaf(T), "grad", 3), "expected to be a Tensor or None but got"),
    "grad of a size": (lambda T: setattr(leaf(T), "grad", T.ones(2)), r"a gradient of size '\[2\]' to a tensor"),
    "grad of a dtype": (lambda T: setattr(leaf(T), "grad", T.ones(3, dtype=T.float16)), "gradient with dtype"),
    "grad itself": (lambda T: (lambda x: setattr(x, "grad", x))(leaf(T)), "Variable as its own grad"),
    "requires_grad = 1": (lambda T: setattr(T.ones(1), "requires_grad", 1), "requires_grad must be a bool"),
    "requires_grad of ints": (
        lambda T: setattr(T.arange(2), "requires_grad", True),
        "only Tensors of floating point and complex dtype can require gradients",
    ),
    "requires_grad_ of ints": (
        lambda T: T.arange(2).requires_grad_(),
        "only Tensors of floating point dtype can require gradients",
    ),
    "requires_grad of a non-leaf": (
        lambda T: setattr(leaf(T) * 2, "requires_grad", True),
        "can only change requires_grad flags of leaf variables",
    ),
    "no requires_grad of a non-leaf": (lambda T: (leaf(T) * 2).requires_grad_(False), "var_no_grad = var.detach"),
    "deleted requires_grad": (lambda T: leaf(T).__delattr__("requires_grad"), "requires_grad must be a bool"),
    "data of a type": (lambda T: setattr(leaf(T), "data", 3), "Variable data has to be a tensor"),
    "data of ints": (
        lambda T: setattr(leaf(T), "data", T.arange(3)),
        "data set to a tensor that requires gradients must be floating point or complex dtype",
    ),
    "deleted data": (lambda T: leaf(T).__delattr__("data"), "Deleting tensor data is not allowed"),
    "deleted item": (lambda T: leaf(T).__delitem__(0), "does not support deleting items"),
    "int of several": (lambda T: int(T.ones(2)), "only one element tensors can be converted"),
    "float of several": (lambda T: float(T.ones(2)), "only one element tensors can be converted"),
    "item of several": (lambda T: T.ones(2).item(), "with 2 elements cannot be converted to Scalar"),
    "bool of several": (lambda T: bool(T.ones(2)), "more than one value is ambiguous"),
    "bool of none": (lambda T: bool(T.ones(0)), "no values is ambiguous"),
    "iteration of a number": (lambda T: list(T.tensor(1.0)), "iteration over a 0-d tensor"),
    "len of a number": (lambda T: len(T.tensor(1.0)), r"len\(\) of a 0-d tensor"),
    "format of several": (lambda T: f"{T.ones(2):.2f}", "unsupported format string"),
    "contains a string": (lambda T: "a" in T.ones(2), "only supports Tensor or scalar"),
    "shape": (lambda T: setattr(leaf(T), "shape", (3, 1)), "shape"),
    "grad_fn": (lambda T: setattr(leaf(T), "grad_fn", None), "grad_fn"),
    "unknown attribute": (lambda T: leaf(T).unknown, "has no attribute 'unknown'"),
}


@pytest.mark.parametrize(("program", "match"), ERRORS.values(), ids=ERRORS)
def test_errors_say_what_torch_says(program, match):
    same_error(program, match)


def test_a_gradient_of_another_device_is_refused():
    x = leaf(xgrad)
    with pytest.raises(RuntimeError, match="attempting to assign a gradient located on device"):
        x.grad = xgrad.ones(3, device="cpu:1")


def warned(T, program):
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        program(T)
    return [(w.category, str(w.message).split("Tensor")[0][:20]) for w in told]


@pytest.mark.parametrize(
    "program",
    [
        lambda T: (leaf(T) * 2).grad,
        lambda T: leaf(T)[0].grad,
        lambda T: leaf(T).grad,
        lambda T: (lambda y: (y.retain_grad(), y.grad))(leaf(T) * 2),
        lambda T: (lambda y: (setattr(y, "grad", T.ones(3)), y.grad))(leaf(T) * 2),
        lambda T: T.ones(2).grad,
        lambda T: T.tensor(leaf(T)),
        lambda T: T.ones(1).new_tensor(leaf(T)),
        lambda T: T.as_tensor(leaf(T)),
        lambda T: T.tensor([T.tensor(1.0)]),
    ],
)
def test_warnings_come_where_torch_warns(program):
    assert warned(xgrad, program) == warned(torch, program)


def test_a_tensor_with_attributes_dies_with_its_last_reference():
    x = leaf(xgrad)
    x.tag = [1]
    y = copy.deepcopy(x)
    gone = weakref.ref(y), weakref.ref(x)
    gc.disable()
    try:
        del x, y
        assert [r() for r in gone] == [None, None]
    finally:
        gc.enable()
