"""The README: its first two blocks are the commands, its tour runs.  The layout and the limits, which it points to."""

import contextlib
import io
import re
from itertools import chain
from pathlib import Path

import pytest

import xgrad

README = Path(__file__).parents[1] / "README.md"
DOCS = README.parent / "docs"
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)

pytestmark = pytest.mark.skipif(not README.exists(), reason="installed without its repository")


def blocks():
    return BLOCK.findall(README.read_text(encoding="utf-8"))


def test_first_two_blocks_are_the_commands():
    first, second = (body.strip() for _, body in blocks()[:2])
    assert first == 'pip install -e ".[demo]" && python -m xgrad demo'
    assert second == 'pip install -e ".[test]" && python -m pytest'


def test_pictures_and_linked_files_exist():
    links = re.findall(r"\]\((?!http)([^)#]+)", README.read_text(encoding="utf-8"))
    assert links
    for link in links:
        assert (README.parent / link).is_file(), link


def test_tour_runs_as_it_stands_and_is_right():
    tour, whole = (body for language, body in blocks() if language == "python")
    names = {}
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(tour, "README.md", "exec"), names)
    # y = [[0, 1, 3], [3, 40, 6], [6, 7, 801]] before the product with its diagonal d.
    # dx = d of its column, and on the diagonal w (d + the sum of its column);  dw = x (d + that sum), on the diagonal.
    assert names["x"].grad.tolist() == [[9.0, 40.0, 801.0], [0.0, 880.0, 801.0], [0.0, 40.0, 161100.0]]
    assert names["w"].grad.tolist() == [0.0, 352.0, 12888.0]
    text = printed.getvalue()
    assert "True" in text
    assert "equal, bit for bit" in text
    with contextlib.redirect_stdout(printed):
        exec(compile(whole, "README.md", "exec"), names)
    first, _, last = names["losses"]
    assert last < first
    assert names["step"].metrics().traces == 1


@pytest.mark.parametrize("overlapping", [lambda: xgrad.arange(5.0).unfold(0, 3, 1), lambda: xgrad.ones(3).expand(2, 3)])
def test_overlapping_writes_are_refused_as_the_table_says(overlapping):
    with pytest.raises(RuntimeError, match="more than one element"):
        overlapping().mul_(2)


def test_as_strided_of_a_view_sends_its_gradient_to_the_base_as_the_table_says():
    x = xgrad.ones(2, 2, requires_grad=True)
    x.clone()[1].as_strided((2,), (1,), 0).sum().backward()
    assert x.grad.tolist() == [[1.0, 1.0], [0.0, 0.0]]


def limits():
    """The operators that the page of limits says are missing: the names in backticks of one of its items."""
    items = re.split(r"^- ", (DOCS / "limits.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    absent = [item.split("Those that")[0] for item in items if item.startswith("Operators that are missing")]
    assert len(absent) == 1
    return re.findall(r"`([\w.]+)`", " ".join(absent))


@pytest.mark.parametrize("name", limits() if DOCS.exists() else [])
def test_what_is_said_to_be_missing_is_missing(name):
    def found(root):
        for part in name.split("."):
            root = getattr(root, part, None)
        return root

    import torch

    assert found(torch) is not None, f"{name} is no name of PyTorch's"
    assert found(xgrad) is None, f"{name} is there: the page of limits is old"


def test_vmap_maps_over_wrapped_arrays_as_the_limits_say():
    import jax
    import jax.numpy as jnp

    def slope(array):
        x = xgrad.as_tensor(array).requires_grad_()
        return xgrad.autograd.grad((x * x).sum(), x)[0].__jax_array__()

    assert jax.vmap(slope)(jnp.ones((3, 2))).tolist() == [[2.0, 2.0]] * 3


def test_layout_names_every_module_in_the_order_of_imports():
    """The lines of the list are the layers that tests/test_package.py checks."""
    from .test_package import LAYERS, ROOT

    section = (DOCS / "inside.md").read_text(encoding="utf-8").split("## The house")[1].split("\n## ")[0]
    lines = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    listed = [re.findall(r"`([\w/.]+)`", line) for line in lines]
    assert all((ROOT / path).exists() for path in chain(*listed)), listed
    first = [[p.removesuffix(".py").split("/")[0] for p in names] for names in listed]
    rank = {name: i for i, names in enumerate(LAYERS) for name in names}
    ranks = [{rank[name] for name in names} for names in first]
    assert all(len(r) == 1 for r in ranks), ranks
    assert list(chain(*ranks)) == sorted(chain(*ranks))
    present = {p.stem for p in ROOT.iterdir() if p.suffix == ".py" or (p / "__init__.py").exists()}
    assert set(chain(*first)) == {name for name in present if not name.startswith("__")}
