"""Compiles functions into XLA programs, cuts long ones, computes half precision, and stores programs in a folder."""
