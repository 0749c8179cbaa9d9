"""Operators of linear algebra: products, decompositions, solvers (PyTorch: torch.linalg, LinearAlgebra.cpp)."""
