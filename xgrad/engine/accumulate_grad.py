"""AccumulateGrad: the autograd node that stores a leaf's gradient in `.grad`.

The leaf refers to this node weakly, graphs refer to it strongly, and the node refers to the leaf.  Strides don't exist
here, so PyTorch's layout contract is about *placement*: a later optimizer step depends on device, sharding and dtype.
A stored gradient has its variable's sharding; a new one with another sharding is transferred, once, with one warning
(PyTorch: torch/csrc/autograd/functions/accumulate_grad.h).
"""

import warnings
import weakref
from typing import Any

import jax.numpy as jnp

from ..base.declared import DeclaredPlace
from ..config import settings, state
from ..execution.runner import transferred
from ..tensor import Tensor
from ..views.storage import Tracer, writing
from .anomaly import origin_of
from .arithmetic import TENSORS, Arithmetic
from .fit import expandable, fit
from .grad_dtype import expected
from .hooks import run_post_accumulate_hooks
from .input_buffer import add_arrays, add_into, stolen
from .node import MAX_SEQUENCE_NR, InternalNode
from .placement import put
from .sparse_gradient import SparseGradient
from .sparse_gradient import accumulate as accumulate_sparse

_warned: dict[int, weakref.ref] = {}  # by id: the variables with a warning that their gradients were transferred


class AccumulateGrad(InternalNode):
    """Accumulates into `variable.grad`; runs as soon as the gradient is complete."""

    is_accumulator = True
    sequence_nr = MAX_SEQUENCE_NR

    variable: Tensor

    def tensor_hooks(self) -> Any:
        return self.variable._hooks

    def is_watched(self) -> bool:
        """Return whether a hook sees the gradient, or it is sparse or goes to a sparse variable."""
        variable = self.variable
        return bool(self._hooks or variable._hooks or variable._post_accumulate_hooks or variable._sparse)

    def outline(self, facts: list[Any], operands: list[Any]) -> bool:
        (aval,) = self.avals
        facts += (aval.shape, aval.dtype)  # a leaf that was written has a chain for an aval
        return not self.is_watched()

    def takes_sparse(self) -> bool:
        return True

    def apply(self, grads: list[Any], needs: int, arithmetic: Arithmetic) -> tuple[Any, ...]:
        self._take(grads, arithmetic)
        if self.variable._post_accumulate_hooks:
            self._tell()
        return ()

    def apply_shown(self, grads: list[Any], arithmetic: Arithmetic) -> Any:
        """Run `apply`, and return the gradient for post-hooks: where it became `.grad`, a Tensor with the same value.

        So it shows what a post-accumulate hook writes to `.grad`, as in PyTorch, which stores the gradient that
        arrived.
        """
        variable = self.variable
        an_array = not arithmetic.tensors and grads[0].__class__ is not SparseGradient
        stored = an_array and variable._grad is None
        value = None if stored else grads[0]  # a second reference to what may be stolen would have it copied later
        self._take(grads, arithmetic)
        if stored and variable._grad is not None:
            shown = variable._grad.detach()
        else:
            shown = arithmetic.to_tensor(grads[0] if value is None else value)
            if an_array and shown is not None:
                shown._owned = False
        self._tell()
        return shown

    def _tell(self) -> None:
        hooks = self.variable._post_accumulate_hooks
        if hooks:  # also where the gradient is undefined and nothing was accumulated
            run_post_accumulate_hooks(hooks, self.variable)

    def _take(self, grads: list, arithmetic: Arithmetic) -> None:
        """Accumulate the gradient, if one arrived and the variable still requires it."""
        variable = self.variable
        if grads[0] is not None and (variable._requires_grad or variable.requires_grad):
            if variable._grad_fn is not None or (variable._view is not None and variable.grad_fn is not None):
                raise RuntimeError(
                    "leaf variable has been moved into the graph interior: it was a leaf when it was used, and an "
                    "in-place operation on it or on its base gave it a history since"
                )
            with writing:  # several threads may accumulate into one leaf
                if grads[0].__class__ is SparseGradient or variable._sparse:
                    accumulate_sparse(variable, arithmetic.to_tensor(grads[0]))
                elif not arithmetic.tensors:
                    self._accumulate(variable, grads)
                elif getattr(variable._grad, "_sparse", False):
                    accumulate_sparse(variable, grads[0])
                else:
                    self._accumulate_tensor(variable, grads[0])

    def _accumulate_tensor(self, variable: Tensor, new: Tensor) -> None:
        """Accumulate by operators, which record, and carry tangents and batches along."""
        old = variable._grad
        batched = new._level is not None or variable._level is not None
        want = None if batched else self._moves(variable, new._read(), variable._read())
        if want is not None:
            new = TENSORS.move(new, want, _committed(variable))
        elif not state.grad_layout and old is not None:
            new = TENSORS.move(new, old._placed())
        if old is None:
            variable._grad = new if want is not None else Tensor._copied_for(new, variable)
        elif state.grad_enabled:
            variable._grad = Tensor.add(old, new)
        else:
            old.add_(new)

    def _accumulate(self, variable: Tensor, new: list) -> None:
        """Accumulate with grad mode off: the first array becomes `.grad`, others are added to that Tensor object."""
        # After a transfer there may be another array over the same buffer, which is not ours to donate.
        moved = new[0] if self._place(variable, new) else None
        grad = variable._grad
        if variable._grad_dtype is None and grad is not None:  # any dtype may arrive; the first gradient's dtype stays
            new[0] = fit(new[0], new[0].shape, grad._dtype)
        if grad is None:
            variable._grad = stolen(new, 0)  # `moved` is a second reference, which `stolen` counts
            del moved
        elif grad._storage is None and grad._owned and grad.shape == new[0].shape:
            if grad._inference:
                grad._bump(0)  # refuses
            try:
                grad._rewrite(_adder, new[0])
            except ValueError:  # other devices: without the layout policy the gradient is stored where it was computed
                grad._rewrite(_adder, transferred(new[0], grad._array.sharding))
        elif grad._sparse:
            accumulate_sparse(variable, stolen(new, 0))
        elif expandable(new[0].shape, grad.shape):
            grad._bump(0)
            old = grad._read()
            try:
                total = add_arrays(old, new[0])
            except ValueError:  # likewise
                total = add_arrays(old, transferred(new[0], old.sharding))
            grad._write(total)
        else:
            raise RuntimeError(
                f"a gradient of shape {list(new[0].shape)} doesn't match the broadcast shape of the one that its leaf "
                f"has, {list(grad.shape)}: the leaf was given data of another shape. Set its grad to None first."
            )

    def _place(self, variable: Tensor, new: list) -> bool:
        """Transfer the gradient to its variable's devices, and return whether that was necessary."""
        here, there = new[0], variable._read()
        if here.shape != there.shape:  # unsqueeze_ under no_grad came after the recording
            if not expandable(here.shape, there.shape):
                raise RuntimeError(
                    f"a gradient of shape {list(here.shape)} arrived at a leaf that has the shape {list(there.shape)} "
                    "by now: it was reshaped in place after it had been used"
                )
            here = new[0] = jnp.broadcast_to(here, there.shape)
        want = self._moves(variable, here, there)
        if want is not None:
            new[0] = put(here, want, _committed(variable))
        return want is not None

    def _moves(self, variable: Tensor, here: Any, there: Any) -> Any:
        """The sharding to which the gradient `here` must be transferred, None if it is already the sharding of the
        value `there`."""
        if isinstance(here, Tracer) or isinstance(there, Tracer):
            return None
        have, want = here.sharding, there.sharding
        if have is want or have == want:
            return None
        declared = want.__class__ is DeclaredPlace and have.__class__ is not DeclaredPlace  # JAX knows nothing of it
        if not declared and have.is_equivalent_to(want, there.ndim):
            return None
        if not state.grad_layout:
            return None
        # No warning for a constant, which is on no device by request, nor for a gradient copied to every device.
        travels = here.committed and not (have.is_fully_replicated and have.device_set == want.device_set)
        known = _warned.get(id(variable)) if travels else None
        if travels and (settings.warn_always or known is None or known() is not variable):
            key = id(variable)
            _warned[key] = weakref.ref(variable, lambda _: _warned.pop(key, None))
            warnings.warn(
                f"a gradient arrived with sharding {have}, its variable has {want}; it is moved there. Shard the "
                "computation like the variable to save the move.",
                stacklevel=2,
            )
        return want


def _adder(donate: bool, where: Any = None) -> Any:
    """The program that adds a gradient to the stored one."""
    return add_into if donate else add_arrays


def _committed(variable: Tensor) -> bool:
    return variable._read().committed


def make_accumulator(tensor: Tensor) -> AccumulateGrad:
    """Return the accumulator of a leaf, which its graphs keep alive; make one if there is none."""
    with writing:  # two threads must not make two
        reference = tensor._accumulator
        accumulator = None if reference is None else reference()
        if accumulator is None:
            accumulator = AccumulateGrad()
            accumulator.variable = tensor
            # A gradient must have the variable's present shape and dtype.  (unsqueeze_ under no_grad may change it.)
            accumulator.avals = (expected(tensor),)
            tensor._accumulator = weakref.ref(accumulator)
            if state.anomaly:
                accumulator.sequence_nr = origin_of(MAX_SEQUENCE_NR)
    return accumulator
