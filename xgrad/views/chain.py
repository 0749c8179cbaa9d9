"""ViewChain: a view on a device without strides, as a tuple of steps (Slice, Permute, ...) applied to a base's array.

The base's array is the *root*; to apply the steps is to *replay* them.

Invariants:
* A chain is interned, and its steps never change: equal steps on roots of one shape and dtype are one object, which
  stores the properties and programs that were computed of it.
* A chain is in normal form (`normal_form.py`), step by step as it grows.
* A program depends on a chain without its starts.  These are its operands, so that a loop over `buf[i]` compiles once.

    ViewChain.root((4, 6), f32) ──("select", 0, 2)──► Slice, Reshape ──("t",)──► ...
               └─ children: a dictionary look-up makes a view that was made before

PyTorch has a ViewFunc or strides in its place (torch/csrc/autograd/variable.h, DifferentiableViewMeta).

More than 450 lines: all properties of the class depend on the invariants above.
"""

import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from ..base.jax_compat import Tracer
from ..base.limits import check_numel
from ..errors import OverlapError
from ..execution.pending import Pending
from ..execution.runner import runner
from .geometry import OVERLAP, Shape, TensorGeometry
from .normal_form import combine
from .program import Program, program_of, scalar_of, start_of
from .value_ops import Conj, Neg
from .view_ops import AsStrided, Permute, Reshape, Slice, ViewStep

_AVALS = 1 << 12
_INTERNED = 1 << 16  # chains that may be alive before unused ones are forgotten
_FEW = 8  # reads before starts are put on the device, which takes 14 µs and saves 2 µs a read

_MISSING = object()
_UNSET: Any = object()

_views: dict[str, Callable[..., Any]] = {}


def declare_views(views: dict[str, Callable[..., Any]]) -> None:
    """Let `ViewChain.view` make these views: {name: function of (chain, *arguments)}.  `named/` has PyTorch's."""
    _views.update(views)


def view_names() -> frozenset[str]:
    """Return the names of all views that are declared."""
    return frozenset(_views)


# ---------------------------------------------------------------- interning

_lock = threading.RLock()
_chains: "weakref.WeakValueDictionary[tuple, ViewChain]" = weakref.WeakValueDictionary()
_roots: "dict[tuple[Shape, np.dtype], ViewChain]" = {}
_of_avals: "dict[int, tuple[Any, ViewChain]]" = {}  # by the id of the aval, which is referenced here
_limit = _INTERNED


def _intern(
    parent: "ViewChain | None",
    shape: Shape,
    dtype: np.dtype,
    steps: tuple[ViewStep, ...],
    first: "ViewChain | None" = None,
) -> "ViewChain":
    """Return the one chain of these steps; `shape` and `dtype` are the root's, `parent` has all steps but the last.

    `first`: a chain that differs from it in its start only; `parent` is None then.
    """
    global _limit
    key = (shape, dtype, steps)
    with _lock:
        chain = _chains.get(key)
        if chain is None:
            if len(_chains) >= _limit:
                # Parents refer to their children: clear all, and chains in use stay alive by their users.
                for other in list(_chains.values()):
                    other.children.clear()
                _roots.clear()
                _of_avals.clear()
                _limit = max(_INTERNED, 2 * len(_chains))
            chain = _chains[key] = ViewChain(parent, shape, dtype, steps, first)
        return chain


def _identity(array: Any) -> Any:
    return array


# ---------------------------------------------------------------- the chain


class ViewChain:
    """A view of a root of one shape and dtype, as view steps in normal form.  Made by `root`, `view` and `then`.

    >>> base = ViewChain.root((4, 6), np.dtype("float32"))
    >>> column = base.view("t").view("select", 0, 2)
    >>> column is base.view("select", 1, 2), column.shape, column.geometry.strides
    (True, (4,), (6,))
    """

    __slots__ = (
        "__weakref__", "_few", "_first", "_geometry", "_inverse", "_lowered", "_overlaps", "_parent", "_program",
        "_reads", "_starts", "_view", "_write", "_write_donated", "children", "dtype", "is_root", "root_dtype",
        "root_shape", "shape", "steps",
    )  # fmt: skip
    dtype: np.dtype[Any]
    shape: Shape

    def __init__(
        self,
        parent: "ViewChain | None",
        root_shape: Shape,
        root_dtype: np.dtype,
        steps: tuple[ViewStep, ...],
        first: "ViewChain | None" = None,
    ) -> None:
        self._parent: Any = parent
        # Of a root: the first of its rows; of another row, the same one.
        self._first: ViewChain | None = first
        self.root_shape: Shape = root_shape
        self.root_dtype: np.dtype[Any] = root_dtype
        self.steps: tuple[ViewStep, ...] = steps
        self.is_root: bool = not steps
        if first is not None:
            self._parent = _UNSET
            self.shape, self.dtype = first.shape, first.dtype
        elif parent is None:
            self.shape, self.dtype = root_shape, root_dtype
        else:
            self.shape, self.dtype = steps[-1].result(parent.shape, parent.dtype)
            check_numel(self.shape)
        self.children: dict[Any, ViewChain | None] = {}
        self._view: Any = _identity if self.is_root else None
        self._starts: tuple[Any, ...] = ()
        self._reads = 0  # of the first few reads:
        self._few: Any = None  # their program, and the starts as NumPy's scalars
        self._write: Any = None
        self._write_donated: Any = None
        self._program: Program | None = None
        self._lowered: ViewChain | None = None
        self._geometry = self._overlaps = self._inverse = _UNSET

    def __repr__(self) -> str:
        steps = "".join(f".{step}" for step in self.steps)
        return f"ViewChain({list(self.root_shape)} {self.root_dtype.name}){steps}"

    def __reduce__(self) -> Any:
        return _rebuild, (self.root_shape, self.root_dtype, self.steps)

    def __copy__(self) -> "ViewChain":
        return self

    def __deepcopy__(self, memo: Any) -> "ViewChain":
        return self

    # ------------------------------------------------------------ growing

    @staticmethod
    def of(array: Any) -> "ViewChain":
        """Return the chain without steps over an array."""
        aval = array.aval  # one object for all results of a program: quicker to look up than shape and dtype
        known = _of_avals.get(id(aval))
        if known is not None and known[0] is aval:
            return known[1]
        if len(_of_avals) > _AVALS:
            _of_avals.clear()
        chain = ViewChain.root(array.shape, array.dtype)
        _of_avals[id(aval)] = aval, chain
        return chain

    @staticmethod
    def root(shape: Shape, dtype: np.dtype) -> "ViewChain":
        """Return the chain without steps: the whole of an array of `shape` and `dtype`."""
        chain = _roots.get((shape, dtype))
        if chain is None:
            shape, dtype = tuple(int(n) for n in shape), np.dtype(dtype)
            chain = _roots[shape, dtype] = _intern(None, shape, dtype, ())
        return chain

    @property
    def parent(self) -> "ViewChain | None":
        """The chain without its last step; None for a root."""
        parent = self._parent
        if parent is _UNSET:
            parent = ViewChain.root(self.root_shape, self.root_dtype)
            for step in self.steps[:-1]:
                parent = parent.then(step)
            self._parent = parent
        return parent

    def view(self, *key: Any) -> Any:
        """Return the view of this chain that PyTorch calls `key[0]`, with the hashable arguments that follow.

        None for a `reshape` that would have to copy.  A view that was made before costs one look-up (0.1 µs).
        Raises what PyTorch raises for wrong arguments, and `ValueError` for an unknown name.

        >>> ViewChain.root((4, 6), np.dtype("float32")).view("narrow", 1, 2, 3).shape
        (4, 3)
        """
        try:
            child = self.children.get(key, _MISSING)
        except TypeError:  # a list, or another unhashable number, among the arguments
            return self._named(*key)
        if child is _MISSING:
            child = self.children[key] = self._named(*key)
        return child

    def _named(self, name: str, *arguments: Any) -> Any:
        view = _views.get(name)
        if view is None:
            raise ValueError(f"unknown view operation {name!r}: expected one of {', '.join(sorted(_views))}")
        return view(self, *arguments)

    def then(self, step: ViewStep) -> "ViewChain":
        """Return this chain followed by a step with checked arguments, in normal form."""
        child = self.children.get(step)
        if child is None:
            child = self.children[step] = self._grow(step)
        return child

    def _grow(self, step: ViewStep) -> "ViewChain":
        normal = step.normalize(self.shape, self.dtype)
        if normal is None:
            return self
        if self.parent is not None:
            steps = combine(self.parent.shape, self.parent.dtype, self.steps[-1], normal)
            if steps is not None:
                chain = self.parent
                for other in steps:
                    chain = chain.then(other)
                return chain
        return _intern(self, self.root_shape, self.root_dtype, self.steps + (normal,))

    def row(self, index: int) -> "ViewChain | None":
        """Return the view `[index]` of a root by the `first_row` that was made; None without one or out of its range.

        It is what `then` would make of a slice and a reshape, in half the time: only the start is new.
        """
        first, n = self._first, self.root_shape[0] if self.root_shape else 0
        if first is None or not self.is_root or not -n <= index < n:
            return None
        cut: Any = first.steps[0]
        steps = (Slice((index % n, *cut._starts[1:]), cut.sizes, cut.steps), *first.steps[1:])
        return _intern(None, self.root_shape, self.root_dtype, steps, first)

    def first_row(self, row: "ViewChain") -> None:
        """Let `row` make the next rows like this one, if they differ in one start only."""
        if self.is_root and self.root_shape[0] > 1 and 0 not in self.root_shape and len(row.start_values) == 1:
            self._first = row

    def concat(self, other: "ViewChain") -> "ViewChain":
        """Return `other` as a view of this view: `concat(other).replay(x)` is `other.replay(self.replay(x))`.

        Raises `RuntimeError` if `other` is not a chain over this one's shape and dtype.
        """
        if other.root_shape != self.shape or other.root_dtype != self.dtype:
            raise RuntimeError(
                f"a chain over {list(other.root_shape)} {other.root_dtype.name} cannot follow one that gives "
                f"{list(self.shape)} {self.dtype.name}"
            )
        chain = self
        for step in other.steps:
            chain = chain.then(step)
        return chain

    def over_batch(self, n: int) -> "ViewChain":
        """Return the same view of each entry of a new first dimension of `n`."""
        key = ("over_batch", n)
        chain = self.children.get(key)
        if chain is None:
            chain, shape, dtype = (
                ViewChain.root((n, *self.root_shape), self.root_dtype),
                self.root_shape,
                self.root_dtype,
            )
            for step in self.steps:
                for over in step.over_batch(n, shape):
                    chain = chain.then(over)
                shape, dtype = step.result(shape, dtype)
            self.children[key] = chain
        return chain

    def inverse(self) -> "ViewChain | None":
        """Return the chain from this view back to the root; None if this is not a bijection that preserves the
        dtype."""
        if self._inverse is _UNSET:
            self._inverse = self._invert()
        return self._inverse

    def _invert(self) -> "ViewChain | None":
        back: ViewChain = ViewChain.root(self.shape, self.dtype)
        chain = self
        while chain.parent is not None:
            step = chain.steps[-1]
            if isinstance(step, Permute):
                back = back.then(step.inverse())
            elif isinstance(step, Reshape):
                back = back.then(Reshape(chain.parent.shape))
            elif isinstance(step, (Conj, Neg)):
                back = back.then(step)
            else:
                return None
            chain = chain.parent
        return back

    # ------------------------------------------------------------ the places of its elements

    @property
    def geometry(self) -> TensorGeometry:
        """Sizes, strides and offset in a row-major root, in elements of this view's dtype: the values of `stride()`.

        Raises `RuntimeError` for an as_strided relative to a view whose elements have no strides of their own.
        """
        if self._geometry is _UNSET:
            self._geometry = self._find_geometry()
        if self._geometry is None:
            raise RuntimeError(f"{self!r} has no strides: it is relative to a view that is not a block of its root")
        return self._geometry

    def _find_geometry(self) -> TensorGeometry | None:
        if self.parent is None:
            return TensorGeometry.contiguous(self.shape)
        if self.parent._geometry is _UNSET:
            self.parent._geometry = self.parent._find_geometry()
        seen = self.parent._geometry
        return None if seen is None else self.steps[-1].geometry(seen, self.parent.dtype)

    @property
    def expressible(self) -> bool:
        """True if one `as_strided` of the root is equal: strides exist, and values and dtype are the root's."""
        if self._geometry is _UNSET:
            self._geometry = self._find_geometry()
        return self._geometry is not None and all(step.geometric for step in self.steps)

    @property
    def overlaps(self) -> bool:
        """True if two indices of the view are the same element of the root."""
        if self._overlaps is _UNSET:
            if self._geometry is _UNSET:
                self._geometry = self._find_geometry()
            if self._geometry is not None:
                self._overlaps = self._geometry.overlaps()
            else:  # no strides: it overlaps if a step of it does
                chain, found = self, False
                while chain.parent is not None and not found:
                    own = TensorGeometry.contiguous(chain.parent.shape)
                    alone = chain.steps[-1].geometry(own, chain.parent.dtype)
                    assert alone is not None  # a row-major input has strides for every step
                    found = alone.overlaps()
                    chain = chain.parent
                self._overlaps = found
        return self._overlaps

    @property
    def distinct(self) -> TensorGeometry | None:
        """The geometry that covers each of the view's elements once; None if there is none."""
        self.overlaps  # noqa: B018 - finds the geometry
        return None if self._geometry is None else self._geometry.distinct()

    def check_writable(self) -> None:
        """Raise `OverlapError`, a RuntimeError, if the view overlaps itself, and so cannot be written in place."""
        if self.overlaps:
            raise OverlapError(OVERLAP)

    # ------------------------------------------------------------ its programs

    @property
    def lowered(self) -> "ViewChain":
        """The chain whose programs this one uses: slices and transposes replace each as_strided where possible."""
        if self._lowered is None and not any(step.repeats for step in self.steps):
            self._lowered = self
        if self._lowered is None:
            chain = ViewChain.root(self.root_shape, self.root_dtype)
            for step in self.steps if self.overlaps else self._without_overlap():
                steps = step.lowered(chain.shape) if isinstance(step, AsStrided) else None
                for lower in steps or [step]:
                    chain = chain.then(lower)
            self._lowered = chain
        return self._lowered

    def _without_overlap(self) -> list[ViewStep]:
        """Return equal steps without overlap in between, which `expand(...).diagonal()` for example has."""
        steps: list[ViewStep] = []
        run: list[ViewStep] = []  # geometric steps one after the other,
        seen = TensorGeometry.contiguous(self.root_shape)  # their geometry on a row-major input,
        overlapped = False  # and True if a step of the run overlaps
        shape, dtype = self.root_shape, self.root_dtype
        for step in self.steps:
            now = step.geometry(seen, dtype) if step.geometric else None
            if now is None:
                steps += [AsStrided(seen.sizes, seen.strides, seen.offset)] if overlapped else run
                run, seen, overlapped = [], TensorGeometry.contiguous(shape), False
                now = step.geometry(seen, dtype)
            shape, dtype = step.result(shape, dtype)
            if step.geometric:
                assert now is not None  # a row-major input has strides for every step
                run.append(step)
                seen, overlapped = now, overlapped or now.overlaps()
            else:
                steps.append(step)
                seen = TensorGeometry.contiguous(shape)
        return steps + ([AsStrided(seen.sizes, seen.strides, seen.offset)] if overlapped else run)

    @property
    def start_values(self) -> Shape:
        """The starts that are operands of the chain's programs, as integers."""
        chain, values = self.lowered, ()
        while chain.parent is not None:
            values = chain.steps[-1].starts(chain.parent.shape) + values
            chain = chain.parent
        return values

    @property
    def starts(self) -> tuple[Any, ...]:
        """The starts that are operands of the chain's programs, as int32 scalars on the device, cached."""
        if self._program is None:
            self._prepare()
        return self._starts

    @property
    def program(self) -> Program:
        """The programs that this chain shares with chains that differ in their starts only."""
        program = self._program
        return program if program is not None else self._prepare()

    def _prepare(self) -> Program:
        """Fetch programs and starts, so that `replay` and `write_back` look nothing up."""
        program, values = self._found()
        self._starts = tuple([scalar_of(value) for value in values])
        self._write, self._write_donated = program.write, program.write_donated
        if not self.is_root:
            self._view, self._few = program.view, None
        self._program = program  # last: another thread takes it for a sign that all attributes are set
        return program

    def _found(self) -> tuple[Program, list[int]]:
        """Return the program that replays this chain, and the starts that are its operands."""
        if self._first is not None and not self.is_root:
            cut: Any = self.steps[0]
            return self._first.program, [cut._starts[0]]
        chain = self.lowered
        keys = tuple([step.program_key() for step in chain.steps])
        starts: list[Shape] = []  # of each step, the last one's first
        while chain.parent is not None:
            starts.append(chain.steps[-1].starts(chain.parent.shape))
            chain = chain.parent
        starts.reverse()
        counts = tuple([len(values) for values in starts])
        program = program_of(self.root_shape, self.root_dtype, keys, counts)
        return program, [value for values in starts for value in values]

    @property
    def program_key(self) -> tuple[Any, ...]:
        """The cache key of the chain's programs."""
        program = self.program
        return program.root_shape, program.root_dtype, program.steps

    def replay(self, array: Any) -> Any:
        """Read the view of a root array: by one compiled program, or the array itself for the root's chain."""
        view = self._view
        if view is None:
            if self._reads < _FEW and runner.at_once() and not isinstance(array, (Tracer, Pending)):
                self._reads += 1
                few = self._few
                if few is None:
                    program, values = self._found()
                    few = self._few = program.view, tuple([start_of(value) for value in values])
                view, starts = few
                return view(array, *starts)
            self._prepare()
            view = self._view
        return view(array, *self._starts)

    def write_back(self, array: Any, new: Any, donate: bool = False, where: Any = None) -> Any:
        """Return the root array with the view's part replaced by `new`, broadcast and cast to the view's form.

        With `donate` the array's buffer is donated and written in place: the cost is proportional to the view. `where`:
        the sharding of the result, because XLA may choose another.  Raises `OverlapError` if the view overlaps itself.
        """
        write = self._write_donated if donate else self._write
        if where is not None:
            write = self.program.write_placed(donate, where)
        elif write is None:
            self._prepare()
            write = self._write_donated if donate else self._write
        if self._overlaps is not False:
            self.check_writable()
        return write(array, new, *self._starts)

    def writer(self, donate: bool, where: Any = None) -> Any:
        """Return the program `(root, new, *starts)` of `write_back`.  Raises `OverlapError` for overlapping views."""
        if self._overlaps is not False:
            self.check_writable()
        program = self.program
        if where is not None:
            return program.write_placed(donate, where)
        return program.write_donated if donate else program.write

    def adjoint(self, grad: Any) -> Any:
        """Return the gradient of the root for a gradient of the view: zero elsewhere, summed where the view overlaps.

        By PyTorch's convention for complex numbers: the gradient of `imag` is `1j * grad`.
        """
        if self.is_root:
            return grad
        return self.program.adjoint(grad, *self._starts)

    def update(
        self, function: Callable[..., Any], key: Any, donate: bool = False, where: Any = None
    ) -> Callable[..., Any]:
        """Return the program `(root, starts, *operands)` that replaces the view by `function(view, *operands)`.

        It returns the root only: with another result XLA would copy the donated buffer.  `starts` is this chain's.  The
        program is cached by `key`, which must identify `function`.  `where`: the sharding of the new root.
        """
        if self._overlaps is not False:
            self.check_writable()
        return (self._program or self._prepare()).update(function, key, donate, where)

    # Inside of another program: not compiled by themselves.  `starts` may be operands of that program.

    def trace_replay(self, array: Any, starts: tuple[Any, ...] | None = None) -> Any:
        """`replay`, to be traced into another program."""
        return self.program.trace_replay(array, *(self.starts if starts is None else starts))

    def trace_write_back(self, array: Any, new: Any, starts: tuple[Any, ...] | None = None) -> Any:
        """`write_back`, to be traced into another program."""
        self.check_writable()
        return self.program.trace_write(array, new, *(self.starts if starts is None else starts))

    def trace_adjoint(self, grad: Any, starts: tuple[Any, ...] | None = None) -> Any:
        """`adjoint`, to be traced into another program."""
        return self.program.trace_adjoint(grad, *(self.starts if starts is None else starts))


def _rebuild(shape: Shape, dtype: np.dtype, steps: tuple[ViewStep, ...]) -> ViewChain:
    chain = ViewChain.root(shape, dtype)
    for step in steps:
        chain = chain.then(step)
    return chain
