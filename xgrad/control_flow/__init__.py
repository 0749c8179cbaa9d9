"""cond, while_loop: branches and loops that depend on tensors (PyTorch: torch/_higher_order_ops).

cond.py        one of two functions
while_loop.py  a function again and again
repeated.py    a loop over arrays that can be differentiated in reverse
checks.py      the rules for what both functions take and return
lifted.py      a function whose tensors from outside are arguments, for programs

Outside of programs the functions run as Python.  Inside of `xgrad.compile` a program contains `jax.lax.cond` and
`jax.lax.while_loop`; under `xgrad.vmap`, where each entry has a condition of its own, values are selected.
"""

from .cond import cond as cond
from .while_loop import while_loop as while_loop
