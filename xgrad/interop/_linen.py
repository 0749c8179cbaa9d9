"""LinenModule: wraps a Linen module of Flax as an `xgrad.nn.Module`, for `interop.flax.wrap` (see `_wrapped.py`).

A Linen module is a function of trees of arrays, one for each collection.  "params" are the parameters, all others are
buffers, and so are the streams of random keys:

    {"params": ..., "batch_stats": ...} ──flatten──► cells ──► module.apply(variables, *args, rngs=, mutable=)
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jax
from flax import core

from ..random import is_key
from ..tensor import Tensor
from ._wrapped import (
    Cell,
    Wrapped,
    add,
    arrived,
    as_names,
    checked,
    described,
    everything,
    function_over,
    is_array,
    named,
    part_at,
    raw,
    sent,
)

__all__ = ["LinenModule"]

_OWN: Any = ("the wrapped module's own",)  # the default of a call's `mutable` and `rngs`


class LinenModule(Wrapped):
    """A Flax Linen module as an `nn.Module`; made by `wrap`."""

    def __init__(
        self,
        module: Any,
        variables: Any,
        *inputs: Any,
        method: Any = None,
        rngs: Mapping[str, Any] | None = None,
        mutable: str | Iterable[str] | None = None,
        static_argnames: str | Iterable[str] = (),
        policy: Callable | None = everything,
    ) -> None:
        super().__init__(type(module).__name__)
        variables = _made(module, variables, inputs, method)
        if mutable is None:
            mutable = [name for name in variables if name != "params"]
        self._method = method
        self._held = _Held(module, as_names(mutable), as_names(static_argnames), policy)
        self._held.fill(self, variables, {} if rngs is None else rngs)
        checked(self, module)

    @property
    def module(self) -> Any:
        """The Linen module itself, which has no arrays."""
        return self._held.module

    @property
    def variables(self) -> dict[str, Any]:
        """The tree of collections, with the latest arrays."""
        held = self._held
        return jax.tree_util.tree_unflatten(held.tree, [cell.array() for cell in held.cells])

    def forward(self, *args: Any, mutable: Any = _OWN, rngs: Any = _OWN, **kwargs: Any) -> Any:
        """Return the result of `module.apply` for these variables."""
        held = self._held
        if mutable is _OWN:
            changing: Any = held.mutable if self.training else ()
        else:
            changing = mutable if isinstance(mutable, (bool, str)) else tuple(mutable)
        drawing = rngs is _OWN and self.training and bool(held.streams)
        cells = [*held.cells, *[cell for pair in held.streams.values() for cell in pair]] if drawing else held.cells
        args, kwargs = sent(args, kwargs, held.static)
        (given,), _ = sent((None if rngs is _OWN else rngs,), {})
        program = held.program(self._method, changing, mutable is not _OWN, drawing)
        out, new, changed = program([cell.taken() for cell in cells], given, args, kwargs)
        for place, value in new.items():
            cells[place].put(value)
        return out if mutable is _OWN or mutable is False else (out, changed)

    def _again(self) -> "LinenModule":
        held = self._held
        rngs = {name: key.array() for name, (key, _) in held.streams.items()}
        options = {"mutable": held.mutable, "static_argnames": held.static, "policy": held.policy}
        return LinenModule(held.module, self.variables, method=self._method, rngs=rngs, **options)


class _Held:
    """The Linen module of a wrapped one, the cells of its arrays, and its programs."""

    def __init__(self, module: Any, mutable: tuple, static: tuple, policy: Any) -> None:
        self.module, self.mutable, self.static, self.policy = module, mutable, static, policy
        self.tree: Any = None
        self.cells: list[Cell] = []
        self.places: dict[tuple, int] = {}  # places among the cells, by path
        self.streams: dict[str, tuple[Cell, Cell]] = {}  # (key, count)
        self.programs: dict[Any, Callable] = {}

    def fill(self, root: LinenModule, variables: dict, rngs: Mapping[str, Any]) -> None:
        """Make the tensors."""
        leaves, self.tree = jax.tree_util.tree_flatten_with_path(variables)
        for path, leaf in leaves:
            names = named(path)
            if not is_array(leaf):
                raise TypeError(f"wrap: the variable {'.'.join(names)} is not an array, but a {described(leaf)}")
            trainable = names[0] == "params"
            inside = names[1:] if trainable else names
            part = part_at(root, inside[:-1])
            self.places[path] = len(self.cells)
            self.cells.append(add(part, inside[-1], leaf, trainable))
        for name, key in rngs.items():
            if not isinstance(key, jax.Array):
                raise TypeError(f"wrap: rngs[{name!r}] must be a key of jax.random, but got {described(key)}")
            part = part_at(root, ("rngs", name))
            count = add(part, "count", jax.numpy.zeros((), jax.numpy.uint32), False)
            self.streams[name] = add(part, "key", key, False), count

    def program(self, method: Any, mutable: Any, told: bool, drawing: bool) -> Callable:
        """Return the module as an operator of the tape; `told`: its results include the changed collections."""
        key = mutable, told, drawing
        found = self.programs.get(key)
        if found is None:
            pure = self.pure(method, mutable, told, drawing)
            found = self.programs[key] = function_over(pure, type(self.module).__name__, self.policy)
        return found

    def pure(self, method: Any, mutable: Any, told: bool, drawing: bool) -> Callable:
        """Return the module as a function of its arrays: (results, {place: new value}, changed collections)."""
        impls = [cell.impl for cell in self.cells]
        streams = {name: key.impl for name, (key, _) in self.streams.items()} if drawing else {}
        module, tree, places = self.module, self.tree, self.places
        known = {path[0].key for path in places}

        def pure(cells: list, rngs: Any, args: tuple, kwargs: dict) -> tuple:
            own = [_typed(x, impl) for x, impl in zip(cells, impls, strict=False)]
            variables = jax.tree_util.tree_unflatten(tree, own)
            (rngs, *given), kwargs = arrived((rngs, *args), kwargs)
            new: dict[int, Any] = {}
            if streams:
                rngs = {}
                for i, (name, impl) in enumerate(streams.items()):
                    place = len(own) + 2 * i
                    rngs[name] = jax.random.fold_in(_typed(cells[place], impl), cells[place + 1])
                    new[place + 1] = cells[place + 1] + 1
            changing = mutable if isinstance(mutable, (bool, str)) else list(mutable) or False
            out = module.apply(variables, *given, rngs=rngs, mutable=changing, method=method, **kwargs)
            if changing is False:
                return out, new, None
            out, changed = out
            changed = core.unfreeze(changed)
            for path, leaf in jax.tree_util.tree_flatten_with_path(changed)[0]:
                place = places.get(path)
                if place is None and path[0].key in known:
                    raise ValueError(
                        f"wrap: a call of {type(module).__name__} adds {'.'.join(named(path))} to the variables, which "
                        "are to be complete: take them from init(), with the same method and arguments"
                    )
                if place is not None and leaf is not own[place]:
                    new[place] = raw(leaf)
            return out, new, changed if told else None

        return pure


def _typed(array: Any, impl: Any) -> Any:
    return array if impl is None else jax.random.wrap_key_data(array, impl=impl)


def _made(module: Any, variables: Any, inputs: tuple, method: Any) -> dict[str, Any]:
    """Return the collections in `variables`, or those that `init` makes."""
    name = type(module).__name__
    if inputs or is_key(variables):
        given = [x._export() if isinstance(x, Tensor) else x for x in inputs]
        variables = module.init(variables, *given, **({} if method is None else {"method": method}))
    if not isinstance(variables, Mapping):
        raise TypeError(
            f"wrap: {name} is a Linen module, which has no arrays: give the variables of {name}.init(key, *inputs), or "
            f"a key and inputs, and not {'nothing' if variables is None else described(variables)}"
        )
    variables = core.unfreeze(dict(variables))
    if not all(isinstance(tree, Mapping) for tree in variables.values()) or "params" not in variables:
        raise ValueError(
            f'wrap: the variables of {name} are to be collections, such as {{"params": ..., "batch_stats": ...}}, but '
            f"these have {list(variables)}"
        )
    return variables
