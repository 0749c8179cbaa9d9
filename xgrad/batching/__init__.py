"""Tensors and operators inside of `vmap`: an entry of a batch, and the programs that map an operator over it."""
