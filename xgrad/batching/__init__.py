"""Implements `func.vmap`: a `BatchedTensor` is one entry of a batch, and operators are mapped over the whole batch."""
