"""from_jax makes a JAX function an operator on tensors; to_jax makes a function of tensors a pure JAX function.

    from_jax(f)(*trees of tensors)            to_jax(g)(*trees of arrays)
        │ leaves that are arrays                  │ arrays, or tracers of any transformation
        ▼                                         ▼
    an Operator over the leaves,              Tensors over them; g runs, writes through views,
    made once for each structure              and changes nothing outside
        ▼                                         ▼
    tree of tensors, one node                 tree of arrays

Invariant of `from_jax`: each structure (the nesting of the arguments, and the values of static ones) has one operator,
which the tape treats as any other: hooks, saved tensors, double backward, forward mode, vmap, compiled backward.
Within a structure JAX compiles once for each set of shapes and dtypes.
"""

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..base.limits import jaxs_products
from ..config import state
from ..dispatch.call import call
from ..dispatch.operands import is_operand
from ..dispatch.operator import Operator
from ..dispatch.public_code import called_as
from ..random import is_key
from ..tensor import Tensor, from_foreign
from ..tensor_methods import pytrees
from ..tensor_methods.conversion import jax_array
from ._by_tape import by_tape
from ._residuals import Kept

__all__ = ["from_jax", "to_jax"]

_BARE = jax.tree_util.tree_structure(0)
_MOST = 1024  # structures of one function, and kernels with residuals of one structure; the oldest goes first


def from_jax(
    function: Callable[..., Any] | None = None,
    *,
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Iterable[str] = (),
    policy: Callable[..., Any] | None = None,
) -> Any:
    """Make a JAX function an operator of the tape: it takes and returns tensors where `function` has arrays.

    Arguments and results may be nested in tuples, lists, dictionaries and other pytrees.  Leaves that are tensors,
    arrays or numbers are traced, as `jax.jit` traces them; any other leaf is static, as are the arguments that
    `static_argnums` and `static_argnames` name, and must be hashable: each of its values has a program of its own.
    Tensors arrive as arrays; every result is a tensor, and all of them share one node.  Gradients are `jax.vjp`'s
    (or come from a `jax.custom_vjp` inside), in PyTorch's convention for complex numbers, to any order; tangents are
    `jax.jvp`'s.

    `policy` selects the values that are saved for backward, as in `jax.checkpoint`.  None: the arguments; backward
    computes all other values again, in one program.  `jax.checkpoint_policies.everything_saveable`: the values that
    JAX itself would save, so that nothing is computed twice; this is for whole models.  Others: the values they name.

    Without `function`, a decorator.  Raises `TypeError` at the call for a leaf that is neither an array nor hashable,
    and any error of the function.

    >>> import jax.numpy as jnp, xgrad
    >>> @xgrad.from_jax
    ... def scaled(tree, by):
    ...     return {"sum": (tree["a"] * by).sum(), "softmax": jnp.exp(tree["a"]) / jnp.exp(tree["a"]).sum()}
    >>> a = xgrad.tensor([0.0, 1.0], requires_grad=True)
    >>> out = scaled({"a": a}, 3.0)
    >>> (out["sum"] + out["softmax"][0]).backward()
    >>> a.grad
    tensor([3.1966, 2.8034])
    """
    options = {"static_argnums": static_argnums, "static_argnames": static_argnames, "policy": policy}
    if function is None:
        return functools.partial(from_jax, **options)
    if not callable(function):
        raise TypeError(f"from_jax: expected a function, but got {type(function).__name__}")
    name = getattr(function, "__name__", type(function).__name__)
    structures = _Structures(function, name, _StaticArguments(function, static_argnums, static_argnames), policy)
    plain = structures.plain

    @functools.wraps(function)
    def recorded(*args: Any, **kwargs: Any) -> Any:
        if not kwargs and (structure := plain.get(len(args))) is not None:
            for a in args:
                if a.__class__ is not Tensor:
                    break
            else:
                results = call(structure.operator, args, ())
                return results if structure.bare else structure.nested(args, results)
        structure, leaves = structures.of(args, kwargs)
        return structure.run(leaves)

    return called_as(function, recorded, name)


def to_jax(function: Callable[..., Any] | None = None, *, grad: str = "jax") -> Any:
    """Make a function over tensors a pure function over arrays, for `jax.grad`, `jit`, `vmap`, `jvp`, `lax.scan`, ...

    The arrays among the arguments, which may be nested in pytrees, arrive as tensors, and tensors in the result
    become arrays; all other values pass unchanged.  Inside, tensors behave as always: in-place writes through views,
    hooks, `backward()`.  The caller's arrays are never written: the function has tensors of its own.  Random numbers
    take a key as an argument: `with xgrad.random.use_key(key)`.

    `grad` selects the derivative.  "jax": JAX differentiates (`grad`, `jvp`, `linearize`, ...) the values that are
    computed, also through a `backward()` inside.  It does not know the tape's marks: `detach()` and `no_grad` stop no
    gradient (`from_jax(jax.lax.stop_gradient)` does), arguments don't require grad, and of an `autograd.Function` it
    differentiates the forward.  "tape": xgrad's backward, which follows these marks and runs hooks; arguments
    require grad and are not leaves.  It is a `jax.custom_vjp`: it has no forward mode, backward runs the function
    once more, and the results must be arrays.  Sub-gradients are PyTorch's either way, gradients of complex numbers
    JAX's: the conjugates of PyTorch's.

    The function's effects on tensors from outside are not part of the pure function: under a trace a write to such a
    tensor puts a tracer into it, and a later use is JAX's `UnexpectedTracerError`; assigning `.data` mends it.
    Without `function`, a decorator.  Raises `TypeError` if `function` is not a function, `RuntimeError` for an argument
    that requires grad, whose history would end here, and `TracedValueError` where it reads a value under a trace.

    >>> import jax, jax.numpy as jnp, xgrad
    >>> @xgrad.to_jax
    ... def loss(x):
    ...     y = x.clone()
    ...     y[1:].mul_(y[:-1])
    ...     return (y * y).sum()
    >>> jax.jit(jax.grad(loss))(jnp.array([1.0, 2.0, 3.0])).tolist()
    [10.0, 40.0, 24.0]
    """
    if grad not in ("jax", "tape"):
        raise ValueError(f'to_jax: grad must be "jax" or "tape", but got {grad!r}')
    if function is None:
        return functools.partial(to_jax, grad=grad)
    if not callable(function):
        raise TypeError(f"to_jax: expected a function, but got {type(function).__name__}")

    @functools.wraps(function)
    def pure(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = pytrees.mapped(_entering, (args, kwargs))
        if grad == "tape":
            return by_tape(function, args, kwargs)
        return pytrees.mapped(_leaving, function(*args, **kwargs))

    return pure


def _entering(leaf: Any) -> Any:
    if isinstance(leaf, Tensor):
        leaf = jax_array(leaf)
    return from_foreign(leaf) if isinstance(leaf, (jax.Array, np.ndarray)) and not is_key(leaf) else leaf


def _leaving(leaf: Any) -> Any:
    return leaf._export() if isinstance(leaf, Tensor) else leaf


class _Structures:
    """A JAX function, and its structures so far."""

    def __init__(
        self, function: Callable[..., Any], name: str, static: "_StaticArguments", policy: Callable[..., Any] | None
    ) -> None:
        self.function, self.name, self.static, self.policy = function, name, static, policy
        self.found: dict[Any, _Structure] = {}
        self.plain: dict[int, _Structure] = {}  # by the number of arguments, if all of them are tensors

    def of(self, args: tuple[Any, ...], kwargs: dict[Any, Any]) -> tuple["_Structure", tuple[Any, ...]]:
        """Return the structure of a call's arguments, and the leaves that are arrays."""
        dynamic, static = self.static.parted(args, kwargs)
        nodes, tree = pytrees.flatten(dynamic)
        places = tuple([i for i, node in enumerate(nodes) if is_operand(node)])
        others = tuple([(i, node.__class__, node) for i, node in enumerate(nodes) if not is_operand(node)])
        key = tree, others, static
        try:
            structure = self.found.get(key)
        except TypeError:
            raise TypeError(
                f"from_jax: {self.name}() has a program for each value of a static argument, which must be hashable, "
                f"like everything that is not an array: got {[*(n for *_, n in others), *(v for *_, v in static)]!r}"
            ) from None
        if structure is None:
            structure = _Structure(self, tree, places, others, static)
            _put(self.found, key, structure)
            if self.policy is None and not kwargs and not static and all(a.__class__ is Tensor for a in args):
                self.plain[len(args)] = structure
        return structure, tuple([_operand(nodes[i]) for i in places])


def _put(table: dict, key: Any, value: Any) -> None:
    if len(table) >= _MOST:
        table.pop(next(iter(table)), None)
    table[key] = value


def _operand(leaf: Any) -> Any:
    # A scalar of NumPy's has a dtype of its own, unlike a Python number.
    return from_foreign(np.asarray(leaf)) if isinstance(leaf, np.generic) else leaf


class _Structure:
    """A JAX function for one structure of its arguments: an operator over the leaves that are arrays."""

    def __init__(
        self, of: _Structures, tree: Any, places: tuple[Any, ...], others: tuple[Any, ...], static: tuple[Any, ...]
    ) -> None:
        self.function, self.name, self.policy = of.function, of.name, of.policy
        self.tree, self.places, self.others = tree, places, others
        self.static, self.joined = static, of.static.joined
        # The structure of the results by the leaves' shapes and dtypes; and the structure of all, if they have one.
        self.nestings: dict[tuple[Any, ...], Any] = {}
        self.nesting: Any = None
        self.bare = False  # True if the result is one array, not nested
        node = "".join(part[:1].upper() + part[1:] for part in self.name.split("_") if part.isidentifier())
        self.operator = Operator(self.name, _over(self), node=f"{node or 'JaxFunction'}Backward0")
        self.keeping: dict[tuple[Any, ...], Kept] = {}

    def results(self, leaves: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the leaves of the function's result."""
        nodes: list[Any] = [None] * self.tree.num_leaves
        for i, leaf in zip(self.places, leaves, strict=True):
            nodes[i] = leaf
        for i, _, other in self.others:
            nodes[i] = other
        given, named = self.tree.unflatten(nodes)
        args, kwargs = self.joined(given, named, self.static)
        with jaxs_products():
            out, nesting = pytrees.flatten(self.function(*args, **kwargs))
        for x in out:
            if not is_operand(x):
                raise TypeError(
                    f"from_jax: {self.name}() must return arrays, nested in pytrees if you like, but it returned a "
                    f"{type(x).__name__}"
                )
        self.nestings[kinds(leaves)] = nesting
        self.nesting = nesting if all(n == nesting for n in self.nestings.values()) else None
        self.bare = self.nesting is not None and self.nesting == _BARE
        return tuple(x._read() if isinstance(x, Tensor) else jnp.asarray(x) for x in out)

    def run(self, leaves: tuple[Any, ...]) -> Any:
        """Return the function's result for these leaves, recorded."""
        kept = None if self.policy is None else self._kept(leaves)
        return self.nested(leaves, call(self.operator, leaves, ()) if kept is None else kept.run(leaves))

    def nested(self, leaves: tuple[Any, ...], results: Any) -> Any:
        """Return the operator's results in the structure of the function's result."""
        nesting = self.nestings[kinds(leaves)] if self.nesting is None else self.nesting
        if nesting == _BARE:
            return results
        return nesting.unflatten(results if results.__class__ is tuple else (results,))

    def _kept(self, leaves: tuple) -> Kept | None:
        """Return the operator that saves residuals; None if nothing is recorded.

        Tangents and batches use the other operator, which computes the function again in backward.
        """
        if not state.grad_enabled or state.forward_level >= 0:
            return None
        needs = 0
        for i, leaf in enumerate(leaves):
            if isinstance(leaf, Tensor):
                if leaf._level is not None:
                    return None
                needs |= leaf.requires_grad << i
        if not needs:
            return None
        key = needs, kinds(leaves)
        kept = self.keeping.get(key)
        if kept is None:
            kept = Kept(self.operator, self.results, len(leaves), needs, self.policy)
            _put(self.keeping, key, kept)
        return kept


def _over(structure: _Structure) -> Callable:
    def run(*leaves: Any) -> Any:
        results = structure.results(leaves)
        return results[0] if len(results) == 1 else results

    return run


def kinds(leaves: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the shapes and dtypes of leaves; the type of a leaf that is a number."""
    return tuple([(tuple(x.shape), x.dtype) if hasattr(x, "dtype") else x.__class__ for x in leaves])


class _StaticArguments:
    """Removes the static arguments from a call's, and inserts them again.  Positions and names are equivalent."""

    def __init__(self, function: Callable[..., Any], nums: int | Sequence[int], names: str | Iterable[str]) -> None:
        self.nums = {nums} if isinstance(nums, int) else {*nums}
        self.names = {names} if isinstance(names, str) else {*names}
        if not self.nums and not self.names:
            return
        parameters = [*inspect.signature(function).parameters.values()]
        known = [p.name for p in parameters]
        takes_more = {p.kind for p in parameters} & {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}
        if not takes_more:
            for number in self.nums:
                if not -len(known) <= number < len(known):
                    raise ValueError(f"from_jax: static_argnums has {number}, but there are {len(known)} parameters")
            for name in self.names - {*known}:
                raise ValueError(f"from_jax: static_argnames has {name!r}, but the parameters are {known}")
        self.nums = {n % len(known) if n < 0 else n for n in self.nums}
        positional = [p.name for p in parameters if p.kind is not inspect.Parameter.KEYWORD_ONLY]
        by_number = {positional[n] for n in self.nums if n < len(positional)}
        self.nums |= {positional.index(name) for name in self.names if name in positional}
        self.names |= by_number

    def parted(
        self, args: tuple[Any, ...], kwargs: dict[Any, Any]
    ) -> tuple[tuple[tuple[Any, ...], dict[Any, Any]], tuple[Any, ...]]:
        """Return ((arguments, keyword arguments) without the static ones, (place, type, value) of each static one).

        The type is there because 1 == 1.0 == True.
        """
        if not self.nums and not self.names:
            return (args, kwargs), ()
        static = [(i, a.__class__, a) for i, a in enumerate(args) if i in self.nums]
        static += [(name, a.__class__, a) for name, a in sorted(kwargs.items()) if name in self.names]
        args = tuple(a for i, a in enumerate(args) if i not in self.nums)
        return (args, {name: a for name, a in kwargs.items() if name not in self.names}), tuple(static)

    def joined(
        self, args: tuple[Any, ...], kwargs: dict[Any, Any], static: tuple[Any, ...]
    ) -> tuple[tuple[Any, ...], dict[Any, Any]]:
        """Return the arguments with the static ones inserted again."""
        full = [*args]
        for place, _, value in static:
            if isinstance(place, int):
                full.insert(place, value)
            else:
                kwargs = {**kwargs, place: value}
        return tuple(full), kwargs
