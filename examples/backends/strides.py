"""With strides, a view that was written has one `AsStridedBackward0`; without, the steps of its chain.

Taught: the same program has another graph, and a view that is read is no launch; the values are the same.
"""

import training

import xgrad

for strides in (False, True):
    backend = xgrad.Backend("chip", strides=strides)
    base = xgrad.ones(2, 3, device=backend, requires_grad=True).clone()
    row = base.t()[0]
    row.mul_(2)
    with backend.report() as report:
        row.sum()
    print(f"strides={strides}: {row.grad_fn.name()}, {report.launches} launches for a sum of a view")
    training.show(backend)
