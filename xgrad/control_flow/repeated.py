"""repeated_while: runs `while_loop`'s steps in a JAX program; it can be differentiated in reverse, to any order.

    step(*carried, *outside) ──► carried

A reverse sweep needs the carried values of all steps, last one first, and XLA has no array of as many as there are
steps.  So it keeps some of them in `SLOTS` slots, and computes the others again:

    0 ─────────────► n      forward counts the steps, and keeps nothing
    0 ──●────●───●►         the sweep goes from the last slot to the end, fills free slots on its way, and takes one
    0 ──●────●──►◄          step back; then from the last slot that is left to the step before; ...

Where slots are placed is Griewank's binomial rule, with which s slots and t repetitions are enough for
(s + t)! / (s! t!) steps: with 32 slots each step runs once more up to 33 steps, twice up to 561, three times up to
6545.

A derivative of the sweep, along v, is the tangent of the steps along v, pulled back: `<sweep(x, g), v>` is
`<g, tangent(x, v)>`, and the tangents' steps are repeated steps themselves.

Sources: Griewank, Achieving logarithmic growth of temporal and spatial complexity in reverse automatic differentiation,
1992; loops with such checkpoints in JAX: Kidger, On neural differential equations, 2021, and its library Equinox.
PyTorch (torch/_higher_order_ops/while_loop.py) stacks the carried values of all steps.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from ..base import dtypes
from ..execution.programs.half import widen

SLOTS = 32


def repeated_while(goes: Callable[..., Any], step: Callable[..., Any], count: int) -> Any:
    """Return a function (*carried, *outside) ↦ the carried after a step is repeated while `goes` is true.

    count: how many arrays are carried.  `goes(*carried, *outside)` is a boolean array without dimensions.
    """

    @jax.custom_vjp
    def counted(*arrays: Any) -> tuple[Any, tuple[Any, ...]]:
        outside = arrays[count:]
        return lax.while_loop(
            lambda now: goes(*now[1], *outside),
            lambda now: (now[0] + 1, tuple(step(*now[1], *outside))),
            (jnp.int32(0), arrays[:count]),
        )

    def forward(*arrays: Any) -> Any:
        found = counted(*arrays)  # this itself: a second derivative is one of what is called here
        return found, (found[0], arrays)

    counted.defvjp(forward, lambda saved, grads: _backward(step, count, saved, grads[1])[1:])
    return lambda *arrays: counted(*arrays)[1]


def _repeated(step: Callable[..., Any], count: int) -> Any:
    """Return the function (number, *carried, *outside) ↦ the carried after so many steps."""

    @jax.custom_vjp
    def run(number: Any, *arrays: Any) -> tuple[Any, ...]:
        return _advanced(step, arrays[:count], arrays[count:], number)

    def forward(number: Any, *arrays: Any) -> Any:
        return run(number, *arrays), (number, arrays)

    run.defvjp(forward, lambda saved, grads: _backward(step, count, saved, grads))
    return run


def _advanced(step: Callable[..., Any], carried: Any, outside: Any, number: Any) -> tuple[Any, ...]:
    return lax.fori_loop(0, number, lambda _, now: tuple(step(*now, *outside)), tuple(carried))


def _moving(arrays: Any) -> list[int]:
    """Return the places of the arrays that can have a gradient."""
    return [i for i, a in enumerate(arrays) if a.dtype in dtypes.INEXACT]


def _backward(step: Callable[..., Any], count: int, saved: Any, grads: Any) -> tuple[Any, ...]:
    """Return the gradients of (number, *arrays), None where there is none."""
    number, arrays = saved
    given = [grads[i] for i in _moving(arrays[:count])]
    return None, *_spread(arrays, _pulled(step, count, len(arrays))(number, *arrays, *given))


def _spread(arrays: Any, grads: Any) -> list[Any]:
    found = dict(zip(_moving(arrays), grads, strict=True))
    return [found.get(i) for i in range(len(arrays))]


def _pulled(step: Callable[..., Any], count: int, total: int) -> Any:
    """Return the function (number, *arrays, *gradients of what is carried) ↦ gradients of the arrays.

    total: how many arrays there are.  Gradients are returned for the arrays that can have one.
    """

    @jax.custom_vjp
    def pull(number: Any, *values: Any) -> tuple[Any, ...]:
        return _swept(step, count, number, values[:total], values[total:])

    def forward(number: Any, *values: Any) -> Any:
        return pull(number, *values), (number, values)

    def backward(saved: Any, along: Any) -> tuple[Any, ...]:
        number, (arrays, grads) = saved[0], (saved[1][:total], saved[1][total:])
        m = len(grads)
        both, doubled = _with_tangents(step, count, arrays), count + m
        given = (*arrays[:count], *along[:m], *arrays[count:], *along[m:])
        tangents = _repeated(both, doubled)(number, *given)[count:]
        found = _pulled(both, doubled, len(given))(number, *given, *map(jnp.zeros_like, grads), *grads)
        own = len(along) - m  # of (carried, its tangents, outside, its tangents) the first and the third are asked for
        return None, *_spread(arrays, [*found[:m], *found[2 * m : 2 * m + own]]), *tangents

    pull.defvjp(forward, backward)
    return pull


def _with_tangents(step: Callable[..., Any], count: int, arrays: Any) -> Callable[..., Any]:
    """Return the step that carries tangents too: of (carried, tangents, outside, tangents)."""
    places, total = _moving(arrays), len(arrays)
    m = sum(i < count for i in places)

    def both(*values: Any) -> list[Any]:
        full = [*values[:count], *values[count + m : total + m]]
        along = (*values[count : count + m], *values[total + m :])
        kept: list[Any] = []

        def moved(*given: Any) -> list[Any]:
            now = [*full]
            for i, value in zip(places, given, strict=True):
                now[i] = value
            kept[:] = step(*now)
            return [kept[i] for i in places[:m]]

        def known(*given: Any) -> tuple[list[Any], list[Any]]:
            return moved(*given), [*kept]

        # The tape's steps have no forward mode: a tangent is the derivative of the gradient, linear in what is pulled.
        new, pull, after = jax.vjp(known, *[full[i] for i in places], has_aux=True)
        _, push = jax.vjp(lambda *grads: pull([*grads]), *map(jnp.zeros_like, new))
        return [*after, *push(along)]

    return both


# ---------------------------------------------------------------- the sweep


def _swept(step: Callable[..., Any], count: int, number: Any, arrays: Any, grads: Any) -> tuple[Any, ...]:
    """Return the gradients of the arrays that can have one, after `number` steps back."""
    start, outside = arrays[:count], arrays[count:]
    moving, others = _moving(start), _moving(outside)

    def back(carried: Any, grads: Any, sums: Any) -> tuple[Any, Any]:
        def moved(some: Any, rest: Any) -> list[Any]:
            full, more = [*carried], [*outside]
            for i, value in zip(moving, some, strict=True):
                full[i] = value
            for i, value in zip(others, rest, strict=True):
                more[i] = value
            new = step(*full, *more)
            return [new[i] for i in moving]

        pull = jax.vjp(moved, [carried[i] for i in moving], [outside[i] for i in others])[1]
        found, more = pull(grads)
        return found, [a + widen(b) for a, b in zip(sums, more, strict=True)]

    def fill(end: Any, now: Any) -> Any:
        """Go on from step `at`, to the next step that gets a slot or to the last one."""
        at, carried, top, places, slots = now
        to = at + jnp.where(top == SLOTS - 1, end - 1 - at, _to_next_slot(end - at, SLOTS - top))
        carried = _advanced(step, carried, outside, to - at)
        kept = to < end - 1
        slot = jnp.where(kept, top + 1, SLOTS)  # out of range: dropped
        places = places.at[slot].set(to, mode="drop")
        slots = [s.at[slot].set(c, mode="drop") for s, c in zip(slots, carried, strict=True)]
        return to, carried, top + kept, places, slots

    def one_back(now: Any) -> Any:
        end, top, places, slots, grads, sums = now
        at, carried, top, places, slots = lax.while_loop(
            lambda now: now[0] < end - 1,
            lambda now: fill(end, now),
            (places[top], tuple(s[top] for s in slots), top, places, slots),
        )
        grads, sums = back(carried, grads, sums)
        return end - 1, top - (places[top] == at), places, slots, grads, sums

    zero = jnp.int32(0)
    slots = [jnp.zeros((SLOTS, *a.shape), a.dtype).at[0].set(a) for a in start]
    sums = [jnp.zeros_like(widen(outside[i])) for i in others]
    *_, grads, sums = lax.while_loop(
        lambda now: now[0] > 0, one_back, (number, zero, jnp.zeros(SLOTS, jnp.int32), slots, [*grads], sums)
    )
    return (*grads, *[a.astype(outside[i].dtype) for i, a in zip(others, sums, strict=True)])


def _to_next_slot(steps: Any, slots: Any) -> Any:
    """Return how many of the steps to go before the next slot is filled; `slots` are free, or the one at the start."""

    def more(now: Any) -> Any:
        repetitions, enough = now[0] + 1, now[1]
        return repetitions, enough * (slots + repetitions) / repetitions

    first = jnp.float32(1), (slots + 1).astype(jnp.float32)
    repetitions, _ = lax.while_loop(lambda now: now[1] < steps, more, first)
    return jnp.clip(jnp.ceil(steps * repetitions / (slots + repetitions)).astype(jnp.int32), 1, steps - 1)
