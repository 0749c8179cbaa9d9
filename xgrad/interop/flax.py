"""interop.flax.wrap: makes a Flax module an `xgrad.nn.Module`, which `loss.backward()` trains.

_nnx.py has the class for NNX modules, _linen.py for Linen modules, _wrapped.py their base.
"""

from typing import Any

from ._wrapped import described

try:
    from flax import linen, nnx
except ImportError as _error:
    raise ImportError(f'xgrad.interop.flax needs flax: pip install "xgrad[flax]" ({_error})') from _error

from ._linen import LinenModule
from ._nnx import NNXModule

__all__ = ["LinenModule", "NNXModule", "wrap"]


def wrap(module: Any, variables: Any = None, *inputs: Any, **options: Any) -> Any:
    """Make a Flax module an `xgrad.nn.Module`, which `loss.backward()` trains.

    A call takes and returns tensors in the place of arrays, and runs the module as one JAX function, so hooks in
    between do not run.  Flags (True and False) among the arguments are part of the program, as are the keyword
    arguments that `static_argnames` names; other numbers are traced.  `policy`: the values that are saved for backward
    (see `xgrad.from_jax`), by default those that JAX itself would save.

    **NNX**: `wrap(module, method=None, wrt=nnx.Param)`.  Parameters (`nnx.Param`, or the Variables that the NNX filter
    `wrt` picks) are leaf tensors, named by their paths, and share their values with the module's Variables: each sees
    at once the value that the other is set to.  All other Variables (batch statistics, keys and counts of random
    numbers) are buffers, which calls update.  `train()` and `eval()` are NNX's; a compiled function follows them, but
    not changes in the NNX module itself (flags, Variables that are added), which eager calls see.  `method`: the
    method to call, a name or a function of (module, *args); one module may be wrapped several times, with the same
    tensors.  The first `wrap` of an NNX module changes `nnx.Variable` for the process: the slot of its value becomes a
    property, which gives the tensor's value; nothing else of Flax changes.

    **Linen**: `wrap(module, variables, method=None, rngs=None, mutable=None)`, or `wrap(module, key, *inputs)`, which
    makes the variables by `module.init(key, *inputs)`.  Parameters are named by their paths in the collection
    "params", buffers by collection and path.  Arguments pass through unchanged, such as `train=True`; in train mode
    all other collections are mutable, or those that `mutable=` names, and the buffers get their new values.  `rngs`,
    such as {"dropout": key}: streams of keys; each call in train mode uses the next one,
    `jax.random.fold_in(key, count)`.  A call may pass its own `rngs=`, and its own `mutable=`: then it returns
    (result, changed collections), as `apply` does.  `net.variables` is the tree with the latest arrays.

    Raises `TypeError` for an object that is not a module of Flax, and for Variables with a mutable reference;
    `ValueError` for a module without parameters and variables that are not a tree of collections; `RuntimeError` in a
    call that changes attributes of an NNX module that are not Variables.

    >>> import xgrad
    >>> from flax import nnx
    >>> model = nnx.Linear(2, 3, rngs=nnx.Rngs(0))
    >>> net = xgrad.interop.flax.wrap(model)
    >>> net(xgrad.ones(1, 2)).sum().backward()
    >>> net.bias.grad
    tensor([1., 1., 1.])
    >>> with xgrad.no_grad():
    ...     _ = net.bias.sub_(net.bias.grad)
    >>> model.bias[...].tolist()
    [-1.0, -1.0, -1.0]
    """
    if isinstance(module, linen.Module):
        return LinenModule(module, variables, *inputs, **options)
    if not isinstance(module, nnx.Module):
        raise TypeError(f"wrap: expected a module of Flax (nnx.Module or linen.Module), but got {described(module)}")
    if variables is not None:
        raise TypeError("wrap: an NNX module has its variables in itself: give it alone")
    return NNXModule(module, **options)
