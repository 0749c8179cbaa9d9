"""xgrad.nn shows the same names to users and to type checkers."""

import ast
import pathlib
import subprocess
import sys

from xgrad import nn


def test_type_checkers_see_the_classes_that_users_see():
    tree = ast.parse(pathlib.Path(nn.__file__).read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    shown = {line.names[0].name: line.module for line in block.body if isinstance(line, ast.ImportFrom) and line.module}
    assert shown == nn.HOMES


def test_every_class_is_where_the_table_says_and_in_modules_too():
    for name in nn.HOMES:
        assert getattr(nn, name).__name__ == name
        assert getattr(nn.modules, name) is getattr(nn, name)


def test_files_of_layers_are_attributes_of_modules_before_they_are_imported():
    code = "import xgrad; xgrad.nn.modules.batchnorm._BatchNorm, xgrad.nn.modules.lazy, xgrad.nn.modules.utils._pair"
    subprocess.run([sys.executable, "-c", code], check=True)
