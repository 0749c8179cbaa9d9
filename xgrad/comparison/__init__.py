"""`xgrad.compare`: runs a function along both tracking paths of views, or on several backends; says what differs.

The package is not called `compare`: importing it would replace the function of that name in `xgrad`.
"""
