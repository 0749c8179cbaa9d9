"""The import graph of the package, read from its syntax: circles, late imports, and globals that other modules fill.

Every `import` counts: those inside functions, and those under `if TYPE_CHECKING:`, which the editor follows.  An edge
leads to the module that a name comes from: `from .views import chain` to `views.chain`, `from .views import tracking`
to `views` only where `views/__init__.py` itself gives the name.

    python scripts/import_graph.py [--package PATH]
"""

import argparse
import ast
import functools
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent / "xgrad"


class Import(NamedTuple):
    """One imported name, and where it is imported."""

    source: str  # the module that imports, "" for the package itself
    target: str  # the module that is imported
    name: str | None  # of what is taken out of it; None: the module itself
    line: int
    kind: str  # "top" of the file, "late": inside a function, "types": for the type checker alone
    bound: str  # the name that it has in the source


def modules_of(root: Path) -> dict[str, Path]:
    """{dotted name below the package: file}."""
    found = {}
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@functools.cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@functools.cache
def _statements(path: Path) -> list[tuple[ast.stmt, str]]:
    """All statements of a file, and when they run: see `Import.kind`."""
    found: list[tuple[ast.stmt, str]] = []

    def visit(body: list[ast.stmt], kind: str) -> None:
        for node in body:
            inner = "late" if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) else kind
            if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
                inner = "types"
            found.append((node, inner))
            for field in ("body", "orelse", "finalbody"):
                visit(getattr(node, field, []), inner)
            for part in (*getattr(node, "handlers", []), *getattr(node, "cases", [])):
                visit(part.body, inner)

    visit(_tree(path).body, "top")
    return found


def imports_of(name: str, path: Path, modules: dict[str, Path], package: str) -> Iterator[Import]:
    """The imports of modules of the package in one file."""
    is_package = path.name == "__init__.py"
    here = name.split(".") if name else []
    for node, kind in _statements(path):
        if isinstance(node, ast.Import):
            for alias in node.names:
                first, _, rest = alias.name.partition(".")
                if first == package:
                    yield Import(name, rest if rest in modules else "", None, node.lineno, kind, alias.asname or first)
            continue
        if not isinstance(node, ast.ImportFrom):
            continue
        if node.level:
            up = node.level - is_package
            base = here[: len(here) - up] if up else here
        elif node.module and node.module.split(".")[0] == package:
            base = []
        else:
            continue
        own = (node.module or "").split(".") if node.module else []
        base = ".".join([*base, *(own if node.level else own[1:])])
        for alias in node.names:
            inner = f"{base}.{alias.name}" if base else alias.name
            bound = alias.asname or alias.name
            if inner in modules:
                yield Import(name, inner, None, node.lineno, kind, bound)
            else:
                yield Import(name, base, alias.name, node.lineno, kind, bound)


def graph_of(root: Path = ROOT) -> list[Import]:
    """All imports of the package's modules by each other."""
    modules = modules_of(root)
    found = [i for name, path in modules.items() for i in imports_of(name, path, modules, root.name)]
    return [i for i in found if i.source != i.target]


def circles(edges: dict[str, set[str]]) -> list[list[str]]:
    """The strongly connected components of more than one module (Tarjan's)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found = []

    def visit(v: str) -> None:
        index[v] = low[v] = len(index)
        stack.append(v)
        for w in sorted(edges.get(v, ())):
            if w not in index:
                visit(w)
                low[v] = min(low[v], low[w])
            elif w in stack:
                low[v] = min(low[v], index[w])
        if low[v] == index[v]:
            at = stack.index(v)
            if len(stack) - at > 1:
                found.append(sorted(stack[at:]))
            del stack[at:]

    sys.setrecursionlimit(10_000)
    for v in sorted(edges):
        if v not in index:
            visit(v)
    return sorted(found, key=lambda circle: (-len(circle), circle))


def edges_of(imports: list[Import]) -> dict[str, set[str]]:
    """{module: modules that it imports}."""
    edges: dict[str, set[str]] = {}
    for i in imports:
        edges.setdefault(i.source, set()).add(i.target)
    return edges


def shortest(circle: list[str], edges: dict[str, set[str]]) -> list[str]:
    """One way round within a circle: the shortest."""
    inside, best = set(circle), []
    for start in circle:
        before: dict[str, str] = {}
        front = [start]
        while front and start not in before:
            after = []
            for v in front:
                for w in sorted(edges[v] & inside):
                    if w not in before:
                        before[w] = v
                        after.append(w)
            front = after
        way, at = [start], before[start]
        while at != start:
            way.append(at)
            at = before[at]
        if not best or len(way) < len(best):
            best = [*way, start][::-1]
    return best


def late_elsewhere(root: Path = ROOT) -> list[str]:
    """`FILE:LINE module` of each import of another library inside a function."""
    found = []
    for path in modules_of(root).values():
        for node, kind in _statements(path):
            if kind != "late":
                continue
            if isinstance(node, ast.Import):
                found += [f"{path.relative_to(root)}:{node.lineno} {alias.name}" for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level:
                found.append(f"{path.relative_to(root)}:{node.lineno} {node.module}")
    return found


def unexplained(root: Path = ROOT) -> list[str]:
    """`FILE:LINE` of each import inside a function whose block of imports has no comment, on or above it."""
    found = []
    for path in modules_of(root).values():
        lines = path.read_text(encoding="utf-8").splitlines()
        for node, kind in _statements(path):
            if kind == "late" and isinstance(node, (ast.Import, ast.ImportFrom)):
                last = first = node.lineno - 1
                while first and (
                    not lines[first - 1].strip() or lines[first - 1].split()[0] in ("import", "from", "#")
                ):
                    first -= 1
                if not any("#" in line for line in lines[first : last + 1]):
                    found.append(f"{path.relative_to(root)}:{node.lineno}")
    return found


def assigned_from_outside(root: Path = ROOT) -> list[str]:
    """`FILE:LINE module.name` of each assignment to a global of another module."""
    modules = modules_of(root)
    found = []
    for name, path in modules.items():
        bound = {i.bound: i.target for i in imports_of(name, path, modules, root.name) if i.name is None}
        for node, _ in _statements(path):
            targets = node.targets if isinstance(node, ast.Assign) else []
            targets = [node.target] if isinstance(node, (ast.AugAssign, ast.AnnAssign)) else targets
            for target in targets:
                for part in ast.walk(target):
                    if isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Store):
                        owner = part.value
                        if isinstance(owner, ast.Name) and owner.id in bound:
                            found.append(f"{path.relative_to(root)}:{node.lineno} {bound[owner.id]}.{part.attr}")
    return found


def holes(root: Path = ROOT) -> list[str]:
    """`FILE:LINE name` of each module global that is declared `name: Any = None`."""
    found = []
    for path in modules_of(root).values():
        for node in _tree(path).body:
            if not (isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)):
                continue
            empty = isinstance(node.value, ast.Constant) and node.value.value is None
            if empty and ast.unparse(node.annotation) in ("Any", "_Any"):
                found.append(f"{path.relative_to(root)}:{node.lineno} {node.target.id}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--package", type=Path, default=ROOT)
    root = parser.parse_args().package.resolve()
    imports = graph_of(root)
    for title, chosen in (
        ("circles", imports),
        ("circles without imports for types", [i for i in imports if i.kind != "types"]),
        ("circles of imports at the top of files", [i for i in imports if i.kind == "top"]),
    ):
        edges = edges_of(chosen)
        found = circles(edges)
        print(f"{title}: {len(found)}")
        for circle in found:
            print(f"  {len(circle):2} {' '.join(m or root.name for m in circle)}")
            print(f"     {' -> '.join(m or root.name for m in shortest(circle, edges))}")
    late = sorted({(i.source, i.line, i.target, i.name or "") for i in imports if i.kind == "late"})
    print(f"imports of the package's modules inside functions: {len(late)}")
    for source, line, target, name in late:
        print(f"  {source or root.name}:{line} {target or root.name} {name}")
    for title, lines in (
        ("imports of other libraries inside functions", late_elsewhere(root)),
        ("imports inside functions without a reason", unexplained(root)),
        ("globals of other modules that are assigned", assigned_from_outside(root)),
        ("globals that stand empty", holes(root)),
    ):
        print(f"{title}: {len(lines)}")
        for line in lines:
            print(f"  {line}")


if __name__ == "__main__":
    main()
