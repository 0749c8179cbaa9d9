"""The lines that lazy metrics name."""

import sys
import types

import xgrad
from xgrad.execution.source import lines, outside


class Compiler:
    """Names cells as IPython's compiler does."""

    def format_code_name(self, name):
        return ("Cell", "In[7]") if name == "/tmp/ipykernel_12/34.py" else None


def pending_line(file):
    """The end of the line that `pending` prints for an operation of this file's second line."""
    names = {"xgrad": xgrad}
    exec(compile("with xgrad.lazy():\n    y = xgrad.ones(2) * 3; text = xgrad.lazy.pending()", file, "exec"), names)
    return names["text"].splitlines()[-1].split("# ")[1]


def test_a_line_is_that_of_the_file():
    assert pending_line("/some/folder/train.py") == "train.py:2"
    assert lines(None) == "xgrad's own code"


def test_pythons_own_frames_are_no_lines():
    names = {"outside": outside, "sys": sys}
    exec(compile("place = outside(sys._getframe())", "<frozen runpy>", "exec"), names)
    assert lines(names["place"]).startswith("test_source.py:")


def test_a_line_of_a_notebook_is_that_of_its_cell(monkeypatch):
    shell = types.SimpleNamespace(compile=Compiler())
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))
    assert pending_line("/tmp/ipykernel_12/34.py") == "In[7]:2"
    assert pending_line("train.py") == "train.py:2"


def test_an_old_ipython_or_none_names_files(monkeypatch):
    for get_ipython in (lambda: None, lambda: types.SimpleNamespace(compile=None)):
        monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=get_ipython))
        assert pending_line("train.py") == "train.py:2"


def test_a_layers_generated_forward_is_no_line_and_names_have_no_underscore():
    layer, x = xgrad.nn.ReLU(), xgrad.ones(2, requires_grad=True)
    with xgrad.lazy():
        layer(x * xgrad.full((2,), 2.0) + xgrad.zeros(2)).sum().backward()
        text = xgrad.lazy.pending()
    assert " relu" in text
    assert "<forward" not in text
    assert "<lambda>" not in text
    assert " _" not in text
    assert all("# test_source.py:" in line for line in text.splitlines()[1:])
