"""Tensor's methods that are not operators: they convert it to NumPy or Python, print, copy, pickle and describe it."""
