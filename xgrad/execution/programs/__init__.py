"""Modules that make functions into XLA programs, split long programs, compile and cache them, and measure their cost.

They also let programs compute half precision in float32 (half.py), mask what is padded (masking.py), and keep XLA from
fusing computations (barriers.py).
"""
