"""Operators that make tensors from sizes, numbers and the user's data; casts, transfers and copies."""
