"""What the site shows that is no page of this folder: the notebooks, CONTRIBUTING.md, the operators' signatures.

A hook of mkdocs (see mkdocs.yml).  Invariant: nothing is written into the checkout, and nothing is executed.
"""

import inspect
import os
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.plugins import event_priority
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from site_docstrings import with_blocks

ROOT = Path(__file__).parents[1]
FUNCTIONS = {  # namespace of the operator table: its page
    "": "xgrad",
    "nn.functional": "nn_functional",
    "linalg": "linalg",
    "special": "special",
    "fft": "fft",
    "signal.windows": "signal_windows",
}
SOURCE = "https://github.com/xgrad/xgrad/blob/main/"


@event_priority(100)  # before mkdocs-jupyter looks for notebooks
def on_files(files: Files, config: MkDocsConfig) -> Files:
    executed = Path(os.environ.get("EXECUTED") or ROOT)
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        notebook = File(f"notebooks/{path.name}", str(executed), config.site_dir, config.use_directory_urls)
        if not (executed / notebook.src_uri).exists():
            raise FileNotFoundError(f"EXECUTED={executed} has no {notebook.src_uri}")
        files.append(notebook)
    files.append(File.generated(config, "contributing.md", content=contributing()))
    for namespace, page in FUNCTIONS.items():
        files.append(File.generated(config, f"api/functions/{page}.md", content=functions(namespace)))
    files.append(File.generated(config, "api/functions/tensor.md", content=methods()))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> None:
    if page.file.src_uri == "operators.md" or page.file.src_uri.endswith(".ipynb"):  # wide, and made elsewhere
        page.meta["hide"] = ["navigation"]


def on_page_content(html: str, **_: Any) -> str:
    """Put pictures of xgrad.viz into the page itself: they follow its theme, and have their buttons."""

    def picture(found: re.Match) -> str:
        content = (ROOT / "docs" / "pictures" / found[1]).read_text(encoding="utf-8")
        return f'<div style="overflow:auto">{content}</div>'

    html = re.sub(r'<img [^>]*src="[^"]*pictures/(\w+\.svg)"[^>]*>', picture, html)
    return re.sub(r"<!-- pictures/(\w+\.html) -->", picture, html)


def contributing() -> str:
    """CONTRIBUTING.md: links to pages of the site stay in it, those to other files go to the repository."""

    def link(found: re.Match) -> str:
        target = found[1]
        return f"]({target.removeprefix('docs/')})" if target.startswith("docs/") else f"]({SOURCE}{target})"

    return re.sub(r"\]\((?!http|#)([^)]+)\)", link, (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))


_HEAD = """---
hide: [toc]
---

# {home}: functions

Made from the operators' declarations.  Methods and in-place forms take the same arguments;
[the operator table](../../operators.md) says which there are, and what each saves for backward.
"""

_METHODS = """---
hide: [toc]
---

# Tensor: methods that are no functions

Made from the operators' declarations.  All functions of [xgrad](xgrad.md) of which the first argument is a tensor are
methods too.
"""


def functions(namespace: str) -> str:
    """All functions of one namespace of the operator table, with signature and docstring."""
    from xgrad.dispatch import tables

    home, table = f"xgrad.{namespace}".removesuffix("."), tables.FUNCTIONS[namespace]
    shown = {n: f for n, f in table.items() if not (n.startswith("_") or (n.endswith("_") and n[:-1] in table))}
    return _HEAD.format(home=home) + "".join(_entry(home, name, function) for name, function in sorted(shown.items()))


def methods() -> str:
    """Tensor's methods and properties that neither its class body nor a function of the same name tells of."""
    import xgrad
    from xgrad.base.unsupported import Unsupported
    from xgrad.dispatch import tables

    shown = {
        name: value
        for name in dir(xgrad.Tensor)
        if not name.startswith("_") and name not in tables.FUNCTIONS[""]
        if not isinstance(value := inspect.getattr_static(xgrad.Tensor, name), Unsupported)
        if getattr(getattr(value, "fget", value), "__module__", "") != "xgrad.tensor"
    }
    return _METHODS + "".join(_entry("xgrad.Tensor", name, value) for name, value in sorted(shown.items()))


def _entry(home: str, name: str, value: Any) -> str:
    """Heading, signature and docstring."""
    told = f"```python\n{signature(name, value)}\n```\n\n" if callable(value) else ""
    text = with_blocks(inspect.cleandoc(value.__doc__ or ""))
    text = re.sub(r"^(Shapes|Dtypes|Errors|Backward|Forms|Source): ", r"**\1**: ", text, flags=re.MULTILINE)
    return f"\n### {name} {{ #{home}.{name} }}\n\n{told}{text}\n"


def signature(name: str, function: Any) -> str:
    """`name(input, dim=None) -> Tensor` as a program would have it, on several lines where it is long.

    >>> signature("f", lambda a, *, b=1: a)
    'f(a, *, b=1)'
    """
    sig = inspect.signature(function)
    text = _short(f"{name}{sig}")
    if len(text) <= 84:
        return text
    end = "" if sig.return_annotation is sig.empty else f" -> {inspect.formatannotation(sig.return_annotation)}"
    kinds = [p.kind for p in sig.parameters.values()]
    parameters = [str(p) for p in sig.parameters.values()]
    if inspect.Parameter.KEYWORD_ONLY in kinds and inspect.Parameter.VAR_POSITIONAL not in kinds:
        parameters.insert(kinds.index(inspect.Parameter.KEYWORD_ONLY), "*")
    return _short(f"{name}(\n" + "".join(f"    {p},\n" for p in parameters) + f"){end}")


def _short(text: str) -> str:
    return re.sub(r"\b(?:xgrad|collections|typing|numpy|jax)(?:\.[a-z_]\w*)*\.(?=[A-Za-z_]\w*)", "", text)
