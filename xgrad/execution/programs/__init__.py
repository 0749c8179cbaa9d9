"""Functions as XLA programs: how they are compiled, cut into parts, kept in half precision and stored in a folder."""
