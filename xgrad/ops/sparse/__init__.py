"""Sparse layouts: constructors, and methods of every Tensor.  The first sparse tensor imports `xgrad.sparse`."""
