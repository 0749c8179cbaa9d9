"""The cases of `scripts/packages.py`: a module for each part of the page, with the same four names.

TITLE              the part's heading; "{version}" in it is the package's version
HEAD               the part's text, and the first two lines of its table
CASES              a dictionary, whose keys are the cases' names
measured(name, folder, first)
                   computes one case with the `torch` that is imported, PyTorch (first=True) or xgrad, and returns
                   (cells, arrays): the cells of the row after the name, and arrays to compare, by name.  `folder` is
                   where PyTorch's run puts what xgrad's run reads: weights, files.

and, where they are needed, SMALL, the names of the cases that CI runs with each commit (else all), and TOLERANCES, by
name, of cases in bfloat16.
"""
