"""Declares the operators whose results depend on many elements: reductions, scans, sorting, norms, statistics."""
