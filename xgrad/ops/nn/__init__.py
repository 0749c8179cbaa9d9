"""The package of the operators of layers and losses, which xgrad.nn.functional has (PyTorch: torch.nn.functional)."""
