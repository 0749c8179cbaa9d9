"""Finds the line of the user's code that called xgrad, for messages of lazy blocks, compiles and traces."""

import contextlib
import os
import sys
from typing import Any

_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_inside: dict[str, bool] = {}  # by file name: True for xgrad's own, JAX's, Python's
# By identity of the code, and instruction: the code, the text of its line.  Code objects of two files may be equal.
_texts: dict[tuple[int, int], tuple[Any, str]] = {}


def outside(frame: Any) -> Any:
    """Return (code, instruction) of the innermost frame that is not xgrad's, JAX's or Python's; None if there is none.

    There is none under `python -m xgrad`, but for a file that it is given.
    """
    while frame is not None:
        code = frame.f_code
        name = code.co_filename
        if not (_inside[name] if name in _inside else is_inside(name)):  # each operator of a lazy thread asks
            return code, frame.f_lasti
        frame = frame.f_back
    return None


def is_inside(name: str) -> bool:
    """Return True for a file of xgrad's, JAX's or Python's."""
    if name not in _inside:
        ours = name.startswith(_OURS) or name == contextlib.__file__
        made = name.startswith(("<frozen ", "<forward of "))  # the latter by nn/modules/declared_module.py
        _inside[name] = ours or made or f"{os.sep}jax{os.sep}" in name
    return _inside[name]


def line_of_trace(traceback: Any) -> str:
    """Return `file.py:12` of the innermost frame of a JAX equation's traceback that is the user's; "xgrad" for none."""
    for frame in () if traceback is None else traceback.frames:
        if not is_inside(frame.file_name):
            return f"{_cell(frame.file_name) or os.path.basename(frame.file_name)}:{frame.line_num}"
    return "xgrad"


def line_of(place: Any) -> tuple[str, int]:
    """Return the file and the line of a place."""
    if place is None:
        return "?", 0
    code, last = place
    line = code.co_firstlineno
    for start, end, number in code.co_lines():
        if start <= last < end and number is not None:
            line = number
    return code.co_filename, line


def lines(place: Any) -> str:
    """Return `file.py:12`, or `In[7]:12` for a line of a notebook's cell; `place` None is xgrad's own code."""
    if place is None:
        return "xgrad's own code"
    code, last = place
    known, text = _texts.get((id(code), last), (None, ""))
    if known is not code:
        name, line = line_of(place)
        text = f"{_cell(name) or os.path.basename(name)}:{line}"
        if len(_texts) >= 4096:
            _texts.clear()
        _texts[id(code), last] = code, text
    return text


def _cell(name: str) -> str | None:
    """Return the name that a notebook's tracebacks show for the file of a cell, a number in a temporary folder."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    format_name = getattr(getattr(shell, "compile", None), "format_code_name", None)  # from IPython 8 on
    label = format_name and format_name(name)
    return label[1] if label else None
