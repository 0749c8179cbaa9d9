"""A device of 12 kB.

Taught: the graph of a step that still lives is what fills it; after a refusal nothing is lost, and deleting it helps.
"""

import xgrad

chip = xgrad.Backend("chip", memory=12_000)
x = xgrad.ones(1000, device=chip, requires_grad=True)
y = x.exp()
try:
    y = (y * 2).exp()
except xgrad.errors.OutOfMemoryError as error:
    print(str(error).partition(". Nothing")[0])
print(x.sum().item())
