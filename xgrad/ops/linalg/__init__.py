"""Linear algebra: products, decompositions, solvers (PyTorch: torch.linalg, LinearAlgebra.cpp)."""
