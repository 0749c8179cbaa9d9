"""Pointwise operators: an element of the result depends on the elements at the same place."""
