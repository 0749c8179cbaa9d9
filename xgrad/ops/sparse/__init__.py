"""Operators that make, convert and read sparse tensors: sparse_coo_tensor, to_sparse, coalesce, values.

The first call imports `xgrad.sparse`, which has the classes.
"""
