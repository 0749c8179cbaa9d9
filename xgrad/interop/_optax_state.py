"""GroupState: holds optax's state for one parameter group as tensors, for the Optimizer of interop.optax.

Invariants: the tensors stay the same objects, by which a compiled function finds them; structure, shapes and
dtypes never change.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import NamedSharding, PartitionSpec
from jax.tree_util import DictKey, GetAttrKey, keystr, tree_flatten_with_path

from ..base import limits
from ..base.declared import DeclaredPlace
from ..config import state
from ..execution.pending import only_shape
from ..execution.runner import evaluate_held
from ..execution.shapes_only import array_of
from ..tensor import Tensor, from_array, from_foreign
from ..tensor_methods.conversion import jax_array
from ..views.storage import Tracer

# A copy that only its holder has; without JAX's weak types, which would change with the first step.
owned_copy = jax.jit(limits.checked(lambda array: jnp.array(array, dtype=array.dtype, copy=True)))


def checked(tx: Any) -> Any:
    """Return `tx` as a transformation that takes extra arguments.  Raises `TypeError` if it is none of optax's."""
    if hasattr(tx, "gradient_transformation"):  # optax.MultiSteps
        tx = tx.gradient_transformation()
    if not callable(getattr(tx, "init", None)) or not callable(getattr(tx, "update", None)):
        raise TypeError(
            f"tx must be a transformation of optax's, such as optax.adamw(1e-3), but got {type(tx).__name__}"
            + (": call it with its hyperparameters first" if callable(tx) else "")
        )
    return optax.with_extra_args_support(tx)


class Layout:
    """The structure of a group's parameters and state, without values: a program that refers to it holds no arrays."""

    def __init__(self, tx: Any, names: Sequence[str] | None, shapes: list[tuple], state: Any) -> None:
        self.tx, self.names, self.shapes = tx, names, shapes
        flat, self.tree = tree_flatten_with_path(state)
        self.paths = [path for path, _ in flat]
        self.avals = [jax.ShapeDtypeStruct(jnp.shape(leaf), jnp.result_type(leaf)) for _, leaf in flat]

    def nested(self, values: Sequence[Any]) -> Any:
        """Return values, one for each parameter, in the structure that optax sees: a list, or a dictionary by name."""
        return nested(self.names, values)

    def flat(self, tree: Any) -> list[Any]:
        """Undo `nested`."""
        return list(tree) if self.names is None else [tree[name] for name in self.names]

    def masked(self, present: tuple[bool, ...]) -> tuple[Any, list[int]]:
        """Return the structure of the state for the parameters in `present`, and the places of its leaves.

        Raises `RuntimeError` if that state is not part of the whole state.
        """
        if all(present):
            return self.tree, list(range(len(self.paths)))
        some = [
            jax.ShapeDtypeStruct(shape, np.float32) if here else optax.MaskedNode()
            for shape, here in zip(self.shapes, present, strict=True)
        ]
        flat, tree = tree_flatten_with_path(jax.eval_shape(self.tx.init, self.nested(some)))
        known = {path: i for i, path in enumerate(self.paths)}
        places = [known.get(path, -1) for path, _ in flat]
        if any(i < 0 or self.avals[i].shape != leaf.shape for i, (_, leaf) in zip(places, flat, strict=True)):
            raise RuntimeError(
                "this transformation keeps more than a state for each parameter, so it cannot skip those without a "
                "gradient: give each of them one (zero_grad(set_to_none=False) keeps zeros)"
            )
        return tree, places


def nested(names: Sequence[str] | None, values: Sequence[Any]) -> Any:
    return list(values) if names is None else dict(zip(names, values, strict=True))


class GroupState:
    """The state of a transformation for the parameters of a group."""

    def __init__(self, tx: Any, params: Sequence[Tensor], names: Sequence[str] | None) -> None:
        for p in params:
            if p._placed().__class__ is DeclaredPlace:
                raise NotImplementedError(
                    f"optax computes on JAX's devices, and a parameter is on the declared backend {p.device}: use an "
                    "optimizer of xgrad.optim, or parameters on the CPU"
                )
        arrays: list[Any] = [p._held() if only_shape(p._held()) else p._read() for p in params]
        self.fresh = not any(map(only_shape, arrays))  # no step was made, and nothing loaded
        if self.fresh:
            state = tx.init(nested(names, arrays))
        else:
            state = jax.eval_shape(tx.init, nested(names, [a.aval.struct for a in arrays]))
        self.layout = Layout(tx, names, [a.shape for a in arrays], state)
        leaves = jax.tree.leaves(state)
        leaves = self._placed(leaves, arrays) if self.fresh else [array_of(leaf.shape, leaf.dtype) for leaf in leaves]
        self.tensors = [from_array(a) for a in leaves]
        self.hyperparameters = self._hyperparameters()

    def __getstate__(self) -> dict[str, Any]:
        self.lend()  # a copy of a tensor shares its array
        return dict(self.__dict__)

    @property
    def paths(self) -> list[Any]:
        return self.layout.paths

    def named(self, params: Sequence[Tensor]) -> Iterator[tuple[Tensor | None, str, Tensor]]:
        """Yield for each tensor of the state its parameter, its name beside that, and itself."""
        by_key = dict(zip(range(len(params)) if self.layout.names is None else self.layout.names, params, strict=True))
        for path, tensor in zip(self.paths, self.tensors, strict=True):
            key: Any = path[-1] if path else None
            param = by_key.get(getattr(key, "idx", getattr(key, "key", None)))  # pyright: ignore[reportArgumentType]
            yield param, keystr(path if param is None else path[:-1]).rpartition(".")[2], tensor

    def _placed(self, leaves: list[Any], params: list[Any]) -> list[Any]:
        """Return the leaves of a state as copies, each placed like its parameter, or on all of the devices."""
        by_key = dict(zip(range(len(params)) if self.layout.names is None else self.layout.names, params, strict=True))
        found = []
        for path, leaf in zip(self.paths, leaves, strict=True):
            leaf = leaf if isinstance(leaf, jax.Array) else jnp.asarray(leaf)
            key: Any = path[-1] if path else None
            param: Any = by_key.get(getattr(key, "idx", getattr(key, "key", None)))  # pyright: ignore[reportArgumentType]
            where = param if param is not None and param.shape == leaf.shape else params[0]
            if not isinstance(where, Tracer):
                place = where.sharding
                if where is not param and isinstance(place, NamedSharding):
                    place = NamedSharding(place.mesh, PartitionSpec(), memory_kind=place.memory_kind)
                leaf = _moved(leaf, place, where.committed)
            found.append(owned_copy(leaf))
        return found

    def refresh(self, params: list[Any]) -> None:
        """Begin from the parameters' values now, before the first step.  Hyperparameters stay."""
        self.fresh = False
        leaves = jax.tree.leaves(self.layout.tx.init(self.layout.nested(params)))
        kept = {i for places in self.hyperparameters.values() for i in places}
        for i, array in enumerate(self._placed(leaves, params)):
            if i not in kept:
                self.tensors[i]._array = array

    def settle(self, avals: list[Any], number: int) -> bool:
        """Give the state the dtypes that a step gives it; return True if it had them.

        Some transformations begin in the parameters' dtype and go on in a wider one.  Raises `RuntimeError` for shapes
        that change.
        """
        same = True
        for path, tensor, aval in zip(self.paths, self.tensors, avals, strict=True):
            if aval.shape != tensor.shape:
                raise RuntimeError(
                    f"the transformation of group {number} changes the shape of {told(path)} in its state, from "
                    f"{tuple(tensor.shape)} to {aval.shape}; a state must keep its shapes"
                )
            if aval.dtype != tensor.dtype:
                same = False
                tensor._array = owned_copy(tensor._array.astype(aval.dtype))
        return same

    def lend(self) -> list[Any]:
        """Return the arrays for other code to keep: the next step does not donate them."""
        for tensor in self.tensors:
            tensor._owned = False
        return [evaluate_held(tensor) for tensor in self.tensors]

    # ------------------------------------------------------------ hyperparameters

    def _hyperparameters(self) -> dict[str, list[int]]:
        """Return the places of `optax.inject_hyperparams`'s values, by name, with the path if a name is there twice."""
        found: dict[str, list[tuple[Any, int]]] = {}
        for i, path in enumerate(self.paths):
            if len(path) > 1 and path[-2] == GetAttrKey("hyperparams") and isinstance(path[-1], DictKey):
                found.setdefault(path[-1].key, []).append((path, i))
        result = {}
        for name, places in found.items():
            for path, i in places:
                result[name if len(places) == 1 else f"{told(path[:-2])}.{name}"] = [i]
        return result

    def scheduled(self, name: str) -> bool:
        """Return True if a hyperparameter follows a schedule."""
        path = self.paths[self.hyperparameters[name][0]]
        of = (*path[:-2], GetAttrKey("hyperparams_states"), path[-1])
        return any(other[: len(of)] == of for other in self.paths)

    def get(self, name: str) -> Any:
        """Return a hyperparameter: a number, or a tensor if it is not a scalar or is being traced."""
        tensor = self.tensors[self.hyperparameters[name][0]]
        if state.trace is not None or tensor.ndim:
            return tensor.clone()
        return number(tensor._read())

    def prepared(self, name: str, value: Any, scheduled: bool = False) -> Any:
        """Return the array for `put` of a value that the user passes.

        Raises `ValueError` for another shape, and for a hyperparameter that follows a schedule unless `scheduled`
        allows it; `TypeError` for another kind of number.
        """
        tensor = self.tensors[self.hyperparameters[name][0]]
        if not scheduled and self.scheduled(name):
            raise ValueError(f"{name!r} follows a schedule: each step computes it anew, whatever it was set to")
        array = jnp.asarray(jax_array(value) if isinstance(value, Tensor) else value)
        if array.shape != tensor.shape:
            raise ValueError(f"{name!r} has the shape {tuple(tensor.shape)}, and was given one of {array.shape}")
        if _kind(array.dtype) > _kind(tensor.dtype):
            raise TypeError(f"{name!r} is of {tensor.dtype.name}, and was given a value of {array.dtype.name}")
        array = array.astype(tensor.dtype)
        if state.trace is not None:
            return array
        return owned_copy(_moved(array, tensor._array.sharding, tensor._array.committed))

    def put(self, name: str, array: Any) -> None:
        """Set a hyperparameter to an array of `prepared`."""
        self.tensors[self.hyperparameters[name][0]]._write(array)

    # ------------------------------------------------------------ saving and loading

    def saved(self) -> dict[str, Any]:
        """Return the state as nested dictionaries of tensors, without hyperparameters."""
        arrays = self.lend()
        found: dict[str, Any] = {}
        hyper = {places[0] for places in self.hyperparameters.values()}
        for i, (path, array) in enumerate(zip(self.paths, arrays, strict=True)):
            if i not in hyper:
                inner = found
                *way, last = steps(path)
                for key in way:
                    inner = inner.setdefault(key, {})
                inner[last] = from_foreign(array)
        return found

    def loaded(self, given: Any, prefix: str, problems: list[str]) -> dict[int, Any]:
        """Return {place in the state: array} of a dictionary of `saved`; add what does not fit to `problems`."""
        values = dict(_flattened(given, ()))
        hyper = {places[0] for places in self.hyperparameters.values()}
        found = {}
        for i, path in enumerate(self.paths):
            if i in hyper:
                continue
            key, tensor = steps(path), self.tensors[i]
            name = ".".join((prefix, *key))
            if key not in values:
                problems.append(f'Missing key in state_dict: "{name}".')
                continue
            value = values.pop(key)
            array = _array_of(value, tensor.dtype)
            if array is None:
                problems.append(f"{name}: expected a tensor or a number, but got a {type(value).__name__}.")
            elif array.shape != tensor.shape:
                problems.append(
                    f"size mismatch for {name}: it has the shape {tuple(array.shape)}, the optimizer's "
                    f"{tuple(tensor.shape)}."
                )
            elif array.dtype != tensor.dtype:
                problems.append(
                    f"dtype mismatch for {name}: it is {array.dtype}, the optimizer's is {tensor.dtype.name}."
                )
            else:
                found[i] = array
        problems += [f'Unexpected key in state_dict: "{".".join((prefix, *key))}".' for key in values]
        return found

    def load(self, arrays: dict[int, Any]) -> None:
        """Replace the state's arrays by the arrays that `loaded` returned."""
        for i, array in arrays.items():
            old = self.tensors[i]._array
            array = array if isinstance(array, jax.Array) else jnp.asarray(array)
            self.tensors[i]._array = owned_copy(_moved(array, old.sharding, old.committed))
        self.fresh = False


def _moved(array: Any, place: Any, committed: bool) -> Any:
    """Return an array at a place, and committed to its devices if others are.

    Else the first step would commit it, and JAX would compile the second step again.
    """
    return jax.device_put(array, place) if array.sharding != place or (committed and not array.committed) else array


def _kind(dtype: Any) -> int:
    """Return the place of a dtype in bool < integer < floating < complex."""
    return sum(not jnp.issubdtype(dtype, kind) for kind in (jnp.complexfloating, jnp.inexact, jnp.number)) * -1


def number(array: Any) -> Any:
    """Return a scalar as the Python number that one would write for it: 0.1, and not 0.10000000149011612."""
    value = np.array(owned_copy(array))[()]  # a copy: an array that NumPy has seen may not be donated any more
    return float(str(value)) if jnp.issubdtype(value.dtype, jnp.floating) else value.item()


def steps(path: Sequence[Any]) -> tuple[str, ...]:
    """Return a path in a pytree as strings."""
    return tuple(keystr((key,), simple=True) for key in path) or ("value",)


def told(path: Sequence[Any]) -> str:
    """Return a path in a pytree as an error names it."""
    return ".".join(steps(path))


def _flattened(tree: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield from _flattened(value, (*path, str(key)))
    else:
        yield path, tree


def _array_of(value: Any, dtype: Any) -> Any:
    """Return a value as an array, a plain number in `dtype` if that is of its kind; None if it is neither."""
    if isinstance(value, Tensor):
        return jax_array(value)
    if isinstance(value, (jax.Array, np.ndarray, np.generic)):
        return value
    if isinstance(value, (bool, int, float)):
        kinds = {bool: jnp.bool_, int: jnp.integer, float: jnp.floating}
        return np.asarray(value, dtype=dtype if jnp.issubdtype(dtype, kinds[type(value)]) else None)
    return None


def named_state(optimizer: Any) -> Iterator[tuple[Tensor | None, str, Tensor]]:
    """Yield for each tensor of an optimizer's state its parameter, its name beside that, and itself."""
    for own, group in zip(optimizer._states, optimizer.param_groups, strict=True):
        yield from own.named(group["params"])
