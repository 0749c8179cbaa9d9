"""ViewRule: lets an `xgrad.Backend` read and write views by its author's functions, given as `Backend(views=...)`.

A rule has three functions: `read(root, *args)` shows a part, `write(root, new, *args)` puts new values into it, and
`adjoint` is the transpose of `read`, which backward applies.  Together they make a `Ruled`, which is one of the
steps from a base to its view (chain.py), so writes, CopySlices, tangents and programs use it like any other step.

    Rules ──parts("getitem", ...)──► select, slice, ...      each by its own rule
      └──chain(chain, key)──► Slice, Ruled(diagonal), ...

Invariant: a Ruled step has the shape, dtype and geometry of the steps that it replaces; only its programs differ.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from ..errors import BackendError
from .chain import ViewChain, view_names
from .geometry import Shape, TensorGeometry
from .value_ops import ValueStep
from .view_ops import Starts, ViewStep

KINDS = ("replay", "geometry", "free", "copy", "refuse")
SAME = {"swapaxes": "transpose", "swapdims": "transpose", "moveaxis": "movedim", "flatten": "reshape"}


@dataclass(frozen=True)
class ViewRule:
    """A backend's own functions of one view operation, over JAX arrays.  What is not given is xgrad's own.

    `read(root, *args)`: the view; `args` are the operation's arguments, as Python numbers and tuples: each choice of
    them is a program.
    `write(root, new, *args)`: the root with the view's part replaced by `new`, which has the view's shape and dtype.
    `adjoint(grad, root, *args)`: the gradient of the root for a gradient of the view, zero elsewhere, summed where the
    view shows an element twice; `root` is a `jax.ShapeDtypeStruct`.

    Raises `TypeError` for what is not a function.

    >>> import xgrad
    >>> rule = xgrad.ViewRule(read=lambda root, dim0, dim1: root.swapaxes(dim0, dim1))
    >>> chip = xgrad.Backend("chip", views={"transpose": rule})
    >>> xgrad.ones(2, 3, device=chip).t().shape
    xgrad.Size([3, 2])
    """

    read: Callable[..., Any] | None = None
    write: Callable[..., Any] | None = None
    adjoint: Callable[..., Any] | None = None

    def __post_init__(self) -> None:
        for name in ("read", "write", "adjoint"):
            if (value := getattr(self, name)) is not None and not callable(value):
                raise TypeError(f"ViewRule: {name} is a function, but got {value!r}")


@dataclass(frozen=True, slots=True)
class Ruled(ValueStep):
    """A view operation by a backend's own rule, in place of the steps `plain`."""

    rule: ViewRule
    name: str
    args: tuple[Any, ...]
    plain: tuple[ViewStep, ...]
    batches: int = 0  # dimensions in front, of `vmap`
    repeats: ClassVar[bool] = False  # `lowered` may not replace it

    def result(self, shape: Shape, dtype: np.dtype) -> tuple[Shape, np.dtype]:
        n, own = self.batches, shape[self.batches :]
        for step in self.plain:
            own, dtype = step.result(own, dtype)
        return shape[:n] + own, dtype

    def over_batch(self, n: int, shape: Shape) -> tuple[ViewStep, ...]:
        return (replace(self, batches=self.batches + 1),)

    def geometry(self, seen: TensorGeometry, dtype: np.dtype) -> TensorGeometry | None:
        n, size = self.batches, dtype.itemsize
        own: TensorGeometry | None = TensorGeometry(seen.sizes[n:], seen.strides[n:], seen.offset)
        for step in self.plain:
            own = None if own is None else step.geometry(own, dtype)
            dtype = step.result((1,), dtype)[1] if not step.geometric else dtype
        if own is None or not n:
            return own
        outer = tuple([stride * size // dtype.itemsize for stride in seen.strides[:n]])
        return TensorGeometry(seen.sizes[:n] + own.sizes, outer + own.strides, own.offset)

    def _over(self, function: Callable[..., Any], *arrays: Any) -> Any:
        for _ in range(self.batches):
            function = jax.vmap(function)
        return function(*arrays)

    def replay(self, array: Any, starts: Starts) -> Any:
        return self._over(self.read_one, array)

    def write_back(self, array: Any, new: Any, starts: Starts) -> Any:
        return self._over(self.write_one, array, new)

    def transpose(self, grad: Any, shape: Shape, dtype: np.dtype, starts: Starts) -> Any:
        root = jax.ShapeDtypeStruct(shape[self.batches :], dtype)
        return self._over(lambda one: self.adjoint_one(one, root), grad)

    # Without dimensions of `vmap`:

    def read_one(self, root: Any) -> Any:
        read = self.rule.read
        return self._plainly(root).trace_replay(root) if read is None else read(root, *self.args)

    def write_one(self, root: Any, new: Any) -> Any:
        write = self.rule.write
        return self._plainly(root).trace_write_back(root, new) if write is None else write(root, new, *self.args)

    def adjoint_one(self, grad: Any, root: jax.ShapeDtypeStruct) -> Any:
        adjoint = self.rule.adjoint
        return self._plainly(root).trace_adjoint(grad) if adjoint is None else adjoint(grad, root, *self.args)

    def _plainly(self, root: Any) -> ViewChain:
        chain = ViewChain.root(root.shape, np.dtype(root.dtype))
        for step in self.plain:
            chain = chain.then(step)
        return chain

    def check(self, shape: Shape, dtype: np.dtype) -> None:
        """Raise `BackendError` if a function of the rule gives another shape or dtype than the operation has."""
        root, seen = jax.ShapeDtypeStruct(shape, dtype), jax.ShapeDtypeStruct(*self.result(shape, dtype))
        wanted: list[tuple[str, Any, Any, Any]] = [("read", self.read_one, (root,), seen)]
        if not self._plainly(root).overlaps:
            wanted.append(("write", self.write_one, (root, seen), root))
        if seen.dtype.kind in "fcV":
            wanted.append(("adjoint", lambda grad: self.adjoint_one(grad, root), (seen,), root))
        for name, function, operands, like in wanted:
            if getattr(self.rule, name) is None:
                continue
            try:
                found = jax.eval_shape(lambda *arrays, f=function: jnp.asarray(f(*arrays)), *operands)
            except Exception as error:
                raise BackendError(
                    f"{self._told(name, shape, dtype)} raised {type(error).__name__}: {error}"
                ) from error
            if found.shape != like.shape or found.dtype != like.dtype:
                raise BackendError(
                    f"{self._told(name, shape, dtype)} gave {found.dtype.name}{list(found.shape)}, but must give "
                    f"{like.dtype.name}{list(like.shape)}"
                )

    def _told(self, function: str, shape: Shape, dtype: np.dtype) -> str:
        args = ", ".join(map(repr, self.args))
        return f"{self.name}({args}): the backend's own {function} of {dtype.name}{list(shape)}"


class Rules:
    """The rules of one backend: {view operation: kind or ViewRule}; "*" is every operation that is not named."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self._given = given

    def of(self, name: str) -> Any:
        """Return the rule of one view operation; None if none is declared."""
        return self._given.get(name) or self._given.get("*")

    def parts(self, key: tuple[Any, ...], ndim: int) -> list[tuple[Any, ...]]:
        """Return the operations that a view of `ndim` dimensions is made of, as far as one of them has a rule."""
        return [key] if key[0] in self._given else _apart(key, ndim)

    def chain(self, chain: ViewChain, key: tuple[Any, ...]) -> ViewChain | None:
        """Return the view `key` of a chain by these rules, as `ViewChain.view`."""
        made = chain.children.get((self, *key)) if _hashable(key) else None
        if made is None:
            made = chain.view(*key)  # PyTorch's errors; None where `reshape` copies
            parts = self.parts(key, len(chain.shape))
            if made is not None and any(self.of(part[0]).__class__ is ViewRule for part in parts):
                made = chain
                for part in parts:
                    made = self._part(made, part)
            if _hashable(key):
                chain.children[(self, *key)] = made
        return made

    def _part(self, chain: ViewChain, key: tuple[Any, ...]) -> ViewChain:
        rule = self.of(key[0])
        relative = ViewChain.root(chain.shape, chain.dtype).view(*key)
        if rule.__class__ is not ViewRule or relative.is_root:
            return chain.view(*key)
        step = Ruled(rule, key[0], key[1:], relative.steps)
        step.check(chain.shape, chain.dtype)
        return chain.then(step)


def _hashable(key: tuple[Any, ...]) -> bool:
    try:
        hash(key)
    except TypeError:
        return False
    return True


def _apart(key: tuple[Any, ...], ndim: int) -> list[tuple[Any, ...]]:
    name, *args = key
    if name in SAME:
        return [(SAME[name], *args)]
    if name in ("t", "T", "H") and ndim == 2:
        return [("transpose", 0, 1), *([("conj",)] if name == "H" else ())]
    if name in ("mT", "mH", "adjoint") and ndim > 1:
        return [("transpose", -2, -1), *([("conj",)] if name != "mT" else ())]
    return _indexing(args[0], ndim) or [key] if name == "getitem" else [key]


def _indexing(index: tuple[Any, ...], ndim: int) -> list[tuple[Any, ...]]:
    """Return basic indexing as PyTorch does it: dimension by dimension."""
    found: list[tuple[Any, ...]] = []
    used, dim = sum(1 for i in index if i is not None and i is not Ellipsis), 0
    for i in index:
        if i is Ellipsis:
            dim += ndim - used
        elif isinstance(i, tuple):
            if i[1:] not in ((None, None, None), (None, None, 1)):
                found.append(("slice", dim, i[1], i[2], 1 if i[3] is None else i[3]))
            dim += 1
        elif i is None:
            found.append(("unsqueeze", dim))
            dim += 1
        else:
            found.append(("select", dim, i))
    return found


def rules_named(backend: str, given: Any) -> dict[str, Any]:
    """Return checked rules.  Raises `TypeError` and `ValueError` for what cannot be declared."""
    if not isinstance(given, Mapping):
        raise TypeError(f"Backend '{backend}': views is {{view operation: rule}}, but got {given!r}")
    known, found = view_names(), {}
    for name, rule in given.items():
        if name != "*" and name not in known:
            raise ValueError(
                f"Backend '{backend}': views has {name!r}, which is not a view operation: expected one of "
                f"{', '.join(sorted(known))}, or '*' for all others"
            )
        if rule.__class__ is not ViewRule and rule not in KINDS:
            raise ValueError(
                f"Backend '{backend}': the rule of '{name}' is an xgrad.ViewRule or one of {', '.join(KINDS)}, but got "
                f"{rule!r}"
            )
        if rule.__class__ is ViewRule and name in ("*", "as_strided", "alias", "getitem", "view_dtype"):
            why = {"*": "each view operation has its own", "getitem": "it is made of select, slice and unsqueeze"}
            raise ValueError(
                f"Backend '{backend}': '{name}' cannot have a ViewRule: {why.get(name, 'it addresses the storage')}"
            )
        if found.setdefault(SAME.get(name, name), rule) != rule:
            raise ValueError(f"Backend '{backend}': '{name}' has two rules, under two of its names")
    return found
