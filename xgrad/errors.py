"""Exceptions on which a caller could act; each derives from the type that PyTorch raises in its place."""

import builtins

__all__ = [
    "CompiledMismatchError",
    "DtypeDisabledError",
    "FreedGraphError",
    "InferenceTensorError",
    "InplaceViewError",
    "LeafInplaceError",
    "LinAlgError",
    "LostValueError",
    "MutationContextError",
    "NotDifferentiableError",
    "NumberOverflowError",
    "OutOfMemoryError",
    "OverlapError",
    "ShapeMismatchError",
    "TracedValueError",
    "VersionError",
]


class CompiledMismatchError(builtins.RuntimeError):
    """A call of `xgrad.compile(..., verify=True)` did something else than the eager function."""


class DtypeDisabledError(builtins.TypeError):
    """A 64-bit dtype was asked for while JAX's 64-bit mode is off."""


class FreedGraphError(builtins.RuntimeError):
    """Backward went through a graph whose saved tensors had been released."""


class VersionError(builtins.RuntimeError):
    """A tensor that backward needs was changed in place after it had been saved."""


class InferenceTensorError(builtins.RuntimeError):
    """A tensor made in inference mode was saved for backward, written outside of the mode, or asked its version."""


class LeafInplaceError(builtins.RuntimeError):
    """An in-place operation on a leaf that requires grad, or on a view of one."""


class LostValueError(builtins.RuntimeError):
    """A tensor has no value any more: a program failed that was to write it in place, and had taken its memory."""


class MutationContextError(builtins.AssertionError, builtins.RuntimeError):
    """Backward through what was recorded under `allow_mutation_on_saved_tensors`, outside of it."""


class InplaceViewError(builtins.RuntimeError):
    """An in-place operation on a view that cannot be differentiated (made under no_grad, one of many, ...)."""


class OutOfMemoryError(builtins.RuntimeError):
    """A device has no memory for a tensor, or for what computes it (PyTorch: torch.OutOfMemoryError)."""


class OverlapError(builtins.RuntimeError):
    """A write to a tensor of which several elements share one memory location."""


class PlacementError(builtins.RuntimeError):
    """A tensor cannot be put where it is asked to be: no such mesh or axis, or a dimension that does not divide.

    Or it is read where it is not: its values are spread over several processes.
    """


class ShapeMismatchError(builtins.RuntimeError):
    """Shapes that do not fit together."""


class TracedValueError(builtins.RuntimeError):
    """The value of a tensor was read that is being traced (in `xgrad.compile`, `jax.jit`, ...) and has none."""


class NumberOverflowError(builtins.RuntimeError, builtins.OverflowError):
    """A number does not fit into the dtype that it is to have (PyTorch raises the one or the other)."""


class NotDifferentiableError(builtins.RuntimeError):
    """A gradient was asked of something that has none."""


class LinAlgError(builtins.RuntimeError):
    """A matrix that an algorithm cannot go on with: a singular one to invert, one that is not positive definite."""
