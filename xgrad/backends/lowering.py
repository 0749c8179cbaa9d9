"""lowered: replaces an operator's function by a user's JAX function, for `xgrad.Backend(lowerings={"add": f})`.

Derivatives are still the operator's own formulas, of the arguments and the result.  A `jax.custom_vjp` brings its own:
then backward is JAX's derivative of it, at the arguments.
"""

import copy
import inspect
from collections.abc import Callable
from typing import Any

import jax

from ..dispatch.operator import Operator
from ..dispatch.tables import OPERATORS, VARIANTS
from ..errors import DtypeDisabledError


def is_lowered(op: Operator, function: Callable[..., Any]) -> bool:
    """Return True if a lowering for the name of `op` is one for `op`.

    Several operators may have a name: `add` with alpha has three arguments.  The lowering is for the public one, and
    for those others whose arguments it takes.
    """
    public = OPERATORS.get(op.name)
    if public is not None and public.function is op.function:
        return True
    if not any(other.function is op.function for other in VARIANTS if other.name == op.name):
        return False  # an operator of xgrad's own
    try:
        signature = inspect.signature(function)
        signature.bind(*op.parameters, **{name: None for name in op.static_names if name in signature.parameters})
    except (TypeError, ValueError):
        return False
    return True


def lowered(op: Operator, function: Callable[..., Any], backend: str) -> Operator:
    """Return an operator like `op` that computes `function(*arrays, **statics)`.

    Static arguments that the function does not name are left out where they have their defaults.  Raises `TypeError`
    for others, and for a result of another shape or dtype, when it is traced; `RuntimeError`, which names the
    lowering, if the function raises.
    """
    try:
        signature = inspect.signature(function)
        parameters = signature.parameters
    except (TypeError, ValueError):
        signature, parameters = None, {}
    takes_all = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    table = op.function

    def lowering(*arrays: Any, **statics: Any) -> Any:
        given = {}
        for name, value in statics.items():
            if takes_all or name in parameters:
                given[name] = value
            elif name not in op.defaults or value != op.defaults[name]:
                raise TypeError(
                    f"the lowering of '{op.name}' on the backend '{backend}' takes no argument {name!r}, which is "
                    f"{value!r} here: give the function a keyword argument of this name"
                )
        who = f"the lowering of '{op.name}' on the backend '{backend}'"
        try:
            if signature is not None:
                signature.bind(*arrays, **given)
        except TypeError as error:
            raise TypeError(
                f"{who} takes other arguments than the operator's {len(arrays)} arrays"
                f"{''.join(f', {name}=' for name in given)}: {error}"
            ) from None
        try:
            out = function(*arrays, **given)
        except (DtypeDisabledError, jax.errors.JaxRuntimeError):
            raise
        except Exception as error:
            text = (str(error).strip().splitlines() or [""])[0]
            raise RuntimeError(
                f"{who} raised {type(error).__name__}: {text}. (It is traced: a function of jax.numpy over JAX arrays; "
                "NumPy's functions, xgrad's, and Python's `if` on values do not work there.)"
            ) from error
        if not jax.tree.leaves(out):
            raise TypeError(f"{who} returns {type(out).__name__}, but the operator gives an array: return the result")
        want = jax.eval_shape(lambda *inner: table(*inner, **statics), *arrays)
        have = jax.eval_shape(lambda: out)
        if _kinds(want) != _kinds(have):
            several = len(jax.tree.leaves(want)) != len(jax.tree.leaves(have))
            advice = "return all results, in a tuple" if several else "cast the result, or broadcast it"
            raise TypeError(f"{who} returns {_kinds(have)}, but the operator gives {_kinds(want)}: {advice}")
        return out

    own = copy.copy(op)
    own.function, own.kernels = lowering, {}
    if isinstance(function, jax.custom_vjp):
        own.formulas = {}
    else:
        own.reference = table
    return own


def _kinds(results: Any) -> str:
    return ", ".join(f"{r.dtype.name}{list(r.shape)}" for r in jax.tree.leaves(results))
