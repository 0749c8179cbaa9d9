"""`help` of every public function: what it does, shapes, dtypes, errors, what backward saves, an example, the source.

The texts are made by scripts/make_help.py, which takes minutes; so a few are made again here, of the others the parts
that need no tracing.  All examples run, a part of them in the quick lane.
"""

import doctest
import inspect
import pathlib
import pydoc
import re
import subprocess
import sys

import jax
import pytest
import torch

import xgrad
from xgrad.dispatch.help_texts import contents, written
from xgrad.dispatch.tables import FUNCTIONS, METHODS

SCRIPTS = pathlib.Path(xgrad.__file__).parents[1] / "scripts"
PARTS = ("Shapes", "Dtypes", "Errors", "Backward", "Source")
FUNCTIONS_OF_ALL = {
    f".{place}.{name}".replace("..", "."): function
    for place, table in {**FUNCTIONS, "Tensor": METHODS}.items()
    for name, function in table.items()
    if not name.startswith("_") and not isinstance(function, property)
}
TITLES = [part.strip() for part in contents().split("\f")[1::2]]
EXAMPLES = {title: FUNCTIONS_OF_ALL[title.removeprefix("xgrad")] for title in TITLES}  # ".add", ".linalg.inv"


@pytest.fixture(scope="module")
def make_help():
    """scripts/make_help.py, which is no part of the package."""
    sys.path.insert(0, str(SCRIPTS))
    try:
        import make_help
    finally:
        sys.path.remove(str(SCRIPTS))
    return make_help


def test_help_of_every_function_has_all_parts():
    for name, function in FUNCTIONS_OF_ALL.items():
        paragraphs = str(function.__doc__).split("\n\n")
        found = [p.partition(":")[0] for p in paragraphs if p.startswith(PARTS)]
        assert found == [*PARTS], name
        assert any(p.startswith(">>> import xgrad\n>>> ") for p in paragraphs), name
        assert not paragraphs[0].startswith((">>>", *PARTS)), name


def test_help_begins_with_the_docstring_of_the_source():
    for name, function in FUNCTIONS_OF_ALL.items():
        own = inspect.cleandoc(written(function)).split("\n\n")
        own = [p for p in own if not p.startswith(">>> ")]
        assert str(function.__doc__).split("\n\n")[: len(own)] == own, f"run scripts/make_help.py: {name}"


def test_help_says_what_the_declaration_says_of_backward(make_help):
    for entry in make_help.entries():
        if entry.operator is not None:
            words = " ".join(f"Backward: {make_help.backward(entry)}".split())
            assert words in " ".join(str(entry.function.__doc__).split()), f"run scripts/make_help.py: {entry.public}"


def test_help_names_a_function_that_torch_has():
    for name, function in FUNCTIONS_OF_ALL.items():
        path = re.search(r"^Source: PyTorch's torch\.([\w.]+?)[.;](?:\s|$)", str(function.__doc__), re.MULTILINE)
        value = torch
        for part in path[1].split(".") if path else ():
            value = getattr(value, part)
        assert path or "PyTorch has no function of this name" in str(function.__doc__), name


@pytest.mark.exhaustive
@pytest.mark.one_in(30)
@pytest.mark.parametrize("part", range(30))
def test_examples_of_help_run(part):
    parser, report = doctest.DocTestParser(), []
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    for title in TITLES[part::30]:
        runner.run(parser.get_doctest(str(EXAMPLES[title].__doc__), {}, title, None, 0), out=report.append)
    outcome = runner.summarize(verbose=False)
    assert outcome.attempted > 50
    assert outcome.failed == 0, "".join(report)


@pytest.mark.exhaustive
@pytest.mark.skipif(jax.__version_info__ < (0, 10), reason="the file is made with the newest jax")
@pytest.mark.parametrize("part", range(6))
def test_texts_are_what_the_script_makes(part, make_help):
    """Traced in a process of its own, at the users' settings: dtypes, errors and the outputs of examples too."""
    names = [f"{e.place}.{e.name}".removeprefix(".") for e in make_help.entries()][part::36]
    done = subprocess.run([sys.executable, SCRIPTS / "make_help.py", *names], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for name in names:
        shown = str(FUNCTIONS_OF_ALL[f".{name}"].__doc__)
        made = shown.split("\n\nAmong its operators: ")[0].split("\n\nLowering: ")[0]  # what is said when it is shown
        assert made.strip() in done.stdout, f"run scripts/make_help.py: {name}"


@pytest.mark.parametrize("function", [xgrad.softmax, xgrad.Tensor.softmax, xgrad.ones(2).mul, xgrad.linalg.inv])
def test_help_is_shown_by_pydoc_and_inspect(function):
    for shown in (pydoc.plain(pydoc.render_doc(function)), inspect.getdoc(function)):
        for part in ("Dtypes: ", "Errors: ", "Backward: ", ">>> xgrad.", "Source: PyTorch's torch."):
            assert part in shown


def test_help_of_softmax_says_what_is_saved():
    assert "node `SoftmaxBackward0`; for `input` it saves `result`" in f"{xgrad.softmax.__doc__}"
    assert "`NotImplementedError` for bools, integers and complex numbers" in repr(xgrad.softmax.__doc__)
    assert inspect.cleandoc(written(xgrad.softmax)).startswith("exp(x) over its sum along `dim`")


def test_python_without_docstrings_has_no_help_either():
    code = "import xgrad; assert xgrad.softmax.__doc__ is None, xgrad.softmax.__doc__"
    subprocess.run([sys.executable, "-OO", "-c", code], check=True)


def test_the_texts_are_read_when_the_first_one_is_shown():
    code = """
import pathlib, sys
opened = []
sys.addaudithook(lambda event, args: opened.append(args[0]) if event == "open" and "help.z" in str(args[0]) else None)
import xgrad
assert xgrad.softmax.__doc__.startswith("exp(x) over its sum"), xgrad.softmax.__doc__
assert not opened
print(xgrad.softmax.__doc__, xgrad.Tensor.softmax.__doc__, xgrad.linalg.inv.__doc__)
assert len(opened) == 1
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.count("Backward: ") == 3


def test_help_says_how_a_lowering_is_called_and_which_operators_run():
    softmax, added, loss = (str(f.__doc__) for f in (xgrad.softmax, xgrad.cat, xgrad.nn.functional.cross_entropy))
    assert "`xgrad.Backend(lowerings={'softmax': f})` calls `f(self, *, dim, dtype=None)`" in softmax
    assert "calls `f(*tensors, dim=0)`" in added
    assert "Among its operators: `cross_entropy_loss`." in loss
