"""The package of operators for layers and losses, most of them functions of xgrad.nn.functional (PyTorch: torch.nn)."""
