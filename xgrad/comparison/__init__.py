"""`xgrad.compare`: runs a function with views tracked by replay and by strides, or on several backends, and compares.

The package is not called `compare`: importing it would replace the function of that name in `xgrad`.
"""
