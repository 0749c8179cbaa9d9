from .registry import operator, FUNCTIONS
from . import registry as R
from .promotion import *
if "add" not in R.FUNCTIONS[""]:
    @operator(inplace=True, dunder="__add__", rdunder="__radd__", pointwise=True)
    def add(self, other, alpha=None):
        self, other = promote(self, other); check_broadcast(self, other)
        return self + other if alpha is None else self + other*alpha
    add.derivative(self=lambda grad: grad, other=lambda grad: grad)
    @operator(inplace=True, dunder="__mul__", rdunder="__rmul__", pointwise=True)
    def mul(self, other):
        self, other = promote(self, other); check_broadcast(self, other)
        return self * other
    mul.derivative(self=lambda grad, other: grad * conj(other), other=lambda grad, self: grad * conj(self))
    @operator(inplace=True, pointwise=True)
    def tanh(self): return jnp.tanh(as_float(self))
    tanh.derivative(self=lambda grad, result: grad * conj(1 - result*result))
    @operator()
    def sin(self): return jnp.sin(as_float(self))
    @operator("sum")
    def sum_(self, *, dim=None, keepdim=False, dtype=None):
        return jnp.sum(self, axis=dim, keepdims=keepdim, dtype=accumulate_dtype(self, dtype))
    sum_.derivative(self=lambda grad, shapes, dim, keepdim: restore_dims(grad, shapes[0], wrap_dims(dim, len(shapes[0])), keepdim))
if "clone" not in R.FUNCTIONS[""]:
    @operator()
    def clone(self): return jnp.copy(self)
    clone.derivative(self=lambda grad: grad)
