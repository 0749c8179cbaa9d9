"""The pages of the site: their code runs, prints what they say, and the differences are told once."""

import contextlib
import importlib.util
import io
import re
import subprocess
from pathlib import Path

import pytest

import xgrad

from .lanes import eager_cases

ROOT = Path(__file__).parents[1]
# A block of code, and what it prints if that follows.
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```\n(?:\n```text\n(.*?)```\n)?", re.MULTILINE | re.DOTALL)
GENERATED = {"operators.md"}  # made by a script; has no code

pytestmark = pytest.mark.skipif(not (ROOT / "mkdocs.yml").exists(), reason="installed without its repository")


def pages():
    return sorted(p for p in (ROOT / "docs").rglob("*.md") if p.name not in GENERATED)


def run_blocks(path, names):
    """Run the Python of a page, in order, in one namespace."""
    for language, code, said in BLOCK.findall(path.read_text(encoding="utf-8")):
        if language != "python":
            continue
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, str(path), "exec"), names)
        assert printed.getvalue() == said, f"{path.name}:\n{code}"
    return names


@pytest.mark.one_in(6)
@pytest.mark.parametrize(
    "path",
    eager_cases("launches", [p for p in pages() if "```python" in p.read_text()], lambda p: p.stem == "lazy"),
    ids=lambda p: p.stem,
)
def test_code_of_the_page_runs_and_prints_what_it_says(path, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    run_blocks(path, {"__name__": path.stem})


@pytest.fixture
def own_tables(monkeypatch):
    """What is declared in the test is gone after it."""
    from xgrad.dispatch import declare, tables
    from xgrad.views import chain, normal_form

    found = [tables.METHODS, tables.OPERATORS, *tables.FUNCTIONS.values(), chain._views, normal_form._RULES]
    before = [dict(table) for table in found]
    scopes = list(declare.SCOPES)
    yield
    declare.SCOPES[:] = scopes
    for table, was in zip(found, before):
        table.clear()
        table.update(was)


@pytest.mark.exhaustive
def test_what_contributing_adds_works_as_it_says(own_tables):
    names = run_blocks(ROOT / "CONTRIBUTING.md", {"__name__": "scratch"})
    x = xgrad.arange(12.0).reshape(3, 4).requires_grad_()
    for dim in (0, 1, -1):
        v = names["flipped"](x.clone(), dim)
        assert v.tolist() == x.flip(dim).tolist()
        weight = xgrad.arange(12.0).reshape(3, 4)
        assert xgrad.autograd.grad((v * weight).sum(), x)[0].tolist() == weight.flip(dim).tolist()
    mapped = xgrad.vmap(lambda row: names["flipped"](row, 0))(x)
    assert mapped.tolist() == x.flip(1).tolist()


@pytest.mark.parametrize("path", sorted((ROOT / "notebooks").glob("*.py")), ids=lambda p: p.stem)
def test_a_notebook_that_cannot_install_xgrad_says_so_in_one_line(path, monkeypatch, capfd):
    cell = next(c for c in re.split(r"^# %%$", path.read_text(), flags=re.MULTILINE) if "find_spec" in c)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(subprocess, "run", lambda command, **_: subprocess.CompletedProcess(command, 1))
    with pytest.raises(SystemExit, match=r'xgrad cannot be installed here; .*: %pip install "xgrad\[.*github') as error:
        exec(compile(cell, str(path), "exec"), {})
    assert "\n" not in str(error.value)
    assert capfd.readouterr() == ("", "")


CELL = r"(?:[^|`]|`[^`]*`)*"
ROW = re.compile(rf"^\|(?:{CELL}\|){{4}}$", re.MULTILINE)


def rows(path):
    """The rows of the tables of four columns."""
    return ROW.findall(path.read_text(encoding="utf-8"))


def test_differences_of_the_readme_are_rows_of_the_page():
    """The README has those that matter most; the page has them all."""
    page, readme = rows(ROOT / "docs" / "differences.md"), rows(ROOT / "README.md")
    assert len(page) > 40
    assert len(readme) > 5
    assert not [row for row in readme if row not in page and "---" not in row]


def test_every_page_is_in_the_navigation():
    listed = set(re.findall(r"[\w/.]+\.(?:md|ipynb)", (ROOT / "mkdocs.yml").read_text().split("\nnav:")[1]))
    assert {str(p.relative_to(ROOT / "docs")) for p in pages()} <= listed


# PyTorch's names of ATen's functions, which nobody looks for, and what has its page elsewhere.
ELSEWHERE = {"GradScaler", "vmap", "from_jax", "to_jax", "grid_sampler", "grid_sampler_2d", "grid_sampler_3d",
             "native_batch_norm", "native_dropout", "native_group_norm", "native_layer_norm"}  # fmt: skip


@pytest.mark.parametrize("namespace", ["", "autograd.graph", "autograd.functional", "func", "nn", "views"])
def test_every_public_object_is_on_the_pages_of_the_api(namespace):
    from xgrad.base.unsupported import Unsupported
    from xgrad.dispatch.tables import FUNCTIONS

    home = f"xgrad.{namespace}".removesuffix(".")
    module = importlib.import_module(home)
    pages = "".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs" / "api").glob("*.md"))
    told = set(re.findall(rf"heading: {re.escape(home)}\.(\w+)$", pages, re.MULTILINE))
    public = set()
    for name in getattr(module, "__all__", None) or dir(module):
        value = getattr(module, name)
        own = callable(value) and getattr(value, "__module__", "").startswith("xgrad")
        if own and not name.startswith("_") and not isinstance(value, Unsupported):
            public.add(name)
    assert public - set(FUNCTIONS.get(namespace, ())) - ELSEWHERE <= told


def test_every_object_that_a_page_names_exists():
    for page in sorted((ROOT / "docs").rglob("*.md")):
        for name in re.findall(r"^::: (\S+)", page.read_text(), re.MULTILINE):
            module, _, attribute = name.rpartition(".")
            try:
                assert hasattr(importlib.import_module(module), attribute), (page.name, name)
            except ModuleNotFoundError:  # a method: the last but one is a class
                module, _, kind = module.rpartition(".")
                assert hasattr(getattr(importlib.import_module(module), kind), attribute), (page.name, name)
