"""The same step eagerly and lazily, where a launch takes 50 µs.

Taught: a slow launch is paid for each operator, or once for each value that is read: that is why fusion pays.
"""

import training

import xgrad

for execution in ("eager", "lazy"):
    backend = xgrad.Backend("chip", execution=execution, cost=xgrad.Cost(launch=50e-6))
    report = training.show(backend)
    print(f"{execution}: {report.launches} launches, {report.estimate().launch * 1e3:.2f} ms for them\n")
