"""Docstrings as the site shows them: examples (`>>> ...`) become blocks of code, lines `name: what it is` a list.

Markdown would take the former for quotations, and run the latter together.  Source: griffe's extensions, of which this
is one.
"""

import re
from typing import Any

import griffe

_EXAMPLE = re.compile(r"(?:^|(?<=\n\n))(>>> .*?)(?=\n\n|\Z)", re.DOTALL)


_ARGUMENTS = re.compile(r"(?:^|(?<=\n\n))[a-z_]\w*: .*?(?=\n\n|\Z)", re.DOTALL)


def with_blocks(text: str) -> str:
    """The text with each example, up to its next empty line, between fences, and with lists of arguments.

    >>> with_blocks("x: a number\\ny: another")
    '- `x`: a number\\n- `y`: another'
    """
    text = _ARGUMENTS.sub(lambda found: re.sub(r"(?m)^([a-z_]\w*): ", r"- `\1`: ", found[0]), text)
    return _EXAMPLE.sub(r"```pycon\n\1\n```", text)


class Examples(griffe.Extension):
    """Puts examples between fences as objects are collected."""

    def on_instance(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = with_blocks(obj.docstring.value)
