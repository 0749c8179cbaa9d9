"""List the names of torch that a package's files mention, and that `as_torch()` lacks or refuses.

    python scripts/package_names.py timm torchvision

Run it with a Python that has the packages, xgrad, and no PyTorch; the packages are read, not imported.
"""

import argparse
import ast
import importlib
import importlib.util
from collections import Counter
from collections.abc import Iterator
from pathlib import Path


def files_of(package: str) -> Iterator[Path]:
    """Yield the Python files of an installed package."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit(f"{package} is not installed here, or is a single module")
    for folder in spec.submodule_search_locations:
        yield from sorted(Path(folder).rglob("*.py"))


def names_in(source: str) -> set[str]:
    """Return the dotted names "torch.nn.Linear" that a file imports, or reads from what it imports."""
    tree = ast.parse(source)
    known: dict[str, str] = {}  # a name in the file → the dotted name behind it
    mentioned = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.partition(".")[0] == "torch":
                    mentioned.add(alias.name)
                    known[alias.asname or "torch"] = alias.name if alias.asname else "torch"
        elif isinstance(node, ast.ImportFrom) and not node.level and (node.module or "").partition(".")[0] == "torch":
            for alias in node.names:
                if alias.name != "*":
                    mentioned.add(f"{node.module}.{alias.name}")
                    known[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    for node in ast.walk(tree):
        parts, below = [], node
        while isinstance(below, ast.Attribute):
            parts.append(below.attr)
            below = below.value
        if parts and isinstance(below, ast.Name) and below.id in known:
            mentioned.add(".".join([known[below.id], *reversed(parts)]))
    return mentioned


def found(path: str) -> str:
    """Return "" for a name that is there, else what stops it: "refused", or the error's text."""
    from xgrad.base.unsupported import Unsupported

    parts, value = path.split("."), importlib.import_module("torch")
    for i, part in enumerate(parts[1:], 2):
        try:
            value = getattr(value, part)
        except AttributeError as error:
            try:
                value = importlib.import_module(".".join(parts[:i]))
            except ModuleNotFoundError:
                return f"{type(error).__name__} at {'.'.join(parts[:i])}"
        if isinstance(value, Unsupported):
            return "refused"
        if not callable(value) and not hasattr(value, "__path__"):
            return ""  # a value: what is read from it is its own
    return ""


def main() -> None:
    """Print the names, those first that most files mention."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("packages", nargs="+")
    parser.add_argument("--refused", action="store_true", help="names that are refused when they are called, too")
    args = parser.parse_args()
    import xgrad

    xgrad.as_torch()
    for package in args.packages:
        count: Counter[str] = Counter()
        for file in files_of(package):
            count.update(names_in(file.read_text()))
        for name, times in count.most_common():
            why = found(name)
            if why and (args.refused or why != "refused"):
                print(f"{package:12} {times:4} {name:60} {why}")


if __name__ == "__main__":
    main()
