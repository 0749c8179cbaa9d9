"""Tests a backend's own view functions (`ViewRule`: read, write, adjoint) on random base arrays, for `xgrad conform`.

A view is a lens, which obeys laws.  With its functions `read`, `write` and `adjoint`, for roots (base arrays) r, values
n and m, gradients g and c:

    read shows the view              read(r) = the view by xgrad's own steps
    a read gives what was written    read(write(r, n)) = n
    writing what is there            write(r, read(r)) = r
    the last write wins              write(write(r, n), m) = write(r, m)
    the rest stays                   write(r, n) = the write by xgrad's own steps
    the rest does not matter         NaN or infinite outside of the part, the part is the same
    the adjoint transposes the read  <read(r), g> = <r, adjoint(g)>
    the gradient of a write          to n: read(c); to r: write(c, 0)
    two views of one root agree      what is written through one is read through the other

Each law that fails is named with the smallest root and arguments on which it does; after an exception no larger ones
are tried.  The smallest roots have whole numbers, which are easy to read.  Larger ones have numbers with all digits of
their dtype; the last has 300 rows, if the view can be made of it.
"""

import random
from collections.abc import Callable, Iterator
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..base.dtypes import INEXACT
from ..dispatch.view import view
from ..ops.create.from_data import tensor
from ..views.chain import ViewChain
from ..views.rules import Ruled, ViewRule
from .execution import Place, values
from .measure import TOLERANCE, epsilon, wide
from .records import WRONG, Check

Shape = tuple[int, ...]
_TRIES = 60  # roots with arguments that are drawn; those that are the same, or make no view, count too
_CASES = 6
_ROWS = 300  # of the last case
_SHOWN = 60  # elements of a counterexample's array

_READ, _PUT_GET, _GET_PUT, _PUT_PUT = (
    "read shows the view", "a read gives what was written", "writing what is there", "the last write wins",
)  # fmt: skip
_REST, _OTHERS, _ADJOINT, _GRADIENT, _TWO = (
    "the rest stays", "the rest does not matter", "the adjoint transposes the read", "the gradient of a write",
    "two views of one root agree",
)  # fmt: skip
LAWS = (_READ, _PUT_GET, _GET_PUT, _PUT_PUT, _REST, _OTHERS, _ADJOINT, _GRADIENT, _TWO)

Draw = Callable[[random.Random, Shape], tuple[Any, ...]]


def _dim(r: random.Random, shape: Shape) -> int:
    return r.randrange(-len(shape), len(shape))


def _narrow(r: random.Random, shape: Shape) -> tuple[Any, ...]:
    dim = _dim(r, shape)
    start = r.randrange(-shape[dim], shape[dim])
    return dim, start, r.randint(0, shape[dim] - start % shape[dim])


def _slice(r: random.Random, shape: Shape) -> tuple[Any, ...]:
    dim = _dim(r, shape)
    return dim, r.randrange(-shape[dim], shape[dim]), r.choice((None, r.randint(1, shape[dim]))), r.randint(1, 2)


def _select(r: random.Random, shape: Shape) -> tuple[Any, ...]:
    dim = _dim(r, shape)
    return dim, r.randrange(-shape[dim], shape[dim])


def _unfold(r: random.Random, shape: Shape) -> tuple[Any, ...]:
    dim = _dim(r, shape)
    return dim, r.randint(1, min(shape[dim], 3)), r.randint(1, 2)


def _dims(r: random.Random, shape: Shape, count: int) -> tuple[int, ...]:
    """Return different dimensions.  One of 3 or 300 elements is a negative number."""
    return tuple([dim if shape[dim] % 3 else dim - len(shape) for dim in r.sample(range(len(shape)), count)])


_ARGUMENTS: dict[str, Draw] = {
    "select": _select, "narrow": _narrow, "slice": _slice, "unfold": _unfold,
    "diagonal": lambda r, shape: (r.randint(-1, 1), *_dims(r, shape, 2)),
    "permute": lambda r, shape: (_dims(r, shape, len(shape)),),
    "transpose": lambda r, shape: (_dim(r, shape), _dim(r, shape)),
    "movedim": lambda r, shape: ((_dim(r, shape),), (_dim(r, shape),)),
    "view": lambda r, shape: r.choice([(prod(shape),), (1, prod(shape)), (prod(shape[:-1]), shape[-1])]),
    "reshape": lambda r, shape: r.choice([(prod(shape),), (prod(shape), 1), (prod(shape[:-1]), shape[-1])]),
    "unflatten": lambda r, shape: (dim := _dim(r, shape), r.choice([(1, shape[dim]), (shape[dim], 1)])),
    "squeeze": lambda r, shape: (_dim(r, shape),),
    "unsqueeze": lambda r, shape: (r.randint(-len(shape) - 1, len(shape)),),
    "expand": lambda r, shape: (r.randint(1, 3), *shape),
}  # fmt: skip


def cases(name: str, dtype: np.dtype) -> list[tuple[Shape, tuple[Any, ...], ViewChain]]:
    """Return random shapes and arguments that make the view, with its chain; the smallest root first."""
    r, found = random.Random(0), {}
    for tried in range(2 * _TRIES):
        shape = tuple([r.randint(1, 3) for _ in range(r.randint(1, 3))])
        if tried >= _TRIES:  # the last is larger
            shape = (_ROWS, *shape[1:]) if tried % 2 else (_ROWS, *shape[1:-1], _ROWS + 1)
        try:
            args = _ARGUMENTS[name](r, shape) if name in _ARGUMENTS else ()
            chain = ViewChain.root(shape, dtype).view(name, *args)
        except (RuntimeError, IndexError, ValueError, TypeError, KeyError):
            continue  # this shape, or this dtype, does not have the view
        if not chain.is_root:
            found[shape, args] = chain
            if tried >= _TRIES and prod(chain.shape):
                break
    # Two of each size, so that larger roots are tried too.
    order = sorted(
        found, key=lambda case: (prod(case[0]), len(case[0]), case[0], repr(case[1]).count("-"), repr(case[1]))
    )
    sizes: dict[int, int] = {}
    kept = []
    for shape, args in order:
        sizes[prod(shape)] = sizes.get(prod(shape), 0) + 1
        if sizes[prod(shape)] <= 2:
            kept.append((shape, args, found[shape, args]))
    return kept[: _CASES - 2] + kept[max(len(kept) - 2, _CASES - 2) :]


def checks(name: str, rule: ViewRule, dtype: np.dtype, place: Place) -> list[Check]:
    """Return a check for each law that a view in this dtype has; a broken one has its smallest counterexample."""
    done: dict[str, Check] = {}
    for n, (shape, args, chain) in enumerate(cases(name, dtype)):
        step = Ruled(rule, name, args, chain.steps)
        try:
            step.check(shape, dtype)
            tried = [*_tried(step, chain, dtype, _digits if n > 2 else _numbers)]
            tried += [] if chain.overlaps else [_two_views(name, args, chain, place)]
        except Exception as error:
            said = f"{type(error).__name__}: {error}"
            return [*done.values(), Check("laws", WRONG, None, f"{name}{args} of {list(shape)}: {said}")]
        for law, given, ours, theirs in tried:
            right = _same(ours, theirs, dtype, law not in (_ADJOINT, _GRADIENT))
            if law not in done or (done[law].state != WRONG and not right):
                done[law] = (
                    Check(law) if right else Check(law, WRONG, None, _counterexample(name, args, given, ours, theirs))
                )
    return list(done.values())


def _tried(
    step: Ruled, chain: ViewChain, dtype: np.dtype, numbers: Callable[[Shape, np.dtype, int], Any]
) -> Iterator[tuple[str, dict[str, Any], Any, Any]]:
    """Give (law, what it was tried on, what the rule gives, what it must give)."""
    shape = chain.root_shape
    root = numbers(shape, dtype, 0)
    new, other = [numbers(chain.shape, chain.dtype, seed) for seed in (1, 2)]
    seen, on = step.read_one(root), {"root": root}
    yield _READ, on, seen, chain.trace_replay(root)
    writable = not chain.overlaps
    if writable:
        written = step.write_one(root, new)
        yield _PUT_GET, on | {"new": new}, step.read_one(written), new
        yield _GET_PUT, on, step.write_one(root, seen), root
        yield _PUT_PUT, on | {"new": new, "then": other}, step.write_one(written, other), step.write_one(root, other)
        yield _REST, on | {"new": new}, written, chain.trace_write_back(root, new)
    if dtype not in INEXACT or chain.dtype not in INEXACT:
        return
    if writable:
        rest = _infinite(shape, dtype)
        over = chain.trace_write_back(rest, new)
        yield _OTHERS, {"root": over}, step.read_one(over), new
        yield _OTHERS, {"root": rest, "new": new}, step.write_one(rest, new), over
        odd = _infinite(chain.shape, chain.dtype)
        given = step.adjoint_one(odd, jax.ShapeDtypeStruct(shape, dtype))
        yield _OTHERS, {"gradient": odd}, given, chain.trace_adjoint(odd)
    whole = step.adjoint_one(new, jax.ShapeDtypeStruct(shape, dtype))
    yield _ADJOINT, on | {"gradient": new}, _inner(seen, new), _inner(root, whole)
    yield _ADJOINT, {"gradient": new}, whole, chain.trace_adjoint(new)
    if writable and dtype.kind != "c" and chain.dtype.kind != "c":
        c = numbers(shape, dtype, 3)
        to_root, to_new = jax.vjp(step.write_one, root, new)[1](c)
        cleared = step.write_one(c, jnp.zeros_like(new))
        yield _GRADIENT, {"gradient": c}, jnp.ravel(to_root), jnp.ravel(cleared)
        yield _GRADIENT, {"gradient": c}, to_new, step.read_one(c)


def _two_views(
    name: str, args: tuple[Any, ...], chain: ViewChain, place: Place
) -> tuple[str, dict[str, Any], Any, Any]:
    """Write through one view of a tensor of the backend, and read another."""
    root, new = np.asarray(_numbers(chain.root_shape, chain.root_dtype, 0)), _numbers(chain.shape, chain.dtype, 1)
    base = tensor(root, device=place.given)
    one, two = [view(base, (name, *args), "ViewBackward0") for _ in range(2)]
    two.numpy(force=True)  # it has been read before: it is stale afterwards
    one.copy_(tensor(np.asarray(new), device=place.given))
    return _TWO, {"root": root, "new": new}, values([two])[0], new


def _numbers(shape: Shape, dtype: np.dtype, seed: int) -> Any:
    """Return an array of whole numbers that differ; of the first root they count from 1."""
    count = prod(shape)
    numbers: Any = np.arange(1, count + 1) if not seed else np.random.RandomState(seed).permutation(count) - count // 2
    numbers = numbers + 10 * seed
    if dtype.kind == "c":
        numbers = numbers + 1j * np.random.RandomState(seed + 9).permutation(count)
    return jnp.asarray((numbers % 2 == 1 if dtype.kind == "b" else numbers).reshape(shape).astype(dtype))


def _digits(shape: Shape, dtype: np.dtype, seed: int) -> Any:
    """Return an array of numbers with all digits of the dtype, of sizes from 1 to 2; whole ones if it has none."""
    if dtype not in INEXACT:
        return _numbers(shape, dtype, seed)
    drawn = np.random.RandomState(seed)
    parts = [drawn.uniform(1, 2, shape) * drawn.choice([-1, 1], shape) for _ in range(1 + (dtype.kind == "c"))]
    return jnp.asarray((parts[0] + 1j * parts[1] if dtype.kind == "c" else parts[0]).astype(dtype))


def _infinite(shape: Shape, dtype: np.dtype) -> Any:
    """Return an array of NaN and infinities."""
    return jnp.asarray(np.resize([np.nan, np.inf, -np.inf], shape).astype(dtype))


def _inner(a: Any, b: Any) -> Any:
    return np.sum(np.conj(wide(a)) * wide(b)).real


def _same(ours: Any, theirs: Any, dtype: np.dtype, exactly: bool) -> bool:
    a, b = wide(ours), wide(theirs)
    if a.shape != b.shape:
        return False
    if exactly or dtype not in INEXACT:
        return bool(np.array_equal(a, b, equal_nan=a.dtype in INEXACT))
    limit = TOLERANCE[dtype.name] * epsilon(dtype) * max(1.0, float(np.max(np.abs(b), initial=0.0)))
    return bool(np.all(np.abs(a - b) <= limit))


def _counterexample(name: str, args: tuple[Any, ...], given: dict[str, Any], ours: Any, theirs: Any) -> str:
    on = ", ".join(f"{label} {_shown(array)}" for label, array in given.items())
    ours, theirs = np.asarray(ours), np.asarray(theirs)
    at = ""
    if ours.shape == theirs.shape and ours.size > _SHOWN:
        place = tuple(np.argwhere(~((ours == theirs) | ((ours != ours) & (theirs != theirs))))[0].tolist())
        ours, theirs, at = ours[place], theirs[place], f" at {list(place)}"
    return f"{name}({', '.join(map(repr, args))}) of {on} gives {_shown(ours)}{at}, but must give {_shown(theirs)}"


def _shown(array: Any) -> str:
    array = np.asarray(array)
    return str(array.tolist()) if array.size <= _SHOWN else f"of {list(array.shape)}"
