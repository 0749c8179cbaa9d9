"""Operators that are wrong, each in its own way, to be put into the table for a test."""

import jax.numpy as jnp
import numpy as np

from xgrad.dispatch.operator import Operator
from xgrad.dispatch.samples import real, sample

SAMPLES = (sample(real(2, 3)),)


def wrong_gradient():
    op = Operator("wrong_gradient", lambda self: self * self, samples=SAMPLES)
    op.derivative(self=lambda grad, self: grad * self)
    return op


def wrong_value():
    """A hundredth too much, where there are no 64 bits."""
    return Operator("wrong_value", lambda self: self * (1 if self.dtype == np.float64 else 1.01), samples=SAMPLES)


def lacking():
    """As a device that has no such operator for bfloat16."""

    def function(self):
        if self.dtype == jnp.bfloat16:
            raise NotImplementedError("lacking() is not there for bfloat16\nand more")
        return self + 1

    return Operator("lacking", function, samples=SAMPLES)


def crashing():
    def function(self):
        if self.dtype == jnp.bfloat16:
            raise KeyError("a bug")
        return self + 1

    return Operator("crashing", function, samples=SAMPLES)
