"""Numbers between the tensors of a sum, as PyTorch's first optimizers passed them: as in torch, with its warning."""

import contextlib
import warnings

import pytest
import torch

import xgrad

from ..oracle import as_torch, data, same_error

# name -> (older form, the shapes of x, y, z)
MATRICES = (2, 2), (2, 3), (3, 2)
VECTOR = (2,), (2, 3), (3,)
OUTER = (2, 3), (2,), (3,)
BATCH = (2, 2, 2), (2, 2, 3), (2, 3, 2)
SUM = (2, 2), (2, 2, 3), (2, 3, 2)
SAME = (2, 3), (2, 3), (3,)
CALLS = {
    "x.add(2, y)": SAME, "x.add_(0.5, y)": SAME, "T.add(x, 2, y)": SAME, "x.add(2, 3)": SAME,
    "x.add(T.tensor(2.0), y)": SAME, "x.sub(2, y)": SAME, "x.sub_(0.5, y)": SAME, "T.sub(x, 2, y)": SAME,
    "x.addcmul(2, y, z)": SAME, "x.addcmul_(0.5, y, z)": SAME, "T.addcmul(x, 0.5, y, z)": SAME,
    "x.addcdiv(2, y, z)": SAME, "x.addcdiv_(0.5, y, z)": SAME, "T.addcdiv(x, 0.5, y, z)": SAME,
    **{call.replace("NAME", name): shapes
       for name, shapes in {"addmm": MATRICES, "addmv": VECTOR, "addr": OUTER, "baddbmm": BATCH, "addbmm": SUM}.items()
       for call in ("T.NAME(2, x, 0.5, y, z)", "T.NAME(0.5, x, y, z)", "x.NAME(2, y, z)", "x.NAME(2, 0.5, y, z)",
                    "x.NAME_(2, y, z)", "x.NAME_(2, 0.5, y, z)")},
}  # fmt: skip


def run(T, call, shapes):
    leaves = [data(T, shape, seed=i, requires_grad=True) for i, shape in enumerate(shapes)]
    x, y, z = leaves
    result = eval(call, {"T": T, "x": x * 1, "y": y, "z": z})
    used = [leaf for leaf, name in zip(leaves, "xyz") if name in call.split("(", 1)[1] or name == "x"]
    return [result, *T.autograd.grad((result * result).sum(), used)]


@pytest.mark.one_in(3)
@pytest.mark.filterwarnings("ignore:This overload of:UserWarning")
@pytest.mark.parametrize("call", CALLS)
def test_values_and_gradients(call):
    as_torch(lambda T: run(T, call, CALLS[call]))


@pytest.mark.filterwarnings("ignore:This overload of:UserWarning")
@pytest.mark.parametrize("how", ["eager", "lazy", "compiled"])
def test_an_optimizer_of_2018(how):
    def adam(p, g, mean, square, lr):
        mean.mul_(0.9).add_(1 - 0.9, g)
        square.mul_(0.99).addcmul_(1 - 0.99, g, g)
        return p.addcdiv_(-lr, mean, square.sqrt().add_(1e-8)).add_(-lr * 0.1, p)

    def program(T):
        tensors = [data(T, (2, 3), seed=i) for i in range(4)]
        tensors[3].abs_()
        step = xgrad.compile(adam) if T is xgrad and how == "compiled" else adam
        for lr in (0.1, 0.05):
            step(*tensors, lr)
        return tensors

    with xgrad.lazy() if how == "lazy" else contextlib.nullcontext():
        as_torch(program)


@pytest.mark.filterwarnings("ignore:This overload of:UserWarning")
def test_out_vmap_and_an_override():
    def program(T):
        x, y, out = data(T, (2, 3)), data(T, (2, 3), seed=1), T.empty(2, 3)
        T.add(x, 2, y, out=out)
        return [out, T.vmap(lambda a, b: a.add(2, b))(x, y)]

    as_torch(program)

    class Asked:
        @classmethod
        def __xgrad_function__(cls, func, types, args=(), kwargs=None):
            return func.__name__, len(args), kwargs

    assert xgrad.add(xgrad.ones(1), 2, Asked()) == ("add", 3, {})


@pytest.mark.parametrize("library", [torch, xgrad])
def test_the_warning_comes_once(library, monkeypatch):
    if library is xgrad:
        monkeypatch.setattr(xgrad.dispatch.older_calls, "_said", set())
    else:
        torch.ones(1).sub_(2, torch.ones(1))  # which may have been said before
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        library.set_warn_always(True)
        try:
            library.ones(1).sub_(2, library.ones(1))
        finally:
            library.set_warn_always(False)
        library.ones(1).sub_(2, library.ones(1))
    assert [(w.category, w.filename) for w in said] == [(UserWarning, __file__)]
    assert "This overload of sub_ is deprecated" in str(said[0].message)


REFUSED = {
    "a tensor and a number": lambda T, x: x.add(x, 2),
    "two tensors": lambda T, x: x.add(x, x),
    "three after": lambda T, x: x.add(x, 2, x),
    "a factor that requires grad": lambda T, x: x.add_(T.tensor(2.0, requires_grad=True), x),
    "products have none": lambda T, x: x.mul(2, x),
    "a number at the end": lambda T, x: x.addcmul(x, x, 2),
    "subtract": lambda T, x: T.subtract(x, "2", x),
    "a word": lambda T, x: x.add("2", x),
    "no other": lambda T, x: T.add(x, alpha=2),
    "twice": lambda T, x: x.add(x, x2=x),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    same_error(lambda T: REFUSED[name](T, data(T, (2, 3))), "argument|takes|invalid")


def test_numpys_names():
    as_torch(lambda T: [T.add(x1=(x := data(T, (2, 3))), x2=x), x.add(x2=x, alpha=2), (x * 1).sub_(x2=x)])
