"""A device without sort and without float64: both are computed on the host.

Taught: a missing operator costs the link both ways, in forward and in backward; the report has the lines.
"""

import training

import xgrad

cost = xgrad.Cost(launch=50e-6, host_link=1e9)
training.show(xgrad.Backend("chip", without=["sort"], dtypes=["float32", "int32", "int64", "bool"], cost=cost))
