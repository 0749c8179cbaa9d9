"""The package of the autograd engine: runs the nodes of a graph in backward, with their hooks and saved tensors.

It also gives views and their bases a new history after in-place writes.
"""
