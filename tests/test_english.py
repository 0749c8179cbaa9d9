"""Docstrings, comments and messages of the package are in plain English: CONTRIBUTING.md, "English", has the rule.

A pattern cannot judge a sentence.  These refuse words that made strangers read one twice, and none has a false alarm in
the package: a text that is found is rewritten, or makes the pattern more exact.
"""

import ast
import functools
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

import xgrad

ROOT = Path(xgrad.__file__).parent

# Words that begin a clause of their own, and so are not the subject of the clause that "for" would begin.
_RELATIVE = r"(?:which|whom|whose|what|that|where|who)\b"
_VERB = r"(?:is|are|was|were|has|have|had|does|do|did|can|cannot|may|might|must|will|would|could|should)\b"
_SUBJECT = rf"(?:(?!{_RELATIVE})[\w`'()-]+ ){{1,4}}?"
PATTERNS = {
    "is no X: say that it is not an X, or what is missing": r"\bis no (?!longer\b)\w",
    "for as a conjunction: say because": rf", for (?:(?:it|they) \w|{_SUBJECT}{_VERB})",
    "such a one: name it": r"\bsuch a one\b",
    "of which: make two sentences": r"\bof which\b",
    # The second is how torch.autograd.forward_ad words a tangent's shape.
    "that of, those of: repeat the noun": r"\bthose of\b|(?<!different size than )\bthat of\b",
}
OPENING = re.compile(r"\s*(?:What|Whether|Of)\b")
PREFIX = re.compile(r"[a-zA-Z]*(\"\"\"|'''|\"|')")


def texts(source: str) -> Iterator[tuple[int, str]]:
    """Yield (line, text) of each comment, over all its lines, and of each string with those that are joined to it."""
    parts: list[str] = []
    first, previous = 0, None
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.NL:
            continue
        kind = token.type if token.type in (tokenize.COMMENT, tokenize.STRING) else _middle(token)
        joined = kind == previous and (kind != tokenize.COMMENT or token.line.lstrip().startswith("#"))
        if parts and not joined:
            yield first, " ".join("".join(parts).split())
            parts = []
        if kind is not None:
            first = first if parts else token.start[0]
            parts.append(_words(kind, token.string))
        previous = kind
    if parts:
        yield first, " ".join("".join(parts).split())


def _middle(token: tokenize.TokenInfo) -> int | None:
    """Return STRING for the parts of an f-string, which are tokens of their own since Python 3.12."""
    return tokenize.STRING if tokenize.tok_name[token.type].startswith("FSTRING_") else None


def _words(kind: int, string: str) -> str:
    if kind == tokenize.COMMENT:
        return string.lstrip("#:") + " "
    start = PREFIX.match(string)
    return string[start.end() : -len(start[1])] if start and string.endswith(start[1]) else string


@functools.cache
def package() -> list[tuple[str, int, str]]:
    """Every text of the package, with its file and line."""
    files = [(str(path.relative_to(ROOT)), path.read_text()) for path in sorted(ROOT.rglob("*.py"))]
    return [(file, line, text) for file, source in files for line, text in texts(source)]


def docstrings(source: str) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text is not None:
                yield node.body[0].lineno, text


@pytest.mark.parametrize("problem", PATTERNS)
def test_words_that_read_twice(problem):
    pattern = re.compile(PATTERNS[problem], re.IGNORECASE)
    found = [
        f"{file}:{line}: ...{text[max(0, match.start() - 40) : match.end() + 40]}..."
        for file, line, text in package()
        for match in pattern.finditer(text)
    ]
    assert not found, "\n".join([problem, *found])


def test_docstrings_name_the_thing_or_what_the_function_does_first():
    found = [
        f"{path.relative_to(ROOT)}:{line}: {text[:60]}..."
        for path in sorted(ROOT.rglob("*.py"))
        for line, text in docstrings(path.read_text())
        if OPENING.match(text)
    ]
    assert not found, "\n".join(found)


def test_texts_are_read_over_line_breaks_and_joined_strings():
    source = '# a value, for\n#   it is one\nx = 1  # of\n# which\ny = (f"a {x} is "\n"no int")\n'
    found = [text for _, text in texts(source)]
    assert found[:3] == ["a value, for it is one", "of", "which"]
    assert found[-1].endswith(" is no int") or found[-1] == "is no int"  # Python 3.12 has a token for each part
