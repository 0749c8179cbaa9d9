"""Operators of xgrad.fft and xgrad.signal: Fourier transforms and windows (PyTorch: torch.fft, torch.signal)."""
