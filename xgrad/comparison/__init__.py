"""`xgrad.compare`: runs a function with both ways to record views, or on several backends, and compares the results.

The two ways are `views.tracking`'s: a view that was written gets the `grad_fn` of its own steps ("replay"), or of one
as_strided ("geometry").

The package is not called `compare`: importing it would replace the function of that name in `xgrad`.
"""
