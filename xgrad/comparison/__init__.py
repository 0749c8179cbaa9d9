"""`xgrad.compare`: runs a function with both ways to record views, or on several backends, and compares the results.

The package is not called `compare`: importing it would replace the function of that name in `xgrad`.
"""
