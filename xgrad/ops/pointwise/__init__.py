"""Pointwise operators: one element of the result from the elements at its place."""
