"""xgrad.ops.linalg: operators for products, decompositions and solvers (PyTorch: torch.linalg, LinearAlgebra.cpp)."""
