"""The functions of layers and losses (PyTorch: torch.nn.functional)."""
