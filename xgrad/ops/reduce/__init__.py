"""Reductions, scans, sorting and statistics: results from many elements of one dimension or of all."""
