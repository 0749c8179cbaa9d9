"""What cannot be compiled is refused with the line, and leaves everything as it was."""

import gc
import inspect

import numpy as np
import pytest

import xgrad

from ..oracle import leaf
from .agreement import look


def world():
    """Something of everything that a trace touches."""
    base = leaf(xgrad, 3, 3).detach() * 1
    o = {
        "x": leaf(xgrad, 3),
        "w": leaf(xgrad, 3, seed=1),
        "plain": leaf(xgrad, 3, seed=2).detach() * 1,
        "base": base,
        "view": base[1],
        "alias": base.detach(),
        "list": [leaf(xgrad, 3, seed=3).detach()],
    }
    o["w"].grad = xgrad.ones(3, dtype=xgrad.float64)
    o["made"] = o["x"] * o["w"]
    return o


def touch(o):
    """Change all of it."""
    (o["x"] * o["w"]).sum().backward()
    o["w"].grad.mul_(3)
    o["plain"].add_(xgrad.rand(3))
    o["view"].mul_(2)
    o["alias"].t()[0] = 4
    o["list"][0] = o["list"][0] * 2
    o["made"].mul_(2)
    o["plain"].requires_grad_()
    o["new"] = o["x"] * 2


def state(o):
    return (
        look(o, {}),
        [t._version for t in (o["x"], o["made"])],
        xgrad.get_rng_state().tolist(),
        o["view"]._base is o["base"],
    )


def item(o):
    return o["x"].sum().item()


def truth(o):
    if o["x"].sum() > 0:
        return 1


def as_float(o):
    return float(o["x"][0])


def as_int(o):
    return [0, 1, 2][int(o["plain"].sum())]


def as_numpy(o):
    return o["base"].numpy()


def as_list(o):
    return o["plain"].tolist()


def masked(o):
    return o["x"][o["x"] > 0]


def nonzero(o):
    return o["plain"].nonzero()


def unique(o):
    return o["plain"].unique()


def sparse(o):
    return o["plain"].to_sparse()


def counted(o):
    return xgrad.bincount(xgrad.ones_like(o["plain"], dtype=xgrad.int64))


def selected(o):
    return o["base"].masked_select(o["base"] > 0)


def shown(o):
    return len(f"{o['plain'].sum():.3f}")


def looped(o):
    return [0 for _ in range(o["plain"].sum().long())]


def compared(o):
    return o["plain"].sum() in [1, 2]


VALUES = [
    item,
    truth,
    as_float,
    as_int,
    as_numpy,
    as_list,
    masked,
    nonzero,
    shown,
    looped,
    compared,
    unique,
    sparse,
    counted,
    selected,
]


@pytest.mark.one_in(6)
@pytest.mark.parametrize("function", VALUES, ids=lambda f: f.__name__)
def test_reading_a_value_names_the_line(function):
    o = world()
    before = state(o)

    def step():
        touch(o)
        return function(o)

    lines, first = inspect.getsourcelines(function)
    compiled = xgrad.compile(step)
    for _ in range(2):
        with pytest.raises(xgrad.errors.TracedValueError) as caught:
            compiled()
        text = str(caught.value)
        assert "xgrad.compile: the function reads the value of a tensor, which is not known while it is traced" in text
        assert f'"{lines[1].strip()}" in {function.__name__}, {__file__}, line {first + 1}' in text
        np.testing.assert_equal(state(o), before)
    assert compiled.metrics() == (0, 0, (), 0.0, 0)


class MineError(Exception):
    pass


def test_an_exception_of_the_users_passes_through_and_undoes_everything():
    o, raising = world(), True
    before = state(o)

    def step():
        touch(o)
        if raising:
            raise MineError("stop")

    compiled = xgrad.compile(step)
    for _ in range(2):
        with pytest.raises(MineError, match=r"^stop$") as caught:
            compiled()
        assert not hasattr(caught.value, "__notes__")
        np.testing.assert_equal(state(o), before)
    assert "new" not in o
    raising = False
    compiled()
    eager = world()
    touch(eager)
    for name in ("view", "base", "alias", "new", "made"):
        np.testing.assert_allclose(o[name].detach().numpy(), eager[name].detach().numpy())
    np.testing.assert_allclose(o["w"].grad.numpy(), eager["w"].grad.numpy())


def test_an_exception_in_backward_or_a_hook_undoes_everything():
    o = world()
    before = state(o)

    def step():
        y = o["x"] * o["w"]
        y.register_hook(lambda g: 1 / 0)
        o["plain"].add_(1)
        y.sum().backward()

    with pytest.raises(ZeroDivisionError):
        xgrad.compile(step)()
    np.testing.assert_equal(state(o), before)


def test_an_exception_that_the_function_catches_is_its_own():
    x = leaf(xgrad, 3)

    def step(x):
        try:
            x.view(7)
        except RuntimeError:
            return x * 2

    np.testing.assert_allclose(xgrad.compile(step)(x).detach().numpy(), 2 * x.detach().numpy())


def test_tensors_work_after_a_failed_trace():
    """Nothing of the class or of the thread is left patched."""
    o = world()
    with pytest.raises(MineError):
        xgrad.compile(lambda: (touch(o), (_ for _ in ()).throw(MineError()))[0])()
    assert "__getattribute__" not in vars(xgrad.Tensor)
    assert "__setattr__" not in vars(xgrad.Tensor)
    eager = world()
    xgrad.manual_seed(0)
    touch(o)
    xgrad.manual_seed(0)
    touch(eager)
    np.testing.assert_equal(look(o, {}), look(eager, {}))


def test_a_compiled_function_in_a_thread_that_fails_frees_the_others():
    import threading

    def fails():
        with pytest.raises(MineError):
            xgrad.compile(lambda: (_ for _ in ()).throw(MineError()))()

    thread = threading.Thread(target=fails)
    thread.start()
    thread.join()
    assert xgrad.compile(lambda: xgrad.ones(2))().tolist() == [1, 1]


# -- what is refused ---------------------------------------------------------------------------------------------------


def test_a_graph_from_outside_is_not_run_inside():
    o = world()
    before = state(o)
    with pytest.raises(
        RuntimeError, match=r"reached a tensor \(shape \[3\]\) that was computed outside of the compiled"
    ):
        xgrad.compile(lambda: o["made"].sum().backward())()
    np.testing.assert_equal(state(o), before)
    with pytest.raises(RuntimeError, match="appears to not have been used in the graph"):
        xgrad.compile(lambda: xgrad.autograd.grad((o["made"] * 2).sum(), o["x"]))()
    (g,) = xgrad.compile(lambda: xgrad.autograd.grad((o["made"] ** 2).sum(), o["made"]))()
    np.testing.assert_allclose(g.numpy(), 2 * o["made"].detach().numpy())
    o["made"].sum().backward()


def test_sparse_tensors_are_no_arguments_and_leave_without_a_history():
    s = xgrad.sparse_coo_tensor(xgrad.tensor([[0, 2]]), xgrad.tensor([1.0, 2.0]), (3,))
    with pytest.raises(NotImplementedError, match="takes no sparse tensors: give it to_dense"):
        xgrad.compile(lambda s: s.to_dense())(s)
    made = xgrad.compile(lambda i, v: xgrad.sparse_coo_tensor(i, v, (3,)))
    for _ in range(2):
        found = made(s._indices(), s._values())
        assert found.to_dense().tolist() == [1.0, 0.0, 2.0]
        assert (found.is_coalesced(), found._nnz(), found.requires_grad) == (False, 2, False)
    values = xgrad.ones(2, requires_grad=True)
    with pytest.raises(NotImplementedError, match="a sparse tensor with a history"):
        made(s._indices(), values)


def test_a_backward_outside_gives_no_sparse_gradient():
    table = xgrad.ones(3, 2, requires_grad=True)
    found = xgrad.compile(lambda i: xgrad.nn.functional.embedding(i, table, sparse=True).sum())(xgrad.tensor([0, 2, 0]))
    assert found.item() == 6.0
    with pytest.raises(NotImplementedError, match=r"backward outside gives no sparse gradients .* shape \[3, 2\]"):
        found.backward()
    assert table.grad is None


def test_a_shape_that_is_changed_in_place_is_refused():
    x = leaf(xgrad, 2, 3).detach()
    for function in (lambda: x.t_(), lambda: x.unsqueeze_(0), lambda: x.squeeze_().transpose_(0, 1)):
        with pytest.raises(NotImplementedError, match="changes the shape of a tensor from outside in place"):
            xgrad.compile(lambda f=function: [f(), None][1])()
        assert x.shape == (2, 3)
        assert x.is_contiguous()


def test_errors_of_tensors_are_those_of_eager():
    x = leaf(xgrad, 3)
    for function, error, text in (
        (lambda: x.add_(1), RuntimeError, "a leaf Variable that requires grad is being used in an in-place operation"),
        (lambda: x.view(7), RuntimeError, "shape"),
        (lambda: x.detach().sum().backward(), RuntimeError, "does not require grad"),
    ):
        with pytest.raises(error, match=text) as eager:
            function()
        with pytest.raises(error, match=text) as mine:
            xgrad.compile(function)()
        assert str(mine.value) == str(eager.value)


def test_version_errors_inside_are_those_of_eager():
    def step(x):
        y = x * 1
        z = y * y
        y.add_(1)
        z.sum().backward()

    x = leaf(xgrad, 3)
    with pytest.raises(xgrad.errors.VersionError, match="modified by an inplace operation"):
        xgrad.compile(step)(x)
    assert x.grad is None


def test_what_is_no_function():
    with pytest.raises(TypeError, match=r"xgrad\.compile takes a function, but got a int"):
        xgrad.compile(3)


def test_a_read_of_a_value_that_the_function_catches_is_an_error_all_the_same():
    @xgrad.compile
    def step(x):
        try:
            scale = float(x.sum())  # here
        except Exception:
            scale = -1.0
        return x * scale

    with pytest.raises(xgrad.errors.TracedValueError, match=r"scale = float\(x.sum\(\)\)  # here"):
        step(xgrad.ones(3))


def _filtered(x):
    try:
        return x[x > 1]  # here
    except RuntimeError:
        return x


def _counted(x):
    try:
        return x * len(x.nonzero())  # here
    except RuntimeError:
        return x


class Scaled(xgrad.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        try:
            return grad * grad.max().item()  # here
        except RuntimeError:
            return grad


@pytest.mark.parametrize("function", [_filtered, _counted, Scaled.apply])
def test_other_reads_that_are_caught(function):
    with pytest.raises(xgrad.errors.TracedValueError, match="  # here"):
        xgrad.compile(function)(xgrad.ones(3, requires_grad=True))


def test_a_backward_into_a_graph_from_outside_that_is_caught():
    made = xgrad.ones(3, requires_grad=True).sin()

    def step(x):
        try:
            (made * x).sum().backward()
        except RuntimeError:
            return -x
        return x

    with pytest.raises(RuntimeError, match="computed outside of the compiled function"):
        xgrad.compile(step)(xgrad.ones(3))


class Result:
    def __init__(self, value):
        self.value = value


async def _awaited(x):
    return x * 2


def _in_an_array(x):
    found = np.empty(1, object)
    found[0] = x * 2
    return found


RETURNED = {
    "a generator": (lambda x: (x * i for i in range(2)), "gives what it has only once"),
    "an iterator": (lambda x: map(x.mul, [1, 2]), "gives what it has only once"),
    "a coroutine": (_awaited, "gives what it has only once"),
    "an object": (lambda x: [Result(x * 2)], "returns a Result that holds tensors"),
    "an array of objects": (_in_an_array, "returns a ndarray that holds tensors"),
    "a set": (lambda x: {x * 2}, "returns a set that holds tensors"),
    "a closure": (lambda x: lambda y, doubled=x * 2: doubled + y, "returns a function that holds tensors"),
}


@pytest.mark.one_in(6)
@pytest.mark.filterwarnings("ignore:coroutine:RuntimeWarning")
@pytest.mark.parametrize("name", RETURNED)
def test_what_no_later_call_could_return_is_refused(name):
    function, message = RETURNED[name]
    with pytest.raises(NotImplementedError, match=message):
        xgrad.compile(function)(xgrad.ones(3))
    gc.collect()  # the coroutine goes here, where the warning that it was not awaited is ignored


def test_objects_from_outside_may_be_returned():
    mine, leaf = Result(xgrad.ones(3)), xgrad.ones(3)
    step = xgrad.compile(lambda x: (mine, Result(leaf), x * 2))
    for _ in range(2):
        first, second, _ = step(xgrad.ones(3))
        assert first is mine
        assert second.value is leaf


def test_an_exception_may_be_returned():
    def step(x):
        y = x * 2
        try:
            y.view(7)
        except RuntimeError as error:
            return y, error

    compiled = xgrad.compile(step)
    for _ in range(2):
        y, error = compiled(xgrad.ones(3))
        assert y.tolist() == [2.0, 2.0, 2.0]
        assert "is invalid for input of size 3" in str(error)


@pytest.mark.parametrize(
    ("name", "change", "read"),
    [
        ("grad mode", lambda: xgrad.set_grad_enabled(False), xgrad.is_grad_enabled),
        ("the default device", lambda: xgrad.set_default_device("cpu:1"), xgrad.get_default_device),
        ("the default dtype", lambda: xgrad.set_default_dtype(xgrad.bfloat16), xgrad.get_default_dtype),
    ],
)
def test_a_mode_that_the_function_leaves_changed_is_refused_and_put_back(name, change, read):
    def step(x):
        change()
        return x * 2

    before = read()
    with pytest.raises(NotImplementedError, match=rf"leaves a mode changed \({name}\)"):
        xgrad.compile(step)(xgrad.ones(3))
    assert read() == before
