"""xgrad.compile: a whole step (forward, backward, in-place updates, optimizer, random numbers) as one XLA program.

trace.py         one run on tracers, and whatever it touches
guards.py        whether a value is still what it was
containers.py    how guards look into lists, dictionaries, objects,
namespaces.py    functions, modules, classes
paths.py         from a guard or an argument to the containers within
code.py          what code names, and whose it is
frames.py        the Python frames that run in a trace, and what they see
surroundings.py  what else the function depends on: closures, globals, objects
noted.py         what its code names, and which guard an object gets by it
unchanged.py     the same, where nothing is another object, quickly
matching.py      whether a later call is like the one that was traced
program.py       the traced equations as a forward and a backward program
effects.py       what leaves, and what happened to tensors from outside
history.py       the node on results that require grad
tracing.py       all of this in order
entry.py         one program, and how it is run
places.py        in_shardings, out_shardings, and what stays where it was
buckets.py       arguments whose sizes vary
function.py      what `xgrad.compile` returns
"""

from .function import CompiledFunction as CompiledFunction
from .function import Metrics as Metrics
from .function import compile as compile
