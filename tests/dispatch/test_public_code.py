"""The code of public functions stands at their declaration: `inspect`, tracebacks, profilers and pickle find it."""

import copy
import cProfile
import inspect
import os
import pathlib
import pickle
import pstats
import traceback
import types

import pytest

import xgrad
from xgrad.dispatch.declare import operator
from xgrad.dispatch.tables import FUNCTIONS, METHODS

PUBLIC = [
    (f"{namespace or 'xgrad'}.{name}", function)
    for namespace, table in {**FUNCTIONS, "Tensor": METHODS}.items()
    for name, function in table.items()
    if callable(function) and not isinstance(function, property)
]


@pytest.mark.parametrize(
    ("function", "first", "inside"),
    [
        (xgrad.hypot, "@operator(", "\ndef hypot(self, other):"),
        (xgrad.Tensor.hypot, "@operator(", "\ndef hypot(self, other):"),
        (xgrad.Tensor.hypot_, "@operator(", "\ndef hypot(self, other):"),
        (xgrad.ones(2).hypot_, "@operator(", "\ndef hypot(self, other):"),
        (xgrad.acosh, '_floating("acosh", COMPLEX_TOO["acosh"]', '"The inverse hyperbolic cosine."'),
        (xgrad.Tensor.arccosh_, '_floating("acosh", COMPLEX_TOO["acosh"]', '"The inverse hyperbolic cosine."'),
        (xgrad.deg2rad, "_floating(", "derivative(self=lambda grad: grad * (math.pi / 180))"),
        (xgrad.linalg.inv, '@composite("inv"', "\ndef inv("),
        (xgrad.nn.functional.conv2d, "conv2d, conv_transpose2d = ", "def convolution(self, weight, bias=None, *,"),
        (xgrad.bitwise_and, '_bitwise("bitwise_and", jnp.bitwise_and', "def function(self, other):"),
        (xgrad.nn.functional.softmax, '@composite("softmax"', "Without `dim` it is dimension 0"),
    ],
)
def test_source_is_the_declaration(function, first, inside):
    lines, number = inspect.getsourcelines(function)
    assert "".join(lines).startswith(first)
    assert inside in "".join(lines)
    file = inspect.getsourcefile(function)
    path, _, row = file.partition(".py:")
    if row:  # of a table: in a file of its own, whose name has the row's line
        path, number = path + ".py", int(row)
    assert pathlib.Path(path).read_text().splitlines()[number - 1].strip() == lines[0].strip()


@pytest.mark.exhaustive
def test_every_public_function_has_source_in_a_file_of_the_package():
    package = os.path.dirname(xgrad.__file__) + os.sep
    machinery = os.path.join(package, "dispatch", "")
    for name, function in PUBLIC:
        assert inspect.getsource(function).strip(), name
        file = inspect.getsourcefile(function)
        assert file.startswith(package), (name, file)
        assert not file.startswith(machinery), (name, file)
        inspect.signature(function)


def test_all_code_of_a_public_function_is_in_one_line_before_and_after_its_first_call():
    xgrad.mul(xgrad.ones(2), 2)
    for _, function in PUBLIC:
        code = function.__code__
        if hasattr(function, "operator"):
            lines = {line for *_, line in code.co_lines()}
            assert len(lines) == 1
            assert code.co_firstlineno <= lines.pop() < code.co_firstlineno + 20
            assert code.co_name == code.co_qualname
            list(code.co_positions())


def frames_of(function, *args):
    with pytest.raises((TypeError, RuntimeError, NameError, IndexError)) as caught:
        function(*args)
    return [(frame.name, frame.line) for frame in traceback.extract_tb(caught.tb)]


def test_traceback_names_the_operator_and_shows_its_line():
    x, y = xgrad.ones(3), xgrad.ones(4)
    assert ("hypot", "def hypot(self, other):") in frames_of(xgrad.hypot, x, y)
    assert ("hypot_", "def hypot(self, other):") in frames_of(x.hypot_, y)
    row = next(line for name, line in frames_of(xgrad.acosh, "no tensor") if name == "acosh")
    assert row.startswith('_floating("acosh", COMPLEX_TOO["acosh"]')
    assert all(name not in ("operator", "first_call", "looks") for name, _ in frames_of(xgrad.std, x, 5))


def test_profilers_name_the_operator():
    x, y = xgrad.ones(3), xgrad.ones(3)
    profile = cProfile.Profile()
    profile.runcall(lambda: (x.mul(y), xgrad.std(x)))
    names = {name for *_, name in pstats.Stats(profile).stats}
    assert {"mul", "std"} <= names


def test_functions_are_pickled_by_the_name_under_which_users_find_them():
    modules = {f"xgrad.{namespace}".strip(".") for namespace in FUNCTIONS}
    for name, function in PUBLIC:
        assert pickle.loads(pickle.dumps(function)) is function, name
        assert function.__module__ in modules, name


def test_functions_have_the_name_of_their_declaration():
    names = [(f.__module__, f.__qualname__) for f in (xgrad.mul, xgrad.std, xgrad.concat, xgrad.linalg.det)]
    assert names == [("xgrad", "mul"), ("xgrad", "std"), ("xgrad", "cat"), ("xgrad.linalg", "det")]
    assert xgrad.nn.functional.conv2d.__module__ == "xgrad.nn.functional"
    assert xgrad.Tensor.float.__qualname__ == "Tensor.float"
    assert copy.deepcopy(xgrad.mul) is xgrad.mul


def test_source_of_a_function_of_from_jax_is_the_users():
    @xgrad.from_jax
    def scaled(x, by):
        return x * by + missing  # noqa: F821

    assert inspect.getsource(scaled).startswith("    @xgrad.from_jax\n    def scaled(x, by):")
    assert inspect.getsourcefile(scaled) == __file__
    assert ("scaled", "return x * by + missing  # noqa: F821") in frames_of(scaled, xgrad.ones(2), 2)


def test_operator_of_a_user_stands_in_the_users_file():
    @operator(function=False, method=False)
    def doubled_here(self):
        return self * 2

    assert inspect.getsourcefile(doubled_here.function) == __file__
    assert ("doubled_here", "def doubled_here(self):") in frames_of(doubled_here.function, "no tensor")


def test_guards_of_a_compiled_function_see_the_users_code_beside_an_operator_of_this_file():
    """The code of `inner` is xgrad's though its file is this one, and `outer` is the user's."""
    setting = types.SimpleNamespace(by=2.0)

    @xgrad.from_jax
    def inner(x):
        return x + 1

    def outer(x):
        return inner(x) * setting.by

    compiled = xgrad.compile(lambda x: outer(x))
    x = xgrad.ones(2)
    assert compiled(x).tolist() == [4.0, 4.0]
    setting.by = 3.0
    assert compiled(x).tolist() == [6.0, 6.0]
