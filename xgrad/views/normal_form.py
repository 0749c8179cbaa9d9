"""combine: simplifies two neighbouring steps of a view's chain (its list of slices, permutes, reshapes, ...).

ViewChain (chain.py) calls it when it grows, so that many equal views have one chain.  The rules work towards one order,

    slice  ──►  permute  ──►  reshape  ──►  the others  ──►  conj, neg

so that a write touches only the elements that the view covers, and a chain built in a loop stays one step.  Invariant:
each rule removes a step or moves one in that order, so that rewriting ends.
"""

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from .geometry import Shape
from .value_ops import BitCast, Conj, Imag, Neg, Real, ViewAsComplex, ViewAsReal
from .view_ops import AsStrided, Diagonal, Expand, Permute, Reshape, Slice, Unfold, ViewStep

Steps = tuple[ViewStep, ...]


def combine(shape: Shape, dtype: np.dtype, first: ViewStep, second: ViewStep) -> Steps | None:
    """Return the steps that replace `first, second` on an input of `shape` and `dtype`; None to leave them."""
    rule = _RULES.get((type(first), type(second)))
    if rule is not None:
        return rule(shape, first, second)
    if second.geometric:
        if isinstance(first, AsStrided):
            seen = second.geometry(first.own_geometry, dtype)
            return None if seen is None else (AsStrided(seen.sizes, seen.strides, seen.offset),)
        if first.elementwise(dtype):
            return second, first
    if isinstance(second, Slice) and 0 not in second.sizes:
        pull = _PULLS.get(type(first))
        if pull is not None:
            return pull(shape, dtype, first, second)
    return None


# ---------------------------------------------------------------- two steps of the same or of neighbouring kinds


def _slice_slice(shape: Shape, first: Slice, second: Slice) -> Steps:
    starts = tuple(a + b * k for a, b, k in zip(first._starts, second._starts, first.steps))
    return (Slice(starts, second.sizes, tuple(a * b for a, b in zip(first.steps, second.steps))),)


def _permute_permute(shape: Shape, first: Permute, second: Permute) -> Steps:
    return (Permute(tuple(first.dims[d] for d in second.dims)),)


def _nonunit(shape: Shape) -> list[int]:
    return [d for d, n in enumerate(shape) if n != 1]


def _only_units(before: Shape, after: Shape) -> bool:
    """Return True if a reshape only adds and drops dimensions of size 1."""
    return [n for n in before if n != 1] == [n for n in after if n != 1]


def _permute_then_units(shape: Shape, order: list[int], after: Shape) -> Steps:
    """Return the one form of "the dimensions `order` of `shape`, none of size 1, and the 1s of `after`"."""
    units = [d for d, n in enumerate(shape) if n == 1]
    if len(units) == len(after) - len(order):
        pick, unit = iter(order), iter(units)
        return (Permute(tuple(next(unit) if n == 1 else next(pick) for n in after)),)
    pick = iter(order)
    dims = tuple(d if n == 1 else next(pick) for d, n in enumerate(shape))
    return Permute(dims), Reshape(after)


def _permute_reshape(shape: Shape, first: Permute, second: Reshape) -> Steps | None:
    permuted = tuple(shape[d] for d in first.dims)
    if 0 in shape or not _only_units(permuted, second.shape):
        return None
    steps = _permute_then_units(shape, [d for d in first.dims if shape[d] != 1], second.shape)
    return None if steps == (first, second) else steps


def _reshape_permute(shape: Shape, first: Reshape, second: Permute) -> Steps | None:
    if 0 in shape or not _only_units(shape, first.shape):
        return None
    source = dict(zip(_nonunit(first.shape), _nonunit(shape)))
    after = tuple(first.shape[d] for d in second.dims)
    return _permute_then_units(shape, [source[d] for d in second.dims if d in source], after)


def _reshape_expand(shape: Shape, first: Reshape, second: Expand) -> Steps | None:
    leading = len(first.shape) - len(shape)
    return (second,) if leading > 0 and first.shape == (1,) * leading + shape else None


def _last(shape: Shape, first: ViewStep, second: ViewStep) -> Steps:
    return (second,)


def _nothing(shape: Shape, first: ViewStep, second: ViewStep) -> Steps:
    return ()


def _swap(shape: Shape, first: ViewStep, second: ViewStep) -> Steps:
    return second, first


_RULES: dict[tuple[type, type], Callable[..., Steps | None]] = {
    (Slice, Slice): _slice_slice,
    (Permute, Permute): _permute_permute,
    (Permute, Reshape): _permute_reshape,
    (Reshape, Permute): _reshape_permute,
    (Reshape, Reshape): _last,
    (Reshape, Expand): _reshape_expand,
    (Expand, Expand): _last,
    (BitCast, BitCast): _last,
    (ViewAsReal, ViewAsComplex): _nothing,
    (ViewAsComplex, ViewAsReal): _nothing,
    (Conj, Conj): _nothing,
    (Neg, Neg): _nothing,
    (Neg, Conj): _swap,
    (Neg, Real): _swap,
    (Neg, Imag): _swap,
    (Neg, ViewAsReal): _swap,
    (Neg, ViewAsComplex): _swap,
    (Conj, Real): _last,
    (Conj, Imag): lambda shape, first, second: (Imag(), Neg()),
}


# ---------------------------------------------------------------- a slice moves in front


Cut = tuple[int, int, int]  # start, size, step


def _cuts(second: Slice) -> list[Cut]:
    return list(zip(second._starts, second.sizes, second.steps))


def _whole(shape: Shape) -> list[Cut]:
    return [(0, n, 1) for n in shape]


def _slice(cuts: list[Cut]) -> Slice:
    starts, sizes, steps = zip(*cuts) if cuts else ((), (), ())
    return Slice(starts, sizes, steps)


def _rest(sizes: Shape, cuts: list[Cut], left: list[int]) -> Steps:
    """Return the slice that stays behind: cuts of the dimensions `left`."""
    rest = _whole(sizes)
    for d in left:
        rest[d] = cuts[d]
    return (_slice(rest),) if any(cuts[d] != (0, n, 1) for d, n in enumerate(sizes) if d in left) else ()


def _pull_permute(shape: Shape, dtype: np.dtype, first: Permute, second: Slice) -> Steps:
    cuts = _cuts(second)
    moved = _whole(shape)
    for d, source in enumerate(first.dims):
        moved[source] = cuts[d]
    return _slice(moved), first


def _pull_expand(shape: Shape, dtype: np.dtype, first: Expand, second: Slice) -> Steps:
    new = len(first.shape) - len(shape)
    repeated = first.repeated(shape)
    # All repeated elements are equal: any of them may be read.
    moved = [(0, 1, 1) if d in repeated else cut for d, cut in enumerate(_cuts(second)) if d >= new]
    return _slice(moved), Expand(second.sizes)


def _pull_kept(kept: Callable[[Any, Shape], list[int]]) -> Callable[..., Steps | None]:
    """Return the rule of a step whose dimension d is dimension `kept[d]` of its input; other cuts stay behind."""

    def pull(shape: Shape, dtype: np.dtype, first: ViewStep, second: Slice) -> Steps | None:
        cuts, source = _cuts(second), kept(first, shape)
        moved = _whole(shape)
        for d, s in enumerate(source):
            moved[s] = cuts[d]
        if moved == _whole(shape):
            return None
        seen, _ = first.result(tuple(n for _, n, _ in moved), dtype)
        return (_slice(moved), first, *_rest(seen, cuts, list(range(len(source), len(cuts)))))

    return pull


def _pull_unfold(shape: Shape, dtype: np.dtype, first: Unfold, second: Slice) -> Steps | None:
    cuts = _cuts(second)
    moved = cuts[:-1]
    start, count, step = moved[first.dim]
    step *= first.step
    reach = (count - 1) * step + first.size
    moved[first.dim] = (start * first.step, reach, 1)
    changed = Unfold(first.dim, first.size, step if count > 1 else 1)
    if moved == _whole(shape) and changed == first:
        return None
    seen = tuple(n for _, n, _ in cuts[:-1]) + (first.size,)
    return (_slice(moved), changed, *_rest(seen, cuts, [len(cuts) - 1]))


def _groups(before: Shape, after: Shape) -> list[tuple[list[int], list[int]]]:
    """Return groups of dimensions of `before` and `after`, 1s aside, with the same elements: the finest pairing."""
    groups: list[tuple[list[int], list[int]]] = []
    ins, outs = _nonunit(before), _nonunit(after)
    i = j = 0
    while i < len(ins):
        a, b = before[ins[i]], after[outs[j]]
        group = ([ins[i]], [outs[j]])
        i, j = i + 1, j + 1
        while a != b:
            if a < b:
                a *= before[ins[i]]
                group[0].append(ins[i])
                i += 1
            else:
                b *= after[outs[j]]
                group[1].append(outs[j])
                j += 1
        groups.append(group)
    return groups


def _range_in(sizes: list[int], low: int, length: int) -> list[Cut] | None:
    """Return cuts that select the elements `low : low + length` of a row-major array; None if they are not a block."""
    cuts: list[Cut] = []
    for d in range(len(sizes)):
        block = prod(sizes[d + 1 :])
        if low % block == 0 and length % block == 0:
            cuts.append((low // block, length // block, 1))
            return cuts + _whole(tuple(sizes[d + 1 :]))
        row = low // block
        if (low + length - 1) // block != row:
            return None
        cuts.append((row, 1, 1))
        low -= row * block
    return cuts


def _pull_group(ins: list[int], outs: list[int], cuts: list[Cut]) -> tuple[list[Cut], int] | None:
    """Move cuts in front of one group of a reshape: return the input's cuts, and the number of dimensions they replace.

    Only the leading dimensions can move: those cut down to 1, and the first that is not.
    """
    block, low, size, done = prod(outs), 0, 1, 0
    for done, (n, (start, size, step)) in enumerate(zip(outs, cuts), 1):
        block //= n
        low += start * block
        if size > 1:
            if step > 1 and (block > 1 or len(ins) > 1):
                return None
            if step > 1:
                return [(low, size, step)], done
            break
    moved = _range_in(ins, low, size * block)
    return None if moved is None else (moved, done)


def _pull_reshape(shape: Shape, dtype: np.dtype, first: Reshape, second: Slice) -> Steps | None:
    if 0 in shape:
        return None
    cuts = _cuts(second)
    moved, seen, left = _whole(shape), list(first.shape), []
    for ins, outs in _groups(shape, first.shape):
        pulled = _pull_group([shape[d] for d in ins], [first.shape[d] for d in outs], [cuts[d] for d in outs])
        cut, done = pulled if pulled is not None else (_whole(tuple(shape[d] for d in ins)), 0)
        for d, c in zip(ins, cut):
            moved[d] = c
        for d in outs[:done]:
            seen[d] = cuts[d][1]
        left += outs[done:]
    if moved == _whole(shape):
        return None
    return (_slice(moved), Reshape(tuple(seen)), *_rest(tuple(seen), cuts, left))


_PULLS: dict[type, Callable[..., Steps | None]] = {
    Permute: _pull_permute,
    Expand: _pull_expand,
    Reshape: _pull_reshape,
    Unfold: _pull_unfold,
    Diagonal: _pull_kept(lambda first, shape: first.kept(len(shape))),
    ViewAsReal: _pull_kept(lambda first, shape: list(range(len(shape)))),
    ViewAsComplex: _pull_kept(lambda first, shape: list(range(len(shape) - 1))),
    BitCast: _pull_kept(lambda first, shape: list(range(len(shape) - 1))),
}
