"""The package of the dispatcher: declares operators, runs their calls on tensors, and records them for autograd.

declare.py makes the public function of an operator, call.py runs it, record.py makes its autograd node, and
interpreter.py hands calls with tensors of vmap, sparse tensors or subclasses to other code.
"""
