"""XLA programs of functions: compiles them, cuts them, computes half precision, and stores them in a folder."""
