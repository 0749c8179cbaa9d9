"""wrap: turns an Equinox module, with its `eqx.nn.State`, into an `xgrad.nn.Module` (see `_wrapped.py`).

An Equinox module is a pytree.  Its floating-point arrays are the parameters, its other arrays and the state are
buffers, and all else is static:

    module ──eqx.partition──► arrays ──► cells ─────────────────────┐
                         └──► the rest, once for each mode ──► eqx.combine ──► function(module, *args)
"""

from collections.abc import Callable, Iterable
from typing import Any

import jax

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
    named,
    part_at,
    raw,
    sent,
)

try:
    import equinox as eqx
except ImportError as _error:
    raise ImportError(f'xgrad.interop.equinox needs equinox: pip install "xgrad[equinox]" ({_error})') from _error

__all__ = ["EquinoxModule", "wrap"]


def wrap(
    module: Any,
    state: Any = None,
    *,
    function: Callable[..., Any] | None = None,
    filter_spec: Any = eqx.is_inexact_array,
    static_argnames: str | Iterable[str] = (),
    policy: Callable[..., Any] | None = everything,
) -> "EquinoxModule":
    """Make an Equinox module an `xgrad.nn.Module`, which `loss.backward()` trains.

    Parameters, named by their paths, are the floating-point and complex arrays, or those that `filter_spec` picks, as
    in `eqx.partition`; the other arrays are buffers.  The module itself stays as it is: `net.module` is one with
    the latest arrays, `net.state` the state.  `train()` and `eval()` are `eqx.nn.inference_mode`; until one of them is
    called, each layer has the flag with which it was made.

    A call takes and returns tensors in the place of arrays, and runs `function(module, *args, **kwargs)` as one JAX
    function: there `jax.vmap` over the batch has its place, and keys of `jax.random` are split.  By default it is the
    module's own call.  With a `state`, it is `function(module, state, *args)`, by default `module(*args, state)`, and
    returns (result, new state); the call returns the result.  Flags (True and False) among the arguments are part of
    the program, as are the keyword arguments that `static_argnames` names; other numbers are traced.  `policy`: the
    values that are saved for backward (see `xgrad.from_jax`), by default those that JAX itself would save.

    Raises `TypeError` for an object that is not an Equinox module, `ValueError` for a module without parameters.

    >>> import equinox as eqx, jax, xgrad
    >>> linear = eqx.nn.Linear(2, 3, key=jax.random.key(0))
    >>> net = xgrad.interop.equinox.wrap(linear, function=lambda linear, x: jax.vmap(linear)(x))
    >>> net(xgrad.ones(4, 2)).sum().backward()
    >>> net.bias.grad.tolist()
    [4.0, 4.0, 4.0]
    """
    return EquinoxModule(
        module, state, function=function, filter_spec=filter_spec, static_argnames=static_argnames, policy=policy
    )


class EquinoxModule(Wrapped):
    """An Equinox module as an `nn.Module`; made by `wrap`."""

    def __init__(
        self, module: Any, state: Any, *, function: Any, filter_spec: Any, static_argnames: Any, policy: Any
    ) -> None:
        super().__init__(type(module).__name__)
        if not isinstance(module, eqx.Module):
            raise TypeError(f"wrap: expected a module of Equinox (eqx.Module), but got {described(module)}")
        if state is not None and not isinstance(state, eqx.nn.State):
            raise TypeError(f"wrap: state= takes the eqx.nn.State of {type(module).__name__}, not {described(state)}")
        if function is not None and not callable(function):
            raise TypeError(f"wrap: function= takes a function of (module, *args), not {described(function)}")
        self._function = function  # for `xgrad.compile`, which guards functions
        self._inference: bool | None = None  # None: each layer's own flag
        self._held = _Held(self, module, state, filter_spec, as_names(static_argnames), policy)
        checked(self, module)
        flags = self._held.flags()
        for part in self.modules():
            part.training = not flags or not all(flags)

    @property
    def module(self) -> Any:
        """A module like the wrapped one, with the latest arrays."""
        held = self._held
        arrays = [cell.array() for cell in held.cells[: held.count]]
        return eqx.combine(jax.tree_util.tree_unflatten(held.tree, arrays), held.static(self._inference))

    @property
    def state(self) -> Any:
        """The state with the latest arrays; None for a module without one."""
        held = self._held
        arrays = [cell.array() for cell in held.cells[held.count :]]
        return None if held.state is None else jax.tree_util.tree_unflatten(held.state, arrays)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Return the result of the function for the module's values now."""
        held = self._held
        args, kwargs = sent(args, kwargs, held.names)
        program = held.program(self._function, self._inference)
        out, new = program([cell.taken() for cell in held.cells], args, kwargs)
        for place, value in new.items():
            held.cells[place].put(value)
        return out

    def train(self, mode: bool = True) -> "EquinoxModule":
        """Call `eqx.nn.inference_mode(module, value=not mode)`, and set `training` of all parts."""
        super().train(mode)
        self._inference = not mode
        return self

    def _again(self) -> "EquinoxModule":
        held = self._held
        new = EquinoxModule(
            self.module, self.state, function=self._function, filter_spec=held.spec, static_argnames=held.names,
            policy=held.policy,
        )  # fmt: skip
        new._inference = self._inference
        return new


class _Held:
    """The static part of a module, the cells of its arrays, and its programs."""

    def __init__(
        self, root: EquinoxModule, module: Any, state: Any, spec: Any, names: tuple[Any, ...], policy: Any
    ) -> None:
        self.spec, self.names, self.policy = spec, names, policy
        arrays, rest = eqx.partition(module, eqx.is_array)
        self.statics: dict[bool | None, Any] = {None: rest}
        leaves, self.tree = jax.tree_util.tree_flatten_with_path(arrays)
        trainable = {path for path, _ in jax.tree_util.tree_flatten_with_path(eqx.filter(arrays, spec))[0]}
        self.cells: list[Cell] = []
        for path, leaf in leaves:
            self.place(root, named(path), leaf, path in trainable)
        self.count = len(leaves)
        # The state's treedef identifies the entries.
        inside, self.state = (None, None) if state is None else jax.tree_util.tree_flatten(state)
        for i, leaf in enumerate(inside or ()):
            self.place(root, ("state", str(i)), leaf, False)
        self.programs: dict[Any, Callable[..., Any]] = {}

    def place(self, root: EquinoxModule, names: tuple[str, ...], leaf: Any, trainable: bool) -> None:
        """Make a tensor."""
        self.cells.append(add(part_at(root, names[:-1]), names[-1], leaf, trainable))

    def static(self, inference: bool | None) -> Any:
        """Return the module without its arrays, in a mode."""
        found = self.statics.get(inference)
        if found is None:
            assert inference is not None
            found = self.statics[inference] = eqx.nn.inference_mode(self.statics[None], value=inference)
        return found

    def flags(self) -> list[bool]:
        """Return the layers' flags of inference."""
        layers = jax.tree_util.tree_leaves(self.statics[None], is_leaf=lambda node: hasattr(node, "inference"))
        return [layer.inference for layer in layers if hasattr(layer, "inference")]

    def program(self, function: Any, inference: bool | None) -> Callable[..., Any]:
        """Return the module as an operator of the tape."""
        found = self.programs.get(inference)
        if found is None:
            static = self.static(inference)
            found = self.programs[inference] = function_over(
                self.pure(function, static), type(static).__name__, self.policy
            )
        return found

    def pure(self, function: Any, static: Any) -> Callable[..., Any]:
        """Return the module as a function of its arrays: (results, {place: new value of the state})."""
        impls, count, tree, state_tree = [cell.impl for cell in self.cells], self.count, self.tree, self.state

        def pure(cells: list, args: tuple, kwargs: dict) -> tuple:
            arrays = [
                x if i is None else jax.random.wrap_key_data(x, impl=i) for x, i in zip(cells, impls, strict=True)
            ]
            module = eqx.combine(jax.tree_util.tree_unflatten(tree, arrays[:count]), static)
            args, kwargs = arrived(args, kwargs)
            if state_tree is None:
                return (module if function is None else lambda *a, **k: function(module, *a, **k))(*args, **kwargs), {}
            before = arrays[count:]
            state = jax.tree_util.tree_unflatten(state_tree, before)
            if function is None:
                result = module(*args, state, **kwargs)
            else:
                result = function(module, state, *args, **kwargs)
            if not (isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], eqx.nn.State)):
                raise TypeError(
                    f"wrap: with a state, a call of {type(static).__name__} is to give (result, new state), but it "
                    f"gave a {type(result).__name__}"
                )
            after, after_tree = jax.tree_util.tree_flatten(result[1])
            if after_tree != state_tree:
                raise ValueError(f"wrap: a call of {type(static).__name__} gives a state of another structure")
            changed = [(i, raw(new)) for i, (old, new) in enumerate(zip(before, after, strict=True)) if new is not old]
            return result[0], {count + i: new for i, new in changed}

        return pure
