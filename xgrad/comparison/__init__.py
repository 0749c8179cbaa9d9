"""`xgrad.compare`: one function under both tracking paths, and what is the same and what differs.

The package is not called `compare`: importing it would replace the function of that name in `xgrad`.
"""
