"""A device whose writes copy.

Taught: each update of a weight and each write through a view copies its storage; the report says how many bytes.
"""

import training

import xgrad

training.show(xgrad.Backend("chip", donation=False))
