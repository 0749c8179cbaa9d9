"""Every example in a docstring runs and prints what it says."""

import doctest
import importlib
import inspect
import pkgutil

import pytest

import xgrad
from xgrad.dispatch import tables
from xgrad.dispatch.help_texts import written

from .lanes import eager_cases


def _modules():
    names = [m.name for m in pkgutil.walk_packages(xgrad.__path__, "xgrad.") if not m.name.endswith("__main__")]
    return ["xgrad", *names]


def _run(tests):
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    report: list[str] = []
    for test in tests:
        runner.run(test, out=report.append)
    return runner.summarize(verbose=False), "".join(report)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", eager_cases("launches", _modules(), lambda name: name == "xgrad.execution.lazily"))
def test_examples_of_module_run(name):
    module = importlib.import_module(name)
    functions = {f"{name}.{function}" for function in tables.FUNCTIONS.get(name.removeprefix("xgrad").strip("."), {})}
    found = doctest.DocTestFinder().find(module, module=module)
    tests = [t for t in found if t.examples and t.name not in functions]  # those have tests of their own
    outcome, report = _run(tests)
    assert outcome.failed == 0, report


def _public():
    """(name, function) of every public function, class and method: of the namespaces, and of the operator table."""
    places = [xgrad, xgrad.nn, xgrad.nn.functional, xgrad.linalg, xgrad.special, xgrad.random, xgrad.views,
              xgrad.masked, xgrad.autograd, xgrad.autograd.graph, xgrad.autograd.forward_ad, xgrad.autograd.functional,
              xgrad.utils.checkpoint]  # fmt: skip
    for place in places:
        for name in dir(place):  # with what is loaded when it is asked for
            value = getattr(place, name)
            if name.startswith("_") or not callable(value) or not value.__module__.startswith("xgrad"):
                continue
            yield f"{place.__name__}.{name}", value
            if isinstance(value, type) and not value.__module__.startswith("xgrad.engine"):
                for inner, method in vars(value).items():
                    if not inner.startswith("_") and (callable(method) or isinstance(method, staticmethod)):
                        yield f"{place.__name__}.{name}.{inner}", method
    for namespace, table in tables.FUNCTIONS.items():
        yield from ((f"{namespace}.{name}", function) for name, function in table.items())


def test_everything_public_says_what_it_does():
    found = dict(_public())
    assert {"xgrad.add", "xgrad.Tensor.numel", "xgrad.Tensor.add_", "xgrad.linalg.inv"} <= set(found)
    assert not [name for name, value in found.items() if not (value.__doc__ or "").strip()]


@pytest.mark.exhaustive
def test_examples_of_operators_run():
    """Those of the docstrings in the source; tests/dispatch/test_help.py has the others."""
    parser = doctest.DocTestParser()
    tests, seen = [], set()
    for table in (*tables.FUNCTIONS.values(), tables.METHODS):
        for name, function in table.items():
            if inspect.isfunction(function) and (text := written(function)) not in seen and ">>>" in text:
                seen.add(text)
                tests.append(parser.get_doctest(inspect.cleandoc(text), {}, name, None, 0))
    outcome, report = _run(tests)
    assert outcome.failed == 0, report
    assert outcome.attempted > 20
