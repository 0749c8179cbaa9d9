"""What importing xgrad does and needs; the stubs; the layers of the package."""

import ast
import importlib
import importlib.util
import pathlib
import subprocess
import sys

import pytest

import xgrad

ROOT = pathlib.Path(xgrad.__file__).parent
# Section by section, lowest first: a module imports from its own layer and from those before it.
CORE = (
    ("errors", "config", "return_types"), ("base",), ("execution", "compile_cache"), ("views",), ("tensor",),
    ("overrides",), ("engine", "random"), ("dispatch",), ("batching",), ("tensor_methods",), ("ops",), ("sparse",),
    ("autograd",),
)  # fmt: skip
SHELL = (
    ("nn",), ("optim",), ("func",), ("compiler",),
    ("attach", "accelerator", "amp", "cuda", "cpu", "distributed", "fft", "jit", "linalg", "masked", "profiler",
     "signal", "special", "version"),
)  # fmt: skip
TOOLS = (
    ("interop", "utils", "backends", "chips", "comparison", "conformance", "cli", "control_flow", "distributions",
     "library", "serialization", "testing", "types", "viz"),
    ("torch_modules",),
)  # fmt: skip
LAYERS = CORE + SHELL + TOOLS


@pytest.fixture(scope="module")
def graph():
    """scripts/import_graph.py, which is no part of the package."""
    spec = importlib.util.spec_from_file_location("import_graph", ROOT.parent / "scripts" / "import_graph.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("script", ["make_stubs.py", "make_operators.py"])
def test_what_is_generated_is_what_the_declarations_say(script):
    done = subprocess.run([sys.executable, ROOT.parent / "scripts" / script, "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_import_needs_only_jax_and_numpy_and_compiles_nothing():
    code = """
import sys
import jax
compiled = []
jax.monitoring.register_event_duration_secs_listener(lambda event, *a, **k: compiled.append(event))
import xgrad
assert not [e for e in compiled if e.endswith("backend_compile_duration")], compiled
heavy = {"torch", "optax", "sklearn", "matplotlib", "tqdm", "flax", "equinox", "rich", "xgrad.viz"} & set(sys.modules)
assert not heavy, heavy
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def _imported(path):
    """The modules of xgrad that a file imports when it is imported itself, as paths from the package's root."""
    package = path.relative_to(ROOT).parts[:-1]
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ImportFrom) and node.level:
            base = package[: len(package) - node.level + 1]
            if node.module:
                yield (*base, *node.module.split("."))
            else:
                yield from ((*base, alias.name) for alias in node.names)


def test_imports_run_downwards():
    rank = {name: i for i, names in enumerate(LAYERS) for name in names}
    for path in ROOT.rglob("*.py"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        if len(parts) == 1 and parts[0] in ("__init__", "__main__"):
            continue
        own = rank[parts[0]]
        for target in _imported(path):
            if target and target[0] in rank:
                assert rank[target[0]] <= own, f"{'/'.join(parts)} imports {'.'.join(target)}"


def test_the_core_imports_nothing_of_the_shell(graph):
    """Of all imports: those inside of functions, and those for the type checker, too."""
    core = {name for names in CORE for name in names}
    outside = {name for names in SHELL + TOOLS for name in names}
    edges = graph.edges_of(graph.graph_of())
    assert len(edges) > 100
    reached = {(s, t) for s, ts in edges.items() for t in ts if s.split(".")[0] in core}
    assert {(s, t) for s, t in reached if t.split(".")[0] in outside} == set()


def test_no_circle_of_imports_and_no_global_that_another_module_fills(graph):
    """Of all imports: those inside of functions, and those for the type checker, too."""
    assert graph.circles(graph.edges_of(graph.graph_of())) == []
    assert graph.assigned_from_outside() == []


def test_imports_inside_of_functions_say_why(graph):
    """For what is optional, or costs a start that few need: a comment on the line, or where its block begins."""
    assert graph.unexplained() == []


def test_files_are_short_or_say_why_not():
    for path in ROOT.rglob("*.py"):
        text = path.read_text()
        if text.count("\n") > 450:
            assert "More than 450 lines: " in (ast.get_docstring(ast.parse(text)) or ""), path


def test_no_folder_holds_more_than_an_eighth_of_the_package():
    folders = {path.parent for path in ROOT.rglob("*.py")}
    lines = {folder: sum(path.read_text().count("\n") for path in folder.glob("*.py")) for folder in folders}
    largest = max(lines, key=lines.__getitem__)
    assert lines[largest] <= sum(lines.values()) / 8, largest


def test_no_private_jax():
    for path in ROOT.rglob("*.py"):
        text = path.read_text()
        assert "jax._src" not in text, path
        assert "jax.interpreters" not in text, path


def test_one_file_counts_references_and_asks_for_deleted_arrays():
    asked = {"getrefcount", "is_deleted"}
    found = set()
    for path in ROOT.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            named = isinstance(node, ast.ImportFrom) and not node.level and asked & {a.name for a in node.names}
            if named or (isinstance(node, ast.Attribute) and node.attr in asked):
                found.add(path.relative_to(ROOT).as_posix())
    assert found == {"execution/references.py"}


def test_who_runs_it_is_asked_by_calls_but_where_microseconds_count():
    found = {"plain": set(), "backends": set(), "always_lazy": set()}
    for path in ROOT.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            read = isinstance(node, ast.Attribute) and node.attr in found and isinstance(node.ctx, ast.Load)
            if read and isinstance(node.value, ast.Name) and node.value.id == "runner":
                found[node.attr].add(path.relative_to(ROOT).as_posix())
    hot = {"dispatch/call.py", "dispatch/call_pair.py", "dispatch/inplace.py", "compiler/function.py"}
    more = {"dispatch/view.py", "execution/programs/programs.py", "compiler/compiled_program.py"}
    assert found == {"plain": hot | more, "backends": hot, "always_lazy": set()}


def test_the_base_imports_no_module_by_its_name():
    for path in (ROOT / "base").rglob("*.py"):
        assert "import_module" not in path.read_text(), path


def test_dir_shows_what_users_may_use_and_nothing_else():
    """Modules of the engine can be imported all the same."""
    shown = dir(xgrad)
    assert shown == sorted(xgrad.__all__)
    assert {"add", "Tensor", "no_grad", "compile", "vmap", "nn", "fft", "float32", "__version__"} <= set(shown)
    assert not {
        "engine",
        "dispatch",
        "attach",
        "ops",
        "compile_cache",
        "execution",
        "tensor_methods",
        "_importlib",
        "_os",
    } & set(shown)
    assert xgrad.engine.node.Node
    names = """
        autograd autograd.forward_ad autograd.graph fft func linalg masked nn nn.functional random return_types signal
        signal.windows sparse special utils views viz
    """
    for name in names.split():
        module = importlib.import_module(f"xgrad.{name}")
        assert dir(module), name
        assert not [n for n in dir(module) if n.startswith("_") or not hasattr(module, n)], name
        assert not {"Any", "Callable", "TYPE_CHECKING", "Tensor", "jax", "np"} & set(dir(module)), name
    assert "add" in dir(xgrad.ones(1))
    assert not [n for n in dir(xgrad.ones(1)) if n.startswith("_") and not n.endswith("__")]


def test_every_error_is_public():
    found = {name for name, value in vars(xgrad.errors).items() if isinstance(value, type)}
    assert set(xgrad.errors.__all__) == found


def test_one_file_takes_what_jax_may_change():
    for path in ROOT.rglob("*.py"):
        if path.name != "jax_compat.py":
            assert "jax.core" not in path.read_text(), path


def test_files_beside_the_package_say_its_version():
    checkout = ROOT.parent
    assert f"version: {xgrad.__version__}\n" in (checkout / "CITATION.cff").read_text()
    assert f"## {xgrad.__version__}\n" in (checkout / "CHANGELOG.md").read_text()
