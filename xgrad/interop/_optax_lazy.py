"""A step inside of a lazy block: the update of all parameters is one operation of the queue.

So the step's forward, backward and update are one XLA program, in which parameters and state keep their memory.
"""

from typing import Any

import jax

from ..base.jax_compat import Tracer
from ..execution.donation import surely
from ..execution.execute import spread
from ..execution.pending import Pending
from ..execution.programs.programs import Program, jit_checked
from ..execution.queue import Queue
from ..execution.rollback import replaces
from ..execution.shapes import MOST_RESULTS
from ..views.storage import writing


def note_step(update: Any, queue: Queue, grads: list[Any], extra: dict[str, Any]) -> bool:
    """Note a step of an `Update` in the queue; return False, and do nothing, if it has to run at once.

    That is so for parameters that are views or share a storage, for arrays on several devices or in a trace, and for
    more results than one operation of a queue may have.
    """
    arrays = [holder._array for holder in update.holders]
    further, tree = jax.tree.flatten(extra)
    if (
        update.others
        or len(arrays) + len(update.tensors) > MOST_RESULTS
        or any(a is None or isinstance(a, Tracer) or spread(a) for a in (*arrays, *grads, *further))
        or any(spread(t._array) for t in update.tensors)
    ):
        return False
    program = update.lazy_programs.get(tree)
    if program is None:
        program = _program(update, arrays, grads, extra, tree)
    leaves = [t._array for t in update.tensors]
    owners = [*update.own, *[None] * len(grads), *update.tensors, *[None] * len(further)]
    numbers: list[tuple] = []
    results: list[Any] = []
    count = len(arrays)
    with writing:
        update.number(numbers)
        try:
            new = queue.note(program, [*arrays, *grads, *leaves, *further], owners)
            results.append((new[:count], (), new[count:]))
            update.settle(arrays, leaves, numbers, results)
            for result, before, holder, owner in zip(
                new, (*arrays, *leaves), (*update.holders, *update.tensors), (*update.own, *update.tensors)
            ):
                replaces(result, before, holder, owner)
        except BaseException:
            if results:
                surely(update.settle, arrays, leaves, numbers, results)
            raise
    return True


def _program(update: Any, arrays: list[Any], grads: list[Any], extra: dict[str, Any], tree: Any) -> Program:
    """Return the program of a step, over (*parameters, *gradients, *state, *further arguments)."""
    whole = update.whole()
    own, gradients, state = len(arrays), len(grads), len(update.tensors)

    def optimizer_step(*values: Any) -> tuple[Any, ...]:
        params, given = list(values[:own]), list(values[own : own + gradients])
        leaves = list(values[own + gradients : own + gradients + state])
        further = jax.tree.unflatten(tree, values[own + gradients + state :])
        new, _, states = whole(params, [], given, leaves, further)
        return (*new, *states)

    like = [[_like(a) for a in values] for values in (arrays, grads)]
    while True:
        avals = jax.eval_shape(whole, like[0], [], like[1], [_like(t._array) for t in update.tensors], extra)[2]
        if update.settled(avals):
            break
    program = update.lazy_programs[tree] = jit_checked(optimizer_step)
    return program


def _like(array: Any) -> Any:
    return array.aval.struct if array.__class__ is Pending else array
