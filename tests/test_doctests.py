"""Every example in a docstring runs and prints what it says."""

import doctest
import importlib
import inspect
import pkgutil

import pytest

import xgrad
from xgrad.ops import registry


def _modules():
    names = [m.name for m in pkgutil.walk_packages(xgrad.__path__, "xgrad.") if not m.name.endswith("__main__")]
    return ["xgrad", *names]


def _run(tests):
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    report: list[str] = []
    for test in tests:
        runner.run(test, out=report.append)
    return runner.summarize(verbose=False), "".join(report)


@pytest.mark.parametrize("name", _modules())
def test_examples_of_module_run(name):
    module = importlib.import_module(name)
    tests = [t for t in doctest.DocTestFinder().find(module, module=module) if t.examples]
    outcome, report = _run(tests)
    assert outcome.failed == 0, report


def test_examples_of_operators_run():
    finder = doctest.DocTestFinder(recurse=False)
    tests, seen = [], set()
    for table in (*registry.FUNCTIONS.values(), registry.METHODS):
        for name, function in table.items():
            if inspect.isfunction(function) and id(function) not in seen and ">>>" in (function.__doc__ or ""):
                seen.add(id(function))
                tests += finder.find(function, name, globs={})
    outcome, report = _run(tests)
    assert outcome.failed == 0, report
    assert outcome.attempted > 20
