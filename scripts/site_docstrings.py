"""Docstrings as the site shows them: examples of the form `>>> ...` become blocks of code.

Markdown would take `>>>` for quotations.  Source: griffe's extensions, of which this is one.
"""

import re
from typing import Any

import griffe

_EXAMPLE = re.compile(r"(?:^|(?<=\n\n))(>>> .*?)(?=\n\n|\Z)", re.DOTALL)


def with_blocks(text: str) -> str:
    """The text with each example, up to its next empty line, between fences.

    >>> print(with_blocks("Adds.\\n\\n>>> 1 + 1\\n2\\n\\nEnd."))
    Adds.
    <BLANKLINE>
    ```pycon
    >>> 1 + 1
    2
    ```
    <BLANKLINE>
    End.
    """
    return _EXAMPLE.sub(r"```pycon\n\1\n```", text)


class Examples(griffe.Extension):
    """Puts examples between fences as objects are collected."""

    def on_instance(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = with_blocks(obj.docstring.value)
