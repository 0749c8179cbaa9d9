"""Functions' attributes, imports in a function, `vars()`, a `__getattribute__`: what changes there is seen."""

import importlib
import sys
import types

import numpy as np
import pytest

import xgrad


@pytest.fixture
def module():
    found = types.ModuleType("xgrad_test_imported")
    found.scale, found.part = 2.0, types.ModuleType("xgrad_test_imported.part")
    found.part.scale = 5.0
    sys.modules.update({found.__name__: found, found.part.__name__: found.part})
    yield found
    for name in ("xgrad_test_imported", "xgrad_test_imported.part"):
        sys.modules.pop(name, None)


def check(function, x, changes, traces):
    compiled = xgrad.compile(function)
    for change in (lambda: None, *changes):
        change()
        for _ in range(2):
            np.testing.assert_array_equal(compiled(x).numpy(), function(x).numpy())
    assert compiled.metrics().traces == traces, compiled.metrics()
    return compiled


def rated(x):
    return x * getattr(rated, "rate", 1.0)


@pytest.mark.parametrize("where", ["user", "installed"])
def test_attributes_of_a_function_that_another_calls(where):
    globs = {"__name__": f"functions_{where}", "__file__": importlib.__file__ if where == "installed" else "/a.py"}
    exec("def named(x): return x * named.rate\ndef calls(x): return named(x)", globs)
    named = globs["named"]
    named.rate = 2.0
    check(lambda x: globs["calls"](x), xgrad.ones(3), [lambda: setattr(named, "rate", 3.0)], 2)
    function = lambda x: rated(x)  # noqa: E731
    changes = [lambda: setattr(rated, "rate", 3.0), lambda: setattr(rated, "rate", 4.0), lambda: delattr(rated, "rate")]
    check(function, xgrad.ones(3), changes, 3)  # without it as at first


def test_an_attribute_that_a_function_gives_itself_is_refused():
    def counted(x):
        counted.calls = getattr(counted, "calls", 0) + 1
        return x * counted.calls

    with pytest.raises(NotImplementedError, match=r"\.calls in Python \(it was missing, and is 1\)"):
        xgrad.compile(counted)(xgrad.ones(3))
    assert not vars(counted)


class Summed:
    scale = 2.0

    def __init__(self):
        self.a = 3.0

    def total(self):
        return sum(vars(self).values()) * self.scale  # a class with methods


SUMMED = Summed()


def test_new_attributes_under_vars():
    function = lambda x: x * sum(vars(SUMMED).values())  # noqa: E731
    changes = [lambda: setattr(SUMMED, "b", 1.0), lambda: setattr(SUMMED, "b", 2.0), lambda: delattr(SUMMED, "b")]
    check(function, xgrad.ones(3), changes, 3)


def imports(x):
    import xgrad_test_imported

    return x * xgrad_test_imported.scale


def imports_from(x):
    from xgrad_test_imported import scale

    return x * scale


def imports_part(x):
    import xgrad_test_imported.part as part

    return x * part.scale


def imports_by_name(x):
    return x * importlib.import_module("xgrad_test_imported").scale


def looks_up(x):
    return x * sys.modules["xgrad_test_imported"].scale


@pytest.mark.one_in(4)
@pytest.mark.parametrize("function", [imports, imports_from, imports_part, imports_by_name, looks_up])
def test_modules_that_a_function_imports(function, module):
    changed = module.part if function is imports_part else module
    other = types.SimpleNamespace(scale=7.0)

    def replace():
        sys.modules[changed.__name__] = other
        module.part = other

    check(function, xgrad.ones(3), [lambda: setattr(changed, "scale", 3.0), replace], 3)


def test_a_module_that_is_imported_first_in_the_trace(tmp_path, monkeypatch):
    (tmp_path / "xgrad_test_imported.py").write_text("scale = 2.0\n")
    monkeypatch.syspath_prepend(tmp_path)
    try:
        check(imports, xgrad.ones(3), [lambda: setattr(sys.modules["xgrad_test_imported"], "scale", 3.0)], 2)
    finally:
        sys.modules.pop("xgrad_test_imported", None)


def test_a_module_that_is_missing_at_first(module):
    def optional(x):
        try:
            import xgrad_test_missing
        except ImportError:
            return x
        return x * xgrad_test_missing.scale

    try:
        check(optional, xgrad.ones(3), [lambda: sys.modules.update(xgrad_test_missing=module)], 2)
    finally:
        sys.modules.pop("xgrad_test_missing", None)


def test_relative_imports():
    package, part = types.ModuleType("xgrad_test_imported"), types.ModuleType("xgrad_test_imported.part")
    part.__package__, package.__path__, part.rate = package.__name__, [], 2.0
    exec("def function(x):\n    from .part import rate\n    return x * rate", vars(part))
    sys.modules.update({package.__name__: package, part.__name__: part})
    try:
        check(part.function, xgrad.ones(3), [lambda: setattr(part, "rate", 3.0)], 2)
    finally:
        del sys.modules[package.__name__], sys.modules[part.__name__]


TABLE = {"scale": 2.0}


class Tabled:
    """All of its attributes come from a table; even isinstance asks it."""

    def __getattribute__(self, name):
        return TABLE[name]


@pytest.mark.unverified("a copy of such an object cannot be made")
def test_a_class_that_answers_for_all_attributes():
    made = Tabled()
    function = lambda x: x * made.scale  # noqa: E731
    changes = [lambda: TABLE.update(scale=3.0), lambda: object.__setattr__(made, "scale", 9.0)]
    try:
        check(function, xgrad.ones(3), changes, 3)
    finally:
        TABLE["scale"] = 2.0
