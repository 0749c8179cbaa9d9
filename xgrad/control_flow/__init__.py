"""xgrad.cond and xgrad.while_loop: branches and loops that depend on tensors' values (torch/_higher_order_ops).

cond.py        one of two functions
while_loop.py  a function again and again
repeated.py    a loop over arrays that can be differentiated in reverse
checks.py      the rules for what both functions take and return
lifted.py      turns a function's tensors from outside into arguments, for compiled programs

Outside of compiled functions both run as Python.  Inside of `xgrad.compile` the program contains `jax.lax.cond` and
`jax.lax.while_loop`; under `xgrad.vmap`, where each entry has a condition of its own, values are selected.
"""

from .cond import cond as cond
from .while_loop import while_loop as while_loop
