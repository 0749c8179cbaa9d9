"""Sparse layouts, as far as every Tensor has them; `xgrad.sparse` itself is imported with the first sparse tensor."""
