"""rewrite, stablehlo: help users write compiler passes for `xgrad.Backend(passes=[...])`; with two passes as examples.

A pass is a pure function from a closed jaxpr (`jax.make_jaxpr`) to another one, with the same shapes and dtypes of
operands and results.  `rewrite` changes a closed jaxpr by rules for JAX's primitives.  `stablehlo` marks a pass over
the text of a StableHLO module instead.  The examples are `scatter_as_product` and `tiles`.
"""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ..base.jax_compat import jaxprs
from ..execution.programs.masking import extreme
from ..execution.programs.parts import run_equation

__all__ = ["rewrite", "scatter_as_product", "stablehlo", "tiles"]

Rule = Callable[..., Any]  # of (parameters of the equation, *operands); returns its results, None: it stays as it is


def rewrite(closed: Any, rules: Mapping[str, Rule]) -> Any:
    """Return a closed jaxpr in which each equation whose primitive has a rule is what the rule computes.

    A rule is a function of the equation's parameters, a dict, and of its operands, over JAX's functions.  It returns
    the result, or a list of several; None leaves the equation as it is.  Programs within the program, of loops and
    of branches, are rewritten too.

    >>> import jax
    >>> import jax.numpy as jnp
    >>> from xgrad.backends import passes
    >>> closed = jax.make_jaxpr(jnp.sin)(1.0)
    >>> print(passes.rewrite(closed, {"sin": lambda params, x: jnp.cos(x - jnp.pi / 2)}).jaxpr.eqns[-1].primitive)
    cos
    """
    structs = [jax.ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=aval.weak_type) for aval in closed.in_avals]
    return jax.make_jaxpr(lambda *operands: _evaluated(closed, operands, rules))(*structs)


def _evaluated(closed: Any, operands: Any, rules: Mapping[str, Rule]) -> list[Any]:
    core, jaxpr = jaxprs(), closed.jaxpr
    values = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*closed.consts, *operands), strict=True))

    def read(v: Any) -> Any:
        return v.val if isinstance(v, core.Literal) else values[v]

    for eqn in jaxpr.eqns:
        given = [*map(read, eqn.invars)]
        rule = rules.get(eqn.primitive.name)
        out = None if rule is None else rule(eqn.params, *given)
        if out is None:
            params = {name: _within(value, rules) for name, value in eqn.params.items()}
            out = run_equation(jaxpr, eqn.replace(params=params), values)
        values.update(zip(eqn.outvars, out if isinstance(out, (list, tuple)) else [out], strict=True))
    return [*map(read, jaxpr.outvars)]


def _within(value: Any, rules: Mapping[str, Rule]) -> Any:
    """Return a parameter with the programs in it rewritten."""
    core = jaxprs()
    if isinstance(value, core.ClosedJaxpr):
        return rewrite(value, rules)
    if isinstance(value, core.Jaxpr) and not value.constvars:
        return rewrite(core.ClosedJaxpr(value, []), rules).jaxpr
    if isinstance(value, (tuple, list)):
        return type(value)([_within(part, rules) for part in value]) if type(value) in (tuple, list) else value
    return value


def stablehlo(function: Callable[[str], str]) -> Callable[[str], str]:
    """Decorate a pass that takes the text of a StableHLO module and returns another one.

    >>> import xgrad
    >>> @xgrad.backends.passes.stablehlo
    ... def coarse(text):
    ...     return text.replace("stablehlo.tanh", "stablehlo.negate")
    >>> chip = xgrad.Backend("chip", passes=[coarse])
    >>> xgrad.ones(2, device=chip).tanh()
    tensor([-1., -1.], device='chip:0')
    """
    function.stablehlo = True  # pyright: ignore[reportFunctionMemberAccess]
    return function


# -- scatters as products ---------------------------------------------------------------------------------------------


def scatter_as_product(closed: Any) -> Any:
    """Make each `scatter_add` of whole rows a product with a one-hot matrix, for a chip without scatters.

        out[index[i]] += rows[i]        out += onehot(index).T @ rows

    That is the backward of an embedding, of `index_select` and of `x[indices]`.  A matrix of (rows, indices) is made:
    it costs a product where the scatter costs a write of each row.  An index outside of the range is dropped, as by
    the scatter.  Other scatters, and scatters of integers, stay.
    An infinite or undefined number in a row reaches all others: zero times it is not zero.
    """
    return rewrite(closed, {"scatter-add": _product, "scatter_add": _product})


def _product(params: dict[str, Any], operand: Any, indices: Any, rows: Any) -> Any:
    numbers = params["dimension_numbers"]
    one_row = (
        tuple(numbers.scatter_dims_to_operand_dims) == (0,)
        and tuple(numbers.inserted_window_dims) == (0,)
        and not numbers.operand_batching_dims
        and tuple(numbers.update_window_dims) == tuple(range(indices.ndim - 1, rows.ndim))
        and rows.shape[indices.ndim - 1 :] == operand.shape[1:]
    )
    if not one_row or not jnp.issubdtype(operand.dtype, jnp.inexact):
        return None
    index, flat = indices.reshape(-1), rows.reshape(-1, int(np.prod(operand.shape[1:])))
    onehot = (lax.iota(index.dtype, operand.shape[0])[:, None] == index[None]).astype(rows.dtype)
    added = lax.dot(onehot, flat, precision=lax.Precision.HIGHEST)
    return operand + added.reshape(operand.shape)


# -- tiles ------------------------------------------------------------------------------------------------------------

ROWS, COLUMNS = 8, 128
_IDENTITY = {"reduce_sum": 0, "reduce_max": "least", "reduce_min": "most", "reduce_prod": 1}


def tiles(closed: Any) -> Any:
    """Pad the operands of products and of reductions to whole tiles of 8x128, as a TPU has them in its memory.

    What is added is masked: it is the value that changes nothing, zero for products and sums, minus infinity for a
    maximum; and results are cut to their sizes.  So values stay, up to the order of sums.
    """
    rules = {name: _reduction(name) for name in _IDENTITY}
    return rewrite(closed, rules | {"dot_general": _tiled_product})


def _padded(x: Any, value: Any) -> Any:
    """Return an array with its last two dimensions padded to whole tiles."""
    sizes = [(0, -n % tile, 0) for n, tile in zip(x.shape[-2:], (ROWS, COLUMNS)[-x.ndim :])]
    return lax.pad(x, jnp.asarray(value, x.dtype), [(0, 0, 0)] * (x.ndim - len(sizes)) + sizes)


def _tiled_product(params: dict[str, Any], a: Any, b: Any) -> Any:
    """Pad both operands, dimensions that belong together to one size, and cut the result."""
    (contracted, batch) = params["dimension_numbers"]
    if not a.size or not b.size:
        return None
    to = []
    for x in (a, b):
        first = max(x.ndim - 2, 0)
        to.append([-(-n // (ROWS, COLUMNS)[i - x.ndim]) * (ROWS, COLUMNS)[i - x.ndim] if i >= first else n
                   for i, n in enumerate(x.shape)])  # fmt: skip
    for ours, theirs in (*zip(*contracted), *zip(*batch)):
        to[0][ours] = to[1][theirs] = max(to[0][ours], to[1][theirs])
    padded = [
        lax.pad(x, jnp.zeros((), x.dtype), [(0, n - m, 0) for n, m in zip(want, x.shape)])
        for x, want in zip((a, b), to)
    ]
    free = [[i for i in range(x.ndim) if i not in (*c, *k)] for x, c, k in zip((a, b), contracted, batch)]
    shape = [*(a.shape[i] for i in (*batch[0], *free[0])), *(b.shape[i] for i in free[1])]
    out = lax.dot_general_p.bind(*padded, **params)
    return lax.slice(out, [0] * out.ndim, shape)


def _reduction(name: str) -> Rule:
    identity = _IDENTITY[name]
    reduce = getattr(lax, f"{name}_p")

    def rule(params: dict[str, Any], x: Any) -> Any:
        if not x.ndim or not x.size or jnp.issubdtype(x.dtype, jnp.complexfloating):
            return None
        out = reduce.bind(_padded(x, extreme(identity, x.dtype)), **params)
        left = [n for i, n in enumerate(x.shape) if i not in params["axes"]]
        return lax.slice(out, [0] * len(left), left)

    return rule
