"""xgrad's exceptions that a caller may catch; most derive from the type that PyTorch raises in the same case."""

import builtins
import sys

__all__ = [
    "BackendError",
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
    "PlacementError",
    "ShapeMismatchError",
    "TargetError",
    "TracedValueError",
    "VersionError",
]


class BackendError(builtins.NotImplementedError):
    """A declared backend lacks an operator or a dtype, and computes it nowhere else."""


class CompiledMismatchError(builtins.RuntimeError):
    """A call of `xgrad.compile(..., verify=True)` did something else than the eager function.

    Or a program that a declared backend's passes rewrote gave other values, with `verify_passes=True`.
    """


class DtypeDisabledError(builtins.TypeError):
    """64-bit numbers are needed while JAX's 64-bit mode is off.

    Raised where 32 bits can't take their place (a tensor made while the mode was on, a view of other bits), and with
    `xgrad.config.narrow = "error"` wherever float64 or complex128 is asked for.
    """


class FreedGraphError(builtins.RuntimeError):
    """Backward went through a graph whose saved tensors had been released."""


class VersionError(builtins.RuntimeError):
    """A tensor that backward needs was changed in place after it had been saved."""


class InferenceTensorError(builtins.RuntimeError):
    """A tensor made in inference mode was saved for backward, written outside of the mode, or asked for its version."""


class LeafInplaceError(builtins.RuntimeError):
    """An in-place operation on a leaf that requires grad, or on a view of one."""


class LostValueError(builtins.RuntimeError):
    """A tensor has lost its value: a program that was to write it in place failed after it had taken its memory.

    A lazy thread also raises it for a tensor whose program failed, and that so never had a value.
    """


class MutationContextError(builtins.AssertionError, builtins.RuntimeError):
    """Backward, outside of `allow_mutation_on_saved_tensors`, through a graph that was recorded inside."""


class InplaceViewError(builtins.RuntimeError):
    """An in-place operation on a view that cannot be differentiated (made under no_grad, one of many, ...)."""


class OutOfMemoryError(builtins.RuntimeError):
    """A device has no memory for a tensor, or for computing it (PyTorch: torch.OutOfMemoryError)."""


class OverlapError(builtins.RuntimeError):
    """A write to a tensor with several elements at one memory location."""


class PlacementError(builtins.RuntimeError):
    """A tensor cannot be put at a place: no such mesh or axis, or a dimension that does not divide.

    Or it is read where its values are not: they are spread over several processes.
    """


class ShapeMismatchError(builtins.RuntimeError):
    """Shapes that do not fit together."""


class TargetError(builtins.RuntimeError):
    """The compiler of a target, a chip that need not be here, is not installed or cannot be used."""


class TracedValueError(builtins.RuntimeError):
    """Code read the value of a tensor that is being traced (in `xgrad.compile`, `jax.jit`, ...) and has none."""


class NumberOverflowError(builtins.RuntimeError, builtins.OverflowError):
    """A number does not fit into its dtype (PyTorch raises the one or the other)."""


class NotDifferentiableError(builtins.RuntimeError):
    """A gradient was asked of an operation or a tensor that has none."""


class LinAlgError(builtins.RuntimeError):
    """An algorithm cannot go on with a matrix: a singular one to invert, one that is not positive definite."""


_OPERATORS = ("xgrad.ops.", "xgrad.dispatch.", "xgrad.tensor_methods.", "xgrad.views.", "xgrad.sparse.")


def public_caller() -> str:
    """Return the name of the operator that the user called: the outermost frame of those below; "" for indexing."""
    name, frame = "", sys._getframe(1)
    while frame is not None and str(frame.f_globals.get("__name__")).startswith(_OPERATORS):
        found = frame.f_code.co_name
        if not found.startswith(("_", "<")) or found.startswith("__"):
            name = found
        frame = frame.f_back
    return "" if name.startswith("__") or name in ("getitem", "setitem") else name


def __dir__() -> list[str]:
    return sorted(__all__)
