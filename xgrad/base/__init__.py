"""xgrad.base: dtypes, devices, shapes, limits, switches and PyTorch's unsupported names, for all other packages."""
