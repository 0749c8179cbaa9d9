"""xgrad.compile's guards: they test that a later call finds the same values and objects as the trace.

guard.py                  tests that a value is the one that was traced
containers.py             guards of lists, dictionaries, objects
namespaces.py             guards of functions, modules, classes
kinds.py                  the classes of objects that guards look into
paths.py                  the containers below a guard or an argument
code.py                   the names that a code object uses, and the package that it belongs to
frames.py                 the Python frames that run in a trace, and the objects that they see
closure_guards.py         guards of the function's arguments, closures, globals and objects
names_used.py             the names that the function's code uses, and the guard that each object gets by them
iterators_and_clocks.py   iterators, clocks and random numbers, which give another value each time
hyperparameters.py        an optimizer's numbers, which are operands of the program
identity_guards.py        the guards as conditions of one generated function
guard_code.py             that function: it tests a call fast, and finds its tensors
tensor_guard.py           comparison of one tensor of a later call with the traced one
match.py                  comparison of the whole call with the traced one
modes.py                  the settings of the thread, the process and JAX that a trace depends on
"""
