"""The names of xgrad.nn, and where they come from."""

import subprocess
import sys

from xgrad import nn


def test_every_class_is_where_the_table_says_and_in_modules_too():
    for name in nn.HOMES:
        assert getattr(nn, name).__name__ == name
        assert getattr(nn.modules, name) is getattr(nn, name)


def test_files_of_layers_are_attributes_of_modules_before_they_are_imported():
    code = "import xgrad; xgrad.nn.modules.batchnorm._BatchNorm, xgrad.nn.modules.lazy, xgrad.nn.modules.utils._pair"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_star_import_of_modules_gives_the_layers():
    found = {}
    exec("from xgrad.nn.modules import *", found)
    assert {"Linear", "Module", "Sequential", "TransformerEncoder"} <= set(found) & set(dir(nn.modules))
    assert {"importlib", "Any", "Parameter"} & set(found) == set()


def test_data_parallel_is_there_before_an_import():
    code = "import xgrad; print(xgrad.nn.DataParallel.__module__, xgrad.nn.parallel.data_parallel.__name__)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["xgrad.nn.parallel", "data_parallel"]


def test_data_parallel_without_inputs_calls_without_arguments():
    class Counts(nn.Module):
        def forward(self, *args):
            return len(args)

    assert [nn.parallel.data_parallel(Counts(), given) for given in (None, (), (1, 2), 3)] == [0, 0, 2, 1]
