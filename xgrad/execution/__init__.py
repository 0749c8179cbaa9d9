"""Runs operators on JAX: each as a program of its own, or, in an `xgrad.lazy` block, many together as one program."""
