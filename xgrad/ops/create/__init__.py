"""Tensors made from sizes, numbers and the user's data; casts and copies."""
