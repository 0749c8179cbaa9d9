"""`xgrad.compile(verify=True)`: runs each call of the compiled function eagerly too, and compares the two.

    find the program ──► eager run (dry_run.py), stored in NumPy ──► run the program ──► compare ──► result

The eager run starts from the call's state, and changes nothing but what lies outside of tensors and Python's
containers; the program's effects are the call's.  The first difference is a `CompiledMismatchError`.
"""

import os
from collections.abc import Callable
from typing import Any, NamedTuple
from weakref import ref

import jax
import numpy as np

from ..autograd.backward import grad
from ..engine.edges import GradientEdge
from ..errors import CompiledMismatchError, InferenceTensorError, InplaceViewError
from ..tensor import Tensor, from_array
from .backward_node import CompiledFunctionBackward
from .dry_run import Keeping, Rehearsal
from .guards.guard import MISSING, shown
from .overlay import Inline, ends, run_in

VARIABLE = "XGRAD_COMPILE"

_DIFFERS = (
    "xgrad.compile(verify=): in this call {name} does something else than the eager function: {what}. Either it "
    "depends on something that is not looked at between calls (a file, the time, the state of a C extension): give "
    "that as an argument, or call reset() when it changes. Or this is a mistake in xgrad: please report it, with the "
    "function. Tensors are now as the program left them."
)
# Tolerances, by itemsize of the dtype's real part: XLA may compute in another order.  _RTOL is of the largest element.
_RTOL = {8: 1e-10, 4: 1e-4, 2: 2e-2, 1: 0.2}
_ATOL = {8: 1e-12, 4: 1e-6, 2: 1e-3, 1: 1e-2}


class Verify(NamedTuple):
    """The tolerances of `verify=`; None for the dtype's."""

    rtol: float | None = None
    atol: float | None = None


def asked(verify: Any) -> Verify | None:
    """Return the tolerances of `verify=`, or of the environment if it is None; None for no verification.

    Raises `TypeError` and `ValueError` for other values.
    """
    if verify is None:
        value = os.environ.get(VARIABLE, "")
        if value not in ("", "verify"):
            raise ValueError(f"{VARIABLE} may be verify, or unset, but is {value!r}")
        verify = value == "verify"
    if verify is True or verify is False:
        return Verify() if verify else None
    if not isinstance(verify, dict):
        raise TypeError(f"xgrad.compile: verify= takes True, False or a dict of rtol and atol, but got {verify!r}")
    unknown = verify.keys() - {"rtol", "atol"}
    if unknown:
        raise TypeError(f"xgrad.compile: verify= knows rtol and atol, but got {', '.join(sorted(unknown))}")
    return Verify(**verify)


class _DifferenceError(Exception):
    """A difference in words."""


class Seen(NamedTuple):
    """A tensor's properties and values."""

    kind: str
    shape: tuple[Any, ...]
    dtype: Any
    requires_grad: bool
    is_leaf: bool
    version: int | None
    values: Any  # None if it was not written


def verified(
    verify: Verify,
    name: str,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[Any, Any],
    entry: Any,
    given: list[Any],
    backward: bool,
) -> Any:
    """Run a call's program, and compare it with the eager run; if `backward`, compare their gradients too."""
    run = _Run(verify, function, args, kwargs, backward)
    if not run.eagerly(given[0]):
        return entry.run(*given)
    try:
        value = entry.run(*given)
    except Exception as error:
        if run.error is not None:
            raise
        what = f"the program raises {type(error).__name__}: {error}, and the eager run does not"
        raise CompiledMismatchError(_DIFFERS.format(name=name, what=what)) from error
    try:
        run.compare(value)
    except _DifferenceError as difference:
        raise CompiledMismatchError(_DIFFERS.format(name=name, what=difference)) from run.error
    return value


class _Run:
    def __init__(
        self,
        verify: Verify,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[Any, Any],
        backward: bool,
    ) -> None:
        self.verify, self.function, self.args, self.kwargs, self.backward = verify, function, args, kwargs, backward
        self.error: Exception | None = None
        self.keeping = Keeping(function, args, kwargs)

    # ------------------------------------------------------------ the eager run

    def eagerly(self, tensors: list[Any]) -> bool:
        """Run eagerly, and store results and effects; False if the run uses values of another trace."""
        self.overlay, self.tensors = Rehearsal(), tensors
        try:
            run_in(self.overlay, self._noted)
        except Inline:
            return False
        finally:
            self.keeping.restore()
        self.overlay.generators.clear()
        for reached in self.overlay.reached:
            reached.before["_array"] = None  # so that the program may donate it
        self.untouched = [
            (tensor, tensor._grad, _version(tensor)) for tensor in tensors if id(tensor) not in self.overlay.by_id
        ]
        return True

    def _noted(self) -> None:
        try:
            value = self.function(*self.args, **self.kwargs)
        except Exception as error:
            self.error = error
            return
        self.tree, leaves = apart(value)
        self.gradients = self._gradients(leaves) if self.backward else {}
        self.result = [self._note(leaf) for _, leaf in leaves]
        self.changes = [
            {key: self._of_changed(item) for key, item in kept.changes().items()} for kept in self.keeping.kept
        ]
        self.states = [(r.tensor, self._state(r), self._grad_of(r)) for r in list(self.overlay.reached)]
        # Weak: one that was made inside is gone when the run is.
        self.keys = [(ref(generator), np.array(twin._key)) for generator, _, twin in self.overlay.generators]

    def _note(self, value: Any) -> Any:
        """Return a record of a leaf; the record of a tensor from outside is the tensor itself."""
        if not isinstance(value, Tensor):
            return np.array(value) if isinstance(value, (jax.Array, np.ndarray)) else value
        value._requires_grad  # noqa: B018 - the overlay adds it, if it is from outside
        return value if id(value) in self.overlay.by_id else _seen(value)

    def _of_changed(self, value: Any) -> Any:
        if value is MISSING:
            return MISSING
        tree, leaves = apart(value)
        return tree, [self._note(leaf) for _, leaf in leaves]

    def _state(self, reached: Any) -> Seen:
        """Return the record of a tensor from outside, with its values if it was written."""
        storage = reached.now.get("_storage")
        array = reached.now.get("_array") if storage is None else storage._array
        seen = _seen(reached.tensor, array is not reached.root.tracer)
        counter = reached.before.get("_version_counter")
        if seen.values is not None and seen.version == (0 if counter is None else counter.__dict__.get("value", 0)):
            return seen._replace(version=None)  # an optimizer's own state: its writes are not counted
        return seen

    def _grad_of(self, reached: Any) -> Any:
        """Return a record of a tensor's `.grad`: itself if it is from outside, else its properties and values."""
        found = reached.now.get("_grad")
        if found is None or found is reached.before.get("_grad") or id(found) in self.overlay.by_id:
            return found
        return _seen(found)

    def _gradients(self, leaves: list) -> dict[tuple[int, int], np.ndarray]:
        """Return {(place of a result, id of a tensor from outside): gradient}, for distinct arriving gradients."""
        found = {}
        for place, (_, leaf) in enumerate(leaves):
            history = _history(leaf) if isinstance(leaf, Tensor) else None
            if history is None or id(leaf) in self.overlay.by_id:
                continue
            nodes = {}
            for node in ends(history):
                if node.is_accumulator:
                    nodes[node] = node.variable
                else:
                    nodes[node] = next((r.tensor for r in self.overlay.reached if r.outside is node), None)
            edges = [GradientEdge(node, 0) for node in nodes]
            root, arriving = [GradientEdge(history, leaf._output_nr)], [from_array(_cotangent(leaf._read()))]
            hooks = [(node.variable, node.variable._hooks) for node in nodes if node.is_accumulator]
            for tensor, _ in hooks:
                tensor._hooks = None  # hooks are not part of the program: they run when the gradient arrives there
            try:
                grads: Any = grad(root, edges, arriving, retain_graph=True, allow_unused=True)
            except Exception:  # it has been through a backward, say: the program's backward raises too
                continue
            finally:
                for tensor, before in hooks:
                    tensor._hooks = before
            for tensor, gradient in zip(nodes.values(), grads):
                if gradient is not None and tensor is not None:
                    found[place, id(tensor)] = np.array(gradient._read())
        return found

    # ------------------------------------------------------------ the comparison

    def compare(self, value: Any) -> None:
        """Raise `_DifferenceError` for the first difference between the eager run's record and the tensors now."""
        if self.error is not None:
            raise _DifferenceError(
                f"the eager run raises {type(self.error).__name__}: {self.error}, and the program does not"
            )
        tree, leaves = apart(value)
        if tree != self.tree:
            raise _DifferenceError(f"the result is {self.tree} eagerly, and {tree} compiled")
        for (path, leaf), noted in zip(leaves, self.result, strict=True):
            self._leaf(f"the result{path}", noted, leaf)
        for tensor, noted, gradient in self.states:
            name = self._name(tensor)
            self._tensor(name, noted, tensor)
            self._grad(name, gradient, tensor._grad)
        for tensor, gradient, version in self.untouched:
            if tensor._grad is not gradient or _version(tensor) != version:
                raise _DifferenceError(f"the program changes {self._name(tensor)}, and the eager run does not touch it")
        for weak, key in self.keys:
            generator = weak()
            if generator is not None and not np.array_equal(np.asarray(generator._key), key):
                raise _DifferenceError("a random generator is in another state: other numbers were drawn, or seeded")
        self._containers()
        if self.gradients:
            self._backward(leaves)

    def _name(self, tensor: Tensor) -> str:
        name = self.keeping.names.get(id(tensor))
        shape = list(tensor.shape)
        return f"the tensor {name} (shape {shape})" if name else f"a tensor of the shape {shape} from outside"

    def _leaf(self, name: str, noted: Any, now: Any) -> None:
        if isinstance(noted, Seen):
            if not isinstance(now, Tensor):
                raise _DifferenceError(f"{name} is a tensor eagerly, and {shown(now)} compiled")
            self._tensor(name, noted, now)
        elif isinstance(noted, Tensor):
            if now is not noted:
                raise _DifferenceError(f"{name} is {self._name(noted)} itself eagerly, and {shown(now)} compiled")
        elif isinstance(noted, np.ndarray):
            if not isinstance(now, (np.ndarray, jax.Array)):
                raise _DifferenceError(f"{name} is an array eagerly, and {shown(now)} compiled")
            self._values(name, noted, np.asarray(now))
        elif now is not noted and not _equal(now, noted):
            raise _DifferenceError(f"{name} is {shown(noted)} eagerly, and {shown(now)} compiled")

    def _tensor(self, name: str, noted: Seen, tensor: Tensor) -> None:
        now = _seen(tensor, noted.values is not None)
        for field, a, b in zip(Seen._fields, noted[:-1], now):
            if a != b and not (field == "version" and a is None):
                told = " (it counts the writes)" if field == "version" else ""
                raise _DifferenceError(f"the {field}{told} of {name} is {a} eagerly, and {b} compiled")
        if noted.values is not None:
            self._values(name, noted.values, now.values)

    def _grad(self, name: str, noted: Any, now: Tensor | None) -> None:
        if noted is None or now is None:
            if noted is not now:
                words = ["None" if g is None else "a tensor" for g in (noted, now)]
                raise _DifferenceError(f"the .grad of {name} is {words[0]} eagerly, and {words[1]} compiled")
        elif isinstance(noted, Tensor):
            if now is not noted:
                raise _DifferenceError(f"the .grad of {name} stays eagerly, and is another tensor compiled")
        else:
            self._tensor(f"the .grad of {name}", noted, now)

    def _containers(self) -> None:
        for kept, noted in zip(self.keeping.kept, self.changes, strict=True):
            now = kept.changes()
            for key in [*noted, *(key for key in now if key not in noted)]:
                name = f"what {kept.name or type(kept.value).__name__} has at {key!r}"
                a, b = noted.get(key, MISSING), now.get(key, MISSING)
                if not (_noted_tensors(a) or _has_tensors(b)):
                    continue  # a cache, say
                if a is MISSING or b is MISSING:
                    raise _DifferenceError(f"{name} is changed {'in the program' if a is MISSING else 'eagerly'} alone")
                tree, leaves = apart(b)
                if tree != a[0]:
                    raise _DifferenceError(f"{name} is {a[0]} eagerly, and {tree} compiled")
                for leaf_noted, (path, leaf) in zip(a[1], leaves, strict=True):
                    self._leaf(f"{name}{path}", leaf_noted, leaf)

    def _backward(self, leaves: list) -> None:
        """Compare the gradients of the backward program with eager ones."""
        for place, (_, leaf) in enumerate(leaves):
            node = leaf._grad_fn if isinstance(leaf, Tensor) else None
            if not isinstance(node, CompiledFunctionBackward) or node._failures or node._residuals is None:
                continue
            grads: list[Any] = [None] * len(node.avals)
            grads[leaf._output_nr] = _cotangent(leaf._read())
            results = node._backward.run(node._residuals, grads)
            for target, gradient in zip(node._targets, results, strict=True):
                made, number = target.reference
                if made or not target.sources >> leaf._output_nr & 1:
                    continue
                tensor = self.tensors[number]
                noted = self.gradients.get((place, id(tensor)))
                if noted is not None and gradient is not None:
                    name = f"the gradient of {self._name(tensor)} by backward outside, through result {place},"
                    self._values(name, noted, np.asarray(gradient))

    def _values(self, name: str, a: Any, b: Any) -> None:
        """Raise `_DifferenceError` unless two arrays are equal within the tolerance; `a` is the eager run's."""
        if isinstance(a, list):
            for x, y in zip(a, b, strict=True):
                self._values(name, x, y)
            return
        if a.shape != b.shape or a.dtype != b.dtype:
            raise _DifferenceError(f"{name} is {a.dtype}{list(a.shape)} eagerly, and {b.dtype}{list(b.shape)} compiled")
        if not a.size:
            return
        exact = a.dtype.kind in "biu?OUSV" and not jax.numpy.issubdtype(a.dtype, np.inexact)
        if exact:
            off, limit = a != b, 0.0
            wide, other, rtol, atol = a, b, 0.0, 0.0
        else:
            size = a.dtype.itemsize // (2 if a.dtype.kind == "c" else 1)
            rtol = _RTOL[size] if self.verify.rtol is None else self.verify.rtol
            atol = _ATOL[size] if self.verify.atol is None else self.verify.atol
            kind = np.complex128 if a.dtype.kind == "c" else np.float64
            wide, other = a.astype(kind), b.astype(kind)
            with np.errstate(all="ignore"):
                sizes = np.abs(wide)
                limit = atol + rtol * float(np.max(sizes, initial=0.0, where=np.isfinite(sizes)))
                same = (wide == other) | (np.isnan(wide) & np.isnan(other)) | (np.abs(wide - other) <= limit)
            off = ~same
        if not off.any():
            return
        at = tuple(int(i) for i in np.argwhere(off)[0])
        with np.errstate(all="ignore"):
            largest = np.max(np.abs(np.where(off, wide.astype(np.complex128) - other.astype(np.complex128), 0)))
        raise _DifferenceError(
            f"{name} is {a[at]} at {list(at)} eagerly, and {b[at]} compiled ({int(off.sum())} of {a.size} elements "
            f"differ, by {float(largest):.3g} at most; {'exact' if exact else f'tolerance {limit:.3g}'}, "
            f"of rtol={rtol:g}, atol={atol:g})"
        )


def _seen(tensor: Tensor, values: bool = True) -> Seen:
    return Seen(
        type(tensor).__name__,
        tuple(tensor.shape),
        tensor.dtype,
        tensor.requires_grad,
        _history(tensor) is None,
        _version(tensor),
        _numpy((tensor.detach().to_dense() if tensor._sparse else tensor)._read()) if values else None,
    )


def _history(tensor: Tensor) -> Any:
    """Return a tensor's grad_fn; None for a view that a write to its base left without one."""
    try:
        return tensor.grad_fn
    except InplaceViewError:
        return None


def _version(tensor: Tensor) -> int | None:
    try:
        return tensor._version
    except InferenceTensorError:
        return None


def _numpy(array: Any) -> Any:
    """Return a copy of an array on the host; of an array over several processes, this process's shards."""
    if array.is_fully_addressable:
        return np.array(array)
    return [np.array(shard.data) for shard in array.addressable_shards]


def _cotangent(array: Any) -> Any:
    """Return an arriving gradient with a different value for each element."""
    sizes = np.cos(np.arange(array.size)).reshape(array.shape).astype(array.dtype)
    return jax.device_put(sizes, array.sharding)


def _noted_tensors(noted: Any) -> bool:
    return noted is not MISSING and any(isinstance(leaf, (Tensor, Seen)) for leaf in noted[1])


def _has_tensors(value: Any) -> bool:
    return value is not MISSING and any(isinstance(leaf, Tensor) for _, leaf in apart(value)[1])


def apart(value: Any) -> tuple[Any, list[tuple[str, Any]]]:
    """Take a value apart: return its structure, which can be compared, and its leaves with their paths.

    Like `Outputs.plan`: dictionaries keep their order, and may have keys of all kinds.
    """
    found: list[tuple[str, Any]] = []
    return _structure(value, "", found), found


def _structure(value: Any, path: str, found: list) -> Any:
    kind = value.__class__
    if kind is list or kind is tuple:
        return kind.__name__, *(_structure(item, f"{path}[{i}]", found) for i, item in enumerate(value))
    if kind is dict:
        return "dict", *((key, _structure(item, f"{path}[{key!r}]", found)) for key, item in value.items())
    if not isinstance(value, Tensor):
        items, tree = jax.tree_util.tree_flatten(value, is_leaf=lambda node: node is not value)
        if len(items) != 1 or items[0] is not value:
            return str(tree), *(_structure(item, f"{path}[{i}]", found) for i, item in enumerate(items))
    found.append((path, value))
    return "a value"


def _equal(a: Any, b: Any) -> bool:
    try:
        return bool(a == b) or bool(a != a and b != b) or (type(a) is type(b) and not hasattr(a, "__len__"))
    except Exception:  # the user's error: two objects that cannot be compared count as the same
        return True
