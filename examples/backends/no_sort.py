"""A device without sort, and without all that is made of it: the host computes them.

Taught: a missing operator costs the link both ways, in forward and in backward; the report has the lines.
"""

import training

import xgrad

cost = xgrad.Cost(launch=50e-6, host_link=1e9)
training.show(xgrad.Backend("chip", without=["sorting"], cost=cost))
