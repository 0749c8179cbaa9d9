"""Each error of each public function begins with its name: the whole table, called wrongly in two dozen ways.

Nothing is compiled: a call whose arguments are right ends where a program would run.
"""

import inspect
import re
import types

import jax
import numpy as np
import pytest

import xgrad
from xgrad.dispatch import inplace
from xgrad.dispatch.kernel import Kernel
from xgrad.dispatch.tables import FUNCTIONS, METHODS


class Ran(BaseException):
    """The arguments are right: a program would run now."""


RUN, TESTING = Kernel._first, []


def first(kernel, *arrays):
    if not TESTING:  # a kernel that was made in the test, later
        return RUN(kernel, *arrays)
    if not kernel.operator.jit:
        return kernel.program(*arrays)
    jax.eval_shape(kernel.function, *arrays)
    raise Ran


def write(kernel, args):
    arrays = [a._read() if isinstance(a, xgrad.Tensor) else a for a in args]
    jax.eval_shape(kernel.written, *arrays)
    raise Ran


def of_xgrad(function):
    """A function whose frames count as xgrad's, not as a user's."""
    return types.FunctionType(function.__code__, {**globals(), "__name__": "xgrad.dispatch.tested"})


def tensor(*size, dtype=xgrad.float32):
    return xgrad.from_numpy(np.ones(size, dtype))


# Arguments that are right where no tensor is.
USUAL = {
    **dict.fromkeys(("dim", "dim0", "start", "offset", "low", "diagonal", "index", "source"), 0),
    **dict.fromkeys(("dim1", "k", "n", "step", "repeats", "shifts", "length", "groups", "padding", "r"), 1),
    **dict.fromkeys(("kernel_size", "output_size", "chunks", "sections", "num_samples", "blocksize"), 1),
    **dict.fromkeys(("num_groups", "upscale_factor", "downscale_factor", "split_size_or_sections", "destination"), 1),
    **dict.fromkeys(("p", "end", "M", "N", "steps", "n_fft", "high", "window_length", "num_classes"), 2),
    **dict.fromkeys(("size", "sizes", "shape"), (2, 3)),
    "dims": (0,), "pad": (1, 1), "normalized_shape": (3,), "equation": "ij->ij", "dtype": xgrad.float32,
    "value": 1.0, "fill_value": 1.0,
}  # fmt: skip
# They change a setting, or what they call is the user's.
SKIPPED = {"set_default_tensor_type", "set_printoptions", "map_", "apply_", "map2_"}


def wrong_calls(function, is_method):
    """(kind, args, kwargs) of calls, most of them wrong."""
    parameters = inspect.signature(function).parameters
    plain = [p for p in parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    required = [p for p in plain if p.default is p.empty]
    several = any(p.kind is p.VAR_POSITIONAL for p in parameters.values())
    x = tensor(2, 3)

    def with_first(value):
        rest = [USUAL.get(p.name, x) for p in required[1:]]
        return [value, *rest] if required or several else []

    usual = with_first(USUAL.get(required[0].name, x) if required else x)
    if not is_method:
        yield "missing argument", [], {}
        for value in ("abc", None, object(), ["a"]):
            yield f"{value!r} for the first", with_first(value), {}
    yield "unexpected keyword", usual, {"no_such_argument": 1}
    if not several:
        yield "too many arguments", usual + [x] * 30, {}
    for name in {"dim", "dims", "dim0"} & parameters.keys():
        place = next((i for i, p in enumerate(required) if p.name == name), None)
        for value in (7, -9, 1.5, "a"):
            args = list(usual)
            if place is not None:
                args[place] = value
            yield f"{name}={value!r}", args, {} if place is not None else {name: value}
    for dtype in (xgrad.bool, xgrad.int32, xgrad.complex64):
        yield f"dtype {dtype.name}", with_first(tensor(2, 3, dtype=dtype)), {}
    for size in ((), (1, 1, 1, 1, 2), (0, 3)):
        yield f"size {size}", with_first(tensor(*size)), {}
    for i in range(1, len(usual)):
        for value in (tensor(4, 5), None, ("abc", -77, 1.5)[i % 3]):
            shown = "another shape" if isinstance(value, xgrad.Tensor) else repr(value)
            yield f"argument {i} {shown}", [*usual[:i], value, *usual[i + 1 :]], {}
    for i, p in enumerate(parameters.values()):
        if p.default is not p.empty and p.kind is not p.POSITIONAL_ONLY:
            value = (object(), -77, "no such")[i % 3]
            yield f"{p.name} {value!r}", usual, {p.name: value}
    if "out" in parameters:
        yield "out that requires grad", usual, {"out": tensor(2, 3).requires_grad_()}


def names(namespace, name, function):
    """The names with which an error may begin: the public one, PyTorch's own of the operator."""
    own = getattr(function, "operator", None)
    found = {name, function.__name__, function.__qualname__} | ({own.name} if own else set())
    for known in {n.rstrip("_") for n in found}:
        found |= {known, f"{namespace or 'linalg'}.{known}", f"{namespace or 'linalg'}_{known}"}
    return "|".join(map(re.escape, found))


def unnamed(monkeypatch, step):
    """(errors, those that do not begin with the function's name) of the whole table, or of each `step`-th function."""
    monkeypatch.setattr(Kernel, "_first", of_xgrad(first))
    monkeypatch.setattr(inplace, "_write", of_xgrad(write))
    count, wrong = 0, []
    public = [(place, name, f, False) for place, table in FUNCTIONS.items() for name, f in table.items()]
    public += [("", name, f, True) for name, f in METHODS.items() if callable(f) and not name.startswith("__")]
    seen = set()
    for namespace, name, function, is_method in public[::step]:
        if name in SKIPPED or function in seen:
            continue
        seen.add(function)
        begins = re.compile(rf"({names(namespace, name, function)})_?([(:]| expects )")
        for kind, args, kwargs in wrong_calls(function, is_method):
            try:
                function(*args, **kwargs)
            except Ran:
                continue
            except Exception as error:
                count += 1
                if not begins.match(str(error)):
                    wrong.append((f"{namespace}.{name}", "method" if is_method else "", kind, repr(error)[:300]))
    return count, wrong


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda x: x.sum(7), "sum(): Dimension out of range (expected to be in range of [-2, 1], but got 7)"),
        (lambda x: xgrad.softmax(x, 7), "softmax(): Dimension out of range (expected to be in range of [-2, 1], but"),
        (lambda x: xgrad.swapaxes(x, 0, 5), "swapaxes(): Dimension out of range (expected to be in range of [-2, 1]"),
        (lambda x: x + xgrad.ones(4), "add(): The size of tensor a (3) must match the size of tensor b (4)"),
        (lambda x: xgrad.sub(x, xgrad.ones(4)), "sub(): The size of tensor a (3) must match the size of tensor b (4)"),
        (lambda x: xgrad.mul(x), "mul() missing 1 required positional argument: 'other'"),
        (lambda x: x.t().view(-1), "view(): view size is not compatible with input tensor's size and stride"),
        (lambda x: xgrad.clamp(x), "clamp: At least one of 'min' or 'max' must not be None"),
        (lambda x: x[5], "index 5 is out of bounds for dimension 0 with size 2"),  # as PyTorch: it has no name
    ],
)
def test_the_name_stands_before_pytorchs_words(call, text):
    with pytest.raises((TypeError, RuntimeError, IndexError)) as caught:
        call(xgrad.ones(2, 3))
    assert str(caught.value).startswith(text)


def test_errors_of_users_code_stay_as_they_are():
    class Mine(xgrad.Tensor):
        @classmethod
        def __xgrad_function__(cls, func, types, args=(), kwargs=None):
            raise ValueError("mine")

    x = xgrad.ones(2).as_subclass(Mine)
    for call in (lambda: x * 2, lambda: xgrad.std(x), lambda: x.softmax(0)):
        with pytest.raises(ValueError, match=r"^mine$"):
            call()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("step", [30, pytest.param(1, marks=pytest.mark.exhaustive)])
def test_errors_begin_with_the_name_of_the_public_function(monkeypatch, step):
    TESTING.append(True)
    try:
        count, wrong = unnamed(monkeypatch, step)
    finally:
        TESTING.clear()
    assert count > 6_000 / step
    assert not wrong, f"{len(wrong)} of {count} errors: {wrong[:50]}"
