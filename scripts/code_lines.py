"""Count the lines of code of the package: no blank lines, comments and docstrings.  `python scripts/code_lines.py`

The argument is a checkout, by default the working directory.
"""

import ast
import io
import sys
import tokenize
from pathlib import Path

SILENT = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER,
}  # fmt: skip
SCOPES = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def code_lines(text: str) -> int:
    """Return the number of lines of a module that hold code."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in SILENT:
            lines.update(range(token.start[0], token.end[0] + 1))
    for scope in ast.walk(ast.parse(text)):
        if isinstance(scope, SCOPES) and ast.get_docstring(scope, clean=False) is not None:
            docstring = scope.body[0]
            lines.difference_update(range(docstring.lineno, (docstring.end_lineno or docstring.lineno) + 1))
    return len(lines)


if __name__ == "__main__":
    root = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    print(sum(code_lines(path.read_text()) for path in root.glob("xgrad/**/*.py")))
