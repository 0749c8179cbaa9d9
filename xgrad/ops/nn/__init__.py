"""Declares the operators of layers and losses, the functions of xgrad.nn.functional (PyTorch: torch.nn.functional)."""
