"""Fourier transforms and windows (PyTorch: torch.fft, torch.signal)."""
