"""Declares the pointwise operators (add, exp, where, ...), and comparisons such as isin and allclose."""
